/* Another zero point or scale. An integer shift is told by equality; a scale by the factor that the most
 * elements allow: each allows an interval of factors, and where most intervals overlap is a sharp answer even
 * when single quantised values are off (a least-squares fit would be pulled by them and blunted by rounding).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/statistics/series.h"
#include "core/text/strbuf.h"
#include "explain/diagnosis/look.h"

enum { MAX_FIT = 1 << 16 };

/* The elements that a fault touches: all, or those of one channel. */
struct part {
    struct nd_axis axis;
    size_t channel; /* SIZE_MAX: all */
};

static bool is_in(const struct part *part, size_t j)
{
    return part->channel == SIZE_MAX || nd_channel_of(&part->axis, j) == part->channel;
}

static bool is_touched(const struct nd_fault *f, size_t j)
{
    return f->channel == SIZE_MAX || j / f->first % f->end == f->channel;
}

/* The usual program's quantised value, shifted; where that was clipped, or is a matter of taste, any rounding
 * of the value. */
static struct nd_span predict_shift(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    size_t i = s * look->e->n + j;
    double expected = look->e->expected[i], value = look->e->exact[i];
    if (!is_touched(f, j))
        return nd_exactly(expected);
    bool is_tie = fabs(value - floor(value) - 0.5) < 1.0 / 256;
    if (expected > look->lowest && expected < look->highest && !is_tie)
        return nd_exactly(nd_clip(look, expected + f->amount));
    return nd_qvalues_of(look, value + f->amount);
}

static struct nd_span predict_scale(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    size_t i = s * look->e->n + j;
    if (!is_touched(f, j))
        return nd_exactly(look->e->expected[i]);
    double zero_point = nd_zero_point(look, j);
    return nd_qvalues_of(look, zero_point + f->amount * (look->e->exact[i] - zero_point));
}

/* Both at once. mode: by how much the zero point is off. */
static struct nd_span predict_encoding(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    size_t i = s * look->e->n + j;
    if (!is_touched(f, j))
        return nd_exactly(look->e->expected[i]);
    double zero_point = nd_zero_point(look, j);
    struct nd_span span =
        nd_qvalues_of(look, zero_point + f->mode + f->amount * (look->e->exact[i] - zero_point));
    return (struct nd_span){true, nd_clip(look, span.low - f->room), nd_clip(look, span.high + f->room)};
}

static struct nd_fault fault_of(enum nd_fault_kind kind, const struct part *part, double amount,
                                nd_predict predict)
{
    struct nd_fault f = nd_fault_of(kind, amount, predict);
    f.channel = part->channel;
    f.axis = part->channel == SIZE_MAX ? -1 : part->axis.axis;
    f.first = part->axis.inner;
    f.end = part->axis.n;
    return f;
}

/* The shift of most elements of the part (by majority vote); 0 when there is none. */
static double find_shift(const struct nd_look *look, const struct part *part)
{
    double shift = 0;
    size_t counts = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!is_in(part, i % look->e->n) || !nd_is_inside(look, i))
            continue;
        double difference = look->e->captured[i] - look->e->expected[i];
        if (counts == 0)
            shift = difference;
        if (difference == shift)
            counts++;
        else
            counts--;
    }
    return counts > 0 ? shift : 0;
}

static void try_whole_shift(const struct nd_look *look, double shift, const struct part *part)
{
    double twice = 2 * nd_zero_point(look, 0);
    bool is_one = look->e->quant != NULL && look->e->quant->n == 1;
    struct nd_fault f = fault_of(ND_FAULT_OFFSET_SIGN, part, shift, predict_shift);
    if (is_one && twice != 0 && fabs(shift) == fabs(twice))
        nd_try(look, &f, "the offset has the other sign: values are off by 2 x %g", twice / 2);
    f.kind = ND_FAULT_OFFSET_256;
    if (fabs(shift) == 256)
        nd_try(look, &f, "the offset is off by %+g", shift);
    f.kind = ND_FAULT_ZERO_POINT;
    if (!nd_is_found(look)) /* both above are special cases of it */
        nd_try(look, &f, "the zero point is off by %+g", shift);
}

/* The middle of where most of the intervals overlap, also those that touch. Sorts both arrays. */
static double deepest(double *opens, double *closes, size_t n)
{
    size_t depth = 0, most = 0, next_open = 0, next_close = 0;
    double at = 1;
    nd_series_sort(opens, n);
    nd_series_sort(closes, n);
    while (next_open < n) {
        if (closes[next_close] < opens[next_open]) {
            next_close++;
            depth--;
            continue;
        }
        double opened = opens[next_open++];
        if (++depth > most) {
            bool is_open_next = next_open < n && opens[next_open] <= closes[next_close];
            most = depth;
            at = (opened + (is_open_next ? opens[next_open] : closes[next_close])) / 2;
        }
    }
    return at;
}

/* Of quantised values that are `shift` too high. */
static double find_factor(const struct nd_look *look, const struct part *part, double shift)
{
    const struct nd_evidence *e = look->e;
    size_t n_total = e->n_samples * e->n, n_part = n_total;
    if (part->channel != SIZE_MAX)
        n_part /= part->axis.n;
    size_t capacity = n_part < MAX_FIT ? n_part : MAX_FIT, n = 0, seen = 0, stride = n_part / capacity;
    double *opens = look->scratch, *closes = opens + capacity;
    for (size_t i = 0; i < n_total && n < capacity; i++) {
        size_t j = i % e->n;
        if (!is_in(part, j) || seen++ % stride != 0 || !nd_is_inside(look, i))
            continue;
        double zero_point = nd_zero_point(look, j), u = e->exact[i] - zero_point;
        if (fabs(u) < 0.5)
            continue;
        double qvalue = e->captured[i] - zero_point - shift;
        double a = (qvalue - look->above) / u, b = (qvalue + look->below) / u;
        opens[n] = fmin(a, b);
        closes[n++] = fmax(a, b);
    }
    return n > 0 ? deepest(opens, closes, n) : 1;
}

/* ---- both ---- */

/* Two free numbers fit a few quantised values of anything: as many elements, and quantised values that differ,
 * must bear them out. Chosen. */
enum { MIN_LINE = 24, MIN_LINE_QVALUES = 8, MAX_LINE = 1 << 14 };

struct point {
    double value, qvalue; /* less the zero point */
};

static int compare_points(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->qvalue < y->qvalue ? -1 : x->qvalue > y->qvalue;
}

static int compare_qvalues(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return x->qvalue < y->qvalue ? -1 : x->qvalue > y->qvalue;
}

/* Elements that measure anything, as value and quantised value, by value. NULL: too few. */
static struct point *list_points(const struct nd_look *look, const struct part *part, size_t *n_out)
{
    size_t n_total = look->n_total, n = 0, stride = n_total / MAX_LINE + 1, seen = 0;
    struct point *points = (struct point *)look->scratch;
    for (size_t i = 0; i < n_total; i++) {
        size_t j = i % look->e->n;
        if (!is_in(part, j) || !nd_is_inside(look, i) || seen++ % stride != 0)
            continue;
        double zero_point = nd_zero_point(look, j);
        points[n++] = (struct point){look->e->exact[i] - zero_point, look->e->captured[i] - zero_point};
    }
    if (n < MIN_LINE)
        return NULL;
    qsort(points, n, sizeof *points, compare_points);
    *n_out = n;
    return points;
}

/* The median value and quantised value of a run of points, which are in order by value. Leaves them in order by
 * quantised value. */
static struct point middle(struct point *points, size_t n)
{
    struct point at = {.value = points[n / 2].value};
    qsort(points, n, sizeof *points, compare_qvalues);
    at.qvalue = points[n / 2].qvalue;
    return at;
}

static size_t count_qvalues(struct point *points, size_t n)
{
    size_t n_qvalues = 1;
    qsort(points, n, sizeof *points, compare_qvalues);
    for (size_t i = 1; i < n; i++)
        n_qvalues += points[i].qvalue != points[i - 1].qvalue;
    return n_qvalues;
}

/* The line of most points: through the medians of the lower and the upper third, then by least squares over the
 * points that lie within two steps of it. Single quantised values that are off pull neither. */
static bool find_line(struct point *points, size_t n, double *factor, double *shift)
{
    size_t third = n / 3;
    struct point low = middle(points, third), high = middle(points + n - third, third);
    if (!(high.value > low.value))
        return false;
    double slope = (high.qvalue - low.qvalue) / (high.value - low.value), at = low.qvalue - slope * low.value;
    for (int turn = 0; turn < 4; turn++) {
        double n_near = 0, x = 0, y = 0, xx = 0, xy = 0, room = turn == 0 ? 8 : 2;
        for (size_t i = 0; i < n; i++) {
            if (fabs(points[i].qvalue - at - slope * points[i].value) > room)
                continue;
            n_near++;
            x += points[i].value;
            y += points[i].qvalue;
            xx += points[i].value * points[i].value;
            xy += points[i].value * points[i].qvalue;
        }
        double spread = n_near * xx - x * x;
        if (n_near < MIN_LINE || !(spread > 0))
            return false;
        slope = (n_near * xy - x * y) / spread;
        at = (y - slope * x) / n_near;
    }
    *factor = slope;
    *shift = rint(at); /* zero points are quantised values */
    return true;
}

/* The line as a fault: of one number where the other is as it should be. room: single steps besides. */
static bool say_encoding(const struct nd_look *look, const struct part *part, double factor, double shift,
                         double room)
{
    static const double same_scale =
        1.0 / 1024; /* relative; a quarter of a step at the end of 8 bits; chosen */
    const char *besides = room > 0 ? "; single steps besides" : "";
    bool is_whole = part->channel == SIZE_MAX, is_scale = fabs(factor - 1) > same_scale, is_point = shift != 0;
    if (!is_scale && !is_point)
        return false;
    enum nd_fault_kind kind = is_scale && is_point ? ND_FAULT_ENCODING
                              : is_scale           ? (is_whole ? ND_FAULT_SCALE : ND_FAULT_CHANNEL_SCALE)
                              : is_whole           ? ND_FAULT_ZERO_POINT
                                                   : ND_FAULT_CHANNEL_ZERO_POINT;
    struct nd_fault f = fault_of(kind, part, is_scale ? factor : 1, predict_encoding);
    f.mode = (int)shift;
    f.room = room;
    char where[48] = "";
    if (!is_whole)
        snprintf(where, sizeof where, " of channel %zu", part->channel);
    bool holds =
        is_scale && is_point
            ? nd_try(look, &f, "scale and zero point%s are wrong together: %s times as large, and off by %+g%s",
                     where, ND_FACTOR(factor, 5), shift, besides)
        : is_scale ? nd_try(look, &f, "values%s fit a different scale, %s times as large%s", where,
                            ND_FACTOR(factor, 5), besides)
                   : nd_try(look, &f, "the zero point%s is off by %+g%s", where, shift, besides);
    if (holds && !is_scale && look->out->items[0].kind == kind)
        look->out->items[0].amount = shift;
    return holds;
}

static void try_encoding(const struct nd_look *look, const struct part *part)
{
    double factor = 0, shift = 0;
    size_t n = 0;
    struct point *points = list_points(look, part, &n);
    bool is_line = points != NULL && find_line(points, n, &factor, &shift) && factor > 0 &&
                   fabs(shift) < 65536 && count_qvalues(points, n) >= MIN_LINE_QVALUES;
    factor = is_line ? find_factor(look, part, shift) : 0;
    if (factor <= 0)
        return;
    /* One wrong number before two; single steps besides: other arithmetic, or what was quantised twice. */
    double alone = shift != 0 ? find_factor(look, part, 0) : 0;
    for (int room = 0; room <= (nd_has_far_qvalues(look) ? 1 : 0); room++)
        if (say_encoding(look, part, 1, shift, room) ||
            (alone > 0 && say_encoding(look, part, alone, 0, room)) ||
            say_encoding(look, part, factor, shift, room))
            return;
}

static void try_part(const struct nd_look *look, const struct part *part)
{
    bool is_whole = part->channel == SIZE_MAX;
    double shift = find_shift(look, part), factor = find_factor(look, part, 0);
    if (shift != 0 && is_whole)
        try_whole_shift(look, shift, part);
    struct nd_fault f = fault_of(ND_FAULT_CHANNEL_ZERO_POINT, part, shift, predict_shift);
    if (shift != 0 && !is_whole)
        nd_try(look, &f, "the zero point of channel %zu is off by %+g", part->channel, shift);
    f = fault_of(is_whole ? ND_FAULT_SCALE : ND_FAULT_CHANNEL_SCALE, part, factor, predict_scale);
    bool is_scale = factor != 1 && factor > 0;
    if (is_scale && is_whole)
        nd_try(look, &f, "the values fit a different scale, %s times as large", ND_FACTOR(factor, 5));
    else if (is_scale)
        nd_try(look, &f, "the values of channel %zu fit a different scale, %s times as large", part->channel,
               ND_FACTOR(factor, 5));
    if (!nd_is_found(look))
        try_encoding(look, part); /* each alone is a special case */
}

/* The channel that holds 99 % of the quantised values that are no rounding of the value, or SIZE_MAX. */
static size_t find_channel(const struct nd_look *look, const struct nd_axis *axis)
{
    size_t *counts = (size_t *)look->scratch, most = 0;
    memset(counts, 0, axis->n * sizeof *counts);
    for (size_t i = 0; i < look->n_total; i++)
        if (nd_is_far(look, i))
            counts[nd_channel_of(axis, i % look->e->n)]++;
    for (size_t c = 1; c < axis->n; c++)
        most = counts[c] > counts[most] ? c : most;
    return counts[most] * 100 >= look->n_far * 99 ? most : SIZE_MAX;
}

void nd_try_scales(const struct nd_look *look)
{
    struct part part = {.axis = {-1, 1, 1}, .channel = SIZE_MAX};
    struct nd_axis axes[ND_CHANNEL_AXES];
    size_t n_axes = nd_channel_axes(look, axes);
    try_part(look, &part);
    for (size_t a = 0; a < n_axes; a++) {
        part.axis = axes[a];
        part.channel = find_channel(look, &part.axis);
        if (part.channel != SIZE_MAX)
            try_part(look, &part);
    }
}
