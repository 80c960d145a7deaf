#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "npudiff/core/tensor.h"

void nd_edge_deinit(struct nd_edge *edge)
{
    free(edge->name);
    free(edge->onnx_name);
    free(edge->op_types);
    free(edge->node);
    nd_quant_deinit(&edge->quant);
    *edge = (struct nd_edge){0};
}

enum nd_status nd_edge_copy(const struct nd_edge *src, struct nd_edge *dst, struct nd_error *err)
{
    *dst = *src;
    dst->quant = (struct nd_quant){.axis = -1};
    dst->name = nd_strdup(src->name);
    dst->onnx_name = nd_strdup(src->onnx_name);
    dst->op_types = nd_strdup(src->op_types);
    dst->node = nd_strdup(src->node);
    bool is_whole =
        (src->name == NULL || dst->name != NULL) && (src->onnx_name == NULL || dst->onnx_name != NULL) &&
        (src->op_types == NULL || dst->op_types != NULL) && (src->node == NULL || dst->node != NULL);
    enum nd_status status = is_whole ? nd_quant_copy(&src->quant, &dst->quant, err) : nd_fail_memory(err);
    if (status != ND_OK)
        nd_edge_deinit(dst);
    return status;
}
