/* Numbers from and to text, the same in every locale.
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
#include <stdint.h>

#include "npudiff/status.h"

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

#ifdef __cplusplus
}
#endif
#endif
