#include "explain/identify/specified.h"

#include <string.h>

#include "arithmetic/variants/unit_other.h"
#include "npudiff/core/tensor.h"

struct nd_specified_sum nd_specified_sum_of(const struct nd_model *model, size_t edge)
{
    const struct nd_specified_sum none = {0};
    const struct nd_model_unit *unit = nd_model_unit_of_edge(model, edge);
    if (unit == NULL || unit->n_inputs != (strcmp(unit->op_types, "Mul") == 0 ? 2 : 1))
        return none;
    const struct nd_edge *from = nd_model_edge(model, unit->inputs[0]), *to = nd_model_edge(model, edge);
    size_t n_from, n_to;
    if (from->quant.n != 1)
        return none;
    struct nd_specified_sum sum = {.step = (double)from->quant.scale[0]};
    if (unit->n_inputs == 2) {
        const struct nd_quant *other = &nd_model_edge(model, unit->inputs[1])->quant;
        sum.step *= other->n == 1 ? (double)other->scale[0] : 0;
        sum.n_averaged = 1;
        return sum;
    }
    if (strcmp(unit->op_types, "LeakyRelu") == 0) {
        sum.slope = nd_edge_slope(model, edge);
        return sum.slope > 0 ? sum : none;
    }
    if (strcmp(unit->op_types, "GlobalAveragePool") != 0 && strcmp(unit->op_types, "ReduceMean") != 0)
        return none;
    if (nd_shape_n_elems(&from->shape, &n_from, NULL) != ND_OK ||
        nd_shape_n_elems(&to->shape, &n_to, NULL) != ND_OK || n_to == 0 || n_from % n_to != 0)
        return none;
    sum.n_averaged = (double)(n_from / n_to);
    sum.step /= sum.n_averaged;
    return sum;
}
