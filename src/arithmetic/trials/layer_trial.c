/* What arithmetics of whole layers make of one layer, and how its quantised values are held against that. */
#include "arithmetic/trials/layer_trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/known/conditions.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"

/* The values of a device are not known: they are to be made. */
static bool is_blind(const struct nd_layer_trial *trial)
{
    return trial->only != SIZE_MAX;
}

static const struct nd_array *nd_layer_trial_kept(const struct nd_layer_trial *trial, size_t from, size_t to,
                                                  size_t arithmetic);

/* Where the quantised values of the input at hand are in those of the Concat: n_runs of `length`, `step` apart.
 */
struct place {
    size_t first, length, step, n_runs;
};

/* Of the first input, whose length is not known yet; false: the quantised values of the Concat are not known.
 */
static bool find_place(const struct nd_exact_layer *layer, const struct nd_array *given, struct place *place)
{
    int axis = given->n > 0 ? nd_layer_concat_axis(layer, given->shape.rank) : -1;
    if (axis < 0)
        return false;
    *place = (struct place){.n_runs = 1};
    for (int i = 0; i < axis; i++)
        place->n_runs *= (size_t)given->shape.dims[i];
    place->step = given->n / place->n_runs;
    return true;
}

static size_t count_wrong(const struct place *place, const struct nd_array *given, const struct nd_array *part)
{
    size_t n = 0;
    for (size_t run = 0; run < place->n_runs; run++) {
        const double *a = given->x + run * place->step + place->first, *b = part->x + run * place->length;
        for (size_t i = 0; i < place->length; i++)
            n += a[i] != b[i];
    }
    return n;
}

/* Of one input: what is nearest to the quantised values of the Concat. */
struct choice {
    const struct place *place; /* NULL: these are not known */
    const struct nd_array *given;
    const struct nd_array *qvalues; /* the best so far; NULL: there is none */
    struct nd_layer_brought own;    /* where they are not borrowed */
    size_t n_wrong;
    bool is_either; /* of two ways that differ */
};

static bool is_better(const struct choice *choice, const struct nd_array *qvalues, size_t *n_wrong)
{
    const struct place *place = choice->place;
    bool is_placed = place != NULL && qvalues->n == place->n_runs * place->length;
    *n_wrong = is_placed ? count_wrong(place, choice->given, qvalues) : SIZE_MAX;
    return choice->qvalues == NULL || *n_wrong < choice->n_wrong;
}

/* The ways in which these quantised values of input i (NULL: its own) may be rescaled. */
static enum nd_status choose_method(const struct nd_exact_layer *layer, size_t i, const struct nd_array *given,
                                    const struct nd_quant *from, struct choice *choice, struct nd_error *err)
{
    for (int method = 0; method < ND_N_BRINGS && (choice->qvalues == NULL || choice->n_wrong > 0); method++) {
        struct nd_layer_brought brought = {.is_covered = false};
        size_t n_wrong;
        enum nd_status status = nd_layer_bring(layer, i, given, from, (enum nd_bring)method, &brought, err);
        if (status == ND_OK && brought.is_covered && is_better(choice, &brought.qvalues, &n_wrong)) {
            nd_array_deinit(&choice->own.qvalues);
            choice->own = brought;
            choice->qvalues = &choice->own.qvalues;
            choice->n_wrong = n_wrong;
        } else {
            nd_array_deinit(&brought.qvalues);
        }
        if (status == ND_ERR_MEMORY)
            return status;
    }
    return ND_OK;
}

/* Whether what makes an input of a Concat makes it with the encoding of the Concat, where the values of a
 * device do not show it. Counted on the Concats of 177 networks of gen3: what a Slice or Resize moved, and a
 * Relu whose zero point is not its least quantised value, was rescaled after it. */
static bool is_made_for_concat(const struct nd_model *model, size_t tensor)
{
    const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
    const struct nd_tensor *made = nd_model_tensor(model, tensor);
    return maker != NULL && !ND_IS_ONE_OF(maker->op_types, "Resize", "Slice") &&
           (!nd_layer_narrows(maker) || nd_starts_at_least(made));
}

/* How a tensor is rescaled before a Concat: what starts at its least quantised value is so where it was made,
 * before others name its axes. Counted on 89 of such inputs of 389 networks of gen3. is_known: whether it is
 * flat or in blocks. */
static enum nd_bring way_of(const struct nd_layer_trial *trial, size_t tensor, bool *is_known)
{
    const struct nd_model *model = trial->model;
    const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, tensor);
    bool is_relu = nd_starts_at_least(nd_model_tensor(model, tensor));
    while (is_relu && maker != NULL && maker->n_inputs > 0 &&
           ND_IS_ONE_OF(maker->op_types, "Flatten", "Reshape", "Squeeze", "Unsqueeze") &&
           nd_quant_is_same(&nd_model_tensor(model, maker->inputs[0])->quant,
                            &nd_model_tensor(model, tensor)->quant)) {
        tensor = maker->inputs[0];
        maker = nd_model_layer_of_tensor(model, tensor);
    }
    enum nd_htp_layout layout = nd_layer_layout(trial->memory, tensor);
    bool is_pad = maker != NULL && strcmp(maker->op_types, "Pad") == 0 && /* as by itself */
                  nd_model_layer_of_tensor(model, maker->inputs[0]) != NULL;
    *is_known = maker == NULL || layout != ND_HTP_UNKNOWN;
    return is_relu && nd_layer_is_table(model, maker) ? ND_BRING_TABLE
           : layout == ND_HTP_BLOCKED || is_pad       ? ND_BRING_LAYOUT
                                                      : ND_BRING_FLAT;
}

/* The same of how an input is rescaled. */
static enum nd_status choose_blindly(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer,
                                     size_t i, size_t arithmetic, struct choice *choice)
{
    size_t tensor = layer->input_tensors[i];
    const struct nd_array *kept = nd_layer_trial_kept(trial, tensor, layer->tensor, arithmetic);
    const struct nd_forced *forced = trial->alternatives->forced[tensor];
    const struct nd_quant *divided = nd_divided_from(trial->model, tensor),
                          *from = divided != NULL && kept != NULL ? divided
                                  : forced != NULL                ? &forced->quant
                                                                  : NULL;
    struct nd_error why = {0};
    struct nd_layer_brought other = {.is_covered = false};
    bool is_known, is_made = divided == NULL && is_made_for_concat(trial->model, tensor);
    enum nd_bring way = way_of(trial, tensor, &is_known);
    choice->qvalues = nd_layer_kept_qvalues(trial->model, layer, i);
    if (choice->qvalues == NULL && is_made)
        choice->qvalues = kept;
    if (choice->qvalues != NULL ||
        (is_made && nd_fused_part_of(trial->alternatives, tensor, layer->tensor) != SIZE_MAX))
        return ND_OK;
    enum nd_status status =
        nd_layer_bring(layer, i, divided != NULL ? kept : NULL, from, way, &choice->own, &why);
    if (status == ND_OK && way == ND_BRING_FLAT && !is_known)
        status = nd_layer_bring(layer, i, divided != NULL ? kept : NULL, from, ND_BRING_LAYOUT, &other, &why);
    bool may_be_made = kept != NULL && divided == NULL && !nd_array_is_same(kept, &choice->own.qvalues);
    choice->is_either =
        may_be_made || (other.is_covered && !nd_array_is_same(&other.qvalues, &choice->own.qvalues));
    choice->qvalues = status == ND_OK && choice->own.is_covered ? &choice->own.qvalues : NULL;
    nd_array_deinit(&other.qvalues);
    return status == ND_ERR_MEMORY ? status : ND_OK;
}

static enum nd_status choose(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer, size_t i,
                             size_t arithmetic, struct choice *choice)
{
    if (is_blind(trial))
        return choose_blindly(trial, layer, i, arithmetic, choice);
    size_t tensor = layer->input_tensors[i], n_wrong;
    const struct nd_array *kept = nd_layer_trial_kept(trial, tensor, layer->tensor, arithmetic);
    const struct nd_forced *forced = trial->alternatives->forced[tensor];
    const struct nd_quant *divided = nd_divided_from(trial->model, tensor);
    const struct nd_array *own = nd_layer_kept_qvalues(trial->model, layer, i);
    struct nd_error why = {0};
    if (own != NULL && is_better(choice, own, &n_wrong)) {
        choice->qvalues = own;
        choice->n_wrong = n_wrong;
    }
    if (kept != NULL && divided != NULL)
        return choose_method(layer, i, kept, divided, choice, &why);
    if (kept != NULL && is_better(choice, kept, &n_wrong)) {
        choice->qvalues = kept;
        choice->n_wrong = n_wrong;
    }
    return choose_method(layer, i, NULL, forced != NULL ? &forced->quant : NULL, choice, &why);
}

/* Chooses of all inputs with other encodings. */
static enum nd_status choose_all(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer,
                                 size_t arithmetic, const struct nd_array *given, struct choice *choices)
{
    struct place place;
    bool is_placed = find_place(layer, given, &place);
    for (size_t i = 0; i < nd_layer_n_inputs(layer); i++) {
        place.length = is_placed ? nd_layer_input_size(layer, i) / place.n_runs : 0;
        is_placed = is_placed && place.first + place.length <= place.step;
        choices[i] = (struct choice){.place = is_placed ? &place : NULL, .given = given};
        if (!nd_layer_keeps_encoding(layer, i))
            ND_TRY(choose(trial, layer, i, arithmetic, &choices[i]));
        place.first += place.length;
    }
    return ND_OK;
}

/* Whether each input is quantised values that the capture has. */
static bool has_qvalues(const struct nd_exact_layer *layer)
{
    size_t n = nd_layer_n_inputs(layer);
    bool has = n <= ND_LAYER_MAX_INPUTS;
    for (size_t i = 0; i < n && has; i++)
        has = layer->input_tensors[i] != SIZE_MAX && nd_layer_input_size(layer, i) > 0;
    return has;
}

/* Makes what is fused of the trial, by that arithmetic. How a device rescales depends on how it laid a tensor
 * out, which the model does not say: of each input the way is taken that is nearest to the device's own codes
 * (given; n = 0: not known). ND_ERR_MEMORY. */
static enum nd_status nd_layer_join(struct nd_layer_trial *trial, const struct nd_exact_layer *layer,
                                    size_t arithmetic, const struct nd_array *given, struct nd_error *err)
{
    size_t n = nd_layer_n_inputs(layer);
    struct nd_layer_made *fused = &trial->others[ND_ALTERNATIVE_FUSED];
    struct choice choices[ND_LAYER_MAX_INPUTS];
    struct nd_layer_encodings encodings = {.output = NULL};
    struct nd_error why = {0};
    bool is_known = true;
    if (!has_qvalues(layer))
        return ND_OK;
    memset(choices, 0, sizeof choices);
    enum nd_status status = choose_all(trial, layer, arithmetic, given, choices);
    for (size_t i = 0; i < n; i++) {
        if (nd_layer_keeps_encoding(layer, i))
            continue;
        encodings.inputs[i] = &nd_model_tensor(trial->model, layer->tensor)->quant;
        encodings.qvalues[i] = choices[i].qvalues;
        is_known = is_known && choices[i].qvalues != NULL;
        fused->is_open[arithmetic] = fused->is_open[arithmetic] || choices[i].is_either;
    }
    if (is_known && status == ND_OK)
        status = nd_layer_run_with(nd_layer_arithmetic_at(arithmetic), layer, &encodings,
                                   &fused->qvalues[arithmetic], &fused->is_covered[arithmetic], &why);
    for (size_t i = 0; i < n; i++)
        nd_array_deinit(&choices[i].own.qvalues);
    if (status == ND_OK)
        return ND_OK;
    nd_array_deinit(&fused->qvalues[arithmetic]);
    fused->is_covered[arithmetic] = false;
    return status == ND_ERR_MEMORY ? nd_fail_memory(err) : ND_OK;
}

/* ---- one layer ---- */

enum nd_status nd_layer_trial_init(struct nd_layer_trial *trial, const struct nd_model *model,
                                   const struct nd_alternatives *alternatives, struct nd_error *err)
{
    size_t n_tensors = nd_model_n_tensors(model);
    *trial = (struct nd_layer_trial){
        .tensor = SIZE_MAX, .only = SIZE_MAX, .model = model, .alternatives = alternatives};
    size_t n_kept = alternatives != NULL ? alternatives->n_parts : 0;
    trial->kept = nd_calloc(n_kept, sizeof *trial->kept);
    ND_TRY_MEMORY(trial->kept != NULL, err);
    trial->n_kept = n_kept;
    return nd_layer_memory_create(n_tensors, &trial->memory, err);
}

static void forget_made(struct nd_layer_made *made)
{
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
        nd_array_deinit(&made->qvalues[p]);
        made->is_covered[p] = made->is_open[p] = false;
    }
    made->wraps = false;
}

static void forget_layer(struct nd_layer_trial *trial)
{
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
        nd_array_deinit(&trial->made[p]);
        trial->is_covered[p] = false;
    }
    for (size_t k = 0; k < ND_N_ALTERNATIVES; k++)
        forget_made(&trial->others[k]);
    trial->tensor = SIZE_MAX;
}

static void forget_kept(struct nd_layer_trial *trial)
{
    for (size_t k = 0; k < trial->n_kept; k++)
        forget_made(&trial->kept[k]);
}

void nd_layer_trial_deinit(struct nd_layer_trial *trial)
{
    forget_layer(trial);
    forget_kept(trial);
    free(trial->kept);
    trial->kept = NULL;
    trial->n_kept = 0;
    nd_layer_memory_destroy(&trial->memory);
}

void nd_layer_trial_begin(struct nd_layer_trial *trial)
{
    forget_layer(trial);
    forget_kept(trial);
    nd_layer_memory_forget(trial->memory);
}

/* What is refused is not covered. */
static enum nd_status settle_made(enum nd_status status, const struct nd_error *why, struct nd_array *qvalues,
                                  bool *is_covered, struct nd_error *err)
{
    if (status == ND_OK)
        return ND_OK;
    nd_array_deinit(qvalues);
    *is_covered = false;
    if (status == ND_ERR_MEMORY && err != NULL)
        *err = *why;
    return status == ND_ERR_MEMORY ? status : ND_OK;
}

/* A Div by the sum of what it divides: a Softmax in parts. Devices may make one operation of it, whose sum is
 * not rounded, nor clipped, to the quantised values that the model has for it. Seen: Magika W8A8 of
 * tools/studies/zoo, gen1, gen3 and gen5, QAIRT 2.51.0: values as if the sum were 3 times its greatest
 * quantised value. */
static bool is_share_of_sum(const struct nd_model *model, const struct nd_exact_layer *layer)
{
    const struct nd_model_layer *own = nd_model_layer_of_tensor(model, layer->tensor);
    if (own == NULL || strcmp(own->op_types, "Div") != 0 || own->n_inputs != 2)
        return false;
    const struct nd_model_layer *maker = nd_model_layer_of_tensor(model, layer->input_tensors[1]);
    while (maker != NULL && ND_IS_ONE_OF(maker->op_types, "Reshape", "Unsqueeze", "Squeeze", "Expand"))
        maker = maker->n_inputs > 0 ? nd_model_layer_of_tensor(model, maker->inputs[0]) : NULL;
    return maker != NULL && strcmp(maker->op_types, "ReduceSum") == 0 && maker->n_inputs > 0 &&
           maker->inputs[0] == layer->input_tensors[0];
}

static enum nd_status run_arithmetic(struct nd_layer_trial *trial, const struct nd_layer_arithmetic *arithmetic,
                                     size_t p, const struct nd_exact_layer *layer, struct nd_error *err)
{
    struct nd_error why = {0};
    if (is_share_of_sum(trial->model, layer))
        return ND_OK; /* not covered */
    trial->doubt[p] = nd_layer_arithmetic_doubt(arithmetic, layer, trial->memory);
    enum nd_status status =
        nd_layer_arithmetic_run(arithmetic, layer, trial->memory, &trial->made[p], &trial->is_covered[p], &why);
    return settle_made(status, &why, &trial->made[p], &trial->is_covered[p], err);
}

/* ---- in another way ---- */

/* What the maker of the tensor `from` made of the tensor `to` by that arithmetic; NULL: nothing is known. */
static const struct nd_array *nd_layer_trial_kept(const struct nd_layer_trial *trial, size_t from, size_t to,
                                                  size_t arithmetic)
{
    size_t part = nd_fused_part_of(trial->alternatives, from, to);
    if (part == SIZE_MAX)
        return NULL;
    const struct nd_layer_made *kept = &trial->kept[part];
    return kept->is_covered[kept->alike[arithmetic]] ? &kept->qvalues[kept->alike[arithmetic]] : NULL;
}

/* Whether the maker of the tensor `from` makes the tensor `to`, too, in a way that is not known. */
static bool is_open(const struct nd_layer_trial *trial, size_t from, size_t to, size_t arithmetic)
{
    size_t part = nd_fused_part_of(trial->alternatives, from, to);
    return part != SIZE_MAX && trial->kept[part].is_open[trial->kept[part].alike[arithmetic]];
}

/* Which input of the layer is gated by the other; false: it is no gate. */
static bool find_gate(const struct nd_alternatives *a, const struct nd_exact_layer *layer,
                      struct nd_layer_gate *gate)
{
    size_t x = a->gated[layer->tensor], n = nd_layer_n_inputs(layer);
    *gate = (struct nd_layer_gate){.kind = a->gates[layer->tensor]};
    while (gate->input < n && layer->input_tensors[gate->input] != x)
        gate->input++;
    return x != SIZE_MAX && gate->input < n;
}

/* The layer with another encoding of its output: as one function with its gate, or as it is. */
static enum nd_status make_part(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer,
                                size_t p, struct nd_layer_encodings *encodings, struct nd_layer_made *kept)
{
    struct nd_error why = {0};
    struct nd_layer_gate gate;
    enum nd_status status = ND_OK;
    /* By HardSigmoid, whose quantised values are quantised, x is multiplied. */
    if (find_gate(trial->alternatives, layer, &gate) && gate.kind != ND_GATE_HARD &&
        encodings->dtype == layer->dtype) {
        gate.output = encodings->output;
        status = nd_layer_run_gated(layer, &gate, &kept->qvalues[p], &kept->is_covered[p], &why);
    }
    if (status == ND_OK && !kept->is_covered[p])
        status = nd_layer_run_with(nd_layer_arithmetic_at(p), layer, encodings, &kept->qvalues[p],
                                   &kept->is_covered[p], &why);
    kept->is_open[p] = encodings->after != ND_LAYER_AFTER_NONE && status == ND_ERR_UNSUPPORTED;
    return settle_made(status, &why, &kept->qvalues[p], &kept->is_covered[p], NULL);
}

/* The first n inputs as their makers made them for the tensor `to`. False: they did not. */
static bool carry(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer, size_t to, size_t p,
                  size_t n, struct nd_layer_encodings *encodings)
{
    bool is_known = n <= ND_LAYER_MAX_INPUTS;
    for (size_t i = 0; i < n && is_known; i++) {
        encodings->inputs[i] = &nd_model_tensor(trial->model, to)->quant;
        encodings->qvalues[i] = nd_layer_trial_kept(trial, layer->input_tensors[i], to, p);
        is_known = encodings->qvalues[i] != NULL;
    }
    return is_known;
}

/* Whether the layer only hands on what was made for the tensor `to`: before a Concat always, before a Relu
 * where it was made. */
static bool hands_on(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer,
                     const struct nd_model_layer *own, size_t to, size_t p)
{
    if (own == NULL || trial->alternatives->is_joined[to])
        return own != NULL && nd_layer_carries_all(own);
    return nd_layer_carries(own) && nd_layer_trial_kept(trial, layer->input_tensors[0], to, p) != NULL;
}

/* Fills in encodings->inputs of operands that have a forced one; how many. */
static size_t force_inputs(const struct nd_alternatives *a, const size_t *input_tensors, size_t n_inputs,
                           struct nd_layer_encodings *encodings)
{
    size_t n = 0;
    for (size_t i = 0; i < n_inputs && i < ND_LAYER_MAX_INPUTS; i++) {
        size_t tensor = input_tensors[i];
        if (tensor >= a->n_tensors || a->forced[tensor] == NULL)
            continue;
        encodings->inputs[i] = &a->forced[tensor]->quant;
        n++;
    }
    return n;
}

/* A Clip that the chip leaves out, which its values are to show. */
static bool is_left_out(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer)
{
    return is_blind(trial) && nd_layer_is(trial->model, layer, ND_LAYER_CLIP_LEFT_OUT);
}

/* What was made before the layer, a Relu or Clip, in that encoding, cut there unless that is NULL. */
static enum nd_status narrow(const struct nd_exact_layer *layer, const struct nd_array *wide,
                             const struct nd_quant *quant, size_t p, struct nd_layer_made *made,
                             struct nd_error *err)
{
    ND_TRY(nd_array_copy(wide, &made->qvalues[p], err));
    if (quant != NULL)
        nd_layer_narrow(layer, quant, &made->qvalues[p]);
    made->is_covered[p] = true;
    return ND_OK;
}

static bool is_by_number(const struct nd_exact_layer *layer)
{
    bool is = false;
    for (size_t i = 0; i < nd_layer_n_inputs(layer); i++)
        is = is || (layer->origins[i] == ND_EXACT_FROM_CONSTANT && nd_layer_input_size(layer, i) == 1);
    return is;
}

/* For the layers after the layer that may be made with it. What hands on quantised values hands on those that
 * its maker made for that layer. */
static enum nd_status keep_fused(struct nd_layer_trial *trial, const struct nd_exact_layer *layer, size_t p,
                                 struct nd_error *err)
{
    const struct nd_alternatives *a = trial->alternatives;
    const struct nd_model_layer *own = nd_model_layer_of_tensor(trial->model, layer->tensor);
    enum nd_status status = ND_OK;
    for (size_t k = a->first_part[layer->tensor]; k != SIZE_MAX && status == ND_OK; k = a->parts[k].next) {
        struct nd_layer_made *kept = &trial->kept[k];
        const struct nd_tensor *tensor = nd_model_tensor(trial->model, a->parts[k].to);
        struct nd_layer_encodings encodings = {
            .output = &tensor->quant, .memory = trial->memory, .dtype = tensor->dtype, .wraps = &kept->wraps};
        bool narrows = own != NULL && nd_layer_narrows(own) && a->is_joined[a->parts[k].to];
        const struct nd_array *wide =
            narrows ? nd_layer_trial_kept(trial, own->inputs[0], a->parts[k].to, p) : NULL;
        bool carries = hands_on(trial, layer, own, a->parts[k].to, p);
        /* What agrees on the layer may differ with what is made with it. */
        bool is_own = a->fused_from[a->parts[k].to] == layer->tensor;
        kept->alike[p] = tensor->dtype == layer->dtype && !carries && !narrows && !is_own ? trial->alike[p] : p;
        if (kept->alike[p] != p)
            continue;
        kept->is_open[p] =
            own != NULL && nd_layer_carries(own) && is_open(trial, layer->input_tensors[0], a->parts[k].to, p);
        if (kept->is_open[p] || is_left_out(trial, layer))
            continue;
        force_inputs(a, layer->input_tensors, nd_layer_n_inputs(layer), &encodings);
        if (nd_divided_from(trial->model, layer->tensor) != NULL)
            encodings.output = nd_divided_from(trial->model, layer->tensor);
        else if (!carries)
            status = nd_tensor_after(trial->model, a->parts[k].to, &encodings, err);
        if (own != NULL && strcmp(own->op_types, "Mul") == 0 &&
            strcmp(nd_model_layer_of_tensor(trial->model, a->parts[k].to)->op_types, "Add") == 0 &&
            (encodings.after != ND_LAYER_AFTER_CHANNELS || is_by_number(layer))) {
            ND_FREE_ALL(encodings.slopes, encodings.offsets);
            continue; /* only numbers for channels are joined with those of an Add */
        }
        if (status == ND_OK && wide != NULL)
            status = narrow(layer, wide, &tensor->quant, p, kept, err);
        else if (status == ND_OK && (!carries || carry(trial, layer, a->parts[k].to, p,
                                                       nd_layer_carries(own) ? 1 : own->n_inputs, &encodings)))
            status = make_part(trial, layer, p, &encodings, kept);
        ND_FREE_ALL(encodings.slopes, encodings.offsets);
    }
    return status == ND_OK ? ND_OK : nd_fail_memory(err);
}

static void forget_parts_of(struct nd_layer_trial *trial, const struct nd_exact_layer *layer)
{
    const struct nd_alternatives *a = trial->alternatives;
    for (size_t k = a->part_to[layer->tensor]; k < a->n_parts && a->parts[k].to == layer->tensor; k++)
        forget_made(&trial->kept[k]);
}

void nd_layer_trial_forget_tensor(struct nd_layer_trial *trial, size_t tensor)
{
    const struct nd_alternatives *a = trial->alternatives;
    nd_layer_memory_forget_tensor(trial->memory, tensor);
    for (size_t k = a->first_part[tensor]; k != SIZE_MAX; k = a->parts[k].next)
        forget_made(&trial->kept[k]);
}

static size_t count_different(const struct nd_array *a, const struct nd_array *b)
{
    const struct place all = {.length = a->n, .n_runs = 1};
    return a->n == b->n ? count_wrong(&all, a, b) : SIZE_MAX;
}

/* Of what its maker made with its encoding (kept; NULL: nothing), and of where its input may lie, what is
 * nearest to the device's quantised values. */
static enum nd_status run_moved(struct nd_layer_trial *trial, const struct nd_exact_layer *layer, size_t p,
                                const struct nd_array *kept, const struct nd_array *given, struct nd_error *err)
{
    enum { LAID_OUT_WAYS = 2 };
    struct nd_layer_made *fused = &trial->others[ND_ALTERNATIVE_FUSED];
    const struct nd_tensor *tensor = nd_model_tensor(trial->model, layer->tensor);
    const struct nd_shape *shape = is_blind(trial) ? &tensor->shape : &given->shape;
    const struct nd_layer_encodings encodings = {.inputs = {&tensor->quant}, .qvalues = {kept}};
    enum nd_status status = ND_OK;
    for (int way = kept != NULL ? -1 : 0; way < LAID_OUT_WAYS && status == ND_OK; way++) {
        if (given->n == 0 && kept == NULL &&
            (way == 0 || trial->alternatives->wanted[layer->tensor] == ND_WANTED_ANYHOW))
            continue;
        struct nd_array made = {0};
        bool is_covered = false;
        struct nd_error why = {0};
        status = way < 0
                     ? nd_layer_run_with(nd_layer_arithmetic_at(p), layer, &encodings, &made, &is_covered, &why)
                     : nd_layer_run_laid_out(layer, way > 0, shape, &made, &is_covered, &why);
        status = settle_made(status, &why, &made, &is_covered, err);
        /* Blindly what was made is taken, and it is open where it lies where that differs. */
        fused->is_open[p] = fused->is_open[p] || (is_blind(trial) && is_covered && fused->is_covered[p] &&
                                                  !nd_array_is_same(&made, &fused->qvalues[p]));
        if (is_covered && (!fused->is_covered[p] ||
                           count_different(given, &made) < count_different(given, &fused->qvalues[p]))) {
            nd_array_deinit(&fused->qvalues[p]);
            fused->qvalues[p] = made;
            fused->is_covered[p] = true;
        } else {
            nd_array_deinit(&made);
        }
    }
    return status;
}

/* What was made with the maker of what the layer reads, with its gate, or for what reads it. */
static enum nd_status run_fused(struct nd_layer_trial *trial, const struct nd_exact_layer *layer, size_t p,
                                const struct nd_array *given, struct nd_error *err)
{
    const struct nd_alternatives *a = trial->alternatives;
    struct nd_array *qvalues = &trial->others[ND_ALTERNATIVE_FUSED].qvalues[p];
    bool *is_covered = &trial->others[ND_ALTERNATIVE_FUSED].is_covered[p];
    struct nd_layer_gate gate;
    struct nd_error why = {0};
    const struct nd_array *kept = nd_layer_trial_kept(trial, a->fused_from[layer->tensor], layer->tensor, p);
    if (is_open(trial, a->fused_from[layer->tensor], layer->tensor, p))
        trial->is_covered[p] = false;
    if (kept != NULL && nd_layer_carries(nd_model_layer_of_tensor(trial->model, layer->tensor)))
        return run_moved(trial, layer, p, kept, given, err);
    const struct nd_quant *quant =
        is_left_out(trial, layer) ? NULL : &nd_model_tensor(trial->model, layer->tensor)->quant;
    if (kept != NULL)
        return narrow(layer, kept, quant, p, &trial->others[ND_ALTERNATIVE_FUSED], err);
    const struct nd_array *divided = nd_layer_n_inputs(layer) == 1
                                         ? nd_layer_trial_kept(trial, layer->input_tensors[0], layer->tensor, p)
                                         : NULL;
    if (divided != NULL)
        return settle_made(nd_layer_run_brought(nd_layer_arithmetic_at(p), layer, divided,
                                                nd_divided_from(trial->model, layer->input_tensors[0]), qvalues,
                                                is_covered, &why),
                           &why, qvalues, is_covered, err);
    if (!find_gate(a, layer, &gate))
        return run_moved(trial, layer, p, NULL, given, err);
    enum nd_status status = nd_layer_run_gated(layer, &gate, qvalues, is_covered, &why);
    return settle_made(status, &why, qvalues, is_covered, err);
}

/* With the encodings that the provider forces on what the layer reads and makes; where it does not read so, on
 * what it makes alone: what is moved before it may have been brought to the model's encoding. */
static enum nd_status run_forced(struct nd_layer_trial *trial, const struct nd_exact_layer *layer, size_t p,
                                 const struct nd_array *given, struct nd_error *err)
{
    const struct nd_layer_arithmetic *arithmetic = nd_layer_arithmetic_at(p);
    const struct nd_alternatives *a = trial->alternatives;
    struct nd_layer_made *forced = &trial->others[ND_ALTERNATIVE_FORCED];
    bool is_here = a->is_forced_here[layer->tensor];
    enum nd_status status = ND_OK;
    for (int is_output_alone = 0; is_output_alone <= (is_here ? 1 : 0) && status == ND_OK; is_output_alone++) {
        struct nd_layer_encodings encodings = {.output = is_here ? &a->forced[layer->tensor]->quant : NULL,
                                               .dtype = layer->dtype};
        struct nd_error why = {0};
        size_t n_inputs = is_output_alone != 0
                              ? 0
                              : force_inputs(a, layer->input_tensors, nd_layer_n_inputs(layer), &encodings);
        if (n_inputs == 0 && !is_here)
            break;
        nd_array_deinit(&forced->qvalues[p]);
        forced->is_covered[p] = false;
        status =
            nd_layer_run_with(arithmetic, layer, &encodings, &forced->qvalues[p], &forced->is_covered[p], &why);
        status = settle_made(status, &why, &forced->qvalues[p], &forced->is_covered[p], err);
        if (n_inputs == 0 || (forced->is_covered[p] && nd_array_is_same(&forced->qvalues[p], given)))
            break;
    }
    return status;
}

static enum nd_status run_others(struct nd_layer_trial *trial, const struct nd_exact_layer *layer, size_t p,
                                 const struct nd_array *given, struct nd_error *err)
{
    const struct nd_layer_arithmetic *arithmetic = nd_layer_arithmetic_at(p);
    const struct nd_alternatives *a = trial->alternatives;
    struct nd_layer_made *v81 = &trial->others[ND_ALTERNATIVE_V81];
    struct nd_error why = {0};
    ND_TRY(a->is_joined[layer->tensor] ? nd_layer_join(trial, layer, p, given, err)
                                       : run_fused(trial, layer, p, given, err));
    ND_TRY(settle_made(
        nd_layer_run_as_v81(arithmetic, layer, trial->memory, &v81->qvalues[p], &v81->is_covered[p], &why),
        &why, &v81->qvalues[p], &v81->is_covered[p], err));
    ND_TRY(run_forced(trial, layer, p, given, err));
    return keep_fused(trial, layer, p, err);
}

const struct nd_array *nd_layer_trial_other(const struct nd_layer_trial *trial, enum nd_alternative alternative,
                                            size_t arithmetic)
{
    const struct nd_layer_made *made = &trial->others[alternative];
    return made->is_covered[arithmetic] ? &made->qvalues[arithmetic] : NULL;
}

/* What bends or narrows what a product made: by itself and with it were both seen. */
static bool bends_or_narrows(const struct nd_model_layer *layer)
{
    return ND_IS_ONE_OF(layer->op_types, "HardSwish", "LeakyRelu", "PRelu", "Relu");
}

/* Whether the number 1 is a quantised value of what a Reciprocal reads: it is made with the Sqrt before it then
 * (docs/science/htp-arithmetic.md#in-parts). */
static bool divides_one(const struct nd_exact_layer *layer)
{
    static const float tolerance = 1e-5F;
    bool is_clipped;
    const struct nd_quant *x = layer->call->inputs[0].quant;
    return fabsf((float)nd_reciprocal_dividend(x, layer->dtype, &is_clipped) * x->scale[0] - 1) < tolerance;
}

static bool is_of_numbers(const struct nd_model_layer *layer)
{
    return layer != NULL && layer->n_inputs == 1 && strcmp(layer->op_types, "Mul") == 0;
}

/* Whether the constant of the layer, an Add behind a Mul of that tensor, lies along what are channels to the
 * device: the last axis of what lies flat, another in the layout of a Conv
 * (docs/science/htp-arithmetic.md#by-channels). */
static bool is_along_channels(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer,
                              size_t tensor)
{
    size_t i = layer->origins[0] == ND_EXACT_FROM_CONSTANT ? 0 : 1;
    const struct nd_array *numbers = nd_layer_n_inputs(layer) > 1 ? layer->call->inputs[i].values : NULL;
    bool is_last =
        numbers != NULL && numbers->shape.rank > 0 && numbers->shape.dims[numbers->shape.rank - 1] > 1;
    return is_last != nd_layer_is_laid_out(trial->memory, tensor);
}

/* Where a layer may be made in another way than by itself, whether the chip does so although what is between is
 * recorded. Counted on 177 networks of gen3, every layer on the chip's own inputs. */
static bool is_made_with_others(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer)
{
    enum { FEW_COLUMNS = 8, GROUPED_RANK = 4 };
    const struct nd_alternatives *a = trial->alternatives;
    const struct nd_model_layer *own = nd_model_layer_of_tensor(trial->model, layer->tensor);
    const struct nd_tensor *tensor = nd_model_tensor(trial->model, layer->tensor);
    size_t from = a->fused_from[layer->tensor];
    const struct nd_model_layer *maker = from != SIZE_MAX ? nd_model_layer_of_tensor(trial->model, from) : NULL;
    bool is_byte = nd_dtype_size_bytes(layer->dtype) == 1;
    if (a->gated[layer->tensor] != SIZE_MAX) {
        size_t x = a->gated[layer->tensor];
        const struct nd_model_layer *half = nd_model_layer_of_tensor(trial->model, x);
        bool is_halved = half != NULL && strcmp(half->op_types, "Mul") == 0 && half->n_inputs == 1;
        /* Its half of 1 + Tanh is made in parts, no table, and so no part of a Gelu: Magika, on three chips. */
        bool is_in_parts = is_byte && !is_halved && nd_htp_is_shape_of_parts(&tensor->shape);
        return !(is_byte && a->gates[layer->tensor] == ND_GATE_HARD) &&
               (a->gates[layer->tensor] != ND_GATE_GELU || is_halved ||
                (!nd_reads_tanh_and_one(trial->model, own) && !is_in_parts));
    }
    if (strcmp(own->op_types, "Reciprocal") == 0)
        return divides_one(layer);
    if (strcmp(own->op_types, "PRelu") == 0)
        return maker != NULL && ND_IS_ONE_OF(maker->op_types, "Gemm", "MatMul") && tensor->shape.rank > 0 &&
               tensor->shape.dims[tensor->shape.rank - 1] > FEW_COLUMNS &&
               nd_layer_input_is_quantised(layer, 1);
    if (maker != NULL && strcmp(maker->op_types, "InstanceNormalization") == 0)
        return tensor->shape.rank == GROUPED_RANK;
    /* A Clip of bytes: of 51 models of 13 makers, gen1 and gen3. */
    bool is_clip = strcmp(own->op_types, "Clip") == 0;
    if (is_byte && nd_layer_narrows(own) && maker != NULL && nd_layer_carries(maker))
        return !is_clip;
    if (strcmp(own->op_types, "Add") == 0 && is_of_numbers(maker))
        return is_along_channels(trial, layer, maker->inputs[0]);
    /* Half of a Gelu in parts, unless what that is of was moved: 4 of 4 layers, and none of 7 others. */
    size_t x = maker != NULL && is_of_numbers(own) ? a->gated[maker->tensor] : SIZE_MAX;
    if (x != SIZE_MAX && a->gates[maker->tensor] == ND_GATE_GELU) {
        const struct nd_model_layer *made_x = nd_model_layer_of_tensor(trial->model, x);
        return nd_is_gated_by_tanh_of(trial->model, maker, x) && (made_x == NULL || !nd_layer_carries(made_x));
    }
    return !bends_or_narrows(own) && !nd_layer_carries(own) && strcmp(own->op_types, "requantise") != 0 &&
           (!is_clip || maker == NULL ||
            (ND_IS_ONE_OF(maker->op_types, "Add", "Conv", "ConvTranspose", "Gemm", "MatMul", "Mul", "Sub",
                          "Transpose") &&
             !(is_byte && nd_layer_cuts_both_ends(layer))));
}

/* Where the layer by itself is not known, whether what it may be made of with others is what the chip does. A
 * uint16 Relu, or what moves, of a Gemm is neither. */
static bool may_be_fused_alone(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer,
                               const struct nd_array *made)
{
    const struct nd_model_layer *own = nd_model_layer_of_tensor(trial->model, layer->tensor);
    return made == NULL &&
           (nd_dtype_size_bytes(layer->dtype) == 1 || !(nd_layer_narrows(own) || nd_layer_carries(own)));
}

/* What is made of so many elements as the tensor has. */
static const struct nd_array *of_size(const struct nd_layer_trial *trial, size_t tensor,
                                      const struct nd_array *made)
{
    size_t n;
    bool is_known = nd_shape_n_elems(&nd_model_tensor(trial->model, tensor)->shape, &n, NULL) == ND_OK;
    return made != NULL && (!is_known || made->n == n) ? made : NULL;
}

const struct nd_array *nd_layer_trial_choose(const struct nd_layer_trial *trial,
                                             const struct nd_exact_layer *layer, size_t p, bool is_hidden)
{
    const struct nd_array *made = trial->is_covered[p] ? &trial->made[trial->alike[p]] : NULL,
                          *others[ND_N_ALTERNATIVES];
    for (int k = 0; k < ND_N_ALTERNATIVES; k++)
        others[k] = of_size(trial, layer->tensor, nd_layer_trial_other(trial, (enum nd_alternative)k, p));
    const struct nd_array *fused = others[ND_ALTERNATIVE_FUSED], *forced = others[ND_ALTERNATIVE_FORCED],
                          *v81 = others[ND_ALTERNATIVE_V81];
    if (fused != NULL &&
        (may_be_fused_alone(trial, layer, made) || is_hidden || is_made_with_others(trial, layer)))
        return fused;
    return forced != NULL ? forced : trial->is_v81 && v81 != NULL ? v81 : made;
}

/* Whether a Concat joins what a MaxPool brought to another encoding, or half of a Gelu in parts: neither is
 * always made as it was seen to be (two networks of a stranger). */
static bool joins_doubtful(const struct nd_layer_trial *trial, const struct nd_model_layer *own)
{
    const struct nd_alternatives *a = trial->alternatives;
    for (size_t i = 0; a->is_joined[own->tensor] && i < own->n_inputs; i++) {
        const struct nd_model_layer *maker = nd_model_layer_of_tensor(trial->model, own->inputs[i]);
        size_t from = maker != NULL && maker->n_inputs == 1 ? maker->inputs[0] : SIZE_MAX;
        if (from != SIZE_MAX && ((is_of_numbers(maker) && a->gated[from] != SIZE_MAX) ||
                                 (strcmp(maker->op_types, "MaxPool") == 0 &&
                                  !nd_quant_is_same(&nd_model_tensor(trial->model, from)->quant,
                                                    &nd_model_tensor(trial->model, own->inputs[i])->quant))))
            return true;
    }
    return false;
}

bool nd_layer_trial_is_uncertain(const struct nd_layer_trial *trial, const struct nd_exact_layer *layer,
                                 size_t p, const struct nd_array *chosen)
{
    const struct nd_array *forced = nd_layer_trial_other(trial, ND_ALTERNATIVE_FORCED, p),
                          *fused = nd_layer_trial_other(trial, ND_ALTERNATIVE_FUSED, p),
                          *made = trial->is_covered[p] ? &trial->made[trial->alike[p]] : NULL;
    const struct nd_model_layer *own = nd_model_layer_of_tensor(trial->model, layer->tensor);
    const struct nd_alternatives *a = trial->alternatives;
    size_t from = own->n_inputs == 1 ? own->inputs[0] : SIZE_MAX;
    const struct nd_model_layer *maker = from != SIZE_MAX ? nd_model_layer_of_tensor(trial->model, from) : NULL;
    if (joins_doubtful(trial, own))
        return true;
    /* Each of one network of a stranger: a MaxPool of what is written in a forced encoding, and slopes of 16
     * bits where nothing is negative, which made 0 of single values. */
    if (from != SIZE_MAX && strcmp(own->op_types, "MaxPool") == 0 && a->forced[from] != NULL)
        return true;
    if (strcmp(own->op_types, "PRelu") == 0 && nd_dtype_size_bytes(layer->dtype) > 1 &&
        layer->call->inputs[0].quant != NULL && layer->call->inputs[0].quant->zero_point[0] == 0)
        return true;
    if (strcmp(own->op_types, "GlobalMaxPool") == 0 && !nd_htp_is_small_plane(layer) &&
        !nd_layer_keeps_encoding(layer, 0))
        return true;
    bool is_wide = nd_dtype_size_bytes(layer->dtype) > 1,
         is_number = from != SIZE_MAX && ND_IS_ONE_OF(own->op_types, "Div", "Mul", "Sub");
    if (is_number && is_wide && a->gated[from] != SIZE_MAX && a->gates[from] == ND_GATE_GELU)
        return true;
    if (chosen == fused && fused != NULL &&
        (strcmp(own->op_types, "ReduceSum") == 0 || trial->others[ND_ALTERNATIVE_FUSED].is_open[p]))
        return true;
    /* Of bytes a LeakyRelu of a Conv is what was chosen: all 38 of a network for wake words, 6 of 6 of
     * strangers. */
    bool is_sure = !is_wide && maker != NULL && strcmp(own->op_types, "LeakyRelu") == 0 &&
                   strcmp(maker->op_types, "Conv") == 0;
    bool is_either = (bends_or_narrows(own) && !is_sure) ||
                     (is_number && is_wide && a->wanted[layer->tensor] != ND_WANTED_IN_BLOCKS) ||
                     (strcmp(own->op_types, "Clip") == 0 && maker != NULL &&
                      (nd_layer_narrows(maker) || (is_wide && !is_made_with_others(trial, layer))));
    if (made != NULL && fused != NULL && is_either && !nd_array_is_same(made, fused))
        return true;
    return chosen == forced && forced != NULL && made != NULL && nd_layer_is_product(layer) &&
           !nd_array_is_same(forced, made);
}

/* A layer that may be made with the one before it has the defects of that. */
static void note_conditions(struct nd_layer_trial *trial, const struct nd_exact_layer *layer)
{
    const struct nd_alternatives *a = trial->alternatives;
    uint64_t own = nd_layer_conditions(trial->model, layer);
    trial->conditions = own;
    for (size_t i = 0; a != NULL && i < nd_layer_n_inputs(layer) && trial->conditions == 0; i++) {
        size_t part = nd_fused_part_of(a, layer->input_tensors[i], layer->tensor);
        trial->conditions = part != SIZE_MAX ? trial->kept[part].conditions : 0;
    }
    for (size_t k = a != NULL ? a->first_part[layer->tensor] : SIZE_MAX; k != SIZE_MAX; k = a->parts[k].next)
        trial->kept[k].conditions =
            own == 0 && trial->kept[k].wraps ? UINT64_C(1) << ND_LAYER_SWISH_WRAPS : own;
}

enum nd_status nd_layer_trial_run(struct nd_layer_trial *trial, const struct nd_exact_layer *layer,
                                  const struct nd_array *given, struct nd_error *err)
{
    size_t n;
    const struct nd_layer_arithmetic *arithmetics = nd_layer_arithmetics(&n);
    enum nd_status status = ND_OK;
    bool fits[ND_MAX_LAYER_ARITHMETICS] = {false};
    forget_layer(trial);
    n = n < ND_MAX_LAYER_ARITHMETICS ? n : ND_MAX_LAYER_ARITHMETICS;
    size_t begin = is_blind(trial) ? trial->only : 0;
    n = is_blind(trial) ? trial->only + 1 : n;
    for (size_t p = begin; p < n && status == ND_OK; p++) {
        size_t first = begin;
        while (first < p && !nd_layer_arithmetics_agree(&arithmetics[first], &arithmetics[p], layer))
            first++;
        trial->alike[p] = first;
        if (first == p)
            status = run_arithmetic(trial, &arithmetics[p], p, layer, err);
        if (first == p)
            fits[p] = trial->is_covered[p] && nd_array_is_same(&trial->made[p], given);
        fits[p] = fits[first];
        trial->is_covered[p] = trial->is_covered[first];
        trial->doubt[p] = trial->doubt[first];
        if (status == ND_OK && trial->alternatives != NULL)
            status = run_others(trial, layer, p, given, err);
    }
    trial->tensor = layer->tensor;
    note_conditions(trial, layer);
    if (trial->alternatives != NULL)
        forget_parts_of(trial, layer);
    /* What an arithmetic did not make it has not kept from before it was quantised values. */
    for (size_t p = 0; p < n && status == ND_OK && !is_blind(trial); p++)
        if (!fits[p])
            nd_layer_memory_refute(trial->memory, layer->tensor, &arithmetics[p]);
    return status;
}

static void count_others(const struct nd_layer_trial *trial, const double *given, size_t n,
                         struct nd_layer_tally *tally)
{
    for (size_t k = 0; k < ND_N_ALTERNATIVES; k++)
        for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
            const struct nd_array *made = nd_layer_trial_other(trial, (enum nd_alternative)k, p);
            struct nd_other_tally *other = &tally->others[k];
            if (made == NULL || made->n != n)
                continue;
            other->n[p] += n;
            struct nd_methods_compared found;
            nd_gemm_kernels()->compare_methods(given, made->x, made->x, n, &found);
            other->wrong[p] += found.n_wrong;
            other->max[p] = fmax(other->max[p], found.max);
        }
}

void nd_layer_trial_count(const struct nd_layer_trial *trial, const double *given, const double *exact,
                          size_t n, struct nd_layer_tally *tally)
{
    count_others(trial, given, n, tally);
    tally->conditions |= trial->conditions;
    struct nd_methods_compared found[ND_MAX_LAYER_ARITHMETICS];
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
        const struct nd_array *made = &trial->made[trial->alike[p]];
        if (!trial->is_covered[p] || made->n != n)
            continue;
        tally->doubt[p] = fmax(tally->doubt[p], trial->doubt[p]);
        if (trial->alike[p] < p)
            found[p] = found[trial->alike[p]];
        else
            nd_gemm_kernels()->compare_methods(given, made->x, exact, n, &found[p]);
        tally->n[p] += n;
        tally->wrong[p] += found[p].n_wrong;
        tally->max[p] = fmax(tally->max[p], found[p].max);
        tally->apart[p] += found[p].n_apart;
        tally->apart_as_made[p] += found[p].n_apart_as_made;
        tally->apart_as_exact[p] += found[p].n_apart_as_exact;
    }
}

void nd_layer_tally_merge(const struct nd_layer_tally *from, struct nd_layer_tally *to)
{
    to->conditions |= from->conditions;
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
        to->n[p] += from->n[p];
        to->wrong[p] += from->wrong[p];
        to->apart[p] += from->apart[p];
        to->apart_as_made[p] += from->apart_as_made[p];
        to->apart_as_exact[p] += from->apart_as_exact[p];
        to->max[p] = fmax(to->max[p], from->max[p]);
        to->doubt[p] = fmax(to->doubt[p], from->doubt[p]);
        for (size_t k = 0; k < ND_N_ALTERNATIVES; k++) {
            to->others[k].n[p] += from->others[k].n[p];
            to->others[k].wrong[p] += from->others[k].wrong[p];
            to->others[k].max[p] = fmax(to->others[k].max[p], from->others[k].max[p]);
        }
    }
}
