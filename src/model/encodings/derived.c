/* Encodings that follow from others, as AIMET's export of 2.0.0 and Qualcomm's converters derive them. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "model/encodings/building.h"
#include "model/graph/loaded.h"

/* The handled encoding of the node's input i, or NULL. */
static const struct nd_encoding *input_encoding(const struct nd_encodings *encodings,
                                                const Onnx__NodeProto *node, size_t i)
{
    size_t at = i < node->n_input ? nd_encodings_find(encodings, node->input[i]) : SIZE_MAX;
    return at != SIZE_MAX && encodings->items[at].unhandled == NULL ? &encodings->items[at] : NULL;
}

static enum nd_status add_moved(struct nd_encodings *encodings, const struct nd_graph *graph,
                                const struct nd_graph_node *node, struct nd_error *err)
{
    const struct nd_encoding *source = input_encoding(encodings, node->proto, 0);
    enum nd_status status = ND_OK;
    if (source == NULL || source->quant.n != 1 || node->is_constant)
        return ND_OK;
    double scale = (double)source->quant.scale[0], zero_point = (double)source->quant.zero_point[0];
    struct nd_stated stated = {.role = ND_ENCODING_ACTIVATION,
                               .bits = source->bits,
                               .is_signed = nd_dtype_is_signed_integer(source->dtype),
                               .is_symmetric = source->is_symmetric,
                               .n = 1,
                               .scales = &scale,
                               .zero_points = &zero_point};
    for (size_t i = 0; i < node->n_made && status == ND_OK; i++) {
        /* MaxPool's second output holds indices. */
        bool is_indices = i > 0 && strcmp(node->proto->op_type, "MaxPool") == 0;
        size_t made = graph->made[node->first_made + i];
        if (is_indices || made == ND_NO_INDEX ||
            nd_encodings_find(encodings, graph->tensors[made].name) != SIZE_MAX)
            continue;
        stated.name = graph->tensors[made].name;
        status = nd_encodings_add(encodings, &stated, err);
    }
    return status;
}

/* Whether the node adds its third input, unscaled, to a product of the others. */
static bool adds_a_bias(const Onnx__NodeProto *node)
{
    const char *op_type = nd_onnx_text(node->op_type);
    const Onnx__AttributeProto *alpha = nd_onnx_attribute(node, "alpha"),
                               *beta = nd_onnx_attribute(node, "beta");
    if (node->n_input < 3 || node->input[2][0] == '\0' || nd_onnx_domain(node->domain)[0] != '\0')
        return false;
    if (strcmp(op_type, "Gemm") == 0)
        return (alpha == NULL || alpha->f == 1) && (beta == NULL || beta->f == 1);
    return strcmp(op_type, "Conv") == 0 || strcmp(op_type, "ConvTranspose") == 0;
}

/* int32 with the scale of the accumulator, so that it can be added to it. */
static enum nd_status add_bias(struct nd_encodings *encodings, const struct nd_graph *graph,
                               const struct nd_graph_node *node, struct nd_error *err)
{
    const struct nd_encoding *data = input_encoding(encodings, node->proto, 0);
    const struct nd_encoding *weight = input_encoding(encodings, node->proto, 1);
    size_t bias = graph->uses[node->first_use + 2];
    const char *name = node->proto->input[2];
    if (data == NULL || weight == NULL || data->quant.n != 1 || !graph->tensors[bias].is_constant ||
        nd_encodings_find(encodings, name) != SIZE_MAX)
        return ND_OK;
    size_t n = weight->quant.n;
    double *scales = nd_calloc(n, sizeof *scales), *zero_points = nd_calloc(n, sizeof *zero_points);
    enum nd_status status = scales != NULL && zero_points != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++)
        scales[i] = (double)(data->quant.scale[0] * weight->quant.scale[i]);
    const struct nd_stated stated = {.name = name,
                                     .role = ND_ENCODING_PARAM,
                                     .bits = 32,
                                     .is_signed = true,
                                     .is_symmetric = true,
                                     .has_axis = true,
                                     .n = n,
                                     .scales = scales,
                                     .zero_points = zero_points};
    if (status == ND_OK)
        status = nd_encodings_add(encodings, &stated, err);
    free(scales);
    free(zero_points);
    return status;
}

enum nd_status nd_encodings_complete(struct nd_encodings *encodings, const struct nd_model *model,
                                     size_t *n_added, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    size_t n_before = encodings->n;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < graph->n_nodes && status == ND_OK; i++) {
        const struct nd_graph_node *node = &graph->nodes[i];
        if (nd_onnx_is_mover(node->proto))
            status = add_moved(encodings, graph, node, err);
        else if (adds_a_bias(node->proto))
            status = add_bias(encodings, graph, node, err);
    }
    if (status == ND_OK)
        *n_added = encodings->n - n_before;
    return status;
}
