#include "arithmetic/variants/unit_other.h"

#include <math.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/tensors/scales.h"
#include "model/graph/loaded.h"
#include "model/graph/onnx.h"

double nd_edge_slope(const struct nd_model *model, size_t edge)
{
    const struct nd_model_node *node = nd_model_edge_operator(model, edge);
    if (node == NULL || strcmp(node->op_type, "LeakyRelu") != 0)
        return 0;
    return nd_onnx_attribute_f(model->graph.nodes[node - model->nodes].proto, "alpha", 0.01);
}

enum nd_unit_after nd_edge_after(const struct nd_model *model, size_t edge, double *slope)
{
    const struct nd_model_node *node = nd_model_edge_operator(model, edge);
    const struct nd_quant *quant = &nd_model_edge(model, edge)->quant;
    *slope = nd_edge_slope(model, edge);
    if (node != NULL && strcmp(node->op_type, "HardSwish") == 0)
        return ND_UNIT_AFTER_HARD_SWISH;
    bool is_raised =
        node != NULL && strcmp(node->op_type, "Relu") == 0 && quant->n == 1 && quant->zero_point[0] != 0;
    return *slope != 0 || is_raised ? ND_UNIT_AFTER_LINES : ND_UNIT_AFTER_NONE;
}

size_t nd_unit_n_inputs(const struct nd_exact_unit *unit)
{
    return unit->call->n_inputs;
}

size_t nd_unit_input_size(const struct nd_exact_unit *unit, size_t i)
{
    return unit->call->inputs[i].values != NULL ? unit->call->inputs[i].values->n : 0;
}

int nd_unit_concat_axis(const struct nd_exact_unit *unit, int rank)
{
    const struct nd_op_call call = {.node = unit->call->node, .opset = unit->call->opset};
    int64_t axis = nd_op_i(&call, "axis", -rank - 1);
    axis += axis < 0 ? rank : 0;
    return axis >= 0 && axis < rank ? (int)axis : -1;
}

bool nd_unit_keeps_encoding(const struct nd_exact_unit *unit, size_t i)
{
    return nd_quant_is_same(unit->call->inputs[i].quant, unit->call->out_quant);
}

enum nd_status nd_unit_run_with(const struct nd_unit_program *program, const struct nd_exact_unit *unit,
                                const struct nd_unit_encodings *encodings, struct nd_array *codes,
                                bool *is_covered, struct nd_error *err)
{
    struct nd_linear_input inputs[ND_UNIT_MOST_INPUTS];
    struct nd_linear_call call = *unit->call;
    struct nd_exact_unit other = *unit;
    *is_covered = false;
    if (call.n_inputs > ND_UNIT_MOST_INPUTS)
        return ND_OK;
    for (size_t i = 0; i < call.n_inputs; i++) {
        inputs[i] = call.inputs[i];
        if (encodings->inputs[i] == NULL || inputs[i].quant == NULL)
            continue;
        inputs[i].quant = encodings->inputs[i];
        inputs[i].values = encodings->codes[i] != NULL ? encodings->codes[i] : inputs[i].values;
        inputs[i].wholes = NULL;
        call.shared = NULL;
    }
    call.inputs = inputs;
    other.call = &call;
    if (encodings->output != NULL) {
        call.out_quant = encodings->output;
        other.dtype = encodings->dtype;
    }
    if (encodings->after == ND_UNIT_AFTER_NONE)
        return nd_unit_program_run(program, &other, NULL, codes, is_covered, err);
    const struct nd_htp_job job = {.program = program,
                                   .unit = &other,
                                   .call = &call,
                                   .codes = codes,
                                   .is_covered = is_covered,
                                   .after = encodings->after,
                                   .slope = encodings->slope,
                                   .wraps = encodings->wraps};
    return nd_htp_bent(&job, err);
}

/* The unit with input i alone, which has become *input. */
static struct nd_exact_unit unit_of_input(const struct nd_exact_unit *unit, size_t i,
                                          const struct nd_linear_input *input, struct nd_linear_call *call)
{
    struct nd_exact_unit alone = *unit;
    *call = *unit->call;
    call->inputs = input;
    call->n_inputs = 1;
    call->shared = NULL;
    alone.call = call;
    alone.origins = &unit->origins[i];
    alone.input_edges = &unit->input_edges[i];
    return alone;
}

/* rint(F(F(n s_x) F(1 / s_y)) + z_y), each step a float32. */
static enum nd_status bring_by_table(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_array *x = job->call->inputs[0].values;
    const struct nd_quant *from = job->call->inputs[0].quant, *to = job->call->out_quant;
    enum nd_status status = nd_array_copy(x, job->codes, err);
    float inverse = 1 / to->scale[0], zero = (float)to->zero_point[0];
    for (size_t k = 0; status == ND_OK && k < x->n; k++) {
        float value = (float)(x->x[k] - (double)from->zero_point[0]) * from->scale[0], steps = value * inverse;
        job->codes->x[k] = fmin(fmax((double)rintf(steps + zero), 0), UINT8_MAX);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

enum nd_status nd_unit_bring(const struct nd_exact_unit *unit, size_t i, const struct nd_array *given,
                             const struct nd_quant *from, enum nd_bring way, struct nd_unit_brought *brought,
                             struct nd_error *err)
{
    struct nd_linear_call call;
    struct nd_linear_input input = unit->call->inputs[i];
    input.quant = from != NULL ? from : input.quant;
    if (given != NULL) {
        input.values = given;
        input.wholes = NULL;
    }
    const struct nd_exact_unit alone = unit_of_input(unit, i, &input, &call);
    const struct nd_htp_job job = {
        .unit = &alone, .call = &call, .codes = &brought->codes, .is_covered = &brought->is_covered};
    bool is_wide = unit->dtype == ND_DTYPE_U16;
    brought->is_covered = false;
    if ((!is_wide && unit->dtype != ND_DTYPE_U8) || !nd_htp_all_are(&job, 1, unit->dtype))
        return ND_OK;
    if (way == ND_BRING_TABLE)
        return is_wide ? ND_OK : bring_by_table(&job, err);
    if (way == ND_BRING_FLAT && is_wide)
        return nd_htp_move16(&job, err);
    return nd_htp_rescale_input(&job, way == ND_BRING_FLAT ? ND_HTP_FIXED : ND_HTP_LAYOUT, err);
}

enum nd_status nd_unit_run_brought(const struct nd_unit_program *program, const struct nd_exact_unit *unit,
                                   const struct nd_array *given, const struct nd_quant *from,
                                   struct nd_array *codes, bool *is_covered, struct nd_error *err)
{
    struct nd_exact_unit bringer = *unit;
    struct nd_linear_call call = *unit->call;
    struct nd_unit_brought brought = {.is_covered = false};
    const struct nd_quant *own = unit->call->inputs[0].quant;
    *is_covered = false;
    call.out_quant = own;
    bringer.call = &call;
    enum nd_status status = nd_unit_bring(&bringer, 0, given, from, ND_BRING_TABLE, &brought, err);
    const struct nd_unit_encodings encodings = {.inputs = {own}, .codes = {&brought.codes}};
    if (status == ND_OK && brought.is_covered)
        status = nd_unit_run_with(program, unit, &encodings, codes, is_covered, err);
    nd_array_deinit(&brought.codes);
    return status;
}

void nd_unit_narrow(const struct nd_exact_unit *unit, struct nd_array *codes)
{
    const struct nd_quant *quant = unit->call->out_quant;
    double lowest, highest, low = unit->call->low, high = unit->call->high;
    nd_code_range(unit->dtype, &lowest, &highest);
    if (quant->n != 1)
        return;
    if (unit->call->node != NULL)
        nd_linear_fold(unit->call->node, unit->call->n_inputs, unit->call->inputs, &low, &high);
    double scale = (double)quant->scale[0], zero = (double)quant->zero_point[0];
    if (low > -HUGE_VAL)
        lowest = fmin(fmax(lowest, rint(low / scale) + zero), highest);
    if (high < HUGE_VAL)
        highest = fmax(fmin(highest, rint(high / scale) + zero), lowest);
    for (size_t i = 0; i < codes->n; i++)
        codes->x[i] = fmin(fmax(codes->x[i], lowest), highest);
}

static double gate_of(double x, bool is_hard)
{
    return is_hard ? fmin(fmax(x / 6 + 0.5, 0), 1) : 1 / (1 + exp(-x));
}

/* A value of the function in float32, times the reciprocal of the scale. SiLU adds the zero point first, as
 * tables do; what the hard one does with halves is not known. */
static double gated_code(const struct nd_quant *from, const struct nd_quant *to, double code, bool is_hard)
{
    double x = (double)((float)(code - (double)from->zero_point[0]) * from->scale[0]);
    float inverse = 1 / to->scale[0], y = (float)(x * gate_of(x, is_hard));
    float steps = y * inverse, zero = (float)to->zero_point[0];
    return fmin(fmax((double)(is_hard ? rintf(steps) + zero : rintf(steps + zero)), 0), UINT8_MAX);
}

enum nd_status nd_unit_run_gated(const struct nd_exact_unit *unit, const struct nd_unit_gate *gate,
                                 struct nd_array *codes, bool *is_covered, struct nd_error *err)
{
    const struct nd_linear_input *input = &unit->call->inputs[gate->input];
    const struct nd_quant *to = gate->output != NULL ? gate->output : unit->call->out_quant;
    *is_covered = false;
    if (unit->dtype == ND_DTYPE_U16 && !gate->is_hard) {
        struct nd_linear_call call;
        const struct nd_exact_unit alone = unit_of_input(unit, gate->input, input, &call);
        const struct nd_htp_job job = {.unit = &alone, .call = &call, .codes = codes, .is_covered = is_covered};
        call.out_quant = to;
        return nd_htp_silu16(&job, err);
    }
    if (input->values == NULL || input->quant == NULL || input->quant->n != 1 || to->n != 1 ||
        input->values->dtype != ND_DTYPE_U8 || unit->dtype != ND_DTYPE_U8)
        return ND_OK;
    enum nd_status status = nd_array_make(codes, unit->dtype, &input->values->shape, err);
    double table[UINT8_MAX + 1];
    for (int code = 0; code <= UINT8_MAX; code++)
        table[code] = gated_code(input->quant, to, (double)code, gate->is_hard);
    for (size_t k = 0; status == ND_OK && k < codes->n; k++) {
        double code = input->values->x[k];
        bool is_whole = code >= 0 && code <= UINT8_MAX && code == (double)(uint8_t)code;
        codes->x[k] = is_whole ? table[(uint8_t)code] : gated_code(input->quant, to, code, gate->is_hard);
    }
    *is_covered = status == ND_OK;
    return status;
}

enum nd_status nd_unit_run_in_blocks(const struct nd_exact_unit *unit, struct nd_array *codes, bool *is_covered,
                                     struct nd_error *err)
{
    const struct nd_htp_job job = {.unit = unit, .call = unit->call, .codes = codes, .is_covered = is_covered};
    *is_covered = false;
    return unit->dtype == ND_DTYPE_U16 ? nd_htp_words_by_number(&job, err) : ND_OK;
}
