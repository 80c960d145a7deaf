/* One question to a device after the other, and the entry of the datasheet that says what was found. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/operators/ops.h"
#include "core/memory.h"
#include "lab/experiment/ask.h"
#include "lab/experiment/experiment.h"

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
    ND_TRY(nd_compose_create(OPSET, &c, err));
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

/* Quantised values in, quantised values out: quantised values [n_samples] times x. n_samples is 1 with an
 * operand that is an input. As nd_trial_run. */
static enum nd_status nd_ask_device(struct nd_bench *bench, const struct nd_ask *ask, const double *qvalues,
                                    size_t n_samples, struct nd_trial_result *out, struct nd_error *err)
{
    struct nd_compose *model = NULL;
    size_t n = n_samples * nd_ask_elems(&ask->x);
    void *bytes = nd_calloc(n, nd_dtype_size_bytes(ask->dtype));
    ND_TRY_MEMORY(bytes != NULL, err);
    nd_array_store(ask->dtype, qvalues, n, bytes);
    struct nd_trial_input inputs[1 + ND_ASK_MAX_OPERANDS] = {{"x", ask->dtype, ask->x, bytes}};
    struct nd_bench_trial trial = {.output = "y", .n_samples = n_samples, .n_inputs = 1, .inputs = inputs};
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
    for (size_t i = 0; i < ask->n_operands; i++) {
        const struct nd_ask_operand *o = &ask->operands[i];
        bool has_qvalues = is_qvalue(o->dtype);
        ND_TRY(nd_array_make(&operands[i], has_qvalues ? ND_DTYPE_F32 : o->dtype, &o->shape, err));
        nd_array_load(o->dtype, o->data, operands[i].n, operands[i].x);
        if (has_qvalues)
            dequantize(&operands[i], o->scale, o->zero, in_float32);
    }
    return ND_OK;
}

enum nd_status nd_ask_values(const struct nd_ask *ask, const double *qvalues, size_t n_samples, bool in_float32,
                             double *values, struct nd_error *err)
{
    struct node node;
    ND_CLEANUP(nd_array_deinit) struct nd_array x = {0};
    struct nd_array y = {0}, operands[ND_ASK_MAX_OPERANDS] = {{{0}, 0, 0, NULL}};
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
    return status;
}

/* ---- the entry of an experiment ---- */

void nd_tell(struct nd_experiment *e, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0) /* also of NULL */
        nd_experiment_check(e, nd_fail_memory(e->err));
}

void nd_tell_text(struct nd_experiment *e, json_t *object, const char *key, const char *text)
{
    nd_tell(e, object, key, json_string(text));
}

void nd_tell_int(struct nd_experiment *e, json_t *object, const char *key, int64_t value)
{
    nd_tell(e, object, key, json_integer(value));
}

void nd_tell_bool(struct nd_experiment *e, json_t *object, const char *key, bool value)
{
    nd_tell(e, object, key, json_boolean(value));
}

void nd_tell_rounding(struct nd_experiment *e, json_t *object, const char *key, enum nd_rounding rounding)
{
    nd_tell_text(e, object, key, nd_rounding_name(rounding));
}

static json_t *member(struct nd_experiment *e, json_t *object, const char *key, json_t *(*make)(void))
{
    if (json_object_get(object, key) == NULL)
        nd_tell(e, object, key, make());
    return json_object_get(object, key);
}

json_t *nd_tell_object(struct nd_experiment *e, json_t *object, const char *key)
{
    return member(e, object, key, json_object);
}

static void append(struct nd_experiment *e, json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) != 0)
        nd_experiment_check(e, nd_fail_memory(e->err));
}

void nd_tell_listed(struct nd_experiment *e, json_t *object, const char *key, const char *text)
{
    json_t *list = member(e, object, key, json_array);
    if (text != NULL)
        append(e, list, json_string(text));
}

void nd_tell_line(struct nd_experiment *e, json_t *entry, const char *fmt, ...)
{
    char line[240];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    nd_tell_listed(e, entry, "text", line);
}

void nd_tell_counts(struct nd_experiment *e, json_t *entry, const struct nd_count *counts)
{
    json_t *evidence = nd_tell_object(e, entry, "evidence");
    for (; counts->key != NULL; counts++)
        nd_tell_int(e, evidence, counts->key, (int64_t)counts->n);
}

json_t *nd_experiment_tell_verdict(struct nd_experiment *e, json_t *entries, const char *verdict)
{
    json_t *entry = json_object();
    if (json_array_append_new(entries, entry) != 0)
        nd_experiment_check(e, nd_fail_memory(e->err));
    if (e->status != ND_OK)
        return NULL;
    nd_tell_text(e, entry, "operator", e->operator_name);
    nd_tell_text(e, entry, "types", e->types);
    nd_tell_text(e, entry, "verdict", e->has_failed ? "failed" : verdict);
    if (e->provider[0] != '\0')
        nd_tell_text(e, entry, "provider", e->provider);
    if (!e->has_failed)
        return entry;
    nd_tell_text(e, entry, "failure", e->failure.failure.message);
    nd_tell_text(e, entry, "stage", e->failure.stage);
    return NULL;
}

json_t *nd_experiment_tell(struct nd_experiment *e, json_t *entries, bool is_known)
{
    return nd_experiment_tell_verdict(e, entries,
                                      !e->is_on_npu ? "not on the NPU"
                                      : is_known    ? "identified"
                                                    : "not identified");
}

void nd_tell_undecided(struct nd_experiment *e, json_t *entry, const char *what, const char *probe)
{
    append(e, member(e, entry, "undecided", json_array), json_pack("{s:s, s:s}", "what", what, "probe", probe));
}

static bool differ(const struct nd_issue *issue, const void *arithmetics, size_t n_arithmetics,
                   size_t arithmetic_bytes)
{
    const unsigned char *first = arithmetics;
    for (const struct nd_tell_field *f = issue->fields; f->size_bytes > 0; f++)
        for (size_t i = 1; i < n_arithmetics; i++)
            if (memcmp(first + f->offset, first + i * arithmetic_bytes + f->offset, f->size_bytes) != 0)
                return true;
    return false;
}

void nd_tell_issues(struct nd_experiment *e, json_t *entry, const struct nd_issue *issues,
                    const void *arithmetics, size_t n_arithmetics, size_t arithmetic_bytes)
{
    for (; issues->what != NULL; issues++)
        if (differ(issues, arithmetics, n_arithmetics, arithmetic_bytes))
            nd_tell_undecided(e, entry, issues->what, issues->probe);
}

void nd_tell_nearest(struct nd_experiment *e, json_t *entry, const char *name, uint64_t n_wrong)
{
    nd_tell_text(e, entry, "nearest", name);
    nd_tell_int(e, entry, "nearest_wrong", (int64_t)n_wrong);
}

void nd_tell_unknown(struct nd_experiment *e, json_t *entry)
{
    nd_tell_undecided(e, entry, "the arithmetic", "a family that this version does not know");
}

struct nd_experiment nd_experiment_begin(struct nd_bench *bench, const char *operator_name, const char *types,
                                         struct nd_error *err)
{
    return (struct nd_experiment){
        .bench = bench, .operator_name = operator_name, .types = types, .err = err, .is_on_npu = true};
}

enum nd_status nd_experiment_end(struct nd_experiment *e)
{
    for (size_t i = 0; i < e->n_blocks; i++)
        free(e->blocks[i]);
    free(e->blocks);
    nd_strbuf_deinit(&e->answers);
    nd_trial_deinit(&e->failure);
    return e->status;
}

enum nd_status nd_experiment_take_all(struct nd_bench *bench, const struct nd_subject *subjects,
                                      size_t n_subjects, nd_experiment_take *take, json_t *entries,
                                      struct nd_error *err)
{
    for (size_t i = 0; i < n_subjects; i++) {
        struct nd_experiment e = nd_experiment_begin(bench, subjects[i].operator_name, subjects[i].types, err);
        take(&e, subjects[i].kind, entries);
        ND_TRY(nd_experiment_end(&e));
    }
    return ND_OK;
}

bool nd_experiment_goes_on(const struct nd_experiment *e)
{
    return e->status == ND_OK && !e->has_failed;
}

bool nd_experiment_check(struct nd_experiment *e, enum nd_status status)
{
    if (e->status == ND_OK)
        e->status = status;
    return nd_experiment_goes_on(e);
}

void *nd_experiment_own(struct nd_experiment *e, void *pointer)
{
    if (pointer == NULL)
        return NULL;
    if (nd_grow((void **)&e->blocks, &e->capacity, e->n_blocks + 1, sizeof *e->blocks))
        return e->blocks[e->n_blocks++] = pointer;
    free(pointer);
    nd_experiment_check(e, nd_fail_memory(e->err));
    return NULL;
}

void *nd_experiment_alloc(struct nd_experiment *e, size_t n, size_t elem_bytes)
{
    void *block = nd_experiment_goes_on(e) ? nd_calloc(n, elem_bytes) : NULL;
    if (block == NULL && nd_experiment_goes_on(e))
        nd_experiment_check(e, nd_fail_memory(e->err));
    return nd_experiment_own(e, block);
}

/* ---- asking ---- */

/* What came of one model; takes over the result. */
static const double *note(struct nd_experiment *e, struct nd_trial_result *result)
{
    bool is_first = e->n_asked++ == 0;
    bool is_counted = e->is_patient && !is_first && (result->has_failed || result->is_on_npu != e->is_on_npu);
    if (is_counted) {
        e->n_refused += result->has_failed;
        e->n_elsewhere += !result->has_failed;
        nd_trial_deinit(result->has_failed ? &e->failure : result);
        if (result->has_failed)
            e->failure = *result;
        return NULL;
    }
    memcpy(e->provider, result->provider, sizeof e->provider);
    if (result->has_failed) {
        e->has_failed = true;
        e->failure = *result;
        return NULL;
    }
    e->is_on_npu = e->is_on_npu && result->is_on_npu;
    return nd_experiment_own(e, result->x);
}

const double *nd_experiment_ask(struct nd_experiment *e, const struct nd_ask *ask, const double *qvalues,
                                size_t n_samples)
{
    struct nd_trial_result result = {0};
    bool is_asked = qvalues != NULL && nd_experiment_goes_on(e) &&
                    nd_experiment_check(e, nd_ask_device(e->bench, ask, qvalues, n_samples, &result, e->err));
    return is_asked ? note(e, &result) : NULL;
}

const double *nd_experiment_run(struct nd_experiment *e, struct nd_compose *model,
                                const struct nd_trial_input *input, size_t n)
{
    struct nd_trial_result result = {0};
    const struct nd_bench_trial trial = {
        .model = model, .output = "y", .n_samples = 1, .n_inputs = 1, .inputs = input};
    enum nd_status status = nd_trial_run(e->bench, &trial, &result, e->err);
    nd_compose_destroy(&model);
    if (status == ND_OK && !result.has_failed && result.n != n) {
        nd_trial_deinit(&result);
        status = nd_fail(e->err, ND_E_EXACT_SHAPE, e->operator_name,
                         "the device gives '%s' a different shape than asked for", e->operator_name);
    }
    return nd_experiment_check(e, status) ? note(e, &result) : NULL;
}

void nd_experiment_add_digest(struct nd_experiment *e, struct nd_digest digest)
{
    nd_strbuf_printf(&e->answers, "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
}

void nd_experiment_digest(struct nd_experiment *e, const double *qvalues, size_t n)
{
    ND_FREED uint16_t *bytes = nd_calloc(n, sizeof *bytes);
    for (size_t i = 0; bytes != NULL && i < n; i++)
        bytes[i] = (uint16_t)qvalues[i];
    if (bytes != NULL)
        nd_experiment_add_digest(e, nd_digest_bytes(bytes, n * sizeof *bytes));
    else
        nd_experiment_check(e, nd_fail_memory(e->err));
}

/* ---- confirming ---- */

bool nd_fresh_is_enough(uint64_t n_fresh, uint64_t n_right)
{
    return n_fresh >= ND_CONFIRMING_QVALUES && (double)n_right >= ND_CONFIRMING_SHARE * (double)n_fresh;
}

size_t nd_fresh_keep_best(void *arithmetics, size_t arithmetic_bytes, size_t n, const uint64_t *n_right,
                          uint64_t *most)
{
    unsigned char *bytes = arithmetics;
    size_t n_kept = 0;
    *most = 0;
    for (size_t i = 0; i < n; i++)
        *most = n_right[i] > *most ? n_right[i] : *most;
    for (size_t i = 0; i < n; i++)
        if (n_right[i] == *most)
            memmove(bytes + n_kept++ * arithmetic_bytes, bytes + i * arithmetic_bytes, arithmetic_bytes);
    return n_kept;
}

void nd_experiment_confirm(struct nd_experiment *e, const struct nd_confirmation *c, void *context,
                           struct nd_left left)
{
    uint64_t seed = c->seed;
    size_t n_arithmetics = *left.n_arithmetics;
    uint64_t *n_right = n_arithmetics > 0 ? nd_experiment_alloc(e, n_arithmetics, sizeof *n_right) : NULL;
    e->n_fresh = e->n_right = 0;
    for (size_t i = 0; n_right != NULL && nd_experiment_goes_on(e) && i < c->n_models; i++) {
        size_t n = c->ask(e, context, i, &seed);
        for (size_t p = 0; n > 0 && p < n_arithmetics; p++)
            n_right[p] +=
                c->count_right(context, (const unsigned char *)left.arithmetics + p * left.arithmetic_bytes);
        e->n_fresh += n;
    }
    if (n_right != NULL && nd_experiment_goes_on(e))
        *left.n_arithmetics =
            nd_fresh_keep_best(left.arithmetics, left.arithmetic_bytes, n_arithmetics, n_right, &e->n_right);
}

bool nd_experiment_is_confirmed(const struct nd_experiment *e, size_t n_arithmetics)
{
    return !e->has_failed && n_arithmetics > 0 && nd_fresh_is_enough(e->n_fresh, e->n_right);
}
