/* Facts of single tensors summed up: what a capture's group "import" says. */
#ifndef ND_FOREIGN_FACTS_H
#define ND_FOREIGN_FACTS_H

#include "record/import/imported.h"
#include "record/import/map.h"

/* One text for each kind, in the order in which the kinds came up: the source, where it is the same for all
 * tensors, else a line "others: SOURCE" (if there is one for all) and lines "TENSOR: SOURCE"; cut with a count
 * after 50000 bytes. The caller frees *out by nd_import_result_deinit. */
enum nd_status nd_facts_sum_up(const struct nd_imported *imported, struct nd_import_result *out,
                               struct nd_error *err);

/* Foreign tensors held against map and model: which tensor each one is, its samples, its layout, its type. */

/* One tensor as it will be stored. data is borrowed from the imported tensor. */
struct nd_matched_tensor {
    struct nd_tensor tensor;
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

#endif
