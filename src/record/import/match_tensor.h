/* One foreign tensor held against its item of the map and its edge of the model. */
#ifndef ND_FOREIGN_MATCH_TENSOR_H
#define ND_FOREIGN_MATCH_TENSOR_H

#include "record/import/edge_match.h"

struct nd_matching {
    struct nd_imported *imported;
    const struct nd_import_options *options;
    enum nd_imported_side side;
    struct nd_imported_tensor *tensor;
    struct nd_map_item *item;    /* NULL: the map says nothing of it */
    const struct nd_edge *model; /* what the model says, or NULL; of an input only name, type and shape */
};

/* Decides which dimension the samples are, and moves channels. Errors as nd_match. */
enum nd_status nd_match_layout(struct nd_matching *m, struct nd_error *err);

/* Decides everything else: name, type, codes, scales, node. */
enum nd_status nd_match_tensor(struct nd_matching *m, struct nd_matched_tensor *out, struct nd_error *err);

#endif
