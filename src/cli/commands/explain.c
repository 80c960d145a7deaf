#include <stdio.h>
#include <stdlib.h>

#include "cli/options/commands.h"
#include "cli/options/dim_options.h"
#include "cli/options/part_option.h"
#include "cli/terminal/progress.h"
#include "cli/commands/report_file.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/stopped.h"
#include "cli/terminal/terminal.h"

struct values {
    const char *quantised;
    const char *float_model;
    const char *probe;
    struct cli_list untouched;
    struct cli_list dims;
    size_t n_samples;
    struct cli_integer n_effect_samples;
    size_t n_threads;
    size_t width;
    const char *color;
    const char *format;
    bool verbose;
    bool layers;
    bool hide_placement;
    bool identify;
    const char *part;
    struct cli_list merge;
    const char *report;
    bool json;
    size_t memory_mib;
    bool quiet;
};

enum { MIN_TABLE = 120, DEFAULT_HARM_SAMPLES = 16 };

static size_t n_harm_samples(const struct values *values)
{
    return values->n_effect_samples.is_given ? (size_t)values->n_effect_samples.value : DEFAULT_HARM_SAMPLES;
}

static enum nd_status open_captures(const char *const *paths, size_t n, struct nd_capture **captures,
                                    struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = nd_capture_open(paths[i], &captures[i], err);
    return status;
}

static int print(const struct values *values, const struct nd_model *model,
                 const struct nd_capture *const *captures, size_t n, const struct nd_explanation *explanation)
{
    struct nd_error err = {0};
    struct nd_identification *identification = NULL;
    char *text = NULL;
    bool has_tables = values->verbose || values->layers;
    size_t width = cli_text_width(values->width);
    const struct nd_identify_options options = {.struct_size = sizeof options,
                                                .probe = values->probe,
                                                .n_samples = values->n_samples,
                                                .n_threads = values->n_threads};
    if (values->identify && nd_identify_captures(model, captures, n, &options, &identification, &err) != ND_OK)
        return cli_report_error(&err);
    enum nd_status status;
    if (values->json)
        status = nd_report_explanation_json(explanation, identification, &text, &err);
    else if (has_tables)
        status = nd_report_explanation_text(explanation, identification, width > MIN_TABLE ? width : MIN_TABLE,
                                            values->layers, &text, &err);
    else
        status = nd_report_explanation_brief(explanation, identification, width, &text, &err);
    nd_identification_destroy(&identification);
    return cli_print_answer(status, text, &(struct cli_style){values->json, values->color, values->format},
                            &err);
}

static void show_progress(void *context, size_t n_done, size_t n_samples)
{
    cli_progress_show(
        context, 0,
        &(struct cli_progress_state){
            .label = "explain", .stage = "layers", .unit = "samples", .done = n_done, .total = n_samples});
}

/* What is explained. */
struct subject {
    const struct nd_model *model, *float_model;
    const struct nd_capture *const *captures;
    size_t n;
};

/* Prints the explanation; its exit code. */
static int finish(const struct values *values, const struct subject *subject,
                  const struct nd_explanation *explanation)
{
    struct nd_error err = {0};
    int exit_code = (int)nd_health_exit_code(explanation->health);
    int printed = values->quiet && !values->json
                      ? (int)ND_EXIT_SAME
                      : print(values, subject->model, subject->captures, subject->n, explanation);
    if (values->report != NULL) {
        char *json = NULL;
        enum nd_status status = nd_report_explanation_json(explanation, NULL, &json, &err);
        printed = cli_worse(printed, cli_report_write_one(values->report, "explain", status, json, &err));
    }
    return printed != ND_EXIT_SAME ? printed : exit_code;
}

/* An operator that cannot be evaluated leaves the question open; a file that cannot be read is trouble. */
static int explain(const struct values *values, const struct subject *subject,
                   struct nd_capture *const *untouched)
{
    struct nd_error err = {0};
    struct nd_explanation *explanation = NULL;
    char *part = NULL;
    struct cli_progress *progress = cli_progress_create(1, 1, values->quiet);
    struct nd_explain_options options = {.struct_size = sizeof options,
                                         .probe = values->probe,
                                         .n_samples = values->n_samples,
                                         .n_harm_samples = n_harm_samples(values),
                                         .untouched = (const struct nd_capture *const *)untouched,
                                         .n_untouched = values->untouched.n,
                                         .n_threads = values->n_threads,
                                         .memory_bytes = values->memory_mib << 20,
                                         .hides_placement = values->hide_placement,
                                         .is_cancelled = cli_signals_came,
                                         .progress = show_progress,
                                         .progress_context = progress,
                                         .merge = values->merge.items,
                                         .n_merge = values->merge.n};
    cli_signals_catch();
    enum nd_status status;
    if (values->part != NULL && cli_parse_part(values->part, &options.part, &options.n_parts))
        status = nd_explain_part(subject->model, subject->float_model, subject->captures, subject->n, &options,
                                 &part, &err);
    else
        status = nd_explain(subject->model, subject->float_model, subject->captures, subject->n, &options,
                            &explanation, &err);
    cli_progress_destroy(progress);
    int exit_code = ND_EXIT_SAME; /* a part is no verdict */
    if (cli_signals_came(NULL)) {
        cli_stopped_tell("the captures are as they were, and no result is kept", "");
        exit_code = ND_EXIT_TROUBLE;
    } else if (status != ND_OK) {
        exit_code = cli_report_error(&err);
        exit_code = status == ND_ERR_UNSUPPORTED ? (int)ND_EXIT_INCONCLUSIVE : exit_code;
    } else if (part != NULL) {
        cli_print_document(part);
    } else {
        exit_code = finish(values, subject, explanation);
    }
    free(part);
    nd_explanation_destroy(&explanation);
    return exit_code;
}

/* 0, or the exit code of options that do not go together. */
static int check(const struct values *values)
{
    size_t part, n_parts;
    if (values->quantised == NULL && values->float_model == NULL)
        return cli_usage_error("explain", "--quantised MODEL is missing: the ONNX model that was captured");
    if (values->part == NULL)
        return cli_report_check(values->report);
    if (!cli_parse_part(values->part, &part, &n_parts))
        return cli_part_error("explain", values->part);
    if (!values->json)
        return cli_usage_error("explain", "--part needs --json");
    if (values->merge.n > 0 || values->report != NULL || values->identify || values->quiet)
        return cli_usage_error("explain", "--part excludes --merge, --report, --identify and --quiet: a part "
                                          "has no verdict");
    return 0;
}

/* The float model has the same inputs, so it gets the same dimensions. */
static enum nd_status load_models(const struct values *values, const char *captured, struct nd_model **model,
                                  struct nd_model **float_model, int *usage, struct nd_error *err)
{
    enum nd_status status = nd_model_load(captured, model, err);
    if (status == ND_OK && values->quantised != NULL && values->float_model != NULL)
        status = nd_model_load(values->float_model, float_model, err);
    if (status == ND_OK)
        status = cli_set_dims("explain", *model, &values->dims, usage, err);
    if (status == ND_OK && *float_model != NULL)
        status = cli_set_dims("explain", *float_model, &values->dims, usage, err);
    return status;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_model *model = NULL, *float_model = NULL;
    size_t n_all = n_operands + values->untouched.n;
    /* A float model by itself takes the place of the quantised one: its captures have no codes to explain. */
    const char *captured = values->quantised != NULL ? values->quantised : values->float_model;
    int checked = check(values);
    if (checked != 0)
        return checked;
    struct nd_capture **captures = calloc(n_all, sizeof *captures);
    if (captures == NULL)
        return cli_fail_memory();
    int usage = 0;
    enum nd_status status = load_models(values, captured, &model, &float_model, &usage, &err);
    if (status == ND_OK)
        status = open_captures(operands, n_operands, captures, &err);
    if (status == ND_OK)
        status = open_captures(values->untouched.items, values->untouched.n, captures + n_operands, &err);
    const struct subject subject = {model, float_model, (const struct nd_capture *const *)captures, n_operands};
    int exit_code = status == ND_OK ? explain(values, &subject, captures + n_operands)
                    : usage != 0    ? usage
                                    : cli_report_error(&err);
    for (size_t i = 0; i < n_all; i++)
        nd_capture_close(&captures[i]);
    free(captures);
    nd_model_destroy(&float_model);
    nd_model_destroy(&model);
    cli_signals_end_if_came();
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_TEXT(0, "quantised", struct values, quantised, CLI_A_MODEL("MODEL"),
             "the ONNX model that was captured; needed, unless the captures are of the float model"),
    OPT_TEXT(0, "float", struct values, float_model, CLI_A_MODEL("MODEL"),
             "the model before quantisation: splits the output error into quantisation and the chip's part. "
             "Alone: the captures are of this model, and only the types of their floats are examined"),
    OPT_TEXT('p', "probe", struct values, probe, CLI_A_PROBE_NAME,
             "examine this probe (the one with the most samples that all captures hold)"),
    OPT_LIST(0, "untouched", struct values, untouched, CLI_A_CAPTURE,
             "a capture of the same device with --tensors none or outputs: shows whether recording inner "
             "tensors changes the outputs; may be repeated, once per device"),
    OPT_DIM(struct values),
    OPT_NUMBER(0, "samples", struct values, n_samples, "N", 1, 1e9, "examine the first N samples (all)"),
    OPT_INTEGER(0, "effect-samples", struct values, n_effect_samples, "N", 0, 1e9,
                "measure each layer's own effect on the outputs with N samples; each sample is one run of the "
                "model per layer; 0 skips it (16)"),
    OPT_THREADS(struct values),
    OPT_NUMBER(
        0, "memory", struct values, memory_mib, "MIB", 16, 1 << 20,
        "hold as many samples and weights at a time as fit into this much memory, at least one sample; other "
        "weights are read again when they are needed (1024)"),
    OPT_TEXT(
        0, "part", struct values, part, CLI_A_TEXT("K/N"),
        "evaluate only part K of N of the samples and print it for --merge; needs --json; the exit code is "
        "0"),
    OPT_LIST(0, "merge", struct values, merge, CLI_A_FILE("FILE"),
             "take the evaluation from this part; give all N parts, with the models, captures and options that "
             "they were made with"),
    OPT_WIDTH(struct values),
    OPT_COLOR(struct values),
    OPT_FORMAT(struct values),
    OPT_VERBOSE(struct values,
                "print everything: the parts of the error, its sources, the layers with the greatest effect"),
    OPT_FLAG(0, "layers", struct values, layers, "print everything, and a table of all layers"),
    OPT_FLAG(0, "hide-placement", struct values, hide_placement,
             "ignore what the captures say about where layers ran; judge that from values and times alone"),
    OPT_FLAG(
        0, "identify", struct values, identify,
        "list the arithmetics that the captured values allow, for each operator type and device, with --layers "
        "for each layer; uses all probes or that of -p, and 32 samples of each or those of --samples"),
    OPT_REPORT(struct values),
    OPT_JSON(struct values),
    OPT_QUIET_ANSWER(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff explain --quantised model.onnx captures/gen3.h5",
     "Says whether the device is healthy, or which layer is faulty."},
    {"npudiff explain --quantised model.onnx --float float.onnx captures/*.h5",
     "Also says how much of the output error is quantisation and how much is the chip."},
    {"npudiff explain --quantised model.onnx captures/cpu.h5 --layers", "Adds a table of all layers."},
    {NULL, NULL},
};

const struct cli_command cmd_explain = {
    .name = "explain",
    .summary = "say whether a device is healthy, which layer is faulty, and what is quantisation",
    .synopsis = "--quantised MODEL [--float MODEL] CAPTURE.h5 ... [-p PROBE] [--samples N]",
    .details = "Says of every device whether its layers compute what they should:\n"
               "HEALTHY: every layer follows known arithmetic.\n"
               "FAULTY: a layer has a fault; the layer and the fault are named. Either the fault predicts the "
               "wrong values, or no rounding can explain them.\n"
               "UNEXPLAINED: a layer does not follow known arithmetic, and nothing proves a fault.\n"
               "INCONCLUSIVE: some layers could not be examined.\n"
               "npudiff computes each layer exactly from the values that its inputs had on the device. So a "
               "layer is never blamed for an error that an earlier layer passed on. The chipset in the capture "
               "says which arithmetic is expected: v69 or v73 of Qualcomm's HTP, or the floats of a CPU. "
               "Before it blames a layer, npudiff tries layers that the provider runs as one, scales that the "
               "provider forces, and differences from run to run.\n"
               "It also warns when captures do not fit the model: other scales or zero points, other types, "
               "values that never change. These warnings do not change the exit code.\n"
               "With --identify every value is compared with a table of arithmetics. The result is the set "
               "that remains possible: 'single', 'several', 'none' with the nearest one, or 'too-few' values.\n"
               "Exit code 0: healthy; 1: faulty or unexplained; 2: wrong usage or a file problem; 3: captures "
               "of a different model or of different inputs; 4: inconclusive; 5: a device had failed. The "
               "worst device decides, in the order failed, faulty, unexplained, inconclusive, healthy.",
    .examples = examples,
    .options = options,
    .operand = CLI_VALUE_CAPTURE,
    .min_operands = 1,
    .max_operands = CLI_ANY_NUMBER,
    .values_bytes = sizeof(struct values),
    .run = run,
};
