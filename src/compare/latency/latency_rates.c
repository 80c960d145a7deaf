#include "npudiff/compare/latency.h"

/* Printed by tools/studies/score_latency, of 1000 series each. */
const struct nd_latency_rate *nd_latency_rule_rates(void)
{
    static const struct nd_latency_rate rates[] = {
        {"normal, CV 0.02", 30, 0},
        {"normal, CV 0.05", 30, 0.003},
        {"normal and exponential, 0.02 and 0.05", 30, 0.159},
        {"normal, CV 0.03, 2 % three times as long", 30, 0.448},
        {"normal, CV 0.02", 100, 0},
        {"normal, CV 0.05", 100, 0},
        {"normal and exponential, 0.02 and 0.05", 100, 0.019},
        {"normal, CV 0.03, 2 % three times as long", 100, 0.868},
        {"normal, CV 0.02", 200, 0},
        {"normal, CV 0.05", 200, 0},
        {"normal and exponential, 0.02 and 0.05", 200, 0.004},
        {"normal, CV 0.03, 2 % three times as long", 200, 0.982},
        {"normal, CV 0.02", 1000, 0},
        {"normal, CV 0.05", 1000, 0},
        {"normal and exponential, 0.02 and 0.05", 1000, 0},
        {"normal, CV 0.03, 2 % three times as long", 1000, 1},
        {NULL, 0, 0},
    };
    return rates;
}
