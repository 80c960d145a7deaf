/* Floats of an edge without codes beside the reference's, as whole tensors: diagnosis/diagnosis.h. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/findings/findings_internal.h"

/* Doubles of floats that were kept, appended to x. */
static double *widen(const struct nd_float_look *look, double *x)
{
    for (size_t i = 0; i < look->n; i++)
        x[i] = (double)look->x[i];
    return x;
}

static size_t elements_of(const struct nd_shape *shape)
{
    size_t n = 1;
    for (int k = 0; k < shape->rank; k++)
        n *= (size_t)shape->dims[k];
    return n;
}

enum nd_status nd_look_at_values(const struct nd_value_look *look, struct nd_findings *out,
                                 struct nd_error *err)
{
    size_t n = look->ref->n, n_used = 2;
    struct nd_other others[ND_LOOK_OTHERS];
    *out = (struct nd_findings){0};
    if (n == 0 || n != look->test->n || look->n_samples == 0 || n % look->n_samples != 0)
        return ND_OK;
    double *x = nd_calloc((2 + 2 * look->n_others) * n, sizeof *x);
    if (x == NULL)
        return nd_fail_memory(err);
    struct nd_evidence values = {.n_samples = look->n_samples,
                                 .n = n / look->n_samples,
                                 .shape = look->shape,
                                 .dtype = look->dtype,
                                 .expected = widen(look->ref, x),
                                 .captured = widen(look->test, x + n),
                                 .others = others};
    /* Some elements were left out: what is left has no lines. */
    if (elements_of(&look->shape) != values.n)
        values.shape.rank = -1;
    for (size_t k = 0; k < look->n_others; k++) {
        if (look->others[k][0]->n != n || look->others[k][1]->n != n)
            continue;
        others[values.n_others++] = (struct nd_other){look->names[k], widen(look->others[k][0], x + n_used * n),
                                                      widen(look->others[k][1], x + (n_used + 1) * n)};
        n_used += 2;
    }
    enum nd_status status = nd_diagnose_tensor(&values, out, err);
    free(x);
    return status;
}
