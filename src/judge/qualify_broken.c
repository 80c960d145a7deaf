/* References of a campaign that are broken: by what they hold, and by how far they fell since the last result.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "judge/broken.h"
#include "judge/qualify.h"

enum { MAX_LAST_BYTES = 1 << 30 };

void nd_qualify_read_last(struct nd_qualification *q)
{
    char *path = q->options->force ? NULL : nd_path_join(q->folder, "result.json");
    void *bytes = NULL;
    size_t n_bytes;
    if (path != NULL && nd_path_exists(path) &&
        nd_file_read(path, MAX_LAST_BYTES, &bytes, &n_bytes, NULL) == ND_OK)
        q->last = json_loadb(bytes, n_bytes, 0, NULL);
    free(bytes);
    free(path);
}

static const json_t *find_in(const json_t *list, const char *key, const char *text, const char *key2,
                             const char *text2)
{
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        const char *first = json_string_value(json_object_get(item, key));
        const char *second = key2 != NULL ? json_string_value(json_object_get(item, key2)) : NULL;
        if (first != NULL && strcmp(first, text) == 0 &&
            (key2 == NULL || (second != NULL && strcmp(second, text2) == 0)))
            return item;
    }
    return NULL;
}

bool nd_qualify_find_baseline(const struct nd_qualification *q, const struct nd_qualify_model *model,
                              const struct nd_accuracy_study *study, const char *label, size_t *right)
{
    const json_t *last = find_in(json_object_get(q->last, "models"), "name", model->campaign->name, "sha256",
                                 nd_model_sha256(model->model));
    const json_t *then = find_in(json_object_get(last, "accuracy"), "probe", study->probe, "edge", study->edge);
    const json_t *count = json_object_get(json_object_get(then, "baseline"), label);
    if (!json_is_integer(count) || json_integer_value(count) < 0 ||
        json_integer_value(json_object_get(then, "samples")) != (json_int_t)study->churn.n_samples)
        return false;
    *right = (size_t)json_integer_value(count);
    return true;
}

const int64_t *nd_qualify_classes_of(const struct nd_qualify_model *model,
                                     const struct nd_accuracy_study *study, size_t cell)
{
    if (cell == model->quantised)
        return study->quantised;
    return cell == model->float64 ? study->reference : nd_accuracy_study_classes(study, cell);
}

size_t nd_qualify_count_right(const struct nd_accuracy_study *study, const int64_t *classes)
{
    size_t n = 0;
    for (size_t i = 0; i < study->n_samples; i++)
        n += study->labels[i] >= 0 && classes[i] == study->labels[i];
    return n;
}

/* Far below the last result on every output and probe that has labels, as far as both have them. */
static enum nd_status find_fall(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                struct nd_qualify_cell *cell, size_t c, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    for (size_t i = 0; i < model->n_studies; i++) {
        const struct nd_accuracy_study *study = &model->studies[i];
        const int64_t *classes = nd_qualify_classes_of(model, study, c);
        size_t before, n = study->churn.n_samples;
        if (classes == NULL || !nd_qualify_find_baseline(q, model, study, cell->label, &before))
            continue;
        size_t now = nd_qualify_count_right(study, classes);
        if (!nd_broken_has_fallen(before, now, n)) {
            nd_strbuf_deinit(&text);
            return ND_OK;
        }
        if (text.len == 0)
            nd_strbuf_printf(
                &text,
                "%zu of %zu samples of '%s' are right at '%s', and %zu were last time with the same "
                "model; if that is as it should be, --force accepts it",
                now, n, study->probe, study->edge, before);
    }
    if (text.len == 0 && !text.failed)
        return ND_OK;
    cell->broken = nd_strbuf_take(&text);
    return cell->broken != NULL ? ND_OK : nd_fail_memory(err);
}

static bool is_reference(const struct nd_qualification *q, const struct nd_qualify_model *model, size_t c)
{
    const char *label = model->cells[c].label;
    bool is_one = c >= q->n_devices || strcmp(q->campaign.reference, label) == 0;
    for (size_t r = 0; !is_one && r < q->campaign.policy.n; r++)
        is_one = q->campaign.policy.rules[r].to != NULL && strcmp(q->campaign.policy.rules[r].to, label) == 0;
    return is_one;
}

enum nd_status nd_qualify_find_broken(struct nd_qualification *q, struct nd_qualify_model *model,
                                      struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t c = 0; status == ND_OK && c < model->n_cells; c++) {
        struct nd_qualify_cell *cell = &model->cells[c];
        if (cell->failure != NULL || !is_reference(q, model, c))
            continue;
        status = nd_broken_find(cell->capture, &cell->broken, err);
        if (status == ND_OK && cell->broken == NULL)
            status = find_fall(q, model, cell, c, err);
    }
    return status;
}

json_t *nd_qualify_baseline_json(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                 const struct nd_accuracy_study *study)
{
    json_t *counts = json_object();
    for (size_t c = 0; c < model->n_cells; c++) {
        const struct nd_qualify_cell *cell = &model->cells[c];
        const int64_t *classes = nd_qualify_classes_of(model, study, c);
        size_t right;
        if (classes == NULL)
            continue;
        /* A broken reference is no measure for the next time. */
        if (cell->broken == NULL || !nd_qualify_find_baseline(q, model, study, cell->label, &right))
            right = nd_qualify_count_right(study, classes);
        json_object_set_new(counts, cell->label, json_integer((json_int_t)right));
    }
    return counts;
}
