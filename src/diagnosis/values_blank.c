/* The beginning or the end of every sample, when it holds one value and nothing else. */
#include <math.h>

#include "diagnosis/values_internal.h"

struct span {
    size_t first, end; /* elements of a sample */
};

/* The elements from one end on that hold one value, in every sample the same. */
static struct span find_span(const struct nd_values *v, bool is_at_end)
{
    size_t n = 0, edge = is_at_end ? v->n - 1 : 0;
    for (bool is_same = true; n < v->n && is_same; n += is_same) {
        size_t j = is_at_end ? v->n - 1 - n : n;
        for (size_t s = 0; s < v->n_samples && is_same; s++)
            is_same = v->test[s * v->n + j] == v->test[edge];
    }
    return is_at_end ? (struct span){v->n - n, v->n} : (struct span){0, n};
}

/* What is outside the span may be right or wrong: bytes may have been written into a buffer of floats. Chosen:
 * the span is an eighth of the sample at least, and half of it is far off, in samples of which the reference
 * moves. */
static bool is_unwritten(const struct nd_values_look *look, const struct span *span, size_t *out_n_far)
{
    const struct nd_values *v = look->v;
    size_t n_far = 0, n_span = span->end - span->first;
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (size_t s = 0; s < v->n_samples; s++)
        for (size_t i = s * v->n + span->first; i < s * v->n + span->end; i++) {
            if (!nd_values_is_known(look, i))
                continue;
            n_far += nd_values_is_far(look, i);
            low = fmin(low, v->ref[i]);
            high = fmax(high, v->ref[i]);
        }
    *out_n_far = n_far;
    return n_span < v->n && n_span * 8 >= v->n && n_far >= ND_VALUES_MIN_DECISIVE &&
           n_far * 2 >= n_span * v->n_samples && high - low > look->far;
}

void nd_values_try_unwritten(const struct nd_values_look *look)
{
    for (int is_at_end = 1; is_at_end >= 0; is_at_end--) {
        struct span span = find_span(look->v, is_at_end != 0);
        size_t n_far;
        if (!is_unwritten(look, &span, &n_far))
            continue;
        struct nd_finding f =
            nd_values_finding(look, ND_FAULT_UNWRITTEN_WINDOW, (double)(span.end - span.first),
                              nd_values_share_of_far(look, n_far), 0);
        nd_values_add(look, &f, "elements %zu to %zu hold %.6g in every sample, as if nobody wrote them",
                      span.first, span.end - 1, look->v->test[span.first]);
        return;
    }
}
