/* What a campaign comes to, before anything of it is done. */
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "judge/tasks/task.h"

void nd_plan_of_campaign_deinit(struct nd_plan_of_campaign *plan)
{
    nd_arena_destroy(plan->owner);
    *plan = (struct nd_plan_of_campaign){0};
}

/* ---- what comes before what ---- */

/* A comparison needs the captures of its model, an explanation and its parts these and the comparison with the
 * campaign's reference, an explanation also its parts, the verdict everything else. */
static bool is_needed(const struct nd_qualification *q, const struct nd_task_place *before,
                      const struct nd_task_place *after)
{
    bool is_of_model = after->kind == ND_TASK_JUDGE || before->model == after->model;
    if (before->kind >= after->kind || !is_of_model)
        return false;
    if (before->kind == ND_TASK_EXPLAIN_PART)
        return after->kind == ND_TASK_EXPLAIN;
    if (before->kind != ND_TASK_COMPARE || after->kind == ND_TASK_JUDGE)
        return true;
    return before->cell == nd_qualify_find_cell(&q->models[before->model], q->n_devices, q->campaign.reference);
}

static void fill_needs(const struct nd_qualification *q, const struct nd_task_places *places, size_t i,
                       struct nd_task *task, struct nd_arena *arena)
{
    const struct nd_task_place *place = &places->items[i];
    size_t n = 0;
    for (size_t k = 0; place->kind != ND_TASK_CAPTURE && k < i; k++)
        n += is_needed(q, &places->items[k], place);
    size_t *needs = n > 0 ? nd_arena_calloc(arena, n, sizeof *needs) : NULL;
    for (size_t k = 0; needs != NULL && k < i; k++)
        if (is_needed(q, &places->items[k], place))
            needs[task->n_needs++] = k;
    task->needs = needs;
}

/* ---- one task ---- */

static enum nd_status find_done(struct nd_qualification *q, const struct nd_task_place *place, bool *out,
                                struct nd_error *err)
{
    struct nd_qualify_model *model = place->model != SIZE_MAX ? &q->models[place->model] : NULL;
    enum nd_status status = ND_OK;
    *out = false;
    switch (place->kind) {
    case ND_TASK_CAPTURE:
        *out = model->cells[place->cell].is_fresh;
        break;
    case ND_TASK_COMPARE:
        return nd_qualify_has_comparison(q, model, place->cell, out, err);
    case ND_TASK_EXPLAIN_PART: /* nobody needs it when its explanation is there */
        status = nd_qualify_has_explanation_part(q, model, place->part, out, err);
        return status == ND_OK && !*out ? nd_qualify_has_explanation(q, model, out, err) : status;
    case ND_TASK_EXPLAIN:
        return nd_qualify_has_explanation(q, model, out, err);
    case ND_TASK_JUDGE:
        break;
    }
    return status;
}

static enum nd_status fill_task(struct nd_qualification *q, const struct nd_task_place *place,
                                const struct nd_took_list *known, struct nd_task *task, struct nd_arena *arena,
                                struct nd_error *err)
{
    char digest[65];
    struct nd_strbuf key = {0};
    struct nd_task_size size;
    const struct nd_qualify_model *model = place->model != SIZE_MAX ? &q->models[place->model] : NULL;
    const struct nd_qualify_cell *cell = place->cell != SIZE_MAX ? &model->cells[place->cell] : NULL;
    enum nd_status status = nd_task_key(q, place, digest, err);
    if (status != ND_OK)
        return status;
    nd_task_format_key(digest, &key);
    task->kind = place->kind;
    task->key = nd_arena_text(arena, key.text);
    task->model = nd_arena_text(arena, model != NULL ? model->campaign->name : "");
    task->device = nd_arena_text(arena, cell != NULL ? cell->label : "");
    task->kind_of_device = task->address = "";
    if (place->kind == ND_TASK_CAPTURE) {
        task->kind_of_device = nd_device_kind_name(cell->device.kind);
        task->transport = cell->device.transport;
        task->address = nd_arena_text(arena, cell->device.address);
    }
    status = key.failed ? nd_fail_memory(err) : find_done(q, place, &task->is_done, err);
    nd_task_measure(q, place, &size);
    nd_task_estimate(&size, known, task);
    task->source = nd_arena_text(arena, task->source);
    nd_strbuf_deinit(&key);
    return status;
}

/* ---- sums ---- */

static enum nd_status add_up(struct nd_plan_of_campaign *plan, struct nd_error *err)
{
    double *ends = nd_calloc(plan->n, sizeof *ends);
    if (ends == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < plan->n; i++) {
        const struct nd_task *task = &plan->tasks[i];
        double begin = 0, left = task->is_done ? 0 : task->seconds;
        plan->n_done += task->is_done;
        plan->n_measured += strcmp(task->source, "default") != 0;
        plan->seconds += task->seconds;
        plan->seconds_left += left;
        plan->bytes += task->bytes;
        plan->bytes_left += task->is_done ? 0 : task->bytes;
        if (task->memory_bytes > plan->memory_bytes)
            plan->memory_bytes = task->memory_bytes;
        for (size_t k = 0; k < task->n_needs; k++)
            begin = ends[task->needs[k]] > begin ? ends[task->needs[k]] : begin;
        ends[i] = begin + left;
        plan->longest_s = ends[i] > plan->longest_s ? ends[i] : plan->longest_s;
    }
    free(ends);
    return ND_OK;
}

static enum nd_status fill(struct nd_qualification *q, const char *campaign, const struct nd_took_list *known,
                           struct nd_plan_of_campaign *plan, struct nd_error *err)
{
    struct nd_task_places places;
    enum nd_status status = nd_task_places_list(q, &places, err);
    if (status != ND_OK)
        return status;
    plan->campaign = nd_arena_text(plan->owner, q->campaign.name);
    plan->path = nd_arena_text(plan->owner, campaign);
    plan->folder = nd_arena_text(plan->owner, q->folder);
    plan->version = nd_version();
    plan->n_explain_parts = nd_qualify_explain_parts(q);
    plan->tasks = nd_arena_calloc(plan->owner, places.n, sizeof *plan->tasks);
    for (size_t i = 0; status == ND_OK && plan->tasks != NULL && i < places.n; i++) {
        struct nd_task *task = &plan->tasks[plan->n++];
        task->file = nd_arena_text(plan->owner, places.files[i]);
        fill_needs(q, &places, i, task, plan->owner);
        status = fill_task(q, &places.items[i], known, task, plan->owner, err);
    }
    nd_task_places_deinit(&places);
    if (status == ND_OK && nd_arena_has_failed(plan->owner))
        status = nd_fail_memory(err);
    return status == ND_OK ? add_up(plan, err) : status;
}

static enum nd_status make(const char *campaign, const char *const *from, size_t n_from,
                           struct nd_qualification *q, struct nd_plan_of_campaign *plan, struct nd_error *err)
{
    struct nd_took_list known = {0};
    enum nd_status status = nd_qualify_plan(q, err);
    if (status == ND_OK)
        status = nd_dir_make(q->folder, err); /* for the digests of runtimes, which are read once */
    if (status == ND_OK)
        status = nd_qualify_check_fresh(q, err);
    if (status == ND_OK)
        status = nd_took_read_folder(q->folder, &known, err);
    for (size_t i = 0; status == ND_OK && i < n_from; i++)
        status = nd_took_read_folder(from[i], &known, err);
    if (status == ND_OK && (plan->owner = nd_arena_create()) == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = fill(q, campaign, &known, plan, err);
    nd_took_list_deinit(&known);
    return status;
}

enum nd_status nd_campaign_plan(const char *campaign, const char *const *from, size_t n_from,
                                const struct nd_qualify_options *options, struct nd_plan_of_campaign *out,
                                struct nd_error *err)
{
    struct nd_qualify_options own = {.struct_size = sizeof own};
    struct nd_qualification q;
    struct nd_plan_of_campaign plan = {0};
    struct nd_error why = {0};
    err = err != NULL ? err : &why;
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status == ND_OK)
        status = nd_qualify_begin(campaign, &own, &q, err);
    if (status != ND_OK)
        return status;
    status = make(campaign, from, n_from, &q, &plan, err);
    nd_qualify_plan_deinit(&q);
    nd_campaign_deinit(&q.campaign);
    free(q.folder);
    if (status == ND_OK)
        *out = plan;
    else
        nd_plan_of_campaign_deinit(&plan);
    return status;
}
