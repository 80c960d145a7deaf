/* `npudiff compare`: options, parts, output, exit code. docs/reference/metrics.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/report_documents.h"
#include "cli/options/commands.h"
#include "cli/options/help.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/capture/capture.h"
#include "npudiff/capture/captured_model.h"
#include "npudiff/explain/explain.h"
#include "npudiff/report/report.h"

/* The options as they were given. */
struct compare_values {
    struct cli_list bitwise, lsb, ulp, atol, rtol;
    const char *tensors;
    struct cli_list probes;
    bool different_models, all_pairs;
    struct cli_list matrices;
    const char *ulp_in;
    struct cli_integer worst, channel_axis;
    bool verify_digests, trust_digests, config;
    size_t n_threads, memory_mib;
    struct cli_part part;
    const char *cut;
    struct cli_list merge;
    bool all_tensors, verbose;
    struct cli_answer answer;
    const char *report;
};

/* What the options come to, the captures, and what comes of comparing them. */
struct compare_setup {
    struct nd_compare_options options;
    struct nd_matrix *matrices; /* [values->matrices.n] */
    struct nd_gates *gates;
    struct nd_parts *parts;
    struct nd_capture **captures; /* [n_captures] */
    size_t n_captures;
    struct nd_comparison *comparison;
};

/* ---- what the options come to ---- */

/* 0, or ND_EXIT_TROUBLE after printing which options do not go together. */
static int compare_check(const struct compare_values *values)
{
    if (values->cut != NULL && values->part.n_parts == 0)
        return cli_usage_error("compare", "--cut needs --part");
    if (values->part.n_parts > 0 && !values->answer.json)
        return cli_usage_error("compare", "--part needs --json");
    if (values->part.n_parts > 0 && values->merge.n > 0)
        return cli_usage_error("compare", "--part and --merge cannot be given together");
    if (values->part.n_parts > 0 && values->answer.quiet)
        return cli_usage_error("compare", "--part and --quiet cannot be given together");
    if (values->verify_digests && values->trust_digests)
        return cli_usage_error("compare", "--verify-digests and --trust-digests cannot be given together");
    return 0;
}

static enum nd_status parse_gates(const struct compare_values *values, struct nd_gates *gates,
                                  struct nd_error *err)
{
    const struct {
        enum nd_gate_kind kind;
        const struct cli_list *texts;
    } lists[] = {{ND_GATE_BITWISE, &values->bitwise},
                 {ND_GATE_LSB, &values->lsb},
                 {ND_GATE_ULP, &values->ulp},
                 {ND_GATE_ATOL, &values->atol},
                 {ND_GATE_RTOL, &values->rtol}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (size_t k = 0; k < lists[i].texts->n; k++)
            CLI_TRY(nd_gates_parse(gates, lists[i].kind, lists[i].texts->items[k], err));
    return ND_OK;
}

/* Turns checked values into options, which borrow from them and from the environment. Reads the parts to be
 * merged, and opens the captures. compare_setup_deinit frees what *out owns, also after a failure. */
static enum nd_status compare_setup_init(const struct compare_values *values, const char *const *paths,
                                         size_t n, struct compare_setup *out, struct nd_error *err)
{
    out->options = nd_compare_options_default();
    CLI_TRY(nd_gates_create(&out->gates, err));
    CLI_TRY(parse_gates(values, out->gates, err));
    out->matrices = calloc(values->matrices.n + 1, sizeof *out->matrices);
    if (out->matrices == NULL)
        return cli_memory_error(err);
    for (size_t i = 0; i < values->matrices.n; i++)
        CLI_TRY(nd_matrix_parse(values->matrices.items[i], &out->matrices[i], err));
    if (values->merge.n > 0)
        CLI_TRY(nd_parts_read(values->merge.items, values->merge.n, &out->parts, err));
    struct nd_compare_options *options = &out->options;
    const char *cpu_cap = getenv("NPUDIFF_CPU");
    options->tensors = values->tensors;
    options->probes = values->probes.items;
    options->n_probes = values->probes.n;
    options->allow_different_models = values->different_models;
    options->all_pairs = values->all_pairs || values->matrices.n > 0;
    options->verify_digests = values->verify_digests;
    options->trust_digests = values->trust_digests;
    if (values->ulp_in != NULL)
        options->ulp_in = nd_dtype_from_name(values->ulp_in);
    if (values->worst.is_given)
        options->n_worst = (size_t)values->worst.value;
    options->per_channel = values->channel_axis.is_given;
    options->channel_axis = (int)values->channel_axis.value;
    options->n_threads = values->n_threads;
    options->memory_bytes = values->memory_mib << 20;
    options->cpu_cap = cpu_cap != NULL && cpu_cap[0] != '\0' ? cpu_cap : NULL;
    if (values->part.n_parts > 0) {
        options->part = values->part.part;
        options->n_parts = values->part.n_parts;
        bool is_by_tensor = values->cut != NULL && strcmp(values->cut, "tensors") == 0;
        options->cut = is_by_tensor ? ND_CUT_TENSORS : ND_CUT_SAMPLES;
    }
    out->options.gates = out->gates;
    out->options.merge = out->parts;
    out->captures = calloc(n, sizeof(struct nd_capture *));
    if (out->captures == NULL)
        return cli_memory_error(err);
    for (; out->n_captures < n; out->n_captures++) {
        struct nd_capture **capture = &out->captures[out->n_captures];
        CLI_TRY((values->trust_digests ? nd_capture_open_unchecked
                                       : nd_capture_open_deferred)(paths[out->n_captures], capture, err));
        if (values->trust_digests)
            nd_capture_trust(*capture);
    }
    return ND_OK;
}

static void compare_setup_deinit(struct compare_setup *setup)
{
    nd_comparison_destroy(&setup->comparison);
    for (size_t i = 0; i < setup->n_captures; i++)
        nd_capture_close(&setup->captures[i]);
    free(setup->captures);
    nd_parts_destroy(&setup->parts);
    nd_gates_destroy(&setup->gates);
    free(setup->matrices);
}

static enum nd_status print(const struct compare_values *values, const struct compare_setup *setup,
                            struct nd_error *err)
{
    const struct nd_comparison *comparison = setup->comparison;
    const struct nd_capture *ref = setup->captures[0];
    const struct nd_report_options options = {.struct_size = sizeof options,
                                              .all_tensors = values->all_tensors,
                                              .details = values->verbose,
                                              .worst = values->worst.is_given,
                                              .width = cli_text_width(values->answer.width),
                                              .matrices = setup->matrices,
                                              .n_matrices = values->matrices.n,
                                              .is_brief = !values->all_tensors && !values->verbose,
                                              .model = nd_capture_string(ref, "model", "file"),
                                              .model_path = nd_capture_model_path(ref)};
    CLI_FREED char *text = NULL;
    bool is_document = values->answer.json || comparison->cut != ND_CUT_NONE;
    CLI_TRY(comparison->cut != ND_CUT_NONE ? nd_compare_part_format(comparison, &text, err)
            : values->answer.json          ? nd_report_json(comparison, &text, err)
                                           : nd_report_text(comparison, &options, &text, err));
    if (is_document)
        cli_print_document(text);
    else if (cli_is_markdown(values->answer.format))
        cli_print_markdown(text);
    else
        cli_print_text(text, values->answer.color);
    return ND_OK;
}

/* Digests of captures are read when they are first asked for. */
static enum nd_status check_read(const struct compare_setup *setup, struct nd_error *err)
{
    for (size_t i = 0; i < setup->n_captures; i++)
        CLI_TRY(nd_capture_check_deferred(setup->captures[i], err));
    return ND_OK;
}

static enum nd_status tell(const struct compare_values *values, const struct compare_setup *setup,
                           struct nd_error *err)
{
    for (size_t i = 0; i < values->matrices.n; i++)
        CLI_TRY(nd_matrix_check(&setup->matrices[i], setup->comparison, err));
    CLI_TRY(check_read(setup, err));
    return cli_is_silent(&values->answer) ? ND_OK : print(values, setup, err);
}

/* The page of --report; 0, or the exit code of an error. */
static int report(const struct compare_values *values, const struct compare_setup *setup)
{
    struct nd_error err = {0};
    if (values->report == NULL)
        return 0;
    CLI_OWNED(report_documents_deinit) struct report_documents documents = {0};
    if (report_documents_of_comparison(&documents, NULL, setup->comparison,
                                       (const struct nd_capture *const *)setup->captures, &err) != ND_OK ||
        check_read(setup, &err) != ND_OK)
        return cli_report_error(&err);
    return cli_report_write(values->report, documents.items, documents.n, NULL);
}

static void show_progress(void *context, const char *stage, size_t n_done, size_t n_total)
{
    bool is_counted = strcmp(stage, "compare") == 0;
    cli_progress_count(context, "compare", is_counted ? "values" : "patterns",
                       is_counted ? "blocks" : "devices", n_done, n_total);
}

/* With a bar; Ctrl-C stops it. */
static enum nd_status compare(const struct compare_values *values, struct compare_setup *setup,
                              struct nd_error *err)
{
    const struct nd_capture *const *captures = (const struct nd_capture *const *)setup->captures;
    struct cli_progress *progress = cli_progress_create(1, 1, values->answer.quiet);
    setup->options.progress = show_progress;
    setup->options.progress_context = progress;
    setup->options.is_cancelled = cli_signals_came;
    cli_signals_catch();
    enum nd_status status =
        nd_compare_captures(captures, setup->n_captures, &setup->options, &setup->comparison, err);
    if (status == ND_OK && setup->comparison->cut == ND_CUT_NONE &&
        (!values->answer.quiet || values->answer.json || values->report != NULL)) {
        cli_progress_show(progress, 0, &(struct cli_progress_state){.label = "compare", .stage = "diagnosis"});
        status = nd_diagnose_comparison(setup->comparison, captures, err);
        if (status == ND_OK)
            status = nd_find_changed_samples(setup->comparison, captures, CLI_REPORT_SAMPLES, err);
    }
    cli_progress_destroy(progress);
    return status;
}

/* ---- --config: one capture ---- */

/* Those that can change bits; `rows` are theirs. */
static int print_settings(const struct compare_values *values, const struct nd_capture *capture, json_t *rows,
                          size_t n, size_t n_bits)
{
    static const struct nd_report_column columns[] = {{"key", "SETTING"}, {"value", "VALUE"}, {NULL, NULL}};
    const char *next[] = {"npudiff", "compare", "--config", nd_capture_path(capture), "OTHER.h5"};
    if (values->answer.quiet) {
        json_decref(rows);
        return 0;
    }
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    nd_report_screen_put(screen, "%s: %zu settings; these %zu can change values (-v lists all)\n\n",
                         cli_file_name(nd_capture_path(capture)), n, n_bits);
    cli_screen_rows(screen, rows, columns, "-v lists all");
    nd_report_screen_next(screen, "to see what differs from a different capture", next,
                          sizeof next / sizeof next[0]);
    return cli_print_screen(screen);
}

static int show_settings(const struct compare_values *values, const struct nd_capture *capture)
{
    static const struct nd_report_column columns[] = {
        {"key", "SETTING"}, {"value", "VALUE"}, {"effect", "EFFECT"}, {NULL, NULL}};
    struct nd_error err = {0};
    struct nd_config config = {0};
    if (nd_config_of_capture(capture, &config, &err) != ND_OK)
        return cli_report_error(&err);
    json_t *rows = json_array();
    bool is_full = values->answer.json || values->verbose;
    size_t n = config.n, n_bits = 0;
    for (size_t i = 0; i < config.n; i++) {
        const struct nd_config_item *item = &config.items[i];
        n_bits += item->effect == ND_CONFIG_BITS;
        if (!is_full && item->effect != ND_CONFIG_BITS)
            continue;
        json_array_append_new(rows,
                              json_pack("{s:o, s:o, s:s}", "key", cli_text(item->key), "value",
                                        cli_text(item->value), "effect", nd_config_effect_name(item->effect)));
    }
    nd_config_deinit(&config);
    if (!is_full)
        return print_settings(values, capture, rows, n, n_bits);
    return cli_print_rows(ND_DOCUMENT_SETTINGS, "settings", rows, columns, values->answer.json);
}

/* ---- --config: several ---- */

static json_t *change_rows(const struct nd_config_diff *diff)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < diff->n; i++) {
        const struct nd_config_change *change = &diff->changes[i];
        json_array_append_new(rows, json_pack("{s:o, s:o, s:o, s:s}", "key", cli_text(change->key), "ref",
                                              change->ref != NULL ? cli_text(change->ref) : json_null(), "test",
                                              change->test != NULL ? cli_text(change->test) : json_null(),
                                              "effect", nd_config_effect_name(change->effect)));
    }
    return rows;
}

/* The rows of the settings that can change bits; of all where there are none. */
static json_t *rows_that_change_bits(const json_t *rows, const struct nd_config_diff *diff)
{
    json_t *chosen = json_array(), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        if (diff->n_bits == 0 || diff->changes[i].effect == ND_CONFIG_BITS)
            json_array_append(chosen, row);
    }
    return chosen;
}

static int print_pair(const struct compare_values *values, const struct nd_capture *ref,
                      const struct nd_capture *test, const struct nd_config_diff *diff, json_t *rows)
{
    static const struct nd_report_column columns[] = {
        {"key", "SETTING"}, {"ref", "REF"}, {"test", "TEST"}, {"effect", "EFFECT"}, {NULL, NULL}};
    static const struct nd_report_column brief_columns[] = {
        {"key", "SETTING"}, {"ref", "REF"}, {"test", "TEST"}, {NULL, NULL}};
    if (values->verbose) {
        printf("%s against %s: %zu settings differ, %zu of them can change values\n", nd_capture_path(test),
               nd_capture_path(ref), diff->n, diff->n_bits);
        if (json_array_size(rows) > 0)
            cli_print_table(rows, columns);
        return ND_EXIT_SAME;
    }
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    size_t n_others = diff->n - diff->n_bits;
    if (diff->n == 0)
        nd_report_screen_put(screen, "SAME: all settings of '%s' and '%s' are equal\n", nd_capture_path(test),
                             nd_capture_path(ref));
    else
        nd_report_screen_put(screen, "DIFFERS: %zu settings of '%s' are not those of '%s' (REF)\n", diff->n,
                             nd_capture_path(test), nd_capture_path(ref));
    if (diff->n > 0)
        nd_report_screen_put(screen, "%zu of them can change values%s.\n\n", diff->n_bits,
                             n_others > 0 ? "; -v also lists those that cannot, or of which nobody knows" : "");
    json_t *shown = rows_that_change_bits(rows, diff);
    if (json_array_size(shown) > 0) {
        cli_screen_rows(screen, shown, brief_columns, "-v lists all");
        nd_report_screen_whole(screen);
    } else {
        json_decref(shown);
    }
    return cli_print_screen(screen);
}

/* The exit code; adds the pair to `pairs`. */
static int compare_settings(const struct compare_values *values, const struct nd_capture *ref, const char *path,
                            json_t *pairs)
{
    struct nd_error err = {0};
    struct nd_capture *test = NULL;
    struct nd_config_diff diff = {0};
    if (nd_capture_open(path, &test, &err) != ND_OK || nd_config_diff(ref, test, &diff, &err) != ND_OK) {
        nd_capture_close(&test);
        return cli_report_error(&err);
    }
    json_t *rows = change_rows(&diff);
    int printed = ND_EXIT_SAME;
    if (!values->answer.json && !values->answer.quiet)
        printed = print_pair(values, ref, test, &diff, rows);
    json_array_append_new(pairs, json_pack("{s:o, s:o, s:I, s:o}", "ref", cli_text(nd_capture_path(ref)),
                                           "test", cli_text(path), "can_change_bits", (json_int_t)diff.n_bits,
                                           "settings", rows));
    int exit_code = cli_worse(printed, diff.n > 0 ? ND_EXIT_DIFFERS : ND_EXIT_SAME);
    nd_config_diff_deinit(&diff);
    nd_capture_close(&test);
    return exit_code;
}

static int compare_all_settings(const struct compare_values *values, const struct nd_capture *ref,
                                const char *const *paths, size_t n)
{
    json_t *pairs = json_array();
    int exit_code = 0;
    for (size_t i = 0; i < n && exit_code != ND_EXIT_TROUBLE; i++)
        exit_code = cli_worse(exit_code, compare_settings(values, ref, paths[i], pairs));
    if (exit_code != ND_EXIT_TROUBLE && values->answer.json)
        return cli_print_rows(ND_DOCUMENT_SETTINGS_DIFFERENCE, "pairs", pairs, NULL, true) != 0
                   ? ND_EXIT_TROUBLE
                   : exit_code;
    json_decref(pairs);
    return exit_code;
}

/* Whether any option is given that is not for --config. */
static bool has_more_than_config(const struct compare_values *values)
{
    struct compare_values rest, none;
    memset(&none, 0, sizeof none);
    memcpy(&rest, values, sizeof rest); /* from calloc: the bytes between members are 0, too */
    rest.config = rest.verbose = rest.answer.json = rest.answer.quiet = false;
    return memcmp(&rest, &none, sizeof rest) != 0;
}

static int run_config(const struct compare_values *values, const char *const *operands, size_t n_operands)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_capture_close) struct nd_capture *ref = NULL;
    if (has_more_than_config(values))
        return cli_usage_error("compare", "--config goes with --json, -v and -q only");
    if (nd_capture_open(operands[0], &ref, &err) != ND_OK)
        return cli_report_error(&err);
    return n_operands == 1 ? show_settings(values, ref)
                           : compare_all_settings(values, ref, operands + 1, n_operands - 1);
}

/* ---- the command ---- */

/* A part is no verdict: those who merge it have one. */
static int exit_code_of(const struct nd_comparison *comparison)
{
    return comparison->cut != ND_CUT_NONE ? ND_EXIT_SAME : (int)nd_verdict_exit_code(comparison->verdict);
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct compare_values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(compare_setup_deinit) struct compare_setup setup = {0};
    if (values->config)
        return run_config(values, operands, n_operands);
    if (n_operands < 2)
        return cli_usage_error("compare", "too few arguments; the usage is: npudiff compare %s",
                               cmd_compare.synopsis);
    int exit_code = compare_check(values);
    if (exit_code == 0 && values->report != NULL && values->part.n_parts > 0)
        exit_code =
            cli_usage_error("compare", "--report and --part exclude one another: a part has no verdict");
    if (exit_code == 0)
        exit_code = cli_report_check(values->report);
    if (exit_code != 0)
        return exit_code;
    enum nd_status status = compare_setup_init(values, operands, n_operands, &setup, &err);
    if (status == ND_OK)
        status = compare(values, &setup, &err);
    if (cli_signals_came(NULL)) {
        cli_stopped_tell("the captures are as they were, and no result is kept", "");
        return ND_EXIT_TROUBLE;
    }
    if (status == ND_OK)
        status = tell(values, &setup, &err);
    if (status != ND_OK)
        return cli_report_error(&err);
    return cli_worse(exit_code_of(setup.comparison), report(values, &setup));
}

static const char *const float_types[] = {"float64",       "float32",     "float16", "bfloat16",
                                          "float8_e4m3fn", "float8_e5m2", NULL};
static const char *const cuts[] = {"tensors", "samples", NULL};

#define GATE(gate, help) OPT_LIST(0, #gate, struct compare_values, gate, CLI_A_TEXT("N[,NAME:N...]"), help)

static const struct cli_option options[] = {
    OPT_OPTIONAL(0, "bitwise", struct compare_values, bitwise, "[=NAME,...]",
                 "gate: no bit may differ, in any tensor or in the tensors with these names or patterns"),
    GATE(lsb, "gate for quantised values: at most N LSB apart; NAME:N sets a different limit for the tensors "
              "with this name or pattern"),
    GATE(ulp, "gate for floats: at most N ULP apart"),
    GATE(atol, "gate in real units: |test - ref| <= atol + rtol * |ref|"),
    GATE(rtol, "gate: see --atol"),
    OPT_TENSORS(struct compare_values,
                "compare only these tensors: outputs (of the model), or name patterns separated by commas "
                "(all). Without this option a tensor that one capture lacks makes the result 'not comparable'"),
    OPT_LIST('p', "probe", struct compare_values, probes, CLI_A_PROBE_NAME,
             "compare only this probe of the captures, a name or a pattern; may be repeated (all)"),
    OPT_FLAG(0, "allow-different-models", struct compare_values, different_models,
             "compare captures of different model files"),
    OPT_FLAG(0, "all-pairs", struct compare_values, all_pairs,
             "also compare the devices with each other, not only with the reference"),
    OPT_LIST(0, "matrix", struct compare_values, matrices, CLI_A_TEXT("METRIC[:NAME]"),
             "print a table of every device against every other one, at the model's outputs or at tensor NAME; "
             "METRIC is the name of a metric, such as share, max_lsb, sqnr or kl (another word lists all); "
             "implies --all-pairs; may be repeated"),
    OPT_CHOICE(0, "ulp-in", struct compare_values, ulp_in, "TYPE", float_types,
               "also count ULP in the type that the device computes in: float64, float32, float16, bfloat16, "
               "float8_e4m3fn or float8_e5m2"),
    OPT_INTEGER(0, "worst", struct compare_values, worst, "N", 0, 1000,
                "print the N elements with the largest difference (5 with -v and --json)"),
    OPT_INTEGER(0, "per-channel", struct compare_values, channel_axis, "AXIS", -ND_MAX_RANK, ND_MAX_RANK - 1,
                "also compute statistics for each index of this axis of a sample; -1 is the last axis"),
    OPT_FLAG(0, "verify-digests", struct compare_values, verify_digests,
             "read tensors with equal digests, too, and check that their bytes are equal"),
    OPT_FLAG(0, "trust-digests", struct compare_values, trust_digests,
             "do not check what is read from the captures against the stored digests"),
    OPT_FLAG(0, "config", struct compare_values, config,
             "compare the settings of the devices instead of values; of one capture print them; with -v all "
             "settings in full, with their effects"),
    OPT_THREADS(struct compare_values),
    OPT_NUMBER(0, "memory", struct compare_values, memory_mib, "MIB", 16, 1 << 20,
               "use at most this much memory for buffers (512)"),
    OPT_PART(struct compare_values,
             "compute only part K of N and print it for --merge; needs --json; the exit code is 0"),
    OPT_CHOICE(0, "cut", struct compare_values, cut, "tensors|samples", cuts,
               "how --part divides the work (samples)"),
    OPT_LIST(0, "merge", struct compare_values, merge, CLI_A_FILE("FILE"),
             "take the results from this part; give all N parts, with the captures and options that they were "
             "made with"),
    OPT_FLAG('a', "all", struct compare_values, all_tensors,
             "print the tables, list equal tensors, too, and print every list in full"),
    OPT_VERBOSE(struct compare_values, "print the tables: every tensor that differs, signal, elements with the "
                                       "largest differences, where they are, and gates that would pass"),
    OPT_REPORT(struct compare_values),
    OPT_ANSWER_SCREEN(struct compare_values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff compare captures/cpu.h5 captures/gen3.h5",
     "Prints which tensors differ between the two devices, and from which layer on."},
    {"npudiff compare captures/*.h5 --tensors outputs --lsb 2",
     "Passes when all outputs are at most 2 LSB from those of the first capture."},
    {"npudiff compare --config captures/cpu.h5 captures/gen3.h5", "Prints the settings that differ."},
};

const struct cli_command cmd_compare = {
    .name = "compare",
    .role = CLI_FIND,
    .summary = "compare captures: equal devices, first difference, LSB, accuracy",
    .synopsis = "REF.h5 TEST.h5 ... [--bitwise] [--lsb N] [--ulp N] [--atol X] [--rtol X] | --config "
                "CAPTURE.h5 [OTHER.h5 ...]",
    .details =
        "Compares captures of one model, tensor by tensor and sample by sample. It says which devices are "
        "equal in every bit, at which tensor the others begin to differ, by how much, and what that does "
        "to "
        "accuracy. The first capture is the reference.\n"
        "Without a gate every different bit counts. With gates every element must pass all of them.\n"
        "With --config: chip, runtime, provider options, loaded libraries with their build ids, processor, "
        "and "
        "the HTP configuration that 'npudiff capture --htp-config' stored; of several captures those in "
        "which "
        "each one differs from the first. Each setting is marked 'can change bits' (the vendor's "
        "documentation "
        "says so, or it was measured), 'performance only' or 'not known'.\n"
        "Exit code 0: same, or within the gates; 1: differs; 2: wrong usage or a file problem; 3: not "
        "comparable; 4: inconclusive, because outputs are NaN on both sides; 5: a device had failed.\n"
        "NPUDIFF_CPU=scalar|avx2|avx512|neon in the environment limits the processor instructions that "
        "npudiff "
        "uses. The result is the same.",
    CLI_TABLES(struct compare_values),
    CLI_OPERANDS(CLI_VALUE_CAPTURE, 1, CLI_ANY_NUMBER),
};
