#include "arithmetic/arithmetics/arithmetics.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "arithmetic/arithmetics/families.h"
#include "npudiff/core/parse.h"

static const struct nd_arithmetic_family *const families[] = {
    &nd_family_rounding, &nd_family_float,   &nd_family_double,      &nd_family_multiplier,
    &nd_family_fixed,    &nd_family_granule, &nd_family_accumulator, &nd_family_stochastic,
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

/* ---- the list ---- */

static struct {
    pthread_once_t once;
    size_t n;
    struct nd_arithmetic arithmetics[ND_ARITHMETIC_MAX];
} table = {.once = PTHREAD_ONCE_INIT};

static void fill_table(void)
{
    for (size_t f = 0; f < N_FAMILIES; f++)
        for (size_t i = 0; i < families[f]->n; i++) {
            assert(table.n < ND_ARITHMETIC_MAX);
            table.arithmetics[table.n] = families[f]->arithmetics[i];
            table.arithmetics[table.n++].family = families[f];
        }
}

const struct nd_arithmetic *nd_arithmetics(size_t *n)
{
    pthread_once(&table.once, fill_table);
    *n = table.n;
    return table.arithmetics;
}

/* ---- names ---- */

const char *nd_arithmetic_name(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES])
{
    return arithmetic->family->put_name(arithmetic, buf);
}

bool nd_arithmetic_from_name(const char *name, struct nd_arithmetic *out)
{
    for (size_t f = 0; f < N_FAMILIES; f++) {
        struct nd_arithmetic arithmetic = {0};
        if (families[f]->from_name(name, &arithmetic)) {
            *out = arithmetic;
            out->family = families[f];
            return true;
        }
    }
    return false;
}

const char *nd_arithmetic_family_name(const struct nd_arithmetic *arithmetic)
{
    return arithmetic->family->name;
}

/* What is not spelled is not different. */
bool nd_arithmetic_is_same(const struct nd_arithmetic *a, const struct nd_arithmetic *b)
{
    char x[ND_ARITHMETIC_NAME_BYTES], y[ND_ARITHMETIC_NAME_BYTES];
    return strcmp(nd_arithmetic_name(a, x), nd_arithmetic_name(b, y)) == 0;
}

bool nd_arithmetic_needs_accumulator(const struct nd_arithmetic *arithmetic)
{
    return arithmetic->family->needs_accumulator;
}

bool nd_arithmetic_is_stochastic(const struct nd_arithmetic *arithmetic)
{
    return arithmetic->family->is_stochastic;
}

bool nd_arithmetic_needs_fused(const struct nd_arithmetic *arithmetic)
{
    return arithmetic->family == &nd_family_float && arithmetic->kind == ND_FLOAT_UNROUNDED_INPUTS;
}

bool nd_arithmetic_read_bits(const char *name, const char *prefix, int low, int high, int *out)
{
    int64_t bits;
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || !nd_parse_i64(name + n, &bits) || bits < low || bits > high)
        return false;
    *out = (int)bits;
    return true;
}

/* ---- running one ---- */

double nd_arithmetic_accumulator(const struct nd_ratio *v, double scale, const struct nd_wide *step)
{
    return rint(nd_ratio_value(v) * scale / step->parts[0]);
}

double nd_arithmetic_multiplier(double scale, const struct nd_wide *step)
{
    return step->parts[0] / scale;
}

bool nd_arithmetic_prepare(const struct nd_arithmetic *arithmetic, const struct nd_arithmetic_scaling *scaling,
                           bool has_fused, struct nd_arithmetic_ready *out)
{
    bool is_for_fixed = scaling->n_averaged > 0 || scaling->slope > 0;
    bool has_accumulator = scaling->multiplier > 0 && isfinite(scaling->multiplier) &&
                           (!is_for_fixed || arithmetic->family == &nd_family_fixed);
    if ((arithmetic->family->needs_accumulator && !has_accumulator) ||
        (nd_arithmetic_needs_fused(arithmetic) && !has_fused))
        return false;
    *out = (struct nd_arithmetic_ready){.arithmetic = arithmetic, .scaling = *scaling};
    if (arithmetic->family->prepare != NULL)
        arithmetic->family->prepare(out);
    return true;
}

struct nd_arithmetic_outcome nd_arithmetic_run(const struct nd_arithmetic_ready *ready,
                                               const struct nd_arithmetic_element *element)
{
    return ready->arithmetic->family->run(ready, element);
}

double nd_arithmetic_qvalue(const struct nd_arithmetic_ready *ready, double whole)
{
    const struct nd_arithmetic_scaling *s = &ready->scaling;
    return fmin(fmax(whole + s->zero, s->low), s->high);
}

struct nd_arithmetic_outcome nd_arithmetic_surely(double qvalue)
{
    return (struct nd_arithmetic_outcome){.qvalue = qvalue, .other = qvalue};
}

void nd_arithmetic_prepare_requantise(struct nd_arithmetic_ready *ready)
{
    ready->requantiser =
        nd_requantise_prepare(&ready->arithmetic->requantise, ready->scaling.multiplier, ready->scaling.zero);
}

struct nd_arithmetic_outcome nd_arithmetic_run_requantise(const struct nd_arithmetic_ready *ready,
                                                          const struct nd_arithmetic_element *element)
{
    double a = ready->dropped > 0 ? floor(element->a / ready->dropped) * ready->dropped : element->a;
    return nd_arithmetic_surely(
        nd_requantise_qvalue(&ready->requantiser, a, ready->scaling.low, ready->scaling.high));
}

const char *nd_arithmetic_requantise_name(const struct nd_arithmetic *arithmetic,
                                          char buf[ND_ARITHMETIC_NAME_BYTES])
{
    return nd_requantise_name(&arithmetic->requantise, buf);
}

struct nd_arithmetic_outcome nd_arithmetic_run_value(const struct nd_arithmetic_ready *ready,
                                                     const struct nd_arithmetic_element *element)
{
    double whole = nd_rounding_rule_round(&ready->arithmetic->value, element->v, &element->place);
    return nd_arithmetic_surely(nd_arithmetic_qvalue(ready, whole));
}

const char *nd_arithmetic_value_name(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES])
{
    return nd_rounding_rule_name(&arithmetic->value, buf);
}
