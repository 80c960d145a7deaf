/* What unit.c and unit_outputs.c share. */
#ifndef ND_COMPARE_UNIT_INTERNAL_H
#define ND_COMPARE_UNIT_INTERNAL_H

#include "capture/read/view.h"
#include "compare/engine/unit.h"
#include "compare/metrics/distribution.h"

/* Arrays are indexed by stream. */
struct nd_worker {
    size_t index, n_streams, n_pairs;
    struct nd_view_scratch *views;
    size_t *first, *end;         /* samples of the unit that are read */
    const unsigned char **bytes; /* of them */
    bool *is_needed;             /* for the sample at hand */
    size_t *wanted;              /* indexed by 0 .. n_wanted - 1: pairs to compare in the sample at hand */
    size_t n_wanted;
    size_t *same;                     /* the first stream that is equal to it in the sample at hand */
    size_t *rep;                      /* the first stream that is equal to it in the block at hand */
    struct nd_view_scratch verify[2]; /* not indexed by stream */
    bool *is_loaded;                  /* of the block at hand: x holds the values */
    size_t *group_rep;                /* the same for the group of blocks at hand */
    double (*x)[ND_BLOCK];
    struct nd_side_block *side_blocks;
    struct nd_side_state *sides; /* of the sample at hand */
    struct nd_probabilities *probabilities;
    double **reals; /* of one sample of an output */
    size_t reals_capacity;
    struct nd_block_scratch scratch;
};

/* Elements [first, end) of samples [first_sample, end_sample); more than one sample only when they are whole.
 */
struct nd_unit_range {
    size_t first_sample, end_sample, first, end;
};

/* Bytes of a stream's tensor, as nd_capture_view_outputs. */
enum nd_status nd_stream_view(const struct nd_stream *stream, size_t first_byte, size_t n_bytes,
                              struct nd_view_scratch *scratch, const unsigned char **out, struct nd_error *err);

/* Elements from `first` of the sample, of a stream that is read for it. */
const unsigned char *nd_unit_bytes(const struct nd_worker *w, const struct nd_job *job,
                                   const struct nd_unit_range *range, size_t stream, size_t sample,
                                   size_t first);

/* Holds what is read of the sample that is marked against the digests that the captures state:
 * ND_E_CAPTURE_DIGEST when a capture is damaged. */
enum nd_status nd_unit_check_digests(const struct nd_worker *w, struct nd_job *job,
                                     const struct nd_unit_range *range, size_t sample, struct nd_error *err);

/* Reads what digests say is equal: ND_E_CAPTURE_DIGEST when it is not. */
enum nd_status nd_unit_verify(struct nd_worker *w, const struct nd_job *job, const struct nd_unit_range *range,
                              struct nd_error *err);

/* One sample of a model output, whose streams are marked as needed. */
enum nd_status nd_unit_outputs(struct nd_worker *w, struct nd_job *job, const struct nd_unit_range *range,
                               size_t sample, struct nd_error *err);

#endif
