#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/capture_paths.h"
#include "cli/commands.h"
#include "cli/dim_options.h"
#include "cli/fleet.h"
#include "cli/output.h"
#include "cli/resume_folders.h"
#include "cli/signals.h"
#include "npudiff/device.h"
#include "npudiff/evidence.h"

struct values {
    struct cli_list devices;
    struct cli_list probes;
    struct cli_list dims;
    const char *output;
    const char *edges;
    const char *store;
    const char *log_level;
    const char *agent;
    const char *htp_config;
    const char *deflate;
    size_t repeats;
    size_t jobs;
    size_t memory_limit_mib;
    double time_limit_s;
    double stall_limit_s;
    bool prefixes;
    bool allow_fallback;
    bool allow_nonfinite;
    bool profile;
    struct cli_integer link_limit_s; /* 0 is a choice: not at all */
    bool force;
    bool resume;
    bool clean;
    bool json;
    bool quiet;
};

/* ---- preparing ---- */

/* Devices, and where their captures go. */
static enum nd_status prepare_cells(const struct values *values, struct cli_fleet *fleet, int *usage,
                                    struct nd_error *err)
{
    enum nd_status status = cli_fleet_set_devices(fleet, &values->devices, err);
    if (status != ND_OK)
        return status;
    if (cli_ends_with(values->output, ".h5")) {
        if (fleet->n_cells > 1) {
            *usage = cli_usage_error("capture", "several devices need a folder for -o, not the file '%s'",
                                     values->output);
            return ND_ERR_USAGE;
        }
        fleet->cells[0].path = strdup(values->output);
        status = fleet->cells[0].path != NULL ? ND_OK : cli_memory_error(err);
    } else if (!cli_name_captures(fleet, values->output)) {
        status = cli_memory_error(err);
    }
    return status;
}

/* All captures, before the first device runs: the exit code, 0 when none is in the way. */
static int check_outputs(const struct values *values, const struct cli_fleet *fleet)
{
    static const char remedy[] = "--force replaces it, --resume keeps what is complete and makes the rest";
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
    options->edges = values->edges;
    options->prefixes = values->prefixes;
    options->n_repeats = values->repeats > 0 ? values->repeats : 1;
    if (values->deflate != NULL)
        options->deflate_level = values->deflate[0] - '0'; /* one of the choices "0" to "9" */
    options->store_digests_only = values->store != NULL && strcmp(values->store, "digest") == 0;
    options->allow_fallback = values->allow_fallback;
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

static int capture_model(const struct values *values, struct nd_model *model, struct nd_probe **probes,
                         const struct nd_htp_config *htp)
{
    struct nd_error err = {0};
    int exit_code = ND_EXIT_TROUBLE;
    static const char *default_probes[] = {"zeros", "ones", "ramp", "uniform"};
    const struct cli_list specs =
        values->probes.n > 0 ? values->probes : (struct cli_list){.items = default_probes, .n = 4};
    struct cli_fleet fleet = {.model = model,
                              .probes = (const struct nd_probe *const *)probes,
                              .n_probes = specs.n,
                              .n_threads = values->jobs,
                              .is_quiet = values->quiet,
                              .is_json = values->json};
    fill_options(values, &fleet.options);
    fleet.options.htp_config = htp->inner;
    fleet.options.htp_config_outer = htp->outer;
    int usage = 0;
    size_t n_old = 0;
    enum nd_status status = cli_set_dims("capture", model, &values->dims, &usage, &err);
    if (status == ND_OK)
        status = nd_model_check_static(model, &err);
    if (status == ND_OK)
        status = prepare_cells(values, &fleet, &usage, &err);
    if (status == ND_OK && (usage = check_outputs(values, &fleet)) != 0)
        status = ND_ERR_IO; /* which is told */
    if (status == ND_OK)
        status = (values->allow_nonfinite ? nd_probes_for_model_any
                                          : nd_probes_for_model)(model, specs.items, specs.n, probes, &err);
    if (status == ND_OK && values->resume)
        status = cli_resume(&fleet, &err);
    if (status != ND_OK) {
        exit_code = usage != 0 ? usage : cli_report_error(&err);
    } else if (cli_ends_with(values->output, ".h5")) {
        exit_code = cli_fleet_capture(&fleet);
    } else if (cli_make_folder(values->output, &n_old)) {
        exit_code = cli_fleet_capture(&fleet);
        cli_remove_empty_folder(values->output, n_old);
    }
    cli_fleet_deinit(&fleet);
    return exit_code;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    if (values->devices.n == 0 || values->output == NULL)
        return cli_usage_error("capture", "%s is needed", values->devices.n == 0 ? "-d DEVICE" : "-o DIR");
    if (values->devices.n > 1 && cli_ends_with(values->output, ".h5"))
        return cli_usage_error("capture", "several devices need a folder for -o, not the file '%s'",
                               values->output);
    if (values->resume && values->force)
        return cli_usage_error("capture", "--resume keeps what --force would replace");
    if (values->prefixes && values->edges != NULL && strcmp(values->edges, "none") == 0)
        return cli_usage_error("capture", "--prefixes and --edges none exclude one another");
    struct nd_htp_config htp = {0};
    if (values->htp_config != NULL && nd_htp_config_read(values->htp_config, &htp, &err) != ND_OK)
        return cli_report_error(&err);
    if (nd_model_load(operands[0], &model, &err) != ND_OK) {
        nd_htp_config_deinit(&htp);
        return cli_report_error(&err);
    }
    struct nd_probe **probes = calloc(values->probes.n + 4, sizeof *probes);
    int exit_code = probes != NULL ? capture_model(values, model, probes, &htp) : cli_fail_memory();
    for (size_t i = 0; probes != NULL && i < values->probes.n + 4; i++)
        nd_probe_destroy(&probes[i]);
    free(probes);
    nd_htp_config_deinit(&htp);
    nd_model_destroy(&model);
    cli_signals_end_if_came(); /* only now that everything is cleaned up */
    return exit_code;
}

static const char *const store_choices[] = {"full", "digest", NULL};
static const char *const level_choices[] = {"verbose", "info", "warning", "error", NULL};
static const char *const deflate_choices[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", NULL};

static const struct cli_option options[] = {
    OPT_LIST('d', "device", struct values, devices, CLI_A_DEVICE,
             "a device to run on, such as cpu, htp-sim:gen3, adb:SERIAL, adb:* (every phone) or ssh:HOST "
             "('npudiff devices'); may be repeated"),
    OPT_LIST('p', "probe", struct values, probes, CLI_A_PROBE,
             "inputs: zeros, ones, ramp, uniform[:N[:SEED]], ties[:N], or NAME=PATH ('npudiff probes'); may be "
             "repeated (zeros, ones, ramp, uniform)"),
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("DIR|FILE.h5"),
             "the folder for one capture per device, or the file when there is one device"),
    OPT_TEXT('e', "edges", struct values, edges, CLI_A_TENSORS("WHICH"),
             "all, outputs, none (model untouched, outputs as an application gets them), or name patterns with "
             "commas (all)"),
    OPT_FLAG(0, "prefixes", struct values, prefixes,
             "record every edge in a session of its own, of the model cut behind it, where nothing else is "
             "visible; takes a session per edge"),
    OPT_TEXT(0, "htp-config", struct values, htp_config, CLI_A_FILE("FILE"),
             "keep an HTP configuration (the JSON of qnn-net-run's --config_file, and the file that it names) "
             "with the captures; ONNX Runtime's provider takes no such file, so it configures nothing here: "
             "give the provider's own options in the device ('htp-sim:gen3?vtcm_mb=4')"),
    OPT_NUMBER(0, "repeats", struct values, repeats, "N", 1, 10000, "run every sample N times (1)"),
    OPT_DIM(struct values),
    OPT_CHOICE(0, "store", struct values, store, "full|digest", store_choices,
               "store tensors, or only their digests (full)"),
    OPT_CHOICE(0, "deflate", struct values, deflate, "0..9", deflate_choices,
               "compression level; 0 stores contiguous tensors (1)"),
    OPT_FLAG(0, "allow-fallback", struct values, allow_fallback,
             "accept nodes of an NPU device that run on the CPU; their edges are marked"),
    OPT_ALLOW_NONFINITE(struct values),
    OPT_FORCE(struct values, "replace captures that exist"),
    OPT_FLAG(0, "resume", struct values, resume,
             "keep captures that are complete, make the others; a run on another machine that was interrupted "
             "goes on where it stopped"),
    OPT_FLAG(0, "clean", struct values, clean,
             "leave nothing on other machines afterwards, not even the libraries that a next run would need"),
    OPT_JOBS(struct values, "run N devices of this machine at once; latencies then disturb one another (1). "
                            "Other machines run at the same time in any case, each one device after the other"),
    OPT_TIME_LIMIT(struct values, "stop a device after S seconds (3600)"),
    OPT_REAL(0, "stall-limit", struct values, stall_limit_s, "S", 0.01, 1e7,
             "stop a device that shows no progress for S seconds (600)"),
    OPT_INTEGER(0, "link-limit", struct values, link_limit_s, "S", 0, 1e6,
                "wait S seconds for a device whose link is lost; it goes on meanwhile (60)"),
    OPT_NUMBER(0, "memory-limit", struct values, memory_limit_mib, "MIB", 1, 1 << 24,
               "stop a device whose agent needs more memory (8192)"),
    OPT_FLAG(0, "profile", struct values, profile,
             "store ONNX Runtime's profile as log 'profile', and the CSV of Qualcomm's provider as log "
             "'qnn-profile'"),
    OPT_CHOICE(0, "log-level", struct values, log_level, "verbose|info|warning|error", level_choices,
               "lowest severity of the runtime's log that is stored (warning)"),
    OPT_AGENT(struct values),
    OPT_JSON(struct values),
    OPT_QUIET(struct values),
    {.name = NULL},
};

const struct cli_command cmd_capture = {
    .name = "capture",
    .summary = "run a model on devices and record every tensor",
    .synopsis = "MODEL.onnx -d DEVICE [-d ...] [-p PROBE ...] -o DIR|FILE.h5",
    .details =
        "Runs the model with fixed inputs on each device, in a process of its own, and writes one HDF5 file "
        "per device with every quantised tensor as codes. What a phone or board needs is copied there through "
        "adb or ssh, what it has is not copied again, and the captures of several are made at once.\nA device "
        "that fails still gives a capture, marked failed, with the reason and every sample that was "
        "complete.\nExit code 0: all complete; 2: usage or I/O trouble; 5: a device failed.",
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
    .values_bytes = sizeof(struct values),
    .run = run,
};
