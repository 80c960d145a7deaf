/* A line between the reference x and the test y, of all values or of each channel: y = a x + b. The simplest
 * that predicts nearly all values as precisely as the types hold them is named; then the simplest that comes
 * near. */
#include <math.h>
#include <stdio.h>

#include "core/text/strbuf.h"
#include "explain/diagnosis/look.h"

/* Chosen. A group has four elements for each number that is fitted; 99 % of all values are where the line says.
 * What a step hides is counted only where 16 of them fit into the spread: of fewer any line is near. */
enum { MIN_FOR_NUMBER = 4, TURNS = 4, STEPS_OF_SPREAD = 16 };
/* Chosen: a line comes near when 99 % of all values are within an eighth of what counts as far off, or within
 * two steps of both sides together. */
static const double near_of_far = 1.0 / 8, near_steps = 2;
/* Between two conversions: a unit in the last place of the coarser of float32 and the test's type, of each
 * term. */
static const double units = 2;

/* The elements that share a line, and their sums. As large as four elements of the scratch. */
struct group {
    double a, b;
    double n, x, y, xx, xy, off; /* off: the sum of |y - a x - b| */
};

struct relation {
    bool has_factor, has_offset, is_near_enough;
    struct nd_axis axis;   /* of one channel: of all values */
    struct group *groups;  /* [axis.n] */
    double x_step, y_step; /* 0: floats of no step */
    double x_low, x_high;  /* of the reference */
    double y_low, y_high;  /* where the test's type ends */
    size_t n_held, n_known;
    double most; /* of |y - a x - b| in these */
};

/* The simplest first; the kinds of all values, and of each channel. A turned sign is fitted by nothing. */
static const struct {
    bool has_factor, has_offset;
    enum nd_fault_kind kinds[2];
} forms[] = {
    {false, false, {ND_FAULT_SIGN, ND_FAULT_SIGN}},
    {true, false, {ND_FAULT_SCALE, ND_FAULT_CHANNEL_SCALE}},
    {false, true, {ND_FAULT_ZERO_POINT, ND_FAULT_CHANNEL_ZERO_POINT}},
    {true, true, {ND_FAULT_ENCODING, ND_FAULT_ENCODING}},
};

static struct group *group_of(const struct relation *r, size_t j)
{
    return &r->groups[nd_channel_of(&r->axis, j)];
}

static struct nd_span predict_line(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    const struct relation *r = f->data;
    const struct group *group = group_of(r, j);
    double y = group->a * look->e->expected[s * look->e->n + j] + group->b;
    return nd_exactly(isnan(y) ? y : fmin(fmax(y, r->y_low), r->y_high));
}

/* Clipped on neither side. */
static bool is_usable(const struct nd_look *look, const struct relation *r, size_t i)
{
    double x = look->e->expected[i], y = look->e->captured[i];
    bool is_inside = (r->x_step == 0 || (x > r->x_low && x < r->x_high)) && (y > r->y_low && y < r->y_high);
    return nd_is_known(look, i) && isfinite(y) && is_inside;
}

/* What rounding of both sides to their steps may hide of a line with that factor. */
static double steps_of(const struct nd_look *look, const struct relation *r, double a)
{
    double both = fabs(a) * r->x_step + r->y_step;
    return both * STEPS_OF_SPREAD > 2 * fabs(a) * look->spread ? 0 : both / 2;
}

/* A unit in the last place at 1: of quantised values, which were made real by float32. */
static double unit_of(const struct nd_look *look)
{
    return nd_spacing(nd_dtype_is_float(look->e->dtype) ? look->e->dtype : ND_DTYPE_F32, 0, 1);
}

/* How far from the line y may be where the reference is x. */
static double room_at(const struct nd_look *look, const struct relation *r, const struct group *g, double x,
                      double y)
{
    double a = fabs(g->a);
    double precise = units * unit_of(look) * (a * fabs(x) + fabs(g->b) + fabs(y)) + steps_of(look, r, a);
    double near = fmax(near_of_far * look->far, near_steps * (a * r->x_step + r->y_step));
    return r->is_near_enough ? fmax(precise, fmin(near, look->far / 2)) : precise;
}

/* A group whose x hardly changes (one element of samples that are alike) fits a constant, whatever is wrong. */
static bool is_moving(const struct nd_look *look, const struct relation *r, const struct group *g)
{
    static const double rooms = 1; /* chosen: a constant misses a third by more than there is room for */
    double mean = g->x / g->n, square = g->xx / g->n, size = sqrt(square);
    struct group line = {.a = 1, .b = (g->y - g->x) / g->n};
    return sqrt(fmax(square - mean * mean, 0)) >= rooms * room_at(look, r, &line, size, size);
}

static void solve(const struct nd_look *look, const struct relation *r, struct group *g)
{
    bool is_both = r->has_factor && r->has_offset;
    g->b = 0;
    g->a = NAN;
    if (g->n < (is_both ? 2 : 1) * MIN_FOR_NUMBER || !is_moving(look, r, g))
        return;
    g->a = is_both         ? (g->n * g->xy - g->x * g->y) / (g->n * g->xx - g->x * g->x)
           : r->has_factor ? g->xy / g->xx
                           : 1;
    g->b = r->has_offset ? (g->y - g->a * g->x) / g->n : 0;
    if (fabs(g->a) < 1e-6) /* values that are all the same are lost: they are no line of anything */
        g->a = NAN;
}

/* One pass: of the residuals, or of the sums of those that are within `off` of the line (all: of all). */
static void add_up(const struct nd_look *look, const struct relation *r, bool is_sum, bool is_all)
{
    for (size_t i = 0; i < look->n_total; i++) {
        struct group *g = group_of(r, i % look->e->n);
        double x = look->e->expected[i], y = look->e->captured[i], off = fabs(y - g->a * x - g->b);
        if (!is_usable(look, r, i) || (is_sum && !is_all && off > g->off))
            continue;
        g->n++;
        g->off += is_sum ? 0 : off;
        g->x += is_sum ? x : 0;
        g->y += is_sum ? y : 0;
        g->xx += is_sum ? x * x : 0;
        g->xy += is_sum ? x * y : 0;
    }
}

/* Of half of these far elements the line is nearer than to be far off: chance comes to one of ten. */
static bool is_hopeful(const struct nd_look *look, const struct nd_fault *f, const struct nd_few *few)
{
    size_t n_near = 0;
    for (size_t k = 0; k < few->n; k++) {
        double y = predict_line(look, f, few->at[k] / look->e->n, few->at[k] % look->e->n).low;
        n_near += fabs(look->e->captured[few->at[k]] - y) <= look->far / 2;
    }
    return n_near * 2 >= few->n;
}

/* Least squares; elements that are three times as far off as the mean are left out of the next turn. False: it
 * is no line. */
static bool fit(const struct nd_look *look, struct relation *r, const struct nd_fault *f,
                const struct nd_few *few)
{
    int n_turns = r->has_factor || r->has_offset ? TURNS : 0;
    for (int turn = 0; turn < n_turns; turn++) {
        if (turn > 0)
            add_up(look, r, false, true);
        for (size_t c = 0; c < r->axis.n; c++)
            r->groups[c] = (struct group){.a = r->groups[c].a,
                                          .b = r->groups[c].b,
                                          .off = 3 * r->groups[c].off / fmax(r->groups[c].n, 1)};
        add_up(look, r, true, turn == 0);
        for (size_t c = 0; c < r->axis.n; c++) {
            solve(look, r, &r->groups[c]);
            r->groups[c] = (struct group){.a = r->groups[c].a, .b = r->groups[c].b};
        }
        if (!is_hopeful(look, f, few))
            return false;
    }
    return nd_is_worth_trying(look, f, few);
}

/* Whether 99 % of the values of which something is predicted are where the line says. */
static bool holds(const struct nd_look *look, struct relation *r, const struct nd_fault *f)
{
    r->n_held = r->n_known = 0;
    r->most = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        double y = predict_line(look, f, i / look->e->n, i % look->e->n).low;
        if (!nd_is_known(look, i) || isnan(y))
            continue;
        double off = fabs(look->e->captured[i] - y);
        const struct group *g = group_of(r, i % look->e->n);
        double room = room_at(look, r, g, look->e->expected[i], look->e->captured[i]);
        double bound = look->e->bound != NULL ? look->e->bound[i] * fmax(1, fabs(g->a)) : 0;
        bool is_held = off <= fmax(room, bound);
        r->n_known++;
        r->n_held += is_held;
        r->most = is_held ? fmax(r->most, off) : r->most;
    }
    return r->n_known > 0 && r->n_held * 100 >= r->n_known * 99;
}

/* ---- what is said ---- */

/* " (32768 steps of 0.001, as a different zero point gives)", or nothing. */
static void say_steps(const struct relation *r, const struct group *g, char text[96])
{
    double step = r->y_step, n = step > 0 ? fabs(g->b) / step : 0, own = step / fabs(g->a);
    double power = exp2(rint(log2(own)));
    char fraction[32] = "";
    if (step > 0 && power < 1 && fabs(own / power - 1) < 2e-3) { /* chosen: as well as a factor is known */
        own = power;
        snprintf(fraction, sizeof fraction, " = 1/%.0f", 1 / power);
    }
    if (r->has_factor && r->has_offset && step > 0)
        snprintf(text, 96, " (quantised in steps of %.4g%s, read in steps of %.4g)", own, fraction, step);
    else if (!r->has_factor && n > 0.5 && fabs(n - rint(n)) < 0.01)
        snprintf(text, 96, " (%.0f step%s of %.5g, as a different zero point gives)", n,
                 rint(n) == 1 ? "" : "s", step);
}

/* ", to within 0.02", of a line that only comes near; or nothing. */
static const char *say_within(const struct relation *r, char text[48])
{
    text[0] = '\0';
    if (r->is_near_enough)
        snprintf(text, 48, ", to within %.2g", r->most);
    return text;
}

static bool say_whole(const struct nd_look *look, const struct relation *r, const struct nd_fault *f)
{
    const struct group *g = r->groups;
    char line[96] = "all signs are turned", steps[96] = "", within[48];
    say_steps(r, g, steps);
    if (f->kind == ND_FAULT_SCALE)
        snprintf(line, sizeof line, "all values are %s times as large as the reference's", ND_FACTOR(g->a, 4));
    else if (f->kind == ND_FAULT_ZERO_POINT)
        snprintf(line, sizeof line, "all values are %.6g %s", fabs(g->b), g->b < 0 ? "lower" : "higher");
    else if (f->kind == ND_FAULT_ENCODING)
        snprintf(line, sizeof line, "values are %s x %c %.4g, x the reference's", ND_FACTOR(g->a, 4),
                 g->b < 0 ? '-' : '+', fabs(g->b));
    return nd_try(look, f, "%s%s%s: %zu of %zu", line, steps, say_within(r, within), r->n_held, r->n_known);
}

static bool say_channels(const struct nd_look *look, const struct relation *r, struct nd_fault *f)
{
    size_t n_off = 0, first = 0;
    double low = 0;
    for (size_t c = 0; c < r->axis.n; c++) {
        const struct group *g = &r->groups[c];
        double room = steps_of(look, r, 1) + 8 * unit_of(look) * look->spread,
               amount = r->has_factor ? g->a : g->b;
        if (isnan(g->a) || fabs(g->a - 1) * look->spread + fabs(g->b) <= room)
            continue;
        low = n_off == 0 ? amount : low;
        first = n_off++ == 0 ? c : first;
    }
    char line[96], within[48];
    f->axis = r->axis.axis;
    f->channel = n_off == 1 ? first : SIZE_MAX;
    f->amount = n_off == 1 ? low : (double)n_off;
    if (n_off == 1 && !r->has_offset)
        snprintf(line, sizeof line, "channel %zu (axis %d) is %s times as large, all others are right", first,
                 f->axis, ND_FACTOR(low, 4));
    else if (n_off == 1 && !r->has_factor)
        snprintf(line, sizeof line, "channel %zu (axis %d) is %.4g %s, all others are right", first, f->axis,
                 fabs(low), low < 0 ? "lower" : "higher");
    else
        snprintf(line, sizeof line, "%zu of %zu channels (axis %d) are off, each by %s of its own", n_off,
                 r->axis.n, f->axis,
                 !r->has_factor  ? "a constant"
                 : r->has_offset ? "a factor and a constant"
                                 : "a factor");
    const char *bias = !r->has_factor && n_off > 1 ? ", as a lost bias gives" : "";
    return nd_try(look, f, "%s%s%s: %zu of %zu", line, bias, say_within(r, within), r->n_held, r->n_known);
}

/* ---- the search ---- */

static bool try_forms(const struct nd_look *look, struct relation *r, const struct nd_few *few)
{
    bool is_whole = r->axis.axis < 0;
    for (size_t k = 0; k < sizeof forms / sizeof forms[0]; k++) {
        struct nd_fault f = nd_fault_of(forms[k].kinds[!is_whole], 0, predict_line);
        r->has_factor = forms[k].has_factor;
        r->has_offset = forms[k].has_offset;
        /* Of layers whose exact values are known scale.c knows more. */
        if ((!is_whole && f.kind == ND_FAULT_SIGN) || (look->e->quant != NULL && f.kind != ND_FAULT_SCALE))
            continue;
        for (size_t c = 0; c < r->axis.n; c++)
            r->groups[c] = (struct group){.a = f.kind == ND_FAULT_SIGN ? -1 : 1};
        f.data = r;
        if (!fit(look, r, &f, few))
            continue;
        f.amount = f.kind == ND_FAULT_ZERO_POINT ? r->groups->b / (r->y_step > 0 ? r->y_step : 1)
                   : f.kind == ND_FAULT_SIGN     ? 0
                                                 : r->groups->a;
        if (holds(look, r, &f) && (is_whole ? say_whole(look, r, &f) : say_channels(look, r, &f)))
            return true;
    }
    return false;
}

void nd_try_relations(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    struct relation r = {.x_step = e->ref_step, .y_step = e->step, .x_low = HUGE_VAL, .x_high = -HUGE_VAL};
    struct nd_few few = nd_few_far(look);
    if (look->n_far < ND_MIN_DECISIVE)
        return;
    for (size_t i = 0; i < look->n_total; i++) {
        r.x_low = nd_is_known(look, i) ? fmin(r.x_low, e->expected[i]) : r.x_low;
        r.x_high = nd_is_known(look, i) ? fmax(r.x_high, e->expected[i]) : r.x_high;
    }
    r.x_step = r.x_step > 0 ? r.x_step : nd_find_own_step(look, e->expected).step;
    r.y_step = r.y_step > 0 ? r.y_step : nd_find_own_step(look, e->captured).step;
    nd_ends_of_type(e, &r.y_low, &r.y_high);
    double n_steps = r.y_step > 0 ? rint((look->high - look->low) / r.y_step) : 0;
    if (e->step == 0 && (n_steps == 255 || n_steps == 65535)) { /* floats that were 8 or 16 bits, all of them */
        r.y_low = look->low;
        r.y_high = look->high;
    }
    r.groups = (struct group *)look->scratch;
    for (int is_near = 0; is_near < (e->bound != NULL ? 1 : 2); is_near++)
        for (int axis = -1; axis < e->shape.rank; axis++) { /* all values first */
            r.is_near_enough = is_near != 0;
            r.axis = axis < 0 ? (struct nd_axis){-1, 1, 1} : nd_axis_at(&e->shape, axis);
            bool is_long = axis < 0 || r.axis.n > 1;
            if (is_long && look->n_total >= MIN_FOR_NUMBER * r.axis.n && try_forms(look, &r, &few))
                return;
        }
}
