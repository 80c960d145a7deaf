/* How often values of which size were seen: bins of relative width 1/64. docs/reference/metrics.md#errors.
 *
 * A bin holds the non-negative doubles with one exponent and one set of the six highest fraction bits, so that
 * every value is less than 1/64 above the lower edge of its bin and whole numbers below 128 have bins of
 * their own. Zero and infinity have bins of their own, too; of subnormals 2^46 neighbours share a bin. Adding
 * and merging have no order. A struct of zeros is empty. There is room for 2^63 elements. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compare/metrics/kernels/kernels.h"

enum { ND_LOG_FOLDERS = 128, ND_LOG_METHODS = 8 };

/* The bins of 16 exponents. */
struct nd_log_folder {
    /* A bin is the sum of its ways, and of what was moved to `more`: adding to one counter again and again
     * would wait for the addition before. */
    uint32_t (*n)[ND_LOG_METHODS]; /* [ND_LOG_IN_FOLDER]; NULL while empty */
    uint64_t *more;                /* [ND_LOG_IN_FOLDER]; NULL: nothing */
};

struct nd_log_histogram {
    struct nd_log_folder folder[ND_LOG_FOLDERS]; /* by the upper seven bits of the exponent */
    uint32_t (*slots)[ND_LOG_METHODS]; /* memory of slot 0 and of the folders of the others; NULL: none yet */
    uint64_t n_recent;                 /* elements that ways may hold */
    uint64_t n_zero, n_inf;
    bool failed; /* out of memory at some time: counts are missing */
};

/* n elements of one value (or, with 0 - n, as many of those that were added taken out), which must be
 * non-negative (-0 is 0) and no NaN. */
void nd_log_histogram_add_many(struct nd_log_histogram *h, double value, uint64_t n);

static inline void nd_log_histogram_add(struct nd_log_histogram *h, double value)
{
    nd_log_histogram_add_many(h, value, 1);
}

/* Slots of values (kernels.h), none above the greatest slot; folders: what nd_kernels.errors says of them. */
struct nd_slots {
    const uint32_t *slot;
    uint32_t folders;
};

/* Adds the n values of the list (NULL: the n first). Those of slot 0 are not added: *n_low says how many they
 * are. False when out of memory: nothing was added. */
bool nd_log_histogram_add_slots(struct nd_log_histogram *h, const struct nd_slots *slots, const uint16_t *list,
                                size_t n, uint64_t *n_low);

/* Adds all that is in other, which is not h. A failed other makes h failed. */
void nd_log_histogram_merge(struct nd_log_histogram *h, const struct nd_log_histogram *other);

/* All elements. */
uint64_t nd_log_histogram_count(const struct nd_log_histogram *h);

/* The lower edge of the bin that holds the element of rank ceil(num / den * N), at least rank 1, of all N =
 * count + n_zero_extra elements in increasing order; n_zero_extra further ones are 0. The rank is computed in
 * whole numbers, without rounding, for every N up to 2^63. num <= den, den > 0 (asserted). 0 when N is 0;
 * infinity from the bin of infinities. */
double nd_log_histogram_quantile(const struct nd_log_histogram *h, uint32_t num, uint32_t den,
                                 uint64_t n_zero_extra);

/* As text in new memory; NULL when out of memory, now or earlier (failed). One content has one text: "0" when
 * empty, else parts separated by semicolons: "zN" zeros, "iN" infinities, and "S:N,N,..." for bins that follow
 * one another without an empty one between them, S the number (bits >> 46) of the first in hexadecimal; in this
 * order, with increasing S. */
char *nd_log_histogram_format(const struct nd_log_histogram *h);

/* Reads what _format writes, and nothing else, into *out, which is overwritten: false for another text and for
 * more than 2^63 elements (*out is empty then). True with out->failed when out of memory. */
bool nd_log_histogram_parse(const char *text, struct nd_log_histogram *out);

/* Frees what h holds and empties it. */
void nd_log_histogram_deinit(struct nd_log_histogram *h);
