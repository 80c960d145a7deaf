/* Elements that nobody wrote: a window of every sample, or its beginning or end. */
#include <math.h>

#include "explain/diagnosis/look.h"

/* What the window holds. */
enum { ONE_VALUE, SAME_IN_EVERY_SAMPLE, OF_THE_SAMPLE_BEFORE };

static struct nd_span predict_window(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    const struct nd_evidence *e = look->e;
    if (j < f->first || j >= f->end)
        return nd_exactly(e->expected[s * e->n + j]);
    if (f->mode == ONE_VALUE)
        return nd_exactly(f->low);
    if (s == 0)
        return nd_exactly(NAN);
    return nd_exactly(f->mode == SAME_IN_EVERY_SAMPLE ? e->captured[j] : e->expected[(s - 1) * e->n + j]);
}

/* Samples that should be alike would keep any deterministic fault's values the same. */
static bool is_moving(const struct nd_look *look, const struct nd_fault *f)
{
    const struct nd_evidence *e = look->e;
    size_t n_moving = 0;
    for (size_t s = 1; s < e->n_samples; s++)
        for (size_t j = f->first; j < f->end; j++)
            n_moving += e->expected[s * e->n + j] != e->expected[j];
    return n_moving * 4 >= (e->n_samples - 1) * (f->end - f->first);
}

/* Other values than quantised values hold it bit for bit. */
static bool is_held(const struct nd_look *look, const struct nd_fault *f)
{
    const struct nd_evidence *e = look->e;
    for (size_t s = 0; s < e->n_samples && !nd_is_exact(look); s++)
        for (size_t j = f->first; j < f->end; j++)
            if (e->captured[s * e->n + j] != (f->mode == ONE_VALUE ? f->low : e->captured[j]))
                return false;
    return true;
}

/* The window of the far elements of all samples. False: it is none. */
static bool find_window(const struct nd_look *look, struct nd_fault *f)
{
    const struct nd_criteria *asked = look->criteria;
    size_t n = look->e->n;
    f->first = SIZE_MAX;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_far(look, i))
            continue;
        f->low = look->e->captured[i];
        f->first = i % n < f->first ? i % n : f->first;
        f->end = i % n >= f->end ? i % n + 1 : f->end;
    }
    if (f->first == SIZE_MAX)
        return false;
    size_t length = f->end - f->first;
    f->amount = (double)length;
    bool is_enough =
        length * look->e->n_samples >= asked->min_window && (length >= 2 || look->n_far >= asked->min_far);
    return is_enough && length < n && (double)length <= asked->largest_window * (double)n &&
           (double)look->n_far >= asked->min_filled * (double)(length * look->e->n_samples);
}

void nd_try_window(const struct nd_look *look)
{
    struct nd_fault f = nd_fault_of(ND_FAULT_UNWRITTEN_WINDOW, 0, predict_window);
    if (!find_window(look, &f))
        return;
    size_t last = f.end - 1;
    f.mode = ONE_VALUE;
    if ((is_held(look, &f) &&
         nd_try(look, &f, "elements %zu to %zu hold %.6g, all others are right", f.first, last, f.low)) ||
        !is_moving(look, &f))
        return;
    f.mode = SAME_IN_EVERY_SAMPLE;
    if (is_held(look, &f) &&
        nd_try(look, &f, "elements %zu to %zu are the same in every sample, all others are right", f.first,
               last))
        return;
    f.mode = OF_THE_SAMPLE_BEFORE;
    nd_try(look, &f, "elements %zu to %zu hold the values of the sample before", f.first, last);
}

/* ---- the beginning or the end of every sample, when it holds one value and nothing else ---- */

struct span {
    size_t first, end; /* elements of a sample */
};

/* The elements from one end on that hold one value, in every sample the same. */
static struct span find_span(const struct nd_evidence *e, bool is_at_end)
{
    size_t n = 0, tensor = is_at_end ? e->n - 1 : 0;
    for (bool is_same = true; n < e->n && is_same; n += is_same) {
        size_t j = is_at_end ? e->n - 1 - n : n;
        for (size_t s = 0; s < e->n_samples && is_same; s++)
            is_same = e->captured[s * e->n + j] == e->captured[tensor];
    }
    return is_at_end ? (struct span){e->n - n, e->n} : (struct span){0, n};
}

/* What is outside the span may be right or wrong: bytes may have been written into a buffer of floats. Chosen:
 * the span is an eighth of the sample at least, and half of it is far off, in samples of which the reference
 * moves. */
static bool is_unwritten(const struct nd_look *look, const struct span *span, size_t *out_n_far)
{
    const struct nd_evidence *e = look->e;
    size_t n_far = 0, n_span = span->end - span->first;
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (size_t s = 0; s < e->n_samples; s++)
        for (size_t i = s * e->n + span->first; i < s * e->n + span->end; i++) {
            if (!nd_is_known(look, i))
                continue;
            n_far += nd_is_far(look, i);
            low = fmin(low, e->expected[i]);
            high = fmax(high, e->expected[i]);
        }
    *out_n_far = n_far;
    return n_span < e->n && n_span * 8 >= e->n && n_far >= ND_MIN_DECISIVE &&
           n_far * 2 >= n_span * e->n_samples && high - low > look->far;
}

void nd_try_unwritten(const struct nd_look *look)
{
    for (int is_at_end = 1; is_at_end >= 0; is_at_end--) {
        struct span span = find_span(look->e, is_at_end != 0);
        size_t n_far;
        if (!is_unwritten(look, &span, &n_far))
            continue;
        struct nd_finding f = nd_finding_of(look, ND_FAULT_UNWRITTEN_WINDOW, (double)(span.end - span.first),
                                            nd_share_of_far(look, n_far), 0);
        nd_add(look, &f, "elements %zu to %zu hold %.6g in every sample, as if nobody wrote them", span.first,
               span.end - 1, look->e->captured[span.first]);
        return;
    }
}
