/* Numbers from text: the whole string, range-checked, independent of the locale. */
#ifndef ND_BASE_PARSE_H
#define ND_BASE_PARSE_H

#include <stdbool.h>
#include <stdint.h>

/* Decimal digits only (an optional '-' for i64). False and *out untouched when text is anything else or out of range. */
bool nd_parse_u64(const char *text, uint64_t *out);
bool nd_parse_i64(const char *text, int64_t *out);

/* A finite decimal number in the C locale's spelling; NaN and infinities are refused. */
bool nd_parse_double(const char *text, double *out);

/* Writes the shortest decimal text that reads back as the same double, in the C locale; "NaN", "Infinity" and
 * "-Infinity" for the others. buf needs 32 bytes; returns buf. */
char *nd_format_double(double value, char buf[static 32]);

#endif
