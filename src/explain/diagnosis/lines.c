/* Lines along an axis (rows, columns, channels) that are one value, or repeat themselves. */
#include <math.h>
#include <stdio.h>

#include "explain/diagnosis/look.h"

/* Chosen: three lines, and one of 64. A single flat row of an image that was resized is seen on healthy
 * devices, and so is one where the reference has flat rows, too. */
enum { MIN_LINE = 8, MAX_LINE = 8192, MIN_LINES = 3, MAX_LINES_TO_ONE = 64, MIN_SLICES = 4 };

/* Elements k = 0 .. n - 1 of a line are at first + k * inner. */
struct axis {
    int number;
    size_t n, inner, n_lines;
};

static size_t line_start(const struct axis *axis, size_t line)
{
    return line / axis->inner * axis->inner * axis->n + line % axis->inner;
}

/* The least number of elements after which the line repeats itself exactly, at most half of it; 0: none. */
static size_t find_period(const double *x, const struct axis *axis, size_t start)
{
    for (size_t p = 1; p * 2 <= axis->n; p++) {
        size_t k = p;
        while (k < axis->n && x[start + k * axis->inner] == x[start + (k - p) * axis->inner])
            k++;
        if (k == axis->n)
            return p;
    }
    return 0;
}

/* The reference moves by more than rounding at that distance, in a quarter of the line or more. */
static bool is_moving(const struct nd_look *look, const struct axis *axis, size_t start, size_t period)
{
    size_t n = 0;
    const double *ref = look->e->expected;
    for (size_t k = period; k < axis->n; k++)
        n += fabs(ref[start + k * axis->inner] - ref[start + (k - period) * axis->inner]) > look->far;
    return n * 4 >= axis->n - period && n >= 2;
}

struct lines {
    size_t n_constant, n_periodic, period, first_constant, first_periodic;
    size_t n_far_constant, n_far_periodic; /* far elements in them */
    size_t n_of_ref;                       /* lines of the reference that repeat themselves */
};

static struct lines count_lines(const struct nd_look *look, const struct axis *axis)
{
    struct lines lines = {0};
    for (size_t line = 0; line < axis->n_lines; line++) {
        size_t start = line_start(axis, line), p = find_period(look->e->captured, axis, start);
        lines.n_of_ref += find_period(look->e->expected, axis, start) != 0;
        if (p == 0 || !is_moving(look, axis, start, p))
            continue;
        size_t n_far = 0;
        for (size_t k = 0; k < axis->n; k++)
            n_far += nd_is_far(look, start + k * axis->inner);
        if (p == 1) {
            lines.first_constant = lines.n_constant++ == 0 ? line : lines.first_constant;
            lines.n_far_constant += n_far;
            continue;
        }
        lines.n_far_periodic += n_far;
        lines.first_periodic = lines.n_periodic == 0 ? line : lines.first_periodic;
        lines.period = lines.n_periodic == 0 || p < lines.period ? p : lines.period;
        lines.n_periodic++;
    }
    return lines;
}

/* "rows" along the last axis, "columns" along the one before, else "lines". */
static const char *name_lines(const struct nd_evidence *e, int axis)
{
    return axis == e->shape.rank - 1 ? "rows" : axis == e->shape.rank - 2 ? "columns" : "lines";
}

static void say(const struct nd_look *look, const struct axis *axis, const struct lines *lines)
{
    const struct nd_evidence *e = look->e;
    bool is_constant = lines->n_constant >= lines->n_periodic;
    size_t n = is_constant ? lines->n_constant : lines->n_periodic;
    size_t first = is_constant ? lines->first_constant : lines->first_periodic;
    size_t n_far = is_constant ? lines->n_far_constant : lines->n_far_periodic;
    struct nd_finding f =
        nd_finding_of(look, is_constant ? ND_FAULT_CONSTANT_LINES : ND_FAULT_PERIODIC,
                      is_constant ? (double)n : (double)lines->period, nd_share_of_far(look, n_far), 0);
    f.axis = axis->number;
    const char *name = name_lines(e, axis->number);
    if (is_constant)
        nd_add(look, &f,
               "%zu of %zu %s (along axis %d) are one value each, the first is %zu; the reference's are not", n,
               axis->n_lines, name, axis->number, first);
    else
        nd_add(look, &f,
               "%zu of %zu %s (along axis %d) repeat themselves after %zu elements, the first is %zu; the "
               "reference's do not",
               n, axis->n_lines, name, axis->number, lines->period, first);
}

/* Elements of the reference that move by more than half precision rounds away and by four steps, from one slice
 * to the next. */
static size_t count_moves(const struct nd_look *look, const struct axis *axis)
{
    const double *ref = look->e->expected;
    double steps = 4 * fmax(look->e->step, look->e->ref_step);
    size_t n = 0;
    for (size_t line = 0; line < axis->n_lines; line++)
        for (size_t k = 1; k < axis->n; k++) {
            size_t i = line_start(axis, line) + k * axis->inner;
            n += fabs(ref[i] - ref[i - axis->inner]) > fmax(steps, ldexp(fabs(ref[i]), -7));
        }
    return n;
}

/* Every line along an axis is one value: the slices across it (rows, for the last axis but one) are equal. All
 * of them at once, where half of the values are far off, are evidence even when one line is too short to be
 * any. */
static bool try_equal_slices(const struct nd_look *look, const struct axis *axis)
{
    const struct nd_evidence *e = look->e;
    for (size_t line = 0; line < axis->n_lines; line++)
        if (find_period(e->captured, axis, line_start(axis, line)) != 1)
            return false;
    size_t n_moves = count_moves(look, axis), n_pairs = axis->n_lines * (axis->n - 1);
    if (axis->n_lines < MIN_LINES || look->n_far < ND_MIN_DECISIVE || look->n_far * 2 < look->n_known ||
        n_moves < ND_MIN_DECISIVE || n_moves * 4 < n_pairs)
        return false;
    struct nd_finding f = nd_finding_of(look, ND_FAULT_CONSTANT_LINES, (double)axis->n_lines, 1, 0);
    f.axis = axis->number;
    nd_add(look, &f, "all %zu %s (along axis %d) are equal; the reference's are not", axis->n,
           axis->number == e->shape.rank - 2 ? "rows" : "slices", axis->number);
    return true;
}

void nd_try_lines(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    size_t inner = 1;
    for (int a = e->shape.rank - 1; a >= 0; a--) {
        size_t dim = (size_t)e->shape.dims[a];
        const struct axis axis = {a, dim, inner, dim > 0 ? look->n_total / dim : 0};
        inner *= dim;
        if (dim < MIN_SLICES || dim > MAX_LINE)
            continue;
        if (try_equal_slices(look, &axis))
            return;
        if (dim < MIN_LINE)
            continue;
        struct lines lines = count_lines(look, &axis);
        size_t n = lines.n_constant + lines.n_periodic;
        if (n < MIN_LINES || n * MAX_LINES_TO_ONE < axis.n_lines || lines.n_of_ref > n)
            continue;
        say(look, &axis, &lines);
        return;
    }
}

/* ---- channels ---- */

/* One value in all samples; of the reference half of the values are not the least one: a Relu makes some
 * channels nearly always 0. */
static bool is_constant_channel(const struct nd_look *look, const struct nd_axis *axis, size_t channel)
{
    size_t n = 0, n_moving = 0, first = channel * axis->inner;
    double least = HUGE_VAL;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = first; i < look->n_total;
             i += (i + 1) % axis->inner == 0 ? (axis->n - 1) * axis->inner + 1 : 1) {
            if (look->e->captured[i] != look->e->captured[first] || !isfinite(look->e->expected[i]))
                return false;
            least = fmin(least, look->e->expected[i]);
            n += pass == 1;
            n_moving += pass == 1 && look->e->expected[i] > least;
        }
    return n >= MIN_LINE && n_moving * 2 >= n;
}

/* Of the axes that may be the channels' the one with the largest share of them. Chosen: one of eight, and not
 * all: that is one value everywhere. */
void nd_try_constant_channels(const struct nd_look *look)
{
    enum { ONE_OF = 8 };
    struct nd_axis axes[ND_CHANNEL_AXES];
    size_t n_axes = nd_channel_axes(look, axes), most = 0;
    struct nd_finding f = nd_finding_of(look, ND_FAULT_CONSTANT_CHANNELS, 0, 0, 0);
    char which[64] = "";
    for (size_t a = 0; a < n_axes; a++) {
        size_t n = 0, first = 0, last = 0;
        for (size_t c = 0; c < axes[a].n && axes[a].n <= MAX_LINE; c++)
            if (is_constant_channel(look, &axes[a], c)) {
                first = n++ == 0 ? c : first;
                last = c;
            }
        if (n * ONE_OF < axes[a].n || n == axes[a].n || n * 1000 / axes[a].n <= most)
            continue;
        most = n * 1000 / axes[a].n;
        f.axis = axes[a].axis;
        f.amount = (double)n;
        snprintf(which, sizeof which, "%zu of %zu channels (%s%zu to %zu)", n, axes[a].n,
                 last - first + 1 == n ? "" : "of ", first, last);
    }
    if (most > 0)
        nd_add(look, &f, "%s along axis %d are constant, and not in the reference", which, f.axis);
}
