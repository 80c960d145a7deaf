/* Elements that nobody wrote: a window of every sample, or its beginning or end. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/text/strbuf.h"
#include "explain/diagnosis/look.h"
#include "explain/diagnosis/values.h"

/* Runs of one input that should be equal. */

struct changes {
    size_t n, first, end;
    double most;
};

static struct changes compare_runs(const double *a, const double *b, size_t n)
{
    struct changes c = {.first = SIZE_MAX};
    for (size_t j = 0; j < n; j++) {
        if (memcmp(&a[j], &b[j], sizeof a[j]) == 0)
            continue;
        c.n++;
        c.first = j < c.first ? j : c.first;
        c.end = j + 1;
        c.most = isfinite(a[j]) && isfinite(b[j]) ? fmax(c.most, fabs(a[j] - b[j])) : HUGE_VAL;
    }
    return c;
}

static double largest(const double *x, size_t n)
{
    double most = 0;
    for (size_t j = 0; j < n; j++)
        most = isfinite(x[j]) ? fmax(most, fabs(x[j])) : most;
    return most;
}

static void say_launches(const struct changes *c, bool is_first_apart, const double *x, size_t n,
                         struct nd_findings *out)
{
    bool is_window = (c->end - c->first) * 2 <= n && c->n * 2 >= c->end - c->first && c->n >= 2;
    struct nd_finding f = {
        is_window ? ND_FAULT_UNWRITTEN_WINDOW : ND_FAULT_FIRST_LAUNCH, SIZE_MAX, -1, 0, 1, c->n, "", 0};
    if (!is_window && !is_first_apart)
        return;
    f.amount = is_window ? (double)(c->end - c->first) : (double)c->n;
    bool is_constant = true;
    for (size_t j = c->first; j < c->end; j++)
        is_constant = is_constant && x[j] == x[c->first];
    /* Elements beside it may hold the same, and be right by chance. */
    size_t first = c->first, end = c->end;
    while (is_constant && first > 0 && x[first - 1] == x[c->first])
        first--;
    while (is_constant && end < n && x[end] == x[c->first])
        end++;
    char held[48] = "";
    if (is_constant && is_first_apart)
        snprintf(held, sizeof held, "; the first run holds %.6g there", x[c->first]);
    if (is_window)
        snprintf(f.text, sizeof f.text, "elements %zu to %zu %s of the same input, all others do not%s",
                 nd_roundest(first, c->first, false), nd_roundest(c->end, end, true) - 1,
                 is_first_apart ? "differ between the first and all later runs" : "change from run to run",
                 held);
    else
        snprintf(f.text, sizeof f.text,
                 "the first run differs from all later ones of the same input in %zu of %zu "
                 "values, by up to %.3g",
                 c->n, n, c->most);
    out->items[out->n++] = f;
}

void nd_values_compare_launches(const double *const *launches, size_t n_launches, size_t n, double step,
                                struct nd_findings *out)
{
    *out = (struct nd_findings){0};
    struct changes all = {.first = SIZE_MAX}, later = {.first = SIZE_MAX};
    for (size_t k = 1; k < n_launches; k++) {
        struct changes c = compare_runs(launches[0], launches[k], n);
        if (c.n > all.n)
            all.n = c.n;
        all.first = c.first < all.first ? c.first : all.first;
        all.end = c.end > all.end ? c.end : all.end;
        all.most = fmax(all.most, c.most);
        c = k > 1 ? compare_runs(launches[1], launches[k], n) : (struct changes){0};
        later.n += c.n;
    }
    /* One more run than two shows that the later ones are stable. Rounding that depends on the run is no fault.
     */
    bool is_first_apart = later.n == 0 && n_launches > 2;
    double noise = step > 0 ? 2 * step : ldexp(largest(launches[n_launches - 1], n), -6);
    if (all.n > 0 && all.most > noise)
        say_launches(&all, is_first_apart, launches[0], n, out);
}

/* ---- words ---- */

enum { WINDOW_BYTES = ND_RANGE_BYTES + 16 };

/* "row 3 (axis 2) holds", of a range of elements as nd_range_format has it. */
static void name_window(const struct nd_look *look, const struct nd_axis *axis, size_t first, size_t last,
                        char text[WINDOW_BYTES])
{
    char where[ND_RANGE_BYTES];
    const char *line = nd_axis_word(&look->e->shape, axis->axis);
    bool is_one = axis->axis < 0 ? nd_range_format(&look->e->shape, first, last, where) : first == last;
    if (axis->axis >= 0 && is_one)
        snprintf(where, sizeof where, "%s %zu (axis %d)", line, first, axis->axis);
    else if (axis->axis >= 0)
        snprintf(where, sizeof where, "%ss %zu to %zu (axis %d)", line, first, last, axis->axis);
    snprintf(text, WINDOW_BYTES, "%s hold%s", where, is_one ? "s" : "");
}

/* ---- a window of every sample ---- */

/* What the window holds. */
enum { ONE_VALUE, SAME_IN_EVERY_SAMPLE, OF_THE_SAMPLE_BEFORE };

static bool is_in(const struct nd_fault *f, size_t j)
{
    size_t at = nd_channel_of(f->data, j);
    return at >= f->first && at < f->end;
}

static struct nd_span predict_window(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    const struct nd_evidence *e = look->e;
    if (!is_in(f, j))
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
        for (size_t j = 0; j < e->n; j++)
            n_moving += is_in(f, j) && e->expected[s * e->n + j] != e->expected[j];
    return (double)n_moving * 4 >= (double)(e->n_samples - 1) * f->amount;
}

/* Other values than quantised values hold it bit for bit. */
static bool is_held(const struct nd_look *look, const struct nd_fault *f)
{
    const struct nd_evidence *e = look->e;
    for (size_t s = 0; s < e->n_samples && !nd_is_exact(look); s++)
        for (size_t j = 0; j < e->n; j++)
            if (is_in(f, j) && e->captured[s * e->n + j] != (f->mode == ONE_VALUE ? f->low : e->captured[j]))
                return false;
    return true;
}

/* Of the far elements of all samples, counted along the axis. amount: the elements in it; 0: there are none. */
static void find_window_along(const struct nd_look *look, const struct nd_axis *axis, struct nd_fault *f)
{
    size_t n = look->e->n;
    f->first = SIZE_MAX;
    f->end = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_far(look, i))
            continue;
        size_t at = nd_channel_of(axis, i % n);
        f->low = look->e->captured[i];
        f->first = at < f->first ? at : f->first;
        f->end = at >= f->end ? at + 1 : f->end;
    }
    f->amount = f->first == SIZE_MAX ? 0 : (double)(f->end - f->first) * (double)(n / axis->n);
}

/* The window of the far elements of all samples: of elements, or of whole channels, rows or columns where these
 * are no more. False: it is none. */
static bool find_window(const struct nd_look *look, struct nd_fault *f, struct nd_axis *axis)
{
    const struct nd_criteria *asked = look->criteria;
    const struct nd_shape *shape = &look->e->shape;
    struct nd_axis one = {-1, look->e->n, 1};
    *axis = one;
    find_window_along(look, axis, f);
    for (one.axis = shape->rank - 1; one.axis > 0 && f->amount > 0; one.axis--) {
        struct nd_fault other = *f;
        one.n = (size_t)shape->dims[one.axis];
        if (one.n > 1)
            find_window_along(look, &one, &other);
        if (one.n > 1 && other.amount < f->amount) {
            *f = other;
            *axis = one;
        }
        one.inner *= one.n;
    }
    f->data = axis;
    double n = (double)look->e->n_samples;
    bool is_enough = f->amount * n >= (double)asked->min_window &&
                     (f->amount >= 2 || look->n_far >= asked->min_far) && f->amount > 0;
    return is_enough && f->amount < (double)look->e->n &&
           f->amount <= asked->largest_window * (double)look->e->n &&
           (double)look->n_far >= asked->min_filled * f->amount * n;
}

/* All samples hold it there, as they do in the window. */
static bool is_held_at(const struct nd_look *look, const struct nd_fault *f, size_t j)
{
    const struct nd_evidence *e = look->e;
    for (size_t s = 0; s < e->n_samples; s++)
        if (e->captured[s * e->n + j] != (f->mode == ONE_VALUE ? f->low : e->captured[j]))
            return false;
    return f->mode == ONE_VALUE || e->n_samples > 1;
}

size_t nd_roundest(size_t least, size_t most, bool is_end)
{
    for (size_t step = (size_t)1 << 62; step > 1; step /= 2) {
        size_t at = is_end ? (least + step - 1) / step * step : most / step * step;
        if (at >= least && at <= most)
            return at;
    }
    return is_end ? least : most;
}

/* Elements beside the window may hold what it holds, and be right by chance. Of these ends from least to most
 * it has the one where a slice of the largest axis ends, else the roundest number. */
static size_t find_edge(const struct nd_look *look, size_t least, size_t most, bool is_end)
{
    const struct nd_shape *shape = &look->e->shape;
    for (int k = 0; k < shape->rank; k++) {
        size_t step = nd_axis_at(shape, k).inner;
        size_t at = is_end ? (least + step - 1) / step * step : most / step * step;
        if (step > 1 && at >= least && at <= most)
            return at;
    }
    return nd_roundest(least, most, is_end);
}

static void widen(const struct nd_look *look, struct nd_fault *f)
{
    size_t least = f->first, most = f->end;
    while (least > 0 && is_held_at(look, f, least - 1))
        least--;
    while (most < look->e->n && is_held_at(look, f, most))
        most++;
    f->first = find_edge(look, least, f->first, false);
    f->end = find_edge(look, f->end, most, true);
    f->amount = (double)(f->end - f->first);
}

void nd_try_window(const struct nd_look *look)
{
    static const char *const held[] = {
        [SAME_IN_EVERY_SAMPLE] = "the same values in every sample, all others are right",
        [OF_THE_SAMPLE_BEFORE] = "the values of the sample before",
    };
    struct nd_fault found = nd_fault_of(ND_FAULT_UNWRITTEN_WINDOW, 0, predict_window);
    struct nd_axis axis;
    if (!find_window(look, &found, &axis))
        return;
    for (int mode = ONE_VALUE; mode <= OF_THE_SAMPLE_BEFORE; mode++) {
        struct nd_fault f = found;
        char what[WINDOW_BYTES], value[64];
        f.mode = mode;
        if ((mode == OF_THE_SAMPLE_BEFORE || is_held(look, &f)) && (mode == ONE_VALUE || is_moving(look, &f))) {
            if (mode != OF_THE_SAMPLE_BEFORE && axis.axis < 0)
                widen(look, &f);
            name_window(look, &axis, f.first, f.end - 1, what);
            snprintf(value, sizeof value, "%.6g, all others are right", f.low);
            if (nd_try(look, &f, "%s %s", what, mode == ONE_VALUE ? value : held[mode]))
                return;
        }
    }
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
        char where[ND_RANGE_BYTES];
        bool is_one = nd_range_format(&look->e->shape, span.first, span.end - 1, where);
        nd_add(look, &f, "%s hold%s %.6g in every sample, as if nobody wrote %s", where, is_one ? "s" : "",
               look->e->captured[span.first], is_one ? "it" : "them");
        return;
    }
}
