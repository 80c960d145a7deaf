/* The quantisation that a capture states against the model's. */
#include <math.h>
#include <stdio.h>

#include "explain/diagnosis/diagnosis.h"

/* Scales that went through decimal text may be off in their last digits. */
static const double scale_tolerance = 1e-6;

static size_t at(const struct nd_quant *quant, size_t channel)
{
    return quant->n == 1 ? 0 : channel;
}

static double scale_ratio(const struct nd_quant *model, const struct nd_quant *capture, size_t c)
{
    double ratio = (double)capture->scale[at(capture, c)] / (double)model->scale[at(model, c)];
    return fabs(ratio - 1) <= scale_tolerance ? 1 : ratio;
}

static double difference(const struct nd_quant *model, const struct nd_quant *capture, size_t c)
{
    return (double)capture->zero_point[at(capture, c)] - (double)model->zero_point[at(model, c)];
}

struct channels {
    size_t n, n_scales, n_points; /* that differ */
    size_t scale, point;          /* the first of them */
    bool is_one_ratio, is_one_difference;
};

static struct channels look(const struct nd_quant *model, const struct nd_quant *capture)
{
    struct channels x = {.n = model->n > capture->n ? model->n : capture->n};
    x.is_one_ratio = x.is_one_difference = true;
    for (size_t c = 0; c < x.n; c++) {
        double ratio = scale_ratio(model, capture, c), shift = difference(model, capture, c);
        if (ratio != 1 && x.n_scales++ == 0)
            x.scale = c;
        if (shift != 0 && x.n_points++ == 0)
            x.point = c;
    }
    for (size_t c = 0; c < x.n; c++) {
        double off = scale_ratio(model, capture, c) / scale_ratio(model, capture, x.scale);
        x.is_one_ratio = x.is_one_ratio && fabs(off - 1) <= scale_tolerance;
        x.is_one_difference =
            x.is_one_difference && difference(model, capture, c) == difference(model, capture, x.point);
    }
    return x;
}

static void add_scale(const struct nd_quant *model, const struct nd_quant *capture, const struct channels *x,
                      struct nd_diagnosis *out)
{
    bool is_whole = x->n_scales == x->n && x->is_one_ratio;
    struct nd_finding f = {.kind = is_whole ? ND_FAULT_SCALE : ND_FAULT_CHANNEL_SCALE,
                           .channel = is_whole ? SIZE_MAX : x->scale,
                           .axis = is_whole       ? -1
                                   : model->n > 1 ? model->axis
                                                  : capture->axis,
                           .amount = scale_ratio(model, capture, x->scale),
                           .explained = 1,
                           .n_wrong = x->n_scales};
    snprintf(f.text, sizeof f.text, "the scale is %.6g where the model says %.6g",
             (double)capture->scale[at(capture, x->scale)], (double)model->scale[at(model, x->scale)]);
    nd_diagnosis_add(out, &f);
}

static void add_point(const struct nd_quant *model, const struct nd_quant *capture, const struct channels *x,
                      struct nd_diagnosis *out)
{
    bool is_whole = x->n_points == x->n && x->is_one_difference;
    double was = (double)model->zero_point[at(model, x->point)], shift = difference(model, capture, x->point);
    struct nd_finding f = {.kind = is_whole ? ND_FAULT_ZERO_POINT : ND_FAULT_CHANNEL_ZERO_POINT,
                           .channel = is_whole ? SIZE_MAX : x->point,
                           .axis = is_whole       ? -1
                                   : model->n > 1 ? model->axis
                                                  : capture->axis,
                           .amount = shift,
                           .explained = 1,
                           .n_wrong = x->n_points};
    snprintf(f.text, sizeof f.text, "the zero point is %g where the model says %g", was + shift, was);
    /* -128 for 128 is both; the sign is the commoner slip. */
    bool is_sign = was != 0 && shift == -2 * was, is_256 = fabs(shift) == 256;
    if (is_sign || is_256)
        f.kind = is_sign ? ND_FAULT_OFFSET_SIGN : ND_FAULT_OFFSET_256;
    nd_diagnosis_add(out, &f);
    f.kind = ND_FAULT_OFFSET_256;
    if (is_sign && is_256)
        nd_diagnosis_add(out, &f);
}

/* One slip, as when the encodings of another tensor were taken. */
static void add_both(const struct nd_quant *model, const struct nd_quant *capture, const struct channels *x,
                     struct nd_diagnosis *out)
{
    double was = (double)model->zero_point[at(model, x->point)];
    struct nd_finding f = {.kind = ND_FAULT_ENCODING,
                           .channel = SIZE_MAX,
                           .axis = -1,
                           .amount = scale_ratio(model, capture, x->scale),
                           .explained = 1,
                           .n_wrong = x->n};
    snprintf(f.text, sizeof f.text, "the scale is %.6g and the zero point %g where the model says %.6g and %g",
             (double)capture->scale[at(capture, x->scale)], was + difference(model, capture, x->point),
             (double)model->scale[at(model, x->scale)], was);
    nd_diagnosis_add(out, &f);
}

void nd_diagnose_encoding(const struct nd_quant *model, const struct nd_quant *capture,
                          struct nd_diagnosis *out)
{
    *out = (struct nd_diagnosis){0};
    bool is_same_length = model->n == capture->n || model->n == 1 || capture->n == 1;
    if (model->n == 0 || capture->n == 0 || !is_same_length)
        return;
    struct channels x = look(model, capture);
    if (x.n_scales == x.n && x.is_one_ratio && x.n_points == x.n && x.is_one_difference) {
        add_both(model, capture, &x, out);
        return;
    }
    if (x.n_scales > 0)
        add_scale(model, capture, &x, out);
    if (x.n_points > 0)
        add_point(model, capture, &x, out);
}
