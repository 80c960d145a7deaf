#include "explain/vote.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strbuf.h"

/* A lineage: devices whose codes are all the same have one vote. */
static bool votes_in(const struct nd_explain_job *job, size_t device, size_t step)
{
    return !job->sources[device].is_failed && job->sources[device].same_as == device &&
           job->out->devices[device].units[step].has_total;
}

struct poll {
    double code; /* that most have; of equals the smallest */
    uint64_t most, second;
    uint64_t n;
};

static struct poll poll_element(const double *ballots, size_t n_ballots, size_t stride, size_t i)
{
    struct poll poll = {.n = n_ballots};
    for (size_t a = 0; a < n_ballots; a++) {
        double code = ballots[a * stride + i];
        uint64_t n = 0;
        bool is_first = true;
        for (size_t b = 0; b < n_ballots; b++) {
            bool is_equal = ballots[b * stride + i] == code;
            n += is_equal;
            is_first = is_first && !(is_equal && b < a);
        }
        if (!is_first)
            continue;
        if (n > poll.most || (n == poll.most && code < poll.code)) {
            poll.second = poll.most;
            poll.most = n;
            poll.code = code;
        } else if (n > poll.second) {
            poll.second = n;
        }
    }
    return poll;
}

static void count_element(struct nd_explain_worker *w, size_t step, size_t i, const size_t *voters,
                          size_t n_voters)
{
    const struct nd_explain_job *job = w->job;
    struct nd_explain_reference_sums *sums = &job->reference[w->sample * job->n_steps + step];
    const struct poll poll = poll_element(w->ballots, n_voters, w->ballot_n, i);
    double shared = poll.code - w->reference[step].x[i];
    double error = shared + (job->out->steps[step].has_float ? w->error[step].x[i] : 0);
    sums->n_voted++;
    sums->common_divergence += shared * shared;
    sums->common_error += error * error;
    if (poll.most < poll.n) {
        sums->n_split++;
        sums->margin += (double)(poll.most - poll.second);
    }
    for (size_t k = 0; k < n_voters; k++) {
        struct nd_explain_sums *own = nd_explain_sums_of(job, w->sample, voters[k], step);
        double d = w->ballots[k * w->ballot_n + i] - poll.code;
        own->own_energy += d * d;
        own->own_times_common += d * error;
    }
}

void nd_explain_vote(struct nd_explain_worker *w)
{
    const struct nd_explain_job *job = w->job;
    for (size_t s = 0; s < job->n_steps; s++) {
        size_t n = 0;
        if (!job->out->steps[s].is_model_output || job->reference[w->sample * job->n_steps + s].is_missed)
            continue;
        for (size_t d = 0; d < job->n_devices; d++) {
            const struct nd_explain_source *source = &job->sources[d];
            if (!votes_in(job, d, s))
                continue;
            nd_array_load(nd_capture_edge(source->capture, source->edges[s])->dtype,
                          w->raw[d * job->n_steps + s] + w->in_block * source->sample_bytes[s],
                          w->reference[s].n, w->ballots + n * w->ballot_n);
            w->voters[n++] = d;
        }
        for (size_t i = 0; n > 0 && i < w->reference[s].n; i++)
            count_element(w, s, i, w->voters, n);
    }
}

/* ---- the conclusion ---- */

enum { LEAST_LINEAGES = 3, LEAST_MARGIN = 2 };

static size_t count_lineages(const struct nd_explain_job *job)
{
    size_t n = 0;
    for (size_t d = 0; d < job->n_devices; d++) {
        bool has_output = false;
        for (size_t s = 0; s < job->n_steps; s++)
            has_output = has_output || (job->out->steps[s].is_model_output && votes_in(job, d, s));
        n += has_output;
    }
    return n;
}

/* An output that no reference reaches, or NULL. */
static const struct nd_explained_step *find_unreached(const struct nd_explain_job *job)
{
    for (size_t s = 0; s < job->n_steps; s++)
        if (job->out->steps[s].is_model_output && job->out->steps[s].unreached_from != SIZE_MAX)
            return &job->out->steps[s];
    return NULL;
}

static enum nd_status say_why(const struct nd_explain_job *job, struct nd_explained_vote *vote,
                              struct nd_error *err)
{
    struct nd_strbuf why = {0};
    const struct nd_explained_step *unreached = find_unreached(job);
    if (vote->n_lineages == 0 && unreached != NULL)
        nd_strbuf_printf(&why, "output '%s' has no reference", unreached->name);
    else if (vote->n_lineages < LEAST_LINEAGES)
        nd_strbuf_printf(&why, "%zu lineage%s: %d are needed to tell what is common to chipsets",
                         vote->n_lineages, vote->n_lineages == 1 ? "" : "s", LEAST_LINEAGES);
    else
        nd_strbuf_printf(
            &why,
            "where %zu lineages differ the commonest code has %.2f votes more than the next: %d are "
            "needed to tell what is common to chipsets",
            vote->n_lineages, vote->margin, LEAST_MARGIN);
    vote->why_not = nd_strbuf_take(&why);
    return vote->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_explain_conclude_vote(struct nd_explain_job *job, struct nd_error *err)
{
    struct nd_explained_vote *vote = &job->out->vote;
    double n_voted = 0, n_split = 0, margin = 0, divergence = 0;
    for (size_t i = 0; i < job->n_samples * job->n_steps; i++) {
        const struct nd_explain_reference_sums *r = &job->reference[i];
        if (job->out->steps[i % job->n_steps].unreached_from != SIZE_MAX)
            continue;
        n_voted += (double)r->n_voted;
        n_split += (double)r->n_split;
        margin += r->margin;
        divergence += r->common_divergence;
    }
    vote->n_lineages = count_lineages(job);
    vote->split_share = n_voted > 0 ? n_split / n_voted : NAN;
    vote->margin = n_split > 0 ? margin / n_split : NAN;
    /* Without a difference there is nothing to be decided. */
    vote->is_known = vote->n_lineages >= LEAST_LINEAGES && (n_split == 0 || vote->margin >= LEAST_MARGIN);
    vote->common_divergence = vote->is_known ? divergence / n_voted : NAN;
    return vote->is_known ? ND_OK : say_why(job, vote, err);
}
