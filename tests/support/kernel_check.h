/* Holds a set of kernels to their definition (src/compare/metrics/kernels/kernels.h), element by element, in
 * quantised value that shares nothing with them. Without cmocka, so that it also runs where only a C library
 * is: tools/check.sh neon.
 *
 * Buffers lie right behind or right before a page that cannot be touched. Every function says what is wrong on
 * stderr and returns whether all was right. */
#ifndef ND_TESTS_KERNEL_CHECK_H
#define ND_TESTS_KERNEL_CHECK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compare/metrics/kernels/kernels.h"

/* Memory between two pages that cannot be touched. */
struct guarded {
    unsigned char *start, *end;
};

static inline struct guarded guarded_make(size_t size_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (size_bytes + page - 1) / page * page;
    unsigned char *memory =
        mmap(NULL, inner + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0 ||
        mprotect(memory + page + inner, page, PROT_NONE) != 0)
        abort();
    return (struct guarded){memory + page, memory + page + inner};
}

static inline void guarded_free(struct guarded *g)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap(g->start - page, (size_t)(g->end - g->start) + 2 * page);
}

/* size_bytes that begin `shift` after the start, or end `shift` before the end. */
static inline void *guarded_place(const struct guarded *g, bool at_end, size_t size_bytes, size_t shift)
{
    return at_end ? g->end - size_bytes - shift : g->start + shift;
}

/* 0..300, 1023, 1024 */
static inline size_t next_length(size_t n)
{
    return n == 300 ? 1023 : n + 1;
}

static inline uint64_t check_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *seed ^ *seed >> 32;
    return x * 0x9e3779b97f4a7c15u;
}

/* How elements of a kind are defined: integers by size and sign, floats by the lengths of exponent and
 * fraction. */
struct kind_info {
    const char *name;
    size_t bytes;
    bool is_signed;
    int exponent_bits, fraction_bits; /* 0 for integers */
    bool has_inf;
};

static const struct kind_info kind_infos[ND_N_ELEM_KINDS] = {
    [ND_ELEM_U8] = {"u8", 1, false, 0, 0, false},
    [ND_ELEM_I8] = {"i8", 1, true, 0, 0, false},
    [ND_ELEM_U16] = {"u16", 2, false, 0, 0, false},
    [ND_ELEM_I16] = {"i16", 2, true, 0, 0, false},
    [ND_ELEM_U32] = {"u32", 4, false, 0, 0, false},
    [ND_ELEM_I32] = {"i32", 4, true, 0, 0, false},
    [ND_ELEM_U64] = {"u64", 8, false, 0, 0, false},
    [ND_ELEM_I64] = {"i64", 8, true, 0, 0, false},
    [ND_ELEM_F8E4M3FN] = {"f8e4m3fn", 1, true, 4, 3, false},
    [ND_ELEM_F8E5M2] = {"f8e5m2", 1, true, 5, 2, true},
    [ND_ELEM_F16] = {"f16", 2, true, 5, 10, true},
    [ND_ELEM_BF16] = {"bf16", 2, true, 8, 7, true},
    [ND_ELEM_F32] = {"f32", 4, true, 8, 23, true},
    [ND_ELEM_F64] = {"f64", 8, true, 11, 52, true},
};

static inline bool kind_is_float(const struct kind_info *kind)
{
    return kind->exponent_bits != 0;
}

static inline uint64_t sign_bit_of(const struct kind_info *kind)
{
    return (uint64_t)1 << (8 * kind->bytes - 1);
}

static inline uint64_t element_bits(const struct kind_info *kind, const unsigned char *elems, size_t i)
{
    uint64_t bits = 0;
    for (size_t byte = 0; byte < kind->bytes; byte++)
        bits |= (uint64_t)elems[i * kind->bytes + byte] << 8 * byte;
    return bits;
}

static inline void put_element(const struct kind_info *kind, unsigned char *elems, size_t i, uint64_t bits)
{
    for (size_t byte = 0; byte < kind->bytes; byte++)
        elems[i * kind->bytes + byte] = (unsigned char)(bits >> 8 * byte);
}

/* The exact value of an integer. */
static inline __int128 integer_value(const struct kind_info *kind, uint64_t bits)
{
    __int128 value = bits;
    if (kind->is_signed && (bits & sign_bit_of(kind)) != 0)
        value -= (__int128)1 << 8 * kind->bytes;
    return value;
}

/* Sign times fraction times power of two, with the special cases of IEEE 754 or of e4m3fn. */
static inline double float_value(const struct kind_info *kind, uint64_t bits)
{
    uint64_t fraction = bits & (((uint64_t)1 << kind->fraction_bits) - 1);
    uint64_t top = ((uint64_t)1 << kind->exponent_bits) - 1, exponent = bits >> kind->fraction_bits & top;
    int bias = (1 << (kind->exponent_bits - 1)) - 1;
    double value;
    if (kind->has_inf && exponent == top)
        value = fraction == 0 ? HUGE_VAL : (double)NAN;
    else if (!kind->has_inf && (bits & 0x7f) == 0x7f)
        value = (double)NAN;
    else if (exponent == 0)
        value = ldexp((double)fraction, 1 - bias - kind->fraction_bits);
    else
        value = ldexp((double)(fraction + ((uint64_t)1 << kind->fraction_bits)),
                      (int)exponent - bias - kind->fraction_bits);
    return (bits & sign_bit_of(kind)) != 0 ? -value : value;
}

/* The nearest double, ties to even. */
static inline double rounded(__int128 exact)
{
    __int128 size = exact < 0 ? -exact : exact, kept = size;
    int dropped = 0;
    while (kept >> 53 != 0) {
        kept >>= 1;
        dropped++;
    }
    __int128 rest = size - (kept << dropped), half = dropped > 0 ? (__int128)1 << (dropped - 1) : 1;
    if (rest > half || (rest == half && (kept & 1) != 0))
        kept++;
    double value = ldexp((double)(int64_t)kept, dropped);
    return exact < 0 ? -value : value;
}

static inline double element_value(const struct kind_info *kind, uint64_t bits)
{
    return kind_is_float(kind) ? float_value(kind, bits) : rounded(integer_value(kind, bits));
}

/* The place of a float among all of its type. */
static inline __int128 ordered(const struct kind_info *kind, uint64_t bits)
{
    __int128 magnitude = bits & (sign_bit_of(kind) - 1);
    return (bits & sign_bit_of(kind)) != 0 ? -magnitude : magnitude;
}

static inline uint64_t element_distance(const struct kind_info *kind, uint64_t ref, uint64_t test)
{
    __int128 d = kind_is_float(kind) ? ordered(kind, test) - ordered(kind, ref)
                                     : integer_value(kind, test) - integer_value(kind, ref);
    return (uint64_t)(d < 0 ? -d : d);
}

/* The bits of two doubles are equal, or both are NaN. */
static inline bool is_same(double a, double b)
{
    return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0;
}

/* Random bits, one in two an end of something: zero, one, subnormals, the largest, infinities, NaNs of all
 * sorts. */
static inline uint64_t random_element(const struct kind_info *kind, uint64_t *seed)
{
    uint64_t sign = sign_bit_of(kind), bits = check_random(seed) >> 1;
    uint64_t all = sign | (sign - 1), unit = (uint64_t)1 << kind->fraction_bits;
    uint64_t inf = ((uint64_t)1 << kind->exponent_bits << kind->fraction_bits) - unit;
    const uint64_t ends[] = {0,
                             1,
                             2,
                             unit - 1,
                             unit,
                             inf - 1,
                             inf,
                             inf + 1,
                             inf | unit >> 1,
                             inf | (unit - 1),
                             sign - 1,
                             sign >> 1,
                             (sign >> 1) + 1};
    if (check_random(seed) >> 63 != 0)
        bits = ends[check_random(seed) % (sizeof ends / sizeof ends[0])] ^ (bits & sign);
    return bits & all;
}

/* One block of both sides: of the test, one element in three is that of the reference, and one in three near
 * it. */
static inline void fill_pair(const struct kind_info *kind, uint64_t *seed, unsigned char *ref,
                             unsigned char *test)
{
    for (size_t i = 0; i < ND_BLOCK; i++) {
        uint64_t r = random_element(kind, seed), method = check_random(seed) >> 60;
        put_element(kind, ref, i, r);
        put_element(kind, test, i,
                    method < 5    ? r
                    : method < 10 ? r + check_random(seed) % 7 - 3
                                  : random_element(kind, seed));
    }
}

static inline bool wrong(const struct nd_kernels *k, const char *what, const char *kind, size_t n, size_t i)
{
    fprintf(stderr, "%s: %s of %s is wrong: length %zu, element %zu\n", k->name, what, kind, n, i);
    return false;
}

/* What the elements of a block must give, and where the kernels find and leave theirs. */
struct element_check {
    const struct nd_kernels *kernels;
    const struct kind_info *kind;
    enum nd_elem_kind elem_kind;
    double zero;
    unsigned char ref[8 * ND_BLOCK], test[8 * ND_BLOCK];
    double value[ND_BLOCK];
    uint64_t distance[ND_BLOCK];
    bool has_distance[ND_BLOCK], differs[ND_BLOCK];
    struct guarded ref_memory, test_memory, out_memory;
};

static inline void expect_elements(struct element_check *c)
{
    for (size_t i = 0; i < ND_BLOCK; i++) {
        uint64_t r = element_bits(c->kind, c->ref, i), t = element_bits(c->kind, c->test, i);
        double value = element_value(c->kind, r);
        c->value[i] = value - c->zero;
        c->has_distance[i] = !kind_is_float(c->kind) || (!isnan(value) && !isnan(float_value(c->kind, t)));
        c->distance[i] = element_distance(c->kind, r, t);
        c->differs[i] = r != t;
    }
}

static inline bool check_load(const struct element_check *c, size_t n, bool at_end, const void *ref)
{
    double *out = guarded_place(&c->out_memory, at_end, n * sizeof *out, 0);
    c->kernels->load[c->elem_kind](ref, n, c->zero, out);
    for (size_t i = 0; i < n; i++)
        if (!is_same(out[i], c->value[i]))
            return wrong(c->kernels, "load", c->kind->name, n, i);
    return true;
}

static inline bool check_distance(const struct element_check *c, size_t n, bool at_end, const void *ref,
                                  const void *test)
{
    uint64_t *out = guarded_place(&c->out_memory, at_end, n * sizeof *out, 0);
    uint64_t most = c->kernels->distance[c->elem_kind](ref, test, n, out), expected = 0;
    for (size_t i = 0; i < n; i++) {
        expected = out[i] > expected ? out[i] : expected;
        if (c->has_distance[i] && out[i] != c->distance[i])
            return wrong(c->kernels, "distance", c->kind->name, n, i);
    }
    return most == expected || wrong(c->kernels, "largest distance", c->kind->name, n, n);
}

static inline bool check_mask(const struct element_check *c, size_t n, bool at_end, const void *ref,
                              const void *test)
{
    size_t log2_bytes = (size_t)__builtin_ctzll(c->kind->bytes), expected = 0;
    uint8_t *out = guarded_place(&c->out_memory, at_end, n, 0);
    size_t found = c->kernels->mask[log2_bytes](ref, test, n, out);
    for (size_t i = 0; i < n; i++) {
        expected += c->differs[i];
        if (out[i] != (c->differs[i] ? 1 : 0))
            return wrong(c->kernels, "mask", c->kind->name, n, i);
    }
    return found == expected || wrong(c->kernels, "count of mask", c->kind->name, n, n);
}

/* One block at every length, misalignment and end of memory. */
static inline bool check_places(const struct element_check *c)
{
    for (size_t n = 0; n <= ND_BLOCK; n = next_length(n))
        for (size_t shift = 0; shift < 8; shift++)
            for (int at_end = 0; at_end < 2; at_end++) {
                size_t bytes = n * c->kind->bytes;
                void *ref = guarded_place(&c->ref_memory, at_end, bytes, shift);
                void *test = guarded_place(&c->test_memory, at_end, bytes, (shift * 5) % 8);
                memcpy(ref, c->ref, bytes);
                memcpy(test, c->test, bytes);
                if (!check_load(c, n, at_end, ref) || !check_distance(c, n, at_end, ref, test) ||
                    !check_mask(c, n, at_end, ref, test))
                    return false;
            }
    return true;
}

static inline bool check_all_bytes_and_halves(struct element_check *c, uint64_t *seed)
{
    uint64_t n_values = (uint64_t)1 << 8 * c->kind->bytes;
    for (uint64_t first = 0; first < n_values * 4; first += ND_BLOCK) {
        for (size_t i = 0; i < ND_BLOCK; i++) {
            put_element(c->kind, c->ref, i, first + i);
            put_element(c->kind, c->test, i, check_random(seed) >> 40);
        }
        expect_elements(c);
        if (!check_load(c, ND_BLOCK, false, c->ref) || !check_distance(c, ND_BLOCK, false, c->ref, c->test))
            return false;
    }
    return true;
}

/* load, mask and distance of one kind of elements; all values where there are at most 2^16. */
static inline bool check_elements(const struct nd_kernels *kernels, enum nd_elem_kind kind, uint64_t seed)
{
    static const double zeros[] = {0, 128, -3, 1e15};
    struct element_check *c = calloc(1, sizeof *c);
    if (c == NULL)
        abort();
    c->kernels = kernels;
    c->elem_kind = kind;
    c->kind = &kind_infos[kind];
    c->ref_memory = guarded_make(8 * ND_BLOCK + 64);
    c->test_memory = guarded_make(8 * ND_BLOCK + 64);
    c->out_memory = guarded_make(8 * ND_BLOCK + 64);
    bool fine = true;
    for (size_t z = 0; z < (kind_is_float(c->kind) ? 1 : 4) && fine; z++) {
        c->zero = zeros[z];
        fill_pair(c->kind, &seed, c->ref, c->test);
        expect_elements(c);
        fine = check_places(c);
    }
    c->zero = 0;
    if (fine && c->kind->bytes <= 2)
        fine = check_all_bytes_and_halves(c, &seed);
    guarded_free(&c->ref_memory);
    guarded_free(&c->test_memory);
    guarded_free(&c->out_memory);
    free(c);
    return fine;
}

/* Sums. */

static inline double combine_lanes(const double *lane, size_t n)
{
    return n == 1 ? lane[0] : combine_lanes(lane, n / 2) + combine_lanes(lane + n / 2, n / 2);
}

/* The sum of x[i] * y[i] (y NULL: of x[i]) by docs/reference/metrics.md#sums. */
static inline double lane_sum(const double *x, const double *y, size_t n)
{
    double lane[ND_LANES];
    for (size_t l = 0; l < ND_LANES; l++) {
        lane[l] = 0;
        for (size_t i = l; i < n; i += ND_LANES) {
            volatile double term = y != NULL ? x[i] * y[i] : x[i]; /* rounded here, whatever the flags */
            lane[l] += term;
        }
    }
    return combine_lanes(lane, ND_LANES);
}

/* Of any size and sign when `is_wild`, so that squares overflow and vanish; else such that they do not. */
static inline double random_double(uint64_t *seed, bool is_wild)
{
    static const double ends[] = {0, 0x1p-1074, 0x1p-1022, 1, 0x1.fffffffffffffp1023, 0x1p-537, 1e-3};
    uint64_t bits = check_random(seed), method = check_random(seed) >> 60;
    double sign = (bits & 1) != 0 ? -1.0 : 1.0;
    if (method < 3)
        return sign * ends[(bits >> 8) % (is_wild ? 7 : 4)];
    int power = is_wild ? (int)(check_random(seed) % 2090) - 1070 : (int)(check_random(seed) % 80) - 60;
    return sign * ldexp((double)(bits >> 12), power - 52);
}

static inline bool check_self(const struct nd_kernels *k, const double *x, size_t n, double tiny)
{
    struct nd_self_sums got;
    double squares = lane_sum(x, x, n), min = HUGE_VAL, max = -HUGE_VAL;
    uint64_t n_tiny = 0;
    bool is_finite = isfinite(squares);
    for (size_t i = 0; i < n; i++) {
        min = fmin(min, x[i] == 0 ? 0 : x[i]);
        max = fmax(max, x[i] == 0 ? 0 : x[i]);
        n_tiny += fabs(x[i]) < tiny;
        is_finite &= isfinite(x[i]);
    }
    k->self_sums(x, n, tiny, &got);
    if (got.n_tiny != n_tiny)
        return wrong(k, "n_tiny", "self_sums", n, n);
    if (!is_finite)
        return !isfinite(got.sum_squares) || wrong(k, "not finite", "self_sums", n, n);
    if (!is_same(got.sum, lane_sum(x, NULL, n)) || !is_same(got.sum_squares, squares))
        return wrong(k, "a sum", "self_sums", n, n);
    return (is_same(got.min, min) && is_same(got.max, max)) || wrong(k, "range", "self_sums", n, n);
}

static inline bool check_diff(const struct nd_kernels *k, const double *ref, const double *test, size_t n)
{
    static struct nd_error_values errors;
    struct nd_diff_sums got;
    double d[ND_BLOCK], size[ND_BLOCK], max = 0;
    uint64_t n_above = 0, n_below = 0;
    for (size_t i = 0; i < n; i++) {
        d[i] = test[i] - ref[i];
        size[i] = fabs(d[i]);
        max = fmax(max, size[i]);
        n_above += d[i] > 0;
        n_below += d[i] < 0;
    }
    k->errors(ref, test, n, &errors, &got);
    if (!is_same(got.sum_abs, lane_sum(size, NULL, n)) || !is_same(got.sum_signed, lane_sum(d, NULL, n)) ||
        !is_same(got.sum_squares, lane_sum(d, d, n)) || !is_same(got.sum_ref_signed, lane_sum(ref, d, n)))
        return wrong(k, "a sum", "errors", n, n);
    if (got.n_above != n_above || got.n_below != n_below)
        return wrong(k, "a count", "errors", n, n);
    return is_same(got.max_abs, max) || wrong(k, "max_abs", "errors", n, n);
}

/* Relative errors, and what no tolerance below a limit lets pass: at each limit around the largest ratio. */
static inline uint32_t slot_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return value < ND_SLOT_FIRST ? 0 : (uint32_t)(bits >> ND_BIN_SHIFT) - ND_SLOT_BIN;
}

/* Of slots that mean something. */
static inline uint32_t folders_of(const uint32_t *slots, size_t n)
{
    uint32_t folders = 0;
    for (size_t i = 0; i < n; i++)
        folders |= 1u << (slots[i] == 0 ? 0 : 1 + (slots[i] - 1) / ND_LOG_IN_FOLDER);
    return folders;
}

static inline bool check_errors(const struct nd_kernels *k, const double *ref, const double *test, size_t n)
{
    static struct nd_error_values got;
    struct nd_diff_sums sums;
    double ratio[ND_BLOCK], max = 0, largest = 0;
    uint64_t n_undefined = 0;
    k->errors(ref, test, n, &got, &sums);
    for (size_t i = 0; i < n; i++) {
        double size = fabs(test[i] - ref[i]);
        bool is_undefined = ref[i] == 0 && size > 0;
        ratio[i] = ref[i] == 0 ? 0 : size / fabs(ref[i]);
        max = fmax(max, ratio[i]);
        largest = fmax(largest, size);
        n_undefined += is_undefined;
        if ((size < ND_SLOT_END && got.absolute[i] != slot_of(size)) ||
            (ratio[i] < ND_SLOT_END && got.relative[i] != slot_of(ratio[i])))
            return wrong(k, "a slot", "errors", n, i);
    }
    if ((largest < ND_SLOT_END && got.absolute_folders != folders_of(got.absolute, n)) ||
        (max < ND_SLOT_END && got.relative_folders != folders_of(got.relative, n)))
        return wrong(k, "folders", "errors", n, n);
    if (!is_same(got.sum_relative, lane_sum(ratio, NULL, n)) || !is_same(got.max_relative, max) ||
        !is_same(got.max_absolute, largest) || got.n_undefined != n_undefined)
        return wrong(k, "a sum", "errors", n, n);
    const double limits[] = {0, nextafter(max, 0), max, nextafter(max, HUGE_VAL), 0x1p-1000, HUGE_VAL};
    for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
        bool expected = false;
        for (size_t i = 0; i < n; i++)
            expected = expected || 0.3 * fabs(test[i] - ref[i]) > limits[l] * fabs(0.3 * ref[i]);
        if (k->exceeds(ref, test, n, 0.3, limits[l]) != expected)
            return wrong(k, "the limit", "exceeds", n, l);
    }
    return true;
}

/* Infinities and NaN at every place of a short block. */
static inline bool check_self_not_finite(const struct nd_kernels *k, double *x, size_t n)
{
    static const double values[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, 1e200};
    for (size_t i = 0; i < n; i++)
        for (size_t v = 0; v < 4; v++) {
            double before = x[i];
            x[i] = values[v];
            bool fine = check_self(k, x, n, 1e-3);
            x[i] = before;
            if (!fine)
                return false;
        }
    return true;
}

/* -0 counts as +0 wherever it stands, as the least value and as the greatest one. */
static inline bool check_range_of_zeros(const struct nd_kernels *k)
{
    static const double fills[] = {-0.0, 0.0, -1, 1};
    for (size_t n = 1; n <= 3 * ND_LANES; n++)
        for (size_t i = 0; i < n; i++)
            for (size_t f = 0; f < 4; f++) {
                double x[3 * ND_LANES];
                for (size_t j = 0; j < n; j++)
                    x[j] = fills[f];
                x[i] = -0.0;
                if (!check_self(k, x, n, 0x1p-1074))
                    return false;
            }
    return true;
}

static inline bool is_same_self(const struct nd_self_sums *a, const struct nd_self_sums *b)
{
    if (!isfinite(a->sum_squares) || !isfinite(b->sum_squares)) /* then nothing else is promised */
        return !isfinite(a->sum_squares) && !isfinite(b->sum_squares);
    return is_same(a->sum, b->sum) && is_same(a->sum_squares, b->sum_squares) && is_same(a->min, b->min) &&
           is_same(a->max, b->max) && a->n_tiny == b->n_tiny;
}

/* n elements of a kind that has self_elems: bytes, whose extremes come often since the sums must not overflow,
 * or floats. */
static inline void fill_elems(enum nd_elem_kind kind, size_t n, size_t variant, uint64_t *seed,
                              unsigned char *elems)
{
    for (size_t i = 0; i < n; i++)
        if (kind == ND_ELEM_F32)
            put_element(&kind_infos[kind], elems, i,
                        variant % 4 == 0 ? random_element(&kind_infos[kind], seed)
                                         : 0x3f000000u | (check_random(seed) & 0x807fffffu));
        else
            put_element(&kind_infos[kind], elems, i,
                        variant % 3 == 0   ? 0x8080
                        : variant % 3 == 1 ? 0xffff
                                           : check_random(seed));
}

/* The sums of elements are those of the values that load makes of them. */
static inline bool check_self_elems(const struct nd_kernels *k, uint64_t seed)
{
    static const double zeros[] = {0, 128, -3, 255, 32768, -32768, 65535};
    static const enum nd_elem_kind kinds[] = {ND_ELEM_U8, ND_ELEM_I8, ND_ELEM_F32, ND_ELEM_U16, ND_ELEM_I16};
    struct guarded memory = guarded_make(4 * ND_BLOCK + 64);
    bool fine = true;
    for (size_t n = 1; n <= ND_BLOCK && fine; n = next_length(n))
        for (size_t variant = 0; variant < 70 && fine; variant++) {
            enum nd_elem_kind kind = kinds[variant % 5];
            bool is_float = kind == ND_ELEM_F32;
            double zero = is_float ? 0 : zeros[variant % 7], tiny = is_float ? 0x1p-126 : 0x1p-1074,
                   values[ND_BLOCK];
            unsigned char *elems =
                guarded_place(&memory, variant % 2 == 0, n * kind_infos[kind].bytes, variant % 4);
            fill_elems(kind, n, variant / 5, &seed, elems);
            struct nd_self_sums got, expected;
            k->load[kind](elems, n, zero, values);
            k->self_sums(values, n, tiny, &expected);
            k->self_elems[kind](elems, n, zero, tiny, &got);
            fine = is_same_self(&got, &expected) || wrong(k, "a sum", "self_elems", n, variant);
        }
    guarded_free(&memory);
    return fine;
}

static inline bool check_sums(const struct nd_kernels *k, uint64_t seed)
{
    static const double tinies[] = {0x1p-1074, 0x1p-1022, 1e-3, 0};
    struct guarded ref_memory = guarded_make(8 * ND_BLOCK + 64), test_memory = guarded_make(8 * ND_BLOCK + 64);
    bool fine = check_range_of_zeros(k);
    for (size_t n = 1; n <= ND_BLOCK && fine; n = next_length(n))
        for (size_t shift = 0; shift < 8 && fine; shift++) {
            bool at_end = shift % 2 == 0, is_wild = shift / 4 == 1;
            double *ref = guarded_place(&ref_memory, at_end, n * sizeof *ref, shift / 2 % 4 * sizeof *ref);
            double *test = guarded_place(&test_memory, at_end, n * sizeof *test, 0);
            for (size_t i = 0; i < n; i++) {
                ref[i] = random_double(&seed, is_wild);
                test[i] = check_random(&seed) % 3 == 0 ? ref[i] : random_double(&seed, is_wild);
            }
            fine = check_self(k, ref, n, tinies[n % 4]) && check_diff(k, ref, test, n) &&
                   check_errors(k, ref, test, n) && (shift != 0 || n > 80 || check_self_not_finite(k, ref, n));
        }
    guarded_free(&ref_memory);
    guarded_free(&test_memory);
    return fine;
}

#endif
