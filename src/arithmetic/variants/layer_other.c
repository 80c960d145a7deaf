/* Layers made in another way than one operator with the model's encodings (layer_other.h): what it is, by the
 * rules of docs/science/htp-arithmetic.md. */
#include "arithmetic/variants/layer_other.h"

#include <math.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "model/graph/constants.h"
#include "model/graph/loaded.h"
#include "model/graph/onnx.h"

double nd_tensor_slope(const struct nd_model *model, size_t tensor)
{
    const struct nd_model_node *node = nd_model_tensor_operator(model, tensor);
    if (node == NULL || strcmp(node->op_type, "LeakyRelu") != 0)
        return 0;
    return nd_onnx_attribute_f(model->graph.nodes[node - model->nodes].proto, "alpha", 0.01);
}

/* Input i of the node in real numbers, which the caller frees; none where they are no constant quantised values
 * with one scale. */
static enum nd_status read_constant(const struct nd_model *model, const struct nd_model_node *node, size_t i,
                                    double **values, size_t *n, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    size_t tensor = nd_graph_used(graph, (size_t)(node - model->nodes), i);
    size_t maker = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
    if (maker == ND_NO_INDEX || graph->nodes[maker].kind != ND_NODE_DEQUANTIZE)
        return ND_OK;
    struct nd_node_quant read = {0};
    enum nd_status status = nd_node_quant_read(graph, maker, nd_model_path(model), &read, err);
    if (status == ND_OK && read.quant.n == 1)
        status =
            nd_constant_numbers(graph, nd_graph_used(graph, maker, 0), nd_model_path(model), values, n, err);
    for (size_t k = 0; status == ND_OK && k < *n; k++)
        (*values)[k] = (double)((float)((*values)[k] - (double)read.quant.zero_point[0]) * read.quant.scale[0]);
    nd_quant_deinit(&read.quant);
    return status;
}

/* The first input of the operator that is such a constant; none: *n is 0. */
static enum nd_status read_numbers(const struct nd_model *model, const struct nd_model_node *node,
                                   double **numbers, size_t *n, struct nd_error *err)
{
    for (size_t i = 0; i < 2 && *n == 0; i++)
        ND_TRY(read_constant(model, node, i, numbers, n, err));
    return ND_OK;
}

/* What is added to the variance before its root, by which the Div that makes the tensor divides: 0 where that
 * is no constant. */
static enum nd_status read_epsilon(const struct nd_model *model, size_t tensor, double *epsilon,
                                   struct nd_error *err)
{
    size_t root = nd_model_layer_of_tensor(model, tensor)->inputs[1], n = 0,
           sum = nd_model_layer_of_tensor(model, root)->inputs[0];
    ND_FREED double *values = NULL;
    ND_TRY(read_numbers(model, nd_model_tensor_operator(model, sum), &values, &n, err));
    *epsilon = n == 1 ? values[0] : *epsilon;
    return ND_OK;
}

/* The numbers of a Mul, or of an Add of as many numbers and the Mul before it. */
static enum nd_status read_channels(const struct nd_model *model, size_t tensor,
                                    struct nd_layer_encodings *encodings, struct nd_error *err)
{
    size_t n = 0;
    const struct nd_model_node *node = nd_model_tensor_operator(model, tensor);
    if (strcmp(node->op_type, "Add") == 0) {
        ND_TRY(read_numbers(model, node, &encodings->offsets, &n, err));
        node = nd_model_tensor_operator(model, nd_model_layer_of_tensor(model, tensor)->inputs[0]);
    }
    ND_TRY(read_numbers(model, node, &encodings->slopes, &encodings->n_slopes, err));
    if (encodings->n_slopes == 0)
        encodings->after = ND_LAYER_AFTER_GATE;
    else if (encodings->offsets == NULL || n == encodings->n_slopes)
        encodings->after = ND_LAYER_AFTER_CHANNELS;
    return ND_OK;
}

enum nd_status nd_tensor_after(const struct nd_model *model, size_t tensor,
                               struct nd_layer_encodings *encodings, struct nd_error *err)
{
    const struct nd_model_node *node = nd_model_tensor_operator(model, tensor);
    const struct nd_quant *quant = &nd_model_tensor(model, tensor)->quant;
    const char *op_type = node != NULL ? node->op_type : "";
    bool is_raised = strcmp(op_type, "Relu") == 0 && quant->n == 1 && quant->zero_point[0] != 0;
    if (strcmp(op_type, "Mul") == 0 || strcmp(op_type, "Add") == 0)
        return read_channels(model, tensor, encodings, err);
    encodings->slope = nd_tensor_slope(model, tensor);
    if (strcmp(op_type, "PRelu") == 0)
        ND_TRY(read_constant(model, node, 1, &encodings->slopes, &encodings->n_slopes, err));
    if (encodings->n_slopes == 1) { /* of all columns */
        encodings->slope = encodings->slopes[0];
        encodings->n_slopes = 0;
        ND_FREE_ALL(encodings->slopes);
        encodings->slopes = NULL;
    }
    if (strcmp(op_type, "Div") == 0) {
        encodings->after = ND_LAYER_AFTER_NORM;
        return read_epsilon(model, tensor, &encodings->epsilon, err);
    }
    if (strcmp(op_type, "ReduceSum") == 0 &&
        nd_onnx_attribute_i(model->graph.nodes[node - model->nodes].proto, "keepdims", 1) == 0)
        encodings->after = ND_LAYER_AFTER_SUM;
    else if (strcmp(op_type, "Reciprocal") == 0)
        encodings->after = ND_LAYER_AFTER_INVERSE;
    else if (strcmp(op_type, "HardSwish") == 0)
        encodings->after = ND_LAYER_AFTER_HARD_SWISH;
    else if (encodings->slope != 0 || encodings->slopes != NULL || is_raised)
        encodings->after = ND_LAYER_AFTER_LINES;
    return ND_OK;
}

size_t nd_layer_n_inputs(const struct nd_exact_layer *layer)
{
    return layer->call->n_inputs;
}

size_t nd_layer_input_size(const struct nd_exact_layer *layer, size_t i)
{
    return layer->call->inputs[i].values != NULL ? layer->call->inputs[i].values->n : 0;
}

bool nd_layer_input_is_quantised(const struct nd_exact_layer *layer, size_t i)
{
    return i < layer->call->n_inputs && layer->call->inputs[i].quant != NULL;
}

int nd_layer_concat_axis(const struct nd_exact_layer *layer, int rank)
{
    const struct nd_op_call call = {.node = layer->call->node, .opset = layer->call->opset};
    int64_t axis = nd_op_i(&call, "axis", -rank - 1);
    axis += axis < 0 ? rank : 0;
    return axis >= 0 && axis < rank ? (int)axis : -1;
}

bool nd_layer_keeps_encoding(const struct nd_exact_layer *layer, size_t i)
{
    return nd_quant_is_same(layer->call->inputs[i].quant, layer->call->out_quant);
}

enum nd_status nd_layer_run_with(const struct nd_layer_arithmetic *arithmetic,
                                 const struct nd_exact_layer *layer, const struct nd_layer_encodings *encodings,
                                 struct nd_array *qvalues, bool *is_covered, struct nd_error *err)
{
    struct nd_linear_input inputs[ND_LAYER_MAX_INPUTS];
    struct nd_linear_call call = *layer->call;
    struct nd_exact_layer other = *layer;
    *is_covered = false;
    if (call.n_inputs > ND_LAYER_MAX_INPUTS)
        return ND_OK;
    for (size_t i = 0; i < call.n_inputs; i++) {
        inputs[i] = call.inputs[i];
        if (encodings->inputs[i] == NULL || inputs[i].quant == NULL)
            continue;
        inputs[i].quant = encodings->inputs[i];
        inputs[i].values = encodings->qvalues[i] != NULL ? encodings->qvalues[i] : inputs[i].values;
        inputs[i].packed_weights = NULL;
        call.shared = NULL;
    }
    call.inputs = inputs;
    other.call = &call;
    other.tensor = SIZE_MAX;
    if (encodings->output != NULL) {
        call.out_quant = encodings->output;
        other.dtype = encodings->dtype;
    }
    if (encodings->after == ND_LAYER_AFTER_NONE)
        return nd_layer_arithmetic_run(arithmetic, &other, encodings->memory, qvalues, is_covered, err);
    ND_CLEANUP(nd_htp_unsigned_deinit) struct nd_htp_unsigned room = {0};
    const struct nd_exact_layer *seen = nd_htp_as_unsigned(&other, &room);
    ND_TRY_MEMORY(seen != NULL, err);
    const struct nd_htp_job job = {.arithmetic = arithmetic,
                                   .layer = seen,
                                   .call = seen->call,
                                   .qvalues = qvalues,
                                   .is_covered = is_covered,
                                   .after = encodings->after,
                                   .slope = encodings->slope,
                                   .slopes = encodings->slopes,
                                   .n_slopes = encodings->n_slopes,
                                   .epsilon = encodings->epsilon,
                                   .offsets = encodings->offsets,
                                   .wraps = encodings->wraps};
    enum nd_status status =
        (encodings->after >= ND_LAYER_AFTER_NORM ? nd_htp_in_parts : nd_htp_bent)(&job, err);
    if (status == ND_OK && *is_covered)
        nd_htp_sign(&other, qvalues);
    return status;
}

/* The layer with input i alone, which has become *input. */
static struct nd_exact_layer layer_of_input(const struct nd_exact_layer *layer, size_t i,
                                            const struct nd_linear_input *input, struct nd_linear_call *call)
{
    struct nd_exact_layer alone = *layer;
    *call = *layer->call;
    call->inputs = input;
    call->n_inputs = 1;
    call->shared = NULL;
    alone.call = call;
    alone.origins = &layer->origins[i];
    alone.input_tensors = &layer->input_tensors[i];
    return alone;
}

/* rint(F(F(n s_x) F(1 / s_y)) + z_y), each step a float32. */
static enum nd_status bring_by_table(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_array *x = job->call->inputs[0].values;
    const struct nd_quant *from = job->call->inputs[0].quant, *to = job->call->out_quant;
    enum nd_status status = nd_array_copy(x, job->qvalues, err);
    float inverse = 1 / to->scale[0], zero = (float)to->zero_point[0];
    for (size_t k = 0; status == ND_OK && k < x->n; k++) {
        float value = (float)(x->x[k] - (double)from->zero_point[0]) * from->scale[0], steps = value * inverse;
        job->qvalues->x[k] = fmin(fmax((double)rintf(steps + zero), 0), UINT8_MAX);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

/* Of unsigned quantised values. */
static enum nd_status bring(const struct nd_htp_job *job, enum nd_bring method, struct nd_error *err)
{
    bool is_wide = job->layer->dtype == ND_DTYPE_U16;
    if ((!is_wide && job->layer->dtype != ND_DTYPE_U8) || !nd_htp_all_are(job, 1, job->layer->dtype))
        return ND_OK;
    if (method == ND_BRING_TABLE)
        return is_wide ? ND_OK : bring_by_table(job, err);
    if (method == ND_BRING_FLAT && is_wide)
        return nd_htp_move16(job, err);
    return nd_htp_rescale_input(job, method == ND_BRING_FLAT ? ND_HTP_FIXED : ND_HTP_LAYOUT, err);
}

enum nd_status nd_layer_bring(const struct nd_exact_layer *layer, size_t i, const struct nd_array *given,
                              const struct nd_quant *from, enum nd_bring method,
                              struct nd_layer_brought *brought, struct nd_error *err)
{
    struct nd_linear_call call;
    struct nd_linear_input input = layer->call->inputs[i];
    input.quant = from != NULL ? from : input.quant;
    if (given != NULL) {
        input.values = given;
        input.packed_weights = NULL;
    }
    const struct nd_exact_layer alone = layer_of_input(layer, i, &input, &call);
    ND_CLEANUP(nd_htp_unsigned_deinit) struct nd_htp_unsigned room = {0};
    const struct nd_exact_layer *seen = nd_htp_as_unsigned(&alone, &room);
    brought->is_covered = false;
    ND_TRY_MEMORY(seen != NULL, err);
    const struct nd_htp_job job = {
        .layer = seen, .call = seen->call, .qvalues = &brought->qvalues, .is_covered = &brought->is_covered};
    ND_TRY(bring(&job, method, err));
    if (brought->is_covered)
        nd_htp_sign(layer, &brought->qvalues);
    return ND_OK;
}

enum nd_status nd_layer_run_brought(const struct nd_layer_arithmetic *arithmetic,
                                    const struct nd_exact_layer *layer, const struct nd_array *given,
                                    const struct nd_quant *from, struct nd_array *qvalues, bool *is_covered,
                                    struct nd_error *err)
{
    struct nd_exact_layer bringer = *layer;
    struct nd_linear_call call = *layer->call;
    struct nd_layer_brought brought = {.is_covered = false};
    const struct nd_quant *own = layer->call->inputs[0].quant;
    *is_covered = false;
    call.out_quant = own;
    bringer.call = &call;
    enum nd_status status = nd_layer_bring(&bringer, 0, given, from, ND_BRING_TABLE, &brought, err);
    const struct nd_layer_encodings encodings = {.inputs = {own}, .qvalues = {&brought.qvalues}};
    if (status == ND_OK && brought.is_covered)
        status = nd_layer_run_with(arithmetic, layer, &encodings, qvalues, is_covered, err);
    nd_array_deinit(&brought.qvalues);
    return status;
}

void nd_layer_narrow(const struct nd_exact_layer *layer, const struct nd_quant *quant, struct nd_array *qvalues)
{
    double lowest, highest, low = layer->call->low, high = layer->call->high;
    nd_qvalue_range(layer->dtype, &lowest, &highest);
    if (quant->n != 1)
        return;
    if (layer->call->node != NULL)
        nd_linear_fold(layer->call->node, layer->call->n_inputs, layer->call->inputs, &low, &high);
    double scale = (double)quant->scale[0], zero = (double)quant->zero_point[0];
    if (low > -HUGE_VAL)
        lowest = fmin(fmax(lowest, rint(low / scale) + zero), highest);
    if (high < HUGE_VAL)
        highest = fmax(fmin(highest, rint(high / scale) + zero), lowest);
    for (size_t i = 0; i < qvalues->n; i++)
        qvalues->x[i] = fmin(fmax(qvalues->x[i], lowest), highest);
}

static double gated_of(double x, enum nd_gate kind)
{
    return kind == ND_GATE_GELU      ? x * 0.5 * (1 + erf(x / sqrt(2)))
           : kind == ND_GATE_SIGMOID ? x / (1 + exp(-x))
                                     : x * fmin(fmax(x / 6 + 0.5, 0), 1);
}

/* A value of the function in float32, times the reciprocal of the scale. SiLU adds the zero point
 * first, as tables do; what the hard one does with halves is not known. */
static double gated_qvalue(const struct nd_quant *from, const struct nd_quant *to, double qvalue,
                           enum nd_gate kind)
{
    double x = (double)((float)(qvalue - (double)from->zero_point[0]) * from->scale[0]);
    float inverse = 1 / to->scale[0], y = (float)gated_of(x, kind);
    float steps = y * inverse, zero = (float)to->zero_point[0];
    return fmin(fmax((double)(kind == ND_GATE_HARD ? rintf(steps) + zero : rintf(steps + zero)), 0), UINT8_MAX);
}

/* Of unsigned quantised values. */
static enum nd_status run_gated(const struct nd_exact_layer *layer, const struct nd_layer_gate *gate,
                                struct nd_array *qvalues, bool *is_covered, struct nd_error *err)
{
    const struct nd_linear_input *input = &layer->call->inputs[gate->input];
    const struct nd_quant *to = layer->call->out_quant;
    *is_covered = false;
    if (layer->dtype == ND_DTYPE_U16 && (gate->kind == ND_GATE_SIGMOID || gate->kind == ND_GATE_SWISH)) {
        struct nd_linear_call call;
        const struct nd_exact_layer alone = layer_of_input(layer, gate->input, input, &call);
        const struct nd_htp_job job = {
            .layer = &alone, .call = &call, .qvalues = qvalues, .is_covered = is_covered};
        call.out_quant = to;
        return (gate->kind == ND_GATE_SWISH ? nd_htp_hard_swish16 : nd_htp_silu16)(&job, err);
    }
    if (input->values == NULL || input->quant == NULL || input->quant->n != 1 || to->n != 1 ||
        input->values->dtype != ND_DTYPE_U8 || layer->dtype != ND_DTYPE_U8)
        return ND_OK;
    enum nd_status status = nd_array_make(qvalues, layer->dtype, &input->values->shape, err);
    double table[UINT8_MAX + 1];
    for (int qvalue = 0; qvalue <= UINT8_MAX; qvalue++)
        table[qvalue] = gated_qvalue(input->quant, to, (double)qvalue, gate->kind);
    for (size_t k = 0; status == ND_OK && k < qvalues->n; k++) {
        double qvalue = input->values->x[k];
        bool is_whole = qvalue >= 0 && qvalue <= UINT8_MAX && qvalue == (double)(uint8_t)qvalue;
        qvalues->x[k] = is_whole ? table[(uint8_t)qvalue] : gated_qvalue(input->quant, to, qvalue, gate->kind);
    }
    *is_covered = status == ND_OK;
    return status;
}

enum nd_status nd_layer_run_gated(const struct nd_exact_layer *layer, const struct nd_layer_gate *gate,
                                  struct nd_array *qvalues, bool *is_covered, struct nd_error *err)
{
    struct nd_linear_call call = *layer->call;
    struct nd_exact_layer made = *layer;
    ND_CLEANUP(nd_htp_unsigned_deinit) struct nd_htp_unsigned room = {0};
    made.call = &call;
    call.out_quant = gate->output != NULL ? gate->output : call.out_quant;
    const struct nd_exact_layer *seen = nd_htp_as_unsigned(&made, &room);
    ND_TRY_MEMORY(seen != NULL, err);
    enum nd_status status = run_gated(seen, gate, qvalues, is_covered, err);
    if (status == ND_OK && *is_covered)
        nd_htp_sign(layer, qvalues);
    return status;
}

enum nd_status nd_layer_run_laid_out(const struct nd_exact_layer *layer, bool is_in_blocks,
                                     const struct nd_shape *shape, struct nd_array *qvalues, bool *is_covered,
                                     struct nd_error *err)
{
    const struct nd_htp_job job = {
        .layer = layer, .call = layer->call, .qvalues = qvalues, .is_covered = is_covered};
    *is_covered = false;
    if (layer->dtype == ND_DTYPE_U16)
        return is_in_blocks ? nd_htp_words_by_number(&job, err) : ND_OK;
    if (!nd_htp_is_still(&job, shape))
        return ND_OK;
    return nd_htp_rescale_input(&job, is_in_blocks ? ND_HTP_WHOLE_HALF : ND_HTP_HALF, err);
}
