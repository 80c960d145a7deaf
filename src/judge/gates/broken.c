/* References of a campaign that are broken: by what they hold, and by how far they fell since the last result.
 */
#include <stdlib.h>
#include <string.h>

#include "judge/accuracy/broken.h"
#include "core/text/strbuf.h"
#include "judge/release/qualify.h"

static bool find_right(const struct nd_qualified_study *study, const char *label, size_t *right)
{
    for (size_t i = 0; i < study->baseline.n; i++)
        if (strcmp(study->baseline.items[i].label, label) == 0 && study->baseline.items[i].n != SIZE_MAX) {
            *right = study->baseline.items[i].n;
            return true;
        }
    return false;
}

bool nd_qualify_find_baseline(const struct nd_qualification *q, const struct nd_qualify_model *model,
                              const struct nd_accuracy_study *study, const char *label, size_t *right)
{
    for (size_t m = 0; m < q->last.models.n; m++) {
        const struct nd_qualified_model *last = &q->last.models.items[m];
        if (strcmp(last->name, model->campaign->name) != 0 ||
            strcmp(last->sha256, nd_model_sha256(model->model)) != 0)
            continue;
        for (size_t i = 0; i < last->accuracy.n; i++) {
            const struct nd_qualified_study *then = &last->accuracy.items[i];
            if (strcmp(then->probe, study->probe) == 0 && strcmp(then->edge, study->edge) == 0 &&
                then->n_samples == study->churn.n_samples)
                return find_right(then, label, right);
        }
    }
    return false;
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

void nd_qualify_fill_baseline(const struct nd_qualification *q, const struct nd_qualify_model *model,
                              const struct nd_accuracy_study *study, struct nd_qualified_study *out)
{
    out->baseline.items = nd_arena_calloc(q->arena, model->n_cells, sizeof *out->baseline.items);
    for (size_t c = 0; out->baseline.items != NULL && c < model->n_cells; c++) {
        const struct nd_qualify_cell *cell = &model->cells[c];
        const int64_t *classes = nd_qualify_classes_of(model, study, c);
        size_t right;
        if (classes == NULL)
            continue;
        /* A broken reference is no measure for the next time. */
        if (cell->broken == NULL || !nd_qualify_find_baseline(q, model, study, cell->label, &right))
            right = nd_qualify_count_right(study, classes);
        out->baseline.items[out->baseline.n++] =
            (struct nd_qualified_right){nd_qualify_text(q, cell->label), right};
    }
}
