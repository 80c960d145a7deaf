/* The reader's parts: capture.c (open, accessors, verify); load_probe.c (what the index
 * holds, checked and in memory); view.c (tensors). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "capture/hdf5/index.h"
#include "capture/read/schema.h"
#include "core/error.h"
#include "npudiff/capture/capture.h"

/* A stored repeat: row `row` of /probes/<probe>/repeats/<tensor>, or of reruns/<tensor>. */
struct nd_repeat_row {
    int64_t sample;
    int64_t repeat;
    size_t row;
};

/* What a probe holds of one tensor. */
struct nd_probe_tensor {
    const struct nd_index_object *outputs;        /* NULL when only digests are stored */
    const struct nd_index_object *repeats;        /* of repeats or reruns; NULL when none differs */
    const struct nd_index_object *digests_object; /* NULL: there are none */
    struct nd_digest *_Atomic digests;            /* [n_samples][n_repeats]; NULL: none, or not read yet */
    size_t n_repeat_rows;
    struct nd_repeat_row *repeat_rows; /* sorted by sample, then repeat */
};

struct nd_probe_input_data {
    const struct nd_index_object *object;
    struct nd_digest *digests; /* [n_samples_expected] */
};

struct nd_probe_data {
    struct nd_capture_probe probe;
    struct nd_probe_input_data *inputs; /* probe.n_inputs */
    struct nd_probe_tensor *tensors;    /* one per tensor of the capture */
    struct nd_digest *tensor_digests;   /* one per tensor of the capture, or NULL */
    size_t n_reruns;
    int64_t (*reruns)[2]; /* sample and repeat (from 1) of the samples that were run again */
    struct nd_digest
        *rerun_digests; /* [n_reruns][tensors]; zero: the session of the tensor did not make that run */
};

struct nd_capture_log {
    char *name;
    char *text;
};

struct nd_tensor_key {
    const char *name;
    size_t tensor;
};

/* Of a capture whose digests are read when they are first asked for. */
struct nd_deferred {
    pthread_mutex_t lock;  /* guards what follows, and reading */
    enum nd_status status; /* of the first reading that failed */
    struct nd_error err;
};

struct nd_capture {
    char *path;
    struct nd_index *index;
    enum nd_capture_status state;
    bool is_trusted;              /* nothing is held against digests */
    bool is_checked;              /* opening has seen that the content digest is right */
    struct nd_deferred *deferred; /* NULL: opening has read all digests */
    size_t n_attrs, n_tensors, n_nodes, n_probes, n_logs, n_objects;
    struct nd_attr *attrs;
    struct nd_tensor *tensors;
    char **providers;                  /* one per tensor */
    struct nd_tensor_key *tensor_keys; /* sorted by name */
    struct nd_capture_node *nodes;
    struct nd_probe_data *probes;
    struct nd_capture_log *logs;
    struct nd_capture_finding *findings;
    size_t n_findings;
    struct nd_capture_object *objects;
};

/* Each fills its part of the capture; what was filled before a failure is freed by nd_capture_close. */
enum nd_status nd_capture_load_tensors(struct nd_capture *capture, struct nd_error *err);
enum nd_status nd_capture_load_nodes(struct nd_capture *capture, struct nd_error *err);
enum nd_status nd_capture_load_findings(struct nd_capture *capture, struct nd_error *err); /* after logs */
enum nd_status nd_capture_load_probes(struct nd_capture *capture, struct nd_error *err);

/* What a dataset must be. */
struct nd_wanted {
    enum nd_dtype dtype;   /* ND_DTYPE_NONE: text */
    struct nd_shape shape; /* a dimension of -1 takes what is there */
    bool is_optional;      /* an absent one leaves *out alone */
};

/* The whole dataset at `path`. n_rows, nullable, gets its first dimension. The caller frees *out. */
enum nd_status nd_capture_load(const struct nd_capture *capture, const char *path,
                               const struct nd_wanted *wanted, void **out, size_t *n_rows,
                               struct nd_error *err);

/* The digests of all digests of each tensor (docs/reference/capture-format.md#edge-digests). Loading: absent
 * ones are not stated. _edge_digest: NULL where it is not stated. _make_edge_digest: what the writer states,
 * zero for what it does not state; needs the digests. */
#define ND_TENSOR_DIGESTS "edge_digests"
struct nd_digest nd_capture_make_tensor_digest(const struct nd_capture *capture, size_t probe, size_t tensor);
/* Reads the digests of a tensor unless they are there. Any thread may call it. ND_E_CAPTURE_DIGEST, ND_ERR_IO,
 * ND_ERR_MEMORY; after a failure every later call fails with the same error. */
enum nd_status nd_probe_need_digests(const struct nd_capture *capture, size_t probe, size_t tensor,
                                     struct nd_error *err);

/* The element type of a tensor: as stored, unless its attribute `dtype` names one that HDF5 has not. */
enum nd_status nd_capture_tensor_dtype(const struct nd_index_object *object, enum nd_dtype *out,
                                       struct nd_error *err);

/* Row of /repeats that holds this repeat, or NULL. */
const struct nd_repeat_row *nd_capture_repeat_row(const struct nd_probe_tensor *tensor, size_t sample,
                                                  size_t repeat);

enum { ND_CONTENT_DIGEST_BYTES = 33 };

/* The content digest of a capture, in 32 hexadecimal digits and a NUL: XXH3-128 over the canonical stream that
 * docs/reference/capture-format.md#content-digest defines. Reads every dataset but the tensors, which their
 * digests stand for, and but those of which `known` (one per object; nullable, as are its elements) has the
 * digest already. */
enum nd_status nd_content_digest(const struct nd_index *index, const struct nd_digest *const *known,
                                 char hex[static ND_CONTENT_DIGEST_BYTES], struct nd_error *err);
