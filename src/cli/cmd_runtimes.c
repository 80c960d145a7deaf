#include "cli/commands.h"
#include "cli/rows.h"
#include "npudiff/device.h"

struct values {
    bool json;
};

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)operands;
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_runtime_list list;
    if (nd_runtimes_list(&list, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *rows = json_array();
    for (size_t i = 0; i < list.n; i++) {
        const struct nd_runtime_info *info = &list.items[i];
        json_array_append_new(rows, json_pack("{s:o, s:o, s:o, s:b, s:o, s:o}", "runtime", cli_text(info->id),
                                              "onnxruntime", cli_text(info->ort_version), "onnxruntime_qnn",
                                              cli_text(info->provider_version), "installed",
                                              info->missing == NULL, "folder", cli_text(info->folder), "state",
                                              cli_text(info->missing != NULL ? info->missing : "installed")));
    }
    nd_runtimes_deinit(&list);
    static const struct cli_column columns[] = {{"runtime", "RUNTIME"},
                                                {"onnxruntime", "ONNXRUNTIME"},
                                                {"onnxruntime_qnn", "ONNXRUNTIME-QNN"},
                                                {"state", "STATE"},
                                                {NULL, NULL}};
    return cli_print_rows("runtimes", rows, columns, values->json);
}

static const struct cli_option options[] = {
    {.name = "json", .kind = CLI_FLAG, .offset = offsetof(struct values, json), .help = "print JSON"},
    {.name = NULL},
};

const struct cli_command cmd_runtimes = {
    .name = "runtimes",
    .summary = "list the runtimes that are installed, and those that could be",
    .synopsis = "[--json]",
    .details =
        "A runtime is an ONNX Runtime with Qualcomm's provider and its HTP simulator, of one QAIRT version. "
        "They are looked for in $NPUDIFF_RUNTIMES, by default ${XDG_CACHE_HOME:-~/.cache}/npudiff/runtimes; "
        "tools/setup installs them. A device takes the newest, or the one after '@'.",
    .options = options,
    .values_bytes = sizeof(struct values),
    .run = run,
};
