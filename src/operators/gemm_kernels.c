#include "operators/gemm_kernels.h"

extern const struct nd_gemm_kernels nd_gemm_kernels_scalar;
#if defined __x86_64__
extern const struct nd_gemm_kernels nd_gemm_kernels_avx2, nd_gemm_kernels_avx512;
#elif defined __aarch64__
extern const struct nd_gemm_kernels nd_gemm_kernels_neon;
#endif

static const struct nd_gemm_kernels *const kernels[] = {
    &nd_gemm_kernels_scalar,
#if defined __x86_64__
    &nd_gemm_kernels_avx2,
    &nd_gemm_kernels_avx512,
#elif defined __aarch64__
    &nd_gemm_kernels_neon,
#endif
};

/* Each implies those before it. */
size_t nd_gemm_kernels_available(const struct nd_gemm_kernels *const **out)
{
    size_t n = sizeof kernels / sizeof kernels[0];
#if defined __x86_64__
    if (!__builtin_cpu_supports("avx2"))
        n = 1;
    else if (!__builtin_cpu_supports("avx512f"))
        n = 2;
#endif
    *out = kernels;
    return n;
}

const struct nd_gemm_kernels *nd_gemm_kernels(void)
{
    const struct nd_gemm_kernels *const *available;
    size_t n = nd_gemm_kernels_available(&available);
    return available[n - 1];
}
