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

/* What follows the line "<marker> <name>", up to the next line that begins with the marker. */
struct nd_piece nd_piece_part(struct nd_piece answer, const char *marker, const char *name);

/* Takes the next line off `rest`, without its end; false when nothing is left. */
bool nd_piece_line(struct nd_piece *rest, struct nd_piece *line);

/* Without the blanks at both ends. */
struct nd_piece nd_piece_trim(struct nd_piece piece);

/* Whether it begins with `text`, which is then taken off. */
bool nd_piece_skip(struct nd_piece *piece, const char *text);

/* Whether it is this text. */
bool nd_piece_is(struct nd_piece piece, const char *text);

/* A copy of at most max_bytes as text: bytes that are no UTF-8 become '?', control characters ' ', and blanks
 * at the ends go. NULL when out of memory; "" when nothing is left. */
char *nd_piece_copy(struct nd_piece piece, size_t max_bytes);

/* A whole number, or a decimal one, and nothing else but blanks around it. */
bool nd_piece_i64(struct nd_piece piece, int64_t *out);
bool nd_piece_double(struct nd_piece piece, double *out);

#endif
