#include "model/rewrite/put.h"

#include <limits.h>
#include <stdlib.h>

#include "core/files/new_file.h"
#include "core/memory.h"
#include "model/graph/loaded.h"
#include "model/rewrite/whole.h"

enum nd_status nd_rewrite_put(const Onnx__ModelProto *proto, const struct nd_external *external,
                              const char *path, struct nd_error *err)
{
    struct nd_external_copy copy = {0};
    size_t n = onnx__model_proto__get_packed_size(proto);
    if (n > INT_MAX)
        return nd_fail(err, ND_E_SIZE_OVERFLOW, path, "'%s' would be larger than the 2 GiB of a protobuf",
                       path);
    uint8_t *bytes = nd_calloc(n, 1);
    if (bytes == NULL)
        return nd_fail_memory(err);
    onnx__model_proto__pack(proto, bytes);
    enum nd_status status = nd_external_place(external, path, &copy, err);
    if (status == ND_OK)
        status = nd_file_put(path, bytes, n, err);
    nd_external_copy_end(&copy, status != ND_OK);
    free(bytes);
    return status;
}

bool nd_model_has_set_dims(const struct nd_model *model)
{
    return model->has_set_dims;
}

enum nd_status nd_model_write_whole(const struct nd_model *model, const char *path, struct nd_error *err)
{
    return nd_rewrite_put(model->proto, &model->external, path, err);
}
