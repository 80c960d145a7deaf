/* Labels that are wrong: the same bytes, called by other types, scales or zero points.
 * docs/reference/metrics.md#labels. */
#include "compare/findings/top1_classes.h"

#include <inttypes.h>
#include <math.h>

#include "arithmetic/operators/array.h"
#include "compare/metrics/layout.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"

/* What makes "the same bytes" a statement about labels and not chance. All chosen: a device that computes one
 * step differently here and there still stores the same bytes; two quantisations of one tensor do not, since
 * quantised values grow with 1 / scale; and a tensor of a few values may be the same under any labels. */
enum { MIN_ELEMENTS = 16, MIN_DISTINCT = 8 };
static const double near_share = 0.99; /* of elements whose quantised values are at most one step apart */

/* A device's own differences are one step of 8 bits, but many of 16. Chosen: quantised values that are apart by
 * a 16th of the spread of the reference's quantised values, or by one step, are near; it takes twice that to
 * call real values apart. */
static const double steps_of_spread = 1.0 / 16;
/* Elements whose quantised values are near and whose real values are apart: 12, and twice the 1 % that may be
 * neither. Chosen. */
enum { MIN_TELLING = 12 };
static const double telling_share = 0.02;

/* Distances are counted up to 2^0, 2^1, ... steps. */
enum { N_ROOMS = 17 };

enum { BLOCK_BYTES = 1 << 20, N_SEEN = 1 << 16 };

/* Scales that went through decimal text may be off in their last digits (findings/findings.c). */
static const double scale_tolerance = 1e-6;

struct counts {
    size_t n, n_same;            /* elements; of them, the same bits */
    size_t n_near[N_ROOMS];      /* quantised values that are at most 2^k steps apart as bits */
    size_t n_real;               /* real values that are equal */
    size_t n_real_near[N_ROOMS]; /* that are at most 2^k steps apart */
    double sum, squares;         /* of the reference's quantised values */
    double min_apart, max_apart; /* real values, in steps of the reference */
    double step;
    size_t n_as_floats;            /* elements whose bits, read as floats, are near */
    double error_power, ref_power; /* of these floats */
    size_t n_distinct;
    bool *seen; /* [N_SEEN] low 16 bits of the reference's quantised values */
};

struct looking {
    const struct nd_aligned_captures *alignment;
    const struct nd_tensor *ref, *test;
    enum nd_dtype floats; /* one side calls the bytes so, the other bare integers; else ND_DTYPE_NONE */
    bool is_bare;         /* only one side states a scale: quantised values are held against quantised values */
    size_t tensor, ref_capture, test_capture;
    size_t elem_bytes, n_elems, inner; /* inner: elements that share a scale */
    struct counts counts;
};

/* The bits of element i, as an unsigned number. */
static uint32_t bits_at(const void *data, size_t elem_bytes, size_t i)
{
    if (elem_bytes == 1)
        return ((const uint8_t *)data)[i];
    return elem_bytes == 2 ? ((const uint16_t *)data)[i] : ((const uint32_t *)data)[i];
}

static int64_t qvalue_of(enum nd_dtype dtype, uint32_t bits)
{
    if (!nd_dtype_is_signed_integer(dtype))
        return bits;
    size_t n_bytes = nd_dtype_size_bytes(dtype);
    return n_bytes == 1 ? (int8_t)bits : n_bytes == 2 ? (int16_t)bits : (int32_t)bits;
}

/* scale * (quantised value - zero point); of a tensor without a scale the quantised value. */
static double real_of(const struct nd_tensor *tensor, int64_t qvalue, size_t channel, bool is_bare)
{
    const struct nd_quant *quant = &tensor->quant;
    if (quant->n == 0 || is_bare)
        return (double)qvalue;
    size_t c = quant->n > 1 ? channel % quant->n : 0;
    return (double)quant->scale[c] * (double)(qvalue - quant->zero_point[c]);
}

/* Chosen: of the floats that two devices compute 90 % are within a 16th of each other (small ones need not be),
 * and the power of the differences is 24 dB below theirs. Integers that are no floats, read so, are neither. */
static const double near_of_float = 1.0 / 16, near_float_share = 0.9, max_error_power = 1.0 / 256;

static void count_floats(struct looking *l, const void *ref, const void *test, size_t n)
{
    struct counts *counts = &l->counts;
    for (size_t i = 0; i < n; i++) {
        uint32_t a = bits_at(ref, l->elem_bytes, i), b = bits_at(test, l->elem_bytes, i);
        double x, y;
        nd_array_load(l->floats, (const unsigned char *)ref + i * l->elem_bytes, 1, &x);
        nd_array_load(l->floats, (const unsigned char *)test + i * l->elem_bytes, 1, &y);
        counts->n_same += a == b;
        counts->n_as_floats += a == b || fabs(x - y) <= near_of_float * fmax(fabs(x), fabs(y));
        if (isfinite(x) && isfinite(y)) {
            counts->error_power += (x - y) * (x - y);
            counts->ref_power += x * x;
        }
        counts->n_distinct += !counts->seen[(a ^ a >> 16) % N_SEEN];
        counts->seen[(a ^ a >> 16) % N_SEEN] = true;
    }
    counts->n += n;
}

static void count(struct looking *l, const void *ref, const void *test, size_t n)
{
    struct counts *counts = &l->counts;
    for (size_t i = 0; i < n; i++) {
        uint32_t a = bits_at(ref, l->elem_bytes, i), b = bits_at(test, l->elem_bytes, i);
        size_t channel = i % l->n_elems / l->inner;
        double step = l->ref->quant.n > 0 && !l->is_bare
                          ? (double)l->ref->quant.scale[l->ref->quant.n > 1 ? channel % l->ref->quant.n : 0]
                          : 1;
        double x = real_of(l->ref, qvalue_of(l->ref->dtype, a), channel, l->is_bare);
        double y = real_of(l->test, qvalue_of(l->test->dtype, b), channel, l->is_bare);
        double apart = fabs(x - y) / step, room = scale_tolerance * fmax(fabs(x), fabs(y)) / step;
        counts->n_same += a == b;
        counts->n_real += apart <= room;
        for (int k = 0; k < N_ROOMS; k++) {
            counts->n_near[k] += (a > b ? a - b : b - a) <= (uint32_t)1 << k;
            counts->n_real_near[k] += apart <= ldexp(1, k) + room;
        }
        double qvalue = (double)qvalue_of(l->ref->dtype, a);
        counts->sum += qvalue;
        counts->squares += qvalue * qvalue;
        if (a == b) {
            counts->min_apart = fmin(counts->min_apart, apart);
            counts->max_apart = fmax(counts->max_apart, apart);
        }
        counts->step = step;
        counts->n_distinct += !counts->seen[a % N_SEEN];
        counts->seen[a % N_SEEN] = true;
    }
    counts->n += n;
}

/* ---- reading ---- */

static enum nd_status read_probe(struct looking *l, size_t probe, size_t n_samples, struct nd_error *err)
{
    const struct nd_aligned_captures *a = l->alignment;
    size_t sample_bytes = l->n_elems * l->elem_bytes; /* of a stored tensor, so it fits */
    size_t n_at_once = sample_bytes > 0 && sample_bytes < BLOCK_BYTES ? BLOCK_BYTES / sample_bytes : 1;
    n_at_once = n_at_once < n_samples ? n_at_once : n_samples;
    ND_FREED void *ref = nd_tensor_alloc(n_at_once * sample_bytes);
    ND_FREED void *test = nd_tensor_alloc(n_at_once * sample_bytes);
    ND_TRY_MEMORY(ref != NULL && test != NULL, err);
    const struct nd_probe_values tensors[2] = {nd_aligned_values(a, l->tensor, probe, l->ref_capture),
                                               nd_aligned_values(a, l->tensor, probe, l->test_capture)};
    for (size_t s = 0; s < n_samples; s += n_at_once) {
        size_t n = n_samples - s < n_at_once ? n_samples - s : n_at_once;
        ND_TRY(nd_capture_read_verified(&tensors[0], s, n, ref, err));
        ND_TRY(nd_capture_read_verified(&tensors[1], s, n, test, err));
        (l->floats != ND_DTYPE_NONE ? count_floats : count)(l, ref, test, n * l->n_elems);
    }
    return ND_OK;
}

/* Counts over all samples that both have. *is_whole: every probe and sample of both. */
static enum nd_status read_all(struct looking *l, bool *is_whole, struct nd_error *err)
{
    *is_whole = true;
    for (size_t p = 0; p < l->alignment->n_probes; p++) {
        ND_FREED char *reason = NULL;
        size_t n = 0;
        ND_TRY(nd_align_samples(l->alignment, p, l->ref_capture, l->test_capture, &n, &reason, err));
        bool has_both = n > 0 && nd_aligned_has_values(l->alignment, l->tensor, p, l->ref_capture) &&
                        nd_aligned_has_values(l->alignment, l->tensor, p, l->test_capture);
        *is_whole = *is_whole && reason == NULL && (n == 0 || has_both);
        if (has_both)
            ND_TRY(read_probe(l, p, n, err));
    }
    return ND_OK;
}

/* ---- what it says ---- */

static void put_label(struct nd_strbuf *out, const struct nd_tensor *tensor, bool with_type, const char *device)
{
    const struct nd_quant *quant = &tensor->quant;
    if (with_type)
        nd_strbuf_printf(out, "%s", nd_dtype_name(tensor->dtype));
    if (quant->n > 0)
        nd_strbuf_printf(out, "%sscale %.6g, zero point %" PRId64 "%s", with_type ? " with " : "",
                         (double)quant->scale[0], quant->zero_point[0], quant->n > 1 ? ", ..." : "");
    else if (!with_type)
        nd_strbuf_puts(out, "no scale");
    nd_strbuf_printf(out, " in '%s'", device);
}

static enum nd_status say_wrong(const struct looking *l, int room, struct nd_comparison *comparison,
                                struct nd_compared_pair *pair, struct nd_error *err)
{
    const struct counts *c = &l->counts;
    bool with_type = l->ref->dtype != l->test->dtype;
    struct nd_strbuf text = {0};
    if (c->n_same == c->n)
        nd_strbuf_printf(&text, "the same bytes in all %zu elements", c->n);
    else if (2 * c->n_same >= c->n && room == 0)
        nd_strbuf_printf(&text, "the same bytes in %zu of %zu elements, the rest mostly one step off",
                         c->n_same, c->n);
    else
        nd_strbuf_printf(&text, "nearly the same quantised values: %zu of %zu are at most %d step%s apart",
                         c->n_near[room], c->n, 1 << room, room == 0 ? "" : "s");
    nd_strbuf_puts(&text, ", called ");
    put_label(&text, l->ref, with_type, comparison->devices[pair->ref].label);
    nd_strbuf_puts(&text, " and ");
    put_label(&text, l->test, with_type, comparison->devices[pair->test].label);
    nd_strbuf_puts(&text, ": one label is wrong; ");
    bool has_scales = !l->is_bare && l->ref->quant.n > 0;
    bool is_one = c->max_apart - c->min_apart <= scale_tolerance * c->max_apart;
    nd_strbuf_printf(&text, "%s are %s%.6g steps apart", has_scales ? "real values" : "values",
                     is_one ? "" : "up to ", c->max_apart);
    if (has_scales && l->ref->quant.n == 1)
        nd_strbuf_printf(&text, " (%.6g)", c->max_apart * c->step);
    free(pair->label);
    pair->label = nd_strbuf_take(&text);
    return pair->label != NULL ? nd_text_set(&pair->total.reason, err, "%s", pair->label) : nd_fail_memory(err);
}

/* Bytes that one side calls floats and the other integers. */
static enum nd_status judge_floats(const struct looking *l, struct nd_comparison *comparison,
                                   struct nd_compared_pair *pair, struct nd_error *err)
{
    const struct counts *c = &l->counts;
    struct nd_strbuf text = {0};
    if (c->n < MIN_ELEMENTS || c->n_distinct < MIN_DISTINCT ||
        (double)c->n_as_floats < near_float_share * (double)c->n ||
        !(c->error_power <= max_error_power * c->ref_power))
        return ND_OK;
    nd_strbuf_printf(&text, "the same bytes in %zu of %zu elements%s, called ", c->n_same, c->n,
                     c->n_same < c->n ? ", the rest nearly the same floats" : "");
    put_label(&text, l->ref, true, comparison->devices[pair->ref].label);
    nd_strbuf_puts(&text, " and ");
    put_label(&text, l->test, true, comparison->devices[pair->test].label);
    nd_strbuf_puts(&text, ": one label is wrong");
    free(pair->label);
    pair->label = nd_strbuf_take(&text);
    return pair->label != NULL ? nd_text_set(&pair->total.reason, err, "%s", pair->label) : nd_fail_memory(err);
}

/* Other labels of the same real values: nothing differs. */
static enum nd_status say_equal(const struct looking *l, const struct nd_comparison *comparison,
                                struct nd_compared_pair *pair, bool is_whole, struct nd_error *err)
{
    if (!is_whole)
        return nd_text_set(&pair->total.reason, err,
                           "%s against %s of the same real values, but not all samples are on both sides",
                           nd_dtype_name(l->ref->dtype), nd_dtype_name(l->test->dtype));
    for (size_t p = 0; p <= comparison->n_probes; p++) {
        struct nd_compared_part *part = p < comparison->n_probes ? &pair->probes[p] : &pair->total;
        size_t n = p < comparison->n_probes ? nd_aligned_probe(l->alignment, p, l->ref_capture)->n_samples
                                            : pair->total.difference.n_samples;
        free(part->reason);
        part->reason = NULL;
        part->coverage = ND_COVERAGE_FULL;
        part->difference = (struct nd_difference){
            .n_samples = n, .n_elems = n * l->n_elems, .is_mixed = true, .has_values = true};
        if (p < comparison->n_probes)
            pair->total.difference.n_samples += n;
    }
    return ND_OK;
}

/* The power of two of steps that a device may be off by itself. */
static int find_room(const struct counts *c)
{
    double mean = c->sum / (double)c->n, variance = c->squares / (double)c->n - mean * mean;
    double most = steps_of_spread * sqrt(fmax(variance, 0));
    int room = 0;
    while (room + 2 < N_ROOMS && ldexp(1, room + 1) <= most)
        room++;
    return room;
}

/* The quantised values are those of the reference, and what they are said to mean is not. */
static bool is_wrong_label(const struct counts *c, int room)
{
    double n = (double)c->n, needed = near_share * n;
    if (c->n < MIN_ELEMENTS || c->n_distinct < MIN_DISTINCT)
        return false;
    bool is_same = (double)c->n_near[0] >= needed && (double)c->n_same >= 0.5 * n;
    if (is_same)
        return c->n_same == c->n || (double)c->n_real_near[0] < needed;
    double n_telling = (double)c->n_near[room] - (double)c->n_real_near[room + 1];
    return (double)c->n_near[room] >= needed && n_telling >= MIN_TELLING && n_telling >= telling_share * n;
}

static enum nd_status judge(const struct looking *l, struct nd_comparison *comparison,
                            struct nd_compared_pair *pair, bool is_whole, struct nd_error *err)
{
    const struct counts *c = &l->counts;
    double needed = near_share * (double)c->n;
    if (c->n == 0)
        return ND_OK;
    if (l->is_bare && l->ref->dtype == l->test->dtype)
        return c->n_same < c->n
                   ? ND_OK
                   : nd_text_set(&pair->total.reason, err,
                                 "the same quantised values, but '%s' does not state their scale",
                                 comparison->devices[l->ref->quant.n > 0 ? pair->test : pair->ref].label);
    if (c->n_real == c->n && !l->is_bare)
        return say_equal(l, comparison, pair, is_whole, err);
    bool is_told = c->n >= MIN_ELEMENTS && c->n_distinct >= MIN_DISTINCT;
    bool is_step = (double)c->n_near[0] >= needed && (double)c->n_same >= 0.5 * (double)c->n;
    int room = is_step ? 0 : find_room(c);
    if (is_wrong_label(c, room))
        return say_wrong(l, room, comparison, pair, err);
    if (is_told && !l->is_bare && (double)c->n_real_near[0] >= needed)
        return nd_text_set(&pair->total.reason, err,
                           "%s; as real values %zu of %zu elements are equal and %zu at most one step apart",
                           pair->total.reason, c->n_real, c->n, c->n_real_near[0] - c->n_real);
    return ND_OK;
}

static bool is_number(enum nd_dtype dtype)
{
    return nd_dtype_is_integer(dtype) || nd_dtype_is_float(dtype);
}

/* Numbers of one size and shape, labelled otherwise: integers, or integers and floats. */
static bool is_candidate(const struct nd_tensor *ref, const struct nd_tensor *test)
{
    if (ref == NULL || test == NULL || !is_number(ref->dtype) || !is_number(test->dtype) ||
        (nd_dtype_is_float(ref->dtype) && nd_dtype_is_float(test->dtype)))
        return false;
    size_t n_bytes = nd_dtype_size_bytes(ref->dtype);
    bool is_packed = ref->dtype == ND_DTYPE_U4 || ref->dtype == ND_DTYPE_I4 || test->dtype == ND_DTYPE_U4 ||
                     test->dtype == ND_DTYPE_I4;
    if (is_packed || n_bytes > 4 || n_bytes != nd_dtype_size_bytes(test->dtype) || ref->shape.rank < 0)
        return false;
    bool is_one_axis = ref->quant.n < 2 || test->quant.n < 2 ||
                       (ref->quant.n == test->quant.n && ref->quant.axis == test->quant.axis);
    return is_one_axis && nd_shape_equal(&ref->shape, &test->shape);
}

/* ---- bytes read as another type ---- */

const enum nd_dtype nd_readings[ND_N_READINGS] = {
    ND_DTYPE_F32, ND_DTYPE_F16, ND_DTYPE_BF16, ND_DTYPE_F8E4M3FN, ND_DTYPE_F8E5M2, ND_DTYPE_U8,
    ND_DTYPE_I8,  ND_DTYPE_U16, ND_DTYPE_I16,  ND_DTYPE_U32,      ND_DTYPE_I32};

/* All chosen. Read as it is called an eighth of the values is far off; read as the other type 99 % are within a
 * sixteenth of the spread, to which chance comes in one of eight; of 12 distinct values at least. */
enum { MIN_DISTINCT_FLOATS = 12 };
static const double min_far = 1.0 / 8, near_of_spread = 1.0 / 16, min_near = 0.99;

static double spread_of(const double *x, size_t n)
{
    double sum = 0, squares = 0, n_known = 0;
    for (size_t i = 0; i < n; i++) {
        n_known += isfinite(x[i]) ? 1 : 0;
        sum += isfinite(x[i]) ? x[i] : 0;
    }
    for (size_t i = 0; i < n; i++)
        squares += isfinite(x[i]) ? (x[i] - sum / n_known) * (x[i] - sum / n_known) : 0;
    return n_known > 0 ? sqrt(squares / n_known) : 0;
}

/* Numbers that are not alike, counted up to the least number that is evidence. */
static size_t count_distinct(const double *x, size_t n)
{
    double seen[MIN_DISTINCT_FLOATS];
    size_t n_seen = 0;
    for (size_t i = 0; i < n && n_seen < MIN_DISTINCT_FLOATS; i++) {
        size_t k = 0;
        while (k < n_seen && seen[k] != x[i])
            k++;
        if (k == n_seen && isfinite(x[i]))
            seen[n_seen++] = x[i];
    }
    return n_seen;
}

/* The share of the finite x of which y is no further than that. */
static double share_near(const double *x, const double *y, size_t n, double room)
{
    size_t n_known = 0, n_near = 0;
    for (size_t i = 0; i < n; i++) {
        n_known += isfinite(x[i]) ? 1 : 0;
        n_near += isfinite(x[i]) && fabs(y[i] - x[i]) <= room;
    }
    return n_known > 0 ? (double)n_near / (double)n_known : 0;
}

bool nd_values_may_be_mislabelled(const double *x, const double *own, size_t n)
{
    double spread = spread_of(x, n);
    return spread > 0 && isfinite(spread) &&
           1 - share_near(x, own, n, 2 * near_of_spread * spread) >= min_far &&
           count_distinct(x, n) >= MIN_DISTINCT_FLOATS;
}

bool nd_values_is_reading(const double *x, const double *reading, size_t n)
{
    return share_near(x, reading, n, near_of_spread * spread_of(x, n)) >= min_near;
}

/* One tensor of the two captures, whose shapes are not the same. */
struct side {
    const struct nd_tensor *tensor;
    const char *device;
    size_t n_elems, n_bytes;
    unsigned char *bytes; /* of the first sample */
};

/* The first sample of the first probe whose values both have; leaves bytes NULL where there is none. */
static enum nd_status read_first(const struct nd_aligned_captures *alignment, size_t tensor,
                                 const size_t captures[2], struct side sides[2], struct nd_error *err)
{
    for (size_t p = 0; p < alignment->n_probes && sides[0].bytes == NULL; p++) {
        bool has_both = nd_align_n_common(alignment, p, captures[0], captures[1]) > 0 &&
                        nd_aligned_has_values(alignment, tensor, p, captures[0]) &&
                        nd_aligned_has_values(alignment, tensor, p, captures[1]);
        for (size_t k = 0; k < 2 && has_both; k++) {
            const struct nd_probe_values values = nd_aligned_values(alignment, tensor, p, captures[k]);
            sides[k].bytes = nd_tensor_alloc(sides[k].n_bytes);
            ND_TRY_MEMORY(sides[k].bytes != NULL, err);
            ND_TRY(nd_capture_read_verified(&values, 0, 1, sides[k].bytes, err));
        }
    }
    return ND_OK;
}

/* Whether the bytes of one side are the other side's values, as many as it has, in that type. */
static enum nd_status is_read_as(const struct side *wrong, const struct side *right, enum nd_dtype type,
                                 bool *out, struct nd_error *err)
{
    const struct nd_quant *quant = &right->tensor->quant;
    *out = false;
    if (wrong->tensor->dtype == type || right->n_elems * nd_dtype_size_bytes(type) != wrong->n_bytes ||
        (!nd_dtype_is_float(type) && right->tensor->dtype != type))
        return ND_OK;
    double *x = nd_calloc(right->n_elems, 2 * sizeof *x), *reading = x + right->n_elems;
    ND_TRY_MEMORY(x != NULL, err);
    nd_array_load(right->tensor->dtype, right->bytes, right->n_elems, x);
    nd_array_load(type, wrong->bytes, right->n_elems, reading);
    size_t inner = nd_quant_inner(quant, &right->tensor->shape);
    for (size_t i = 0; i < right->n_elems && right->tensor->dtype != type; i++)
        x[i] = nd_dtype_is_integer(right->tensor->dtype)
                   ? real_of(right->tensor, (int64_t)x[i], i / inner, false)
                   : x[i];
    *out = count_distinct(x, right->n_elems) >= MIN_DISTINCT_FLOATS &&
           nd_values_is_reading(x, reading, right->n_elems);
    free(x);
    return ND_OK;
}

/* The same bits in a different shape or layout: the reason says so, and nothing is compared. */
static enum nd_status say_layout(const struct side sides[2], struct nd_compared_pair *pair,
                                 struct nd_error *err)
{
    const struct nd_tensor *ref = sides[0].tensor, *test = sides[1].tensor;
    bool is_same_size = ref->dtype == test->dtype && sides[0].n_bytes == sides[1].n_bytes;
    bool is_same = is_same_size && memcmp(sides[0].bytes, sides[1].bytes, sides[0].n_bytes) == 0;
    int order[ND_MAX_RANK];
    uint64_t number = 0;
    if (is_same_size && !is_same && ref->shape.rank == test->shape.rank)
        number =
            nd_permutation_find(&ref->shape, nd_dtype_size_bytes(ref->dtype), sides[0].bytes, sides[1].bytes);
    nd_permutation_describe(&ref->shape, number, order);
    for (int i = 0; i < ref->shape.rank && number > 0; i++)
        number = test->shape.dims[i] == ref->shape.dims[order[i]] ? number : 0;
    if (!is_same && number == 0)
        return ND_OK;
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s: the values are the reference's, %s", pair->total.reason,
                     is_same ? "in the same order" : "with the axes in the order");
    for (int i = 0; i < ref->shape.rank && !is_same; i++)
        nd_strbuf_printf(&text, "%s %d", i > 0 ? "," : "", order[i]);
    free(pair->total.reason);
    pair->total.reason = nd_strbuf_take(&text);
    return pair->total.reason != NULL ? ND_OK : nd_fail_memory(err);
}

/* Shapes that differ: the bytes of one side may be as many values of another type as the other side has. */
static enum nd_status look_at_readings(const struct nd_aligned_captures *alignment,
                                       const struct nd_comparison *comparison, size_t tensor,
                                       struct nd_compared_pair *pair, struct nd_error *err)
{
    const size_t captures[2] = {pair->ref, pair->test};
    struct side sides[2] = {0};
    enum nd_status status = ND_OK;
    for (size_t k = 0; k < 2; k++) {
        const struct nd_tensor *t = nd_aligned_tensor(alignment, tensor, captures[k]);
        if (t == NULL || !is_number(t->dtype) || t->shape.rank < 0 ||
            nd_shape_size_bytes(&t->shape, t->dtype, &sides[k].n_bytes, NULL) != ND_OK || sides[k].n_bytes == 0)
            return ND_OK;
        sides[k].tensor = t;
        sides[k].device = comparison->devices[captures[k]].label;
        sides[k].n_elems = sides[k].n_bytes / nd_dtype_size_bytes(t->dtype);
    }
    if (!nd_shape_equal(&sides[0].tensor->shape, &sides[1].tensor->shape))
        status = read_first(alignment, tensor, captures, sides, err);
    for (size_t k = 0;
         k < 2 * ND_N_READINGS && sides[1].bytes != NULL && status == ND_OK && pair->label == NULL; k++) {
        const struct side *wrong = &sides[k < ND_N_READINGS], *right = &sides[k >= ND_N_READINGS];
        bool is_so = false;
        status = is_read_as(wrong, right, nd_readings[k % ND_N_READINGS], &is_so, err);
        if (status == ND_OK && is_so) {
            enum nd_dtype type = nd_readings[k % ND_N_READINGS];
            struct nd_strbuf text = {0};
            nd_strbuf_printf(
                &text,
                "'%s' calls the bytes %zu %s; read as %zu %s they are the values of '%s': the type is wrong",
                wrong->device, wrong->n_elems, nd_dtype_name(wrong->tensor->dtype), right->n_elems,
                nd_dtype_name(type), right->device);
            free(pair->label);
            pair->label = nd_strbuf_take(&text);
            status = pair->label != NULL ? nd_text_set(&pair->total.reason, err, "%s", pair->label)
                                         : nd_fail_memory(err);
        }
    }
    if (status == ND_OK && pair->label == NULL && sides[1].bytes != NULL)
        status = say_layout(sides, pair, err);
    ND_FREE_ALL(sides[0].bytes, sides[1].bytes);
    return status;
}

static enum nd_status look(const struct nd_aligned_captures *alignment, struct nd_comparison *comparison,
                           size_t tensor, struct nd_compared_pair *pair, struct nd_error *err)
{
    struct looking l = {.alignment = alignment,
                        .ref = nd_aligned_tensor(alignment, tensor, pair->ref),
                        .test = nd_aligned_tensor(alignment, tensor, pair->test),
                        .tensor = tensor,
                        .ref_capture = pair->ref,
                        .test_capture = pair->test,
                        .inner = 1,
                        .counts = {.min_apart = INFINITY}};
    bool is_whole = false;
    if (pair->total.reason == NULL)
        return ND_OK;
    if (!is_candidate(l.ref, l.test))
        return look_at_readings(alignment, comparison, tensor, pair, err);
    /* The float type, where only one side calls the bytes so. */
    bool is_ref = nd_dtype_is_float(l.ref->dtype), is_test = nd_dtype_is_float(l.test->dtype);
    l.floats = is_ref == is_test ? ND_DTYPE_NONE : is_ref ? l.ref->dtype : l.test->dtype;
    l.is_bare = (l.ref->quant.n > 0) != (l.test->quant.n > 0);
    l.elem_bytes = nd_dtype_size_bytes(l.ref->dtype);
    const struct nd_quant *quant = l.ref->quant.n > 1 ? &l.ref->quant : &l.test->quant;
    for (int d = quant->n > 1 ? quant->axis + 1 : l.ref->shape.rank; d < l.ref->shape.rank; d++)
        l.inner *= (size_t)l.ref->shape.dims[d];
    l.inner = l.inner > 0 ? l.inner : 1;
    ND_TRY(nd_shape_n_elems(&l.ref->shape, &l.n_elems, err));
    ND_FREED bool *seen = l.counts.seen = nd_calloc(N_SEEN, sizeof *l.counts.seen);
    ND_TRY_MEMORY(seen != NULL, err);
    if (l.n_elems > 0)
        ND_TRY(read_all(&l, &is_whole, err));
    return l.floats != ND_DTYPE_NONE ? judge_floats(&l, comparison, pair, err)
                                     : judge(&l, comparison, pair, is_whole, err);
}

enum nd_status nd_labels_find(const struct nd_aligned_captures *alignment, struct nd_comparison *comparison,
                              struct nd_error *err)
{
    for (size_t e = 0; e < comparison->n_tensors; e++)
        for (size_t p = 0; p < comparison->n_pairs; p++)
            ND_TRY(look(alignment, comparison, e, &comparison->tensors[e].pairs[p], err));
    return ND_OK;
}
