/* What the items of an emulated device mean in a model. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/nearest.h"
#include "devices/emulator/emulate_internal.h"

struct bind {
    const struct nd_emulation *emulation;
    const struct nd_model *model;
    const char *const *names;
    bool is_partial;
    struct nd_emu_binding out;
};

enum { N_NEAREST = 5 };

bool nd_emu_is_same_program(const struct nd_emu_program *a, const struct nd_emu_program *b)
{
    static const struct nd_emu_program half_even;
    a = a != NULL ? a : &half_even;
    b = b != NULL ? b : &half_even;
    if (a->unit != NULL || b->unit != NULL)
        return a->unit == b->unit;
    if (a->is_stochastic || b->is_stochastic)
        return a->is_stochastic == b->is_stochastic && a->seed == b->seed;
    if (a->is_of_table || b->is_of_table)
        return a->is_of_table == b->is_of_table && nd_arithmetic_is_same(&a->arithmetic, &b->arithmetic);
    return a->program.kind == b->program.kind && a->program.rounding == b->program.rounding &&
           a->program.n_bits == b->program.n_bits;
}

bool nd_emu_is_of_codes(enum nd_emu_word word)
{
    return word != ND_EMU_SCALE && word != ND_EMU_ZERO_POINT && word != ND_EMU_SATURATE && word != ND_EMU_WRAP;
}

/* ---- names that are not there ---- */

/* Up to N_NEAREST candidates that are most like the name, quoted, the nearest first; they are taken out. */
static void put_nearest(struct nd_strbuf *text, const char *name, const char **candidates, size_t n)
{
    for (size_t i = 0; i < N_NEAREST && n > 0; i++) {
        size_t best = nd_word_nearest(name, candidates, n--, sizeof *candidates);
        nd_strbuf_printf(text, "%s'%s'", i > 0 ? ", " : "", candidates[best]);
        memmove(candidates + best, candidates + best + 1, (n - best) * sizeof *candidates);
    }
}

static const char *edge_name(const struct bind *bind, size_t edge)
{
    return bind->names != NULL ? bind->names[edge] : nd_model_edge(bind->model, edge)->name;
}

/* The names of all edges that are units. Freed by the caller; NULL when memory is out. */
static const char **unit_names(const struct bind *bind, size_t *n)
{
    const char **names = nd_calloc(bind->out.n_edges, sizeof *names);
    *n = 0;
    for (size_t e = 0; names != NULL && e < bind->out.n_edges; e++)
        if (bind->out.units[e].is_unit)
            names[(*n)++] = edge_name(bind, e);
    return names;
}

static enum nd_status fail_edge(const struct bind *bind, const struct nd_emu_item *item, bool is_there,
                                struct nd_error *err)
{
    size_t n;
    struct nd_strbuf near = {0};
    const char **names = unit_names(bind, &n);
    if (names == NULL)
        return nd_fail_memory(err);
    put_nearest(&near, item->edge, names, n);
    const char *text = near.text != NULL ? near.text : "none";
    enum nd_status status =
        is_there
            ? nd_fail(err, ND_E_DEVICE_PROFILE, item->edge,
                      "item '%s': edge '%s' is not made by a unit with fixed scales; such are %s", item->text,
                      item->edge, text)
            : nd_fail(err, ND_E_MODEL_NO_EDGE, item->edge,
                      "item '%s': the model has no edge '%s'; near it are %s", item->text, item->edge, text);
    nd_strbuf_deinit(&near);
    free(names);
    return status;
}

/* Every operator once, of all units. Freed by the caller: the array and the text that it points into. */
static const char **list_operators(const struct bind *bind, char **text, size_t *n)
{
    struct nd_strbuf all = {0};
    size_t n_all = 1;
    for (size_t e = 0; e < bind->out.n_edges; e++)
        if (bind->out.units[e].is_unit)
            nd_strbuf_printf(&all, "%s+", nd_model_edge(bind->model, e)->op_types);
    *text = nd_strbuf_take(&all);
    *n = 0;
    for (const char *at = *text; at != NULL && *at != '\0'; at++)
        n_all += *at == '+';
    const char **names = *text != NULL ? nd_calloc(n_all, sizeof *names) : NULL;
    char *rest = *text, *word;
    while (names != NULL && (word = strsep(&rest, "+")) != NULL) {
        bool is_new = *word != '\0';
        for (size_t i = 0; i < *n; i++)
            is_new = is_new && strcmp(names[i], word) != 0;
        if (is_new)
            names[(*n)++] = word;
    }
    return names;
}

static enum nd_status fail_operator(const struct bind *bind, const struct nd_emu_item *item,
                                    struct nd_error *err)
{
    size_t n;
    char *text;
    struct nd_strbuf near = {0};
    const char **names = list_operators(bind, &text, &n);
    enum nd_status status = names != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK) {
        put_nearest(&near, item->op_type, names, n);
        status = nd_fail(err, ND_E_DEVICE_PROFILE, item->op_type,
                         "item '%s': no unit of the model has an operator '%s'; near it are %s", item->text,
                         item->op_type, near.text != NULL ? near.text : "none");
    }
    nd_strbuf_deinit(&near);
    free(names);
    free(text);
    return status;
}

/* ---- binding ---- */

static void find_units(struct bind *bind)
{
    for (size_t u = 0; u < nd_model_n_units(bind->model); u++) {
        size_t e = nd_model_unit(bind->model, u)->edge;
        const struct nd_edge *edge = nd_model_edge(bind->model, e);
        bind->out.units[e].is_unit = edge->quant.n > 0 && nd_dtype_is_integer(edge->dtype);
    }
}

/* Whether the edge's codes are those of the tensor. The output of a model that was cut behind a quantiser has
 * the quantiser's name, and the same edge of the whole model does not. */
static bool has_codes_of(const struct bind *bind, size_t edge, const char *tensor)
{
    const char *codes = nd_model_edge(bind->model, edge)->onnx_name;
    size_t n = strlen(tensor);
    return strncmp(codes, tensor, n) == 0 && strcmp(codes + n, "_QuantizeLinear_Output") == 0;
}

/* ND_NO_INDEX where a part of a model lacks it. */
static enum nd_status find_edge(const struct bind *bind, const struct nd_emu_item *item, size_t *out,
                                struct nd_error *err)
{
    *out = SIZE_MAX;
    for (size_t e = 0; e < bind->out.n_edges; e++)
        if (strcmp(edge_name(bind, e), item->edge) == 0)
            *out = e;
    for (size_t e = 0; e < bind->out.n_edges && *out == SIZE_MAX; e++)
        if (has_codes_of(bind, e, item->edge))
            *out = e;
    if (*out == SIZE_MAX)
        return bind->is_partial ? ND_OK : fail_edge(bind, item, false, err);
    return bind->out.units[*out].is_unit ? ND_OK : fail_edge(bind, item, true, err);
}

static enum nd_status set_operators(struct bind *bind, const struct nd_emu_item *item, bool is_usual,
                                    struct nd_error *err)
{
    bool is_found = bind->is_partial;
    for (size_t e = 0; e < bind->out.n_edges; e++) {
        struct nd_emu_unit *unit = &bind->out.units[e];
        if (!unit->is_unit || (item->op_type != NULL &&
                               !nd_emu_has_operator(nd_model_edge(bind->model, e)->op_types, item->op_type)))
            continue;
        is_found = true;
        if (is_usual)
            unit->usual = &item->program;
        unit->program = &item->program;
        unit->program_word = item->word;
    }
    return is_found || item->op_type == NULL ? ND_OK : fail_operator(bind, item, err);
}

/* From the least to the most specific: what comes later has the last word. */
static enum nd_status set_programs(struct bind *bind, struct nd_error *err)
{
    enum { OF_ALL, OF_OPERATORS, FALLBACKS, OF_EDGES, N_LEVELS };
    const struct nd_emulation *emulation = bind->emulation;
    enum nd_status status = ND_OK;
    for (int level = OF_ALL; level < N_LEVELS; level++)
        for (size_t i = 0; i < emulation->n && status == ND_OK; i++) {
            const struct nd_emu_item *item = &emulation->items[i];
            int of = item->edge != NULL ? OF_EDGES : item->op_type != NULL ? OF_OPERATORS : OF_ALL;
            if (of == OF_OPERATORS && item->word == ND_EMU_FALLBACK)
                of = FALLBACKS;
            if (of != level || (item->word != ND_EMU_ROUND && item->word != ND_EMU_FALLBACK))
                continue;
            size_t e = SIZE_MAX;
            if (of != OF_EDGES)
                status = set_operators(bind, item, of != FALLBACKS, err);
            else
                status = find_edge(bind, item, &e, err);
            if (status != ND_OK || e == SIZE_MAX)
                continue;
            bind->out.units[e].program = &item->program;
            bind->out.units[e].program_word = item->word;
        }
    return status;
}

static enum nd_status check_product(const struct bind *bind, const struct nd_emu_item *item, size_t edge,
                                    struct nd_error *err)
{
    const char *op_types = nd_model_edge(bind->model, edge)->op_types;
    if (nd_emu_has_operator(op_types, "Conv") || nd_emu_has_operator(op_types, "Gemm") ||
        nd_emu_has_operator(op_types, "MatMul"))
        return ND_OK;
    return nd_fail(err, ND_E_DEVICE_PROFILE, item->edge,
                   "item '%s': '%s' is a unit of %s; only Conv, Gemm and MatMul have an accumulator",
                   item->text, item->edge, op_types);
}

/* What the shape of the edge rules out, where the model says it. */
static enum nd_status check_shape(const struct bind *bind, const struct nd_emu_item *item, size_t e,
                                  struct nd_error *err)
{
    const struct nd_edge *edge = nd_model_edge(bind->model, e);
    size_t n;
    if (edge->shape.rank < 0 || nd_shape_n_elems(&edge->shape, &n, NULL) != ND_OK)
        return ND_OK;
    struct nd_emu_channels channels = nd_emu_channels_of(&edge->quant, &edge->shape, edge->op_types);
    bool has_channel = item->word == ND_EMU_SCALE || item->word == ND_EMU_ZERO_POINT;
    if (has_channel && item->channel >= (int64_t)channels.n)
        return nd_fail(err, ND_E_DEVICE_PROFILE, item->edge, "item '%s': edge '%s' has %zu channels, from 0 on",
                       item->text, item->edge, channels.n);
    if (item->word == ND_EMU_WINDOW && (item->first >= (int64_t)n || item->second > (int64_t)n - item->first))
        return nd_fail(err, ND_E_DEVICE_PROFILE, item->edge, "item '%s': edge '%s' has %zu elements",
                       item->text, item->edge, n);
    if (item->word == ND_EMU_TRANSPOSE && edge->shape.rank != 3 && edge->shape.rank != 4)
        return nd_fail(err, ND_E_DEVICE_PROFILE, item->edge,
                       "item '%s': edge '%s' is of rank %d; 3 and 4 can be transposed", item->text, item->edge,
                       edge->shape.rank);
    return ND_OK;
}

static enum nd_status mark_readers(struct bind *bind, const struct nd_emu_item *item, size_t edge,
                                   struct nd_error *err)
{
    bool is_read = bind->is_partial;
    bind->out.units[edge].is_fused = true;
    for (size_t u = 0; u < nd_model_n_units(bind->model); u++) {
        const struct nd_model_unit *unit = nd_model_unit(bind->model, u);
        for (size_t i = 0; i < unit->n_inputs; i++)
            if (unit->inputs[i] == edge && bind->out.units[unit->edge].is_unit)
                is_read = bind->out.units[unit->edge].reads_fused = true;
    }
    if (is_read)
        return ND_OK;
    return nd_fail(err, ND_E_DEVICE_PROFILE, item->edge, "item '%s': no unit reads edge '%s'", item->text,
                   item->edge);
}

static enum nd_status add_fault(struct bind *bind, const struct nd_emu_item *item, struct nd_error *err)
{
    size_t e;
    enum nd_status status = find_edge(bind, item, &e, err);
    if (status != ND_OK || e == SIZE_MAX)
        return status;
    struct nd_emu_unit *unit = &bind->out.units[e];
    if (item->word == ND_EMU_FUSE)
        return mark_readers(bind, item, e, err);
    if (item->word == ND_EMU_SATURATE || item->word == ND_EMU_WRAP)
        status = check_product(bind, item, e, err);
    if (status == ND_OK)
        status = check_shape(bind, item, e, err);
    if (status == ND_OK && unit->faults == NULL) {
        unit->faults = nd_calloc(bind->emulation->n, sizeof(const struct nd_emu_item *));
        if (unit->faults == NULL)
            status = nd_fail_memory(err);
    }
    if (status == ND_OK)
        unit->faults[unit->n_faults++] = item;
    return status;
}

/* Faults of values come before those of codes. */
static enum nd_status add_faults(struct bind *bind, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (int of_codes = 0; of_codes < 2; of_codes++)
        for (size_t i = 0; i < bind->emulation->n && status == ND_OK; i++) {
            const struct nd_emu_item *item = &bind->emulation->items[i];
            bool is_fault =
                item->word != ND_EMU_ROUND && item->word != ND_EMU_FALLBACK && item->word != ND_EMU_SEED;
            if (is_fault && nd_emu_is_of_codes(item->word) == (of_codes != 0))
                status = add_fault(bind, item, err);
        }
    for (size_t e = 0; e < bind->out.n_edges && status == ND_OK; e++) {
        const struct nd_emu_unit *unit = &bind->out.units[e];
        for (size_t i = 0; i < unit->n_faults && unit->is_fused && status == ND_OK; i++)
            if (nd_emu_is_of_codes(unit->faults[i]->word))
                status = nd_fail(err, ND_E_DEVICE_PROFILE, unit->faults[i]->edge,
                                 "item '%s' works on codes, and those of '%s' are skipped by fuse",
                                 unit->faults[i]->text, unit->faults[i]->edge);
    }
    return status;
}

/* What a program of whole units makes of fractions is not known. */
static enum nd_status check_readers(const struct bind *bind, struct nd_error *err)
{
    for (size_t e = 0; e < bind->out.n_edges; e++) {
        const struct nd_emu_unit *unit = &bind->out.units[e];
        if (unit->reads_fused && unit->program != NULL && unit->program->unit != NULL)
            return nd_fail(err, ND_E_DEVICE_PROFILE, edge_name(bind, e),
                           "'%s' reads an edge that is fused, and '%s' is a program on codes",
                           edge_name(bind, e), unit->program->unit->name);
    }
    return ND_OK;
}

enum nd_status nd_emu_bind(const struct nd_emulation *emulation, const struct nd_model *model,
                           const char *const *names, bool is_partial, struct nd_emu_binding *out,
                           struct nd_error *err)
{
    struct bind bind = {.emulation = emulation,
                        .model = model,
                        .names = names,
                        .is_partial = is_partial,
                        .out.n_edges = nd_model_n_edges(model)};
    bind.out.units = nd_calloc(bind.out.n_edges, sizeof *bind.out.units);
    if (bind.out.units == NULL)
        return nd_fail_memory(err);
    find_units(&bind);
    enum nd_status status = set_programs(&bind, err);
    if (status == ND_OK)
        status = add_faults(&bind, err);
    if (status == ND_OK)
        status = check_readers(&bind, err);
    if (status == ND_OK)
        *out = bind.out;
    else
        nd_emu_unbind(&bind.out);
    return status;
}

void nd_emu_unbind(struct nd_emu_binding *binding)
{
    for (size_t e = 0; binding->units != NULL && e < binding->n_edges; e++)
        free(binding->units[e].faults);
    free(binding->units);
    *binding = (struct nd_emu_binding){0};
}

/* What can be written down of a device in one attribute of a capture. */
static enum nd_status check_size(const struct nd_emulation *emulation, const struct nd_model *model,
                                 const struct nd_emu_binding *binding, struct nd_error *err)
{
    enum { MAX_BYTES = 50000, NUMBER_BYTES = 21 };
    size_t profile_bytes = 0, truth_bytes = 0;
    for (size_t i = 0; i < emulation->n; i++)
        profile_bytes += strlen(emulation->items[i].text) + 1;
    for (size_t e = 0; e < binding->n_edges; e++) {
        const struct nd_emu_unit *unit = &binding->units[e];
        size_t n = unit->n_faults + unit->reads_fused + !nd_emu_is_same_program(unit->usual, unit->program);
        size_t name_bytes = strlen(nd_model_edge(model, e)->name) + 1;
        truth_bytes += n * (name_bytes > NUMBER_BYTES ? name_bytes : NUMBER_BYTES);
    }
    if (profile_bytes <= MAX_BYTES && truth_bytes <= MAX_BYTES)
        return ND_OK;
    return nd_fail(err, ND_E_DEVICE_PROFILE, NULL,
                   "the device has more items or faults than can be written down");
}

enum nd_status nd_emulation_check(const struct nd_emulation *emulation, const struct nd_model *model,
                                  struct nd_error *err)
{
    struct nd_emu_binding binding;
    enum nd_status status = nd_emu_bind(emulation, model, NULL, false, &binding, err);
    if (status != ND_OK)
        return status;
    status = check_size(emulation, model, &binding, err);
    nd_emu_unbind(&binding);
    return status;
}
