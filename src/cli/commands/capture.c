/* `npudiff capture`: options, captures on several devices, exit code. docs/reference/devices.md. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/compare/config.h"
#include "npudiff/devices/device.h"

struct values {
    struct cli_list devices, probes, dims;
    const char *output, *tensors, *store, *log_level, *agent, *htp_config, *deflate;
    size_t repeats, jobs, memory_limit_mib;
    double time_limit_s, stall_limit_s;
    bool prefixes, allow_fallback, skip_untouched, trust_options, allow_nonfinite, profile;
    struct cli_integer link_limit_s; /* 0 is a choice: not at all */
    bool force, resume, clean;
    struct cli_answer answer;
};

/* ---- preparing ---- */

/* Devices, and where their captures go: 0, or the exit code of what is wrong. */
static int prepare_cells(const struct values *values, struct cli_fleet *fleet)
{
    struct nd_error err = {0};
    if (cli_fleet_set_devices(fleet, &values->devices, &err) != ND_OK)
        return cli_report_error(&err);
    if (!cli_ends_with(values->output, ".h5"))
        return cli_name_files(fleet, values->output, ".h5") ? 0 : cli_fail_memory();
    if (fleet->n_cells > 1)
        return cli_usage_error("capture", "several devices need a folder for -o, not the file '%s'",
                               values->output);
    fleet->cells[0].path = strdup(values->output);
    return fleet->cells[0].path != NULL ? 0 : cli_fail_memory();
}

/* All captures, before the first device runs: the exit code, 0 when none is in the way. */
static int check_outputs(const struct values *values, const struct cli_fleet *fleet)
{
    static const char remedy[] =
        "--force overwrites it, --resume keeps complete captures and makes the missing ones";
    int exit_code = 0;
    bool is_folder = !cli_ends_with(values->output, ".h5");
    if (is_folder && access(values->output, F_OK) != 0)
        return 0; /* it is made */
    for (size_t i = 0; i < fleet->n_cells && exit_code == 0; i++)
        exit_code = cli_check_output(fleet->cells[i].path, values->force || values->resume, remedy);
    return exit_code;
}

static void fill_options(const struct values *values, struct nd_capture_options *options)
{
    static const char *const levels[] = {"verbose", "info", "warning", "error"};
    nd_capture_options_init(options);
    options->tensors = values->tensors;
    options->prefixes = values->prefixes;
    options->n_repeats = values->repeats; /* 0: once, and a few samples again */
    if (values->deflate != NULL)
        options->deflate_level = values->deflate[0] - '0'; /* one of the choices "0" to "9" */
    options->store_digests_only = values->store != NULL && strcmp(values->store, "digest") == 0;
    options->allow_fallback = values->allow_fallback;
    options->skips_untouched = values->skip_untouched;
    options->profile = values->profile;
    options->replace = values->force;
    options->resume = values->resume;
    options->clean_device = values->clean;
    if (values->link_limit_s.is_given)
        options->link_limit_s = (double)values->link_limit_s.value;
    options->agent = values->agent;
    for (int i = 0; values->log_level != NULL && i < 4; i++)
        if (strcmp(values->log_level, levels[i]) == 0)
            options->log_severity = i;
    if (values->time_limit_s > 0)
        options->time_limit_s = values->time_limit_s;
    if (values->stall_limit_s > 0)
        options->stall_limit_s = values->stall_limit_s;
    if (values->memory_limit_mib > 0)
        options->memory_limit_bytes = values->memory_limit_mib << 20;
}

/* ---- the command ---- */

static int capture_model(const struct values *values, struct nd_model *model, const struct nd_htp_config *htp)
{
    struct nd_error err = {0};
    const struct cli_list specs = cli_probes_or_default(&values->probes);
    CLI_OWNED(cli_probes_deinit) struct cli_probes probes = {0};
    CLI_OWNED(cli_fleet_deinit)
    struct cli_fleet fleet = {.model = model,
                              .n_threads = values->jobs,
                              .is_quiet = values->answer.quiet,
                              .is_json = values->answer.json,
                              .is_resumable = true,
                              .trusts_options = values->trust_options};
    fill_options(values, &fleet.options);
    fleet.options.htp_config = htp->inner;
    fleet.options.htp_config_outer = htp->outer;
    size_t n_old = 0;
    if (cli_set_dims(model, &values->dims, &err) != ND_OK ||
        nd_probes_check_static(model, specs.items, specs.n, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = prepare_cells(values, &fleet);
    if (exit_code == 0)
        exit_code = check_outputs(values, &fleet);
    if (exit_code != 0)
        return exit_code;
    if (cli_probes_make(model, &specs, values->allow_nonfinite, &probes, &err) != ND_OK)
        return cli_report_error(&err);
    fleet.probes = (const struct nd_probe *const *)probes.items;
    fleet.n_probes = probes.n;
    if (values->resume && cli_resume(&fleet, &err) != ND_OK)
        return cli_report_error(&err);
    const char *qoperator;
    size_t n_qoperators = nd_model_n_qoperators(model, &qoperator);
    if (n_qoperators > 0)
        fprintf(stderr,
                "npudiff: the model is in QOperator format (%zu operators such as %s): npudiff knows no scales "
                "between "
                "them, and an NPU may refuse them; quantise with QuantFormat.QDQ\n",
                n_qoperators, qoperator);
    if (cli_ends_with(values->output, ".h5"))
        return cli_fleet_capture(&fleet);
    if (!cli_make_folder(values->output, &n_old))
        return ND_EXIT_TROUBLE;
    exit_code = cli_fleet_capture(&fleet);
    cli_remove_empty_folder(values->output, n_old);
    return exit_code;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    if (values->devices.n == 0 || values->output == NULL)
        return cli_usage_error("capture", "%s is missing", values->devices.n == 0 ? "-d DEVICE" : "-o DIR");
    if (values->devices.n > 1 && cli_ends_with(values->output, ".h5"))
        return cli_usage_error("capture", "several devices need a folder for -o, not the file '%s'",
                               values->output);
    if (values->resume && values->force)
        return cli_usage_error(
            "capture", "--resume keeps existing captures and --force overwrites them: give one of them");
    if (values->prefixes && values->tensors != NULL && strcmp(values->tensors, "none") == 0)
        return cli_usage_error("capture",
                               "--prefixes records tensors, and --tensors none records none: give one of them");
    CLI_OWNED(nd_htp_config_deinit) struct nd_htp_config htp = {0};
    if ((values->htp_config != NULL && nd_htp_config_read(values->htp_config, &htp, &err) != ND_OK) ||
        nd_model_load(operands[0], &model, &err) != ND_OK)
        return cli_report_error(&err);
    return capture_model(values, model, &htp);
}

static const char *const store_choices[] = {"full", "digest", NULL};
static const char *const level_choices[] = {"verbose", "info", "warning", "error", NULL};
static const char *const deflate_choices[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", NULL};

static const struct cli_option options[] = {
    OPT_LIST('d', "device", struct values, devices, CLI_A_DEVICE,
             "run on this device, such as cpu, htp-sim:gen3, adb:SERIAL, adb:* (every phone) or ssh:HOST; "
             "'npudiff devices' lists them; may be repeated"),
    OPT_LIST('p', "probe", struct values, probes, CLI_A_PROBE,
             "feed these inputs: zeros, ones, ramp, uniform[:N[:SEED]], ties[:N], or your own as NAME=PATH; "
             "see 'npudiff probes'; may be repeated (zeros, ones, ramp and uniform)"),
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("DIR|FILE.h5"),
             "write one capture per device into this folder; with one device it may be a file"),
    OPT_TENSORS(struct values,
                "record these tensors: all, outputs, none, or name patterns separated by commas; with none the "
                "model file runs unchanged and only its outputs are recorded (all)"),
    OPT_FLAG(0, "prefixes", struct values, prefixes,
             "record each tensor in a run of its own, where no other tensor is visible; slow: one session per "
             "tensor"),
    OPT_FLAG(0, "skip-untouched", struct values, skip_untouched,
             "do not run the unchanged model as well; without this option its outputs are compared with the "
             "recorded ones, because recording inner tensors can change what a runtime computes"),
    OPT_TEXT(0, "htp-config", struct values, htp_config, CLI_A_FILE("FILE"),
             "store this HTP configuration (the --config_file of qnn-net-run) in the captures; it changes "
             "nothing in the run, because ONNX Runtime takes no such file: set provider options in the device, "
             "as in 'htp-sim:gen3?vtcm_mb=4'"),
    OPT_NUMBER(
        0, "repeats", struct values, repeats, "N", 1, 10000,
        "run every sample N times (once, and a few samples again, to see whether the device repeats itself)"),
    OPT_DIM(struct values),
    OPT_CHOICE(0, "store", struct values, store, "full|digest", store_choices,
               "store all values, or only their digests (full)"),
    OPT_CHOICE(0, "deflate", struct values, deflate, "0..9", deflate_choices,
               "compression level; 0 does not compress (1)"),
    OPT_FLAG(0, "allow-fallback", struct values, allow_fallback,
             "accept nodes of an NPU device that run on the CPU, and mark their tensors; without it such a "
             "device fails"),
    OPT_FLAG(0, "trust-options", struct values, trust_options,
             "accept options in devices that may name files or load libraries, such as 'ep.context_file_path'; "
             "without it such a device is refused"),
    OPT_ALLOW_NONFINITE(struct values),
    OPT_FORCE(struct values, "overwrite existing captures"),
    OPT_FLAG(0, "resume", struct values, resume,
             "keep complete captures and make the missing ones; an interrupted run continues where it stopped"),
    OPT_FLAG(
        0, "clean", struct values, clean,
        "remove everything from phones and boards afterwards, also the libraries that the next run would need"),
    OPT_JOBS(struct values, "run N devices of this computer at the same time; their latencies are then less "
                            "exact (1). Phones and boards always run at the same time"),
    OPT_TIME_LIMIT(struct values, "stop a device after S seconds (3600)"),
    OPT_REAL(0, "stall-limit", struct values, stall_limit_s, "S", 0.01, 1e7,
             "stop a device that makes no progress for S seconds (600)"),
    OPT_INTEGER(0, "link-limit", struct values, link_limit_s, "S", 0, 1e6,
                "when the connection to a phone or board breaks, wait up to S seconds for it; the device "
                "continues meanwhile (60)"),
    OPT_MEMORY_LIMIT(struct values, "stop a device that needs more memory than this (8192)"),
    OPT_FLAG(0, "profile", struct values, profile,
             "store the profiles of ONNX Runtime and of Qualcomm's provider in the captures, as the logs "
             "'profile' and 'qnn-profile'"),
    OPT_CHOICE(0, "log-level", struct values, log_level, "verbose|info|warning|error", level_choices,
               "store messages of the runtime from this level on (warning)"),
    OPT_AGENT(struct values),
    OPT_ANSWER_PLAIN(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff capture model.onnx -d cpu -d htp-sim:gen3 -o captures",
     "Runs the model on the CPU and on a simulated Snapdragon 8 Gen 3, with built-in inputs."},
    {"npudiff capture model.onnx -d exact -p digits=test.npz -o reference",
     "Feeds your own samples, and computes the model exactly: the reference for other devices."},
    {"npudiff capture model.onnx -d 'adb:*' -o captures --resume",
     "Runs on every phone that is attached, and keeps the captures that are complete."},
};

const struct cli_command cmd_capture = {
    .name = "capture",
    .role = CLI_FIND,
    .summary = "run a model on devices and record every tensor",
    .synopsis = "MODEL.onnx -d DEVICE [-d ...] [-p PROBE ...] -o DIR|FILE.h5",
    .details = "Runs the model with fixed inputs on each device and writes one HDF5 file per device, a "
               "capture. It holds every quantised tensor of every sample.\n"
               "Each device runs in a process of its own. npudiff copies files to a phone or board through adb "
               "or ssh; files that are there already are not copied again.\n"
               "A device that fails gives a capture, too. It is marked as failed and holds the reason and all "
               "samples that were complete.\n"
               "Exit code 0: all captures are complete; 2: wrong usage or a file problem; 5: a device failed.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_MODEL, 1, 1),
};
