#include "compare/metrics/joint.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"

enum { QVALUES = 256 };

/* Counters have 32 bits. */
static const uint64_t max_elems = UINT64_C(1) << 31;

struct nd_joint {
    struct nd_joint_cell cells[QVALUES * QVALUES]; /* first, so that none lies in two cache lines */
    double x[QVALUES];                             /* by the byte */
    uint64_t n_elems;
};

bool nd_joint_fits(const struct nd_pair_context *context)
{
    const struct nd_layout *layout = &context->ref;
    return !context->is_mixed && !layout->is_real && context->ulp_in == NULL &&
           (layout->kind == ND_ELEM_U8 || layout->kind == ND_ELEM_I8) && fabs(layout->zero) <= 0x1p10;
}

/* The ratios are those of nd_kernels.errors. */
static struct nd_joint *create(const struct nd_pair_context *context)
{
    struct nd_joint *joint = nd_calloc(1, sizeof *joint);
    unsigned char qvalues[QVALUES];
    if (joint == NULL)
        return NULL;
    for (size_t i = 0; i < QVALUES; i++)
        qvalues[i] = (unsigned char)i;
    nd_layout_load(&context->ref, context->kernels, qvalues, 0, QVALUES, joint->x);
    for (size_t r = 0; r < QVALUES; r++)
        for (size_t t = 0; t < QVALUES && joint->x[r] != 0; t++)
            joint->cells[r * QVALUES + t].ratio = fabs(joint->x[t] - joint->x[r]) / fabs(joint->x[r]);
    return joint;
}

struct nd_joint *nd_joint_of(struct nd_pair_state *state, const struct nd_pair_context *context)
{
    if (!context->may_join)
        return NULL;
    if (state->joint != NULL && state->joint->n_elems > max_elems)
        nd_joint_settle(state, context);
    if (state->joint == NULL)
        state->joint = create(context);
    return state->joint;
}

void nd_joint_add(struct nd_joint *joint, const struct nd_pair_context *context, const unsigned char *ref,
                  const unsigned char *test, size_t n, struct nd_error_values *out)
{
    joint->n_elems += n;
    context->kernels->join(ref, test, n, context->ref.kind == ND_ELEM_I8, joint->cells, out);
}

void nd_joint_settle(struct nd_pair_state *state, const struct nd_pair_context *context)
{
    struct nd_joint *joint = state->joint;
    if (joint == NULL)
        return;
    state->joint = NULL;
    for (size_t i = 0; i < QVALUES * QVALUES; i++) {
        const uint32_t *n = joint->cells[i].n;
        const struct nd_cell cell = {joint->x[i / QVALUES], joint->x[i % QVALUES], (uint64_t)n[0] + n[1]};
        if (cell.n > 0 && cell.ref != cell.test)
            nd_pair_state_add_cell(state, context, &cell);
    }
    free(joint);
}
