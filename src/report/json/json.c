/* What the values of a comparison show, as JSON. */
#include <elfutils/version.h>
#include <hdf5.h>
#include <jansson.h>
#include <libdeflate.h>
#include <math.h>
#include <nettle/version.h>
#include <protobuf-c/protobuf-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>
#include <zip.h>
#include <zlib.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/text/strbuf.h"
#include "npudiff/compare/compare.h"
#include "npudiff/report/report.h"
#include "report/text/tree.h"

static void put_depth(struct nd_json *json, const struct nd_comparison *c, const struct nd_compared_depth *d)
{
    bool has_largest = !isnan(d->largest);
    nd_json_open_line(json, NULL, '{');
    nd_json_count(json, "device", d->device);
    nd_json_text(json, "growth", d->growth);
    nd_json_text(json, "of", d->is_share ? "share" : "relative error");
    nd_json_count(json, "tensors", d->n_tensors);
    nd_json_real(json, "factor", d->factor);
    nd_json_real_if(json, "first", !isnan(d->first), d->first);
    nd_json_real_if(json, "last", !isnan(d->last), d->last);
    nd_json_bool(json, "half_precision", d->is_half);
    nd_json_real_if(json, "largest", has_largest, d->largest);
    nd_json_text(json, "largest_tensor", has_largest ? c->tensors[d->largest_tensor].name : NULL);
    nd_json_close(json, '}');
}

/* The members "diagnoses", "depth" and "predicate" of the object at hand. */
static void nd_json_put_diagnoses(struct nd_json *json, const struct nd_comparison *comparison)
{
    ND_JSON_LIST(json, "diagnoses", i, comparison->n_diagnoses) {
        const struct nd_compared_diagnosis *d = &comparison->diagnoses[i];
        nd_json_open_line(json, NULL, '{');
        nd_json_count(json, "device", d->device);
        nd_json_text(json, "tensor", comparison->tensors[d->tensor].name);
        nd_json_text(json, "kind", d->kind);
        nd_json_bool(json, "fault", !d->is_note);
        nd_json_bool(json, "of_runs", d->is_of_runs);
        nd_json_text(json, "text", d->text);
        nd_json_real(json, "amount", d->amount);
        nd_json_real(json, "explained", d->explained);
        nd_json_real_if(json, "log10_chance", !isnan(d->chance), d->chance);
        nd_json_count(json, "later_tensors", d->n_later);
        nd_json_close(json, '}');
    }
    ND_JSON_LIST(json, "depth", i, comparison->n_depths)
        put_depth(json, comparison, &comparison->depths[i]);
    ND_JSON_LIST(json, "predicate", i, comparison->n_predicates) {
        const struct nd_compared_predicate *p = &comparison->predicates[i];
        nd_json_open_line(json, NULL, '{');
        nd_json_count(json, "device", p->device);
        nd_json_text(json, "tensor", p->tensor != SIZE_MAX ? comparison->tensors[p->tensor].name : NULL);
        nd_json_text(json, "of", p->tensor != SIZE_MAX ? "samples" : "tensors");
        nd_json_count(json, "wrong", p->n_wrong);
        nd_json_count(json, "compared", p->n);
        ND_JSON_LIST(json, "conditions", k, p->n_conditions)
            nd_json_text(json, NULL, p->conditions[k]);
        nd_json_text(json, "text", p->text);
        nd_json_real_if(json, "log2_chance", !isnan(p->log2_chance), p->log2_chance);
        nd_json_close(json, '}');
    }
}

/* Which of a difference's members mean something. */
struct known {
    bool is_compared; /* there were common samples */
    bool has_values;  /* and all that differ are stored */
    bool has_steps;   /* integers */
    bool has_errors;  /* some elements have a difference that is a number */
};

static struct known what_is_known(bool is_compared, const struct nd_difference *d)
{
    bool has_values = is_compared && d->has_values;
    return (struct known){.is_compared = is_compared,
                          .has_values = has_values,
                          .has_steps = has_values && d->is_integer,
                          .has_errors = has_values && d->has_errors};
}

/* An array in one line; null for an unknown rank. numbers: [shape->rank]. */
static void nd_json_put_shape(struct nd_json *json, const char *key, const struct nd_shape *shape,
                              const int64_t *numbers)
{
    if (shape->rank < 0) {
        nd_json_null(json, key);
        return;
    }
    nd_json_open_line(json, key, '[');
    for (int i = 0; i < shape->rank; i++)
        nd_json_int(json, NULL, numbers[i]);
    nd_json_close(json, ']');
}

static void put_place(struct nd_json *json, const struct nd_comparison *c,
                      const struct nd_compared_tensor *tensor, const struct nd_difference_place *place)
{
    nd_json_text(json, "probe", c->probes[place->probe].name);
    nd_json_count(json, "sample", place->sample);
    nd_json_count_if(json, "index", place->has_index, place->index);
    if (place->has_index)
        nd_json_put_shape(json, "coordinates", &tensor->shape, place->coordinates);
    else
        nd_json_null(json, "coordinates");
}

/* {probe, sample, index, coordinates}; null when nothing differs. */
static void nd_json_put_first(struct nd_json *json, const char *key, const struct nd_comparison *comparison,
                              const struct nd_compared_tensor *tensor, const struct nd_difference *difference)
{
    if (!nd_json_open_if(json, key, difference->has_first))
        return;
    put_place(json, comparison, tensor, &difference->first);
    nd_json_close(json, '}');
}

static void put_counts(struct nd_json *json, struct known known, const struct nd_difference *d)
{
    nd_json_count_if(json, "samples", known.is_compared, d->n_samples);
    nd_json_count_if(json, "samples_differing", known.is_compared, d->n_samples_differing);
    nd_json_count_if(json, "elements", known.is_compared, d->n_elems);
    for (size_t i = 0; i < nd_n_measures(); i++) {
        const struct nd_measure *measure = nd_measure(i);
        bool is_known = known.is_compared && nd_measure_is_known(measure, d);
        if (measure->name != NULL && measure->form == ND_MEASURED_COUNT)
            nd_json_count_if(json, measure->name, is_known, nd_measure_count(measure, d));
        else if (measure->name != NULL)
            nd_json_real_if(json, measure->name, is_known, nd_measure_value(measure, d));
    }
    nd_json_count_if(json, "nan", known.has_values, d->n_nan_mismatch + d->n_nan_payload);
    if (known.has_steps) {
        static const char *const names[ND_LSB_BUCKETS] = {"<-3", "-3", "-2", "-1", "0", "1", "2", "3", ">3"};
        nd_json_open_line(json, "histogram", '{');
        for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
            nd_json_count(json, names[i], d->lsb_histogram[i]);
        nd_json_close(json, '}');
        /* "4..7": so many elements; those of test < ref are "-7..-4". Only what is not 0. */
        char name[64];
        nd_json_open_line(json, "histogram_tail", '{');
        for (size_t k = ND_LSB_TAIL; k-- > 0;) {
            snprintf(name, sizeof name, k + 1 < ND_LSB_TAIL ? "-%zu..-%zu" : "<=-%zu",
                     k + 1 < ND_LSB_TAIL ? ((size_t)8 << k) - 1 : (size_t)4 << k, (size_t)4 << k);
            if (d->lsb_tail[0][k] > 0)
                nd_json_count(json, name, d->lsb_tail[0][k]);
        }
        for (size_t k = 0; k < ND_LSB_TAIL; k++) {
            snprintf(name, sizeof name, k + 1 < ND_LSB_TAIL ? "%zu..%zu" : ">=%zu", (size_t)4 << k,
                     ((size_t)8 << k) - 1);
            if (d->lsb_tail[1][k] > 0)
                nd_json_count(json, name, d->lsb_tail[1][k]);
        }
        nd_json_close(json, '}');
    } else {
        nd_json_null(json, "histogram");
        nd_json_null(json, "histogram_tail");
    }
}

static void put_errors(struct nd_json *json, const char *key, const struct nd_error_stats *stats)
{
    nd_json_open_line(json, key, '{');
    nd_json_real(json, "max", stats->max);
    nd_json_real(json, "mean", stats->mean);
    nd_json_real(json, "median", stats->median);
    nd_json_real(json, "p99", stats->p99);
}

static void put_side(struct nd_json *json, const char *key, bool has_values, const struct nd_side *side)
{
    if (!nd_json_open_if(json, key, has_values && side->n_elems > 0))
        return;
    nd_json_count(json, "elements", side->n_elems);
    nd_json_count(json, "nan", side->n_nan);
    nd_json_count(json, "inf", side->n_inf);
    nd_json_count(json, "zero", side->n_zero);
    nd_json_count(json, "subnormal", side->n_subnormal);
    nd_json_count(json, "saturated", side->n_saturated);
    nd_json_count(json, "stuck_samples", side->n_stuck_samples);
    nd_json_real_if(json, "min", !isnan(side->min), side->min);
    nd_json_real_if(json, "max", !isnan(side->max), side->max);
    nd_json_close(json, '}');
}

/* docs/reference/metrics.md#errors to #accounting. */
static void put_signal(struct nd_json *json, struct known known, const struct nd_difference *d)
{
    bool has_values = known.has_values;
    if (known.has_errors) {
        put_errors(json, "abs", &d->abs);
        nd_json_close(json, '}');
        put_errors(json, "rel", &d->rel);
        nd_json_count(json, "undefined", d->n_rel_undefined);
        nd_json_close(json, '}');
    } else {
        nd_json_null(json, "abs");
        nd_json_null(json, "rel");
    }
    put_side(json, "ref_side", has_values, &d->ref_side);
    put_side(json, "test_side", has_values, &d->test_side);
}

static void put_structure(struct nd_json *json, const struct nd_compared_tensor *tensor, bool has_values,
                          const struct nd_structure *structure)
{
    if (!nd_json_open_if(json, "structure", has_values && structure->pattern != ND_PATTERN_NONE))
        return;
    nd_json_text(json, "pattern", nd_pattern_name(structure->pattern));
    nd_json_count(json, "first_index", structure->first_index);
    nd_json_count(json, "last_index", structure->last_index);
    nd_json_count(json, "stride", structure->stride);
    nd_json_count(json, "runs", structure->n_runs);
    nd_json_count(json, "longest_run", structure->longest_run);
    nd_json_open_line(json, "axes", '[');
    for (int i = 0; i < tensor->shape.rank; i++) {
        const struct nd_axis_span *axis = &structure->axes[i];
        if (!nd_json_open_if(json, NULL, axis->is_known))
            continue;
        nd_json_count(json, "n", axis->n);
        nd_json_count(json, "first", axis->first);
        nd_json_count(json, "last", axis->last);
        nd_json_close(json, '}');
    }
    nd_json_close(json, ']');
    nd_json_count_if(json, "axis", structure->axis >= 0, (uint64_t)structure->axis);
    if (structure->pattern == ND_PATTERN_PERMUTED_AXES) {
        nd_json_open_line(json, "permutation", '[');
        for (int i = 0; i < tensor->shape.rank; i++)
            nd_json_int(json, NULL, structure->permutation[i]);
        nd_json_close(json, ']');
    } else {
        nd_json_null(json, "permutation");
    }
    nd_json_close(json, '}');
}

static void put_worst(struct nd_json *json, const struct nd_comparison *c,
                      const struct nd_compared_tensor *tensor, const struct nd_difference *d)
{
    ND_JSON_LIST(json, "worst", i, d->n_worst) {
        const struct nd_worst *worst = &d->worst[i];
        nd_json_open_line(json, NULL, '{');
        put_place(json, c, tensor, &worst->place);
        nd_json_real(json, "abs_error", worst->abs_error);
        nd_json_real(json, "ref", worst->ref);
        nd_json_real(json, "test", worst->test);
        nd_json_real(json, "ref_real", worst->ref_real);
        nd_json_real(json, "test_real", worst->test_real);
        nd_json_close(json, '}');
    }
}

static void put_tolerance(struct nd_json *json, bool has_values, const struct nd_tolerance *tolerance)
{
    if (!nd_json_open_if(json, "tolerance", has_values))
        return;
    nd_json_count_if(json, "lsb", tolerance->is_possible && tolerance->has_lsb, tolerance->lsb);
    nd_json_count_if(json, "ulp", tolerance->is_possible && tolerance->has_ulp, tolerance->ulp);
    nd_json_real_if(json, "atol", tolerance->is_possible, tolerance->atol);
    nd_json_real_if(json, "rtol", tolerance->is_possible, tolerance->rtol);
    nd_json_close(json, '}');
}

static void put_distribution(struct nd_json *json, bool has_values, const struct nd_distribution *distribution)
{
    bool has_mean = distribution->n_samples > distribution->n_infinite + distribution->n_invalid;
    if (!nd_json_open_if(json, "distribution", has_values && distribution->exists))
        return;
    nd_json_count(json, "samples", distribution->n_samples);
    nd_json_real_if(json, "kl", has_mean, distribution->kl);
    nd_json_text(json, "kl_of", distribution->is_softmax ? "softmax" : "values");
    nd_json_count(json, "kl_infinite", distribution->n_infinite);
    nd_json_count(json, "kl_invalid", distribution->n_invalid);
    nd_json_count(json, "topk", distribution->top_k);
    nd_json_real_if(json, "topk_overlap", distribution->n_samples > 0, distribution->topk_overlap);
    nd_json_close(json, '}');
}

/* Of a pair or of one of its probes, into the object that is open. */
static void nd_json_put_part(struct nd_json *json, const struct nd_comparison *comparison,
                             const struct nd_compared_tensor *tensor, const struct nd_compared_part *part)
{
    const struct nd_difference *d = &part->difference;
    struct known known = what_is_known(part->coverage != ND_COVERAGE_NONE, d);
    enum nd_coverage coverage = part->coverage;
    nd_json_text(json, "coverage",
                 coverage == ND_COVERAGE_FULL   ? "full"
                 : coverage == ND_COVERAGE_PART ? "part"
                                                : "none");
    nd_json_text(json, "reason", part->reason);
    put_counts(json, known, d);
    if (known.is_compared)
        nd_json_put_first(json, "first", comparison, tensor, d);
    else
        nd_json_null(json, "first");
    if (known.is_compared)
        nd_json_bool(json, "mixed", d->is_mixed);
    else
        nd_json_null(json, "mixed");
    nd_json_count_if(json, "dequantised", known.has_values && d->is_mixed, d->n_dequantised);
    nd_json_real_if(json, "max_steps", known.has_errors && d->has_steps, d->max_steps);
    nd_json_real_if(json, "dequantised_steps", known.has_values && d->n_dequantised > 0, d->dequantised_steps);
    put_signal(json, known, d);
    put_structure(json, tensor, known.has_values, &d->structure);
    if (known.has_values)
        put_worst(json, comparison, tensor, d);
    else
        nd_json_null(json, "worst");
    put_tolerance(json, known.has_values, &d->tolerance);
    put_distribution(json, known.has_values, &d->distribution);
    const struct nd_numbers *numbers = &d->numbers;
    if (!nd_json_open_if(json, "numbers", known.has_values && numbers->is_known))
        return;
    nd_json_count(json, "elements", numbers->n_elems);
    nd_json_count(json, "ref_nan", numbers->n_ref_nan);
    nd_json_count(json, "test_nan", numbers->n_test_nan);
    nd_json_count(json, "ref_inf", numbers->n_ref_inf);
    nd_json_count(json, "test_inf", numbers->n_test_inf);
    nd_json_count(json, "samples", numbers->n_samples);
    nd_json_count(json, "samples_ref_nan", numbers->n_samples_ref_nan);
    nd_json_count(json, "samples_test_nan", numbers->n_samples_test_nan);
    nd_json_count(json, "samples_both_nan", numbers->n_samples_both_nan);
    nd_json_close(json, '}');
}

static void put_pair(struct nd_json *json, const struct nd_comparison *c,
                     const struct nd_compared_tensor *tensor, const struct nd_compared_pair *pair)
{
    nd_json_open(json, NULL, '{');
    nd_json_count(json, "ref", pair->ref);
    nd_json_count(json, "test", pair->test);
    nd_json_text(json, "verdict", nd_verdict_name(pair->verdict));
    nd_json_bool(json, "unrecorded_input", pair->is_unrecorded_input);
    nd_json_bool(json, "within_noise", pair->within_noise);
    nd_json_text(json, "label", pair->label);
    nd_json_put_part(json, c, tensor, &pair->total);
    nd_json_text(json, "signal_probe",
                 pair->signal_probe < c->n_probes ? c->probes[pair->signal_probe].name : NULL);
    ND_JSON_LIST(json, "probes", p, c->n_probes) {
        nd_json_open_line(json, NULL, '{');
        nd_json_text(json, "probe", c->probes[p].name);
        nd_json_put_part(json, c, tensor, &pair->probes[p]);
        nd_json_close(json, '}');
    }
    if (c->per_channel) {
        ND_JSON_LIST(json, "channels", i, pair->n_channels) {
            /* Of one channel, as an object in one line: docs/reference/metrics.md#per-channel. */
            const struct nd_difference *difference = &pair->channels[i];
            struct known known = what_is_known(true, difference);
            nd_json_open_line(json, NULL, '{');
            nd_json_count(json, "channel", i);
            put_counts(json, known, difference);
            put_signal(json, known, difference);
            nd_json_close(json, '}');
        }
    }
    nd_json_close(json, '}');
}

static void put_noise(struct nd_json *json, const struct nd_difference *noise)
{
    if (!nd_json_open_if(json, "noise", noise != NULL && noise->has_values))
        return;
    nd_json_real_if(json, "max_abs", noise->has_errors, noise->abs.max);
    nd_json_real(json, "share", noise->share);
    nd_json_count_if(json, "max_lsb", noise->is_integer, noise->max_lsb);
    nd_json_count_if(json, "max_ulp", !noise->is_integer, noise->max_ulp);
    nd_json_close(json, '}');
}

static const char *first_reason(const struct nd_comparison *c, const struct nd_compared_tensor *tensor)
{
    for (size_t t = 1; t < c->n_devices; t++)
        if (tensor->pairs[t - 1].total.reason != NULL)
            return tensor->pairs[t - 1].total.reason;
    return NULL;
}

static void put_tensor(struct nd_json *json, const struct nd_comparison *c,
                       const struct nd_compared_tensor *tensor)
{
    nd_json_open(json, NULL, '{');
    nd_json_text(json, "name", tensor->name);
    nd_json_text(json, "op_types", tensor->op_types);
    nd_json_text(json, "dtype", nd_dtype_name(tensor->dtype));
    nd_json_put_shape(json, "shape", &tensor->shape, tensor->shape.dims);
    nd_json_bool(json, "quantised", tensor->is_quantised);
    nd_json_bool(json, "model_input", tensor->is_model_input);
    nd_json_bool(json, "model_output", tensor->is_model_output);
    nd_json_bool(json, "comparable", tensor->comparable);
    nd_json_text(json, "reason", first_reason(c, tensor));
    nd_json_text(json, "verdict", nd_verdict_name(tensor->verdict));
    nd_json_text(json, "gate", tensor->gate);
    nd_json_index(json, "odd_one_out", tensor->odd_one_out);
    ND_JSON_LINE_LIST(json, "groups", i, c->n_devices)
        nd_json_int(json, NULL, tensor->devices[i].class_id);
    ND_JSON_LIST(json, "devices", i, c->n_devices) {
        const struct nd_tensor_on_device *device = &tensor->devices[i];
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
    ND_JSON_LIST(json, "pairs", i, c->n_pairs)
        put_pair(json, c, tensor, &tensor->pairs[i]);
    nd_json_close(json, '}');
}

/* null for a device that is no NPU. */
static void put_npu_share(struct nd_json *json, const struct nd_compared_device *device)
{
    const struct nd_npu_share *share = &device->npu_share;
    if (!nd_json_open_if(json, "npu_share", device->is_npu))
        return;
    nd_json_real(json, "nodes", share->nodes);
    nd_json_real(json, "time", share->time);
    nd_json_count(json, "n_npu", share->n_npu);
    nd_json_count(json, "n_off", share->n_off);
    nd_json_close(json, '}');
}

static void put_device(struct nd_json *json, const struct nd_comparison *c,
                       const struct nd_compared_device *device)
{
    const char *first = device->first_tensor != SIZE_MAX ? c->tensors[device->first_tensor].name : NULL;
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
    nd_json_count(json, "unstable_tensors", device->n_unstable_tensors);
    nd_json_count(json, "cpu_fallback_tensors", device->n_cpu_tensors);
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
    if (c->first_tensor == SIZE_MAX) {
        nd_json_null(json, "first_difference");
        return;
    }
    const struct nd_compared_tensor *tensor = &c->tensors[c->first_tensor];
    nd_json_open(json, "first_difference", '{');
    nd_json_text(json, "tensor", tensor->name);
    nd_json_count(json, "tensor_index", c->first_tensor);
    nd_json_text(json, "op_types", tensor->op_types);
    nd_json_count(json, "ref", 0);
    nd_json_index(json, "test", c->first_test);
    if (c->first_test != SIZE_MAX)
        nd_json_put_first(json, "place", c, tensor, &tensor->pairs[c->first_test - 1].total.difference);
    else
        nd_json_null(json, "place");
    nd_json_close(json, '}');
}

static void put_partings(struct nd_json *json, const struct nd_comparison *c)
{
    ND_JSON_LIST(json, "partings", i, c->n_partings) {
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
        nd_json_text(json, "tensor", parting->tensor != SIZE_MAX ? c->tensors[parting->tensor].name : NULL);
        nd_json_close(json, '}');
    }
}

/* null where nobody has looked. */
static void put_changed(struct nd_json *json, const struct nd_comparison *c, const struct nd_top1 *row)
{
    nd_json_count_if(json, "n_changed_samples", row->has_changed, row->n_changed);
    if (!row->has_changed) {
        nd_json_null(json, "changed_samples");
        return;
    }
    ND_JSON_LIST(json, "changed_samples", i, row->n_changed_kept) {
        const struct nd_changed_sample *one = &row->changed[i];
        nd_json_open_line(json, NULL, '{');
        nd_json_count(json, "sample", one->sample);
        nd_json_count_if(json, "label", one->label >= 0, (uint64_t)one->label);
        ND_JSON_LINE_LIST(json, "predictions", d, c->n_devices)
            nd_json_count_if(json, NULL, one->classes[d] >= 0, (uint64_t)one->classes[d]);
        ND_JSON_LINE_LIST(json, "classes", k, one->n_shown)
            nd_json_int(json, NULL, one->shown[k]);
        ND_JSON_LINE_LIST(json, "values", d, c->n_devices) {
            /* What the outputs of one device say of the classes that are shown. */
            ND_JSON_LINE_LIST(json, NULL, k, one->n_shown)
                nd_json_real(json, NULL, one->values[d * one->n_shown + k]);
        }
        nd_json_close(json, '}');
    }
}

static void put_top1(struct nd_json *json, const struct nd_comparison *c, const struct nd_top1 *row)
{
    nd_json_open(json, NULL, '{');
    nd_json_text(json, "tensor", c->tensors[row->tensor].name);
    nd_json_text(json, "probe", c->probes[row->probe].name);
    nd_json_bool(json, "labels", row->has_labels);
    nd_json_text(json, "labels_missing_reason", row->labels_missing_reason);
    nd_json_text(json, "classes_by", row->classes_by);
    nd_json_bool(json, "is_shown", row == nd_comparison_top1(c));
    ND_JSON_LIST(json, "devices", i, c->n_devices) {
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
    nd_json_open(json, "pairs", '[');
    for (size_t t = 1; t < c->n_devices; t++) {
        const struct nd_top1_pair *pair = &row->pairs[t - 1];
        bool is_counted = pair->exists && row->has_labels;
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
    nd_json_text(json, "tensor", c->tensors[row->tensor].name);
    nd_json_text(json, "probe", c->probes[row->probe].name);
    nd_json_count(json, "correct", row->devices[0].n_correct);
    nd_json_count(json, "samples", row->devices[0].n_samples);
    nd_json_real(json, "chance", 1 / (double)row->n_classes);
    nd_json_close(json, '}');
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
    nd_json_int(&json, "tensors_left_out", (int64_t)comparison->n_tensors_left_out);
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
    ND_JSON_LIST(&json, "devices", i, comparison->n_devices)
        put_device(&json, comparison, &comparison->devices[i]);
    ND_JSON_LIST(&json, "tensors", e, comparison->n_tensors)
        put_tensor(&json, comparison, &comparison->tensors[e]);
    put_first_difference(&json, comparison);
    put_broken(&json, comparison);
    ND_JSON_LIST(&json, "accuracy", i, comparison->n_top1)
        put_top1(&json, comparison, &comparison->top1[i]);
    nd_json_close(&json, '}');
    nd_strbuf_append(&buf, "\n", 1);
    return nd_text_end(&buf, out, err);
}

enum nd_status nd_document_write(const char *path, const char *text, bool replace, struct nd_error *err)
{
    return nd_file_put_new(path, text, strlen(text), replace, err);
}

bool nd_document_is_stream(const char *path)
{
    return nd_path_is_stream(path);
}

/* ---- the versions of the libraries that are in use, as they say themselves where they do ---- */

char *nd_report_versions(void)
{
    struct nd_strbuf text = {0};
    unsigned int major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    nd_strbuf_printf(&text, "npudiff %s\n", nd_version());
    nd_strbuf_printf(&text, "HDF5 %u.%u.%u\n", major, minor, release);
    nd_strbuf_printf(&text, "jansson %s\n", jansson_version_str());
    nd_strbuf_printf(&text, "libdeflate %s\n", LIBDEFLATE_VERSION_STRING);
    nd_strbuf_printf(&text, "libelf %d.%d\n", _ELFUTILS_VERSION / 1000, _ELFUTILS_VERSION % 1000);
    nd_strbuf_printf(&text, "libyaml %s\n", yaml_get_version_string());
    nd_strbuf_printf(&text, "libzip %s\n", zip_libzip_version());
    nd_strbuf_printf(&text, "nettle %d.%d\n", NETTLE_VERSION_MAJOR, NETTLE_VERSION_MINOR);
    nd_strbuf_printf(&text, "protobuf-c %s\n", protobuf_c_version());
    nd_strbuf_printf(&text, "zlib %s\n", zlibVersion());
    return nd_strbuf_take(&text);
}
