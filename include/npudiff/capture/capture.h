/* Reading captures: files that hold every tensor which one device computed for one model.
 *
 * A capture is an HDF5 file, described in docs/reference/capture-format.md. It holds one or more probes
 * (sets of inputs); each has samples (inputs) and repeats (runs of the same sample). Its tensors are the
 * tensors that were recorded, in the order of the model's graph.
 *
 * nd_capture_open reads names, shapes, attributes, tables, digests and the position of every stored chunk.
 * It forks a child that does so (npudiff.h: Processes and signals). The tensors are read later, straight from
 * the file. An open capture does not change: several threads may read it. Every pointer that a function returns
 * is borrowed and stays valid until nd_capture_close.
 *
 * Example:
 *
 *     static int print_edges(const char *path)
 *     {
 *         struct nd_capture *capture = NULL;
 *         struct nd_error err;
 *         if (nd_capture_open(path, &capture, &err) != ND_OK) {
 *             fprintf(stderr, "%s\n", err.message);
 *             return 1;
 *         }
 *         for (size_t e = 0; e < nd_capture_n_tensors(capture); e++)
 *             printf("%s\n", nd_capture_tensor(capture, e)->name);
 *         nd_capture_close(&capture);
 *         return 0;
 *     }
 *
 * Stability: stable. A change that breaks programs raises the number in the library's soname. */
#ifndef NPUDIFF_CAPTURE_H
#define NPUDIFF_CAPTURE_H

#include "npudiff/core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_capture;

enum nd_capture_status { ND_CAPTURE_COMPLETE, ND_CAPTURE_FAILED, ND_CAPTURE_PARTIAL };

enum nd_attr_type { ND_ATTR_STRING, ND_ATTR_I64, ND_ATTR_F64 };

/* One attribute: `group` is "device", "runtime", "model", "host", "failure", "truth", "import" or "" for the
 * root. */
struct nd_attr {
    char *group;
    char *key;
    enum nd_attr_type type;
    char *string; /* for ND_ATTR_STRING */
    int64_t i64;
    double f64;
};

struct nd_capture_node {
    char *name;
    char *op_type;
    char *domain;
    char *provider;   /* the execution provider that it ran on, "" when unknown */
    int64_t subgraph; /* equal numbers (from 1): given to the provider together; 0 when unknown */
};

/* What one line of a stored log says (npudiff/logs.h). Texts that the line does not state are "", and
 * code is 0. */
struct nd_capture_finding {
    char *kind;     /* "fallback", "preparation", ... */
    char *severity; /* "note", "warning", "failure" */
    char *log;      /* name of the stored log */
    char *op;
    char *node;
    char *symbol;
    char *text;   /* the line, cut at 240 bytes */
    int64_t line; /* from 1; 0 for what npudiff itself says */
    int64_t code;
};

struct nd_capture_input {
    char *name;
    enum nd_dtype dtype;
    struct nd_shape shape; /* of one sample */
};

struct nd_capture_probe {
    char *name;
    char *source;
    size_t n_samples;          /* complete samples stored */
    size_t n_samples_expected; /* asked for; larger than n_samples when the device stopped early */
    size_t n_repeats;
    size_t n_inputs;
    struct nd_capture_input *inputs;
    int64_t *labels;    /* [n_samples_expected], or NULL */
    double *latency_us; /* [n_samples * n_repeats]; NaN where not recorded */
};

/* Whether the name is of a server: it begins with http://, https:// or s3://. Where a path of a capture is
 * taken, so is such a name; docs/guides/servers.md says what it needs. Nothing is asked. */
ND_PUBLIC bool nd_capture_is_url(const char *name);
/* The name as messages and reports show it, and nd_capture_path gives it: of a URL without user, password and
 * query, which may open the file to whoever reads them. Any other name is copied. The caller frees it; NULL:
 * out of memory. */
ND_PUBLIC char *nd_capture_shown_name(const char *name);

/* path may be a name of a server: then values are fetched when they are read, and ND_E_CAPTURE_CHANGED says
 * that the server has a different file meanwhile. ND_ERR_IO: cannot be read; ND_ERR_FORMAT: not HDF5, not a
 * capture, truncated, or against the schema (the message says which object, what was found and what was
 * expected), or damaged (ND_E_CAPTURE_DIGEST, see nd_capture_check_content); ND_ERR_UNSUPPORTED: a newer
 * format. The caller closes *out. */
ND_PUBLIC enum nd_status nd_capture_open(const char *path, struct nd_capture **out, struct nd_error *err);
/* Like nd_capture_open, but without nd_capture_check_content: for nd_capture_verify, and for those who look at
 * damage. */
ND_PUBLIC enum nd_status nd_capture_open_unchecked(const char *path, struct nd_capture **out,
                                                   struct nd_error *err);
/* Like nd_capture_open, but digests of tensors are read when they are first asked for, where the capture states
 * one digest of them all (docs/reference/capture-format.md#edge-digests). For captures on servers of which most
 * tensors are equal. nd_capture_digest then gives zero when reading fails: whoever has asked calls
 * nd_capture_check_deferred at the end, and believes what it made of digests only if that is ND_OK. Else it is
 * the first failure: ND_ERR_FORMAT (ND_E_CAPTURE_DIGEST), ND_ERR_IO, ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_capture_open_deferred(const char *path, struct nd_capture **out,
                                                  struct nd_error *err);
ND_PUBLIC enum nd_status nd_capture_check_deferred(const struct nd_capture *capture, struct nd_error *err);
ND_PUBLIC void nd_capture_close(struct nd_capture **capture);

ND_PUBLIC const char *nd_capture_path(const struct nd_capture *capture);
ND_PUBLIC enum nd_capture_status nd_capture_state(const struct nd_capture *capture);
ND_PUBLIC const char *nd_capture_state_name(enum nd_capture_status state);

ND_PUBLIC size_t nd_capture_n_attrs(const struct nd_capture *capture);
ND_PUBLIC const struct nd_attr *nd_capture_attr(const struct nd_capture *capture, size_t i);
/* The string attribute group/key, or NULL when it does not exist or is a number. */
ND_PUBLIC const char *nd_capture_string(const struct nd_capture *capture, const char *group, const char *key);
/* The integer attribute group/key, or `absent` when it does not exist or is something else. */
ND_PUBLIC int64_t nd_capture_integer(const struct nd_capture *capture, const char *group, const char *key,
                                     int64_t absent);

/* Whether the capture says that an NPU computed it: `kind` in /device is one of npudiff's NPU devices, or an
 * import that states `npu`. False for a CPU, a GPU, a reference and an emulated device, and for an import that
 * states nothing: nobody may then be accused of a fallback. */
ND_PUBLIC bool nd_capture_is_called_npu(const struct nd_capture *capture);

ND_PUBLIC size_t nd_capture_n_tensors(const struct nd_capture *capture);
ND_PUBLIC const struct nd_tensor *nd_capture_tensor(const struct nd_capture *capture, size_t tensor);
/* The provider that computed the tensor, "" when unknown. */
ND_PUBLIC const char *nd_capture_tensor_provider(const struct nd_capture *capture, size_t tensor);
/* Index of the tensor of that name, or SIZE_MAX. */
ND_PUBLIC size_t nd_capture_find_tensor(const struct nd_capture *capture, const char *name);

ND_PUBLIC size_t nd_capture_n_nodes(const struct nd_capture *capture);
ND_PUBLIC const struct nd_capture_node *nd_capture_node(const struct nd_capture *capture, size_t node);

ND_PUBLIC size_t nd_capture_n_probes(const struct nd_capture *capture);
ND_PUBLIC const struct nd_capture_probe *nd_capture_probe(const struct nd_capture *capture, size_t probe);
ND_PUBLIC size_t nd_capture_find_probe(const struct nd_capture *capture, const char *name);

ND_PUBLIC size_t nd_capture_n_logs(const struct nd_capture *capture);
ND_PUBLIC const char *nd_capture_log_name(const struct nd_capture *capture, size_t log);
ND_PUBLIC const char *nd_capture_log_text(const struct nd_capture *capture, size_t log);

/* What the logs said when the capture was made, in their order. None in older captures. */
ND_PUBLIC size_t nd_capture_n_findings(const struct nd_capture *capture);
ND_PUBLIC const struct nd_capture_finding *nd_capture_finding(const struct nd_capture *capture, size_t i);

/* How often that sample was run, as far as this tensor shows: n_repeats, or more where npudiff ran a few
 * samples again to see whether the device repeats itself. sample < n_samples (asserted). */
ND_PUBLIC size_t nd_capture_n_runs(const struct nd_capture *capture, size_t probe, size_t tensor,
                                   size_t sample);

/* Digest of one run of one sample. sample < n_samples, repeat < nd_capture_n_runs (asserted). */
ND_PUBLIC struct nd_digest nd_capture_digest(const struct nd_capture *capture, size_t probe, size_t tensor,
                                             size_t sample, size_t repeat);

/* The digest of all digests of a tensor, where the capture states it: then every repeat equals the first run,
 * and not all samples are equal. Two captures that state the same have the same digests. NULL: it is not
 * stated. */
ND_PUBLIC const struct nd_digest *nd_capture_tensor_digest(const struct nd_capture *capture, size_t probe,
                                                           size_t tensor);

/* Digest of one sample of an input, as it is stored. sample < n_samples_expected (asserted). */
ND_PUBLIC struct nd_digest nd_capture_input_digest(const struct nd_capture *capture, size_t probe, size_t input,
                                                   size_t sample);

/* Whether the tensors themselves are stored (false with --store digest). */
ND_PUBLIC bool nd_capture_has_outputs(const struct nd_capture *capture, size_t probe, size_t tensor);

/* The tensor of one tensor in one probe. */
struct nd_probe_values {
    const struct nd_capture *capture;
    size_t probe;
    size_t tensor;
};

/* Reads samples [first, first + n) of the first repeat into buf, n times the tensor's sample size, in C order,
 * and holds them against no digest (nd_capture_read_verified does). ND_ERR_NOT_FOUND when only digests are
 * stored or the range is outside; ND_ERR_FORMAT for chunks that cannot be decoded; ND_ERR_IO when the file
 * cannot be read. */
ND_PUBLIC enum nd_status nd_capture_read_outputs(const struct nd_probe_values *tensor, size_t first, size_t n,
                                                 void *buf, struct nd_error *err);

/* The same for the output of one repeat > 0 of one sample: where its digest differs from repeat 0 it is stored
 * apart. */
ND_PUBLIC enum nd_status nd_capture_read_repeat(const struct nd_probe_values *tensor, size_t sample,
                                                size_t repeat, void *buf, struct nd_error *err);

/* Switches checks off: from now on nd_capture_read_verified, nd_capture_read_repeat_verified,
 * nd_capture_read_inputs and nd_capture_check_content do not check this capture. */
ND_PUBLIC void nd_capture_trust(struct nd_capture *capture);
/* Like nd_capture_read_outputs and nd_capture_read_repeat, but every sample is checked: one that does not have
 * the digest that the capture states is ND_ERR_FORMAT (ND_E_CAPTURE_DIGEST). */
ND_PUBLIC enum nd_status nd_capture_read_verified(const struct nd_probe_values *tensor, size_t first, size_t n,
                                                  void *buf, struct nd_error *err);
ND_PUBLIC enum nd_status nd_capture_read_repeat_verified(const struct nd_probe_values *tensor, size_t sample,
                                                         size_t repeat, void *buf, struct nd_error *err);

/* Like nd_capture_read_verified for an input of a probe: input->tensor indexes nd_capture_probe.inputs, and
 * first + n may be up to n_samples_expected. */
ND_PUBLIC enum nd_status nd_capture_read_inputs(const struct nd_probe_values *input, size_t first, size_t n,
                                                void *buf, struct nd_error *err);

/* One stored dataset, for `npudiff info --list`. */
struct nd_capture_object {
    const char *path;      /* as h5ls prints it: "/probes/zeros/outputs/conv1" */
    enum nd_dtype dtype;   /* ND_DTYPE_NONE for text */
    size_t text_bytes;     /* length of fixed strings, 0 for numbers */
    struct nd_shape shape; /* of the whole dataset */
    uint64_t stored_bytes; /* as it lies in the file */
};
ND_PUBLIC size_t nd_capture_n_objects(const struct nd_capture *capture);
ND_PUBLIC const struct nd_capture_object *nd_capture_object(const struct nd_capture *capture,
                                                            size_t i); /* sorted by path */

/* Holds everything but the tensors against the content digest: names, shapes, types, attributes, tables,
 * labels, and the digests of the tensors, which stand for them. nd_capture_open does it. ND_ERR_FORMAT
 * (ND_E_CAPTURE_DIGEST) when it is not what was written; ND_ERR_IO; ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_capture_check_content(const struct nd_capture *capture, struct nd_error *err);

/* What nd_capture_verify found. The caller sets struct_size. */
struct nd_capture_verification {
    size_t struct_size;    /* sizeof(struct nd_capture_verification) */
    size_t n_tensors;      /* samples x tensors (and inputs) that were hashed */
    size_t n_wrong;        /* whose bytes do not match their digest, or are no values of uint4 or int4 */
    bool content_matches;  /* the content digest over names, shapes, types, attributes and digests */
    char first_wrong[512]; /* "probe 'zeros', tensor 'conv1', sample 3", or "" */
};

/* Re-reads and re-hashes everything. Damage that was found is a result (n_wrong > 0 or !content_matches), not
 * an error, but a chunk that cannot even be decoded also counts as wrong. ND_ERR_IO when the file cannot be
 * read. */
ND_PUBLIC enum nd_status nd_capture_verify(const struct nd_capture *capture,
                                           struct nd_capture_verification *out, struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
