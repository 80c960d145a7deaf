/* What a task will take: from what the same took before, or one that is alike, or from measured defaults. */
#include <stdlib.h>
#include <string.h>

#include "judge/tasks/task.h"

/* ---- how large a task is ---- */

/* Bytes that one sample of the tensor takes, and how many values it has; 0 where its shape is not known. */
static void measure_edge(const struct nd_edge *edge, uint64_t *bytes, uint64_t *n_elems)
{
    size_t n = 0;
    if (edge->shape.rank < 0 || nd_shape_n_elems(&edge->shape, &n, NULL) != ND_OK)
        n = 0;
    *n_elems = n;
    *bytes = n * (edge->dtype != ND_DTYPE_NONE ? nd_dtype_size_bytes(edge->dtype) : sizeof(float));
}

static void measure_cell(const struct nd_qualification *q, const struct nd_qualify_model *model,
                         const struct nd_qualify_cell *cell, struct nd_task_size *size)
{
    size_t *selected = NULL, n = 0;
    uint64_t n_runs = 0, bytes = 0, n_elems = 0, edge_bytes, edge_elems;
    for (size_t p = 0; p < model->n_probes; p++)
        n_runs += cell->probes[p]->n_samples;
    if (nd_model_select_edges(cell->model, cell->edges, &selected, &n, NULL) != ND_OK)
        n = 0;
    for (size_t i = 0; i < n; i++) {
        measure_edge(nd_model_edge(cell->model, selected[i]), &edge_bytes, &edge_elems);
        bytes += edge_bytes;
    }
    for (size_t i = 0; i < nd_model_n_edges(cell->model); i++) {
        measure_edge(nd_model_edge(cell->model, i), &edge_bytes, &edge_elems);
        n_elems += edge_elems;
    }
    free(selected);
    size->raw_bytes += bytes * n_runs;
    n_runs *= q->campaign.n_repeats > 0 ? q->campaign.n_repeats : 1;
    size->n_runs += n_runs;
    size->work += n_elems * n_runs;
}

void nd_task_measure(const struct nd_qualification *q, const struct nd_task_place *place,
                     struct nd_task_size *out)
{
    *out = (struct nd_task_size){.model = "", .device = "", .uri = ""};
    for (size_t m = 0; m < q->campaign.n_models; m++) {
        const struct nd_qualify_model *model = &q->models[m];
        if (place->model != SIZE_MAX && place->model != m)
            continue;
        for (size_t c = 0; c < model->n_cells; c++)
            if (place->kind != ND_TASK_CAPTURE || c == place->cell)
                measure_cell(q, model, &model->cells[c], out);
    }
    if (place->kind == ND_TASK_EXPLAIN_PART) {
        out->n_runs /= nd_qualify_explain_parts(q);
        out->raw_bytes /= nd_qualify_explain_parts(q);
        out->work /= nd_qualify_explain_parts(q);
    }
    if (place->model == SIZE_MAX)
        return;
    const struct nd_qualify_model *model = &q->models[place->model];
    out->model = nd_model_sha256(model->model);
    if (place->kind == ND_TASK_CAPTURE) {
        const struct nd_qualify_cell *cell = &model->cells[place->cell];
        out->model = nd_model_sha256(cell->model);
        out->device = nd_device_kind_name(cell->device.kind);
        out->uri = cell->device.uri;
    }
}

/* ---- what is known ---- */

/* How far two numbers of runs are apart, as a factor: 1 and more. */
static double distance(uint64_t a, uint64_t b)
{
    double ratio = ((double)a + 1) / ((double)b + 1);
    return ratio > 1 ? ratio : 1 / ratio;
}

/* Whether a says more of the task than b: the very same device, else one of its kind; then the nearest number
 * of runs, then the slower. */
static bool is_better(const struct nd_took *a, const struct nd_took *b, const struct nd_task_size *size)
{
    bool is_same[2] = {strcmp(a->uri, size->uri) == 0, strcmp(b->uri, size->uri) == 0};
    double apart[2] = {distance(a->n_runs, size->n_runs), distance(b->n_runs, size->n_runs)};
    if (is_same[0] != is_same[1])
        return is_same[0];
    return apart[0] != apart[1] ? apart[0] < apart[1] : a->seconds > b->seconds;
}

static const struct nd_took *find(const struct nd_task_size *size, enum nd_task_kind kind,
                                  const struct nd_took_list *known)
{
    const struct nd_took *best = NULL;
    for (size_t i = 0; i < known->n; i++) {
        const struct nd_took *took = &known->items[i];
        if (took->kind == kind && strcmp(took->model, size->model) == 0 &&
            strcmp(took->device, size->device) == 0 && (best == NULL || is_better(took, best, size)))
            best = took;
    }
    return best;
}

/* ---- defaults ----
 *
 * seconds = start_s + per_value_s * (values of all tensors of the model over all runs); bytes = start_bytes +
 * those of the recorded values. Processor seconds of `tools/studies/cluster --costs` on four small models,
 * 2026-11-23: docs/results/cluster.md#defaults. Memory is several times what these models took: chosen. */

enum { START_BYTES = 45000 }; /* of a capture without values: the same study */

static const struct costs {
    enum nd_task_kind kind;
    const char *device; /* "" stands for every one that has no line of its own */
    double start_s, per_value_s;
    uint64_t memory_bytes;
} defaults[] = {
    {ND_TASK_CAPTURE, "cpu", 0.09, 3e-8, 256 << 20},     {ND_TASK_CAPTURE, "htp-sim", 0.35, 1e-6, 512 << 20},
    {ND_TASK_CAPTURE, "exact", 0.03, 4.5e-8, 256 << 20}, {ND_TASK_CAPTURE, "emu", 0.03, 1.1e-7, 256 << 20},
    {ND_TASK_CAPTURE, "", 0.03, 1.1e-7, 256 << 20}, /* not measured: as emulated */
    {ND_TASK_COMPARE, "", 0.04, 1e-8, 512 << 20},        {ND_TASK_EXPLAIN, "", 0.03, 1e-7, 512 << 20},
    {ND_TASK_EXPLAIN_PART, "", 0.03, 1e-7, 512 << 20},   {ND_TASK_JUDGE, "", 0.03, 3e-8, 256 << 20},
};

static const struct costs *costs_of(const struct nd_task_size *size, enum nd_task_kind kind)
{
    size_t i = 0;
    while (defaults[i].kind != kind ||
           (defaults[i].device[0] != '\0' && strcmp(defaults[i].device, size->device) != 0))
        i++; /* each kind ends with a line for every device */
    return &defaults[i];
}

void nd_task_estimate(const struct nd_task_size *size, const struct nd_took_list *known, struct nd_task *task)
{
    const struct nd_took *took = find(size, task->kind, known);
    const struct costs *costs = costs_of(size, task->kind);
    task->n_runs = (size_t)size->n_runs;
    if (took != NULL) {
        double scale = (double)size->n_runs / (double)took->n_runs;
        double start = took->seconds < costs->start_s ? took->seconds : costs->start_s;
        task->seconds = start + (took->seconds - start) * scale;
        uint64_t start_bytes = took->bytes < START_BYTES ? took->bytes : START_BYTES;
        task->bytes = start_bytes + (uint64_t)((double)(took->bytes - start_bytes) * scale);
        task->memory_bytes = took->memory_bytes;
        task->source = took->file;
        return;
    }
    task->seconds = costs->start_s + costs->per_value_s * (double)size->work;
    task->bytes = task->kind == ND_TASK_CAPTURE ? START_BYTES + size->raw_bytes : 0;
    task->memory_bytes = costs->memory_bytes;
    task->source = "default";
}
