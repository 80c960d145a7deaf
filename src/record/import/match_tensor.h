/* One foreign tensor held against its item of the map and its tensor of the model. */
#pragma once

#include "npudiff/core/tensor.h"
#include "record/import/imported.h"
#include "record/import/map.h"
#include "record/import/write_capture.h"

/* Samples and axes: which dimension the samples are, and channels from the last place to the second. */

/* Moves channels from the last place to the first (n_before 0) or second (1) of every sample: shape, data and
 * the axis of quant. ND_ERR_MEMORY. */
enum nd_status nd_layout_channels_first(struct nd_imported_tensor *tensor, int n_before, struct nd_error *err);

/* Makes an array (is_array) to samples. expected is the shape of a sample in the array's own layout, NULL where
 * no model tells it. ND_E_IMPORT_MISMATCH: it does not fit (found, expected); ND_E_IMPORT_OPTION: a scalar has
 * no samples. */
enum nd_status nd_layout_find_samples(struct nd_imported_tensor *tensor, enum nd_import_samples samples,
                                      const struct nd_shape *expected, struct nd_error *err);

/* The shape with its channels moved from the second place to the last. */
struct nd_shape nd_layout_channels_last(const struct nd_shape *shape);

struct nd_import_matching {
    struct nd_imported *imported;
    const struct nd_import_options *options;
    enum nd_imported_side side;
    struct nd_imported_tensor *tensor;
    struct nd_map_item *item;        /* NULL: the map says nothing of it */
    const struct nd_tensor *model;   /* what the model says, or NULL; of an input only name, type and shape */
    const struct nd_shape *inferred; /* the shape of an output that the model does not declare, or NULL */
};

/* Decides which dimension the samples are, and moves channels. Errors as nd_match. */
enum nd_status nd_match_layout(struct nd_import_matching *m, struct nd_error *err);

/* Decides everything else: name, type, quantised values, scales, node. */
enum nd_status nd_match_tensor(struct nd_import_matching *m, struct nd_matched_tensor *out,
                               struct nd_error *err);

/* ---- which tensors that a file has as floats are quantised values ---- */

/* Floats that stand for quantised values. Many tools dequantise what a device computed before they write it.
 * Where every float of a tensor is the real value of a quantised value, the quantised values are what the
 * device computed, and they are kept. */

struct nd_qvalue_grid {
    enum nd_dtype qvalues; /* type of the codes: integers of at most 16 bits, else nothing is on the grid */
    const struct nd_quant *quant;
    struct nd_shape shape; /* of a sample: quant->axis counts in it */
};

/* Where a float is not on the grid. */
struct nd_grid_miss {
    size_t n;     /* how many are not */
    size_t first; /* the first of them, its value, and the real value next to it */
    double value, nearest;
};

/* Writes the quantised values of n values of type `dtype` (float16, bfloat16, float32 or float64) to quantised
 * values, which may be NULL. true: every value is finite, not -0, and the real of a quantised value to within
 * two roundings of float32 (of a 16-bit type: to within one of its own). *miss (nullable) says what is not.
 * Values of 16-bit types lie close to some quantised value by chance where quantised values are large: they are
 * taken for quantised values only where the chance that all of n random values are is below 2^-32. */
bool nd_grid_qvalues(const struct nd_qvalue_grid *grid, enum nd_dtype dtype, const void *values, size_t n,
                     void *qvalues, struct nd_grid_miss *miss);

/* Element i of an array as a double; of 64-bit integers the nearest. */
double nd_grid_value(enum nd_dtype dtype, const void *values, size_t i);
