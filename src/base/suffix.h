/* How a text ends: file names and their extensions. */
#ifndef ND_BASE_SUFFIX_H
#define ND_BASE_SUFFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether text ends in `end`, or is `end`. */
static inline bool nd_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

/* The bytes of text before `end`; 0 where text does not end in it, or is it. */
static inline size_t nd_stem_bytes(const char *text, const char *end)
{
    return nd_ends_with(text, end) ? strlen(text) - strlen(end) : 0;
}

#endif
