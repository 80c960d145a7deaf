#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "npudiff/core/tensor.h"

void nd_tensor_deinit(struct nd_tensor *tensor)
{
    free(tensor->name);
    free(tensor->onnx_name);
    free(tensor->op_types);
    free(tensor->node);
    nd_quant_deinit(&tensor->quant);
    *tensor = (struct nd_tensor){0};
}

enum nd_status nd_tensor_copy(const struct nd_tensor *src, struct nd_tensor *dst, struct nd_error *err)
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
        nd_tensor_deinit(dst);
    return status;
}
