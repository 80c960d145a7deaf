/* `npudiff encodings`: extracts, compares and applies quantisation parameters. */
#include <stdio.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"

struct values {
    const char *output;
    double rtol;
    bool strict, complete, allow_unknown, force, verbose;
    struct cli_answer answer;
};

/* ---- what can state encodings ---- */

static enum nd_status of_capture(const char *path, struct nd_encodings **out, struct nd_error *err)
{
    CLI_OWNED(nd_capture_close) struct nd_capture *capture = NULL;
    CLI_OWNED(nd_encodings_destroy) struct nd_encodings *made = NULL;
    CLI_TRY(nd_capture_open(path, &capture, err));
    CLI_TRY(nd_encodings_create(path, "capture", &made, err));
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++)
        CLI_TRY(nd_encodings_add_tensor(made, nd_capture_tensor(capture, e), err));
    *out = made;
    made = NULL;
    return ND_OK;
}

static enum nd_status of_model(const char *path, struct nd_encodings **out, struct nd_error *err)
{
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    CLI_TRY(nd_model_load(path, &model, err));
    return nd_encodings_of_model(model, out, err);
}

static enum nd_status read_any(const char *path, struct nd_encodings **out, struct nd_error *err)
{
    if (cli_ends_with(path, ".onnx"))
        return of_model(path, out, err);
    return cli_ends_with(path, ".h5") ? of_capture(path, out, err) : nd_encodings_read(path, out, err);
}

/* ---- subcommands ---- */

static int run_list(const struct values *values, const char *const *paths)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_encodings_destroy) struct nd_encodings *encodings = NULL;
    if (read_any(paths[0], &encodings, &err) != ND_OK)
        return cli_report_error(&err);
    char *text = NULL;
    enum nd_status status = values->answer.json ? nd_report_encodings_json(encodings, &text, &err)
                            : values->verbose
                                ? nd_report_encodings_text(encodings, &text, &err)
                                : nd_report_encodings_brief(encodings, cli_text_width(0), &text, &err);
    return cli_print_answer(status, text, &values->answer, &err);
}

/* Omissions on stderr, what was written on stdout. */
static int print_applied(const struct values *values, const struct nd_encodings_match *match,
                         const struct nd_encodings *encodings, const char *output)
{
    struct nd_error err = {0};
    char *text = NULL;
    for (size_t i = 0; i < match->n_omitted; i++)
        fprintf(stderr, "npudiff: '%s': encoding of '%s' is not applied: %s\n", nd_encodings_path(encodings),
                match->omitted[i].name, match->omitted[i].why);
    if (values->answer.json) {
        enum nd_status status = nd_report_encodings_applied_json(match, encodings, output, &text, &err);
        return cli_print_made(status, text, true, &err);
    }
    if (output == NULL || values->answer.quiet)
        return 0;
    const char *next[] = {"npudiff", "capture", output, "-d", "exact", "-o", "reference.h5"};
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    nd_report_screen_put(screen, "%s: %zu tensor%s quantised with the encodings of %s\n", output,
                         match->n_applicable, match->n_applicable == 1 ? " is" : "s are",
                         nd_encodings_path(encodings));
    nd_report_screen_next(screen, "to compute the quantised reference", next, sizeof next / sizeof next[0]);
    return cli_print_screen(screen);
}

static size_t count_unknown(const struct nd_encodings_match *match)
{
    size_t n = 0;
    for (size_t i = 0; i < match->n_omitted; i++)
        n += match->omitted[i].is_unknown;
    return n;
}

static int apply(const struct values *values, const struct nd_model *model,
                 const struct nd_encodings *encodings)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_encodings_match_deinit) struct nd_encodings_match match = {0};
    int exit_code = 0;
    if (nd_encodings_match(encodings, model, &match, &err) != ND_OK)
        return cli_report_error(&err);
    size_t n_unknown = count_unknown(&match), n = nd_encodings_n(encodings);
    bool is_refused = values->strict && match.n_omitted > 0;
    bool is_other_model = !is_refused && n_unknown > 0 && n_unknown < n && !values->allow_unknown;
    if (is_other_model) {
        exit_code = cli_fail(CLI_E_ENCODINGS_MISMATCH, nd_encodings_path(encodings),
                             "nothing was written: %zu of %zu encodings of '%s' are for tensors that '%s' does "
                             "not have; --allow-unknown leaves them out",
                             n_unknown, n, nd_encodings_path(encodings), nd_model_path(model));
    } else if (is_refused) {
        fprintf(stderr, "npudiff: --strict: nothing was written, as %zu of %zu encodings cannot be applied\n",
                match.n_omitted, n);
        exit_code = ND_EXIT_DIFFERS;
    } else if (nd_encodings_apply(encodings, model, values->output, &err) != ND_OK) {
        exit_code = cli_report_error(&err);
    }
    /* All tensors that the model lacks are told, whatever else is wrong. */
    int printed = print_applied(values, &match, encodings, exit_code == 0 ? values->output : NULL);
    return printed != 0 ? printed : exit_code;
}

static int run_apply(const struct values *values, const char *const *paths)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    CLI_OWNED(nd_encodings_destroy) struct nd_encodings *encodings = NULL;
    size_t n_added = 0;
    if (values->output == NULL)
        return cli_usage_error("encodings", "'apply' needs -o QDQ.onnx");
    if (cli_check_output(values->output, values->force, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    if (nd_model_load(paths[0], &model, &err) != ND_OK || read_any(paths[1], &encodings, &err) != ND_OK ||
        (values->complete && nd_encodings_complete(encodings, model, &n_added, &err) != ND_OK))
        return cli_report_error(&err);
    return apply(values, model, encodings);
}

static int run_diff(const struct values *values, const char *const *paths)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_encodings_destroy) struct nd_encodings *ref = NULL, *test = NULL;
    CLI_OWNED(nd_encodings_diff_deinit) struct nd_encodings_diff diff = {0};
    char *text = NULL;
    if (read_any(paths[0], &ref, &err) != ND_OK || read_any(paths[1], &test, &err) != ND_OK ||
        nd_encodings_compare(ref, test, values->rtol, &diff, &err) != ND_OK)
        return cli_report_error(&err);
    enum nd_status status =
        values->answer.json ? nd_report_encodings_diff_json(&diff, ref, test, &text, &err)
        : values->verbose   ? nd_report_encodings_diff_text(&diff, ref, test, &text, &err)
                            : nd_report_encodings_diff_brief(&diff, ref, test, cli_text_width(0), &text, &err);
    int exit_code = cli_print_answer(status, text, &values->answer, &err);
    return exit_code == 0 && diff.n_same < diff.n_items ? ND_EXIT_DIFFERS : exit_code;
}

/* Something the capture states otherwise, or lacks. */
static bool has_difference(const struct nd_encodings_check *check, const struct nd_capture *capture)
{
    for (size_t i = 0; i < check->n_used; i++) {
        const struct nd_encoding_use *use = &check->uses[i];
        if (use->tensor != SIZE_MAX && nd_capture_tensor(capture, use->tensor)->quant.n > 0 &&
            !use->is_stated_same)
            return true;
    }
    return check->n_without > 0;
}

static int run_check(const struct values *values, const char *const *paths)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_encodings_destroy) struct nd_encodings *encodings = NULL;
    CLI_OWNED(nd_capture_close) struct nd_capture *capture = NULL;
    CLI_OWNED(nd_encodings_check_deinit) struct nd_encodings_check check = {0};
    char *text = NULL;
    if (read_any(paths[0], &encodings, &err) != ND_OK || nd_capture_open(paths[1], &capture, &err) != ND_OK ||
        nd_encodings_check(encodings, capture, &check, &err) != ND_OK)
        return cli_report_error(&err);
    enum nd_status status =
        values->answer.json ? nd_report_encodings_check_json(&check, encodings, capture, &text, &err)
        : values->verbose
            ? nd_report_encodings_check_text(&check, encodings, capture, &text, &err)
            : nd_report_encodings_check_brief(&check, encodings, capture, cli_text_width(0), &text, &err);
    int exit_code = cli_print_answer(status, text, &values->answer, &err);
    return exit_code == 0 && has_difference(&check, capture) ? ND_EXIT_DIFFERS : exit_code;
}

/* ---- the command ---- */

struct subcommand {
    const char *name;
    size_t n_operands;
    int (*run)(const struct values *values, const char *const *paths);
};

static const struct subcommand subcommands[] = {
    {"list", 1, run_list}, {"apply", 2, run_apply}, {"diff", 2, run_diff}, {"check", 2, run_check}};

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct subcommand *subcommand = subcommands;
    while (strcmp(subcommand->name, operands[0]) != 0) /* cli_run has checked that it is one of them */
        subcommand++;
    if (n_operands - 1 != subcommand->n_operands)
        return cli_usage_error("encodings", "'%s' takes %zu file%s, not %zu", subcommand->name,
                               subcommand->n_operands, subcommand->n_operands == 1 ? "" : "s", n_operands - 1);
    return subcommand->run(context, operands + 1);
}

static const char *const action_names[] = {"list", "apply", "diff", "check", NULL};

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("QDQ.onnx"), "apply: the model to write"),
    OPT_FORCE(struct values, "apply: overwrite an existing model"),
    OPT_FLAG(0, "allow-unknown", struct values, allow_unknown,
             "apply: leave out encodings of tensors that the model does not have; without this option they are "
             "an error"),
    OPT_FLAG(0, "strict", struct values, strict,
             "apply: write nothing, and end with exit code 1, when an encoding cannot be applied"),
    OPT_FLAG(0, "complete", struct values, complete,
             "apply: add the encodings that older exports of AIMET lack: int32 biases, and the outputs of "
             "operators that only move values. An NPU needs them to run every node"),
    OPT_REAL(0, "rtol", struct values, rtol, "R", 0, 1,
             "diff: scales may differ by this share of A's scale (0: they must be the same float32)"),
    OPT_VERBOSE(struct values, "list, diff, check: print the table of all tensors, with all digits"),
    OPT_ANSWER(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff encodings list model.onnx", "Lists the scales and zero points in a quantised model."},
    {"npudiff encodings apply float.onnx model.encodings -o qdq.onnx",
     "Puts the encodings that AIMET wrote into the float model."},
    {"npudiff encodings check model.onnx captures/cpu.h5",
     "Says which tensors of a capture have other scales than the model, or reach the end of their range."},
};

const struct cli_command cmd_encodings = {
    .name = "encodings",
    .role = CLI_FILES,
    .summary = "read, apply and compare quantisation parameters of AIMET and QNN",
    .synopsis = "list FILE | apply FLOAT.onnx FILE -o QDQ.onnx | diff A B | check FILE CAPTURE.h5",
    .details =
        "An encoding is the scale, the zero point and the type of a tensor. A FILE is AIMET's JSON (0.6.1, "
        "1.0.0, 2.0.0, 2.1.0), the JSON of qnn-context-binary-utility, a quantised .onnx, or a capture .h5. "
        "All of them are printed in ONNX's form: real = scale * (value - zero point).\n"
        "list: prints the encodings in a file.\n"
        "apply: adds the encodings to the float model as QuantizeLinear and DequantizeLinear. A capture of the "
        "new model on '-d exact' is the quantised reference. Weights are quantised. A bias without an encoding "
        "stays float, as in AIMET's simulation (see --complete). Float encodings and block-wise encodings "
        "cannot be applied: npudiff reports them on stderr and leaves them out. Encodings of tensors that the "
        "model does not have are an error, because they belong to a different model (see --allow-unknown).\n"
        "diff: compares two files, tensor by tensor: scale of B divided by scale of A, and the difference of "
        "the zero points, counted from the lowest value of the type. So int8 with 0 and uint8 with 128 are "
        "equal.\n"
        "check: compares the encodings of a file with those in a capture, and prints which share of the "
        "captured values is at the lowest or highest value (saturation) and how much of the range is used.\n"
        "Exit code 0: same, or done; 1: diff and check found a difference, or a missing encoding; 2: wrong "
        "usage or a file problem.",
    CLI_TABLES(struct values),
    .actions = action_names,
    CLI_OPERANDS(CLI_VALUE_FILE, 1, 3),
};
