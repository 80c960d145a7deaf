/* `npudiff placement`: where each node ran. docs/science/fallback.md. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/report_documents.h"
#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/report/report.h"

struct values {
    struct cli_list devices, dims;
    const char *probe, *agent;
    size_t repeats, jobs;
    double time_limit_s;
    const char *report;
    struct cli_answer answer;
    bool verbose;
};

/* ---- devices that are asked now ---- */

static enum nd_status prepare_cells(const struct values *values, const char *folder, struct cli_fleet *fleet,
                                    struct nd_error *err)
{
    CLI_TRY(cli_fleet_set_devices(fleet, &values->devices, err));
    for (size_t i = 0; i < fleet->n_cells; i++) {
        char name[32];
        snprintf(name, sizeof name, "%zu.h5", i);
        fleet->cells[i].path = cli_path_in(folder, name);
        if (fleet->cells[i].path == NULL)
            return cli_memory_error(err);
    }
    return ND_OK;
}

/* The exit code; 0 and 5: there is a capture of every device. */
static int ask_devices(const struct values *values, struct nd_model *model, const char *folder,
                       struct cli_fleet *fleet)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_probe_destroy) struct nd_probe *probe = NULL;
    const char *spec = values->probe != NULL ? values->probe : "zeros";
    /* The model untouched, so that looking does not move anything; a few runs of one sample, for their times.
     */
    struct nd_capture_options *options = &fleet->options;
    nd_capture_options_init(options);
    options->tensors = "none";
    options->n_repeats = values->repeats > 0 ? values->repeats : 5;
    options->store_digests_only = true;
    options->allow_fallback = true;
    options->profile = true;
    options->agent = values->agent;
    if (values->time_limit_s > 0)
        options->time_limit_s = values->time_limit_s;
    if (nd_model_check_static(model, &err) != ND_OK ||
        nd_probes_for_model(model, &spec, 1, &probe, &err) != ND_OK ||
        prepare_cells(values, folder, fleet, &err) != ND_OK)
        return cli_report_error(&err);
    const struct nd_probe *probes[] = {probe};
    fleet->model = model;
    fleet->probes = probes;
    fleet->n_probes = 1;
    int exit_code = cli_fleet_capture(fleet);
    fleet->probes = NULL;
    return exit_code;
}

/* ---- what the captures say ---- */

static enum nd_status examine(const struct nd_model *model, const char *path, struct nd_placed_device *device,
                              struct nd_error *err)
{
    CLI_TRY(nd_capture_open(path, &device->capture, err));
    return cli_place(model, device->capture, device, err);
}

static int tell(const struct values *values, const struct nd_model *model,
                const struct nd_placed_device *devices, size_t n)
{
    struct nd_error err = {0};
    char *json = NULL, *text = NULL;
    enum nd_status status = ND_OK;
    int exit_code = ND_EXIT_SAME;
    for (size_t d = 0; d < n; d++) {
        if (devices[d].has_failed)
            exit_code = cli_worse(exit_code, ND_EXIT_DEVICE_FAILED);
        else if (nd_placed_n_fell_back(&devices[d]) > 0)
            exit_code = cli_worse(exit_code, ND_EXIT_DIFFERS);
    }
    if (values->report != NULL || values->answer.json)
        status = nd_report_placement_json(model, devices, n, &json, &err);
    if (status == ND_OK && !values->answer.json && !values->answer.quiet)
        status = values->verbose ? nd_report_placement_text(devices, n, true, &text, &err)
                                 : nd_report_placement_brief(devices, n, cli_text_width(0), &text, &err);
    return cli_worse(exit_code,
                     cli_report_tell(values->report, "placement", &values->answer, status, json, text, &err));
}

static int examine_all(const struct values *values, const struct nd_model *model, const struct cli_fleet *fleet,
                       const char *const *captures, size_t n_captures)
{
    struct nd_error err = {0};
    size_t n = fleet->n_cells + n_captures;
    struct nd_placed_device *devices = calloc(n, sizeof *devices);
    enum nd_status status = devices != NULL ? ND_OK : cli_memory_error(&err);
    for (size_t d = 0; status == ND_OK && d < n; d++)
        status = examine(model, d < fleet->n_cells ? fleet->cells[d].path : captures[d - fleet->n_cells],
                         &devices[d], &err);
    int exit_code = status == ND_OK ? tell(values, model, devices, n) : cli_report_error(&err);
    for (size_t d = 0; devices != NULL && d < n; d++) {
        nd_placement_destroy(&devices[d].report);
        nd_capture_close(&devices[d].capture);
    }
    free(devices);
    return exit_code;
}

/* ---- the command ---- */

static int place_model(const struct values *values, struct nd_model *model, const char *const *captures,
                       size_t n_captures)
{
    char folder[4096];
    const char *tmp = getenv("TMPDIR");
    struct cli_fleet fleet = {.n_threads = values->jobs,
                              .is_quiet = values->answer.quiet || isatty(STDERR_FILENO) != 1,
                              .has_no_table = true};
    int exit_code = 0;
    snprintf(folder, sizeof folder, "%s/npudiff-placement-XXXXXX",
             tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
    bool has_folder = values->devices.n > 0 && mkdtemp(folder) != NULL;
    if (values->devices.n > 0 && !has_folder) {
        exit_code =
            cli_fail(CLI_E_FILE_WRITE, folder, "cannot create folder '%s': %s", folder, strerror(errno));
    } else if (has_folder) {
        exit_code = ask_devices(values, model, folder, &fleet);
    }
    if (exit_code == 0 || exit_code == ND_EXIT_DEVICE_FAILED)
        exit_code = examine_all(values, model, &fleet, captures, n_captures);
    if (has_folder) {
        for (size_t i = 0; fleet.cells != NULL && i < fleet.n_cells; i++)
            if (fleet.cells[i].path != NULL)
                unlink(fleet.cells[i].path);
        if (rmdir(folder) != 0)
            fprintf(stderr, "npudiff: cannot remove folder '%s': %s\n", folder,
                    strerror(errno)); /* the result stands */
    }
    cli_fleet_deinit(&fleet);
    return exit_code;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    if (values->devices.n == 0 && n_operands < 2)
        return cli_usage_error("placement", "-d DEVICE is missing, or captures of the model");
    int checked = cli_report_check(values->report);
    if (checked != 0)
        return checked;
    return cli_model_load(operands[0], &values->dims, &model, &err) == ND_OK
               ? place_model(values, model, operands + 1, n_operands - 1)
               : cli_report_error(&err);
}

static const struct cli_option options[] = {
    OPT_LIST('d', "device", struct values, devices, CLI_A_DEVICE,
             "ask this device, such as htp-sim:gen3; 'npudiff devices' lists them; may be repeated"),
    OPT_TEXT('p', "probe", struct values, probe, CLI_A_PROBE, "feed this input; see 'npudiff probes' (zeros)"),
    OPT_NUMBER(0, "repeats", struct values, repeats, "N", 1, 10000,
               "run the sample N times; the first time is not used for latencies (5)"),
    OPT_DIM(struct values),
    OPT_JOBS(struct values, "ask N devices at the same time; their times are then less exact (1)"),
    OPT_TIME_LIMIT(struct values, "stop a device after S seconds (3600)"),
    OPT_AGENT(struct values),
    OPT_VERBOSE(struct values, "print everything: chipset by operator, the pieces and their inputs and "
                               "outputs, all nodes that left the NPU, and the nodes whose place is unknown"),
    OPT_REPORT(struct values),
    OPT_ANSWER_COLOR(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff placement model.onnx -d htp-sim:gen3", "Lists the nodes that do not run on the NPU."},
    {"npudiff placement model.onnx -d htp-sim:gen1 -d htp-sim:gen3 -v",
     "Compares two chipsets, operator by operator, with full lists."},
};

const struct cli_command cmd_placement = {
    .name = "placement",
    .role = CLI_FIND,
    .summary = "say which nodes run on the NPU, and what the cuts cost",
    .synopsis = "MODEL.onnx -d DEVICE [-d ...] [CAPTURE.h5 ...]",
    .details =
        "Runs the unchanged model on each device, lets nodes fall back to the CPU, and prints which "
        "operators run where: a table of chipsets and operators, and for every device the share of "
        "nodes, FLOPs and time on the NPU, the pieces of the graph, the data that moves between NPU and "
        "CPU, and every node that is not on the NPU.\n"
        "Captures of the model may be given, too; they need --profile for times.\n"
        "The place of a node comes from the runtime's own assignment and from the provider of its "
        "kernels, never from names. Shares count operators: nodes of the model that are no constants and no "
        "quantisers. The quantisation of inputs and outputs runs on the CPU as intended.\n"
        "Exit code 0: all nodes run on the NPU; 1: some nodes of an NPU device do not; 2: wrong usage "
        "or a file problem; 3: a capture is of a different model; 5: a device failed.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_CAPTURES_OR_MODEL, 1, CLI_ANY_NUMBER),
};
