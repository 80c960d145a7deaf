#include "explain/evaluate/evaluation_codec.h"

#include <string.h>

static void put_count(struct nd_codec *codec, uint64_t *value)
{
    enum { BYTES = 8 };
    unsigned char *at = codec->way != ND_CODEC_COUNT ? codec->bytes + codec->n : NULL;
    codec->n += BYTES;
    for (int i = 0; i < BYTES && codec->way == ND_CODEC_WRITE; i++)
        at[i] = (unsigned char)(*value >> 8 * i);
    if (codec->way != ND_CODEC_READ)
        return;
    *value = 0;
    for (int i = 0; i < BYTES; i++)
        *value |= (uint64_t)at[i] << 8 * i;
}

static void put_real(struct nd_codec *codec, double *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    put_count(codec, &bits);
    memcpy(value, &bits, sizeof bits);
}

static void put_flag(struct nd_codec *codec, bool *value)
{
    uint64_t bit = *value;
    put_count(codec, &bit);
    *value = bit != 0;
}

static void put_counts(struct nd_codec *codec, uint64_t *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_count(codec, &values[i]);
}

static void put_reals(struct nd_codec *codec, double *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_real(codec, &values[i]);
}

/* ---- a sample ---- */

static void put_part(struct nd_codec *codec, struct nd_part_sums *part)
{
    put_count(codec, &part->n_differing);
    put_real(codec, &part->max);
    put_real(codec, &part->sum);
    put_real(codec, &part->energy);
}

static void put_sums(struct nd_codec *codec, struct nd_sums *sums)
{
    put_count(codec, &sums->n_codes);
    put_count(codec, &sums->n_violations);
    put_flag(codec, &sums->is_missed);
    put_flag(codec, &sums->is_harm_missed);
    put_part(codec, &sums->local);
    put_part(codec, &sums->inherited);
    put_part(codec, &sums->total);
    put_real(codec, &sums->q_times_d);
    put_real(codec, &sums->clipped_divergence);
    put_count(codec, &sums->n_harm_codes);
    put_count(codec, &sums->n_harmed);
    put_real(codec, &sums->harm_energy);
    put_real(codec, &sums->own_energy);
}

static void put_reference(struct nd_codec *codec, struct nd_reference_sums *sums)
{
    put_real(codec, &sums->signal);
    put_real(codec, &sums->quantisation);
    put_count(codec, &sums->n_clipped);
    put_real(codec, &sums->clipped_quantisation);
    put_flag(codec, &sums->is_double);
    put_flag(codec, &sums->is_missed);
    put_flag(codec, &sums->is_float_missed);
    put_count(codec, &sums->n_voted);
    put_count(codec, &sums->n_split);
    put_real(codec, &sums->margin);
    put_real(codec, &sums->common_error);
    put_real(codec, &sums->common_divergence);
}

void nd_codec_sample(struct nd_codec *codec, struct nd_evaluation *evaluation, size_t sample)
{
    const struct nd_plan *plan = evaluation->plan;
    for (size_t s = 0; s < plan->n_steps; s++)
        put_reference(codec, nd_reference_sums_of(evaluation, sample, s));
    for (size_t d = 0; d < plan->n_devices; d++)
        for (size_t s = 0; nd_plan_is_worked_out(plan, d) && s < plan->n_steps; s++)
            put_sums(codec, nd_sums_of(evaluation, sample, d, s));
}

/* ---- tallies ---- */

static void put_code_tally(struct nd_codec *codec, struct nd_code_tally *tally)
{
    put_count(codec, &tally->n_nan);
    put_count(codec, &tally->n_open);
    put_counts(codec, tally->wrong, ND_MAX_PROGRAMS);
    put_counts(codec, tally->far, ND_MAX_PROGRAMS);
    put_count(codec, &tally->all_wrong);
}

static void put_unit_tally(struct nd_codec *codec, struct nd_unit_tally *tally)
{
    uint64_t defect = nd_known_defect_index(tally->known_defect);
    put_counts(codec, tally->n, ND_MAX_UNIT_PROGRAMS);
    put_counts(codec, tally->wrong, ND_MAX_UNIT_PROGRAMS);
    put_counts(codec, tally->apart, ND_MAX_UNIT_PROGRAMS);
    put_counts(codec, tally->apart_as_made, ND_MAX_UNIT_PROGRAMS);
    put_counts(codec, tally->apart_as_exact, ND_MAX_UNIT_PROGRAMS);
    put_reals(codec, tally->max, ND_MAX_UNIT_PROGRAMS);
    put_reals(codec, tally->doubt, ND_MAX_UNIT_PROGRAMS);
    for (size_t k = 0; k < ND_N_ALTERNATIVES; k++) {
        put_counts(codec, tally->others[k].n, ND_MAX_UNIT_PROGRAMS);
        put_counts(codec, tally->others[k].wrong, ND_MAX_UNIT_PROGRAMS);
        put_reals(codec, tally->others[k].max, ND_MAX_UNIT_PROGRAMS);
    }
    put_count(codec, &defect);
    tally->known_defect = nd_known_defect_at((size_t)defect);
}

void nd_codec_tallies(struct nd_codec *codec, size_t n_steps, struct nd_code_tally *tally,
                      struct nd_unit_tally *unit_tally)
{
    for (size_t s = 0; s < n_steps; s++) {
        put_code_tally(codec, &tally[s]);
        put_unit_tally(codec, &unit_tally[s]);
    }
}
