/* What `npudiff twin check` found, as JSON, which is its certificate, and as text.
 * docs/reference/commands.md#npudiff-twin. */
#include <math.h>

#include "core/files/file.h"
#include "report/text/tree.h"

static enum nd_twin_end worst_of(const struct nd_twin_check *const *checks, size_t n)
{
    enum nd_twin_end worst = ND_TWIN_EQUAL;
    for (size_t i = 0; i < n; i++)
        worst = checks[i]->end > worst ? checks[i]->end : worst;
    return worst;
}

/* ---- JSON ---- */

/* What the twin says of the tensor. */
static const char *claim_of(const struct nd_twin_checked *tensor)
{
    return tensor->mark.why != NULL ? "not-known" : tensor->mark.is_behind ? "behind" : "claimed";
}

static json_t *check_json(const struct nd_twin_check *check)
{
    json_t *tensors = json_array();
    for (size_t i = 0; i < check->n_tensors; i++) {
        const struct nd_twin_checked *tensor = &check->tensors[i];
        nd_tree_append(tensors, json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "tensor",
                                          nd_json_string(tensor->name), "operators",
                                          nd_json_string(tensor->op_types), "claim", claim_of(tensor), "reason",
                                          nd_or_null(tensor->mark.why), "samples", nd_int(tensor->n_samples),
                                          "samples_differing", nd_int(tensor->n_samples_differing), "values",
                                          nd_int(tensor->n_values), "values_differing",
                                          tensor->has_values ? nd_int(tensor->n_differing) : json_null(),
                                          "largest", nd_json_known(tensor->largest)));
    }
    json_t *counts =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tensors", nd_int(check->n_tensors), "equal",
                  nd_int(check->n_equal), "claimed", nd_int(check->n_claimed), "claimed_equal",
                  nd_int(check->n_claimed_equal), "left_out", nd_int(check->n_left_out), "samples",
                  nd_int(check->n_samples), "samples_equal", nd_int(check->n_samples_equal), "values",
                  nd_int(check->n_values), "values_differing", nd_int(check->n_differing));
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "result", nd_twin_end_name(check->end), "device",
                     nd_json_string(check->device), "capture", nd_json_string(check->capture), "content_digest",
                     nd_or_null(check->content_digest), "twin", nd_json_string(check->chip), "counts", counts,
                     "tensors", tensors);
}

enum nd_status nd_report_twin_json(const struct nd_twin_check *const *checks, size_t n,
                                   const struct nd_model *model, char **out, struct nd_error *err)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++)
        nd_tree_append(rows, check_json(checks[i]));
    json_t *members =
        json_pack("{s:s, s:o, s:s, s:o}", "result", nd_twin_end_name(worst_of(checks, n)), "model",
                  nd_json_string(nd_model_path(model)), "sha256", nd_model_sha256(model), "devices", rows);
    return nd_tree_end(ND_DOCUMENT_TWIN_CHECK, members, out, err);
}

/* ---- the answer in one screen ---- */

static json_t *device_row(const struct nd_twin_check *check)
{
    char tensors[64], samples[64];
    bool has_values = true; /* of what differs */
    for (size_t i = 0; i < check->n_tensors; i++)
        has_values &= check->tensors[i].has_values || check->tensors[i].n_samples_differing == 0;
    snprintf(tensors, sizeof tensors, "%zu of %zu", check->n_equal, check->n_tensors);
    snprintf(samples, sizeof samples, "%zu of %zu", check->n_samples_equal, check->n_samples);
    return json_pack("{s:o, s:o, s:s, s:s, s:s, s:s}", "device", nd_json_string(check->device), "twin",
                     nd_json_string(check->chip), "result", nd_twin_end_name(check->end), "tensors", tensors,
                     "samples", samples, "values",
                     has_values ? ND_PERCENT(1 - (double)check->n_differing / (double)check->n_values) : "?");
}

static void put_differing(struct nd_report_screen *screen, const struct nd_twin_check *const *checks, size_t n)
{
    static const struct nd_report_column columns[] = {{"device", "DEVICE"},
                                                      {"tensor", "DIFFERS"},
                                                      {"operators", "OPERATORS"},
                                                      {"claim", "TWIN SAYS"},
                                                      {"values", "VALUES"},
                                                      {"largest", "UP TO"},
                                                      {NULL, NULL}};
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++)
        for (size_t t = 0; t < checks[i]->n_tensors; t++)
            if (checks[i]->tensors[t].n_samples_differing > 0) {
                const struct nd_twin_checked *tensor = &checks[i]->tensors[t];
                char values[64] = "?", largest[ND_NUMBER_BYTES] = "?";
                if (tensor->has_values) {
                    snprintf(values, sizeof values, "%llu of %llu", (unsigned long long)tensor->n_differing,
                             (unsigned long long)tensor->n_values);
                    nd_format_short(tensor->largest, largest);
                }
                nd_tree_append(rows, json_pack("{s:o, s:o, s:o, s:s, s:s, s:s}", "device",
                                               nd_json_string(checks[i]->device), "tensor",
                                               nd_json_string(tensor->name), "operators",
                                               nd_json_string(tensor->op_types), "claim", claim_of(tensor),
                                               "values", values, "largest", largest));
            }
    nd_report_screen_put(screen, "\n");
    nd_screen_rows(screen, rows, columns, "--json lists all");
}

/* Why the first tensor that is not known is not. */
static void put_reason(struct nd_report_screen *screen, const struct nd_twin_check *const *checks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t t = 0; t < checks[i]->n_tensors; t++) {
            const struct nd_twin_checked *tensor = &checks[i]->tensors[t];
            if (tensor->mark.why != NULL && tensor->n_samples_differing > 0) {
                nd_report_screen_put(screen, "\n'%s' (%s) on %s is not known: %s.\n", tensor->name,
                                     tensor->op_types, checks[i]->device, tensor->mark.why);
                return;
            }
        }
}

enum nd_status nd_report_twin_text(const struct nd_twin_check *const *checks, size_t n,
                                   const struct nd_model *model, size_t width, char **out, struct nd_error *err)
{
    static const char *const headlines[] = {
        [ND_TWIN_EQUAL] = "EQUAL: the twin gives every bit",
        [ND_TWIN_MARKED] = "NOT KNOWN: tensors differ that the twin does not know, or that follow from one",
        [ND_TWIN_DIFFERS] = "DIFFERS: a tensor that the twin claims to know has other values",
    };
    static const struct nd_report_column columns[] = {{"device", "DEVICE"},
                                                      {"twin", "TWIN"},
                                                      {"result", "RESULT"},
                                                      {"tensors", "EQUAL TENSORS"},
                                                      {"samples", "EQUAL SAMPLES"},
                                                      {"values", "EQUAL VALUES"},
                                                      {NULL, NULL}};
    struct nd_report_screen *screen = nd_report_screen_create(width);
    enum nd_twin_end worst = worst_of(checks, n);
    size_t n_left_out = 0;
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++) {
        nd_tree_append(rows, device_row(checks[i]));
        n_left_out += checks[i]->n_left_out;
    }
    nd_report_screen_put(screen, "%s\n%s: %zu capture%s\n\n", headlines[worst],
                         nd_path_base(nd_model_path(model)), n, nd_plural(n));
    nd_screen_rows(screen, rows, columns, "--json lists all");
    if (n_left_out > 0)
        nd_report_screen_put(screen,
                             "\nNot compared: %zu tensor%s that a capture holds in another type or shape.\n",
                             n_left_out, nd_plural(n_left_out));
    if (worst != ND_TWIN_EQUAL)
        put_differing(screen, checks, n);
    put_reason(screen, checks, n);
    if (worst == ND_TWIN_DIFFERS) {
        size_t i = 0;
        while (checks[i]->end != worst)
            i++;
        const char *const words[] = {"npudiff", "explain", "--quantised", nd_model_path(model),
                                     checks[i]->capture};
        nd_report_screen_next(screen, "to see whether the device is healthy", words,
                              sizeof words / sizeof words[0]);
    }
    return nd_report_screen_end(&screen, out, err);
}
