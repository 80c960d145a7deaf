/* The generators of docs/reference/probes.md. Each fills n_samples samples of one input, of a type that
 * nd_dtype_size_bytes knows, in memory that the caller allocated. A pure function of its arguments; an input of
 * no elements is left as it is. */
#ifndef ND_PROBE_GENERATE_H
#define ND_PROBE_GENERATE_H

#include "core/error.h"
#include "npudiff/record/probe.h"

struct nd_generate_args {
    size_t n_samples;
    uint64_t seed;
};

typedef enum nd_status (*nd_generate_fn)(const struct nd_probe_target *target,
                                         const struct nd_generate_args *args, void *data, struct nd_error *err);

#endif
