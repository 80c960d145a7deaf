#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "model/rewrite/folder.h"

/* Codes of a new constant, and the DequantizeLinear that makes *after of them. */
struct coded {
    const char *suffix;
    enum nd_dtype dtype;
    const int64_t *dims;
    size_t rank;
    const struct nd_quant *quant;
    const void *codes;
    size_t size_bytes;
};

static enum nd_status add_coded(struct nd_requantiser *r, const char *base, const struct coded *coded,
                                char **after, struct nd_error *err)
{
    char *codes;
    enum nd_status status = nd_requantiser_new_name(r, base, coded->suffix, after, err);
    if (status == ND_OK)
        status = nd_requantiser_new_name(r, *after, "_quantized", &codes, err);
    if (status != ND_OK)
        return status;
    const struct nd_quantised_tensor item = {.tensor = *after,
                                             .dtype = coded->dtype,
                                             .bits = (int)nd_dtype_size_bytes(coded->dtype) * 8,
                                             .is_signed = true,
                                             .quant = coded->quant};
    const struct nd_new_initializer initializer = {codes,       (int32_t)coded->dtype, coded->dims,
                                                   coded->rank, coded->codes,          coded->size_bytes};
    const struct nd_new_node node = {"DequantizeLinear", codes, *after, -1};
    status = nd_requantiser_add_initializer(r, &initializer, err);
    if (status == ND_OK)
        status = nd_requantiser_add_parameters(r, &item, err);
    return status == ND_OK ? nd_requantiser_add_node(r, &item, &node, err) : status;
}

/* Numbers that live as long as the copy. */
struct codes {
    struct nd_quant weights, bias;
    int8_t *of_weights;
    int32_t *of_bias;
    int64_t *n_channels;
};

static bool make_room(struct nd_requantiser *r, const struct nd_fold_chain *chain, struct codes *out)
{
    float *scales = nd_requantiser_keep(r, 2 * sizeof *scales);
    int64_t *zero_points = nd_requantiser_keep(r, 2 * sizeof *zero_points);
    out->of_weights = nd_requantiser_keep(r, chain->weights.n + 1);
    out->of_bias = nd_requantiser_keep(r, chain->n_channels * sizeof *out->of_bias);
    out->n_channels = nd_requantiser_keep(r, sizeof *out->n_channels);
    if (scales == NULL || zero_points == NULL || out->of_weights == NULL || out->of_bias == NULL ||
        out->n_channels == NULL)
        return false;
    *out->n_channels = (int64_t)chain->n_channels;
    out->weights = (struct nd_quant){.n = 1, .axis = -1, .scale = scales, .zero_point = zero_points};
    out->bias = (struct nd_quant){.n = 1, .axis = -1, .scale = scales + 1, .zero_point = zero_points + 1};
    return true;
}

/* Symmetric weights in -127 to 127. False: they are all zero, or a bias does not fit 32 bits. */
static bool make_codes(const struct nd_fold_chain *chain, float input_scale, struct codes *out)
{
    const double last = INT8_MAX;
    double largest = 0;
    for (size_t i = 0; i < chain->weights.n; i++)
        largest = fmax(largest, fabs(chain->weights.x[i]));
    float scale = out->weights.scale[0] = (float)(largest / last);
    float step = out->bias.scale[0] = input_scale * scale;
    for (size_t i = 0; i < chain->weights.n && scale > 0; i++)
        out->of_weights[i] = (int8_t)fmin(fmax(rint(chain->weights.x[i] / (double)scale), -last), last);
    for (size_t c = 0; c < chain->n_channels && step > 0; c++) {
        double code = rint(chain->bias[c] / (double)step);
        if (!(fabs(code) <= INT32_MAX))
            return false;
        out->of_bias[c] = (int32_t)code;
    }
    return step > 0;
}

/* The ConvTranspose with the new constants, which makes what the BatchNormalization made. */
static enum nd_status add_product(struct nd_requantiser *r, const struct nd_fold_chain *chain, char *weights,
                                  char *bias, struct nd_error *err)
{
    const struct nd_graph *graph = &r->model->graph;
    Onnx__NodeProto *copy = nd_requantiser_keep(r, sizeof *copy);
    char **inputs = nd_requantiser_keep(r, 3 * sizeof *inputs);
    if (copy == NULL || inputs == NULL)
        return nd_fail_memory(err);
    *copy = *graph->nodes[chain->product].proto;
    inputs[0] = copy->input[0];
    inputs[1] = weights;
    inputs[2] = bias;
    copy->input = inputs;
    copy->n_input = 3;
    copy->output = graph->nodes[chain->norm].proto->output;
    copy->n_output = 1;
    r->new_behind[r->n_new_nodes] = chain->norm;
    r->new_nodes[r->n_new_nodes++] = copy;
    return ND_OK;
}

enum nd_status nd_fold_layer(struct nd_folder *f, const struct nd_fold_chain *chain, float input_scale,
                             struct nd_error *err)
{
    struct nd_requantiser *r = &f->r;
    const char *base = r->model->graph.nodes[chain->norm].proto->output[0];
    struct codes codes = {.of_bias = NULL};
    char *weights, *bias;
    if (!make_room(r, chain, &codes))
        return nd_fail_memory(err);
    if (!make_codes(chain, input_scale, &codes))
        return ND_OK;
    r->behind = chain->norm;
    const struct coded new_weights = {"_folded_weights",   ND_DTYPE_I8,    chain->weights.dims,
                                      chain->weights.rank, &codes.weights, codes.of_weights,
                                      chain->weights.n};
    const struct coded new_bias = {"_folded_bias",
                                   ND_DTYPE_I32,
                                   codes.n_channels,
                                   1,
                                   &codes.bias,
                                   codes.of_bias,
                                   chain->n_channels * sizeof *codes.of_bias};
    enum nd_status status = add_coded(r, base, &new_weights, &weights, err);
    if (status == ND_OK)
        status = add_coded(r, base, &new_bias, &bias, err);
    if (status == ND_OK)
        status = add_product(r, chain, weights, bias, err);
    r->is_dropped[chain->norm] = r->is_dropped[chain->product] = true;
    if (chain->add != ND_NO_INDEX)
        r->is_dropped[chain->add] = true;
    for (size_t i = 0; i < chain->n_between; i++)
        r->is_dropped[chain->between[i]] = true;
    f->n_folded += status == ND_OK;
    return status;
}
