/* An emulated device at work. */
#include "exact/emulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "exact/emulate_internal.h"

/* What is kept of an edge from one call to the next. */
struct edge_state {
    struct nd_array shown;  /* of a fused edge: the codes that it would have had */
    struct nd_array plain;  /* of a reader of one: what its program made of what it read */
    struct nd_array now;    /* of a stale edge: what this sample should have given */
    struct nd_array before; /* and the sample before */
    struct nd_wide *steps;  /* [n_steps] of its accumulator, where that is at fault */
    size_t n_steps;
    size_t first_truth;
};

struct nd_emulator {
    const struct nd_model *model;
    const struct nd_exact_graph *graph;
    struct nd_emu_binding binding;
    struct edge_state *edges; /* [binding.n_edges] */
    const char **names;
    struct nd_emu_truth *truth;
    size_t n_truth;
    bool has_fused;
    struct nd_array *seen; /* [n_edges] the codes of the run, where something is fused */
    bool *is_seen;         /* [n_edges]: need not be computed in the second run */
    bool is_recounting;    /* the second run: readers of fused edges, on codes */
    uint64_t seed, n_repeats, n_runs;
    nd_exact_found *found; /* of the run at hand */
    void *context;
};

/* A unit on its way from values to codes. */
struct work {
    struct nd_emulator *emulator;
    const struct nd_exact_values *values;
    const struct nd_emu_unit *unit;
    struct edge_state *state;
    struct nd_emu_channels channels;
    const struct nd_ratio *v; /* those of values, or own */
    struct nd_ratio *own;
    double *offsets; /* [n] beside the zero point, or NULL */
    struct nd_array before;
    size_t next_truth;
};

static uint64_t sample_of(const struct nd_emulator *emulator)
{
    return emulator->n_runs / emulator->n_repeats;
}

/* ---- rounding ---- */

static double round_one(const struct nd_emu_program *program, const struct nd_ratio *v, uint64_t key, size_t i)
{
    struct nd_place place = nd_place_of(v);
    if (program == NULL)
        return nd_round_place(&place, ND_ROUND_HALF_EVEN);
    if (!program->is_stochastic)
        return nd_program_round(&program->program, v, &place);
    bool is_up = !place.is_whole && nd_emu_uniform(key, i) < place.fraction;
    return place.floor + (is_up ? 1 : 0) + 0.0;
}

static double clip(const struct work *work, size_t i, double rounded)
{
    const struct nd_exact_values *values = work->values;
    double low, high;
    size_t channel = nd_exact_channel(values->quant, values->shape, i);
    double zero = (double)values->quant->zero_point[channel] + (work->offsets != NULL ? work->offsets[i] : 0);
    nd_code_range(values->dtype, &low, &high);
    return fmin(fmax(rounded + zero, low), high);
}

static void round_all(const struct work *work, const struct nd_emu_program *program, struct nd_array *codes)
{
    uint64_t key = 0;
    if (program != NULL && program->is_stochastic)
        key = nd_emu_key(program->seed, work->emulator->names[work->values->edge], sample_of(work->emulator));
    for (size_t i = 0; i < codes->n; i++)
        codes->x[i] = clip(work, i, round_one(program, &work->v[i], key, i));
}

/* ---- counting ---- */

static uint64_t count_differing(const struct nd_array *a, const struct nd_array *b)
{
    uint64_t n = 0;
    for (size_t i = 0; i < a->n; i++)
        n += a->x[i] != b->x[i];
    return n;
}

/* A fault begins: what the codes are until now. */
static enum nd_status begin(struct work *work, const struct nd_array *codes, struct nd_error *err)
{
    return nd_array_copy(codes, &work->before, err);
}

static void end(struct work *work, const struct nd_array *codes)
{
    work->emulator->truth[work->next_truth++].n_changed += count_differing(codes, &work->before);
}

/* ---- faults of values ---- */

static enum nd_status own_values(struct work *work, struct nd_error *err)
{
    size_t n = work->values->n;
    if (work->own != NULL)
        return ND_OK;
    work->own = nd_calloc(n, sizeof *work->own);
    work->offsets = nd_calloc(n, sizeof *work->offsets);
    if (work->own == NULL || work->offsets == NULL)
        return nd_fail_memory(err);
    memcpy(work->own, work->v, n * sizeof *work->own);
    work->v = work->own;
    return ND_OK;
}

static double confine(enum nd_emu_word word, double accumulator, int64_t n_bits)
{
    double half = ldexp(1, (int)n_bits - 1);
    if (word == ND_EMU_SATURATE)
        return fmin(fmax(accumulator, -half), half - 1);
    return accumulator - 2 * half * floor((accumulator + half) / (2 * half));
}

/* The output channel of the weights: axis 1 of a convolution, else the last. */
static size_t product_channel(const struct work *work, size_t i)
{
    const struct nd_shape *shape = work->values->shape;
    bool is_conv =
        nd_emu_has_operator(nd_model_edge(work->emulator->model, work->values->edge)->op_types, "Conv");
    size_t n_inner = 1;
    if (shape->rank == 0 || (is_conv && shape->rank < 2))
        return 0;
    for (int d = is_conv ? 2 : shape->rank; d < shape->rank; d++)
        n_inner *= (size_t)shape->dims[d];
    return i / n_inner % (size_t)shape->dims[is_conv ? 1 : shape->rank - 1];
}

/* A whole number, but for a bias whose float32 scale is not quite the product of the two. */
static void confine_value(const struct work *work, const struct nd_emu_item *item, size_t i, struct nd_ratio *v)
{
    const struct nd_quant *quant = work->values->quant;
    const struct nd_wide *step = &work->state->steps[product_channel(work, i) % work->state->n_steps];
    double scale = (double)quant->scale[nd_exact_channel(quant, work->values->shape, i)];
    double accumulator = rint(nd_ratio_value(v) * scale / step->parts[0]);
    double confined = confine(item->word, accumulator, item->first);
    if (confined != accumulator && isfinite(accumulator))
        *v = (struct nd_ratio){nd_wide_scale(*step, confined), nd_wide_from(scale)};
}

static void change_value(const struct work *work, const struct nd_emu_item *item, size_t i)
{
    int64_t channel = (int64_t)(i / work->channels.n_inner % work->channels.n);
    struct nd_ratio *v = &work->own[i];
    if (item->word == ND_EMU_SATURATE || item->word == ND_EMU_WRAP)
        confine_value(work, item, i, v);
    else if (item->channel >= 0 && item->channel != channel)
        return;
    else if (item->word == ND_EMU_SCALE)
        v->numerator = nd_wide_scale(v->numerator, item->real);
    else
        work->offsets[i] += (double)item->first;
}

/* ---- faults of codes ---- */

/* Of a stale edge: what it should show is kept for the next sample. */
static enum nd_status remember(const struct work *work, const struct nd_array *codes, struct nd_error *err)
{
    if (work->emulator->n_runs % work->emulator->n_repeats != 0)
        return ND_OK;
    struct nd_array oldest = work->state->before;
    work->state->before = work->state->now;
    work->state->now = oldest;
    return nd_array_copy(codes, &work->state->now, err);
}

static enum nd_status spoil(const struct work *work, const struct nd_emu_item *item, struct nd_array *codes,
                            struct nd_error *err)
{
    const struct nd_emulator *emulator = work->emulator;
    const struct nd_emu_scene scene = {.item = item,
                                       .name = emulator->names[work->values->edge],
                                       .values = work->values,
                                       .channels = work->channels,
                                       .seed = emulator->seed,
                                       .run = emulator->n_runs,
                                       .before = &work->state->before};
    enum nd_status status = item->word == ND_EMU_STALE ? remember(work, codes, err) : ND_OK;
    return status == ND_OK ? nd_emu_spoil(&scene, codes, err) : status;
}

/* ---- a unit ---- */

static enum nd_status apply(struct work *work, const struct nd_emu_item *item, struct nd_array *codes,
                            struct nd_error *err)
{
    enum nd_status status = begin(work, codes, err);
    if (status == ND_OK && nd_emu_is_of_codes(item->word)) {
        status = spoil(work, item, codes, err);
    } else if (status == ND_OK) {
        status = own_values(work, err);
        for (size_t i = 0; i < work->values->n && status == ND_OK; i++)
            change_value(work, item, i);
        if (status == ND_OK)
            round_all(work, work->unit->program, codes);
    }
    if (status == ND_OK)
        end(work, codes);
    return status;
}

static enum nd_status make_codes(struct work *work, struct nd_array *codes, struct nd_error *err)
{
    const struct nd_emu_unit *unit = work->unit;
    enum nd_status status = ND_OK;
    round_all(work, unit->usual, codes);
    if (!nd_emu_is_same_program(unit->usual, unit->program)) {
        status = begin(work, codes, err);
        round_all(work, unit->program, codes);
        if (status == ND_OK)
            end(work, codes);
    }
    if (status == ND_OK && unit->reads_fused)
        status = nd_array_copy(codes, &work->state->plain, err);
    for (size_t i = 0; i < unit->n_faults && status == ND_OK; i++)
        status = apply(work, unit->faults[i], codes, err);
    if (status != ND_OK || !unit->is_fused)
        return status;
    status = nd_array_copy(codes, &work->state->shown, err);
    for (size_t i = 0; i < codes->n && status == ND_OK; i++)
        codes->x[i] = clip(work, i, nd_ratio_value(&work->v[i]));
    return status;
}

/* The place of a reader of fused edges among the truths: behind its own faults. */
static size_t truth_of_fuse(const struct nd_emu_unit *unit, const struct edge_state *state)
{
    return state->first_truth + !nd_emu_is_same_program(unit->usual, unit->program) + unit->n_faults;
}

static enum nd_status round_unit(void *context, const struct nd_exact_values *values, struct nd_array *codes,
                                 struct nd_error *err)
{
    struct nd_emulator *emulator = context;
    static const struct nd_emu_unit no_unit;
    struct edge_state *state = &emulator->edges[values->edge];
    struct work work = {.emulator = emulator, .values = values, .v = values->v, .state = state};
    work.unit =
        emulator->binding.units[values->edge].is_unit ? &emulator->binding.units[values->edge] : &no_unit;
    work.channels = nd_emu_channels_of(values->quant, values->shape,
                                       nd_model_edge(emulator->model, values->edge)->op_types);
    work.next_truth = state->first_truth;
    enum nd_status status = ND_OK;
    if (!emulator->is_recounting) {
        status = make_codes(&work, codes, err);
    } else {
        round_all(&work, work.unit->program, codes);
        if (work.unit->reads_fused)
            emulator->truth[truth_of_fuse(work.unit, state)].n_changed += count_differing(codes, &state->plain);
    }
    nd_array_deinit(&work.before);
    free(work.own);
    free(work.offsets);
    return status;
}

/* ---- a run ---- */

static enum nd_status show(void *context, size_t edge, const struct nd_array *values, enum nd_exact_way way,
                           struct nd_error *err)
{
    struct nd_emulator *emulator = context;
    const struct nd_array *shown =
        emulator->binding.units[edge].is_fused ? &emulator->edges[edge].shown : values;
    enum nd_status status = ND_OK;
    if (emulator->has_fused && nd_dtype_is_integer(nd_model_edge(emulator->model, edge)->dtype)) {
        status = nd_array_copy(shown, &emulator->seen[edge], err);
        emulator->is_seen[edge] = !emulator->binding.units[edge].reads_fused;
    }
    return status == ND_OK ? emulator->found(emulator->context, edge, shown, way, err) : status;
}

/* The readers of fused edges once more, on codes: how many of theirs the fusion changed. */
static enum nd_status recount(struct nd_emulator *emulator, const struct nd_array *inputs, struct nd_error *err)
{
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_unit,
                                             .given = emulator->seen,
                                             .is_skipped = emulator->is_seen};
    emulator->is_recounting = true;
    enum nd_status status = nd_exact_graph_run(emulator->graph, inputs, &options, NULL, emulator, err);
    emulator->is_recounting = false;
    return status;
}

enum nd_status nd_emulator_run(struct nd_emulator *emulator, const struct nd_array *inputs,
                               nd_exact_found *found, void *context, struct nd_error *err)
{
    const struct nd_exact_options options = {.struct_size = sizeof options, .round = round_unit};
    emulator->found = found;
    emulator->context = context;
    enum nd_status status = nd_exact_graph_run(emulator->graph, inputs, &options, show, emulator, err);
    if (status == ND_OK && emulator->has_fused)
        status = recount(emulator, inputs, err);
    emulator->n_runs++;
    return status;
}

/* ---- making one ---- */

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

static enum nd_status find_steps(struct nd_emulator *emulator, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t e = 0; e < emulator->binding.n_edges; e++) {
        const struct nd_emu_unit *unit = &emulator->binding.units[e];
        struct edge_state *state = &emulator->edges[e];
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
        free(e->edges[i].steps);
    }
    free(e->edges);
    free(e->names);
    free(e->seen);
    free(e->is_seen);
    free(e->truth);
    nd_emu_unbind(&e->binding);
    free(e);
    *emulator = NULL;
}

const struct nd_emu_truth *nd_emulator_truth(const struct nd_emulator *emulator, size_t *n)
{
    *n = emulator->n_truth;
    return emulator->truth;
}
