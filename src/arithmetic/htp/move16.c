/* uint16 quantised values that were moved, in another encoding. The floats are those of the vector layer, and
 * most operators round to float16 between the two scales. docs/science/htp-arithmetic.md#moves16. */
#include <math.h>
#include <string.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "arithmetic/htp/qfloat.h"
#include "core/tensors/scales.h"

enum {
    MAX_AXES = 5,       /* that were looked at */
    MAX_STILL_AXES = 4, /* with one more a leading axis of 1 is a move like another */
};
/* Below 1e-7 up to 280 of 65 536 quantised values differ (QAIRT 2.51); above are infinities. */
static const double min_scale = 0x1p-20, max_of_half = 65504;

enum method {
    HALVES, /* real values as float16 */
    STILL,  /* the same; where no quantised value is moved they are not rounded to float16 */
    KEPT,   /* the quantised values are not brought to the other encoding: a defect */
};

static const struct {
    const char *op_type;
    enum method method;
} methods[] = {
    {"Expand", HALVES}, {"Flatten", STILL},    {"Gather", HALVES},     {"MaxPool", HALVES},
    {"Reshape", STILL}, {"Resize", HALVES},    {"SpaceToDepth", KEPT}, {"Squeeze", STILL},
    {"Tile", HALVES},   {"Transpose", HALVES}, {"Unsqueeze", STILL},
};

enum { N_METHODS = sizeof methods / sizeof methods[0] };

static double half_away(double v)
{
    return copysign(floor(fabs(v) + 0.5), v);
}

struct step {
    const struct nd_quant *x, *y;
    bool is_still, is_v81;
};

static struct nd_qfloat real_of(const struct nd_quant *x, double qvalue, bool is_v81)
{
    float n = (float)(qvalue - (double)x->zero_point[0]);
    struct nd_qfloat whole =
        is_v81 ? nd_qfloat_from(n) : nd_qfloat_product(nd_qfloat_read(n), nd_qfloat_read(1));
    return nd_qfloat_product(whole, nd_qfloat_from(x->scale[0]));
}

double nd_htp_half_of_word(const struct nd_quant *x, double qvalue, bool is_v81)
{
    return nd_htp_as_half(nd_qfloat_value(real_of(x, qvalue, is_v81)));
}

static double rescale(const struct step *s, double qvalue)
{
    float inverse = 1 / s->y->scale[0];
    if (s->is_still) {
        struct nd_qfloat real = real_of(s->x, qvalue, s->is_v81);
        return half_away(nd_qfloat_value(nd_qfloat_product(real, nd_qfloat_read(inverse))));
    }
    float half = (float)nd_htp_half_of_word(s->x, qvalue, s->is_v81);
    return half_away(nd_qfloat_value(nd_qfloat_product(nd_qfloat_from(half), nd_qfloat_from(inverse))));
}

bool nd_htp_are_known_halves(const struct nd_quant *x)
{
    double zero = (double)x->zero_point[0], farthest = fmax(zero, UINT16_MAX - zero);
    return (double)x->scale[0] >= min_scale && farthest * (double)x->scale[0] <= max_of_half;
}

static size_t row_of(const char *op_type)
{
    size_t row = 0;
    while (row < N_METHODS && strcmp(op_type, methods[row].op_type) != 0)
        row++;
    return row;
}

static bool is_other_on_v81(const struct nd_exact_layer *layer)
{
    const struct nd_linear_call *call = layer->call;
    return layer->dtype == ND_DTYPE_U16 && call->node != NULL && call->n_inputs > 0 &&
           row_of(nd_onnx_text(call->node->op_type)) < N_METHODS &&
           !nd_quant_is_same(call->inputs[0].quant, call->out_quant);
}

static bool find_method(const struct nd_htp_job *job, const struct nd_shape *out, enum method *method)
{
    const struct nd_shape *in = &job->call->inputs[0].values->shape;
    size_t row = row_of(job->call->node->op_type);
    if (row == N_METHODS || in->rank > MAX_AXES || out->rank > MAX_AXES)
        return false;
    *method = methods[row].method;
    bool is_still = *method == STILL && in->rank <= MAX_STILL_AXES && out->rank <= MAX_STILL_AXES &&
                    nd_htp_is_same_but_ones(in, out);
    if (*method == STILL && !is_still)
        *method = HALVES;
    /* What lies in blocks is brought to the other encoding in other ways, which differ by the operator. */
    return !is_still || nd_htp_layout_of(job->memory, job->layer, 0) == ND_HTP_FLAT;
}

bool nd_htp_rescale_moved_words(const struct nd_htp_job *job, struct nd_array *moved)
{
    enum method method = HALVES;
    const struct nd_quant *x = nd_htp_plain(job, 0), *y = nd_htp_plain_output(job);
    if (x == NULL || y == NULL || !nd_htp_is_unbounded(job) || !find_method(job, &moved->shape, &method))
        return false;
    if (method == KEPT)
        return true;
    /* The device gives something else where a Softmax made the quantised values (five layers, 60 to 80 % of
     * their quantised values).
     */
    if (nd_htp_is_share(job, 0))
        return false;
    const struct step step = {.x = x, .y = y, .is_still = method == STILL, .is_v81 = job->arithmetic->is_v81};
    for (size_t i = 0; nd_htp_are_known_halves(x) && i < moved->n; i++)
        moved->x[i] = fmin(fmax(rescale(&step, moved->x[i]) + (double)y->zero_point[0], 0), UINT16_MAX);
    return nd_htp_are_known_halves(x);
}

enum nd_status nd_layer_run_as_v81(const struct nd_layer_arithmetic *arithmetic,
                                   const struct nd_exact_layer *layer, struct nd_layer_memory *memory,
                                   struct nd_array *qvalues, bool *is_covered, struct nd_error *err)
{
    struct nd_layer_arithmetic other = *arithmetic;
    *is_covered = false;
    if (arithmetic->arch != ND_HTP_V73 || !is_other_on_v81(layer))
        return ND_OK;
    other.is_v81 = true;
    return nd_layer_arithmetic_run(&other, layer, memory, qvalues, is_covered, err);
}
