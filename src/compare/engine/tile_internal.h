/* What tile.c and tile.c share. */
#ifndef ND_COMPARE_TILE_INTERNAL_H
#define ND_COMPARE_TILE_INTERNAL_H

#include "capture/read/view.h"
#include "compare/engine/tile.h"
#include "compare/metrics/distribution.h"

/* Arrays are indexed by stream. */
struct nd_worker {
    size_t index, n_streams, n_pairs;
    struct nd_view_scratch *views;
    size_t *first, *end;         /* samples of the tile that are read */
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
struct nd_tile_range {
    size_t first_sample, end_sample, first, end;
};

#endif
