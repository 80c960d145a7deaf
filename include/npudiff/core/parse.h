/* Numbers from and to text, the same in every locale; and which known word a mistyped one meant.
 *
 * A text is accepted as a whole or not at all: "12x" is no number, and neither is one that the type cannot
 * hold. All functions are thread safe.
 *
 * Example:
 *
 *     static bool double_it(const char *text, char out[32])
 *     {
 *         double value;
 *         if (!nd_parse_double(text, &value))
 *             return false;
 *         nd_format_double(2 * value, out); // "0.1" gives "0.2"
 *         return true;
 *     }
 *
 * Stability: stable. A change that breaks programs raises the number in the library's soname. */
#ifndef NPUDIFF_PARSE_H
#define NPUDIFF_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npudiff/core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Decimal digits only (an optional '-' for i64). False and *out untouched when text is anything else or out of
 * range. */
ND_PUBLIC bool nd_parse_u64(const char *text, uint64_t *out);
ND_PUBLIC bool nd_parse_i64(const char *text, int64_t *out);

/* A finite decimal number in the C locale's spelling; NaN and infinities are refused. */
ND_PUBLIC bool nd_parse_double(const char *text, double *out);

/* Writes the shortest decimal text that reads back as the same double, in the C locale; "NaN", "Infinity" and
 * "-Infinity" for the others. buf needs 32 bytes; returns buf. */
ND_PUBLIC char *nd_format_double(double value, char buf[]);

/* Writes "; did you mean 'WORD'?" for the known word nearest to a mistyped one, or "" when no word is near, or
 * two are as near: at most a third of the letters may be wrong; one letter, or two neighbours that are
 * exchanged, always may. Case does not matter. words[i] is the text at words + i * stride_bytes, so that a
 * table of structs whose first member is the name can be searched. A known word over 63 bytes is no suggestion.
 * buf needs ND_DID_YOU_MEAN_BYTES; returns buf. */
enum { ND_DID_YOU_MEAN_BYTES = 96 };
ND_PUBLIC char *nd_did_you_mean(const char *word, const void *words, size_t n_words, size_t stride_bytes,
                                char buf[]);

#ifdef __cplusplus
}
#endif
#endif
