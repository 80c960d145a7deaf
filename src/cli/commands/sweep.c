/* `npudiff sweep`: which settings of a provider change results. */

#include "npudiff/improve/sweep.h"
#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/report/report.h"

struct values {
    struct cli_load load;
    const char *device;
    struct cli_list variations;
    size_t n_repeats;
    bool verbose;
    struct cli_answer answer;
};

static void show_progress(void *context, const char *stage, size_t n_done, size_t n_total)
{
    cli_progress_count(context, "sweep", stage, "settings", n_done, n_total);
}

static int report(const struct values *values, const struct nd_sweep *sweep)
{
    struct nd_error err = {0};
    char *text = NULL;
    int exit_code = sweep->n_failed > 0     ? ND_EXIT_DEVICE_FAILED
                    : sweep->n_changing > 0 ? ND_EXIT_DIFFERS
                                            : ND_EXIT_SAME;
    enum nd_status status = values->answer.json ? nd_report_sweep_json(sweep, &text, &err)
                            : values->verbose   ? nd_report_sweep_text(sweep, cli_text_width(0), &text, &err)
                                                : nd_report_sweep_brief(sweep, cli_text_width(0), &text, &err);
    return cli_worse(exit_code, cli_print_answer(status, text, &values->answer, &err));
}

static int sweep(const struct values *values, const struct cli_work *work)
{
    struct nd_error err = {0};
    struct nd_sweep_options options;
    CLI_OWNED(nd_sweep_destroy) struct nd_sweep *sweep = NULL;
    struct cli_progress *progress = cli_progress_create(1, 1, values->answer.quiet);
    nd_sweep_options_init(&options);
    options.device = values->device;
    options.variations = values->variations.items;
    options.n_variations = values->variations.n;
    options.probes = (const struct nd_probe *const *)work->probes.items;
    options.n_probes = work->probes.n;
    options.float_model = work->float_model;
    options.n_repeats = values->n_repeats;
    options.agent = values->load.agent;
    options.n_threads = values->load.n_threads;
    options.progress = show_progress;
    options.progress_context = progress;
    options.is_cancelled = cli_signals_came;
    cli_signals_catch();
    enum nd_status status = nd_sweep(work->model, &options, &sweep, &err);
    cli_progress_destroy(progress);
    int failed = cli_stopped_or_failed(status, &err);
    return failed != 0 ? failed : report(values, sweep);
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(cli_work_close) struct cli_work work = {0};
    if (values->device == NULL)
        return cli_usage_error("sweep",
                               "-d DEVICE is needed: its options are varied; 'npudiff devices' lists devices");
    struct cli_load load = values->load;
    load.probes = cli_probes_or_default(&values->load.probes);
    return cli_work_open(operands[0], &load, &work, &err) == ND_OK ? sweep(values, &work)
                                                                   : cli_report_error(&err);
}

static const struct cli_option options[] = {
    OPT_TEXT('d', "device", struct values, device, CLI_A_DEVICE,
             "the device whose options are varied, with those that stay: htp-sim:gen3?vtcm_mb=8"),
    OPT_LIST('s', "set", struct values, variations, CLI_A_TEXT("OPTION=VALUE[,VALUE...]"),
             "an option and the values that it gets one after the other, while all others stay; may be "
             "repeated (those that are known to change bits or times)"),
    OPT_LIST('p', "probe", struct values, load.probes, CLI_A_PROBE,
             "inputs; see 'npudiff probes'; may be repeated (zeros, ones, ramp, uniform)"),
    OPT_TEXT(0, "float", struct values, load.float_model, CLI_A_MODEL("FLOAT.onnx"),
             "the float model: also print how near the outputs are to it"),
    OPT_NUMBER(0, "repeats", struct values, n_repeats, "N", 1, 10000,
               "run each sample N times, for steadier times"),
    OPT_LOAD(struct values),
    OPT_VERBOSE(struct values,
                "print also what is known of each option, the largest differences, and failures"),
    OPT_ANSWER(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff sweep model.onnx -d htp-sim:gen3 -p digits=test.npz",
     "Says which options of the QNN provider change bits, and in which layer that starts."},
    {"npudiff sweep model.onnx -d htp-sim:gen3 --set vtcm_mb=2,4,8 --set enable_htp_fp16_precision=0,1 --float "
     "float.onnx",
     "Only these two, and how near the outputs are to the float model."},
};

const struct cli_command cmd_sweep = {
    .name = "sweep",
    .role = CLI_MEND,
    .summary = "which options of a device change bits, accuracy and time",
    .synopsis = "MODEL.onnx -d DEVICE [--set OPTION=VALUE[,VALUE...]...] [-p PROBE...] [--float FLOAT.onnx]",
    .details =
        "Runs the model on the device as it is, and once with each value of each option, one option at a time. "
        "It compares every tensor with that of the device as it is: how many differ, the first of them in "
        "graph order, and how many output values. With labels in the probe it counts right classes, with "
        "--float it prints the signal-to-noise ratio of the outputs. TIME is the median of a run in which all "
        "tensors are recorded: it serves to compare settings.\n"
        "Without --set it varies those options of Qualcomm's QNN provider (and of ONNX Runtime on the CPU) "
        "that are known to change bits or times. An option that may name a file or load a library is refused.\n"
        "Exit code 0: no setting changes a bit; 1: at least one does; 2: wrong usage or a file problem; 5: the "
        "device failed, as it is or with a setting of --set.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_MODEL, 1, 1),
};
