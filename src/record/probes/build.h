/* A probe under construction: created empty for the targets, given its number of samples, then its data. */
#ifndef ND_PROBE_BUILD_H
#define ND_PROBE_BUILD_H

#include "core/error.h"
#include "npudiff/record/probe.h"

/* An empty probe with the names, types and shapes of the targets, no samples and no data. The caller destroys
 * *out. ND_ERR_FORMAT: a target without type or with a negative dimension. */
enum nd_status nd_probe_create_empty(const char *name, const char *source,
                                     const struct nd_probe_target *targets, size_t n_targets,
                                     struct nd_probe **out, struct nd_error *err);

/* Sets n_samples (> 0). ND_ERR_MEMORY when all inputs together would exceed nd_probe_max_bytes. */
enum nd_status nd_probe_set_samples(struct nd_probe *probe, size_t n_samples, struct nd_error *err);

/* Gives an input the memory for its n_samples, zeroed. */
enum nd_status nd_probe_alloc_input(const struct nd_probe *probe, size_t input, struct nd_error *err);

#endif
