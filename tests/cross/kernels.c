/* The core of tests/unit/compare/test_kernels.c as a program of its own, for processors that only an emulator
 * has: tools/check.sh neon. Exit status 0 when all kernels of the processor match their definition. */
#include <stdio.h>
#include <stdlib.h>

#include "support/kernel_check.h"

int main(void)
{
    const struct nd_kernels *const *kernels;
    size_t n = nd_kernels_available(&kernels);
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20250711;
    bool fine = true;
    printf("ND_SEED=%llu", (unsigned long long)seed);
    for (size_t i = 0; i < n; i++) {
        printf(" %s", kernels[i]->name);
        for (int kind = 0; kind < ND_N_ELEM_KINDS; kind++)
            fine &= check_elements(kernels[i], (enum nd_elem_kind)kind, seed);
        fine &= check_sums(kernels[i], seed) && check_self_elems(kernels[i], seed);
    }
    printf(": %s\n", fine ? "fine" : "wrong");
    return fine && n == 2 ? EXIT_SUCCESS : EXIT_FAILURE;
}
