/* Axes and channels in another order. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "explain/diagnosis/look.h"

/* More axes than MAX_AXES make too many orders. A plane, the elements of a channel, must have something to
 * recognise it by. Chosen. */
enum { MAX_AXES = 5, MIN_PLANE = 4, MAX_CHANNELS = 8192 };

int nd_long_axes(const struct nd_shape *shape, int out[ND_MAX_RANK])
{
    int n = 0;
    for (int k = 0; k < shape->rank; k++)
        if (shape->dims[k] > 1)
            out[n++] = k;
    return n;
}

/* The quantised value; where the device's arithmetic makes single steps besides, those next to it, too. */
static struct nd_span around(const struct nd_look *look, const struct nd_fault *f, double qvalue)
{
    return (struct nd_span){!isnan(qvalue), nd_clip(look, qvalue - f->room), nd_clip(look, qvalue + f->room)};
}

/* ---- axes ---- */

struct order {
    int axes[ND_MAX_RANK]; /* those that are longer than 1, as they lie in memory */
    int n;
};

/* The tensor was written with its axes in another order and is read as if it were not. Unlike moved.c this asks
 * for no equal bits, so that it works over the device's own rounding. */
static struct nd_span predict_axes(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    const struct order *order = f->data;
    const struct nd_shape *shape = &look->e->shape;
    size_t place[ND_MAX_RANK] = {0}, from = 0;
    for (int k = order->n - 1; k >= 0; k--) {
        size_t dim = (size_t)shape->dims[order->axes[k]];
        place[order->axes[k]] = j % dim;
        j /= dim;
    }
    for (int k = 0; k < shape->rank; k++)
        from = from * (size_t)shape->dims[k] + place[k];
    return around(look, f, look->e->expected[s * look->e->n + from]);
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

/* Several orders that explain the values equally cannot be told apart: the finding must not pick one. */
static void try_axes(const struct nd_look *look, double room)
{
    struct order order;
    struct nd_fault f = nd_fault_of(ND_FAULT_AXIS_PERMUTATION, 0, predict_axes);
    struct nd_few few = nd_few_far(look);
    size_t n_found = 0, at_first = look->out->n;
    char first[64] = "";
    order.n = nd_long_axes(&look->e->shape, order.axes);
    f.data = &order;
    f.room = room;
    while (order.n <= MAX_AXES && next_permutation(order.axes, order.n)) {
        char text[64] = "";
        for (int k = 0, at = 0; k < order.n; k++)
            at += snprintf(text + at, sizeof text - (size_t)at, k == 0 ? "%d" : ", %d", order.axes[k]);
        if (!nd_is_worth_trying(look, &f, &few) ||
            !nd_try(look, &f, "bytes of the axes in the order %s are read as unpermuted%s", text,
                    room > 0 ? "; single steps besides" : ""))
            continue;
        if (n_found++ == 0)
            memcpy(first, text, sizeof first);
    }
    if (n_found > 1 && at_first < ND_MAX_FINDINGS)
        snprintf(
            look->out->items[at_first].text, sizeof look->out->items[at_first].text,
            "axes are permuted; %zu orders explain the values equally, one is %s: which it is cannot be told",
            n_found, first);
}

void nd_try_axes(const struct nd_look *look)
{
    size_t n_before = look->out->n;
    try_axes(look, 0);
    if (look->criteria->is_room_for_steps && look->out->n == n_before && n_before == 0 &&
        nd_has_far_qvalues(look))
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
