/* Facts of single tensors summed up: what a capture's group "import" says. */
#pragma once

#include "capture/write/write.h"
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

/* The attributes of an imported capture: what files, options and facts state of device, runtime, model and
 * failure. */

struct nd_import_writing {
    struct nd_capture_writer *writer;
    const struct nd_import_options *options;
    const struct nd_imported *imported;
    const struct nd_matched *matched;
    const struct nd_import_result *result;
};

/* Adds where each stated fact is from, and that chipset and device are not stated where nobody states them. */
enum nd_status nd_import_stated_facts(struct nd_imported *imported, struct nd_error *err);

/* What the facts state against what the files and the model say. ND_E_IMPORT_FACT names both sides. */
enum nd_status nd_import_check_stated(const struct nd_imported *imported,
                                      const struct nd_import_options *options, struct nd_error *err);

/* Writes /device, /runtime, /model, /import, /failure and the time. */
enum nd_status nd_import_put_attributes(const struct nd_import_writing *w, struct nd_error *err);
