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

enum nd_status nd_generate_zeros(const struct nd_probe_target *target, const struct nd_generate_args *args,
                                 void *data, struct nd_error *err);
enum nd_status nd_generate_ones(const struct nd_probe_target *target, const struct nd_generate_args *args,
                                void *data, struct nd_error *err);

/* The next two fail as nd_quantiser_init does. */
enum nd_status nd_generate_ramp(const struct nd_probe_target *target, const struct nd_generate_args *args,
                                void *data, struct nd_error *err);
enum nd_status nd_generate_uniform(const struct nd_probe_target *target, const struct nd_generate_args *args,
                                   void *data, struct nd_error *err);

/* Zeros where the input has no quantiser; otherwise fails as nd_quantiser_init does. */
enum nd_status nd_generate_ties(const struct nd_probe_target *target, const struct nd_generate_args *args,
                                void *data, struct nd_error *err);

/* ND_ERR_USAGE when no input has a quantiser: the message says why. */
enum nd_status nd_generate_check_ties(const struct nd_probe_target *targets, size_t n_targets,
                                      struct nd_error *err);

#endif
