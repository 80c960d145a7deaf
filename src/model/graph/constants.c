/* Constants of a graph: as floats, as numbers, and as the quantisation parameters of QuantizeLinear and
 * DequantizeLinear. */
#include "model/graph/constants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph/external.h"

/* A constant of the graph as numbers; every value of the types read here is exact in double. */
struct numbers {
    size_t n; /* 0: not a constant, or not of a type that is handled */
    size_t rank;
    int32_t elem_type;
    double *values;
};

static double half_to_double(uint16_t bits)
{
    int exponent = (bits >> 10) & 31;
    int mantissa = bits & 1023;
    double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 31)
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25));
}

static double float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* One element from its bits, which int32_data holds in the low part of an integer, too. */
static double element_from_bits(enum nd_dtype dtype, uint32_t bits)
{
    return dtype == ND_DTYPE_F32    ? float_from_bits(bits)
           : dtype == ND_DTYPE_F16  ? half_to_double((uint16_t)bits)
           : dtype == ND_DTYPE_BF16 ? float_from_bits(bits << 16)
           : dtype == ND_DTYPE_U8   ? (uint8_t)bits
           : dtype == ND_DTYPE_I8   ? (int8_t)(uint8_t)bits
           : dtype == ND_DTYPE_U16  ? (uint16_t)bits
           : dtype == ND_DTYPE_I16  ? (int16_t)(uint16_t)bits
                                    : (int32_t)bits;
}

static bool is_handled(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F32 || dtype == ND_DTYPE_F16 || dtype == ND_DTYPE_BF16 || dtype == ND_DTYPE_U8 ||
           dtype == ND_DTYPE_I8 || dtype == ND_DTYPE_U16 || dtype == ND_DTYPE_I16 || dtype == ND_DTYPE_I32;
}

/* Decodes the n elements from wherever the tensor has them; false when there are fewer or more. */
static bool decode_elements(const Onnx__TensorProto *tensor, enum nd_dtype dtype, const uint8_t *raw,
                            size_t raw_bytes, struct numbers *out)
{
    size_t n = out->n, wanted;
    if (raw != NULL) {
        if (!nd_size_mul(n, nd_dtype_size_bytes(dtype), &wanted) || raw_bytes != wanted)
            return false;
        size_t size = nd_dtype_size_bytes(dtype);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = 0;
            for (size_t b = 0; b < size; b++)
                bits |= (uint32_t)raw[i * size + b] << (8 * b);
            out->values[i] = element_from_bits(dtype, bits);
        }
        return true;
    }
    if (dtype == ND_DTYPE_F32) {
        for (size_t i = 0; i < n && n == tensor->n_float_data; i++)
            out->values[i] = (double)tensor->float_data[i];
        return n == tensor->n_float_data;
    }
    for (size_t i = 0; i < n && n == tensor->n_int32_data; i++) {
        out->values[i] = element_from_bits(dtype, (uint32_t)tensor->int32_data[i]);
        /* An integer that its type cannot hold would silently become another one. */
        if (nd_dtype_is_integer(dtype) && out->values[i] != (double)tensor->int32_data[i])
            return false;
    }
    return n == tensor->n_int32_data;
}

static enum nd_status read_tensor(const Onnx__TensorProto *tensor, const char *model_path, struct numbers *out,
                                  struct nd_error *err)
{
    const char *name = nd_onnx_text(tensor->name);
    enum nd_dtype dtype = tensor->has_data_type ? nd_onnx_dtype(tensor->data_type) : ND_DTYPE_NONE;
    ND_FREED void *loaded = NULL;
    const uint8_t *raw = tensor->has_raw_data ? tensor->raw_data.data : NULL;
    size_t raw_bytes = tensor->has_raw_data ? tensor->raw_data.len : 0, padded;
    struct numbers made = {.rank = tensor->n_dims, .elem_type = tensor->data_type};
    if (!is_handled(dtype)) {
        *out = made;
        return ND_OK;
    }
    if (nd_external_is(tensor)) {
        ND_TRY(nd_external_read(tensor, model_path, &loaded, &raw_bytes, err));
        raw = loaded;
    }
    /* No more elements than there are bytes of data: a wild dimension must not make us allocate. */
    size_t available = raw != NULL ? raw_bytes : tensor->n_float_data + tensor->n_int32_data;
    bool is_whole = nd_onnx_n_elems(tensor, &made.n) && made.n <= available &&
                    nd_size_mul(made.n, sizeof *made.values, &padded);
    ND_FREED double *values = is_whole ? nd_calloc(made.n, sizeof *values) : NULL;
    ND_TRY_MEMORY(!is_whole || values != NULL, err);
    made.values = values;
    if (!is_whole || !decode_elements(tensor, dtype, raw, raw_bytes, &made))
        return nd_fail(err, ND_E_MODEL_GRAPH, name, "constant '%s' has other data than its shape and type say",
                       name);
    *out = made;
    values = NULL;
    return ND_OK;
}

static enum nd_status read_float_attribute(const Onnx__AttributeProto *attribute, struct numbers *out,
                                           struct nd_error *err)
{
    bool is_list = attribute->n_floats > 0;
    struct numbers made = {
        .n = is_list ? attribute->n_floats : 1, .rank = is_list ? 1 : 0, .elem_type = ND_DTYPE_F32};
    made.values = nd_calloc(made.n, sizeof *made.values);
    ND_TRY_MEMORY(made.values != NULL, err);
    for (size_t i = 0; i < made.n; i++)
        made.values[i] = (double)(is_list ? attribute->floats[i] : attribute->f);
    *out = made;
    return ND_OK;
}

/* The numbers of an initializer, a Constant node, or an Identity of these. */
static enum nd_status read_constant(const struct nd_graph *graph, size_t tensor, const char *model_path,
                                    struct numbers *out, struct nd_error *err)
{
    *out = (struct numbers){0};
    while (graph->tensors[tensor].initializer == NULL) {
        if (!graph->tensors[tensor].is_constant || graph->tensors[tensor].producer == ND_NO_INDEX)
            return ND_OK;
        const struct nd_graph_node *node = &graph->nodes[graph->tensors[tensor].producer];
        const Onnx__AttributeProto *value = nd_onnx_attribute(node->proto, "value");
        if (strcmp(node->proto->op_type, "Identity") == 0 && node->n_inputs == 1 &&
            graph->uses[node->first_use] != ND_NO_INDEX) {
            tensor = graph->uses[node->first_use]; /* made earlier: this ends */
            continue;
        }
        if (strcmp(node->proto->op_type, "Constant") != 0)
            return ND_OK;
        if (value != NULL && value->t != NULL)
            return read_tensor(value->t, model_path, out, err);
        value = nd_onnx_attribute(node->proto, "value_float");
        if (value == NULL)
            value = nd_onnx_attribute(node->proto, "value_floats");
        return value != NULL ? read_float_attribute(value, out, err) : ND_OK;
    }
    return read_tensor(graph->tensors[tensor].initializer, model_path, out, err);
}

enum nd_status nd_constant_numbers(const struct nd_graph *graph, size_t tensor, const char *model_path,
                                   double **values, size_t *n, struct nd_error *err)
{
    struct numbers numbers;
    enum nd_status status = read_constant(graph, tensor, model_path, &numbers, err);
    *values = status == ND_OK ? numbers.values : NULL;
    *n = status == ND_OK ? numbers.n : 0;
    return status;
}

static enum nd_status combine(const struct nd_graph_node *node, const struct numbers *scale,
                              const struct numbers *zero_point, bool has_zero_point, struct nd_quant *out,
                              struct nd_error *err)
{
    const char *name = nd_graph_node_name(node->proto);
    if (scale->n == 0 || (has_zero_point && zero_point->n == 0))
        return ND_OK;
    if (has_zero_point && scale->n != zero_point->n)
        return nd_fail(err, ND_E_MODEL_GRAPH, name, "node '%s' (%s) has %zu scales and %zu zero points", name,
                       node->proto->op_type, scale->n, zero_point->n);
    if (scale->n > 1 && (scale->rank != 1 || nd_onnx_attribute_i(node->proto, "block_size", 0) != 0))
        return ND_OK; /* in blocks: no activation of a device is */
    int64_t axis = nd_onnx_attribute_i(node->proto, "axis", 1);
    if (scale->n > 1 && (axis < -ND_MAX_RANK || axis >= ND_MAX_RANK))
        return nd_fail(err, ND_E_MODEL_GRAPH, name, "node '%s' (%s) has axis %lld", name, node->proto->op_type,
                       (long long)axis);
    struct nd_quant made = {.n = scale->n, .axis = scale->n > 1 ? (int)axis : -1};
    made.scale = nd_calloc(made.n, sizeof *made.scale);
    made.zero_point = nd_calloc(made.n, sizeof *made.zero_point);
    if (made.scale == NULL || made.zero_point == NULL) {
        ND_FREE_ALL(made.scale, made.zero_point);
        return nd_fail_memory(err);
    }
    for (size_t i = 0; i < made.n; i++) {
        made.scale[i] = (float)scale->values[i];
        made.zero_point[i] = has_zero_point ? (int64_t)zero_point->values[i] : 0;
    }
    *out = made;
    return ND_OK;
}

enum nd_status nd_node_quant_read(const struct nd_graph *graph, size_t node_index, const char *model_path,
                                  struct nd_node_quant *out, struct nd_error *err)
{
    const struct nd_graph_node *node = &graph->nodes[node_index];
    const size_t *inputs = &graph->uses[node->first_use];
    bool has_zero_point = node->n_inputs > 2 && inputs[2] != ND_NO_INDEX;
    struct numbers scale = {0}, zero_point = {0};
    struct nd_node_quant made = {.quant = {.axis = -1}};
    enum nd_status status = read_constant(graph, inputs[1], model_path, &scale, err);
    if (status == ND_OK && has_zero_point)
        status = read_constant(graph, inputs[2], model_path, &zero_point, err);
    if (status != ND_OK)
        goto out;
    const Onnx__TypeProto__Tensor *declared =
        has_zero_point ? nd_onnx_tensor_type(graph->tensors[inputs[2]].value_info) : NULL;
    if (zero_point.elem_type != 0)
        made.dtype = nd_onnx_dtype(zero_point.elem_type);
    else if (declared != NULL)
        made.dtype = nd_onnx_dtype(declared->elem_type);
    else if (node->kind == ND_NODE_QUANTIZE && !has_zero_point) {
        int64_t named = nd_onnx_attribute_i(node->proto, "output_dtype", 0);
        made.dtype = named == 0 ? ND_DTYPE_U8 : nd_onnx_dtype((int32_t)named);
    }
    if (has_zero_point && zero_point.n > 0 && !nd_dtype_is_integer(made.dtype))
        status = nd_fail(err, ND_E_MODEL_GRAPH, nd_graph_node_name(node->proto),
                         "node '%s' (%s) has a zero point that is no integer", nd_graph_node_name(node->proto),
                         node->proto->op_type);
    else if (scale.n > 0 && !nd_dtype_is_float(nd_onnx_dtype(scale.elem_type)))
        status = nd_fail(err, ND_E_MODEL_GRAPH, nd_graph_node_name(node->proto),
                         "node '%s' (%s) has a scale that is no float", nd_graph_node_name(node->proto),
                         node->proto->op_type);
    else
        status = combine(node, &scale, &zero_point, has_zero_point, &made.quant, err);
    if (status == ND_OK)
        *out = made;
out:
    free(scale.values);
    free(zero_point.values);
    return status;
}

/* ---- constants as floats ---- */

/* raw is NULL when the tensor holds a list of floats. */
static enum nd_status copy_values(const Onnx__TensorProto *tensor, const void *raw, size_t raw_bytes,
                                  struct nd_float_constant *out, struct nd_error *err)
{
    size_t n, size_bytes;
    const char *name = nd_onnx_text(tensor->name);
    size_t n_there = raw != NULL ? raw_bytes / sizeof(float) : tensor->n_float_data;
    bool is_whole = nd_onnx_n_elems(tensor, &n) && n == n_there && nd_size_mul(n, sizeof(float), &size_bytes) &&
                    (raw == NULL || raw_bytes == size_bytes);
    if (!is_whole)
        return nd_fail(err, ND_E_MODEL_GRAPH, name, "constant '%s' has other data than its shape and type say",
                       name);
    out->values = nd_calloc(n, sizeof(float));
    ND_TRY_MEMORY(out->values != NULL, err);
    if (n > 0)
        memcpy(out->values, raw != NULL ? raw : tensor->float_data, size_bytes);
    out->n = n;
    out->dims = tensor->dims;
    out->rank = tensor->n_dims;
    return ND_OK;
}

enum nd_status nd_float_constant_read(const struct nd_graph *graph, size_t index, const char *model_path,
                                      struct nd_float_constant *out, bool *is_constant, struct nd_error *err)
{
    const Onnx__TensorProto *tensor = nd_graph_constant(graph, index);
    const char *name = graph->tensors[index].name;
    bool is_sparse = graph->tensors[index].is_constant && graph->tensors[index].producer == ND_NO_INDEX;
    *is_constant = tensor != NULL;
    if (tensor == NULL && is_sparse)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, name, "constant '%s' is sparse and cannot be quantised",
                       name);
    if (tensor == NULL)
        return ND_OK;
    if (tensor->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, name, "constant '%s' is %s, and only float32 is quantised",
                       name, nd_dtype_name(nd_onnx_dtype(tensor->data_type)));
    if (!nd_external_is(tensor))
        return copy_values(tensor, tensor->has_raw_data ? tensor->raw_data.data : NULL,
                           tensor->has_raw_data ? tensor->raw_data.len : 0, out, err);
    ND_FREED void *loaded = NULL;
    size_t size_bytes;
    ND_TRY(nd_external_read(tensor, model_path, &loaded, &size_bytes, err));
    return copy_values(tensor, loaded, size_bytes, out, err);
}

bool nd_model_has_tensor(const struct nd_model *model, const char *name)
{
    return nd_names_find(&model->graph.names, name) != ND_NO_INDEX;
}

char *nd_model_constant_name(const struct nd_graph *graph, size_t index)
{
    const struct nd_graph_node *node = &graph->nodes[index];
    /* As ONNX Runtime's quantiser and AIMET's export call it. */
    static const char *const suffixes[] = {"_DequantizeLinear_Output", "_qdq"};
    size_t qvalues = graph->uses[node->first_use], producer = graph->tensors[qvalues].producer;
    const char *name = nd_onnx_text(node->proto->output[0]);
    if (producer != ND_NO_INDEX && graph->nodes[producer].kind == ND_NODE_QUANTIZE)
        return nd_strdup(graph->tensors[graph->uses[graph->nodes[producer].first_use]].name);
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        size_t n_suffix = strlen(suffixes[i]);
        if (n > n_suffix && strcmp(name + n - n_suffix, suffixes[i]) == 0)
            return strndup(name, n - n_suffix);
    }
    return nd_strdup(name);
}
