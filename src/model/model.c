/* What a loaded model tells of itself. */
#include <assert.h>

#include "model/loaded.h"

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

size_t nd_model_n_edges(const struct nd_model *model)
{
    return model->n_edges;
}

const struct nd_edge *nd_model_edge(const struct nd_model *model, size_t i)
{
    assert(i < model->n_edges);
    return &model->edges[i];
}

size_t nd_model_n_units(const struct nd_model *model)
{
    return model->n_units;
}

const struct nd_model_unit *nd_model_unit(const struct nd_model *model, size_t i)
{
    assert(i < model->n_units);
    return &model->units[i];
}
