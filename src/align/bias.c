/* Biases that all programs make the same whole number of. One program cuts a quotient of float32 numbers to a
 * whole number, where the other one rounds an exact quotient: a scale that is a few float32 steps too high
 * keeps the quotient from falling short of the code. Where that does not help, neighbours of the code are
 * tried. A step of a code is 2^-k of a step of the output. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "align/layer.h"
#include "base/error.h"
#include "base/memory.h"

enum { B = 2 };

struct search {
    struct nd_align_layer *layer;
    const struct nd_unit_program *const *programs;
    size_t n_programs, n; /* channels */
    bool *is_unequal;     /* [n] of the last look */
    double *best;         /* [n] codes */
    double step;          /* codes are multiples of it */
};

/* How many channels differ between the first program and any other one. */
static enum nd_status look(const struct search *s, size_t *n_unequal, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    *n_unequal = 0;
    memset(s->is_unequal, 0, s->n * sizeof *s->is_unequal);
    for (size_t p = 1; p < s->n_programs && status == ND_OK; p++) {
        struct nd_unit_proof proof;
        status =
            nd_unit_product_prove(s->programs[0], s->programs[p], &s->layer->made, &proof, s->is_unequal, err);
        if (status == ND_OK && proof.end == ND_UNIT_PROOF_NONE) /* nothing to be found by looking */
            return ND_OK;
    }
    for (size_t c = 0; c < s->n; c++)
        *n_unequal += s->is_unequal[c];
    return status;
}

/* The product of the scales of x and the weights in float32, raised by so many steps, and the codes. */
static void set_bias(const struct search *s, int raise)
{
    struct nd_align_layer *layer = s->layer;
    struct nd_quant *quant = &layer->quants[B];
    for (size_t c = 0; c < quant->n; c++) {
        float scale = layer->quants[0].scale[0] * layer->quants[1].scale[layer->quants[1].n > 1 ? c : 0];
        for (int i = 0; i < raise; i++)
            scale = nextafterf(scale, HUGE_VALF);
        quant->scale[c] = scale;
        quant->zero_point[c] = 0;
    }
    double most = floor((double)INT32_MAX / s->step) * s->step;
    for (size_t i = 0; i < layer->codes[B].n; i++) {
        double scale = (double)quant->scale[quant->n > 1 ? i : 0];
        double code = nearbyint(layer->bias[i] / scale / s->step) * s->step;
        layer->codes[B].x[i] = fmin(fmax(code, -most), most);
    }
}

/* Other codes for the channels that differ, all at once. */
static enum nd_status try_neighbours(const struct search *s, size_t *n_left, struct nd_error *err)
{
    static const int shifts[] = {1, -1, 2, -2, 3, -3, 4, -4}; /* chosen */
    double *codes = s->layer->codes[B].x;
    enum nd_status status = look(s, n_left, err);
    memcpy(s->best, codes, s->n * sizeof *codes);
    for (size_t i = 0; i < sizeof shifts / sizeof shifts[0] && *n_left > 0 && status == ND_OK; i++) {
        for (size_t c = 0; c < s->n; c++)
            if (s->is_unequal[c])
                codes[c] = s->best[c] + shifts[i] * s->step;
        status = look(s, n_left, err);
    }
    for (size_t c = 0; c < s->n; c++)
        if (s->is_unequal[c])
            codes[c] = s->best[c];
    return status;
}

static enum nd_status find(const struct search *s, size_t *n_left, struct nd_error *err)
{
    static const int raises[] = {1, 2, 4, 8, 0, 16}; /* chosen: float32 steps of 2^-23 */
    size_t least = SIZE_MAX;
    int best = 0;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < sizeof raises / sizeof raises[0] && least > 0 && status == ND_OK; i++) {
        size_t n_unequal;
        set_bias(s, raises[i]);
        status = look(s, &n_unequal, err);
        if (status == ND_OK && n_unequal < least) {
            least = n_unequal;
            best = raises[i];
        }
    }
    *n_left = least;
    if (status != ND_OK)
        return status;
    set_bias(s, best);
    return least > 0 ? try_neighbours(s, n_left, err) : ND_OK;
}

enum nd_status nd_align_find_bias(struct nd_align_layer *layer, const struct nd_unit_program *const *programs,
                                  size_t n_programs, size_t *n_left, struct nd_error *err)
{
    struct search s = {.layer = layer,
                       .programs = programs,
                       .n_programs = n_programs,
                       .n = layer->codes[B].n,
                       .step = layer->unit->dtype == ND_DTYPE_U16 ? 256 : 1};
    *n_left = 0;
    if (layer->bias == NULL)
        return ND_OK;
    s.is_unequal = nd_calloc(s.n, sizeof *s.is_unequal);
    s.best = nd_calloc(s.n, sizeof *s.best);
    enum nd_status status =
        s.is_unequal != NULL && s.best != NULL ? find(&s, n_left, err) : nd_fail_memory(err);
    free(s.is_unequal);
    free(s.best);
    return status;
}
