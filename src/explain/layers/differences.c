/* Why two devices differ whose arithmetics are known: what the arithmetics are and in how many quantised values
 * it shows. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/stages.h"

struct pair {
    const struct nd_explain_job *job;
    size_t devices[2], arithmetics[2];
};

/* Quantised values of the layer on which the arithmetics differ, where the first device follows its own. */
static uint64_t count_apart(const struct pair *pair, size_t step)
{
    const struct nd_observed_arithmetic *observed =
        nd_observed_arithmetic_of(pair->job, pair->devices[0], step);
    if (observed->standing != ND_STANDING_FOLLOWS || observed->is_of_values ||
        observed->layers->n[pair->arithmetics[1]] == 0)
        return 0;
    uint64_t own = observed->layers->wrong[pair->arithmetics[0]],
             other = observed->layers->wrong[pair->arithmetics[1]];
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
    char *longer = nd_text("%s%s%s", *list != NULL ? *list : "", *list != NULL ? ", " : "", word);
    ND_TRY_MEMORY(longer != NULL, err);
    free(*list);
    *list = longer;
    return ND_OK;
}

/* A reason once, with all kinds of layers for which it is one. */
static enum nd_status add_reason(struct nd_explained_difference *out, const struct nd_layer_difference *reason,
                                 const char *op_types, struct nd_error *err)
{
    size_t i = 0;
    while (i < out->n_because && strcmp(out->because[i].texts[0], reason->a) != 0)
        i++;
    if (i == out->n_because) {
        struct nd_explained_reason *grown = realloc(out->because, (i + 1) * sizeof *grown);
        ND_TRY_MEMORY(grown != NULL, err);
        grown[i] = (struct nd_explained_reason){.name = reason->name, .texts = {reason->a, reason->b}};
        out->because = grown;
        out->n_because++;
    }
    return add_word(&out->because[i].op_types, op_types, err);
}

static enum nd_status add_layer(const struct pair *pair, size_t step, struct nd_explained_difference *out,
                                struct nd_error *err)
{
    size_t n;
    const struct nd_layer_arithmetic *arithmetics = nd_layer_arithmetics(&n);
    struct nd_layer_difference reasons[ND_LAYER_MAX_DIFFERENCES];
    const char *op_types = pair->job->plan->steps[step].op_types;
    const struct nd_tensor *tensor =
        nd_model_tensor(pair->job->plan->model, pair->job->out->steps[step].tensor);
    size_t n_reasons =
        nd_layer_arithmetic_differences(&arithmetics[pair->arithmetics[0]], &arithmetics[pair->arithmetics[1]],
                                        op_types, tensor->dtype, reasons);
    enum nd_status status = add_word(&out->op_types, op_types, err);
    for (size_t i = 0; i < n_reasons && status == ND_OK; i++)
        status = add_reason(out, &reasons[i], op_types, err);
    out->n_layers++;
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
            status = add_layer(pair, s, out, err);
    for (size_t s = 0; s < job->plan->n_steps && status == ND_OK; s++)
        if (is_listed(out->op_types, job->out->steps[s].op_types))
            out->n_qvalues += job->out->devices[pair->devices[0]].layers[s].n_qvalues;
    for (size_t k = 0; k < 2; k++) {
        out->devices[k] = pair->devices[k];
        out->arithmetics[k] = job->out->devices[pair->devices[k]].arithmetic;
    }
    return status;
}

static bool has_arithmetic(const struct nd_explain_job *job, size_t device)
{
    return !job->plan->sources[device].is_failed && job->plan->sources[device].same_as == device &&
           job->observations->layer_arithmetic[device] != SIZE_MAX;
}

enum nd_status nd_explain_find_differences(const struct nd_explain_job *job, struct nd_error *err)
{
    size_t n = job->plan->n_devices, n_pairs;
    if (!nd_size_mul(n, n, &n_pairs))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "too many devices");
    job->out->differences = nd_calloc(n_pairs / 2 + 1, sizeof *job->out->differences);
    ND_TRY_MEMORY(job->out->differences != NULL, err);
    enum nd_status status = ND_OK;
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n && status == ND_OK; b++) {
            const struct pair pair = {
                job, {a, b}, {job->observations->layer_arithmetic[a], job->observations->layer_arithmetic[b]}};
            if (has_arithmetic(job, a) && has_arithmetic(job, b) && pair.arithmetics[0] != pair.arithmetics[1])
                status = compare(&pair, &job->out->differences[job->out->n_differences++], err);
        }
    return status;
}
