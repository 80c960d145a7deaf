/* Counting which arithmetics give a quantised value. Most quantised values are the nearest, of a value that is
 * far from a tie: then nothing is to be counted for the arithmetics that round to the nearest. */
#include "explain/evaluate/qvalue_tally.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "arithmetic/exact/linear/quick.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/memory.h"

/* Counting which arithmetics give the quantised values of one layer, many at once. code_tally.c counts one by
 * one, and its way decides: both give the same numbers. */

struct nd_qvalue_bounds {
    double zero, low, high;
};

/* ---- code_tally.c ---- */

/* ---- code_tally.c ---- */

static void nd_qvalue_cells_add(struct nd_qvalue_tally *tally, const struct nd_quick *quick,
                                const struct nd_qvalue_bounds *bounds, const double *given);

size_t nd_rounding_rule_half_even(void)
{
    size_t n, p = 0;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    while (p + 1 < n &&
           (arithmetics[p].kind != ND_ROUNDED_ONCE || arithmetics[p].rounding != ND_ROUND_HALF_EVEN))
        p++;
    return p;
}

/* Between these fractions arithmetics that round to the nearest differ among themselves: ties, the step of
 * double rounding with 1 bit and more, and what float32 loses of values below 2^15. */
static const double nearest_low = 0.24, nearest_high = 0.76, largest_safe = 0x1p15;

/* What arithmetic in float32 may move v by, in steps: it cannot be told from exact arithmetic there. Sums pass
 * through values of the order of the type's range. */
static double nd_qvalue_float_doubt(const struct nd_qvalue_bounds *bounds)
{
    return 0x1p-16 + (bounds->high - bounds->low) * 0x1p-18;
}

static bool is_nearest(const struct nd_rounding_rule *arithmetic)
{
    return arithmetic->kind != ND_ROUNDED_ONCE || arithmetic->rounding <= ND_ROUND_HALF_DOWN;
}

/* The fraction from which on the arithmetic rounds up; 0 for those whose thresholds are whole numbers. Rounding
 * twice goes away from zero. */
static double nd_qvalue_threshold(const struct nd_rounding_rule *arithmetic, const struct nd_place *place)
{
    double step = ldexp(1, -arithmetic->n_bits - 1);
    if (arithmetic->kind == ND_ROUNDED_TWICE)
        return place->floor < 0 ? 0.5 + step : 0.5 - step;
    return is_nearest(arithmetic) ? 0.5 : 0;
}

/* Whether v moved a little gives the whole number. */
static bool nd_qvalue_is_close(const struct nd_rounding_rule *arithmetic, const struct nd_place *place,
                               const struct nd_qvalue_bounds *bounds, double given)
{
    double doubt = nd_qvalue_float_doubt(bounds), whole = given - bounds->zero;
    double threshold = nd_qvalue_threshold(arithmetic, place);
    if (threshold > 0)
        return fabs(place->fraction - threshold) <= doubt &&
               (whole == place->floor || whole == place->floor + 1);
    double nearest = place->floor + (place->fraction > 0.5 ? 1 : 0);
    return fmin(place->fraction, 1 - place->fraction) <= doubt && fabs(whole - nearest) <= 1;
}

static double clip(const struct nd_qvalue_bounds *bounds, double whole)
{
    return fmin(fmax(whole + bounds->zero, bounds->low), bounds->high);
}

/* Quantised values of one exact value: so many of them are `given`. */
static void nd_qvalue_tally_many(struct nd_qvalue_tally *tally, const struct nd_ratio *v,
                                 const struct nd_place *at, const struct nd_qvalue_bounds *bounds, double given,
                                 uint64_t count)
{
    size_t n;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    if (nd_ratio_is_nan(v)) {
        tally->n_nan += count;
        return;
    }
    const struct nd_place place = *at;
    double low = clip(bounds, place.floor), high = clip(bounds, place.floor + 1);
    if (place.is_whole || low == high) {
        tally->all_wrong += given != low ? count : 0;
        return;
    }
    tally->n_open += count;
    if (given < low - 1 || given > high + 1) {
        tally->all_wrong += count;
        return;
    }
    bool is_far_from_tie =
        (place.fraction < nearest_low || place.fraction > nearest_high) && fabs(place.floor) < largest_safe;
    bool is_nearest_right = is_far_from_tie && given == (place.fraction > 0.5 ? high : low);
    for (size_t p = 0; p < n; p++) {
        bool is_given = is_nearest_right && is_nearest(&arithmetics[p]);
        if (is_given || clip(bounds, nd_rounding_rule_round(&arithmetics[p], v, &place)) == given)
            continue;
        tally->wrong[p] += count;
        tally->far[p] += nd_qvalue_is_close(&arithmetics[p], &place, bounds, given) ? 0 : count;
    }
}

void nd_qvalue_tally_add(struct nd_qvalue_tally *tally, const struct nd_exact_values *values,
                         const double *given)
{
    struct nd_qvalue_bounds bounds;
    nd_qvalue_range(values->dtype, &bounds.low, &bounds.high);
    if (values->quick != NULL) {
        bounds.zero = (double)values->quant->zero_point[0];
        nd_qvalue_cells_add(tally, values->quick, &bounds, given);
        return;
    }
    for (size_t i = 0; i < values->n; i++) {
        size_t channel = nd_exact_channel(values->quant, values->shape, i);
        bounds.zero = (double)values->quant->zero_point[channel];
        const struct nd_place place = nd_place_of(&values->v[i]);
        nd_qvalue_tally_many(tally, &values->v[i], &place, &bounds, given[i], 1);
    }
}

void nd_qvalue_tally_merge(const struct nd_qvalue_tally *from, struct nd_qvalue_tally *to)
{
    to->n_nan += from->n_nan;
    to->n_open += from->n_open;
    to->all_wrong += from->all_wrong;
    for (size_t p = 0; p < ND_MAX_ARITHMETICS; p++) {
        to->wrong[p] += from->wrong[p];
        to->far[p] += from->far[p];
    }
}

void nd_qvalue_tally_finish(struct nd_qvalue_tally *tally)
{
    for (size_t p = 0; p < ND_MAX_ARITHMETICS; p++) {
        tally->wrong[p] += tally->all_wrong;
        tally->far[p] += tally->all_wrong;
    }
    tally->all_wrong = 0;
}

/* Most values lie between two thresholds of arithmetics, and not beside one: all values between the same two
 * are one case, and are counted together. A cell is a range of fractions, small enough that few hold a
 * threshold. */
enum {
    N_CELLS = 1 << 14, /* chosen: about 60 of them hold a threshold */
    IN_DOUBT = 255,
    MAX_CLASSES = 128,
    N_OUTCOMES = ND_CASE_OUTCOMES, /* floor - 1, floor, floor + 1, floor + 2 */
    N_BANKS = 2
};

/* Keys are cells of both signs, and behind them what is no cell; CUT_OFF is a class of no cell. */
enum { N_KEYS = 2 * N_CELLS, KEY_CUT_OFF = N_KEYS, KEY_IN_DOUBT, CUT_OFF = MAX_CLASSES, N_CLASSES };

struct cells {
    unsigned char class_of[N_KEYS + 2]; /* those of negative values in the second half */
    double middle[2][MAX_CLASSES];      /* a fraction of the class */
};

struct thresholds {
    size_t n;
    double x[MAX_CLASSES];
};

/* In order, each once. */
static void add_threshold(struct thresholds *t, double x)
{
    size_t at = 0;
    while (at < t->n && t->x[at] < x)
        at++;
    if (x < 0 || x > 1 || t->n == MAX_CLASSES || (at < t->n && t->x[at] == x))
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

static void make_side(struct cells *cells, int is_negative, const struct nd_qvalue_bounds *bounds)
{
    size_t n, k = 0;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    const struct nd_place place = {.floor = is_negative ? -1 : 0};
    struct thresholds t = {.n = 0};
    double doubt = nd_qvalue_float_doubt(bounds);
    add_around(&t, 0, doubt);
    add_around(&t, 0.5, doubt);
    add_around(&t, 1, doubt);
    for (size_t p = 0; p < n; p++)
        add_around(&t, nd_qvalue_threshold(&arithmetics[p], &place), doubt);
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
    const struct nd_qvalue_bounds bounds[] = {{0, 0, UINT8_MAX}, {0, 0, UINT16_MAX}};
    for (size_t i = 0; i < 2; i++)
        for (int is_negative = 0; is_negative < 2; is_negative++)
            make_side(&all.cells[i], is_negative, &bounds[i]);
}

/* NULL: quantised values of another width. */
static const struct cells *cells_of(const struct nd_qvalue_bounds *bounds)
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

/* The quantised values of one layer at work. */
struct work {
    struct nd_qvalue_tally *tally;
    const struct nd_quick *quick;
    const struct nd_qvalue_bounds *bounds;
    const struct cells *cells;
    double low, high;        /* bounds of the layer, in steps of the output */
    struct nd_ratio ends[2]; /* the same, exactly */
    struct nd_place places[2];
    double end_qvalues[2]; /* where places are whole */
    uint32_t counts[N_BANKS][2][N_CLASSES]
                   [N_OUTCOMES]; /* to be added up: neighbours wait less for each other */
    uint64_t n_wild;             /* open, and not even near */
    struct remembered remembered[N_REMEMBERED], *last;
    size_t line_begin, line_end; /* elements that follow each other in one line: */
    double line;
};

static void settle(struct work *w, struct remembered *r)
{
    const struct nd_place place = nd_place_of(&r->v);
    nd_qvalue_tally_many(w->tally, &r->v, &place, w->bounds, r->operands.given, r->count);
    r->count = 0;
}

/* The line of an element; neighbours mostly have the same one, so that nothing is divided for them. */
static double line_of(struct work *w, size_t i)
{
    const struct nd_quick *quick = w->quick;
    if (i < w->line_begin || i >= w->line_end) {
        w->line_begin = i - i % quick->n_inner;
        w->line_end = w->line_begin + quick->n_inner;
        w->line = (double)(i / quick->n_inner % quick->n_lines);
    }
    return w->line;
}

static struct remembered *place_of(struct work *w, const struct operands *operands)
{
    uint64_t bits[3];
    memcpy(bits, operands, sizeof bits);
    uint64_t hash = bits[0] * 0x9e3779b97f4a7c15 + bits[1] * 0xc2b2ae3d27d4eb4f + bits[2] * 0x165667b19e3779f9;
    return &w->remembered[(hash ^ (hash >> 32)) * 0x9e3779b97f4a7c15 >> (64 - REMEMBERED_BITS)];
}

static bool are_same(const struct operands *a, const struct operands *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void count_exactly(struct work *w, size_t i, double given)
{
    const struct nd_quick *quick = w->quick;
    double y = quick->kind == ND_QUICK_LINE ? line_of(w, i) : quick->y != NULL ? quick->y[i] : 0;
    const struct operands operands = {quick->x[i], y, given};
    struct remembered *r = w->last;
    if (r == NULL || !are_same(&r->operands, &operands))
        r = w->last = place_of(w, &operands);
    if (r->count == 0 || !are_same(&r->operands, &operands)) {
        if (r->count > 0)
            settle(w, r);
        r->operands = operands;
        r->v = nd_quick_exact(quick, i);
    }
    r->count++;
}

/* ---- many at once ---- */

enum { N_WHOLE = 1 << 16 }; /* values are told apart up to that magnitude */

static struct nd_case_limits limits_of(const struct work *w)
{
    /* float32 moves large values of 16 bits across a half from further off than a cell */
    bool is_float32_in_doubt = w->bounds->high - w->bounds->low > UINT8_MAX;
    return (struct nd_case_limits){
        .n_cells = N_CELLS,
        .n_whole = N_WHOLE,
        .cut_low = w->places[0].is_whole ? w->low - ND_QUICK_DOUBT : -ND_QUICK_LARGEST,
        .cut_high = w->places[1].is_whole ? w->high + ND_QUICK_DOUBT : ND_QUICK_LARGEST,
        .largest = ND_QUICK_LARGEST,
        .low = fmax(w->low + ND_QUICK_DOUBT, -N_WHOLE),
        .high = fmin(w->high - ND_QUICK_DOUBT, N_WHOLE),
        .qvalue_low = w->bounds->low,
        .qvalue_high = w->bounds->high,
        .zero = w->bounds->zero,
        .end_qvalues = {w->end_qvalues[0], w->end_qvalues[1]},
        .large = is_float32_in_doubt ? 256 : HUGE_VAL,
        .half_low = N_CELLS / 2 - N_CELLS / 64,
        .half_high = N_CELLS / 2 + N_CELLS / 64};
}

/* open[]: those that have no case yet. How many these are. */
static size_t count_block(struct work *w, const struct nd_case_limits *limits, const struct nd_pairs *block,
                          uint16_t *open)
{
    int32_t keys[ND_QUICK_BLOCK];
    size_t n_open = 0, n = block->n;
    w->tally->all_wrong += nd_gemm_kernels()->find_cases(limits, block, keys);
    for (size_t i = 0; i < n; i++) {
        size_t key = (size_t)keys[i] / N_OUTCOMES, outcome = (size_t)keys[i] % N_OUTCOMES,
               class = w->cells->class_of[key];
        bool is_open = class == IN_DOUBT;
        open[n_open] = (uint16_t)i;
        n_open += is_open;
        class = is_open ? CUT_OFF : class;
        w->counts[i % N_BANKS][key >= N_CELLS][class][outcome]++;
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
            w->tally->all_wrong += given != w->end_qvalues[end];
            return true;
        }
        v = end == 1 ? w->high : w->low;
    }
    double whole = floor(v), fraction = v - whole, qvalue = whole + w->bounds->zero;
    int is_negative = whole < 0;
    size_t cell = (size_t)(fraction * N_CELLS); /* all of them of what is nearly 0 from below */
    size_t class = cell < N_CELLS ? w->cells->class_of[(size_t)is_negative * N_CELLS + cell] : IN_DOUBT;
    bool is_float32_in_doubt = fabs(whole) >= 256 && fabs(fraction - 0.5) < 0x1p-6;
    if (class == IN_DOUBT || is_float32_in_doubt)
        return false;
    if (qvalue < w->bounds->low || qvalue + 1 > w->bounds->high) {
        if (qvalue + 1 > w->bounds->low && qvalue < w->bounds->high)
            return false; /* at the end of the range */
        double end = qvalue < w->bounds->low ? w->bounds->low : w->bounds->high;
        w->tally->all_wrong += given != end;
        return true;
    }
    double outcome = given - qvalue + 1;
    if (outcome >= 0 && outcome < N_OUTCOMES)
        w->counts[0][is_negative][class][(size_t)outcome]++;
    else
        w->n_wild++;
    return true;
}

/* Quantised values of one case, as nd_code_tally_one counts each. */
static void add_case(struct nd_qvalue_tally *tally, const struct nd_qvalue_bounds *bounds,
                     const struct nd_place *place, size_t outcome, uint64_t count)
{
    size_t n;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    double whole = place->floor + (double)outcome - 1;
    tally->n_open += count;
    for (size_t p = 0; p < n; p++) {
        bool is_up = place->fraction > nd_qvalue_threshold(&arithmetics[p], place);
        double by_arithmetic = arithmetics[p].kind == ND_ROUNDED_ONCE
                                   ? nd_round_place(place, arithmetics[p].rounding)
                                   : place->floor + (is_up ? 1 : 0);
        if (by_arithmetic == whole)
            continue;
        tally->wrong[p] += count;
        tally->far[p] += nd_qvalue_is_close(&arithmetics[p], place, bounds, whole) ? 0 : count;
    }
}

static void add_cases(struct work *w)
{
    struct nd_qvalue_bounds bounds = *w->bounds;
    bounds.zero = 0;
    for (int is_negative = 0; is_negative < 2; is_negative++)
        for (size_t class = 0; class < MAX_CLASSES; class ++)
            for (size_t outcome = 0; outcome < N_OUTCOMES; outcome++) {
                double fraction = w->cells->middle[is_negative][class];
                const struct nd_place place = {
                    .floor = is_negative ? -1 : 0, .fraction = fraction, .half = fraction > 0.5 ? 1 : -1};
                uint64_t count = 0;
                for (size_t bank = 0; bank < N_BANKS; bank++)
                    count += w->counts[bank][is_negative][class][outcome];
                if (count > 0)
                    add_case(w->tally, &bounds, &place, outcome, count);
            }
    w->tally->n_open += w->n_wild;
    w->tally->all_wrong += w->n_wild;
}

/* ---- of few values ---- */

/* What hands on quantised values has so few values that each is worked out once for each quantised value that
 * the device has there. Layers of fewer elements are not worth the table; chosen. */
enum { MIN_OF_PAIRS = 1 << 14, N_QVALUES = UINT8_MAX + 1, N_VALUES = 2 * ND_KEY_LARGEST + 1 };

/* counts[N_VALUES * N_CODES], zeros before. False: there are other values. */
static bool count_pairs(const struct nd_quick *quick, double low, const double *given, uint32_t *counts)
{
    uint32_t keys[ND_QUICK_BLOCK];
    for (size_t first = 0; first < quick->n; first += ND_QUICK_BLOCK) {
        size_t n = quick->n - first < ND_QUICK_BLOCK ? quick->n - first : ND_QUICK_BLOCK;
        const struct nd_pairs pairs = {quick->x + first, given + first, n};
        if (!nd_gemm_kernels()->pair_keys(&pairs, low, keys))
            return false;
        for (size_t i = 0; i < n; i++)
            counts[keys[i]]++;
    }
    return true;
}

static void settle_pairs(struct nd_qvalue_tally *tally, const struct nd_quick *quick,
                         const struct nd_qvalue_bounds *bounds, const uint32_t *counts)
{
    for (size_t row = 0; row < N_VALUES; row++) {
        const double x = (double)row - ND_KEY_LARGEST;
        struct nd_quick one = *quick;
        one.x = &x;
        const struct nd_ratio v = nd_quick_exact(&one, 0);
        const struct nd_place place = nd_place_of(&v);
        for (size_t column = 0; column < N_QVALUES; column++)
            if (counts[row * N_QVALUES + column] > 0)
                nd_qvalue_tally_many(tally, &v, &place, bounds, (double)column + bounds->low,
                                     counts[row * N_QVALUES + column]);
    }
}

/* False: nothing was added. */
static bool add_pairs(struct nd_qvalue_tally *tally, const struct nd_quick *quick,
                      const struct nd_qvalue_bounds *bounds, const double *given)
{
    if (quick->kind != ND_QUICK_LINE || quick->n_lines != 1 || quick->n < MIN_OF_PAIRS ||
        quick->n > UINT32_MAX || bounds->high - bounds->low != UINT8_MAX)
        return false;
    const struct nd_pairs few = {quick->x, given, ND_QUICK_BLOCK};
    uint32_t keys[ND_QUICK_BLOCK];
    if (!nd_gemm_kernels()->pair_keys(&few, bounds->low, keys))
        return false; /* sums of products, mostly */
    ND_FREED uint32_t *counts = nd_calloc((size_t)N_VALUES * N_QVALUES, sizeof *counts);
    bool is_counted = counts != NULL && count_pairs(quick, bounds->low, given, counts);
    if (is_counted)
        settle_pairs(tally, quick, bounds, counts);
    return is_counted;
}

/* Adds all codes: given[quick->n] are the device's. */
static void nd_qvalue_cells_add(struct nd_qvalue_tally *tally, const struct nd_quick *quick,
                                const struct nd_qvalue_bounds *bounds, const double *given)
{
    double near[ND_QUICK_BLOCK];
    uint16_t open[ND_QUICK_BLOCK];
    if (add_pairs(tally, quick, bounds, given))
        return;
    struct work w = {.tally = tally, .quick = quick, .bounds = bounds, .cells = cells_of(bounds)};
    w.low = quick->kind == ND_QUICK_TABLE ? -HUGE_VAL : quick->low / quick->scale;
    w.high = quick->kind == ND_QUICK_TABLE ? HUGE_VAL : quick->high / quick->scale;
    for (size_t k = 0; k < 2; k++) {
        w.ends[k] = nd_ratio_of(k == 0 ? quick->low : quick->high, quick->scale);
        w.places[k] = nd_place_of(&w.ends[k]);
        w.end_qvalues[k] = fmin(fmax(w.places[k].floor + bounds->zero, bounds->low), bounds->high);
    }
    const struct nd_case_limits limits = limits_of(&w);
    for (size_t first = 0; first < quick->n; first += ND_QUICK_BLOCK) {
        size_t n = quick->n - first < ND_QUICK_BLOCK ? quick->n - first : ND_QUICK_BLOCK;
        nd_quick_near_unbounded(quick, first, n, near);
        const struct nd_pairs block = {near, given + first, n};
        size_t n_open = w.cells != NULL ? count_block(&w, &limits, &block, open) : 0;
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
