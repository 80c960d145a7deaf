/* Axes and channels in another order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/strbuf.h"
#include "explain/diagnosis/look.h"

/* The right values of a sample at other places of it. */

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

/* More axes than MAX_AXES make too many orders. A plane, the elements of a channel, must have something to
 * recognise it by. Chosen. */
enum { MAX_AXES = 5, MIN_PLANE = 4, MAX_CHANNELS = 8192 };

/* The quantised value; where the device's arithmetic makes single steps besides, those next to it, too. */
static struct nd_span around(const struct nd_look *look, const struct nd_fault *f, double qvalue)
{
    return (struct nd_span){!isnan(qvalue), nd_clip(look, qvalue - f->room), nd_clip(look, qvalue + f->room)};
}

/* ---- axes ---- */

enum { MAX_PARTS = MAX_AXES + 1, NAME_BYTES = 64 };

/* The axes that are longer than 1, as they lie in memory. One of them may be two: blocks, and what lies in a
 * block. */
struct order {
    int parts[MAX_PARTS], n;
    size_t dims[MAX_PARTS], strides[MAX_PARTS]; /* of the parts, in the tensor as it should be */
    int names[MAX_PARTS];                       /* axes */
    int block; /* the part that lies in a block of the part before it; 0: none */
};

enum { WRITTEN_SO, READ_SO };

/* The tensor was written with its axes in another order and is read as if it were not; or the reverse. Unlike
 * those this asks for no equal bits, so that it works over the device's own rounding. */
static struct nd_span predict_axes(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    const struct order *order = f->data;
    size_t from = 0, stride = 1;
    for (int k = order->n - 1; k >= 0; k--) {
        int part = order->parts[k];
        size_t dim = order->dims[part], own = order->strides[part];
        from += f->mode == WRITTEN_SO ? j / stride % dim * own : j / own % dim * stride;
        stride *= dim;
    }
    return around(look, f, look->e->expected[s * look->e->n + from]);
}

/* The parts in their own order; false: they are too many, or there are no such blocks. */
static bool list_parts(const struct nd_shape *shape, int axis, size_t block, struct order *order)
{
    size_t stride = 1;
    *order = (struct order){0};
    for (int k = 0; k < shape->rank; k++)
        stride *= (size_t)shape->dims[k];
    for (int k = 0; k < shape->rank; k++) {
        size_t dim = (size_t)shape->dims[k], inner = k == axis ? block : 1, dims[2] = {dim / inner, inner};
        if (dim % inner != 0 || (k == axis && dims[0] < 2))
            return false;
        for (int part = 0; part < 2; part++) {
            stride /= dims[part];
            if (dims[part] < 2)
                continue;
            if (order->n == (axis < 0 ? MAX_AXES : MAX_PARTS))
                return false;
            order->block = part == 1 ? order->n : order->block;
            order->parts[order->n] = order->n;
            order->names[order->n] = k;
            order->dims[order->n] = dims[part];
            order->strides[order->n++] = stride;
        }
    }
    return true;
}

/* "1, 3, 2"; false: a block follows its axis, so that there is none. */
static bool name_order(const struct order *order, char text[NAME_BYTES])
{
    for (int k = 0, at = 0; k < order->n; k++) {
        bool is_block = order->block > 0 && order->parts[k] == order->block;
        if (is_block && k > 0 && order->parts[k - 1] == order->block - 1)
            return false;
        at += snprintf(text + at, NAME_BYTES - (size_t)at, k == 0 ? "" : ", ");
        at += is_block ? snprintf(text + at, NAME_BYTES - (size_t)at, "block")
                       : snprintf(text + at, NAME_BYTES - (size_t)at, "%d", order->names[order->parts[k]]);
    }
    return true;
}

/* The next order of n numbers in lexicographic order; false after the last. */
static bool next_permutation(int *p, int n)
{
    int i = n - 2, j = n - 1;
    while (i >= 0 && p[i] > p[i + 1])
        i--;
    if (i < 0)
        return false;
    while (p[j] < p[i])
        j--;
    int swapped = p[i];
    p[i] = p[j];
    p[j] = swapped;
    for (int a = i + 1, b = n - 1; a < b; a++, b--) {
        swapped = p[a];
        p[a] = p[b];
        p[b] = swapped;
    }
    return true;
}

static bool try_order(const struct nd_look *look, const struct nd_fault *f, const char *name)
{
    const struct order *order = f->data;
    const char *besides = f->room > 0 ? "; single steps besides" : "";
    bool is_written = f->mode == WRITTEN_SO;
    bool is_nc1hwc2 = strcmp(name, "1, 2, 3, block") == 0 || strcmp(name, "3, 1, 2, block") == 0;
    char blocks[NAME_BYTES] = "";
    if (order->block > 0)
        snprintf(blocks, sizeof blocks, "in blocks of %zu along axis %d%s", order->dims[order->block],
                 order->names[order->block], is_nc1hwc2 ? " (NC1HWC2)" : "");
    if (order->block > 0)
        return is_written
                   ? nd_try(look, f, "bytes %s, in the order %s, are read as unblocked%s", blocks, name,
                            besides)
                   : nd_try(look, f, "unblocked bytes are read %s, in the order %s%s", blocks, name, besides);
    return is_written
               ? nd_try(look, f, "bytes of the axes in the order %s are read as unpermuted%s", name, besides)
               : nd_try(look, f, "unpermuted bytes are read as axes in the order %s%s", name, besides);
}

/* Several orders that explain the values equally cannot be told apart: the finding must not pick one. */
static bool try_orders(const struct nd_look *look, const struct nd_few *few, struct order order,
                       struct nd_fault f)
{
    size_t n_found = 0, at_first = look->out->n;
    char first[NAME_BYTES] = "", name[NAME_BYTES];
    for (f.data = &order; next_permutation(order.parts, order.n);) {
        if (!name_order(&order, name) || !nd_is_worth_trying(look, &f, few) || !try_order(look, &f, name))
            continue;
        if (n_found++ == 0)
            memcpy(first, name, sizeof first);
    }
    if (n_found > 1 && at_first < ND_MAX_FINDINGS)
        snprintf(
            look->out->items[at_first].text, sizeof look->out->items[at_first].text,
            "axes are permuted; %zu orders explain the values equally, one is %s: which it is cannot be told",
            n_found, first);
    return n_found > 0;
}

/* What is written so and what is read so may be one and the same where axes are equally long. */
static bool try_both_ways(const struct nd_look *look, int axis, size_t block, double room)
{
    struct nd_few few = nd_few_far(look);
    struct nd_fault f = nd_fault_of(ND_FAULT_AXIS_PERMUTATION, 0, predict_axes);
    struct order order;
    f.room = room;
    if (!list_parts(&look->e->shape, axis, block, &order))
        return false;
    for (f.mode = WRITTEN_SO; f.mode <= READ_SO; f.mode++)
        if (try_orders(look, &few, order, f))
            return true;
    return false;
}

/* Whole axes, then blocks of channels as NPUs store them (NC1HWC2: the axes in the order 1, 2, 3, block). */
static bool try_axes(const struct nd_look *look, double room)
{
    static const size_t blocks[] = {4, 8, 16, 32, 64};
    struct nd_axis axes[ND_CHANNEL_AXES];
    size_t n_axes = nd_channel_axes(look, axes);
    bool is_found = try_both_ways(look, -1, 1, room);
    for (size_t a = 0; a < n_axes && !is_found; a++)
        for (size_t b = 0; b < sizeof blocks / sizeof blocks[0] && !is_found; b++)
            is_found = try_both_ways(look, axes[a].axis, blocks[b], room);
    return is_found;
}

void nd_try_axes(const struct nd_look *look)
{
    bool was_found = nd_is_found(look);
    if (!try_axes(look, 0) && look->criteria->is_room_for_steps && !was_found && nd_has_far_qvalues(look))
        try_axes(look, 1);
}

/* ---- channels ---- */

static struct nd_span predict_channels(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    size_t channel = j / f->first % f->end;
    size_t from = j + ((const size_t *)f->data)[channel] * f->first - channel * f->first;
    return around(look, f, look->e->expected[s * look->e->n + from]);
}

/* Does channel `at` hold what channel `from` should? Planes that do not differ in the first few elements. */
static bool is_held(const struct nd_look *look, const struct nd_axis *axis, double room, size_t at, size_t from)
{
    const struct nd_evidence *e = look->e;
    size_t n_seen = 0, n_missed = 0, block = axis->n * axis->inner;
    size_t n_plane = e->n_samples * e->n / axis->n;
    for (size_t start = 0; start < e->n_samples * e->n; start += block) {
        for (size_t k = 0; k < axis->inner; k++, n_seen++) {
            double qvalue = e->captured[start + at * axis->inner + k];
            n_missed += fabs(qvalue - e->expected[start + from * axis->inner + k]) > fmax(room, look->noise);
            if (n_missed * 50 > n_plane || (n_missed >= 4 && n_missed * 4 > n_seen))
                return false;
        }
    }
    return true;
}

/* Channels are known by what they hold; one that holds what it should, or nobody's, stays where it is. *n_alike
 * counts those that hold what several channels should: where these are equal nothing tells which it was. */
static size_t match_channels(const struct nd_look *look, const struct nd_axis *axis, double room, size_t *map,
                             size_t *n_alike)
{
    size_t n_moved = 0;
    *n_alike = 0;
    for (size_t c = 0; c < axis->n; c++) {
        size_t from = 0, other;
        map[c] = c;
        if (is_held(look, axis, room, c, c))
            continue;
        while (from < axis->n && !is_held(look, axis, room, c, from))
            from++;
        if (from == axis->n)
            continue;
        map[c] = from;
        n_moved++;
        for (other = from + 1; other < axis->n && !is_held(look, axis, room, c, other); other++)
            continue;
        *n_alike += other < axis->n;
    }
    return n_moved;
}

static void try_channels(const struct nd_look *look, const struct nd_axis *axis, double room)
{
    size_t *map = (size_t *)look->scratch, first = 0, n_alike = 0;
    if (look->n_total / axis->n < MIN_PLANE || axis->n > MAX_CHANNELS)
        return;
    size_t n_moved = match_channels(look, axis, room, map, &n_alike);
    while (first + 1 < axis->n && map[first] == first)
        first++;
    struct nd_fault f = nd_fault_of(ND_FAULT_CHANNEL_PERMUTATION, (double)n_moved, predict_channels);
    f.axis = axis->axis;
    f.first = axis->inner;
    f.end = axis->n;
    f.room = room;
    f.data = map;
    char alike[64] = "";
    if (n_alike > 0)
        snprintf(alike, sizeof alike, "; %zu of them fit several equal channels", n_alike);
    if (n_moved > 0)
        nd_try(look, &f, "%zu channels hold the values of other channels: channel %zu those of channel %zu%s%s",
               n_moved, first, map[first], alike, room > 0 ? "; single steps besides" : "");
}

static void try_all_channels(const struct nd_look *look, double room)
{
    struct nd_axis axes[ND_CHANNEL_AXES];
    size_t n_axes = nd_channel_axes(look, axes);
    for (size_t a = 0; a < n_axes; a++)
        try_channels(look, &axes[a], room);
}

void nd_try_channels(const struct nd_look *look)
{
    bool was_found = nd_is_found(look);
    try_all_channels(look, 0);
    if (!was_found && !nd_is_found(look) && nd_has_far_qvalues(look))
        try_all_channels(look, 1);
}
