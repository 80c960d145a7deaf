/* The right values of a sample at other places of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/text/strbuf.h"
#include "explain/diagnosis/look.h"

/* ---- shifted ---- */

/* Chosen. Nearest first. Two shifts that fit show data that repeats itself; more add nothing. MIN_FAR_TO_SHIFT:
 * with 2 MAX_SHIFT = 4^6.5 tries chance needs seven elements more than ND_MIN_DECISIVE. */
enum { MAX_SHIFT = 4096, MAX_SHIFTS_FOUND = 2, MIN_FAR_TO_SHIFT = ND_MIN_DECISIVE + 7 };

static struct nd_span predict_shifted(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    ptrdiff_t from = (ptrdiff_t)j - f->shift;
    bool is_known = from >= 0 && from < (ptrdiff_t)look->e->n;
    return nd_exactly(is_known ? look->e->expected[s * look->e->n + (size_t)from] : NAN);
}

void nd_try_shifts(const struct nd_look *look)
{
    struct nd_fault f = nd_fault_of(ND_FAULT_SHIFTED, 0, predict_shifted);
    struct nd_few few = nd_few_far(look);
    size_t most = look->e->n / 2 < MAX_SHIFT ? look->e->n / 2 : MAX_SHIFT;
    int n_found = 0;
    if (!nd_is_exact(look) && look->n_far < MIN_FAR_TO_SHIFT)
        return;
    for (size_t k = 1; k <= most && n_found < MAX_SHIFTS_FOUND; k++)
        for (int sign = 1; sign >= -1; sign -= 2) {
            f.shift = sign * (ptrdiff_t)k;
            f.amount = (double)f.shift;
            n_found += nd_is_worth_trying(look, &f, &few) &&
                       nd_try(look, &f, "elements are %+td places away in memory", f.shift);
        }
}

/* ---- lines further on along an axis ---- */

/* Chosen: a padding on the wrong side or a line buffer is off by one line or by few. Of two lines nothing tells
 * this from an exchange. */
enum { MAX_LINES_ON = 4, MIN_LINES_ALONG = 3 };

/* What stands where no line came from; tried in this order. Of EDGE_FLAT it is what lies there in memory: then
 * the whole sample is shifted, and nd_try_shifts says so. */
enum edge { EDGE_ZERO, EDGE_REPEATED, EDGE_ROTATED, EDGE_CONSTANT, EDGE_FLAT, EDGE_UNKNOWN };

static double edge_value(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    const double *x = look->e->expected + s * look->e->n;
    ptrdiff_t inner = (ptrdiff_t)f->first, n = (ptrdiff_t)f->end, at = (ptrdiff_t)j;
    switch ((enum edge)f->mode) {
    case EDGE_ZERO:
        return nd_is_exact(look) ? nd_zero_point(look, j) : 0;
    case EDGE_REPEATED:
        return x[at - inner * (at / inner % n) + (f->shift > 0 ? 0 : inner * (n - 1))];
    case EDGE_ROTATED:
        return x[at - inner * f->shift + (f->shift > 0 ? inner * n : -inner * n)];
    case EDGE_CONSTANT:
        return f->low;
    case EDGE_FLAT:
        at -= inner * f->shift;
        return at >= 0 && at < (ptrdiff_t)look->e->n ? x[at] : NAN;
    case EDGE_UNKNOWN:
        break;
    }
    return NAN;
}

static bool is_edge(const struct nd_fault *f, size_t j)
{
    ptrdiff_t from = (ptrdiff_t)(j / f->first % f->end) - f->shift;
    return from < 0 || from >= (ptrdiff_t)f->end;
}

/* first: elements from one line to the next; end: lines. */
static struct nd_span predict_lines_on(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    double x = is_edge(f, j) ? edge_value(look, f, s, j)
                             : look->e->expected[s * look->e->n + j - (size_t)f->shift * f->first];
    return (struct nd_span){!isnan(x), nd_clip(look, x - f->room), nd_clip(look, x + f->room)};
}

/* Sets mode, and low: of the elements that no line came to 99 % hold it. */
static void find_edge(const struct nd_look *look, struct nd_fault *f)
{
    const struct nd_evidence *e = look->e;
    double room = nd_is_exact(look) ? fmax(f->room, look->noise) : look->far / 2;
    for (f->mode = EDGE_ZERO; f->mode < EDGE_UNKNOWN; f->mode++) {
        size_t n = 0, n_held = 0;
        for (size_t i = 0; i < look->n_total; i++) {
            if (!is_edge(f, i % e->n) || !nd_is_known(look, i))
                continue;
            if (n++ == 0)
                f->low = e->captured[i];
            bool is_one = f->mode == EDGE_ZERO || f->mode == EDGE_CONSTANT;
            n_held += fabs(e->captured[i] - edge_value(look, f, i / e->n, i % e->n)) <= (is_one ? 0 : room);
        }
        if (n > 0 && n_held * 100 >= n * 99)
            return;
    }
}

static bool say_lines_on(const struct nd_look *look, const struct nd_fault *f)
{
    bool is_next = f->shift < 0;
    const char *line = nd_axis_word(&look->e->shape, f->axis), *end = is_next ? "last" : "first";
    int n = abs((int)f->shift);
    char from[48] = "", edge[64] = "holds something else";
    if (n == 1)
        snprintf(from, sizeof from, is_next ? "next one's values" : "values of the one before");
    else
        snprintf(from, sizeof from, "values of the %s %d %s", line, n, is_next ? "further on" : "before");
    if (f->mode == EDGE_ZERO)
        snprintf(edge, sizeof edge, "is %s", nd_is_exact(look) || look->e->step > 0 ? "the zero point" : "0");
    else if (f->mode == EDGE_CONSTANT)
        snprintf(edge, sizeof edge, "is %.6g", f->low);
    else if (f->mode == EDGE_REPEATED)
        snprintf(edge, sizeof edge, n == 1 ? "is repeated" : "is repeated there");
    else if (f->mode == EDGE_ROTATED)
        snprintf(edge, sizeof edge, "holds the %s one's", is_next ? "first" : "last");
    return nd_try(look, f, "along axis %d every %s holds the %s; the %s %s%s", f->axis, line, from, end, edge,
                  f->room > 0 ? "; single steps besides" : "");
}

static bool try_lines_on(const struct nd_look *look, double room)
{
    const struct nd_shape *shape = &look->e->shape;
    struct nd_fault f = nd_fault_of(ND_FAULT_SHIFTED, 0, predict_lines_on);
    struct nd_few few = nd_few_far(look);
    size_t inner = 1;
    f.room = room;
    for (f.axis = shape->rank - 1; f.axis >= 0; f.axis--, inner *= f.end) {
        f.first = inner;
        f.end = (size_t)shape->dims[f.axis];
        bool is_flat = inner == 1 && f.end == look->e->n;
        for (int k = 2;
             !is_flat && f.end >= MIN_LINES_ALONG && k < 2 * MAX_LINES_ON + 2 && k / 2 <= (int)f.end / 2; k++) {
            f.shift = k % 2 == 0 ? k / 2 : -(k / 2);
            f.amount = (double)f.shift;
            f.mode = EDGE_UNKNOWN;
            if (!nd_is_worth_trying(look, &f, &few))
                continue;
            find_edge(look, &f);
            if (f.mode != EDGE_FLAT && say_lines_on(look, &f))
                return true;
        }
    }
    return false;
}

void nd_try_lines_on(const struct nd_look *look)
{
    if (!try_lines_on(look, 0) && look->criteria->is_room_for_steps && nd_has_far_qvalues(look))
        try_lines_on(look, 1);
}

/* ---- padded memory that is read as dense ---- */

enum { MAX_PAD = 64 }; /* elements; chosen */

/* Blocks of `end` elements, each `shift` further on than the one before. */
static struct nd_span predict_padded(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    size_t padded = f->end + (size_t)f->shift, block = j / padded, at = j % padded;
    return nd_exactly(at < f->end ? look->e->expected[s * look->e->n + block * f->end + at] : NAN);
}

void nd_try_padded(const struct nd_look *look)
{
    const struct nd_shape *shape = &look->e->shape;
    struct nd_fault f = nd_fault_of(ND_FAULT_SHIFTED, 0, predict_padded);
    f.end = 1;
    for (f.axis = shape->rank - 2; f.axis >= 0; f.axis--) {
        f.end *= (size_t)shape->dims[f.axis + 1];
        for (size_t pad = 1; pad <= MAX_PAD && pad <= f.end && f.end < look->e->n; pad++) {
            f.shift = (ptrdiff_t)pad;
            f.amount = (double)pad;
            if (nd_try(look, &f,
                       "every %zu values are %zu further on than those before: they are padded to %zu in "
                       "memory and read as dense",
                       f.end, pad, f.end + pad))
                return;
        }
    }
}

/* ---- any other places ---- */

static void sort_sample(const double *x, size_t n, double *sorted)
{
    for (size_t j = 0; j < n; j++)
        sorted[j] = x[j];
    (void)nd_look_quantile(sorted, n, 0);
}

/* The values of a sample, sorted, are the reference's; *n_distinct of them are different numbers. */
static bool is_same_sorted(const struct nd_look *look, size_t sample, size_t *n_distinct)
{
    size_t n = look->e->n, first = sample * n;
    for (size_t i = first; i < first + n; i++)
        if (!isfinite(look->e->expected[i]) || !isfinite(look->e->captured[i]))
            return false;
    sort_sample(look->e->expected + first, n, look->scratch);
    sort_sample(look->e->captured + first, n, look->scratch2);
    *n_distinct = 0;
    for (size_t j = 0; j < n; j++) {
        if (look->scratch[j] != look->scratch2[j])
            return false;
        *n_distinct += j == 0 || look->scratch[j] != look->scratch[j - 1];
    }
    return true;
}

/* Equal bit for bit, as a multiset, in every sample that is far off: of 12 numbers and more, 12 of them far
 * from their place, in each, no rounding comes to that. */
void nd_try_elsewhere(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    size_t n_told = 0, n_moved = 0, n_distinct;
    for (size_t s = 0; s < e->n_samples; s++) {
        size_t n_far = 0;
        for (size_t i = s * e->n; i < (s + 1) * e->n; i++)
            n_far += nd_is_far(look, i);
        if (n_far == 0)
            continue;
        if (!is_same_sorted(look, s, &n_distinct))
            return;
        n_told += n_distinct >= ND_MIN_DECISIVE && n_far >= ND_MIN_DECISIVE;
        for (size_t i = s * e->n; i < (s + 1) * e->n; i++)
            n_moved += e->captured[i] != e->expected[i];
    }
    if (n_told == 0)
        return;
    struct nd_finding f = nd_finding_of(look, ND_FAULT_OTHER_PLACES, (double)n_moved, 1, 0);
    nd_add(look, &f,
           "sorted, every sample has the same values as the reference; %zu of %zu lie at other places", n_moved,
           look->n_known);
}
