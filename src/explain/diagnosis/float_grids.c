/* Floats where quantised values should be: on the grid of the tensor, or of a narrower type (science 2.3). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "explain/diagnosis/look.h"

enum { MIN_FLOATS = 8 };

static void add(struct nd_diagnosis *out, enum nd_fault_kind kind, double amount, size_t n_wrong,
                const char *text)
{
    struct nd_finding finding = {kind, SIZE_MAX, -1, amount, 1, n_wrong, "", 0};
    snprintf(finding.text, sizeof finding.text, "%s", text);
    nd_diagnosis_add(out, &finding);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A unit in the last place beside the grid is on it: Qualcomm's simulator converts half precision to floats
 * that are larger by just that. By chance three in 2^13 floats are that close to half precision. */
bool nd_is_bf16(float value)
{
    uint32_t rest = bits_of(value) & 0xffff;
    return rest <= 1 || rest == 0xffff;
}

/* Below 2^-14 the steps of half precision, and with them that layer, stay what they are. */
bool nd_is_fp16(float value)
{
    double x = fabs((double)value), unit = nd_unit_at(x, 10, -14), nearest = rint(x / unit) * unit;
    return nearest <= 65504 && fabs(x - nearest) <= ldexp(unit, -13);
}

double nd_chance_of_grid(enum nd_fault_kind kind, size_t n)
{
    return (double)n * log10(kind == ND_FAULT_BF16_GRID ? 3.0 / 65536 : 3.0 / 8192);
}

struct float_count {
    size_t n, n_fp16, n_bf16, n_distinct; /* n_distinct counts to MIN_FLOATS; signs do not matter */
    float distinct[MIN_FLOATS];
};

static void count_distinct(struct float_count *count, float value)
{
    for (size_t k = 0; k < count->n_distinct; k++) {
        if (count->distinct[k] == value)
            return;
    }
    if (count->n_distinct < MIN_FLOATS)
        count->distinct[count->n_distinct++] = value;
}

static struct float_count count_floats(const float *values, size_t n)
{
    struct float_count count = {0};
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || values[i] == 0)
            continue;
        count.n++;
        count.n_fp16 += nd_is_fp16(values[i]);
        count.n_bf16 += nd_is_bf16(values[i]);
        count_distinct(&count, fabsf(values[i]));
    }
    return count;
}

static void add_grid(struct nd_diagnosis *out, enum nd_fault_kind kind, size_t n, const char *name,
                     double chance)
{
    char text[160];
    snprintf(text, sizeof text, "all floats are %s numbers (chance below 10^%.0f)", name, ceil(chance));
    add(out, kind, 0, n, text);
    struct nd_finding *added = out->n_rivals > 0 ? &out->rivals[out->n_rivals - 1] : &out->best;
    added->chance = chance;
}

/* Every bfloat16 in its range is also a half precision number. */
static void try_grids(const struct float_count *count, struct nd_diagnosis *out)
{
    if (count->n < MIN_FLOATS || count->n_distinct < MIN_FLOATS)
        return;
    /* Of so many distinct floats, as far as they were counted. */
    size_t n = count->n_distinct;
    if (count->n_bf16 == count->n)
        add_grid(out, ND_FAULT_BF16_GRID, count->n, "bfloat16", nd_chance_of_grid(ND_FAULT_BF16_GRID, n));
    if (count->n_fp16 == count->n)
        add_grid(out, ND_FAULT_FP16_GRID, count->n, "half precision", nd_chance_of_grid(ND_FAULT_FP16_GRID, n));
}

/* How far from a quantised value, in steps, an honest float may lie: what its carrier's rounding and that of
 * the product leave. A half precision carrier tells only near the zero point, a bfloat16 one nearer still. */
static bool is_off_grid(float value, const struct nd_quant *quant, double unit, bool *is_telling)
{
    double q = (double)value / (double)quant->scale[0], most = 2 * fabs(q) * unit;
    *is_telling = most <= 1.0 / 32;
    return *is_telling && fabs(q - rint(q)) > most;
}

void nd_diagnose_floats(const float *values, size_t n, const struct nd_quant *quant, struct nd_diagnosis *out)
{
    struct float_count count = count_floats(values, n);
    *out = (struct nd_diagnosis){0};
    if (quant == NULL || quant->n != 1) {
        try_grids(&count, out);
        return;
    }
    bool is_narrow = count.n_fp16 == count.n, is_narrowest = count.n_bf16 == count.n;
    double unit = ldexp(1, is_narrowest ? -8 : is_narrow ? -11 : -24);
    size_t n_telling = 0, n_off = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || values[i] == 0)
            continue;
        bool is_telling = false;
        n_off += is_off_grid(values[i], quant, unit, &is_telling);
        n_telling += is_telling;
    }
    if (n_telling < MIN_FLOATS || n_off == 0)
        return;
    char text[160];
    snprintf(text, sizeof text, "%zu of %zu floats are not on the steps of the tensor's scale", n_off,
             n_telling);
    add(out, ND_FAULT_OFF_GRID, (double)n_off / (double)n_telling, n_off, text);
    try_grids(&count, out);
}

void nd_diagnose_same_qvalues(const float *ref, const float *test, size_t n, const struct nd_quant *quant,
                              struct nd_diagnosis *out)
{
    double most = 0;
    size_t n_differing = 0;
    *out = (struct nd_diagnosis){0};
    if (quant == NULL || quant->n != 1)
        return;
    for (size_t i = 0; i < n; i++) {
        if (ref[i] == test[i] || (isnan(ref[i]) && isnan(test[i])))
            continue;
        double a = (double)ref[i] / (double)quant->scale[0], b = (double)test[i] / (double)quant->scale[0];
        if (!isfinite(a) || !isfinite(b) || rint(a) != rint(b))
            return;
        most = fmax(most, fabs(a - b));
        n_differing++;
    }
    char text[160];
    snprintf(text, sizeof text, "%zu floats of the same quantised value differ, by up to %.3g steps",
             n_differing, most);
    if (n_differing > 0)
        add(out, ND_FAULT_SAME_QVALUE_OTHER_FLOAT, most, n_differing, text);
}
