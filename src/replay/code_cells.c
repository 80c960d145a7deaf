#include "replay/code_cells.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

/* Most values lie between two thresholds of programs, and not beside one: all values between the same two are
 * one case, and are counted together. A cell is a range of fractions, small enough that few hold a threshold.
 */
enum {
    N_CELLS = 1 << 14, /* chosen: about 60 of them hold a threshold */
    IN_DOUBT = 255,
    MOST_CLASSES = 128,
    N_OUTCOMES = 4 /* floor - 1, floor, floor + 1, floor + 2 */
};

/* Keys are cells of both signs, and behind them what is no cell; CUT_OFF is a class of no cell. */
enum { N_KEYS = 2 * N_CELLS, KEY_CUT_OFF = N_KEYS, KEY_IN_DOUBT, CUT_OFF = MOST_CLASSES, N_CLASSES };

struct cells {
    unsigned char class_of[N_KEYS + 2]; /* those of negative values in the second half */
    double middle[2][MOST_CLASSES];     /* a fraction of the class */
};

struct thresholds {
    size_t n;
    double x[MOST_CLASSES];
};

/* In order, each once. */
static void add_threshold(struct thresholds *t, double x)
{
    size_t at = 0;
    while (at < t->n && t->x[at] < x)
        at++;
    if (x < 0 || x > 1 || t->n == MOST_CLASSES || (at < t->n && t->x[at] == x))
        return;
    memmove(t->x + at + 1, t->x + at, (t->n - at) * sizeof *t->x);
    t->x[at] = x;
    t->n++;
}

static void add_around(struct thresholds *t, double x, double doubt)
{
    add_threshold(t, x - doubt);
    add_threshold(t, x);
    add_threshold(t, x + doubt);
}

static void make_side(struct cells *cells, int is_negative, const struct nd_code_bounds *bounds)
{
    size_t n, k = 0;
    const struct nd_program *programs = nd_programs(&n);
    const struct nd_place place = {.floor = is_negative ? -1 : 0};
    struct thresholds t = {.n = 0};
    double doubt = nd_code_float_doubt(bounds);
    add_around(&t, 0, doubt);
    add_around(&t, 0.5, doubt);
    add_around(&t, 1, doubt);
    for (size_t p = 0; p < n; p++)
        add_around(&t, nd_code_threshold(&programs[p], &place), doubt);
    for (size_t c = 0; c + 1 < t.n; c++)
        cells->middle[is_negative][c] = (t.x[c] + t.x[c + 1]) / 2;
    for (size_t cell = 0; cell < N_CELLS; cell++) {
        double low = (double)cell / N_CELLS - ND_QUICK_DOUBT,
               high = (double)(cell + 1) / N_CELLS + ND_QUICK_DOUBT;
        while (k + 1 < t.n && t.x[k + 1] < low)
            k++;
        bool is_clear = low > t.x[k] && k + 1 < t.n && high < t.x[k + 1];
        cells->class_of[is_negative * N_CELLS + (int)cell] = (unsigned char)(is_clear ? k : IN_DOUBT);
    }
    cells->class_of[KEY_CUT_OFF] = CUT_OFF;
    cells->class_of[KEY_IN_DOUBT] = IN_DOUBT;
}

/* By the width of codes: 8 and 16 bits. */
static struct {
    pthread_once_t once;
    struct cells cells[2];
} all = {.once = PTHREAD_ONCE_INIT};

static void make_all(void)
{
    const struct nd_code_bounds bounds[] = {{0, 0, UINT8_MAX}, {0, 0, UINT16_MAX}};
    for (size_t i = 0; i < 2; i++)
        for (int is_negative = 0; is_negative < 2; is_negative++)
            make_side(&all.cells[i], is_negative, &bounds[i]);
}

/* NULL: codes of another width. */
static const struct cells *cells_of(const struct nd_code_bounds *bounds)
{
    double range = bounds->high - bounds->low;
    if (range != UINT8_MAX && range != UINT16_MAX)
        return NULL;
    pthread_once(&all.once, make_all);
    return &all.cells[range != UINT8_MAX];
}

/* ---- those in doubt ---- */

/* Equal ones, of which there are often many (whole numbers, ties), are worked out once. */
enum { REMEMBERED_BITS = 10, N_REMEMBERED = 1 << REMEMBERED_BITS };

/* What an exact value is made of, and what the device has there. */
struct operands {
    double x, y, given;
};

struct remembered {
    uint64_t count; /* not yet in the tally; 0: the place is free */
    struct operands operands;
    struct nd_ratio v;
};

/* The codes of one unit at work. */
struct work {
    struct nd_code_tally *tally;
    const struct nd_quick *quick;
    const struct nd_code_bounds *bounds;
    const struct cells *cells;
    double low, high;        /* bounds of the unit, in steps of the output */
    struct nd_ratio ends[2]; /* the same, exactly */
    struct nd_place places[2];
    double end_codes[2]; /* where places are whole */
    uint32_t counts[2][N_CLASSES][N_OUTCOMES];
    uint64_t n_wild; /* open, and not even near */
    struct remembered remembered[N_REMEMBERED];
};

static void settle(struct work *w, struct remembered *r)
{
    const struct nd_place place = nd_place_of(&r->v);
    nd_code_tally_many(w->tally, &r->v, &place, w->bounds, r->operands.given, r->count);
    r->count = 0;
}

static struct operands operands_of(const struct nd_quick *quick, size_t i, double given)
{
    double y = quick->y != NULL ? quick->y[i] : 0;
    if (quick->kind == ND_QUICK_LINE)
        y = (double)(i / quick->n_inner % quick->n_lines);
    return (struct operands){quick->x[i], y, given};
}

static void count_exactly(struct work *w, size_t i, double given)
{
    const struct operands operands = operands_of(w->quick, i, given);
    uint64_t bits[3], hash = 0;
    memcpy(bits, &operands, sizeof bits);
    for (size_t k = 0; k < 3; k++)
        hash = (hash ^ bits[k]) * 0x9e3779b97f4a7c15;
    struct remembered *r = &w->remembered[hash >> (64 - REMEMBERED_BITS)];
    if (r->count == 0 || memcmp(&r->operands, bits, sizeof bits) != 0) {
        if (r->count > 0)
            settle(w, r);
        r->operands = operands;
        r->v = nd_quick_exact(w->quick, i);
    }
    r->count++;
}

/* ---- many at once ---- */

/* A value as a whole number of cells from -N_WHOLE on: the places of a block of values. */
enum { CELL_BITS = 14, N_WHOLE = 1 << 16 };
static_assert(N_CELLS == 1 << CELL_BITS, "cells have a power of two");

/* What count_block needs of the work, in variables of its own. */
struct limits {
    double cut_low, cut_high; /* beyond them bounds cut off */
    double low, high;         /* between them no bound is near */
    double code_low, code_high, zero, end_codes[2];
    bool is_float32_in_doubt; /* it moves large values across a half from further off than a cell */
};

static struct limits limits_of(const struct work *w)
{
    struct limits l = {.cut_low = w->places[0].is_whole ? w->low - ND_QUICK_DOUBT : -ND_QUICK_LARGEST,
                       .cut_high = w->places[1].is_whole ? w->high + ND_QUICK_DOUBT : ND_QUICK_LARGEST,
                       .low = fmax(w->low + ND_QUICK_DOUBT, -N_WHOLE),
                       .high = fmin(w->high - ND_QUICK_DOUBT, N_WHOLE),
                       .code_low = w->bounds->low,
                       .code_high = w->bounds->high,
                       .zero = w->bounds->zero,
                       .end_codes = {w->end_codes[0], w->end_codes[1]},
                       .is_float32_in_doubt = w->bounds->high - w->bounds->low > UINT8_MAX};
    return l;
}

/* Cell and outcome of each value, keys[i] = key * N_OUTCOMES + outcome, without a branch: a Relu cuts off as
 * many as it lets through, in no order that a processor could guess. How many of those that are cut off are
 * not what they have to be. */
static size_t find_keys(const struct limits *limits, const double *restrict near, const double *restrict given,
                        size_t n, int32_t *restrict keys)
{
    const struct limits l = *limits;
    int32_t n_wrong = 0;
    for (size_t i = 0; i < n; i++) {
        double v = near[i], inside = v > -N_WHOLE ? v : -N_WHOLE;
        inside = inside < N_WHOLE - 1 ? inside : N_WHOLE - 1;
        int32_t place = (int32_t)((inside + N_WHOLE) * N_CELLS); /* positive: rounded down */
        int32_t whole = (place >> CELL_BITS) - N_WHOLE, cell = place & (N_CELLS - 1);
        double code = whole + l.zero, outcome = given[i] - code + 1;
        int32_t is_below = (v < l.cut_low) & (v > -ND_QUICK_LARGEST);
        int32_t is_above = (v > l.cut_high) & (v < ND_QUICK_LARGEST);
        int32_t is_one = (v > l.low) & (v < l.high) & (code >= l.code_low) & (code < l.code_high) &
                         (outcome >= 0) & (outcome < N_OUTCOMES);
        int32_t is_half = (cell >= N_CELLS / 2 - N_CELLS / 64) & (cell <= N_CELLS / 2 + N_CELLS / 64);
        int32_t is_large = (whole >= 256) | (whole <= -256);
        is_one &= ~(is_half & is_large & l.is_float32_in_doubt);
        n_wrong += (is_below & (given[i] != l.end_codes[0])) | (is_above & (given[i] != l.end_codes[1]));
        int32_t key = (whole < 0 ? N_CELLS : 0) + cell;
        key = is_one ? key * N_OUTCOMES + (int32_t)(is_one ? outcome : 0) : KEY_IN_DOUBT * N_OUTCOMES;
        keys[i] = is_below | is_above ? KEY_CUT_OFF * N_OUTCOMES : key;
    }
    return (size_t)n_wrong;
}

/* open[]: those that have no case yet. How many these are. */
static size_t count_block(struct work *w, const struct limits *limits, const double *near, const double *given,
                          size_t n, uint16_t *open)
{
    int32_t keys[ND_QUICK_BLOCK];
    size_t n_open = 0;
    w->tally->all_wrong += find_keys(limits, near, given, n, keys);
    for (size_t i = 0; i < n; i++) {
        size_t key = (size_t)keys[i] / N_OUTCOMES, outcome = (size_t)keys[i] % N_OUTCOMES,
               class = w->cells->class_of[key];
        bool is_open = class == IN_DOUBT;
        open[n_open] = (uint16_t)i;
        n_open += is_open;
        class = is_open ? CUT_OFF : class;
        w->counts[key >= N_CELLS][class][outcome]++;
    }
    return n_open;
}

/* One that has no case. False: only the exact value decides. */
static bool count_near(struct work *w, double v, double given)
{
    if (!(fabs(v) < ND_QUICK_LARGEST) || fabs(v - w->low) < ND_QUICK_DOUBT ||
        fabs(v - w->high) < ND_QUICK_DOUBT)
        return false;
    if (v < w->low || v > w->high) {
        size_t end = v > w->high;
        if (w->places[end].is_whole) {
            w->tally->all_wrong += given != w->end_codes[end];
            return true;
        }
        v = end == 1 ? w->high : w->low;
    }
    double whole = floor(v), fraction = v - whole, code = whole + w->bounds->zero;
    int is_negative = whole < 0;
    size_t cell = (size_t)(fraction * N_CELLS); /* all of them of what is nearly 0 from below */
    size_t class = cell < N_CELLS ? w->cells->class_of[(size_t)is_negative * N_CELLS + cell] : IN_DOUBT;
    bool is_float32_in_doubt = fabs(whole) >= 256 && fabs(fraction - 0.5) < 0x1p-6;
    if (class == IN_DOUBT || is_float32_in_doubt)
        return false;
    if (code < w->bounds->low || code + 1 > w->bounds->high) {
        if (code + 1 > w->bounds->low && code < w->bounds->high)
            return false; /* at the end of the range */
        double end = code < w->bounds->low ? w->bounds->low : w->bounds->high;
        w->tally->all_wrong += given != end;
        return true;
    }
    double outcome = given - code + 1;
    if (outcome >= 0 && outcome < N_OUTCOMES)
        w->counts[is_negative][class][(size_t)outcome]++;
    else
        w->n_wild++;
    return true;
}

/* Codes of one case, as nd_code_tally_one counts each. */
static void add_case(struct nd_code_tally *tally, const struct nd_code_bounds *bounds,
                     const struct nd_place *place, size_t outcome, uint64_t count)
{
    size_t n;
    const struct nd_program *programs = nd_programs(&n);
    double whole = place->floor + (double)outcome - 1;
    tally->n_open += count;
    for (size_t p = 0; p < n; p++) {
        bool is_up = place->fraction > nd_code_threshold(&programs[p], place);
        double by_program = programs[p].kind == ND_PROGRAM_SINGLE ? nd_round_place(place, programs[p].rounding)
                                                                  : place->floor + (is_up ? 1 : 0);
        if (by_program == whole)
            continue;
        tally->wrong[p] += count;
        tally->far[p] += nd_code_is_close(&programs[p], place, bounds, whole) ? 0 : count;
    }
}

static void add_cases(struct work *w)
{
    struct nd_code_bounds bounds = *w->bounds;
    bounds.zero = 0;
    for (int is_negative = 0; is_negative < 2; is_negative++)
        for (size_t class = 0; class < MOST_CLASSES; class ++)
            for (size_t outcome = 0; outcome < N_OUTCOMES; outcome++) {
                double fraction = w->cells->middle[is_negative][class];
                const struct nd_place place = {
                    .floor = is_negative ? -1 : 0, .fraction = fraction, .half = fraction > 0.5 ? 1 : -1};
                if (w->counts[is_negative][class][outcome] > 0)
                    add_case(w->tally, &bounds, &place, outcome, w->counts[is_negative][class][outcome]);
            }
    w->tally->n_open += w->n_wild;
    w->tally->all_wrong += w->n_wild;
}

void nd_code_cells_add(struct nd_code_tally *tally, const struct nd_quick *quick,
                       const struct nd_code_bounds *bounds, const double *given)
{
    double near[ND_QUICK_BLOCK];
    uint16_t open[ND_QUICK_BLOCK];
    struct work w = {.tally = tally, .quick = quick, .bounds = bounds, .cells = cells_of(bounds)};
    w.low = quick->kind == ND_QUICK_TABLE ? -HUGE_VAL : quick->low / quick->scale;
    w.high = quick->kind == ND_QUICK_TABLE ? HUGE_VAL : quick->high / quick->scale;
    for (size_t k = 0; k < 2; k++) {
        w.ends[k] = nd_ratio_of(k == 0 ? quick->low : quick->high, quick->scale);
        w.places[k] = nd_place_of(&w.ends[k]);
        w.end_codes[k] = fmin(fmax(w.places[k].floor + bounds->zero, bounds->low), bounds->high);
    }
    const struct limits limits = limits_of(&w);
    for (size_t first = 0; first < quick->n; first += ND_QUICK_BLOCK) {
        size_t n = quick->n - first < ND_QUICK_BLOCK ? quick->n - first : ND_QUICK_BLOCK;
        nd_quick_near_unbounded(quick, first, n, near);
        size_t n_open = w.cells != NULL ? count_block(&w, &limits, near, given + first, n, open) : 0;
        for (size_t k = 0; k < n_open; k++)
            if (!count_near(&w, near[open[k]], given[first + open[k]]))
                count_exactly(&w, first + open[k], given[first + open[k]]);
        for (size_t i = 0; i < n && w.cells == NULL; i++)
            count_exactly(&w, first + i, given[first + i]);
    }
    for (size_t k = 0; k < N_REMEMBERED; k++)
        if (w.remembered[k].count > 0)
            settle(&w, &w.remembered[k]);
    if (w.cells != NULL)
        add_cases(&w);
}
