/* Emulated devices are made, and taken apart. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "devices/emulator/emulate_internal.h"

/* What the items of an emulated device mean in a model. */

struct bind {
    const struct nd_emulation *emulation;
    const struct nd_model *model;
    const char *const *names;
    bool is_partial;
    struct nd_emu_binding out;
};

enum { N_NEAREST = 5 };

struct nd_emu_channels nd_emu_channels_of(const struct nd_quant *quant, const struct nd_shape *shape,
                                          const char *op_types)
{
    bool is_conv = nd_emu_has_operator(op_types, "Conv") || nd_emu_has_operator(op_types, "ConvTranspose");
    int axis = shape->rank - 1;
    if (quant->n > 1)
        axis = quant->axis < 0 ? quant->axis + shape->rank : quant->axis;
    else if (shape->rank == 4 || (is_conv && shape->rank >= 3))
        axis = 1;
    struct nd_emu_channels channels = {1, 1};
    if (axis < 0)
        return channels;
    channels.n = (size_t)shape->dims[axis];
    for (int d = axis + 1; d < shape->rank; d++)
        channels.n_inner *= (size_t)shape->dims[d];
    return channels;
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

static const char *tensor_name(const struct bind *bind, size_t tensor)
{
    return bind->names != NULL ? bind->names[tensor] : nd_model_tensor(bind->model, tensor)->name;
}

/* The names of all tensors that are layers. Freed by the caller; NULL when memory is out. */
static const char **layer_names(const struct bind *bind, size_t *n)
{
    const char **names = nd_calloc(bind->out.n_tensors, sizeof *names);
    *n = 0;
    for (size_t e = 0; names != NULL && e < bind->out.n_tensors; e++)
        if (bind->out.layers[e].is_layer)
            names[(*n)++] = tensor_name(bind, e);
    return names;
}

static enum nd_status fail_tensor(const struct bind *bind, const struct nd_emu_item *item, bool is_there,
                                  struct nd_error *err)
{
    size_t n;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf near = {0};
    ND_FREED const char **names = layer_names(bind, &n);
    ND_TRY_MEMORY(names != NULL, err);
    put_nearest(&near, item->tensor, names, n);
    const char *text = near.text != NULL ? near.text : "none";
    return is_there ? nd_fail(err, ND_E_DEVICE_PROFILE, item->tensor,
                              "item '%s': tensor '%s' is not made by a layer with fixed scales; such are %s",
                              item->text, item->tensor, text)
                    : nd_fail(err, ND_E_MODEL_NO_TENSOR, item->tensor,
                              "item '%s': the model has no tensor '%s'; near it are %s", item->text,
                              item->tensor, text);
}

/* Every operator once, of all layers. Freed by the caller: the array and the text that it points into. */
static const char **list_operators(const struct bind *bind, char **text, size_t *n)
{
    struct nd_strbuf all = {0};
    size_t n_all = 1;
    for (size_t e = 0; e < bind->out.n_tensors; e++)
        if (bind->out.layers[e].is_layer)
            nd_strbuf_printf(&all, "%s+", nd_model_tensor(bind->model, e)->op_types);
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
    ND_FREED char *text = NULL;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf near = {0};
    ND_FREED const char **names = list_operators(bind, &text, &n);
    ND_TRY_MEMORY(names != NULL, err);
    put_nearest(&near, item->op_type, names, n);
    return nd_fail(err, ND_E_DEVICE_PROFILE, item->op_type,
                   "item '%s': no layer of the model has an operator '%s'; near it are %s", item->text,
                   item->op_type, near.text != NULL ? near.text : "none");
}

/* ---- binding ---- */

/* Whether the tensor's quantised values are those of the tensor. The output of a model that was cut behind a
 * quantiser has the quantiser's name, and the same tensor of the whole model does not. */
static bool has_qvalues_of(const struct bind *bind, size_t tensor, const char *item)
{
    const char *qvalues = nd_model_tensor(bind->model, tensor)->onnx_name;
    size_t n = strlen(item);
    return strncmp(qvalues, item, n) == 0 && strcmp(qvalues + n, "_QuantizeLinear_Output") == 0;
}

/* ND_NO_INDEX where a part of a model lacks it. */
static enum nd_status find_tensor(const struct bind *bind, const struct nd_emu_item *item, size_t *out,
                                  struct nd_error *err)
{
    *out = SIZE_MAX;
    for (size_t e = 0; e < bind->out.n_tensors; e++)
        if (strcmp(tensor_name(bind, e), item->tensor) == 0)
            *out = e;
    for (size_t e = 0; e < bind->out.n_tensors && *out == SIZE_MAX; e++)
        if (has_qvalues_of(bind, e, item->tensor))
            *out = e;
    if (*out == SIZE_MAX)
        return bind->is_partial ? ND_OK : fail_tensor(bind, item, false, err);
    return bind->out.layers[*out].is_layer ? ND_OK : fail_tensor(bind, item, true, err);
}

static enum nd_status set_operators(struct bind *bind, const struct nd_emu_item *item, bool is_usual,
                                    struct nd_error *err)
{
    bool is_found = bind->is_partial;
    for (size_t e = 0; e < bind->out.n_tensors; e++) {
        struct nd_emu_layer *layer = &bind->out.layers[e];
        if (!layer->is_layer ||
            (item->op_type != NULL &&
             !nd_emu_has_operator(nd_model_tensor(bind->model, e)->op_types, item->op_type)))
            continue;
        is_found = true;
        if (is_usual)
            layer->usual = &item->arithmetic;
        layer->arithmetic = &item->arithmetic;
        layer->arithmetic_word = item->word;
    }
    return is_found || item->op_type == NULL ? ND_OK : fail_operator(bind, item, err);
}

/* From the least to the most specific: what comes later has the last word. */
static enum nd_status set_arithmetics(struct bind *bind, struct nd_error *err)
{
    enum { OF_ALL, OF_OPERATORS, FALLBACKS, OF_TENSORS, N_LEVELS };
    const struct nd_emulation *emulation = bind->emulation;
    enum nd_status status = ND_OK;
    for (int level = OF_ALL; level < N_LEVELS; level++)
        for (size_t i = 0; i < emulation->n && status == ND_OK; i++) {
            const struct nd_emu_item *item = &emulation->items[i];
            int of = item->tensor != NULL ? OF_TENSORS : item->op_type != NULL ? OF_OPERATORS : OF_ALL;
            if (of == OF_OPERATORS && item->word == ND_EMU_FALLBACK)
                of = FALLBACKS;
            if (of != level || (item->word != ND_EMU_ROUND && item->word != ND_EMU_FALLBACK))
                continue;
            size_t e = SIZE_MAX;
            if (of != OF_TENSORS)
                status = set_operators(bind, item, of != FALLBACKS, err);
            else
                status = find_tensor(bind, item, &e, err);
            if (status != ND_OK || e == SIZE_MAX)
                continue;
            bind->out.layers[e].arithmetic = &item->arithmetic;
            bind->out.layers[e].arithmetic_word = item->word;
        }
    return status;
}

static enum nd_status check_product(const struct bind *bind, const struct nd_emu_item *item, size_t tensor,
                                    struct nd_error *err)
{
    const char *op_types = nd_model_tensor(bind->model, tensor)->op_types;
    if (nd_emu_has_operator(op_types, "Conv") || nd_emu_has_operator(op_types, "Gemm") ||
        nd_emu_has_operator(op_types, "MatMul"))
        return ND_OK;
    return nd_fail(err, ND_E_DEVICE_PROFILE, item->tensor,
                   "item '%s': '%s' is a unit of %s; only Conv, Gemm and MatMul have an accumulator",
                   item->text, item->tensor, op_types);
}

/* What the shape of the tensor rules out, where the model says it. */
static enum nd_status check_shape(const struct bind *bind, const struct nd_emu_item *item, size_t e,
                                  struct nd_error *err)
{
    const struct nd_tensor *tensor = nd_model_tensor(bind->model, e);
    size_t n;
    if (tensor->shape.rank < 0 || nd_shape_n_elems(&tensor->shape, &n, NULL) != ND_OK)
        return ND_OK;
    struct nd_emu_channels channels = nd_emu_channels_of(&tensor->quant, &tensor->shape, tensor->op_types);
    bool has_channel = item->word == ND_EMU_SCALE || item->word == ND_EMU_ZERO_POINT;
    if (has_channel && item->channel >= (int64_t)channels.n)
        return nd_fail(err, ND_E_DEVICE_PROFILE, item->tensor,
                       "item '%s': tensor '%s' has %zu channels, from 0 on", item->text, item->tensor,
                       channels.n);
    if (item->word == ND_EMU_WINDOW && (item->first >= (int64_t)n || item->second > (int64_t)n - item->first))
        return nd_fail(err, ND_E_DEVICE_PROFILE, item->tensor, "item '%s': tensor '%s' has %zu elements",
                       item->text, item->tensor, n);
    if (item->word == ND_EMU_TRANSPOSE && tensor->shape.rank != 3 && tensor->shape.rank != 4)
        return nd_fail(err, ND_E_DEVICE_PROFILE, item->tensor,
                       "item '%s': tensor '%s' is of rank %d; 3 and 4 can be transposed", item->text,
                       item->tensor, tensor->shape.rank);
    return ND_OK;
}

static enum nd_status mark_readers(struct bind *bind, const struct nd_emu_item *item, size_t tensor,
                                   struct nd_error *err)
{
    bool is_read = bind->is_partial;
    bind->out.layers[tensor].is_fused = true;
    for (size_t u = 0; u < nd_model_n_layers(bind->model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(bind->model, u);
        for (size_t i = 0; i < layer->n_inputs; i++)
            if (layer->inputs[i] == tensor && bind->out.layers[layer->tensor].is_layer)
                is_read = bind->out.layers[layer->tensor].reads_fused = true;
    }
    if (is_read)
        return ND_OK;
    return nd_fail(err, ND_E_DEVICE_PROFILE, item->tensor, "item '%s': no layer reads tensor '%s'", item->text,
                   item->tensor);
}

static enum nd_status add_fault(struct bind *bind, const struct nd_emu_item *item, struct nd_error *err)
{
    size_t e;
    ND_TRY(find_tensor(bind, item, &e, err));
    if (e == SIZE_MAX)
        return ND_OK;
    struct nd_emu_layer *layer = &bind->out.layers[e];
    if (item->word == ND_EMU_FUSE)
        return mark_readers(bind, item, e, err);
    if (item->word == ND_EMU_SATURATE || item->word == ND_EMU_WRAP)
        ND_TRY(check_product(bind, item, e, err));
    ND_TRY(check_shape(bind, item, e, err));
    if (layer->faults == NULL) {
        layer->faults = nd_calloc(bind->emulation->n, sizeof(const struct nd_emu_item *));
        ND_TRY_MEMORY(layer->faults != NULL, err);
    }
    layer->faults[layer->n_faults++] = item;
    return ND_OK;
}

/* Faults of values come before those of quantised values. */
static enum nd_status add_faults(struct bind *bind, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (int of_qvalues = 0; of_qvalues < 2; of_qvalues++)
        for (size_t i = 0; i < bind->emulation->n && status == ND_OK; i++) {
            const struct nd_emu_item *item = &bind->emulation->items[i];
            bool is_fault =
                item->word != ND_EMU_ROUND && item->word != ND_EMU_FALLBACK && item->word != ND_EMU_SEED;
            if (is_fault && nd_emu_is_of_qvalues(item->word) == (of_qvalues != 0))
                status = add_fault(bind, item, err);
        }
    for (size_t e = 0; e < bind->out.n_tensors && status == ND_OK; e++) {
        const struct nd_emu_layer *layer = &bind->out.layers[e];
        for (size_t i = 0; i < layer->n_faults && layer->is_fused && status == ND_OK; i++)
            if (nd_emu_is_of_qvalues(layer->faults[i]->word))
                status = nd_fail(err, ND_E_DEVICE_PROFILE, layer->faults[i]->tensor,
                                 "item '%s' works on quantised values, and those of '%s' are skipped by fuse",
                                 layer->faults[i]->text, layer->faults[i]->tensor);
    }
    return status;
}

/* What an arithmetic of whole layers makes of fractions is not known. */
static enum nd_status check_readers(const struct bind *bind, struct nd_error *err)
{
    for (size_t e = 0; e < bind->out.n_tensors; e++) {
        const struct nd_emu_layer *layer = &bind->out.layers[e];
        if (layer->reads_fused && layer->arithmetic != NULL && layer->arithmetic->layer != NULL)
            return nd_fail(err, ND_E_DEVICE_PROFILE, tensor_name(bind, e),
                           "'%s' reads a tensor that is fused, and '%s' is an arithmetic on quantised values",
                           tensor_name(bind, e), layer->arithmetic->layer->name);
    }
    return ND_OK;
}

static void nd_emu_unbind(struct nd_emu_binding *binding)
{
    ND_FREE_EACH(binding->layers, binding->n_tensors, .faults);
    *binding = (struct nd_emu_binding){0};
}

/* names NULL: as the model calls its tensors. Items are borrowed. *out needs nd_emu_unbind on success only. */
static enum nd_status nd_emu_bind(const struct nd_emulation *emulation, const struct nd_model *model,
                                  const char *const *names, bool is_partial, struct nd_emu_binding *out,
                                  struct nd_error *err)
{
    struct bind bind = {.emulation = emulation,
                        .model = model,
                        .names = names,
                        .is_partial = is_partial,
                        .out.n_tensors = nd_model_n_tensors(model)};
    bind.out.layers = nd_calloc(bind.out.n_tensors, sizeof *bind.out.layers);
    ND_TRY_MEMORY(bind.out.layers != NULL, err);
    for (size_t u = 0; u < nd_model_n_layers(bind.model); u++) {
        size_t e = nd_model_layer(bind.model, u)->tensor;
        const struct nd_tensor *tensor = nd_model_tensor(bind.model, e);
        bind.out.layers[e].is_layer = tensor->quant.n > 0 && nd_dtype_is_integer(tensor->dtype);
    }
    enum nd_status status = set_arithmetics(&bind, err);
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

/* What can be written down of a device in one attribute of a capture. */
static enum nd_status check_size(const struct nd_emulation *emulation, const struct nd_model *model,
                                 const struct nd_emu_binding *binding, struct nd_error *err)
{
    enum { MAX_BYTES = 50000, NUMBER_BYTES = 21 };
    size_t profile_bytes = 0, truth_bytes = 0;
    for (size_t i = 0; i < emulation->n; i++)
        profile_bytes += strlen(emulation->items[i].text) + 1;
    for (size_t e = 0; e < binding->n_tensors; e++) {
        const struct nd_emu_layer *layer = &binding->layers[e];
        size_t n =
            layer->n_faults + layer->reads_fused + !nd_emu_is_same_arithmetic(layer->usual, layer->arithmetic);
        size_t name_bytes = strlen(nd_model_tensor(model, e)->name) + 1;
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
    ND_TRY(nd_emu_bind(emulation, model, NULL, false, &binding, err));
    enum nd_status status = check_size(emulation, model, &binding, err);
    nd_emu_unbind(&binding);
    return status;
}

static void add_truth(struct nd_emulator *emulator, size_t tensor, const char *kind)
{
    emulator->truth[emulator->n_truth++] =
        (struct nd_emu_truth){.tensor = emulator->names[tensor], .kind = kind};
}

/* One after the other as round_unit meets them. */
static enum nd_status list_truth(struct nd_emulator *emulator, struct nd_error *err)
{
    const struct nd_emu_binding *binding = &emulator->binding;
    size_t n = 0;
    for (size_t e = 0; e < binding->n_tensors; e++)
        n += binding->layers[e].n_faults + 2;
    emulator->truth = nd_calloc(n, sizeof *emulator->truth);
    ND_TRY_MEMORY(emulator->truth != NULL, err);
    for (size_t e = 0; e < binding->n_tensors; e++) {
        const struct nd_emu_layer *layer = &binding->layers[e];
        emulator->tensors[e].first_truth = emulator->n_truth;
        if (!nd_emu_is_same_arithmetic(layer->usual, layer->arithmetic))
            add_truth(emulator, e,
                      layer->arithmetic_word == ND_EMU_ROUND ? "rounding" : nd_emu_word_name(ND_EMU_FALLBACK));
        for (size_t i = 0; i < layer->n_faults; i++)
            add_truth(emulator, e, nd_emu_word_name(layer->faults[i]->word));
        if (layer->reads_fused)
            add_truth(emulator, e, nd_emu_word_name(ND_EMU_FUSE));
        emulator->has_fused = emulator->has_fused || layer->is_fused;
    }
    return ND_OK;
}

/* Of a layer whose arithmetic works on one; layers without it stay as they are. */
static bool needs_steps(const struct nd_emu_arithmetic *arithmetic)
{
    return arithmetic != NULL && arithmetic->is_of_table &&
           nd_arithmetic_needs_accumulator(&arithmetic->arithmetic);
}

static enum nd_status find_steps(struct nd_emulator *emulator, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t e = 0; e < emulator->binding.n_tensors; e++) {
        const struct nd_emu_layer *layer = &emulator->binding.layers[e];
        struct nd_emu_tensor *state = &emulator->tensors[e];
        struct nd_error ignored = {0};
        if (needs_steps(layer->usual) || needs_steps(layer->arithmetic))
            status = nd_exact_accumulator_steps(emulator->graph, e, &state->steps, &state->n_steps, &ignored);
        if (status == ND_ERR_UNSUPPORTED)
            status = ND_OK;
        for (size_t i = 0; i < layer->n_faults && status == ND_OK; i++) {
            const struct nd_emu_item *item = layer->faults[i];
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
    size_t n = emulator->binding.n_tensors;
    emulator->tensors = nd_calloc(n, sizeof *emulator->tensors);
    emulator->names = nd_calloc(n, sizeof *emulator->names);
    emulator->seen = nd_calloc(n, sizeof *emulator->seen);
    emulator->is_seen = nd_calloc(n, sizeof *emulator->is_seen);
    ND_TRY_MEMORY(emulator->tensors != NULL && emulator->names != NULL && emulator->seen != NULL &&
                      emulator->is_seen != NULL,
                  err);
    for (size_t e = 0; e < n; e++) {
        emulator->names[e] =
            options->names != NULL ? options->names[e] : nd_model_tensor(emulator->model, e)->name;
        emulator->seen[e].shape.rank = -1;
    }
    return ND_OK;
}

enum nd_status nd_emulator_create(const struct nd_emulation *emulation, const struct nd_model *model,
                                  const struct nd_exact_graph *graph, const struct nd_emulator_options *options,
                                  struct nd_emulator **out, struct nd_error *err)
{
    ND_CLEANUP(nd_emulator_destroy) struct nd_emulator *emulator = nd_calloc(1, sizeof *emulator);
    ND_TRY_MEMORY(emulator != NULL, err);
    emulator->model = model;
    emulator->graph = graph;
    emulator->seed = emulation->seed;
    emulator->n_repeats = options->n_repeats > 0 ? options->n_repeats : 1;
    ND_TRY(nd_emu_bind(emulation, model, options->names, options->is_partial, &emulator->binding, err));
    ND_TRY(make_tables(emulator, options, err));
    ND_TRY(list_truth(emulator, err));
    ND_TRY(find_steps(emulator, err));
    *out = emulator;
    emulator = NULL;
    return ND_OK;
}

void nd_emulator_destroy(struct nd_emulator **emulator)
{
    struct nd_emulator *e = *emulator;
    if (e == NULL)
        return;
    for (size_t i = 0; i < e->binding.n_tensors; i++) {
        if (e->seen != NULL)
            nd_array_deinit(&e->seen[i]);
        if (e->tensors == NULL)
            continue;
        nd_array_deinit(&e->tensors[i].shown);
        nd_array_deinit(&e->tensors[i].plain);
        nd_array_deinit(&e->tensors[i].now);
        nd_array_deinit(&e->tensors[i].before);
        nd_array_deinit(&e->tensors[i].made[0]);
        nd_array_deinit(&e->tensors[i].made[1]);
        free(e->tensors[i].steps);
    }
    ND_FREE_ALL(e->tensors, e->names, e->seen, e->is_seen, e->truth);
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++)
        nd_twin_destroy(&e->twins[p]);
    nd_emu_unbind(&e->binding);
    free(e);
    *emulator = NULL;
}

const struct nd_emu_truth *nd_emulator_truth(const struct nd_emulator *emulator, size_t *n)
{
    *n = emulator->n_truth;
    return emulator->truth;
}
