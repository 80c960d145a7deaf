/* Another zero point or scale. An integer shift is told by equality; a scale by the factor that the most
 * elements allow: each allows an interval of factors, and where most intervals overlap is a sharp answer even
 * when single codes are off (a least-squares fit would be pulled by them and blunted by rounding). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "diagnosis/diagnosis_parts.h"

enum { MAX_FIT = 1 << 16 };

/* The elements that a fault touches: all, or those of one channel. */
struct part {
    struct nd_doctor_axis axis;
    size_t channel; /* SIZE_MAX: all */
};

static bool is_in(const struct part *part, size_t j)
{
    return part->channel == SIZE_MAX || nd_doctor_channel(&part->axis, j) == part->channel;
}

static bool is_touched(const struct nd_doctor_fault *f, size_t j)
{
    return f->channel == SIZE_MAX || j / f->first % f->end == f->channel;
}

/* The usual program's code, shifted; where that was clipped, or is a matter of taste, any rounding of the
 * value. */
static struct nd_doctor_span predict_shift(const struct nd_doctor *d, const struct nd_doctor_fault *f, size_t s,
                                           size_t j)
{
    size_t i = s * d->e->n + j;
    double expected = d->e->expected[i], value = d->e->values[i];
    if (!is_touched(f, j))
        return nd_doctor_exactly(expected);
    bool is_tie = fabs(value - floor(value) - 0.5) < 1.0 / 256;
    if (expected > d->lowest && expected < d->highest && !is_tie)
        return nd_doctor_exactly(nd_doctor_clip(d, expected + f->amount));
    return nd_doctor_of_value(d, value + f->amount);
}

static struct nd_doctor_span predict_scale(const struct nd_doctor *d, const struct nd_doctor_fault *f, size_t s,
                                           size_t j)
{
    size_t i = s * d->e->n + j;
    if (!is_touched(f, j))
        return nd_doctor_exactly(d->e->expected[i]);
    double zero_point = nd_doctor_zero_point(d, j);
    return nd_doctor_of_value(d, zero_point + f->amount * (d->e->values[i] - zero_point));
}

/* Both at once. mode: by how much the zero point is off. */
static struct nd_doctor_span predict_encoding(const struct nd_doctor *d, const struct nd_doctor_fault *f,
                                              size_t s, size_t j)
{
    size_t i = s * d->e->n + j;
    if (!is_touched(f, j))
        return nd_doctor_exactly(d->e->expected[i]);
    double zero_point = nd_doctor_zero_point(d, j);
    struct nd_doctor_span span =
        nd_doctor_of_value(d, zero_point + f->mode + f->amount * (d->e->values[i] - zero_point));
    return (struct nd_doctor_span){true, nd_doctor_clip(d, span.low - f->room),
                                   nd_doctor_clip(d, span.high + f->room)};
}

/* Codes that lack the clip: 8 bits of a wider integer. */
static struct nd_doctor_span predict_wrapped(const struct nd_doctor *d, const struct nd_doctor_fault *f,
                                             size_t s, size_t j)
{
    (void)f;
    size_t i = s * d->e->n + j;
    double value = d->e->values[i];
    if (d->e->expected[i] > d->lowest && d->e->expected[i] < d->highest)
        return nd_doctor_exactly(d->e->expected[i]);
    double turns = floor((rint(value) - d->lowest) / 256);
    return turns == 0 ? nd_doctor_exactly(d->e->expected[i]) : nd_doctor_of_value(d, value - 256 * turns);
}

static struct nd_doctor_fault fault_of(enum nd_fault_kind kind, const struct part *part, double amount,
                                       nd_doctor_predict predict)
{
    bool is_whole = part->channel == SIZE_MAX;
    return (struct nd_doctor_fault){.kind = kind,
                                    .channel = part->channel,
                                    .axis = is_whole ? -1 : part->axis.axis,
                                    .amount = amount,
                                    .predict = predict,
                                    .first = part->axis.inner,
                                    .end = part->axis.n};
}

/* The shift of most elements of the part (by majority vote); 0 when there is none. */
static double find_shift(const struct nd_doctor *d, const struct part *part)
{
    double shift = 0;
    size_t votes = 0;
    for (size_t i = 0; i < d->e->n_samples * d->e->n; i++) {
        if (!is_in(part, i % d->e->n) || !nd_doctor_is_inside(d, i))
            continue;
        double difference = d->e->codes[i] - d->e->expected[i];
        if (votes == 0)
            shift = difference;
        if (difference == shift)
            votes++;
        else
            votes--;
    }
    return votes > 0 ? shift : 0;
}

static void try_whole_shift(struct nd_doctor *d, double shift, const struct part *part)
{
    double twice = 2 * nd_doctor_zero_point(d, 0);
    bool is_one = d->e->quant != NULL && d->e->quant->n == 1;
    struct nd_doctor_fault f = fault_of(ND_FAULT_OFFSET_SIGN, part, shift, predict_shift);
    if (is_one && twice != 0 && fabs(shift) == fabs(twice))
        nd_doctor_try(d, &f, "the offset has the other sign: codes are off by 2 x %g", twice / 2);
    f.kind = ND_FAULT_OFFSET_256;
    if (fabs(shift) == 256)
        nd_doctor_try(d, &f, "the offset is off by %+g", shift);
    f.kind = ND_FAULT_ZERO_POINT;
    if (!d->out->is_found) /* both above are special cases of it */
        nd_doctor_try(d, &f, "the zero point is off by %+g", shift);
}

struct edge_of_interval {
    double at;
    int step; /* +1 opens, -1 closes */
};

static int compare_edges(const void *a, const void *b)
{
    const struct edge_of_interval *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return y->step - x->step; /* open first: intervals that touch overlap */
}

/* The middle of where most intervals overlap. */
static double deepest(struct edge_of_interval *edges, size_t n)
{
    qsort(edges, n, sizeof *edges, compare_edges);
    int depth = 0, most = 0;
    double at = 1;
    for (size_t k = 0; k < n; k++) {
        depth += edges[k].step;
        if (depth > most && k + 1 < n) {
            most = depth;
            at = (edges[k].at + edges[k + 1].at) / 2;
        }
    }
    return at;
}

/* Of codes that are `shift` too high. */
static enum nd_status find_factor(const struct nd_doctor *d, const struct part *part, double shift, double *out,
                                  struct nd_error *err)
{
    const struct nd_evidence *e = d->e;
    size_t n_total = e->n_samples * e->n, n_part = n_total;
    if (part->channel != SIZE_MAX)
        n_part /= part->axis.n;
    size_t capacity = n_part < MAX_FIT ? n_part : MAX_FIT, n = 0, seen = 0, stride = n_part / capacity;
    struct edge_of_interval *edges = nd_calloc(2 * capacity, sizeof *edges);
    if (edges == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n_total && n < 2 * capacity; i++) {
        size_t j = i % e->n;
        if (!is_in(part, j) || seen++ % stride != 0 || !nd_doctor_is_inside(d, i))
            continue;
        double zero_point = nd_doctor_zero_point(d, j), u = e->values[i] - zero_point;
        if (fabs(u) < 0.5)
            continue;
        double code = e->codes[i] - zero_point - shift;
        double a = (code - d->above) / u, b = (code + d->below) / u;
        edges[n++] = (struct edge_of_interval){fmin(a, b), 1};
        edges[n++] = (struct edge_of_interval){fmax(a, b), -1};
    }
    *out = n > 0 ? deepest(edges, n) : 1;
    free(edges);
    return ND_OK;
}

/* ---- both ---- */

/* Two free numbers fit a few codes of anything: as many elements, and codes that differ, must bear them out.
 * Chosen. */
enum { MIN_LINE = 24, MIN_LINE_CODES = 8, MAX_LINE = 1 << 14 };

struct point {
    double value, code; /* less the zero point */
};

static int compare_points(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->code < y->code ? -1 : x->code > y->code;
}

static int compare_codes(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return x->code < y->code ? -1 : x->code > y->code;
}

/* Elements that measure anything, as value and code, by value. NULL: too few, or *err. */
static struct point *list_points(const struct nd_doctor *d, const struct part *part, size_t *n_out,
                                 enum nd_status *status, struct nd_error *err)
{
    size_t n_total = d->e->n_samples * d->e->n, n = 0, stride = n_total / MAX_LINE + 1, seen = 0;
    struct point *points = nd_calloc(n_total / stride + 1, sizeof *points);
    *status = points != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; points != NULL && i < n_total; i++) {
        size_t j = i % d->e->n;
        if (!is_in(part, j) || !nd_doctor_is_inside(d, i) || seen++ % stride != 0)
            continue;
        double zero_point = nd_doctor_zero_point(d, j);
        points[n++] = (struct point){d->e->values[i] - zero_point, d->e->codes[i] - zero_point};
    }
    if (n < MIN_LINE) {
        free(points);
        return NULL;
    }
    qsort(points, n, sizeof *points, compare_points);
    *n_out = n;
    return points;
}

/* The median value and code of a run of points, which are in order by value. Leaves them in order by code. */
static struct point middle(struct point *points, size_t n)
{
    struct point at = {.value = points[n / 2].value};
    qsort(points, n, sizeof *points, compare_codes);
    at.code = points[n / 2].code;
    return at;
}

static size_t count_codes(struct point *points, size_t n)
{
    size_t n_codes = 1;
    qsort(points, n, sizeof *points, compare_codes);
    for (size_t i = 1; i < n; i++)
        n_codes += points[i].code != points[i - 1].code;
    return n_codes;
}

/* The line of most points: through the medians of the lower and the upper third, then by least squares over the
 * points that lie within two steps of it. Single codes that are off pull neither. */
static bool find_line(struct point *points, size_t n, double *factor, double *shift)
{
    size_t third = n / 3;
    struct point low = middle(points, third), high = middle(points + n - third, third);
    if (!(high.value > low.value))
        return false;
    double slope = (high.code - low.code) / (high.value - low.value), at = low.code - slope * low.value;
    for (int turn = 0; turn < 4; turn++) {
        double n_near = 0, x = 0, y = 0, xx = 0, xy = 0, room = turn == 0 ? 8 : 2;
        for (size_t i = 0; i < n; i++) {
            if (fabs(points[i].code - at - slope * points[i].value) > room)
                continue;
            n_near++;
            x += points[i].value;
            y += points[i].code;
            xx += points[i].value * points[i].value;
            xy += points[i].value * points[i].code;
        }
        double spread = n_near * xx - x * x;
        if (n_near < MIN_LINE || !(spread > 0))
            return false;
        slope = (n_near * xy - x * y) / spread;
        at = (y - slope * x) / n_near;
    }
    *factor = slope;
    *shift = rint(at); /* zero points are codes */
    return true;
}

/* The line as a fault: of one number where the other is as it should be. room: single steps besides. */
static bool say_encoding(struct nd_doctor *d, const struct part *part, double factor, double shift, double room)
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
    struct nd_doctor_fault f = fault_of(kind, part, is_scale ? factor : 1, predict_encoding);
    f.mode = (int)shift;
    f.room = room;
    char where[48] = "";
    if (!is_whole)
        snprintf(where, sizeof where, " of channel %zu", part->channel);
    bool holds =
        is_scale && is_point
            ? nd_doctor_try(d, &f,
                            "scale and zero point%s are wrong together: %.5g times as large, and off by %+g%s",
                            where, factor, shift, besides)
        : is_scale ? nd_doctor_try(d, &f, "codes%s are as of another scale, %.5g times as large%s", where,
                                   factor, besides)
                   : nd_doctor_try(d, &f, "the zero point%s is off by %+g%s", where, shift, besides);
    if (holds && !is_scale && d->out->best.kind == kind)
        d->out->best.amount = shift;
    return holds;
}

static enum nd_status try_encoding(struct nd_doctor *d, const struct part *part, struct nd_error *err)
{
    double factor = 0, shift = 0;
    size_t n = 0;
    enum nd_status status;
    struct point *points = list_points(d, part, &n, &status, err);
    bool is_line = points != NULL && find_line(points, n, &factor, &shift) && factor > 0 &&
                   fabs(shift) < 65536 && count_codes(points, n) >= MIN_LINE_CODES;
    free(points);
    if (status == ND_OK && is_line)
        status = find_factor(d, part, shift, &factor, err);
    if (status != ND_OK || !is_line || factor <= 0)
        return status;
    if (!say_encoding(d, part, factor, shift, 0) && nd_doctor_is_far_off(d))
        say_encoding(d, part, factor, shift, 1); /* other arithmetic, or codes that were quantised twice */
    return ND_OK;
}

static enum nd_status try_part(struct nd_doctor *d, const struct part *part, struct nd_error *err)
{
    bool is_whole = part->channel == SIZE_MAX;
    double shift = find_shift(d, part), factor = 1;
    if (shift != 0 && is_whole)
        try_whole_shift(d, shift, part);
    struct nd_doctor_fault f = fault_of(ND_FAULT_CHANNEL_ZERO_POINT, part, shift, predict_shift);
    if (shift != 0 && !is_whole)
        nd_doctor_try(d, &f, "the zero point of channel %zu is off by %+g", part->channel, shift);
    enum nd_status status = find_factor(d, part, 0, &factor, err);
    if (status != ND_OK)
        return status;
    if (factor == 1 || factor <= 0)
        return d->out->is_found ? ND_OK : try_encoding(d, part, err);
    f = fault_of(is_whole ? ND_FAULT_SCALE : ND_FAULT_CHANNEL_SCALE, part, factor, predict_scale);
    if (is_whole)
        nd_doctor_try(d, &f, "codes are as of another scale, %.5g times as large", factor);
    else
        nd_doctor_try(d, &f, "codes of channel %zu are as of another scale, %.5g times as large", part->channel,
                      factor);
    return d->out->is_found ? ND_OK : try_encoding(d, part, err); /* each alone is a special case */
}

/* The channel that holds 99 % of the codes that are no rounding of the value, or SIZE_MAX. */
static enum nd_status find_channel(const struct nd_doctor *d, const struct nd_doctor_axis *axis, size_t *out,
                                   struct nd_error *err)
{
    size_t *counts = nd_calloc(axis->n, sizeof *counts), most = 0;
    if (counts == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < d->e->n_samples * d->e->n; i++) {
        if (nd_doctor_is_known(d, i) && nd_doctor_is_hard(d, i))
            counts[nd_doctor_channel(axis, i % d->e->n)]++;
    }
    for (size_t c = 1; c < axis->n; c++) {
        if (counts[c] > counts[most])
            most = c;
    }
    *out = counts[most] * 100 >= d->n_hard * 99 ? most : SIZE_MAX;
    free(counts);
    return ND_OK;
}

enum nd_status nd_doctor_try_values(struct nd_doctor *d, struct nd_error *err)
{
    struct part part = {.axis = {-1, 1, 1}, .channel = SIZE_MAX};
    enum nd_status status = try_part(d, &part, err);
    struct nd_doctor_fault wrapped = fault_of(ND_FAULT_OFFSET_256, &part, 0, predict_wrapped);
    if (d->highest - d->lowest == 255)
        nd_doctor_try(d, &wrapped, "codes wrap modulo 256 where they should clip");
    struct nd_doctor_axis axes[ND_DOCTOR_AXES];
    size_t n_axes = nd_doctor_axes(d, axes);
    for (size_t a = 0; a < n_axes && status == ND_OK; a++) {
        part.axis = axes[a];
        status = find_channel(d, &part.axis, &part.channel, err);
        if (status == ND_OK && part.channel != SIZE_MAX)
            status = try_part(d, &part, err);
    }
    return status;
}
