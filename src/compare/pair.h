/* The kernels: statistics of two tensors on memory buffers. METRICS.md sections 1 to 8.
 *
 * Every statistic is a function of the number of elements and of the elements whose bits differ, so that
 * samples known to be equal by their digests need not be read. An accumulator belongs to one thread; results do
 * not depend on how samples were grouped for reading. */
#ifndef ND_COMPARE_PAIR_H
#define ND_COMPARE_PAIR_H

#include "compare/gates.h"

/* Elements are taken in blocks of this many from the start of a sample; sums have this many lanes (section 6).
 */
enum { ND_DIFF_BLOCK = 1024, ND_DIFF_LANES = 16 };

/* What the two tensors have in common. */
struct nd_diff_layout {
    enum nd_dtype dtype;
    struct nd_shape shape; /* of one sample */
    size_t n_elems;        /* of one sample */
    size_t sample_bytes;
    size_t n_channels;         /* 0: plain numbers, scale 1; 1: per tensor; else dims[axis] */
    size_t inner;              /* elements from one channel to the next */
    const float *scale;        /* [n_channels], borrowed */
    const int64_t *zero_point; /* [n_channels], borrowed */
    struct nd_gate_values gate;
};

struct nd_diff_acc {
    uint64_t n_samples, n_samples_differing, n_samples_unread;
    uint64_t n_elems, n_differing, n_failing;
    uint64_t lsb_histogram[ND_LSB_BUCKETS]; /* of differing elements only */
    uint64_t max_lsb, max_ulp;
    unsigned __int128 sum_lsb;
    __int128 sum_signed_lsb;
    uint64_t n_nan_mismatch, n_nan_payload, n_inf_mismatch, n_zero_sign;
    double max_abs, sum_abs;
    bool has_first;
    struct nd_difference_place first;
};

/* Fills layout for an edge. ND_ERR_FORMAT: unknown dtype or shape, or quantisation parameters that do not fit
 * it. The edge's quantisation arrays stay borrowed. */
enum nd_status nd_diff_layout_make(const struct nd_edge *edge, struct nd_diff_layout *layout,
                                   struct nd_error *err);

/* Adds one sample: sample_bytes at ref and at test. Returns the number of elements of it whose bits differ. */
uint64_t nd_diff_add_sample(struct nd_diff_acc *acc, const struct nd_diff_layout *layout, const void *ref,
                            const void *test, size_t probe, size_t sample);

/* Adds one sample that is known to be equal (by its digest), or to differ without its values being stored. */
void nd_diff_add_equal(struct nd_diff_acc *acc, const struct nd_diff_layout *layout);
void nd_diff_add_unread(struct nd_diff_acc *acc, const struct nd_diff_layout *layout, size_t probe,
                        size_t sample);

/* Adds what another accumulator holds; it comes after acc in order. */
void nd_diff_merge(struct nd_diff_acc *acc, const struct nd_diff_acc *later);

/* The results. */
void nd_diff_finish(const struct nd_diff_acc *acc, const struct nd_diff_layout *layout,
                    struct nd_difference *out);

/* Implemented by codes.c and floats.c: one block of n <= ND_DIFF_BLOCK elements that starts at flat index
 * `first`, not all of them equal. lanes are the running sums of |error|. *first_differing is the lowest offset
 * in the block. */
struct nd_diff_block {
    const unsigned char *ref, *test;
    size_t first, n;
    double *lanes;
    size_t first_differing;
};
uint64_t nd_diff_codes_block(struct nd_diff_acc *acc, const struct nd_diff_layout *layout,
                             struct nd_diff_block *block);
uint64_t nd_diff_floats_block(struct nd_diff_acc *acc, const struct nd_diff_layout *layout,
                              struct nd_diff_block *block);

/* n little-endian elements of size elem_bytes as 64-bit words, zero-extended. */
void nd_diff_load_bits(const unsigned char *bytes, size_t elem_bytes, size_t n, uint64_t *out);

#endif
