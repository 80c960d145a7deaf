/* What 'npudiff latency' prints of one series. */
#ifndef ND_CLI_LATENCY_REPORT_H
#define ND_CLI_LATENCY_REPORT_H

#include <jansson.h>

#include "npudiff/evidence.h"

struct latency_entry {
    const char *file;
    char *probe;      /* owned; NULL for a list of another tool */
    char *first_tied; /* owned; name of the first edge that slow runs change, or NULL */
    const char *format;
    struct nd_latency latency;
};

void latency_print(const struct latency_entry *entry, const struct nd_latency_options *options);

/* The field's rule with how often it is wrong on healthy series of about so many runs. */
void latency_print_rule(const struct nd_latency_options *options, size_t n_runs);

json_t *latency_json(const struct latency_entry *entry);
json_t *latency_rule_json(const struct nd_latency_options *options);

#endif
