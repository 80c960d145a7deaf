/* Whether slow runs give other bits: docs/science/latency.md#other-bits. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/options.h"
#include "compare/latency/latency.h"

/* Of one sample and edge; runs that give still more different results are no reference for anything. */
enum { MOST_DIGESTS = 64 };

struct table {
    size_t n_slow, n_slow_other, n_fast, n_fast_other;
};

static double log_choose(size_t n, size_t k)
{
    int sign;
    return lgamma_r((double)n + 1, &sign) - lgamma_r((double)k + 1, &sign) -
           lgamma_r((double)(n - k) + 1, &sign);
}

/* Fisher's exact test, one-sided: so many others or more among the slow runs, were they spread by chance. */
static double fisher(const struct table *t)
{
    size_t n_other = t->n_slow_other + t->n_fast_other, n = t->n_slow + t->n_fast;
    size_t most = n_other < t->n_slow ? n_other : t->n_slow;
    double p = 0, all = log_choose(n, t->n_slow);
    for (size_t k = t->n_slow_other; k <= most; k++)
        if (n_other - k <= t->n_fast)
            p += exp(log_choose(n_other, k) + log_choose(n - n_other, t->n_slow - k) - all);
    return fmin(p, 1);
}

struct join {
    const struct nd_capture *capture;
    size_t probe, n_samples, n_repeats;
    const unsigned char *classes; /* [n_samples * n_repeats] */
    unsigned char *others;        /* [n_samples * n_repeats]: another digest at any edge */
};

/* The digest that most fast runs of the sample gave; false: it has no fast run. */
static bool find_reference(const struct join *j, size_t edge, size_t sample, struct nd_digest *out)
{
    struct nd_digest digests[MOST_DIGESTS];
    size_t counts[MOST_DIGESTS], n = 0, best = 0;
    for (size_t r = 0; r < j->n_repeats; r++) {
        if (j->classes[sample * j->n_repeats + r] != ND_RUN_FAST)
            continue;
        struct nd_digest digest = nd_capture_digest(j->capture, j->probe, edge, sample, r);
        size_t k = 0;
        while (k < n && !nd_digest_equal(digests[k], digest))
            k++;
        if (k == n && n < MOST_DIGESTS) {
            digests[n] = digest;
            counts[n++] = 0;
        }
        if (k < n)
            counts[k]++;
    }
    for (size_t k = 1; k < n; k++)
        if (counts[k] > counts[best])
            best = k;
    if (n > 0)
        *out = digests[best];
    return n > 0;
}

static void count(struct table *table, enum nd_run_class class, bool is_other)
{
    table->n_slow += class == ND_RUN_SLOW;
    table->n_slow_other += class == ND_RUN_SLOW && is_other;
    table->n_fast += class == ND_RUN_FAST;
    table->n_fast_other += class == ND_RUN_FAST && is_other;
}

static struct table join_edge(const struct join *j, size_t edge)
{
    struct table table = {0};
    for (size_t s = 0; s < j->n_samples; s++) {
        struct nd_digest reference;
        if (!find_reference(j, edge, s, &reference))
            continue;
        for (size_t r = 0; r < j->n_repeats; r++) {
            size_t run = s * j->n_repeats + r;
            bool is_other = !nd_digest_equal(reference, nd_capture_digest(j->capture, j->probe, edge, s, r));
            count(&table, j->classes[run], is_other);
            j->others[run] |= is_other;
        }
    }
    return table;
}

static bool has_fast_run(const struct join *j, size_t sample)
{
    for (size_t r = 0; r < j->n_repeats; r++)
        if (j->classes[sample * j->n_repeats + r] == ND_RUN_FAST)
            return true;
    return false;
}

static void join_all(const struct join *j, struct nd_latency_join *out)
{
    struct table all = {0};
    for (size_t e = 0; e < out->n_edges; e++) {
        struct table table = join_edge(j, e);
        bool is_tied = table.n_slow_other > 0 && fisher(&table) * (double)out->n_edges < ND_LATENCY_JOIN_LEVEL;
        if (is_tied && out->n_tied++ == 0)
            out->first_tied = e;
    }
    for (size_t s = 0; s < j->n_samples; s++)
        for (size_t r = 0; r < j->n_repeats && has_fast_run(j, s); r++)
            count(&all, j->classes[s * j->n_repeats + r], j->others[s * j->n_repeats + r]);
    out->n_slow = all.n_slow;
    out->n_slow_other = all.n_slow_other;
    out->n_fast = all.n_fast;
    out->n_fast_other = all.n_fast_other;
    out->state = all.n_slow > 0 ? ND_JOIN_KNOWN : ND_JOIN_NO_SLOW;
    if (out->state == ND_JOIN_KNOWN)
        out->p = fisher(&all);
}

enum nd_status nd_latency_of_capture(const struct nd_capture *capture, size_t probe,
                                     const struct nd_latency_options *options, struct nd_latency *out,
                                     struct nd_error *err)
{
    struct nd_latency_options own;
    nd_latency_options_init(&own);
    struct nd_latency found;
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    options = &own;
    assert(probe < nd_capture_n_probes(capture));
    const struct nd_capture_probe *p = nd_capture_probe(capture, probe);
    size_t n = p->n_samples * p->n_repeats; /* the capture holds as many latencies */
    unsigned char *classes = nd_calloc(n, 2);
    status = classes != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_latency_classify(p->latency_us, n, options, classes, &found, err);
    if (status == ND_OK) {
        struct join join = {capture, probe, p->n_samples, p->n_repeats, classes, classes + n};
        found.join.n_edges = nd_capture_n_edges(capture);
        found.join.state = p->n_repeats < 2             ? ND_JOIN_NO_REPEATS
                           : found.slow == ND_SLOW_NONE ? ND_JOIN_NO_SLOW
                                                        : ND_JOIN_KNOWN;
        if (found.join.state == ND_JOIN_KNOWN)
            join_all(&join, &found.join);
        nd_latency_conclude(options, &found);
        *out = found;
    } else if (status != ND_ERR_MEMORY) {
        nd_error_context(err, "'%s', probe '%s'", nd_capture_path(capture), p->name);
    }
    free(classes);
    return status;
}
