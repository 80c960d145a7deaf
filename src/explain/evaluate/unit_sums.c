/* Sums over the elements of one unit: what quantisation makes of the float model, and what a device has beside
 * the references. */
#include <math.h>

#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "explain/evaluate/evaluator.h"

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

static void add_difference(struct nd_part_sums *part, double d)
{
    part->n_differing += d != 0;
    part->max = fabs(d) > part->max ? fabs(d) : part->max;
    part->sum += d;
    part->energy += d * d;
}

/* What the differences of a device are to the errors of quantisation, in the order of the elements. */
static void add_errors(struct nd_sums *sums, enum nd_dtype dtype, const double *given, const double *ref,
                       const double *error, size_t n)
{
    double low, high, q_times_d = sums->q_times_d, clipped = sums->clipped_divergence;
    clip_limits(dtype, &low, &high);
    for (size_t i = 0; i < n; i++) {
        double total = given[i] - ref[i], value = ref[i] - error[i];
        q_times_d += error[i] * total;
        clipped += value < low || value > high ? total * total : 0;
    }
    sums->q_times_d = q_times_d;
    sums->clipped_divergence = clipped;
}

/* One unit of a device: what it has, what the unit makes of the device's own inputs, and the reference. */
struct held {
    const struct nd_array *captured, *own;
    const struct nd_packed *reference; /* NULL: there is none */
    const double *error;               /* of quantisation, in steps; NULL: there is none */
    const void *raw;                   /* what was captured, as it is stored */
    bool is_examined;
};

/* ---- in whole numbers ---- */

enum { BLOCK = 2048 }; /* elements that stay in the first cache: chosen */

static void add_part(const struct nd_code_differences *found, struct nd_part_sums *part)
{
    part->n_differing += found->n_differing;
    part->max = fmax(part->max, (double)found->max);
    part->sum += (double)found->sum;
    part->energy += (double)found->energy;
}

/* What of a block of codes of one width is held against what. */
struct code_block {
    const void *given, *own, *reference; /* the last one may be NULL */
    size_t width, n;
};

static void compare_codes(const struct code_block *block, const void *a, const void *b,
                          struct nd_part_sums *part)
{
    struct nd_code_differences found;
    if (block->width == 1)
        nd_gemm_kernels()->compare_bytes(a, b, block->n, &found);
    else
        nd_gemm_kernels()->compare_words(a, b, block->n, &found);
    add_part(&found, part);
}

static void add_block(struct nd_sums *sums, const struct code_block *block, bool is_examined)
{
    if (is_examined)
        compare_codes(block, block->given, block->own, &sums->local);
    if (block->reference != NULL)
        compare_codes(block, block->given, block->reference, &sums->total);
    if (block->reference != NULL && is_examined)
        compare_codes(block, block->own, block->reference, &sums->inherited);
}

/* False: nothing was added, since there are other values than codes of an unsigned type of 8 or 16 bits. */
static bool add_codes(struct nd_sums *sums, const struct held *held)
{
    const struct nd_array *own = held->own;
    const struct nd_sums before = *sums;
    const struct nd_gemm_kernels *kernels = nd_gemm_kernels();
    size_t width = own->dtype == ND_DTYPE_U8 ? 1 : 2;
    uint16_t made[BLOCK];
    if ((own->dtype != ND_DTYPE_U8 && own->dtype != ND_DTYPE_U16) || held->captured->dtype != own->dtype ||
        !are_exact(own) ||
        (held->reference != NULL &&
         (held->reference->husk.dtype != own->dtype || held->reference->width != width)))
        return false;
    for (size_t first = 0; first < own->n; first += BLOCK) {
        size_t n = own->n - first < BLOCK ? own->n - first : BLOCK;
        bool are_codes = width == 1 ? kernels->narrow(own->x + first, 0, n, (uint8_t *)made)
                                    : kernels->narrow_words(own->x + first, 0, n, made);
        if (!are_codes) {
            *sums = before;
            return false;
        }
        const struct code_block block = {
            (const uint8_t *)held->raw + first * width, made,
            held->reference != NULL ? (const uint8_t *)held->reference->bytes + first * width : NULL, width, n};
        add_block(sums, &block, held->is_examined);
    }
    return true;
}

/* ---- in any ---- */

static void add_values(struct nd_sums *sums, const struct held *held, const double *ref)
{
    const double *given = held->captured->x, *own = held->own->x;
    for (size_t i = 0; i < held->own->n; i++) {
        double local = given[i] - own[i];
        if (held->is_examined)
            add_difference(&sums->local, local);
        if (ref == NULL)
            continue;
        double total = given[i] - ref[i], inherited = own[i] - ref[i];
        add_difference(&sums->total, total);
        if (!held->is_examined)
            continue;
        add_difference(&sums->inherited, inherited);
        sums->n_violations += total != local + inherited; /* of whole numbers none can be */
    }
}

void nd_add_unit(struct nd_evaluator *w, size_t step, const struct nd_array *values)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_planned_unit *unit = &plan->sources[w->reader.device].units[step];
    struct nd_sums *sums = nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, step);
    bool has_reference = unit->has_total && !nd_reference_of(w, step)->is_missed;
    bool has_error = has_reference && plan->steps[step].has_float && !nd_reference_of(w, step)->is_float_missed;
    const struct held held = {.captured = nd_reader_given(&w->reader, plan->steps[step].edge),
                              .own = values,
                              .reference = has_reference ? &w->reference[step] : NULL,
                              .error = has_error ? w->error[step].x : NULL,
                              .raw = nd_reader_raw(&w->reader, w->reader.device, step),
                              .is_examined = unit->is_examined};
    sums->n_codes = values->n;
    bool is_added = add_codes(sums, &held);
    const double *ref =
        has_reference && (!is_added || held.error != NULL) ? nd_reference_array(w, step)->x : NULL;
    if (held.error != NULL)
        add_errors(sums, held.reference->husk.dtype, held.captured->x, ref, held.error, values->n);
    if (!is_added)
        add_values(sums, &held, ref);
}
