#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "npudiff/tensor.h"

void nd_edge_deinit(struct nd_edge *edge)
{
    free(edge->name);
    free(edge->onnx_name);
    free(edge->op_types);
    free(edge->node);
    free(edge->quant.scale);
    free(edge->quant.zero_point);
    *edge = (struct nd_edge){0};
}

enum nd_status nd_edge_copy(const struct nd_edge *src, struct nd_edge *dst, struct nd_error *err)
{
    *dst = *src;
    dst->name = nd_strdup(src->name);
    dst->onnx_name = nd_strdup(src->onnx_name);
    dst->op_types = nd_strdup(src->op_types);
    dst->node = nd_strdup(src->node);
    dst->quant.scale = nd_calloc(src->quant.n, sizeof *dst->quant.scale);
    dst->quant.zero_point = nd_calloc(src->quant.n, sizeof *dst->quant.zero_point);
    bool is_whole =
        (src->name == NULL || dst->name != NULL) && (src->onnx_name == NULL || dst->onnx_name != NULL) &&
        (src->op_types == NULL || dst->op_types != NULL) && (src->node == NULL || dst->node != NULL) &&
        dst->quant.scale != NULL && dst->quant.zero_point != NULL;
    if (!is_whole) {
        nd_edge_deinit(dst);
        return nd_fail_memory(err);
    }
    if (src->quant.n > 0) {
        memcpy(dst->quant.scale, src->quant.scale, src->quant.n * sizeof *src->quant.scale);
        memcpy(dst->quant.zero_point, src->quant.zero_point, src->quant.n * sizeof *src->quant.zero_point);
    }
    return ND_OK;
}
