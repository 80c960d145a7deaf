#include "model/graph/constants.h"

#include <stdlib.h>
#include <string.h>

#include "core/tensors/scales.h"
#include "model/graph/quant.h"

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
    if (out->values == NULL)
        return nd_fail_memory(err);
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
    void *loaded = NULL;
    size_t size_bytes;
    enum nd_status status = nd_external_read(tensor, model_path, &loaded, &size_bytes, err);
    if (status == ND_OK)
        status = copy_values(tensor, loaded, size_bytes, out, err);
    free(loaded);
    return status;
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

enum nd_status
nd_model_visit_constants(const struct nd_model *model,
                         enum nd_status (*visit)(void *context, const char *name, enum nd_dtype dtype,
                                                 const struct nd_quant *quant, struct nd_error *err),
                         void *context, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < graph->n_nodes && status == ND_OK; i++) {
        const struct nd_graph_node *node = &graph->nodes[i];
        struct nd_node_quant quant;
        if (node->kind != ND_NODE_DEQUANTIZE || !node->is_constant)
            continue;
        status = nd_node_quant_read(graph, i, model->path, &quant, err);
        if (status != ND_OK)
            break;
        char *name = nd_model_constant_name(graph, i);
        status = name != NULL ? visit(context, name, quant.dtype, &quant.quant, err) : nd_fail_memory(err);
        free(name);
        nd_quant_deinit(&quant.quant);
    }
    return status;
}
