#include "lab/experiment/ask.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/operators/ops.h"
#include "core/memory.h"

enum { OPSET = 21 };

static const char *const operand_names[ND_ASK_MAX_OPERANDS] = {"a", "b"};
static const char *const operand_reals[ND_ASK_MAX_OPERANDS] = {"a_real", "b_real"};

size_t nd_ask_elems(const struct nd_shape *shape)
{
    size_t n = 1;
    for (int d = 0; d < shape->rank; d++)
        n *= (size_t)shape->dims[d];
    return n;
}

/* ---- the model ---- */

static void add_attributes(struct nd_compose *c, const struct nd_ask *ask)
{
    for (size_t i = 0; i < ask->n_attributes; i++) {
        const struct nd_ask_attribute *a = &ask->attributes[i];
        if (a->n > 1 || a->is_list)
            nd_compose_attribute_ints(c, a->name, a->ints, a->n);
        else if (a->n == 1)
            nd_compose_attribute_i(c, a->name, a->ints[0]);
        else
            nd_compose_attribute_f(c, a->name, a->f);
    }
}

static bool is_qvalue(enum nd_dtype dtype)
{
    return dtype != ND_DTYPE_F32 && dtype != ND_DTYPE_I64;
}

static void dequantize_operand(struct nd_compose *c, const struct nd_ask_operand *o, size_t i)
{
    float scale = o->scale;
    int64_t zeros[ND_ASK_MAX_SCALES] = {o->zero};
    struct nd_quant quant = {.n = 1, .axis = -1, .scale = &scale, .zero_point = zeros};
    if (o->scales != NULL) {
        assert(o->zero == 0 && o->shape.dims[0] <= ND_ASK_MAX_SCALES);
        quant = (struct nd_quant){.n = (size_t)o->shape.dims[0],
                                  .axis = 0,
                                  .scale = (float *)(uintptr_t)o->scales,
                                  .zero_point = zeros};
    }
    nd_compose_dequantize(c, operand_names[i], operand_reals[i], &quant, o->dtype);
}

static enum nd_status compose(const struct nd_ask *ask, struct nd_compose **out, struct nd_error *err)
{
    bool has_qvalues = is_qvalue(ask->dtype);
    const char *inputs[ND_ASK_MAX_OPERANDS + 2] = {has_qvalues ? "x_real" : "x"};
    float scales[2] = {ask->scale_x, ask->scale_y};
    int64_t zeros[2] = {ask->zero_x, ask->zero_y};
    const struct nd_quant x = {.n = 1, .axis = -1, .scale = &scales[0], .zero_point = &zeros[0]},
                          y = {.n = 1, .axis = -1, .scale = &scales[1], .zero_point = &zeros[1]};
    struct nd_compose *c = NULL;
    enum nd_status status = nd_compose_create(OPSET, &c, err);
    if (status != ND_OK)
        return status;
    nd_compose_input(c, "x", ask->dtype, &ask->x);
    if (has_qvalues)
        nd_compose_dequantize(c, "x", "x_real", &x, ask->dtype);
    for (size_t i = 0; i < ask->n_operands; i++) {
        const struct nd_ask_operand *o = &ask->operands[i];
        if (o->is_input)
            nd_compose_input(c, operand_names[i], o->dtype, &o->shape);
        else
            nd_compose_constant(c, operand_names[i], o->dtype, &o->shape, o->data);
        if (is_qvalue(o->dtype))
            dequantize_operand(c, o, i);
        inputs[1 + i] = is_qvalue(o->dtype) ? operand_reals[i] : operand_names[i];
    }
    nd_compose_node(c, ask->op_type, inputs, has_qvalues ? "result" : "y");
    add_attributes(c, ask);
    if (has_qvalues)
        nd_compose_quantize(c, "result", "y", &y, ask->dtype);
    nd_compose_output(c, "y", ask->dtype, &ask->y);
    *out = c;
    return ND_OK;
}

enum nd_status nd_ask_device(struct nd_bench *bench, const struct nd_ask *ask, const double *qvalues,
                             size_t n_samples, struct nd_trial_result *out, struct nd_error *err)
{
    struct nd_compose *model = NULL;
    size_t n = n_samples * nd_ask_elems(&ask->x);
    void *bytes = nd_calloc(n, nd_dtype_size_bytes(ask->dtype));
    if (bytes == NULL)
        return nd_fail_memory(err);
    nd_array_store(ask->dtype, qvalues, n, bytes);
    struct nd_trial_input inputs[1 + ND_ASK_MAX_OPERANDS] = {{"x", ask->dtype, ask->x, bytes}};
    struct nd_trial trial = {.output = "y", .n_samples = n_samples, .n_inputs = 1, .inputs = inputs};
    for (size_t i = 0; i < ask->n_operands; i++) {
        const struct nd_ask_operand *o = &ask->operands[i];
        assert(!o->is_input || n_samples == 1);
        if (o->is_input)
            inputs[trial.n_inputs++] = (struct nd_trial_input){operand_names[i], o->dtype, o->shape, o->data};
    }
    enum nd_status status = compose(ask, &model, err);
    trial.model = model;
    if (status == ND_OK)
        status = nd_trial_run(bench, &trial, out, err);
    nd_compose_destroy(&model);
    free(bytes);
    if (status == ND_OK && !out->has_failed && out->n != n_samples * nd_ask_elems(&ask->y)) {
        nd_trial_deinit(out);
        status = nd_fail(err, ND_E_EXACT_SHAPE, ask->op_type,
                         "the device gives '%s' a different shape than asked for", ask->op_type);
    }
    return status;
}

/* ---- the same in double precision ---- */

/* A node as nd_op_run takes it. */
struct node {
    Onnx__NodeProto proto;
    Onnx__AttributeProto attributes[ND_ASK_MAX_ATTRIBUTES], *list[ND_ASK_MAX_ATTRIBUTES];
};

static void make_node(const struct nd_ask *ask, struct node *node)
{
    onnx__node_proto__init(&node->proto);
    node->proto.op_type = (char *)(uintptr_t)ask->op_type;
    node->proto.name = node->proto.op_type;
    node->proto.attribute = node->list;
    node->proto.n_attribute = ask->n_attributes;
    for (size_t i = 0; i < ask->n_attributes; i++) {
        const struct nd_ask_attribute *a = &ask->attributes[i];
        Onnx__AttributeProto *p = &node->attributes[i];
        onnx__attribute_proto__init(p);
        p->name = (char *)(uintptr_t)a->name;
        p->has_type = 1;
        node->list[i] = p;
        if (a->n > 1 || a->is_list) {
            p->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
            p->ints = (int64_t *)(uintptr_t)a->ints;
            p->n_ints = a->n;
        } else if (a->n == 1) {
            p->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
            p->has_i = 1;
            p->i = a->ints[0];
        } else {
            p->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
            p->has_f = 1;
            p->f = a->f;
        }
    }
}

static void dequantize(struct nd_array *array, float scale, int64_t zero, bool in_float32)
{
    for (size_t i = 0; i < array->n; i++) {
        double steps = array->x[i] - (double)zero;
        array->x[i] = in_float32 ? (double)((float)steps * scale) : steps * (double)scale;
    }
}

static enum nd_status load_operands(const struct nd_ask *ask, bool in_float32,
                                    struct nd_array operands[ND_ASK_MAX_OPERANDS], struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < ask->n_operands; i++) {
        const struct nd_ask_operand *o = &ask->operands[i];
        bool has_qvalues = is_qvalue(o->dtype);
        status = nd_array_make(&operands[i], has_qvalues ? ND_DTYPE_F32 : o->dtype, &o->shape, err);
        if (status == ND_OK)
            nd_array_load(o->dtype, o->data, operands[i].n, operands[i].x);
        if (status == ND_OK && has_qvalues)
            dequantize(&operands[i], o->scale, o->zero, in_float32);
    }
    return status;
}

enum nd_status nd_ask_values(const struct nd_ask *ask, const double *qvalues, size_t n_samples, bool in_float32,
                             double *values, struct nd_error *err)
{
    struct node node;
    struct nd_array x = {0}, y = {0}, operands[ND_ASK_MAX_OPERANDS] = {{{0}, 0, 0, NULL}};
    const struct nd_array *inputs[ND_ASK_MAX_OPERANDS + 1] = {&x};
    struct nd_array *output = &y;
    size_t n_y = nd_ask_elems(&ask->y);
    make_node(ask, &node);
    for (size_t i = 0; i < ask->n_operands; i++)
        inputs[1 + i] = &operands[i];
    const struct nd_op_call call = {.node = &node.proto,
                                    .opset = OPSET,
                                    .n_inputs = 1 + ask->n_operands,
                                    .n_outputs = 1,
                                    .inputs = inputs,
                                    .outputs = &output};
    enum nd_status status = load_operands(ask, in_float32, operands, err);
    for (size_t s = 0; status == ND_OK && s < n_samples; s++) {
        status = nd_array_make(&x, ND_DTYPE_F32, &ask->x, err);
        if (status != ND_OK)
            break;
        memcpy(x.x, qvalues + s * x.n, x.n * sizeof *x.x);
        dequantize(&x, ask->scale_x, ask->zero_x, in_float32);
        status = nd_op_run(&call, err);
        if (status == ND_OK && y.n != n_y)
            status = nd_fail(err, ND_E_EXACT_SHAPE, ask->op_type, "'%s' gives another shape than asked for",
                             ask->op_type);
        if (status == ND_OK)
            memcpy(values + s * n_y, y.x, n_y * sizeof *values);
        nd_array_deinit(&y);
    }
    for (size_t i = 0; i < ask->n_operands; i++)
        nd_array_deinit(&operands[i]);
    nd_array_deinit(&x);
    return status;
}
