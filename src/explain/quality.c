/* The error against the float reference, of a step and of the model's outputs. science: never a difference of
 * two SQNRs; all three energies are told. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "explain/explain_job.h"

/* Sums over samples; the means are taken by finish. */
static void add(const struct nd_explain_job *job, size_t sample, size_t device, size_t step,
                struct nd_decomposition *sum)
{
    const struct nd_explain_sums *s = &job->sums[(sample * job->n_devices + device) * job->n_steps + step];
    const struct nd_explain_reference_sums *r = &job->reference[sample * job->n_steps + step];
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

static bool is_known(const struct nd_explain_job *job, size_t device, size_t step)
{
    return job->out->steps[step].has_float && job->out->devices[device].units[step].has_total;
}

void nd_explain_quality_of_step(const struct nd_explain_job *job, size_t device, size_t step,
                                struct nd_decomposition *out)
{
    *out = (struct nd_decomposition){0};
    for (size_t i = 0; i < job->n_samples && is_known(job, device, step); i++)
        add(job, i, device, step, out);
    finish(out);
}

enum nd_status nd_explain_quality_of_output(const struct nd_explain_job *job, size_t device,
                                            struct nd_error *err)
{
    struct nd_explained_device *out = &job->out->devices[device];
    struct nd_explain_energies *samples = nd_calloc(job->n_samples, sizeof *samples);
    double common = 0, own = 0;
    if (samples == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < job->n_samples; i++) {
        struct nd_decomposition one = {0};
        struct nd_explain_energies *sums = &samples[i];
        for (size_t s = 0; s < job->n_steps; s++) {
            if (!job->out->steps[s].is_model_output || !is_known(job, device, s))
                continue;
            add(job, i, device, s, &one);
            add(job, i, device, s, &out->output);
            sums->common += job->reference[i * job->n_steps + s].common_error;
            sums->own += nd_explain_sums_of(job, i, device, s)->own_energy;
        }
        sums->n_codes = one.n_codes;
        sums->quantisation = one.quantisation;
        sums->divergence = one.divergence;
        sums->interaction = one.interaction;
        if (!job->out->vote.is_known) {
            sums->common = one.quantisation;
            sums->own = one.divergence;
        }
        common += sums->common;
        own += sums->own;
    }
    finish(&out->output);
    out->own_share = NAN;
    size_t n = out->output.n_codes > 0 ? job->n_samples : 0;
    if (n > 0)
        out->own_share = own / (common + own);
    enum nd_status status = nd_explain_bootstrap(samples, n, out, err);
    free(samples);
    return status;
}
