#include <string.h>

#include "cli/commands.h"
#include "cli/rows.h"
#include "npudiff/capture.h"

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

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
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
    static const struct cli_column columns[] = {
        {"path", "PATH"}, {"type", "TYPE"}, {"shape", "SHAPE"}, {"stored_bytes", "BYTES"}, {NULL, NULL}};
    return cli_print_rows("objects", rows, columns, values->json);
}

static const struct cli_option options[] = {
    {.name = "all",
     .letter = 'a',
     .kind = CLI_FLAG,
     .offset = offsetof(struct values, all),
     .help = "list tables, digests and logs too"},
    {.name = "json",
     .kind = CLI_FLAG,
     .offset = offsetof(struct values, json),
     .help = "print JSON (everything)"},
    {.name = NULL},
};

const struct cli_command cmd_ls = {
    .name = "ls",
    .summary = "list the tensors of a capture",
    .synopsis = "CAPTURE.h5 [--all]",
    .details = "Lists the datasets of a capture with type, shape and stored size, under the names that h5ls "
               "and h5py show.",
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
    .values_bytes = sizeof(struct values),
    .run = run,
};
