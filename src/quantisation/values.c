/* What the float values of a tensor look like. */
#include <math.h>

#include "arithmetic/operators/ops_shared.h"
#include "core/memory.h"
#include "core/statistics/series.h"
#include "quantisation/study.h"

/* The best quantiser of one scale for given values. */

/* A search looks at so many values of a tensor, and at so many narrower ranges: chosen. */
enum { SEARCH_VALUES = 4096, SEARCH_STEPS = 50, SEARCH_ROUNDS = 3, BINS = 2048 };

struct nd_fit nd_fit_range(struct nd_range range, double low_qvalue, double high_qvalue)
{
    double low = fmin(range.low, 0), high = fmax(range.high, 0);
    double scale = (double)(float)((high - low) / (high_qvalue - low_qvalue));
    if (!(scale > 0) || !isfinite(scale))
        scale = 1;
    double zero = rint(low_qvalue - low / scale);
    return (struct nd_fit){scale, fmin(fmax(zero, low_qvalue), high_qvalue), low_qvalue, high_qvalue};
}

struct nd_range nd_range_of_fit(const struct nd_fit *fit)
{
    return (struct nd_range){(fit->low_qvalue - fit->zero) * fit->scale,
                             (fit->high_qvalue - fit->zero) * fit->scale};
}

/* The nearest whole number, ties to even, mostly without a call. */
static inline double nearest(double x)
{
    const double shift = 0x1.8p52;
    return fabs(x) < 0x1p51 ? (x + shift) - shift : rint(x);
}

double nd_fit_apply(const struct nd_fit *fit, double x)
{
    double qvalue = nearest(x / fit->scale) + fit->zero;
    qvalue = qvalue > fit->low_qvalue ? qvalue : fit->low_qvalue; /* NaN gives the least quantised value */
    qvalue = qvalue < fit->high_qvalue ? qvalue : fit->high_qvalue;
    return (qvalue - fit->zero) * fit->scale;
}

double nd_fit_error(const struct nd_fit *fit, const float *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = nd_fit_apply(fit, (double)values[i]) - (double)values[i];
        sum += d * d;
    }
    return n > 0 ? sum / (double)n : 0;
}

const char *nd_calibration_name(enum nd_calibration calibration)
{
    static const char *const names[] = {[ND_CALIBRATE_MIN_MAX] = "min-max",
                                        [ND_CALIBRATE_PERCENTILE_9999] = "percentile 99.99",
                                        [ND_CALIBRATE_PERCENTILE_999] = "percentile 99.9",
                                        [ND_CALIBRATE_ENTROPY] = "entropy",
                                        [ND_CALIBRATE_MSE] = "mse"};
    return names[calibration];
}

/* The value below which a share of the sorted values lies. */
static double value_quantile(const float *sorted, size_t n, double share)
{
    double at = share * (double)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n)
        return (double)sorted[n - 1];
    return (double)sorted[i] + (at - (double)i) * ((double)sorted[i + 1] - (double)sorted[i]);
}

static struct nd_range percentile(const float *sorted, size_t n, double share)
{
    double tail = (1 - share) / 2;
    return (struct nd_range){value_quantile(sorted, n, tail), value_quantile(sorted, n, 1 - tail)};
}

/* ---- the least mean square ---- */

/* Some of the values, evenly spaced in order of size, with both ends. */
static size_t thin_out(const float *sorted, size_t n, float out[static SEARCH_VALUES])
{
    if (n <= SEARCH_VALUES) {
        memcpy(out, sorted, n * sizeof *out);
        return n;
    }
    for (size_t i = 0; i < SEARCH_VALUES; i++)
        out[i] = sorted[i * (n - 1) / (SEARCH_VALUES - 1)];
    return SEARCH_VALUES;
}

static double error_of(struct nd_range range, const float *values, size_t n, double qvalues)
{
    struct nd_fit fit = nd_fit_range(range, 0, qvalues - 1);
    return nd_fit_error(&fit, values, n);
}

/* One end after the other is moved towards zero; the ranges of the other end stay. */
static struct nd_range min_square(const float *sorted, size_t n, double qvalues)
{
    float values[SEARCH_VALUES];
    size_t n_values = thin_out(sorted, n, values);
    struct nd_range whole = {(double)sorted[0], (double)sorted[n - 1]}, best = whole;
    double least = error_of(best, values, n_values, qvalues);
    for (int round = 0; round < SEARCH_ROUNDS; round++) {
        struct nd_range at = best;
        for (int k = 1; k <= SEARCH_STEPS; k++) { /* round 0: both ends, 1: the lower, 2: the upper */
            /* Geometric, so that a range a thousand times too wide is found, too. */
            double part = pow(0.86, k);
            struct nd_range tried = {round != 2 ? whole.low * part : at.low,
                                     round != 1 ? whole.high * part : at.high};
            double error = error_of(tried, values, n_values, qvalues);
            if (error < least) {
                least = error;
                best = tried;
            }
        }
    }
    return best;
}

/* ---- the least divergence of Kullback and Leibler ---- */

/* Counts of the values in BINS bins of the whole range. */
static void count(const float *sorted, size_t n, struct nd_range whole, double counts[static BINS])
{
    double width = (whole.high - whole.low) / BINS;
    memset(counts, 0, BINS * sizeof *counts);
    for (size_t i = 0; i < n; i++) {
        double at = floor(((double)sorted[i] - whole.low) / width);
        counts[(size_t)fmin(fmax(at, 0), BINS - 1)] += 1;
    }
}

/* Of the values in bins first .. last - 1, what lies outside added at the ends, against what so many quantised
 * values leave of them: every quantised value spreads its count over its bins that are not empty, and knows
 * nothing of what is clipped. */
static double divergence(const double counts[static BINS], size_t first, size_t last, double n, double qvalues)
{
    double sum = 0, per_qvalue = (double)(last - first) / qvalues, clipped[2] = {0};
    for (size_t i = 0; i < BINS; i++)
        if (i < first || i >= last)
            clipped[i < first ? 0 : 1] += counts[i];
    for (size_t begin = first, k = 1; begin < last; k++) {
        size_t end = first + (size_t)((double)k * per_qvalue);
        double total = 0, n_used = 0;
        end = end > last ? last : end;
        for (size_t i = begin; i < end; i++) {
            total += counts[i];
            n_used += counts[i] > 0;
        }
        for (size_t i = begin; i < end; i++) {
            double p = counts[i] + (i == first ? clipped[0] : 0) + (i == last - 1 ? clipped[1] : 0);
            /* An empty quantised value cannot give what is clipped into it: chosen, a thousandth of a value. */
            double q = fmax(counts[i] > 0 ? total / n_used : 0, 1e-3);
            sum += p > 0 ? p / n * log(p / q) : 0;
        }
        begin = end;
    }
    return sum;
}

/* As calibration by entropy is usually done: bins of the whole range, both ends moved towards zero by the same
 * share, and no fewer bins than quantised values. */
static struct nd_range min_divergence(const float *sorted, size_t n, double qvalues)
{
    double counts[BINS], least = HUGE_VAL;
    struct nd_range whole = {fmin((double)sorted[0], 0), fmax((double)sorted[n - 1], 0)}, best = whole;
    if (!(whole.high > whole.low))
        return whole;
    count(sorted, n, whole, counts);
    double width = (whole.high - whole.low) / BINS, zero = -whole.low / width;
    for (int k = 0; k <= SEARCH_STEPS; k++) {
        double part = pow(0.93, k);
        size_t first = (size_t)(zero - zero * part), last = (size_t)ceil(zero + (BINS - zero) * part);
        if ((double)(last - first) < qvalues)
            break;
        double d = divergence(counts, first, last, (double)n, qvalues);
        if (d < least) {
            least = d;
            best = (struct nd_range){whole.low + (double)first * width, whole.low + (double)last * width};
        }
    }
    return best;
}

struct nd_range nd_calibrate(enum nd_calibration calibration, const float *sorted, size_t n, double qvalues)
{
    return calibration == ND_CALIBRATE_PERCENTILE_9999  ? percentile(sorted, n, 0.9999)
           : calibration == ND_CALIBRATE_PERCENTILE_999 ? percentile(sorted, n, 0.999)
           : calibration == ND_CALIBRATE_ENTROPY        ? min_divergence(sorted, n, qvalues)
           : calibration == ND_CALIBRATE_MSE            ? min_square(sorted, n, qvalues)
                                             : (struct nd_range){(double)sorted[0], (double)sorted[n - 1]};
}

/* The weights and biases of a layer, before and after their quantisation. */

/* Elements of a channel that follow each other, and how many channels there are. */
struct layout {
    size_t n_inner, n_channels;
};

static struct layout layout_of(const struct nd_array *real, int axis)
{
    struct layout layout = {real->n > 0 ? real->n : 1, 1};
    if (axis < 0)
        return layout;
    layout.n_inner = nd_dims_product(&real->shape, axis + 1, real->shape.rank);
    layout.n_channels = (size_t)real->shape.dims[axis];
    return layout;
}

/* The largest magnitude of each channel: a new array. */
static double *channel_sizes(const struct nd_array *real, const struct layout *layout)
{
    double *sizes = nd_calloc(layout->n_channels, sizeof *sizes);
    for (size_t first = 0, c = 0; sizes != NULL && first < real->n; first += layout->n_inner) {
        for (size_t i = first; i < first + layout->n_inner; i++)
            sizes[c] = fabs(real->x[i]) > sizes[c] ? fabs(real->x[i]) : sizes[c];
        c = c + 1 < layout->n_channels ? c + 1 : 0;
    }
    return sizes;
}

enum nd_status nd_channels_ratio(const struct nd_array *real, int axis, double *ratio, struct nd_error *err)
{
    struct layout layout = layout_of(real, axis);
    ND_FREED double *sizes = channel_sizes(real, &layout);
    size_t first = 0, n = layout.n_channels;
    ND_TRY_MEMORY(sizes != NULL, err);
    nd_series_sort(sizes, n);
    while (first < n && sizes[first] == 0)
        first++;
    *ratio = first < n ? sizes[n - 1] / sizes[first + (n - first) / 4] : NAN;
    return ND_OK;
}

double nd_mean_square_between(const struct nd_array *a, const struct nd_array *b)
{
    double sum = 0;
    for (size_t i = 0; i < a->n; i++)
        sum += (a->x[i] - b->x[i]) * (a->x[i] - b->x[i]);
    return a->n > 0 ? sum / (double)a->n : 0;
}

double nd_mean_square(const struct nd_array *a)
{
    double sum = 0;
    for (size_t i = 0; i < a->n; i++)
        sum += a->x[i] * a->x[i];
    return a->n > 0 ? sum / (double)a->n : 0;
}

enum nd_status nd_weights_quantised(const struct nd_array *real, int axis, int bits, struct nd_array *out,
                                    struct nd_error *err)
{
    struct layout layout = layout_of(real, axis);
    double *sizes = channel_sizes(real, &layout), last = ldexp(1, bits - 1) - 1;
    enum nd_status status = sizes != NULL ? nd_array_copy(real, out, err) : nd_fail_memory(err);
    for (size_t first = 0, c = 0; status == ND_OK && first < real->n; first += layout.n_inner) {
        double scale = (double)(float)(sizes[c] / last);
        for (size_t i = first; i < first + layout.n_inner; i++)
            out->x[i] = scale > 0 ? fmin(fmax(rint(real->x[i] / scale), -last), last) * scale : 0;
        c = c + 1 < layout.n_channels ? c + 1 : 0;
    }
    free(sizes);
    return status;
}

/* Only of biases somebody reads the quantised values. */
static const struct nd_array *qvalues_of(const struct nd_exact_constant *constant)
{
    return constant->is_bias ? constant->qvalues : NULL;
}

enum nd_status nd_pair_hold(const struct nd_plan *plan, const struct nd_exact_constant *constant,
                            const struct nd_array *before, struct nd_error *err)
{
    ND_TRY(nd_exact_hold(plan->graph, constant->real, err));
    enum nd_status status = nd_exact_hold(plan->graph, qvalues_of(constant), err);
    if (status == ND_OK) {
        status = nd_exact_hold(plan->float_graph, before, err);
        if (status == ND_OK)
            return ND_OK;
        nd_exact_release(plan->graph, qvalues_of(constant));
    }
    nd_exact_release(plan->graph, constant->real);
    return status;
}

void nd_pair_release(const struct nd_plan *plan, const struct nd_exact_constant *constant,
                     const struct nd_array *before)
{
    nd_exact_release(plan->float_graph, before);
    nd_exact_release(plan->graph, qvalues_of(constant));
    nd_exact_release(plan->graph, constant->real);
}

/* A group of values at one end is far off when the gap before it is so many times as wide as the rest: chosen.
 * A Softmax does not care how far below the others a mask lies; a quantiser does. */
static const double far_gap = 20;
/* Far values are a mask when they are at least this share of all, and outliers when they are fewer: chosen. */
static const double mask_min_share = 1e-3;
enum { mask_min_values = 64 }; /* of fewer values nothing is said */
/* Values of a mask differ by at most this part of their size (scores are added to it): chosen. */
static const double mask_spread = 0.05;
/* The share of the values that is called central, as calibration by percentile does. */
static const double central_share = 0.999;

/* Sorted, without what is not a number. out and scratch: [values->n]. */
static size_t sort_known(const struct nd_loss_values *values, float *out, float *scratch)
{
    size_t n = 0;
    for (size_t i = 0; i < values->n; i++)
        if (!isnan(values->values[i]))
            out[n++] = values->values[i];
    nd_series_sort_floats(out, n, scratch);
    return n;
}

/* rest: the least and the greatest of the other values. */
static bool is_mask(const float *group, size_t n_group, size_t n, double gap, struct nd_range rest)
{
    double first = (double)group[0], last = (double)group[n_group - 1], width = rest.high - rest.low;
    double size = fmin(fabs(first), fabs(last)), rest_size = fmax(fabs(rest.low), fabs(rest.high));
    return n >= mask_min_values && width > 0 && gap >= far_gap * width && size >= far_gap * rest_size &&
           (double)n_group >= mask_min_share * (double)n &&
           last - first <= mask_spread * fmax(fabs(first), fabs(last));
}

/* Takes a mask constant away from one end: the group beyond the widest gap. */
static void part_mask(const float *sorted, size_t n, struct nd_value_facts *facts, size_t *first, size_t *count)
{
    size_t at = 0;
    double widest = 0;
    *first = 0;
    *count = n;
    for (size_t i = 0; i + 1 < n; i++) {
        double gap = (double)sorted[i + 1] - (double)sorted[i];
        if (gap > widest) {
            widest = gap;
            at = i;
        }
    }
    size_t n_low = at + 1;
    struct nd_range below = {(double)sorted[0], (double)sorted[at]};
    struct nd_range above = {(double)sorted[n_low < n ? n_low : n - 1], (double)sorted[n - 1]};
    if (n_low < n && is_mask(sorted, n_low, n, widest, above)) {
        facts->mask = (double)sorted[0];
        facts->mask_share = (double)n_low / (double)n;
        *first = n_low;
        *count = n - n_low;
    } else if (n_low < n && is_mask(sorted + n_low, n - n_low, n, widest, below)) {
        facts->mask = (double)sorted[n - 1];
        facts->mask_share = (double)(n - n_low) / (double)n;
        *count = n_low;
    } else {
        return;
    }
    facts->has_mask = true;
}

/* Of the values without the mask. */
static double noise_to_signal(const struct nd_loss_values *values, const struct nd_value_facts *facts)
{
    double sum = 0, sum_squares = 0, noise = 0, n = 0;
    for (size_t i = 0; i < values->n; i++) {
        double x = (double)values->values[i], e = (double)values->errors[i];
        if (isnan(x) || x < facts->low || x > facts->high)
            continue;
        n++;
        sum += x;
        sum_squares += x * x;
        noise += e * e;
    }
    double variance = n > 0 ? sum_squares / n - sum / n * (sum / n) : NAN;
    return variance > 0 ? noise / n / variance : n > 0 && noise > 0 ? HUGE_VAL : 0;
}

enum nd_status nd_loss_value_facts(const struct nd_loss_values *values, struct nd_value_facts *facts,
                                   struct nd_error *err)
{
    *facts = (struct nd_value_facts){.mask = NAN, .noise_to_signal = NAN};
    facts->sorted = nd_calloc(values->n, sizeof *facts->sorted);
    float *scratch = nd_calloc(values->n, sizeof *scratch);
    size_t n = 0, first = 0;
    if (facts->sorted != NULL && scratch != NULL)
        n = sort_known(values, facts->sorted, scratch);
    bool has_all = facts->sorted != NULL && scratch != NULL;
    free(scratch);
    ND_TRY_MEMORY(has_all, err);
    if (n == 0)
        return ND_OK;
    part_mask(facts->sorted, n, facts, &first, &facts->n);
    memmove(facts->sorted, facts->sorted + first, facts->n * sizeof *facts->sorted);
    facts->low = (double)facts->sorted[0];
    facts->high = (double)facts->sorted[facts->n - 1];
    facts->central_low = value_quantile(facts->sorted, facts->n, (1 - central_share) / 2);
    facts->central_high = value_quantile(facts->sorted, facts->n, (1 + central_share) / 2);
    facts->noise_to_signal = noise_to_signal(values, facts);
    return ND_OK;
}

void nd_value_facts_deinit(struct nd_value_facts *facts)
{
    free(facts->sorted);
    *facts = (struct nd_value_facts){0};
}

struct nd_fit nd_fit_of_step(const struct nd_study *study, size_t step)
{
    const struct nd_tensor *tensor = nd_plan_tensor(study->plan, step);
    struct nd_fit fit = {.scale = (double)tensor->quant.scale[0], .zero = (double)tensor->quant.zero_point[0]};
    nd_qvalue_range(tensor->dtype, &fit.low_qvalue, &fit.high_qvalue);
    return fit;
}
