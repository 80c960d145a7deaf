/* Which elements differ, and how far apart they are. A part of kernels_template.c. */
#pragma once

#include <assert.h>
#include <string.h>
#if defined __AVX__
#include <immintrin.h>
#endif

#include "compare/metrics/kernels/template_elements.h"

/* The ones among n bytes of 0 and 1: every byte of a word counts for itself, at most ND_BLOCK / 8 = 128. */
static size_t count_ones(const uint8_t *mask, size_t n)
{
    uint64_t words = 0, total = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, mask + i, sizeof word);
        words += word;
    }
    for (; i < n; i++)
        total += mask[i];
    for (size_t byte = 0; byte < 8; byte++)
        total += words >> 8 * byte & 0xff;
    return (size_t)total;
}

#define MASK(type)                                                                                             \
    static size_t mask_##type(const void *ref, const void *test, size_t n, uint8_t *restrict mask)             \
    {                                                                                                          \
        assert(n <= ND_BLOCK);                                                                                 \
        const struct at_##type *r = ref, *t = test;                                                            \
        for (size_t i = 0; i < n; i++)                                                                         \
            mask[i] = r[i].value != t[i].value;                                                                \
        return count_ones(mask, n);                                                                            \
    }
MASK(uint8_t)
MASK(uint16_t)
MASK(uint32_t)
MASK(uint64_t)

/* Eight bytes of 0 and 1 at a time: their lowest bits. */
static void bits_of_bytes(const uint8_t *mask, size_t from, size_t n, uint64_t *bits)
{
    size_t i = from;
    for (; i + 8 <= n; i += 8) {
        uint64_t bytes;
        memcpy(&bytes, mask + i, sizeof bytes);
        bits[i / 64] |= (bytes * 0x0102040810204080u >> 56) << i % 64;
    }
    for (; i < n; i++)
        bits[i / 64] |= (uint64_t)mask[i] << i % 64;
}

static void find_bits(const uint8_t *mask, size_t n, uint64_t *bits)
{
    assert(n <= ND_BLOCK);
    size_t i = 0;
    memset(bits, 0, ND_BLOCK / 64 * sizeof *bits);
#if defined __AVX512BW__
    for (; i + 64 <= n; i += 64) {
        __m512i bytes = _mm512_loadu_si512(mask + i);
        bits[i / 64] = _mm512_test_epi8_mask(bytes, bytes);
    }
#elif defined __AVX2__
    for (; i + 32 <= n; i += 32) {
        __m256i bytes = _mm256_loadu_si256((const __m256i_u *)(const void *)(mask + i));
        uint32_t signs = (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(bytes, 7));
        bits[i / 64] |= (uint64_t)signs << i % 64;
    }
#endif
    bits_of_bytes(mask, i, n, bits);
}

/* Distances. `wide` holds every distance of the type: what is wrapped in it on the way does not matter. */

#define STEPS(name, type, wide)                                                                                \
    static uint64_t distance_##name(const void *ref, const void *test, size_t n, uint64_t *restrict out)       \
    {                                                                                                          \
        assert(n <= ND_BLOCK);                                                                                 \
        const struct at_##type *r = ref, *t = test;                                                            \
        wide most = 0;                                                                                         \
        for (size_t i = 0; i < n; i++) {                                                                       \
            wide up = (wide)((wide)t[i].value - (wide)r[i].value);                                             \
            wide apart = t[i].value >= r[i].value ? up : (wide)(0 - up);                                       \
            most = apart > most ? apart : most;                                                                \
            out[i] = apart;                                                                                    \
        }                                                                                                      \
        return most;                                                                                           \
    }
STEPS(u8, uint8_t, uint32_t)
STEPS(i8, int8_t, uint32_t)
STEPS(u16, uint16_t, uint32_t)
STEPS(i16, int16_t, uint32_t)
STEPS(u32, uint32_t, uint32_t)
STEPS(i32, int32_t, uint32_t)
STEPS(u64, uint64_t, uint64_t)
STEPS(i64, int64_t, uint64_t)

/* Magnitudes on two sides of zero add, on one side they subtract. */
#define FLOATS_APART(name, type, wide, sign)                                                                   \
    static uint64_t distance_##name(const void *ref, const void *test, size_t n, uint64_t *restrict out)       \
    {                                                                                                          \
        assert(n <= ND_BLOCK);                                                                                 \
        const struct at_##type *r = ref, *t = test;                                                            \
        wide most = 0;                                                                                         \
        for (size_t i = 0; i < n; i++) {                                                                       \
            wide a = r[i].value & ((sign)-1), b = t[i].value & ((sign)-1);                                     \
            wide same_side = a > b ? a - b : b - a;                                                            \
            wide apart = (r[i].value ^ t[i].value) & (sign) ? a + b : same_side;                               \
            most = apart > most ? apart : most;                                                                \
            out[i] = apart;                                                                                    \
        }                                                                                                      \
        return most;                                                                                           \
    }
FLOATS_APART(f8, uint8_t, uint32_t, 0x80u)
FLOATS_APART(f16, uint16_t, uint32_t, 0x8000u)
FLOATS_APART(f32, uint32_t, uint32_t, 0x80000000u)
FLOATS_APART(f64, uint64_t, uint64_t, 0x8000000000000000u)
