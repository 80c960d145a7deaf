#include "core/text/nearest.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "npudiff/core/parse.h"

enum { MAX_WORD = 63 };

static size_t min_of(size_t a, size_t b, size_t c)
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
            row[k] = min_of(row[k] + 1, row[k - 1] + 1, exchanged);
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

static void lower(const char *word, char out[MAX_WORD + 1])
{
    size_t n = strnlen(word, MAX_WORD);
    for (size_t i = 0; i < n; i++)
        out[i] = (char)(word[i] >= 'A' && word[i] <= 'Z' ? word[i] - 'A' + 'a' : word[i]);
    out[n] = '\0';
}

/* Whether exchanging two neighbours in one word makes the other of it. */
static bool is_swapped(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] != '\0' && a[i] == b[i])
        i++;
    return a[i] != '\0' && a[i + 1] != '\0' && a[i] == b[i + 1] && a[i + 1] == b[i] &&
           strcmp(a + i + 2, b + i + 2) == 0;
}

char *nd_did_you_mean(const char *word, const void *words, size_t n_words, size_t stride_bytes, char buf[])
{
    char typed[MAX_WORD + 1], known[MAX_WORD + 1];
    const char *nearest = NULL;
    lower(word, typed);
    size_t most = strlen(typed) / 3;
    size_t least = (most > 1 ? most : 1) + 1; /* and no further */
    buf[0] = '\0';
    for (size_t i = 0; typed[0] != '\0' && i < n_words; i++) {
        const char *const *name = (const void *)((const char *)words + i * stride_bytes);
        lower(*name, known);
        size_t distance = strlen(*name) > MAX_WORD   ? SIZE_MAX
                          : is_swapped(typed, known) ? 1
                                                     : nd_word_distance(typed, known);
        if (distance > least || distance >= strlen(known) || strcmp(word, *name) == 0)
            continue;
        nearest = distance < least ? *name : NULL; /* of two that are as near none is the one */
        least = distance;
    }
    if (nearest != NULL)
        snprintf(buf, ND_DID_YOU_MEAN_BYTES, "; did you mean '%s'?", nearest);
    return buf;
}
