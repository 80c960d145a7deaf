/* HTP backend configuration files: two JSON objects, the outer of which names the inner. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "compare/config/config.h"

/* An attribute holds less than 64 KiB; real files have 1 or 2. */
enum { MAX_FILE_BYTES = 32 << 10 };

static enum nd_status parse(const char *text, const char *path, json_t **out, struct nd_error *err)
{
    json_error_t where;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL)
        return nd_fail(err, ND_E_CONFIG_FORMAT, path, "HTP configuration '%s', line %d, column %d: %s", path,
                       where.line, where.column, text[0] == '\0' ? "the file is empty" : where.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return nd_fail(err, ND_E_CONFIG_FORMAT, path, "HTP configuration '%s' is no JSON object", path);
    }
    *out = root;
    return ND_OK;
}

/* ---- flattening ---- */

static enum nd_status flatten(struct nd_config_list *list, const char *prefix, const json_t *value,
                              struct nd_error *err);

static enum nd_status flatten_object(struct nd_config_list *list, const char *prefix, const json_t *object,
                                     struct nd_error *err)
{
    const char *key;
    json_t *value;
    enum nd_status status = ND_OK;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        bool is_old = strcmp(key, "graphs") == 0 && json_is_object(value);
        char *name = nd_config_join(prefix, ".", is_old ? "graphs[0]" : key);
        status = name != NULL ? flatten(list, name, value, err) : nd_fail_memory(err);
        free(name);
        if (status != ND_OK)
            break;
    }
    return status;
}

static enum nd_status flatten(struct nd_config_list *list, const char *prefix, const json_t *value,
                              struct nd_error *err)
{
    size_t i;
    const json_t *item;
    enum nd_status status = ND_OK;
    if (json_is_object(value))
        return flatten_object(list, prefix, value, err);
    if (!json_is_array(value)) {
        char *text = json_is_string(value) ? nd_strdup(json_string_value(value))
                                           : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        return nd_config_add(list, nd_strdup(prefix), text, err);
    }
    json_array_foreach(value, i, item)
    {
        char index[32];
        snprintf(index, sizeof index, "[%zu]", i);
        char *name = nd_config_join(prefix, "", index);
        status = name != NULL ? flatten(list, name, item, err) : nd_fail_memory(err);
        free(name);
        if (status != ND_OK)
            break;
    }
    return status;
}

enum nd_status nd_config_flatten(struct nd_config_list *list, const char *prefix, const char *text,
                                 const char *path, struct nd_error *err)
{
    json_t *root = NULL;
    enum nd_status status = parse(text, path, &root, err);
    if (status == ND_OK)
        status = flatten(list, prefix, root, err);
    json_decref(root);
    return status;
}

/* ---- reading ---- */

static enum nd_status read_text(const char *path, char **out, json_t **root, struct nd_error *err)
{
    void *text = NULL;
    size_t n;
    enum nd_status status = nd_file_read(path, MAX_FILE_BYTES, &text, &n, err);
    if (status == ND_OK && strlen(text) != n)
        status = nd_fail(err, ND_E_CONFIG_FORMAT, path, "HTP configuration '%s' holds a NUL", path);
    if (status == ND_OK)
        status = parse(text, path, root, err);
    if (status == ND_OK)
        *out = text;
    else
        free(text);
    return status;
}

static enum nd_status read_inner(const char *outer_path, const char *name, char **out, struct nd_error *err)
{
    char *dir = nd_path_dir(outer_path);
    char *beside = dir != NULL ? nd_path_join(dir, name) : NULL;
    json_t *root = NULL;
    enum nd_status status = beside == NULL ? nd_fail_memory(err) : ND_OK;
    if (status == ND_OK)
        status = read_text(nd_path_exists(beside) || !nd_path_exists(name) ? beside : name, out, &root, err);
    if (status != ND_OK)
        nd_error_context(err, "'%s' names '%s'", outer_path, name);
    json_decref(root);
    free(beside);
    free(dir);
    return status;
}

enum nd_status nd_htp_config_read(const char *path, struct nd_htp_config *out, struct nd_error *err)
{
    struct nd_htp_config config = {0};
    json_t *root = NULL;
    enum nd_status status = read_text(path, &config.inner, &root, err);
    const json_t *extensions = json_object_get(root, "backend_extensions");
    const json_t *name = json_object_get(extensions, "config_file_path");
    bool is_outer = extensions != NULL || json_object_get(root, "context_configs") != NULL ||
                    json_object_get(root, "graph_configs") != NULL;
    if (status == ND_OK && is_outer) {
        config.outer = config.inner;
        config.inner = NULL;
        if (json_is_string(name))
            status = read_inner(path, json_string_value(name), &config.inner, err);
        else if (extensions != NULL)
            status =
                nd_fail(err, ND_E_CONFIG_FORMAT, path,
                        "HTP configuration '%s': key 'backend_extensions.config_file_path' is no text", path);
    }
    json_decref(root);
    if (status == ND_OK)
        *out = config;
    else
        nd_htp_config_deinit(&config);
    return status;
}

void nd_htp_config_deinit(struct nd_htp_config *config)
{
    free(config->outer);
    free(config->inner);
    *config = (struct nd_htp_config){0};
}
