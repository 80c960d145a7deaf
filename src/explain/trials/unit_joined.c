#include "explain/trials/unit_joined.h"

#include <string.h>

#include "arithmetic/known/conditions.h"
#include "core/error.h"

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

enum nd_status nd_unit_join(struct nd_unit_trial *trial, const struct nd_exact_unit *unit, size_t program,
                            const struct nd_array *given, struct nd_error *err)
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
