/* Foreign tensors held against map and model: which edge each one is, its samples, its layout, its type. */
#ifndef ND_FOREIGN_EDGE_MATCH_H
#define ND_FOREIGN_EDGE_MATCH_H

#include "record/import/map.h"

/* One tensor as it will be stored. data is borrowed from the imported tensor. */
struct nd_matched_tensor {
    struct nd_edge edge;
    const void *data;     /* [n_repeats][n_samples] */
    const char *provider; /* that computed it, as the map says; "": unknown */
    size_t order;         /* place in the model; in the files without one */
};

struct nd_matched {
    size_t n_samples;  /* of every repeat */
    size_t n_repeats;  /* at least 1 */
    size_t n_expected; /* samples that were asked for: at least n_samples, and so many has every input */
    size_t n[2];       /* by enum nd_imported_side */
    struct nd_matched_tensor *sides[2]; /* in order */
};

/* Decides for every tensor which dimension the samples are, and moves channels: what must be done before the
 * runs of several repeats can be joined. Errors as nd_match. */
enum nd_status nd_match_samples(struct nd_imported *imported, struct nd_map *map,
                                const struct nd_import_options *options, struct nd_error *err);

/* Decides everything else that is to be decided, changes imported's tensors accordingly (transposed, retyped)
 * and adds the facts to it. ND_ERR_NOT_FOUND (ND_E_IMPORT_NOTHING): no tensors, no samples, or a tensor that
 * the model lacks; ND_E_IMPORT_MISMATCH: tensor, found, expected; ND_E_IMPORT_MAP: the map names what is not
 * there. The caller frees *out, before imported. */
enum nd_status nd_match(struct nd_imported *imported, struct nd_map *map,
                        const struct nd_import_options *options, struct nd_matched *out, struct nd_error *err);
void nd_matched_deinit(struct nd_matched *matched);

#endif
