/* Top-1 classes, accuracy, flips and their significance. docs/reference/metrics.md#top-1. */
#ifndef ND_COMPARE_TOP1_CLASSES_H
#define ND_COMPARE_TOP1_CLASSES_H

#include "compare/matching/matching.h"
#include "compare/metrics/states.h"

/* Outputs of at most this many elements are always looked at a whole sample at a time. */
enum { ND_OUTPUT_WHOLE = 1 << 20 };

/* The largest value of a sample so far: flat index (the lowest of equals; -1: none, only NaN), and the
 * quantised value or value. And how many of the values are no numbers. */
struct nd_best {
    int64_t index;
    int64_t qvalue;
    double value;
    struct nd_specials specials;
};

/* Offers elements [first, first + n) of a sample, stored at bytes. In any order of the parts. */
void nd_best_offer(struct nd_best *best, const struct nd_layout *layout, const struct nd_kernels *kernels,
                   const unsigned char *bytes, size_t first, size_t n);
void nd_best_merge(struct nd_best *best, const struct nd_best *other);

/* Counts one pair from the top-1 classes of n samples (-1: none); labels may be NULL. Sets the counts only. */
void nd_top1_pair_count(const int64_t *ref, const int64_t *test, const int64_t *labels, size_t n,
                        struct nd_top1_pair *out);

/* The top-1 classes of one probe at one model output, of the samples [first_sample, end_sample) of this part.
 */
struct nd_output_row {
    size_t tensor, probe;
    size_t first_sample, end_sample;
    int64_t **classes; /* [n_captures], each [end_sample - first_sample] (-1: none) or NULL without values */
};

struct nd_output_rows {
    size_t n, capacity, n_captures;
    struct nd_output_row *rows;
};

/* Appends an empty row. */
enum nd_status nd_output_rows_add(struct nd_output_rows *rows, size_t tensor, size_t probe, size_t first_sample,
                                  size_t end_sample, struct nd_error *err);
void nd_output_rows_deinit(struct nd_output_rows *rows);

/* Fills comparison->top1, one entry per row, with counts over the rows' samples. */
enum nd_status nd_accuracy_count(const struct nd_matching *alignment, const struct nd_output_rows *rows,
                                 struct nd_comparison *comparison, struct nd_error *err);

/* Shares, p-values and significance from the counts; and whether every capture, the reference too, is right no
 * more often than by chance: comparison->broken_top1. */
void nd_accuracy_conclude(struct nd_comparison *comparison);

#endif
