#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"

/* Protobuf's own limit, so no ONNX file is larger. */
static const size_t max_file_bytes = INT_MAX;

static enum nd_status read_file(struct nd_model *model, struct nd_error *err)
{
    void *bytes = NULL;
    size_t n = 0;
    enum nd_status status = nd_file_read(model->path, max_file_bytes, &bytes, &n, err);
    if (status == ND_OK)
        status = nd_onnx_decode(model->path, bytes, n, &model->proto, err);
    if (status == ND_OK)
        nd_sha256_bytes(bytes, n, model->sha256);
    free(bytes);
    return status;
}

/* Puts the digests of external files into the model's. */
static enum nd_status mix_external(struct nd_model *model, struct nd_error *err)
{
    if (model->external.n == 0)
        return ND_OK;
    struct nd_strbuf list = {0};
    nd_strbuf_printf(&list, "%s\n", model->sha256);
    for (size_t i = 0; i < model->external.n; i++)
        nd_strbuf_printf(&list, "%s %s\n", model->external.files[i].location, model->external.files[i].sha256);
    size_t n = list.len;
    char *text = nd_strbuf_take(&list);
    if (text == NULL)
        return nd_fail_memory(err);
    nd_sha256_bytes(text, n, model->sha256);
    free(text);
    return ND_OK;
}

static int64_t default_opset(const Onnx__ModelProto *proto)
{
    for (size_t i = 0; i < proto->n_opset_import; i++)
        if (nd_onnx_domain(proto->opset_import[i]->domain)[0] == '\0')
            return proto->opset_import[i]->version;
    return 0;
}

/* Whether the node quantises an input of the graph. */
static bool quantises_input(const struct nd_graph *graph, const struct nd_graph_node *node)
{
    size_t source = node->n_inputs > 0 ? graph->uses[node->first_use] : ND_NO_INDEX;
    return node->kind == ND_NODE_QUANTIZE && source != ND_NO_INDEX &&
           graph->tensors[source].input != ND_NO_INDEX && !graph->tensors[source].is_constant;
}

/* Operators that hand on the values of their first input, at most in another shape or order. */
static bool hands_on(const Onnx__NodeProto *node)
{
    static const char *const names[] = {"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(nd_onnx_text(node->op_type), names[i]) == 0 && nd_onnx_domain(node->domain)[0] == '\0')
            return true;
    return false;
}

/* Marks the DequantizeLinear whose floats become an output of the graph, and the nodes between them. */
static void mark_end(const struct nd_graph *graph, size_t output, bool *is_end)
{
    size_t node = graph->tensors[output].producer;
    while (node != ND_NO_INDEX && !is_end[node] && !graph->nodes[node].is_constant) {
        bool is_last = graph->nodes[node].kind == ND_NODE_DEQUANTIZE;
        if (!is_last && (!hands_on(graph->nodes[node].proto) || graph->nodes[node].n_inputs == 0))
            return;
        is_end[node] = true;
        size_t source = nd_graph_used(graph, node, 0);
        node = is_last || source == ND_NO_INDEX ? ND_NO_INDEX : graph->tensors[source].producer;
    }
}

static enum nd_status list_nodes(struct nd_model *model, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    model->nodes = nd_calloc(graph->n_nodes, sizeof *model->nodes);
    bool *is_end = nd_calloc(graph->n_nodes, sizeof *is_end);
    if (model->nodes == NULL || is_end == NULL) {
        free(is_end);
        return nd_fail_memory(err);
    }
    for (size_t t = 0; t < graph->n_tensors; t++)
        if (graph->tensors[t].output != ND_NO_INDEX)
            mark_end(graph, t, is_end);
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const Onnx__NodeProto *proto = graph->nodes[i].proto;
        bool is_end_quantiser = is_end[i] && graph->nodes[i].kind == ND_NODE_DEQUANTIZE;
        model->nodes[i] = (struct nd_model_node){
            .name = nd_graph_node_name(proto),
            .op_type = proto->op_type,
            .domain = nd_onnx_domain(proto->domain),
            .has_own_name = nd_onnx_text(proto->name)[0] != '\0',
            .is_io_quantisation = is_end_quantiser || quantises_input(graph, &graph->nodes[i])};
    }
    free(is_end);
    return ND_OK;
}

static enum nd_status analyse(struct nd_model *model, struct nd_error *err)
{
    size_t *unit_of_node = NULL;
    enum nd_status status = nd_onnx_check_names(&model->proto->base, err);
    if (status == ND_OK)
        status = nd_graph_order(model->proto->graph, err);
    if (status == ND_OK)
        status = nd_graph_init(&model->graph, model->proto->graph, err);
    if (status == ND_OK)
        status = nd_external_init(&model->external, model->proto, model->path, err);
    if (status == ND_OK)
        status = mix_external(model, err);
    if (status == ND_OK)
        status = list_nodes(model, err);
    if (status == ND_OK)
        status = nd_units_assign(&model->graph, &unit_of_node, err);
    if (status == ND_OK)
        status = nd_edges_find(model, unit_of_node, err);
    if (status == ND_OK)
        status = nd_units_find(model, unit_of_node, err);
    if (status == ND_OK)
        status = nd_model_find_io(model, err);
    if (status == ND_OK)
        status = nd_model_refresh_shapes(model, err);
    free(unit_of_node);
    if (status != ND_OK)
        nd_error_context(err, "reading '%s'", model->path);
    return status;
}

enum nd_status nd_model_load(const char *path, struct nd_model **out, struct nd_error *err)
{
    struct nd_model *model = nd_calloc(1, sizeof *model);
    if (model == NULL)
        return nd_fail_memory(err);
    model->path = nd_strdup(path);
    enum nd_status status = model->path != NULL ? read_file(model, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = analyse(model, err);
    if (status != ND_OK) {
        nd_model_destroy(&model);
        return status;
    }
    model->opset = default_opset(model->proto);
    *out = model;
    return ND_OK;
}

void nd_model_destroy(struct nd_model **handle)
{
    struct nd_model *model = *handle;
    if (model == NULL)
        return;
    for (size_t i = 0; i < model->n_units; i++)
        free((void *)(uintptr_t)model->units[i].inputs);
    for (size_t i = 0; i < model->n_edges; i++)
        nd_edge_deinit(&model->edges[i]);
    free(model->units);
    free(model->unit_of_edge);
    free(model->edges);
    free(model->edge_types);
    free(model->tensor_edge);
    free(model->inputs);
    free(model->outputs);
    free(model->nodes);
    nd_external_deinit(&model->external);
    nd_graph_deinit(&model->graph);
    onnx__model_proto__free_unpacked(model->proto, NULL);
    free(model->path);
    free(model);
    *handle = NULL;
}
