/* Codes and the floats that a tool makes of them. */
#include <math.h>
#include <string.h>

#include "core/tensors/scales.h"
#include "record/import/grid.h"
#include "record/probes/source.h"
#include "record/qnn/net_run.h"

/* The tool's own floats must be the codes' reals: a float32 rounding or two apart, no more. */
enum nd_status nd_qnr_compare_floats(const struct nd_qnr_tensor *t, const struct nd_source *source,
                                     const float *floats, const void *codes, size_t n, struct nd_error *err)
{
    size_t inner = nd_quant_inner(t->quant, &t->shape);
    for (size_t i = 0; i < n; i++) {
        size_t c = i / inner % t->quant->n;
        double code = nd_grid_value(t->dtype, codes, i);
        double real = (code - (double)t->quant->zero_point[c]) * (double)t->quant->scale[c];
        if (fabs((double)floats[i] - real) <= ldexp(fabs(real), -22))
            continue;
        return nd_fail(err, ND_E_QNN_VALUES, source->path,
                       "%s: element %zu of '%s' is %.9g, but its native file has code %.0f, which is %.9g "
                       "(scale %.9g, zero point %lld)",
                       source->what, i, t->file, (double)floats[i], code, real, (double)t->quant->scale[c],
                       (long long)t->quant->zero_point[c]);
    }
    return ND_OK;
}

/* Reals of codes are finite. */
enum nd_status nd_qnr_check_finite(const struct nd_qnr_tensor *t, const struct nd_source *source,
                                   const float *floats, size_t n, struct nd_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(floats[i]))
            return nd_fail(err, ND_E_QNN_VALUES, source->path,
                           "%s: element %zu of '%s' is %s, which no code of it stands for", source->what, i,
                           t->file, isnan(floats[i]) ? "NaN" : "infinite");
    return ND_OK;
}
