/* Foreign tensors held against map and model: which edge each one is, its samples, its layout, its type. */
#ifndef ND_IMPORT_MATCH_H
#define ND_IMPORT_MATCH_H

#include "import/map.h"

/* One tensor as it will be stored. data is borrowed from the imported tensor. */
struct nd_matched_tensor {
    struct nd_edge edge;
    const void *data;
    size_t order; /* place in the model; in the files without one */
};

struct nd_matched {
    size_t n_samples;
    size_t n[2];                        /* by enum nd_imported_side */
    struct nd_matched_tensor *sides[2]; /* in order */
};

/* Decides everything that is to be decided, changes imported's tensors accordingly (transposed, retyped) and
 * adds the facts to it. ND_ERR_NOT_FOUND (ND_E_IMPORT_NOTHING): no tensors, no samples, or a tensor that the
 * model lacks; ND_E_IMPORT_MISMATCH: tensor, found, expected; ND_E_IMPORT_MAP: the map names what is not there.
 * The caller frees *out, before imported. */
enum nd_status nd_match(struct nd_imported *imported, struct nd_map *map,
                        const struct nd_import_options *options, struct nd_matched *out, struct nd_error *err);
void nd_matched_deinit(struct nd_matched *matched);

#endif
