/* Reading members of JSON objects, with messages that say where. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "model/encodings/building.h"

/* Encodings of the largest language models take some 100 MB. */
static const size_t max_file_bytes = (size_t)512 << 20;

enum nd_status nd_encodings_fail(const struct nd_encodings *encodings, const char *tensor, const char *key,
                                 struct nd_error *err, const char *fmt, ...)
{
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return nd_fail(err, ND_E_ENCODINGS_FORMAT, tensor, "'%s': %s%s%skey '%s' %s", encodings->path,
                   tensor != NULL ? "tensor '" : "", tensor != NULL ? tensor : "", tensor != NULL ? "': " : "",
                   key, what);
}

/* What a value is, in words of JSON. */
static const char *kind_of(const json_t *value)
{
    if (value == NULL)
        return "missing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a text";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "unknown";
}

enum nd_status nd_encodings_number(const struct nd_described *at, const char *key, double *out,
                                   struct nd_error *err)
{
    const json_t *value = json_object_get(at->object, key);
    if (!json_is_number(value))
        return nd_encodings_fail(at->encodings, at->tensor, key, err, "is %s, expected a number",
                                 kind_of(value));
    *out = json_number_value(value);
    return ND_OK;
}

enum nd_status nd_encodings_whole(const struct nd_described *at, const char *key, int low, int high, int *out,
                                  struct nd_error *err)
{
    double value;
    enum nd_status status = nd_encodings_number(at, key, &value, err);
    if (status != ND_OK)
        return status;
    if (!(value >= low && value <= high) || value != floor(value))
        return nd_encodings_fail(at->encodings, at->tensor, key, err,
                                 "is %.17g, expected a whole number from %d to %d", value, low, high);
    *out = (int)value;
    return ND_OK;
}

enum nd_status nd_encodings_text(const struct nd_described *at, const char *key, const char **out,
                                 struct nd_error *err)
{
    const json_t *value = json_object_get(at->object, key);
    if (!json_is_string(value))
        return nd_encodings_fail(at->encodings, at->tensor, key, err, "is %s, expected a text", kind_of(value));
    *out = json_string_value(value);
    return ND_OK;
}

enum nd_status nd_encodings_numbers(const struct nd_described *at, const char *key, double **out, size_t *n,
                                    struct nd_error *err)
{
    const json_t *value = json_object_get(at->object, key), *item;
    size_t n_items = json_is_array(value) ? json_array_size(value) : 1, i;
    *out = NULL;
    *n = 0;
    if (json_is_array(json_array_get(value, 0)))
        return ND_OK;
    if (!json_is_number(value) && (!json_is_array(value) || n_items == 0))
        return nd_encodings_fail(at->encodings, at->tensor, key, err,
                                 "is %s, expected a number or a list of numbers",
                                 json_is_array(value) ? "an empty list" : kind_of(value));
    double *made = nd_calloc(n_items, sizeof *made);
    if (made == NULL)
        return nd_fail_memory(err);
    if (json_is_number(value))
        made[0] = json_number_value(value);
    json_array_foreach(value, i, item)
    {
        if (!json_is_number(item)) {
            free(made);
            return nd_encodings_fail(at->encodings, at->tensor, key, err,
                                     "has %s as element %zu, expected a number", kind_of(item), i);
        }
        made[i] = json_number_value(item);
    }
    *out = made;
    *n = n_items;
    return ND_OK;
}

enum nd_status nd_encodings_add_offset(struct nd_encodings *encodings, struct nd_stated *stated,
                                       double *offsets, struct nd_error *err)
{
    double half = ldexp(1, stated->bits - 1);
    stated->is_signed = stated->is_symmetric;
    for (size_t i = 0; i < stated->n; i++)
        stated->is_signed = stated->is_signed && (offsets[i] == -half || offsets[i] == 1 - half);
    for (size_t i = 0; i < stated->n; i++) {
        double zero_point = stated->is_signed ? -(offsets[i] + half) : -offsets[i];
        offsets[i] = zero_point + 0.0; /* never -0 */
    }
    stated->zero_points = offsets;
    return nd_encodings_add(encodings, stated, err);
}

/* ---- the file ---- */

static enum nd_status parse(const char *path, json_t **out, struct nd_error *err)
{
    void *text = NULL;
    size_t n = 0;
    json_error_t where;
    enum nd_status status = nd_file_read(path, max_file_bytes, &text, &n, err);
    if (status != ND_OK)
        return status;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    free(text);
    if (root == NULL && json_error_code(&where) == json_error_out_of_memory)
        return nd_fail_memory(err);
    if (root == NULL && json_error_code(&where) == json_error_duplicate_key)
        return nd_fail(err, ND_E_ENCODINGS_FORMAT, path, "'%s', line %d, column %d: described twice: %s", path,
                       where.line, where.column, where.text);
    if (root == NULL)
        return nd_fail(err, ND_E_ENCODINGS_FORMAT, path, "'%s', line %d, column %d: no JSON: %s", path,
                       where.line, where.column, n == 0 ? "the file is empty" : where.text);
    *out = root;
    return ND_OK;
}

struct reader {
    const char *version;
    const char *source;
    enum nd_status (*read)(struct nd_encodings *, const json_t *, struct nd_error *);
};

static const struct reader readers[] = {
    {"0.6.1", "AIMET 0.6.1", nd_encodings_read_aimet_0},
    {"1.0.0", "AIMET 1.0.0", nd_encodings_read_aimet_1},
    {"2.0.0", "AIMET 2.0.0", nd_encodings_read_aimet_2},
    {"2.1.0", "AIMET 2.1.0", nd_encodings_read_aimet_2},
};
static const struct reader qnn = {"", "QNN", nd_encodings_read_qnn};

static enum nd_status choose_reader(const char *path, const json_t *root, const struct reader **out,
                                    struct nd_error *err)
{
    const json_t *version = json_object_get(root, "version");
    *out = &qnn;
    if (json_is_object(json_object_get(json_object_get(root, "info"), "graphs")) ||
        json_is_array(json_object_get(json_object_get(root, "info"), "graphs")))
        return ND_OK;
    if (!json_is_string(version))
        return nd_fail(err, ND_E_ENCODINGS_FORMAT, path,
                       "'%s' holds neither AIMET encodings (no text 'version') nor the output of "
                       "qnn-context-binary-utility (no 'info' with 'graphs')",
                       path);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        *out = &readers[i];
        if (strcmp(readers[i].version, json_string_value(version)) == 0)
            return ND_OK;
    }
    return nd_fail(err, ND_E_ENCODINGS_VERSION, path,
                   "'%s': key 'version' is '%s', expected 0.6.1, 1.0.0, 2.0.0 or 2.1.0", path,
                   json_string_value(version));
}

enum nd_status nd_encodings_read(const char *path, struct nd_encodings **out, struct nd_error *err)
{
    json_t *root = NULL;
    const struct reader *reader = NULL;
    struct nd_encodings *made = NULL;
    enum nd_status status = parse(path, &root, err);
    if (status == ND_OK)
        status = choose_reader(path, root, &reader, err);
    if (status == ND_OK)
        status = nd_encodings_create(path, reader->source, &made, err);
    if (status == ND_OK)
        status = reader->read(made, root, err);
    json_decref(root);
    if (status == ND_OK)
        *out = made;
    else
        nd_encodings_destroy(&made);
    return status;
}
