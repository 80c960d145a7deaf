/* Which elements differ at all. docs/reference/metrics.md#elements and #bits. */
#include "compare/metrics/states.h"

static const struct nd_metric_field fields[] = {
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_bits_state, n_samples), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_bits_state, n_samples_differing), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_bits_state, n_samples_unread), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_bits_state, n_elems), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_bits_state, n_differing), 0},
    {ND_METRIC_FIELD_FIRST, offsetof(struct nd_bits_state, first), 0},
};

void nd_bits_add_sample(struct nd_bits_state *state, size_t n_elems, bool differs, bool is_read, size_t probe,
                        size_t sample)
{
    state->n_samples++;
    state->n_elems += n_elems;
    if (!differs)
        return;
    state->n_samples_differing++;
    if (is_read)
        return;
    state->n_samples_unread++;
    nd_first_note(&state->first, (struct nd_first){.is_set = true, .probe = probe, .sample = sample});
}

static void update(struct nd_pair_state *state, const struct nd_pair_context *context,
                   const struct nd_pair_block *block)
{
    (void)context;
    state->bits.n_differing += block->n_differing;
    nd_first_note(&state->bits.first, (struct nd_first){.is_set = true,
                                                        .has_index = true,
                                                        .probe = block->probe,
                                                        .sample = block->sample,
                                                        .index = block->first + block->first_differing});
}

static enum nd_status finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                             struct nd_difference *out, struct nd_error *err)
{
    (void)context;
    (void)err;
    const struct nd_bits_state *bits = &state->bits;
    out->n_differing = bits->n_differing;
    out->share = bits->n_elems > 0 ? (double)bits->n_differing / (double)bits->n_elems : 0;
    return ND_OK;
}

const struct nd_metric nd_metric_bits = {
    .name = "bits",
    .offset = offsetof(struct nd_pair_state, bits),
    .fields = fields,
    .n_fields = sizeof fields / sizeof fields[0],
    .update = update,
    .finish = finish,
};
