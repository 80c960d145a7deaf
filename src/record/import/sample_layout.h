/* Samples and axes: which dimension the samples are, and channels from the last place to the second. */
#ifndef ND_FOREIGN_SAMPLE_LAYOUT_H
#define ND_FOREIGN_SAMPLE_LAYOUT_H

#include "record/import/imported.h"

/* Moves channels from the last place to the first (n_before 0) or second (1) of every sample: shape, data and
 * the axis of quant. ND_ERR_MEMORY. */
enum nd_status nd_layout_channels_first(struct nd_imported_tensor *tensor, int n_before, struct nd_error *err);

/* Makes an array (is_array) to samples. expected is the shape of a sample in the array's own layout, NULL where
 * no model tells it. ND_E_IMPORT_MISMATCH: it does not fit (found, expected); ND_E_IMPORT_OPTION: a scalar has
 * no samples. */
enum nd_status nd_layout_find_samples(struct nd_imported_tensor *tensor, enum nd_import_samples samples,
                                      const struct nd_shape *expected, struct nd_error *err);

/* Makes an array to samples that lie along dimension `axis`. A sample keeps a 1 there, unless `expected`
 * (nullable, as above) lacks the dimension. ND_E_IMPORT_MISMATCH: there is no such dimension, or it does not
 * fit. */
enum nd_status nd_layout_batch_axis(struct nd_imported_tensor *tensor, int axis,
                                    const struct nd_shape *expected, const char *where, struct nd_error *err);

/* Makes an array to n samples whose first dimensions lie one behind the other: [n * T, D] is n times [T, D]. */
enum nd_status nd_layout_share_first(struct nd_imported_tensor *tensor, size_t n, const char *where,
                                     struct nd_error *err);

/* The shape with its channels moved from the second place to the last. */
struct nd_shape nd_layout_channels_last(const struct nd_shape *shape);

#endif
