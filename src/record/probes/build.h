/* A probe under construction: created empty for the targets, given its number of samples, then its data. */
#ifndef ND_PROBE_BUILD_H
#define ND_PROBE_BUILD_H

#include "core/error.h"
#include "npudiff/record/probe.h"
#include "record/probes/loader.h"

/* An empty probe with the names, types and shapes of the targets, no samples and no data. The caller destroys
 * *out. ND_ERR_FORMAT: a target without type or with a negative dimension. */
enum nd_status nd_probe_create_empty(const char *name, const char *source,
                                     const struct nd_probe_target *targets, size_t n_targets,
                                     struct nd_probe **out, struct nd_error *err);

/* Sets n_samples (> 0). ND_ERR_MEMORY when all inputs together would exceed nd_probe_max_bytes. */
enum nd_status nd_probe_set_samples(struct nd_probe *probe, size_t n_samples, struct nd_error *err);

/* Gives an input the memory for its n_samples, zeroed. */
enum nd_status nd_probe_alloc_input(const struct nd_probe *probe, size_t input, struct nd_error *err);

/* ---- which of several named arrays belongs to which input, and which holds the labels ---- */

#define ND_ROLE_LABELS (SIZE_MAX - 1)

/* For every array the index of its input, or ND_ROLE_LABELS. An input's own name comes first; "labels", "label"
 * and "y" are labels; with one input and one array besides labels, that array is the input's whatever its name.
 * *out has n entries and is freed by the caller. `where` is the file or folder, for messages. ND_ERR_NOT_FOUND
 * (ND_E_PROBE_INPUT): an input has no array; ND_ERR_FORMAT: an array has no input (ND_E_PROBE_FORMAT), or there
 * are several of labels (ND_E_PROBE_LABELS). */
enum nd_status nd_roles_assign(const struct nd_loader *loader, const char *const *names, size_t n,
                               const char *where, size_t **out, struct nd_error *err);

#endif
