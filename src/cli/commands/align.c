/* `npudiff align`: options, what is printed while it works, exit code. docs/science/align.md. */
#include <stdlib.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/improve/align.h"
#include "npudiff/report/report.h"

struct values {
    struct cli_load load;
    const char *output, *certificate, *encodings, *overrides;
    struct cli_list arithmetics;
    const char *chipsets, *layers;
    struct cli_list fit;
    double budget_db;
    size_t n_samples;
    bool no_equalise, force, verbose;
    struct cli_answer answer;
    size_t memory_limit_mib;
    double time_limit_s;
};

/* What the command makes and frees. */
struct work {
    char *chipset_names;
    const char **chipsets; /* [n_chipsets], into it */
    size_t n_chipsets;
    struct cli_work run;
    struct cli_probes fit;
    struct nd_alignment *alignment;
};

static void close_all(struct work *work)
{
    nd_alignment_destroy(&work->alignment);
    cli_probes_deinit(&work->fit);
    free(work->chipsets);
    free(work->chipset_names);
    cli_work_close(&work->run);
}

static void show_progress(void *context, const char *stage, size_t n_done, size_t n_total)
{
    const char *unit = strcmp(stage, "accuracy cost") == 0 ? "samples"
                       : strcmp(stage, "capture") == 0     ? "devices"
                                                           : "";
    cli_progress_count(context, "align", stage, unit, n_done, *unit != '\0' ? n_total : 0);
}

static int report(const struct values *values, const struct nd_alignment *alignment)
{
    static const int exit_codes[] = {ND_EXIT_SAME, ND_EXIT_DIFFERS, ND_EXIT_INCONCLUSIVE, ND_EXIT_DIFFERS};
    struct nd_error err = {0};
    char *text = NULL;
    int exit_code = exit_codes[alignment->end];
    enum nd_status status = values->answer.json ? nd_report_alignment_json(alignment, &text, &err)
                            : values->verbose
                                ? nd_report_alignment_text(alignment, &text, &err)
                                : nd_report_alignment_brief(alignment, cli_text_width(0), &text, &err);
    return cli_worse(exit_code, cli_print_answer(status, text, &values->answer, &err));
}

/* ---- what the options name ---- */

/* The names between commas. */
static enum nd_status split_chipsets(const char *text, struct work *work, struct nd_error *err)
{
    char *rest = NULL;
    if (text == NULL)
        return ND_OK;
    work->chipset_names = strdup(text);
    work->chipsets = calloc(strlen(text) + 1, sizeof *work->chipsets);
    if (work->chipset_names == NULL || work->chipsets == NULL)
        return cli_memory_error(err);
    for (char *name = strtok_r(work->chipset_names, ",", &rest); name != NULL;
         name = strtok_r(NULL, ",", &rest))
        work->chipsets[work->n_chipsets++] = name;
    return ND_OK;
}

/* ---- the command ---- */

static int align(const struct values *values, struct work *work)
{
    struct nd_error err = {0};
    struct nd_align_options options;
    struct cli_progress *progress = cli_progress_create(1, 1, values->answer.quiet);
    nd_align_options_init(&options);
    options.output = values->output;
    options.certificate = values->certificate;
    options.replace = values->force;
    options.float_model = work->run.float_model;
    options.arithmetics = values->arithmetics.items;
    options.n_arithmetics = values->arithmetics.n;
    options.chipsets = work->chipsets;
    options.n_chipsets = work->n_chipsets;
    options.layers = values->layers;
    options.probes = (const struct nd_probe *const *)work->run.probes.items;
    options.n_probes = work->run.probes.n;
    options.fit = (const struct nd_probe *const *)work->fit.items;
    options.n_fit = work->fit.n;
    options.n_samples = values->n_samples;
    if (values->budget_db > 0)
        options.budget_db = values->budget_db;
    /* Scales for a float model whose weights are not scaled. */
    options.keeps_channels = values->no_equalise || values->encodings != NULL || values->overrides != NULL;
    options.devices = work->run.devices.items;
    options.n_devices = work->run.devices.n;
    options.agent = values->load.agent;
    options.n_threads = values->load.n_threads;
    options.is_cancelled = cli_signals_came;
    options.progress = show_progress;
    options.progress_context = progress;
    cli_signals_catch();
    enum nd_status status = nd_align(work->run.model, &options, &work->alignment, &err);
    cli_progress_destroy(progress);
    int failed = cli_stopped_or_failed(status, &err);
    if (failed != 0)
        return failed;
    const struct cli_exports exports = {values->encodings, values->overrides, values->force};
    int exported = work->alignment->output != NULL ? cli_export_scales(work->alignment->output, &exports) : 0;
    return cli_worse(exported, report(values, work->alignment));
}

/* What is written beside the model. */
static int check_files(const struct values *values)
{
    const struct cli_exports exports = {values->encodings, values->overrides, values->force};
    if (values->certificate != NULL && values->output == NULL)
        return cli_usage_error("align", "--certificate needs -o ALIGNED.onnx: it is about that file");
    if (values->certificate != NULL &&
        cli_check_output(values->certificate, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    return cli_check_exports("align", &exports, values->output, "-o ALIGNED.onnx");
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(close_all) struct work work = {0};
    if (values->load.devices.n == 1)
        return cli_usage_error("align", "--verify needs two devices or more, which are compared");
    if (values->load.devices.n > 0 && values->load.probes.n == 0)
        return cli_usage_error("align", "--verify needs -p PROBE: what the devices are fed");
    if (values->budget_db > 0 && (values->load.float_model == NULL || values->load.probes.n == 0))
        return cli_usage_error(
            "align", "--budget needs --float FLOAT.onnx and -p PROBE: they measure the accuracy cost");
    if (values->layers != NULL && strcmp(values->layers, "auto") == 0 && !(values->budget_db > 0))
        return cli_usage_error("align", "--layers auto needs --budget DB, which says how many layers");
    if (values->arithmetics.n == 1 && values->chipsets == NULL)
        return cli_usage_error("align", "--arithmetic needs two or more that are to agree");
    if (values->output != NULL && cli_check_output(values->output, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    int wrong = check_files(values);
    if (wrong != 0)
        return wrong;
    cli_limit_work(values->time_limit_s, values->memory_limit_mib);
    if (split_chipsets(values->chipsets, &work, &err) != ND_OK ||
        cli_work_open(operands[0], &values->load, &work.run, &err) != ND_OK ||
        (values->fit.n > 0 &&
         cli_probes_make(work.run.model, &values->fit, values->load.allow_nonfinite, &work.fit, &err) != ND_OK))
        return cli_report_error(&err);
    return align(values, &work);
}

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("ALIGNED.onnx"),
             "write the aligned model to this file"),
    OPT_TEXT(0, "certificate", struct values, certificate, CLI_A_FILE("CERT.json"),
             "write a certificate of the aligned model to this file; 'npudiff verify' checks it again"),
    OPT_TEXT(0, "encodings", struct values, encodings, CLI_A_FILE("FILE.json"),
             "also write the aligned model's scales as AIMET encodings (1.0.0), which QNN's converters read"),
    OPT_TEXT(0, "overrides", struct values, overrides, CLI_A_FILE("FILE.json"),
             "also write them as TensorQuantOverrides of ONNX Runtime's quantiser (without biases)"),
    OPT_FORCE(struct values, "overwrite existing files"),
    OPT_TEXT(
        0, "float", struct values, load.float_model, CLI_A_MODEL("FLOAT.onnx"),
        "the float model: the weights are rounded anew from it, and the accuracy cost is measured against it"),
    OPT_LIST(0, "arithmetic", struct values, arithmetics, CLI_A_TEXT("NAME"),
             "an arithmetic that must give the same bits: htp-v69, htp-v73, htp-v69:2.48, htp-v73:2.48; may be "
             "repeated (htp-v69 and htp-v73)"),
    OPT_TEXT(
        'c', "chipsets", struct values, chipsets, CLI_A_CHIPSET("NAME,NAME"),
        "chipsets that must give the same bits, such as gen1,gen3; their arithmetics (newest SDK) are used"),
    OPT_TEXT('l', "layers", struct values, layers, CLI_A_TENSORS("WHICH"),
             "give only these layers new scales: names or patterns of tensors with commas; auto: those with "
             "the largest effect on the outputs first, as many as --budget allows (all)"),
    OPT_LIST('d', "verify", struct values, load.devices, CLI_A_DEVICE,
             "run the aligned model on this device and compare all tensors; at least two; 'npudiff devices' "
             "lists them; may be repeated"),
    OPT_LIST('p', "probe", struct values, load.probes, CLI_A_PROBE,
             "inputs for the accuracy cost and for --verify; see 'npudiff probes'; may be repeated"),
    OPT_LIST(0, "fit", struct values, fit, CLI_A_PROBE,
             "inputs that weights are rounded for, up to 8 samples: they should be none of those that measure "
             "the accuracy cost; may be repeated (the first --probe)"),
    OPT_FLAG(0, "no-equalise", struct values, no_equalise,
             "do not scale channels of two layers against each other; --encodings and --overrides imply it"),
    OPT_NUMBER(0, "samples", struct values, n_samples, "N", 1, 1e9,
               "measure the accuracy cost on the first N samples (all)"),
    OPT_REAL(0, "budget", struct values, budget_db, "DB", 1e-6, 1000,
             "write nothing if the signal-to-noise ratio of an output falls by more than DB decibels"),
    OPT_TIME_LIMIT(struct values, "give up after S seconds (3600)"),
    OPT_MEMORY_LIMIT(struct values, "give up when more memory is needed here (8192)"),
    OPT_LOAD(struct values),
    OPT_VERBOSE(struct values, "print the table of all layers, too: multiplier, accuracy cost, proof"),
    OPT_ANSWER(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff align model.onnx --float float.onnx -p digits=test.npz -o aligned.onnx",
     "Writes a model that gives the same bits on all Snapdragon generations, and says what it costs."},
    {"npudiff align model.onnx --verify htp-sim:gen1 --verify htp-sim:gen3 -p uniform -o equal.onnx",
     "Also runs the new model on two chips and compares every tensor."},
    {"npudiff align model.onnx -o proven.onnx --certificate cert.json",
     "Also writes what was proven; 'npudiff verify cert.json proven.onnx' proves it again."},
};

const struct cli_command cmd_align = {
    .name = "align",
    .role = CLI_MEND,
    .summary = "change scales so that all chips give the same bits, and prove it",
    .synopsis = "MODEL.onnx [-o ALIGNED.onnx [--certificate CERT.json]] [--float FLOAT.onnx] [--budget DB] "
                "[--verify DEVICE...] [-p PROBE...]",
    .details =
        "A chip multiplies the sum of a Conv, Gemm or MatMul with a number and rounds. Chips keep different "
        "numbers of bits of this number, so that their results differ. If the number is a power of two, and "
        "the weights fit 8 signed bits, all known chips give the same result. 'align' chooses such scales: "
        "either the weights or the output of a layer become coarser, by at most 2. Weights and biases are "
        "rounded anew, up or down so that errors cancel on inputs like those of --fit. With --float and "
        "inputs, channels between two layers are scaled against each other (equalised) where that gains 0.5 dB "
        "or more. Tensors that share a scale today continue to share it.\n"
        "Then 'align' reads the new model and checks each layer. proven: the known arithmetics give the same "
        "values for every sum that the layer can have. as tested: not proven, but equal on all devices of "
        "--verify. unknown: neither. DIFFERS: for some sums the arithmetics differ (-v shows one), or the "
        "devices do.\n"
        "--layers auto with --budget aligns the layers first whose difference between the chips has the "
        "largest effect on the outputs, as many as the budget allows. It prints the curve: the change in "
        "decibels, and values that still differ. A refusal by --budget prints it, too.\n"
        "The accuracy cost is the signal-to-noise ratio of the outputs before and after, in exact arithmetic "
        "on the samples of -p. Without --float, the distance from the model as it was is printed.\n"
        "Exit code 0: every layer is proven or tested; 1: a layer or a tensor differs, or the accuracy cost is "
        "over --budget (nothing is written then); 2: wrong usage, a file problem, or a model that cannot be "
        "aligned; 4: no layer is known to differ, but some are neither proven nor tested; 5: a device failed.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_MODEL, 1, 1),
};
