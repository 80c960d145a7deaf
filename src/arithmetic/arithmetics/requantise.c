/* From an integer accumulator to a quantised value: by parts, or in integers as TensorFlow Lite and TOSA
 * specify it. requantise.h has the formulas. */
#include "arithmetic/arithmetics/requantise.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "npudiff/core/parse.h"

/* ---- fixed point ---- */

enum { MULTIPLIER_BITS = 31 }; /* of both specifications: int32 without its sign */

struct nd_fixed_multiplier nd_fixed_multiplier(double multiplier)
{
    struct nd_fixed_multiplier m;
    m.q = round(ldexp(frexp(multiplier, &m.e), MULTIPLIER_BITS));
    if (m.q == ldexp(1, MULTIPLIER_BITS)) {
        m.q /= 2;
        m.e++;
    }
    return m;
}

struct nd_fixed_multiplier nd_fixed_multiplier_of_mean(enum nd_fixed_point kind, double multiplier, double n)
{
    enum { MAX_LEFT = 32, MAX_RIGHT = 31 }; /* of the shift, as the kernel holds it in its bounds */
    if (kind != ND_FIXED_GEMMLOWP)
        return nd_fixed_multiplier(multiplier);
    struct nd_fixed_multiplier m = nd_fixed_multiplier(multiplier * n);
    int shift = ilogb(n);
    shift = shift < MAX_LEFT ? shift : MAX_LEFT;
    shift = shift < MAX_RIGHT + m.e ? shift : MAX_RIGHT + m.e;
    m.q = floor(ldexp(m.q, shift) / n); /* exact: below 2^53 for n below 2^22 */
    m.e -= shift;
    return m;
}

/* floor(x / 2^n), which C leaves to the compiler for negative numbers. */
static int64_t shift_down(int64_t x, int n)
{
    return x >= 0 ? x >> n : -((-x + ((int64_t)1 << n) - 1) >> n);
}

static int64_t divide_half_away(int64_t x, int n)
{
    int64_t half = n > 0 ? (int64_t)1 << (n - 1) : 0;
    return x >= 0 ? (x + half) >> n : -((-x + half) >> n);
}

/* a m 2^-right of a whole product a m 2^31. */
static int64_t scale_as_tosa(int64_t product, int right, bool is_double)
{
    int64_t round = (int64_t)1 << (MULTIPLIER_BITS - 1 + right), more = (int64_t)1 << (MULTIPLIER_BITS - 1);
    if (is_double && right > 0)
        round += product >= 0 ? more : -more;
    return shift_down(product + round, MULTIPLIER_BITS + right);
}

double nd_fixed_run(enum nd_fixed_point kind, const struct nd_fixed_multiplier *m, double a)
{
    enum { MAX_LEFT = 30, MAX_RIGHT = 31 }; /* of a shift, in both specifications */
    int right = m->e < 0 ? -m->e : 0;
    double shifted = a * ldexp(1, m->e > 0 ? m->e : 0);
    if (m->e > MAX_LEFT || right > MAX_RIGHT || !(fabs(shifted) <= (double)INT32_MAX))
        return 0;
    int64_t product = (int64_t)shifted * (int64_t)m->q, half = (int64_t)1 << (MULTIPLIER_BITS - 1);
    return (double)(kind == ND_FIXED_GEMMLOWP
                        ? divide_half_away(shift_down(product + half, MULTIPLIER_BITS), right)
                        : scale_as_tosa(product, right, kind == ND_FIXED_TOSA_DOUBLE));
}

/* ---- by parts ---- */

double nd_multiplier_round(double multiplier, int n_bits, enum nd_rounding rounding)
{
    if (n_bits == ND_MULTIPLIER_EXACT)
        return multiplier;
    int exponent;
    double mantissa = frexp(multiplier, &exponent);
    return ldexp(nd_round_value(ldexp(mantissa, n_bits + 1), rounding), exponent - n_bits - 1);
}

int nd_multiplier_log(double multiplier)
{
    int exponent;
    double mantissa = frexp(multiplier, &exponent); /* 1/2 <= mantissa < 1 */
    return mantissa > 0.5 ? -exponent : 1 - exponent;
}

struct nd_requantise_ready nd_requantise_prepare(const struct nd_requantise *arithmetic, double multiplier,
                                                 double zero_point)
{
    struct nd_requantise_ready r = {
        .c = nd_multiplier_round(multiplier, arithmetic->multiplier_bits, arithmetic->multiplier_rounding),
        .step = 1,
        .zero = zero_point,
        .rounding = arithmetic->rounding,
        .fixed = arithmetic->fixed};
    if (arithmetic->fixed != ND_FIXED_NONE)
        r.multiplier = nd_fixed_multiplier(multiplier);
    if (arithmetic->has_granule) {
        int e = nd_multiplier_log(multiplier) - arithmetic->granule_bits;
        r.step = ldexp(1, arithmetic->is_granule_whole && e < 0 ? 0 : e);
        r.half = arithmetic->has_half_granule ? 0.5 : 0;
    }
    if (arithmetic->folds_zero) {
        double fold = zero_point / multiplier;
        r.fold =
            nd_round_value(arithmetic->is_fold_f32 ? (double)(float)fold : fold, arithmetic->fold_rounding);
        r.zero = 0;
    }
    if (arithmetic->accumulator_bits > 0) {
        r.greatest = ldexp(1, arithmetic->accumulator_bits - 1) - 1;
        r.least = -r.greatest - 1;
        r.modulus = arithmetic->wraps ? ldexp(1, arithmetic->accumulator_bits) : 0;
    }
    return r;
}

static double limit(const struct nd_requantise_ready *r, double a)
{
    if (r->greatest == 0 || (a >= r->least && a <= r->greatest))
        return a;
    if (r->modulus == 0)
        return a < 0 ? r->least : r->greatest;
    double wrapped = fmod(a - r->least, r->modulus);
    return (wrapped < 0 ? wrapped + r->modulus : wrapped) + r->least;
}

double nd_requantise_qvalue(const struct nd_requantise_ready *r, double a, double low, double high)
{
    if (r->fixed != ND_FIXED_NONE)
        return fmin(fmax(nd_fixed_run(r->fixed, &r->multiplier, a) + r->zero, low), high);
    double scaled = r->c * (r->step * (floor((limit(r, a) + r->fold) / r->step) + r->half));
    return fmin(fmax(nd_round_value(scaled, r->rounding) + r->zero, low), high);
}

/* ---- names ---- */

static const char *const fixed_names[ND_FIXED_N] = {[ND_FIXED_NONE] = "",
                                                    [ND_FIXED_GEMMLOWP] = "gemmlowp",
                                                    [ND_FIXED_TOSA_SINGLE] = "tosa-single",
                                                    [ND_FIXED_TOSA_DOUBLE] = "tosa-double"};

const char *nd_fixed_name(enum nd_fixed_point kind)
{
    return fixed_names[kind];
}

static bool fixed_from_name(const char *name, enum nd_fixed_point *out)
{
    for (int kind = ND_FIXED_NONE + 1; kind < ND_FIXED_N; kind++)
        if (strcmp(name, fixed_names[kind]) == 0) {
            *out = (enum nd_fixed_point)kind;
            return true;
        }
    return false;
}

static void add_part(char buf[ND_REQUANTISE_NAME_BYTES], const char *part)
{
    size_t len = strlen(buf);
    snprintf(buf + len, ND_REQUANTISE_NAME_BYTES - len, "%s%s", len > 0 ? "+" : "", part);
}

const char *nd_requantise_name(const struct nd_requantise *p, char buf[ND_REQUANTISE_NAME_BYTES])
{
    char part[48];
    buf[0] = '\0';
    if (p->fixed != ND_FIXED_NONE) {
        add_part(buf, nd_fixed_name(p->fixed));
        return buf;
    }
    if (p->multiplier_bits != ND_MULTIPLIER_EXACT) {
        bool is_usual = p->multiplier_rounding == ND_ROUND_HALF_EVEN;
        snprintf(part, sizeof part, "multiplier:%d%s%s", p->multiplier_bits, is_usual ? "" : ":",
                 is_usual ? "" : nd_rounding_name(p->multiplier_rounding));
        add_part(buf, part);
    }
    if (p->has_granule) {
        snprintf(part, sizeof part, "%s:%d", p->is_granule_whole ? "granule-whole" : "granule",
                 p->granule_bits);
        add_part(buf, part);
        if (p->has_half_granule)
            add_part(buf, "half");
    }
    if (p->folds_zero) {
        bool is_usual = p->fold_rounding == ND_ROUND_HALF_EVEN;
        snprintf(part, sizeof part, "fold-zero%s%s", is_usual ? "" : ":",
                 is_usual ? "" : nd_rounding_name(p->fold_rounding));
        add_part(buf, part);
        if (p->is_fold_f32)
            add_part(buf, "fold-f32");
    }
    snprintf(part, sizeof part, "rounding:%s", nd_rounding_name(p->rounding));
    add_part(buf, part);
    if (p->accumulator_bits > 0) {
        snprintf(part, sizeof part, "%s:%d", p->wraps ? "wrap" : "saturate", p->accumulator_bits);
        add_part(buf, part);
    }
    return buf;
}

static bool read_bits(const char *text, int64_t low, int64_t high, int *out)
{
    int64_t bits;
    if (!nd_parse_i64(text, &bits) || bits < low || bits > high)
        return false;
    *out = (int)bits;
    return true;
}

/* BITS or BITS:ROUNDING. */
static bool read_multiplier(char *text, struct nd_requantise *p)
{
    char *colon = strchr(text, ':');
    p->multiplier_rounding = ND_ROUND_HALF_EVEN;
    if (colon != NULL) {
        *colon = '\0';
        if (!nd_rounding_from_name(colon + 1, &p->multiplier_rounding))
            return false;
    }
    return read_bits(text, 1, ND_MULTIPLIER_MAX_BITS, &p->multiplier_bits);
}

enum part { MULTIPLIER, GRANULE, GRANULE_WHOLE, HALF, FOLD_ZERO, FOLD_F32, ROUNDING, SATURATE, WRAP, N_PARTS };

/* text is what is behind the colon of the part, "" without one. */
static bool read_part(enum part part, char *text, struct nd_requantise *p)
{
    switch (part) {
    case MULTIPLIER:
        return read_multiplier(text, p);
    case GRANULE_WHOLE:
    case GRANULE:
        p->has_granule = true;
        p->is_granule_whole = part == GRANULE_WHOLE;
        return read_bits(text, 0, 15, &p->granule_bits);
    case HALF:
        p->has_half_granule = true;
        return text[0] == '\0';
    case FOLD_ZERO:
        p->folds_zero = true;
        return text[0] == '\0' || nd_rounding_from_name(text, &p->fold_rounding);
    case FOLD_F32:
        p->is_fold_f32 = true;
        return text[0] == '\0';
    case ROUNDING:
        return nd_rounding_from_name(text, &p->rounding);
    case SATURATE:
    case WRAP:
        p->wraps = part == WRAP;
        return read_bits(text, 16, 32, &p->accumulator_bits);
    case N_PARTS:
        break;
    }
    return false;
}

static bool read_named_part(char *text, struct nd_requantise *p, bool is_there[N_PARTS])
{
    static const char *const names[N_PARTS] = {"multiplier", "granule",  "granule-whole", "half", "fold-zero",
                                               "fold-f32",   "rounding", "saturate",      "wrap"};
    char *colon = strchr(text, ':');
    char *value = colon != NULL ? colon + 1 : text + strlen(text);
    if (colon != NULL)
        *colon = '\0';
    for (int part = 0; part < N_PARTS; part++)
        if (strcmp(text, names[part]) == 0) {
            bool is_first = !is_there[part];
            is_there[part] = true;
            return is_first && read_part((enum part)part, value, p);
        }
    return false;
}

bool nd_requantise_from_name(const char *name, struct nd_requantise *out)
{
    struct nd_requantise p = {.rounding = ND_ROUND_HALF_EVEN};
    bool is_there[N_PARTS] = {false};
    char text[ND_REQUANTISE_NAME_BYTES], *save = NULL;
    if (strlen(name) >= sizeof text)
        return false;
    if (fixed_from_name(name, &p.fixed)) {
        *out = (struct nd_requantise){.fixed = p.fixed};
        return true;
    }
    snprintf(text, sizeof text, "%s", name);
    char *part = strtok_r(text, "+", &save);
    if (part == NULL)
        return false;
    for (; part != NULL; part = strtok_r(NULL, "+", &save))
        if (!read_named_part(part, &p, is_there))
            return false;
    bool is_sound = !(is_there[GRANULE] && is_there[GRANULE_WHOLE]) &&
                    !(is_there[SATURATE] && is_there[WRAP]) && (!p.has_half_granule || p.has_granule) &&
                    (!p.is_fold_f32 || p.folds_zero);
    if (is_sound)
        *out = p;
    return is_sound;
}
