/* Reads what must be read, on all threads, and fills the pairs of every tensor.
 * docs/reference/metrics.md#elements, #sums and #alignment. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "compare/findings/top1_classes.h"
#include "compare/matching/matching.h"
#include "compare/metrics/kernels/kernels.h"
#include "compare/metrics/states.h"
#include "npudiff/compare/compare.h"

/* comparison is described (devices, probes, tensors with their pairs); fills differences, coverage, reasons and
 * top1. */
enum nd_status nd_engine_run(const struct nd_aligned_captures *alignment,
                             const struct nd_compare_options *options, const struct nd_kernels *kernels,
                             struct nd_comparison *comparison, struct nd_error *err);

/* One tensor of one probe: which tensors must be read, and which of them stand beside which.
 * docs/reference/metrics.md#mixed-types, #alignment and #parts.
 *
 * Captures that are bit-equal on the tensor and probe (by digest) are one stream, read once; a pair of captures
 * is looked up as a pair of streams. So a fleet of forty phones in three classes costs three. */

struct nd_stream {
    size_t capture;                /* the first that it stands for */
    struct nd_probe_values tensor; /* there */
    struct nd_layout layout;
    bool is_real; /* quantised values that are taken as real values, for pairs of mixed types */
    size_t n_samples;
    bool has_values;
    bool is_scanned;    /* all its samples are read */
    size_t chunk_bytes; /* 0: contiguous */
};

struct nd_compare_job_pair {
    size_t ref, test; /* streams; the same one when they are equal */
    size_t n_common;  /* samples on both sides */
    bool has_values;  /* on both sides */
    struct nd_pair_context context;
    size_t first_differing;      /* sample, by digest; SIZE_MAX: none */
    atomic_uchar *seen;          /* [n_samples of the job]: an element of the sample differs */
    struct nd_pair_state *state; /* what is known without reading; then everything */
};

/* The least and largest value of a sample that several units share. */
struct nd_value_span {
    double min, max;
    bool has_others; /* NaN or infinity */
};

/* Of one stream and sample. */
struct nd_part_digest {
    struct nd_digest_stream *stream; /* from the first part to the last */
    size_t n_added;                  /* parts */
};

/* Digests of samples that several tiles read. XXH3 takes bytes in order only: a unit waits until the one before
 * it has added its part. That ends, as tiles are begun in order and add their parts before anything else. */
struct nd_job_digests {
    pthread_mutex_t lock;
    pthread_cond_t turn; /* a part was added, or a tile has failed */
    bool has_failed;
    size_t n; /* streams times samples */
    struct nd_part_digest *of;
};

struct nd_compare_job {
    const struct nd_aligned_captures *alignment;
    const struct nd_kernels *kernels;
    size_t tensor, probe;
    bool is_scanned;     /* all samples are read: a model output, or a float tensor where none is compared */
    bool is_output;      /* a model output that has classes: at least two elements, and a dimension */
    bool verify_digests; /* read also what digests say is equal */
    bool trust_digests;  /* what is read is not checked */
    struct nd_shape shape;
    size_t n_elems;
    size_t first_sample, end_sample; /* of this part: n_samples is their difference */
    size_t n_streams, n_pairs;
    struct nd_stream *streams;
    bool *alike; /* [n_streams * n_streams]: same type and quantisation, so that bytes can be compared */
    struct nd_compare_job_pair *pairs;
    size_t *pair_of;   /* [pairs of captures]: index into pairs, or SIZE_MAX */
    size_t *stream_of; /* [captures]: the stream of its values as they are, or SIZE_MAX */
    /* The work: tiles are numbered by sample, then by part of a sample. */
    size_t n_tiles, samples_per_tile, tiles_per_sample, tile_elems;

    /* Filled by the workers. */
    pthread_mutex_t lock;
    atomic_size_t n_tiles_left;
    struct nd_job_digests *digests; /* where samples are split, and what is read is checked, else NULL */
    struct nd_value_span *spans;    /* [n_streams * n_samples] where samples are split, else NULL */
    struct nd_best *best;           /* [n_streams * n_samples], of what is scanned, else NULL */
    struct nd_pair_state ***states; /* [n_workers] of [n_pairs], made when a worker first comes */
    size_t n_workers;
};

/* What all jobs share. */
struct nd_job_options {
    const struct nd_compare_options *compare;
    const struct nd_kernels *kernels;
    const struct nd_compared_pair *pairs; /* the pairs of captures, with ref and test */
    size_t n_pairs;
    size_t n_workers;
    bool has_outputs; /* a model output is among the tensors that are compared */
};

/* The samples [*first, *end) of a probe that belong to this part of the comparison. */
void nd_cut_samples(const struct nd_aligned_captures *alignment, size_t probe,
                    const struct nd_compare_options *options, size_t *first, size_t *end);

/* The jobs of one tensor and probe, appended to *jobs: one per shape that is of interest. Fills the coverage
 * and reasons of the pairs' parts; a pair whose total has a reason cannot be compared. is_mixed[pair]: as
 * section 12 has it. */
enum nd_status nd_jobs_plan(const struct nd_aligned_captures *alignment, size_t tensor, size_t probe,
                            const struct nd_job_options *options, struct nd_compared_tensor *compared,
                            const bool *is_mixed, struct nd_compare_job ***jobs, size_t *n_jobs,
                            size_t *capacity, struct nd_error *err);
void nd_job_destroy(struct nd_compare_job **job);

/* Whether sample `sample` of two streams has equal digests, where that says anything. */
bool nd_job_is_equal(const struct nd_compare_job *job, size_t a, size_t b, size_t sample);

/* ---- parts of a comparison that was cut. docs/reference/metrics.md#parts ---- */

/* ND_E_COMPARE_PART unless the parts are of these captures, tensors, probes, pairs, gates and options;
 * `described` has all of them, but no results yet. */
enum nd_status nd_parts_check(const struct nd_parts *parts, const struct nd_comparison *described,
                              struct nd_error *err);

enum { ND_PART_FORMAT = 5, ND_PART_DEVICE_COUNTS = 4, ND_PART_PAIR_COUNTS = 6 };

/* Building and freeing a comparison's parts from the captures' descriptions, before anything is compared. */

/* Devices, probes and tensors with everything that needs no tensor: names, providers, status, unstable samples.
 * Parts made before a failure belong to comparison and go with nd_comparison_destroy. */
enum nd_status nd_result_describe(const struct nd_aligned_captures *alignment, bool all_pairs,
                                  struct nd_comparison *comparison, struct nd_error *err);

/* One piece of a job, by one thread: every tensor in it is looked at once, block by block.
 * docs/reference/metrics.md#elements and #sums. */

/* What a thread works with, kept from tile to tile. */
struct nd_worker;

/* For jobs of at most n_streams streams and n_pairs pairs; index is the thread's. NULL when out of memory. */
struct nd_worker *nd_worker_create(size_t index, size_t n_streams, size_t n_pairs, struct nd_error *err);
void nd_worker_destroy(struct nd_worker **worker);

/* Adds tile `unit` of the job to the states of this worker. ND_E_CAPTURE_DIGEST: with verify_digests, equal
 * digests over unequal bytes. What reading a capture returns; ND_ERR_MEMORY. */
enum nd_status nd_tile_run(struct nd_worker *worker, struct nd_compare_job *job, size_t tile,
                           struct nd_error *err);

/* ---- classes of devices, and how near outputs are. docs/reference/metrics.md#classes ---- */

/* The classes of n devices where is_equal(context, a, b), a < b, tells whether two agree; has_data[i] false
 * gives -1. A device joins the first class all of whose members agree with it, so the numbers rise in order of
 * device. */
void nd_classes_make(size_t n, const bool *has_data, bool (*is_equal)(const void *context, size_t a, size_t b),
                     const void *context, int *classes);

/* The mean, over the tensors compared in that pair, of noise by signal, in dB: the signal-to-noise ratio of the
 * tensors together, each weighing the same. Of several probes the one with the most noise counts. Tensors
 * without values, or without a signal where they differ, are left out; NaN: all are. */
double nd_comparison_sqnr_db(const struct nd_comparison *comparison, size_t pair);
