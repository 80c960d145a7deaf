/* What one edge, on one probe, says to a gate. */
#include <math.h>
#include <string.h>

#include "judge/release/qualify.h"

double nd_edge_step(const struct nd_model *model, const char *name)
{
    for (size_t i = 0; i < nd_model_n_edges(model); i++)
        if (strcmp(nd_model_edge(model, i)->name, name) == 0 && nd_model_edge(model, i)->quant.n == 1)
            return (double)nd_model_edge(model, i)->quant.scale[0];
    return NAN;
}

/* The metric leaves out what is NaN or infinite on one side only; a gate must not: that is no small error. */
static struct nd_edge_value sqnr_of(const struct nd_difference *d, bool is_same)
{
    if (d->n_nan_mismatch + d->n_inf_mismatch > 0)
        return (struct nd_edge_value){true, -INFINITY, NULL};
    if (!is_same && !d->has_signal)
        return (struct nd_edge_value){false, NAN, "no value of the samples that differ is a number"};
    return (struct nd_edge_value){true, is_same ? INFINITY : d->sqnr_db, NULL};
}

/* Codes against the floats that stand for them, as a prepared model gives them out: what is only the rounding
 * of code to float does not differ. A whole number of steps is one to a hundredth of a step. */
static struct nd_edge_value mixed_value_of(enum nd_policy_gate gate, const struct nd_difference *d, double step)
{
    double steps = d->abs.max / step, whole = round(steps);
    bool is_on_grid =
        d->has_values && d->n_nan_mismatch == 0 && d->n_inf_mismatch == 0 && fabs(steps - whole) < 0.01;
    bool is_same = d->has_values && d->n_samples_differing == 0;
    if (gate == ND_POLICY_BIT_EQUAL)
        return (struct nd_edge_value){true, is_same ? 0 : (double)d->n_samples_differing, NULL};
    if (gate == ND_POLICY_SQNR && d->has_values)
        return sqnr_of(d, is_same);
    if (gate == ND_POLICY_LSB && (is_same || is_on_grid))
        return (struct nd_edge_value){true, is_same ? 0 : whole, NULL};
    /* Between two steps, or with scales for each channel: compare has counted in steps. */
    if (gate == ND_POLICY_LSB && d->has_steps)
        return (struct nd_edge_value){
            true, d->n_nan_mismatch > 0 || d->n_inf_mismatch > 0 ? INFINITY : d->max_steps, NULL};
    if ((gate == ND_POLICY_SHARE || gate == ND_POLICY_ULP) && is_same)
        return (struct nd_edge_value){true, 0, NULL};
    return (struct nd_edge_value){false, NAN, "codes stand against floats"};
}

struct nd_edge_value nd_edge_value_of(enum nd_policy_gate gate, const struct nd_difference *d, double step)
{
    bool is_same = d->n_samples_differing == 0;
    if (d->numbers.n_samples_both_nan > 0)
        return (struct nd_edge_value){false, NAN, "samples are NaN on both sides"};
    if (d->is_mixed)
        return mixed_value_of(gate, d, step);
    if (gate == ND_POLICY_BIT_EQUAL)
        return (struct nd_edge_value){true, (double)d->n_samples_differing, NULL};
    if (!is_same && !d->has_values)
        return (struct nd_edge_value){false, NAN, "it differs, and only digests are stored"};
    switch (gate) {
    case ND_POLICY_LSB:
        return (struct nd_edge_value){true, (double)d->max_lsb, NULL};
    case ND_POLICY_ULP:
        /* A NaN or an infinity on one side only is no number of ULPs away. */
        return (struct nd_edge_value){
            true, d->n_nan_mismatch > 0 || d->n_inf_mismatch > 0 ? INFINITY : (double)d->max_ulp, NULL};
    case ND_POLICY_SHARE:
        return (struct nd_edge_value){true, d->share, NULL};
    default:
        return sqnr_of(d, is_same);
    }
}
