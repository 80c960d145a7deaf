/* What programs of whole units make of one unit, and how its codes are held against that. */
#include "explain/trials/unit_trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/known/conditions.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/error.h"
#include "core/memory.h"

static const struct nd_array *nd_unit_trial_kept(const struct nd_unit_trial *trial, size_t from, size_t to,
                                                 size_t program);

/* Where the codes of the input at hand are in those of the Concat: n_runs of `length`, `step` apart. */
struct place {
    size_t first, length, step, n_runs;
};

/* Of the first input, whose length is not known yet; false: the codes of the Concat are not known. */
static bool find_place(const struct nd_exact_unit *unit, const struct nd_array *given, struct place *place)
{
    int axis = given->n > 0 ? nd_unit_concat_axis(unit, given->shape.rank) : -1;
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

/* Of one input: what is nearest to the codes of the Concat. */
struct choice {
    const struct place *place; /* NULL: these are not known */
    const struct nd_array *given;
    const struct nd_array *codes; /* the best so far; NULL: there is none */
    struct nd_unit_brought own;   /* where they are not borrowed */
    size_t n_wrong;
};

static bool is_better(const struct choice *choice, const struct nd_array *codes, size_t *n_wrong)
{
    const struct place *place = choice->place;
    bool is_placed = place != NULL && codes->n == place->n_runs * place->length;
    *n_wrong = is_placed ? count_wrong(place, choice->given, codes) : SIZE_MAX;
    return choice->codes == NULL || *n_wrong < choice->n_wrong;
}

/* The ways in which these codes of input i (NULL: its own) may be rescaled. */
static enum nd_status choose_way(const struct nd_exact_unit *unit, size_t i, const struct nd_array *given,
                                 const struct nd_quant *from, struct choice *choice, struct nd_error *err)
{
    for (int way = 0; way < ND_N_BRINGS && (choice->codes == NULL || choice->n_wrong > 0); way++) {
        struct nd_unit_brought brought = {.is_covered = false};
        size_t n_wrong;
        enum nd_status status = nd_unit_bring(unit, i, given, from, (enum nd_bring)way, &brought, err);
        if (status == ND_OK && brought.is_covered && is_better(choice, &brought.codes, &n_wrong)) {
            nd_array_deinit(&choice->own.codes);
            choice->own = brought;
            choice->codes = &choice->own.codes;
            choice->n_wrong = n_wrong;
        } else {
            nd_array_deinit(&brought.codes);
        }
        if (status == ND_ERR_MEMORY)
            return status;
    }
    return ND_OK;
}

static enum nd_status choose(const struct nd_unit_trial *trial, const struct nd_exact_unit *unit, size_t i,
                             size_t program, struct choice *choice)
{
    size_t edge = unit->input_edges[i], n_wrong;
    const struct nd_array *kept = nd_unit_trial_kept(trial, edge, unit->edge, program);
    const struct nd_forced *forced = trial->alternatives->forced[edge];
    const struct nd_quant *divided = nd_divided_from(trial->model, edge);
    const struct nd_array *own = nd_unit_kept_codes(trial->model, unit, i);
    struct nd_error why = {0};
    if (own != NULL && is_better(choice, own, &n_wrong)) {
        choice->codes = own;
        choice->n_wrong = n_wrong;
    }
    if (kept != NULL && divided != NULL)
        return choose_way(unit, i, kept, divided, choice, &why);
    if (kept != NULL && is_better(choice, kept, &n_wrong)) {
        choice->codes = kept;
        choice->n_wrong = n_wrong;
    }
    return choose_way(unit, i, NULL, forced != NULL ? &forced->quant : NULL, choice, &why);
}

/* Chooses of all inputs with other encodings. */
static enum nd_status choose_all(const struct nd_unit_trial *trial, const struct nd_exact_unit *unit,
                                 size_t program, const struct nd_array *given, struct choice *choices)
{
    struct place place;
    bool is_placed = find_place(unit, given, &place);
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < nd_unit_n_inputs(unit) && status == ND_OK; i++) {
        place.length = is_placed ? nd_unit_input_size(unit, i) / place.n_runs : 0;
        is_placed = is_placed && place.first + place.length <= place.step;
        choices[i] = (struct choice){.place = is_placed ? &place : NULL, .given = given};
        if (!nd_unit_keeps_encoding(unit, i))
            status = choose(trial, unit, i, program, &choices[i]);
        place.first += place.length;
    }
    return status;
}

/* Whether each input is codes that the capture has. */
static bool has_codes(const struct nd_exact_unit *unit)
{
    size_t n = nd_unit_n_inputs(unit);
    bool has = n <= ND_UNIT_MOST_INPUTS;
    for (size_t i = 0; i < n && has; i++)
        has = unit->input_edges[i] != SIZE_MAX && nd_unit_input_size(unit, i) > 0;
    return has;
}

/* Makes what is fused of the trial, by that program. How a device rescales depends on how it laid a tensor out,
 * which the model does not say: of each input the way is taken that is nearest to the device's own codes
 * (given; n = 0: not known). ND_ERR_MEMORY. */
static enum nd_status nd_unit_join(struct nd_unit_trial *trial, const struct nd_exact_unit *unit,
                                   size_t program, const struct nd_array *given, struct nd_error *err)
{
    size_t n_programs, n = nd_unit_n_inputs(unit);
    struct nd_unit_made *fused = &trial->others[ND_ALTERNATIVE_FUSED];
    struct choice choices[ND_UNIT_MOST_INPUTS];
    struct nd_unit_encodings encodings = {.output = NULL};
    struct nd_error why = {0};
    bool is_known = true;
    if (!has_codes(unit))
        return ND_OK;
    memset(choices, 0, sizeof choices);
    enum nd_status status = choose_all(trial, unit, program, given, choices);
    for (size_t i = 0; i < n; i++) {
        if (nd_unit_keeps_encoding(unit, i))
            continue;
        encodings.inputs[i] = &nd_model_edge(trial->model, unit->edge)->quant;
        encodings.codes[i] = choices[i].codes;
        is_known = is_known && choices[i].codes != NULL;
    }
    if (is_known && status == ND_OK)
        status = nd_unit_run_with(&nd_unit_programs(&n_programs)[program], unit, &encodings,
                                  &fused->codes[program], &fused->is_covered[program], &why);
    for (size_t i = 0; i < n; i++)
        nd_array_deinit(&choices[i].own.codes);
    if (status == ND_OK)
        return ND_OK;
    nd_array_deinit(&fused->codes[program]);
    fused->is_covered[program] = false;
    return status == ND_ERR_MEMORY ? nd_fail_memory(err) : ND_OK;
}

/* ---- one unit ---- */

enum nd_status nd_unit_trial_init(struct nd_unit_trial *trial, const struct nd_model *model,
                                  const struct nd_alternatives *alternatives, struct nd_error *err)
{
    size_t n_edges = nd_model_n_edges(model);
    *trial = (struct nd_unit_trial){.edge = SIZE_MAX, .model = model, .alternatives = alternatives};
    size_t n_kept = alternatives != NULL ? alternatives->n_parts : 0;
    trial->kept = nd_calloc(n_kept, sizeof *trial->kept);
    if (trial->kept == NULL)
        return nd_fail_memory(err);
    trial->n_kept = n_kept;
    return nd_unit_memory_create(n_edges, &trial->memory, err);
}

static void forget_made(struct nd_unit_made *made)
{
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS; p++) {
        nd_array_deinit(&made->codes[p]);
        made->is_covered[p] = made->is_open[p] = false;
    }
    made->wraps = false;
}

static void forget_unit(struct nd_unit_trial *trial)
{
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS; p++) {
        nd_array_deinit(&trial->made[p]);
        trial->is_covered[p] = false;
    }
    for (size_t k = 0; k < ND_N_ALTERNATIVES; k++)
        forget_made(&trial->others[k]);
    trial->edge = SIZE_MAX;
}

static void forget_kept(struct nd_unit_trial *trial)
{
    for (size_t k = 0; k < trial->n_kept; k++)
        forget_made(&trial->kept[k]);
}

void nd_unit_trial_deinit(struct nd_unit_trial *trial)
{
    forget_unit(trial);
    forget_kept(trial);
    free(trial->kept);
    trial->kept = NULL;
    trial->n_kept = 0;
    nd_unit_memory_destroy(&trial->memory);
}

void nd_unit_trial_begin(struct nd_unit_trial *trial)
{
    forget_unit(trial);
    forget_kept(trial);
    nd_unit_memory_forget(trial->memory);
}

static bool is_same(const struct nd_array *a, const struct nd_array *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->x, b->x, a->n * sizeof *a->x) == 0);
}

/* What is refused is not covered. */
static enum nd_status settle_made(enum nd_status status, const struct nd_error *why, struct nd_array *codes,
                                  bool *is_covered, struct nd_error *err)
{
    if (status == ND_OK)
        return ND_OK;
    nd_array_deinit(codes);
    *is_covered = false;
    if (status == ND_ERR_MEMORY && err != NULL)
        *err = *why;
    return status == ND_ERR_MEMORY ? status : ND_OK;
}

/* A Div by the sum of what it divides: a Softmax in parts. Devices may make one operation of it, whose sum is
 * not rounded, nor clipped, to the codes that the model has for it. Seen: Magika W8A8 of tools/zoo, gen1, gen3
 * and gen5, QAIRT 2.51.0: values as if the sum were 3 times its greatest code. */
static bool is_share_of_sum(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    static const char *const movers[] = {"Reshape", "Unsqueeze", "Squeeze", "Expand"};
    const struct nd_model_unit *own = nd_model_unit_of_edge(model, unit->edge);
    if (own == NULL || strcmp(own->op_types, "Div") != 0 || own->n_inputs != 2)
        return false;
    const struct nd_model_unit *maker = nd_model_unit_of_edge(model, unit->input_edges[1]);
    for (size_t i = 0; maker != NULL && i < sizeof movers / sizeof movers[0];) {
        i = strcmp(maker->op_types, movers[i]) == 0 ? 0 : i + 1;
        if (i == 0)
            maker = maker->n_inputs > 0 ? nd_model_unit_of_edge(model, maker->inputs[0]) : NULL;
    }
    return maker != NULL && strcmp(maker->op_types, "ReduceSum") == 0 && maker->n_inputs > 0 &&
           maker->inputs[0] == unit->input_edges[0];
}

static enum nd_status run_program(struct nd_unit_trial *trial, const struct nd_unit_program *program, size_t p,
                                  const struct nd_exact_unit *unit, struct nd_error *err)
{
    struct nd_error why = {0};
    if (is_share_of_sum(trial->model, unit))
        return ND_OK; /* not covered */
    trial->doubt[p] = nd_unit_program_doubt(program, unit, trial->memory);
    enum nd_status status =
        nd_unit_program_run(program, unit, trial->memory, &trial->made[p], &trial->is_covered[p], &why);
    return settle_made(status, &why, &trial->made[p], &trial->is_covered[p], err);
}

/* ---- in another way ---- */

/* What the maker of the edge `from` made of the edge `to` by that program; NULL: nothing is known. */
static const struct nd_array *nd_unit_trial_kept(const struct nd_unit_trial *trial, size_t from, size_t to,
                                                 size_t program)
{
    size_t part = nd_fused_part_of(trial->alternatives, from, to);
    if (part == SIZE_MAX)
        return NULL;
    const struct nd_unit_made *kept = &trial->kept[part];
    return kept->is_covered[kept->alike[program]] ? &kept->codes[kept->alike[program]] : NULL;
}

/* Whether the maker of the edge `from` makes the edge `to`, too, in a way that is not known. */
static bool is_open(const struct nd_unit_trial *trial, size_t from, size_t to, size_t program)
{
    size_t part = nd_fused_part_of(trial->alternatives, from, to);
    return part != SIZE_MAX && trial->kept[part].is_open[trial->kept[part].alike[program]];
}

/* Which input of the unit is gated by the other; false: it is no gate. */
static bool find_gate(const struct nd_alternatives *a, const struct nd_exact_unit *unit,
                      struct nd_unit_gate *gate)
{
    size_t x = a->gated[unit->edge], n = nd_unit_n_inputs(unit);
    *gate = (struct nd_unit_gate){.is_hard = a->is_hard[unit->edge]};
    while (gate->input < n && unit->input_edges[gate->input] != x)
        gate->input++;
    return x != SIZE_MAX && gate->input < n;
}

/* The unit with another encoding of its output: as one function with its gate, or as it is. */
static enum nd_status make_part(const struct nd_unit_trial *trial, const struct nd_exact_unit *unit, size_t p,
                                struct nd_unit_encodings *encodings, struct nd_unit_made *kept)
{
    size_t n;
    struct nd_error why = {0};
    struct nd_unit_gate gate;
    enum nd_status status = ND_OK;
    /* By HardSigmoid, whose codes are quantised, x is multiplied. */
    if (find_gate(trial->alternatives, unit, &gate) && !gate.is_hard && encodings->dtype == unit->dtype) {
        gate.output = encodings->output;
        status = nd_unit_run_gated(unit, &gate, &kept->codes[p], &kept->is_covered[p], &why);
    }
    if (status == ND_OK && !kept->is_covered[p])
        status = nd_unit_run_with(&nd_unit_programs(&n)[p], unit, encodings, &kept->codes[p],
                                  &kept->is_covered[p], &why);
    kept->is_open[p] = encodings->after != ND_UNIT_AFTER_NONE && status == ND_ERR_UNSUPPORTED;
    return settle_made(status, &why, &kept->codes[p], &kept->is_covered[p], NULL);
}

/* The first n inputs as their makers made them for the edge `to`. False: they did not. */
static bool carry(const struct nd_unit_trial *trial, const struct nd_exact_unit *unit, size_t to, size_t p,
                  size_t n, struct nd_unit_encodings *encodings)
{
    bool is_known = n <= ND_UNIT_MOST_INPUTS;
    for (size_t i = 0; i < n && is_known; i++) {
        encodings->inputs[i] = &nd_model_edge(trial->model, to)->quant;
        encodings->codes[i] = nd_unit_trial_kept(trial, unit->input_edges[i], to, p);
        is_known = encodings->codes[i] != NULL;
    }
    return is_known;
}

/* Whether the unit only hands on what was made for the edge `to`: before a Concat always, before a Relu where
 * it was made. */
static bool hands_on(const struct nd_unit_trial *trial, const struct nd_exact_unit *unit,
                     const struct nd_model_unit *own, size_t to, size_t p)
{
    if (own == NULL || trial->alternatives->is_joined[to])
        return own != NULL && nd_unit_carries_all(own);
    return nd_unit_carries(own) && nd_unit_trial_kept(trial, unit->input_edges[0], to, p) != NULL;
}

/* For the layers after the unit that may be made with it. What hands on codes hands on those that its maker
 * made for that layer. */
static enum nd_status keep_fused(struct nd_unit_trial *trial, const struct nd_exact_unit *unit, size_t p,
                                 struct nd_error *err)
{
    const struct nd_alternatives *a = trial->alternatives;
    const struct nd_model_unit *own = nd_model_unit_of_edge(trial->model, unit->edge);
    enum nd_status status = ND_OK;
    for (size_t k = a->first_part[unit->edge]; k != SIZE_MAX && status == ND_OK; k = a->parts[k].next) {
        struct nd_unit_made *kept = &trial->kept[k];
        const struct nd_edge *edge = nd_model_edge(trial->model, a->parts[k].to);
        struct nd_unit_encodings encodings = {
            .output = &edge->quant, .dtype = edge->dtype, .wraps = &kept->wraps};
        bool carries = hands_on(trial, unit, own, a->parts[k].to, p);
        kept->alike[p] = edge->dtype == unit->dtype && !carries ? trial->alike[p] : p;
        if (kept->alike[p] != p)
            continue;
        kept->is_open[p] =
            own != NULL && nd_unit_carries(own) && is_open(trial, unit->input_edges[0], a->parts[k].to, p);
        if (kept->is_open[p])
            continue;
        nd_force_inputs(a, unit->input_edges, nd_unit_n_inputs(unit), &encodings);
        if (nd_divided_from(trial->model, unit->edge) != NULL)
            encodings.output = nd_divided_from(trial->model, unit->edge);
        else if (!carries)
            encodings.after = nd_edge_after(trial->model, a->parts[k].to, &encodings.slope);
        if (!carries ||
            carry(trial, unit, a->parts[k].to, p, nd_unit_carries(own) ? 1 : own->n_inputs, &encodings))
            status = make_part(trial, unit, p, &encodings, kept);
    }
    return status == ND_OK ? ND_OK : nd_fail_memory(err);
}

static void forget_parts_of(struct nd_unit_trial *trial, const struct nd_exact_unit *unit)
{
    const struct nd_alternatives *a = trial->alternatives;
    for (size_t k = a->part_to[unit->edge]; k < a->n_parts && a->parts[k].to == unit->edge; k++)
        forget_made(&trial->kept[k]);
}

/* What was made with the maker of what the unit reads, with its gate, or for what reads it. */
static enum nd_status run_fused(struct nd_unit_trial *trial, const struct nd_exact_unit *unit, size_t p,
                                struct nd_error *err)
{
    size_t n;
    const struct nd_alternatives *a = trial->alternatives;
    struct nd_array *codes = &trial->others[ND_ALTERNATIVE_FUSED].codes[p];
    bool *is_covered = &trial->others[ND_ALTERNATIVE_FUSED].is_covered[p];
    struct nd_unit_gate gate;
    struct nd_error why = {0};
    const struct nd_array *kept = nd_unit_trial_kept(trial, a->fused_from[unit->edge], unit->edge, p);
    if (is_open(trial, a->fused_from[unit->edge], unit->edge, p))
        trial->is_covered[p] = false;
    if (kept != NULL) {
        enum nd_status copied = nd_array_copy(kept, codes, err);
        *is_covered = copied == ND_OK;
        if (*is_covered)
            nd_unit_narrow(unit, codes);
        return copied;
    }
    const struct nd_array *divided =
        nd_unit_n_inputs(unit) == 1 ? nd_unit_trial_kept(trial, unit->input_edges[0], unit->edge, p) : NULL;
    if (divided != NULL)
        return settle_made(nd_unit_run_brought(&nd_unit_programs(&n)[p], unit, divided,
                                               nd_divided_from(trial->model, unit->input_edges[0]), codes,
                                               is_covered, &why),
                           &why, codes, is_covered, err);
    enum nd_status status = find_gate(a, unit, &gate) ? nd_unit_run_gated(unit, &gate, codes, is_covered, &why)
                                                      : nd_unit_run_in_blocks(unit, codes, is_covered, &why);
    return settle_made(status, &why, codes, is_covered, err);
}

/* With the encodings that the provider forces on what the unit reads and makes; where it does not read so, on
 * what it makes alone: what is moved before it may have been brought to the model's encoding. */
static enum nd_status run_forced(struct nd_unit_trial *trial, const struct nd_exact_unit *unit, size_t p,
                                 const struct nd_array *given, struct nd_error *err)
{
    size_t n;
    const struct nd_unit_program *program = &nd_unit_programs(&n)[p];
    const struct nd_alternatives *a = trial->alternatives;
    struct nd_unit_made *forced = &trial->others[ND_ALTERNATIVE_FORCED];
    bool is_here = a->is_forced_here[unit->edge];
    enum nd_status status = ND_OK;
    for (int is_output_alone = 0; is_output_alone <= (is_here ? 1 : 0) && status == ND_OK; is_output_alone++) {
        struct nd_unit_encodings encodings = {.output = is_here ? &a->forced[unit->edge]->quant : NULL,
                                              .dtype = unit->dtype};
        struct nd_error why = {0};
        size_t n_inputs = is_output_alone != 0
                              ? 0
                              : nd_force_inputs(a, unit->input_edges, nd_unit_n_inputs(unit), &encodings);
        if (n_inputs == 0 && !is_here)
            break;
        nd_array_deinit(&forced->codes[p]);
        forced->is_covered[p] = false;
        status = nd_unit_run_with(program, unit, &encodings, &forced->codes[p], &forced->is_covered[p], &why);
        status = settle_made(status, &why, &forced->codes[p], &forced->is_covered[p], err);
        if (n_inputs == 0 || (forced->is_covered[p] && is_same(&forced->codes[p], given)))
            break;
    }
    return status;
}

static enum nd_status run_others(struct nd_unit_trial *trial, const struct nd_exact_unit *unit, size_t p,
                                 const struct nd_array *given, struct nd_error *err)
{
    size_t n;
    const struct nd_unit_program *program = &nd_unit_programs(&n)[p];
    const struct nd_alternatives *a = trial->alternatives;
    struct nd_unit_made *v81 = &trial->others[ND_ALTERNATIVE_V81];
    struct nd_error why = {0};
    enum nd_status status =
        a->is_joined[unit->edge] ? nd_unit_join(trial, unit, p, given, err) : run_fused(trial, unit, p, err);
    if (status == ND_OK)
        status = settle_made(
            nd_unit_run_as_v81(program, unit, trial->memory, &v81->codes[p], &v81->is_covered[p], &why), &why,
            &v81->codes[p], &v81->is_covered[p], err);
    if (status == ND_OK)
        status = run_forced(trial, unit, p, given, err);
    return status == ND_OK ? keep_fused(trial, unit, p, err) : status;
}

const struct nd_array *nd_unit_trial_other(const struct nd_unit_trial *trial, enum nd_alternative alternative,
                                           size_t program)
{
    const struct nd_unit_made *made = &trial->others[alternative];
    return made->is_covered[program] ? &made->codes[program] : NULL;
}

/* A layer that may be made with the one before it has the defects of that. */
static void note_defect(struct nd_unit_trial *trial, const struct nd_exact_unit *unit)
{
    const struct nd_alternatives *a = trial->alternatives;
    const struct nd_known_defect *defect = nd_known_defect_of(trial->model, unit);
    trial->known_defect = defect;
    for (size_t i = 0; a != NULL && i < nd_unit_n_inputs(unit) && trial->known_defect == NULL; i++) {
        size_t part = nd_fused_part_of(a, unit->input_edges[i], unit->edge);
        trial->known_defect = part != SIZE_MAX ? trial->kept[part].known_defect : NULL;
    }
    for (size_t k = a != NULL ? a->first_part[unit->edge] : SIZE_MAX; k != SIZE_MAX; k = a->parts[k].next) {
        trial->kept[k].known_defect = defect;
        if (defect == NULL && trial->kept[k].wraps)
            trial->kept[k].known_defect = nd_known_defect_with(ND_UNIT_SWISH_WRAPS);
    }
}

enum nd_status nd_unit_trial_run(struct nd_unit_trial *trial, const struct nd_exact_unit *unit,
                                 const struct nd_array *given, struct nd_error *err)
{
    size_t n;
    const struct nd_unit_program *programs = nd_unit_programs(&n);
    enum nd_status status = ND_OK;
    bool fits[ND_MAX_UNIT_PROGRAMS] = {false};
    forget_unit(trial);
    n = n < ND_MAX_UNIT_PROGRAMS ? n : ND_MAX_UNIT_PROGRAMS;
    for (size_t p = 0; p < n && status == ND_OK; p++) {
        size_t first = 0;
        while (first < p && !nd_unit_programs_agree(&programs[first], &programs[p], unit))
            first++;
        trial->alike[p] = first;
        if (first == p)
            status = run_program(trial, &programs[p], p, unit, err);
        if (first == p)
            fits[p] = trial->is_covered[p] && is_same(&trial->made[p], given);
        fits[p] = fits[first];
        trial->is_covered[p] = trial->is_covered[first];
        trial->doubt[p] = trial->doubt[first];
        if (status == ND_OK && trial->alternatives != NULL)
            status = run_others(trial, unit, p, given, err);
    }
    trial->edge = unit->edge;
    note_defect(trial, unit);
    if (trial->alternatives != NULL)
        forget_parts_of(trial, unit);
    /* What a program did not make it has not kept from before it was codes. */
    for (size_t p = 0; p < n && status == ND_OK; p++)
        if (!fits[p])
            nd_unit_memory_refute(trial->memory, unit->edge, &programs[p]);
    return status;
}

static void count_others(const struct nd_unit_trial *trial, const double *given, size_t n,
                         struct nd_unit_tally *tally)
{
    for (size_t k = 0; k < ND_N_ALTERNATIVES; k++)
        for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS; p++) {
            const struct nd_array *made = nd_unit_trial_other(trial, (enum nd_alternative)k, p);
            struct nd_other_tally *other = &tally->others[k];
            if (made == NULL || made->n != n)
                continue;
            other->n[p] += n;
            struct nd_ways_compared found;
            nd_gemm_kernels()->compare_ways(given, made->x, made->x, n, &found);
            other->wrong[p] += found.n_wrong;
            other->max[p] = fmax(other->max[p], found.max);
        }
}

/* Of several the first of the table, so that it does not depend on the order of samples. */
static void tally_defect(const struct nd_known_defect *defect, struct nd_unit_tally *tally)
{
    if (nd_known_defect_index(defect) < nd_known_defect_index(tally->known_defect))
        tally->known_defect = defect;
}

void nd_unit_trial_count(const struct nd_unit_trial *trial, const double *given, const double *exact, size_t n,
                         struct nd_unit_tally *tally)
{
    count_others(trial, given, n, tally);
    tally_defect(trial->known_defect, tally);
    struct nd_ways_compared found[ND_MAX_UNIT_PROGRAMS];
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS; p++) {
        const struct nd_array *made = &trial->made[trial->alike[p]];
        if (!trial->is_covered[p] || made->n != n)
            continue;
        tally->doubt[p] = fmax(tally->doubt[p], trial->doubt[p]);
        if (trial->alike[p] < p)
            found[p] = found[trial->alike[p]];
        else
            nd_gemm_kernels()->compare_ways(given, made->x, exact, n, &found[p]);
        tally->n[p] += n;
        tally->wrong[p] += found[p].n_wrong;
        tally->max[p] = fmax(tally->max[p], found[p].max);
        tally->apart[p] += found[p].n_apart;
        tally->apart_as_made[p] += found[p].n_apart_as_made;
        tally->apart_as_exact[p] += found[p].n_apart_as_exact;
    }
}

void nd_unit_tally_merge(const struct nd_unit_tally *from, struct nd_unit_tally *to)
{
    tally_defect(from->known_defect, to);
    for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS; p++) {
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
