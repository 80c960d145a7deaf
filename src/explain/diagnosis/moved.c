/* The right values of a sample at other places of it. */
#include <math.h>

#include "explain/diagnosis/look.h"

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
            if (nd_try(
                    look, &f,
                    "every %zu values are %zu further on than those before: they are padded to %zu in memory "
                    "and read as dense",
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
