/* Integers of every width as one 64-bit type. METRICS.md section 2. */
#ifndef ND_COMPARE_CODES_H
#define ND_COMPARE_CODES_H

#include "compare/pair.h"

/* n integers of type dtype (also bool, as a byte) as int64. uint64 values are stored minus 2^63: order and
 * differences stay as they are. */
void nd_codes_load(enum nd_dtype dtype, const unsigned char *bytes, size_t n, int64_t *out);

/* scale * (code - zero point) of the element at flat index, in double; the integer itself without quantisation.
 * `code` as nd_codes_load stores it. */
double nd_codes_real(const struct nd_diff_layout *layout, size_t index, int64_t code);

#endif
