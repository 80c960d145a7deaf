/* The ways in which two products may be added in 16 bits. */
#include <stdio.h>

#include "arithmetic/variants/pairs.h"

#define ORDERED(order)                                                                                         \
    {false, true, 1, order}, {true, false, 8, order}, {true, true, 1, order}, {false, true, 8, order},         \
        {true, false, 1, order}, {true, true, 8, order}, {false, false, 1, order},                             \
    {                                                                                                          \
        false, false, 8, order                                                                                 \
    }
static const struct nd_pair_sum sums[ND_N_PAIR_SUMS] = {
    ORDERED(ND_PAIR_CHANNELS_FASTEST), ORDERED(ND_PAIR_POSITIONS_FASTEST), ORDERED(ND_PAIR_CHANNELS_PADDED)};

const struct nd_pair_sum *nd_pair_sums(void)
{
    return sums;
}

const char *nd_pair_sum_text(const struct nd_pair_sum *sum, bool has_orders, char buf[ND_PAIR_SUM_TEXT_BYTES])
{
    static const char *const orders[] = {[ND_PAIR_CHANNELS_FASTEST] = "; k counts channels fastest",
                                         [ND_PAIR_POSITIONS_FASTEST] = "; k counts kernel positions fastest",
                                         [ND_PAIR_CHANNELS_PADDED] =
                                             "; k counts the channels of one kernel position"};
    const char *known = sum->is_unsigned && !sum->is_wrapping && sum->distance == 1 ? ", as on x86 without VNNI"
                        : !sum->is_unsigned && sum->is_wrapping && sum->distance == 8
                            ? ", as smull with smlal does"
                            : "";
    snprintf(buf, ND_PAIR_SUM_TEXT_BYTES, "two products (k and k + %d) are added in 16 bits and %s%s%s",
             sum->distance, sum->is_wrapping ? "wrap" : "saturate", known,
             has_orders ? orders[sum->order] : "");
    return buf;
}
