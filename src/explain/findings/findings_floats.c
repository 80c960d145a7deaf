/* Floats as a capture holds them: science 2.3. */
#include <math.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/findings/findings_internal.h"

enum nd_status nd_look_keep_floats(struct nd_float_look *look, const double *x, size_t n, size_t n_samples,
                                   struct nd_error *err)
{
    size_t room = ND_LOOK_FLOATS / n_samples > 0 ? ND_LOOK_FLOATS / n_samples : 1;
    size_t stride = n > room ? (n + room - 1) / room : 1;
    if (look->x == NULL)
        look->x = nd_calloc(ND_LOOK_FLOATS, sizeof *look->x);
    if (look->x == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n && look->n < ND_LOOK_FLOATS; i += stride)
        look->x[look->n++] = (float)x[i];
    return ND_OK;
}

static bool says(const struct nd_diagnosis *diagnosis, enum nd_fault_kind kind)
{
    bool is_said = diagnosis->is_found && diagnosis->best.kind == kind;
    for (size_t k = 0; k < diagnosis->n_rivals; k++)
        is_said = is_said || diagnosis->rivals[k].kind == kind;
    return is_said;
}

/* What only moves the probe's inputs, or counts, is on every grid by itself. */
void nd_look_at_grid(const struct nd_float_look *ref, const struct nd_float_look *test,
                     struct nd_diagnosis *out)
{
    struct nd_diagnosis expected;
    nd_diagnose_floats(ref->x, ref->n, NULL, &expected);
    nd_diagnose_floats(test->x, test->n, NULL, out);
    if (out->is_found && says(&expected, out->best.kind))
        out->is_found = false;
}

/* What was computed in floats is anywhere between codes; what was scaled a little otherwise stays near them. */
static bool is_near_codes(const struct nd_float_look *look, const struct nd_quant *quant)
{
    for (size_t i = 0; i < look->n; i++) {
        double q = (double)look->x[i] / (double)quant->scale[0];
        if (isfinite(q) && fabs(q - rint(q)) > 1.0 / 8)
            return false;
    }
    return true;
}

void nd_look_at_pair(const struct nd_float_look *ref, const struct nd_float_look *test,
                     const struct nd_quant *quant, bool *is_pair, struct nd_diagnosis *out)
{
    size_t n = ref->n < test->n ? ref->n : test->n;
    *out = (struct nd_diagnosis){0};
    *is_pair = is_near_codes(ref, quant) && is_near_codes(test, quant);
    if (!*is_pair)
        return;
    nd_diagnose_same_codes(ref->x, test->x, n, quant, out);
    for (size_t i = 0; i < n && !out->is_found; i++)
        *is_pair = *is_pair && (ref->x[i] == test->x[i] || (isnan(ref->x[i]) && isnan(test->x[i])));
}
