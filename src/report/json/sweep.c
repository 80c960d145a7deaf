/* What `npudiff sweep` found, as JSON. */
#include <math.h>

#include "core/documents/json_out.h"
#include "report/text/tree.h"

static json_t *count(size_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? nd_json_string(text) : json_null();
}

static const char *result_of(const struct nd_sweep_setting *setting)
{
    return setting->failure != NULL ? "failed" : setting->n_different > 0 ? "differs" : "same";
}

static json_t *setting_json(const struct nd_sweep_setting *setting)
{
    bool has_values = setting->failure == NULL, has_labels = setting->n_labelled > 0;
    return json_pack(
        "{s:o, s:o, s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "option",
        text_or_null(setting->option), "value", text_or_null(setting->value), "effect",
        nd_config_effect_name(setting->effect), "uri", nd_json_string(setting->uri), "result",
        result_of(setting), "failure", text_or_null(setting->failure), "tensors", count(setting->n_tensors),
        "tensors_different", count(setting->n_different), "first_difference", text_or_null(setting->first),
        "output_share", has_values ? nd_json_number(setting->output_share) : json_null(), "output_lsb",
        has_values ? count(setting->output_lsb) : json_null(), "sqnr_db", nd_json_known(setting->sqnr_db),
        "labelled", count(setting->n_labelled), "right", has_labels ? count(setting->n_right) : json_null(),
        "classes_changed", has_values ? count(setting->n_changed) : json_null(), "median_us",
        nd_json_known(setting->median_us));
}

enum nd_status nd_report_sweep_json(const struct nd_sweep *sweep, char **out, struct nd_error *err)
{
    json_t *settings = json_array();
    for (size_t i = 0; i < sweep->n_settings; i++)
        nd_tree_append(settings, setting_json(&sweep->settings[i]));
    json_t *members =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "result",
                  sweep->n_failed > 0     ? "failed"
                  : sweep->n_changing > 0 ? "differs"
                                          : "same",
                  "model", nd_json_string(sweep->model), "device", nd_json_string(sweep->device), "environment",
                  nd_json_string(sweep->environment), "samples", count(sweep->n_samples), "changing",
                  count(sweep->n_changing), "failed", count(sweep->n_failed), "settings", settings);
    return nd_tree_end(ND_DOCUMENT_SWEEP, members, out, err);
}
