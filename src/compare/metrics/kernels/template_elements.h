/* Elements of every type, and their values as doubles. A part of kernels_template.c. */
#pragma once

#include <assert.h>
#include <string.h>
#if defined __AVX__
#include <immintrin.h>
#endif

#include "compare/metrics/kernels/kernels.h"

/* Elements may lie at any address. */
#define ELEMENT(type)                                                                                          \
    struct at_##type {                                                                                         \
        type value;                                                                                            \
    } __attribute__((packed, may_alias))
ELEMENT(uint8_t);
ELEMENT(int8_t);
ELEMENT(uint16_t);
ELEMENT(int16_t);
ELEMENT(uint32_t);
ELEMENT(int32_t);
ELEMENT(uint64_t);
ELEMENT(int64_t);
ELEMENT(float);
ELEMENT(double);

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double double_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Selection by mask: with `?:` gcc does not vectorise what is around it. */
static inline uint32_t all_ones_if(bool condition)
{
    return 0 - (uint32_t)condition;
}

static inline uint32_t choose(bool condition, uint32_t yes, uint32_t no)
{
    uint32_t mask = all_ones_if(condition);
    return (yes & mask) | (no & ~mask);
}

/* Values. 32-bit unsigned and 64-bit integers take steps that vectorise without an instruction for them. */

static inline double from_i32(int32_t value)
{
    return (double)value;
}

static inline double from_u32(uint32_t value)
{
    return (double)(int32_t)(value ^ 0x80000000u) + 0x1p31;
}

/* 2^84 + high * 2^32 and 2^52 + low are doubles with these halves as their lowest bits; only the last addition
 * rounds. */
static inline double from_u64(uint64_t value)
{
    double high = double_of_bits(0x4530000000000000u | value >> 32);
    double low = double_of_bits(0x4330000000000000u | (value & 0xffffffffu));
    return (high - 0x1.00000001p84) + low;
}

/* As from_u64, with 2^63 more in the high half. */
static inline double from_i64(int64_t value)
{
    uint64_t offset = (uint64_t)value ^ 0x8000000000000000u;
    double high = double_of_bits(0x4530000000000000u | offset >> 32);
    double low = double_of_bits(0x4330000000000000u | (offset & 0xffffffffu));
    return (high - 0x1.00000801p84) + low;
}

static inline double from_f32(float value)
{
    return (double)value;
}

static inline double from_f64(double value)
{
    return value;
}

static inline double from_bf16(uint16_t bits)
{
    return (double)float_of_bits((uint32_t)bits << 16);
}

/* Moves the exponent to where float has it. Subnormals become normal by one exponent more, which is then
 * subtracted: arithmetic on subnormal floats is slow on some processors. */
static inline double from_f16(uint16_t bits)
{
    uint32_t magnitude = bits & 0x7fffu, wide = magnitude << 13;
    uint32_t normal = wide + (112u << 23) + (all_ones_if(magnitude >= 0x7c00u) & 112u << 23);
    uint32_t subnormal = bits_of_float(float_of_bits(wide + (113u << 23)) - 0x1p-14f);
    uint32_t value = choose(magnitude < 0x400u, subnormal, normal);
    return (double)float_of_bits(value | (bits & 0x8000u) << 16);
}

static inline double from_f8e5m2(uint8_t bits)
{
    return from_f16((uint16_t)(bits << 8));
}

/* As from_f16; the one NaN is all ones. */
static inline double from_f8e4m3fn(uint8_t bits)
{
    uint32_t magnitude = bits & 0x7fu, wide = magnitude << 20;
    uint32_t normal = (wide + (120u << 23)) | (all_ones_if(magnitude == 0x7fu) & 0x7fc00000u);
    uint32_t subnormal = bits_of_float(float_of_bits(wide + (121u << 23)) - 0x1p-6f);
    uint32_t value = choose(magnitude < 0x8u, subnormal, normal);
    return (double)float_of_bits(value | (bits & 0x80u) << 24);
}

#define LOAD(name, type, value_of)                                                                             \
    static void load_##name(const void *elems, size_t n, double zero, double *restrict out)                    \
    {                                                                                                          \
        assert(n <= ND_BLOCK);                                                                                 \
        const struct at_##type *elem = elems;                                                                  \
        for (size_t i = 0; i < n; i++)                                                                         \
            out[i] = value_of(elem[i].value) - zero;                                                           \
    }
LOAD(u8, uint8_t, from_i32)
LOAD(i8, int8_t, from_i32)
LOAD(u16, uint16_t, from_i32)
LOAD(i16, int16_t, from_i32)
LOAD(u32, uint32_t, from_u32)
LOAD(i32, int32_t, from_i32)
LOAD(u64, uint64_t, from_u64)
LOAD(i64, int64_t, from_i64)
LOAD(f8e4m3fn, uint8_t, from_f8e4m3fn)
LOAD(f8e5m2, uint8_t, from_f8e5m2)
#if defined __AVX512F__
/* The processor converts halves by itself: 16 at a time. */
static void load_f16(const void *elems, size_t n, double zero, double *restrict out)
{
    enum { MANY = 16 };
    assert(n <= ND_BLOCK);
    const struct at_uint16_t *elem = elems;
    size_t i = 0;
    for (; i + MANY <= n; i += MANY) {
        __m512 wide = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)(const void *)(elem + i)));
        _mm512_storeu_pd(out + i, _mm512_cvtps_pd(_mm512_castps512_ps256(wide)));
        _mm512_storeu_pd(out + i + MANY / 2, _mm512_cvtps_pd(_mm512_extractf32x8_ps(wide, 1)));
    }
    for (; i < n; i++)
        out[i] = from_f16(elem[i].value) - zero;
}
#else
LOAD(f16, uint16_t, from_f16)
#endif
LOAD(bf16, uint16_t, from_bf16)
LOAD(f32, float, from_f32)
LOAD(f64, double, from_f64)
