#include "report/json/difference.h"

#include <math.h>
#include <stdio.h>

/* Which of a difference's members mean something. */
struct known {
    bool is_compared; /* there were common samples */
    bool has_values;  /* and all that differ are stored */
    bool has_steps;   /* integers */
    bool has_ulps;    /* floats */
    bool has_errors;  /* some elements have a difference that is a number */
    bool has_signal;  /* some elements are finite on both sides */
};

static struct known what_is_known(bool is_compared, const struct nd_difference *d)
{
    bool has_values = is_compared && d->has_values;
    return (struct known){.is_compared = is_compared,
                          .has_values = has_values,
                          .has_steps = has_values && d->is_integer,
                          .has_ulps = has_values && !d->is_integer && !d->has_steps && d->has_errors,
                          .has_errors = has_values && d->has_errors,
                          .has_signal = has_values && d->has_signal};
}

void nd_json_put_shape(struct nd_json *json, const char *key, const struct nd_shape *shape,
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

static void put_place(struct nd_json *json, const struct nd_comparison *c, const struct nd_compared_edge *edge,
                      const struct nd_difference_place *place)
{
    nd_json_text(json, "probe", c->probes[place->probe].name);
    nd_json_count(json, "sample", place->sample);
    nd_json_count_if(json, "index", place->has_index, place->index);
    if (place->has_index)
        nd_json_put_shape(json, "coordinates", &edge->shape, place->coordinates);
    else
        nd_json_null(json, "coordinates");
}

void nd_json_put_first(struct nd_json *json, const char *key, const struct nd_comparison *comparison,
                       const struct nd_compared_edge *edge, const struct nd_difference *difference)
{
    if (!difference->has_first) {
        nd_json_null(json, key);
        return;
    }
    nd_json_open_line(json, key, '{');
    put_place(json, comparison, edge, &difference->first);
    nd_json_close(json, '}');
}

static void put_histogram(struct nd_json *json, const struct nd_difference *d)
{
    static const char *const names[ND_LSB_BUCKETS] = {"<-3", "-3", "-2", "-1", "0", "1", "2", "3", ">3"};
    nd_json_open_line(json, "histogram", '{');
    for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
        nd_json_count(json, names[i], d->lsb_histogram[i]);
    nd_json_close(json, '}');
}

/* "4..7": so many elements; those of test < ref are "-7..-4". Only what is not 0. */
static void put_histogram_tail(struct nd_json *json, const struct nd_difference *d)
{
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
}

static void put_counts(struct nd_json *json, struct known known, const struct nd_difference *d)
{
    nd_json_count_if(json, "samples", known.is_compared, d->n_samples);
    nd_json_count_if(json, "samples_differing", known.is_compared, d->n_samples_differing);
    nd_json_count_if(json, "elements", known.is_compared, d->n_elems);
    nd_json_count_if(json, "differing", known.has_values, d->n_differing);
    nd_json_real_if(json, "share", known.has_values, d->share);
    nd_json_count_if(json, "failing", known.has_values, d->n_failing);
    nd_json_count_if(json, "max_lsb", known.has_steps, d->max_lsb);
    nd_json_real_if(json, "mean_lsb", known.has_steps, d->mean_lsb);
    nd_json_real_if(json, "signed_mean_lsb", known.has_steps, d->signed_mean_lsb);
    if (known.has_steps) {
        put_histogram(json, d);
        put_histogram_tail(json, d);
    } else {
        nd_json_null(json, "histogram");
        nd_json_null(json, "histogram_tail");
    }
    nd_json_count_if(json, "max_ulp", known.has_ulps, d->max_ulp);
    nd_json_count_if(json, "max_ulp_in", known.has_errors && d->has_ulp_in, d->max_ulp_in);
    nd_json_real_if(json, "max_abs", known.has_errors, d->abs.max);
    nd_json_real_if(json, "mean_abs", known.has_errors, d->abs.mean);
    nd_json_real_if(json, "signed_mean", known.has_errors, d->signed_mean);
    nd_json_real_if(json, "share_above", known.has_errors, d->share_above);
    nd_json_real_if(json, "share_below", known.has_errors, d->share_below);
    nd_json_count_if(json, "nan", known.has_values, d->n_nan_mismatch + d->n_nan_payload);
    nd_json_count_if(json, "nan_mismatch", known.has_values, d->n_nan_mismatch);
    nd_json_count_if(json, "nan_payload", known.has_values, d->n_nan_payload);
    nd_json_count_if(json, "inf_mismatch", known.has_values, d->n_inf_mismatch);
    nd_json_count_if(json, "zero_sign", known.has_values, d->n_zero_sign);
    nd_json_count_if(json, "saturation_mismatch", known.has_values, d->n_saturation_mismatch);
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
    if (!has_values || side->n_elems == 0) {
        nd_json_null(json, key);
        return;
    }
    nd_json_open_line(json, key, '{');
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

static void put_numbers(struct nd_json *json, bool has_values, const struct nd_numbers *numbers)
{
    if (!has_values || !numbers->is_known) {
        nd_json_null(json, "numbers");
        return;
    }
    nd_json_open_line(json, "numbers", '{');
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

/* docs/reference/metrics.md#errors to #accounting. */
static void put_signal(struct nd_json *json, struct known known, const struct nd_difference *d)
{
    bool has_values = known.has_values, has_signal = known.has_signal;
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
    nd_json_real_if(json, "rmse", known.has_errors, d->rmse);
    nd_json_real_if(json, "sqnr_db", has_signal, d->sqnr_db);
    nd_json_real_if(json, "cosine", has_signal, d->cosine);
    nd_json_real_if(json, "norm_ratio", has_signal, d->norm_ratio);
    nd_json_real_if(json, "pearson", has_signal, d->pearson);
    nd_json_real_if(json, "gain", has_signal && d->has_gain, d->gain);
    nd_json_real_if(json, "offset", has_signal && d->has_gain, d->offset);
    put_side(json, "ref_side", has_values, &d->ref_side);
    put_side(json, "test_side", has_values, &d->test_side);
}

static void put_axes(struct nd_json *json, const struct nd_structure *structure, int rank)
{
    nd_json_open_line(json, "axes", '[');
    for (int i = 0; i < rank; i++) {
        const struct nd_axis_span *axis = &structure->axes[i];
        if (!axis->is_known) {
            nd_json_null(json, NULL);
            continue;
        }
        nd_json_open_line(json, NULL, '{');
        nd_json_count(json, "n", axis->n);
        nd_json_count(json, "first", axis->first);
        nd_json_count(json, "last", axis->last);
        nd_json_close(json, '}');
    }
    nd_json_close(json, ']');
}

static void put_structure(struct nd_json *json, const struct nd_compared_edge *edge, bool has_values,
                          const struct nd_structure *structure)
{
    if (!has_values || structure->pattern == ND_PATTERN_NONE) {
        nd_json_null(json, "structure");
        return;
    }
    nd_json_open_line(json, "structure", '{');
    nd_json_text(json, "pattern", nd_pattern_name(structure->pattern));
    nd_json_count(json, "first_index", structure->first_index);
    nd_json_count(json, "last_index", structure->last_index);
    nd_json_count(json, "stride", structure->stride);
    nd_json_count(json, "runs", structure->n_runs);
    nd_json_count(json, "longest_run", structure->longest_run);
    put_axes(json, structure, edge->shape.rank);
    nd_json_count_if(json, "axis", structure->axis >= 0, (uint64_t)structure->axis);
    if (structure->pattern == ND_PATTERN_PERMUTED_AXES) {
        nd_json_open_line(json, "permutation", '[');
        for (int i = 0; i < edge->shape.rank; i++)
            nd_json_int(json, NULL, structure->permutation[i]);
        nd_json_close(json, ']');
    } else {
        nd_json_null(json, "permutation");
    }
    nd_json_close(json, '}');
}

static void put_worst(struct nd_json *json, const struct nd_comparison *c, const struct nd_compared_edge *edge,
                      const struct nd_difference *d)
{
    nd_json_open(json, "worst", '[');
    for (size_t i = 0; i < d->n_worst; i++) {
        const struct nd_worst *worst = &d->worst[i];
        nd_json_open_line(json, NULL, '{');
        put_place(json, c, edge, &worst->place);
        nd_json_real(json, "abs_error", worst->abs_error);
        nd_json_real(json, "ref", worst->ref);
        nd_json_real(json, "test", worst->test);
        nd_json_real(json, "ref_real", worst->ref_real);
        nd_json_real(json, "test_real", worst->test_real);
        nd_json_close(json, '}');
    }
    nd_json_close(json, ']');
}

static void put_tolerance(struct nd_json *json, bool has_values, const struct nd_tolerance *tolerance)
{
    if (!has_values) {
        nd_json_null(json, "tolerance");
        return;
    }
    nd_json_open_line(json, "tolerance", '{');
    nd_json_count_if(json, "lsb", tolerance->is_possible && tolerance->has_lsb, tolerance->lsb);
    nd_json_count_if(json, "ulp", tolerance->is_possible && tolerance->has_ulp, tolerance->ulp);
    nd_json_real_if(json, "atol", tolerance->is_possible, tolerance->atol);
    nd_json_real_if(json, "rtol", tolerance->is_possible, tolerance->rtol);
    nd_json_close(json, '}');
}

static void put_distribution(struct nd_json *json, bool has_values, const struct nd_distribution *distribution)
{
    if (!has_values || !distribution->exists) {
        nd_json_null(json, "distribution");
        return;
    }
    bool has_mean = distribution->n_samples > distribution->n_infinite + distribution->n_invalid;
    nd_json_open_line(json, "distribution", '{');
    nd_json_count(json, "samples", distribution->n_samples);
    nd_json_real_if(json, "kl", has_mean, distribution->kl);
    nd_json_text(json, "kl_of", distribution->is_softmax ? "softmax" : "values");
    nd_json_count(json, "kl_infinite", distribution->n_infinite);
    nd_json_count(json, "kl_invalid", distribution->n_invalid);
    nd_json_count(json, "topk", distribution->top_k);
    nd_json_real_if(json, "topk_overlap", distribution->n_samples > 0, distribution->topk_overlap);
    nd_json_close(json, '}');
}

static const char *coverage_name(enum nd_coverage coverage)
{
    return coverage == ND_COVERAGE_FULL ? "full" : coverage == ND_COVERAGE_PART ? "part" : "none";
}

void nd_json_put_part(struct nd_json *json, const struct nd_comparison *comparison,
                      const struct nd_compared_edge *edge, const struct nd_compared_part *part)
{
    const struct nd_difference *d = &part->difference;
    struct known known = what_is_known(part->coverage != ND_COVERAGE_NONE, d);
    nd_json_text(json, "coverage", coverage_name(part->coverage));
    nd_json_text(json, "reason", part->reason);
    put_counts(json, known, d);
    if (known.is_compared)
        nd_json_put_first(json, "first", comparison, edge, d);
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
    put_structure(json, edge, known.has_values, &d->structure);
    if (known.has_values)
        put_worst(json, comparison, edge, d);
    else
        nd_json_null(json, "worst");
    put_tolerance(json, known.has_values, &d->tolerance);
    put_distribution(json, known.has_values, &d->distribution);
    put_numbers(json, known.has_values, &d->numbers);
}

void nd_json_put_channel(struct nd_json *json, size_t channel, const struct nd_difference *difference)
{
    struct known known = what_is_known(true, difference);
    nd_json_open_line(json, NULL, '{');
    nd_json_count(json, "channel", channel);
    put_counts(json, known, difference);
    put_signal(json, known, difference);
    nd_json_close(json, '}');
}
