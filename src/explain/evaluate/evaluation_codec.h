/* The sums and tallies of an evaluation as bytes: 8 for each number, little-endian, on every machine the same.
 * One visit writes them, reads them, or counts how many there are. evaluation_part.c makes files of them. */
#ifndef ND_REPLAY_EVALUATION_CODEC_H
#define ND_REPLAY_EVALUATION_CODEC_H

#include "explain/evaluate/evaluation.h"

enum nd_codec_way { ND_CODEC_COUNT, ND_CODEC_WRITE, ND_CODEC_READ };

struct nd_codec {
    enum nd_codec_way way;
    unsigned char *bytes; /* room for what was counted; NULL while counting */
    size_t n;             /* bytes so far */
};

/* What the evaluation has of one sample: of every device that is worked out, and the references. */
void nd_codec_sample(struct nd_codec *codec, struct nd_evaluation *evaluation, size_t sample);

/* The tallies of a device, in the order of steps: [n_steps] each. They are not finished (nd_evaluate_finish).
 */
void nd_codec_tallies(struct nd_codec *codec, size_t n_steps, struct nd_code_tally *tally,
                      struct nd_unit_tally *unit_tally);

#endif
