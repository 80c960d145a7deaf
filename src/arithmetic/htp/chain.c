/* Several operators with no quantiser between them: the HTP makes float16 of the quantised values, takes one
 * operator after the other in float16, and quantises what comes of the last.
 * docs/science/htp-arithmetic.md#chains. */
#include <math.h>
#include <string.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "core/text/strbuf.h"

enum { HALF_BITS = 10 /* behind the leading one */ };

static const char norm[] = "ReduceL2"; /* a chain by itself */

/* ---- float16 that is not rounded as it should be: read out of the device, every significand ---- */

/* Bit i: the reciprocal of 1 + i / 1024 is one unit less than the nearest float16. */
static const uint64_t less_reciprocals[] = {
    0x318c30e0e03e0000, 0x529496924d933223, 0x2a1542aaaaa9552a, 0xd9364924969294a5,
    0xe30c6318cc44444c, 0xfc01e03c1e1c1c30, 0xfe00000000fff800, 0x0e03c0fc01f8007f,
    0x8c30c38e1c3c3c3c, 0x66633398c6738c63, 0x264c993326666666, 0xdb6d26db6492249b,
    0xa52529292d25b492, 0x152a528529529494, 0xaa0554aa154a850a, 0xaaaaaaaaa8055500};

/* The root of 2 + 2 i / 1024 and of four times as much and so on is one unit less. */
static const int less_roots[] = {762, 792, 809, 828, 847, 849, 872, 899, 901, 936, 938};

/* v is 2^*exponent (1 + *i / 1024). */
static void split(double v, int *exponent, int *i)
{
    double significand = frexp(fabs(v), exponent);
    *exponent -= 1;
    *i = (int)lrint((2 * significand - 1) * (1 << HALF_BITS));
}

static bool has_bit(const uint64_t *bits, int i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

static double round_away(double v)
{
    return nd_htp_as_half(v, ND_ROUND_HALF_AWAY);
}

/* One unit of a float16, times n. */
static double units_of(double v, int n)
{
    int exponent, i;
    split(v, &exponent, &i);
    return ldexp(n, exponent - HALF_BITS);
}

static double reciprocal_of(double v)
{
    int exponent, i;
    if (v == 0)
        return HUGE_VAL;
    split(v, &exponent, &i);
    double nearest = round_away(1 / fabs(v));
    return copysign(nearest - units_of(nearest, has_bit(less_reciprocals, i)), v);
}

static double root_of(double v)
{
    int exponent, i;
    split(v, &exponent, &i);
    double nearest = round_away(sqrt(v));
    for (size_t k = 0; exponent % 2 != 0 && k < sizeof less_roots / sizeof *less_roots; k++)
        if (less_roots[k] == i)
            return nearest - units_of(nearest, 1);
    return nearest;
}

static double round_even(double v)
{
    return nd_htp_as_half(v, ND_ROUND_HALF_EVEN);
}

/* A polynomial: the coefficients by rising powers of x. */
static double polynomial(const double *coefficients, size_t n, double x)
{
    double sum = 0;
    while (n-- > 0)
        sum = sum * x + coefficients[n];
    return sum;
}

/* This and the polynomial of Softplus were found by linear programming over all float16 numbers (gen3, QAIRT
 * 2.51.0): of 37 250 of e^x 47 are one unit off, of 33 000 of Softplus 2. */
static double exponential(double x)
{
    static const double powers_of_two[] = {0.9999283229, 0.6957649814, 0.2262284251, 0.0779360486};
    double place = x / 0.69314718055994530942, whole = floor(place);
    return ldexp(polynomial(powers_of_two, 4, place - whole), (int)whole);
}

static double exponential_of(double v)
{
    return round_even(exponential(v));
}

static double softplus_of(double v)
{
    static const double middle[] = {0.703108488, 0.512703979, 0.108826373, -0.00461054387, -0.000666489122},
                        low = -2, high = 5;
    return v >= high ? v : round_even(v <= low ? exponential(v) : polynomial(middle, 5, v));
}

/* From 1/4 on that of uint16 and half a step. */
static double tanh_of(double v)
{
    static const float edge = 0.25F, c = -0.32495117F; /* the float16 of -0.325 */
    float x = fabsf((float)v);
    double y = x < edge ? (double)nd_qhalf_cubic(x, c)
                        : ldexp((double)nd_htp_tanh((int64_t)(x * ND_HTP_TANH_STEPS)) + 0.5, -15);
    return copysign(round_even(y), v);
}

/* ---- operators ---- */

static const struct {
    const char *op_type;
    double (*function)(double v); /* of what it reads; NULL: the exact result, rounded half away from zero */
    bool is_in_blocks;            /* what it makes, and what is made of that, does not lie flat, or may not */
} operators[] = {
    {"Abs", NULL, false},
    {"Add", NULL, false},
    {"Cast", NULL, false},
    {"Div", NULL, true}, /* the product with the reciprocal, which is a float16 */
    {"Exp", exponential_of, false},
    {"Flatten", NULL, false},
    {"Gather", NULL, false},
    {"Mul", NULL, true},
    {"Neg", NULL, false},
    {"Pow", NULL, true}, /* by 2, nearly: 7 % of float16 squares are one unit off */
    {"Reciprocal", reciprocal_of, true},
    {"ReduceL2", NULL, true}, /* the root of the sum of squares, each a float16 */
    {"ReduceMean", NULL, false},
    {"ReduceSum", NULL, false},
    {"Relu", NULL, false},
    {"Reshape", NULL, false},
    {"Slice", NULL, false},
    {"Softplus", softplus_of, false},
    {"Sqrt", root_of, false},
    {"Squeeze", NULL, false},
    {"Sub", NULL, false},
    {"Tanh", tanh_of, false},
    {"Transpose", NULL, false},
    {"Unsqueeze", NULL, false},
};
enum { N_OPERATORS = sizeof operators / sizeof *operators };

/* The links at work: what each made. */
struct chain {
    const struct nd_htp_job *job;
    struct nd_array made[ND_EXACT_MAX_LINKS];
    bool is_flat[ND_EXACT_MAX_LINKS], is_laid_out[ND_EXACT_MAX_LINKS] /* as a Conv does it */;
};

static bool is_vector(const struct nd_exact_link *link, size_t i)
{
    return link->from[i] == SIZE_MAX && link->is_constant[i] && link->inputs[i].values != NULL &&
           link->inputs[i].values->n > 1;
}

/* A product with numbers for each channel and the sum with others are one operation to the device, of which it
 * is not known. */
static bool is_affine(const struct chain *chain, const struct nd_exact_link *link)
{
    for (size_t i = 0; i < 2 && strcmp(link->node->op_type, "Add") == 0; i++) {
        const struct nd_exact_link *before =
            link->from[i] != SIZE_MAX ? &chain->job->layer->links[link->from[i]] : NULL;
        if (before != NULL && is_vector(link, 1 - i) && strcmp(before->node->op_type, "Mul") == 0 &&
            (is_vector(before, 0) || is_vector(before, 1)))
            return true;
    }
    return false;
}

/* Input i of a link, which no link makes, as float16; integers (axes, shapes) as they are. False: not known. */
static bool read_halves(const struct nd_exact_link *link, size_t i, struct nd_array *halves)
{
    const struct nd_linear_input *input = &link->inputs[i];
    bool is_constant = link->is_constant[i];
    if (input->quant != NULL && input->quant->n != 1)
        return false;
    for (size_t k = 0; k < halves->n; k++) {
        if (input->quant != NULL)
            halves->x[k] = nd_htp_as_half(nd_htp_half_of_qvalue(input, k), ND_ROUND_HALF_EVEN);
        else if (nd_dtype_is_float(halves->dtype))
            halves->x[k] = nd_htp_as_half(halves->x[k], is_constant ? ND_ROUND_HALF_EVEN : ND_ROUND_HALF_AWAY);
    }
    halves->dtype = input->quant != NULL ? ND_DTYPE_F32 : halves->dtype;
    return true;
}

/* What the device divides by, as what it multiplies by: of one constant the nearest. */
static void invert(const struct nd_exact_link *link, struct nd_array *divisor)
{
    bool is_one = link->from[1] == SIZE_MAX && link->is_constant[1] && divisor->n == 1;
    for (size_t k = 0; k < divisor->n; k++)
        divisor->x[k] = is_one ? round_away(1 / divisor->x[k]) : reciprocal_of(divisor->x[k]);
}

/* Whether the channels of what link k makes are last on the device. */
static bool is_laid_out(const struct chain *chain, size_t k)
{
    const struct nd_exact_link *link = &chain->job->layer->links[k];
    bool is = false;
    for (size_t i = 0; i < link->n_inputs; i++)
        is =
            is || (link->from[i] != SIZE_MAX ? chain->is_laid_out[link->from[i]]
                                             : nd_htp_is_laid_out_tensor(chain->job->memory, link->tensors[i]));
    return is && !nd_htp_keeps_memory(link->node->op_type);
}

/* How link k rounds: v73 the sums (not the differences) of two tensors of one shape half to even where the
 * device's last axis is not short, all else half away from zero (docs/science/htp-arithmetic.md#chains). */
static double (*rounding_of(const struct chain *chain, size_t k, const struct nd_array *own))(double v)
{
    enum { SHORTEST = 16 };
    const struct nd_shape *shape = &own[0].shape;
    const char *op_type = chain->job->layer->links[k].node->op_type;
    bool is_sum = strcmp(op_type, "Add") == 0;
    if (!is_sum || chain->job->arithmetic->arch != ND_HTP_V73 || own[0].n != own[1].n || shape->rank < 1)
        return round_away;
    int last = chain->is_laid_out[k] && shape->rank > 2 ? 1 : shape->rank - 1;
    return shape->dims[last] >= SHORTEST ? round_even : round_away;
}

/* What the operator made, or reads, as the float16 that the device makes. False: beyond the greatest, where it
 * was not looked at. */
static bool finish(double (*function)(double v), struct nd_array *made)
{
    for (size_t k = 0; k < made->n; k++) {
        made->x[k] = function(made->x[k]);
        if (!(fabs(made->x[k]) <= ND_HTP_MAX_OF_HALF))
            return false;
    }
    return true;
}

/* Of tensors that are read one that lies flat is enough. */
static bool lies_flat(const struct chain *chain, const struct nd_exact_link *link)
{
    bool is_flat = false;
    for (size_t i = 0; i < link->n_inputs; i++)
        is_flat = is_flat || (link->from[i] != SIZE_MAX ? chain->is_flat[link->from[i]]
                              : link->is_input[i]       ? true
                                                        : !link->is_constant[i] &&
                                                        nd_htp_lies_flat(chain->job->memory, link->tensors[i]));
    return is_flat;
}

/* Whether a ReduceL2 makes one run of what it makes: rows are short, or an axis behind others is dropped, so
 * that all is moved. */
static bool makes_a_run(const struct nd_exact_layer *layer, const struct nd_shape *shape)
{
    enum { SHORT = 8 };
    int64_t axis;
    bool is_short = shape->rank > 0 && shape->dims[shape->rank - 1] <= SHORT;
    if (is_short || !nd_htp_reduces_one_axis(layer, &axis) ||
        nd_onnx_attribute_i(layer->call->node, "keepdims", 1) != 0)
        return is_short;
    return nd_dims_product(shape, 0, (int)axis + (axis < 0 ? shape->rank : 0)) > 1;
}

/* What the device makes in the place of the operator, of what it reads instead. False: a power by another
 * number than 2. */
static bool replace(const struct nd_exact_link *link, struct nd_array *own, Onnx__NodeProto *node)
{
    static char product[] = "Mul", sum[] = "ReduceSum";
    bool is_norm = strcmp(node->op_type, norm) == 0, is_power = strcmp(node->op_type, "Pow") == 0;
    if (is_power && (own[1].n != 1 || own[1].x[0] != 2))
        return false;
    for (size_t i = 0; (is_norm || is_power) && i < own[0].n; i++)
        own[0].x[i] = round_away(own[0].x[i] * own[0].x[i]);
    if (is_power)
        own[1].x[0] = 1;
    else if (strcmp(node->op_type, "Div") == 0)
        invert(link, &own[1]);
    else if (!is_norm)
        return true;
    node->op_type = is_norm ? sum : product;
    return true;
}

/* One link. *is_known false: its operator, or its values, are none of which it is known. */
static enum nd_status run_link(struct chain *chain, size_t k, bool *is_known, struct nd_error *err)
{
    const struct nd_exact_link *link = &chain->job->layer->links[k];
    struct nd_array own[ND_EXACT_LINK_INPUTS] = {0};
    const struct nd_array *inputs[ND_EXACT_LINK_INPUTS] = {0};
    enum nd_status status = ND_OK;
    size_t op = 0;
    while (op < N_OPERATORS && strcmp(operators[op].op_type, nd_onnx_text(link->node->op_type)) != 0)
        op++;
    *is_known = op < N_OPERATORS && nd_onnx_domain(link->node->domain)[0] == '\0' && !is_affine(chain, link);
    for (size_t i = 0; i < link->n_inputs && *is_known && status == ND_OK; i++) {
        const struct nd_array *read =
            link->from[i] != SIZE_MAX ? &chain->made[link->from[i]] : link->inputs[i].values;
        if (read == NULL)
            continue;
        status = nd_array_copy(read, &own[i], err);
        *is_known = status == ND_OK && (link->from[i] != SIZE_MAX || read_halves(link, i, &own[i]));
        inputs[i] = &own[i];
    }
    Onnx__NodeProto node = *link->node;
    bool is_norm = strcmp(node.op_type, norm) == 0;
    *is_known = *is_known && replace(link, own, &node);
    chain->is_laid_out[k] = is_laid_out(chain, k);
    double (*function)(double v) = *is_known ? operators[op].function : NULL;
    if (function != NULL)
        status = nd_array_copy(&own[0], &chain->made[k], err);
    else if (*is_known)
        status = nd_linear_run(chain->job->call, &node, inputs, link->n_inputs, &chain->made[k], err);
    bool is_moved = is_norm && *is_known && makes_a_run(chain->job->layer, &own[0].shape);
    chain->is_flat[k] = *is_known && (is_moved || !operators[op].is_in_blocks) && lies_flat(chain, link);
    *is_known = *is_known && status == ND_OK &&
                finish(function != NULL ? function : rounding_of(chain, k, own), &chain->made[k]) &&
                (!is_norm || finish(root_of, &chain->made[k]));
    for (size_t i = 0; i < ND_EXACT_LINK_INPUTS; i++)
        nd_array_deinit(&own[i]);
    return status;
}

/* What only names axes, of what the link before it made: ONNX Runtime moves the quantiser before it. */
static bool names_axes(const struct nd_exact_link *links, size_t k)
{
    const char *op_type = nd_onnx_text(links[k].node->op_type);
    return links[k].from[0] == k - 1 && nd_has_word("Reshape Squeeze Unsqueeze", op_type);
}

const struct nd_exact_layer *nd_htp_before_moves(const struct nd_exact_layer *layer, struct nd_htp_moved *room)
{
    /* Whose encoding the provider does not replace, and which are made by themselves. */
    static const char alone[] = "AveragePool Conv Gemm GlobalAveragePool MatMul ReduceMean ReduceSum";
    bool is_moved = layer->n_links > 1 && layer->call->low <= -HUGE_VAL && layer->call->high >= HUGE_VAL &&
                    nd_has_word(alone, nd_onnx_text(layer->links[0].node->op_type));
    for (size_t k = 1; k < layer->n_links && is_moved; k++)
        is_moved = names_axes(layer->links, k);
    if (!is_moved)
        return layer;
    const struct nd_exact_link *first = layer->links;
    *room = (struct nd_htp_moved){.layer = *layer, .call = *layer->call};
    room->call.node = first->node;
    room->call.n_inputs = first->n_inputs;
    room->call.inputs = first->inputs;
    room->call.shared = NULL;
    for (size_t i = 0; i < ND_EXACT_LINK_INPUTS; i++) {
        bool is_constant = i >= first->n_inputs || first->is_constant[i];
        room->origins[i] = is_constant          ? ND_EXACT_FROM_CONSTANT
                           : first->is_input[i] ? ND_EXACT_FROM_INPUT
                                                : ND_EXACT_FROM_LAYER;
        room->tensors[i] = i < first->n_inputs ? first->tensors[i] : SIZE_MAX;
    }
    room->layer.call = &room->call;
    room->layer.origins = room->origins;
    room->layer.input_tensors = room->tensors;
    room->layer.n_links = 1;
    return &room->layer;
}

enum nd_status nd_htp_name_axes(const struct nd_exact_layer *layer, struct nd_array *qvalues,
                                struct nd_error *err)
{
    enum nd_dtype dtype = qvalues->dtype;
    for (size_t k = 1; k < layer->n_links; k++) {
        struct nd_array made = {0};
        const struct nd_exact_link *link = &layer->links[k];
        const struct nd_array *inputs[] = {qvalues, link->n_inputs > 1 ? link->inputs[1].values : NULL};
        ND_TRY(nd_linear_run(layer->call, link->node, inputs, link->n_inputs, &made, err));
        nd_array_deinit(qvalues);
        *qvalues = made;
        qvalues->dtype = dtype;
    }
    return ND_OK;
}

bool nd_htp_is_chain(const struct nd_exact_layer *layer)
{
    static const char *const mixing[] = {"Add", "Div", "Mul", "Sub"};
    bool is_one = false, is_mixed = false;
    for (size_t i = 0; layer->n_links == 1 && i < sizeof mixing / sizeof *mixing; i++)
        is_one = is_one || strcmp(nd_htp_op_type(layer), mixing[i]) == 0;
    for (size_t i = 0; is_one && i < layer->call->n_inputs; i++) {
        const struct nd_linear_input *input = &layer->call->inputs[i];
        is_one = input->quant != NULL && input->values != NULL;
        is_mixed = is_mixed ||
                   (is_one && nd_dtype_size_bytes(input->values->dtype) != nd_dtype_size_bytes(layer->dtype));
    }
    return layer->n_links > 1 || (is_one && is_mixed) || strcmp(nd_htp_op_type(layer), norm) == 0;
}

enum nd_status nd_htp_chain(const struct nd_htp_job *job, struct nd_error *err)
{
    struct chain chain = {.job = job};
    size_t last = job->layer->n_links - 1;
    bool is_known = nd_htp_plain_output(job) != NULL;
    enum nd_status status = ND_OK;
    for (size_t k = 0; k <= last && is_known && status == ND_OK; k++)
        status = run_link(&chain, k, &is_known, err);
    size_t n_rest = job->layer->dtype == ND_DTYPE_U8 ? chain.made[last].n % ND_HTP_VECTOR_BYTES : 0;
    if (!chain.is_flat[last])
        n_rest = 0;
    if (is_known && status == ND_OK) {
        *job->qvalues = chain.made[last];
        chain.made[last] = (struct nd_array){0};
        struct nd_htp_bounds bounds = nd_htp_bounds_between(job, -HUGE_VAL, HUGE_VAL);
        size_t n_whole = job->qvalues->n - n_rest;
        for (size_t i = 0; i < job->qvalues->n; i++) {
            double value = fmin(fmax(job->qvalues->x[i], job->call->low), job->call->high);
            job->qvalues->x[i] =
                nd_within(nd_htp_qvalue_of_half(job, value, i >= n_whole), bounds.low, bounds.high);
        }
        job->qvalues->dtype = job->layer->dtype;
        *job->is_covered = true;
    }
    for (size_t k = 0; k <= last; k++)
        nd_array_deinit(&chain.made[k]);
    return status;
}
