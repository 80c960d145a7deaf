/* What a loaded model tells of itself. */
#include <assert.h>

#include "model/graph/loaded.h"

const char *nd_model_path(const struct nd_model *model)
{
    return model->path;
}

const char *nd_model_sha256(const struct nd_model *model)
{
    return model->sha256;
}

size_t nd_model_n_external(const struct nd_model *model)
{
    return model->external.n;
}

const char *nd_model_external(const struct nd_model *model, size_t i)
{
    assert(i < model->external.n);
    return model->external.files[i].location;
}

const char *nd_model_graph_name(const struct nd_model *model)
{
    return nd_onnx_text(model->proto->graph->name);
}

int64_t nd_model_opset(const struct nd_model *model)
{
    return model->opset;
}

size_t nd_model_n_inputs(const struct nd_model *model)
{
    return model->n_inputs;
}

const struct nd_model_io *nd_model_input(const struct nd_model *model, size_t i)
{
    assert(i < model->n_inputs);
    return &model->inputs[i];
}

size_t nd_model_n_outputs(const struct nd_model *model)
{
    return model->n_outputs;
}

const struct nd_model_io *nd_model_output(const struct nd_model *model, size_t i)
{
    assert(i < model->n_outputs);
    return &model->outputs[i];
}

size_t nd_model_n_nodes(const struct nd_model *model)
{
    return model->graph.n_nodes;
}

const struct nd_model_node *nd_model_node(const struct nd_model *model, size_t i)
{
    assert(i < model->graph.n_nodes);
    return &model->nodes[i];
}

size_t nd_model_n_tensors(const struct nd_model *model)
{
    return model->n_tensors;
}

const struct nd_tensor *nd_model_tensor(const struct nd_model *model, size_t i)
{
    assert(i < model->n_tensors);
    return &model->tensors[i];
}

const struct nd_model_node *nd_model_tensor_operator(const struct nd_model *model, size_t i)
{
    const struct nd_graph *graph = &model->graph;
    size_t qvalues = nd_names_find(&graph->names, nd_model_tensor(model, i)->onnx_name);
    size_t quantizer = qvalues != ND_NO_INDEX ? graph->tensors[qvalues].producer : ND_NO_INDEX;
    if (quantizer == ND_NO_INDEX || graph->nodes[quantizer].kind != ND_NODE_QUANTIZE)
        return NULL;
    size_t input = graph->uses[graph->nodes[quantizer].first_use];
    size_t last = input != ND_NO_INDEX ? graph->tensors[input].producer : ND_NO_INDEX;
    return last != ND_NO_INDEX ? &model->nodes[last] : NULL;
}

const struct nd_model_layer *nd_model_layer_of_tensor(const struct nd_model *model, size_t tensor)
{
    assert(tensor < model->n_tensors);
    size_t layer = model->layer_of_tensor[tensor];
    return layer != ND_NO_INDEX ? &model->layers[layer] : NULL;
}

size_t nd_model_n_layers(const struct nd_model *model)
{
    return model->n_layers;
}

const struct nd_model_layer *nd_model_layer(const struct nd_model *model, size_t i)
{
    assert(i < model->n_layers);
    return &model->layers[i];
}
