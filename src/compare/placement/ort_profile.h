/* ONNX Runtime's profile (SessionEndProfiling): one JSON array of events, of which the kernels count. */
#ifndef ND_PLACEMENT_ORT_PROFILE_H
#define ND_PLACEMENT_ORT_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "core/text/strbuf.h"

/* All runs of one kernel on one provider. */
struct nd_kernel {
    char *key; /* provider, US (0x1f), name */
    char *provider;
    const char *name;  /* of the node, or of what it was fused to; within key */
    size_t n;          /* runs after the first that have it */
    double first_us;   /* in the first run */
    double total_us;   /* in the others */
    bool is_quantiser; /* QuantizeLinear or DequantizeLinear */
};

struct nd_ort_profile {
    struct nd_kernel *kernels; /* in order of their first event */
    size_t n_kernels, capacity, runs_capacity;
    double *run_us;      /* [n_runs]: the whole runs; NaN: without a time */
    size_t n_runs;       /* that were finished */
    size_t n_unfinished; /* kernels behind the last finished run */
    struct nd_names keys;
};

/* Reads a profile, event by event, so that of a run only its time is kept. Only events of
 * category "Node" whose name ends in "_kernel_time" count, wherever they stand in their object; a run ends with
 * its "model_run". ND_ERR_FORMAT (ND_E_PROFILE_FORMAT) names the log and the event: not an array of objects,
 * cut off, a kernel without a duration or provider. name is that of the log. Deinit
 * *out after success. */
enum nd_status nd_ort_profile_read(const char *name, const char *text, size_t n_bytes,
                                   struct nd_ort_profile *out, struct nd_error *err);
void nd_ort_profile_deinit(struct nd_ort_profile *profile);

#endif
