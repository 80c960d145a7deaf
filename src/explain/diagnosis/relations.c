/* Floats that follow from what was expected by one line, y = gain x + offset, for all of them or for each channel
 * another one: a factor, a sign, an offset, both. docs/science/verdicts.md#float-layers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/statistics/series.h"
#include "explain/diagnosis/look.h"
#include "explain/diagnosis/values.h"

/* The simplest first. A line has one free number more than each of the others. */
enum form { SIGN, GAIN, OFFSET, LINE, N_FORMS };

struct line {
    double gain, offset;
};

struct point {
    double x, y;
};

struct search {
    const struct nd_evidence *e;
    const double *bound;
    double unit;          /* of a rounding, relative */
    double room;          /* where no bound is known */
    struct point *points; /* [n_samples * n] */
    double *numbers;      /* the same */
};

/* What is counted of a form. */
struct score {
    size_t n, n_far, n_right, n_broken;
    size_t n_changed, changed; /* channels with values that are far off, and the last of them */
    double before, after;               /* squares of what is off, without and with it */
    struct line least, most;            /* of the channels that are far off */
    bool is_short;                      /* a channel has too few values for its free numbers */
};

/* Values beside those that fix the free numbers of a channel; chosen: each fits by chance in one of thousands,
 * as the bound is to the spread. */
enum { MIN_SURPLUS = 2, MAX_POINTS = 1 << 14 };
/* Chosen, as elsewhere: the share that is predicted, beside one value; and of the squares what the rest has, at most: gains are
 * then known to a part in 16. */
static const double min_explained = 0.99, max_rest = 1.0 / 256;

static int compare_points(const void *a, const void *b)
{
    const struct point *p = a, *q = b;
    return p->x < q->x ? -1 : p->x > q->x ? 1 : p->y < q->y ? -1 : p->y > q->y;
}

/* Values of a channel, and where value k of them is. All values are the one channel of an axis -1. */
static size_t n_of(const struct search *s, const struct nd_axis *axis)
{
    return s->e->n_samples * (s->e->n / axis->n);
}

static size_t at(const struct search *s, const struct nd_axis *axis, size_t channel, size_t k)
{
    size_t n = s->e->n / axis->n, j = k % n;
    return k / n * s->e->n + (j / axis->inner * axis->n + channel) * axis->inner + j % axis->inner;
}

static double median(double *numbers, size_t n)
{
    return nd_look_quantile(numbers, n, 0.5);
}

/* The finite ones of the channel, at most MAX_POINTS that are spread over it, by x. */
static size_t list_points(const struct search *s, const struct nd_axis *axis, size_t channel)
{
    const struct nd_evidence *e = s->e;
    size_t n = 0, n_all = n_of(s, axis), stride = n_all / MAX_POINTS + 1;
    for (size_t k = 0; k < n_all; k += stride) {
        size_t i = at(s, axis, channel, k);
        if (isfinite(e->expected[i]) && isfinite(e->captured[i]))
            s->points[n++] = (struct point){e->expected[i], e->captured[i]};
    }
    qsort(s->points, n, sizeof *s->points, compare_points);
    return n;
}

/* By medians: single values that are off do not move the line. False: x does not vary. */
static bool fit(const struct search *s, size_t n, enum form form, struct line *line)
{
    const struct point *p = s->points;
    size_t n_numbers = 0;
    double most = n > 0 ? fmax(fabs(p[0].x), fabs(p[n - 1].x)) : 0;
    *line = (struct line){form == SIGN ? -1 : 1, 0};
    for (size_t i = 0; i < n && form == GAIN; i++)
        if (fabs(p[i].x) >= most / 8 && p[i].x != 0)
            s->numbers[n_numbers++] = p[i].y / p[i].x;
    for (size_t i = 0; i + n / 2 < n && form == LINE; i++)
        if (p[i + n / 2].x > p[i].x)
            s->numbers[n_numbers++] = (p[i + n / 2].y - p[i].y) / (p[i + n / 2].x - p[i].x);
    if ((form == GAIN || form == LINE) && n_numbers == 0)
        return false;
    if (n_numbers > 0)
        line->gain = median(s->numbers, n_numbers);
    for (size_t i = 0; i < n; i++)
        s->numbers[i] = p[i].y - line->gain * p[i].x;
    if (form == OFFSET || form == LINE)
        line->offset = median(s->numbers, n);
    return true;
}

static double room_of(const struct search *s, size_t i)
{
    return s->bound != NULL ? s->bound[i] : s->room;
}

/* Adds the channel's values to the score. */
static void count(const struct search *s, const struct nd_axis *axis, size_t channel, const struct line *line,
                  struct score *score)
{
    const struct nd_evidence *e = s->e;
    size_t n_far = score->n_far, n_all = n_of(s, axis);
    for (size_t k = 0; k < n_all; k++) {
        size_t i = at(s, axis, channel, k);
        double x = e->expected[i], y = e->captured[i], predicted = line->gain * x + line->offset;
        if (!isfinite(x))
            continue;
        double room = room_of(s, i), off = fabs(y - predicted);
        bool is_far = !(fabs(y - x) <= room);
        bool is_right = off <= room * fmax(1, fabs(line->gain)) + 2 * s->unit * fabs(predicted);
        score->n++;
        score->n_far += is_far;
        score->n_right += is_far && is_right;
        score->n_broken += !is_far && !is_right;
        score->before += isfinite(y) ? (y - x) * (y - x) : 0;
        score->after += isfinite(y) && is_right ? off * off : 0;
    }
    if (score->n_far == n_far)
        return;
    bool is_first = score->n_changed++ == 0;
    score->changed = channel;
    score->least.gain = is_first ? line->gain : fmin(score->least.gain, line->gain);
    score->most.gain = is_first ? line->gain : fmax(score->most.gain, line->gain);
    score->least.offset = is_first ? line->offset : fmin(score->least.offset, line->offset);
    score->most.offset = is_first ? line->offset : fmax(score->most.offset, line->offset);
}

static bool holds(const struct score *score)
{
    return !score->is_short && score->n_right >= ND_MIN_DECISIVE &&
           (double)(score->n_far - score->n_right) <= 1 + (1 - min_explained) * (double)score->n_far &&
           (double)score->n_broken <= (1 - min_explained) * (double)score->n &&
           score->after <= max_rest * score->before;
}

static struct score try_form(const struct search *s, const struct nd_axis *axis, enum form form)
{
    static const size_t n_free[N_FORMS] = {[SIGN] = 0, [GAIN] = 1, [OFFSET] = 1, [LINE] = 2};
    struct score score = {0};
    for (size_t c = 0; c < axis->n && !score.is_short; c++) {
        struct line line;
        size_t n = list_points(s, axis, c), n_far = score.n_far;
        bool is_fit = fit(s, n, form, &line);
        if (!is_fit)
            line = (struct line){1, 0};
        count(s, axis, c, &line, &score);
        score.is_short = score.n_far > n_far && (!is_fit || n < n_free[form] + MIN_SURPLUS);
        /* A form that fails early fails. */
        if (score.n_far - score.n_right > 1 + (size_t)((1 - min_explained) * (double)(s->e->n_samples * s->e->n)))
            score.is_short = true;
    }
    return score;
}

static const char *direction(double offset)
{
    return offset < 0 ? "lower" : "higher";
}

static void say(const struct score *score, enum form form, const struct nd_axis *axis, struct nd_finding *out)
{
    static const enum nd_fault_kind kinds[N_FORMS] = {ND_FAULT_SIGN, ND_FAULT_SCALE, ND_FAULT_OFFSET,
                                                      ND_FAULT_LINE};
    static const enum nd_fault_kind of_channels[N_FORMS] = {ND_FAULT_SIGN, ND_FAULT_CHANNEL_SCALE,
                                                            ND_FAULT_CHANNEL_OFFSET, ND_FAULT_LINE};
    const struct line *least = &score->least, *most = &score->most;
    bool is_whole = axis->axis < 0, is_one = score->n_changed == 1;
    char who[64] = "all values", *text = out->text;
    *out = (struct nd_finding){.kind = (is_whole ? kinds : of_channels)[form],
                               .channel = is_one && !is_whole ? score->changed : SIZE_MAX,
                               .axis = axis->axis,
                               .amount = form == OFFSET ? least->offset : least->gain,
                               .explained = (double)score->n_right / (double)score->n_far,
                               .n_wrong = score->n_far};
    size_t size = sizeof out->text;
    if (!is_whole && is_one)
        snprintf(who, sizeof who, "the values of channel %zu (axis %d)", score->changed, axis->axis);
    else if (!is_whole)
        snprintf(who, sizeof who, "in %zu of %zu channels (axis %d) all values", score->n_changed,
                 axis->n, axis->axis);
    if (form == SIGN)
        snprintf(text, size, "%s have the other sign", who);
    else if (form == GAIN && is_one)
        snprintf(text, size, "%s are %.4g times as large", who, least->gain);
    else if (form == GAIN)
        snprintf(text, size, "%s are one factor times as large, %.4g to %.4g by channel", who, least->gain,
                 most->gain);
    else if (form == OFFSET && is_one)
        snprintf(text, size, "%s are %.5g %s", who, fabs(least->offset), direction(least->offset));
    else if (form == OFFSET)
        snprintf(text, size, "%s are off by one constant, %+.4g to %+.4g by channel", who, least->offset,
                 most->offset);
    else if (is_one)
        snprintf(text, size, "%s are %.5g times as large and %.5g %s", who, least->gain, fabs(least->offset),
                 direction(least->offset));
    else
        snprintf(text, size, "%s are a factor (%.4g to %.4g) and a constant (%+.4g to %+.4g) off by channel",
                 who, least->gain, most->gain, least->offset, most->offset);
}

/* Without a bound: what is off after the line is small beside what is off without it. */
static double room_without_bound(const struct nd_evidence *e)
{
    static const double small_part = 1.0 / 64; /* chosen */
    double squares = 0;
    size_t n = 0;
    for (size_t i = 0; i < e->n_samples * e->n; i++) {
        double off = e->captured[i] - e->expected[i];
        n += isfinite(off) ? 1 : 0;
        squares += isfinite(off) ? off * off : 0;
    }
    return n > 0 ? small_part * sqrt(squares / (double)n) : 0;
}

enum nd_status nd_values_relate(const struct nd_evidence *e, const double *bound, double unit, bool *is_found,
                                struct nd_finding *out, struct nd_error *err)
{
    size_t n = e->n_samples * e->n;
    const struct nd_look look = {.e = e};
    struct nd_axis axes[1 + ND_CHANNEL_AXES] = {{-1, 1, 1}};
    size_t n_axes = 1 + nd_channel_axes(&look, axes + 1);
    struct search s = {.e = e,
                       .bound = bound,
                       .unit = unit,
                       .room = bound == NULL ? room_without_bound(e) : 0,
                       .points = nd_calloc(n, sizeof *s.points),
                       .numbers = nd_calloc(n, sizeof *s.numbers)};
    *is_found = false;
    bool is_made = s.points != NULL && s.numbers != NULL;
    for (size_t a = 0; a < n_axes && is_made && !*is_found; a++)
        for (int form = a == 0 ? SIGN : GAIN; form < N_FORMS && !*is_found; form++) {
            struct score score = try_form(&s, &axes[a], (enum form)form);
            *is_found = holds(&score);
            if (*is_found)
                say(&score, (enum form)form, &axes[a], out);
        }
    free(s.points);
    free(s.numbers);
    return is_made || n == 0 ? ND_OK : nd_fail_memory(err);
}
