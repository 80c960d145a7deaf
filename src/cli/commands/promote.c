/* `npudiff promote`: which layers more bits help, and a model with them. */
#include <string.h>

#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/improve/promote.h"
#include "npudiff/report/report.h"

struct values {
    struct cli_load load;
    const char *output, *encodings, *overrides;
    double budget_percent;
    size_t n_layers;
    bool force, verbose;
    struct cli_answer answer;
};

static void show_progress(void *context, const char *stage, size_t n_done, size_t n_total)
{
    const char *unit = strcmp(stage, "proposals") == 0 ? "proposals" : "devices";
    cli_progress_count(context, "promote", stage, n_total > 1 ? unit : "", n_done, n_total > 1 ? n_total : 0);
}

static int report(const struct values *values, const struct nd_promoted *promoted)
{
    struct nd_error err = {0};
    char *text = NULL;
    int exit_code = promoted->n_kept > 0 ? ND_EXIT_SAME : ND_EXIT_DIFFERS;
    enum nd_status status = values->answer.json ? nd_report_promotion_json(promoted, &text, &err)
                            : values->verbose
                                ? nd_report_promotion_text(promoted, cli_text_width(0), &text, &err)
                                : nd_report_promotion_brief(promoted, cli_text_width(0), &text, &err);
    return cli_worse(exit_code, cli_print_answer(status, text, &values->answer, &err));
}

static int promote(const struct values *values, const struct cli_work *work)
{
    struct nd_error err = {0};
    struct nd_promote_options options;
    CLI_OWNED(nd_promoted_destroy) struct nd_promoted *promoted = NULL;
    struct cli_progress *progress = cli_progress_create(1, 1, values->answer.quiet);
    nd_promote_options_init(&options);
    options.float_model = work->float_model;
    options.probes = (const struct nd_probe *const *)work->probes.items;
    options.n_probes = work->probes.n;
    options.devices = work->devices.items;
    options.n_devices = work->devices.n;
    options.output = values->output;
    options.replace = values->force;
    if (values->n_layers > 0)
        options.n_layers = values->n_layers;
    if (values->budget_percent > 0)
        options.budget_percent = values->budget_percent;
    options.agent = values->load.agent;
    options.n_threads = values->load.n_threads;
    options.progress = show_progress;
    options.progress_context = progress;
    options.is_cancelled = cli_signals_came;
    cli_signals_catch();
    enum nd_status status = nd_promote(work->model, &options, &promoted, &err);
    cli_progress_destroy(progress);
    int failed = cli_stopped_or_failed(status, &err);
    if (failed != 0)
        return failed;
    const struct cli_exports exports = {values->encodings, values->overrides, values->force};
    int exported = promoted->output != NULL ? cli_export_scales(promoted->output, &exports) : 0;
    return cli_worse(exported, report(values, promoted));
}

static int check_values(const struct values *values)
{
    const struct cli_exports exports = {values->encodings, values->overrides, values->force};
    if (values->load.float_model == NULL)
        return cli_usage_error("promote", "--float FLOAT.onnx is needed: the model before quantisation says "
                                          "what is an error, and what its weights were");
    if (values->load.devices.n == 0)
        return cli_usage_error(
            "promote",
            "-d DEVICE is needed: every proposal is measured on it; 'npudiff devices' lists devices");
    if (values->load.probes.n == 0)
        return cli_usage_error("promote", "-p PROBE is needed: the inputs that gains are measured with");
    if (values->output != NULL && cli_check_output(values->output, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    return cli_check_exports("promote", &exports, values->output, "-o PROMOTED.onnx");
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(cli_work_close) struct cli_work work = {0};
    int wrong = check_values(values);
    if (wrong != 0)
        return wrong;
    return cli_work_open(operands[0], &values->load, &work, &err) == ND_OK ? promote(values, &work)
                                                                           : cli_report_error(&err);
}

static const struct cli_option options[] = {
    OPT_TEXT(0, "float", struct values, load.float_model, CLI_A_MODEL("FLOAT.onnx"),
             "the float model that MODEL.onnx was quantised from; needed"),
    OPT_LIST('d', "device", struct values, load.devices, CLI_A_DEVICE,
             "measure every proposal on this device; 'npudiff devices' lists them; may be repeated: then a "
             "proposal has to help on all of them"),
    OPT_LIST('p', "probe", struct values, load.probes, CLI_A_PROBE,
             "inputs that gains are measured with; see 'npudiff probes'; may be repeated"),
    OPT_NUMBER(0, "layers", struct values, n_layers, "N", 1, 1000, "promote at most N layers (4)"),
    OPT_REAL(0, "budget", struct values, budget_percent, "PERCENT", 1e-6, 100,
             "promote only what costs at most PERCENT together: extra bytes by all bytes of activations and "
             "constants, or multiply-adds at 16 bits by all multiply-adds, the larger"),
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("PROMOTED.onnx"),
             "write the promoted model to this file"),
    OPT_TEXT(0, "encodings", struct values, encodings, CLI_A_FILE("FILE.json"),
             "also write its scales as AIMET encodings (1.0.0), which QNN's converters read"),
    OPT_TEXT(0, "overrides", struct values, overrides, CLI_A_FILE("FILE.json"),
             "also write them as TensorQuantOverrides of ONNX Runtime's quantiser, with the conversions "
             "between 8 and 16 bits (without biases)"),
    OPT_FORCE(struct values, "overwrite existing files"),
    OPT_LOAD(struct values),
    OPT_VERBOSE(struct values, "print all proposals, too, and why they were not kept"),
    OPT_ANSWER(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff promote model.onnx --float float.onnx -d htp-sim:gen3 -p digits=test.npz -o promoted.onnx",
     "Gives up to four layers more bits, those with the largest gain for their cost."},
    {"npudiff promote model.onnx --float float.onnx -d htp-sim:gen1 -d htp-sim:gen3 -p uniform --budget 5",
     "Spends at most 5 % more bytes and multiply-adds at 16 bits; every layer has to help on both chips."},
};

const struct cli_command cmd_promote = {
    .name = "promote",
    .role = CLI_MEND,
    .summary = "give more bits to the few layers where they help, measured",
    .synopsis = "MODEL.onnx --float FLOAT.onnx -d DEVICE [-d DEVICE...] -p PROBE [-o PROMOTED.onnx] [--layers "
                "N] [--budget PERCENT]",
    .details =
        "'promote' computes for each layer by how much the outputs come nearer to the float model with 16 bits "
        "for what the layer makes, or with one scale for each channel of its weights, and what that costs. It "
        "tries the changes with the largest gain for their cost first: it puts each into the model, with "
        "conversions between 8 and 16 bits around it and biases rounded anew, and runs the model on all "
        "devices of -d. A change stays if the outputs of every device come nearer to the float model by 0.05 "
        "dB or more. Other changes are taken out again and not shown (-v shows them).\n"
        "What reads or makes a tensor of 16 bits computes with 16 bits as a whole. So the cost of a layer "
        "includes the multiply-adds of its neighbours, and the copies of their other inputs.\n"
        "Exit code 0: at least one layer is promoted; 1: nothing helps, and nothing is written; 2: wrong "
        "usage, a file problem, or a model that has nothing to promote; 3: the float model is a different one; "
        "5: a device failed with the model as it is.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_MODEL, 1, 1),
};
