/* Which instruction sets there are, and which of them this processor has. docs/reference/metrics.md#sums. */
#include "compare/metrics/kernels/kernels.h"

#include <assert.h>
#include <string.h>

#include "core/error.h"
#include "core/text/strbuf.h"

extern const struct nd_kernels nd_kernels_scalar;
#if defined __x86_64__
extern const struct nd_kernels nd_kernels_avx2, nd_kernels_avx512;
#elif defined __aarch64__
extern const struct nd_kernels nd_kernels_neon;
#endif

enum nd_elem_kind nd_elem_kind_of(enum nd_dtype dtype)
{
    static const enum nd_elem_kind kinds[] = {
        [ND_DTYPE_BOOL] = ND_ELEM_U8,       [ND_DTYPE_U4] = ND_ELEM_U8,
        [ND_DTYPE_U8] = ND_ELEM_U8,         [ND_DTYPE_I4] = ND_ELEM_I8,
        [ND_DTYPE_I8] = ND_ELEM_I8,         [ND_DTYPE_U16] = ND_ELEM_U16,
        [ND_DTYPE_I16] = ND_ELEM_I16,       [ND_DTYPE_U32] = ND_ELEM_U32,
        [ND_DTYPE_I32] = ND_ELEM_I32,       [ND_DTYPE_U64] = ND_ELEM_U64,
        [ND_DTYPE_I64] = ND_ELEM_I64,       [ND_DTYPE_F8E4M3FN] = ND_ELEM_F8E4M3FN,
        [ND_DTYPE_F8E5M2] = ND_ELEM_F8E5M2, [ND_DTYPE_F16] = ND_ELEM_F16,
        [ND_DTYPE_BF16] = ND_ELEM_BF16,     [ND_DTYPE_F32] = ND_ELEM_F32,
        [ND_DTYPE_F64] = ND_ELEM_F64,
    };
    assert(dtype != ND_DTYPE_NONE && (size_t)dtype < sizeof kinds / sizeof kinds[0]);
    return kinds[dtype];
}

/* From the most general to the fastest. */
static const struct nd_kernels *const kernels[] = {
    &nd_kernels_scalar,
#if defined __x86_64__
    &nd_kernels_avx2,
    &nd_kernels_avx512,
#elif defined __aarch64__
    &nd_kernels_neon,
#endif
};
enum { N_KERNELS = sizeof kernels / sizeof kernels[0] };

/* Each implies those before it. The compiler's own test asks whether the system saves the registers, too. */
size_t nd_kernels_available(const struct nd_kernels *const **out)
{
    size_t n = N_KERNELS;
#if defined __x86_64__
    if (!__builtin_cpu_supports("avx2"))
        n = 1;
    else if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
             !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        n = 2;
#endif
    *out = kernels;
    return n;
}

enum nd_status nd_kernels_choose(const char *cap, const struct nd_kernels **out, struct nd_error *err)
{
    const struct nd_kernels *const *available;
    size_t n = nd_kernels_available(&available);
    const struct nd_kernels *chosen = available[n - 1];
    if (cap != NULL && cap[0] != '\0') {
        if (!ND_IS_ONE_OF(cap, "scalar", "avx2", "avx512", "neon"))
            return nd_fail(err, ND_E_OPTION_VALUE, cap,
                           "unknown instruction set '%s' (known: scalar, avx2, avx512, neon)", cap);
        for (size_t i = 0; i < n; i++)
            if (strcmp(available[i]->name, cap) == 0)
                chosen = available[i];
    }
    *out = chosen;
    return ND_OK;
}
