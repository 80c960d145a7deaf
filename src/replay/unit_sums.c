/* Sums over the elements of one unit: what quantisation makes of the float model, and what a device has beside
 * the references. */
#include <math.h>

#include "eval/rounding.h"
#include "replay/evaluator.h"

/* ---- the references ---- */

/* Values, in codes, that lie more than half a step beyond those of the type are clipped. */
static void clip_limits(enum nd_dtype dtype, double *low, double *high)
{
    *low = -HUGE_VAL;
    *high = HUGE_VAL;
    if (!nd_dtype_is_integer(dtype))
        return;
    nd_code_range(dtype, low, high);
    *low -= 0.5;
    *high += 0.5;
}

void nd_take_error(struct nd_evaluator *w, size_t step)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_quant *quant = &nd_model_edge(plan->model, plan->steps[step].edge)->quant;
    const struct nd_array *codes = nd_reference_array(w, step);
    struct nd_reference_sums sums = *nd_reference_of(w, step); /* x could be what it has in memory */
    double *x = w->error[step].x;
    size_t inner = nd_exact_inner(quant, &plan->shapes[step], codes->n), channel = 0;
    double low, high;
    clip_limits(codes->dtype, &low, &high);
    for (size_t start = 0; start < codes->n; start += inner, channel = (channel + 1) % quant->n) {
        double scale = (double)quant->scale[channel], zero = (double)quant->zero_point[channel];
        for (size_t i = start; i < start + inner; i++) {
            double steps = x[i] / scale, q = codes->x[i] - zero - steps, value = codes->x[i] - q;
            sums.signal += steps * steps;
            sums.quantisation += q * q;
            if (value < low || value > high) {
                sums.n_clipped++;
                sums.clipped_quantisation += q * q;
            }
            x[i] = q;
        }
    }
    *nd_reference_of(w, step) = sums;
}

/* ---- a device ---- */

/* Codes, of which there are so few that sums of squares of differences stay exact, whatever the order. */
static bool are_exact(const struct nd_array *values)
{
    double low, high;
    if (!nd_dtype_is_integer(values->dtype) || nd_dtype_size_bytes(values->dtype) > 2)
        return false;
    nd_code_range(values->dtype, &low, &high);
    return (double)values->n * (high - low) * (high - low) < 0x1p53;
}

/* a - b. */
static void add_differences(struct nd_part_sums *part, const double *a, const double *b, size_t n)
{
    enum { LANES = 4 };
    double sum[LANES] = {0}, energy[LANES] = {0}, max[LANES] = {0}, n_differing = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            double d = a[i + k] - b[i + k], size = fabs(d);
            n_differing += d != 0 ? 1.0 : 0.0;
            max[k] = size > max[k] ? size : max[k];
            sum[k] += d;
            energy[k] += d * d;
        }
    for (; i < n; i++) {
        double d = a[i] - b[i];
        n_differing += d != 0 ? 1.0 : 0.0;
        max[0] = fabs(d) > max[0] ? fabs(d) : max[0];
        sum[0] += d;
        energy[0] += d * d;
    }
    part->n_differing += (uint64_t)n_differing;
    for (size_t k = 0; k < LANES; k++) {
        part->max = max[k] > part->max ? max[k] : part->max;
        part->sum += sum[k];
        part->energy += energy[k];
    }
}

static void add_difference(struct nd_part_sums *part, double d)
{
    part->n_differing += d != 0;
    part->max = fabs(d) > part->max ? fabs(d) : part->max;
    part->sum += d;
    part->energy += d * d;
}

/* What the differences of a device are to the errors of quantisation. */
static void add_errors(struct nd_sums *sums, const double *given, const struct nd_array *ref,
                       const double *error)
{
    double low, high, q_times_d = sums->q_times_d, clipped = sums->clipped_divergence;
    clip_limits(ref->dtype, &low, &high);
    for (size_t i = 0; i < ref->n; i++) {
        double total = given[i] - ref->x[i], value = ref->x[i] - error[i];
        q_times_d += error[i] * total;
        clipped += value < low || value > high ? total * total : 0;
    }
    sums->q_times_d = q_times_d;
    sums->clipped_divergence = clipped;
}

void nd_add_unit(struct nd_evaluator *w, size_t step, const struct nd_array *values)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_planned_unit *unit = &plan->sources[w->reader.device].units[step];
    struct nd_sums *sums = nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, step);
    const struct nd_array *captured = nd_reader_given(&w->reader, plan->steps[step].edge), *reference = NULL;
    if (unit->has_total && !nd_reference_of(w, step)->is_missed)
        reference = nd_reference_array(w, step);
    const double *given = captured->x, *own = values->x, *ref = reference != NULL ? reference->x : NULL;
    const double *error = ref != NULL && plan->steps[step].has_float ? w->error[step].x : NULL;
    sums->n_codes = values->n;
    if (error != NULL)
        add_errors(sums, given, reference, error);
    if (are_exact(values) && are_exact(captured)) {
        if (unit->is_examined)
            add_differences(&sums->local, given, own, values->n);
        if (ref != NULL)
            add_differences(&sums->total, given, ref, values->n);
        if (ref != NULL && unit->is_examined)
            add_differences(&sums->inherited, own, ref, values->n); /* whole numbers: no violation can be */
        return;
    }
    for (size_t i = 0; i < values->n; i++) {
        double local = given[i] - own[i];
        if (unit->is_examined)
            add_difference(&sums->local, local);
        if (ref == NULL)
            continue;
        double total = given[i] - ref[i], inherited = own[i] - ref[i];
        add_difference(&sums->total, total);
        if (!unit->is_examined)
            continue;
        add_difference(&sums->inherited, inherited);
        sums->n_violations += total != local + inherited;
    }
}
