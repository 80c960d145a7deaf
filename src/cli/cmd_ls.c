#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/rows.h"
#include "npudiff/capture.h"
#include "npudiff/model.h"

struct values {
    bool json;
    bool all;
};

/* Without --all only what somebody recorded: inputs, outputs, labels, latencies. */
static bool is_tensor(const char *path)
{
    static const char *const hidden[] = {"/digests/", "/input_digests/", "/repeat_index/"};
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (strstr(path, hidden[i]) != NULL)
            return false;
    return strncmp(path, "/probes/", 8) == 0;
}

static json_t *object_row(const struct nd_capture_object *object)
{
    char shape[256];
    json_t *dims = json_array();
    for (int d = 0; d < object->shape.rank; d++)
        json_array_append_new(dims, json_integer(object->shape.dims[d]));
    json_t *type = object->dtype != ND_DTYPE_NONE ? json_string(nd_dtype_name(object->dtype))
                                                  : json_sprintf("text[%zu]", object->text_bytes);
    return json_pack("{s:o, s:o, s:o, s:s, s:I}", "path", cli_text(object->path), "type", type, "dims", dims,
                     "shape", nd_shape_format(&object->shape, shape, sizeof shape), "stored_bytes",
                     (json_int_t)object->stored_bytes);
}

/* ---- a model ---- */

static json_t *scales(const struct nd_quant *quant)
{
    json_t *list = json_array();
    for (size_t i = 0; i < quant->n; i++)
        json_array_append_new(list, json_real(quant->scale[i]));
    return list;
}

static json_t *zero_points(const struct nd_quant *quant)
{
    json_t *list = json_array();
    for (size_t i = 0; i < quant->n; i++)
        json_array_append_new(list, json_integer(quant->zero_point[i]));
    return list;
}

/* One scale and zero point in words; of several only how many, and along which axis. */
static json_t *quantisation_text(const struct nd_quant *quant)
{
    if (quant->n == 0)
        return json_string("-");
    if (quant->n > 1)
        return json_sprintf("%zu scales on axis %d", quant->n, quant->axis);
    return json_sprintf("scale %.9g, zero point %lld", (double)quant->scale[0],
                        (long long)quant->zero_point[0]);
}

static json_t *edge_row(const struct nd_edge *edge)
{
    char shape[256];
    const char *role = edge->is_model_input ? "input" : edge->is_model_output ? "output" : "";
    return json_pack("{s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:i, s:s}", "tensor", cli_text(edge->name),
                     "op_types", cli_text(edge->op_types), "type", nd_dtype_name(edge->dtype), "shape",
                     nd_shape_format(&edge->shape, shape, sizeof shape), "onnx_name", cli_text(edge->onnx_name),
                     "quantisation", quantisation_text(&edge->quant), "scale", scales(&edge->quant),
                     "zero_point", zero_points(&edge->quant), "axis", edge->quant.axis, "role", role);
}

static int list_model(const struct values *values, const char *path)
{
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    if (nd_model_load(path, &model, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *rows = json_array();
    for (size_t i = 0; i < nd_model_n_edges(model); i++)
        json_array_append_new(rows, edge_row(nd_model_edge(model, i)));
    nd_model_destroy(&model);
    static const struct nd_report_column columns[] = {{"tensor", "EDGE"},      {"op_types", "OPERATORS"},
                                                      {"type", "TYPE"},        {"quantisation", "QUANTISATION"},
                                                      {"onnx_name", "TENSOR"}, {NULL, NULL}};
    return cli_print_rows(ND_DOCUMENT_MODEL, "tensors", rows, columns, values->json);
}

/* ---- the command ---- */

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    if (cli_ends_with(operands[0], ".onnx"))
        return list_model(values, operands[0]);
    struct nd_error err = {0};
    struct nd_capture *capture = NULL;
    if (nd_capture_open(operands[0], &capture, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *rows = json_array();
    for (size_t i = 0; i < nd_capture_n_objects(capture); i++) {
        const struct nd_capture_object *object = nd_capture_object(capture, i);
        if (values->all || values->json || is_tensor(object->path))
            json_array_append_new(rows, object_row(object));
    }
    nd_capture_close(&capture);
    static const struct nd_report_column columns[] = {
        {"path", "PATH"}, {"type", "TYPE"}, {"shape", "SHAPE"}, {"stored_bytes", "BYTES"}, {NULL, NULL}};
    return cli_print_rows(ND_DOCUMENT_CAPTURE_OBJECTS, "objects", rows, columns, values->json);
}

static const struct cli_option options[] = {
    OPT_FLAG('a', "all", struct values, all, "also list tables, digests and logs"),
    OPT_JSON(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff ls model.onnx", "Lists the tensors that a capture of the model records."},
    {"npudiff ls captures/cpu.h5", "Lists the tensors in a capture."},
    {NULL, NULL},
};

const struct cli_command cmd_ls = {
    .name = "ls",
    .summary = "list the tensors of a capture or a model",
    .synopsis = "CAPTURE.h5|MODEL.onnx [--all]",
    .details = "For a capture: its datasets with type, shape and size, under the names that h5ls and h5py "
               "show. For an ONNX model: the tensors that a capture records, with operators, type, "
               "quantisation, and the ONNX tensor that is made visible.",
    .examples = examples,
    .options = options,
    .operand = CLI_VALUE_CAPTURES_OR_MODEL,
    .min_operands = 1,
    .max_operands = 1,
    .values_bytes = sizeof(struct values),
    .run = run,
};
