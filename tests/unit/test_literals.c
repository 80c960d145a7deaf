/* Deflate without matches: what zlib makes of it, and when a chunk is stored so. */
#include "support/main.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "spool/chunk.h"
#include "spool/literals.h"

enum { MOST = 300000, GUARD = 0xa5, SAMPLE = 20001 };

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return *seed >> 33;
}

/* zlib, which has no code in common with the encoder, gives the bytes back, and not one byte of the room is
 * exceeded. Returns the size. */
static size_t check(const unsigned char *bytes, size_t n)
{
    size_t room = nd_literals_bound(n);
    unsigned char *out = malloc(room + 1), *back = malloc(n + 1);
    uLongf n_back = n + 1;
    assert_non_null(out);
    assert_non_null(back);
    out[room] = GUARD;
    size_t n_out = nd_literals_encode(bytes, n, out);
    assert_true(n_out <= room);
    assert_int_equal(out[room], GUARD);
    assert_int_equal(uncompress(back, &n_back, out, n_out), Z_OK);
    assert_int_equal(n_back, n);
    assert_memory_equal(back, bytes, n);
    free(out);
    free(back);
    return n_out;
}

static void zlib_gives_the_bytes_back(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 4, 5, 255, 32767, 32768, 32769, 65536, 98303, MOST};
    uint64_t seed = 20261124;
    unsigned char *bytes = malloc(MOST);
    assert_non_null(bytes);
    for (size_t n_values = 1; n_values <= 256; n_values += n_values < 4 ? 1 : 63) {
        for (size_t i = 0; i < MOST; i++)
            bytes[i] = (unsigned char)(draw(&seed) % n_values * 255 / n_values);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            check(bytes, sizes[i]);
    }
    free(bytes);
}

/* Counts like Fibonacci's numbers make the longest codes: 22 bits, were they not limited. */
static void codes_that_would_be_too_long_are_limited(void **state)
{
    (void)state;
    unsigned char *bytes = malloc(MOST);
    size_t n = 0, count = 1, before = 1;
    assert_non_null(bytes);
    for (size_t value = 0; n + count <= 32768; value++) {
        memset(bytes + n, (int)value, count);
        n += count;
        size_t sum = count + before;
        before = count;
        count = sum;
    }
    assert_true(check(bytes, n) < n / 2);
    free(bytes);
}

/* The entropy of what has no order is reached: within 1 %, and the heads of blocks. */
static void size_is_near_the_entropy(void **state)
{
    (void)state;
    uint64_t seed = 7;
    unsigned char *bytes = malloc(MOST);
    assert_non_null(bytes);
    for (size_t i = 0; i < MOST; i++) /* half of them 0, a quarter 1, and so on: 2 bits a byte */
        for (bytes[i] = 0; draw(&seed) % 2 == 0 && bytes[i] < 12;)
            bytes[i]++;
    assert_in_range(check(bytes, MOST), MOST / 4 - MOST / 400, MOST / 4 + MOST / 100);
    free(bytes);
}

static size_t encode_chunk(const unsigned char *bytes, size_t n, int level)
{
    const struct nd_chunk_layout layout = {.chunk_bytes = n, .elem_bytes = 1, .sample_bytes = SAMPLE};
    unsigned char *out = malloc(nd_chunk_bound(n));
    size_t n_out = 0;
    assert_non_null(out);
    assert_int_equal(nd_chunk_encode(&layout, bytes, level, out, &n_out, NULL), ND_OK);
    free(out);
    return n_out;
}

/* Only at level 1, and only where matches save little. */
static void matches_are_looked_for_where_they_save(void **state)
{
    (void)state;
    enum { N = 13 * SAMPLE };
    uint64_t seed = 11;
    unsigned char *bytes = malloc(N);
    assert_non_null(bytes);
    for (size_t i = 0; i < N; i++)
        bytes[i] = (unsigned char)(64 + (draw(&seed) % 64 + draw(&seed) % 64));
    size_t n_literals = check(bytes, N);
    assert_int_equal(encode_chunk(bytes, N, 1), n_literals);
    assert_int_not_equal(encode_chunk(bytes, N, 2), n_literals);
    for (size_t i = SAMPLE; i < N; i++) /* all samples are equal */
        bytes[i] = bytes[i - SAMPLE];
    assert_true(encode_chunk(bytes, N, 1) < check(bytes, N) / 5);
    memset(bytes, 3, N);
    assert_true(encode_chunk(bytes, N, 1) < check(bytes, N) / 10);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zlib_gives_the_bytes_back),
        cmocka_unit_test(codes_that_would_be_too_long_are_limited),
        cmocka_unit_test(size_is_near_the_entropy),
        cmocka_unit_test(matches_are_looked_for_where_they_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
