/* Layers that move values or choose among them: the exact real numbers go through the operator unharmed. */
#include "arithmetic/exact/linear/linear_families.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

/* Resize interpolates unless it takes the nearest, which is the default. */
static bool only_chooses(const struct nd_linear_call *call)
{
    char mode[16];
    const struct nd_op_call op_call = {.node = call->node, .opset = call->opset};
    if (strcmp(call->node->op_type, "Resize") != 0 && strcmp(call->node->op_type, "Upsample") != 0)
        return true;
    nd_op_text(&op_call, "mode", mode, sizeof mode);
    return mode[0] == '\0' || strcmp(mode, "nearest") == 0;
}

/* Operators that only move elements of one tensor: what they move may as well be quantised values, of which
 * there are sometimes far fewer behind it (a Gather from a table of words). */
static bool only_moves(const struct nd_linear_call *call)
{
    static const char *const movers[] = {"DepthToSpace", "Dropout",        "Expand",       "Flatten",
                                         "Gather",       "GatherElements", "GatherND",     "Identity",
                                         "Reshape",      "Slice",          "SpaceToDepth", "Split",
                                         "Squeeze",      "Tile",           "Transpose",    "Unsqueeze"};
    bool is_mover = call->inputs[0].quant != NULL && call->inputs[0].quant->n == 1;
    for (size_t i = 1; i < call->n_inputs; i++)
        is_mover = is_mover && call->inputs[i].quant == NULL;
    for (size_t i = 0; i < sizeof movers / sizeof movers[0] && is_mover; i++)
        if (strcmp(call->node->op_type, movers[i]) == 0)
            return true;
    return false;
}

static enum nd_status run_on_qvalues(const struct nd_linear_call *call, struct nd_array *out,
                                     struct nd_error *err)
{
    struct nd_array moved = {0};
    const struct nd_linear_input input = {.values = &moved, .quant = call->inputs[0].quant};
    struct nd_linear_call of_moved = *call;
    of_moved.inputs = &input;
    of_moved.n_inputs = 1;
    const struct nd_array **inputs = nd_calloc(call->n_inputs, sizeof *inputs);
    enum nd_status status = inputs != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; i < call->n_inputs && status == ND_OK; i++)
        inputs[i] = call->inputs[i].values;
    if (status == ND_OK)
        status = nd_linear_run(call, call->node, inputs, call->n_inputs, &moved, err);
    if (status == ND_OK)
        status = nd_linear_reals(&of_moved, 0, out, err);
    nd_array_deinit(&moved);
    free(inputs);
    return status;
}

static enum nd_status run_on_reals(const struct nd_linear_call *call, struct nd_array *out,
                                   struct nd_error *err)
{
    enum nd_status status = ND_OK;
    struct nd_array *reals = nd_calloc(call->n_inputs, sizeof *reals);
    const struct nd_array **inputs = nd_calloc(call->n_inputs, sizeof *inputs);
    if (reals == NULL || inputs == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; i < call->n_inputs && status == ND_OK; i++) {
        if (!nd_linear_has(call, i))
            continue;
        inputs[i] = call->inputs[i].values;
        if (call->inputs[i].quant == NULL)
            continue;
        status = nd_linear_reals(call, i, &reals[i], err);
        inputs[i] = &reals[i];
    }
    if (status == ND_OK)
        status = nd_linear_run(call, call->node, inputs, call->n_inputs, out, err);
    for (size_t i = 0; i < call->n_inputs && reals != NULL; i++)
        nd_array_deinit(&reals[i]);
    free(reals);
    free(inputs);
    return status;
}

enum nd_status nd_linear_choose(const struct nd_linear_call *call, struct nd_linear_result *result,
                                struct nd_error *err)
{
    struct nd_array real = {0};
    enum nd_status status = ND_OK;
    if (call->node == NULL)
        status = nd_linear_reals(call, 0, &real, err);
    else if (only_moves(call))
        status = run_on_qvalues(call, &real, err);
    else if (only_chooses(call))
        status = run_on_reals(call, &real, err);
    else
        status = nd_linear_unsupported(call, err, "interpolation");
    if (status == ND_OK)
        status = nd_linear_make_line(result, &real, 1, err);
    nd_array_deinit(&real);
    return status;
}
