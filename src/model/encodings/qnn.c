/* The tensors of graphs in what qnn-context-binary-utility prints: real = scale * (code + offset). */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "model/encodings/building.h"
#include "model/encodings/qnn_types.h"

/* Newer tools leave "Encoding" away. */
static const json_t *member(const json_t *object, const char *key, const char *older_key)
{
    const json_t *value = json_object_get(object, key);
    return value != NULL ? value : json_object_get(object, older_key);
}

static enum nd_status read_pair(const struct nd_encodings *encodings, const char *name, const json_t *object,
                                double *scale, double *zero_point, struct nd_error *err)
{
    const struct nd_described at = {encodings, name, object};
    double offset = 0;
    enum nd_status status = nd_encodings_number(&at, "scale", scale, err);
    if (status == ND_OK)
        status = nd_encodings_number(&at, "offset", &offset, err);
    *zero_point = 0.0 - offset;
    return status;
}

static enum nd_status read_axis(struct nd_encodings *encodings, const json_t *object, struct nd_stated *stated,
                                struct nd_error *err)
{
    const json_t *list = member(object, "scaleOffset", "scaleOffsets"), *pair;
    size_t i, n = json_array_size(list);
    if (n == 0)
        return nd_encodings_fail(encodings, stated->name, "scaleOffset", err,
                                 "is no list of scales and offsets");
    enum nd_status status = nd_encodings_whole(&(struct nd_described){encodings, stated->name, object}, "axis",
                                               0, ND_MAX_RANK - 1, &stated->axis, err);
    double *scales = nd_calloc(n, sizeof *scales), *zero_points = nd_calloc(n, sizeof *zero_points);
    if (status == ND_OK && (scales == NULL || zero_points == NULL))
        status = nd_fail_memory(err);
    json_array_foreach(list, i, pair)
    {
        if (status == ND_OK)
            status = read_pair(encodings, stated->name, pair, &scales[i], &zero_points[i], err);
    }
    stated->has_axis = true;
    stated->n = n;
    stated->scales = scales;
    stated->zero_points = zero_points;
    if (status == ND_OK)
        status = nd_encodings_add(encodings, stated, err);
    free(scales);
    free(zero_points);
    return status;
}

/* Whether the graphs before have the tensor with the same parameters: a context of several graphs shares
 * tensors. */
static bool is_known(const struct nd_encodings *encodings, const json_t *object, const struct nd_stated *stated)
{
    size_t known = nd_encodings_find(encodings, stated->name);
    if (known == SIZE_MAX || object == NULL)
        return false;
    const struct nd_encoding *item = &encodings->items[known];
    return item->quant.n == 1 && item->bits == stated->bits &&
           item->quant.scale[0] == (float)json_number_value(json_object_get(object, "scale")) &&
           (double)item->quant.zero_point[0] == -json_number_value(json_object_get(object, "offset"));
}

static enum nd_status read_tensor(struct nd_encodings *encodings, const json_t *info, struct nd_error *err)
{
    struct nd_stated stated = {.role = ND_ENCODING_ACTIVATION};
    const struct nd_qnn_type *type = nd_qnn_type_read(json_object_get(info, "dataType"));
    const json_t *quant = json_object_get(info, "quantizeParams");
    enum nd_status status =
        nd_encodings_text(&(struct nd_described){encodings, NULL, info}, "name", &stated.name, err);
    if (status != ND_OK || type == NULL || !type->is_fixed_point)
        return status; /* floats and plain integers */
    const json_t *single = member(quant, "scaleOffset", "scaleOffsetEncoding");
    const json_t *axis = member(quant, "axisScaleOffset", "axisScaleOffsetEncoding");
    const char *encoding = json_string_value(json_object_get(quant, "quantizationEncoding"));
    stated.is_signed = nd_dtype_is_signed_integer(type->dtype);
    stated.bits = type->dtype == ND_DTYPE_U4 || type->dtype == ND_DTYPE_I4
                      ? 4
                      : 8 * (int)nd_dtype_size_bytes(type->dtype);
    if (is_known(encodings, single, &stated))
        return ND_OK;
    if (axis != NULL)
        return read_axis(encodings, axis, &stated, err);
    if (single == NULL)
        return nd_encodings_add_unhandled(encodings, stated.name, stated.role,
                                          encoding != NULL ? encoding : "a fixed point without a scale", err);
    double scale, zero_point;
    status = read_pair(encodings, stated.name, single, &scale, &zero_point, err);
    stated.n = 1;
    stated.scales = &scale;
    stated.zero_points = &zero_point;
    stated.is_symmetric = stated.is_signed && status == ND_OK && zero_point == 0;
    return status == ND_OK ? nd_encodings_add(encodings, &stated, err) : status;
}

static enum nd_status read_graph(struct nd_encodings *encodings, const json_t *graph, struct nd_error *err)
{
    static const char *const lists[] = {"graphInputs", "graphOutputs", "graphTensors", "updateableTensors"};
    const json_t *info = json_object_get(graph, "info"), *tensor;
    size_t i;
    enum nd_status status = ND_OK;
    for (size_t l = 0; l < sizeof lists / sizeof lists[0] && status == ND_OK; l++) {
        json_array_foreach(json_object_get(info, lists[l]), i, tensor)
        {
            status = read_tensor(encodings, json_object_get(tensor, "info"), err);
            if (status != ND_OK)
                return status;
        }
    }
    return ND_OK;
}

enum nd_status nd_encodings_read_qnn(struct nd_encodings *encodings, const json_t *root, struct nd_error *err)
{
    json_t *graphs = json_object_get(json_object_get(root, "info"), "graphs"), *graph;
    size_t i;
    enum nd_status status = json_is_object(graphs) ? read_graph(encodings, graphs, err) : ND_OK;
    json_array_foreach(graphs, i, graph)
    {
        if (status == ND_OK)
            status = read_graph(encodings, graph, err);
    }
    return status;
}
