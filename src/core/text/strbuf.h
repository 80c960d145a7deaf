/* Texts: a growing string, names, base64, the time, and printing numbers and foreign text. After an allocation
 * failure a string stays failed and empty of further appends; check once at the end. */
#pragma once

#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "npudiff/core/status.h"
#include "npudiff/core/tensor.h"

struct nd_strbuf {
    char *text; /* NUL-terminated, or NULL while nothing was appended */
    size_t len;
    size_t capacity;
    bool failed;
};

void nd_strbuf_append(struct nd_strbuf *buf, const char *bytes, size_t n);
void nd_strbuf_puts(struct nd_strbuf *buf, const char *text);
void nd_strbuf_printf(struct nd_strbuf *buf, const char *fmt, ...) ND_PRINTF(2, 3);

/* Hands the text over (never NULL on success; "" when empty) and resets buf; NULL when an append had failed. */
char *nd_strbuf_take(struct nd_strbuf *buf);

/* The printed text alone, in new memory; NULL when memory is out. */
char *nd_text(const char *fmt, ...) ND_PRINTF(1, 2);

/* In a function with `const char *fmt, ...`: prints what follows fmt into the array buf, cut to fit; or into
 * new memory, where `text` becomes NULL when memory is out. */
#define ND_PRINT_ARGUMENTS(buf, fmt)                                                                           \
    do {                                                                                                       \
        va_list arguments_;                                                                                    \
        va_start(arguments_, fmt);                                                                             \
        vsnprintf((buf), sizeof(buf), (fmt), arguments_);                                                      \
        va_end(arguments_);                                                                                    \
    } while (0)
#define ND_MAKE_ARGUMENTS(text, fmt)                                                                           \
    do {                                                                                                       \
        va_list arguments_;                                                                                    \
        va_start(arguments_, fmt);                                                                             \
        if (vasprintf(&(text), (fmt), arguments_) < 0)                                                         \
            (text) = NULL;                                                                                     \
        va_end(arguments_);                                                                                    \
    } while (0)

void nd_strbuf_deinit(struct nd_strbuf *buf);

/* Names: a map from those of tensors and nodes to indices, and which word a mistyped one was meant to be. */

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

/* ---- bytes as text: base64 (RFC 4648), by nettle ---- */

/* The text with its padding, NUL-terminated, in new memory; NULL when memory is out. */
char *nd_base64(const void *data, size_t size_bytes);

/* The bytes of such a text: data has room for capacity. False: it is no base64, or there are more bytes. */
bool nd_base64_read(const char *text, void *data, size_t capacity, size_t *size_bytes);

/* ---- numbers and names as they are printed, whatever the locale ---- */

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

/* ---- the time as captures, stores and policies state it: UTC, or what SOURCE_DATE_EPOCH says ---- */

/* As ISO 8601 writes a time: 20 bytes and a NUL. */
#define ND_UTC_TIME "%Y-%m-%dT%H:%M:%SZ"

/* Writes it as strftime does. False where the time is none that a calendar has, or does not fit; out is then
 * not to be used. */
bool nd_utc_now(const char *format, char *out, size_t size);

/* Whether SOURCE_DATE_EPOCH is set: then nothing that differs between two equal runs is stored. */
bool nd_is_reproducible(void);

/* ---- the C locale for numbers: whatever the program's locale is, a decimal point is a point ---- */

/* The calling thread writes and reads numbers in the C locale from now on; give the result to uselocale to end
 * that. Thread safe. */
locale_t nd_use_c_locale(void);

/* ---- whether a word is one of a few ---- */

/* words ends with NULL. False for a word that is NULL. */
bool nd_is_one_of(const char *word, const char *const *words);

/* "Conv Gemm" has the word "Conv", and "" alone the word "". */
bool nd_has_word(const char *words, const char *word);

/* ND_IS_ONE_OF(op_type, "Conv", "Gemm") */
#define ND_IS_ONE_OF(word, ...) nd_is_one_of(word, (const char *const[]){__VA_ARGS__, NULL})
