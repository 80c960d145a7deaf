/* How a text ends: file names and their extensions, names of nodes and their tokens. */
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

/* The length of a node's name without the "_token_<n>" that ONNX Runtime's layout pass puts behind it. */
static inline size_t nd_token_stem_bytes(const char *name)
{
    static const char mark[] = "_token_";
    const size_t n = strlen(name), n_mark = sizeof mark - 1;
    size_t digits = n;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    bool has_token = digits < n && digits > n_mark && memcmp(name + digits - n_mark, mark, n_mark) == 0;
    return has_token ? digits - n_mark : n;
}

#endif
