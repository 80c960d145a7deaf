/* Encodings of a model: kept, derived, compared, put into a model, and written. Their formats are
 * those of AIMET, QNN and ONNX Runtime; docs/reference/commands.md#encodings. */
#include "model/encodings/building.h"

#include <math.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/tensors/scales.h"
#include "model/graph/constants.h"
#include "model/graph/loaded.h"
#include "model/graph/parts.h"

/* Qnn_DataType_t: types of QNN by number and name (QnnTypes.h), and what they are here. */

#define PREFIX "QNN_DATATYPE_"

static const struct nd_qnn_type qnn_types[] = {
    {0x0008, PREFIX "INT_8", ND_DTYPE_I8, false},
    {0x0016, PREFIX "INT_16", ND_DTYPE_I16, false},
    {0x0032, PREFIX "INT_32", ND_DTYPE_I32, false},
    {0x0064, PREFIX "INT_64", ND_DTYPE_I64, false},
    {0x0108, PREFIX "UINT_8", ND_DTYPE_U8, false},
    {0x0116, PREFIX "UINT_16", ND_DTYPE_U16, false},
    {0x0132, PREFIX "UINT_32", ND_DTYPE_U32, false},
    {0x0164, PREFIX "UINT_64", ND_DTYPE_U64, false},
    {0x0216, PREFIX "FLOAT_16", ND_DTYPE_F16, false},
    {0x0232, PREFIX "FLOAT_32", ND_DTYPE_F32, false},
    {0x0264, PREFIX "FLOAT_64", ND_DTYPE_F64, false},
    {0x0304, PREFIX "SFIXED_POINT_4", ND_DTYPE_I4, true},
    {0x0308, PREFIX "SFIXED_POINT_8", ND_DTYPE_I8, true},
    {0x0316, PREFIX "SFIXED_POINT_16", ND_DTYPE_I16, true},
    {0x0332, PREFIX "SFIXED_POINT_32", ND_DTYPE_I32, true},
    {0x0404, PREFIX "UFIXED_POINT_4", ND_DTYPE_U4, true},
    {0x0408, PREFIX "UFIXED_POINT_8", ND_DTYPE_U8, true},
    {0x0416, PREFIX "UFIXED_POINT_16", ND_DTYPE_U16, true},
    {0x0432, PREFIX "UFIXED_POINT_32", ND_DTYPE_U32, true},
    {0x0508, PREFIX "BOOL_8", ND_DTYPE_BOOL, false},
};

enum { N_TYPES = sizeof qnn_types / sizeof qnn_types[0] };

const struct nd_qnn_type *nd_qnn_type_of(uint32_t number)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (qnn_types[i].number == number)
            return &qnn_types[i];
    return NULL;
}

const char *nd_qnn_type_name(uint32_t number)
{
    const struct nd_qnn_type *type = nd_qnn_type_of(number);
    return type != NULL ? type->name : PREFIX "UNDEFINED";
}

const struct nd_qnn_type *nd_qnn_type_read(const json_t *value)
{
    const char *name = json_string_value(value);
    if (json_is_integer(value))
        return json_integer_value(value) >= 0 && json_integer_value(value) <= UINT32_MAX
                   ? nd_qnn_type_of((uint32_t)json_integer_value(value))
                   : NULL;
    for (size_t i = 0; name != NULL && i < N_TYPES; i++)
        if (strcmp(name, qnn_types[i].name) == 0 || strcmp(name, qnn_types[i].name + strlen(PREFIX)) == 0)
            return &qnn_types[i];
    return NULL;
}

const struct nd_qnn_type *nd_qnn_type_quantised(enum nd_dtype dtype)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (qnn_types[i].is_fixed_point && qnn_types[i].dtype == dtype)
            return &qnn_types[i];
    return NULL;
}

/* Calls visit for every constant that a DequantizeLinear reads, in graph order, until it returns something else
 * than ND_OK; returns that. name is that of the float constant: the DequantizeLinear's output less
 * "_DequantizeLinear_Output" or "_qdq", or that of a float constant that is quantised in the graph. quant.n is
 * 0 as in a tensor's. Everything is borrowed for the call. Errors of reading as nd_model_load. */
static enum nd_status
nd_model_visit_constants(const struct nd_model *model,
                         enum nd_status (*visit)(void *context, const char *name, enum nd_dtype dtype,
                                                 const struct nd_quant *quant, struct nd_error *err),
                         void *context, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < graph->n_nodes && status == ND_OK; i++) {
        const struct nd_graph_node *node = &graph->nodes[i];
        struct nd_node_quant quant;
        if (node->kind != ND_NODE_DEQUANTIZE || !node->is_constant)
            continue;
        status = nd_node_quant_read(graph, i, model->path, &quant, err);
        if (status != ND_OK)
            break;
        char *name = nd_model_constant_name(graph, i);
        status = name != NULL ? visit(context, name, quant.dtype, &quant.quant, err) : nd_fail_memory(err);
        free(name);
        nd_quant_deinit(&quant.quant);
    }
    return status;
}

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
            ND_TRY_MEMORY(nd_grow((void **)&encoding->readers, &capacity, encoding->n_readers + 1,
                                  sizeof *encoding->readers),
                          err);
            char *name = nd_strdup(nd_graph_node_name(graph->nodes[reader].proto));
            ND_TRY_MEMORY(name != NULL, err);
            encoding->readers[encoding->n_readers++] = name;
        }
    }
    return ND_OK;
}

/* encodings.c: says of encodings of the model's tensors which are conversions of others. ND_ERR_MEMORY. */
static enum nd_status nd_encodings_find_conversions(struct nd_encodings *encodings,
                                                    const struct nd_model *model, struct nd_error *err)
{
    for (size_t u = 0; u < model->n_layers; u++) {
        const struct nd_model_layer *layer = &model->layers[u];
        const struct nd_tensor *tensor = &model->tensors[layer->tensor];
        size_t item = nd_encodings_find(encodings, tensor->name);
        if (strcmp(layer->op_types, "requantise") != 0 || layer->n_inputs != 1 || item == SIZE_MAX ||
            nd_encodings_find(encodings, model->tensors[layer->inputs[0]].name) == SIZE_MAX)
            continue;
        struct nd_encoding *encoding = &encodings->items[item];
        encoding->converted_from = nd_strdup(model->tensors[layer->inputs[0]].name);
        ND_TRY(encoding->converted_from != NULL
                   ? add_readers(&model->graph, nd_names_find(&model->graph.names, tensor->onnx_name), encoding,
                                 err)
                   : nd_fail_memory(err));
    }
    return ND_OK;
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
    ND_TRY_MEMORY(made != NULL, err);
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
    ND_FREE_ITEMS(encoding->readers, encoding->n_readers);
    ND_FREE_ALL(encoding->converted_from, encoding->unhandled);
}

void nd_encodings_destroy(struct nd_encodings **handle)
{
    struct nd_encodings *encodings = *handle;
    if (encodings == NULL)
        return;
    ND_DEINIT_EACH(encoding_deinit, encodings->items, encodings->n);
    nd_names_deinit(&encodings->names);
    ND_FREE_ALL(encodings->path, encodings->source, encodings);
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
                           "%.0f..%.0f of %d bits (an offset lies in -%.0f..0)",
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
    ND_TRY(check(encodings, stated, err));
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
    ND_CLEANUP(nd_encodings_destroy) struct nd_encodings *made = NULL;
    ND_TRY(nd_encodings_create(nd_model_path(model), "ONNX", &made, err));
    for (size_t i = 0; i < nd_model_n_tensors(model); i++)
        ND_TRY(nd_encodings_add_tensor(made, nd_model_tensor(model, i), err));
    ND_TRY(nd_model_visit_constants(model, add_constant, made, err));
    ND_TRY(nd_encodings_find_conversions(made, model, err));
    return ND_GIVE(out, made);
}

/* ---- encodings that follow from others, as AIMET's export of 2.0.0 and Qualcomm's converters derive them ----
 */

/* The handled encoding of the node's input i, or NULL. */
static const struct nd_encoding *input_encoding(const struct nd_encodings *encodings,
                                                const Onnx__NodeProto *node, size_t i)
{
    size_t at = i < node->n_input ? nd_encodings_find(encodings, node->input[i]) : SIZE_MAX;
    return at != SIZE_MAX && encodings->items[at].unhandled == NULL ? &encodings->items[at] : NULL;
}

static enum nd_status add_moved(struct nd_encodings *encodings, const struct nd_graph *graph,
                                const struct nd_graph_node *node, struct nd_error *err)
{
    const struct nd_encoding *source = input_encoding(encodings, node->proto, 0);
    if (source == NULL || source->quant.n != 1 || node->is_constant)
        return ND_OK;
    double scale = (double)source->quant.scale[0], zero_point = (double)source->quant.zero_point[0];
    struct nd_stated stated = {.role = ND_ENCODING_ACTIVATION,
                               .bits = source->bits,
                               .is_signed = nd_dtype_is_signed_integer(source->dtype),
                               .is_symmetric = source->is_symmetric,
                               .n = 1,
                               .scales = &scale,
                               .zero_points = &zero_point};
    for (size_t i = 0; i < node->n_made; i++) {
        /* MaxPool's second output holds indices. */
        bool is_indices = i > 0 && strcmp(node->proto->op_type, "MaxPool") == 0;
        size_t made = graph->made[node->first_made + i];
        if (is_indices || made == ND_NO_INDEX ||
            nd_encodings_find(encodings, graph->tensors[made].name) != SIZE_MAX)
            continue;
        stated.name = graph->tensors[made].name;
        ND_TRY(nd_encodings_add(encodings, &stated, err));
    }
    return ND_OK;
}

/* Whether the node adds its third input, unscaled, to a product of the others. */
static bool adds_a_bias(const Onnx__NodeProto *node)
{
    const char *op_type = nd_onnx_text(node->op_type);
    const Onnx__AttributeProto *alpha = nd_onnx_attribute(node, "alpha"),
                               *beta = nd_onnx_attribute(node, "beta");
    if (node->n_input < 3 || node->input[2][0] == '\0' || nd_onnx_domain(node->domain)[0] != '\0')
        return false;
    if (strcmp(op_type, "Gemm") == 0)
        return (alpha == NULL || alpha->f == 1) && (beta == NULL || beta->f == 1);
    return strcmp(op_type, "Conv") == 0 || strcmp(op_type, "ConvTranspose") == 0;
}

/* int32 with the scale of the accumulator, so that it can be added to it. */
static enum nd_status add_bias(struct nd_encodings *encodings, const struct nd_graph *graph,
                               const struct nd_graph_node *node, struct nd_error *err)
{
    const struct nd_encoding *data = input_encoding(encodings, node->proto, 0);
    const struct nd_encoding *weight = input_encoding(encodings, node->proto, 1);
    size_t bias = graph->uses[node->first_use + 2];
    const char *name = node->proto->input[2];
    if (data == NULL || weight == NULL || data->quant.n != 1 || !graph->tensors[bias].is_constant ||
        nd_encodings_find(encodings, name) != SIZE_MAX)
        return ND_OK;
    size_t n = weight->quant.n;
    ND_FREED double *scales = nd_calloc(n, sizeof *scales), *zero_points = nd_calloc(n, sizeof *zero_points);
    ND_TRY_MEMORY(scales != NULL && zero_points != NULL, err);
    for (size_t i = 0; i < n; i++)
        scales[i] = (double)(data->quant.scale[0] * weight->quant.scale[i]);
    const struct nd_stated stated = {.name = name,
                                     .role = ND_ENCODING_PARAM,
                                     .bits = 32,
                                     .is_signed = true,
                                     .is_symmetric = true,
                                     .has_axis = true,
                                     .n = n,
                                     .scales = scales,
                                     .zero_points = zero_points};
    return nd_encodings_add(encodings, &stated, err);
}

enum nd_status nd_encodings_complete(struct nd_encodings *encodings, const struct nd_model *model,
                                     size_t *n_added, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    size_t n_before = encodings->n;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const struct nd_graph_node *node = &graph->nodes[i];
        if (nd_onnx_is_mover(node->proto))
            ND_TRY(add_moved(encodings, graph, node, err));
        else if (adds_a_bias(node->proto))
            ND_TRY(add_bias(encodings, graph, node, err));
    }
    *n_added = encodings->n - n_before;
    return ND_OK;
}

/* ---- what differs ---- */

/* The zero point counted from the lowest quantised value, which does not depend on whether quantised values are
 * signed. */
static int64_t zero_from_low(const struct nd_encoding *item, size_t i)
{
    size_t at = item->quant.n == 1 ? 0 : i;
    int64_t low = nd_dtype_is_signed_integer(item->dtype) ? -((int64_t)1 << (item->bits - 1)) : 0;
    return item->quant.zero_point[at] - low;
}

static double scale_of(const struct nd_encoding *item, size_t i)
{
    return (double)item->quant.scale[item->quant.n == 1 ? 0 : i];
}

static void compare_numbers(struct nd_encoding_difference *d, double rtol)
{
    size_t n_ref = d->ref->quant.n, n_test = d->test->quant.n, n = n_ref > n_test ? n_ref : n_test;
    d->is_same = n_ref == n_test && d->ref->bits == d->test->bits;
    d->min_ratio = INFINITY;
    d->largest_ratio = 0;
    for (size_t i = 0; i < n; i++) {
        double ref = scale_of(d->ref, i), test = scale_of(d->test, i), ratio = test / ref;
        int64_t zero = zero_from_low(d->test, i) - zero_from_low(d->ref, i);
        d->min_ratio = ratio < d->min_ratio ? ratio : d->min_ratio;
        d->largest_ratio = ratio > d->largest_ratio ? ratio : d->largest_ratio;
        if (llabs(zero) > llabs(d->zero_point_difference))
            d->zero_point_difference = zero;
        d->is_same = d->is_same && zero == 0 && fabs(test - ref) <= rtol * ref;
    }
}

static struct nd_encoding_difference compare_pair(const struct nd_encoding *ref, const struct nd_encoding *test,
                                                  double rtol)
{
    struct nd_encoding_difference d = {
        .ref = ref, .test = test, .min_ratio = (double)NAN, .largest_ratio = (double)NAN};
    if (ref == NULL || test == NULL)
        return d;
    if (ref->unhandled != NULL || test->unhandled != NULL) {
        d.is_same =
            ref->unhandled != NULL && test->unhandled != NULL && strcmp(ref->unhandled, test->unhandled) == 0;
        return d;
    }
    d.is_comparable = ref->quant.n == test->quant.n || ref->quant.n == 1 || test->quant.n == 1;
    if (d.is_comparable)
        compare_numbers(&d, rtol);
    return d;
}

static void append_difference(struct nd_encodings_diff *diff, const struct nd_encoding *ref,
                              const struct nd_encoding *test, double rtol)
{
    struct nd_encoding_difference *item = &diff->items[diff->n_items++];
    *item = compare_pair(ref, test, rtol);
    if (test == NULL)
        diff->n_only_ref++;
    else if (ref == NULL)
        diff->n_only_test++;
    else if (item->is_same)
        diff->n_same++;
    else
        diff->n_different++;
}

enum nd_status nd_encodings_compare(const struct nd_encodings *ref, const struct nd_encodings *test,
                                    double rtol, struct nd_encodings_diff *out, struct nd_error *err)
{
    size_t n;
    struct nd_encodings_diff diff = {0};
    ND_TRY_MEMORY(nd_size_add(ref->n, test->n, &n), err);
    diff.items = nd_calloc(n, sizeof *diff.items);
    ND_TRY_MEMORY(diff.items != NULL, err);
    for (size_t i = 0; i < ref->n; i++) {
        size_t other = nd_encodings_find(test, ref->items[i].name);
        append_difference(&diff, &ref->items[i], other != SIZE_MAX ? &test->items[other] : NULL, rtol);
    }
    for (size_t i = 0; i < test->n; i++)
        if (nd_encodings_find(ref, test->items[i].name) == SIZE_MAX)
            append_difference(&diff, NULL, &test->items[i], rtol);
    *out = diff;
    return ND_OK;
}

void nd_encodings_diff_deinit(struct nd_encodings_diff *diff)
{
    free(diff->items);
    *diff = (struct nd_encodings_diff){0};
}

/* ---- as part of a model ---- */

enum nd_status nd_encodings_match(const struct nd_encodings *encodings, const struct nd_model *model,
                                  struct nd_encodings_match *out, struct nd_error *err)
{
    struct nd_encodings_match match = {.omitted = nd_calloc(encodings->n, sizeof *match.omitted)};
    ND_TRY_MEMORY(match.omitted != NULL, err);
    for (size_t i = 0; i < encodings->n; i++) {
        const struct nd_encoding *item = &encodings->items[i];
        struct nd_encodings_omission omission = {.name = item->name};
        if (!nd_model_has_tensor(model, item->name)) {
            omission.why = "the model has no such tensor";
            omission.is_unknown = true;
        } else if (item->unhandled != NULL) {
            omission.why = item->unhandled;
        }
        if (omission.why != NULL)
            match.omitted[match.n_omitted++] = omission;
        else
            match.n_applicable++;
    }
    *out = match;
    return ND_OK;
}

void nd_encodings_match_deinit(struct nd_encodings_match *match)
{
    free(match->omitted);
    *match = (struct nd_encodings_match){0};
}

/* Quantised values of few bits lie in bytes: every reader of the model knows those, the reals are the same. */
static enum nd_dtype container(const struct nd_encoding *item)
{
    if (item->dtype == ND_DTYPE_U4)
        return ND_DTYPE_U8;
    return item->dtype == ND_DTYPE_I4 ? ND_DTYPE_I8 : item->dtype;
}

enum nd_status nd_encodings_apply(const struct nd_encodings *encodings, const struct nd_model *model,
                                  const char *path, struct nd_error *err)
{
    ND_CLEANUP(nd_encodings_match_deinit) struct nd_encodings_match match = {0};
    ND_FREED struct nd_quantised_tensor *items = nd_calloc(encodings->n, sizeof *items);
    ND_TRY(items != NULL ? nd_encodings_match(encodings, model, &match, err) : nd_fail_memory(err));
    size_t n = 0;
    for (size_t i = 0, omitted = 0; i < encodings->n; i++) {
        const struct nd_encoding *item = &encodings->items[i];
        if (omitted < match.n_omitted && match.omitted[omitted].name == item->name) {
            omitted++;
            continue;
        }
        items[n++] = (struct nd_quantised_tensor){.tensor = item->name,
                                                  .dtype = container(item),
                                                  .bits = item->bits,
                                                  .is_signed = nd_dtype_is_signed_integer(item->dtype),
                                                  .has_axis = item->has_axis,
                                                  .quant = &item->quant};
    }
    if (n == 0)
        return nd_fail(err, ND_E_MODEL_NO_TENSOR, nd_model_path(model),
                       "none of the %zu encodings of '%s' is for a tensor of '%s'", encodings->n,
                       encodings->path, nd_model_path(model));
    return nd_model_write_quantised(model, items, n, path, err);
}

/* ---- files: AIMET 1.0.0, which the converters of QNN read, too, and ONNX Runtime's overrides ---- */

static bool is_signed(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_I8 || dtype == ND_DTYPE_I16 || dtype == ND_DTYPE_I32 || dtype == ND_DTYPE_I4;
}

/* ---- AIMET 1.0.0 ---- */

/* real = scale (unsigned quantised value + offset). */
static json_t *aimet_item(const struct nd_encoding *encoding)
{
    int64_t shift = is_signed(encoding->dtype) ? (int64_t)1 << (encoding->bits - 1) : 0;
    bool is_centred = is_signed(encoding->dtype);
    json_t *scales = json_array(), *offsets = json_array();
    for (size_t i = 0; i < encoding->quant.n; i++) {
        nd_tree_append(scales, json_real((double)encoding->quant.scale[i]));
        nd_tree_append(offsets, json_integer(-(encoding->quant.zero_point[i] + shift)));
        is_centred = is_centred && encoding->quant.zero_point[i] == 0;
    }
    return json_pack("{s:o, s:s, s:s, s:i, s:b, s:o, s:o}", "name", nd_json_string(encoding->name), "dtype",
                     "INT", "enc_type", encoding->quant.n > 1 ? "PER_CHANNEL" : "PER_TENSOR", "bw",
                     encoding->bits, "is_sym", (int)is_centred, "scale", scales, "offset", offsets);
}

static json_t *aimet(const struct nd_encodings *encodings)
{
    json_t *activations = json_array(), *params = json_array();
    for (size_t i = 0; i < encodings->n; i++)
        if (encodings->items[i].quant.n > 0 && encodings->items[i].converted_from == NULL)
            nd_tree_append(encodings->items[i].role == ND_ENCODING_PARAM ? params : activations,
                           aimet_item(&encodings->items[i]));
    return json_pack("{s:s, s:{s:s, s:s}, s:o, s:o}", "version", "1.0.0", "producer", "package", "npudiff",
                     "version", ND_VERSION, "activation_encodings", activations, "param_encodings", params);
}

/* ---- ONNX Runtime ---- */

/* The names of QuantType; NULL: it has none, as for biases. */
static const char *quant_type(enum nd_dtype dtype)
{
    static const struct {
        enum nd_dtype dtype;
        const char *name;
    } types[] = {{ND_DTYPE_I8, "QInt8"},    {ND_DTYPE_U8, "QUInt8"}, {ND_DTYPE_I16, "QInt16"},
                 {ND_DTYPE_U16, "QUInt16"}, {ND_DTYPE_I4, "QInt4"},  {ND_DTYPE_U4, "QUInt4"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].dtype == dtype)
            return types[i].name;
    return NULL;
}

static json_t *override_of(const struct nd_encoding *encoding, const char *type)
{
    json_t *list = json_array();
    for (size_t i = 0; i < encoding->quant.n; i++) {
        json_t *item =
            json_pack("{s:s, s:f, s:I}", "quant_type", type, "scale", (double)encoding->quant.scale[i],
                      "zero_point", (json_int_t)encoding->quant.zero_point[i]);
        if (encoding->quant.n > 1)
            nd_tree_set(item, "axis", json_integer(encoding->quant.axis));
        nd_tree_append(list, item);
    }
    return list;
}

/* What some nodes read in the place of the tensor, which they read in other quantised values. */
static json_t *convert_of(const struct nd_encoding *encoding, const char *type)
{
    json_t *readers = json_array();
    for (size_t i = 0; i < encoding->n_readers; i++)
        nd_tree_append(readers, nd_json_string(encoding->readers[i]));
    return json_pack("{s:s, s:f, s:I, s:o}", "quant_type", type, "scale", (double)encoding->quant.scale[0],
                     "zero_point", (json_int_t)encoding->quant.zero_point[0], "recv_nodes", readers);
}

static json_t *overrides(const struct nd_encodings *encodings)
{
    json_t *all = json_object();
    for (size_t i = 0; i < encodings->n; i++) {
        const struct nd_encoding *encoding = &encodings->items[i];
        const char *type = quant_type(encoding->dtype);
        if (encoding->quant.n > 0 && type != NULL && encoding->converted_from == NULL)
            nd_tree_set(all, encoding->name, override_of(encoding, type));
    }
    for (size_t i = 0; i < encodings->n; i++) {
        const struct nd_encoding *encoding = &encodings->items[i];
        const char *type = quant_type(encoding->dtype), *from = encoding->converted_from;
        json_t *item = from != NULL ? json_array_get(json_object_get(all, from), 0) : NULL;
        /* ONNX Runtime knows one conversion of a tensor. */
        if (item != NULL && type != NULL && encoding->quant.n == 1 && encoding->n_readers > 0 &&
            json_object_get(item, "convert") == NULL)
            nd_tree_set(item, "convert", convert_of(encoding, type));
    }
    return all;
}

enum nd_status nd_encodings_write(const struct nd_encodings *encodings, enum nd_encodings_format format,
                                  const char *path, bool replace, struct nd_error *err)
{
    json_auto_t *root = format == ND_ENCODINGS_AIMET ? aimet(encodings) : overrides(encodings);
    ND_FREED char *text = root != NULL ? nd_json_dump(root, 1) : NULL;
    return text != NULL ? nd_file_put_new(path, text, strlen(text), replace, err) : nd_fail_memory(err);
}
