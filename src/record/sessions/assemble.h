/* From a spool to a capture: what the agent recorded, joined with what the host knows of device, model and
 * probes. */
#ifndef ND_RECORD_ASSEMBLE_H
#define ND_RECORD_ASSEMBLE_H

#include "npudiff/capture/capture.h"
#include "npudiff/model/model.h"
#include "npudiff/record/probe.h"

struct nd_remote_library;

struct nd_assembly {
    const char *spool_path;  /* may be missing: an agent that died before it wrote anything */
    const char *stdout_path; /* what the agent and the provider printed; nullable */
    const char *logcat;      /* what the device's system logged meanwhile; nullable */
    size_t logcat_bytes;
    const char *path; /* of the capture */
    bool replace;
    size_t n_kept; /* samples that what is at path holds, when nothing that has fewer may replace it; else 0 */
    const struct nd_attr *attrs; /* of root, device, model, runtime and host, as far as the host knows them */
    size_t n_attrs;
    const struct nd_tensor *const *tensors; /* in the order of the job */
    const size_t *pass_of_tensor;           /* per tensor: the agent's pass that recorded it */
    size_t n_tensors;
    size_t n_passes;
    const struct nd_probe *const *probes;
    size_t n_probes;
    size_t n_repeats;
    bool has_reruns; /* a few samples were run again */
    int deflate_level;
    bool store_digests_only;
    const struct nd_model *model; /* tells whether failed operators follow one another; nullable */
    const struct nd_error *death; /* how the agent died, when it did not end by itself; nullable */
    const char *death_stage;      /* where, when the agent never wrote a record; nullable */
    bool can_resume;              /* a later run can go on: with samples the capture is partial, not failed */
    const char *transfer;         /* what was moved to and from another machine; nullable */
    bool is_elsewhere; /* the agent ran on another machine: its libraries are not those of this one */
    const struct nd_remote_library *libraries; /* of that machine */
    size_t n_libraries;
    const char *untouched; /* a capture of the untouched model that the outputs are held against; nullable */
    const char *untouched_why; /* why there is none, although one was asked for; nullable */
    bool is_reproducible; /* SOURCE_DATE_EPOCH: leave out what differs between two equal runs (latencies, logs)
                           */
};

struct nd_assembled {
    enum nd_capture_status state;
    size_t samples_done; /* over all probes */
    char stage[32];      /* of the failure */
    struct nd_error failure;
    bool is_changed; /* as in nd_capture_outcome */
};

/* Writes the capture: complete, or failed or partial with the reason and every sample that was acknowledged. */
enum nd_status nd_capture_assemble(const struct nd_assembly *assembly, struct nd_assembled *out,
                                   struct nd_error *err);

#endif
