/* What a store tells over SDKs and chipsets: which tensors changed at which step. Entries that were made of the
 * same model and inputs with the same options are one chart. */

#include "core/memory.h"
#include "judge/golden/store.h"

/* Reading a store into charts: history.c has the rows, columns and steps, history.c says which cells
 * have the same bits. */

struct nd_history_reading {
    const struct nd_golden *store;
    struct nd_arena *arena;
    size_t *chart_of; /* [store->n] */
    size_t *first_of; /* [charts] its first entry */
    size_t *newest;   /* [cells] of the chart at hand: an entry, or SIZE_MAX */
};

static inline const json_t *nd_history_record(const struct nd_history_reading *r, size_t entry)
{
    return r->store->entries[entry].json;
}

/* Which cells of a chart have the same bits, tensor by tensor: by the digests of their entries. */

/* The place of the name, or names->n. hint: where it mostly is. */
static size_t nd_history_place(const struct nd_golden_names *names, size_t hint, const char *name)
{
    if (hint < names->n && strcmp(names->items[hint], name) == 0)
        return hint;
    size_t i = 0;
    while (i < names->n && strcmp(names->items[i], name) != 0)
        i++;
    return i;
}

/* Cells at work: tensors[cell * n_tensors + tensor] is the tensor of the cell's entry, or NULL. */
struct table {
    const struct nd_history_reading *r;
    struct nd_golden_chart *chart;
    size_t n_cells;
    const json_t **tensors;
    size_t *classes; /* [n_cells] scratch: a cell that stands for each class */
};

static const json_t *tensors_of(const struct nd_history_reading *r, size_t cell)
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
    const json_t *tensor;
    for (size_t k = 0; k < table->n_cells; k++)
        n += json_array_size(tensors_of(r, k));
    names.items = nd_arena_calloc(r->arena, n, sizeof *names.items);
    chart->tensors = nd_arena_calloc(r->arena, n, sizeof *chart->tensors);
    ND_TRY_MEMORY(names.items != NULL && chart->tensors != NULL, err);
    for (size_t k = 0; k < table->n_cells; k++)
        json_array_foreach(tensors_of(r, k), i, tensor) {
            const char *name = nd_record_text(tensor, "name");
            if (nd_history_place(&names, i, name) < names.n)
                continue;
            struct nd_charted_tensor *item = &chart->tensors[chart->n_tensors++];
            item->name = nd_arena_text(r->arena, name);
            item->op_types = nd_arena_text(r->arena, nd_record_text(tensor, "op_types"));
            item->values = nd_arena_calloc(r->arena, table->n_cells, sizeof *item->values);
            names.items[names.n++] = item->name;
        }
    table->tensors = nd_arena_calloc(r->arena, table->n_cells * chart->n_tensors, sizeof *table->tensors);
    if (table->tensors == NULL || nd_arena_has_failed(r->arena))
        return nd_fail_memory(err);
    for (size_t k = 0; k < table->n_cells; k++)
        json_array_foreach(tensors_of(r, k), i, tensor) {
            size_t t = nd_history_place(&names, i, nd_record_text(tensor, "name"));
            table->tensors[k * chart->n_tensors + t] = tensor;
        }
    return ND_OK;
}

/* The digest of the tensor on a probe, which is found by its name, and not by its place. */
static const json_t *digest_on(const json_t *record, const json_t *tensor, const char *probe, size_t hint)
{
    const json_t *list = json_object_get(record, "probes"), *item = json_array_get(list, hint);
    if (item == NULL || strcmp(nd_record_text(item, "name"), probe) != 0)
        json_array_foreach(list, hint, item) {
            if (strcmp(nd_record_text(item, "name"), probe) == 0)
                break;
        }
    return json_array_get(json_object_get(tensor, "digests"), hint);
}

/* A different type, or a different number of completed samples, is a different value: as golden check has it.
 */
static bool is_equal_tensor(const struct table *table, size_t a, size_t b, size_t tensor)
{
    const struct nd_golden_chart *chart = table->chart;
    const json_t *one = table->tensors[a * chart->n_tensors + tensor],
                 *other = table->tensors[b * chart->n_tensors + tensor];
    const json_t *record = nd_history_record(table->r, table->r->newest[a]);
    const json_t *to = nd_history_record(table->r, table->r->newest[b]);
    bool is_equal = strcmp(nd_record_text(one, "type"), nd_record_text(other, "type")) == 0;
    for (size_t p = 0; is_equal && p < chart->probes.n; p++)
        is_equal = json_equal(digest_on(record, one, chart->probes.items[p], p),
                              digest_on(to, other, chart->probes.items[p], p));
    return is_equal;
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

/* Fills the tensors of the chart, and the values of its cells. ND_ERR_MEMORY. */
static enum nd_status nd_history_find_values(const struct nd_history_reading *r, struct nd_golden_chart *chart,
                                             struct nd_error *err)
{
    struct table table = {.r = r, .chart = chart, .n_cells = chart->sdks.n * chart->chipsets.n};
    table.classes = nd_arena_calloc(r->arena, table.n_cells, sizeof *table.classes);
    ND_TRY(table.classes != NULL ? find_tensors(&table, err) : nd_fail_memory(err));
    for (size_t t = 0; t < chart->n_tensors; t++) {
        size_t *values = table.chart->tensors[t].values, n = 0;
        for (size_t k = 0; k < table.n_cells; k++) {
            size_t value = 0;
            values[k] = SIZE_MAX;
            if (table.tensors[k * table.chart->n_tensors + t] == NULL)
                continue;
            while (value < n && !is_equal_tensor(&table, table.classes[value], k, t))
                value++;
            if (value == n)
                table.classes[n++] = k;
            values[k] = value;
        }
    }
    number_cells(&table);
    return ND_OK;
}

static const json_t *axes_of(const struct nd_history_reading *r, size_t entry)
{
    return json_object_get(nd_history_record(r, entry), "axes");
}

static const char *sdk_of(const struct nd_history_reading *r, size_t entry)
{
    const char *sdk = nd_axes_sdk(axes_of(r, entry));
    return sdk[0] != '\0' ? sdk : "unknown";
}

/* A phone and the simulator of its chipset stand in rows of their own. */
static const char *chipset_of(const struct nd_history_reading *r, size_t entry)
{
    const char *chipset = nd_axes_chipset(axes_of(r, entry));
    const char *kind =
        nd_record_text(json_object_get(axes_of(r, entry), nd_axis_name(ND_AXIS_CHIPSET)), "kind");
    return kind[0] == '\0' || strcmp(kind, chipset) == 0 ? nd_arena_text(r->arena, chipset)
                                                         : nd_arena_printf(r->arena, "%s (%s)", chipset, kind);
}

/* ---- which entries belong together ---- */

static bool is_axis(const char *name, enum nd_axis axis)
{
    return strcmp(name, nd_axis_name(axis)) == 0;
}

static enum nd_status is_of_chart(const struct nd_history_reading *r, size_t first, size_t entry, bool *out,
                                  struct nd_error *err)
{
    ND_CLEANUP(nd_record_difference_deinit) struct nd_golden_difference d = {0};
    enum nd_status status = nd_record_compare(nd_history_record(r, first), nd_history_record(r, entry),
                                              nd_history_record(r, first), &d, err);
    *out = status == ND_OK && nd_record_is_comparable(&d);
    for (size_t i = 0; i < d.n_axes; i++)
        if (!is_axis(d.axes[i], ND_AXIS_SDK) && !is_axis(d.axes[i], ND_AXIS_CHIPSET) &&
            !is_axis(d.axes[i], ND_AXIS_HOST))
            *out = false;
    return status;
}

static enum nd_status sort_into_charts(struct nd_history_reading *r, size_t *n_charts, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < r->store->n; i++) {
        bool is_found = false;
        for (size_t c = 0; status == ND_OK && !is_found && c < *n_charts; c++) {
            status = is_of_chart(r, r->first_of[c], i, &is_found, err);
            r->chart_of[i] = c;
        }
        if (!is_found) {
            r->first_of[*n_charts] = i;
            r->chart_of[i] = (*n_charts)++;
        }
    }
    return status;
}

/* ---- rows and columns ---- */

static void add_name(struct nd_golden_names *names, const char *name)
{
    if (nd_history_place(names, 0, name) == names->n)
        names->items[names->n++] = name;
}

static int by_version(const void *a, const void *b)
{
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

static void find_axes(const struct nd_history_reading *r, size_t c, struct nd_golden_chart *chart)
{
    chart->sdks.items = nd_arena_calloc(r->arena, r->store->n, sizeof *chart->sdks.items);
    chart->chipsets.items = nd_arena_calloc(r->arena, r->store->n, sizeof *chart->chipsets.items);
    if (chart->sdks.items == NULL || chart->chipsets.items == NULL)
        return;
    for (size_t i = 0; i < r->store->n; i++) {
        if (r->chart_of[i] != c)
            continue;
        add_name(&chart->sdks, nd_arena_text(r->arena, sdk_of(r, i)));
        add_name(&chart->chipsets, chipset_of(r, i));
        chart->n_entries++;
    }
    qsort((void *)chart->sdks.items, chart->sdks.n, sizeof *chart->sdks.items, by_version);
    qsort((void *)chart->chipsets.items, chart->chipsets.n, sizeof *chart->chipsets.items, by_version);
}

/* Samples that differ from run to run, as golden check counts them. */
static bool is_unstable(const json_t *record)
{
    const json_t *probe;
    size_t i;
    bool is_any = false;
    json_array_foreach(json_object_get(record, "probes"), i, probe) {
        is_any = is_any || json_integer_value(json_object_get(probe, "unstable")) > 0;
    }
    return is_any;
}

/* Entries are in order of their dates. */
static void fill_cells(struct nd_history_reading *r, size_t c, struct nd_golden_chart *chart)
{
    for (size_t i = 0; i < r->store->n; i++) {
        if (r->chart_of[i] != c)
            continue;
        size_t at = nd_history_place(&chart->chipsets, 0, chipset_of(r, i)) * chart->sdks.n +
                    nd_history_place(&chart->sdks, 0, sdk_of(r, i));
        struct nd_golden_cell *cell = &chart->cells[at];
        r->newest[at] = i;
        memcpy(cell->id, r->store->entries[i].id, sizeof cell->id);
        cell->n_accepted++;
        cell->has_failed = strcmp(nd_record_text(nd_history_record(r, i), "status"), "failed") == 0;
        cell->is_unstable = is_unstable(nd_history_record(r, i));
    }
}

/* ---- steps ---- */

static const char *verdict_of(const struct nd_golden_cell *from, const struct nd_golden_cell *to)
{
    if (from->value == to->value)
        return "same";
    if (from->has_failed != to->has_failed)
        return to->has_failed ? "fails" : "works again";
    return from->is_unstable || to->is_unstable ? "inconclusive" : "differs";
}

static enum nd_status find_also(const struct nd_history_reading *r, size_t from, size_t to,
                                struct nd_golden_step *step, struct nd_error *err)
{
    ND_CLEANUP(nd_record_difference_deinit) struct nd_golden_difference d = {0};
    enum nd_status status =
        nd_record_compare(nd_history_record(r, r->newest[from]), nd_history_record(r, r->newest[to]),
                          nd_history_record(r, r->newest[from]), &d, err);
    for (size_t i = 0; i < d.n_axes; i++)
        if (!is_axis(d.axes[i], ND_AXIS_SDK))
            step->also[step->n_also++] = d.axes[i]; /* static */
    return status;
}

static enum nd_status find_steps(const struct nd_history_reading *r, struct nd_golden_chart *chart,
                                 struct nd_error *err)
{
    chart->steps = nd_arena_calloc(r->arena, chart->sdks.n * chart->chipsets.n, sizeof *chart->steps);
    ND_TRY_MEMORY(chart->steps != NULL, err);
    for (size_t c = 0; c < chart->chipsets.n; c++) {
        size_t from = SIZE_MAX;
        for (size_t s = 0; s < chart->sdks.n; s++) {
            size_t to = c * chart->sdks.n + s;
            if (r->newest[to] == SIZE_MAX)
                continue;
            if (from != SIZE_MAX) {
                struct nd_golden_step *step = &chart->steps[chart->n_steps++];
                *step = (struct nd_golden_step){.chipset = c,
                                                .from = from % chart->sdks.n,
                                                .to = s,
                                                .verdict = verdict_of(&chart->cells[from], &chart->cells[to]),
                                                .first = SIZE_MAX};
                bool is_change = strcmp(step->verdict, "differs") == 0;
                for (size_t t = 0; t < chart->n_tensors; t++) {
                    size_t before = chart->tensors[t].values[from], after = chart->tensors[t].values[to];
                    bool differs = before != SIZE_MAX && after != SIZE_MAX && before != after;
                    step->n_missing += before != SIZE_MAX && after == SIZE_MAX;
                    step->n_extra += before == SIZE_MAX && after != SIZE_MAX;
                    step->n_different += differs;
                    if (differs && step->first == SIZE_MAX)
                        step->first = t;
                    chart->tensors[t].n_steps += differs && is_change;
                }
                ND_TRY(find_also(r, from, to, step, err));
            }
            from = to;
        }
    }
    return ND_OK;
}

/* ---- all ---- */

static enum nd_status make_chart(struct nd_history_reading *r, size_t c, struct nd_golden_chart *chart,
                                 struct nd_error *err)
{
    const json_t *first = nd_history_record(r, r->first_of[c]), *probe;
    const json_t *probes = json_object_get(first, "probes");
    size_t i;
    chart->model = nd_arena_text(r->arena, nd_record_text(first, "model_file"));
    chart->probes.items = nd_arena_calloc(r->arena, json_array_size(probes), sizeof *chart->probes.items);
    json_array_foreach(probes, i, probe) {
        if (chart->probes.items != NULL)
            chart->probes.items[chart->probes.n++] = nd_arena_text(r->arena, nd_record_text(probe, "name"));
    }
    find_axes(r, c, chart);
    size_t n_cells = chart->sdks.n * chart->chipsets.n;
    chart->cells = nd_arena_calloc(r->arena, n_cells, sizeof *chart->cells);
    r->newest = nd_arena_calloc(r->arena, n_cells, sizeof *r->newest);
    if (nd_arena_has_failed(r->arena))
        return nd_fail_memory(err);
    for (size_t k = 0; k < n_cells; k++)
        r->newest[k] = SIZE_MAX;
    fill_cells(r, c, chart);
    enum nd_status status = nd_history_find_values(r, chart, err);
    return status == ND_OK ? find_steps(r, chart, err) : status;
}

enum nd_status nd_golden_history(const struct nd_golden *store, struct nd_golden_history *out,
                                 struct nd_error *err)
{
    ND_CLEANUP(nd_golden_history_deinit) struct nd_golden_history history = {.owner = nd_arena_create()};
    struct nd_history_reading r = {.store = store, .arena = history.owner};
    ND_TRY_MEMORY(r.arena != NULL, err);
    r.chart_of = nd_arena_calloc(r.arena, store->n, sizeof *r.chart_of);
    r.first_of = nd_arena_calloc(r.arena, store->n, sizeof *r.first_of);
    ND_TRY_MEMORY(r.chart_of != NULL && r.first_of != NULL, err);
    ND_TRY(sort_into_charts(&r, &history.n_charts, err));
    history.charts = nd_arena_calloc(r.arena, history.n_charts, sizeof *history.charts);
    ND_TRY_MEMORY(history.charts != NULL, err);
    for (size_t c = 0; c < history.n_charts; c++)
        ND_TRY(make_chart(&r, c, &history.charts[c], err));
    ND_TRY_MEMORY(!nd_arena_has_failed(r.arena), err);
    return ND_GIVE(out, history);
}

void nd_golden_history_deinit(struct nd_golden_history *history)
{
    nd_arena_destroy(history->owner);
    *history = (struct nd_golden_history){0};
}
