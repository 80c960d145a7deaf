/* A probe under construction: created empty for the targets, given its number of samples, then its data. */
#ifndef ND_PROBE_BUILD_H
#define ND_PROBE_BUILD_H

#include "core/error.h"
#include "npudiff/record/probe.h"
#include "record/probes/loader.h"

/* Sets n_samples (> 0). ND_ERR_MEMORY when all inputs together would exceed nd_probe_max_bytes. */
enum nd_status nd_probe_set_samples(struct nd_probe *probe, size_t n_samples, struct nd_error *err);

/* Gives an input the memory for its n_samples, zeroed. */
enum nd_status nd_probe_alloc_input(const struct nd_probe *probe, size_t input, struct nd_error *err);

/* ---- which of several named arrays belongs to which input, and which holds the labels ---- */

#define ND_ROLE_LABELS (SIZE_MAX - 1)

#endif
