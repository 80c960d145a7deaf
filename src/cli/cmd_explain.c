#include <stdio.h>
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/explain_progress.h"
#include "cli/rows.h"
#include "cli/terminal.h"

struct values {
    const char *quantised;
    const char *float_model;
    const char *probe;
    struct cli_list untouched;
    size_t n_samples;
    struct cli_integer n_harm_samples;
    size_t n_threads;
    size_t width;
    const char *color;
    const char *format;
    bool verbose;
    bool units;
    bool hide_placement;
    bool identify;
    bool json;
    bool quiet;
};

enum { MIN_TABLE = 100, DEFAULT_HARM_SAMPLES = 16 };

static size_t n_harm_samples(const struct values *values)
{
    return values->n_harm_samples.is_given ? (size_t)values->n_harm_samples.value : DEFAULT_HARM_SAMPLES;
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
    bool has_tables = values->verbose || values->units;
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
                                            values->units, &text, &err);
    else
        status = nd_report_explanation_brief(explanation, identification, width, &text, &err);
    nd_identification_destroy(&identification);
    return cli_print_answer(status, text, &(struct cli_style){values->json, values->color, values->format},
                            &err);
}

/* An operator that cannot be evaluated leaves the question open; a file that cannot be read is trouble. */
static int explain(const struct values *values, const struct nd_model *model,
                   const struct nd_model *float_model, struct nd_capture *const *captures, size_t n,
                   struct nd_capture *const *untouched)
{
    struct nd_error err = {0};
    struct nd_explanation *explanation = NULL;
    struct explain_progress progress;
    const struct nd_explain_options options = {.struct_size = sizeof options,
                                               .probe = values->probe,
                                               .n_samples = values->n_samples,
                                               .n_harm_samples = n_harm_samples(values),
                                               .untouched = (const struct nd_capture *const *)untouched,
                                               .n_untouched = values->untouched.n,
                                               .n_threads = values->n_threads,
                                               .hides_placement = values->hide_placement,
                                               .progress = values->quiet ? NULL : explain_progress_update,
                                               .progress_context = &progress};
    explain_progress_begin(&progress);
    enum nd_status status = nd_explain(model, float_model, (const struct nd_capture *const *)captures, n,
                                       &options, &explanation, &err);
    explain_progress_end(&progress);
    if (status != ND_OK) {
        int code = cli_report_error(&err);
        return status == ND_ERR_UNSUPPORTED ? (int)ND_EXIT_INCONCLUSIVE : code;
    }
    int exit_code = (int)nd_health_exit_code(explanation->health);
    int printed = values->quiet
                      ? (int)ND_EXIT_SAME
                      : print(values, model, (const struct nd_capture *const *)captures, n, explanation);
    nd_explanation_destroy(&explanation);
    return printed != ND_EXIT_SAME ? printed : exit_code;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_model *model = NULL, *float_model = NULL;
    size_t n_all = n_operands + values->untouched.n;
    /* A float model by itself takes the place of the quantised one: its captures have no codes to explain. */
    const char *captured = values->quantised != NULL ? values->quantised : values->float_model;
    if (captured == NULL)
        return cli_usage_error("explain", "--quantised MODEL is needed");
    struct nd_capture **captures = calloc(n_all, sizeof *captures);
    if (captures == NULL)
        return cli_fail_memory();
    enum nd_status status = nd_model_load(captured, &model, &err);
    if (status == ND_OK && values->quantised != NULL && values->float_model != NULL)
        status = nd_model_load(values->float_model, &float_model, &err);
    if (status == ND_OK)
        status = open_captures(operands, n_operands, captures, &err);
    if (status == ND_OK)
        status = open_captures(values->untouched.items, values->untouched.n, captures + n_operands, &err);
    int exit_code = status == ND_OK
                        ? explain(values, model, float_model, captures, n_operands, captures + n_operands)
                        : cli_report_error(&err);
    for (size_t i = 0; i < n_all; i++)
        nd_capture_close(&captures[i]);
    free(captures);
    nd_model_destroy(&float_model);
    nd_model_destroy(&model);
    return exit_code;
}

static const struct cli_option options[] = {
    OPT_TEXT(0, "quantised", struct values, quantised, CLI_A_MODEL("MODEL"),
             "the ONNX model that was captured; needed unless that is the float model"),
    OPT_TEXT(0, "float", struct values, float_model, CLI_A_MODEL("MODEL"),
             "the same before quantisation: tells quantisation error from divergence; alone: the captures are "
             "of this one, and only the types of their floats are examined"),
    OPT_TEXT('p', "probe", struct values, probe, CLI_A_PROBE,
             "look at that one (the one with the most samples that all captures hold)"),
    OPT_LIST(0, "untouched", struct values, untouched, CLI_A_CAPTURE,
             "a capture of the same device with --edges none or outputs: tells whether making intermediates "
             "visible changes the outputs; may be given for every device"),
    OPT_NUMBER(0, "samples", struct values, n_samples, "N", 1, 1e9, "look at the first N samples (all)"),
    OPT_INTEGER(0, "harm-samples", struct values, n_harm_samples, "N", 0, 1e9,
                "measure in N of them what each unit's local error alone does to the outputs: one run of the "
                "model for each (16; 0: do not)"),
    OPT_THREADS(struct values),
    OPT_WIDTH(struct values),
    OPT_COLOR(struct values),
    OPT_FORMAT(struct values),
    OPT_FLAG('v', "verbose", struct values, verbose,
             "print everything: the parts of the error, its sources, the layers with the greatest effect"),
    OPT_FLAG(0, "units", struct values, units, "the same, and a table of all layers"),
    OPT_FLAG(0, "hide-placement", struct values, hide_placement,
             "judge where units ran by values and times alone, without what the captures' placement says"),
    OPT_FLAG(0, "identify", struct values, identify,
             "name the programs that the captures leave possible, by operator type and device, with --units by "
             "unit; from all probes or that of -p, and 32 samples of each or those of --samples"),
    OPT_JSON(struct values),
    OPT_QUIET_ANSWER(struct values),
    {.name = NULL},
};

const struct cli_command cmd_explain = {
    .name = "explain",
    .summary = "say whether a device is healthy, which layer is faulty, and what is quantisation",
    .synopsis = "--quantised MODEL [--float MODEL] CAPTURE.h5 ... [-p PROBE] [--samples N]",
    .details =
        "Says of every device whether its layers do what they should. HEALTHY: every layer follows known "
        "arithmetic, however large the chip's part of the error is. FAULTY: a layer's values are those that a "
        "fault predicts, or are further off than any rounding can bring them; the layer and the fault are "
        "named. UNEXPLAINED: some layer does not follow known arithmetic, and nothing shows a fault. "
        "INCONCLUSIVE: not every layer could be examined.\nThe quantised model is evaluated exactly, once from "
        "the probe's inputs (the quantised reference) and once per device and layer from the values that the "
        "device itself had there. What the layer's own inputs do not give was made there; the rest of a "
        "difference is inherited. The capture's chipset says which arithmetic is expected: v69 or v73 of "
        "Qualcomm's HTP, bit for bit, or floats of a CPU. Values may refute that, but do not choose a "
        "different arithmetic; without a chipset the values identify it. Layers that a provider runs as one, "
        "encodings that it forces, and differences from run to run are tried before a layer is accused.\nWith "
        "the float model, the error at the outputs is split into quantisation and the device's own part. The "
        "shares are of the sum of their two energies.\nCaptures are held against the model, too: another scale "
        "or zero point, values called by another type, floats where quantised values should be, values that "
        "pile up at the end of their type or never change. That does not change the exit code.\nWith "
        "--identify every value is held against the whole table of programs (rounding, double rounding, "
        "multiplier bits, granules, accumulators, floats, chance). What is reported is the set that is not "
        "excluded, never a guess of one: 'single' when one class is left and leaves at most 1 in 1000 of what "
        "round half to even leaves, 'several', 'none' with the nearest, or 'too-few' values.\nWhere a layer "
        "ran is judged from its values and the capture's placement, each with a weight in bits; where they "
        "contradict each other, both are shown. This does not change the exit code either.\nExit code 0: "
        "healthy; 1: faulty or unexplained; 2: trouble; 3: captures of another model, or of other inputs; 4: "
        "inconclusive; 5: a device had failed. Of several devices the worst counts: failed, faulty, "
        "unexplained, inconclusive, healthy.",
    .options = options,
    .min_operands = 1,
    .max_operands = CLI_ANY_NUMBER,
    .values_bytes = sizeof(struct values),
    .run = run,
};
