/* Nodes of an NPU device that run on the CPU. Every capture of a campaign is made with leave to fall back, so
 * that it is the same whatever the policy asks: here is decided what a fallback means. */
#include <string.h>

#include "core/text/strbuf.h"
#include "judge/release/qualify.h"

static bool is_io_quantisation(const struct nd_model *model, const char *name)
{
    for (size_t i = 0; i < nd_model_n_nodes(model); i++)
        if (strcmp(nd_model_node(model, i)->name, name) == 0)
            return nd_model_node(model, i)->is_io_quantisation;
    return false;
}

/* Whether the node fell only because tensors were recorded: not the device's doing. */
static bool is_moved(const char *moved, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = moved; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0 && (line[n] == '\0' || line[n] == '\n'))
            return true;
    }
    return false;
}

static bool is_quantiser(const struct nd_capture_node *node)
{
    return strcmp(node->op_type, "QuantizeLinear") == 0 || strcmp(node->op_type, "DequantizeLinear") == 0;
}

void nd_qualify_find_fallback(const struct nd_qualify_cell *cell, const struct nd_texts *allow,
                              struct nd_fallback *out)
{
    const struct nd_capture_node *quantiser = NULL, *other = NULL;
    size_t n_allowed = 0, n_quantisers = 0, n_others = 0;
    const char *moved = nd_capture_string(cell->capture, "runtime", "moved_by_recording");
    *out = (struct nd_fallback){.n_nodes = nd_capture_n_nodes(cell->capture)};
    for (size_t i = 0; i < out->n_nodes && nd_device_is_npu(cell->device.kind); i++) {
        const struct nd_capture_node *node = nd_capture_node(cell->capture, i);
        if (strcmp(node->provider, "CPUExecutionProvider") != 0 || is_io_quantisation(cell->model, node->name))
            continue;
        if (is_moved(moved, node->name))
            out->moved = out->n_moved++ == 0 ? node : out->moved;
        else if (allow->n > 0 && (nd_texts_match(allow, node->name) || nd_texts_match(allow, node->op_type)))
            n_allowed++;
        else if (is_quantiser(node))
            quantiser = n_quantisers++ == 0 ? node : quantiser;
        else
            other = n_others++ == 0 ? node : other;
    }
    if (n_allowed > 0) /* an operator that may fall back takes the quantisers around it along */
        n_quantisers = 0;
    out->n_fallen = n_others + n_quantisers;
    out->first = n_others > 0 ? other : n_quantisers > 0 ? quantiser : NULL;
}

static bool has_gate(const struct nd_qualification *q, const char *model, const char *device)
{
    for (size_t r = 0; r < q->campaign.policy.n; r++) {
        const struct nd_policy_rule *rule = &q->campaign.policy.rules[r];
        if (rule->gate == ND_POLICY_FALLBACK && nd_texts_match(&rule->models, model) &&
            nd_texts_match(&rule->devices, device))
            return true;
    }
    return false;
}

enum nd_status nd_qualify_note_fallback(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                        struct nd_qualify_cell *cell, struct nd_error *err)
{
    static const struct nd_texts none = {0};
    struct nd_fallback found;
    struct nd_strbuf text = {0};
    if (cell->failure != NULL || has_gate(q, model->campaign->name, cell->label))
        return ND_OK;
    nd_qualify_find_fallback(cell, &none, &found);
    if (found.n_fallen == 0)
        return ND_OK;
    nd_strbuf_printf(&text,
                     "placement: node '%s' (%s) runs on the CPU, and no gate 'fallback' is about it; "
                     "%zu of %zu nodes do",
                     found.first->name, found.first->op_type, found.n_fallen, found.n_nodes);
    cell->failure = nd_strbuf_take(&text);
    return cell->failure != NULL ? ND_OK : nd_fail_memory(err);
}

void nd_qualify_add_moved_finding(const struct nd_qualification *q, const struct nd_qualify_cell *cell,
                                  struct nd_qualified_texts *findings)
{
    static const struct nd_texts none = {0};
    struct nd_fallback found;
    nd_qualify_find_fallback(cell, &none, &found);
    if (found.n_moved > 0)
        findings->items[findings->n++] =
            nd_arena_printf(q->arena,
                            "recording tensors moves %zu of %zu nodes to the CPU, first '%s' (%s): their "
                            "values are not the NPU's",
                            found.n_moved, found.n_nodes, found.moved->name, found.moved->op_type);
}
