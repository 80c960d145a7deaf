/* Tensors whose quantised values are made of other codes: DequantizeLinear, QuantizeLinear and no operator
 * between. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "model/encodings/building.h"
#include "model/graph/loaded.h"
#include "model/graph/parts.h"

/* The nodes that read what is dequantised of the quantised values, but for quantisers. */
static enum nd_status add_readers(const struct nd_graph *graph, size_t qvalues, struct nd_encoding *encoding,
                                  struct nd_error *err)
{
    size_t capacity = 0;
    for (size_t d = 0; d < graph->tensors[qvalues].n_readers; d++) {
        const struct nd_graph_node *node =
            &graph->nodes[graph->readers[graph->tensors[qvalues].first_reader + d]];
        size_t made = node->kind == ND_NODE_DEQUANTIZE ? graph->made[node->first_made] : ND_NO_INDEX;
        for (size_t r = 0; made != ND_NO_INDEX && r < graph->tensors[made].n_readers; r++) {
            size_t reader = graph->readers[graph->tensors[made].first_reader + r];
            if (graph->nodes[reader].kind != ND_NODE_OTHER)
                continue;
            if (!nd_grow((void **)&encoding->readers, &capacity, encoding->n_readers + 1,
                         sizeof *encoding->readers))
                return nd_fail_memory(err);
            char *name = nd_strdup(nd_graph_node_name(graph->nodes[reader].proto));
            if (name == NULL)
                return nd_fail_memory(err);
            encoding->readers[encoding->n_readers++] = name;
        }
    }
    return ND_OK;
}

/* encodings.c: says of encodings of the model's tensors which are conversions of others. ND_ERR_MEMORY. */
static enum nd_status nd_encodings_find_conversions(struct nd_encodings *encodings,
                                                    const struct nd_model *model, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t u = 0; u < model->n_layers && status == ND_OK; u++) {
        const struct nd_model_layer *layer = &model->layers[u];
        const struct nd_tensor *tensor = &model->tensors[layer->tensor];
        size_t item = nd_encodings_find(encodings, tensor->name);
        if (strcmp(layer->op_types, "requantise") != 0 || layer->n_inputs != 1 || item == SIZE_MAX ||
            nd_encodings_find(encodings, model->tensors[layer->inputs[0]].name) == SIZE_MAX)
            continue;
        struct nd_encoding *encoding = &encodings->items[item];
        encoding->converted_from = nd_strdup(model->tensors[layer->inputs[0]].name);
        status = encoding->converted_from != NULL
                     ? add_readers(&model->graph, nd_names_find(&model->graph.names, tensor->onnx_name),
                                   encoding, err)
                     : nd_fail_memory(err);
    }
    return status;
}

const char *nd_encoding_role_name(enum nd_encoding_role role)
{
    static const char *const names[] = {
        [ND_ENCODING_UNSTATED] = "", [ND_ENCODING_ACTIVATION] = "activation", [ND_ENCODING_PARAM] = "param"};
    return names[role];
}

enum nd_status nd_encodings_create(const char *path, const char *source, struct nd_encodings **out,
                                   struct nd_error *err)
{
    struct nd_encodings *made = nd_calloc(1, sizeof *made);
    if (made == NULL)
        return nd_fail_memory(err);
    made->path = nd_strdup(path);
    made->source = nd_strdup(source);
    if (made->path == NULL || made->source == NULL) {
        nd_encodings_destroy(&made);
        return nd_fail_memory(err);
    }
    *out = made;
    return ND_OK;
}

static void encoding_deinit(struct nd_encoding *encoding)
{
    free(encoding->name);
    nd_quant_deinit(&encoding->quant);
    for (size_t i = 0; i < encoding->n_readers; i++)
        free(encoding->readers[i]);
    free(encoding->readers);
    free(encoding->converted_from);
    free(encoding->unhandled);
}

void nd_encodings_destroy(struct nd_encodings **handle)
{
    struct nd_encodings *encodings = *handle;
    if (encodings == NULL)
        return;
    for (size_t i = 0; i < encodings->n; i++)
        encoding_deinit(&encodings->items[i]);
    free(encodings->items);
    nd_names_deinit(&encodings->names);
    free(encodings->path);
    free(encodings->source);
    free(encodings);
    *handle = NULL;
}

const char *nd_encodings_path(const struct nd_encodings *encodings)
{
    return encodings->path;
}

const char *nd_encodings_source(const struct nd_encodings *encodings)
{
    return encodings->source;
}

size_t nd_encodings_n(const struct nd_encodings *encodings)
{
    return encodings->n;
}

const struct nd_encoding *nd_encodings_at(const struct nd_encodings *encodings, size_t i)
{
    return &encodings->items[i];
}

size_t nd_encodings_find(const struct nd_encodings *encodings, const char *name)
{
    return nd_names_find(&encodings->names, name);
}

/* ---- adding ---- */

/* Takes over what *encoding owns, also on failure. */
static enum nd_status append(struct nd_encodings *encodings, struct nd_encoding *encoding, struct nd_error *err)
{
    bool is_known = encoding->name != NULL && nd_names_find(&encodings->names, encoding->name) != SIZE_MAX;
    bool has_room = encoding->name != NULL && nd_grow((void **)&encodings->items, &encodings->capacity,
                                                      encodings->n + 1, sizeof *encodings->items);
    enum nd_status status = ND_OK;
    if (is_known)
        status = nd_fail(err, ND_E_ENCODINGS_FORMAT, encoding->name, "'%s': tensor '%s' is described twice",
                         encodings->path, encoding->name);
    else if (!has_room || !nd_names_add(&encodings->names, encoding->name, encodings->n))
        status = nd_fail_memory(err);
    if (status != ND_OK)
        encoding_deinit(encoding);
    else
        encodings->items[encodings->n++] = *encoding;
    return status;
}

static enum nd_dtype dtype_for(int bits, bool is_signed)
{
    if (bits <= 4)
        return is_signed ? ND_DTYPE_I4 : ND_DTYPE_U4;
    if (bits <= 8)
        return is_signed ? ND_DTYPE_I8 : ND_DTYPE_U8;
    if (bits <= 16)
        return is_signed ? ND_DTYPE_I16 : ND_DTYPE_U16;
    return is_signed ? ND_DTYPE_I32 : ND_DTYPE_U32;
}

static enum nd_status check(const struct nd_encodings *encodings, const struct nd_stated *stated,
                            struct nd_error *err)
{
    double low = stated->is_signed ? -ldexp(1, stated->bits - 1) : 0;
    double high = low + ldexp(1, stated->bits) - 1;
    for (size_t i = 0; i < stated->n; i++) {
        float scale = (float)stated->scales[i];
        if (!isfinite(scale) || !(scale > 0))
            return nd_fail(err, ND_E_ENCODINGS_FORMAT, stated->name,
                           "'%s': tensor '%s': scale %zu is %g, expected a positive float32", encodings->path,
                           stated->name, i, stated->scales[i]);
        if (!(stated->zero_points[i] >= low && stated->zero_points[i] <= high))
            return nd_fail(err, ND_E_ENCODINGS_FORMAT, stated->name,
                           "'%s': tensor '%s': zero point %zu is %.17g, outside of the quantised values "
                           "%.0f..%.0f of %d bits "
                           "(an offset lies in -%.0f..0)",
                           encodings->path, stated->name, i, stated->zero_points[i], low, high, stated->bits,
                           high - low);
    }
    return ND_OK;
}

static bool are_whole(const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (values[i] != floor(values[i]))
            return false;
    return true;
}

enum nd_status nd_encodings_add(struct nd_encodings *encodings, const struct nd_stated *stated,
                                struct nd_error *err)
{
    enum nd_status status = check(encodings, stated, err);
    if (status != ND_OK)
        return status;
    if (!are_whole(stated->zero_points, stated->n))
        return nd_encodings_add_unhandled(encodings, stated->name, stated->role,
                                          "a zero point between two quantised values", err);
    struct nd_encoding made = {.name = nd_strdup(stated->name),
                               .role = stated->role,
                               .dtype = dtype_for(stated->bits, stated->is_signed),
                               .bits = stated->bits,
                               .is_symmetric = stated->is_symmetric,
                               .has_axis = stated->n > 1 && stated->has_axis,
                               .quant = {.n = stated->n,
                                         .axis = stated->n > 1 && stated->has_axis ? stated->axis : -1,
                                         .scale = nd_calloc(stated->n, sizeof(float)),
                                         .zero_point = nd_calloc(stated->n, sizeof(int64_t))}};
    if (made.name == NULL || made.quant.scale == NULL || made.quant.zero_point == NULL) {
        encoding_deinit(&made);
        return nd_fail_memory(err);
    }
    for (size_t i = 0; i < stated->n; i++) {
        made.quant.scale[i] = (float)stated->scales[i];
        made.quant.zero_point[i] = (int64_t)stated->zero_points[i];
    }
    return append(encodings, &made, err);
}

enum nd_status nd_encodings_add_unhandled(struct nd_encodings *encodings, const char *name,
                                          enum nd_encoding_role role, const char *why, struct nd_error *err)
{
    struct nd_encoding made = {
        .name = nd_strdup(name), .role = role, .quant = {.axis = -1}, .unhandled = nd_strdup(why)};
    if (made.name == NULL || made.unhandled == NULL) {
        encoding_deinit(&made);
        return nd_fail_memory(err);
    }
    return append(encodings, &made, err);
}

/* ---- models and captures ---- */

static enum nd_status add_quant(struct nd_encodings *encodings, const char *name, enum nd_encoding_role role,
                                enum nd_dtype dtype, const struct nd_quant *quant, struct nd_error *err)
{
    bool is_four_bits = dtype == ND_DTYPE_I4 || dtype == ND_DTYPE_U4;
    if (quant->n == 0)
        return nd_encodings_add_unhandled(
            encodings, name, role, "scales in blocks, computed, or of quantised values that are not handled",
            err);
    struct nd_encoding made = {.name = nd_strdup(name),
                               .role = role,
                               .dtype = dtype,
                               .bits = is_four_bits ? 4 : (int)(8 * nd_dtype_size_bytes(dtype)),
                               .is_symmetric = nd_dtype_is_signed_integer(dtype),
                               .has_axis = quant->n > 1,
                               .quant = {.n = quant->n,
                                         .axis = quant->n > 1 ? quant->axis : -1,
                                         .scale = nd_calloc(quant->n, sizeof(float)),
                                         .zero_point = nd_calloc(quant->n, sizeof(int64_t))}};
    if (made.name == NULL || made.quant.scale == NULL || made.quant.zero_point == NULL) {
        encoding_deinit(&made);
        return nd_fail_memory(err);
    }
    for (size_t i = 0; i < quant->n; i++) {
        made.quant.scale[i] = quant->scale[i];
        made.quant.zero_point[i] = quant->zero_point[i];
        made.is_symmetric = made.is_symmetric && quant->zero_point[i] == 0;
    }
    return append(encodings, &made, err);
}

enum nd_status nd_encodings_add_tensor(struct nd_encodings *encodings, const struct nd_tensor *tensor,
                                       struct nd_error *err)
{
    /* A float tensor has no scale; neither has a tensor of quantised values whose scale is not known. */
    if (tensor->quant.n == 0 || !nd_dtype_is_integer(tensor->dtype))
        return ND_OK;
    return add_quant(encodings, tensor->name, ND_ENCODING_ACTIVATION, tensor->dtype, &tensor->quant, err);
}

static enum nd_status add_constant(void *context, const char *name, enum nd_dtype dtype,
                                   const struct nd_quant *quant, struct nd_error *err)
{
    struct nd_encodings *encodings = context;
    /* A constant that several nodes dequantise each for itself. */
    if (nd_encodings_find(encodings, name) != SIZE_MAX)
        return ND_OK;
    return add_quant(encodings, name, ND_ENCODING_PARAM, dtype, quant, err);
}

enum nd_status nd_encodings_of_model(const struct nd_model *model, struct nd_encodings **out,
                                     struct nd_error *err)
{
    struct nd_encodings *made = NULL;
    enum nd_status status = nd_encodings_create(nd_model_path(model), "ONNX", &made, err);
    for (size_t i = 0; status == ND_OK && i < nd_model_n_tensors(model); i++)
        status = nd_encodings_add_tensor(made, nd_model_tensor(model, i), err);
    if (status == ND_OK)
        status = nd_model_visit_constants(model, add_constant, made, err);
    if (status == ND_OK)
        status = nd_encodings_find_conversions(made, model, err);
    if (status == ND_OK)
        *out = made;
    else
        nd_encodings_destroy(&made);
    return status;
}
