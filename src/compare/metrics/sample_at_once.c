#include "compare/metrics/sample_at_once.h"

#include <stdlib.h>

#include "compare/metrics/account.h"
#include "compare/metrics/joint.h"
#include "core/error.h"
#include "core/memory.h"

struct buffers {
    double ref[ND_BLOCK], test[ND_BLOCK];
    struct nd_side_state ref_side, test_side;
    struct nd_block_scratch scratch;
};

static struct nd_side_view load_side(const struct nd_layout *layout, const struct nd_kernels *kernels,
                                     const unsigned char *bytes, const struct nd_pair_block *block, double *x,
                                     struct nd_side_block *side_block, struct nd_side_state *side)
{
    bool is_loaded;
    nd_side_block_make(layout, kernels, bytes, block->first, block->n, x, &is_loaded, side_block);
    if (!is_loaded && block->joint != NULL)
        x = NULL;
    else if (!is_loaded)
        nd_layout_load(layout, kernels, bytes, block->first, block->n, x);
    nd_side_add_block(side, side_block, block->n);
    return (struct nd_side_view){bytes, x, side_block};
}

static bool is_stuck(const struct nd_side_state *side)
{
    return side->n_nan + side->n_inf == 0 && side->n_elems > 1 && side->min == side->max;
}

enum nd_status nd_sample_compare(struct nd_pair_state *state, const struct nd_pair_context *context,
                                 bool differs, const unsigned char *ref, const unsigned char *test,
                                 size_t probe, size_t sample, struct nd_error *err)
{
    size_t n_elems = context->ref.n_elems;
    /* Of mixed types only the values tell whether the sample differs. */
    nd_bits_add_sample(&state->bits, n_elems, differs && !context->is_mixed, true, probe, sample);
    if (!differs)
        return ND_OK;
    struct buffers *b = nd_calloc(1, sizeof *b);
    if (b == NULL)
        return nd_fail_memory(err);
    bool is_found = false;
    nd_side_init(&b->ref_side);
    nd_side_init(&b->test_side);
    for (size_t first = 0; first < n_elems; first += ND_BLOCK) {
        struct nd_side_block ref_block, test_block;
        struct nd_pair_block block = {.probe = probe, .sample = sample, .first = first};
        block.n = n_elems - first < ND_BLOCK ? n_elems - first : ND_BLOCK;
        block.joint = nd_joint_of(state, context);
        block.ref = load_side(&context->ref, context->kernels, ref + first * context->ref.elem_bytes, &block,
                              b->ref, &ref_block, &b->ref_side);
        block.test = load_side(&context->test, context->kernels, test + first * context->test.elem_bytes,
                               &block, b->test, &test_block, &b->test_side);
        size_t n_differing = nd_pair_block_make(context, &b->scratch, &block);
        nd_dequantised_note(state, &block);
        if (n_differing == 0)
            continue;
        nd_pair_state_update(state, context, &block);
        is_found = true;
    }
    nd_joint_settle(state, context);
    state->bits.n_samples_differing += context->is_mixed && is_found;
    b->ref_side.n_stuck_samples = is_stuck(&b->ref_side);
    b->test_side.n_stuck_samples = is_stuck(&b->test_side);
    nd_side_merge(&state->account.ref, &b->ref_side);
    nd_side_merge(&state->account.test, &b->test_side);
    free(b);
    return ND_OK;
}
