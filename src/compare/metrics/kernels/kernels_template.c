/* The kernels of one instruction set. Meson compiles this file once for each, with ND_KERNELS_ISA and the flags
 * of that set. Plain C in loops that compilers vectorise: the order of every addition is written out,
 * contraction of a multiply and an add is off, so what differs between instruction sets is speed alone. */
#include <assert.h>
#include <math.h>
#include <string.h>
#if defined __AVX__
#include <immintrin.h>
#endif

#include "compare/metrics/kernels/kernels.h"

/* ---- elements of every type, and their values as doubles ---- */

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

/* ---- which elements differ, and how far apart they are ---- */

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

/* ---- sums and extremes in fixed lanes ---- */

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

/* ---- the errors of one tensor against the other ---- */

/* How many lanes of a are less than those of b. */
static inline uint64_t count_less(VECTOR(double) a, VECTOR(double) b)
{
#if defined __AVX512F__
    return (uint64_t)__builtin_popcount(_mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LT_OQ));
#elif defined __AVX__
    return (uint64_t)__builtin_popcount((unsigned)_mm256_movemask_pd((__m256d)(a < b)));
#else
    VECTOR(int64_t) less = a < b; /* -1 where it holds */
    int64_t count = 0;
    for (size_t k = 0; k < PER_VECTOR; k++)
        count -= less[k];
    return (uint64_t)count;
#endif
}

/* Slots of values that are no NaN and not negative. */
static inline void put_slots(VECTOR(double) value, uint32_t *out)
{
    VECTOR(double) lowest = (VECTOR(double)){0} + ND_SLOT_LOW;
    VECTOR(uint64_t) bins = (VECTOR(uint64_t))greater(value, lowest) >> ND_BIN_SHIFT;
    HALF_VECTOR(uint32_t) slots = __builtin_convertvector(bins, HALF_VECTOR(uint32_t)) - ND_SLOT_BIN;
    memcpy(out, &slots, sizeof slots);
}

struct pair_lanes {
    struct lanes sum_relative, sum_abs, sum_signed, sum_squares, sum_ref_signed, max_relative, max_absolute;
    uint64_t n_above, n_below, n_nonzero; /* of ref */
};

/* A quotient for every element, also where nothing differs (0 / 1); where ref is 0 infinity makes it 0. */
static inline void add_pairs(const double *ref, const double *test, struct pair_lanes *lanes,
                             struct nd_error_values *out, size_t at)
{
    for (size_t k = 0; k < N_VECTORS; k++) {
        VECTOR(double) r = take(ref + k * PER_VECTOR), d = take(test + k * PER_VECTOR) - r, none = {0};
        VECTOR(double) absolute = size_of(d), size = size_of(r);
        VECTOR(double) ratio = absolute / choose_lanes(size == 0, none + HUGE_VAL, size);
        lanes->sum_relative.part[k] += ratio;
        lanes->sum_abs.part[k] += absolute;
        lanes->sum_signed.part[k] += d;
        lanes->sum_squares.part[k] += d * d;
        lanes->sum_ref_signed.part[k] += r * d;
        lanes->max_relative.part[k] = greater(ratio, lanes->max_relative.part[k]);
        lanes->max_absolute.part[k] = greater(absolute, lanes->max_absolute.part[k]);
        lanes->n_above += count_less(none, d);
        lanes->n_below += count_less(d, none);
        lanes->n_nonzero += count_less(none, size);
        put_slots(absolute, out->absolute + at + k * PER_VECTOR);
        put_slots(ratio, out->relative + at + k * PER_VECTOR);
    }
}

/* The folders of slots that are in use. */
static uint32_t folders_of(const uint32_t *slots, size_t n)
{
    uint32_t folders = 0;
    for (size_t i = 0; i < n; i++)
        folders |= (uint32_t)1 << ((slots[i] + (ND_LOG_IN_FOLDER - 1)) / ND_LOG_IN_FOLDER % 32);
    return folders;
}

static void errors(const double *ref, const double *test, size_t n, struct nd_error_values *out,
                   struct nd_diff_sums *sums)
{
    assert(n <= ND_BLOCK);
    struct pair_lanes lanes = {.n_above = 0};
    double rest_ref[ND_LANES], rest_test[ND_LANES];
    uint64_t n_undefined = 0;
    size_t i = 0;
    for (; i + ND_LANES <= n; i += ND_LANES)
        add_pairs(ref + i, test + i, &lanes, out, i);
    if (i < n)
        add_pairs(pad(ref + i, n - i, 0, rest_ref), pad(test + i, n - i, 0, rest_test), &lanes, out, i);
    for (size_t k = 0; k < n && lanes.n_nonzero < n; k++)
        n_undefined += ref[k] == 0 && test[k] != 0;
    *sums = (struct nd_diff_sums){.sum_abs = add_lanes(&lanes.sum_abs),
                                  .sum_signed = add_lanes(&lanes.sum_signed),
                                  .sum_squares = add_lanes(&lanes.sum_squares),
                                  .sum_ref_signed = add_lanes(&lanes.sum_ref_signed),
                                  .max_abs = greatest_lane(&lanes.max_absolute),
                                  .n_above = lanes.n_above,
                                  .n_below = lanes.n_below};
    out->sum_relative = add_lanes(&lanes.sum_relative);
    out->max_absolute = sums->max_abs;
    out->max_relative = greatest_lane(&lanes.max_relative);
    out->n_undefined = n_undefined;
    out->absolute_folders = folders_of(out->absolute, n);
    out->relative_folders = folders_of(out->relative, n);
}

/* How far apart are the two that are farthest: bytes in the order of unsigned ones. */
static uint8_t farthest_bytes(const uint8_t *ref, const uint8_t *test, size_t n, uint8_t flip)
{
    uint8_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t r = ref[i] ^ flip, t = test[i] ^ flip, apart = (uint8_t)(r > t ? r - t : t - r);
        most = apart > most ? apart : most;
    }
    return most;
}

/* The cells of n pairs. Equal ones, which nobody counts, go to one of the 16 first cells of equal pairs in
 * turn: where most is equal, adding to one cell would wait for the addition before. */
static void find_cells(const uint8_t *restrict ref, const uint8_t *restrict test, size_t n,
                       uint16_t *restrict cell)
{
    enum { NEXT_EQUAL = 257 };
    uint16_t at = 0; /* of 16 bits, so that vectors have more of them */
    for (size_t i = 0; i < n; i++, at++) {
        uint16_t r = ref[i], t = test[i], equal = (uint16_t)(at % ND_LANES * NEXT_EQUAL),
                 pair = (uint16_t)(r << 8 | t);
        uint16_t is_equal = (uint16_t)((int16_t)((r ^ t) - 1) >> 15); /* all ones, or 0 */
        cell[i] = (uint16_t)(pair ^ ((pair ^ equal) & is_equal));
    }
}

/* What is missing to whole lanes: equal pairs. The ratios come one by one, so that lanes are no vectors here.
 */
static void join(const uint8_t *ref, const uint8_t *test, size_t n, bool is_signed, struct nd_joint_cell *cells,
                 struct nd_error_values *out)
{
    assert(n <= ND_BLOCK);
    uint16_t cell[ND_BLOCK + ND_LANES];
    double ratio[ND_LANES] = {0};
    struct lanes lanes;
    find_cells(ref, test, n, cell);
    memset(cell + n, 0, ND_LANES * sizeof *cell);
    for (size_t i = 0; i < n; i += ND_LANES)
        for (size_t k = 0; k < ND_LANES; k++) {
            struct nd_joint_cell *pair = &cells[cell[i + k]];
            pair->n[k % 2]++;
            ratio[k] += pair->ratio;
        }
    memcpy(&lanes, ratio, sizeof lanes);
    out->sum_relative = add_lanes(&lanes);
    out->max_absolute = farthest_bytes(ref, test, n, is_signed ? 0x80 : 0);
}

static void find_steps(const double *ref, const double *test, size_t n, uint8_t *out)
{
    enum { FIRST = 2 * 1023 }; /* of 1 */
    assert(n <= ND_BLOCK);
    for (size_t i = 0; i < n; i++) {
        double d = test[i] - ref[i];
        uint64_t bits;
        memcpy(&bits, &d, sizeof bits);
        uint32_t high = (uint32_t)(bits >> 51), size = ((high & 0xfff) - FIRST) & 127;
        out[i] = (uint8_t)(choose(d == 0, ND_NO_STEP, size | (high >> 5 & 128)));
    }
}

/* Differences have 16 bits: what is wrapped on the way does not matter. */
#define STEPS_FROM(name, type)                                                                                 \
    static void steps_from_##name(const void *ref, const void *test, size_t n, uint16_t limit,                 \
                                  uint32_t *above, uint32_t *below)                                            \
    {                                                                                                          \
        assert(n <= ND_BLOCK);                                                                                 \
        const struct at_##type *r = ref, *t = test;                                                            \
        int16_t from = (int16_t)limit;                                                                         \
        uint16_t n_above = 0, n_below = 0;                                                                     \
        for (size_t i = 0; i < n; i++) {                                                                       \
            int16_t d = (int16_t)(uint16_t)(t[i].value - r[i].value);                                          \
            n_above = (uint16_t)(n_above + (d >= from));                                                       \
            n_below = (uint16_t)(n_below + (d <= -from));                                                      \
        }                                                                                                      \
        *above = n_above;                                                                                      \
        *below = n_below;                                                                                      \
    }
STEPS_FROM(u8, uint8_t)
STEPS_FROM(i8, int8_t)
STEPS_FROM(u16, uint16_t)
STEPS_FROM(i16, int16_t)

static bool exceeds(const double *ref, const double *test, size_t n, double unit, double rtol)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += unit * fabs(test[i] - ref[i]) > rtol * fabs(unit * ref[i]);
    return count > 0;
}

/* ---- one tensor alone ---- */

struct value_sums {
    struct lanes sum, squares, min, max;
};

static inline void add_values(const double *x, struct value_sums *sums)
{
    for (size_t k = 0; k < N_VECTORS; k++) {
        VECTOR(double) value = take(x + k * PER_VECTOR);
        sums->sum.part[k] += value;
        sums->squares.part[k] += value * value;
        sums->min.part[k] = lesser(value, sums->min.part[k]);
        sums->max.part[k] = greater(value, sums->max.part[k]);
    }
}

static void sum_values(const double *x, size_t n, struct nd_self_sums *out)
{
    struct value_sums sums = {all_lanes(0), all_lanes(0), all_lanes(HUGE_VAL), all_lanes(-HUGE_VAL)};
    double rest[ND_LANES];
    size_t i = 0;
    for (; i + ND_LANES <= n; i += ND_LANES)
        add_values(x + i, &sums);
    if (i < n) { /* the first value changes no range, and 0 no sum */
        struct value_sums range = sums;
        add_values(pad(x + i, n - i, x[i], rest), &range);
        add_values(pad(x + i, n - i, 0, rest), &sums);
        sums.min = range.min;
        sums.max = range.max;
    }
    out->sum = add_lanes(&sums.sum);
    out->sum_squares = add_lanes(&sums.squares);
    out->min = min_lane(&sums.min) + 0.0; /* -0 becomes +0 */
    out->max = greatest_lane(&sums.max) + 0.0;
}

static void self_sums(const double *x, size_t n, double tiny, struct nd_self_sums *out)
{
    assert(n >= 1 && n <= ND_BLOCK);
    sum_values(x, n, out);
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += fabs(x[i]) < tiny;
    out->n_tiny = count;
}

/* Whole numbers: sum (x - z) = sum x - n z, sum (x - z)^2 = sum x^2 - 2 z sum x + n z^2. Squares of bytes and
 * sums of PIECE bytes have 16 bits: the narrower the lanes, the more of them. */
#define SELF_BYTES(name, type, wide, least, greatest)                                                          \
    static void self_##name(const void *elems, size_t n, double zero, double tiny, struct nd_self_sums *out)   \
    {                                                                                                          \
        enum { PIECE = 256 };                                                                                  \
        assert(n >= 1 && n <= ND_BLOCK);                                                                       \
        (void)tiny;                                                                                            \
        const struct at_##type *x = elems;                                                                     \
        int32_t sum = 0, n_zero = 0;                                                                           \
        uint32_t squares = 0;                                                                                  \
        type min = greatest, max = least;                                                                      \
        for (size_t i = 0; i < n; i++) {                                                                       \
            min = x[i].value < min ? x[i].value : min;                                                         \
            max = x[i].value > max ? x[i].value : max;                                                         \
        }                                                                                                      \
        for (size_t first = 0; first < n; first += PIECE) {                                                    \
            size_t end = n - first < PIECE ? n : first + PIECE;                                                \
            wide piece = 0;                                                                                    \
            for (size_t i = first; i < end; i++)                                                               \
                piece = (wide)(piece + x[i].value);                                                            \
            sum += piece;                                                                                      \
        }                                                                                                      \
        for (size_t i = 0; i < n; i++)                                                                         \
            squares += (uint16_t)(x[i].value * x[i].value);                                                    \
        for (size_t first = 0; first < n && zero >= min && zero <= max; first += PIECE / 2) {                  \
            size_t end = n - first < PIECE / 2 ? n : first + PIECE / 2;                                        \
            uint8_t piece = 0;                                                                                 \
            for (size_t i = first; i < end; i++)                                                               \
                piece = (uint8_t)(piece + (x[i].value == (type)zero));                                         \
            n_zero += piece;                                                                                   \
        }                                                                                                      \
        int64_t z = (int64_t)zero, count = (int64_t)n;                                                         \
        out->sum = (double)(sum - count * z);                                                                  \
        out->sum_squares = (double)((int64_t)squares - 2 * z * sum + count * z * z);                           \
        out->min = (double)(min - z);                                                                          \
        out->max = (double)(max - z);                                                                          \
        out->n_tiny = (uint64_t)n_zero;                                                                        \
    }
SELF_BYTES(u8, uint8_t, uint16_t, 0, UINT8_MAX)
SELF_BYTES(i8, int8_t, int16_t, INT8_MIN, INT8_MAX)

/* The same of 16 bits. A square has 32, and is added up in two halves. */
#define SELF_SHORTS(name, type, least, greatest)                                                               \
    static void self_##name(const void *elems, size_t n, double zero, double tiny, struct nd_self_sums *out)   \
    {                                                                                                          \
        assert(n >= 1 && n <= ND_BLOCK);                                                                       \
        (void)tiny;                                                                                            \
        const struct at_##type *x = elems;                                                                     \
        int32_t sum = 0;                                                                                       \
        uint32_t low = 0, high = 0;                                                                            \
        uint16_t n_zero = 0;                                                                                   \
        type min = greatest, max = least;                                                                      \
        for (size_t i = 0; i < n; i++) {                                                                       \
            min = x[i].value < min ? x[i].value : min;                                                         \
            max = x[i].value > max ? x[i].value : max;                                                         \
        }                                                                                                      \
        for (size_t i = 0; i < n; i++) {                                                                       \
            uint32_t value = (uint32_t)(int32_t)x[i].value, square = value * value;                            \
            sum += x[i].value;                                                                                 \
            low += square & 0xffff;                                                                            \
            high += square >> 16;                                                                              \
        }                                                                                                      \
        if (zero >= min && zero <= max)                                                                        \
            for (size_t i = 0; i < n; i++)                                                                     \
                n_zero = (uint16_t)(n_zero + (x[i].value == (type)zero));                                      \
        int64_t z = (int64_t)zero, count = (int64_t)n, squares = (int64_t)(((uint64_t)high << 16) + low);      \
        out->sum = (double)(sum - count * z);                                                                  \
        out->sum_squares = (double)(squares - 2 * z * sum + count * z * z);                                    \
        out->min = (double)(min - z);                                                                          \
        out->max = (double)(max - z);                                                                          \
        out->n_tiny = n_zero;                                                                                  \
    }
SELF_SHORTS(u16, uint16_t, 0, UINT16_MAX)
SELF_SHORTS(i16, int16_t, INT16_MIN, INT16_MAX)

/* float32 in the order of add_values, widened on the way; extremes and sizes are compared as floats. */

struct float_lanes {
    HALF_VECTOR(float) part[N_VECTORS];
};

static inline HALF_VECTOR(float) take_floats(const struct at_float *x)
{
    HALF_VECTOR(float) out;
    memcpy(&out, x, sizeof out);
    return out;
}

static inline __attribute__((unused)) HALF_VECTOR(float)
    choose_floats(HALF_VECTOR(int32_t) mask, HALF_VECTOR(float) yes, HALF_VECTOR(float) no)
{
    return (HALF_VECTOR(float))(((HALF_VECTOR(int32_t))yes & mask) | ((HALF_VECTOR(int32_t))no & ~mask));
}

struct float_sums {
    struct lanes sum, squares;
    struct float_lanes min, max;
};

static inline void add_floats(const struct at_float *x, struct float_sums *sums)
{
    for (size_t k = 0; k < N_VECTORS; k++) {
        HALF_VECTOR(float) narrow = take_floats(x + k * PER_VECTOR);
        VECTOR(double) value = __builtin_convertvector(narrow, VECTOR(double));
        sums->sum.part[k] += value;
        sums->squares.part[k] += value * value;
        sums->min.part[k] = LESSER_FLOAT(narrow, sums->min.part[k]);
        sums->max.part[k] = GREATER_FLOAT(narrow, sums->max.part[k]);
    }
}

static void finish_float_range(const struct float_lanes *min, const struct float_lanes *max,
                               struct nd_self_sums *out)
{
    float least[ND_LANES], greatest[ND_LANES];
    memcpy(least, min, sizeof least);
    memcpy(greatest, max, sizeof greatest);
    for (size_t lane = 1; lane < ND_LANES; lane++) {
        least[0] = least[lane] < least[0] ? least[lane] : least[0];
        greatest[0] = greatest[lane] > greatest[0] ? greatest[lane] : greatest[0];
    }
    out->min = (double)least[0] + 0.0; /* -0 becomes +0 */
    out->max = (double)greatest[0] + 0.0;
}

/* What is missing to whole lanes changes no sum and no range: zeros, or the first value. */
static void add_rest(const struct at_float *x, size_t n, struct float_sums *sums)
{
    struct at_float zeros[ND_LANES], firsts[ND_LANES];
    struct float_sums range = *sums;
    for (size_t lane = 0; lane < ND_LANES; lane++) {
        zeros[lane].value = lane < n ? x[lane].value : 0;
        firsts[lane].value = lane < n ? x[lane].value : x[0].value;
    }
    add_floats(firsts, &range);
    add_floats(zeros, sums);
    sums->min = range.min;
    sums->max = range.max;
}

static void sum_floats(const struct at_float *x, size_t n, struct nd_self_sums *out)
{
    struct float_sums sums = {.sum = all_lanes(0), .squares = all_lanes(0)};
    size_t i = 0;
    for (size_t k = 0; k < N_VECTORS; k++) {
        sums.min.part[k] = (HALF_VECTOR(float)){0} + HUGE_VALF;
        sums.max.part[k] = (HALF_VECTOR(float)){0} - HUGE_VALF;
    }
    for (; i + ND_LANES <= n; i += ND_LANES)
        add_floats(x + i, &sums);
    if (i < n)
        add_rest(x + i, n - i, &sums);
    out->sum = add_lanes(&sums.sum);
    out->sum_squares = add_lanes(&sums.squares);
    finish_float_range(&sums.min, &sums.max, out);
}

static void self_f32(const void *elems, size_t n, double zero, double tiny, struct nd_self_sums *out)
{
    assert(n >= 1 && n <= ND_BLOCK);
    (void)zero;
    const struct at_float *x = elems;
    float limit = (float)tiny;
    int32_t n_tiny = 0;
    sum_floats(x, n, out);
    for (size_t i = 0; i < n; i++)
        n_tiny += fabsf(x[i].value) < limit;
    out->n_tiny = (uint64_t)n_tiny;
}

/* ---- the table ---- */

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

extern const struct nd_kernels JOIN(nd_kernels_, ND_KERNELS_ISA);
const struct nd_kernels JOIN(nd_kernels_, ND_KERNELS_ISA) = {
    .name = TEXT(ND_KERNELS_ISA),
    .load = {[ND_ELEM_U8] = load_u8,
             [ND_ELEM_I8] = load_i8,
             [ND_ELEM_U16] = load_u16,
             [ND_ELEM_I16] = load_i16,
             [ND_ELEM_U32] = load_u32,
             [ND_ELEM_I32] = load_i32,
             [ND_ELEM_U64] = load_u64,
             [ND_ELEM_I64] = load_i64,
             [ND_ELEM_F8E4M3FN] = load_f8e4m3fn,
             [ND_ELEM_F8E5M2] = load_f8e5m2,
             [ND_ELEM_F16] = load_f16,
             [ND_ELEM_BF16] = load_bf16,
             [ND_ELEM_F32] = load_f32,
             [ND_ELEM_F64] = load_f64},
    .mask = {mask_uint8_t, mask_uint16_t, mask_uint32_t, mask_uint64_t},
    .bits = find_bits,
    .distance = {[ND_ELEM_U8] = distance_u8,
                 [ND_ELEM_I8] = distance_i8,
                 [ND_ELEM_U16] = distance_u16,
                 [ND_ELEM_I16] = distance_i16,
                 [ND_ELEM_U32] = distance_u32,
                 [ND_ELEM_I32] = distance_i32,
                 [ND_ELEM_U64] = distance_u64,
                 [ND_ELEM_I64] = distance_i64,
                 [ND_ELEM_F8E4M3FN] = distance_f8,
                 [ND_ELEM_F8E5M2] = distance_f8,
                 [ND_ELEM_F16] = distance_f16,
                 [ND_ELEM_BF16] = distance_f16,
                 [ND_ELEM_F32] = distance_f32,
                 [ND_ELEM_F64] = distance_f64},
    .self_sums = self_sums,
    .self_elems = {[ND_ELEM_U8] = self_u8,
                   [ND_ELEM_I8] = self_i8,
                   [ND_ELEM_U16] = self_u16,
                   [ND_ELEM_I16] = self_i16,
                   [ND_ELEM_F32] = self_f32},
    .errors = errors,
    .join = join,
    .steps = find_steps,
    .steps_from = {[ND_ELEM_U8] = steps_from_u8,
                   [ND_ELEM_I8] = steps_from_i8,
                   [ND_ELEM_U16] = steps_from_u16,
                   [ND_ELEM_I16] = steps_from_i16},
    .exceeds = exceeds,
};
