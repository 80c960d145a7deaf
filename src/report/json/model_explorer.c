/* Node data for Google's Model Explorer: for each graph a value, and a colour, by the id of the node. Its
 * reader for ONNX takes the graph's name and the nodes' names for ids; it calls a graph without a name "<main>"
 * and a node without one "<node_I>". */
#include <stdio.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "npudiff/model/model.h"
#include "npudiff/report/report.h"

/* Up to this value, this colour. */
struct band {
    double value; /* in the layer of the measure */
    const char *colour;
};

struct word {
    const char *in_json, *shown, *colour;
};

#define GREEN "#c7e9c0"
#define YELLOW "#fff7bc"
#define ORANGE "#fdae6b"
#define RED "#de2d26"
#define GREY "#d9d9d9"
#define SHARE_BANDS                                                                                            \
    {                                                                                                          \
        {0, GREEN}, {0.01, YELLOW}, {0.1, ORANGE},                                                             \
        {                                                                                                      \
            1, RED                                                                                             \
        }                                                                                                      \
    }

enum { N_BANDS = 4, MAX_WORDS = 7 };

/* A member of a layer or pair, and how it is shown. The limits of the colours are chosen: equal on all devices,
 * so that pages can be compared. */
struct measure {
    const char *member, *file, *title;
    struct band bands[N_BANDS];   /* of numbers */
    struct word words[MAX_WORDS]; /* of words */
};

static const struct measure of_pairs[] = {
    {.member = "verdict",
     .file = "verdict",
     .title = "verdict",
     .words = {{"same", "same", GREEN},
               {"within", "ok", YELLOW},
               {"differs", "differs", RED},
               {"inconclusive", "inconclusive", GREY},
               {"not comparable", "not comparable", GREY},
               {"failed", "failed", GREY}}},
    {.member = "share", .file = "share", .title = "share of values that differ", .bands = SHARE_BANDS},
    {.member = "max_lsb",
     .file = "max-lsb",
     .title = "largest difference (LSB)",
     .bands = {{0, GREEN}, {1, YELLOW}, {3, ORANGE}, {1e18, RED}}},
};

static const struct measure of_layers[] = {
    {.member = "state",
     .file = "layer",
     .title = "layer",
     .words = {{"follows", "healthy", GREEN},
               {"within-1-lsb", "not known, within 1 LSB", YELLOW},
               {"unexplained", "unexplained", ORANGE},
               {"faulty", "faulty", RED},
               {"not-examined", "not examined", GREY}}},
    {.member = "introduced_mismatch",
     .file = "introduced",
     .title = "share of values that differ because of this layer",
     .bands = SHARE_BANDS},
    {.member = "effect",
     .file = "effect",
     .title = "effect of this layer on the outputs (mean square, LSB^2)",
     .bands = {{0, GREEN}, {0.25, YELLOW}, {1, ORANGE}, {1e18, RED}}},
};

struct maker {
    const struct nd_model *model;
    struct nd_node_data *out;
    bool is_known; /* there was a comparison or an explanation */
};

/* Its id; NULL in, or a node that is not in the file's list: NULL. */
static const char *node_id(const struct nd_model *model, const char *name, char buf[48])
{
    for (size_t i = 0; name != NULL && i < nd_model_n_nodes(model); i++) {
        if (strcmp(nd_model_node(model, i)->name, name) != 0)
            continue;
        if (nd_model_node(model, i)->has_own_name)
            return name;
        snprintf(buf, 48, "<node_%zu>", i);
        return buf;
    }
    return NULL;
}

/* {"value", "bgColor"} of a word; {"value"} of a number; NULL where there is nothing to show. */
static json_t *result_of(const struct measure *measure, const json_t *value)
{
    const char *word = json_string_value(value);
    for (size_t i = 0; word != NULL && i < MAX_WORDS && measure->words[i].in_json != NULL; i++)
        if (strcmp(measure->words[i].in_json, word) == 0)
            return json_pack("{s:s, s:s}", "value", measure->words[i].shown, "bgColor",
                             measure->words[i].colour);
    return json_is_number(value) && measure->bands[0].colour != NULL ? json_pack("{s:O}", "value", value)
                                                                     : NULL;
}

static json_t *thresholds_of(const struct measure *measure)
{
    json_t *list = json_array();
    for (size_t i = 0; i < N_BANDS && measure->bands[i].colour != NULL; i++)
        nd_tree_append(list, json_pack("{s:f, s:s}", "value", measure->bands[i].value, "bgColor",
                                       measure->bands[i].colour));
    return list;
}

/* "captures/gen 3.h5" gives "gen-3": what names files everywhere. */
static char *device_name(const char *capture)
{
    const char *last = strrchr(capture, '/');
    char *name = nd_strdup(last != NULL ? last + 1 : capture);
    size_t n = name != NULL ? strlen(name) : 0;
    if (n > 3 && strcmp(name + n - 3, ".h5") == 0)
        name[n - 3] = '\0';
    for (char *at = name; at != NULL && *at != '\0'; at++)
        if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-.", *at) == NULL)
            *at = '-';
    return name;
}

/* "gen3.share.json"; for a second device of that name "gen3-2.share.json". */
static char *file_name(const struct nd_node_data *made, const char *device, const char *measure)
{
    size_t size = strlen(device) + strlen(measure) + 32;
    char *name = malloc(size);
    for (size_t copy = 1; name != NULL; copy++) {
        bool is_taken = false;
        if (copy == 1)
            snprintf(name, size, "%s.%s.json", device, measure);
        else
            snprintf(name, size, "%s-%zu.%s.json", device, copy, measure);
        for (size_t i = 0; i < made->n; i++)
            is_taken = is_taken || strcmp(made->files[i].name, name) == 0;
        if (!is_taken)
            break;
    }
    return name;
}

/* Takes over results; without any nothing is added. */
static enum nd_status add_file(struct maker *maker, const struct measure *measure, const char *capture,
                               json_t *results, struct nd_error *err)
{
    struct nd_node_data *out = maker->out;
    size_t n_nodes = json_object_size(results);
    if (results != NULL && n_nodes == 0) {
        json_decref(results);
        return ND_OK;
    }
    struct nd_node_data_file *grown = realloc(out->files, (out->n + 1) * sizeof *grown);
    out->files = grown != NULL ? grown : out->files;
    char *device = device_name(capture);
    /* A sum of shares is nothing. */
    json_t *tree = json_pack("{s:{s:o, s:o, s:o, s:[s]}}", out->graph, "name",
                             json_sprintf("%s: %s", device != NULL ? device : "", measure->title), "results",
                             results, "thresholds", thresholds_of(measure), "hideAggregatedStats", "sum");
    struct nd_node_data_file file = {.name = device != NULL ? file_name(out, device, measure->file) : NULL,
                                     .json = tree != NULL ? nd_json_dump(tree, 1) : NULL,
                                     .measure = measure->title,
                                     .n_nodes = n_nodes};
    json_decref(tree);
    free(device);
    if (grown == NULL || file.name == NULL || file.json == NULL) {
        ND_FREE_ALL(file.name, file.json);
        return nd_fail_memory(err);
    }
    out->files[out->n++] = file;
    return ND_OK;
}

/* Of an operator with several outputs the first tensor's value stays. */
static void put_at(struct maker *maker, json_t *results, const char *node, json_t *result)
{
    char buf[48];
    const char *id = node_id(maker->model, node, buf);
    if (id != NULL && json_object_get(results, id) == NULL)
        json_object_set(results, id, result);
}

/* At the node that makes the tensor, and of a quantised one also at the operator before it. Takes over result.
 */
static void put_result(struct maker *maker, json_t *results, const char *item, json_t *result)
{
    for (size_t e = 0; result != NULL && item != NULL && e < nd_model_n_tensors(maker->model); e++) {
        const struct nd_tensor *tensor = nd_model_tensor(maker->model, e);
        if (strcmp(tensor->name, item) != 0)
            continue;
        const struct nd_model_node *last = nd_model_tensor_operator(maker->model, e);
        put_at(maker, results, tensor->node, result);
        put_at(maker, results, last != NULL ? last->name : NULL, result);
    }
    json_decref(result);
}

/* One device against the first. */
static enum nd_status add_test(struct maker *maker, const json_t *comparison, size_t device,
                               const struct measure *measure, struct nd_error *err)
{
    json_t *results = json_object();
    const json_t *tensor, *pair;
    size_t t, p;
    json_array_foreach(json_object_get(comparison, "tensors"), t, tensor) {
        json_array_foreach(json_object_get(tensor, "pairs"), p, pair) {
            if (json_integer_value(json_object_get(pair, "ref")) == 0 &&
                json_integer_value(json_object_get(pair, "test")) == (json_int_t)device)
                put_result(maker, results, json_string_value(json_object_get(tensor, "name")),
                           result_of(measure, json_object_get(pair, measure->member)));
        }
    }
    const json_t *about = json_array_get(json_object_get(comparison, "devices"), device);
    const char *capture = json_string_value(json_object_get(about, "capture"));
    return add_file(maker, measure, capture != NULL ? capture : "device", results, err);
}

static enum nd_status add_explained(struct maker *maker, const json_t *device, const struct measure *measure,
                                    struct nd_error *err)
{
    json_t *results = json_object();
    const json_t *layer;
    size_t i;
    json_array_foreach(json_object_get(device, "layers"), i, layer)
        put_result(maker, results, json_string_value(json_object_get(layer, "name")),
                   result_of(measure, json_object_get(layer, measure->member)));
    const char *capture = json_string_value(json_object_get(device, "capture"));
    return add_file(maker, measure, capture != NULL ? capture : "device", results, err);
}

static bool is_kind(const json_t *document, enum nd_document kind)
{
    const char *word = json_string_value(json_object_get(document, "kind"));
    return word != NULL && strcmp(word, nd_document_word(kind)) == 0;
}

static enum nd_status add_document(struct maker *maker, const json_t *document, struct nd_error *err)
{
    const json_t *devices = json_object_get(document, "devices");
    bool is_comparison = is_kind(document, ND_DOCUMENT_COMPARISON);
    bool is_explanation = is_kind(document, ND_DOCUMENT_EXPLANATION);
    maker->is_known = maker->is_known || is_comparison || is_explanation;
    for (size_t d = 1; is_comparison && d < json_array_size(devices); d++)
        for (size_t m = 0; m < sizeof of_pairs / sizeof of_pairs[0]; m++)
            ND_TRY(add_test(maker, document, d, &of_pairs[m], err));
    for (size_t d = 0; is_explanation && d < json_array_size(devices); d++)
        for (size_t m = 0; m < sizeof of_layers / sizeof of_layers[0]; m++)
            ND_TRY(add_explained(maker, json_array_get(devices, d), &of_layers[m], err));
    return ND_OK;
}

static enum nd_status add_text(struct maker *maker, const struct nd_report_document *document,
                               struct nd_error *err)
{
    json_auto_t *tree = json_loads(document->json, 0, NULL);
    ND_TRY(add_document(maker, tree, err));
    if (is_kind(tree, ND_DOCUMENT_RUN)) {
        ND_TRY(add_document(maker, json_object_get(tree, "compare"), err));
        ND_TRY(add_document(maker, json_object_get(tree, "explain"), err));
    }
    return ND_OK;
}

/* Where there is nothing to show. */
static enum nd_status nothing(const struct maker *maker, const char *name, struct nd_error *err)
{
    if (!maker->is_known)
        return nd_fail(err, ND_E_REPORT_DOCUMENT, name,
                       "'%s' is not what 'npudiff compare', 'explain' or 'run' prints with --json", name);
    return nd_fail(err, ND_E_REPORT_DOCUMENT, name, "'%s' has no value of a node of the model '%s'", name,
                   nd_model_path(maker->model));
}

enum nd_status nd_report_node_data(const struct nd_model *model, const struct nd_report_document *documents,
                                   size_t n, struct nd_node_data *out, struct nd_error *err)
{
    const char *graph = nd_model_graph_name(model);
    ND_CLEANUP(nd_node_data_deinit)
    struct nd_node_data made = {.graph = nd_strdup(graph[0] != '\0' ? graph : "<main>")};
    struct maker maker = {.model = model, .out = &made};
    *out = (struct nd_node_data){0};
    ND_TRY_MEMORY(made.graph != NULL, err);
    for (size_t i = 0; i < n; i++)
        ND_TRY(add_text(&maker, &documents[i], err));
    return made.n > 0 ? ND_GIVE(out, made) : nothing(&maker, n > 0 ? documents[0].name : "", err);
}

void nd_node_data_deinit(struct nd_node_data *data)
{
    for (size_t i = 0; i < data->n; i++)
        ND_FREE_ALL(data->files[i].name, data->files[i].json);
    ND_FREE_ALL(data->files, data->graph);
    *data = (struct nd_node_data){0};
}
