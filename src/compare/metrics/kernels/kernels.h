/* The arithmetic of one block of elements: fixed lanes in plain C, compiled once per instruction set.
 *
 * A block has at most ND_BLOCK elements and starts at a multiple of ND_BLOCK in its sample. Element i of a
 * block belongs to lane i % ND_LANES; in a lane elements are added in order, and lanes are combined by adding
 * neighbours (0+1, 2+3, ...) until one is left. So every instruction set gives the same bits.
 * docs/reference/metrics.md#sums. Buffers of elements need no alignment; nothing is read beyond n elements. */
#pragma once

#include "npudiff/core/tensor.h"

enum { ND_BLOCK = 1024, ND_LANES = 16 };

/* How elements are stored. bool and uint4 are read as bytes, int4 as signed bytes. */
enum nd_elem_kind {
    ND_ELEM_U8,
    ND_ELEM_I8,
    ND_ELEM_U16,
    ND_ELEM_I16,
    ND_ELEM_U32,
    ND_ELEM_I32,
    ND_ELEM_U64,
    ND_ELEM_I64,
    ND_ELEM_F8E4M3FN,
    ND_ELEM_F8E5M2,
    ND_ELEM_F16,
    ND_ELEM_BF16,
    ND_ELEM_F32,
    ND_ELEM_F64,
    ND_N_ELEM_KINDS
};

/* dtype must be known (asserted). */
enum nd_elem_kind nd_elem_kind_of(enum nd_dtype dtype);

/* Of one block of values. When a value is not finite, or a square overflows, sum_squares is not finite (and
 * sum, min, max mean nothing). n >= 1. */
struct nd_self_sums {
    double sum, sum_squares;
    double min, max; /* -0 counts as +0 */
    uint64_t n_tiny; /* |x| < tiny, zeros among them */
};

/* Of one block of pairs of finite values, d = test - ref (one rounding). max_abs >= 0. */
struct nd_diff_sums {
    double sum_abs;        /* of |d| */
    double sum_signed;     /* of d */
    double sum_squares;    /* of d * d */
    double sum_ref_signed; /* of ref * d */
    double max_abs;
    uint64_t n_above, n_below; /* d > 0, d < 0 */
};

/* The bin of a value in a histogram of sizes (log_histogram.h) is what is above its lowest 46 bits. A slot is a
 * bin of the common sizes: those from 2^-63 up to 2^65 have the slots from 1 on, what is less has slot 0. Slots
 * of greater values mean nothing. */
enum { ND_LOG_BINS = 64, ND_LOG_IN_FOLDER = 16 * ND_LOG_BINS, ND_BIN_SHIFT = 46 };
enum { ND_SLOT_FOLDER = 60, ND_SLOT_FOLDERS = 8, ND_SLOT_BIN = ND_SLOT_FOLDER * ND_LOG_IN_FOLDER - 1 };
#define ND_SLOT_LOW 0x1.fcp-64 /* of bin ND_SLOT_BIN */
#define ND_SLOT_FIRST 0x1p-63
#define ND_SLOT_END 0x1p65

/* The errors of one block of pairs of finite values; the arrays are written up to whole lanes. */
struct nd_error_values {
    uint32_t absolute[ND_BLOCK];       /* slots of |d| */
    uint32_t relative[ND_BLOCK];       /* slots of |d| / |ref|; 0 where ref is 0 */
    uint32_t absolute_folders;         /* bit 0: slot 0 is among them; bit 1: one of the slots 1 .. 1024, ... */
    uint32_t relative_folders;         /* of slots that mean something */
    double sum_relative;               /* where ref is not 0 */
    double max_absolute, max_relative; /* >= 0 */
    uint64_t n_undefined;              /* ref is 0, d is not */
};

enum { ND_NO_STEP = 127 };

/* A pair of bytes: how often it was seen (neighbours in turn count in one of two, since adding to one waits for
 * the addition before), and its relative error, 0 where that is not defined. */
struct nd_joint_cell {
    double ratio;
    uint32_t n[2];
};

struct nd_kernels {
    const char *name; /* "scalar", "avx2", "avx512", "neon" */
    /* out[i] = element i as double (64-bit integers: rounded to nearest even), minus zero (one rounding; zero
     * is 0 for floats, and -0 stays -0). NaN payloads need not survive. */
    void (*load[ND_N_ELEM_KINDS])(const void *elems, size_t n, double zero, double *out);
    /* mask[i] = 1 where the bits of elements of 1 << log2_bytes bytes differ, else 0; returns how many do. */
    size_t (*mask[4])(const void *ref, const void *test, size_t n, uint8_t *mask);
    /* Bit i % 64 of bits[i / 64] = mask[i], which is 0 or 1; the rest of the ND_BLOCK bits is 0. */
    void (*bits)(const uint8_t *mask, size_t n, uint64_t *bits);
    /* Integers: |test - ref|, exact. Floats: how many floats of that type apart, as
     * docs/reference/metrics.md#ulp has it (+0 and -0 are 0 apart; infinities are the neighbours of the largest
     * finite values; of NaNs any number). Returns the largest of them. */
    uint64_t (*distance[ND_N_ELEM_KINDS])(const void *ref, const void *test, size_t n, uint64_t *out);
    void (*self_sums)(const double *x, size_t n, double tiny, struct nd_self_sums *out);
    /* self_sums of what load gives, without loading; the same bits. NULL for kinds that have none. Integers of
     * 8 and 16 bits: tiny is the least positive double and zero a whole number, |zero| <= 2^16, so that every
     * sum is exact and has no order. float32: tiny is a float and zero 0. */
    void (*self_elems[ND_N_ELEM_KINDS])(const void *elems, size_t n, double zero, double tiny,
                                        struct nd_self_sums *out);
    void (*errors)(const double *ref, const double *test, size_t n, struct nd_error_values *out,
                   struct nd_diff_sums *sums);
    /* Counts n pairs of bytes in the cells [256 * the byte of the reference + that of the test]; equal pairs in
     * the cell of any equal pair, whose ratios are all 0. Adds the ratios up in the order of `errors`:
     * sum_relative, and finds max_absolute. The rest of *out is left as it is. */
    void (*join)(const uint8_t *ref, const uint8_t *test, size_t n, bool is_signed, struct nd_joint_cell *cells,
                 struct nd_error_values *out);
    /* out[i]: of d the sign (bit 7: negative), the exponent and the highest fraction bit, 2 e + f; ND_NO_STEP
     * where d is 0. Of d that are whole numbers below 2^53. */
    void (*steps)(const double *ref, const double *test, size_t n, uint8_t *out);
    /* Integers of 8 and 16 bits whose differences are all below 2^15; NULL for other kinds. How many are at
     * least `limit` above, and at least `limit` below the reference; 1 <= limit < 2^15. */
    void (*steps_from[ND_N_ELEM_KINDS])(const void *ref, const void *test, size_t n, uint16_t limit,
                                        uint32_t *above, uint32_t *below);
    /* Whether unit * |d| > rtol * |unit * ref| for any element. */
    bool (*exceeds)(const double *ref, const double *test, size_t n, double unit, double rtol);
};

/* The best kernels that this processor runs and that `cap` allows ("scalar", "avx2", "avx512", "neon"; NULL or
 * "": no cap). A cap above what the processor has means the best there is. ND_ERR_USAGE: an unknown name
 * (ND_E_OPTION_VALUE). Static storage; any thread. */
enum nd_status nd_kernels_choose(const char *cap, const struct nd_kernels **out, struct nd_error *err);

/* All that this processor runs, scalar first. */
size_t nd_kernels_available(const struct nd_kernels *const **out);
