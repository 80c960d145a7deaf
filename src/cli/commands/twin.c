/* `npudiff twin check`: is the twin the chip? docs/reference/commands.md#npudiff-twin. */
#include <stdlib.h>
#include <unistd.h>

#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/report/report.h"

struct values {
    struct cli_list devices, probes, dims;
    const char *output, *quantised, *as, *certificate;
    size_t n_threads;
    bool allow_fallback, force, resume;
    struct cli_answer answer;
};

/* Runs the model on the devices, whose captures then are the paths of the fleet's cells. */
static int capture(const struct values *values, struct nd_model *model, struct cli_fleet *fleet)
{
    struct nd_error err = {0};
    CLI_OWNED(cli_probes_deinit) struct cli_probes probes = {0};
    const struct cli_list specs = cli_probes_or_default(&values->probes);
    const char *folder = values->output != NULL ? values->output : "captures";
    size_t n_old = 0;
    nd_capture_options_init(&fleet->options);
    fleet->options.allow_fallback = values->allow_fallback;
    fleet->options.replace = values->force;
    fleet->options.resume = values->resume;
    if (cli_probes_make(model, &specs, false, &probes, &err) != ND_OK)
        return cli_report_error(&err);
    fleet->model = model;
    fleet->probes = (const struct nd_probe *const *)probes.items;
    fleet->n_probes = probes.n;
    if (cli_fleet_set_devices(fleet, &values->devices, &err) != ND_OK)
        return cli_report_error(&err);
    if (!cli_name_files(fleet, folder, ".h5"))
        return cli_fail_memory();
    if (values->resume && cli_resume(fleet, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = cli_make_folder(folder, &n_old) ? cli_fleet_capture(fleet) : ND_EXIT_TROUBLE;
    cli_remove_empty_folder(folder, n_old);
    return exit_code;
}

static enum nd_status check_one(const struct values *values, const char *path, struct nd_model **model,
                                struct nd_twin_check **out, struct nd_error *err)
{
    CLI_OWNED(nd_capture_close) struct nd_capture *chip = NULL;
    CLI_TRY(nd_capture_open(path, &chip, err));
    if (*model == NULL)
        CLI_TRY(values->quantised != NULL ? cli_model_load(values->quantised, &values->dims, model, err)
                                          : cli_captured_model(&chip, 1, &values->dims, model, err));
    CLI_TRY(nd_capture_set_dims(chip, *model, err));
    return nd_twin_check(chip, *model, values->as, values->n_threads, out, err);
}

static int print(const struct values *values, const struct nd_twin_check *const *checks, size_t n,
                 const struct nd_model *model)
{
    static const int exit_codes[] = {[ND_TWIN_EQUAL] = ND_EXIT_SAME,
                                     [ND_TWIN_MARKED] = ND_EXIT_INCONCLUSIVE,
                                     [ND_TWIN_DIFFERS] = ND_EXIT_DIFFERS};
    struct nd_error err = {0};
    char *text = NULL;
    int exit_code = ND_EXIT_SAME;
    for (size_t i = 0; i < n; i++)
        exit_code = cli_worse(exit_code, exit_codes[checks[i]->end]);
    bool is_json = values->answer.json || values->certificate != NULL;
    enum nd_status status = is_json ? nd_report_twin_json(checks, n, model, &text, &err) : ND_OK;
    if (status == ND_OK && values->certificate != NULL)
        exit_code = cli_worse(exit_code, cli_write_text(values->certificate, text, values->force));
    if (status == ND_OK && !values->answer.json) {
        free(text);
        text = NULL;
        status = nd_report_twin_text(checks, n, model, cli_text_width(0), &text, &err);
    }
    return cli_worse(exit_code, cli_print_answer(status, text, &values->answer, &err));
}

static int check(const struct values *values, const char *const *paths, size_t n, struct nd_model **model)
{
    struct nd_error err = {0};
    struct nd_twin_check **checks = calloc(n, sizeof *checks);
    if (checks == NULL)
        return cli_fail_memory();
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < n && status == ND_OK; i++)
        status = check_one(values, paths[i], model, &checks[i], &err);
    int exit_code = status == ND_OK ? print(values, (const struct nd_twin_check *const *)checks, n, *model)
                                    : cli_report_error(&err);
    for (size_t i = 0; i < n; i++)
        nd_twin_check_destroy(&checks[i]);
    free(checks);
    return exit_code;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    struct nd_error err = {0};
    CLI_OWNED(cli_fleet_deinit)
    struct cli_fleet fleet = {.is_quiet = values->answer.quiet || isatty(STDERR_FILENO) != 1,
                              .has_no_table = true,
                              .is_resumable = true};
    bool is_run = values->devices.n > 0;
    if (is_run && (n_operands != 2 || values->quantised != NULL))
        return cli_usage_error("twin", "-d runs one model: 'npudiff twin check MODEL.onnx -d DEVICE'");
    if (!is_run && (values->output != NULL || values->probes.n > 0 || values->allow_fallback || values->resume))
        return cli_usage_error("twin", "-o, -p, --allow-fallback and --resume need -d DEVICE");
    if (values->resume && values->force)
        return cli_usage_error(
            "twin", "--resume keeps existing captures and --force overwrites them: give one of them");
    if (values->certificate != NULL &&
        cli_check_text_output(values->certificate, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    if (!is_run)
        return check(values, operands + 1, n_operands - 1, &model);
    if (cli_model_load(operands[1], &values->dims, &model, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = capture(values, model, &fleet);
    CLI_FREED const char **paths = calloc(fleet.n_cells + 1, sizeof *paths);
    for (size_t i = 0; paths != NULL && i < fleet.n_cells; i++)
        paths[i] = fleet.cells[i].path;
    if (paths == NULL)
        exit_code = cli_fail_memory();
    else if (exit_code == ND_EXIT_SAME)
        exit_code = check(values, paths, fleet.n_cells, &model);
    return exit_code;
}

static const char *const action_names[] = {"check", NULL};

static const struct cli_option options[] = {
    OPT_LIST('d', "device", struct values, devices, CLI_A_DEVICE,
             "run the model on this device, such as htp-sim:gen3 or adb:SERIAL, and compare its twin; may be "
             "repeated"),
    OPT_LIST('p', "probe", struct values, probes, CLI_A_PROBE,
             "with -d: inputs, as for 'npudiff capture'; may be repeated (zeros, ones, ramp and uniform)"),
    OPT_TEXT('o', "output", struct values, output, CLI_A_FOLDER("DIR"),
             "with -d: the folder for the captures (captures)"),
    OPT_TEXT(0, "quantised", struct values, quantised, CLI_A_MODEL("MODEL"),
             "the ONNX model that was captured (found by the path and the digest that the captures state)"),
    OPT_TEXT(0, "as", struct values, as, CLI_A_TEXT("CHIP"),
             "compare this twin, such as gen3 or SM8650@qairt-2.48 (that of the chipset and the SDK that the "
             "capture states)"),
    OPT_TEXT(0, "certificate", struct values, certificate, CLI_A_FILE("CERT.json"),
             "also write what was found: digests of model and captures, and each tensor"),
    OPT_FORCE(struct values, "overwrite existing captures and certificates"),
    OPT_FLAG(0, "resume", struct values, resume, "with -d: keep complete captures and make the missing ones"),
    OPT_FLAG(0, "allow-fallback", struct values, allow_fallback,
             "with -d: accept nodes of an NPU device that run on the CPU"),
    OPT_DIM(struct values),
    OPT_THREADS(struct values),
    OPT_ANSWER_SCREEN(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff twin check model.onnx -d htp-sim:gen3 -o twin-captures",
     "Runs the model on the simulator and on the twin, and says where they differ."},
    {"npudiff twin check captures/gen3.h5 --certificate twin.json",
     "Compares a capture that is there, of a phone or of the simulator, and keeps what was found."},
};

const struct cli_command cmd_twin = {
    .name = "twin",
    .role = CLI_JUDGE,
    .summary = "say whether the twin of a chip gives the chip's values, bit by bit",
    .synopsis =
        "check CAPTURE.h5 ... [--quantised MODEL] | check MODEL.onnx -d DEVICE... [-p PROBE...] [-o DIR]",
    .details =
        "A twin (the device twin:CHIPSET) computes what a Snapdragon makes of a model, without an SDK. 'twin "
        "check' holds it against the real thing: it feeds the inputs of a capture to the twin of its chipset "
        "and SDK, and compares every recorded tensor in every bit.\n"
        "equal: all are equal. not-known: some differ, and the twin says of each of them that it does not know "
        "how the chip makes it, or that it follows from such a one. differs: a tensor differs that the twin "
        "claims to know: the twin is wrong, or the device is no such chip or has a fault ('npudiff explain').\n"
        "Exit code 0: equal; 1: differs; 2: wrong usage or a file problem; 3: nothing to compare; 4: "
        "not-known; "
        "5: a device failed.",
    CLI_TABLES(struct values),
    .actions = action_names,
    CLI_OPERANDS(CLI_VALUE_CAPTURE, 2, CLI_ANY_NUMBER),
};
