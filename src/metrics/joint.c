#include "metrics/joint.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

/* Neighbours in turn go to one of two counters, since adding to one waits for the addition before. */
enum { CODES = 256, WAYS = 2 };

/* Counters have 32 bits. */
static const uint64_t most_elems = UINT64_C(1) << 31;

struct nd_joint {
    uint64_t n_elems;
    uint32_t n[CODES * CODES][WAYS]; /* by the byte of the reference, then by that of the test */
};

bool nd_joint_fits(const struct nd_pair_context *context)
{
    const struct nd_layout *layout = &context->ref;
    return !context->is_mixed && !layout->is_real && context->ulp_in == NULL &&
           (layout->kind == ND_ELEM_U8 || layout->kind == ND_ELEM_I8) && fabs(layout->zero) <= 0x1p10;
}

struct nd_joint *nd_joint_of(struct nd_pair_state *state, const struct nd_pair_context *context)
{
    if (!context->may_join)
        return NULL;
    if (state->joint != NULL && state->joint->n_elems > most_elems)
        nd_joint_settle(state, context);
    if (state->joint == NULL)
        state->joint = nd_calloc(1, sizeof *state->joint);
    return state->joint;
}

void nd_joint_add(struct nd_joint *joint, const unsigned char *ref, const unsigned char *test, size_t n)
{
    size_t i = 0;
    joint->n_elems += n;
    for (; i + WAYS <= n; i += WAYS)
        for (size_t way = 0; way < WAYS; way++)
            joint->n[ref[i + way] * CODES + test[i + way]][way]++;
    for (; i < n; i++)
        joint->n[ref[i] * CODES + test[i]][0]++;
}

void nd_joint_settle(struct nd_pair_state *state, const struct nd_pair_context *context)
{
    struct nd_joint *joint = state->joint;
    const struct nd_layout *layout = &context->ref;
    double x[CODES];
    unsigned char codes[CODES];
    if (joint == NULL)
        return;
    state->joint = NULL;
    for (size_t i = 0; i < CODES; i++)
        codes[i] = (unsigned char)i;
    nd_layout_load(layout, context->kernels, codes, 0, CODES, x);
    for (size_t i = 0; i < CODES * CODES; i++) {
        const struct nd_cell cell = {x[i / CODES], x[i % CODES], (uint64_t)joint->n[i][0] + joint->n[i][1]};
        if (cell.n > 0 && cell.ref != cell.test)
            nd_pair_state_add_cell(state, context, &cell);
    }
    free(joint);
}
