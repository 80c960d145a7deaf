#include <jansson.h>
#include <string.h>

#include "core/text/strbuf.h"
#include "compare/latency/latency_list.h"

static const char ai_hub_path[] = "execution_summary.all_inference_times";

/* The member at a dotted path; a key with dots of its own is found first. NULL: there is none. */
static const json_t *find(const json_t *value, const char *path)
{
    const json_t *whole = json_object_get(value, path);
    const char *dot = strchr(path, '.');
    if (whole != NULL || dot == NULL)
        return whole;
    char key[256];
    size_t n = (size_t)(dot - path);
    if (n >= sizeof key)
        return NULL;
    memcpy(key, path, n);
    key[n] = '\0';
    return find(json_object_get(value, key), dot + 1);
}

static void name_arrays(const json_t *object, const char *prefix, struct nd_strbuf *out, int depth)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        char path[256];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix != '\0' ? "." : "", key);
        if (json_is_array(value) && json_is_number(json_array_get(value, 0)))
            nd_strbuf_printf(out, "%s'%s'", out->len > 0 ? ", " : "", path);
        else if (json_is_object(value) && depth > 0)
            name_arrays(value, path, out, depth - 1);
    }
}

static enum nd_status no_array(const struct nd_list *list, const json_t *root, struct nd_error *err)
{
    struct nd_strbuf names = {0};
    name_arrays(root, "", &names, 3);
    enum nd_status status = nd_list_no_column(list, names.text != NULL ? names.text : "", err);
    nd_strbuf_deinit(&names);
    return status;
}

static enum nd_status read_array(struct nd_list *list, const json_t *array, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < json_array_size(array); i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_number(value))
            return nd_fail(err, ND_E_LATENCY_FORMAT, list->path, "'%s': element %zu is no number", list->path,
                           i);
        status = nd_list_add(list, json_number_value(value), "element", i, err);
    }
    return status;
}

static enum nd_status read_root(struct nd_list *list, const json_t *root, struct nd_error *err)
{
    list->format = "json";
    if (json_is_array(root) && list->column == NULL)
        return read_array(list, root, err);
    if (json_is_array(root))
        return nd_fail(err, ND_E_LATENCY_COLUMN, list->path, "'%s' is a plain array: it has no '%s'",
                       list->path, list->column);
    const json_t *array = find(root, list->column != NULL ? list->column : ai_hub_path);
    if (!json_is_array(array))
        return no_array(list, root, err);
    if (find(root, ai_hub_path) == array)
        list->format = "ai-hub";
    return read_array(list, array, err);
}

enum nd_status nd_list_read_json(struct nd_list *list, const char *text, size_t n_bytes, struct nd_error *err)
{
    json_error_t problem;
    json_t *root = json_loadb(text, n_bytes, 0, &problem);
    if (root == NULL)
        return nd_fail(err, ND_E_LATENCY_FORMAT, list->path, "'%s' is no whole JSON: line %d: %s", list->path,
                       problem.line, problem.text);
    enum nd_status status = read_root(list, root, err);
    json_decref(root);
    return status;
}
