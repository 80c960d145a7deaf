/* One tensor of one probe: which tensors must be read, and which of them stand beside which.
 * docs/reference/metrics.md#mixed-types, #alignment and #parts.
 *
 * Captures that are bit-equal on the tensor and probe (by digest) are one stream, read once; a pair of captures
 * is looked up as a pair of streams. So a fleet of forty phones in three classes costs three. */
#ifndef ND_COMPARE_JOB_H
#define ND_COMPARE_JOB_H

#include <pthread.h>
#include <stdatomic.h>

#include "compare/findings/top1_classes.h"
#include "compare/matching/matching.h"
#include "compare/metrics/states.h"

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

#endif
