#include "base/nearest.h"

#include <stdint.h>
#include <string.h>

enum { MAX_WORD = 63 };

static size_t least_of(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Levenshtein's distance, one row at a time. */
size_t nd_word_distance(const char *a, const char *b)
{
    size_t n_a = strnlen(a, MAX_WORD), n_b = strnlen(b, MAX_WORD);
    size_t row[MAX_WORD + 1];
    for (size_t k = 0; k <= n_b; k++)
        row[k] = k;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t k = 1; k <= n_b; k++) {
            size_t exchanged = diagonal + (a[i - 1] != b[k - 1]);
            diagonal = row[k];
            row[k] = least_of(row[k] + 1, row[k - 1] + 1, exchanged);
        }
    }
    return row[n_b];
}

size_t nd_word_nearest(const char *word, const void *words, size_t n_words, size_t stride_bytes)
{
    size_t nearest = SIZE_MAX, least = SIZE_MAX;
    for (size_t i = 0; i < n_words; i++) {
        const char *const *name = (const void *)((const char *)words + i * stride_bytes);
        size_t distance = nd_word_distance(word, *name);
        if (distance < least) {
            least = distance;
            nearest = i;
        }
    }
    return nearest;
}
