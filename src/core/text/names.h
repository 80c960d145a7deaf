/* Names: a map from those of tensors and nodes to indices, and which known word a mistyped one was meant to be.
 */
#ifndef ND_BASE_NAMES_H
#define ND_BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* The longest name of a tensor, node or operator. Chosen: names that tools make have less than 1000 bytes. A
 * capture has a name in a path, where each byte may take three, and paths of at most ND_MAX_PATH_BYTES are read
 * back. So a name is checked when a model is read, not when a capture that took hours is written. */
enum { ND_MAX_NAME_BYTES = 16384, ND_MAX_PATH_BYTES = 65536 };

struct nd_names_slot;

/* Zeroed is empty. The names are borrowed and must outlive the map. */
struct nd_names {
    struct nd_names_slot *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t n;
};

/* The value stored under name, or SIZE_MAX. */
size_t nd_names_find(const struct nd_names *names, const char *name);

/* Stores value under a name that is not in the map yet. False: out of memory, the map is as it was. */
bool nd_names_add(struct nd_names *names, const char *name, size_t value);

void nd_names_deinit(struct nd_names *names);

/* ---- which known word a mistyped one was meant to be ---- */

/* How many letters must be inserted, deleted or exchanged to make `a` of `b`. Words over 63 bytes are compared
 * by their first 63. */
size_t nd_word_distance(const char *a, const char *b);

/* The index of the word nearest to `word`, the first of several; SIZE_MAX without words. words[i] is the text
 * at words + i * stride_bytes, so that a table of structs whose first member is the name can be searched. */
size_t nd_word_nearest(const char *word, const void *words, size_t n_words, size_t stride_bytes);

#endif
