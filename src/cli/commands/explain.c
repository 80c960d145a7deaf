/* `npudiff explain`: options, parts, output, exit code. docs/reference/verdicts.md. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands/report_documents.h"
#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/capture/captured_model.h"

struct values {
    const char *quantised, *float_model, *probe;
    struct cli_list untouched, dims;
    size_t n_samples;
    struct cli_integer n_effect_samples;
    size_t n_threads;
    struct cli_answer answer;
    bool verbose, layers, hide_placement, strict, identify;
    struct cli_part part;
    struct cli_list merge;
    const char *report;
    size_t memory_mib, memory_limit_mib;
    double time_limit_s;
};

enum { MIN_TABLE = 120, DEFAULT_OUTPUT_EFFECT_SAMPLES = 16 };

static size_t n_output_effect_samples(const struct values *values)
{
    return values->n_effect_samples.is_given ? (size_t)values->n_effect_samples.value
                                             : DEFAULT_OUTPUT_EFFECT_SAMPLES;
}

static enum nd_status open_captures(const char *const *paths, size_t n, struct nd_capture **captures,
                                    struct nd_error *err)
{
    for (size_t i = 0; i < n; i++)
        CLI_TRY(nd_capture_open(paths[i], &captures[i], err));
    return ND_OK;
}

static int print(const struct values *values, const struct nd_model *model,
                 const struct nd_capture *const *captures, size_t n, const struct nd_explanation *explanation)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_identification_destroy) struct nd_identification *identification = NULL;
    char *text = NULL;
    bool has_tables = values->verbose || values->layers;
    size_t width = cli_text_width(values->answer.width);
    const struct nd_identify_options options = {.struct_size = sizeof options,
                                                .probe = values->probe,
                                                .n_samples = values->n_samples,
                                                .n_threads = values->n_threads};
    if (values->identify && nd_identify_captures(model, captures, n, &options, &identification, &err) != ND_OK)
        return cli_report_error(&err);
    enum nd_status status =
        values->answer.json ? nd_report_explanation_json(explanation, identification, &text, &err)
        : has_tables
            ? nd_report_explanation_text(explanation, identification, width > MIN_TABLE ? width : MIN_TABLE,
                                         values->layers, &text, &err)
            : nd_report_explanation_brief(explanation, identification, width, &text, &err);
    return cli_print_answer(status, text, &values->answer, &err);
}

static void show_progress(void *context, size_t n_done, size_t n_samples)
{
    cli_progress_count(context, "explain", "layers", "samples", n_done, n_samples);
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
    int printed = cli_is_silent(&values->answer)
                      ? (int)ND_EXIT_SAME
                      : print(values, subject->model, subject->captures, subject->n, explanation);
    if (values->report != NULL) {
        char *json = NULL;
        enum nd_status status = nd_report_explanation_json(explanation, NULL, &json, &err);
        printed = cli_worse(printed, cli_report_tell(values->report, "explain", &(const struct cli_answer){0},
                                                     status, json, NULL, &err));
    }
    return printed != ND_EXIT_SAME ? printed : exit_code;
}

/* An operator that cannot be evaluated leaves the question open; a file that cannot be read is trouble. */
static int explain(const struct values *values, const struct subject *subject,
                   struct nd_capture *const *untouched)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_explanation_destroy) struct nd_explanation *explanation = NULL;
    CLI_FREED char *part = NULL;
    struct cli_progress *progress = cli_progress_create(1, 1, values->answer.quiet);
    struct nd_explain_options options = {.struct_size = sizeof options,
                                         .probe = values->probe,
                                         .n_samples = values->n_samples,
                                         .n_output_effect_samples = n_output_effect_samples(values),
                                         .untouched = (const struct nd_capture *const *)untouched,
                                         .n_untouched = values->untouched.n,
                                         .n_threads = values->n_threads,
                                         .memory_bytes = values->memory_mib << 20,
                                         .hides_placement = values->hide_placement,
                                         .is_strict = values->strict,
                                         .is_cancelled = cli_signals_came,
                                         .progress = show_progress,
                                         .progress_context = progress,
                                         .merge = values->merge.items,
                                         .n_merge = values->merge.n,
                                         .part = values->part.part,
                                         .n_parts = values->part.n_parts};
    cli_signals_catch();
    enum nd_status status = values->part.n_parts > 0
                                ? nd_explain_part(subject->model, subject->float_model, subject->captures,
                                                  subject->n, &options, &part, &err)
                                : nd_explain(subject->model, subject->float_model, subject->captures,
                                             subject->n, &options, &explanation, &err);
    cli_progress_destroy(progress);
    if (cli_signals_came(NULL)) {
        cli_stopped_tell("the captures are as they were, and no result is kept", "");
        return ND_EXIT_TROUBLE;
    }
    if (status != ND_OK) {
        int exit_code = cli_report_error(&err);
        return status == ND_ERR_UNSUPPORTED ? (int)ND_EXIT_INCONCLUSIVE : exit_code;
    }
    if (part == NULL)
        return finish(values, subject, explanation);
    cli_print_document(part);
    return ND_EXIT_SAME; /* a part is no verdict */
}

/* 0, or the exit code of options that do not go together. */
static int check(const struct values *values)
{
    if (values->part.n_parts == 0)
        return cli_report_check(values->report);
    if (!values->answer.json)
        return cli_usage_error("explain", "--part needs --json");
    if (values->merge.n > 0 || values->report != NULL || values->identify || values->answer.quiet)
        return cli_usage_error(
            "explain", "--part excludes --merge, --report, --identify and --quiet: a part has no verdict");
    return 0;
}

/* The model that was captured: the one given or found, or the float model where its digest is the capture's;
 * captures of that have no quantised values to explain. */
static enum nd_status find_model(const struct values *values, struct nd_capture *const *captures, size_t n,
                                 struct nd_model **model, struct nd_model **float_model, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    const char *sha256 = nd_capture_string(captures[0], "model", "sha256");
    bool is_of_float = *float_model != NULL && *model == NULL &&
                       (sha256 == NULL || strcmp(sha256, nd_model_sha256(*float_model)) == 0);
    if (*model == NULL && !is_of_float)
        status = cli_captured_model(captures, n, &values->dims, model, err);
    if (*model == NULL && *float_model != NULL && (is_of_float || status == ND_ERR_NOT_FOUND)) {
        *model = *float_model;
        *float_model = NULL;
        status = ND_OK;
    }
    if (status != ND_OK)
        return status;
    CLI_TRY(nd_capture_set_dims(captures[0], *model, err));
    return *float_model != NULL ? nd_capture_set_dims(captures[0], *float_model, err) : ND_OK;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL, *float_model = NULL;
    size_t n_all = n_operands + values->untouched.n;
    int checked = check(values);
    if (checked != 0)
        return checked;
    cli_limit_work(values->time_limit_s, values->memory_limit_mib);
    struct nd_capture **captures = calloc(n_all, sizeof *captures);
    if (captures == NULL)
        return cli_fail_memory();
    enum nd_status status = cli_model_load(values->quantised, &values->dims, &model, &err);
    if (status == ND_OK)
        status = cli_model_load(values->float_model, &values->dims, &float_model, &err);
    if (status == ND_OK)
        status = open_captures(operands, n_operands, captures, &err);
    if (status == ND_OK)
        status = open_captures(values->untouched.items, values->untouched.n, captures + n_operands, &err);
    if (status == ND_OK)
        status = find_model(values, captures, n_operands, &model, &float_model, &err);
    const struct subject subject = {model, float_model, (const struct nd_capture *const *)captures, n_operands};
    int exit_code = status == ND_OK ? explain(values, &subject, captures + n_operands) : cli_report_error(&err);
    for (size_t i = 0; i < n_all; i++)
        nd_capture_close(&captures[i]);
    free(captures);
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_TEXT(0, "quantised", struct values, quantised, CLI_A_MODEL("MODEL"),
             "the ONNX model that was captured (found by the path and the digest that the captures state)"),
    OPT_TEXT(0, "float", struct values, float_model, CLI_A_MODEL("MODEL"),
             "the model before quantisation: splits the output error into quantisation and the chip's part. If "
             "the captures are of this model, only the types of their floats are examined"),
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
    OPT_NUMBER(0, "memory", struct values, memory_mib, "MIB", 16, 1 << 20,
               "hold as many samples and weights at a time as fit into this much memory, at least one sample; "
               "other weights are read again when they are needed (1024)"),
    OPT_TIME_LIMIT(struct values, "give up after S seconds (3600)"),
    OPT_MEMORY_LIMIT(struct values, "give up when more memory is needed (8192)"),
    OPT_PART(
        struct values,
        "evaluate only part K of N of the samples and print it for --merge; needs --json; the exit code is 0"),
    OPT_LIST(0, "merge", struct values, merge, CLI_A_FILE("FILE"),
             "take the evaluation from this part; give all N parts, with the models, captures and options that "
             "they were made with"),
    OPT_VERBOSE(struct values,
                "print everything: the parts of the error, its sources, the layers with the greatest effect"),
    OPT_FLAG(0, "layers", struct values, layers, "print everything, and a table of all layers"),
    OPT_FLAG(0, "hide-placement", struct values, hide_placement,
             "ignore what the captures say about where layers ran; judge that from values and times alone"),
    OPT_FLAG(0, "strict", struct values, strict,
             "a layer whose arithmetic is not known is unexplained, also where its values are within 1 LSB of "
             "exact rounding"),
    OPT_FLAG(
        0, "identify", struct values, identify,
        "list the arithmetics that the captured values allow, for each operator type and device, with --layers "
        "for each layer; uses all probes or that of -p, and 32 samples of each or those of --samples"),
    OPT_REPORT(struct values),
    OPT_ANSWER_SCREEN(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff explain captures/gen3.h5", "Says whether the device is healthy, or which layer is faulty."},
    {"npudiff explain --quantised model.onnx --float float.onnx captures/*.h5",
     "Also says how much of the output error is quantisation and how much is the chip."},
    {"npudiff explain captures/cpu.h5 --layers", "Adds a table of all layers."},
};

const struct cli_command cmd_explain = {
    .name = "explain",
    .role = CLI_FIND,
    .summary = "say whether a device is healthy, and which layer is faulty",
    .synopsis = "[--quantised MODEL] [--float MODEL] CAPTURE.h5 ... [-p PROBE] [--samples N]",
    .details = "Says of every device whether its layers compute what they should:\n"
               "HEALTHY: every layer follows known arithmetic. A layer whose arithmetic is not known counts as "
               "healthy if its values are within 1 LSB of exact rounding, without a bias (not with --strict).\n"
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
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_CAPTURE, 1, CLI_ANY_NUMBER),
};
