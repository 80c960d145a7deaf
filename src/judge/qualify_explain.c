/* One sentence for each device that differs from the reference: where it begins, what does it, whose it is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strbuf.h"
#include "judge/qualify.h"
#include "npudiff/explain.h"

static bool differs(const struct nd_qualification *q, const struct nd_qualify_model *model, size_t device)
{
    size_t ref = nd_qualify_find_cell(model, q->n_devices, q->campaign.reference);
    const struct nd_qualify_comparison *found = nd_qualify_find_comparison(model, ref);
    return found != NULL && found->comparison != NULL && found->devices[device] != SIZE_MAX &&
           found->comparison->devices[found->devices[device]].first_edge != SIZE_MAX;
}

static void put_source(struct nd_strbuf *out, const struct nd_explanation *e,
                       const struct nd_explained_device *device)
{
    const struct nd_explained_step *first = &e->steps[device->sources[0]];
    const struct nd_explained_unit *unit = &device->units[device->sources[0]];
    nd_strbuf_printf(out, "differs from '%s' (%s) on", first->name, first->op_types);
    if (device->n_sources > 1)
        nd_strbuf_printf(out, ", %zu units begin a difference", device->n_sources);
    if (device->program != NULL)
        nd_strbuf_printf(out, "; most units do '%s'", device->program);
    for (size_t i = 0; i < device->n_faulty && i < 1; i++) {
        const struct nd_explained_unit *faulty = &device->units[device->faulty[i]];
        nd_strbuf_printf(out, "; '%s' is out of line%s%s", e->steps[device->faulty[i]].name,
                         faulty->fault.kind != NULL ? ": " : "",
                         faulty->fault.kind != NULL ? faulty->fault.text : "");
    }
    if (device->n_faulty == 0 && unit->fault.kind != NULL)
        nd_strbuf_printf(out, "; %s", unit->fault.text);
}

static char *sentence_of(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    struct nd_strbuf out = {0};
    if (device->failure != NULL)
        nd_strbuf_printf(&out, "failed: %s", device->failure);
    else if (device->n_sources > 0)
        put_source(&out, e, device);
    else
        nd_strbuf_printf(&out, "%s: no unit was found that makes a difference of its own",
                         nd_verdict_name(device->verdict));
    if (device->output.n_codes > 0 && !isnan(device->own_share))
        nd_strbuf_printf(&out, "; %.2f%% of its error at the outputs is its own, the rest quantisation",
                         100 * device->own_share);
    return nd_strbuf_take(&out);
}

static bool put_all(struct nd_qualify_model *model, const size_t *devices, size_t n,
                    const struct nd_explanation *e, const char *why_not)
{
    bool is_whole = true;
    for (size_t i = 0; i < n; i++) {
        char **out = &model->explanations[devices[i]];
        if (e != NULL) {
            *out = sentence_of(e, &e->devices[i]);
        } else {
            struct nd_strbuf text = {0};
            nd_strbuf_printf(&text, "not explained: %s", why_not);
            *out = nd_strbuf_take(&text);
        }
        is_whole = is_whole && *out != NULL;
    }
    return is_whole;
}

enum nd_status nd_qualify_explain(struct nd_qualification *q, struct nd_qualify_model *model,
                                  struct nd_error *err)
{
    const struct nd_capture **captures = nd_calloc(q->n_devices, sizeof(const struct nd_capture *));
    size_t *devices = nd_calloc(q->n_devices, sizeof *devices), n = 0;
    struct nd_explanation *explanation = NULL;
    enum nd_status status = captures != NULL && devices != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t d = 0; status == ND_OK && d < q->n_devices; d++)
        if (model->cells[d].prepared == NULL && differs(q, model, d)) {
            devices[n] = d;
            captures[n++] = model->cells[d].capture;
        }
    const struct nd_explain_options options = {.struct_size = sizeof options,
                                               .n_threads = q->options->n_threads};
    if (status == ND_OK && n > 0 && q->options->say != NULL)
        q->options->say(q->options->say_context, "explaining");
    if (status == ND_OK && n > 0)
        status = nd_explain(model->model, model->float_model, captures, n, &options, &explanation, err);
    /* That something cannot be explained is no reason to withhold the verdict. */
    bool is_told = status == ND_OK || status == ND_ERR_UNSUPPORTED || status == ND_ERR_NOT_COMPARABLE ||
                   status == ND_ERR_NOT_FOUND;
    if (is_told && n > 0)
        status = put_all(model, devices, n, explanation, status != ND_OK ? err->message : "")
                     ? ND_OK
                     : nd_fail_memory(err);
    nd_explanation_destroy(&explanation);
    free(captures);
    free(devices);
    return status;
}
