/* What `npudiff align` made, as JSON and as text. */
#include <stdio.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/statistics/evidence.h"
#include "core/text/strbuf.h"
#include "improve/align/certificate/outputs_json.h"
#include "npudiff/improve/align.h"
#include "report/text/tree.h"

/* Chosen, as in certificates. */
static const double confidence = 0.95;

/* In points, after less before: the difference, and Tango's interval. docs/science/statistics.md#paired. */
struct accuracy_change {
    double points, low, high;
    double confidence; /* of the interval */
};

/* Of the labelled samples; there is one at least. */
static struct accuracy_change accuracy_change_of(const struct nd_alignment *alignment)
{
    size_t kept = alignment->n_right_before - alignment->n_right_to_wrong;
    size_t gained = alignment->n_right_after - kept;
    const struct nd_paired table = {.both_right = kept,
                                    .ref_only = alignment->n_right_to_wrong,
                                    .test_only = gained,
                                    .both_wrong =
                                        alignment->n_labelled - kept - alignment->n_right_to_wrong - gained};
    const struct nd_interval interval = nd_paired_tango(&table, confidence);
    return (struct accuracy_change){100 * nd_paired_difference(&table), 100 * interval.low, 100 * interval.high,
                                    confidence};
}

static const char *end_word(enum nd_align_end end)
{
    static const char *const words[] = {"aligned", "differs", "inconclusive", "over budget"};
    return words[end];
}

/* ---- JSON ---- */

static json_t *counterexample_json(const struct nd_alignment *alignment, const struct nd_alignment_layer *layer)
{
    if (layer->n_unequal == 0)
        return json_null();
    return json_pack("{s:o, s:o, s:[{s:s, s:o}, {s:s, s:o}]}", "channel", nd_int(layer->channel), "sum",
                     nd_json_number(layer->sum), "values", "arithmetic", alignment->arithmetics[0], "value",
                     nd_json_number(layer->values[0]), "arithmetic", alignment->arithmetics[layer->against],
                     "value", nd_json_number(layer->values[1]));
}

static json_t *scaling_json(const struct nd_alignment_layer *layer)
{
    if (!layer->is_product)
        return json_null();
    bool is_planned = layer->is_planned;
    return json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:b}", "planned", (int)is_planned, "obstacle",
                     nd_or_null(layer->obstacle), "exponent",
                     is_planned ? json_integer(layer->exponent) : json_null(), "same_exponent",
                     is_planned ? json_boolean(!layer->has_exponents) : json_null(), "weights_coarser",
                     is_planned ? nd_json_number(layer->weight_factor) : json_null(), "output_coarser",
                     is_planned ? nd_json_number(layer->output_factor) : json_null(), "weights_from_float",
                     (int)layer->is_from_float);
}

/* In points: hundredths of the labelled samples. */
static json_t *accuracy_json(const struct nd_alignment *alignment)
{
    if (alignment->n_labelled == 0)
        return json_null();
    const struct accuracy_change change = accuracy_change_of(alignment);
    return json_pack("{s:o, s:o, s:o, s:o}", "points", nd_json_number(change.points), "low",
                     nd_json_number(change.low), "high", nd_json_number(change.high), "confidence",
                     nd_json_number(change.confidence));
}

static json_t *accuracy_cost_json(const struct nd_alignment *alignment)
{
    if (alignment->n_outputs == 0)
        return json_null();
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "reference",
        alignment->float_model != NULL ? "float" : "quantised", "samples", nd_int(alignment->n_samples),
        "fit_samples", nd_int(alignment->n_fit_samples), "fit_samples_priced", nd_int(alignment->n_fit_priced),
        "outputs", nd_alignment_outputs_json(alignment), "budget_db", nd_json_known(alignment->budget_db),
        "labelled", nd_int(alignment->n_labelled), "right_before", nd_int(alignment->n_right_before),
        "right_after", nd_int(alignment->n_right_after), "classes_changed", nd_int(alignment->n_changed),
        "accuracy_change", accuracy_json(alignment));
}

static json_t *curve_json(const struct nd_alignment *alignment)
{
    if (alignment->n_points == 0)
        return json_null();
    json_t *points = json_array();
    for (size_t i = 0; i < alignment->n_points; i++) {
        const struct nd_alignment_point *point = &alignment->points[i];
        nd_tree_append(points,
                       json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "layers",
                                 nd_int(point->n_layers), "last", nd_or_null(point->layer), "effect_db",
                                 nd_json_known(point->effect_db), "sqnr_db", nd_json_known(point->sqnr_db),
                                 "loss_db", nd_json_known(point->loss_db), "values", nd_int(point->n_values),
                                 "different", nd_int(point->n_different), "tensors", nd_int(point->n_tensors),
                                 "tensors_different", nd_int(point->n_tensors_different)));
    }
    return json_pack("{s:o, s:o}", "samples", nd_int(alignment->n_curve_samples), "points", points);
}

static json_t *devices_json(const struct nd_alignment *alignment)
{
    if (alignment->n_devices == 0)
        return json_null();
    json_t *labels = json_array();
    for (size_t i = 0; i < alignment->n_devices; i++)
        nd_tree_append(labels, nd_json_string(alignment->devices[i]));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "devices", labels, "groups",
                     nd_json_string(alignment->groups), "tensors", nd_int(alignment->n_tensors),
                     "tensors_equal", nd_int(alignment->n_tensors_equal), "samples",
                     nd_int(alignment->n_device_samples), "refuted", nd_int(alignment->n_refuted));
}

enum nd_status nd_report_alignment_json(const struct nd_alignment *alignment, char **out, struct nd_error *err)
{
    json_t *layers = json_array(), *arithmetics = json_array();
    for (size_t i = 0; i < alignment->n_layers; i++) {
        const struct nd_alignment_layer *layer = &alignment->layers[i];
        bool is_covered = layer->n_channels > 0;
        nd_tree_append(layers,
                       json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tensor",
                                 nd_json_string(layer->name), "operators", nd_json_string(layer->op_types),
                                 "state", nd_align_state_name(layer->state), "reason",
                                 nd_or_null(layer->reason), "scaling", scaling_json(layer), "channels",
                                 is_covered ? nd_int(layer->n_channels) : json_null(), "channels_unequal",
                                 is_covered ? nd_int(layer->n_unequal) : json_null(), "sums",
                                 is_covered ? nd_json_number(layer->n_sums) : json_null(), "counterexample",
                                 counterexample_json(alignment, layer), "groups",
                                 layer->n_groups > 0 ? nd_int(layer->n_groups) : json_null()));
    }
    for (size_t i = 0; i < alignment->n_arithmetics; i++)
        nd_tree_append(arithmetics, nd_json_string(alignment->arithmetics[i]));
    json_t *counts =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "layers",
                  nd_int(alignment->n_layers), "proven", nd_int(alignment->n_proven), "tested",
                  nd_int(alignment->n_tested), "unknown", nd_int(alignment->n_unknown), "differ",
                  nd_int(alignment->n_differ), "products", nd_int(alignment->n_products), "planned",
                  nd_int(alignment->n_planned), "weighted", nd_int(alignment->n_weighted), "from_float",
                  nd_int(alignment->n_from_float), "float_tensors", nd_int(alignment->n_floats), "folded",
                  nd_int(alignment->n_folded), "equalised", nd_int(alignment->n_equalised));
    return nd_tree_end(
        ND_DOCUMENT_ALIGNMENT,
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "result", end_word(alignment->end),
                  "model", nd_json_string(alignment->model), "output", nd_or_null(alignment->output),
                  "certificate", nd_or_null(alignment->certificate), "float_model",
                  nd_or_null(alignment->float_model), "arithmetics", arithmetics, "counts", counts,
                  "accuracy_cost", accuracy_cost_json(alignment), "curve", curve_json(alignment),
                  "verification", devices_json(alignment), "layers", layers),
        out, err);
}

/* ---- the answer in one screen ---- */

static char *joined(char *const *texts, size_t n)
{
    struct nd_strbuf text = {0};
    for (size_t i = 0; i < n; i++)
        nd_strbuf_printf(&text, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " and ", texts[i]);
    return nd_strbuf_take(&text);
}

static void say_headline(struct nd_report_screen *screen, const struct nd_alignment *alignment)
{
    ND_FREED char *names = joined(alignment->arithmetics, alignment->n_arithmetics);
    if (names == NULL) {
        nd_report_screen_lose(screen);
        return;
    }
    switch (alignment->end) {
    case ND_ALIGN_END_ALIGNED:
        nd_report_screen_put(screen,
                             "ALIGNED: all %zu layers give the same bits on %s (%zu proven, %zu as tested)\n",
                             alignment->n_layers, names, alignment->n_proven, alignment->n_tested);
        break;
    case ND_ALIGN_END_DIFFERS:
        nd_report_screen_put(screen,
                             "NOT ALIGNED: %zu of %zu layers can differ between %s (%zu proven equal, %zu as "
                             "tested, %zu unknown)\n",
                             alignment->n_differ, alignment->n_layers, names, alignment->n_proven,
                             alignment->n_tested, alignment->n_unknown);
        break;
    case ND_ALIGN_END_UNKNOWN:
        nd_report_screen_put(screen,
                             "INCONCLUSIVE: %zu of %zu layers are neither proven nor tested on %s (%zu proven "
                             "equal, %zu as tested)\n",
                             alignment->n_unknown, alignment->n_layers, names, alignment->n_proven,
                             alignment->n_tested);
        break;
    case ND_ALIGN_END_OVER_BUDGET:
        nd_report_screen_put(screen, "REFUSED: alignment costs more than %g dB; nothing was written\n",
                             alignment->budget_db);
        break;
    }
}

static void say_model(struct nd_report_screen *screen, const struct nd_alignment *alignment)
{
    nd_report_screen_put(screen, "%s: %zu of %zu Conv, Gemm and MatMul layers now multiply by a power of two\n",
                         nd_path_base(alignment->model), alignment->n_planned, alignment->n_products);
    if (alignment->n_folded > 0)
        nd_report_screen_put(screen, "%zu BatchNormalization %s now part of the ConvTranspose before it.\n",
                             alignment->n_folded, alignment->n_folded == 1 ? "is" : "are");
    if (alignment->n_equalised > 0)
        nd_report_screen_put(screen,
                             "%zu %s of layers equalised, which gains precision: tensors between them have "
                             "channels of other sizes than in the float model (--no-equalise leaves them).\n",
                             alignment->n_equalised, alignment->n_equalised == 1 ? "pair" : "pairs");
    if (alignment->float_model != NULL)
        nd_report_screen_put(screen, "Weights rounded anew from '%s': %zu of %zu layers.\n",
                             nd_path_base(alignment->float_model), alignment->n_from_float,
                             alignment->n_weighted);
    else
        nd_report_screen_put(screen,
                             "Weights rounded anew from the quantised ones (--float gives better ones).\n");
    if (alignment->output != NULL)
        nd_report_screen_put(screen, "Written to '%s'%s%s%s.\n", alignment->output,
                             alignment->certificate != NULL ? ", certificate in '" : "",
                             alignment->certificate != NULL ? alignment->certificate : "",
                             alignment->certificate != NULL ? "'" : "");
}

static void say_rows(struct nd_report_screen *screen, json_t *rows, const struct nd_report_column *columns,
                     const char *more)
{
    nd_report_screen_put(screen, "\n");
    nd_screen_rows(screen, rows, columns, more);
}

static void say_accuracy_cost(struct nd_report_screen *screen, const struct nd_alignment *alignment)
{
    static const struct nd_report_column columns[] = {{"output", "OUTPUT"},
                                                      {"before", "DB BEFORE"},
                                                      {"after", "DB AFTER"},
                                                      {"change", "CHANGE, DB"},
                                                      {NULL, NULL}};
    static const struct nd_report_column columns_alone[] = {
        {"output", "OUTPUT"}, {"after", "TO THE MODEL AS IT WAS, DB"}, {NULL, NULL}};
    json_t *rows = json_array();
    if (alignment->n_outputs == 0) {
        json_decref(rows);
        nd_report_screen_put(screen, "The accuracy cost is not known: --float and -p measure it.\n");
        return;
    }
    for (size_t i = 0; i < alignment->n_outputs; i++) {
        json_t *row = json_pack("{s:o}", "output", nd_json_string(alignment->outputs[i].name));
        nd_tree_number(row, "before", "%.2f", alignment->outputs[i].sqnr_before_db);
        nd_tree_number(row, "after", "%.2f", alignment->outputs[i].sqnr_after_db);
        nd_tree_number(row, "change", "%+.2f", 0.0 - alignment->outputs[i].loss_db);
        nd_tree_append(rows, row);
    }
    char fitted[96] = "";
    if (alignment->n_fit_priced > 0)
        snprintf(fitted, sizeof fitted, " (weights were rounded for %zu of them; --fit takes others)",
                 alignment->n_fit_priced);
    nd_report_screen_put(screen, "\nSignal-to-noise ratio of the outputs%s, %zu sample%s%s, exact rounding:",
                         alignment->float_model != NULL ? " to the float model" : "", alignment->n_samples,
                         alignment->n_samples == 1 ? "" : "s", fitted);
    say_rows(screen, rows, alignment->float_model != NULL ? columns : columns_alone, "-v shows all");
    if (alignment->n_labelled == 0)
        return;
    const struct accuracy_change change = accuracy_change_of(alignment);
    nd_report_screen_put(
        screen, "\nRight classes: %zu, then %zu of %zu (%.0f %%: %+.2f to %+.2f points); %zu changed.\n",
        alignment->n_right_before, alignment->n_right_after, alignment->n_labelled, 100 * change.confidence,
        change.low, change.high, alignment->n_changed);
}

/* What part of the alignment costs how much. */
static void say_curve(struct nd_report_screen *screen, const struct nd_alignment *alignment)
{
    static const struct nd_report_column columns[] = {{"layers", "LAYERS"},        {"change", "CHANGE, DB"},
                                                      {"values", "OUTPUT VALUES"}, {"tensors", "TENSORS"},
                                                      {"last", "LAST LAYER"},      {NULL, NULL}};
    json_t *rows = json_array();
    for (size_t i = 0; i < alignment->n_points; i++) {
        const struct nd_alignment_point *point = &alignment->points[i];
        char values[ND_NUMBER_BYTES], tensors[64];
        nd_format_share(point->n_different, point->n_values, values);
        snprintf(tensors, sizeof tensors, "%zu of %zu", point->n_tensors_different, point->n_tensors);
        json_t *row =
            json_pack("{s:o, s:s, s:s, s:o}", "layers", nd_int(point->n_layers), "values", values, "tensors",
                      tensors, "last", nd_json_string(point->layer != NULL ? point->layer : ""));
        nd_tree_number(row, "change", "%+.2f", 0.0 - point->loss_db);
        nd_tree_append(rows, row);
    }
    if (alignment->n_points == 0) {
        json_decref(rows);
        return;
    }
    nd_report_screen_put(screen,
                         "\nAlignment of the first layers only, those with the largest effect on the outputs "
                         "first. OUTPUT VALUES, TENSORS: those that still differ between the arithmetics.");
    say_rows(screen, rows, columns, "-v shows all");
}

static void say_devices(struct nd_report_screen *screen, const struct nd_alignment *alignment)
{
    if (alignment->n_devices == 0)
        return;
    nd_report_screen_put(screen, "\nDevices: %s; %zu of %zu tensors are equal on all of them, %zu samples.\n",
                         alignment->groups, alignment->n_tensors_equal, alignment->n_tensors,
                         alignment->n_device_samples);
    if (alignment->n_refuted > 0)
        nd_report_screen_put(
            screen, "%zu proven layers differ on the devices: a device has another arithmetic than %s.\n",
            alignment->n_refuted, alignment->arithmetics[0]);
}

static const char *state_word(const struct nd_alignment_layer *layer)
{
    static const char *const words[] = {"proven", "as tested", "unknown", "DIFFERS"};
    return words[layer->state];
}

static json_t *short_row(const struct nd_alignment_layer *layer)
{
    return json_pack("{s:o, s:o, s:s, s:o}", "layer", nd_json_string(layer->name), "operators",
                     nd_json_string(layer->op_types), "state", state_word(layer), "why",
                     nd_json_string(layer->obstacle != NULL ? layer->obstacle
                                    : layer->reason != NULL ? layer->reason
                                                            : ""));
}

/* Layers of the same kind in the same state are one row. */
static json_t *group_of(json_t *rows, const json_t *row)
{
    static const char *const keys[] = {"operators", "state", "why"};
    size_t index;
    json_t *group;
    json_array_foreach(rows, index, group) {
        bool is_same = true;
        for (size_t k = 0; k < sizeof keys / sizeof keys[0] && is_same; k++)
            is_same = json_equal(json_object_get(group, keys[k]), json_object_get(row, keys[k])) != 0;
        if (is_same)
            return group;
    }
    return NULL;
}

/* The layers that are not proven, those that differ first. */
static void say_open_layers(struct nd_report_screen *screen, const struct nd_alignment *alignment)
{
    static const struct nd_report_column columns[] = {{"layers", "LAYERS"},
                                                      {"operators", "OPERATORS"},
                                                      {"state", "STATE"},
                                                      {"why", "WHY NOT PROVEN"},
                                                      {NULL, NULL}};
    static const enum nd_align_state order[] = {ND_ALIGN_DIFFERS, ND_ALIGN_UNKNOWN, ND_ALIGN_TESTED};
    json_t *rows = json_array();
    for (size_t s = 0; s < sizeof order / sizeof order[0]; s++)
        for (size_t i = 0; i < alignment->n_layers; i++)
            if (alignment->layers[i].state == order[s]) {
                json_t *row = short_row(&alignment->layers[i]);
                json_t *group = group_of(rows, row);
                json_int_t n = group != NULL ? json_integer_value(json_object_get(group, "layers")) : 0;
                if (group == NULL)
                    nd_tree_append(rows, json_incref(row));
                nd_tree_set(group != NULL ? group : row, "layers", json_integer(n + 1));
                json_decref(row);
            }
    if (json_array_size(rows) > 0)
        say_rows(screen, rows, columns, "-v shows all");
    else
        json_decref(rows);
}

static void say_next(struct nd_report_screen *screen, const struct nd_alignment *alignment)
{
    if (alignment->output == NULL || alignment->n_devices > 0)
        return;
    const char *const words[] = {"npudiff",      "run", alignment->output, "-d", "htp-sim:gen1", "-d",
                                 "htp-sim:gen3", "-p",  "uniform"};
    nd_report_screen_next(screen, "to see the same bits on two chips", words, sizeof words / sizeof words[0]);
}

enum nd_status nd_report_alignment_brief(const struct nd_alignment *alignment, size_t width, char **out,
                                         struct nd_error *err)
{
    struct nd_report_screen *screen = nd_report_screen_create(width);
    bool is_refused = alignment->end == ND_ALIGN_END_OVER_BUDGET;
    say_headline(screen, alignment);
    if (!is_refused)
        say_model(screen, alignment);
    if (!is_refused || alignment->n_outputs > 0)
        say_accuracy_cost(screen, alignment);
    say_curve(screen, alignment);
    say_devices(screen, alignment);
    if (!is_refused)
        say_open_layers(screen, alignment);
    say_next(screen, alignment);
    return nd_report_screen_end(&screen, out, err);
}

/* ---- everything ---- */

static void describe_scaling(const struct nd_alignment_layer *layer, json_t *row)
{
    char text[64];
    if (!layer->is_planned)
        return;
    snprintf(text, sizeof text, layer->has_exponents ? "2^-%d and less" : "2^-%d", layer->exponent);
    nd_tree_set(row, "multiplier", nd_json_string(text));
    nd_tree_number(row, "weights", "%.3f", layer->weight_factor);
    nd_tree_number(row, "output", "%.3f", layer->output_factor);
}

enum nd_status nd_report_alignment_text(const struct nd_alignment *alignment, char **out, struct nd_error *err)
{
    static const struct nd_report_column columns[] = {{"layer", "LAYER"},        {"operators", "OPERATORS"},
                                                      {"state", "STATE"},        {"multiplier", "MULTIPLIER"},
                                                      {"weights", "WEIGHTS x"},  {"output", "OUTPUT x"},
                                                      {"channels", "CHANNELS"},  {"sums", "SUMS"},
                                                      {"why", "WHY NOT PROVEN"}, {NULL, NULL}};
    struct nd_strbuf text = {0};
    char *brief = NULL;
    ND_TRY(nd_report_alignment_brief(alignment, 0, &brief, err));
    nd_strbuf_puts(&text, brief);
    free(brief);
    json_auto_t *rows = json_array();
    for (size_t i = 0; i < alignment->n_layers; i++) {
        const struct nd_alignment_layer *layer = &alignment->layers[i];
        json_t *row = short_row(layer);
        describe_scaling(layer, row);
        if (layer->n_channels > 0) {
            nd_tree_set(row, "channels", nd_int(layer->n_channels));
            nd_tree_number(row, "sums", "%.4g", layer->n_sums);
        }
        if (layer->n_unequal > 0) {
            char *why = nd_text("%s: %zu channels; in channel %zu the sum %.0f gives %.0f on %s and %.0f on %s",
                                layer->reason != NULL ? layer->reason : "", layer->n_unequal, layer->channel,
                                layer->sum, layer->values[0], alignment->arithmetics[0], layer->values[1],
                                alignment->arithmetics[layer->against]);
            nd_tree_set(row, "why", nd_json_string(why));
            free(why);
        }
        nd_tree_append(rows, row);
    }
    nd_strbuf_puts(&text, "\nAll layers. WEIGHTS and OUTPUT: how many times coarser their steps became. SUMS: "
                          "sums of products that a proof covers.\n");
    nd_rows_put(&text, rows, columns);
    return nd_text_end(&text, out, err);
}

/* ---- what `npudiff verify` says of a certificate ---- */

enum nd_status nd_report_certificate_json(const struct nd_certificate_check *check, char **out,
                                          struct nd_error *err)
{
    json_t *refusals = json_array(), *arithmetics = json_array();
    for (size_t i = 0; i < check->n_refusals; i++)
        nd_tree_append(refusals, json_pack("{s:s, s:o}", "what", check->refusals[i].what, "text",
                                           nd_json_string(check->refusals[i].text)));
    for (size_t i = 0; i < check->n_arithmetics; i++)
        nd_tree_append(arithmetics, nd_json_string(check->arithmetics[i]));
    json_t *counts = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "layers", nd_int(check->n_layers),
                               "proven", nd_int(check->n_proven), "proven_again", nd_int(check->n_proven_again),
                               "tested", nd_int(check->n_tested), "tested_again", nd_int(check->n_tested_again),
                               "unknown", nd_int(check->n_unknown), "differ", nd_int(check->n_differ), "sums",
                               nd_json_number(check->n_sums));
    return nd_tree_end(ND_DOCUMENT_CERTIFICATE_CHECK,
                       json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o}", "verdict",
                                 nd_certificate_end_name(check->end), "certificate",
                                 nd_json_string(check->certificate), "model", nd_json_string(check->model),
                                 "written_by", nd_json_string(check->version), "refusals", refusals,
                                 "arithmetics", arithmetics, "counts", counts, "accuracy_cost_checked",
                                 (int)check->is_accuracy_cost_checked, "groups",
                                 check->groups != NULL ? nd_json_string(check->groups) : json_null()),
                       out, err);
}

static void say_layers(struct nd_report_screen *screen, const struct nd_certificate_check *check)
{
    struct nd_strbuf names = {0};
    for (size_t i = 0; i < check->n_arithmetics; i++)
        nd_strbuf_printf(&names, "%s%s", i == 0 ? "" : ", ", check->arithmetics[i]);
    char *text = nd_strbuf_take(&names);
    if (text != NULL)
        nd_report_screen_put(screen, "The file and the arithmetics (%s) are those of the certificate.\n", text);
    else
        nd_report_screen_lose(screen);
    free(text);
    nd_report_screen_put(screen, "Proven again: %zu of %zu layers, for %.4g sums of products.\n",
                         check->n_proven_again, check->n_layers, check->n_sums);
    if (check->n_tested > 0 && check->n_devices == 0)
        nd_report_screen_put(
            screen, "As tested: %zu layers; -d DEVICE -d DEVICE -p PROBE runs them again (not done).\n",
            check->n_tested);
    else if (check->n_tested > 0)
        nd_report_screen_put(screen, "Equal on the devices again: %zu of %zu layers that are as tested.\n",
                             check->n_tested_again, check->n_tested);
    if (check->groups != NULL)
        nd_report_screen_put(screen, "Devices: %s.\n", check->groups);
    if (check->n_unknown > 0)
        nd_report_screen_put(screen, "Unknown: %zu layers, which the certificate does not call equal.\n",
                             check->n_unknown);
    if (check->n_differ > 0)
        nd_report_screen_put(screen, "Different: %zu layers, as the certificate says.\n", check->n_differ);
    if (check->is_accuracy_cost_checked)
        nd_report_screen_put(screen, "The accuracy cost is as stated.\n");
    else if (check->has_accuracy_cost)
        nd_report_screen_put(screen, "The accuracy cost was not measured again; --model and -p do that.\n");
}

enum nd_status nd_report_certificate_brief(const struct nd_certificate_check *check, size_t width, char **out,
                                           struct nd_error *err)
{
    struct nd_report_screen *screen = nd_report_screen_create(width);
    const char *certificate = nd_path_base(check->certificate), *model = nd_path_base(check->model);
    size_t n_open = check->n_unknown + check->n_tested - check->n_tested_again;
    switch (check->end) {
    case ND_CERTIFICATE_HOLDS:
        nd_report_screen_put(screen, "VALID: '%s' holds for '%s': all %zu layers give the same bits\n",
                             certificate, model, check->n_layers);
        break;
    case ND_CERTIFICATE_OPEN:
        nd_report_screen_put(screen, "VALID SO FAR: '%s' holds for '%s', but %zu of %zu layers are open\n",
                             certificate, model, n_open, check->n_layers);
        break;
    case ND_CERTIFICATE_DIFFERS:
        nd_report_screen_put(screen, "VALID, NOT ALIGNED: '%s' says that %zu of %zu layers of '%s' differ\n",
                             certificate, check->n_differ, check->n_layers, model);
        break;
    case ND_CERTIFICATE_REFUSED:
        nd_report_screen_put(screen, "REFUSED: '%s' does not hold for '%s'\n", certificate, model);
        break;
    }
    if (check->n_refusals > 0) {
        enum { MOST = 12 }; /* lines of one screen */
        for (size_t i = 0; i < check->n_refusals && i < MOST; i++)
            nd_report_screen_put(screen, "* %s.\n", check->refusals[i].text);
        if (check->n_refusals > MOST)
            nd_report_screen_put(screen, "... and %zu more; --json lists all.\n", check->n_refusals - MOST);
    } else
        say_layers(screen, check);
    return nd_report_screen_end(&screen, out, err);
}
