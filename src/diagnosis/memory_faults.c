/* The right codes in the wrong place or time, codes that nobody wrote, and bits read as another type. */
#include <math.h>

#include "diagnosis/diagnosis_parts.h"

enum { MAX_SHIFT = 4096, MAX_SHIFTS_FOUND = 2, FEWEST_OF_ONE = 3 };

/* mode 0: bits of the dtype's codes, read with or without a sign. mode 1: the device used the other type for
 * the codes, too, so that they are half a range off before that. */
static struct nd_doctor_span predict_type(const struct nd_doctor *d, const struct nd_doctor_fault *f, size_t s,
                                          size_t j)
{
    double expected = d->e->expected[s * d->e->n + j], range = d->highest - d->lowest + 1;
    bool is_upper = expected >= d->lowest + range / 2;
    if (f->mode == 1)
        return nd_doctor_exactly(is_upper ? expected - range / 2 : expected + range / 2);
    if (d->lowest < 0)
        return nd_doctor_exactly(is_upper ? expected : expected + range);
    return nd_doctor_exactly(is_upper ? expected - range : expected);
}

void nd_doctor_try_type(struct nd_doctor *d)
{
    struct nd_doctor_fault f = {
        .kind = ND_FAULT_WRONG_TYPE, .channel = SIZE_MAX, .axis = -1, .predict = predict_type};
    const char *other = d->lowest < 0 ? "unsigned" : "signed";
    nd_doctor_try(d, &f, "%s codes are read as %s ones", nd_dtype_name(d->e->dtype), other);
    f.mode = 1;
    nd_doctor_try(d, &f, "%s codes are read as %s", other, nd_dtype_name(d->e->dtype));
}

/* What sample s - shift should have. */
static struct nd_doctor_span predict_other_sample(const struct nd_doctor *d, const struct nd_doctor_fault *f,
                                                  size_t s, size_t j)
{
    ptrdiff_t from = (ptrdiff_t)s - f->shift;
    if (from < 0 || from >= (ptrdiff_t)d->e->n_samples)
        return (struct nd_doctor_span){.is_known = false};
    return nd_doctor_exactly(d->e->expected[(size_t)from * d->e->n + j]);
}

static struct nd_doctor_span predict_first_sample(const struct nd_doctor *d, const struct nd_doctor_fault *f,
                                                  size_t s, size_t j)
{
    (void)f;
    (void)s;
    return nd_doctor_exactly(d->e->expected[j]);
}

void nd_doctor_try_samples(struct nd_doctor *d)
{
    struct nd_doctor_fault f = {.kind = ND_FAULT_STALE, .channel = SIZE_MAX, .axis = -1};
    f.predict = predict_other_sample;
    for (size_t k = 1; k < d->e->n_samples; k++) {
        f.shift = (ptrdiff_t)k;
        f.amount = (double)k;
        nd_doctor_try(d, &f, "every sample holds what the sample %zu before it should have", k);
    }
    f.predict = predict_first_sample;
    f.amount = 0;
    if (d->e->n_samples > 1)
        nd_doctor_try(d, &f, "every sample holds what the first should have");
    f.kind = ND_FAULT_SHIFTED;
    f.predict = predict_other_sample;
    for (size_t k = 1; k < d->e->n_samples; k++) {
        f.shift = -(ptrdiff_t)k;
        f.amount = -(double)k;
        nd_doctor_try(d, &f, "every sample holds what the sample %zu after it should have", k);
    }
}

/* mode 0: a constant, 1: always the same bytes, 2: what the sample before should have. */
static struct nd_doctor_span predict_window(const struct nd_doctor *d, const struct nd_doctor_fault *f,
                                            size_t s, size_t j)
{
    const struct nd_evidence *e = d->e;
    if (j < f->first || j >= f->end)
        return nd_doctor_exactly(e->expected[s * e->n + j]);
    if (f->mode == 0)
        return nd_doctor_exactly(f->low);
    if (s == 0)
        return (struct nd_doctor_span){.is_known = false};
    return nd_doctor_exactly(f->mode == 1 ? e->codes[j] : e->expected[(s - 1) * e->n + j]);
}

/* Samples that should be alike would keep any deterministic fault's codes the same. */
static bool is_moving(const struct nd_doctor *d, const struct nd_doctor_fault *f)
{
    const struct nd_evidence *e = d->e;
    size_t n_moving = 0;
    for (size_t s = 1; s < e->n_samples; s++) {
        for (size_t j = f->first; j < f->end; j++)
            n_moving += e->expected[s * e->n + j] != e->expected[j];
    }
    return n_moving * 4 >= (e->n_samples - 1) * (f->end - f->first);
}

void nd_doctor_try_window(struct nd_doctor *d)
{
    const struct nd_evidence *e = d->e;
    struct nd_doctor_fault f = {.kind = ND_FAULT_UNWRITTEN_WINDOW,
                                .channel = SIZE_MAX,
                                .axis = -1,
                                .predict = predict_window,
                                .first = SIZE_MAX};
    for (size_t i = 0; i < e->n_samples * e->n; i++) {
        size_t j = i % e->n;
        if (!nd_doctor_is_known(d, i) || !nd_doctor_is_hard(d, i))
            continue;
        f.low = e->codes[i];
        f.first = j < f.first ? j : f.first;
        f.end = j >= f.end ? j + 1 : f.end;
    }
    /* A single element that is wrong must be so often. */
    bool is_enough = f.first != SIZE_MAX && (f.end - f.first >= 2 || d->n_hard >= FEWEST_OF_ONE);
    if (!is_enough || f.end - f.first == e->n)
        return;
    size_t last = f.end - 1;
    f.amount = (double)(f.end - f.first);
    if (nd_doctor_try(d, &f, "elements %zu to %zu hold %g", f.first, last, f.low) || !is_moving(d, &f))
        return;
    f.mode = 1;
    if (nd_doctor_try(d, &f, "elements %zu to %zu are the same in every sample", f.first, last))
        return;
    f.mode = 2;
    nd_doctor_try(d, &f, "elements %zu to %zu are the sample's before", f.first, last);
}

static struct nd_doctor_span predict_shifted(const struct nd_doctor *d, const struct nd_doctor_fault *f,
                                             size_t s, size_t j)
{
    ptrdiff_t from = (ptrdiff_t)j - f->shift;
    if (from < 0 || from >= (ptrdiff_t)d->e->n)
        return (struct nd_doctor_span){.is_known = false};
    return nd_doctor_exactly(d->e->expected[s * d->e->n + (size_t)from]);
}

/* Nearest first. Two that fit show data that repeats itself; more add nothing. */
void nd_doctor_try_shifts(struct nd_doctor *d)
{
    struct nd_doctor_fault f = {
        .kind = ND_FAULT_SHIFTED, .channel = SIZE_MAX, .axis = -1, .predict = predict_shifted};
    size_t most = d->e->n / 2 < MAX_SHIFT ? d->e->n / 2 : MAX_SHIFT;
    int n_found = 0;
    for (size_t k = 1; k <= most && n_found < MAX_SHIFTS_FOUND; k++) {
        for (int sign = 1; sign >= -1; sign -= 2) {
            f.shift = sign * (ptrdiff_t)k;
            f.amount = (double)f.shift;
            n_found += nd_doctor_try(d, &f, "elements are %+td places away in memory", f.shift);
        }
    }
}
