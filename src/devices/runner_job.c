#include "devices/runner_job.h"

#include <jansson.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "npudiff/devices/device.h"

static json_t *dims_of(const struct nd_shape *shape)
{
    if (shape->rank < 0)
        return json_null();
    json_t *dims = json_array();
    for (int d = 0; d < shape->rank; d++)
        nd_tree_append(dims, json_integer(shape->dims[d]));
    return dims;
}

static json_t *describe(const char *name, enum nd_dtype dtype, const struct nd_shape *shape)
{
    return json_pack("{s:s, s:s, s:o}", "name", name, "type", nd_dtype_name(dtype), "shape", dims_of(shape));
}

static json_t *describe_inputs(const struct nd_model *model)
{
    json_t *list = json_array();
    for (size_t i = 0; i < nd_model_n_inputs(model); i++) {
        const struct nd_model_io *input = nd_model_input(model, i);
        nd_tree_append(list, describe(input->name, input->dtype, &input->shape));
    }
    return list;
}

/* `name` is that of the tensor in the file, `label` what npudiff calls it. */
static json_t *describe_edge(const struct nd_edge *edge)
{
    json_t *tensor = describe(edge->onnx_name, edge->dtype, &edge->shape);
    json_t *scales = json_array(), *zero_points = json_array();
    for (size_t i = 0; i < edge->quant.n; i++) {
        nd_tree_append(scales, json_real((double)edge->quant.scale[i]));
        nd_tree_append(zero_points, json_integer(edge->quant.zero_point[i]));
    }
    nd_tree_set(tensor, "label", json_string(edge->name));
    nd_tree_set(tensor, "is_output", json_boolean(edge->is_model_output));
    nd_tree_set(tensor, "scale", scales);
    nd_tree_set(tensor, "zero_point", zero_points);
    nd_tree_set(tensor, "axis", edge->quant.n > 1 ? json_integer(edge->quant.axis) : json_null());
    return tensor;
}

static json_t *describe_edges(const struct nd_capture_job *capture)
{
    json_t *list = json_array();
    for (size_t e = 0; e < capture->n_edges; e++)
        nd_tree_append(list, describe_edge(&capture->edges[e]));
    return list;
}

static json_t *describe_probes(const struct nd_capture_job *capture)
{
    json_t *list = json_array();
    for (size_t p = 0; p < capture->n_probes; p++)
        nd_tree_append(list, json_pack("{s:s, s:I}", "name", capture->probes[p]->name, "samples",
                                       (json_int_t)capture->probes[p]->n_samples));
    return list;
}

char *nd_runner_job_text(const struct nd_capture_job *capture)
{
    const struct nd_device *device = capture->device;
    bool rounds = false;
    json_t *options = json_object();
    for (size_t i = 0; i < device->n_options; i++)
        if (strcmp(device->option_keys[i], ND_OFF_GRID_OPTION) == 0)
            rounds = true;
        else
            nd_tree_set(options, device->option_keys[i], json_string(device->option_values[i]));
    json_t *job = json_pack("{s:o, s:o, s:o, s:I, s:i, s:b, s:o}", "inputs", describe_inputs(capture->model),
                            "tensors", describe_edges(capture), "probes", describe_probes(capture), "repeats",
                            (json_int_t)capture->job.n_repeats, "threads", device->n_threads, "rounds_off_grid",
                            rounds, "options", options);
    char *text = nd_json_dumps(job, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(job);
    return text;
}
