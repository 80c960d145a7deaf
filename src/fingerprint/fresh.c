#include "fingerprint/fresh.h"

#include <string.h>

bool nd_fresh_is_enough(uint64_t n_fresh, uint64_t n_right)
{
    return n_fresh >= ND_CONFIRMING_CODES && (double)n_right >= ND_CONFIRMING_SHARE * (double)n_fresh;
}

size_t nd_fresh_keep_best(void *programs, size_t program_bytes, size_t n, const uint64_t *n_right,
                          uint64_t *most)
{
    unsigned char *bytes = programs;
    size_t n_kept = 0;
    *most = 0;
    for (size_t i = 0; i < n; i++)
        *most = n_right[i] > *most ? n_right[i] : *most;
    for (size_t i = 0; i < n; i++)
        if (n_right[i] == *most)
            memmove(bytes + n_kept++ * program_bytes, bytes + i * program_bytes, program_bytes);
    return n_kept;
}
