/* The digest is that of XXH3 with 128 bits, in one piece and in several, with every instruction set. */
#include "support/main.h"

#include <string.h>

#include "core/tensors/digest_internal.h"

enum { N_BYTES = 5000 };

static unsigned char bytes[N_BYTES + 1];

static void fill(void)
{
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof bytes; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(x >> 24);
    }
}

/* Of no bytes: xxhash's own test values. */
static void digest_of_nothing_is_the_published_one(void **state)
{
    (void)state;
    struct nd_digest none = nd_digest_bytes("", 0);
    assert_true(none.high == UINT64_C(0x99aa06d3014798d8) && none.low == UINT64_C(0x6001c324468d497f));
}

static void instruction_sets_give_the_same_digest(void **state)
{
    (void)state;
    fill();
    for (size_t n = 0; n <= N_BYTES; n += n < 600 ? 1 : 97)
        for (size_t at = 0; at < 2; at++)
            assert_true(
                nd_digest_equal(nd_digest_bytes(bytes + at, n), nd_digest_plain.of_bytes(bytes + at, n)));
}

static void pieces_give_the_digest_of_the_whole(void **state)
{
    (void)state;
    fill();
    for (size_t piece = 1; piece < N_BYTES; piece = 2 * piece + 1) {
        struct nd_digest_stream *stream = nd_digest_stream_create();
        assert_non_null(stream);
        for (size_t at = 0; at < N_BYTES; at += piece) {
            size_t n = N_BYTES - at < piece ? N_BYTES - at : piece;
            nd_digest_stream_add(stream, bytes + at, n);
            assert_true(
                nd_digest_equal(nd_digest_stream_value(stream), nd_digest_plain.of_bytes(bytes, at + n)));
        }
        nd_digest_stream_destroy(&stream);
        assert_null(stream);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(digest_of_nothing_is_the_published_one),
                                       cmocka_unit_test(instruction_sets_give_the_same_digest),
                                       cmocka_unit_test(pieces_give_the_digest_of_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
