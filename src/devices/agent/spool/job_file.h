/* The job that a host hands to an agent: what to run, on which runtime, with which inputs, what to store. */
#pragma once

#include "devices/agent/spool/spool.h"
#include "npudiff/core/tensor.h"

enum nd_store { ND_STORE_FULL, ND_STORE_DIGEST };

struct nd_agent_option {
    char *key;
    char *value;
};

/* One output of a session that is to be recorded. */
struct nd_job_tensor {
    char *output;        /* name of the graph output */
    enum nd_dtype dtype; /* what it must be; ND_DTYPE_NONE: whatever comes */
    size_t pass;         /* in which it is an output */
    float scale; /* above 0: the output is float32, and dtype, scale and zero_point say of which codes */
    int64_t zero_point;
};

/* One session over all samples. A provider may place nodes elsewhere when too many tensors are made visible at
 * once: then several passes expose some tensors each. */
struct nd_job_pass {
    char *model;
    size_t *checks; /* tensors of pass 0 that this pass (> 0) has as outputs too: they must come out equal */
    size_t n_checks;
};

struct nd_job_target {
    char *name;
    enum nd_dtype dtype;
    struct nd_shape shape; /* of one sample */
    size_t sample_bytes;
};

struct nd_job_probe {
    char *name;
    size_t n_samples;
    size_t n_rerun; /* its first samples, which are run again; 0 where n_repeats is not 1 */
    const void *
        *inputs; /* per target: n_samples * sample_bytes; borrowed from the map or from the host's probe */
};

struct nd_agent_job {
    char *model_sha256; /* of the model that the passes are made of */
    char *ort_library;
    char *provider_name; /* "" or NULL: the CPU provider alone */
    char *provider_library;
    char *profile_prefix;  /* "" or NULL: none */
    char *context_binary;  /* that the session makes, to be described; "" or NULL: none */
    char *context_library; /* libQnnSystem.so, which can */
    uint64_t optimisation; /* enum nd_optimisation */
    uint64_t n_threads;
    uint64_t n_repeats;
    uint64_t deflate_level;
    uint64_t store; /* enum nd_store */
    uint64_t log_severity;
    uint64_t is_fallback_allowed;
    uint64_t is_untouched; /* the passes run the model as it is */
    struct nd_agent_option *provider_options;
    size_t n_provider_options;
    struct nd_agent_option *config;
    size_t n_config;
    char **io_nodes; /* nodes that may run on the CPU: quantisation of the graph's own inputs and outputs */
    size_t n_io_nodes;
    char **float_nodes; /* the DequantizeLinear among them whose floats the passes give out; the others are
                           missing where a pass gives out codes */
    size_t n_float_nodes;
    struct nd_job_pass *passes;
    size_t n_passes;
    struct nd_job_tensor *tensors;
    size_t n_tensors;
    struct nd_job_target *targets;
    size_t n_targets;
    struct nd_job_probe *probes;
    size_t n_probes;
    struct nd_spool_reader reader; /* of a job that was read: keeps the map that inputs point into */
    struct nd_digest digest;       /* of its bytes; zero for a job that was not read */
};

/* Writes the job to a new file. */
enum nd_status nd_job_write(const struct nd_agent_job *job, const char *path, struct nd_error *err);

/* Reads it back; nothing in the file is trusted. ND_E_SPOOL_FORMAT: a part is missing or sizes contradict. */
enum nd_status nd_job_read(const char *path, struct nd_agent_job *out, struct nd_error *err);

/* Frees what the job owns (but not inputs, which are borrowed). Accepts the zeroed. */
void nd_job_deinit(struct nd_agent_job *job);

/* Adds a float node; false: out of memory. Removes one of that name, if there is one. */
bool nd_job_add_float_node(struct nd_agent_job *job, const char *node);
void nd_job_remove_float_node(struct nd_agent_job *job, const char *node);

/* Reruns: a few samples are run again in the same session, so that a capture knows whether its device repeats
 * itself. Chosen. ND_RERUN_SAMPLES: of each probe, its first ones. ND_RERUN_SHARE: at most one rerun for so
 * many samples (5 %), but one sample of each capture is run again in any case. ND_RERUN_FEWEST: runs of such a
 * sample. ND_RERUN_MAX: its runs where the first two differ, so that the noise is known a little better. */
enum { ND_RERUN_SAMPLES = 4, ND_RERUN_SHARE = 20, ND_RERUN_FEWEST = 2, ND_RERUN_MAX = 4 };

/* Sets n_rerun of all probes: first samples before second ones, the last probe before the first, because the
 * first ones (zeros, ones) say the least. */
void nd_job_plan_reruns(struct nd_agent_job *job);

/* How often the sample is run in each pass; differs: its first two runs did in this pass. */
size_t nd_job_n_runs(const struct nd_agent_job *job, size_t probe, size_t sample, bool differs);

/* A node of a session, and where it is. */
struct nd_job_node {
    const char *provider;
    const char *name;
    const char *op_type;
};

/* Which of the nodes are not on the job's provider, although they should be. Quantisation of the graph's own
 * inputs and outputs may be on the CPU, also by another name: where a layout pass moves a transpose behind the
 * last layer, the quantiser of the model goes with the transpose, and a new one ends the graph. */
void nd_job_find_fell_back(const struct nd_agent_job *job, const struct nd_job_node *nodes, size_t n,
                           bool *is_fell_back);

/* What an OUTPUT record says of its tensor; false when it is not understood. */
bool nd_job_read_output(const struct nd_record *record, enum nd_dtype *dtype, struct nd_shape *shape);

/* "1x8x8" and back; "scalar" is rank 0. */
bool nd_dims_parse(const char *text, struct nd_shape *out);

/* The exit codes of npudiff-agent beside 0, for who reads how it ended. */
enum nd_agent_code {
    ND_AGENT_DEVICE_FAILED = 1,
    ND_AGENT_USAGE = 2,
    ND_AGENT_CANNOT_STORE = 3,  /* no room for its results: a trouble of the machine, not of the device */
    ND_AGENT_CANNOT_RESUME = 4, /* the spool that is there is not of this job, or damaged */
};
