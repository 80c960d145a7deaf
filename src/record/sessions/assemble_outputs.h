/* The tensors of one tensor and probe, from the records of a spool into the datasets of a capture. */
#pragma once

#include "capture/write/write.h"
#include "devices/agent/spool/spool.h"
#include "npudiff/capture/capture.h"
#include "npudiff/core/tensor.h"
#include "npudiff/model/model.h"
#include "npudiff/record/probe.h"
#include "record/sessions/untouched.h"

/* Everything a spool holds, found in one pass and looked up by what it is. Values and digests are read when
 * they are asked for; the payloads of all other records are kept. */

/* One CHUNK, FRAGMENT or REPEAT record. */
struct nd_spool_piece {
    size_t probe;
    size_t tensor;
    size_t first;        /* chunk index; first sample; sample */
    size_t second;       /* -; samples; repeat */
    size_t offset_bytes; /* in the spool */
    size_t payload_bytes;
};

struct nd_spool_pieces {
    struct nd_spool_piece *items; /* sorted by probe, tensor, first, second */
    size_t n;
    size_t capacity;
};

struct nd_spool_output {
    bool is_known;
    enum nd_dtype dtype;
    struct nd_shape shape;
};

struct nd_spool_probe {
    size_t n_samples;     /* asked for */
    size_t n_complete;    /* acknowledged in every pass */
    size_t *acknowledged; /* [n_passes] */
    size_t *digests; /* [n_passes][n_samples][n_most]: where one digest per tensor of the pass begins, or 0 */
    double *latency_us; /* [n_samples][n_repeats] of pass 0; NaN where no run was recorded */
};

struct nd_spool_index {
    struct nd_spool_reader reader;
    size_t n_tensors;
    size_t n_repeats; /* runs of every sample */
    size_t n_max;     /* of a sample that is run again */
    size_t n_probes;
    size_t n_passes;
    const size_t *pass_of_tensor; /* borrowed */
    size_t *n_tensors_of_pass;
    size_t *place_in_pass; /* per tensor: its position among the tensors of its pass */
    struct nd_spool_probe *probes;
    struct nd_spool_output *outputs; /* per tensor */
    struct nd_spool_pieces chunks;
    struct nd_spool_pieces fragments;
    struct nd_spool_pieces repeats;
    struct nd_record *nodes; /* NODE records of pass 0 in order */
    size_t n_nodes, nodes_capacity;
    struct nd_record *later_nodes; /* of the other passes; index[0] is the pass */
    size_t n_later_nodes, later_nodes_capacity;
    struct nd_record *libraries;
    size_t n_libraries, libraries_capacity;
    struct nd_record *logs;
    size_t n_logs, logs_capacity;
    struct nd_record runtime; /* kind 0 when absent */
    struct nd_record failure;
    struct nd_record profile;
    struct nd_record provider_profile;
    struct nd_record truth;
    size_t pass;    /* the last that began */
    char stage[32]; /* the last that was entered */
    void **kept;    /* payloads */
    size_t n_kept, kept_capacity;
    size_t n_resumed; /* how often a later agent went on where one was interrupted */
    bool has_ended;   /* ND_RECORD_END was there */
};

/* What the agent was asked for. */
struct nd_spool_request {
    const size_t *samples; /* per probe */
    size_t n_probes;
    const size_t *pass_of_tensor;
    size_t n_tensors;
    size_t n_passes;
    size_t n_repeats;
    bool has_reruns; /* some samples are run more often than n_repeats */
};

/* A missing file is an empty spool. Records with an index out of range end the reading like a torn tail: they
 * cannot come from our agent. request->pass_of_edge outlives the index. */
enum nd_status nd_spool_index_open(const char *path, const struct nd_spool_request *request,
                                   struct nd_spool_index *out, struct nd_error *err);
void nd_spool_index_close(struct nd_spool_index *index);

struct nd_output_source {
    const struct nd_spool_index *index;
    size_t probe;
    size_t tensor;
    int deflate_level;
    struct nd_untouched *untouched; /* compares what is written; nullable */
    size_t first_sample;            /* of the probe, among those of all probes */
};

/* Digests of every complete sample and repeat. */
enum nd_status nd_assemble_digests(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                   const struct nd_tensor *tensor, const struct nd_output_source *source,
                                   struct nd_error *err);

/* Which samples were run again, and the digests of these runs. */
enum nd_status nd_assemble_reruns(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                  const struct nd_spool_index *index, size_t p, struct nd_error *err);

/* Outputs of the complete samples, and of the repeats that differ. Chunks that the agent finished go over byte
 * for byte; when it stopped early, the last ones are put together again from fragments. */
enum nd_status nd_assemble_outputs(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                   const struct nd_tensor *tensor, const char *provider,
                                   const struct nd_output_source *source, struct nd_error *err);

/* From a spool to a capture: what the agent recorded, and what the host knows of device, model and probes. */

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
