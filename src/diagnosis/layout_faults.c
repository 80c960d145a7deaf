/* Axes and channels in another order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "diagnosis/diagnosis_parts.h"

#include <math.h>

/* A plane, the elements of a channel, must have something to recognise it by. */
enum { MAX_AXES = 5, MIN_PLANE = 4, MAX_CHANNELS = 8192 };

int nd_doctor_long_axes(const struct nd_shape *shape, int out[ND_MAX_RANK])
{
    int n = 0;
    for (int k = 0; k < shape->rank; k++) {
        if (shape->dims[k] > 1)
            out[n++] = k;
    }
    return n;
}

/* The code; where the device's arithmetic makes single steps besides, those next to it, too. */
static struct nd_doctor_span around(const struct nd_doctor *d, const struct nd_doctor_fault *f, double code)
{
    return (struct nd_doctor_span){true, nd_doctor_clip(d, code - f->room), nd_doctor_clip(d, code + f->room)};
}

/* The tensor was written with its axes in the order of the permutation and is read as if it were not. mode: how
 * many axes there are. */
static struct nd_doctor_span predict_axes(const struct nd_doctor *d, const struct nd_doctor_fault *f, size_t s,
                                          size_t j)
{
    const struct nd_shape *shape = &d->e->shape;
    size_t place[ND_MAX_RANK] = {0}, from = 0;
    for (int k = f->mode - 1; k >= 0; k--) {
        size_t dim = (size_t)shape->dims[f->permutation[k]];
        place[f->permutation[k]] = j % dim;
        j /= dim;
    }
    for (int k = 0; k < shape->rank; k++)
        from = from * (size_t)shape->dims[k] + place[k];
    return around(d, f, d->e->expected[s * d->e->n + from]);
}

bool nd_doctor_next_permutation(int *p, int n)
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
static void say_ambiguous(struct nd_doctor *d, const char *first, size_t n_others)
{
    if (n_others > 0 && d->out->best.kind == ND_FAULT_AXIS_PERMUTATION)
        snprintf(
            d->out->best.text, sizeof d->out->best.text,
            "axes are permuted; %zu orders explain the values equally, one is %s: which it is cannot be told",
            n_others + 1, first);
}

static void try_axes(struct nd_doctor *d, double room)
{
    int p[ND_MAX_RANK] = {0};
    int n = nd_doctor_long_axes(&d->e->shape, p);
    size_t n_found = 0;
    char first[64] = "";
    struct nd_doctor_fault f = {.kind = ND_FAULT_AXIS_PERMUTATION,
                                .channel = SIZE_MAX,
                                .axis = -1,
                                .predict = predict_axes,
                                .mode = n,
                                .room = room,
                                .permutation = p};
    while (n <= MAX_AXES && nd_doctor_next_permutation(p, n)) {
        char order[64] = "";
        for (int k = 0, at = 0; k < n; k++)
            at += snprintf(order + at, sizeof order - (size_t)at, k == 0 ? "%d" : ", %d", p[k]);
        if (!nd_doctor_try(d, &f, "bytes of the axes in the order %s are read as unpermuted%s", order,
                           room > 0 ? "; single steps besides" : ""))
            continue;
        if (n_found++ == 0)
            memcpy(first, order, sizeof first);
    }
    say_ambiguous(d, first, n_found > 0 ? n_found - 1 : 0);
}

static struct nd_doctor_span predict_channels(const struct nd_doctor *d, const struct nd_doctor_fault *f,
                                              size_t s, size_t j)
{
    size_t channel = j / f->first % f->end;
    size_t from = j + f->map[channel] * f->first - channel * f->first;
    return around(d, f, d->e->expected[s * d->e->n + from]);
}

/* Does channel `at` hold what channel `from` should? Planes that do not differ in the first few elements. */
static bool is_held(const struct nd_doctor *d, const struct nd_doctor_axis *axis, double room, size_t at,
                    size_t from)
{
    const struct nd_evidence *e = d->e;
    size_t n_seen = 0, n_missed = 0, block = axis->n * axis->inner;
    size_t n_plane = e->n_samples * e->n / axis->n;
    for (size_t start = 0; start < e->n_samples * e->n; start += block) {
        for (size_t k = 0; k < axis->inner; k++, n_seen++) {
            double code = e->codes[start + at * axis->inner + k];
            n_missed += fabs(code - e->expected[start + from * axis->inner + k]) > fmax(room, d->noise);
            if (n_missed * 50 > n_plane || (n_missed >= 4 && n_missed * 4 > n_seen))
                return false;
        }
    }
    return true;
}

/* Channels are known by what they hold; one that holds what it should, or nobody's, stays where it is. *n_alike
 * counts those that hold what several channels should: where these are equal nothing tells which it was. */
static size_t match_channels(const struct nd_doctor *d, const struct nd_doctor_axis *axis, double room,
                             size_t *map, size_t *n_alike)
{
    size_t n_moved = 0;
    *n_alike = 0;
    for (size_t c = 0; c < axis->n; c++) {
        size_t from = 0, other;
        map[c] = c;
        if (is_held(d, axis, room, c, c))
            continue;
        while (from < axis->n && !is_held(d, axis, room, c, from))
            from++;
        if (from == axis->n)
            continue;
        map[c] = from;
        n_moved++;
        for (other = from + 1; other < axis->n && !is_held(d, axis, room, c, other); other++)
            continue;
        *n_alike += other < axis->n;
    }
    return n_moved;
}

static enum nd_status try_channels(struct nd_doctor *d, const struct nd_doctor_axis *axis, double room,
                                   struct nd_error *err)
{
    if (d->e->n_samples * d->e->n / axis->n < MIN_PLANE || axis->n > MAX_CHANNELS)
        return ND_OK;
    size_t *map = nd_calloc(axis->n, sizeof *map), first = 0, n_alike = 0;
    char alike[64] = "";
    if (map == NULL)
        return nd_fail_memory(err);
    size_t n_moved = match_channels(d, axis, room, map, &n_alike);
    while (first + 1 < axis->n && map[first] == first)
        first++;
    struct nd_doctor_fault f = {.kind = ND_FAULT_CHANNEL_PERMUTATION,
                                .channel = SIZE_MAX,
                                .axis = axis->axis,
                                .amount = (double)n_moved,
                                .predict = predict_channels,
                                .first = axis->inner,
                                .end = axis->n,
                                .room = room,
                                .map = map};
    if (n_alike > 0)
        snprintf(alike, sizeof alike, "; %zu of them fit several equal channels", n_alike);
    if (n_moved > 0)
        nd_doctor_try(d, &f, "%zu channels hold others' codes: channel %zu that of %zu%s%s", n_moved, first,
                      map[first], alike, room > 0 ? "; single steps besides" : "");
    free(map);
    return ND_OK;
}

static enum nd_status try_all(struct nd_doctor *d, double room, struct nd_error *err)
{
    struct nd_doctor_axis axes[ND_DOCTOR_AXES];
    size_t n_axes = nd_doctor_axes(d, axes);
    try_axes(d, room);
    enum nd_status status = ND_OK;
    for (size_t a = 0; a < n_axes && status == ND_OK; a++)
        status = try_channels(d, &axes[a], room, err);
    return status;
}

enum nd_status nd_doctor_try_layouts(struct nd_doctor *d, struct nd_error *err)
{
    bool was_found = d->out->is_found;
    enum nd_status status = try_all(d, 0, err);
    if (status == ND_OK && !was_found && !d->out->is_found && nd_doctor_is_far_off(d))
        status = try_all(d, 1, err);
    return status;
}
