#include "spool/literals.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if ND_HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif
#include <zlib.h>

enum {
    END = 256, /* the symbol that ends a block */
    N_SYMBOLS = 257,
    MOST_BITS = 14,      /* of a code: four of them, and 7 bits that wait, fit in 64 */
    LENGTH_BITS = 4,     /* in which the length of a code is written */
    ROOM_OF_BLOCK = 256, /* its head has 160 bytes, its end 2 */
};

/* Bytes that get codes of their own. Chosen. */
enum { BLOCK_BYTES = 32 * 1024 };

struct bits {
    unsigned char *at;
    uint64_t waiting;
    unsigned n;
};

/* value has no bits above n. */
static void put(struct bits *bits, uint64_t value, unsigned n)
{
    bits->waiting |= value << bits->n;
    bits->n += n;
}

/* Writes whole bytes; 7 bits at most wait afterwards. */
static void flush(struct bits *bits)
{
    memcpy(bits->at, &bits->waiting, sizeof bits->waiting);
    bits->at += bits->n / 8;
    bits->waiting >>= bits->n & ~7u;
    bits->n %= 8;
}

/* ---- codes ---- */

struct symbol {
    uint32_t count;
    uint32_t value;
};

static int by_count(const void *a, const void *b)
{
    const struct symbol *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? -1 : 1;
    return x->value < y->value ? -1 : 1;
}

/* Huffman's lengths for symbols in the order of their counts; false: the longest is too long. n: 2 or more. */
static bool find_lengths(const struct symbol *symbols, size_t n, unsigned char *lengths)
{
    uint32_t weight[2 * N_SYMBOLS];
    size_t parent[2 * N_SYMBOLS], depth[2 * N_SYMBOLS];
    size_t leaf = 0, node = n, root = 2 * n - 2;
    for (size_t i = 0; i < n; i++)
        weight[i] = symbols[i].count;
    for (size_t made = n; made <= root; made++) {
        weight[made] = 0;
        for (int side = 0; side < 2; side++) {
            bool is_leaf = leaf < n && (node == made || weight[leaf] <= weight[node]);
            size_t child = is_leaf ? leaf++ : node++;
            weight[made] += weight[child];
            parent[child] = made;
        }
    }
    depth[root] = 0;
    for (size_t i = root; i-- > 0;)
        depth[i] = depth[parent[i]] + 1;
    for (size_t i = 0; i < n; i++)
        lengths[symbols[i].value] = (unsigned char)depth[i];
    return depth[0] <= MOST_BITS;
}

/* Counts are halved until no code is too long: with counts of 1 the longest has 9 bits. */
static void limit_lengths(const uint32_t *counts, unsigned char *lengths)
{
    struct symbol symbols[N_SYMBOLS];
    size_t n = 0;
    memset(lengths, 0, N_SYMBOLS);
    for (uint32_t i = 0; i < N_SYMBOLS; i++)
        if (counts[i] > 0)
            symbols[n++] = (struct symbol){counts[i], i};
    qsort(symbols, n, sizeof *symbols, by_count);
    while (!find_lengths(symbols, n, lengths))
        for (size_t i = 0; i < n; i++)
            symbols[i].count = (symbols[i].count + 1) / 2; /* keeps their order */
}

/* A code's bits, as they are written: the first one lowest. */
static uint32_t reverse(uint32_t code, unsigned n)
{
    uint32_t reversed = 0;
    for (unsigned i = 0; i < n; i++)
        reversed |= (code >> i & 1) << (n - 1 - i);
    return reversed;
}

/* The codes that RFC 1951, 3.2.2, makes of lengths. */
static void make_codes(const unsigned char *lengths, uint32_t *codes)
{
    uint32_t n_of_length[MOST_BITS + 1] = {0}, next[MOST_BITS + 1] = {0};
    for (size_t i = 0; i < N_SYMBOLS; i++)
        n_of_length[lengths[i]]++;
    for (size_t l = 2; l <= MOST_BITS; l++)
        next[l] = (next[l - 1] + n_of_length[l - 1]) << 1;
    for (size_t i = 0; i < N_SYMBOLS; i++)
        codes[i] = lengths[i] > 0 ? reverse(next[lengths[i]]++, lengths[i]) : 0;
}

/* ---- blocks ---- */

/* Four counters each, so that equal bytes do not wait for one another. */
static void count_bytes(const unsigned char *bytes, size_t n_bytes, uint32_t *counts)
{
    uint32_t parts[4][256] = {0};
    for (size_t i = 0; i < n_bytes; i++)
        parts[i % 4][bytes[i]]++;
    for (size_t v = 0; v < 256; v++)
        counts[v] = parts[0][v] + parts[1][v] + parts[2][v] + parts[3][v];
    counts[END] = 1;
}

/* RFC 1951, 3.2.7, in its plainest form: 257 lengths of literals and one of a distance, which is unused, each
 * in four bits. */
static void write_head(struct bits *bits, const unsigned char *lengths, bool is_last)
{
    enum { N_LENGTH_CODES = 19 };
    static const unsigned char order[N_LENGTH_CODES] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                        11, 4,  12, 3, 13, 2, 14, 1, 15};
    put(bits, is_last, 1);
    put(bits, 2, 2);
    put(bits, N_SYMBOLS - 257, 5);
    put(bits, 0, 5);
    put(bits, N_LENGTH_CODES - 4, 4);
    for (size_t i = 0; i < N_LENGTH_CODES; i++) {
        put(bits, order[i] < 16 ? LENGTH_BITS : 0, 3);
        flush(bits);
    }
    for (size_t i = 0; i < N_SYMBOLS; i++) {
        put(bits, reverse(lengths[i], LENGTH_BITS), LENGTH_BITS);
        flush(bits);
    }
    put(bits, 0, LENGTH_BITS);
    flush(bits);
}

static void write_block(struct bits *bits, const unsigned char *bytes, size_t n_bytes, bool is_last)
{
    uint32_t counts[N_SYMBOLS], codes[N_SYMBOLS];
    unsigned char lengths[N_SYMBOLS];
    size_t i = 0;
    count_bytes(bytes, n_bytes, counts);
    limit_lengths(counts, lengths);
    make_codes(lengths, codes);
    write_head(bits, lengths, is_last);
    for (; i + 4 <= n_bytes; i += 4) {
        for (size_t k = 0; k < 4; k++)
            put(bits, codes[bytes[i + k]], lengths[bytes[i + k]]);
        flush(bits);
    }
    for (; i < n_bytes; i++) {
        put(bits, codes[bytes[i]], lengths[bytes[i]]);
        flush(bits);
    }
    put(bits, codes[END], lengths[END]);
    flush(bits);
}

static uint32_t checksum_of(const unsigned char *bytes, size_t n_bytes)
{
#if ND_HAVE_LIBDEFLATE
    return libdeflate_adler32(1, bytes, n_bytes);
#else
    return (uint32_t)adler32_z(1, bytes, n_bytes);
#endif
}

size_t nd_literals_bound(size_t n_bytes)
{
    enum { ROOM_OF_ENDS = 24 }; /* two bytes in front, four behind, and what flush writes beyond the end */
    size_t n_blocks = n_bytes / BLOCK_BYTES + 1;
    return (n_bytes / 8 + 1) * MOST_BITS + n_blocks * ROOM_OF_BLOCK + ROOM_OF_ENDS;
}

size_t nd_literals_encode(const unsigned char *bytes, size_t n_bytes, unsigned char *out)
{
    struct bits bits = {.at = out};
    put(&bits, 0x0178, 16); /* RFC 1950: deflate, 32 KiB, the least effort */
    flush(&bits);
    for (size_t first = 0; first < n_bytes; first += BLOCK_BYTES) {
        size_t n = n_bytes - first < BLOCK_BYTES ? n_bytes - first : BLOCK_BYTES;
        write_block(&bits, bytes + first, n, first + n == n_bytes);
    }
    put(&bits, 0, (8 - bits.n) % 8);
    flush(&bits);
    uint32_t checksum = checksum_of(bytes, n_bytes);
    for (int shift = 24; shift >= 0; shift -= 8)
        *bits.at++ = (unsigned char)(checksum >> shift);
    return (size_t)(bits.at - out);
}
