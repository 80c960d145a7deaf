#include <string.h>

#include "cli/options/commands.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/capture/capture.h"
#include "npudiff/model/model.h"

struct values {
    bool json;
    bool all;
    bool verbose;
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

/* Of one scale the digits that a person reads. */
static void add_texts(json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        const json_t *list = json_object_get(row, "scale"), *zeros = json_object_get(row, "zero_point");
        bool is_one = json_array_size(list) == 1;
        json_object_set_new(row, "scale_text",
                            is_one ? json_sprintf("%.7g", json_real_value(json_array_get(list, 0)))
                                   : json_incref(json_object_get(row, "quantisation")));
        json_object_set(row, "zero_text", is_one ? json_array_get(zeros, 0) : json_null());
    }
}

static size_t count_quantised(const json_t *rows)
{
    size_t n = 0, i;
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        n += json_array_size(json_object_get(row, "scale")) > 0;
    }
    return n;
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
    static const struct nd_report_column columns[] = {{"tensor", "TENSOR"},
                                                      {"op_types", "OPERATORS"},
                                                      {"type", "TYPE"},
                                                      {"scale_text", "SCALE"},
                                                      {"zero_text", "ZERO POINT"},
                                                      {NULL, NULL}},
                                         all_columns[] = {{"tensor", "TENSOR"},
                                                          {"op_types", "OPERATORS"},
                                                          {"type", "TYPE"},
                                                          {"quantisation", "QUANTISATION"},
                                                          {"onnx_name", "ONNX TENSOR"},
                                                          {NULL, NULL}};
    if (values->json || values->verbose)
        return cli_print_rows(ND_DOCUMENT_MODEL, "tensors", rows, all_columns, values->json);
    add_texts(rows);
    const char *next[] = {"npudiff", "capture", path, "-d", "cpu", "-o", "captures"};
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    size_t n = json_array_size(rows), n_quantised = count_quantised(rows);
    nd_report_screen_put(screen, "%s: a capture records %zu tensor%s, %zu of them quantised\n\n",
                         cli_file_name(path), n, n == 1 ? "" : "s", n_quantised);
    cli_screen_rows(screen, rows, columns, "-v lists all");
    nd_report_screen_next(screen, "to record them on a device", next, sizeof next / sizeof next[0]);
    return cli_print_screen(screen, NULL);
}

/* ---- the command ---- */

static int print_capture(const struct nd_capture *capture, const char *path, json_t *rows,
                         const struct nd_report_column *columns)
{
    const char *next[] = {"npudiff", "info", path};
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    size_t n_samples = 0, n_tensors = nd_capture_n_edges(capture), n_probes = nd_capture_n_probes(capture);
    double n_bytes = 0;
    for (size_t p = 0; p < n_probes; p++)
        n_samples += nd_capture_probe(capture, p)->n_samples;
    for (size_t i = 0; i < nd_capture_n_objects(capture); i++)
        n_bytes += (double)nd_capture_object(capture, i)->stored_bytes;
    nd_report_screen_put(screen, "%s: %zu tensor%s, %zu sample%s in %zu probe%s, %.3g MiB of data\n\n",
                         cli_file_name(path), n_tensors, n_tensors == 1 ? "" : "s", n_samples,
                         n_samples == 1 ? "" : "s", n_probes, n_probes == 1 ? "" : "s", n_bytes / (1 << 20));
    cli_screen_rows(screen, rows, columns, "-v lists all");
    nd_report_screen_next(screen, "to see the device and the runtime", next, sizeof next / sizeof next[0]);
    return cli_print_screen(screen, NULL);
}

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
    static const struct nd_report_column columns[] = {
        {"path", "PATH"}, {"type", "TYPE"}, {"shape", "SHAPE"}, {"stored_bytes", "BYTES"}, {NULL, NULL}};
    int exit_code = values->json || values->verbose || values->all
                        ? cli_print_rows(ND_DOCUMENT_CAPTURE_OBJECTS, "objects", rows, columns, values->json)
                        : print_capture(capture, operands[0], rows, columns);
    nd_capture_close(&capture);
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_FLAG('a', "all", struct values, all, "also list tables, digests and logs"),
    OPT_VERBOSE(struct values, "list everything in full, however long; of a model also the ONNX tensors"),
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
