/* Arguments of operators that are constants: a few numbers each. */
#include <string.h>

#include "model/graph/infer_rules.h"

/* NULL: input i is left out or no constant. What lies in a different file has neither raw data nor a list. */
static const Onnx__TensorProto *constant_of(const struct nd_infer_view *view, size_t i)
{
    const struct nd_graph_node *at = &view->graph->nodes[view->node];
    size_t tensor = i < at->n_inputs ? view->graph->uses[at->first_use + i] : ND_NO_INDEX;
    return tensor != ND_NO_INDEX ? nd_graph_constant(view->graph, tensor) : NULL;
}

/* Number of elements when n of them are there, or -1: too many, or none where there should be. */
static int count(const Onnx__TensorProto *data, size_t n, int capacity)
{
    bool is_empty = data->n_dims == 1 && data->dims[0] == 0;
    return n > (size_t)capacity || (n == 0 && !is_empty) ? -1 : (int)n;
}

int nd_infer_integers(const struct nd_infer_view *view, size_t i, int64_t *values, int capacity)
{
    const Onnx__TensorProto *data = constant_of(view, i);
    if (data == NULL || (data->data_type != ND_DTYPE_I64 && data->data_type != ND_DTYPE_I32))
        return -1;
    bool is_wide = data->data_type == ND_DTYPE_I64;
    size_t n_listed = is_wide ? data->n_int64_data : data->n_int32_data;
    size_t size_bytes = is_wide ? sizeof(int64_t) : sizeof(int32_t);
    int n = count(data, data->has_raw_data ? data->raw_data.len / size_bytes : n_listed, capacity);
    for (int k = 0; k < n; k++) {
        int32_t narrow = 0;
        if (!data->has_raw_data)
            values[k] = is_wide ? data->int64_data[k] : data->int32_data[k];
        else
            memcpy(is_wide ? (void *)&values[k] : &narrow, data->raw_data.data + (size_t)k * size_bytes,
                   size_bytes);
        if (data->has_raw_data && !is_wide)
            values[k] = narrow;
    }
    return n;
}

int nd_infer_floats(const struct nd_infer_view *view, size_t i, float *values, int capacity)
{
    const Onnx__TensorProto *data = constant_of(view, i);
    if (data == NULL || data->data_type != ND_DTYPE_F32)
        return -1;
    int n =
        count(data, data->has_raw_data ? data->raw_data.len / sizeof *values : data->n_float_data, capacity);
    if (n > 0)
        memcpy(values, data->has_raw_data ? (const void *)data->raw_data.data : data->float_data,
               (size_t)n * sizeof *values);
    return n;
}

int nd_infer_argument(const struct nd_infer_view *view, const char *attribute, size_t i, int64_t *values,
                      int capacity)
{
    const Onnx__AttributeProto *given = nd_onnx_attribute(view->proto, attribute);
    if (given == NULL)
        return nd_infer_has_arg(view, i) ? nd_infer_integers(view, i, values, capacity) : 0;
    if (given->n_ints > (size_t)capacity)
        return -1;
    if (given->n_ints > 0)
        memcpy(values, given->ints, given->n_ints * sizeof *values);
    return (int)given->n_ints;
}
