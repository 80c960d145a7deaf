/* Which part of a graph has to run again when some of its tensors change. */
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "model/graph/loaded.h"
#include "quantisation/study.h"

enum nd_status nd_rerun_init(struct nd_rerun *cut, const struct nd_model *model, struct nd_error *err)
{
    size_t n = nd_model_n_tensors(model);
    *cut = (struct nd_rerun){.is_skipped = nd_calloc(n, sizeof *cut->is_skipped),
                             .is_ignored = nd_calloc(n, sizeof *cut->is_ignored),
                             .is_below = nd_calloc(n, sizeof *cut->is_below)};
    bool has_all = cut->is_skipped != NULL && cut->is_ignored != NULL && cut->is_below != NULL;
    return has_all ? ND_OK : nd_fail_memory(err);
}

void nd_rerun_deinit(struct nd_rerun *cut)
{
    ND_FREE_ALL(cut->is_skipped, cut->is_ignored, cut->is_below);
    *cut = (struct nd_rerun){0};
}

/* The tensor of a tensor that a node uses or makes. */
static size_t tensor_of(const struct nd_model *model, size_t tensor)
{
    return tensor != ND_NO_INDEX ? model->tensor_of_value[tensor] : ND_NO_INDEX;
}

/* Forward: what depends on a changed tensor. is_below has one entry for each tensor. */
static void mark_below(const struct nd_model *model, bool *value_below, bool *tensor_below)
{
    const struct nd_graph *graph = &model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const struct nd_graph_node *node = &graph->nodes[n];
        bool is_below = false;
        for (size_t i = 0; i < node->n_uses && !is_below; i++) {
            size_t value = graph->uses[node->first_use + i], tensor = tensor_of(model, value);
            is_below =
                value != ND_NO_INDEX && (value_below[value] || (tensor != ND_NO_INDEX && tensor_below[tensor]));
        }
        for (size_t i = 0; i < node->n_made && is_below; i++) {
            size_t value = graph->made[node->first_made + i], tensor = tensor_of(model, value);
            if (value != ND_NO_INDEX)
                value_below[value] = true;
            if (tensor != ND_NO_INDEX)
                tensor_below[tensor] = true;
        }
    }
}

/* What a walk over the nodes marks: [n_tensors], the tensors beside it in nd_rerun and edge_needed. */
struct marks {
    bool *below, *needed, *tensor_needed;
};

/* Whether the node has to run: something that it makes depends on a change, or is needed and not given. */
static bool has_to_run(const struct nd_model *model, const struct nd_graph_node *node,
                       const struct nd_rerun *cut, const struct marks *marks, const bool *is_given)
{
    for (size_t i = 0; i < node->n_made; i++) {
        size_t value = model->graph.made[node->first_made + i], tensor = tensor_of(model, value);
        bool has_tensor = tensor != ND_NO_INDEX;
        if (value == ND_NO_INDEX)
            continue;
        bool is_needed = marks->needed[value] || (has_tensor && marks->tensor_needed[tensor]);
        if (marks->below[value] || (has_tensor && cut->is_below[tensor]) ||
            (is_needed && !(has_tensor && is_given[tensor])))
            return true;
    }
    return false;
}

/* Backward: what nodes that have to run read. */
static void mark_needed(const struct nd_model *model, const struct nd_rerun *cut, const struct marks *marks,
                        const bool *is_given)
{
    const struct nd_graph *graph = &model->graph;
    for (size_t n = graph->n_nodes; n-- > 0;) {
        const struct nd_graph_node *node = &graph->nodes[n];
        if (!has_to_run(model, node, cut, marks, is_given))
            continue;
        for (size_t i = 0; i < node->n_uses; i++) {
            size_t value = graph->uses[node->first_use + i], tensor = tensor_of(model, value);
            if (value != ND_NO_INDEX)
                marks->needed[value] = true;
            if (tensor != ND_NO_INDEX)
                marks->tensor_needed[tensor] = true;
        }
    }
}

static enum nd_status make(struct nd_rerun *cut, const struct nd_model *model, const bool *is_given,
                           struct marks *marks, bool has_below, struct nd_error *err)
{
    size_t n_tensors = nd_model_n_tensors(model);
    bool has_all = marks->below != NULL && marks->needed != NULL && marks->tensor_needed != NULL;
    if (has_all && has_below)
        mark_below(model, marks->below, cut->is_below);
    if (has_all)
        mark_needed(model, cut, marks, is_given);
    for (size_t e = 0; e < n_tensors && has_all; e++) {
        cut->is_skipped[e] = !cut->is_below[e] && is_given[e];
        cut->is_ignored[e] = !cut->is_below[e] && !marks->tensor_needed[e];
    }
    ND_FREE_ALL(marks->below, marks->needed, marks->tensor_needed);
    return has_all ? ND_OK : nd_fail_memory(err);
}

static struct marks make_marks(const struct nd_model *model)
{
    const struct nd_graph *graph = &model->graph;
    return (struct marks){.below = nd_calloc(graph->n_tensors, sizeof(bool)),
                          .needed = nd_calloc(graph->n_tensors, sizeof(bool)),
                          .tensor_needed = nd_calloc(nd_model_n_tensors(model), sizeof(bool))};
}

enum nd_status nd_rerun_make(struct nd_rerun *cut, const struct nd_model *model, const bool *is_changed,
                             const bool *is_given, const bool *is_input_changed, struct nd_error *err)
{
    struct marks marks = make_marks(model);
    memcpy(cut->is_below, is_changed, nd_model_n_tensors(model) * sizeof *is_changed);
    for (size_t i = 0; i < model->n_inputs && is_input_changed != NULL && marks.below != NULL; i++) {
        size_t tensor = nd_names_find(&model->graph.names, model->inputs[i].name);
        if (tensor != ND_NO_INDEX)
            marks.below[tensor] = is_input_changed[i];
    }
    return make(cut, model, is_given, &marks, true, err);
}

enum nd_status nd_rerun_alone(struct nd_rerun *cut, const struct nd_model *model, const bool *is_wanted,
                              const bool *is_given, struct nd_error *err)
{
    struct marks marks = make_marks(model);
    memcpy(cut->is_below, is_wanted, nd_model_n_tensors(model) * sizeof *is_wanted);
    return make(cut, model, is_given, &marks, false, err);
}
