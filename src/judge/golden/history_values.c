/* Which cells of a chart have the same bits, tensor by tensor: by the digests of their entries. */
#include <string.h>

#include "core/memory.h"
#include "judge/golden/history.h"

size_t nd_history_place(const struct nd_golden_names *names, size_t hint, const char *name)
{
    if (hint < names->n && strcmp(names->items[hint], name) == 0)
        return hint;
    size_t i = 0;
    while (i < names->n && strcmp(names->items[i], name) != 0)
        i++;
    return i;
}

/* Cells at work: edges[cell * n_tensors + tensor] is the edge of the cell's entry, or NULL. */
struct table {
    const struct nd_history_reading *r;
    struct nd_golden_chart *chart;
    size_t n_cells;
    const json_t **edges;
    size_t *classes; /* [n_cells] scratch: a cell that stands for each class */
};

static const json_t *edges_of(const struct nd_history_reading *r, size_t cell)
{
    return r->newest[cell] != SIZE_MAX ? json_object_get(nd_history_record(r, r->newest[cell]), "edges") : NULL;
}

/* Of all entries of the chart, those of a later one after those that are there. */
static enum nd_status find_tensors(struct table *table, struct nd_error *err)
{
    const struct nd_history_reading *r = table->r;
    struct nd_golden_chart *chart = table->chart;
    struct nd_golden_names names = {0};
    size_t n = 0, i;
    const json_t *edge;
    for (size_t k = 0; k < table->n_cells; k++)
        n += json_array_size(edges_of(r, k));
    names.items = nd_arena_calloc(r->arena, n, sizeof *names.items);
    chart->tensors = nd_arena_calloc(r->arena, n, sizeof *chart->tensors);
    if (names.items == NULL || chart->tensors == NULL)
        return nd_fail_memory(err);
    for (size_t k = 0; k < table->n_cells; k++)
        json_array_foreach(edges_of(r, k), i, edge)
        {
            const char *name = nd_record_text(edge, "name");
            if (nd_history_place(&names, i, name) < names.n)
                continue;
            struct nd_golden_tensor *tensor = &chart->tensors[chart->n_tensors++];
            tensor->name = nd_arena_text(r->arena, name);
            tensor->op_types = nd_arena_text(r->arena, nd_record_text(edge, "op_types"));
            tensor->values = nd_arena_calloc(r->arena, table->n_cells, sizeof *tensor->values);
            names.items[names.n++] = tensor->name;
        }
    table->edges = nd_arena_calloc(r->arena, table->n_cells * chart->n_tensors, sizeof *table->edges);
    if (table->edges == NULL || nd_arena_has_failed(r->arena))
        return nd_fail_memory(err);
    for (size_t k = 0; k < table->n_cells; k++)
        json_array_foreach(edges_of(r, k), i, edge)
        {
            size_t t = nd_history_place(&names, i, nd_record_text(edge, "name"));
            table->edges[k * chart->n_tensors + t] = edge;
        }
    return ND_OK;
}

/* The digest of the edge on a probe, which is found by its name, and not by its place. */
static const json_t *digest_on(const json_t *record, const json_t *edge, const char *probe, size_t hint)
{
    const json_t *list = json_object_get(record, "probes"), *item = json_array_get(list, hint);
    if (item == NULL || strcmp(nd_record_text(item, "name"), probe) != 0)
        json_array_foreach(list, hint, item)
        {
            if (strcmp(nd_record_text(item, "name"), probe) == 0)
                break;
        }
    return json_array_get(json_object_get(edge, "digests"), hint);
}

/* A different type, or a different number of completed samples, is a different value: as golden check has it.
 */
static bool is_equal_tensor(const struct table *table, size_t a, size_t b, size_t tensor)
{
    const struct nd_golden_chart *chart = table->chart;
    const json_t *one = table->edges[a * chart->n_tensors + tensor],
                 *other = table->edges[b * chart->n_tensors + tensor];
    const json_t *record = nd_history_record(table->r, table->r->newest[a]);
    const json_t *to = nd_history_record(table->r, table->r->newest[b]);
    bool is_equal = strcmp(nd_record_text(one, "type"), nd_record_text(other, "type")) == 0;
    for (size_t p = 0; is_equal && p < chart->probes.n; p++)
        is_equal = json_equal(digest_on(record, one, chart->probes.items[p], p),
                              digest_on(to, other, chart->probes.items[p], p));
    return is_equal;
}

static void number_tensor(const struct table *table, size_t tensor)
{
    size_t *values = table->chart->tensors[tensor].values, n = 0;
    for (size_t k = 0; k < table->n_cells; k++) {
        size_t value = 0;
        values[k] = SIZE_MAX;
        if (table->edges[k * table->chart->n_tensors + tensor] == NULL)
            continue;
        while (value < n && !is_equal_tensor(table, table->classes[value], k, tensor))
            value++;
        if (value == n)
            table->classes[n++] = k;
        values[k] = value;
    }
}

/* All tensors, and how it ended. */
static bool is_equal_whole(const struct table *table, size_t a, size_t b)
{
    const json_t *record = nd_history_record(table->r, table->r->newest[a]);
    const json_t *other = nd_history_record(table->r, table->r->newest[b]);
    struct nd_golden_failure one = nd_record_failure(record), two = nd_record_failure(other);
    bool is_equal = strcmp(nd_record_text(record, "status"), nd_record_text(other, "status")) == 0 &&
                    one.has_failed == two.has_failed && one.code == two.code &&
                    strcmp(one.stage, two.stage) == 0;
    for (size_t t = 0; is_equal && t < table->chart->n_tensors; t++)
        is_equal = table->chart->tensors[t].values[a] == table->chart->tensors[t].values[b];
    return is_equal;
}

static void number_cells(const struct table *table)
{
    size_t n = 0;
    for (size_t k = 0; k < table->n_cells; k++) {
        size_t value = 0;
        table->chart->cells[k].value = SIZE_MAX;
        if (table->r->newest[k] == SIZE_MAX)
            continue;
        while (value < n && !is_equal_whole(table, table->classes[value], k))
            value++;
        if (value == n)
            table->classes[n++] = k;
        table->chart->cells[k].value = value;
    }
}

enum nd_status nd_history_find_values(const struct nd_history_reading *r, struct nd_golden_chart *chart,
                                      struct nd_error *err)
{
    struct table table = {.r = r, .chart = chart, .n_cells = chart->sdks.n * chart->chipsets.n};
    table.classes = nd_arena_calloc(r->arena, table.n_cells, sizeof *table.classes);
    enum nd_status status = table.classes != NULL ? find_tensors(&table, err) : nd_fail_memory(err);
    for (size_t t = 0; status == ND_OK && t < chart->n_tensors; t++)
        number_tensor(&table, t);
    if (status == ND_OK)
        number_cells(&table);
    return status;
}
