/* Reading what a machine printed of itself: parts, lines and names in bytes that may be anything. */
#ifndef ND_REMOTE_DEVICE_FACTS_TEXT_H
#define ND_REMOTE_DEVICE_FACTS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of an answer, borrowed. {NULL, 0} is empty. */
struct nd_piece {
    const char *text;
    size_t n;
};

/* A copy of at most max_bytes as text: bytes that are no UTF-8 become '?', control characters ' ', and blanks
 * at the ends go. NULL when out of memory; "" when nothing is left. */
char *nd_piece_copy(struct nd_piece piece, size_t max_bytes);

#endif
