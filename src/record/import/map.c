/* What the user says of the tensors of a foreign file: docs/reference/import-map.md. */
#include "record/import/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/yaml_map.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* An item as the file has it. */
struct raw_item {
    char *name, *tensor, *layout, *dtype, *convention, *qvalues, *holds, *op_types, *node, *provider;
    struct nd_texts scale, zero_point, offset;
    double axis, batch_axis;
    size_t n_samples;
    bool is_skipped;
};

static void raw_item_deinit(struct raw_item *raw)
{
    ND_FREE_ALL(raw->name, raw->tensor, raw->layout, raw->dtype, raw->convention, raw->qvalues, raw->holds,
                raw->op_types, raw->node, raw->provider);
    nd_texts_deinit(&raw->scale);
    nd_texts_deinit(&raw->zero_point);
    nd_texts_deinit(&raw->offset);
}

static void item_deinit(struct nd_map_item *item)
{
    ND_FREE_ALL(item->name, item->tensor);
    nd_quant_deinit(&item->quant);
    ND_FREE_ALL(item->op_types, item->node, item->provider, item->where);
    *item = (struct nd_map_item){0};
}

void nd_map_deinit(struct nd_map *map)
{
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < map->sides[s].n; i++)
            item_deinit(&map->sides[s].items[i]);
        free(map->sides[s].items);
    }
    *map = (struct nd_map){0};
}

struct nd_map_item *nd_map_find(const struct nd_map *map, enum nd_imported_side side, const char *name)
{
    for (size_t i = 0; i < map->sides[side].n; i++)
        if (strcmp(map->sides[side].items[i].name, name) == 0)
            return &map->sides[side].items[i];
    return NULL;
}

/* ---- one item ---- */

static enum nd_status read_layout(struct nd_yaml *yaml, const yaml_node_t *node, const char *word,
                                  struct nd_map_item *item, struct nd_error *err)
{
    static const struct {
        const char *word;
        int rank;
        bool is_channel_last;
    } layouts[] = {{"NCW", 3, false}, {"NCHW", 4, false}, {"NCDHW", 5, false},
                   {"NWC", 3, true},  {"NHWC", 4, true},  {"NDHWC", 5, true}};
    for (size_t i = 0; i < COUNT(layouts); i++)
        if (strcmp(layouts[i].word, word) == 0) {
            item->layout_rank = layouts[i].rank;
            item->is_channel_last = layouts[i].is_channel_last;
            return ND_OK;
        }
    return nd_yaml_fail(yaml, &node->start_mark, err,
                        "there is no layout '%s'; there are NCW, NCHW, NCDHW, NWC, NHWC and NDHWC", word);
}

static enum nd_status read_scale(struct nd_yaml *yaml, const yaml_node_t *node, const char *text, float *out,
                                 struct nd_error *err)
{
    double value = 0;
    if (!nd_parse_double(text, &value) || !isfinite((float)value) || !((float)value > 0))
        return nd_yaml_fail(yaml, &node->start_mark, err, "'%s' is no scale: it is a number above 0", text);
    *out = (float)value;
    return ND_OK;
}

/* Which key holds the zero points, and whether its sign is that of QNN: real = scale (quantised value +
 * offset). */
static enum nd_status choose_convention(struct nd_yaml *yaml, const yaml_node_t *node,
                                        const struct raw_item *raw, bool *is_qnn, struct nd_error *err)
{
    *is_qnn = raw->convention != NULL && strcmp(raw->convention, "qnn") == 0;
    if (raw->convention != NULL && !*is_qnn && strcmp(raw->convention, "onnx") != 0)
        return nd_yaml_fail(yaml, &node->start_mark, err, "'convention' is onnx or qnn, not '%s'",
                            raw->convention);
    if (!*is_qnn && raw->offset.n > 0)
        return nd_yaml_fail(yaml, &node->start_mark, err,
                            "'offset' needs 'convention: qnn' (real = scale * (quantised value + offset)); "
                            "with 'convention: onnx' give 'zero_point'");
    if (*is_qnn && raw->zero_point.n > 0)
        return nd_yaml_fail(
            yaml, &node->start_mark, err,
            "'zero_point' contradicts 'convention: qnn', where real = scale * (quantised value + offset)");
    if (raw->scale.n == 0 && (raw->offset.n > 0 || raw->zero_point.n > 0 || raw->convention != NULL))
        return nd_yaml_fail(yaml, &node->start_mark, err, "tensor '%s' needs a 'scale'", raw->name);
    return ND_OK;
}

static enum nd_status read_quant(struct nd_yaml *yaml, const yaml_node_t *node, const struct raw_item *raw,
                                 struct nd_map_item *item, struct nd_error *err)
{
    bool is_qnn = false;
    enum nd_status status = choose_convention(yaml, node, raw, &is_qnn, err);
    const struct nd_texts *zeros = is_qnn ? &raw->offset : &raw->zero_point;
    size_t n = raw->scale.n;
    if (status != ND_OK || n == 0)
        return status;
    if (zeros->n != 1 && zeros->n != n)
        return nd_yaml_fail(yaml, &node->start_mark, err,
                            "tensor '%s' has %zu scales, but %zu of '%s'; one each or one for all", raw->name,
                            n, zeros->n, is_qnn ? "offset" : "zero_point");
    if ((n > 1) != (raw->axis >= 0))
        return nd_yaml_fail(yaml, &node->start_mark, err, "tensor '%s' has %zu scale%s and %s 'axis'",
                            raw->name, n, n > 1 ? "s" : "", n > 1 ? "needs an" : "therefore no");
    item->quant.scale = nd_calloc(n, sizeof *item->quant.scale);
    item->quant.zero_point = nd_calloc(n, sizeof *item->quant.zero_point);
    ND_TRY_MEMORY(item->quant.scale != NULL && item->quant.zero_point != NULL, err);
    item->quant.n = n;
    item->quant.axis = n > 1 ? (int)raw->axis : -1;
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        const char *text = zeros->items[zeros->n == 1 ? 0 : i];
        int64_t zero = 0;
        status = read_scale(yaml, node, raw->scale.items[i], &item->quant.scale[i], err);
        if (status == ND_OK &&
            (!nd_parse_i64(text, &zero) || zero < -INT64_C(4294967296) || zero > INT64_C(4294967296)))
            status =
                nd_yaml_fail(yaml, &node->start_mark, err, "'%s' is no whole number of at most 33 bits", text);
        item->quant.zero_point[i] = is_qnn ? -zero : zero;
    }
    return status;
}

static enum nd_status read_type(struct nd_yaml *yaml, const yaml_node_t *node, const char *name,
                                enum nd_dtype *out, struct nd_error *err)
{
    if (name == NULL)
        return ND_OK;
    *out = nd_dtype_from_name(name);
    return *out != ND_DTYPE_NONE ? ND_OK
                                 : nd_yaml_fail(yaml, &node->start_mark, err, "there is no type '%s'", name);
}

/* Where the samples are, and whether the values are reals or quantised values. */
static enum nd_status read_values(struct nd_yaml *yaml, const yaml_node_t *node, const struct raw_item *raw,
                                  struct nd_map_item *item, struct nd_error *err)
{
    bool is_qvalues = raw->holds != NULL && strcmp(raw->holds, "codes") == 0;
    if (raw->holds != NULL && !is_qvalues && strcmp(raw->holds, "reals") != 0)
        return nd_yaml_fail(yaml, &node->start_mark, err, "'holds' is reals or quantised values, not '%s'",
                            raw->holds);
    if (raw->batch_axis >= 0 && raw->batch_axis != floor(raw->batch_axis))
        return nd_yaml_fail(yaml, &node->start_mark, err, "'batch_axis' is a whole number");
    if (raw->batch_axis >= 0 && raw->n_samples > 0)
        return nd_yaml_fail(yaml, &node->start_mark, err,
                            "'batch_axis' says that a dimension is the samples, 'samples' that the first "
                            "dimension holds more than them; give one");
    item->holds_qvalues = is_qvalues;
    item->batch_axis = raw->batch_axis >= 0 ? (int)raw->batch_axis : -1;
    item->n_samples = raw->n_samples;
    return ND_OK;
}

static enum nd_status take_raw(struct nd_yaml *yaml, const yaml_node_t *node, struct raw_item *raw,
                               struct nd_map_item *item, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    item->name = raw->name;
    item->tensor = raw->tensor;
    item->op_types = raw->op_types;
    item->node = raw->node;
    item->provider = raw->provider;
    raw->name = raw->tensor = raw->op_types = raw->node = raw->provider = NULL;
    item->is_skipped = raw->is_skipped;
    if (raw->layout != NULL)
        status = read_layout(yaml, node, raw->layout, item, err);
    if (status == ND_OK)
        status = read_type(yaml, node, raw->dtype, &item->dtype, err);
    if (status == ND_OK)
        status = read_type(yaml, node, raw->qvalues, &item->qvalues, err);
    if (status == ND_OK)
        status = read_values(yaml, node, raw, item, err);
    struct nd_strbuf where = {0};
    nd_strbuf_printf(&where, "%s:%zu:%zu", yaml->file.path, node->start_mark.line + 1,
                     node->start_mark.column + 1);
    item->where = nd_strbuf_take(&where);
    return status == ND_OK && item->where == NULL ? nd_fail_memory(err) : status;
}

static enum nd_status read_item(struct nd_yaml *yaml, const yaml_node_t *node, struct nd_map_item *item,
                                struct nd_error *err)
{
    static const struct nd_yaml_key keys[] = {
        {"name", ND_YAML_TEXT, offsetof(struct raw_item, name), 0, 0, true},
        {"edge", ND_YAML_TEXT, offsetof(struct raw_item, tensor), 0, 0, false},
        {"layout", ND_YAML_TEXT, offsetof(struct raw_item, layout), 0, 0, false},
        {"dtype", ND_YAML_TEXT, offsetof(struct raw_item, dtype), 0, 0, false},
        {"scale", ND_YAML_TEXTS, offsetof(struct raw_item, scale), 0, 0, false},
        {"zero_point", ND_YAML_TEXTS, offsetof(struct raw_item, zero_point), 0, 0, false},
        {"offset", ND_YAML_TEXTS, offsetof(struct raw_item, offset), 0, 0, false},
        {"axis", ND_YAML_REAL, offsetof(struct raw_item, axis), 0, ND_MAX_RANK - 1, false},
        {"convention", ND_YAML_TEXT, offsetof(struct raw_item, convention), 0, 0, false},
        {"codes", ND_YAML_TEXT, offsetof(struct raw_item, qvalues), 0, 0, false},
        {"holds", ND_YAML_TEXT, offsetof(struct raw_item, holds), 0, 0, false},
        {"batch_axis", ND_YAML_REAL, offsetof(struct raw_item, batch_axis), 0, ND_MAX_RANK, false},
        {"samples", ND_YAML_COUNT, offsetof(struct raw_item, n_samples), 1, 1000000, false},
        {"op_types", ND_YAML_TEXT, offsetof(struct raw_item, op_types), 0, 0, false},
        {"node", ND_YAML_TEXT, offsetof(struct raw_item, node), 0, 0, false},
        {"provider", ND_YAML_TEXT, offsetof(struct raw_item, provider), 0, 0, false},
        {"skip", ND_YAML_FLAG, offsetof(struct raw_item, is_skipped), 0, 0, false},
    };
    ND_CLEANUP(raw_item_deinit) struct raw_item raw = {.axis = -1, .batch_axis = -1};
    ND_TRY(nd_yaml_map(yaml, node, &(struct nd_yaml_kind){"a tensor of a map", keys, COUNT(keys)}, &raw, err));
    if (raw.axis >= 0 && raw.axis != floor(raw.axis))
        return nd_yaml_fail(yaml, &node->start_mark, err, "'axis' is a whole number");
    ND_TRY(read_quant(yaml, node, &raw, item, err));
    return take_raw(yaml, node, &raw, item, err);
}

/* ---- the file ---- */

/* Each tensor and each tensor once. */
static enum nd_status check_unique(const struct nd_map_list *list, const struct nd_map_item *item,
                                   struct nd_error *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct nd_map_item *other = &list->items[i];
        bool is_same_name = strcmp(other->name, item->name) == 0;
        if (is_same_name ||
            (other->tensor != NULL && item->tensor != NULL && strcmp(other->tensor, item->tensor) == 0))
            return nd_fail(err, ND_E_IMPORT_MAP, item->name, "%s: %s '%s' is mapped already by %s", item->where,
                           is_same_name ? "tensor" : "edge", is_same_name ? item->name : item->tensor,
                           other->where);
    }
    return ND_OK;
}

static enum nd_status add_item(struct nd_map_list *list, struct nd_map_item *item, struct nd_error *err)
{
    enum nd_status status = check_unique(list, item, err);
    if (status == ND_OK && !nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items))
        status = nd_fail_memory(err);
    if (status != ND_OK) {
        item_deinit(item);
        return status;
    }
    list->items[list->n++] = *item;
    return ND_OK;
}

static enum nd_status read_list(struct nd_yaml *yaml, const yaml_node_t *node, const char *what,
                                struct nd_map_list *list, struct nd_error *err)
{
    size_t n = 0;
    enum nd_status status = node != NULL ? nd_yaml_list(yaml, node, what, &n, err) : ND_OK;
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        struct nd_map_item item = {.batch_axis = -1};
        status = read_item(yaml, nd_yaml_item(yaml, node, i), &item, err);
        if (status == ND_OK)
            status = add_item(list, &item, err);
        else
            item_deinit(&item);
    }
    return status;
}

static enum nd_status read_file(const char *path, struct nd_map *map, struct nd_error *err)
{
    struct {
        const yaml_node_t *tensors, *inputs;
        struct nd_texts facts[ND_N_STATED]; /* taken by nd_statements_read */
    } root = {0};
    struct nd_yaml_key keys[ND_N_STATED + 2] = {{"tensors", ND_YAML_NODE, 0, 0, 0, false},
                                                {"inputs", ND_YAML_NODE, sizeof(void *), 0, 0, false}};
    nd_statements_keys(keys + 2, (size_t)((char *)root.facts - (char *)&root));
    const struct nd_yaml_file file = {path, "a map", ND_E_IMPORT_MAP};
    ND_CLEANUP(nd_yaml_deinit) struct nd_yaml yaml = {0};
    enum nd_status status = nd_yaml_read(&yaml, &file, err);
    if (status == ND_OK)
        status = nd_yaml_map(&yaml, nd_yaml_root(&yaml), &(struct nd_yaml_kind){"a map", keys, COUNT(keys)},
                             &root, err);
    if (status == ND_OK)
        status = read_list(&yaml, root.tensors, "tensors", &map->sides[ND_IMPORTED_OUTPUT], err);
    if (status == ND_OK)
        status = read_list(&yaml, root.inputs, "inputs", &map->sides[ND_IMPORTED_INPUT], err);
    for (size_t k = 0; k < ND_N_STATED; k++)
        nd_texts_deinit(&root.facts[k]);
    return status;
}

/* NAME=EDGE, split at the last '='. It completes an item of the file that names no tensor. */
static enum nd_status add_short_form(struct nd_map *map, const char *text, struct nd_error *err)
{
    const char *equals = strrchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == '\0')
        return nd_fail(err, ND_E_IMPORT_MAP, text, "--map takes a YAML file or TENSOR=EDGE, not '%s'", text);
    struct nd_strbuf where = {0};
    nd_strbuf_printf(&where, "--map %s", text);
    struct nd_map_item made = {.name = strndup(text, (size_t)(equals - text)),
                               .tensor = nd_strdup(equals + 1),
                               .batch_axis = -1,
                               .where = nd_strbuf_take(&where)};
    if (made.name == NULL || made.tensor == NULL || made.where == NULL) {
        item_deinit(&made);
        return nd_fail_memory(err);
    }
    struct nd_map_item *item = nd_map_find(map, ND_IMPORTED_OUTPUT, made.name);
    if (item == NULL || item->tensor != NULL)
        return add_item(&map->sides[ND_IMPORTED_OUTPUT], &made, err);
    item->tensor = made.tensor;
    made.tensor = NULL;
    item_deinit(&made);
    return ND_OK;
}

enum nd_status nd_map_read(const char *path, const char *const *short_forms, size_t n_short_forms,
                           struct nd_map *out, struct nd_error *err)
{
    struct nd_map map = {0};
    enum nd_status status = path != NULL ? read_file(path, &map, err) : ND_OK;
    for (size_t i = 0; status == ND_OK && i < n_short_forms; i++)
        status = add_short_form(&map, short_forms[i], err);
    if (status == ND_OK)
        *out = map;
    else
        nd_map_deinit(&map);
    return status;
}
