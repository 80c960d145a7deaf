#include <stdlib.h>

#include "core/error.h"
#include "npudiff/report/report.h"
#include "report/json/diagnoses.h"
#include "report/json/difference.h"
#include "report/text/tree.h"

static void put_pair(struct nd_json *json, const struct nd_comparison *c, const struct nd_compared_edge *edge,
                     const struct nd_compared_pair *pair)
{
    nd_json_open(json, NULL, '{');
    nd_json_count(json, "ref", pair->ref);
    nd_json_count(json, "test", pair->test);
    nd_json_text(json, "verdict", nd_verdict_name(pair->verdict));
    nd_json_bool(json, "unrecorded_input", pair->is_unrecorded_input);
    nd_json_bool(json, "within_noise", pair->within_noise);
    nd_json_text(json, "label", pair->label);
    nd_json_put_part(json, c, edge, &pair->total);
    nd_json_text(json, "signal_probe",
                 pair->signal_probe < c->n_probes ? c->probes[pair->signal_probe].name : NULL);
    nd_json_open(json, "probes", '[');
    for (size_t p = 0; p < c->n_probes; p++) {
        nd_json_open_line(json, NULL, '{');
        nd_json_text(json, "probe", c->probes[p].name);
        nd_json_put_part(json, c, edge, &pair->probes[p]);
        nd_json_close(json, '}');
    }
    nd_json_close(json, ']');
    if (c->per_channel) {
        nd_json_open(json, "channels", '[');
        for (size_t i = 0; i < pair->n_channels; i++)
            nd_json_put_channel(json, i, &pair->channels[i]);
        nd_json_close(json, ']');
    }
    nd_json_close(json, '}');
}

static void put_noise(struct nd_json *json, const struct nd_difference *noise)
{
    if (noise == NULL || !noise->has_values) {
        nd_json_null(json, "noise");
        return;
    }
    nd_json_open_line(json, "noise", '{');
    nd_json_real_if(json, "max_abs", noise->has_errors, noise->abs.max);
    nd_json_real(json, "share", noise->share);
    nd_json_count_if(json, "max_lsb", noise->is_integer, noise->max_lsb);
    nd_json_count_if(json, "max_ulp", !noise->is_integer, noise->max_ulp);
    nd_json_close(json, '}');
}

static void put_edge_device(struct nd_json *json, const struct nd_edge_on_device *device)
{
    nd_json_open_line(json, NULL, '{');
    nd_json_bool(json, "exists", device->exists);
    nd_json_text(json, "provider", device->provider);
    nd_json_bool(json, "cpu_fallback", device->is_on_cpu);
    nd_json_count(json, "unstable_samples", device->n_unstable);
    nd_json_count(json, "repeats", device->n_repeats);
    nd_json_count(json, "repeats_unequal", device->n_repeats_unequal);
    nd_json_real(json, "unstable_bound", device->unstable_bound);
    put_noise(json, device->noise);
    nd_json_bool(json, "stuck_output", device->is_stuck);
    nd_json_close(json, '}');
}

static const char *first_reason(const struct nd_comparison *c, const struct nd_compared_edge *edge)
{
    for (size_t t = 1; t < c->n_devices; t++)
        if (edge->pairs[t - 1].total.reason != NULL)
            return edge->pairs[t - 1].total.reason;
    return NULL;
}

static void put_edge(struct nd_json *json, const struct nd_comparison *c, const struct nd_compared_edge *edge)
{
    nd_json_open(json, NULL, '{');
    nd_json_text(json, "name", edge->name);
    nd_json_text(json, "op_types", edge->op_types);
    nd_json_text(json, "dtype", nd_dtype_name(edge->dtype));
    nd_json_put_shape(json, "shape", &edge->shape, edge->shape.dims);
    nd_json_bool(json, "quantised", edge->is_quantised);
    nd_json_bool(json, "model_input", edge->is_model_input);
    nd_json_bool(json, "model_output", edge->is_model_output);
    nd_json_bool(json, "comparable", edge->comparable);
    nd_json_text(json, "reason", first_reason(c, edge));
    nd_json_text(json, "verdict", nd_verdict_name(edge->verdict));
    nd_json_text(json, "gate", edge->gate);
    nd_json_index(json, "odd_one_out", edge->odd_one_out);
    nd_json_open_line(json, "groups", '[');
    for (size_t i = 0; i < c->n_devices; i++)
        nd_json_int(json, NULL, edge->devices[i].class_id);
    nd_json_close(json, ']');
    nd_json_open(json, "devices", '[');
    for (size_t i = 0; i < c->n_devices; i++)
        put_edge_device(json, &edge->devices[i]);
    nd_json_close(json, ']');
    nd_json_open(json, "pairs", '[');
    for (size_t i = 0; i < c->n_pairs; i++)
        put_pair(json, c, edge, &edge->pairs[i]);
    nd_json_close(json, ']');
    nd_json_close(json, '}');
}

/* null for a device that is no NPU. */
static void put_npu_share(struct nd_json *json, const struct nd_compared_device *device)
{
    const struct nd_npu_share *share = &device->npu_share;
    if (!device->is_npu) {
        nd_json_null(json, "npu_share");
        return;
    }
    nd_json_open_line(json, "npu_share", '{');
    nd_json_real(json, "nodes", share->nodes);
    nd_json_real(json, "time", share->time);
    nd_json_count(json, "n_npu", share->n_npu);
    nd_json_count(json, "n_off", share->n_off);
    nd_json_close(json, '}');
}

static void put_device(struct nd_json *json, const struct nd_comparison *c,
                       const struct nd_compared_device *device)
{
    const char *first = device->first_edge != SIZE_MAX ? c->edges[device->first_edge].name : NULL;
    nd_json_open(json, NULL, '{');
    nd_json_text(json, "uri", device->uri);
    nd_json_text(json, "label", device->label);
    nd_json_text(json, "capture", device->capture);
    nd_json_text(json, "chipset", device->chipset);
    nd_json_text(json, "runtime", device->runtime);
    nd_json_text(json, "kind", device->kind);
    bool has_environment = device->environment != NULL && device->environment[0] != '\0';
    nd_json_text(json, "environment", has_environment ? device->environment : NULL);
    nd_json_text(json, "status", nd_capture_state_name(device->status));
    nd_json_text(json, "failure", device->failure[0] != '\0' ? device->failure : NULL);
    nd_json_count(json, "samples", device->n_samples);
    nd_json_count(json, "samples_expected", device->n_samples_expected);
    nd_json_count(json, "unstable_tensors", device->n_unstable_edges);
    nd_json_count(json, "cpu_fallback_tensors", device->n_cpu_edges);
    put_npu_share(json, device);
    nd_json_index(json, "configured_as", device->configured_as);
    nd_json_text(json, "configuration", device->configuration);
    nd_json_int(json, "group", device->class_id);
    nd_json_int(json, "output_group", device->output_class_id);
    nd_json_text(json, "first_difference", first);
    nd_json_close(json, '}');
}

static void put_first_difference(struct nd_json *json, const struct nd_comparison *c)
{
    if (c->first_edge == SIZE_MAX) {
        nd_json_null(json, "first_difference");
        return;
    }
    const struct nd_compared_edge *edge = &c->edges[c->first_edge];
    nd_json_open(json, "first_difference", '{');
    nd_json_text(json, "tensor", edge->name);
    nd_json_count(json, "tensor_index", c->first_edge);
    nd_json_text(json, "op_types", edge->op_types);
    nd_json_count(json, "ref", 0);
    nd_json_index(json, "test", c->first_test);
    if (c->first_test != SIZE_MAX)
        nd_json_put_first(json, "place", c, edge, &edge->pairs[c->first_test - 1].total.difference);
    else
        nd_json_null(json, "place");
    nd_json_close(json, '}');
}

static void put_partings(struct nd_json *json, const struct nd_comparison *c)
{
    nd_json_open(json, "partings", '[');
    for (size_t i = 0; i < c->n_partings; i++) {
        const struct nd_parting *parting = &c->partings[i];
        nd_json_open_line(json, NULL, '{');
        nd_json_open(json, "groups", '[');
        nd_json_int(json, NULL, parting->class_a);
        nd_json_int(json, NULL, parting->class_b);
        nd_json_close(json, ']');
        nd_json_open(json, "devices", '[');
        nd_json_count(json, NULL, parting->device_a);
        nd_json_count(json, NULL, parting->device_b);
        nd_json_close(json, ']');
        nd_json_text(json, "tensor", parting->edge != SIZE_MAX ? c->edges[parting->edge].name : NULL);
        nd_json_close(json, '}');
    }
    nd_json_close(json, ']');
}

static void put_top1_pair(struct nd_json *json, const struct nd_top1_pair *pair, bool has_labels)
{
    bool is_counted = pair->exists && has_labels;
    nd_json_open_line(json, NULL, '{');
    nd_json_count(json, "ref", pair->ref);
    nd_json_count(json, "test", pair->test);
    nd_json_count_if(json, "samples", pair->exists, pair->n_samples);
    nd_json_count_if(json, "agree", pair->exists, pair->n_agree);
    nd_json_real_if(json, "agreement", pair->exists, pair->agreement);
    nd_json_count_if(json, "right_to_wrong", is_counted, pair->n_lost);
    nd_json_count_if(json, "wrong_to_right", is_counted, pair->n_gained);
    nd_json_count_if(json, "wrong_to_wrong", is_counted, pair->n_changed_wrong);
    nd_json_real_if(json, "p_value", is_counted, pair->p_value);
    if (is_counted)
        nd_json_bool(json, "significant", pair->is_significant);
    else
        nd_json_null(json, "significant");
    nd_json_close(json, '}');
}

/* What the outputs of one device say of the classes that are shown. */
static void put_values(struct nd_json *json, const struct nd_changed_sample *one, size_t device)
{
    nd_json_open_line(json, NULL, '[');
    for (size_t i = 0; i < one->n_shown; i++)
        nd_json_real(json, NULL, one->values[device * one->n_shown + i]);
    nd_json_close(json, ']');
}

static void put_changed_sample(struct nd_json *json, const struct nd_comparison *c,
                               const struct nd_changed_sample *one)
{
    nd_json_open_line(json, NULL, '{');
    nd_json_count(json, "sample", one->sample);
    nd_json_count_if(json, "label", one->label >= 0, (uint64_t)one->label);
    nd_json_open_line(json, "predictions", '[');
    for (size_t d = 0; d < c->n_devices; d++)
        nd_json_count_if(json, NULL, one->classes[d] >= 0, (uint64_t)one->classes[d]);
    nd_json_close(json, ']');
    nd_json_open_line(json, "classes", '[');
    for (size_t i = 0; i < one->n_shown; i++)
        nd_json_int(json, NULL, one->shown[i]);
    nd_json_close(json, ']');
    nd_json_open_line(json, "values", '[');
    for (size_t d = 0; d < c->n_devices; d++)
        put_values(json, one, d);
    nd_json_close(json, ']');
    nd_json_close(json, '}');
}

/* null where nobody has looked. */
static void put_changed(struct nd_json *json, const struct nd_comparison *c, const struct nd_top1 *row)
{
    nd_json_count_if(json, "n_changed_samples", row->has_changed, row->n_changed);
    if (!row->has_changed) {
        nd_json_null(json, "changed_samples");
        return;
    }
    nd_json_open(json, "changed_samples", '[');
    for (size_t i = 0; i < row->n_changed_kept; i++)
        put_changed_sample(json, c, &row->changed[i]);
    nd_json_close(json, ']');
}

static void put_top1(struct nd_json *json, const struct nd_comparison *c, const struct nd_top1 *row)
{
    nd_json_open(json, NULL, '{');
    nd_json_text(json, "tensor", c->edges[row->edge].name);
    nd_json_text(json, "probe", c->probes[row->probe].name);
    nd_json_bool(json, "labels", row->has_labels);
    nd_json_text(json, "labels_missing_reason", row->labels_missing_reason);
    nd_json_open(json, "devices", '[');
    for (size_t i = 0; i < c->n_devices; i++) {
        const struct nd_top1_device *counted = &row->devices[i];
        bool has_accuracy = counted->exists && row->has_labels;
        nd_json_open_line(json, NULL, '{');
        nd_json_count(json, "device", i);
        nd_json_count_if(json, "samples", counted->exists, counted->n_samples);
        nd_json_count_if(json, "invalid", counted->exists, counted->n_invalid);
        nd_json_count_if(json, "correct", has_accuracy, counted->n_correct);
        nd_json_real_if(json, "accuracy", has_accuracy, counted->accuracy);
        nd_json_close(json, '}');
    }
    nd_json_close(json, ']');
    nd_json_open(json, "pairs", '[');
    for (size_t t = 1; t < c->n_devices; t++)
        put_top1_pair(json, &row->pairs[t - 1], row->has_labels);
    nd_json_close(json, ']');
    put_changed(json, c, row);
    nd_json_close(json, '}');
}

static void put_broken(struct nd_json *json, const struct nd_comparison *c)
{
    if (c->broken_top1 == SIZE_MAX) {
        nd_json_null(json, "reference_broken");
        return;
    }
    const struct nd_top1 *row = &c->top1[c->broken_top1];
    nd_json_open_line(json, "reference_broken", '{');
    nd_json_text(json, "tensor", c->edges[row->edge].name);
    nd_json_text(json, "probe", c->probes[row->probe].name);
    nd_json_count(json, "correct", row->devices[0].n_correct);
    nd_json_count(json, "samples", row->devices[0].n_samples);
    nd_json_real(json, "chance", 1 / (double)row->n_classes);
    nd_json_close(json, '}');
}

static void put_lists(struct nd_json *json, const struct nd_comparison *c)
{
    nd_json_open(json, "devices", '[');
    for (size_t i = 0; i < c->n_devices; i++)
        put_device(json, c, &c->devices[i]);
    nd_json_close(json, ']');
    nd_json_open(json, "tensors", '[');
    for (size_t e = 0; e < c->n_edges; e++)
        put_edge(json, c, &c->edges[e]);
    nd_json_close(json, ']');
    put_first_difference(json, c);
    put_broken(json, c);
    nd_json_open(json, "accuracy", '[');
    for (size_t i = 0; i < c->n_top1; i++)
        put_top1(json, c, &c->top1[i]);
    nd_json_close(json, ']');
}

enum nd_status nd_report_json(const struct nd_comparison *comparison, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = {.out = &buf};
    nd_json_open_document(&json, ND_DOCUMENT_COMPARISON);
    nd_json_text(&json, "verdict", nd_verdict_name(comparison->verdict));
    nd_json_int(&json, "exit_code", nd_verdict_exit_code(comparison->verdict));
    nd_json_bool(&json, "gated", comparison->has_gates);
    nd_json_bool(&json, "different_models", comparison->different_models);
    nd_json_int(&json, "tensors_left_out", (int64_t)comparison->n_edges_left_out);
    nd_json_bool(&json, "unknown_models", comparison->unknown_models);
    nd_json_bool(&json, "unknown_inputs", comparison->unknown_inputs);
    nd_json_text(&json, "ulp_in",
                 comparison->ulp_in != ND_DTYPE_NONE ? nd_dtype_name(comparison->ulp_in) : NULL);
    if (comparison->per_channel)
        nd_json_int(&json, "channel_axis", comparison->channel_axis);
    else
        nd_json_null(&json, "channel_axis");
    nd_json_text(&json, "groups", comparison->classes_text);
    nd_json_text(&json, "output_groups", comparison->output_classes_text);
    nd_json_index(&json, "odd_one_out", comparison->odd_one_out);
    put_partings(&json, comparison);
    nd_json_put_diagnoses(&json, comparison);
    put_lists(&json, comparison);
    nd_json_close(&json, '}');
    nd_strbuf_append(&buf, "\n", 1);
    return nd_text_end(&buf, out, err);
}
