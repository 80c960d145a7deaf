/* One sentence for each device that differs from the reference: where it begins, what does it, whose it is. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "judge/release/qualify.h"
#include "npudiff/explain/explain.h"

static bool differs(const struct nd_qualification *q, const struct nd_qualify_model *model, size_t device)
{
    size_t test;
    const struct nd_comparison *c = nd_qualify_compared(q, model, device, &test);
    return c != NULL && c->devices[test].first_edge != SIZE_MAX;
}

/* A fault first, with its evidence; else where the difference begins, which is no accusation. */
static void put_layers(struct nd_strbuf *out, const struct nd_explanation *e,
                       const struct nd_explained_device *device)
{
    nd_strbuf_printf(out, "%s", nd_health_name(device->health));
    if (device->n_faulty > 0) {
        const struct nd_explained_step *step = &e->steps[device->faulty[0]];
        const struct nd_explained_unit *unit = &device->units[device->faulty[0]];
        nd_strbuf_printf(out, ": '%s' (%s): %s%s%s", step->name, step->op_types,
                         unit->fault.kind != NULL ? unit->fault.kind : "", unit->fault.kind != NULL ? ": " : "",
                         unit->evidence);
    } else if (device->n_unexplained > 0) {
        const struct nd_explained_step *step = &e->steps[device->unexplained[0]];
        nd_strbuf_printf(out, ": %zu of %zu layers do not follow known arithmetic, first of all '%s' (%s): %s",
                         device->n_unexplained, e->n_steps, step->name, step->op_types,
                         device->units[device->unexplained[0]].evidence);
    } else if (device->health == ND_HEALTH_HEALTHY) {
        const char *arithmetic = device->expected != NULL && !device->is_refuted ? device->expected
                                 : device->program != NULL                       ? device->program
                                                                                 : "known";
        nd_strbuf_printf(out, ": all %zu layers follow %s arithmetic", e->n_steps, arithmetic);
    }
    if (device->n_sources > 0)
        nd_strbuf_printf(out, "; it differs from exact rounding from '%s' (%s) on",
                         e->steps[device->sources[0]].name, e->steps[device->sources[0]].op_types);
}

static char *sentence_of(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    struct nd_strbuf out = {0};
    if (device->failure != NULL)
        nd_strbuf_printf(&out, "failed: %s", device->failure);
    else
        put_layers(&out, e, device);
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

static void show_samples(void *context, size_t n_done, size_t n_samples)
{
    const struct nd_qualify_options *options = context;
    options->progress(options->progress_context, &(struct nd_qualify_progress){.n = 1,
                                                                               .label = "explain",
                                                                               .stage = "run",
                                                                               .done = n_done,
                                                                               .total = n_samples,
                                                                               .is_done = n_done == n_samples});
}

size_t nd_qualify_explain_parts(const struct nd_qualification *q)
{
    return q->options->n_explain_parts > 1 ? q->options->n_explain_parts : 1;
}

/* The captures of the devices that differ, and which devices these are. */
struct subjects {
    const struct nd_capture **captures;
    size_t *devices;
    size_t n;
};

static enum nd_status collect(const struct nd_qualification *q, const struct nd_qualify_model *model,
                              struct subjects *out, struct nd_error *err)
{
    out->captures = nd_calloc(q->n_devices, sizeof(const struct nd_capture *));
    out->devices = nd_calloc(q->n_devices, sizeof *out->devices);
    if (out->captures == NULL || out->devices == NULL)
        return nd_fail_memory(err);
    for (size_t d = 0; d < q->n_devices; d++)
        if (model->cells[d].prepared == NULL && differs(q, model, d)) {
            out->devices[out->n] = d;
            out->captures[out->n++] = model->cells[d].capture;
        }
    return ND_OK;
}

static void subjects_deinit(struct subjects *subjects)
{
    free(subjects->captures);
    free(subjects->devices);
}

static struct nd_explain_options options_of(const struct nd_qualification *q)
{
    return (struct nd_explain_options){.struct_size = sizeof(struct nd_explain_options),
                                       .n_threads = q->options->n_threads,
                                       .omits_quantisation = true, /* a campaign does not tell of it */
                                       .progress = q->options->progress != NULL ? show_samples : NULL,
                                       .progress_context = (void *)(uintptr_t)q->options};
}

/* That something cannot be explained is no reason to withhold the verdict. */
static bool is_told(enum nd_status status)
{
    return status == ND_OK || status == ND_ERR_UNSUPPORTED || status == ND_ERR_NOT_COMPARABLE ||
           status == ND_ERR_NOT_FOUND;
}

enum nd_status nd_qualify_explain_one(const struct nd_qualification *q, struct nd_qualify_model *model,
                                      const char *const *parts, size_t n_parts, struct nd_error *err)
{
    struct subjects subjects = {0};
    struct nd_explanation *explanation = NULL;
    enum nd_status status = collect(q, model, &subjects, err);
    struct nd_explain_options options = options_of(q);
    options.merge = parts;
    options.n_merge = n_parts;
    if (status == ND_OK && subjects.n > 0 && q->options->say != NULL)
        q->options->say(q->options->say_context, "explaining");
    if (status == ND_OK && subjects.n > 0)
        status = nd_explain(model->model, model->float_model, subjects.captures, subjects.n, &options,
                            &explanation, err);
    if (is_told(status) && subjects.n > 0)
        status = put_all(model, subjects.devices, subjects.n, explanation, status != ND_OK ? err->message : "")
                     ? ND_OK
                     : nd_fail_memory(err);
    nd_explanation_destroy(&explanation);
    subjects_deinit(&subjects);
    return status;
}

enum nd_status nd_qualify_explain_part(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                       size_t part, char **text, struct nd_error *err)
{
    struct subjects subjects = {0};
    enum nd_status status = collect(q, model, &subjects, err);
    struct nd_explain_options options = options_of(q);
    options.part = part;
    options.n_parts = nd_qualify_explain_parts(q);
    if (status == ND_OK && subjects.n > 0)
        status = nd_explain_part(model->model, model->float_model, subjects.captures, subjects.n, &options,
                                 text, err);
    subjects_deinit(&subjects);
    return is_told(status) ? ND_OK : status;
}
