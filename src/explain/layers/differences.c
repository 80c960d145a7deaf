/* Why two devices differ whose programs are known: what the programs are and in how many codes it shows. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/stages.h"

struct pair {
    const struct nd_explain_job *job;
    size_t devices[2], programs[2];
};

/* Codes of the unit on which the programs differ, where the first device follows its own. */
static uint64_t count_apart(const struct pair *pair, size_t step)
{
    const struct nd_habit *habit = nd_habit_of(pair->job, pair->devices[0], step);
    if (habit->standing != ND_STANDING_FOLLOWS || habit->is_of_values ||
        habit->units->n[pair->programs[1]] == 0)
        return 0;
    uint64_t own = habit->units->wrong[pair->programs[0]], other = habit->units->wrong[pair->programs[1]];
    return other > own ? other : 0;
}

static bool is_listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at != NULL && *at != '\0'; at += strcspn(at, ",")) {
        at += strspn(at, ", ");
        if (strncmp(at, word, n) == 0 && (at[n] == '\0' || at[n] == ','))
            return true;
    }
    return false;
}

static enum nd_status add_word(char **list, const char *word, struct nd_error *err)
{
    if (is_listed(*list, word))
        return ND_OK;
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s%s%s", *list != NULL ? *list : "", *list != NULL ? ", " : "", word);
    char *longer = nd_strbuf_take(&text);
    if (longer == NULL)
        return nd_fail_memory(err);
    free(*list);
    *list = longer;
    return ND_OK;
}

/* A reason once, with all kinds of units for which it is one. */
static enum nd_status add_reason(struct nd_explained_difference *out, const struct nd_unit_difference *reason,
                                 const char *op_types, struct nd_error *err)
{
    size_t i = 0;
    while (i < out->n_because && strcmp(out->because[i].texts[0], reason->a) != 0)
        i++;
    if (i == out->n_because) {
        struct nd_explained_reason *grown = realloc(out->because, (i + 1) * sizeof *grown);
        if (grown == NULL)
            return nd_fail_memory(err);
        grown[i] = (struct nd_explained_reason){.name = reason->name, .texts = {reason->a, reason->b}};
        out->because = grown;
        out->n_because++;
    }
    return add_word(&out->because[i].op_types, op_types, err);
}

static enum nd_status add_unit(const struct pair *pair, size_t step, struct nd_explained_difference *out,
                               struct nd_error *err)
{
    size_t n;
    const struct nd_unit_program *programs = nd_unit_programs(&n);
    struct nd_unit_difference reasons[ND_UNIT_MOST_DIFFERENCES];
    const char *op_types = pair->job->plan->steps[step].op_types;
    const struct nd_edge *edge = nd_model_edge(pair->job->plan->model, pair->job->out->steps[step].edge);
    size_t n_reasons = nd_unit_program_differences(&programs[pair->programs[0]], &programs[pair->programs[1]],
                                                   op_types, edge->dtype, reasons);
    enum nd_status status = add_word(&out->op_types, op_types, err);
    for (size_t i = 0; i < n_reasons && status == ND_OK; i++)
        status = add_reason(out, &reasons[i], op_types, err);
    out->n_units++;
    out->n_differing += count_apart(pair, step);
    return status;
}

static enum nd_status compare(const struct pair *pair, struct nd_explained_difference *out,
                              struct nd_error *err)
{
    const struct nd_explain_job *job = pair->job;
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->plan->n_steps && status == ND_OK; s++)
        if (count_apart(pair, s) > 0)
            status = add_unit(pair, s, out, err);
    for (size_t s = 0; s < job->plan->n_steps && status == ND_OK; s++)
        if (is_listed(out->op_types, job->out->steps[s].op_types))
            out->n_codes += job->out->devices[pair->devices[0]].units[s].n_codes;
    for (size_t k = 0; k < 2; k++) {
        out->devices[k] = pair->devices[k];
        out->programs[k] = job->out->devices[pair->devices[k]].program;
    }
    return status;
}

static bool has_program(const struct nd_explain_job *job, size_t device)
{
    return !job->plan->sources[device].is_failed && job->plan->sources[device].same_as == device &&
           job->habits->unit_program[device] != SIZE_MAX;
}

enum nd_status nd_explain_find_differences(const struct nd_explain_job *job, struct nd_error *err)
{
    size_t n = job->plan->n_devices, n_pairs;
    if (!nd_size_mul(n, n, &n_pairs))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "too many devices");
    job->out->differences = nd_calloc(n_pairs / 2 + 1, sizeof *job->out->differences);
    if (job->out->differences == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n && status == ND_OK; b++) {
            const struct pair pair = {
                job, {a, b}, {job->habits->unit_program[a], job->habits->unit_program[b]}};
            if (has_program(job, a) && has_program(job, b) && pair.programs[0] != pair.programs[1])
                status = compare(&pair, &job->out->differences[job->out->n_differences++], err);
        }
    return status;
}
