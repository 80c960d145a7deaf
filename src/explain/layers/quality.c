/* The error against the float reference, of a step and of the model's outputs: three energies, and never a
 * difference of two SQNRs. */
#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/stages.h"

/* Sums over samples; the means are taken by finish. */
static void add(const struct nd_evaluation *evaluation, size_t sample, size_t device, size_t step,
                struct nd_decomposition *sum)
{
    const struct nd_sums *s = nd_sums_of(evaluation, sample, device, step);
    const struct nd_reference_sums *r = nd_reference_sums_of(evaluation, sample, step);
    sum->n_codes += s->n_codes;
    sum->signal += r->signal;
    sum->quantisation += r->quantisation;
    sum->divergence += s->total.energy;
    sum->interaction += 2 * s->q_times_d;
    sum->bias += s->total.sum;
    sum->n_clipped += r->n_clipped;
    sum->clipped_quantisation += r->clipped_quantisation;
    sum->clipped_divergence += s->clipped_divergence;
}

static void finish(struct nd_decomposition *sum)
{
    if (sum->n_codes == 0)
        return;
    double n = (double)sum->n_codes;
    /* Cauchy and Schwarz hold but for rounding. */
    double product = sqrt(sum->quantisation) * sqrt(sum->divergence);
    sum->correlation = product > 0 ? fmax(-1, fmin(1, sum->interaction / 2 / product)) : NAN;
    sum->sqnr_db = 10 * log10(sum->signal / sum->quantisation);
    double error = sum->quantisation + sum->divergence + sum->interaction;
    sum->noise_figure_db = 10 * log10(fmax(error, 0) / sum->quantisation);
    sum->signal /= n;
    sum->quantisation /= n;
    sum->divergence /= n;
    sum->interaction /= n;
    sum->bias /= n;
    sum->clipped_quantisation /= n;
    sum->clipped_divergence /= n;
}

static bool is_known(const struct nd_explanation *out, size_t device, size_t step)
{
    return out->steps[step].has_float && out->devices[device].units[step].has_total;
}

void nd_explain_quality_of_step(const struct nd_evaluation *evaluation, size_t device, size_t step,
                                struct nd_explanation *out)
{
    struct nd_decomposition *quality = &out->devices[device].units[step].quality;
    *quality = (struct nd_decomposition){0};
    for (size_t i = 0; i < evaluation->plan->n_samples && is_known(out, device, step); i++)
        add(evaluation, i, device, step, quality);
    finish(quality);
}

enum nd_status nd_explain_quality_of_output(const struct nd_evaluation *evaluation, size_t device,
                                            struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    struct nd_explained_device *to = &out->devices[device];
    struct nd_explain_energies *samples = nd_calloc(plan->n_samples, sizeof *samples);
    double common = 0, own = 0;
    if (samples == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < plan->n_samples; i++) {
        struct nd_decomposition one = {0};
        struct nd_explain_energies *sums = &samples[i];
        for (size_t s = 0; s < plan->n_steps; s++) {
            if (!plan->steps[s].is_model_output || !is_known(out, device, s))
                continue;
            add(evaluation, i, device, s, &one);
            add(evaluation, i, device, s, &to->output);
            sums->common += nd_reference_sums_of(evaluation, i, s)->common_error;
            sums->own += nd_sums_of(evaluation, i, device, s)->own_energy;
        }
        sums->n_codes = one.n_codes;
        sums->quantisation = one.quantisation;
        sums->divergence = one.divergence;
        sums->interaction = one.interaction;
        if (!out->vote.is_known) {
            sums->common = one.quantisation;
            sums->own = one.divergence;
        }
        common += sums->common;
        own += sums->own;
    }
    finish(&to->output);
    to->own_share = NAN;
    size_t n = to->output.n_codes > 0 ? plan->n_samples : 0;
    if (n > 0)
        to->own_share = own / (common + own);
    enum nd_status status = nd_explain_bootstrap(samples, n, to, err);
    free(samples);
    return status;
}
