/* Which tensors a capture makes visible. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"
#include "npudiff/core/parse.h"

/* Asking for a graph input as an output is legal in ONNX but not everywhere in NPU providers, and its bytes are
 * the probe's own. */
static bool is_exposable(const struct nd_model *model, size_t tensor)
{
    size_t value = nd_names_find(&model->graph.names, model->tensors[tensor].onnx_name);
    return model->graph.tensors[value].producer != ND_NO_INDEX;
}

static size_t mark_matching(const struct nd_model *model, const char *pattern, bool *chosen)
{
    size_t n = 0;
    for (size_t e = 0; e < model->n_tensors; e++) {
        const char *name = model->tensors[e].name;
        /* Names hold brackets and other things that a pattern reads otherwise: a name always means itself. */
        if ((strcmp(pattern, name) == 0 || fnmatch(pattern, name, 0) == 0) && is_exposable(model, e)) {
            chosen[e] = true;
            n++;
        }
    }
    return n;
}

static enum nd_status fail_no_match(const struct nd_model *model, const char *pattern, struct nd_error *err)
{
    struct nd_strbuf examples = {0};
    char meant[ND_DID_YOU_MEAN_BYTES];
    for (size_t e = 0, n = 0; e < model->n_tensors && n < 5; e++)
        if (is_exposable(model, e))
            nd_strbuf_printf(&examples, "%s'%s'", n++ > 0 ? ", " : "", model->tensors[e].name);
    char *list = nd_strbuf_take(&examples);
    if (list == NULL)
        return nd_fail_memory(err);
    enum nd_status status =
        nd_fail(err, ND_E_MODEL_NO_TENSOR, pattern, "no tensor of '%s' matches '%s'%s%s%s", model->path,
                pattern, list[0] != '\0' ? "; examples of its tensors: " : "", list,
                nd_did_you_mean(pattern, model->n_tensors > 0 ? &model->tensors[0].name : NULL,
                                model->n_tensors, sizeof model->tensors[0], meant));
    free(list);
    return status;
}

/* The length of the pattern that text starts with; a comma after a backslash belongs to it. */
static size_t pattern_length(const char *text)
{
    size_t n = 0;
    while (text[n] != '\0' && text[n] != ',')
        n += text[n] == '\\' && text[n + 1] != '\0' ? 2 : 1;
    return n;
}

static enum nd_status mark_patterns(const struct nd_model *model, const char *spec, bool *chosen,
                                    struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (const char *at = spec; status == ND_OK;) {
        size_t n = pattern_length(at);
        if (n == 0)
            return nd_fail(err, ND_E_OPTION_VALUE, spec, "'%s' holds an empty tensor pattern", spec);
        char *pattern = strndup(at, n);
        if (pattern == NULL)
            return nd_fail_memory(err);
        if (mark_matching(model, pattern, chosen) == 0)
            status = fail_no_match(model, pattern, err);
        free(pattern);
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    return status;
}

enum nd_status nd_model_select_tensors(const struct nd_model *model, const char *spec, size_t **selected,
                                       size_t *n_selected, struct nd_error *err)
{
    bool all = strcmp(spec, "all") == 0;
    bool outputs = strcmp(spec, "outputs") == 0 || strcmp(spec, "none") == 0;
    bool *chosen = nd_calloc(model->n_tensors, sizeof *chosen);
    size_t *indices = nd_calloc(model->n_tensors, sizeof *indices), n = 0;
    enum nd_status status = chosen != NULL && indices != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && !all && !outputs)
        status = mark_patterns(model, spec, chosen, err);
    for (size_t e = 0; status == ND_OK && e < model->n_tensors; e++)
        if (chosen[e] || ((all || (outputs && model->tensors[e].is_model_output)) && is_exposable(model, e)))
            indices[n++] = e;
    if (status == ND_OK && n == 0)
        status = nd_fail(err, ND_E_MODEL_NO_TENSOR, model->path, "'%s' has no tensor that can be made visible",
                         model->path);
    free(chosen);
    if (status != ND_OK) {
        free(indices);
        return status;
    }
    *selected = indices;
    *n_selected = n;
    return ND_OK;
}
