#include "explain/evaluate/evaluator.h"

/* A lineage: devices whose codes are all the same have one vote. */
static bool votes_in(const struct nd_plan *plan, size_t device, size_t step)
{
    return nd_plan_is_worked_out(plan, device) && plan->sources[device].units[step].has_total;
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

/* w->step has the reference. */
static void count_element(struct nd_evaluator *w, size_t step, size_t i, const size_t *voters, size_t n_voters)
{
    const struct nd_plan *plan = w->reader.plan;
    struct nd_reference_sums *sums = nd_reference_sums_of(w->evaluation, w->reader.sample, step);
    const struct poll poll = poll_element(w->ballots, n_voters, w->ballot_n, i);
    double shared = poll.code - w->step.x[i];
    bool has_error = plan->steps[step].has_float && !sums->is_float_missed;
    double error = shared + (has_error ? w->error[step].x[i] : 0);
    sums->n_voted++;
    sums->common_divergence += shared * shared;
    sums->common_error += error * error;
    if (poll.most < poll.n) {
        sums->n_split++;
        sums->margin += (double)(poll.most - poll.second);
    }
    for (size_t k = 0; k < n_voters; k++) {
        struct nd_sums *own = nd_sums_of(w->evaluation, w->reader.sample, voters[k], step);
        double d = w->ballots[k * w->ballot_n + i] - poll.code;
        own->own_energy += d * d;
    }
}

void nd_count_ballots(struct nd_evaluator *w)
{
    const struct nd_plan *plan = w->reader.plan;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t n = 0;
        if (!plan->steps[s].is_model_output ||
            nd_reference_sums_of(w->evaluation, w->reader.sample, s)->is_missed)
            continue;
        for (size_t d = 0; d < plan->n_devices; d++) {
            const struct nd_plan_source *source = &plan->sources[d];
            if (!votes_in(plan, d, s))
                continue;
            nd_array_load(nd_capture_edge(source->capture, source->edges[s])->dtype,
                          nd_reader_raw(&w->reader, d, s), w->reference[s].husk.n,
                          w->ballots + n * w->ballot_n);
            w->voters[n++] = d;
        }
        nd_reference_array(w, s);
        for (size_t i = 0; n > 0 && i < w->step.n; i++)
            count_element(w, s, i, w->voters, n);
    }
}
