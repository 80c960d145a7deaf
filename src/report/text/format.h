/* Numbers and names as the text report shows them. Independent of the locale. */
#ifndef ND_REPORT_FORMAT_H
#define ND_REPORT_FORMAT_H

#include "core/text/print.h"
#include "npudiff/compare/compare.h"

/* Share of n in total in percent, rounded half up: "12.3%", "0.02%", "<0.01%" for anything above zero and below
 * that, ">99.9%" for anything below all that would be rounded to all, "0%" and "100%" only when exact; "-" when
 * total is 0. */
char *nd_format_share(uint64_t n, uint64_t total, char buf[static ND_NUMBER_BYTES]);

/* Four significant digits; "NaN", "Infinity", "-Infinity". For people only. */
char *nd_format_short(double value, char buf[static ND_NUMBER_BYTES]);

/* Seven decimals at most, for values that matter by how far they are from 1 (a cosine): "1" only when exact,
 * else at least ">0.9999999" or "<1.0000001". */
char *nd_format_near_one(double value, char buf[static ND_NUMBER_BYTES]);

/* A count as it is below a million, else with three significant digits ("1.23e+09"). */
char *nd_format_count(uint64_t n, char buf[static ND_NUMBER_BYTES]);

#endif
