/* Sums of doubles without rounding, and their text in parts. docs/reference/metrics.md#sums and #parts. */
#include "compare/metrics/kernels/exact_sum.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/text/strbuf.h"

enum {
    LOWEST_POWER = -1074,      /* of bit 0 */
    N_BITS = 1024 + 60 + 1074, /* that 2^60 additions can reach */
    HEX_SIZE = ND_EXACT_LIMBS * 8 + 1,
};

/* Limbs then stay below 2^62. */
static const uint64_t max_pending = (uint64_t)1 << 29;

/* Leaves digits below 2^32 in all limbs but the last, which has the sign. */
static void carry(struct nd_exact_sum *sum)
{
    int64_t over = 0;
    for (size_t i = 0; i < ND_EXACT_LIMBS - 1; i++) {
        int64_t value = sum->limb[i] + over;
        int64_t digit = value & 0xffffffff;
        over = (value - digit) / ((int64_t)1 << 32);
        sum->limb[i] = digit;
    }
    sum->limb[ND_EXACT_LIMBS - 1] += over;
    sum->n_pending = 1;
}

void nd_exact_add(struct nd_exact_sum *sum, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t fraction = bits & 0xfffffffffffffu;
    unsigned exponent = bits >> 52 & 0x7ff;
    if (exponent == 0x7ff) {
        if (isnan(value))
            sum->n_nan++;
        else if (value > 0)
            sum->n_pos_inf++;
        else
            sum->n_neg_inf++;
        return;
    }
    if (exponent != 0)
        fraction |= (uint64_t)1 << 52;
    else
        exponent = 1;
    unsigned limb = (exponent - 1) / 32, shift = (exponent - 1) % 32;
    uint64_t low = fraction << shift, high = fraction >> 1 >> (63 - shift);
    int64_t sign = 1 - 2 * (int64_t)(bits >> 63);
    sum->limb[limb] += sign * (int64_t)(low & 0xffffffffu);
    sum->limb[limb + 1] += sign * (int64_t)(low >> 32);
    sum->limb[limb + 2] += sign * (int64_t)high;
    if (++sum->n_pending >= max_pending)
        carry(sum);
}

void nd_exact_merge(struct nd_exact_sum *sum, const struct nd_exact_sum *other)
{
    uint64_t n_pending = sum->n_pending + other->n_pending; /* each below 2^29, so limbs stay below 2^62 */
    for (size_t i = 0; i < ND_EXACT_LIMBS; i++)
        sum->limb[i] += other->limb[i];
    sum->n_nan += other->n_nan;
    sum->n_pos_inf += other->n_pos_inf;
    sum->n_neg_inf += other->n_neg_inf;
    sum->n_pending = n_pending;
    if (n_pending >= max_pending)
        carry(sum);
}

/* Sign and magnitude. */
struct magnitude {
    bool is_negative;
    uint32_t digit[ND_EXACT_LIMBS];
    size_t n_bits; /* up to the highest one; 0 for zero */
};

static void measure(const struct nd_exact_sum *sum, struct magnitude *out)
{
    struct nd_exact_sum copy = *sum;
    carry(&copy);
    out->is_negative = copy.limb[ND_EXACT_LIMBS - 1] < 0;
    if (out->is_negative) {
        for (size_t i = 0; i < ND_EXACT_LIMBS; i++)
            copy.limb[i] = -copy.limb[i];
        carry(&copy);
    }
    out->n_bits = 0;
    for (size_t i = 0; i < ND_EXACT_LIMBS; i++) {
        assert(copy.limb[i] >= 0 && copy.limb[i] <= 0xffffffff);
        out->digit[i] = (uint32_t)copy.limb[i];
        if (out->digit[i] != 0)
            out->n_bits = 32 * i + 32 - (size_t)__builtin_clz(out->digit[i]);
    }
}

static unsigned bit_at(const struct magnitude *m, size_t i)
{
    return m->digit[i / 32] >> i % 32 & 1;
}

static bool has_bits_below(const struct magnitude *m, size_t n)
{
    for (size_t i = 0; i < n / 32; i++)
        if (m->digit[i] != 0)
            return true;
    return n % 32 != 0 && m->digit[n / 32] << (32 - n % 32) != 0;
}

double nd_exact_round(const struct nd_exact_sum *sum)
{
    if (sum->n_nan > 0 || (sum->n_pos_inf > 0 && sum->n_neg_inf > 0))
        return (double)NAN;
    if (sum->n_pos_inf > 0 || sum->n_neg_inf > 0)
        return sum->n_pos_inf > 0 ? HUGE_VAL : -HUGE_VAL;
    struct magnitude m;
    measure(sum, &m);
    /* Bit 0 is the smallest subnormal: a number that short is a double as it is. */
    size_t n_dropped = m.n_bits > 53 ? m.n_bits - 53 : 0;
    uint64_t kept = 0;
    for (size_t i = m.n_bits; i > n_dropped; i--)
        kept = kept << 1 | bit_at(&m, i - 1);
    if (n_dropped > 0 && bit_at(&m, n_dropped - 1) && ((kept & 1) || has_bits_below(&m, n_dropped - 1)))
        kept++;
    double value = ldexp((double)kept, (int)n_dropped + LOWEST_POWER);
    return m.is_negative ? -value : value;
}

/* Text. */

static size_t lowest_one(const struct magnitude *m)
{
    size_t i = 0;
    while (m->digit[i] == 0)
        i++;
    return 32 * i + (size_t)__builtin_ctz(m->digit[i]);
}

static void put_value(struct nd_strbuf *text, const struct magnitude *m)
{
    if (m->n_bits == 0) {
        nd_strbuf_puts(text, "0");
        return;
    }
    size_t lowest = lowest_one(m), n_digits = (m->n_bits - lowest + 3) / 4;
    char hex[HEX_SIZE];
    for (size_t k = 0; k < n_digits; k++) {
        unsigned digit = 0;
        for (size_t bit = 0; bit < 4; bit++) {
            size_t i = lowest + 4 * (n_digits - 1 - k) + bit;
            digit |= i < m->n_bits ? bit_at(m, i) << bit : 0;
        }
        hex[k] = "0123456789abcdef"[digit];
    }
    nd_strbuf_puts(text, m->is_negative ? "-" : "");
    nd_strbuf_append(text, hex, n_digits);
    nd_strbuf_printf(text, "p%d", (int)lowest + LOWEST_POWER);
}

static void put_count(struct nd_strbuf *text, const char *name, uint64_t n)
{
    if (n > 0)
        nd_strbuf_printf(text, ",%s=%" PRIu64, name, n);
}

char *nd_exact_format(const struct nd_exact_sum *sum)
{
    struct nd_strbuf text = {0};
    struct magnitude m;
    measure(sum, &m);
    put_value(&text, &m);
    put_count(&text, "nan", sum->n_nan);
    put_count(&text, "inf", sum->n_pos_inf);
    put_count(&text, "-inf", sum->n_neg_inf);
    return nd_strbuf_take(&text);
}

/* A decimal number without leading zeros, at most `max`; moves *text behind it. */
static bool take_decimal(const char **text, uint64_t max, uint64_t *out)
{
    const char *p = *text;
    uint64_t value = 0;
    if (p[0] == '0' && p[1] >= '0' && p[1] <= '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (value > (max - digit) / 10)
            return false;
        value = 10 * value + digit;
    }
    if (p == *text)
        return false;
    *text = p;
    *out = value;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The power of two after 'p', as the index of its bit. */
static bool take_position(const char **text, size_t *out)
{
    uint64_t power;
    bool is_negative = **text == '-';
    *text += is_negative;
    if (!take_decimal(text, N_BITS, &power))
        return false;
    if (is_negative && (power == 0 || power > (uint64_t)-LOWEST_POWER))
        return false;
    *out = is_negative ? (size_t)-LOWEST_POWER - (size_t)power : (size_t)-LOWEST_POWER + (size_t)power;
    return true;
}

static bool take_value(const char **text, struct nd_exact_sum *out)
{
    if (**text == '0') {
        ++*text;
        return true;
    }
    int64_t sign = **text == '-' ? -1 : 1;
    const char *hex = *text + (sign < 0);
    size_t n = 0, position;
    while (hex_digit(hex[n]) >= 0)
        if (++n > (N_BITS + 3) / 4)
            return false;
    if (n == 0 || hex[0] == '0' || hex_digit(hex[n - 1]) % 2 == 0 || hex[n] != 'p')
        return false;
    *text = hex + n + 1;
    if (!take_position(text, &position) || position + 4 * n > N_BITS + 3)
        return false;
    for (size_t i = 0; i < 4 * n; i++) {
        int64_t bit = hex_digit(hex[n - 1 - i / 4]) >> i % 4 & 1;
        if (bit != 0 && position + i >= N_BITS)
            return false;
        out->limb[(position + i) / 32] += sign * (bit << (position + i) % 32);
    }
    out->n_pending = 1;
    return true;
}

static bool take_count(const char **text, const char *name, uint64_t *out)
{
    size_t n = strlen(name);
    if (strncmp(*text, name, n) != 0)
        return true;
    *text += n;
    return take_decimal(text, (uint64_t)1 << 60, out) && *out > 0;
}

bool nd_exact_parse(const char *text, struct nd_exact_sum *out)
{
    struct nd_exact_sum sum = {0};
    if (!take_value(&text, &sum) || !take_count(&text, ",nan=", &sum.n_nan) ||
        !take_count(&text, ",inf=", &sum.n_pos_inf) || !take_count(&text, ",-inf=", &sum.n_neg_inf) ||
        *text != '\0')
        return false;
    *out = sum;
    return true;
}
