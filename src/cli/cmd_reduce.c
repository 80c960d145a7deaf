#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/rows.h"
#include "cli/signals.h"
#include "npudiff/parse.h"
#include "npudiff/reduce.h"

struct values {
    const char *device;
    struct cli_list probes;
    struct cli_list dims;
    const char *output;
    const char *differs;
    const char *against;
    const char *edge;
    const char *agent;
    size_t n_sessions;
    size_t n_samples;
    double time_limit_s;
    bool allow_fallback;
    bool replace;
    bool json;
    bool quiet;
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

static void show_progress(void *context, const struct nd_reduce_progress *progress)
{
    const bool *is_terminal = context;
    fprintf(stderr, "%sreduce: session %zu of %zu, %s", *is_terminal ? "\r\033[K" : "",
            progress->n_sessions + 1, progress->session_limit, progress->step);
    if (progress->n_left > 0)
        fprintf(stderr, ", %zu parts left", progress->n_left);
    if (!*is_terminal)
        fputc('\n', stderr);
    fflush(stderr);
}

static enum nd_status set_dims(struct nd_model *model, const struct cli_list *dims, int *usage,
                               struct nd_error *err)
{
    for (size_t i = 0; i < dims->n; i++) {
        const char *equals = strchr(dims->items[i], '=');
        int64_t n;
        if (equals == NULL || equals == dims->items[i] || !nd_parse_i64(equals + 1, &n) || n < 1) {
            *usage = cli_usage_error("reduce", "--dim takes NAME=N with N >= 1, not '%s'", dims->items[i]);
            return ND_ERR_USAGE;
        }
        char *name = strndup(dims->items[i], (size_t)(equals - dims->items[i]));
        enum nd_status status = name != NULL ? nd_model_set_dim(model, name, n, err) : ND_ERR_MEMORY;
        free(name);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

/* ---- results ---- */

static json_t *difference_json(const struct nd_reduction_difference *difference)
{
    json_t *steps = isnan(difference->max_lsb) ? json_string("NaN") : json_real(difference->max_lsb);
    return json_pack("{s:o, s:o, s:f}", "edge", cli_text(difference->edge), "max_lsb", steps, "fraction",
                     difference->fraction);
}

static const char *end_word(enum nd_reduction_end end)
{
    static const char *const words[] = {"reduced", "not reduced", "nothing to reduce", "nothing to cut"};
    return words[end];
}

static json_t *failure_json(const struct nd_reduction_failure *failure)
{
    if (failure->id == 0)
        return json_null();
    return json_pack("{s:o, s:i, s:o, s:o, s:o}", "stage", cli_text(failure->stage), "code", failure->id,
                     "message", cli_text(failure->message), "cause", cli_text(failure->cause), "operator",
                     cli_text(failure->operator));
}

static json_t *reduction_json(const struct values *values, const struct nd_reduction *reduction)
{
    json_t *operators = json_array();
    for (size_t i = 0; i < reduction->n_operators_left; i++)
        json_array_append_new(operators, cli_text(reduction->operators[i]));
    json_t *json =
        json_pack("{s:s, s:o, s:o, s:o, s:b, s:o, s:I, s:I, s:o}", "result", end_word(reduction->end), "device",
                  cli_text(reduction->device), "chipset", cli_text(reduction->chipset), "runtime",
                  cli_text(reduction->runtime), "minimal", (int)reduction->is_minimal, "confirmed",
                  reduction->is_confirm_known ? json_boolean(reduction->is_confirmed) : json_null(), "sessions",
                  (json_int_t)reduction->n_sessions, "session_limit", (json_int_t)reduction->session_limit,
                  "failure", failure_json(&reduction->failure));
    json_t *counts = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "same", (json_int_t)reduction->n_same, "failed_otherwise",
        (json_int_t)reduction->n_other, "fine", (json_int_t)reduction->n_fine, "not_cut",
        (json_int_t)reduction->n_uncut, "units", (json_int_t)reduction->n_units, "units_left",
        (json_int_t)reduction->n_units_left, "operators", (json_int_t)reduction->n_operators, "operators_left",
        (json_int_t)reduction->n_operators_left);
    bool is_whole = json != NULL && counts != NULL && json_object_update(json, counts) == 0;
    json_decref(counts);
    is_whole = is_whole && json_object_set_new(json, "operator_names", operators) == 0 &&
               json_object_set_new(json, "inputs", cli_text(reduction->inputs)) == 0 &&
               json_object_set_new(json, "samples", json_integer((json_int_t)reduction->n_samples)) == 0;
    if (is_whole && values->differs != NULL)
        is_whole =
            json_object_set_new(json, "difference", difference_json(&reduction->difference)) == 0 &&
            json_object_set_new(json, "difference_left", difference_json(&reduction->left_difference)) == 0;
    if (is_whole)
        is_whole =
            json_object_set_new(json, "folder",
                                values->output != NULL ? cli_text(values->output) : json_null()) == 0 &&
            json_object_set_new(json, "command",
                                reduction->command != NULL ? cli_text(reduction->command) : json_null()) == 0;
    if (is_whole)
        return json;
    json_decref(json);
    return NULL;
}

static void print_difference(const char *what, const struct nd_reduction_difference *difference)
{
    if (difference->edge[0] == '\0') {
        printf("  %s: no difference\n", what);
        return;
    }
    printf("  %s: '%s' differs in %.4g %% of its elements", what, difference->edge, 100 * difference->fraction);
    if (!isnan(difference->max_lsb))
        printf(", by up to %.0f LSB", difference->max_lsb);
    putchar('\n');
}

static void print_failure(const struct nd_reduction_failure *failure)
{
    printf("  failure at stage '%s': %s [ND-%d]\n", failure->stage, failure->message, failure->id);
    if (failure->cause[0] != '\0')
        printf("  first reason in the log: %s\n", failure->cause);
}

static void print_found(const struct values *values, const struct nd_reduction *reduction)
{
    printf("  left: %zu of %zu operators, %zu of %zu units\n", reduction->n_operators_left,
           reduction->n_operators, reduction->n_units_left, reduction->n_units);
    for (size_t i = 0; i < reduction->n_operators_left; i++)
        printf("    %s\n", reduction->operators[i]);
    if (values->differs != NULL)
        print_difference("this part", &reduction->left_difference);
    printf("  inputs: %s, %zu sample%s\n", reduction->inputs, reduction->n_samples,
           reduction->n_samples == 1 ? "" : "s");
    if (!reduction->is_confirm_known)
        printf("  not run a second time: no session was left\n");
    else if (!reduction->is_confirmed)
        printf("  NOT the same when it was run a second time: it does not happen every time\n");
    if (!reduction->is_minimal)
        printf("  the sessions are used up: a smaller part may do\n");
    if (values->output != NULL)
        printf("  reproducer in %s:\n    %s\n", values->output, reduction->command);
}

static void print_text(const struct values *values, const struct nd_reduction *reduction)
{
    printf("%s: %s\n", reduction->device, end_word(reduction->end));
    if (reduction->failure.id != 0)
        print_failure(&reduction->failure);
    if (values->differs != NULL)
        print_difference("the whole model", &reduction->difference);
    switch (reduction->end) {
    case ND_REDUCTION_REDUCED:
        print_found(values, reduction);
        break;
    case ND_REDUCTION_WHOLE:
        printf("  no part that was tried %s\n",
               values->differs != NULL ? "differs as much" : "fails like this");
        break;
    case ND_REDUCTION_NOTHING:
        printf("  the whole model %s on this device\n",
               values->differs != NULL ? "does not differ by more than that" : "does not fail");
        if (values->differs != NULL && reduction->left_difference.edge[0] != '\0')
            print_difference("most of all inside (--edge)", &reduction->left_difference);
        break;
    case ND_REDUCTION_NO_MODEL:
        printf("  the device failed before it saw the model: no part of it is to blame\n");
        break;
    }
    printf(
        "  %zu of at most %zu sessions: %zu did the same, %zu failed otherwise, %zu did not; %zu parts could "
        "not be cut out\n",
        reduction->n_sessions, reduction->session_limit, reduction->n_same, reduction->n_other,
        reduction->n_fine, reduction->n_uncut);
}

static int report(const struct values *values, const struct nd_reduction *reduction)
{
    static const int exit_codes[] = {ND_EXIT_SAME, ND_EXIT_DIFFERS, ND_EXIT_INCONCLUSIVE,
                                     ND_EXIT_DEVICE_FAILED};
    if (values->json) {
        json_t *json = reduction_json(values, reduction);
        if (json == NULL) {
            fprintf(stderr, "npudiff: out of memory\n");
            return ND_EXIT_TROUBLE;
        }
        cli_print_json(json);
        json_decref(json);
    } else if (!values->quiet) {
        print_text(values, reduction);
    }
    return exit_codes[reduction->end];
}

/* ---- the command ---- */

static int reduce(const struct values *values, const struct nd_model *model, struct nd_reduce_options *options)
{
    struct nd_error err = {0};
    struct nd_device device = {0}, against = {0};
    struct nd_reduction *reduction = NULL;
    bool is_terminal = isatty(STDERR_FILENO) != 0;
    int exit_code;
    struct nd_probe **probes = calloc(values->probes.n + 1, sizeof *probes);
    enum nd_status status = probes != NULL ? ND_OK : ND_ERR_MEMORY;
    if (status == ND_OK)
        status = nd_device_parse(values->device, &device, &err);
    if (status == ND_OK && values->against != NULL) {
        status = nd_device_parse(values->against, &against, &err);
        options->against = against.kind != ND_DEVICE_EXACT ? &against : NULL;
    }
    if (status == ND_OK)
        status = nd_model_check_static(model, &err);
    if (status == ND_OK && values->probes.n > 0)
        status = nd_probes_for_model(model, values->probes.items, values->probes.n, probes, &err);
    options->progress = values->quiet ? NULL : show_progress;
    options->progress_context = &is_terminal;
    options->is_cancelled = cli_signals_came;
    cli_signals_catch();
    if (status == ND_OK)
        status = nd_reduce(model, &device, (const struct nd_probe *const *)probes, values->probes.n, options,
                           &reduction, &err);
    if (!values->quiet && is_terminal)
        fprintf(stderr, "\r\033[K");
    exit_code = status == ND_OK ? report(values, reduction) : cli_report_error(&err);
    nd_reduction_destroy(&reduction);
    for (size_t i = 0; probes != NULL && i < values->probes.n; i++)
        nd_probe_destroy(&probes[i]);
    free(probes);
    nd_device_deinit(&against);
    nd_device_deinit(&device);
    return exit_code;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    struct nd_reduce_options options;
    int usage = 0;
    nd_reduce_options_init(&options);
    if (values->device == NULL)
        return cli_usage_error("reduce", "-d DEVICE is needed");
    if (values->differs != NULL && !parse_amount(values->differs, &options))
        return cli_usage_error("reduce", "--differs takes Nlsb or N%%, not '%s'", values->differs);
    if (values->differs == NULL && (values->against != NULL || values->edge != NULL))
        return cli_usage_error("reduce", "--against and --edge go with --differs");
    options.folder = values->output;
    options.replace = values->replace;
    options.edge = values->edge;
    options.allow_fallback = values->allow_fallback;
    options.agent = values->agent;
    if (values->n_sessions > 0)
        options.session_limit = values->n_sessions;
    if (values->n_samples > 0)
        options.n_samples = values->n_samples;
    if (values->time_limit_s > 0)
        options.time_limit_s = values->time_limit_s;
    enum nd_status status = nd_model_load(operands[0], &model, &err);
    if (status == ND_OK)
        status = set_dims(model, &values->dims, &usage, &err);
    int exit_code =
        status == ND_OK ? reduce(values, model, &options) : (usage != 0 ? usage : cli_report_error(&err));
    nd_model_destroy(&model);
    cli_signals_end_if_came(); /* only now that everything is cleaned up */
    return exit_code;
}

#define AT(member) offsetof(struct values, member)

static const struct cli_option options[] = {
    {.name = "device",
     .letter = 'd',
     .kind = CLI_TEXT,
     .offset = AT(device),
     .argument = "DEVICE",
     .help = "the device that fails, or differs ('npudiff devices')"},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .offset = AT(output),
     .argument = "DIR",
     .help = "write the reproducer there: reproducer.onnx, inputs.npz, captures of the device and of a "
             "reference, README.txt"},
    {.name = "replace", .kind = CLI_FLAG, .offset = AT(replace), .help = "replace a reproducer that is in DIR"},
    {.name = "sessions",
     .kind = CLI_NUMBER,
     .offset = AT(n_sessions),
     .argument = "N",
     .help = "start at most N sessions, all told (60)",
     .min = ND_REDUCE_MIN_SESSIONS,
     .max = 1e6},
    {.name = "probe",
     .letter = 'p',
     .kind = CLI_LIST,
     .offset = AT(probes),
     .argument = "PROBE",
     .help = "inputs of the whole model, from which those of the parts are made ('npudiff probes'); may be "
             "repeated (zeros)"},
    {.name = "samples",
     .kind = CLI_NUMBER,
     .offset = AT(n_samples),
     .argument = "N",
     .help = "feed the first N samples (4)",
     .min = 1,
     .max = ND_REDUCE_MAX_SAMPLES},
    {.name = "differs",
     .kind = CLI_TEXT,
     .offset = AT(differs),
     .argument = "Nlsb|N%",
     .help =
         "look for a difference instead of a failure: an output by more than N steps, or in more than N% of "
         "its elements"},
    {.name = "against",
     .kind = CLI_TEXT,
     .offset = AT(against),
     .argument = "DEVICE",
     .help = "differs from that one (exact, the quantised reference); another device takes a session more for "
             "every part"},
    {.name = "edge",
     .kind = CLI_TEXT,
     .offset = AT(edge),
     .argument = "EDGE",
     .help = "differs there (any output)"},
    {.name = "dim",
     .kind = CLI_LIST,
     .offset = AT(dims),
     .argument = "NAME=N",
     .help = "give a dynamic dimension of the model a size"},
    {.name = "allow-fallback",
     .kind = CLI_FLAG,
     .offset = AT(allow_fallback),
     .help = "nodes of an NPU device that run on the CPU are no failure"},
    {.name = "time-limit",
     .kind = CLI_REAL,
     .offset = AT(time_limit_s),
     .argument = "S",
     .help = "a session that takes longer has failed (300)",
     .min = 0.01,
     .max = 1e7},
    {.name = "agent",
     .kind = CLI_TEXT,
     .offset = AT(agent),
     .argument = "PATH",
     .help = "the npudiff-agent to start ($NPUDIFF_AGENT, or the one beside npudiff)"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print JSON"},
    {.name = "quiet", .letter = 'q', .kind = CLI_FLAG, .offset = AT(quiet), .help = "print nothing but errors"},
    {.name = NULL},
};

const struct cli_command cmd_reduce = {
    .name = "reduce",
    .summary = "cut a model to the smallest part that still fails, or differs",
    .synopsis = "MODEL.onnx -d DEVICE [-o DIR] [--sessions N] [--differs Nlsb|N%]",
    .details =
        "Runs the model once. Where the device refuses it (or crashes, or takes too long), parts of it are cut "
        "out and run, until none can be left out any more without the failure changing: the same stage, the "
        "same "
        "error, the same message but for names and numbers, the same first reason in the log. What the failure "
        "names is tried first, then halves (delta debugging) over units, then over the operators of the unit "
        "that is left.\n"
        "A part reads codes where it was cut, and is fed with what a reference had there: the CPU, else the "
        "quantised reference, else zeros. Every part runs in a process of its own; a part that was tried is "
        "not "
        "run again. What was found is run once more, so that a failure that does not happen every time is "
        "told.\n"
        "With --differs a part is kept while an output of it still differs from what the reference gives for "
        "the "
        "same inputs.\n"
        "Exit code 0: reduced; 1: it fails, but no smaller part does; 2: usage or I/O trouble; 4: the whole "
        "model "
        "does not fail, or differ, on this device; 5: the device failed before it saw the model.",
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
    .values_bytes = sizeof(struct values),
    .run = run,
};
