#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/hdf5/chunk_decode.h"
#include "core/tensors/chunk.h"
#include "npudiff/core/parse.h"

static struct nd_chunk_decoder
    decoder; /* one for all: nothing may be left in it from a chunk that was refused */

static enum nd_status decode(const void *bytes, size_t n_bytes, size_t elem_bytes, bool is_shuffled,
                             bool is_deflated, void *raw, size_t chunk_bytes, struct nd_error *err)
{
    const struct nd_stored_chunk stored = {bytes, n_bytes, elem_bytes, is_shuffled, is_deflated};
    return nd_chunk_decode(&decoder, &stored, raw, chunk_bytes, err);
}

/* A small generator whose seed is printed, so that a failure can be repeated with ND_SEED. */
static uint64_t seed_of_run(void)
{
    uint64_t seed = 20240607;
    const char *given = getenv("ND_SEED");
    if (given != NULL)
        assert_true(nd_parse_u64(given, &seed));
    print_message("# seed %llu\n", (unsigned long long)seed);
    return seed;
}

static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static const enum nd_dtype dtypes[] = {ND_DTYPE_U8, ND_DTYPE_I16, ND_DTYPE_F32, ND_DTYPE_F64};

/* Every byte of every sample is in exactly one span, and spans of one sample come in order. */
static void check_cover(const struct nd_chunk_layout *layout)
{
    size_t n_samples = (size_t)layout->dataset.dims[0];
    size_t sample = 0, offset = 0;
    for (size_t i = 0; i < layout->n_chunks; i++) {
        struct nd_chunk_span span;
        nd_chunk_span(layout, i, &span);
        assert_int_equal(span.first_sample, sample);
        assert_int_equal(span.offset_bytes, offset);
        assert_true(span.n_bytes > 0 && span.n_bytes <= layout->chunk_bytes);
        assert_true(span.n_samples >= 1 && span.n_samples <= layout->samples_per_chunk);
        size_t linear = 0;
        for (int d = 1; d < layout->dataset.rank; d++)
            linear = linear * (size_t)layout->dataset.dims[d] + (size_t)span.start[d];
        assert_int_equal(linear * layout->elem_bytes, span.offset_bytes);
        assert_int_equal(span.start[0], span.first_sample);
        if (layout->chunks_per_sample == 1) {
            assert_int_equal(span.n_bytes, span.n_samples * layout->sample_bytes);
            sample += span.n_samples;
        } else {
            assert_int_equal(span.n_samples, 1);
            offset += span.n_bytes;
            if (offset == layout->sample_bytes) {
                offset = 0;
                sample++;
            }
        }
    }
    assert_int_equal(sample, n_samples);
    assert_int_equal(offset, 0);
}

static void layout_random_covers_each_byte_once(void **state)
{
    (void)state;
    uint64_t random = seed_of_run();
    size_t n_cut = 0, n_shared = 0;
    for (int round = 0; round < 4000; round++) {
        struct nd_shape sample = {.rank = (int)(next_random(&random) % ND_MAX_RANK)};
        uint64_t most = next_random(&random) % 3 == 0 ? 600 : 12;
        size_t n_elems = 1;
        for (int i = 0; i < sample.rank; i++) {
            sample.dims[i] = 1 + (int64_t)(next_random(&random) % most);
            if (n_elems * (size_t)sample.dims[i] > 2000000)
                sample.dims[i] = 1;
            n_elems *= (size_t)sample.dims[i];
        }
        struct nd_chunk_layout layout, again;
        size_t n_samples = 1 + next_random(&random) % 40;
        enum nd_dtype dtype = dtypes[next_random(&random) % 4];
        assert_int_equal(nd_chunk_layout_make(&sample, dtype, n_samples, &layout, NULL), ND_OK);
        assert_int_equal(layout.sample_bytes, n_elems * nd_dtype_size_bytes(dtype));
        assert_true(layout.chunk_bytes <= 256 * 1024);
        check_cover(&layout);
        n_cut += layout.chunks_per_sample > 1;
        n_shared += layout.samples_per_chunk > 1;
        assert_int_equal(
            nd_chunk_layout_from_dims(&layout.dataset, &layout.chunk, layout.elem_bytes, &again, NULL), ND_OK);
        assert_int_equal(again.n_chunks, layout.n_chunks);
        assert_int_equal(again.chunk_bytes, layout.chunk_bytes);
        assert_int_equal(again.sample_bytes, layout.sample_bytes);
        assert_int_equal(again.samples_per_chunk, layout.samples_per_chunk);
        assert_int_equal(again.chunks_per_sample, layout.chunks_per_sample);
        size_t fewer = 1 + next_random(&random) % n_samples;
        nd_chunk_layout_shorten(&layout, fewer);
        assert_true(nd_shape_equal(&layout.chunk, &again.chunk));
        check_cover(&layout);
        assert_int_equal(
            nd_chunk_layout_from_dims(&layout.dataset, &layout.chunk, layout.elem_bytes, &again, NULL), ND_OK);
    }
    assert_true(n_cut > 100 && n_shared > 100);
}

static void layout_of_nothing_has_no_chunks(void **state)
{
    (void)state;
    struct nd_shape sample = {.rank = 3, .dims = {4, 0, 3}};
    struct nd_chunk_layout layout;
    assert_int_equal(nd_chunk_layout_make(&sample, ND_DTYPE_F32, 5, &layout, NULL), ND_OK);
    assert_int_equal(layout.n_chunks, 0);
    assert_int_equal(layout.sample_bytes, 0);
    nd_chunk_layout_shorten(&layout, 2);
    assert_int_equal(layout.n_chunks, 0);
}

static void layout_impossible_is_refused(void **state)
{
    (void)state;
    struct nd_chunk_layout layout = {.n_chunks = 77};
    struct nd_shape scalar = {0}, deep = {.rank = 8}, huge = {.rank = 2, .dims = {INT64_MAX, 8}};
    assert_int_equal(nd_chunk_layout_make(&scalar, ND_DTYPE_U8, 0, &layout, NULL), ND_ERR_FORMAT);
    assert_int_equal(nd_chunk_layout_make(&deep, ND_DTYPE_U8, 1, &layout, NULL), ND_ERR_FORMAT);
    assert_int_equal(nd_chunk_layout_make(&huge, ND_DTYPE_U8, 1, &layout, NULL), ND_ERR_MEMORY);
    assert_int_equal(nd_chunk_layout_make(&scalar, ND_DTYPE_NONE, 1, &layout, NULL), ND_ERR_FORMAT);
    assert_int_equal(layout.n_chunks, 77);
}

static void layout_from_foreign_chunks_is_refused(void **state)
{
    (void)state;
    struct nd_chunk_layout layout;
    struct nd_shape dataset = {.rank = 3, .dims = {4, 10, 6}};
    const struct nd_shape bad[] = {
        {.rank = 2, .dims = {1, 10}},            /* another rank */
        {.rank = 3, .dims = {1, 10, 3}},         /* a partial dimension behind a whole one */
        {.rank = 3, .dims = {2, 5, 6}},          /* parts of several samples */
        {.rank = 3, .dims = {0, 10, 6}},         /* nothing */
        {.rank = 3, .dims = {1, 11, 6}},         /* larger than the dataset */
        {.rank = 3, .dims = {1, -1, 6}},         /* negative */
        {.rank = 3, .dims = {INT64_MAX, 10, 6}}, /* overflows */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_true(nd_chunk_layout_from_dims(&dataset, &bad[i], 1, &layout, NULL) != ND_OK);
    struct nd_shape good = {.rank = 3, .dims = {1, 4, 6}};
    assert_int_equal(nd_chunk_layout_from_dims(&dataset, &good, 1, &layout, NULL), ND_OK);
    assert_int_equal(layout.chunks_per_sample, 3);
    struct nd_shape empty = {.rank = 2, .dims = {4, 0}}, one = {.rank = 2, .dims = {1, 1}};
    assert_true(nd_chunk_layout_from_dims(&empty, &one, 1, &layout, NULL) != ND_OK);
}

static void check_round_trip(const unsigned char *raw, size_t n, size_t elem_bytes, int level)
{
    size_t bound = nd_chunk_bound(n), stored_bytes = 0;
    unsigned char *stored = malloc(bound), *back = malloc(n + 1);
    assert_non_null(stored);
    assert_non_null(back);
    assert_int_equal(nd_chunk_encode(&(struct nd_chunk_layout){.chunk_bytes = n, .elem_bytes = elem_bytes}, raw,
                                     level, stored, &stored_bytes, NULL),
                     ND_OK);
    assert_true(stored_bytes <= bound);
    back[n] = 0xA5;
    assert_int_equal(decode(stored, stored_bytes, elem_bytes, true, true, back, n, NULL), ND_OK);
    assert_memory_equal(back, raw, n);
    assert_int_equal(back[n], 0xA5);
    struct nd_error err;
    assert_int_equal(decode(stored, stored_bytes, elem_bytes, true, true, back, n + 1, &err), ND_ERR_FORMAT);
    assert_int_equal(err.id, 611);
    if (n > 0)
        assert_int_equal(decode(stored, stored_bytes, elem_bytes, true, true, back, n - 1, NULL),
                         ND_ERR_FORMAT);
    assert_int_equal(decode(stored, stored_bytes - 1, elem_bytes, true, true, back, n, NULL), ND_ERR_FORMAT);
    free(stored);
    free(back);
}

static void chunk_encoded_decodes_to_the_same_bytes(void **state)
{
    (void)state;
    uint64_t random = seed_of_run();
    static const size_t elem_bytes[] = {1, 2, 4, 8};
    static const size_t tensors[] = {4095, 4096, 4097, 65535, 65536, 65537, 262143, 262144, 262145};
    unsigned char *raw = malloc(262145);
    assert_non_null(raw);
    for (size_t i = 0; i < 262145; i++)
        raw[i] = (unsigned char)(next_random(&random) % (i % 3 == 0 ? 256 : 4));
    for (size_t e = 0; e < 4; e++) {
        for (size_t n = 0; n <= 300; n++)
            check_round_trip(raw, n, elem_bytes[e], 1 + (int)(n % 9));
        for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
            check_round_trip(raw, tensors[i], elem_bytes[e], 6);
    }
    free(raw);
}

static void chunk_shuffled_is_laid_out_as_hdf5_does(void **state)
{
    (void)state;
    /* Byte planes, then what is left over; by hand from HDF5's description of the filter. */
    static const unsigned char shuffled[] = {1, 4, 7, 2, 5, 8, 3, 6, 9, 10};
    static const unsigned char raw[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    unsigned char back[10];
    assert_int_equal(decode(shuffled, 10, 3, true, false, back, 10, NULL), ND_OK);
    assert_memory_equal(back, raw, 10);
    static const unsigned char pairs[] = {1, 3, 5, 2, 4, 6};
    assert_int_equal(decode(pairs, 6, 2, true, false, back, 6, NULL), ND_OK);
    assert_memory_equal(back, raw, 6);
    static const unsigned char quads[] = {1, 5, 2, 6, 3, 7, 4, 8};
    assert_int_equal(decode(quads, 8, 4, true, false, back, 8, NULL), ND_OK);
    assert_memory_equal(back, raw, 8);
    assert_int_equal(decode(raw, 10, 2, false, false, back, 10, NULL), ND_OK);
    assert_memory_equal(back, raw, 10);
    assert_int_equal(decode(raw, 9, 2, true, false, back, 10, NULL), ND_ERR_FORMAT);
}

/* Deflate carries a checksum (Adler-32, which a handful in 20000 escape: the digests are there for those). */
static void chunk_damaged_is_nearly_always_refused(void **state)
{
    (void)state;
    uint64_t random = seed_of_run();
    enum { N = 3000 };
    unsigned char raw[N], back[N];
    for (size_t i = 0; i < N; i++)
        raw[i] = (unsigned char)(next_random(&random) % 7);
    size_t stored_bytes = 0;
    unsigned char *stored = malloc(nd_chunk_bound(N));
    assert_non_null(stored);
    assert_int_equal(nd_chunk_encode(&(struct nd_chunk_layout){.chunk_bytes = N, .elem_bytes = 2}, raw, 6,
                                     stored, &stored_bytes, NULL),
                     ND_OK);
    size_t n_refused = 0, n_escaped = 0;
    for (int round = 0; round < 20000; round++) {
        size_t at = next_random(&random) % stored_bytes;
        unsigned char bit = (unsigned char)(1u << (next_random(&random) % 8));
        stored[at] ^= bit;
        if (decode(stored, stored_bytes, 2, true, true, back, N, NULL) != ND_OK)
            n_refused++;
        else if (memcmp(back, raw, N) != 0)
            n_escaped++;
        stored[at] ^= bit;
    }
    print_message("# %zu of 20000 refused, %zu escaped the checksum\n", n_refused, n_escaped);
    assert_true(n_refused > 19000 && n_escaped < 100);
    for (size_t n = 0; n < stored_bytes; n++)
        assert_int_equal(decode(stored, n, 2, true, true, back, N, NULL), ND_ERR_FORMAT);
    unsigned char *longer = calloc(stored_bytes + 1, 1);
    assert_non_null(longer);
    memcpy(longer, stored, stored_bytes);
    assert_int_equal(decode(longer, stored_bytes + 1, 2, true, true, back, N, NULL), ND_ERR_FORMAT);
    free(longer);
    free(stored);
}

static void chunk_of_rubbish_is_refused(void **state)
{
    (void)state;
    uint64_t random = seed_of_run();
    unsigned char rubbish[64], back[256];
    for (int round = 0; round < 20000; round++) {
        size_t n = next_random(&random) % sizeof rubbish;
        for (size_t i = 0; i < n; i++)
            rubbish[i] = (unsigned char)next_random(&random);
        if (n > 2 && round % 2 == 0) { /* a header that is accepted */
            rubbish[0] = 0x78;
            rubbish[1] = 0x9c;
        }
        assert_int_equal(decode(rubbish, n, 4, true, true, back, sizeof back, NULL), ND_ERR_FORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_random_covers_each_byte_once),
        cmocka_unit_test(layout_of_nothing_has_no_chunks),
        cmocka_unit_test(layout_impossible_is_refused),
        cmocka_unit_test(layout_from_foreign_chunks_is_refused),
        cmocka_unit_test(chunk_encoded_decodes_to_the_same_bytes),
        cmocka_unit_test(chunk_shuffled_is_laid_out_as_hdf5_does),
        cmocka_unit_test(chunk_damaged_is_nearly_always_refused),
        cmocka_unit_test(chunk_of_rubbish_is_refused),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    nd_chunk_decoder_deinit(&decoder);
    return n_failed;
}
