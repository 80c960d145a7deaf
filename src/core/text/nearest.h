/* Which known word a mistyped one was meant to be. */
#ifndef ND_BASE_NEAREST_H
#define ND_BASE_NEAREST_H

#include <stddef.h>

/* How many letters must be inserted, deleted or exchanged to make `a` of `b`. Words over 63 bytes are compared
 * by their first 63. */
size_t nd_word_distance(const char *a, const char *b);

/* The index of the word nearest to `word`, the first of several; SIZE_MAX without words. words[i] is the text
 * at words + i * stride_bytes, so that a table of structs whose first member is the name can be searched. */
size_t nd_word_nearest(const char *word, const void *words, size_t n_words, size_t stride_bytes);

#endif
