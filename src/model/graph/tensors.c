/* The tensors that a capture can record: found and named, chosen by patterns, and where their quantised values
 * become floats. docs/reference/capture-format.md. */
#include "model/graph/loaded.h"

#include <fnmatch.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "model/graph/constants.h"
#include "model/graph/infer.h"
#include "npudiff/core/parse.h"

/* Whether tensor is a tensor read by a live node, or an output of the graph. */
static bool nd_graph_is_wanted(const struct nd_graph *graph, size_t tensor)
{
    return graph->tensors[tensor].n_readers > 0 || graph->tensors[tensor].output != ND_NO_INDEX;
}

struct finder {
    struct nd_model *model;
    const size_t *layer_of_node;
    size_t *natural; /* [n_edges]: the tensor that a tensor is named after */
    size_t tensors_capacity, types_capacity, natural_capacity;
};

/* What is known of a tensor when it is found. */
struct found {
    size_t tensor;  /* whose bytes are recorded */
    size_t natural; /* the tensor that it stands for */
    size_t quant;   /* the QuantizeLinear or DequantizeLinear that tells its scale; ND_NO_INDEX */
    bool is_input;
};

static size_t first_input(const struct nd_graph *graph, size_t node)
{
    return graph->uses[graph->nodes[node].first_use];
}

/* The first live node of that kind that reads the tensor as its data (not as a scale). */
static size_t reader_of_kind(const struct nd_graph *graph, size_t tensor, enum nd_node_kind kind)
{
    const struct nd_graph_tensor *t = &graph->tensors[tensor];
    for (size_t r = 0; r < t->n_readers; r++) {
        size_t node = graph->readers[t->first_reader + r];
        if (graph->nodes[node].kind == kind && first_input(graph, node) == tensor)
            return node;
    }
    return ND_NO_INDEX;
}

static const Onnx__TypeProto__Tensor *type_of(const struct nd_graph *graph, size_t tensor)
{
    return nd_onnx_tensor_type(graph->tensors[tensor].value_info);
}

/* Quantised values have the shape of what they stand for and of what is made of them: any of these may declare
 * it. */
static const Onnx__TypeProto__Tensor *find_shape(const struct nd_model *model, const struct found *found)
{
    const struct nd_graph *graph = &model->graph;
    size_t dequantize = reader_of_kind(graph, found->tensor, ND_NODE_DEQUANTIZE);
    size_t candidates[] = {found->natural, found->tensor,
                           dequantize != ND_NO_INDEX ? graph->made[graph->nodes[dequantize].first_made]
                                                     : ND_NO_INDEX};
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        const Onnx__TypeProto__Tensor *type =
            candidates[i] != ND_NO_INDEX ? type_of(graph, candidates[i]) : NULL;
        if (type != NULL && type->shape != NULL)
            return type;
    }
    /* Quantised values made of other quantised values have their shape. */
    size_t source = model->tensor_of_value[found->natural];
    return source != ND_NO_INDEX ? model->tensor_types[source] : NULL;
}

static enum nd_status read_quant(const struct nd_model *model, const struct found *found,
                                 struct nd_tensor *tensor, struct nd_error *err)
{
    const Onnx__TypeProto__Tensor *type = type_of(&model->graph, found->tensor);
    enum nd_dtype declared =
        type != NULL && type->has_elem_type ? nd_onnx_dtype(type->elem_type) : ND_DTYPE_NONE;
    tensor->quant.axis = -1;
    tensor->dtype = declared;
    if (found->quant == ND_NO_INDEX)
        return ND_OK;
    struct nd_node_quant quant;
    ND_TRY(nd_node_quant_read(&model->graph, found->quant, model->path, &quant, err));
    tensor->quant = quant.quant;
    /* A QuantizeLinear makes the type; a DequantizeLinear reads what is there. */
    if (quant.dtype != ND_DTYPE_NONE &&
        (model->graph.nodes[found->quant].kind == ND_NODE_QUANTIZE || declared == ND_DTYPE_NONE))
        tensor->dtype = quant.dtype;
    if (tensor->dtype != ND_DTYPE_NONE && !nd_dtype_is_of_qvalues(tensor->dtype))
        nd_quant_deinit(&tensor->quant);
    return ND_OK;
}

static enum nd_status add_found(struct finder *finder, const struct found *found, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    const struct nd_graph_tensor *value = &model->graph.tensors[found->tensor];
    size_t n = model->n_tensors + 1;
    ND_TRY_MEMORY(
        nd_grow((void **)&model->tensors, &finder->tensors_capacity, n, sizeof *model->tensors) &&
            nd_grow((void **)&model->tensor_types, &finder->types_capacity, n, sizeof *model->tensor_types) &&
            nd_grow((void **)&finder->natural, &finder->natural_capacity, n, sizeof *finder->natural),
        err);
    struct nd_tensor *tensor = &model->tensors[model->n_tensors];
    *tensor = (struct nd_tensor){.shape = {.rank = -1}, .is_model_input = found->is_input};
    ND_TRY(read_quant(model, found, tensor, err));
    const Onnx__NodeProto *producer =
        value->producer != ND_NO_INDEX ? model->graph.nodes[value->producer].proto : NULL;
    tensor->onnx_name = nd_strdup(value->name);
    tensor->node = nd_strdup(producer != NULL ? nd_graph_node_name(producer) : "");
    /* Of a layer's tensor, nd_layers_find says it better. */
    tensor->op_types = nd_strdup(found->is_input || producer == NULL ? "input" : producer->op_type);
    model->tensor_types[model->n_tensors] = find_shape(model, found);
    finder->natural[model->n_tensors] = found->natural;
    model->tensor_of_value[found->tensor] = model->n_tensors++;
    return tensor->onnx_name != NULL && tensor->node != NULL && tensor->op_types != NULL ? ND_OK
                                                                                         : nd_fail_memory(err);
}

/* A tensor of quantised values that a QuantizeLinear makes. */
static enum nd_status add_quantize(struct finder *finder, size_t node, bool is_input, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    size_t source = first_input(&model->graph, node);
    struct found found = {.tensor = model->graph.made[model->graph.nodes[node].first_made],
                          .natural = source,
                          .quant = node,
                          .is_input = is_input};
    enum nd_status status = add_found(finder, &found, err);
    if (status == ND_OK && model->tensor_of_value[source] == ND_NO_INDEX)
        model->tensor_of_value[source] = model->tensor_of_value[found.tensor];
    return status;
}

/* The graph inputs that are quantised, or are quantised values. Floats as they are fed are no tensors. */
static enum nd_status add_input_tensors(struct finder *finder, struct nd_error *err)
{
    struct nd_graph *graph = &finder->model->graph;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < graph->proto->n_input && status == ND_OK; i++) {
        size_t t = nd_names_find(&graph->names, graph->proto->input[i]->name);
        const struct nd_graph_tensor *tensor = &graph->tensors[t];
        if (tensor->is_constant)
            continue;
        for (size_t r = 0; r < tensor->n_readers && status == ND_OK; r++) {
            size_t node = graph->readers[tensor->first_reader + r];
            if (graph->nodes[node].kind == ND_NODE_QUANTIZE && first_input(graph, node) == t &&
                finder->model->tensor_of_value[graph->made[graph->nodes[node].first_made]] == ND_NO_INDEX)
                status = add_quantize(finder, node, true, err);
        }
        size_t dequantize = reader_of_kind(graph, t, ND_NODE_DEQUANTIZE);
        if (dequantize != ND_NO_INDEX && finder->model->tensor_of_value[t] == ND_NO_INDEX && status == ND_OK)
            status = add_found(
                finder, &(struct found){.tensor = t, .natural = t, .quant = dequantize, .is_input = true}, err);
    }
    return status;
}

/* What an operator makes, unless it is hidden in a unit or a QuantizeLinear makes quantised values of it. */
static enum nd_status add_plain(struct finder *finder, size_t index, struct nd_error *err)
{
    const struct nd_graph *graph = &finder->model->graph;
    const struct nd_graph_node *node = &graph->nodes[index];
    for (size_t i = 0; i < node->n_made; i++) {
        size_t made = graph->made[node->first_made + i];
        if (made == ND_NO_INDEX || !nd_graph_is_wanted(graph, made) ||
            reader_of_kind(graph, made, ND_NODE_QUANTIZE) != ND_NO_INDEX)
            continue;
        const Onnx__ValueInfoProto *info = graph->tensors[made].value_info;
        if (info != NULL && info->type != NULL && info->type->value_case != ONNX__TYPE_PROTO__VALUE__NOT_SET &&
            nd_onnx_tensor_type(info) == NULL)
            continue; /* a sequence, a map... */
        struct found found = {
            .tensor = made, .natural = made, .quant = reader_of_kind(graph, made, ND_NODE_DEQUANTIZE)};
        ND_TRY(add_found(finder, &found, err));
    }
    return ND_OK;
}

static enum nd_status add_node_tensors(struct finder *finder, size_t index, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    const struct nd_graph_node *node = &model->graph.nodes[index];
    if (!node->is_alive || node->is_constant)
        return ND_OK;
    size_t made = node->n_made > 0 ? model->graph.made[node->first_made] : ND_NO_INDEX;
    if (node->kind == ND_NODE_QUANTIZE)
        return model->tensor_of_value[made] == ND_NO_INDEX ? add_quantize(finder, index, false, err) : ND_OK;
    if (node->kind == ND_NODE_DEQUANTIZE) {
        model->tensor_of_value[made] = model->tensor_of_value[first_input(&model->graph, index)];
        return ND_OK;
    }
    return finder->layer_of_node[index] == ND_NO_INDEX ? add_plain(finder, index, err) : ND_OK;
}

/* text without the suffix, in new memory; all of it when it does not end so. */
static char *without_suffix(const char *text, const char *suffix)
{
    size_t n_stem = nd_stem_bytes(text, suffix);
    return n_stem > 0 ? strndup(text, n_stem) : nd_strdup(text);
}

/* Gives the tensor a name that it owns if the name is free. False: out of memory. */
static bool try_name(struct nd_tensor *tensor, struct nd_names *taken, char *name, size_t index)
{
    if (name == NULL)
        return false;
    if (tensor->name != NULL || nd_names_find(taken, name) != ND_NO_INDEX) {
        free(name);
        return true;
    }
    tensor->name = name;
    return nd_names_add(taken, name, index);
}

static bool name_tensor(struct finder *finder, struct nd_names *taken, size_t index)
{
    static const char quantize_output[] = "_QuantizeLinear_Output";
    const struct nd_graph *graph = &finder->model->graph;
    struct nd_tensor *tensor = &finder->model->tensors[index];
    const struct nd_graph_tensor *natural = &graph->tensors[finder->natural[index]];
    /* Quantised values made of a dequantised tensor: what they stand for is named by that tensor's codes. */
    bool is_requantised =
        natural->producer != ND_NO_INDEX && graph->nodes[natural->producer].kind == ND_NODE_DEQUANTIZE;
    if (tensor->name != NULL)
        return true;
    bool has_memory = is_requantised ||
                      try_name(tensor, taken, without_suffix(natural->name, "_QuantizeLinear_Input"), index);
    has_memory = has_memory &&
                 try_name(tensor, taken, without_suffix(tensor->onnx_name, quantize_output), index) &&
                 try_name(tensor, taken, nd_strdup(tensor->onnx_name), index);
    for (size_t i = 2; has_memory && tensor->name == NULL; i++)
        has_memory = try_name(tensor, taken, nd_text("%s#%zu", tensor->onnx_name, i), index);
    return has_memory;
}

static enum nd_status name_tensors(struct finder *finder, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    const struct nd_graph *graph = &model->graph;
    struct nd_names taken = {0};
    bool has_memory = true;
    /* The names of the graph's outputs go first: nothing else may take them. Among the outputs of one tensor,
     * floats go before quantised values. */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < graph->proto->n_output && has_memory; i++) {
            size_t t = nd_names_find(&graph->names, graph->proto->output[i]->name),
                   tensor = model->tensor_of_value[t];
            bool is_qvalues =
                tensor != ND_NO_INDEX && strcmp(model->tensors[tensor].onnx_name, graph->tensors[t].name) == 0;
            if (tensor != ND_NO_INDEX && is_qvalues == (pass == 1) && graph->tensors[t].input == ND_NO_INDEX)
                has_memory =
                    try_name(&model->tensors[tensor], &taken, nd_strdup(graph->tensors[t].name), tensor);
        }
    }
    for (size_t i = 0; i < model->n_tensors && has_memory; i++)
        has_memory = name_tensor(finder, &taken, i);
    nd_names_deinit(&taken);
    return has_memory ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_tensors_find(struct nd_model *model, const size_t *layer_of_node, struct nd_error *err)
{
    struct finder finder = {.model = model, .layer_of_node = layer_of_node};
    model->tensor_of_value = nd_calloc(model->graph.n_tensors, sizeof *model->tensor_of_value);
    ND_TRY_MEMORY(model->tensor_of_value != NULL, err);
    for (size_t t = 0; t < model->graph.n_tensors; t++)
        model->tensor_of_value[t] = ND_NO_INDEX;
    enum nd_status status = add_input_tensors(&finder, err);
    for (size_t n = 0; n < model->graph.n_nodes && status == ND_OK; n++)
        status = add_node_tensors(&finder, n, err);
    if (status == ND_OK)
        status = name_tensors(&finder, err);
    free(finder.natural);
    return status;
}

/* ---- which a capture makes visible ---- */

/* Asking for a graph input as an output is legal in ONNX but not everywhere in NPU providers, and its bytes are
 * the probe's own. */
static bool is_exposable(const struct nd_model *model, size_t tensor)
{
    size_t value = nd_names_find(&model->graph.names, model->tensors[tensor].onnx_name);
    return model->graph.tensors[value].producer != ND_NO_INDEX;
}

static size_t mark_matching(const struct nd_model *model, const char *pattern, bool *chosen)
{
    size_t n = 0;
    for (size_t e = 0; e < model->n_tensors; e++) {
        const char *name = model->tensors[e].name;
        /* Names hold brackets and other things that a pattern reads otherwise: a name always means itself. */
        if ((strcmp(pattern, name) == 0 || fnmatch(pattern, name, 0) == 0) && is_exposable(model, e)) {
            chosen[e] = true;
            n++;
        }
    }
    return n;
}

static enum nd_status fail_no_match(const struct nd_model *model, const char *pattern, struct nd_error *err)
{
    struct nd_strbuf examples = {0};
    char meant[ND_DID_YOU_MEAN_BYTES];
    for (size_t e = 0, n = 0; e < model->n_tensors && n < 5; e++)
        if (is_exposable(model, e))
            nd_strbuf_printf(&examples, "%s'%s'", n++ > 0 ? ", " : "", model->tensors[e].name);
    ND_FREED char *list = nd_strbuf_take(&examples);
    ND_TRY_MEMORY(list != NULL, err);
    return nd_fail(err, ND_E_MODEL_NO_TENSOR, pattern, "no tensor of '%s' matches '%s'%s%s%s", model->path,
                   pattern, list[0] != '\0' ? "; examples of its tensors: " : "", list,
                   nd_did_you_mean(pattern, model->n_tensors > 0 ? &model->tensors[0].name : NULL,
                                   model->n_tensors, sizeof model->tensors[0], meant));
}

static enum nd_status mark_patterns(const struct nd_model *model, const char *spec, bool *chosen,
                                    struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (const char *at = spec; status == ND_OK;) {
        /* The length of the pattern that text starts with; a comma after a backslash belongs to it. */
        size_t n = 0;
        while (at[n] != '\0' && at[n] != ',')
            n += at[n] == '\\' && at[n + 1] != '\0' ? 2 : 1;
        if (n == 0)
            return nd_fail(err, ND_E_OPTION_VALUE, spec, "'%s' holds an empty tensor pattern", spec);
        char *pattern = strndup(at, n);
        ND_TRY_MEMORY(pattern != NULL, err);
        if (mark_matching(model, pattern, chosen) == 0)
            status = fail_no_match(model, pattern, err);
        free(pattern);
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    return status;
}

enum nd_status nd_model_select_tensors(const struct nd_model *model, const char *spec, size_t **selected,
                                       size_t *n_selected, struct nd_error *err)
{
    bool all = strcmp(spec, "all") == 0;
    bool outputs = strcmp(spec, "outputs") == 0 || strcmp(spec, "none") == 0;
    ND_FREED bool *chosen = nd_calloc(model->n_tensors, sizeof *chosen);
    ND_FREED size_t *indices = nd_calloc(model->n_tensors, sizeof *indices);
    size_t n = 0;
    ND_TRY_MEMORY(chosen != NULL && indices != NULL, err);
    if (!all && !outputs)
        ND_TRY(mark_patterns(model, spec, chosen, err));
    for (size_t e = 0; e < model->n_tensors; e++)
        if (chosen[e] || ((all || (outputs && model->tensors[e].is_model_output)) && is_exposable(model, e)))
            indices[n++] = e;
    if (n == 0)
        return nd_fail(err, ND_E_MODEL_NO_TENSOR, model->path, "'%s' has no tensor that can be made visible",
                       model->path);
    *n_selected = n;
    return ND_GIVE(selected, indices);
}

/* ---- shapes that are not declared ---- */

enum nd_status nd_tensors_infer_shapes(const struct nd_model *model, struct nd_shape **out,
                                       struct nd_error *err)
{
    struct nd_tensor_info *infos = nd_calloc(model->graph.n_tensors, sizeof *infos);
    *out = nd_calloc(model->n_tensors, sizeof **out);
    if (infos == NULL || *out == NULL) {
        free(infos);
        return nd_fail_memory(err);
    }
    for (size_t t = 0; t < model->n_tensors; t++)
        (*out)[t] = model->tensors[t].shape;
    nd_infer_declared(model, infos);
    nd_infer_propagate(model, infos);
    for (size_t v = 0; v < model->graph.n_tensors; v++) {
        size_t t = model->tensor_of_value[v];
        if (t != ND_NO_INDEX && (*out)[t].rank < 0)
            (*out)[t] = infos[v].shape;
    }
    free(infos);
    return ND_OK;
}

/* ---- where quantised values become floats ---- */

static bool has_quant(const struct nd_model *model, size_t node, const struct nd_quant *quant)
{
    struct nd_node_quant own = {0};
    bool is_same = nd_node_quant_read(&model->graph, node, model->path, &own, NULL) == ND_OK &&
                   own.quant.n == 1 && own.quant.scale[0] == quant->scale[0] &&
                   own.quant.zero_point[0] == quant->zero_point[0];
    nd_quant_deinit(&own.quant);
    return is_same;
}

bool nd_model_find_dequantised(const struct nd_model *model, size_t tensor, struct nd_dequantised *out)
{
    const struct nd_graph *graph = &model->graph;
    const struct nd_tensor *known = &model->tensors[tensor];
    size_t qvalues = nd_names_find(&graph->names, known->onnx_name), found = ND_NO_INDEX;
    const struct nd_graph_tensor *value = &graph->tensors[qvalues];
    for (size_t r = 0; known->quant.n == 1 && known->quant.scale[0] > 0 && r < value->n_readers; r++) {
        size_t node = graph->readers[value->first_reader + r];
        size_t made =
            graph->nodes[node].kind == ND_NODE_DEQUANTIZE ? nd_graph_made(graph, node, 0) : ND_NO_INDEX;
        if (made == ND_NO_INDEX || nd_graph_used(graph, node, 0) != qvalues ||
            !has_quant(model, node, &known->quant))
            continue;
        if (found == ND_NO_INDEX || strcmp(graph->tensors[made].name, known->name) == 0)
            found = node;
    }
    if (found == ND_NO_INDEX)
        return false;
    *out = (struct nd_dequantised){nd_graph_node_name(graph->nodes[found].proto),
                                   graph->tensors[nd_graph_made(graph, found, 0)].name};
    return true;
}

bool nd_model_dequantises_before_end(const struct nd_model *model, size_t node)
{
    const struct nd_graph *graph = &model->graph;
    size_t made = graph->nodes[node].n_made > 0 ? nd_graph_made(graph, node, 0) : ND_NO_INDEX;
    return model->nodes[node].is_io_quantisation && graph->nodes[node].kind == ND_NODE_DEQUANTIZE &&
           made != ND_NO_INDEX && graph->tensors[made].output == ND_NO_INDEX;
}

static bool is_open(const struct nd_graph *graph, size_t tensor)
{
    return tensor != ND_NO_INDEX && graph->tensors[tensor].is_constant &&
           graph->tensors[tensor].input != ND_NO_INDEX;
}

size_t nd_model_n_open_constants(const struct nd_model *model, size_t node)
{
    const struct nd_graph *graph = &model->graph;
    size_t n = 0;
    for (size_t i = 0; model->proto->ir_version >= 4 && i < graph->nodes[node].n_inputs; i++) {
        size_t tensor = nd_graph_used(graph, node, i);
        size_t maker = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
        bool is_quantised = maker != ND_NO_INDEX && graph->nodes[maker].kind == ND_NODE_DEQUANTIZE;
        n += is_open(graph, is_quantised ? nd_graph_used(graph, maker, 0) : tensor);
    }
    return n;
}

bool nd_model_is_operator(const struct nd_model *model, size_t node)
{
    const struct nd_graph_node *at = &model->graph.nodes[node];
    return at->kind == ND_NODE_OTHER && at->is_alive && !at->is_constant;
}
