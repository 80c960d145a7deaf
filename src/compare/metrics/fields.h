/* What the state of a metric is made of. Every kind of field merges by an operation without an order (exact
 * sums, extremes, unions), which is why results do not depend on threads or parts.
 * docs/reference/metrics.md#parts. */
#pragma once

#include "compare/metrics/kernels/exact_sum.h"
#include "compare/metrics/kernels/log_histogram.h"
#include "core/text/strbuf.h"
#include "npudiff/compare/compare.h"

enum nd_metric_field_kind {
    ND_METRIC_FIELD_COUNT,     /* uint64_t: added */
    ND_METRIC_FIELD_MAX,       /* uint64_t: the larger */
    ND_METRIC_FIELD_REAL_MAX,  /* double: the larger; starts at -inf */
    ND_METRIC_FIELD_REAL_MIN,  /* double: the smaller; starts at +inf */
    ND_METRIC_FIELD_SUM,       /* struct nd_exact_sum */
    ND_METRIC_FIELD_HISTOGRAM, /* struct nd_log_histogram */
    ND_METRIC_FIELD_FIRST,     /* struct nd_first: the earlier */
    ND_METRIC_FIELD_STRIDE,    /* struct nd_stride */
    ND_METRIC_FIELD_BITSET,    /* struct nd_bitset: the union */
    ND_METRIC_FIELD_WORST,     /* struct nd_worst_list: the worst of both */
};

struct nd_metric_field {
    enum nd_metric_field_kind kind;
    size_t offset; /* in the state */
    size_t n;      /* an array of so many; 0 means 1 */
};
#define ND_STATE_FIELD(kind, state, member)                                                                    \
    {                                                                                                          \
        ND_METRIC_FIELD_##kind, offsetof(struct state, member), 0                                              \
    }

/* The first element that differs, with what was found there. */
struct nd_first {
    bool is_set;
    bool has_index;
    uint64_t probe, sample, index;
    uint64_t note; /* any number that belongs to it */
};

/* Positions: the ends, and the greatest common divisor of their distances. */
struct nd_stride {
    bool is_set;
    uint64_t first, last, divisor;
};

struct nd_bitset {
    size_t n_bits; /* 0: nothing allocated yet */
    uint64_t *words;
    uint64_t n_set;
};

struct nd_worst_list {
    size_t capacity, n;
    struct nd_worst *items; /* [capacity], sorted */
};

/* state must be all zeros; identities are put where zero is none. */
void nd_fields_init(const struct nd_metric_field *fields, size_t n, void *state);
void nd_fields_deinit(const struct nd_metric_field *fields, size_t n, void *state);
enum nd_status nd_fields_merge(const struct nd_metric_field *fields, size_t n, void *state, const void *other,
                               struct nd_error *err);
/* As words, each with a space before it. */
void nd_fields_format(const struct nd_metric_field *fields, size_t n, const void *state, struct nd_strbuf *out);
/* Reads what nd_fields_format wrote from *text, which moves on; state is initialised. False when malformed or
 * out of memory. */
bool nd_fields_parse(const struct nd_metric_field *fields, size_t n, void *state, const char **text);

/* Whether a comes before b. */
void nd_first_note(struct nd_first *first, struct nd_first candidate);
static inline void nd_bitset_add(struct nd_bitset *set, size_t bit)
{
    uint64_t mask = (uint64_t)1 << (bit % 64);
    set->n_set += (set->words[bit / 64] & mask) == 0;
    set->words[bit / 64] |= mask;
}
