/* One foreign tensor held against its item of the map and its tensor of the model. */
#ifndef ND_FOREIGN_MATCH_TENSOR_H
#define ND_FOREIGN_MATCH_TENSOR_H

#include "record/import/imported.h"
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

struct nd_matching {
    struct nd_imported *imported;
    const struct nd_import_options *options;
    enum nd_imported_side side;
    struct nd_imported_tensor *tensor;
    struct nd_map_item *item;      /* NULL: the map says nothing of it */
    const struct nd_tensor *model; /* what the model says, or NULL; of an input only name, type and shape */
};

/* Decides which dimension the samples are, and moves channels. Errors as nd_match. */
enum nd_status nd_match_layout(struct nd_matching *m, struct nd_error *err);

/* Decides everything else: name, type, quantised values, scales, node. */
enum nd_status nd_match_tensor(struct nd_matching *m, struct nd_matched_tensor *out, struct nd_error *err);

#endif
