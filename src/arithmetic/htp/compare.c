/* What tells arithmetics apart, and how far each is to be believed. docs/science/htp-arithmetic.md has the
 * formulas and the evidence. */
#include <math.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"

/* What of an arithmetic decides the quantised values of a layer. */
enum aspect {
    NOTHING, /* all arithmetics are one there */
    BYTE_PRODUCTS,
    WORD_PRODUCTS,
    BYTE_MUL,
    BYTE_NORMS,    /* BatchNormalization */
    SLOPES,        /* LeakyRelu, HardSwish */
    BYTE_AVERAGES, /* AveragePool */
    WORD_AVERAGES, /* AveragePool of floats */
};

static bool is_byte(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_U8 || dtype == ND_DTYPE_I8;
}

static enum aspect aspect_of(const char *op_type, enum nd_dtype dtype)
{
    if (nd_htp_is_product(op_type))
        return is_byte(dtype) ? BYTE_PRODUCTS : WORD_PRODUCTS;
    if (is_byte(dtype) && nd_htp_begins_with(op_type, "Mul"))
        return BYTE_MUL;
    if (nd_htp_begins_with(op_type, "LeakyRelu") || nd_htp_begins_with(op_type, "HardSwish"))
        return SLOPES;
    if (nd_htp_begins_with(op_type, "AveragePool"))
        return is_byte(dtype) ? BYTE_AVERAGES : WORD_AVERAGES;
    return is_byte(dtype) && nd_htp_begins_with(op_type, "BatchNormalization") ? BYTE_NORMS : NOTHING;
}

bool nd_layer_arithmetics_agree(const struct nd_layer_arithmetic *a, const struct nd_layer_arithmetic *b,
                                const struct nd_exact_layer *layer)
{
    struct nd_htp_moved moved;
    layer = nd_htp_before_moves(layer, &moved);
    if (nd_htp_is_chain(layer))
        return a->arch == b->arch;
    switch (aspect_of(nd_htp_op_type(layer), layer->dtype)) {
    case BYTE_PRODUCTS:
    case WORD_PRODUCTS:
    case BYTE_NORMS:
    case SLOPES:
        return a->arch == b->arch || nd_htp_is_strided_depthwise(layer);
    case BYTE_AVERAGES:
    case WORD_AVERAGES:
        return a->arch == b->arch || !nd_htp_averages_as_product(layer->call);
    case BYTE_MUL:
        return a->rounds_products == b->rounds_products;
    case NOTHING:
        break;
    }
    return true;
}

bool nd_layer_arithmetics_agree_alone(const struct nd_layer_arithmetic *a, const struct nd_layer_arithmetic *b,
                                      const struct nd_exact_layer *layer)
{
    return aspect_of(nd_htp_op_type(layer), layer->dtype) == SLOPES || nd_layer_arithmetics_agree(a, b, layer);
}

/* A depthwise Conv of uint16 that skips places: the HTP does not sum it as it sums others, and how it does is
 * not known. */
static bool is_wide_depthwise_with_stride(const struct nd_exact_layer *layer)
{
    const struct nd_op_call call = {.node = layer->call->node, .opset = layer->call->opset};
    const struct nd_array *x = layer->call->inputs[0].values;
    const int64_t *strides;
    size_t n = layer->call->node != NULL ? nd_op_ints(&call, "strides", &strides) : 0;
    bool is_skipping = false;
    for (size_t i = 0; i < n; i++)
        is_skipping = is_skipping || strides[i] > 1;
    return layer->dtype == ND_DTYPE_U16 && is_skipping && x != NULL && x->shape.rank > 1 &&
           x->shape.dims[1] > 1 && nd_op_i(&call, "group", 1) == x->shape.dims[1];
}

static bool is_constant_number(const struct nd_exact_layer *layer, size_t i)
{
    const struct nd_linear_input *input = &layer->call->inputs[i];
    return layer->origins[i] == ND_EXACT_FROM_CONSTANT && input->values != NULL && input->values->n == 1 &&
           input->quant != NULL && input->quant->n == 1;
}

/* Of uint8 layers that are ND_HTP_FIXED or ND_HTP_LAYOUT, as the layout is that the layer before chose, which
 * is not known: the share of quantised values that may be off by one (nd_layer_arithmetic_doubt), else 0. */
static double layout_doubt(const struct nd_exact_layer *layer)
{
    static const char *const moves[] = {"Identity", "Pad", "Slice", "Split", "Transpose"};
    const struct nd_linear_call *call = layer->call;
    const char *op_type = nd_onnx_text(call->node != NULL ? call->node->op_type : NULL);
    bool divides = strcmp(op_type, "Div") == 0, is_move = false;
    size_t from = 0;
    double factor = 1;
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++)
        is_move = is_move || strcmp(op_type, moves[i]) == 0;
    if (!is_move) {
        size_t number = call->n_inputs == 2 && is_constant_number(layer, 1);
        if (call->n_inputs != 2 || (!divides && strcmp(op_type, "Mul") != 0) ||
            !is_constant_number(layer, number))
            return 0;
        const struct nd_linear_input *input = &call->inputs[number];
        factor = (input->values->x[0] - (double)input->quant->zero_point[0]) * (double)input->quant->scale[0];
        factor = divides ? 1 / factor : factor;
        from = !number;
    }
    const struct nd_quant *x = call->n_inputs > 0 ? call->inputs[from].quant : NULL, *y = call->out_quant;
    if (x == NULL || x->n != 1 || y->n != 1 || layer->origins[from] != ND_EXACT_FROM_LAYER || !(factor > 0) ||
        (is_move ? x->scale[0] == y->scale[0] && x->zero_point[0] == y->zero_point[0]
                 : nd_htp_is_rescaled_alike(x, factor, y)))
        return 0;
    /* Twice what the two add before they round down: that share of evenly spread values lies between. */
    return ldexp(1, (int)fmax(nd_htp_floor_log2((double)x->scale[0] * factor / (double)y->scale[0]), 0) - 6);
}

static double doubt_of(const struct nd_layer_arithmetic *arithmetic, const struct nd_exact_layer *layer,
                       const struct nd_layer_memory *memory)
{
    /* Twice what was seen at most, and quantised values of which too few were seen. */
    static const double of_wide_means = 1e-4, of_wide_sums = 0.025, of_logs = 6e-4;
    const char *op_type = nd_htp_op_type(layer);
    bool is_wide = layer->dtype == ND_DTYPE_U16;
    /* Optimisers may have joined links: the layer follows in all of its values, or it is not known how it is
     * made. */
    if (nd_htp_is_chain(layer))
        return 1;
    if (nd_htp_reads_floats(layer)) /* how another float operator is made may not be known */
        return layer->origins[0] == ND_EXACT_FROM_LAYER;
    if (is_wide && (strcmp(op_type, "GlobalAveragePool") == 0 || strcmp(op_type, "ReduceMean") == 0))
        return of_wide_means;
    if (strcmp(op_type, "Conv") == 0 && is_wide_depthwise_with_stride(layer))
        return 1;
    if (strcmp(op_type, "LogSoftmax") == 0)
        return of_logs;
    if (layer->dtype == ND_DTYPE_U8 && !nd_htp_is_product(op_type))
        return layout_doubt(layer);
    if (!nd_htp_is_product(op_type) || layer->call->n_inputs < 2 || layer->origins[1] != ND_EXACT_FROM_LAYER)
        return 0;
    if (is_wide)
        return arithmetic->arch == ND_HTP_V69 ? of_wide_sums : 0;
    bool is_known = nd_htp_recall_tensor(memory, layer->input_tensors[1], arithmetic->arch) != NULL ||
                    nd_htp_is_plain_tensor(memory, layer->input_tensors[1]);
    return is_known ? 0 : 1;
}

double nd_layer_arithmetic_doubt(const struct nd_layer_arithmetic *arithmetic,
                                 const struct nd_exact_layer *layer, const struct nd_layer_memory *memory)
{
    ND_CLEANUP(nd_htp_unsigned_deinit) struct nd_htp_unsigned room = {0};
    struct nd_htp_moved moved;
    if (layer->dtype == ND_DTYPE_F32)
        return nd_htp_doubts_floats(layer, memory);
    const struct nd_exact_layer *seen = nd_htp_as_unsigned(nd_htp_before_moves(layer, &moved), &room);
    return seen != NULL ? doubt_of(arithmetic, seen, memory) : 1;
}

static bool rescales_operand(const struct nd_exact_layer *layer, const struct nd_layer_memory *memory)
{
    enum { MIDDLE = 128 };
    if (!nd_htp_is_product(nd_htp_op_type(layer)) || layer->dtype != ND_DTYPE_U8 || layer->call->n_inputs < 2 ||
        layer->origins[1] != ND_EXACT_FROM_LAYER)
        return false;
    size_t tensor = layer->input_tensors[1];
    const struct nd_quant *quant = layer->call->inputs[1].quant;
    bool depends = nd_htp_recall_tensor(memory, tensor, ND_HTP_V73) != NULL
                       ? nd_htp_is_summed_tensor(memory, tensor)
                       : nd_htp_is_plain_tensor(memory, tensor);
    return depends && quant != NULL && quant->n == 1 && quant->zero_point[0] != MIDDLE;
}

bool nd_layer_rescales_operand(const struct nd_exact_layer *layer, const struct nd_layer_memory *memory)
{
    ND_CLEANUP(nd_htp_unsigned_deinit) struct nd_htp_unsigned room = {0};
    const struct nd_exact_layer *seen = nd_htp_as_unsigned(layer, &room);
    return seen == NULL || rescales_operand(seen, memory);
}

static const struct {
    enum aspect aspect;
    const char *name;
    const char *texts[2]; /* by enum nd_htp_arch */
} properties[] = {
    {BYTE_PRODUCTS,
     "zero-point",
     {"folds the zero point into the sum before the shift", "adds the zero point after the shift"}},
    {BYTE_PRODUCTS, "multiplier-bits", {"keeps 10 bits of the multiplier", "keeps 11 bits of the multiplier"}},
    {BYTE_PRODUCTS,
     "half-granule",
     {"multiplies what the first shift leaves", "adds half a granule to what the first shift leaves"}},
    {BYTE_PRODUCTS,
     "bias",
     {"rounds the bias together with the zero point", "cuts the bias to a whole number in float32"}},
    {BYTE_NORMS,
     "zero-point",
     {"folds the zero point into the sum before the shift", "adds the zero point after the shift"}},
    {BYTE_NORMS, "multiplier-bits", {"keeps 14 bits of the multiplier", "keeps 11 bits of the multiplier"}},
    {BYTE_AVERAGES,
     "zero-point",
     {"folds the zero point into the sum before the shift", "adds the zero point after the shift"}},
    {BYTE_AVERAGES, "multiplier-bits", {"keeps 10 bits of the multiplier", "keeps 11 bits of the multiplier"}},
    {BYTE_AVERAGES,
     "half-granule",
     {"multiplies what the first shift leaves", "adds half a granule to what the first shift leaves"}},
    {WORD_AVERAGES, "sum", {"adds products exactly", "rounds the sum of products of floats to float32"}},
    {WORD_PRODUCTS,
     "zero-point",
     {"folds the zero point into the sum before the shift", "adds the zero point after the shift"}},
    {WORD_PRODUCTS,
     "multiplier-bits",
     {"keeps 10 bits of the multiplier, rounded half to even",
      "keeps 21 bits of the multiplier, rounded half up"}},
    {WORD_PRODUCTS,
     "half-granule",
     {"multiplies the whole sum", "multiplies the sum in granules, with half a granule added"}},
};

size_t nd_layer_arithmetic_differences(const struct nd_layer_arithmetic *a, const struct nd_layer_arithmetic *b,
                                       const char *op_type, enum nd_dtype dtype,
                                       struct nd_layer_difference *out)
{
    enum aspect aspect = aspect_of(op_type, dtype);
    size_t n = 0;
    for (size_t i = 0; i < sizeof properties / sizeof properties[0]; i++)
        if (properties[i].aspect == aspect && a->arch != b->arch)
            out[n++] = (struct nd_layer_difference){properties[i].name, properties[i].texts[a->arch],
                                                    properties[i].texts[b->arch]};
    if (aspect == BYTE_MUL && a->rounds_products != b->rounds_products) {
        static const char *const texts[2] = {"cuts off the bits that the first shift of a product drops",
                                             "rounds by the bits that the first shift of a product drops"};
        out[n++] = (struct nd_layer_difference){"product-rounding", texts[a->rounds_products],
                                                texts[b->rounds_products]};
    }
    return n;
}
