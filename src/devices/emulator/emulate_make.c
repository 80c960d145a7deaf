/* Emulated devices are made, and taken apart. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "devices/emulator/emulate_internal.h"

static void add_truth(struct nd_emulator *emulator, size_t edge, const char *kind)
{
    emulator->truth[emulator->n_truth++] = (struct nd_emu_truth){.edge = emulator->names[edge], .kind = kind};
}

/* One after the other as round_unit meets them. */
static enum nd_status list_truth(struct nd_emulator *emulator, struct nd_error *err)
{
    const struct nd_emu_binding *binding = &emulator->binding;
    size_t n = 0;
    for (size_t e = 0; e < binding->n_edges; e++)
        n += binding->units[e].n_faults + 2;
    emulator->truth = nd_calloc(n, sizeof *emulator->truth);
    if (emulator->truth == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < binding->n_edges; e++) {
        const struct nd_emu_unit *unit = &binding->units[e];
        emulator->edges[e].first_truth = emulator->n_truth;
        if (!nd_emu_is_same_program(unit->usual, unit->program))
            add_truth(emulator, e,
                      unit->program_word == ND_EMU_ROUND ? "rounding" : nd_emu_word_name(ND_EMU_FALLBACK));
        for (size_t i = 0; i < unit->n_faults; i++)
            add_truth(emulator, e, nd_emu_word_name(unit->faults[i]->word));
        if (unit->reads_fused)
            add_truth(emulator, e, nd_emu_word_name(ND_EMU_FUSE));
        emulator->has_fused = emulator->has_fused || unit->is_fused;
    }
    return ND_OK;
}

/* Of a unit whose program works on one; units without it stay as they are. */
static bool needs_steps(const struct nd_emu_program *program)
{
    return program != NULL && program->is_of_table && nd_arithmetic_needs_accumulator(&program->arithmetic);
}

static enum nd_status find_steps(struct nd_emulator *emulator, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t e = 0; e < emulator->binding.n_edges; e++) {
        const struct nd_emu_unit *unit = &emulator->binding.units[e];
        struct nd_emu_edge *state = &emulator->edges[e];
        struct nd_error ignored = {0};
        if (needs_steps(unit->usual) || needs_steps(unit->program))
            status = nd_exact_accumulator_steps(emulator->graph, e, &state->steps, &state->n_steps, &ignored);
        if (status == ND_ERR_UNSUPPORTED)
            status = ND_OK;
        for (size_t i = 0; i < unit->n_faults && status == ND_OK; i++) {
            const struct nd_emu_item *item = unit->faults[i];
            if ((item->word != ND_EMU_SATURATE && item->word != ND_EMU_WRAP) || state->steps != NULL)
                continue;
            status = nd_exact_accumulator_steps(emulator->graph, e, &state->steps, &state->n_steps, err);
            if (status != ND_OK)
                nd_error_context(err, "item '%s'", item->text);
        }
    }
    return status;
}

static enum nd_status make_tables(struct nd_emulator *emulator, const struct nd_emulator_options *options,
                                  struct nd_error *err)
{
    size_t n = emulator->binding.n_edges;
    emulator->edges = nd_calloc(n, sizeof *emulator->edges);
    emulator->names = nd_calloc(n, sizeof *emulator->names);
    emulator->seen = nd_calloc(n, sizeof *emulator->seen);
    emulator->is_seen = nd_calloc(n, sizeof *emulator->is_seen);
    if (emulator->edges == NULL || emulator->names == NULL || emulator->seen == NULL ||
        emulator->is_seen == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < n; e++) {
        emulator->names[e] =
            options->names != NULL ? options->names[e] : nd_model_edge(emulator->model, e)->name;
        emulator->seen[e].shape.rank = -1;
    }
    return ND_OK;
}

enum nd_status nd_emulator_create(const struct nd_emulation *emulation, const struct nd_model *model,
                                  const struct nd_exact_graph *graph, const struct nd_emulator_options *options,
                                  struct nd_emulator **out, struct nd_error *err)
{
    struct nd_emulator *emulator = nd_calloc(1, sizeof *emulator);
    if (emulator == NULL)
        return nd_fail_memory(err);
    emulator->model = model;
    emulator->graph = graph;
    emulator->seed = emulation->seed;
    emulator->n_repeats = options->n_repeats > 0 ? options->n_repeats : 1;
    enum nd_status status =
        nd_emu_bind(emulation, model, options->names, options->is_partial, &emulator->binding, err);
    if (status == ND_OK)
        status = nd_unit_memory_create(nd_model_n_edges(model), &emulator->memory, err);
    if (status == ND_OK)
        status = make_tables(emulator, options, err);
    if (status == ND_OK)
        status = list_truth(emulator, err);
    if (status == ND_OK)
        status = find_steps(emulator, err);
    if (status == ND_OK)
        *out = emulator;
    else
        nd_emulator_destroy(&emulator);
    return status;
}

void nd_emulator_destroy(struct nd_emulator **emulator)
{
    struct nd_emulator *e = *emulator;
    if (e == NULL)
        return;
    for (size_t i = 0; i < e->binding.n_edges; i++) {
        if (e->seen != NULL)
            nd_array_deinit(&e->seen[i]);
        if (e->edges == NULL)
            continue;
        nd_array_deinit(&e->edges[i].shown);
        nd_array_deinit(&e->edges[i].plain);
        nd_array_deinit(&e->edges[i].now);
        nd_array_deinit(&e->edges[i].before);
        nd_array_deinit(&e->edges[i].made[0]);
        nd_array_deinit(&e->edges[i].made[1]);
        free(e->edges[i].steps);
    }
    free(e->edges);
    free(e->names);
    free(e->seen);
    free(e->is_seen);
    free(e->truth);
    nd_unit_memory_destroy(&e->memory);
    nd_emu_unbind(&e->binding);
    free(e);
    *emulator = NULL;
}

const struct nd_emu_truth *nd_emulator_truth(const struct nd_emulator *emulator, size_t *n)
{
    *n = emulator->n_truth;
    return emulator->truth;
}
