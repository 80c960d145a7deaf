/* Sums and extremes in fixed lanes. A part of kernels_template.c. */
#pragma once

#include <string.h>
#if defined __AVX__
#include <immintrin.h>
#endif

#include "compare/metrics/kernels/kernels.h"

/* Sums. Lanes are vectors here (a gcc and clang extension): gcc 12 does not keep arrays of lanes in registers.
 * Several short loops over values that are in the first cache, each with few enough vectors for the registers.
 */

#if defined ND_VECTOR_BYTES
enum { VECTOR_BYTES = ND_VECTOR_BYTES };
#elif defined __AVX512F__
enum { VECTOR_BYTES = 64 };
#elif defined __AVX__
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif
enum { PER_VECTOR = VECTOR_BYTES / 8, N_VECTORS = ND_LANES / PER_VECTOR };

#define VECTOR(type) __attribute__((vector_size(VECTOR_BYTES))) type
/* As many floats, and integers of their size, as VECTOR(double) has doubles. */
#define HALF_VECTOR(type) __attribute__((vector_size(VECTOR_BYTES / 2))) type

struct lanes {
    VECTOR(double) part[N_VECTORS];
};

static inline struct lanes all_lanes(double value)
{
    struct lanes out;
    for (size_t k = 0; k < N_VECTORS; k++)
        out.part[k] = (VECTOR(double)){0} + value;
    return out;
}

static inline VECTOR(double) take(const double *x)
{
    VECTOR(double) out;
    memcpy(&out, x, sizeof out);
    return out;
}

/* A cast between vectors of one size keeps the bits. */
static inline VECTOR(double) choose_lanes(VECTOR(int64_t) mask, VECTOR(double) yes, VECTOR(double) no)
{
    return (VECTOR(double))(((VECTOR(int64_t))yes & mask) | ((VECTOR(int64_t))no & ~mask));
}

static inline VECTOR(double) size_of(VECTOR(double) x)
{
    return (VECTOR(double))((VECTOR(int64_t))x & INT64_MAX);
}

/* a where a < b, else b: what one instruction of x86 does. Written out, gcc 12 takes four. */
#if defined __AVX512F__
#define LESSER(a, b) ((VECTOR(double))_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#define GREATER(a, b) ((VECTOR(double))_mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define LESSER_FLOAT(a, b) ((HALF_VECTOR(float))_mm256_min_ps((__m256)(a), (__m256)(b)))
#define GREATER_FLOAT(a, b) ((HALF_VECTOR(float))_mm256_max_ps((__m256)(a), (__m256)(b)))
#elif defined __AVX__
#define LESSER(a, b) ((VECTOR(double))_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define GREATER(a, b) ((VECTOR(double))_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define LESSER_FLOAT(a, b) ((HALF_VECTOR(float))_mm_min_ps((__m128)(a), (__m128)(b)))
#define GREATER_FLOAT(a, b) ((HALF_VECTOR(float))_mm_max_ps((__m128)(a), (__m128)(b)))
#else
#define LESSER(a, b) choose_lanes((a) < (b), a, b)
#define GREATER(a, b) choose_lanes((a) > (b), a, b)
#define LESSER_FLOAT(a, b) choose_floats((a) < (b), a, b)
#define GREATER_FLOAT(a, b) choose_floats((a) > (b), a, b)
#endif

static inline VECTOR(double) lesser(VECTOR(double) a, VECTOR(double) b)
{
    return LESSER(a, b);
}

/* a where a > b, else b. */
static inline VECTOR(double) greater(VECTOR(double) a, VECTOR(double) b)
{
    return GREATER(a, b);
}

static double add_lanes(const struct lanes *lanes)
{
    double sum[ND_LANES];
    memcpy(sum, lanes, sizeof sum);
    for (size_t width = ND_LANES / 2; width > 0; width /= 2)
        for (size_t i = 0; i < width; i++)
            sum[i] = sum[2 * i] + sum[2 * i + 1];
    return sum[0];
}

static double min_lane(const struct lanes *lanes)
{
    double x[ND_LANES];
    memcpy(x, lanes, sizeof x);
    for (size_t lane = 1; lane < ND_LANES; lane++)
        x[0] = x[lane] < x[0] ? x[lane] : x[0];
    return x[0];
}

static double greatest_lane(const struct lanes *lanes)
{
    double x[ND_LANES];
    memcpy(x, lanes, sizeof x);
    for (size_t lane = 1; lane < ND_LANES; lane++)
        x[0] = x[lane] > x[0] ? x[lane] : x[0];
    return x[0];
}

/* What is missing to whole lanes is made up for by values that change nothing: +0 in sums (a lane starts as +0
 * and never becomes -0), a value of the block where values are compared. */
static const double *pad(const double *x, size_t n, double padding, double *out)
{
    for (size_t lane = 0; lane < ND_LANES; lane++)
        out[lane] = lane < n ? x[lane] : padding;
    return out;
}
