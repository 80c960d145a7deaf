/* Writing a capture: a temporary file beside the final path, filled in any order, committed at once.
 *
 * The only user of libhdf5's writing side. One writer at a time in a process (the functions take a process-wide
 * lock on HDF5); the temporary file is created O_EXCL, so two processes do not share one. */
#pragma once

#include "core/tensors/chunk.h"
#include "npudiff/capture/capture.h"

struct nd_capture_writer;

/* Starts a capture that will be called final_path. ND_ERR_IO when the folder is not writable, or (replace
 * false) when final_path exists already: then nothing is touched. */
enum nd_status nd_capture_writer_create(const char *final_path, bool replace, struct nd_capture_writer **out,
                                        struct nd_error *err);
/* The same of a file that will store so many bytes of values, before they are deflated (0: unknown): its
 * metadata lies together. */
enum nd_status nd_capture_writer_create_large(const char *final_path, bool replace, uint64_t value_bytes,
                                              struct nd_capture_writer **out, struct nd_error *err);
/* Removes what was written unless committed. Accepts NULL and the half-built. */
void nd_capture_writer_destroy(struct nd_capture_writer **writer);

/* Tensors that are begun from now on are stored in chunks with shuffle and deflate of this level (1 to 9), or
 * contiguous (0, which a new writer has). */
void nd_capture_writer_level(struct nd_capture_writer *writer, int level);

/* An attribute of group attr->group ("device", "runtime", "model", "host", "failure", "truth", "import", "" =
 * root), made when missing. ND_ERR_FORMAT for text over 60000 bytes (HDF5's limit), a key given twice and the
 * four root keys that commit writes. */
enum nd_status nd_capture_writer_attr(struct nd_capture_writer *writer, const struct nd_attr *attr,
                                      struct nd_error *err);

/* The tables /edges and /nodes. providers[i] is the provider of tensor i. Call once each, tensors before
 * outputs.
 */
enum nd_status nd_capture_writer_tensors(struct nd_capture_writer *writer, const struct nd_tensor *tensors,
                                         const char *const *providers, size_t n_tensors, struct nd_error *err);
enum nd_status nd_capture_writer_nodes(struct nd_capture_writer *writer, const struct nd_capture_node *nodes,
                                       size_t n_nodes, struct nd_error *err);

/* (Tables that were never given are written empty by commit.) */

/* A probe's group with its sizes, labels and latencies (probe->inputs describe, data follows by _input). */
enum nd_status nd_capture_writer_probe(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                       struct nd_error *err);

/* Input `input` of the probe: all n_samples_expected samples, and their digests. */
enum nd_status nd_capture_writer_input(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                       size_t input, const void *data, struct nd_error *err);

/* Digests [n_samples][n_repeats] of one tensor. */
enum nd_status nd_capture_writer_digests(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                         const struct nd_tensor *tensor, const struct nd_digest *digests,
                                         struct nd_error *err);

/* How the outputs of a tensor are cut: as for all samples asked for, shortened to those there are. */
enum nd_status nd_capture_output_layout(const struct nd_capture_probe *probe, const struct nd_tensor *tensor,
                                        struct nd_chunk_layout *out, struct nd_error *err);

/* The outputs of a tensor in a probe of n_samples >= 1. */
struct nd_capture_output {
    const struct nd_capture_probe *probe;
    const struct nd_tensor *tensor;
    const char *provider;                 /* nullable */
    const struct nd_chunk_layout *layout; /* NULL: nd_capture_output_layout */
};

/* Writes those that lie in memory. */
enum nd_status nd_capture_writer_outputs(struct nd_capture_writer *writer,
                                         const struct nd_capture_output *output, const void *data,
                                         struct nd_error *err);

/* The same in pieces: chunk stores chunk `index` of the layout as it was encoded by nd_chunk_encode or, at
 * level 0, raw, without the padding; every chunk must come exactly once, in any order; end closes and checks
 * that. Destroy datasets before their writer. */
struct nd_capture_dataset;
enum nd_status nd_capture_writer_outputs_begin(struct nd_capture_writer *writer,
                                               const struct nd_capture_output *output,
                                               struct nd_capture_dataset **out, struct nd_error *err);
enum nd_status nd_capture_writer_chunk(struct nd_capture_dataset *dataset, size_t index, const void *stored,
                                       size_t stored_bytes, struct nd_error *err);
enum nd_status nd_capture_writer_outputs_end(struct nd_capture_dataset **dataset, struct nd_error *err);
/* Closes without a check, for clean-up. */
void nd_capture_dataset_destroy(struct nd_capture_dataset **dataset);

/* Outputs of repeats whose digest differs from repeat 0. */
struct nd_capture_repeats {
    const size_t (*sample_repeat)[2]; /* of each row */
    size_t n;
    const void *data; /* the rows' tensors, back to back */
};
enum nd_status nd_capture_writer_repeats(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                         const struct nd_tensor *tensor,
                                         const struct nd_capture_repeats *repeats, struct nd_error *err);

/* Runs of samples beyond the n_repeats (1) that every sample has. Call before the outputs. Where no sample has
 * any, n is 0 and nothing is written. Values other than the first run's go by nd_capture_writer_repeats. */
struct nd_capture_reruns {
    const size_t (*sample_repeat)[2]; /* ascending; repeats from 1 */
    size_t n;
    size_t n_tensors;
    const struct nd_digest
        *digests; /* [n][n_edges]; zero where the session of the tensor did not make the run */
};
enum nd_status nd_capture_writer_reruns(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                                        const struct nd_capture_reruns *reruns, struct nd_error *err);

/* /logs/<name>: text, stored as uint8 [bytes] so that any byte survives. */
enum nd_status nd_capture_writer_log(struct nd_capture_writer *writer, const char *name, const char *text,
                                     size_t text_bytes, struct nd_error *err);

/* The table /findings. Call once, at least one row; texts are nullable. */
enum nd_status nd_capture_writer_findings(struct nd_capture_writer *writer,
                                          const struct nd_capture_finding *rows, size_t n_rows,
                                          struct nd_error *err);

/* Root attribute `status`, content digest, checked close, sync, rename to the final path. After success the
 * writer holds nothing. */
enum nd_status nd_capture_writer_commit(struct nd_capture_writer *writer, enum nd_capture_status state,
                                        struct nd_error *err);
