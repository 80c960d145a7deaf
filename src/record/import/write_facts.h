/* The attributes of an imported capture: what files, options and facts state of device, runtime, model and
 * failure. */
#ifndef ND_FOREIGN_WRITE_FACTS_H
#define ND_FOREIGN_WRITE_FACTS_H

#include "capture/write/write.h"
#include "record/import/write_capture.h"

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

/* Marks the tensors that the facts call outputs or inputs of the model. ND_E_IMPORT_FACT: there is no such
 * tensor (names the nearest), or the model says otherwise. */
enum nd_status nd_import_mark_ends(const struct nd_imported *imported, const struct nd_model *model,
                                   struct nd_matched *matched, struct nd_error *err);

/* Writes /device, /runtime, /model, /import, /failure and the time. */
enum nd_status nd_import_put_attributes(const struct nd_import_writing *w, struct nd_error *err);

#endif
