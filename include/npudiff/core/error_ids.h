/* The stable numbers of all errors: what `nd_error.id` holds and what commands print as "ND-204".
 *
 * A number always means the same failure: it is never changed and never given to another one. Compare against
 * these names, and treat a number that you do not know by its `nd_error.status`, since newer versions report
 * failures that this header does not list. error_ids.def has the list: for each error its name, number, status
 * and a summary in one line.
 *
 * Example:
 *
 *     static int is_missing_file(const struct nd_error *err)
 *     {
 *         return err->id == ND_E_FILE_OPEN;
 *     }
 *
 * Stability: stable. A change that breaks programs raises the number in the
 * library's soname. */
#ifndef NPUDIFF_ERROR_IDS_H
#define NPUDIFF_ERROR_IDS_H

#include "npudiff/core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum nd_error_id {
#define ND_ERROR(name, id, status, summary) ND_E_##name = id,
#include "npudiff/core/error_ids.def"
#undef ND_ERROR
};

#ifdef __cplusplus
}
#endif
#endif
