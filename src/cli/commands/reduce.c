/* `npudiff reduce`: the smallest part of a model that still fails. */
#include <string.h>

#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/core/parse.h"
#include "npudiff/improve/reduce.h"
#include "npudiff/report/report.h"

struct values {
    const char *device;
    struct cli_list probes, dims;
    const char *output, *differs, *against, *tensor, *agent;
    size_t n_sessions, n_samples;
    double time_limit_s;
    bool allow_fallback, allow_nonfinite, force, verbose;
    struct cli_answer answer;
};

/* ---- options ---- */

/* "3lsb" or "3": steps; "5%": a share of the elements. */
static bool parse_amount(const char *text, struct nd_reduce_options *options)
{
    char number[64];
    size_t n = strlen(text);
    bool is_share = n > 1 && text[n - 1] == '%';
    bool has_unit = n > 3 && strcmp(text + n - 3, "lsb") == 0;
    n -= is_share ? 1 : has_unit ? 3 : 0;
    double amount;
    if (n == 0 || n >= sizeof number)
        return false;
    memcpy(number, text, n);
    number[n] = '\0';
    if (!nd_parse_double(number, &amount) || amount < 0 || (is_share && amount >= 100))
        return false;
    options->has_difference = true;
    if (is_share)
        options->fraction = amount / 100;
    else
        options->lsb = amount;
    return true;
}

/* The bar is at its end when all sessions that are allowed have run. */
static void show_progress(void *context, const struct nd_reduce_progress *progress)
{
    cli_progress_count(context, "reduce", progress->step, "sessions", progress->n_sessions,
                       progress->session_limit);
}

/* ---- the command ---- */

static int report(const struct values *values, const struct nd_reduction *reduction)
{
    static const int exit_codes[] = {ND_EXIT_SAME, ND_EXIT_DIFFERS, ND_EXIT_INCONCLUSIVE,
                                     ND_EXIT_DEVICE_FAILED};
    struct nd_error err = {0};
    char *text = NULL;
    bool has_difference = values->differs != NULL;
    int exit_code = exit_codes[reduction->end];
    enum nd_status status =
        values->answer.json ? nd_report_reduction_json(reduction, has_difference, values->output, &text, &err)
        : values->verbose   ? nd_report_reduction_text(reduction, has_difference, values->output, &text, &err)
                            : nd_report_reduction_brief(reduction, has_difference, values->output,
                                                        cli_text_width(0), &text, &err);
    return cli_worse(exit_code, cli_print_answer(status, text, &values->answer, &err));
}

static int reduce(const struct values *values, const struct nd_model *model, struct nd_reduce_options *options)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_device_deinit) struct nd_device device = {0}, against = {0};
    CLI_OWNED(nd_reduction_destroy) struct nd_reduction *reduction = NULL;
    CLI_OWNED(cli_probes_deinit) struct cli_probes probes = {0};
    if (nd_device_parse(values->device, &device, &err) != ND_OK ||
        (values->against != NULL && nd_device_parse(values->against, &against, &err) != ND_OK) ||
        cli_probes_make(model, &values->probes, values->allow_nonfinite, &probes, &err) != ND_OK)
        return cli_report_error(&err);
    struct cli_progress *progress = cli_progress_create(1, 1, values->answer.quiet);
    options->against = values->against != NULL && against.kind != ND_DEVICE_EXACT ? &against : NULL;
    options->progress = show_progress;
    options->progress_context = progress;
    options->is_cancelled = cli_signals_came;
    cli_signals_catch();
    enum nd_status status =
        nd_reduce(&(struct nd_workload){model, &device, (const struct nd_probe *const *)probes.items, probes.n},
                  options, &reduction, &err);
    cli_progress_destroy(progress);
    int failed = cli_stopped_or_failed(status, &err);
    return failed != 0 ? failed : report(values, reduction);
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    struct nd_reduce_options options;
    nd_reduce_options_init(&options);
    if (values->device == NULL)
        return cli_usage_error("reduce", "-d DEVICE is missing");
    if (values->differs != NULL && !parse_amount(values->differs, &options))
        return cli_usage_error("reduce", "--differs takes Nlsb or N%%, not '%s'", values->differs);
    if (values->differs == NULL && (values->against != NULL || values->tensor != NULL))
        return cli_usage_error("reduce", "--against and --tensor need --differs");
    if (values->output != NULL &&
        cli_check_output_folder(values->output, values->force, "--force overwrites a reproducer") != 0)
        return ND_EXIT_TROUBLE;
    options.folder = values->output;
    options.replace = values->force;
    options.tensor = values->tensor;
    options.allow_fallback = values->allow_fallback;
    options.agent = values->agent;
    if (values->n_sessions > 0)
        options.session_limit = values->n_sessions;
    if (values->n_samples > 0)
        options.n_samples = values->n_samples;
    if (values->time_limit_s > 0)
        options.time_limit_s = values->time_limit_s;
    return cli_model_load(operands[0], &values->dims, &model, &err) == ND_OK ? reduce(values, model, &options)
                                                                             : cli_report_error(&err);
}

static const struct cli_option options[] = {
    OPT_TEXT('d', "device", struct values, device, CLI_A_DEVICE,
             "the device that fails or differs; 'npudiff devices' lists them"),
    OPT_TEXT('o', "output", struct values, output, CLI_A_FOLDER("DIR"),
             "write the small model into this folder, with its inputs, captures of the device and of a "
             "reference, and a README"),
    OPT_FORCE(struct values, "overwrite a small model that is in DIR"),
    OPT_NUMBER(0, "sessions", struct values, n_sessions, "N", ND_REDUCE_MIN_SESSIONS, 1e6,
               "start at most N sessions in total (60)"),
    OPT_LIST('p', "probe", struct values, probes, CLI_A_PROBE,
             "inputs of the whole model; see 'npudiff probes'; may be repeated (zeros)"),
    OPT_ALLOW_NONFINITE(struct values),
    OPT_NUMBER(0, "samples", struct values, n_samples, "N", 1, ND_REDUCE_MAX_SAMPLES,
               "feed the first N samples (4)"),
    OPT_TEXT(0, "differs", struct values, differs, CLI_A_TEXT("Nlsb|N%"),
             "look for a difference instead of a failure: an output that differs by more than N LSB, or in "
             "more than N% of its elements"),
    OPT_TEXT(0, "against", struct values, against, CLI_A_DEVICE,
             "with --differs: compare with this device (exact, the quantised reference); a real device needs "
             "one more session for every part"),
    OPT_TEXT('t', "tensor", struct values, tensor, CLI_A_TENSOR("NAME"),
             "with --differs: look at this tensor (any output)"),
    OPT_DIM(struct values),
    OPT_FLAG(0, "allow-fallback", struct values, allow_fallback,
             "do not count it as a failure when nodes of an NPU device run on the CPU"),
    OPT_TIME_LIMIT(struct values, "a session that takes longer than S seconds has failed (300)"),
    OPT_AGENT(struct values),
    OPT_VERBOSE(struct values, "print the counts of the parts, too: the same failure, a different one, none"),
    OPT_ANSWER(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff reduce model.onnx -d htp-sim:gen3 -o small",
     "Finds the smallest part of the model that the device refuses."},
    {"npudiff reduce model.onnx -d htp-sim:gen3 --differs 1lsb -o small-differs",
     "Finds the smallest part with an output that is more than 1 LSB from exact rounding."},
};

const struct cli_command cmd_reduce = {
    .name = "reduce",
    .role = CLI_MEND,
    .summary = "cut a model down to the smallest part that still fails or differs",
    .synopsis = "MODEL.onnx -d DEVICE [-o DIR] [--sessions N] [--differs Nlsb|N%]",
    .details =
        "Runs the whole model once. If the device refuses it, crashes or takes too long, npudiff runs smaller "
        "and smaller parts of the model, as long as they fail in the same way: same stage, same error, same "
        "message, same first reason in the log. The result is a small model that you can send to the vendor.\n"
        "It tries first what the error message names. Then it leaves out half of the layers, and so on, and at "
        "last single operators.\n"
        "Each part gets the values that a reference had at the cut: the CPU, or the quantised reference, or "
        "zeros. Each part runs in a process of its own. The result is run once more, to find failures that do "
        "not happen every time.\n"
        "With --differs it keeps a part as long as one of its outputs differs from the reference.\n"
        "Exit code 0: a smaller part was found; 1: the model fails, but no smaller part does; 2: wrong usage "
        "or a file problem; 4: the whole model does not fail or differ on this device; 5: the device failed "
        "before it saw the model.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_MODEL, 1, 1),
};
