/* uint16 Gelu: x times a gate of 12 bits, in steps of x, then brought to the scale of the output.
 * docs/science/htp-arithmetic.md#gelu. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"

/* The gate from |x| / sqrt(2) in steps of 1/16384, by falling powers. Each piece was read out of all quantised
 * values of a Gelu (gen3, QAIRT 2.51.0); where they round and where they cut, too. */
static const struct piece {
    int32_t end; /* the first place that is not the piece's */
    int32_t ones, first, second, third;
    int32_t rounds_third, rounds_second; /* added before 16 bits are cut off */
} pieces[] = {
    {16384, 2048, 9495, -5413, -19971, 0, 0},
    {32768, 1771, 13768, -27869, 19199, 32768, 32768},
    {49152, 3801, 1237, -1730, 808, 0, 32768},
    {53249, 4096, 0, 0, 0, 0, 0},
    {56174, 4095, 0, 0, 0, 0, 0},
    {61167, 4096, 0, 0, 0, 0, 0},
};
enum { GATE_BITS = 12, LAST_GATE = 4095 };

static int64_t gate(int64_t place)
{
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        const struct piece *p = &pieces[i];
        if (place >= p->end)
            continue;
        int64_t sum = p->second + ((p->third * place + p->rounds_third) >> 16);
        sum = p->first + ((sum * place + p->rounds_second) >> 16);
        return p->ones + ((sum * place + (1 << 15)) >> 16);
    }
    return LAST_GATE;
}

bool nd_htp_cutting_init(struct nd_htp_cutting *c, float ratio, int64_t zero)
{
    int exponent; /* ratio < 2^exponent */
    if (!(ratio > 0 && isfinite(ratio)))
        return false;
    frexpf(ratio, &exponent);
    *c = (struct nd_htp_cutting){.shift = 15 - exponent, .zero = zero};
    c->m = llrint(ldexp((double)ratio, c->shift));
    return c->shift >= 0 && c->shift < 32 && c->m <= INT16_MAX;
}

int64_t nd_htp_cut(const struct nd_htp_cutting *c, int64_t value)
{
    enum { CUT = 15 };
    int64_t product = llabs(value) * c->m;
    int more = c->shift - CUT;
    product = more <= 0 ? product >> c->shift : ((product >> CUT) + ((int64_t)1 << (more - 1))) >> more;
    return c->zero + (value < 0 ? -product : product);
}

struct gelu {
    int64_t m, zero; /* of the place */
    int shift;
    struct nd_htp_cutting out;
};

static int64_t bend(const void *parameters, int64_t x)
{
    const struct gelu *g = parameters;
    int64_t d = x - g->zero, magnitude = llabs(d);
    int64_t passed = gate((magnitude * g->m + ((int64_t)1 << (g->shift - 1))) >> g->shift);
    if (d < 0)
        passed = passed < 1 << GATE_BITS ? (1 << GATE_BITS) - passed : 0;
    int64_t steps = (magnitude * passed + (1 << (GATE_BITS - 1))) >> GATE_BITS;
    return nd_htp_cut(&g->out, d < 0 ? -steps : steps);
}

enum nd_status nd_htp_gelu16(const struct nd_htp_job *job, struct nd_error *err)
{
    /* Of x and as quotients, those that the formula was held against. */
    static const float min_scale = 1e-8F, max_scale = 1, least = 0x1p-8F, most = 0x1p8F;
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    char approximate[16];
    nd_op_text(&op_call, "approximate", approximate, sizeof approximate);
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        (approximate[0] != '\0' && strcmp(approximate, "none") != 0))
        return ND_OK;
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    float ratio = x->scale[0] / y->scale[0];
    struct gelu g = {.zero = x->zero_point[0]};
    if (!(x->scale[0] >= min_scale && x->scale[0] <= max_scale && ratio >= least && ratio <= most) ||
        !nd_htp_cutting_init(&g.out, ratio, y->zero_point[0]))
        return ND_OK;
    double factor = ldexp((double)x->scale[0] / sqrt(2), 14);
    int exponent; /* factor < 2^exponent */
    frexp(factor, &exponent);
    g.shift = 15 - exponent;
    g.m = llrint(ldexp(factor, g.shift));
    if (g.m > INT16_MAX)
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, bend, &g, &bounds, err);
}
