/* Which changed constants of a layer explain its wrong values. docs/reference/diagnoses.md. */

#include <math.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/memory.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"
#include "explain/verdict/health.h"

/* Values that measure a factor; chosen: two fit anything. */
enum { FEWEST_POINTS = 8 };
/* Of a shift of weights that are clipped; chosen: it is found in two or three. */
enum { MAX_TURNS = 5 };
/* Of the values that are off, the part that a channel must hold to be the only one that is; as in
 * diagnosis/scale.c. */
static const double of_one_channel = 0.99;
/* Factors of which a fit is taken for a multiple, too; chosen: weights of few steps that are rounded anew are
 * off by some per cent together. The values decide then. */
static const double finest_factor = 1.0 / 16, near_factor = 0.05;
/* Chosen: four times what other arithmetic may do; and the share of the wrong values that may stay in such
 * small errors, where the arithmetic of the layer is known and where it is not. */
static const double few_lsb = 4, of_known = 0.1, of_unknown = 0.5;

void nd_explain_constants_deinit(struct nd_explain_constants *constants)
{
    nd_coded_weights_deinit(&constants->coded);
    ND_FREE_ALL(constants->products, constants->moved, constants->qvalues);
    *constants = (struct nd_explain_constants){.chosen = SIZE_MAX};
}

/* ---- one sample ---- */

static enum nd_status measure(struct nd_layer_diagnosis *diagnosis, const struct nd_exact_layer *layer,
                              struct nd_error *err)
{
    struct nd_explain_constants *constants = &diagnosis->constants;
    struct nd_product_parts parts;
    enum nd_status status = nd_layer_product_parts(layer, constants->shift, &parts, err);
    bool is_known = status == ND_OK && parts.products.n == diagnosis->n && parts.moved.n == diagnosis->n &&
                    diagnosis->n > 0;
    if (is_known) {
        memcpy(constants->products + diagnosis->slot * diagnosis->n, parts.products.x,
               diagnosis->n * sizeof(double));
        memcpy(constants->moved + diagnosis->slot * diagnosis->n, parts.moved.x, diagnosis->n * sizeof(double));
        constants->n_channels = parts.n_channels;
        constants->n_inner = parts.n_inner;
        constants->low = parts.low;
        constants->high = parts.high;
    }
    constants->is_known = is_known && (diagnosis->slot == 0 || constants->is_known);
    nd_product_parts_deinit(&parts);
    if (status == ND_OK && diagnosis->slot == 0 && constants->coded.qvalues.n == 0)
        status = nd_layer_coded_weights(diagnosis->job->plan->graph, layer, &constants->coded, err);
    return status;
}

static enum nd_status look_at(struct nd_layer_diagnosis *diagnosis, const struct nd_exact_layer *layer,
                              size_t k, struct nd_error *err)
{
    struct nd_explain_constants *constants = &diagnosis->constants;
    const double *given = diagnosis->qvalues + diagnosis->slot * diagnosis->n;
    double most = ND_CONSTANTS_WORTH * (double)(diagnosis->n_samples * diagnosis->n);
    ND_CLEANUP(nd_array_deinit) struct nd_array qvalues = {0};
    bool is_counted = constants->stage == ND_CONSTANTS_COUNT;
    if (is_counted && (constants->tried[k].n_known != diagnosis->slot * diagnosis->n ||
                       (double)constants->tried[k].n_beyond > most))
        return ND_OK; /* it does not fit the layer, or the values */
    enum nd_status status = nd_layer_changed(layer, diagnosis->layer_arithmetic, &diagnosis->usual,
                                             &constants->tried[k].change, &qvalues, err);
    bool is_known = status == ND_OK && qvalues.n == diagnosis->n;
    for (size_t i = 0; is_known && is_counted && i < diagnosis->n; i++) {
        constants->tried[k].n_wrong += qvalues.x[i] != given[i] && !isnan(qvalues.x[i]);
        constants->tried[k].n_beyond += fabs(qvalues.x[i] - given[i]) > constants->allowance;
    }
    if (is_known && is_counted)
        constants->tried[k].n_known += diagnosis->n;
    if (is_known && constants->stage == ND_CONSTANTS_KEEP) {
        nd_layer_changed_text(layer, &constants->tried[k].change, constants->text);
        memcpy(constants->qvalues + diagnosis->slot * diagnosis->n, qvalues.x,
               diagnosis->n * sizeof *qvalues.x);
    }
    return status;
}

enum nd_status nd_layer_diagnosis_look_at_constants(struct nd_layer_diagnosis *diagnosis,
                                                    const struct nd_exact_layer *layer, struct nd_error *err)
{
    struct nd_explain_constants *constants = &diagnosis->constants;
    if (constants->stage == ND_CONSTANTS_MEASURE)
        return measure(diagnosis, layer, err);
    if (constants->stage == ND_CONSTANTS_KEEP)
        return look_at(diagnosis, layer, constants->chosen, err);
    for (size_t k = 0; k < constants->n; k++)
        ND_TRY(look_at(diagnosis, layer, k, err));
    return ND_OK;
}

/* ---- all samples ---- */

static enum nd_status run(struct nd_layer_diagnosis *diagnosis, enum nd_constants_stage stage,
                          struct nd_error *err)
{
    enum nd_status status = ND_OK;
    diagnosis->constants.stage = stage;
    for (size_t i = 0; i < diagnosis->n_samples && status == ND_OK; i++) {
        status = nd_layer_diagnosis_load_sample(diagnosis, i, err);
        if (status == ND_OK)
            status = nd_layer_diagnosis_run(diagnosis, SIZE_MAX, NULL, err);
    }
    diagnosis->constants.stage = ND_CONSTANTS_IDLE;
    return status;
}

/* ---- what the values fit ---- */

static size_t channel_of(const struct nd_explain_constants *constants, size_t i)
{
    return i / constants->n_inner % constants->n_channels;
}

/* The one channel that is off, or SIZE_MAX: several are. */
static enum nd_status find_channel(const struct nd_layer_diagnosis *diagnosis, size_t *channel,
                                   struct nd_error *err)
{
    const struct nd_explain_constants *constants = &diagnosis->constants;
    size_t n = 0, most = 0;
    ND_FREED size_t *counts = nd_calloc(constants->n_channels, sizeof *counts);
    ND_TRY_MEMORY(counts != NULL, err);
    for (size_t i = 0; i < diagnosis->n_samples * diagnosis->n; i++)
        if (fabs(diagnosis->qvalues[i] - diagnosis->expected[i]) > constants->allowance) {
            counts[channel_of(constants, i % diagnosis->n)]++;
            n++;
        }
    for (size_t c = 1; c < constants->n_channels; c++)
        most = counts[c] > counts[most] ? c : most;
    *channel = (double)counts[most] >= of_one_channel * (double)n ? most : SIZE_MAX;
    return ND_OK;
}

static bool is_inside(const struct nd_explain_constants *constants, double qvalue)
{
    return qvalue > constants->low && qvalue < constants->high;
}

/* Of each channel, in steps of the output: NaN where no value says it. */
static enum nd_status find_biases(const struct nd_layer_diagnosis *diagnosis, double **out,
                                  struct nd_error *err)
{
    double zero = (double)nd_layer_diagnosis_quant(diagnosis)->zero_point[0];
    const struct nd_explain_constants *constants = &diagnosis->constants;
    ND_FREED size_t *n = nd_calloc(constants->n_channels, sizeof *n);
    *out = nd_calloc(constants->n_channels, sizeof **out);
    for (size_t i = 0; n != NULL && *out != NULL && i < diagnosis->n_samples * diagnosis->n; i++) {
        size_t c = channel_of(constants, i % diagnosis->n);
        if (!is_inside(constants, diagnosis->values[i]))
            continue;
        (*out)[c] += diagnosis->values[i] - zero - constants->products[i];
        n[c]++;
    }
    for (size_t c = 0; n != NULL && *out != NULL && c < constants->n_channels; c++)
        (*out)[c] = n[c] > 0 ? (*out)[c] / (double)n[c] : (double)NAN;
    return n != NULL && *out != NULL ? ND_OK : nd_fail_memory(err);
}

/* The factors of the products, and of what is added to them, that the values fit, each alone. False: too few
 * values. */
static bool find_line(const struct nd_layer_diagnosis *diagnosis, size_t channel, const double *biases,
                      double *factor, double *moved)
{
    const struct nd_explain_constants *constants = &diagnosis->constants;
    double xx = 0, xy = 0, mm = 0, my = 0, zero = (double)nd_layer_diagnosis_quant(diagnosis)->zero_point[0];
    size_t n = 0;
    for (size_t i = 0; i < diagnosis->n_samples * diagnosis->n; i++) {
        size_t c = channel_of(constants, i % diagnosis->n);
        bool is_meant = (channel == SIZE_MAX || c == channel) && is_inside(constants, diagnosis->qvalues[i]);
        if (!is_meant || !isfinite(biases[c]))
            continue;
        double x = constants->products[i], m = constants->moved[i],
               y = diagnosis->qvalues[i] - zero - biases[c];
        xx += x * x;
        xy += x * y;
        mm += m * m;
        my += m * (y - x);
        n++;
    }
    *factor = xx > 0 ? xy / xx : 1;
    *moved = mm > 0 ? my / mm : 0;
    return n >= FEWEST_POINTS;
}

static void add(struct nd_explain_constants *constants, enum nd_constants_kind kind, size_t channel,
                double amount)
{
    if (constants->n < ND_CONSTANTS_MAX)
        constants->tried[constants->n++].change =
            (struct nd_changed_constants){.kind = kind, .channel = channel, .amount = amount};
}

/* A bias may be wrong in one channel alone. */
static void add_listed(struct nd_explain_constants *constants, size_t channel)
{
    struct nd_changed_constants listed[ND_CONSTANTS_MAX_LISTED];
    size_t n = nd_list_changed_constants(listed);
    for (size_t k = 0; k < n; k++) {
        if (nd_fault_of_constants(listed[k].kind) == ND_FAULT_BIAS)
            listed[k].channel = channel;
        if (constants->coded.qvalues.n > 0)
            listed[k].coded = &constants->coded;
        constants->tried[constants->n++].change = listed[k];
    }
}

/* By how much the quantised values of weights are too high: some of them may be clipped then, so that the
 * effect is not that of a zero point. */
static enum nd_status find_shift(struct nd_layer_diagnosis *diagnosis, size_t channel, const double *biases,
                                 double moved, struct nd_error *err)
{
    struct nd_explain_constants *constants = &diagnosis->constants;
    double factor, shift = rint(moved);
    if (shift == 0)
        return ND_OK;
    add(constants, ND_CONSTANTS_ZERO_POINT_MOVED, channel, shift);
    for (size_t k = 0; k < MAX_TURNS && shift != constants->shift && shift != 0; k++) {
        constants->shift = shift;
        ND_TRY(run(diagnosis, ND_CONSTANTS_MEASURE, err));
        if (find_line(diagnosis, channel, biases, &factor, &moved))
            shift = rint(moved * shift);
    }
    if (shift != 0)
        add(constants, ND_CONSTANTS_WEIGHTS_MOVED, channel, shift);
    return ND_OK;
}

/* Whether a wrong value lies between the ends of its type: at them all that is clipped is alike. */
static bool has_inner(const struct nd_layer_diagnosis *diagnosis)
{
    double low, high;
    bool has = false;
    nd_qvalue_range(nd_plan_tensor(diagnosis->job->plan, diagnosis->step)->dtype, &low, &high);
    for (size_t i = 0; i < diagnosis->n_samples * diagnosis->n && !has; i++)
        has = diagnosis->qvalues[i] != diagnosis->expected[i] && diagnosis->qvalues[i] > low &&
              diagnosis->qvalues[i] < high;
    return has;
}

static enum nd_status list_changes(struct nd_layer_diagnosis *diagnosis, struct nd_error *err)
{
    struct nd_explain_constants *constants = &diagnosis->constants;
    double factor, moved;
    ND_FREED double *biases = NULL;
    size_t channel = SIZE_MAX;
    if (!constants->is_known && constants->coded.qvalues.n == 0) { /* no product by constants */
        if (has_inner(diagnosis))
            add(constants, ND_CONSTANTS_QVALUES_COPIED, channel, 0);
        add(constants, ND_CONSTANTS_BOUNDS_LOST, channel, 0);
        return ND_OK;
    }
    if (!constants->is_known) { /* its products alone: all changes without a number */
        add_listed(constants, channel);
        return ND_OK;
    }
    ND_TRY(find_channel(diagnosis, &channel, err));
    ND_TRY(find_biases(diagnosis, &biases, err));
    add_listed(constants, channel);
    if (!find_line(diagnosis, channel, biases, &factor, &moved))
        return ND_OK;
    double near = rint(factor / finest_factor) * finest_factor;
    bool is_near = near > 0 && fabs(factor / near - 1) < near_factor && near != 1;
    if (is_near) {
        add(constants, ND_CONSTANTS_WEIGHTS_SCALED, channel, near);
        add(constants, ND_CONSTANTS_WEIGHTS_RECODED, channel, near);
    }
    if (factor > 0)
        add(constants, ND_CONSTANTS_WEIGHTS_SCALED, channel, factor);
    return find_shift(diagnosis, channel, biases, moved, err);
}

/* ---- all of it ---- */

static bool is_better(const struct nd_explain_constants *constants, size_t k, size_t than)
{
    if (than == SIZE_MAX || constants->tried[k].n_beyond != constants->tried[than].n_beyond)
        return than == SIZE_MAX || constants->tried[k].n_beyond < constants->tried[than].n_beyond;
    return constants->tried[k].n_wrong < constants->tried[than].n_wrong;
}

static enum nd_status choose(struct nd_layer_diagnosis *diagnosis, struct nd_error *err)
{
    struct nd_explain_constants *constants = &diagnosis->constants;
    size_t n = diagnosis->n_samples * diagnosis->n, n_beyond = 0, n_wrong = 0, best = SIZE_MAX;
    double max = 0;
    for (size_t i = 0; i < n; i++) {
        double error = fabs(diagnosis->qvalues[i] - diagnosis->expected[i]);
        max = fmax(max, error);
        n_wrong += error != 0;
        n_beyond += error > constants->allowance;
    }
    for (size_t k = 0; k < constants->n; k++)
        if (constants->tried[k].n_known == n && is_better(constants, k, best))
            best = k;
    if (best == SIZE_MAX || (double)constants->tried[best].n_beyond > ND_CONSTANTS_WORTH * (double)n_beyond)
        return ND_OK;
    /* Among errors of few LSB a tenth of a bias is as near as none: there it must give the values. */
    double share =
        nd_explain_is_known(diagnosis->job, diagnosis->device, diagnosis->step) ? of_known : of_unknown;
    if (max <= few_lsb && (double)constants->tried[best].n_wrong > share * (double)n_wrong)
        return ND_OK;
    constants->chosen = best;
    constants->qvalues = nd_calloc(n, sizeof *constants->qvalues);
    return constants->qvalues != NULL ? run(diagnosis, ND_CONSTANTS_KEEP, err) : nd_fail_memory(err);
}

enum nd_status nd_layer_diagnosis_find_constants(struct nd_layer_diagnosis *diagnosis, double allowance,
                                                 struct nd_error *err)
{
    struct nd_explain_constants *constants = &diagnosis->constants;
    size_t n = diagnosis->n_samples * diagnosis->n;
    constants->allowance = allowance;
    constants->products = nd_calloc(n, sizeof *constants->products);
    constants->moved = nd_calloc(n, sizeof *constants->moved);
    ND_TRY_MEMORY(constants->products != NULL && constants->moved != NULL, err);
    ND_TRY(run(diagnosis, ND_CONSTANTS_MEASURE, err));
    ND_TRY(list_changes(diagnosis, err));
    ND_TRY(run(diagnosis, ND_CONSTANTS_COUNT, err));
    return choose(diagnosis, err);
}

enum nd_fault_kind nd_fault_of_constants(enum nd_constants_kind kind)
{
    static const enum nd_fault_kind kinds[] = {
        [ND_CONSTANTS_AS_THEY_ARE] = ND_FAULT_UNEXPLAINED,
        [ND_CONSTANTS_BIAS_LOST] = ND_FAULT_BIAS,
        [ND_CONSTANTS_BIAS_NEGATED] = ND_FAULT_BIAS,
        [ND_CONSTANTS_WEIGHTS_SCALED] = ND_FAULT_WEIGHTS_SCALE,
        [ND_CONSTANTS_WEIGHTS_RECODED] = ND_FAULT_WEIGHTS_SCALE,
        [ND_CONSTANTS_WEIGHTS_MOVED] = ND_FAULT_WEIGHTS_ZERO_POINT,
        [ND_CONSTANTS_ZERO_POINT_MOVED] = ND_FAULT_WEIGHTS_ZERO_POINT,
        [ND_CONSTANTS_ZERO_POINT_TAKEN] = ND_FAULT_WEIGHTS_ZERO_POINT,
        [ND_CONSTANTS_SIGN_FLIPPED] = ND_FAULT_WEIGHTS_TYPE,
        [ND_CONSTANTS_OTHER_TYPE] = ND_FAULT_WEIGHTS_TYPE,
        [ND_CONSTANTS_NIBBLES_SWAPPED] = ND_FAULT_WEIGHTS_LAYOUT,
        [ND_CONSTANTS_ROWS_APART] = ND_FAULT_WEIGHTS_LAYOUT,
        [ND_CONSTANTS_GROUP_REPEATED] = ND_FAULT_WEIGHTS_LAYOUT,
        [ND_CONSTANTS_TERMS_LOST] = ND_FAULT_TERMS_LOST,
        [ND_CONSTANTS_BOUNDS_LOST] = ND_FAULT_BOUNDS_LOST,
        [ND_CONSTANTS_QVALUES_COPIED] = ND_FAULT_NOT_REQUANTISED,
        [ND_CONSTANTS_SCALES_AXIS] = ND_FAULT_SCALES_AXIS,
        [ND_CONSTANTS_MATRIX_TRANSPOSED] = ND_FAULT_TRANSPOSED_WEIGHTS,
        [ND_CONSTANTS_KERNEL_TRANSPOSED] = ND_FAULT_TRANSPOSED_WEIGHTS,
        [ND_CONSTANTS_KERNEL_TURNED] = ND_FAULT_TRANSPOSED_WEIGHTS,
    };
    return kinds[kind];
}
