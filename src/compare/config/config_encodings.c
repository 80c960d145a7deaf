/* Encodings held against what captures hold. */
#include <math.h>
#include <stdlib.h>

#include "arithmetic/operators/array.h"
#include "core/error.h"
#include "core/memory.h"
#include "npudiff/compare/config.h"

/* What was seen of one channel. */
struct seen {
    double lowest, highest;
    double low, high; /* the reals that the encoding can express at most */
    uint64_t n, n_nan, n_low, n_high;
};

struct tally {
    const struct nd_encoding *encoding;
    const struct nd_tensor *tensor;
    size_t n_channels; /* the encoding's scales */
    size_t inner;      /* elements of one channel that lie together */
    struct seen *seen;
};

static double qvalue_low(const struct nd_encoding *encoding)
{
    return nd_dtype_is_signed_integer(encoding->dtype) ? -ldexp(1, encoding->bits - 1) : 0;
}

static bool can_be_read(enum nd_dtype dtype)
{
    switch (dtype) {
    case ND_DTYPE_U8:
    case ND_DTYPE_I8:
    case ND_DTYPE_U16:
    case ND_DTYPE_I16:
    case ND_DTYPE_I32:
    case ND_DTYPE_F32:
    case ND_DTYPE_F64:
        return true;
    default:
        return false;
    }
}

/* The scale that the tensor's own codes have at an element; a tensor per channel has the encoding's channels.
 */
static double real_of(const struct tally *tally, const void *data, size_t i, size_t channel)
{
    const struct nd_quant *quant = &tally->tensor->quant;
    double value;
    nd_array_load(tally->tensor->dtype,
                  (const unsigned char *)data + i * nd_dtype_size_bytes(tally->tensor->dtype), 1, &value);
    if (quant->n == 0)
        return value;
    size_t at = quant->n == 1 ? 0 : channel;
    return (double)quant->scale[at] * (value - (double)quant->zero_point[at]);
}

/* A millionth of the range is room for the rounding of scales: a quantised value at the end counts as at the
 * end. */
static void look(struct tally *tally, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t channel = tally->n_channels > 1 ? i / tally->inner % tally->n_channels : 0;
        struct seen *seen = &tally->seen[channel];
        double real = real_of(tally, data, i, channel);
        double slack = 1e-6 * (seen->high - seen->low);
        if (isnan(real)) {
            seen->n_nan++;
            continue;
        }
        seen->n++;
        seen->lowest = real < seen->lowest ? real : seen->lowest;
        seen->highest = real > seen->highest ? real : seen->highest;
        seen->n_low += real <= seen->low + slack;
        seen->n_high += real >= seen->high - slack;
    }
}

static enum nd_status look_at_probe(struct tally *tally, const struct nd_capture *capture, size_t probe,
                                    size_t tensor, struct nd_error *err)
{
    size_t n, sample_bytes, n_samples = nd_capture_probe(capture, probe)->n_samples;
    ND_TRY(nd_shape_n_elems(&tally->tensor->shape, &n, err));
    ND_TRY(nd_shape_size_bytes(&tally->tensor->shape, tally->tensor->dtype, &sample_bytes, err));
    ND_FREED void *buf = nd_tensor_alloc(sample_bytes);
    ND_TRY_MEMORY(buf != NULL, err);
    for (size_t s = 0; s < n_samples; s++) {
        ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){capture, probe, tensor}, s, 1, buf, err));
        look(tally, buf, n);
    }
    return ND_OK;
}

/* Which elements belong to which scale. */
static enum nd_status find_channels(struct tally *tally, struct nd_error *err)
{
    const struct nd_shape *shape = &tally->tensor->shape;
    const struct nd_quant *own = &tally->tensor->quant, *quant = &tally->encoding->quant;
    int axis = quant->axis;
    tally->n_channels = quant->n;
    tally->inner = 1;
    if (quant->n == 1 && own->n <= 1)
        return ND_OK;
    if (axis < 0 && tally->encoding->has_axis)
        axis += shape->rank;
    bool fits = quant->n > 1 && axis >= 0 && axis < shape->rank && shape->dims[axis] == (int64_t)quant->n &&
                (own->n <= 1 || (own->n == quant->n && own->axis == axis));
    if (!fits)
        return nd_fail(err, ND_E_ENCODINGS_MISMATCH, tally->encoding->name,
                       "the encoding of '%s' has %zu scales, which do not lie along a dimension of the "
                       "captured tensor (%zu scales of its own)",
                       tally->encoding->name, quant->n, own->n);
    for (int d = axis + 1; d < shape->rank; d++)
        tally->inner *= (size_t)shape->dims[d];
    return ND_OK;
}

static void summarise(const struct tally *tally, struct nd_encoding_use *use)
{
    uint64_t n_low = 0, n_high = 0;
    use->lowest = INFINITY;
    use->highest = -INFINITY;
    for (size_t c = 0; c < tally->n_channels; c++) {
        const struct seen *seen = &tally->seen[c];
        use->n_elements += seen->n;
        use->n_nan += seen->n_nan;
        n_low += seen->n_low;
        n_high += seen->n_high;
        if (seen->n == 0)
            continue;
        use->lowest = fmin(use->lowest, seen->lowest);
        use->highest = fmax(use->highest, seen->highest);
        double step = (double)tally->encoding->quant.scale[c];
        double span = fmin(seen->highest, seen->high) - fmax(seen->lowest, seen->low) + step;
        double share = span > 0 ? span / (seen->high - seen->low + step) : 0;
        use->used_range = fmax(use->used_range, fmin(share, 1));
    }
    use->has_values = use->n_elements > 0;
    if (!use->has_values)
        return;
    use->low_share = (double)n_low / (double)use->n_elements;
    use->high_share = (double)n_high / (double)use->n_elements;
}

static enum nd_status look_at_tensor(const struct nd_capture *capture, struct nd_encoding_use *use,
                                     struct nd_error *err)
{
    struct tally tally = {.encoding = use->encoding, .tensor = nd_capture_tensor(capture, use->tensor)};
    enum nd_status status = find_channels(&tally, err);
    if (status != ND_OK)
        return status;
    tally.seen = nd_calloc(tally.n_channels, sizeof *tally.seen);
    ND_TRY_MEMORY(tally.seen != NULL, err);
    for (size_t c = 0; c < tally.n_channels; c++) {
        double scale = (double)use->encoding->quant.scale[c];
        double low = qvalue_low(use->encoding) - (double)use->encoding->quant.zero_point[c];
        tally.seen[c] = (struct seen){.lowest = INFINITY,
                                      .highest = -INFINITY,
                                      .low = scale * low,
                                      .high = scale * (low + ldexp(1, use->encoding->bits) - 1)};
    }
    for (size_t p = 0; p < nd_capture_n_probes(capture) && status == ND_OK; p++)
        if (nd_capture_has_outputs(capture, p, use->tensor))
            status = look_at_probe(&tally, capture, p, use->tensor, err);
    if (status == ND_OK)
        summarise(&tally, use);
    free(tally.seen);
    return status;
}

/* Whether the tensor's own parameters mean the same reals. */
static enum nd_status is_stated_same(const struct nd_encoding *encoding, const struct nd_tensor *tensor,
                                     bool *out, struct nd_error *err)
{
    ND_CLEANUP(nd_encodings_destroy) struct nd_encodings *stated = NULL, *wanted = NULL;
    ND_CLEANUP(nd_encodings_diff_deinit) struct nd_encodings_diff diff = {0};
    struct nd_tensor copy = {.name = encoding->name, .dtype = encoding->dtype, .quant = encoding->quant};
    struct nd_tensor own = {.name = encoding->name, .dtype = tensor->dtype, .quant = tensor->quant};
    ND_TRY(nd_encodings_create("", "", &stated, err));
    *out = false;
    ND_TRY(nd_encodings_create("", "", &wanted, err));
    ND_TRY(nd_encodings_add_tensor(stated, &own, err));
    ND_TRY(nd_encodings_add_tensor(wanted, &copy, err));
    ND_TRY(nd_encodings_compare(wanted, stated, 0, &diff, err));
    *out = diff.n_same == 1 && encoding->bits == nd_encodings_at(wanted, 0)->bits;
    return ND_OK;
}

static enum nd_status use_encodings(const struct nd_encodings *encodings, const struct nd_capture *capture,
                                    struct nd_encodings_check *check, struct nd_error *err)
{
    for (size_t i = 0; i < nd_encodings_n(encodings); i++) {
        const struct nd_encoding *encoding = nd_encodings_at(encodings, i);
        size_t tensor = nd_capture_find_tensor(capture, encoding->name);
        /* Constants are not captured; where the role is unstated only the name can tell. */
        bool is_of_interest = encoding->role == ND_ENCODING_ACTIVATION || tensor != SIZE_MAX;
        if (encoding->unhandled != NULL || encoding->role == ND_ENCODING_PARAM || !is_of_interest)
            continue;
        struct nd_encoding_use *use = &check->uses[check->n_used++];
        *use = (struct nd_encoding_use){.encoding = encoding, .tensor = tensor};
        if (tensor == SIZE_MAX)
            continue;
        ND_TRY(is_stated_same(encoding, nd_capture_tensor(capture, tensor), &use->is_stated_same, err));
        const struct nd_tensor *captured = nd_capture_tensor(capture, tensor);
        bool has_meaning = !nd_dtype_is_integer(captured->dtype) || captured->quant.n > 0;
        if (has_meaning && can_be_read(captured->dtype))
            ND_TRY(look_at_tensor(capture, use, err));
    }
    return ND_OK;
}

enum nd_status nd_encodings_check(const struct nd_encodings *encodings, const struct nd_capture *capture,
                                  struct nd_encodings_check *out, struct nd_error *err)
{
    size_t n_tensors = nd_capture_n_tensors(capture);
    ND_CLEANUP(nd_encodings_check_deinit)
    struct nd_encodings_check check = {.uses = nd_calloc(nd_encodings_n(encodings), sizeof *check.uses),
                                       .without = nd_calloc(n_tensors, sizeof *check.without)};
    ND_TRY(check.uses != NULL && check.without != NULL ? use_encodings(encodings, capture, &check, err)
                                                       : nd_fail_memory(err));
    for (size_t e = 0; e < n_tensors; e++) {
        const struct nd_tensor *tensor = nd_capture_tensor(capture, e);
        if (tensor->quant.n > 0 && nd_encodings_find(encodings, tensor->name) == SIZE_MAX)
            check.without[check.n_without++] = e;
    }
    *out = check;
    check = (struct nd_encodings_check){0};
    return ND_OK;
}

void nd_encodings_check_deinit(struct nd_encodings_check *check)
{
    ND_FREE_ALL(check->uses, check->without);
    *check = (struct nd_encodings_check){0};
}
