/* Which of the kernels this processor has, and which of them are taken: those of gemm_kernels_template.c, made
 * once for each instruction set. */
#include "arithmetic/operators/kernels/gemm_kernels.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern const struct nd_gemm_kernels nd_gemm_kernels_scalar;
#if defined __x86_64__
extern const struct nd_gemm_kernels nd_gemm_kernels_avx2, nd_gemm_kernels_avx512, nd_gemm_kernels_avx512vnni;
#elif defined __aarch64__
extern const struct nd_gemm_kernels nd_gemm_kernels_neon;
#endif

static const struct nd_gemm_kernels *const kernels[] = {
    &nd_gemm_kernels_scalar,
#if defined __x86_64__
    &nd_gemm_kernels_avx2,
    &nd_gemm_kernels_avx512,
    &nd_gemm_kernels_avx512vnni,
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
    else if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw"))
        n = 2;
    else if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("avx512vbmi"))
        n = 3;
#endif
    *out = kernels;
    return n;
}

const struct nd_gemm_kernels *nd_gemm_kernels_up_to(const char *limit)
{
    const struct nd_gemm_kernels *const *available;
    size_t n = nd_gemm_kernels_available(&available);
    for (size_t i = 0; i < n && limit != NULL; i++)
        if (strcmp(available[i]->name, limit) == 0)
            return available[i];
    return available[n - 1];
}

static struct {
    pthread_once_t once;
    const struct nd_gemm_kernels *kernels;
} chosen = {.once = PTHREAD_ONCE_INIT};

static void choose(void)
{
    chosen.kernels = nd_gemm_kernels_up_to(getenv("NPUDIFF_CPU"));
}

const struct nd_gemm_kernels *nd_gemm_kernels(void)
{
    pthread_once(&chosen.once, choose);
    return chosen.kernels;
}
