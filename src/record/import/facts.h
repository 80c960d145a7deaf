/* Facts of single tensors summed up: what a capture's group "import" says. */
#ifndef ND_FOREIGN_FACTS_H
#define ND_FOREIGN_FACTS_H

#include "record/import/imported.h"

/* One text for each kind, in the order in which the kinds came up: the source, where it is the same for all
 * tensors, else a line "others: SOURCE" (if there is one for all) and lines "TENSOR: SOURCE"; cut with a count
 * after 50000 bytes. The caller frees *out by nd_import_result_deinit. */
enum nd_status nd_facts_sum_up(const struct nd_imported *imported, struct nd_import_result *out,
                               struct nd_error *err);

#endif
