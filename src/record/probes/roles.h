/* Which of several named arrays belongs to which input, and which holds the labels. */
#ifndef ND_PROBE_ROLES_H
#define ND_PROBE_ROLES_H

#include "record/probes/loader.h"

#define ND_ROLE_LABELS (SIZE_MAX - 1)

/* For every array the index of its input, or ND_ROLE_LABELS. An input's own name comes first; "labels", "label"
 * and "y" are labels; with one input and one array besides labels, that array is the input's whatever its name.
 * *out has n entries and is freed by the caller. `where` is the file or folder, for messages. ND_ERR_NOT_FOUND
 * (ND_E_PROBE_INPUT): an input has no array; ND_ERR_FORMAT: an array has no input (ND_E_PROBE_FORMAT), or there
 * are several of labels (ND_E_PROBE_LABELS). */
enum nd_status nd_roles_assign(const struct nd_loader *loader, const char *const *names, size_t n,
                               const char *where, size_t **out, struct nd_error *err);

#endif
