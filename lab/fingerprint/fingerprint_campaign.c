/* Datasheets of several devices and runtimes as one table, and where an operator's arithmetic changes from one
 * of them to the next: docs/reference/datasheet.md#campaigns. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/memory.h"
#include "lab/fingerprint/sheet.h"

/* What stands in a cell instead of the number of an arithmetic. */
enum {
    ND_CELL_EMPTY = -1,   /* no datasheet, or the operator is not in it */
    ND_CELL_UNKNOWN = -2, /* no arithmetic and no digests, or it changes from run to run */
    ND_CELL_FAILED = -3,  /* the device refused or broke off */
};

struct nd_campaign_operator {
    const char *section; /* borrowed from a datasheet */
    const json_t *entry; /* the first: its "operator" and "types" */
    json_t *claims;      /* [number of the arithmetic]; owned */
    int *cells;          /* [n_devices * n_runtimes], device by device; owned */
};

/* Devices in the order of their architectures, runtimes in that of their versions. */
struct nd_sheet_grid {
    char **devices, **runtimes; /* [n_...], owned */
    const char *
        *titles; /* [n_devices]: the architecture, where only one device has it; borrowed; owned array */
    size_t n_devices, n_runtimes;
    size_t *sheet_of; /* [n_devices * n_runtimes]: number of the datasheet, SIZE_MAX: none; owned */
    struct nd_campaign_operator *operators;
    size_t n_operators, operators_capacity;
};

/* From one place of an axis to a later one. The axis runs along runtimes, with devices beside it, or the other
 * way round. */
struct step {
    bool is_runtime;
    size_t from, to;
};

static size_t length(const struct nd_sheet_grid *c, bool is_runtime)
{
    return is_runtime ? c->n_runtimes : c->n_devices;
}

static int cell_at(const struct nd_sheet_grid *c, const struct nd_campaign_operator *operator, bool is_runtime,
                   size_t along, size_t beside)
{
    size_t device = is_runtime ? beside : along, runtime = is_runtime ? along : beside;
    return operator->cells[device * c->n_runtimes + runtime];
}

/* The step is one of this operator in this line: both ends tell, and nothing between them does. */
static bool has_step(const struct nd_sheet_grid *c, const struct nd_campaign_operator *operator,
                     const struct step * step, size_t beside)
{
    for (size_t k = step->from; k <= step->to; k++) {
        bool is_end = k == step->from || k == step->to;
        if ((cell_at(c, operator, step->is_runtime, k, beside) >= 0) != is_end)
            return false;
    }
    return true;
}

static json_t *name_operator(const struct nd_campaign_operator *operator)
{
    return json_pack("{s:s, s:s, s:s, s:[]}", "section", operator->section, "operator",
                     nd_sheet_text(operator->entry, "operator"), "types",
                     nd_sheet_text(operator->entry, "types"), "where");
}

/* What the step does to one operator: counts it as the same, or adds it to those that changed with the names of
 * the lines in which it does. */
static bool add_operator(const struct nd_sheet_grid *c, const struct nd_campaign_operator *operator,
                         const struct step * step, size_t *n_same, json_t *changed)
{
    json_t *row = NULL;
    bool is_seen = false, is_whole = true;
    for (size_t b = 0; is_whole && b < length(c, !step->is_runtime); b++) {
        if (!has_step(c, operator, step, b))
            continue;
        is_seen = true;
        if (cell_at(c, operator, step->is_runtime, step->from, b) ==
            cell_at(c, operator, step->is_runtime, step->to, b))
            continue;
        if (row == NULL && (row = name_operator(operator)) != NULL)
            is_whole = json_array_append_new(changed, row) == 0;
        is_whole = is_whole && row != NULL &&
                   json_array_append_new(json_object_get(row, "where"),
                                         json_string(step->is_runtime ? c->titles[b] : c->runtimes[b])) == 0;
    }
    *n_same += is_seen && row == NULL;
    return is_whole;
}

/* Appends the step, where any operator has it; a step between neighbours always stands. False: memory is out.
 */
static bool add_step(const struct nd_sheet_grid *c, const struct step *step, json_t *steps)
{
    json_auto_t *changed = json_array();
    size_t n_same = 0;
    bool is_whole = changed != NULL;
    for (size_t o = 0; is_whole && o < c->n_operators; o++)
        is_whole = add_operator(c, &c->operators[o], step, &n_same, changed);
    size_t n_changed = json_array_size(changed);
    if (is_whole && (step->to == step->from + 1 || n_changed > 0)) {
        char *const *names = step->is_runtime ? c->runtimes : c->devices;
        is_whole =
            json_array_append_new(
                steps,
                json_pack("{s:s, s:s, s:s, s:I, s:I, s:O}", "along", step->is_runtime ? "runtime" : "device",
                          "from", step->is_runtime ? names[step->from] : c->titles[step->from], "to",
                          step->is_runtime ? names[step->to] : c->titles[step->to], "n_same",
                          (json_int_t)n_same, "n_not_known", (json_int_t)(c->n_operators - n_same - n_changed),
                          "changed", changed)) == 0;
    }
    return is_whole;
}

/* The steps, an array of docs/reference/schemas/datasheet_campaign.json; NULL: memory is out. */
static json_t *nd_campaign_steps(const struct nd_sheet_grid *campaign)
{
    json_t *steps = json_array();
    bool is_whole = steps != NULL;
    for (int axis = 0; axis < 2; axis++) {
        struct step step = {.is_runtime = axis == 0};
        size_t n = length(campaign, step.is_runtime);
        for (step.from = 0; step.from < n; step.from++)
            for (step.to = step.from + 1; is_whole && step.to < n; step.to++)
                is_whole = add_step(campaign, &step, steps);
    }
    if (is_whole)
        return steps;
    json_decref(steps);
    return NULL;
}

/* Whether the operator has the same arithmetic in all cells that tell; *is_known: at least two cells do. */
static bool nd_campaign_is_same(const struct nd_sheet_grid *campaign,
                                const struct nd_campaign_operator *operator, bool * is_known)
{
    size_t n = campaign->n_devices * campaign->n_runtimes, n_known = 0;
    bool is_same = true;
    int first = ND_CELL_EMPTY;
    for (size_t i = 0; i < n; i++) {
        if (operator->cells[i]<0)
            continue;
        is_same = is_same && (n_known == 0 || operator->cells[i] == first);
        first = n_known == 0 ? operator->cells[i] : first;
        n_known++;
    }
    *is_known = n_known > 1;
    return is_same;
}

/* Datasheets of several devices and runtimes as one table: docs/reference/datasheet.md#campaigns. */

/* One datasheet, and where in the grid it stands. */
struct sheet {
    json_t *tree; /* owned */
    const char *name;
    char *device; /* its URI without the runtime; owned */
    const char *arch, *runtime;
};

struct reading {
    struct sheet *sheets; /* [n] */
    size_t n;
    struct nd_sheet_grid campaign;
};

/* ---- the axes ---- */

/* The URI without "@RUNTIME". */
static char *name_device(const json_t *device)
{
    const char *uri = nd_sheet_text(device, "uri"), *runtime = nd_sheet_text(device, "runtime");
    char *name = nd_strdup(uri), *at = name;
    while (name != NULL && runtime[0] != '\0' && (at = strchr(at, '@')) != NULL) {
        if (strncmp(at + 1, runtime, strlen(runtime)) == 0) {
            memmove(at, at + 1 + strlen(runtime), strlen(at + 1 + strlen(runtime)) + 1);
            break;
        }
        at++;
    }
    return name;
}

static int by_device(const void *a, const void *b)
{
    const struct sheet *one = a, *other = b;
    int order = strverscmp(one->arch, other->arch);
    order = order != 0 ? order : strverscmp(one->device, other->device);
    return order != 0 ? order : strverscmp(one->runtime, other->runtime);
}

static int by_version(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

/* The place of the name among n, or n. */
static size_t place_of(char *const *names, size_t n, const char *name)
{
    size_t i = 0;
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static bool add_name(char **names, size_t *n, const char *name)
{
    if (place_of(names, *n, name) < *n)
        return true;
    names[*n] = nd_strdup(name);
    return names[(*n)++] != NULL;
}

/* The architecture stands for a device, unless two devices have it. */
static const char *title_of(const struct reading *r, size_t device)
{
    const char *name = r->campaign.devices[device], *arch = "";
    bool is_shared = false;
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->sheets[i].device, name) == 0)
            arch = r->sheets[i].arch;
    for (size_t i = 0; i < r->n; i++)
        is_shared =
            is_shared || (strcmp(r->sheets[i].device, name) != 0 && strcmp(r->sheets[i].arch, arch) == 0);
    return is_shared || arch[0] == '\0' ? name : arch;
}

/* Orders the datasheets, and makes the axes of their devices and runtimes. */
static enum nd_status make_axes(struct reading *r, struct nd_error *err)
{
    struct nd_sheet_grid *c = &r->campaign;
    qsort(r->sheets, r->n, sizeof *r->sheets, by_device);
    c->devices = nd_calloc(r->n, sizeof *c->devices);
    c->runtimes = nd_calloc(r->n, sizeof *c->runtimes);
    c->titles = nd_calloc(r->n, sizeof *c->titles);
    bool is_whole = c->devices != NULL && c->runtimes != NULL && c->titles != NULL;
    for (size_t i = 0; is_whole && i < r->n; i++)
        is_whole = add_name(c->devices, &c->n_devices, r->sheets[i].device) &&
                   add_name(c->runtimes, &c->n_runtimes, r->sheets[i].runtime);
    ND_TRY_MEMORY(is_whole, err);
    qsort(c->runtimes, c->n_runtimes, sizeof *c->runtimes, by_version);
    for (size_t d = 0; d < c->n_devices; d++)
        c->titles[d] = title_of(r, d);
    return ND_OK;
}

static size_t cell_of(const struct nd_sheet_grid *c, const struct sheet *sheet)
{
    return place_of(c->devices, c->n_devices, sheet->device) * c->n_runtimes +
           place_of(c->runtimes, c->n_runtimes, sheet->runtime);
}

static enum nd_status make_grid(struct reading *r, struct nd_error *err)
{
    struct nd_sheet_grid *c = &r->campaign;
    size_t n = c->n_devices * c->n_runtimes;
    c->sheet_of = nd_calloc(n, sizeof *c->sheet_of);
    ND_TRY_MEMORY(c->sheet_of != NULL, err);
    for (size_t i = 0; i < n; i++)
        c->sheet_of[i] = SIZE_MAX;
    for (size_t i = 0; i < r->n; i++) {
        size_t cell = cell_of(c, &r->sheets[i]);
        if (c->sheet_of[cell] != SIZE_MAX)
            return nd_fail(err, ND_E_RESULT_FORMAT, r->sheets[i].name,
                           "'%s' and '%s' are datasheets of the same device with the same runtime",
                           r->sheets[c->sheet_of[cell]].name, r->sheets[i].name);
        c->sheet_of[cell] = i;
    }
    return ND_OK;
}

/* ---- the operators ---- */

/* What tells one arithmetic from another: the claim, and the digests of the answers. */
static json_t *device_facts_of(const json_t *entry)
{
    json_t *claim = nd_sheet_claim(entry);
    if (claim != NULL && json_object_set_new(claim, "answers", json_string(nd_sheet_answers(entry))) == 0)
        return claim;
    json_decref(claim);
    return NULL;
}

static struct nd_campaign_operator *find_operator(struct nd_sheet_grid *c, const char *section,
                                                  const json_t *entry)
{
    for (size_t o = 0; o < c->n_operators; o++)
        if (strcmp(c->operators[o].section, section) == 0 &&
            strcmp(nd_sheet_text(c->operators[o].entry, "operator"), nd_sheet_text(entry, "operator")) == 0 &&
            strcmp(nd_sheet_text(c->operators[o].entry, "types"), nd_sheet_text(entry, "types")) == 0)
            return &c->operators[o];
    size_t n_cells = c->n_devices * c->n_runtimes;
    if (!nd_grow((void **)&c->operators, &c->operators_capacity, c->n_operators + 1, sizeof *c->operators))
        return NULL;
    struct nd_campaign_operator *operator= & c->operators[c->n_operators];
    *operator=(struct nd_campaign_operator){.section = section,
                                            .entry = entry,
                                            .claims = json_array(),
                                            .cells = nd_calloc(n_cells, sizeof *operator->cells)};
    c->n_operators++;
    if (operator->claims == NULL || operator->cells == NULL)
        return NULL;
    for (size_t i = 0; i < n_cells; i++)
        operator->cells[i] = ND_CELL_EMPTY;
    return operator;
}

/* *number: that of the entry's arithmetic among those of the operator, which gets it where it is new. False:
 * memory is out. */
static bool number_of(struct nd_campaign_operator *operator, const json_t * entry, int *number)
{
    const char *verdict = nd_sheet_text(entry, "verdict");
    bool is_unstable = json_object_get(entry, "unstable_trials") != NULL;
    if (strcmp(verdict, "failed") == 0)
        *number = ND_CELL_FAILED;
    else if (is_unstable || (!nd_sheet_is_identified(entry) && nd_sheet_answers(entry)[0] == '\0'))
        *number = ND_CELL_UNKNOWN;
    if (*number < ND_CELL_EMPTY)
        return true;
    json_t *device_facts = device_facts_of(entry);
    size_t n = json_array_size(operator->claims), i = 0;
    while (i < n && device_facts != NULL && json_equal(json_array_get(operator->claims, i), device_facts) != 1)
        i++;
    *number = (int)i;
    if (i < n || device_facts == NULL) {
        json_decref(device_facts);
        return device_facts != NULL;
    }
    return json_array_append_new(operator->claims, device_facts) == 0;
}

static bool add_sheet(struct nd_sheet_grid *c, const struct sheet *sheet)
{
    const char *section;
    json_t *entries, *entry;
    size_t i, cell = cell_of(c, sheet);
    json_object_foreach(json_object_get(sheet->tree, "sections"), section, entries) {
        json_array_foreach(entries, i, entry) {
            struct nd_campaign_operator *operator= find_operator(c, section, entry);
            if (operator== NULL || !number_of(operator, entry, &operator->cells[cell]))
                return false;
        }
    }
    return true;
}

/* ---- the document ---- */

static json_t *texts(const char *const *items, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < n; i++)
        nd_tree_append(list, json_string(items[i]));
    return list;
}

static json_t *tell_cells(const struct reading *r)
{
    const struct nd_sheet_grid *c = &r->campaign;
    json_t *cells = json_array();
    for (size_t i = 0; cells != NULL && i < c->n_devices * c->n_runtimes; i++) {
        const struct sheet *sheet = c->sheet_of[i] != SIZE_MAX ? &r->sheets[c->sheet_of[i]] : NULL;
        nd_tree_append(cells,
                       json_pack("{s:s, s:s, s:s?}", "device", c->titles[i / c->n_runtimes], "runtime",
                                 c->runtimes[i % c->n_runtimes], "file", sheet != NULL ? sheet->name : NULL));
    }
    return cells;
}

/* "A" for the first arithmetic of an operator; the legend is in docs/reference/datasheet.md#campaigns. */
static char letter_of(int number)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if (number >= 0)
        return (size_t)number < sizeof letters - 1 ? letters[number] : '#';
    return number == ND_CELL_FAILED ? '!' : number == ND_CELL_UNKNOWN ? '?' : '.';
}

static json_t *tell_arithmetic(const struct nd_campaign_operator *operator)
{
    json_t *list = json_array(), *claim;
    size_t i;
    json_array_foreach(operator->claims, i, claim) {
        const char letter[2] = {letter_of((int)i), '\0'};
        nd_tree_set(claim, "letter", json_string(letter));
        json_array_append(list, claim);
    }
    return list;
}

static json_t *tell_operator(const struct nd_sheet_grid *c, const struct nd_campaign_operator *operator)
{
    bool is_known, is_same = nd_campaign_is_same(c, operator, & is_known);
    json_t *letters = json_object();
    ND_FREED char *line = nd_calloc(c->n_runtimes + 1, 1);
    for (size_t d = 0; line != NULL && d < c->n_devices; d++) {
        for (size_t i = 0; i < c->n_runtimes; i++)
            line[i] = letter_of(operator->cells[d * c->n_runtimes + i]);
        nd_tree_set(letters, c->titles[d], json_string(line));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "section", operator->section, "operator",
                     nd_sheet_text(operator->entry, "operator"), "types",
                     nd_sheet_text(operator->entry, "types"), "verdict",
                     !is_same   ? "differs"
                     : is_known ? "same"
                                : "not known",
                     "letters", letters, "arithmetic", tell_arithmetic(operator));
}

static enum nd_status write_document(const struct reading *r, char **json, bool *is_same, struct nd_error *err)
{
    const struct nd_sheet_grid *c = &r->campaign;
    json_t *operators = json_array();
    *is_same = true;
    for (size_t o = 0; operators != NULL && o < c->n_operators; o++) {
        bool is_known;
        *is_same = nd_campaign_is_same(c, &c->operators[o], &is_known) && *is_same;
        if (json_array_append_new(operators, tell_operator(c, &c->operators[o])) != 0) {
            json_decref(operators);
            operators = NULL;
        }
    }
    json_t *members =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "verdict", *is_same ? "same" : "differs", "devices",
                  texts(c->titles, c->n_devices), "uris", texts((const char *const *)c->devices, c->n_devices),
                  "runtimes", texts((const char *const *)c->runtimes, c->n_runtimes), "datasheets",
                  tell_cells(r), "steps", nd_campaign_steps(c), "operators", operators);
    json_auto_t *document = nd_json_document(ND_DOCUMENT_DATASHEET_CAMPAIGN, members);
    *json = document != NULL ? nd_json_dump(document, 1) : NULL;
    return *json != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- all of it ---- */

static void deinit(struct reading *r)
{
    struct nd_sheet_grid *c = &r->campaign;
    for (size_t i = 0; r->sheets != NULL && i < r->n; i++) {
        json_decref(r->sheets[i].tree);
        free(r->sheets[i].device);
    }
    for (size_t i = 0; i < c->n_devices; i++)
        free(c->devices[i]);
    for (size_t i = 0; i < c->n_runtimes; i++)
        free(c->runtimes[i]);
    for (size_t o = 0; o < c->n_operators; o++) {
        json_decref(c->operators[o].claims);
        free(c->operators[o].cells);
    }
    free(r->sheets);
    free(c->devices);
    free(c->runtimes);
    free(c->titles);
    free(c->sheet_of);
    free(c->operators);
}

static enum nd_status read_sheets(struct reading *r, const struct nd_datasheet *from, size_t n,
                                  struct nd_error *err)
{
    r->sheets = nd_calloc(n, sizeof *r->sheets);
    ND_TRY_MEMORY(r->sheets != NULL, err);
    while (r->n < n) {
        struct sheet *sheet = &r->sheets[r->n];
        ND_TRY(nd_sheet_read(&from[r->n++], &sheet->tree, err));
        const json_t *device = json_object_get(sheet->tree, "device");
        sheet->name = from[r->n - 1].name;
        sheet->arch = nd_sheet_text(device, "arch");
        sheet->runtime = nd_sheet_text(device, "runtime");
        sheet->device = name_device(device);
        ND_TRY_MEMORY(sheet->device != NULL, err);
    }
    return ND_OK;
}

enum nd_status nd_fingerprint_campaign(const struct nd_datasheet *sheets, size_t n, char **json, bool *is_same,
                                       struct nd_error *err)
{
    struct reading r = {0};
    enum nd_status status = read_sheets(&r, sheets, n, err);
    if (status == ND_OK)
        status = make_axes(&r, err);
    if (status == ND_OK)
        status = make_grid(&r, err);
    /* Device by device, as the letters stand in the table: the oldest chip with the oldest runtime has "A". */
    for (size_t i = 0; status == ND_OK && i < r.campaign.n_devices * r.campaign.n_runtimes; i++)
        if (r.campaign.sheet_of[i] != SIZE_MAX && !add_sheet(&r.campaign, &r.sheets[r.campaign.sheet_of[i]]))
            status = nd_fail_memory(err);
    if (status == ND_OK)
        status = write_document(&r, json, is_same, err);
    deinit(&r);
    return status;
}
