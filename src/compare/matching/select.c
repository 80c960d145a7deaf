#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "compare/matching/matching.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

/* Whether any capture says that it is an output of the model: an import may not know. */
static bool is_output(const struct nd_matching *a, size_t tensor)
{
    for (size_t c = 0; c < a->n_captures; c++) {
        const struct nd_tensor *one = nd_aligned_tensor(a, tensor, c);
        if (one != NULL && one->is_model_output)
            return true;
    }
    return false;
}

static size_t mark(const struct nd_matching *a, const char *pattern, bool *chosen)
{
    size_t n = 0;
    bool is_word = strcmp(pattern, "outputs") == 0;
    for (size_t e = 0; e < a->n_tensors; e++) {
        const char *name = a->tensor_names[e];
        /* A name always means itself, whatever a pattern reads in it. */
        if (strcmp(pattern, name) == 0 || (is_word ? is_output(a, e) : fnmatch(pattern, name, 0) == 0)) {
            chosen[e] = true;
            n++;
        }
    }
    return n;
}

static enum nd_status fail_no_match(const struct nd_matching *a, const char *pattern, struct nd_error *err)
{
    struct nd_strbuf examples = {0};
    char meant[ND_DID_YOU_MEAN_BYTES];
    if (strcmp(pattern, "outputs") == 0)
        return nd_fail(err, ND_E_OPTION_VALUE, pattern,
                       "no capture says which tensors are the model's outputs; name them instead");
    for (size_t e = 0; e < a->n_tensors && e < 5; e++)
        nd_strbuf_printf(&examples, "%s'%s'", e > 0 ? ", " : "", a->tensor_names[e]);
    char *list = nd_strbuf_take(&examples);
    enum nd_status status =
        list == NULL
            ? nd_fail_memory(err)
            : nd_fail(err, ND_E_OPTION_VALUE, pattern,
                      "no tensor of the captures matches '%s'; examples of their tensors: %.400s%s", pattern,
                      list,
                      nd_did_you_mean(pattern, a->tensor_names, a->n_tensors, sizeof *a->tensor_names, meant));
    free(list);
    return status;
}

/* Every pattern has to match: a misspelt name would otherwise pass as nothing to complain of. */
static enum nd_status mark_all(const struct nd_matching *a, const char *spec, bool *chosen,
                               struct nd_error *err)
{
    enum nd_status status = ND_OK;
    char *text = nd_strdup(spec);
    if (text == NULL)
        return nd_fail_memory(err);
    for (char *rest = text, *pattern; status == ND_OK && (pattern = strsep(&rest, ",")) != NULL;)
        if (mark(a, pattern, chosen) == 0)
            status = fail_no_match(a, pattern, err);
    free(text);
    return status;
}

enum nd_status nd_matching_select(struct nd_matching *a, const char *spec, struct nd_error *err)
{
    if (spec == NULL || strcmp(spec, "all") == 0)
        return ND_OK;
    bool *chosen = nd_calloc(a->n_tensors, sizeof *chosen);
    enum nd_status status = chosen != NULL ? mark_all(a, spec, chosen, err) : nd_fail_memory(err);
    size_t n = 0;
    for (size_t e = 0; status == ND_OK && e < a->n_tensors; e++) {
        if (!chosen[e])
            continue;
        a->tensor_names[n] = a->tensor_names[e];
        memmove(a->tensors + n * a->n_captures, a->tensors + e * a->n_captures,
                a->n_captures * sizeof *a->tensors);
        n++;
    }
    free(chosen);
    if (status != ND_OK)
        return status;
    a->n_left_out = a->n_tensors - n;
    a->n_tensors = n;
    return ND_OK;
}

static size_t mark_probes(const struct nd_matching *a, const char *pattern, bool *chosen)
{
    size_t n = 0;
    for (size_t p = 0; p < a->n_probes; p++)
        if (strcmp(pattern, a->probe_names[p]) == 0 || fnmatch(pattern, a->probe_names[p], 0) == 0) {
            chosen[p] = true;
            n++;
        }
    return n;
}

static enum nd_status fail_no_probe(const struct nd_matching *a, const char *pattern, struct nd_error *err)
{
    struct nd_strbuf names = {0};
    for (size_t p = 0; p < a->n_probes && p < 5; p++)
        nd_strbuf_printf(&names, "%s'%s'", p > 0 ? ", " : "", a->probe_names[p]);
    char *list = nd_strbuf_take(&names);
    enum nd_status status =
        list == NULL ? nd_fail_memory(err)
                     : nd_fail(err, ND_E_OPTION_VALUE, pattern,
                               "no probe of the captures matches '%s'; their probes: %.400s", pattern, list);
    free(list);
    return status;
}

/* Of the tables of probes only the rows that are chosen. */
static void keep_probes(struct nd_matching *a, const bool *chosen)
{
    size_t n = 0, width = a->n_captures;
    for (size_t p = 0; p < a->n_probes; p++) {
        for (size_t c = 0; c < width && !chosen[p]; c++)
            free(a->inputs[p * width + c]);
        if (!chosen[p])
            continue;
        a->probe_names[n] = a->probe_names[p];
        memmove(a->probes + n * width, a->probes + p * width, width * sizeof *a->probes);
        memmove(a->inputs + n * width, a->inputs + p * width, width * sizeof *a->inputs);
        n++;
    }
    a->n_probes = n;
}

enum nd_status nd_matching_select_probes(struct nd_matching *a, const char *const *patterns, size_t n,
                                         struct nd_error *err)
{
    if (n == 0)
        return ND_OK;
    bool *chosen = nd_calloc(a->n_probes, sizeof *chosen);
    enum nd_status status = chosen != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; i < n && status == ND_OK; i++)
        if (mark_probes(a, patterns[i], chosen) == 0)
            status = fail_no_probe(a, patterns[i], err);
    if (status == ND_OK)
        keep_probes(a, chosen);
    free(chosen);
    return status;
}
