/* Numbers and names as they are printed, whatever the locale. */
#ifndef ND_BASE_PRINT_H
#define ND_BASE_PRINT_H

#include <stdbool.h>
#include <stddef.h>

#include "npudiff/core/tensor.h"

enum { ND_NUMBER_BYTES = 32 };

/* As "%.*g" in the C locale. */
char *nd_format_digits(double value, int digits, char buf[static ND_NUMBER_BYTES]);

/* A factor with so many digits, and with so many more that one which is not 1 does not look like 1: "1.00012".
 * As text that lives as long as the block in which this stands. */
char *nd_format_factor(double factor, int digits, char buf[static ND_NUMBER_BYTES]);
#define ND_FACTOR(factor, digits) nd_format_factor(factor, digits, (char[ND_NUMBER_BYTES]){0})

/* The shortest text that reads back to the same double, and as a real number: it has a '.' or an exponent.
 * value must be finite. */
char *nd_format_real(double value, char buf[static ND_NUMBER_BYTES]);

/* A copy of text with every control character and every broken UTF-8 byte replaced by '?', so that a name from
 * a file cannot steer a terminal. NULL when out of memory. */
char *nd_clean_text(const char *text);

/* Bytes of the character at the text that a terminal obeys, or that turns the direction of what follows, and
 * that is no ASCII control: DEL, U+0080 to U+009F, U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069;
 * and the '#' that begins what a log of CI obeys anywhere in a line ("##vso["). *code: its code point. 0: it is
 * none. */
size_t nd_control_bytes(const unsigned char *at, unsigned *code);

/* nd_clean_text with "\\u202e" in the place of such characters: they are seen and do nothing. */
char *nd_shown_text(const char *text);

/* Whether the text is UTF-8 without such characters and without ASCII controls. */
bool nd_is_clean_text(const char *text);

/* Code points of clean text. */
size_t nd_text_columns(const char *text);

/* What one place along an axis is called: "column", "row", "channel" (the axis after the first, of four and
 * more) or "slice". Static storage. */
const char *nd_axis_word(const struct nd_shape *shape, int axis);

/* The elements from first to last of a tensor of that shape, by its axes where they are whole slices: "channel
 * 5 (axis 1)", "channel 2, rows 3 to 7 (axis 2)"; else "elements 3 to 9". The axis after the first of four and
 * more is called the channels. Returns whether it is one thing, so that the verb is singular. */
enum { ND_RANGE_BYTES = 96 };
bool nd_range_format(const struct nd_shape *shape, size_t first, size_t last, char text[ND_RANGE_BYTES]);

#endif
