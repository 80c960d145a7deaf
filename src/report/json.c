#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "npudiff/parse.h"
#include "npudiff/report.h"
#include "report/format.h"

/* jansson refuses NULL values with -1, and so a failed allocation anywhere ends as a failed set: it is
 * remembered. */
struct writer {
    const struct nd_comparison *comparison;
    bool failed;
};

static void put(struct writer *w, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        w->failed = true;
}

static void push(struct writer *w, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        w->failed = true;
}

/* Text of a file need not be UTF-8; jansson takes nothing else. */
static json_t *text_value(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL || text == NULL)
        return text == NULL ? json_null() : value;
    char *clean = nd_clean_text(text);
    value = clean != NULL ? json_string(clean) : NULL;
    free(clean);
    return value;
}

static json_t *real_value(double value)
{
    char buf[32];
    return isfinite(value) ? json_real(value) : json_string(nd_format_double(value, buf));
}

/* A count over 2^63 (a distance in ULP of float64) does not fit jansson's integers. */
static json_t *count_value(uint64_t n)
{
    return n <= INT64_MAX ? json_integer((json_int_t)n) : json_real((double)n);
}

static json_t *index_value(size_t i)
{
    return i == SIZE_MAX ? json_null() : count_value(i);
}

/* null where a statistic does not apply or is not known. */
static json_t *count_if(bool is_known, uint64_t n)
{
    return is_known ? count_value(n) : json_null();
}

static json_t *real_if(bool is_known, double value)
{
    return is_known ? real_value(value) : json_null();
}

static json_t *shape_value(struct writer *w, const struct nd_shape *shape, const int64_t *numbers)
{
    if (shape->rank < 0)
        return json_null();
    json_t *array = json_array();
    for (int i = 0; i < shape->rank; i++)
        push(w, array, json_integer(numbers[i]));
    return array;
}

static json_t *histogram_value(struct writer *w, const struct nd_difference *d)
{
    static const char *const names[ND_LSB_BUCKETS] = {"<-3", "-3", "-2", "-1", "0", "1", "2", "3", ">3"};
    if (!d->is_integer || !d->has_values)
        return json_null();
    json_t *object = json_object();
    for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
        put(w, object, names[i], count_value(d->lsb_histogram[i]));
    return object;
}

static json_t *place_value(struct writer *w, const struct nd_compared_edge *edge, const struct nd_difference *d)
{
    if (!d->has_first)
        return json_null();
    json_t *object = json_object();
    put(w, object, "probe", text_value(w->comparison->probes[d->first.probe].name));
    put(w, object, "sample", count_value(d->first.sample));
    put(w, object, "index", count_if(d->first.has_index, d->first.index));
    put(w, object, "coordinates",
        d->first.has_index ? shape_value(w, &edge->shape, d->first.coordinates) : json_null());
    return object;
}

static const char *coverage_name(enum nd_coverage coverage)
{
    return coverage == ND_COVERAGE_FULL ? "full" : coverage == ND_COVERAGE_PART ? "part" : "none";
}

/* The statistics shared by a pair and its probes. */
static void put_part(struct writer *w, json_t *object, const struct nd_compared_edge *edge,
                     const struct nd_compared_part *part)
{
    const struct nd_difference *d = &part->difference;
    bool is_compared = part->coverage != ND_COVERAGE_NONE, has_values = is_compared && d->has_values;
    bool is_integer = has_values && d->is_integer, is_float = has_values && !d->is_integer;
    put(w, object, "coverage", json_string(coverage_name(part->coverage)));
    put(w, object, "reason", text_value(part->reason));
    put(w, object, "samples", count_if(is_compared, d->n_samples));
    put(w, object, "samples_differing", count_if(is_compared, d->n_samples_differing));
    put(w, object, "elements", count_if(is_compared, d->n_elems));
    put(w, object, "differing", count_if(has_values, d->n_differing));
    put(w, object, "share", real_if(has_values, d->share));
    put(w, object, "failing", count_if(has_values, d->n_failing));
    put(w, object, "max_lsb", count_if(is_integer, d->max_lsb));
    put(w, object, "mean_lsb", real_if(is_integer, d->mean_lsb));
    put(w, object, "signed_mean_lsb", real_if(is_integer, d->signed_mean_lsb));
    put(w, object, "histogram", is_compared ? histogram_value(w, d) : json_null());
    put(w, object, "max_ulp", count_if(is_float, d->max_ulp));
    put(w, object, "max_abs", real_if(has_values, d->max_abs));
    put(w, object, "mean_abs", real_if(has_values, d->mean_abs));
    put(w, object, "nan", count_if(has_values, d->n_nan_mismatch + d->n_nan_payload));
    put(w, object, "nan_mismatch", count_if(has_values, d->n_nan_mismatch));
    put(w, object, "nan_payload", count_if(has_values, d->n_nan_payload));
    put(w, object, "inf_mismatch", count_if(has_values, d->n_inf_mismatch));
    put(w, object, "zero_sign", count_if(has_values, d->n_zero_sign));
    put(w, object, "first", is_compared ? place_value(w, edge, d) : json_null());
}

static json_t *pair_value(struct writer *w, const struct nd_compared_edge *edge,
                          const struct nd_compared_pair *pair)
{
    json_t *object = json_object(), *probes = json_array();
    put(w, object, "ref", count_value(pair->ref));
    put(w, object, "test", count_value(pair->test));
    put(w, object, "verdict", json_string(nd_verdict_name(pair->verdict)));
    put_part(w, object, edge, &pair->total);
    for (size_t p = 0; p < w->comparison->n_probes; p++) {
        json_t *probe = json_object();
        put(w, probe, "probe", text_value(w->comparison->probes[p].name));
        put_part(w, probe, edge, &pair->probes[p]);
        push(w, probes, probe);
    }
    put(w, object, "probes", probes);
    return object;
}

static const char *first_reason(const struct nd_comparison *c, const struct nd_compared_edge *edge)
{
    for (size_t t = 1; t < c->n_devices; t++)
        if (edge->pairs[t - 1].total.reason != NULL)
            return edge->pairs[t - 1].total.reason;
    return NULL;
}

static json_t *edge_value(struct writer *w, const struct nd_compared_edge *edge)
{
    const struct nd_comparison *c = w->comparison;
    json_t *object = json_object(), *classes = json_array(), *devices = json_array(), *pairs = json_array();
    for (size_t i = 0; i < c->n_devices; i++) {
        const struct nd_edge_on_device *on = &edge->devices[i];
        json_t *device = json_object();
        put(w, device, "exists", json_boolean(on->exists));
        put(w, device, "provider", text_value(on->provider));
        put(w, device, "cpu_fallback", json_boolean(on->is_on_cpu));
        put(w, device, "unstable_samples", count_value(on->n_unstable));
        push(w, devices, device);
        push(w, classes, json_integer(on->class_id));
    }
    for (size_t t = 1; t < c->n_devices; t++)
        push(w, pairs, pair_value(w, edge, &edge->pairs[t - 1]));
    put(w, object, "name", text_value(edge->name));
    put(w, object, "op_types", text_value(edge->op_types));
    put(w, object, "dtype", json_string(nd_dtype_name(edge->dtype)));
    put(w, object, "shape", shape_value(w, &edge->shape, edge->shape.dims));
    put(w, object, "quantised", json_boolean(edge->is_quantised));
    put(w, object, "model_input", json_boolean(edge->is_model_input));
    put(w, object, "model_output", json_boolean(edge->is_model_output));
    put(w, object, "comparable", json_boolean(edge->comparable));
    put(w, object, "reason", text_value(first_reason(c, edge)));
    put(w, object, "verdict", json_string(nd_verdict_name(edge->verdict)));
    put(w, object, "gate", text_value(edge->gate));
    put(w, object, "classes", classes);
    put(w, object, "devices", devices);
    put(w, object, "pairs", pairs);
    return object;
}

static json_t *device_value(struct writer *w, const struct nd_compared_device *device)
{
    json_t *object = json_object();
    put(w, object, "uri", text_value(device->uri));
    put(w, object, "label", text_value(device->label));
    put(w, object, "capture", text_value(device->capture));
    put(w, object, "chipset", text_value(device->chipset));
    put(w, object, "runtime", text_value(device->runtime));
    put(w, object, "kind", text_value(device->kind));
    put(w, object, "status", json_string(nd_capture_state_name(device->status)));
    put(w, object, "failure", device->failure[0] != '\0' ? text_value(device->failure) : json_null());
    put(w, object, "samples", count_value(device->n_samples));
    put(w, object, "samples_expected", count_value(device->n_samples_expected));
    put(w, object, "unstable_edges", count_value(device->n_unstable_edges));
    put(w, object, "cpu_fallback_edges", count_value(device->n_cpu_edges));
    put(w, object, "class", json_integer(device->class_id));
    put(w, object, "output_class", json_integer(device->output_class_id));
    put(w, object, "first_difference",
        device->first_edge != SIZE_MAX ? text_value(w->comparison->edges[device->first_edge].name)
                                       : json_null());
    return object;
}

static json_t *first_difference_value(struct writer *w)
{
    const struct nd_comparison *c = w->comparison;
    if (c->first_edge == SIZE_MAX)
        return json_null();
    const struct nd_compared_edge *edge = &c->edges[c->first_edge];
    json_t *object = json_object();
    put(w, object, "edge", text_value(edge->name));
    put(w, object, "edge_index", count_value(c->first_edge));
    put(w, object, "op_types", text_value(edge->op_types));
    put(w, object, "ref", json_integer(0));
    put(w, object, "test", index_value(c->first_test));
    put(w, object, "place",
        c->first_test != SIZE_MAX ? place_value(w, edge, &edge->pairs[c->first_test - 1].total.difference)
                                  : json_null());
    return object;
}

static json_t *top1_pair_value(struct writer *w, const struct nd_top1_pair *pair, bool has_labels)
{
    json_t *object = json_object();
    bool is_counted = pair->exists && has_labels;
    put(w, object, "ref", count_value(pair->ref));
    put(w, object, "test", count_value(pair->test));
    put(w, object, "samples", count_if(pair->exists, pair->n_samples));
    put(w, object, "agree", count_if(pair->exists, pair->n_agree));
    put(w, object, "agreement", real_if(pair->exists, pair->agreement));
    put(w, object, "right_to_wrong", count_if(is_counted, pair->n_lost));
    put(w, object, "wrong_to_right", count_if(is_counted, pair->n_gained));
    put(w, object, "wrong_to_wrong", count_if(is_counted, pair->n_changed_wrong));
    put(w, object, "p_value", real_if(is_counted, pair->p_value));
    put(w, object, "significant", is_counted ? json_boolean(pair->is_significant) : json_null());
    return object;
}

static json_t *top1_value(struct writer *w, const struct nd_top1 *row)
{
    const struct nd_comparison *c = w->comparison;
    json_t *object = json_object(), *devices = json_array(), *pairs = json_array();
    for (size_t i = 0; i < c->n_devices; i++) {
        const struct nd_top1_device *counted = &row->devices[i];
        bool has_accuracy = counted->exists && row->has_labels;
        json_t *device = json_object();
        put(w, device, "device", count_value(i));
        put(w, device, "samples", count_if(counted->exists, counted->n_samples));
        put(w, device, "invalid", count_if(counted->exists, counted->n_invalid));
        put(w, device, "correct", count_if(has_accuracy, counted->n_correct));
        put(w, device, "accuracy", real_if(has_accuracy, counted->accuracy));
        push(w, devices, device);
    }
    for (size_t t = 1; t < c->n_devices; t++)
        push(w, pairs, top1_pair_value(w, &row->pairs[t - 1], row->has_labels));
    put(w, object, "edge", text_value(c->edges[row->edge].name));
    put(w, object, "probe", text_value(c->probes[row->probe].name));
    put(w, object, "labels", json_boolean(row->has_labels));
    put(w, object, "labels_missing_reason", text_value(row->labels_missing_reason));
    put(w, object, "devices", devices);
    put(w, object, "pairs", pairs);
    return object;
}

enum nd_status nd_report_json(const struct nd_comparison *comparison, char **out, struct nd_error *err)
{
    struct writer w = {.comparison = comparison};
    json_t *root = json_object(), *devices = json_array(), *edges = json_array(), *accuracy = json_array();
    for (size_t i = 0; i < comparison->n_devices; i++)
        push(&w, devices, device_value(&w, &comparison->devices[i]));
    for (size_t e = 0; e < comparison->n_edges; e++)
        push(&w, edges, edge_value(&w, &comparison->edges[e]));
    for (size_t i = 0; i < comparison->n_top1; i++)
        push(&w, accuracy, top1_value(&w, &comparison->top1[i]));
    put(&w, root, "verdict", json_string(nd_verdict_name(comparison->verdict)));
    put(&w, root, "exit_code", json_integer(nd_verdict_exit_code(comparison->verdict)));
    put(&w, root, "gated", json_boolean(comparison->has_gates));
    put(&w, root, "different_models", json_boolean(comparison->different_models));
    put(&w, root, "classes", text_value(comparison->classes_text));
    put(&w, root, "output_classes", text_value(comparison->output_classes_text));
    put(&w, root, "devices", devices);
    put(&w, root, "edges", edges);
    put(&w, root, "first_difference", first_difference_value(&w));
    put(&w, root, "accuracy", accuracy);
    char *text = w.failed ? NULL : json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(root);
    struct nd_strbuf buf = {0};
    nd_strbuf_printf(&buf, "%s\n", text != NULL ? text : "");
    bool is_made = text != NULL;
    free(text);
    char *taken = nd_strbuf_take(&buf);
    nd_strbuf_deinit(&buf);
    if (!is_made || taken == NULL) {
        free(taken);
        return nd_fail_memory(err);
    }
    *out = taken;
    return ND_OK;
}
