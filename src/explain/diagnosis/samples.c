/* Right values at the wrong time: another sample's, or of another tensor; and values that are all the same. */
#include <math.h>
#include <string.h>

#include "explain/diagnosis/look.h"

static bool is_expected_constant(const struct nd_look *look)
{
    double first = NAN;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_known(look, i))
            continue;
        first = isnan(first) ? look->e->expected[i] : first;
        if (look->e->expected[i] != first)
            return false;
    }
    return true;
}

/* A tensor that should be constant shows a shift, not a loss. */
void nd_try_constant(const struct nd_look *look)
{
    for (size_t i = 0; i < look->n_total; i++)
        if (nd_is_known(look, i) && look->e->captured[i] != look->low)
            return;
    if (look->n_far < look->criteria->min_far || is_expected_constant(look))
        return;
    enum nd_fault_kind kind = nd_is_zero(look, look->low) ? ND_FAULT_ALL_ZERO : ND_FAULT_CONSTANT;
    struct nd_finding f = nd_finding_of(look, kind, look->low, 1, 0);
    if (nd_is_exact(look))
        nd_add(look, &f, "every value is %g", look->low);
    else
        nd_add(look, &f, "every value is %.6g; the reference's are not", look->low);
}

/* ---- another sample's ---- */

/* What sample s - shift should have. */
static struct nd_span predict_other_sample(const struct nd_look *look, const struct nd_fault *f, size_t s,
                                           size_t j)
{
    ptrdiff_t from = (ptrdiff_t)s - f->shift;
    bool is_known = from >= 0 && from < (ptrdiff_t)look->e->n_samples;
    return nd_exactly(is_known ? look->e->expected[(size_t)from * look->e->n + j] : NAN);
}

static struct nd_span predict_first_sample(const struct nd_look *look, const struct nd_fault *f, size_t s,
                                           size_t j)
{
    (void)f, (void)s;
    return nd_exactly(look->e->expected[j]);
}

static bool is_equal(const struct nd_evidence *e, size_t a, size_t b)
{
    return memcmp(e->captured + a * e->n, e->captured + b * e->n, e->n * sizeof *e->captured) == 0;
}

static size_t count_apart(const struct nd_look *look, size_t a, size_t b)
{
    const struct nd_evidence *e = look->e;
    size_t n = 0;
    for (size_t j = 0; j < e->n; j++)
        n += fabs(e->expected[a * e->n + j] - e->expected[b * e->n + j]) > look->far;
    return n;
}

static bool is_one_value(const struct nd_evidence *e, size_t s)
{
    for (size_t j = 1; j < e->n; j++)
        if (memcmp(&e->captured[s * e->n + j], &e->captured[s * e->n], sizeof *e->captured) != 0)
            return false;
    return true;
}

static size_t count_far(const struct nd_look *look, size_t s)
{
    size_t n = 0;
    for (size_t j = 0; j < look->e->n; j++)
        n += nd_is_far(look, s * look->e->n + j);
    return n;
}

/* Whole samples of one value, the same in each, as of a batch of which only a part is computed. They equal the
 * sample before, too, but say nothing of it. */
static bool try_constant_samples(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    size_t n_constant = 0, first = 0, last = 0, n_far = 0;
    for (size_t s = 0; s < e->n_samples; s++) {
        size_t n = count_far(look, s);
        /* Many values are right by themselves when half of the reference's are zero, as a Relu leaves them.
         * Chosen. */
        bool is_many = n * 2 >= e->n || (n >= ND_MIN_DECISIVE && n * 8 >= e->n);
        if (n < 2 || !is_many || !is_one_value(e, s))
            continue;
        first = n_constant++ == 0 ? s : first;
        if (e->captured[s * e->n] != e->captured[first * e->n])
            return false;
        last = s;
        n_far += n;
    }
    if (n_far < ND_MIN_DECISIVE || is_expected_constant(look))
        return false;
    double value = e->captured[first * e->n];
    struct nd_finding f = nd_finding_of(look, value == 0 ? ND_FAULT_ALL_ZERO : ND_FAULT_CONSTANT, value,
                                        nd_share_of_far(look, n_far), 0);
    if (n_constant == last - first + 1 && n_constant > 1)
        nd_add(look, &f, "every value of samples %zu to %zu is %.6g; the reference's are not",
               e->first_sample + first, e->first_sample + last, value);
    else
        nd_add(look, &f, "every value of %zu of %zu samples is %.6g, the first is sample %zu", n_constant,
               e->n_samples, value, e->first_sample + first);
    return true;
}

/* Samples that are bit for bit the one before, while the reference's differ: whatever that one holds. A sample
 * of one value is no evidence: a device that gives nothing gives it twice. */
static void try_repeated(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    size_t n_repeated = 0, n_asked = 0, first = 0, n_apart = 0, n_far = 0;
    for (size_t s = 1; s < e->n_samples; s++) {
        size_t n = is_one_value(e, s) ? 0 : count_apart(look, s, s - 1);
        n_asked += n > 0;
        if (n == 0 || !is_equal(e, s, s - 1))
            continue;
        n_apart += n;
        n_far += count_far(look, s);
        first = n_repeated++ == 0 ? s : first;
    }
    if (n_repeated == 0 || n_apart < ND_MIN_DECISIVE)
        return;
    /* Where every sample holds the same values even the first may be wrong. */
    double explained = n_repeated == n_asked ? 1 : nd_share_of_far(look, n_far);
    struct nd_finding f = nd_finding_of(look, ND_FAULT_STALE, n_repeated == n_asked ? 0 : 1, explained, 0);
    if (n_repeated == n_asked)
        nd_add(look, &f, "every sample holds the same values; the reference's samples differ");
    else
        nd_add(look, &f, "%zu of %zu samples repeat the output of the sample before, the first is sample %zu",
               n_repeated, n_asked, e->first_sample + first);
}

void nd_try_samples(const struct nd_look *look)
{
    size_t n_samples = look->e->n_samples, n_before = look->out->n;
    struct nd_fault f = nd_fault_of(ND_FAULT_STALE, 0, predict_other_sample);
    for (size_t k = 1; k < n_samples; k++) {
        f.shift = (ptrdiff_t)k;
        f.amount = (double)k;
        if (k == 1)
            nd_try(look, &f, "every sample holds the result of the sample before it");
        else
            nd_try(look, &f, "every sample holds the result of the sample %zu before it", k);
    }
    f.predict = predict_first_sample;
    f.amount = 0;
    if (n_samples > 1)
        nd_try(look, &f, "every sample holds the result of the first one");
    f = nd_fault_of(ND_FAULT_SHIFTED, 0, predict_other_sample);
    for (size_t k = 1; k < n_samples; k++) {
        f.shift = -(ptrdiff_t)k;
        f.amount = -(double)k;
        if (k == 1)
            nd_try(look, &f, "every sample holds the result of the sample after it");
        else
            nd_try(look, &f, "every sample holds the result of the sample %zu after it", k);
    }
    /* Exact quantised values come to these as a whole tensor. */
    if (n_samples > 1 && !nd_is_exact(look) && look->out->n == n_before && !try_constant_samples(look))
        try_repeated(look);
}

/* ---- another tensor's ---- */

static struct nd_span predict_other(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    return nd_exactly(((const struct nd_other *)f->data)->test[s * look->e->n + j]);
}

void nd_try_passed(const struct nd_look *look)
{
    struct nd_fault f = nd_fault_of(ND_FAULT_PASSED_THROUGH, 0, predict_other);
    bool is_found = false;
    for (size_t k = 0; k < look->e->n_others && !is_found; k++) {
        f.data = &look->e->others[k];
        is_found =
            nd_try(look, &f, "equal to '%.80s', as if the operator did nothing", look->e->others[k].name);
    }
}

enum { ADDED, SUBTRACTED, MULTIPLIED, N_MODES };

static struct nd_span predict_operand(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    const double *x = ((const struct nd_other *)f->data)->ref;
    if (s == 0)
        return nd_exactly(NAN);
    size_t i = s * look->e->n + j;
    double now = x[i], before = x[i - look->e->n], expected = look->e->expected[i];
    if (f->mode == MULTIPLIED)
        return nd_exactly(fabs(now) > 0 ? expected * (before / now) : NAN);
    return nd_exactly(f->mode == ADDED ? expected + (before - now) : expected - (before - now));
}

/* An Add, Sub or Mul of which one operand is late. Quantised values are clipped and tell nothing there: the
 * judge leaves 1
 * %. */
void nd_try_operand(const struct nd_look *look)
{
    struct nd_fault f = nd_fault_of(ND_FAULT_STALE_OPERAND, 0, predict_operand);
    for (size_t k = 0; k < look->e->n_others; k++)
        for (f.mode = 0; f.mode < N_MODES; f.mode++) {
            f.data = &look->e->others[k];
            if (look->e->n_samples > 1 &&
                nd_try(look, &f, "computed with '%.80s' of the previous sample", look->e->others[k].name))
                return;
        }
}
