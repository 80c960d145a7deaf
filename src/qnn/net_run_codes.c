/* Codes and the floats that a tool makes of them. */
#include <math.h>
#include <string.h>

#include "probe/source.h"
#include "qnn/net_run.h"

static double code_at(enum nd_dtype dtype, const void *data, size_t i)
{
    switch (dtype) {
    case ND_DTYPE_U8:
    case ND_DTYPE_U4:
    case ND_DTYPE_BOOL:
        return ((const uint8_t *)data)[i];
    case ND_DTYPE_I8:
    case ND_DTYPE_I4:
        return ((const int8_t *)data)[i];
    case ND_DTYPE_U16:
        return ((const uint16_t *)data)[i];
    case ND_DTYPE_I16:
        return ((const int16_t *)data)[i];
    case ND_DTYPE_U32:
        return ((const uint32_t *)data)[i];
    case ND_DTYPE_I32:
        return ((const int32_t *)data)[i];
    default:
        return NAN;
    }
}

/* Length of the runs of elements that share a scale. */
static size_t inner_of(const struct nd_qnr_tensor *t)
{
    size_t inner = 1;
    for (int d = t->quant->n > 1 ? t->quant->axis + 1 : t->shape.rank; d < t->shape.rank; d++)
        inner *= (size_t)t->shape.dims[d];
    return inner > 0 ? inner : 1;
}

/* The tool's own floats must be the codes' reals: a float32 rounding or two apart, no more. */
enum nd_status nd_qnr_compare_floats(const struct nd_qnr_tensor *t, const struct nd_source *source,
                                     const float *floats, const void *codes, size_t n, struct nd_error *err)
{
    size_t inner = inner_of(t);
    for (size_t i = 0; i < n; i++) {
        size_t c = i / inner % t->quant->n;
        double code = code_at(t->dtype, codes, i);
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
