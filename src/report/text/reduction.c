/* What `npudiff reduce` found, as JSON and as text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "report/text/tree.h"

/* What was asked for. */
struct shown {
    bool has_difference;
    const char *folder;
};

static json_t *difference_json(const struct nd_reduction_difference *difference)
{
    return json_pack("{s:o, s:o, s:f}", "tensor", nd_json_string(difference->edge), "max_lsb",
                     nd_json_number(difference->max_lsb), "fraction", difference->fraction);
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
    return json_pack("{s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "stage", nd_json_string(failure->stage),
                     "code", failure->id, "message", nd_json_string(failure->message), "cause",
                     nd_json_string(failure->cause), "operator", nd_json_string(failure->op), "node",
                     nd_json_string(failure->node), "qnn_stage", nd_json_string(failure->qnn_stage), "symbol",
                     nd_json_string(failure->symbol), "raw_code",
                     failure->has_raw_code ? json_integer(failure->raw_code) : json_null());
}

static json_t *reduction_json(const struct nd_reduction *reduction, const struct shown *shown)
{
    json_t *operators = json_array();
    for (size_t i = 0; i < reduction->n_operators_left; i++)
        nd_tree_append(operators, nd_json_string(reduction->operators[i]));
    json_t *json =
        json_pack("{s:s, s:o, s:o, s:o, s:b, s:o, s:I, s:I, s:o}", "result", end_word(reduction->end), "device",
                  nd_json_string(reduction->device), "chipset", nd_json_string(reduction->chipset), "runtime",
                  nd_json_string(reduction->runtime), "minimal", (int)reduction->is_minimal, "confirmed",
                  reduction->is_confirm_known ? json_boolean(reduction->is_confirmed) : json_null(), "sessions",
                  (json_int_t)reduction->n_sessions, "session_limit", (json_int_t)reduction->session_limit,
                  "failure", failure_json(&reduction->failure));
    json_t *counts = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "same", (json_int_t)reduction->n_same, "failed_otherwise",
        (json_int_t)reduction->n_other, "fine", (json_int_t)reduction->n_fine, "not_cut",
        (json_int_t)reduction->n_uncut, "layers", (json_int_t)reduction->n_units, "layers_left",
        (json_int_t)reduction->n_units_left, "operators", (json_int_t)reduction->n_operators, "operators_left",
        (json_int_t)reduction->n_operators_left);
    if (json_object_update(json, counts) != 0)
        nd_note_lost_text();
    json_decref(counts);
    nd_tree_set(json, "operator_names", operators);
    nd_tree_set(json, "inputs", nd_json_string(reduction->inputs));
    nd_tree_set(json, "samples", json_integer((json_int_t)reduction->n_samples));
    if (shown->has_difference) {
        nd_tree_set(json, "difference", difference_json(&reduction->difference));
        nd_tree_set(json, "difference_left", difference_json(&reduction->left_difference));
    }
    nd_tree_set(json, "folder", shown->folder != NULL ? nd_json_string(shown->folder) : json_null());
    nd_tree_set(json, "command", reduction->command != NULL ? nd_json_string(reduction->command) : json_null());
    return json;
}

static void put_difference(struct nd_strbuf *out, const char *what,
                           const struct nd_reduction_difference *difference)
{
    if (difference->edge[0] == '\0') {
        nd_strbuf_printf(out, "  %s: no difference\n", what);
        return;
    }
    nd_strbuf_printf(out, "  %s: '%s' differs in %.4g %% of its elements", what, difference->edge,
                     100 * difference->fraction);
    if (!isnan(difference->max_lsb))
        nd_strbuf_printf(out, ", by up to %.0f LSB", difference->max_lsb);
    nd_strbuf_puts(out, "\n");
}

static void put_failure(struct nd_strbuf *out, const struct nd_reduction_failure *failure)
{
    nd_strbuf_printf(out, "  failure at stage '%s': %s [ND-%d]\n", failure->stage, failure->message,
                     failure->id);
    if (failure->cause[0] != '\0')
        nd_strbuf_printf(out, "  reason in the log: %s\n", failure->cause);
    if (failure->op[0] != '\0')
        nd_strbuf_printf(out, "  operator of the device: %s\n", failure->op);
}

static void put_found(struct nd_strbuf *out, const struct nd_reduction *reduction, const struct shown *shown)
{
    nd_strbuf_printf(out, "  remaining: %zu of %zu operators, %zu of %zu layers\n", reduction->n_operators_left,
                     reduction->n_operators, reduction->n_units_left, reduction->n_units);
    for (size_t i = 0; i < reduction->n_operators_left; i++)
        nd_strbuf_printf(out, "    %s\n", reduction->operators[i]);
    if (shown->has_difference)
        put_difference(out, "this part", &reduction->left_difference);
    nd_strbuf_printf(out, "  inputs: %s, %zu sample%s\n", reduction->inputs, reduction->n_samples,
                     reduction->n_samples == 1 ? "" : "s");
    if (!reduction->is_confirm_known)
        nd_strbuf_puts(out, "  not run a second time: no session was left\n");
    else if (!reduction->is_confirmed)
        nd_strbuf_puts(out, "  NOT the same when it was run a second time: it does not happen every time\n");
    if (!reduction->is_minimal)
        nd_strbuf_puts(out, "  the sessions are used up: a smaller part may do\n");
    if (shown->folder != NULL)
        nd_strbuf_printf(out, "  reproducer in %s:\n    %s\n", shown->folder, reduction->command);
}

static void put_reduction(struct nd_strbuf *out, const struct nd_reduction *reduction,
                          const struct shown *shown)
{
    nd_strbuf_printf(out, "%s: %s\n", reduction->device, end_word(reduction->end));
    if (reduction->failure.id != 0)
        put_failure(out, &reduction->failure);
    if (shown->has_difference)
        put_difference(out, "the whole model", &reduction->difference);
    switch (reduction->end) {
    case ND_REDUCTION_REDUCED:
        put_found(out, reduction, shown);
        break;
    case ND_REDUCTION_WHOLE:
        nd_strbuf_printf(out, "  no part that npudiff tried %s\n",
                         shown->has_difference ? "differs as much" : "fails like this");
        break;
    case ND_REDUCTION_NOTHING:
        nd_strbuf_printf(out, "  the whole model %s on this device\n",
                         shown->has_difference ? "does not differ by more than that" : "does not fail");
        if (shown->has_difference && reduction->left_difference.edge[0] != '\0')
            put_difference(out, "most of all inside (--tensor)", &reduction->left_difference);
        break;
    case ND_REDUCTION_NO_MODEL:
        nd_strbuf_puts(out, "  the device failed before it saw the model: no part of it is to blame\n");
        break;
    }
    nd_strbuf_printf(
        out,
        "  %zu of at most %zu sessions: %zu did the same, %zu failed otherwise, %zu did not; %zu parts could "
        "not be cut out\n",
        reduction->n_sessions, reduction->session_limit, reduction->n_same, reduction->n_other,
        reduction->n_fine, reduction->n_uncut);
}

/* ---- the answer in one screen ---- */

static void say_difference(struct nd_report_screen *screen, const char *what,
                           const struct nd_reduction_difference *difference)
{
    char lsb[64] = "";
    if (difference->edge[0] == '\0')
        return;
    if (!isnan(difference->max_lsb))
        snprintf(lsb, sizeof lsb, ", by at most %.0f LSB", difference->max_lsb);
    nd_report_screen_put(screen, "%s: %.4g%% of the values of '%s' differ%s.\n", what,
                         100 * difference->fraction, difference->edge, lsb);
}

static void say_whole_model(struct nd_report_screen *screen, const struct nd_reduction *reduction,
                            const struct shown *shown)
{
    const struct nd_reduction_failure *failure = &reduction->failure;
    if (failure->id != 0)
        nd_report_screen_put(screen, "It fails at stage '%s': %s [ND-%d]\n", failure->stage, failure->message,
                             failure->id);
    if (failure->cause[0] != '\0')
        nd_report_screen_put(screen, "The log says: %s\n", failure->cause);
    if (shown->has_difference)
        say_difference(screen, "In the whole model", &reduction->difference);
}

static void say_found(struct nd_report_screen *screen, const struct nd_reduction *reduction,
                      const struct shown *shown)
{
    static const struct nd_report_column columns[] = {{"operator", "REMAINING OPERATOR"}, {NULL, NULL}};
    json_t *rows = json_array();
    for (size_t i = 0; i < reduction->n_operators_left; i++)
        nd_tree_append(rows, json_pack("{s:o}", "operator", nd_json_string(reduction->operators[i])));
    if (shown->has_difference)
        say_difference(screen, "In this part", &reduction->left_difference);
    if (!reduction->is_confirm_known)
        nd_report_screen_put(screen, "It was not run a second time, because all sessions are used up.\n");
    else if (!reduction->is_confirmed)
        nd_report_screen_put(screen,
                             "Run a second time it did NOT do the same: it does not happen every time.\n");
    if (!reduction->is_minimal)
        nd_report_screen_put(
            screen, "A smaller part may exist: all %zu sessions are used up (--sessions allows more).\n",
            reduction->session_limit);
    nd_report_screen_put(screen, "\n");
    nd_screen_rows(screen, rows, columns, "--json lists all");
    if (shown->folder == NULL)
        return;
    nd_report_screen_put(screen, "\nThe small model and its inputs are in '%s'. Next, to see it again there:\n",
                         shown->folder);
    nd_report_screen_command(screen, reduction->command);
}

static void say_headline(struct nd_report_screen *screen, const struct nd_reduction *reduction,
                         const struct shown *shown)
{
    const char *does = shown->has_difference ? "differs" : "fails";
    const char *not = shown->has_difference ? "does not differ by more than the limit" : "does not fail";
    switch (reduction->end) {
    case ND_REDUCTION_REDUCED:
        nd_report_screen_put(screen, "REDUCED to %zu of %zu operators: this part still %s on %s\n",
                             reduction->n_operators_left, reduction->n_operators, does, reduction->device);
        break;
    case ND_REDUCTION_WHOLE:
        nd_report_screen_put(screen, "NOT REDUCED: the whole model %s on %s, but no part that npudiff tried\n",
                             does, reduction->device);
        break;
    case ND_REDUCTION_NOTHING:
        nd_report_screen_put(screen, "NOTHING TO REDUCE: the whole model %s on %s\n", not, reduction->device);
        break;
    case ND_REDUCTION_NO_MODEL:
        nd_report_screen_put(screen, "FAILED: %s failed before it got the model\n", reduction->device);
        break;
    }
}

/* What else can be tried where nothing was found. */
static void say_advice(struct nd_report_screen *screen, const struct nd_reduction *reduction,
                       const struct shown *shown)
{
    if (reduction->end == ND_REDUCTION_NOTHING && shown->has_difference) {
        say_difference(screen, "Inside the model", &reduction->left_difference);
        nd_report_screen_put(screen, "\nOther inputs (--probe), a lower limit (--differs) or an inner tensor "
                                     "(--tensor) may show a difference.\n");
    } else if (reduction->end == ND_REDUCTION_NOTHING) {
        nd_report_screen_put(screen,
                             "\nOther inputs (--probe) may make it fail; --differs 1lsb looks for wrong "
                             "values instead.\n");
    } else if (reduction->end == ND_REDUCTION_WHOLE && reduction->n_uncut > 0) {
        nd_report_screen_put(screen, "%zu parts could not be cut out of the model.\n", reduction->n_uncut);
    }
}

enum nd_status nd_report_reduction_brief(const struct nd_reduction *reduction, bool has_difference,
                                         const char *folder, size_t width, char **out, struct nd_error *err)
{
    const struct shown shown = {has_difference, folder};
    struct nd_report_screen *screen = nd_report_screen_create(width);
    say_headline(screen, reduction, &shown);
    nd_report_screen_put(screen, "%zu of at most %zu sessions; the inputs of the parts are those of %s\n",
                         reduction->n_sessions, reduction->session_limit,
                         reduction->inputs[0] != '\0' ? reduction->inputs : "the probe");
    say_whole_model(screen, reduction, &shown);
    if (reduction->end == ND_REDUCTION_REDUCED)
        say_found(screen, reduction, &shown);
    else
        say_advice(screen, reduction, &shown);
    return nd_report_screen_end(&screen, out, err);
}

/* ---- everything ---- */

enum nd_status nd_report_reduction_json(const struct nd_reduction *reduction, bool has_difference,
                                        const char *folder, char **out, struct nd_error *err)
{
    return nd_tree_end(ND_DOCUMENT_REDUCTION,
                       reduction_json(reduction, &(struct shown){has_difference, folder}), out, err);
}

enum nd_status nd_report_reduction_text(const struct nd_reduction *reduction, bool has_difference,
                                        const char *folder, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    put_reduction(&buf, reduction, &(struct shown){has_difference, folder});
    return nd_text_end(&buf, out, err);
}
