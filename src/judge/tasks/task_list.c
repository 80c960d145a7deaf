/* Which tasks a campaign has. */
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "judge/tasks/task.h"

const char *nd_task_kind_name(enum nd_task_kind kind)
{
    static const char *const names[ND_TASK_N_KINDS] = {"capture", "compare", "explain_part", "explain",
                                                       "judge"};
    return names[kind];
}

/* ---- the list ---- */

/* Takes over `file`, NULL when memory was out. There is room. */
static enum nd_status add(struct nd_task_places *places, const struct nd_task_place *place, char *file,
                          struct nd_error *err)
{
    if (file == NULL)
        return nd_fail_memory(err);
    places->files[places->n] = file;
    places->items[places->n++] = *place;
    return ND_OK;
}

static enum nd_status add_comparisons(struct nd_qualification *q, size_t m, struct nd_task_places *places,
                                      struct nd_error *err)
{
    const struct nd_qualify_model *model = &q->models[m];
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < model->n_comparisons; i++)
        status = add(places, &(struct nd_task_place){ND_TASK_COMPARE, m, model->comparisons[i].ref, 0},
                     nd_qualify_comparison_file(model, model->comparisons[i].ref), err);
    return status;
}

/* The parts before the explanation that they become. */
static enum nd_status add_explanation(const struct nd_qualification *q, size_t m, struct nd_task_places *places,
                                      struct nd_error *err)
{
    size_t n_parts = nd_qualify_explain_parts(q);
    enum nd_status status = ND_OK;
    for (size_t part = 0; status == ND_OK && n_parts > 1 && part < n_parts; part++)
        status = add(places, &(struct nd_task_place){ND_TASK_EXPLAIN_PART, m, SIZE_MAX, part},
                     nd_qualify_explanation_part_file(&q->models[m], part, n_parts), err);
    if (status == ND_OK)
        status = add(places, &(struct nd_task_place){ND_TASK_EXPLAIN, m, SIZE_MAX, 0},
                     nd_qualify_explanation_file(&q->models[m]), err);
    return status;
}

enum nd_status nd_task_places_list(struct nd_qualification *q, struct nd_task_places *out, struct nd_error *err)
{
    struct nd_task_places places = {0};
    enum nd_status status = ND_OK;
    size_t n = 1;
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++) {
        status = nd_qualify_list_comparisons(q, &q->models[m], err);
        n += q->models[m].n_cells + q->models[m].n_comparisons + nd_qualify_explain_parts(q) + 1;
    }
    if (status == ND_OK && ((places.items = nd_calloc(n, sizeof *places.items)) == NULL ||
                            (places.files = nd_calloc(n, sizeof *places.files)) == NULL))
        status = nd_fail_memory(err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        for (size_t c = 0; status == ND_OK && c < q->models[m].n_cells; c++)
            status = add(&places, &(struct nd_task_place){ND_TASK_CAPTURE, m, c, 0},
                         nd_strdup(q->models[m].cells[c].relative), err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = add_comparisons(q, m, &places, err);
    for (size_t m = 0; status == ND_OK && q->campaign.explain && m < q->campaign.n_models; m++)
        status = add_explanation(q, m, &places, err);
    if (status == ND_OK)
        status = add(&places, &(struct nd_task_place){ND_TASK_JUDGE, SIZE_MAX, SIZE_MAX, 0},
                     nd_strdup(ND_TASK_RESULT), err);
    if (status == ND_OK)
        *out = places;
    else
        nd_task_places_deinit(&places);
    return status;
}

void nd_task_places_deinit(struct nd_task_places *places)
{
    for (size_t i = 0; i < places->n; i++)
        free(places->files[i]);
    free(places->files);
    free(places->items);
    *places = (struct nd_task_places){0};
}

/* ---- keys ---- */

static void put_cells(struct nd_strbuf *key, const struct nd_qualify_model *model)
{
    for (size_t c = 0; c < model->n_cells; c++)
        nd_strbuf_printf(key, "%s %s\n", model->cells[c].relative, model->cells[c].key);
}

/* Of a capture its own; of all others the keys of the captures, and of the one that judges the campaign's file.
 */
enum nd_status nd_task_key(const struct nd_qualification *q, const struct nd_task_place *place,
                           char key[static 65], struct nd_error *err)
{
    struct nd_strbuf text = {0};
    if (place->kind == ND_TASK_CAPTURE) {
        memcpy(key, q->models[place->model].cells[place->cell].key, 65);
        return ND_OK;
    }
    nd_strbuf_printf(&text, "npudiff %s\n%s\n", nd_version(), nd_task_kind_name(place->kind));
    if (place->kind == ND_TASK_JUDGE) {
        nd_strbuf_printf(&text, "campaign %s\n", q->campaign.sha256);
        for (size_t m = 0; m < q->campaign.n_models; m++)
            put_cells(&text, &q->models[m]);
    } else {
        const struct nd_qualify_model *model = &q->models[place->model];
        nd_strbuf_printf(&text, "reference %s\n",
                         place->cell != SIZE_MAX ? model->cells[place->cell].label : q->campaign.reference);
        put_cells(&text, model);
        if (place->kind == ND_TASK_EXPLAIN_PART)
            nd_strbuf_printf(&text, "part %zu of %zu\n", place->part, nd_qualify_explain_parts(q));
    }
    size_t n_bytes = text.len;
    char *taken = nd_strbuf_take(&text);
    if (taken == NULL)
        return nd_fail_memory(err);
    nd_sha256_bytes(taken, n_bytes, key);
    free(taken);
    return ND_OK;
}
