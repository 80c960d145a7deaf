#include "improve/align/joined.h"

#include <string.h>

#include "arithmetic/known/conditions.h"
#include "arithmetic/variants/unit_other.h"
#include "arithmetic/exact/linear/linear_unit.h"
#include "explain/plan/reader.h"

static const char no_bringing[] = "it is not known how the device brings an input to its encoding";
static const char several_bringings[] = "the ways to bring an input to its encoding give different values";

struct nd_exact_unit nd_align_unit_with_output(const struct nd_exact_unit *unit, const struct nd_quant *output,
                                               struct nd_linear_call *call)
{
    struct nd_exact_unit other = *unit;
    *call = *unit->call;
    call->out_quant = output;
    call->shared = NULL;
    other.call = call;
    return other;
}

/* ---- an input that is rescaled ---- */

static bool are_equal(const struct nd_array *a, const struct nd_array *b)
{
    bool are = a->n == b->n;
    for (size_t k = 0; k < a->n && are; k++)
        are = a->x[k] == b->x[k];
    return are;
}

/* A function of one input is brought as it is made, by a table; all else in one of two ways, by a layout that
 * the model does not say. */
static enum nd_status prove_rescaling(const struct nd_model *model, const struct nd_exact_unit *unit, size_t i,
                                      const char **reason, struct nd_error *err)
{
    enum { N_CODES = UINT8_MAX + 1 };
    const struct nd_shape shape = {1, {N_CODES}};
    struct nd_array all = nd_no_array();
    struct nd_unit_brought first = {.is_covered = false}, second = {.is_covered = false};
    bool is_table = nd_unit_is_table(model, nd_model_unit_of_edge(model, unit->input_edges[i]));
    enum nd_status status = nd_array_make(&all, ND_DTYPE_U8, &shape, err);
    for (size_t k = 0; status == ND_OK && k < N_CODES; k++)
        all.x[k] = (double)k;
    if (status == ND_OK)
        status = nd_unit_bring(unit, i, &all, NULL, is_table ? ND_BRING_TABLE : ND_BRING_FLAT, &first, err);
    if (status == ND_OK)
        status = nd_unit_bring(unit, i, &all, NULL, is_table ? ND_BRING_TABLE : ND_BRING_LAYOUT, &second, err);
    if (status == ND_OK && (!first.is_covered || !second.is_covered))
        *reason = no_bringing;
    else if (status == ND_OK && !are_equal(&first.codes, &second.codes))
        *reason = several_bringings;
    nd_array_deinit(&all);
    nd_array_deinit(&first.codes);
    nd_array_deinit(&second.codes);
    return status;
}

/* ---- what makes an input ---- */

static bool is_made_by(const struct nd_model *model, size_t edge, const char *op_type)
{
    const struct nd_model_unit *maker = nd_model_unit_of_edge(model, edge);
    return maker != NULL && strcmp(maker->op_types, op_type) == 0;
}

/* Whether an operator makes the values with the encoding of the Concat, and those that are between only hand
 * them on: not an input of the model, nor what a Split takes from one encoding to the other, nor what has the
 * zero point 0: of Conv alone it was seen that they make it so where the Concat has it, too. */
static bool is_made_for(const struct nd_alternatives *a, const struct nd_model *model, size_t edge, size_t to)
{
    while (nd_fused_part_of(a, edge, to) != SIZE_MAX) {
        const struct nd_model_unit *maker = nd_model_unit_of_edge(model, edge);
        if (!nd_unit_carries(maker))
            return nd_divided_from(model, edge) == NULL && nd_model_edge(model, edge)->quant.zero_point[0] != 0;
        if (maker->n_inputs != 1)
            return false;
        edge = maker->inputs[0];
    }
    return false;
}

enum nd_status nd_align_prove_bringing(const struct nd_alternatives *a, const struct nd_model *model,
                                       const struct nd_exact_unit *unit, const char **reason,
                                       struct nd_error *err)
{
    enum nd_status status = ND_OK;
    *reason =
        unit->dtype != ND_DTYPE_U8 || nd_unit_is(model, unit, ND_UNIT_CONCAT_WITH_INPUT) ? no_bringing : NULL;
    for (size_t i = 0; i < nd_unit_n_inputs(unit) && *reason == NULL && status == ND_OK; i++) {
        size_t edge = unit->input_edges[i];
        const struct nd_quant *quant = unit->call->inputs[i].quant;
        if (edge == SIZE_MAX || quant == NULL || quant->n != 1 || unit->call->inputs[i].values == NULL ||
            unit->call->inputs[i].values->dtype != unit->dtype) {
            *reason = no_bringing;
            return ND_OK;
        }
        if (nd_unit_keeps_encoding(unit, i) || is_made_for(a, model, edge, unit->edge))
            continue;
        if (nd_fused_part_of(a, edge, unit->edge) != SIZE_MAX || is_made_by(model, edge, "SpaceToDepth"))
            *reason = no_bringing;
        else
            status = prove_rescaling(model, unit, i, reason, err);
    }
    return status;
}
