/* What the families of the HTP ask of a layer at work: types and encodings of what it reads and writes, the
 * bounds of its quantised values, and whether those are of uint16. docs/science/htp-arithmetic.md has the
 * formulas. */
#include <math.h>

#include "arithmetic/htp/htp_internal.h"

/* Beyond them the product of two scales over a third may be none of float32. Models have 2^-24 to 2^10. */
static const float min_scale = 0x1p-42f, greatest_scale = 0x1p42f;

static bool is_plain(const struct nd_quant *quant)
{
    return quant != NULL && quant->n == 1 && quant->scale[0] >= min_scale && quant->scale[0] <= greatest_scale;
}

const struct nd_quant *nd_htp_plain(const struct nd_htp_job *job, size_t i)
{
    if (!nd_linear_has(job->call, i) || !is_plain(job->call->inputs[i].quant))
        return NULL;
    return job->call->inputs[i].quant;
}

const struct nd_quant *nd_htp_plain_output(const struct nd_htp_job *job)
{
    return is_plain(job->call->out_quant) ? job->call->out_quant : NULL;
}

bool nd_htp_all_are(const struct nd_htp_job *job, size_t n, enum nd_dtype dtype)
{
    bool are = job->layer->dtype == dtype && nd_htp_plain_output(job) != NULL;
    for (size_t i = 0; i < n && are; i++)
        are = nd_htp_plain(job, i) != NULL && job->call->inputs[i].values->dtype == dtype;
    return are;
}

bool nd_htp_are_within(const struct nd_array *x, double most)
{
    for (size_t i = 0; i < x->n; i++)
        if (!(x->x[i] >= 0 && x->x[i] <= most))
            return false;
    return true;
}

bool nd_htp_are_words(const struct nd_htp_job *job, size_t n)
{
    bool are = job->call->n_inputs >= n && nd_htp_all_are(job, n, ND_DTYPE_U16);
    for (size_t i = 0; i < n && are; i++)
        are = nd_htp_are_within(job->call->inputs[i].values, UINT16_MAX);
    return are;
}

bool nd_htp_has_words(const struct nd_htp_job *job)
{
    return nd_htp_are_words(job, 1);
}

const char *nd_htp_op_type(const struct nd_exact_layer *layer)
{
    return nd_onnx_text(layer->call->node != NULL ? layer->call->node->op_type : NULL);
}

bool nd_htp_begins_with(const char *op_types, const char *op_type)
{
    size_t n = strlen(op_type);
    return strncmp(op_types, op_type, n) == 0 && (op_types[n] == '\0' || op_types[n] == '+');
}

bool nd_htp_is_product(const char *op_types)
{
    return nd_htp_begins_with(op_types, "Conv") || nd_htp_begins_with(op_types, "ConvTranspose") ||
           nd_htp_begins_with(op_types, "Gemm") || nd_htp_begins_with(op_types, "MatMul");
}

bool nd_layer_is_product(const struct nd_exact_layer *layer)
{
    return nd_htp_is_product(nd_htp_op_type(layer));
}

bool nd_htp_is_number(const struct nd_htp_job *job, size_t i)
{
    return nd_linear_has(job->call, i) && job->call->inputs[i].values->n == 1 &&
           job->layer->origins[i] == ND_EXACT_FROM_CONSTANT;
}

size_t nd_htp_run_of(const struct nd_htp_job *job, size_t i)
{
    const struct nd_shape *x = &job->call->inputs[0].values->shape, *own = &job->call->inputs[i].values->shape;
    size_t run = 1, n = job->call->inputs[i].values->n;
    int axis = x->rank - 1, last = own->rank - 1;
    for (; axis > 0 && last > 0 && own->dims[last] == 1; axis--, last--)
        run *= (size_t)x->dims[axis];
    bool is_along = axis >= 0 && last >= 0 && own->dims[last] == x->dims[axis] && n == (size_t)x->dims[axis];
    return is_along && job->call->inputs[0].values->n > 0 ? run : 0;
}

bool nd_htp_reduces_one_axis(const struct nd_exact_layer *layer, int64_t *axis)
{
    return nd_htp_has_one_axis(layer->call->node, layer->call->opset,
                               nd_linear_has(layer->call, 1) ? layer->call->inputs[1].values : NULL, axis);
}

bool nd_htp_has_one_axis(const Onnx__NodeProto *node, int64_t opset, const struct nd_array *given,
                         int64_t *axis)
{
    const struct nd_op_call op_call = {.node = node, .opset = opset};
    const int64_t *axes = NULL;
    size_t n = given != NULL ? given->n : nd_op_ints(&op_call, "axes", &axes);
    if (n == 1)
        *axis = given != NULL ? (int64_t)given->x[0] : axes[0];
    return n == 1;
}

struct nd_htp_bounds nd_htp_bounds_of(const struct nd_htp_job *job)
{
    return nd_htp_bounds_between(job, job->call->low, job->call->high);
}

struct nd_htp_bounds nd_htp_bounds_between(const struct nd_htp_job *job, double low, double high)
{
    struct nd_htp_bounds bounds;
    const struct nd_quant *quant = job->call->out_quant;
    nd_qvalue_range(job->layer->dtype, &bounds.low, &bounds.high);
    double scale = (double)quant->scale[0], zero = (double)quant->zero_point[0], most = bounds.high;
    if (low > -HUGE_VAL)
        bounds.low = fmin(fmax(bounds.low, rint(low / scale) + zero), most);
    if (high < HUGE_VAL)
        bounds.high = fmax(fmin(bounds.high, rint(high / scale) + zero), bounds.low);
    return bounds;
}

bool nd_htp_is_unbounded(const struct nd_htp_job *job)
{
    return job->call->low <= -HUGE_VAL && job->call->high >= HUGE_VAL;
}
