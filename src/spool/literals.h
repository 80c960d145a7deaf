/* Deflate without matches: Huffman codes for single bytes. Quantised values seldom repeat in longer runs, and
 * looking for matches is most of what deflating them costs. docs/results/speed.md#by-cause. */
#ifndef ND_SPOOL_LITERALS_H
#define ND_SPOOL_LITERALS_H

#include <stddef.h>

/* Worst-case size of n_bytes in this form. */
size_t nd_literals_bound(size_t n_bytes);

/* Writes n_bytes (1 or more) as a zlib stream (RFC 1950, 1951) to out, which has room for nd_literals_bound.
 * Returns the size. A function of the bytes alone. */
size_t nd_literals_encode(const unsigned char *bytes, size_t n_bytes, unsigned char *out);

#endif
