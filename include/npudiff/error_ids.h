/* The stable numbers of all errors: what `nd_error.id` holds and what commands print as "ND-204".
 *
 * A number always means the same failure: it is never changed and never given to another one. Compare against
 * these names, and treat a number that you do not know by its `nd_error.status`, since newer versions report
 * failures that this header does not list. error_ids.def has the list: for each error its name, number, status
 * and a summary in one line.
 *
 *     struct nd_capture *capture = NULL;
 *     struct nd_error err;
 *     if (nd_capture_open(path, &capture, &err) != ND_OK && err.id == ND_E_FILE_OPEN)
 *         fprintf(stderr, "there is no capture at %s\n", path);
 *
 * Stability: stable. */
#ifndef NPUDIFF_ERROR_IDS_H
#define NPUDIFF_ERROR_IDS_H

#include "npudiff/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum nd_error_id {
#define ND_ERROR(name, id, status, summary) ND_E_##name = id,
#include "npudiff/error_ids.def"
#undef ND_ERROR
};

/* What the error of this number means, in a few words without a full stop: "a file cannot be opened". NULL for
 * a number that this version does not know. Static storage. */
ND_PUBLIC const char *nd_error_summary(int id);

#ifdef __cplusplus
}
#endif
#endif
