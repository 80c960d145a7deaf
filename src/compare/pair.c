#include "compare/pair.h"

#include <string.h>

#include "base/memory.h"

void nd_diff_load_bits(const unsigned char *bytes, size_t elem_bytes, size_t n, uint64_t *out)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char *at = bytes + i * elem_bytes;
        uint16_t two;
        uint32_t four;
        switch (elem_bytes) {
        case 1:
            out[i] = *at;
            break;
        case 2:
            memcpy(&two, at, sizeof two);
            out[i] = two;
            break;
        case 4:
            memcpy(&four, at, sizeof four);
            out[i] = four;
            break;
        default:
            memcpy(&out[i], at, sizeof out[i]);
            break;
        }
    }
}

static enum nd_status set_channels(const struct nd_edge *edge, struct nd_diff_layout *layout,
                                   struct nd_error *err)
{
    const struct nd_quant *quant = &edge->quant;
    if (quant->n == 0 || nd_dtype_is_float(edge->dtype))
        return ND_OK; /* plain numbers; a float is compared as it is */
    layout->n_channels = quant->n;
    layout->scale = quant->scale;
    layout->zero_point = quant->zero_point;
    if (quant->n == 1)
        return ND_OK;
    if (quant->axis < 0 || quant->axis >= edge->shape.rank ||
        edge->shape.dims[quant->axis] != (int64_t)quant->n)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, edge->name,
                       "edge '%s' has %zu scales on axis %d, which do not fit its shape", edge->name, quant->n,
                       quant->axis);
    for (int i = quant->axis + 1; i < edge->shape.rank; i++)
        layout->inner *= (size_t)edge->shape.dims[i]; /* fits: the whole shape does, or it is empty */
    return ND_OK;
}

enum nd_status nd_diff_layout_make(const struct nd_edge *edge, struct nd_diff_layout *layout,
                                   struct nd_error *err)
{
    struct nd_diff_layout made = {.dtype = edge->dtype, .shape = edge->shape, .inner = 1};
    made.gate.bitwise = true;
    enum nd_status status = nd_shape_size_bytes(&edge->shape, edge->dtype, &made.sample_bytes, err);
    if (status == ND_OK)
        status = nd_shape_n_elems(&edge->shape, &made.n_elems, err);
    if (status == ND_OK && made.n_elems > 0)
        status = set_channels(edge, &made, err);
    if (status == ND_OK)
        *layout = made;
    return status;
}

/* Section 6: neighbours are added until one is left. */
static double combine_lanes(const double *lanes)
{
    double sums[ND_DIFF_LANES];
    memcpy(sums, lanes, sizeof sums);
    for (int width = ND_DIFF_LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            sums[i] = sums[2 * i] + sums[2 * i + 1];
    return sums[0];
}

static void note_first(struct nd_diff_acc *acc, const struct nd_diff_layout *layout,
                       struct nd_difference_place place)
{
    if (acc->has_first)
        return;
    size_t rest = place.index;
    for (int i = layout->shape.rank - 1; i >= 0 && place.has_index; i--) {
        place.coordinates[i] = (int64_t)(rest % (size_t)layout->shape.dims[i]);
        rest /= (size_t)layout->shape.dims[i];
    }
    acc->first = place;
    acc->has_first = true;
}

uint64_t nd_diff_add_sample(struct nd_diff_acc *acc, const struct nd_diff_layout *layout, const void *ref,
                            const void *test, size_t probe, size_t sample)
{
    size_t elem_bytes = nd_dtype_size_bytes(layout->dtype);
    bool is_float = nd_dtype_is_float(layout->dtype);
    uint64_t n_differing = 0;
    double sum_abs = 0;
    for (size_t first = 0; first < layout->n_elems; first += ND_DIFF_BLOCK) {
        double lanes[ND_DIFF_LANES] = {0};
        struct nd_diff_block block = {.ref = (const unsigned char *)ref + first * elem_bytes,
                                      .test = (const unsigned char *)test + first * elem_bytes,
                                      .first = first,
                                      .n = layout->n_elems - first,
                                      .lanes = lanes};
        if (block.n > ND_DIFF_BLOCK)
            block.n = ND_DIFF_BLOCK;
        if (memcmp(block.ref, block.test, block.n * elem_bytes) == 0)
            continue; /* adds nothing but zeros */
        n_differing +=
            is_float ? nd_diff_floats_block(acc, layout, &block) : nd_diff_codes_block(acc, layout, &block);
        sum_abs += combine_lanes(lanes);
        note_first(
            acc, layout,
            (struct nd_difference_place){
                .probe = probe, .sample = sample, .has_index = true, .index = first + block.first_differing});
    }
    acc->sum_abs += sum_abs;
    acc->n_samples++;
    acc->n_samples_differing += n_differing > 0;
    acc->n_elems += layout->n_elems;
    acc->n_differing += n_differing;
    return n_differing;
}

void nd_diff_add_equal(struct nd_diff_acc *acc, const struct nd_diff_layout *layout)
{
    acc->n_samples++;
    acc->n_elems += layout->n_elems;
}

void nd_diff_add_unread(struct nd_diff_acc *acc, const struct nd_diff_layout *layout, size_t probe,
                        size_t sample)
{
    acc->n_samples++;
    acc->n_samples_differing++;
    acc->n_samples_unread++;
    acc->n_elems += layout->n_elems;
    note_first(acc, layout, (struct nd_difference_place){.probe = probe, .sample = sample});
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void nd_diff_merge(struct nd_diff_acc *acc, const struct nd_diff_acc *later)
{
    acc->n_samples += later->n_samples;
    acc->n_samples_differing += later->n_samples_differing;
    acc->n_samples_unread += later->n_samples_unread;
    acc->n_elems += later->n_elems;
    acc->n_differing += later->n_differing;
    acc->n_failing += later->n_failing;
    for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
        acc->lsb_histogram[i] += later->lsb_histogram[i];
    acc->max_lsb = max_u64(acc->max_lsb, later->max_lsb);
    acc->max_ulp = max_u64(acc->max_ulp, later->max_ulp);
    acc->sum_lsb += later->sum_lsb;
    acc->sum_signed_lsb += later->sum_signed_lsb;
    acc->n_nan_mismatch += later->n_nan_mismatch;
    acc->n_nan_payload += later->n_nan_payload;
    acc->n_inf_mismatch += later->n_inf_mismatch;
    acc->n_zero_sign += later->n_zero_sign;
    acc->max_abs = later->max_abs > acc->max_abs ? later->max_abs : acc->max_abs;
    acc->sum_abs += later->sum_abs;
    if (!acc->has_first && later->has_first) {
        acc->first = later->first;
        acc->has_first = true;
    }
}

static double ratio(double a, uint64_t n)
{
    return n > 0 ? a / (double)n : 0;
}

void nd_diff_finish(const struct nd_diff_acc *acc, const struct nd_diff_layout *layout,
                    struct nd_difference *out)
{
    *out = (struct nd_difference){
        .n_samples = acc->n_samples,
        .n_samples_differing = acc->n_samples_differing,
        .n_elems = acc->n_elems,
        .has_values = acc->n_samples_unread == 0,
        .is_integer = !nd_dtype_is_float(layout->dtype),
        .has_first = acc->has_first,
        .first = acc->first,
    };
    if (!out->has_values)
        return;
    out->n_differing = acc->n_differing;
    out->share = ratio((double)acc->n_differing, acc->n_elems);
    out->n_failing = acc->n_failing;
    out->max_abs = acc->max_abs;
    out->mean_abs =
        ratio(acc->sum_abs, acc->n_elems - acc->n_nan_mismatch - acc->n_nan_payload - acc->n_inf_mismatch);
    if (out->is_integer) {
        memcpy(out->lsb_histogram, acc->lsb_histogram, sizeof out->lsb_histogram);
        out->lsb_histogram[4] = acc->n_elems - acc->n_differing;
        out->max_lsb = acc->max_lsb;
        out->mean_lsb = ratio((double)acc->sum_lsb, acc->n_elems);
        out->signed_mean_lsb = ratio((double)acc->sum_signed_lsb, acc->n_elems);
    } else {
        out->max_ulp = acc->max_ulp;
        out->n_nan_mismatch = acc->n_nan_mismatch;
        out->n_nan_payload = acc->n_nan_payload;
        out->n_inf_mismatch = acc->n_inf_mismatch;
        out->n_zero_sign = acc->n_zero_sign;
    }
}
