/* Reading members of JSON objects, with messages that say where. */
#include <math.h>
#include <stdio.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/encodings/building.h"
#include "npudiff/core/parse.h"

static enum nd_status nd_encodings_read_aimet_0(struct nd_encodings *encodings, const json_t *root,
                                                struct nd_error *err);
static enum nd_status nd_encodings_read_aimet_1(struct nd_encodings *encodings, const json_t *root,
                                                struct nd_error *err);
static enum nd_status nd_encodings_read_aimet_2(struct nd_encodings *encodings, const json_t *root,
                                                struct nd_error *err);

/* Encodings of the largest language models take some 100 MB. */
static const size_t max_file_bytes = (size_t)512 << 20;

/* Fails with "'<file>': tensor '<tensor>': key '<key>' <what>". */
static enum nd_status nd_encodings_fail(const struct nd_encodings *encodings, const char *tensor,
                                        const char *key, struct nd_error *err, const char *fmt, ...)
{
    char what[256];
    ND_PRINT_ARGUMENTS(what, fmt);
    return nd_fail(err, ND_E_ENCODINGS_FORMAT, tensor, "'%s': %s%s%skey '%s' %s", encodings->path,
                   tensor != NULL ? "tensor '" : "", tensor != NULL ? tensor : "", tensor != NULL ? "': " : "",
                   key, what);
}

/* What a value is, in words of JSON. */
static const char *kind_of(const json_t *value)
{
    static const char *const kinds[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",  [JSON_STRING] = "a text",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number", [JSON_TRUE] = "a boolean",
        [JSON_FALSE] = "a boolean",  [JSON_NULL] = "null",
    };
    return value != NULL ? kinds[json_typeof(value)] : "missing";
}

/* The member as a number, a whole number, a text; ND_E_ENCODINGS_FORMAT when it is missing or another thing. */
static enum nd_status nd_encodings_number(const struct nd_described *at, const char *key, double *out,
                                          struct nd_error *err)
{
    const json_t *value = json_object_get(at->object, key);
    if (!json_is_number(value))
        return nd_encodings_fail(at->encodings, at->tensor, key, err, "is %s, expected a number",
                                 kind_of(value));
    *out = json_number_value(value);
    return ND_OK;
}

/* The member as a number, a whole number, a text; ND_E_ENCODINGS_FORMAT when it is missing or another thing. */
static enum nd_status nd_encodings_whole(const struct nd_described *at, const char *key, int low, int high,
                                         int *out, struct nd_error *err)
{
    double value;
    ND_TRY(nd_encodings_number(at, key, &value, err));
    if (!(value >= low && value <= high) || value != floor(value))
        return nd_encodings_fail(at->encodings, at->tensor, key, err,
                                 "is %.17g, expected a whole number from %d to %d", value, low, high);
    *out = (int)value;
    return ND_OK;
}

static enum nd_status nd_encodings_text(const struct nd_described *at, const char *key, const char **out,
                                        struct nd_error *err)
{
    const json_t *value = json_object_get(at->object, key);
    if (!json_is_string(value))
        return nd_encodings_fail(at->encodings, at->tensor, key, err, "is %s, expected a text", kind_of(value));
    *out = json_string_value(value);
    return ND_OK;
}

/* The member as *n numbers in new memory: a number counts as one. It is NULL, and *n 0, for a list of lists. */
static enum nd_status nd_encodings_numbers(const struct nd_described *at, const char *key, double **out,
                                           size_t *n, struct nd_error *err)
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
    ND_TRY_MEMORY(made != NULL, err);
    if (json_is_number(value))
        made[0] = json_number_value(value);
    json_array_foreach(value, i, item) {
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

/* Adds one encoding by scale and offset, real = scale * (unsigned quantised value + offset). */
static enum nd_status nd_encodings_add_offset(struct nd_encodings *encodings, struct nd_stated *stated,
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
    ND_TRY(nd_file_read(path, max_file_bytes, &text, &n, err));
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
    json_auto_t *root = NULL;
    const struct reader *reader = NULL;
    ND_CLEANUP(nd_encodings_destroy) struct nd_encodings *made = NULL;
    ND_TRY(parse(path, &root, err));
    ND_TRY(choose_reader(path, root, &reader, err));
    ND_TRY(nd_encodings_create(path, reader->source, &made, err));
    ND_TRY(reader->read(made, root, err));
    return ND_GIVE(out, made);
}

/* AIMET 1.0.0: lists of objects with a name, lists of scales and offsets. */

/* Adds what is only listed, when it is: *is_done tells. */
static enum nd_status pass_over(struct nd_encodings *encodings, const char *name, enum nd_encoding_role role,
                                const json_t *item, bool *is_done, struct nd_error *err)
{
    const struct nd_described at = {encodings, name, item};
    const char *kind = "PER_TENSOR", *dtype = "INT";
    int bits, block = 0;
    char why[96];
    ND_TRY(nd_encodings_text(&at, "enc_type", &kind, err));
    ND_TRY(nd_encodings_text(&at, "dtype", &dtype, err));
    ND_TRY(nd_encodings_whole(&at, "bw", 2, 32, &bits, err));
    bool is_float = strcmp(dtype, "FLOAT") == 0;
    bool is_blocks = strcmp(kind, "PER_BLOCK") == 0 || strcmp(kind, "LPBQ") == 0;
    bool is_plain = strcmp(kind, "PER_TENSOR") == 0 || strcmp(kind, "PER_CHANNEL") == 0;
    if (!is_float && strcmp(dtype, "INT") != 0)
        return nd_encodings_fail(encodings, name, "dtype", err, "is '%s', expected INT or FLOAT", dtype);
    if (!is_blocks && !is_plain)
        return nd_encodings_fail(encodings, name, "enc_type", err,
                                 "is '%s', expected PER_TENSOR, PER_CHANNEL, PER_BLOCK or LPBQ", kind);
    *is_done = is_float || is_blocks;
    if (is_blocks)
        ND_TRY(nd_encodings_whole(&at, "block_size", 0, 1 << 30, &block, err));
    if (!*is_done)
        return ND_OK;
    if (is_float)
        snprintf(why, sizeof why, "float of %d bits", bits);
    else
        snprintf(why, sizeof why, "in blocks of %d (%s)", block, kind);
    return nd_encodings_add_unhandled(encodings, name, role, why, err);
}

static enum nd_status check_counts(const struct nd_encodings *encodings, const char *name, const json_t *item,
                                   size_t n_scales, size_t n_offsets, struct nd_error *err)
{
    const char *kind = json_string_value(json_object_get(item, "enc_type"));
    if (n_scales == 0 || n_offsets == 0)
        return nd_encodings_fail(encodings, name, "scale", err,
                                 "or 'offset' is a list of lists, expected numbers");
    if (n_scales != n_offsets)
        return nd_encodings_fail(encodings, name, "offset", err, "has %zu numbers, and 'scale' has %zu",
                                 n_offsets, n_scales);
    if (strcmp(kind, "PER_TENSOR") == 0 && n_scales != 1)
        return nd_encodings_fail(encodings, name, "scale", err, "has %zu numbers, and 'enc_type' is PER_TENSOR",
                                 n_scales);
    return ND_OK;
}

static enum nd_status read_item(struct nd_encodings *encodings, enum nd_encoding_role role, const json_t *item,
                                struct nd_error *err)
{
    struct nd_described at = {encodings, NULL, item};
    ND_FREED double *scales = NULL, *offsets = NULL;
    size_t n_offsets = 0;
    bool is_done = false;
    ND_TRY(nd_encodings_text(&at, "name", &at.tensor, err));
    ND_TRY(pass_over(encodings, at.tensor, role, item, &is_done, err));
    if (is_done)
        return ND_OK;
    struct nd_stated stated = {.name = at.tensor, .role = role};
    const json_t *symmetric = json_object_get(item, "is_sym");
    if (!json_is_boolean(symmetric))
        return nd_encodings_fail(encodings, stated.name, "is_sym", err, "is %s, expected a boolean",
                                 symmetric == NULL ? "missing" : "another thing");
    stated.is_symmetric = json_is_true(symmetric);
    stated.bits = (int)json_number_value(json_object_get(item, "bw"));
    ND_TRY(nd_encodings_numbers(&at, "scale", &scales, &stated.n, err));
    ND_TRY(nd_encodings_numbers(&at, "offset", &offsets, &n_offsets, err));
    ND_TRY(check_counts(encodings, stated.name, item, stated.n, n_offsets, err));
    stated.scales = scales;
    return nd_encodings_add_offset(encodings, &stated, offsets, err);
}

static enum nd_status read_group(struct nd_encodings *encodings, const json_t *root, const char *key,
                                 enum nd_encoding_role role, struct nd_error *err)
{
    const json_t *list = json_object_get(root, key), *item;
    size_t i;
    if (!json_is_array(list))
        return nd_encodings_fail(encodings, NULL, key, err, "is %s, expected a list of objects",
                                 list == NULL ? "missing" : "another thing");
    json_array_foreach(list, i, item) {
        ND_TRY(read_item(encodings, role, item, err));
    }
    return ND_OK;
}

static enum nd_status nd_encodings_read_aimet_1(struct nd_encodings *encodings, const json_t *root,
                                                struct nd_error *err)
{
    ND_TRY(read_group(encodings, root, "activation_encodings", ND_ENCODING_ACTIVATION, err));
    return read_group(encodings, root, "param_encodings", ND_ENCODING_PARAM, err);
}

/* AIMET 2.0.0 and 2.1.0: ONNX's own parameters. The specification has two lists, by role; what AIMET 2.42
 * exports has one, "encodings", for all. Both are read. */

/* "int8", "uint16"; false for every other type, which are floats. */
static bool parse_integer(const char *text, struct nd_stated *out)
{
    int64_t bits;
    bool is_unsigned = text[0] == 'u';
    text += is_unsigned;
    if (strncmp(text, "int", 3) != 0 || !nd_parse_i64(text + 3, &bits) || bits < 2 || bits > 32)
        return false;
    out->bits = (int)bits;
    out->is_signed = !is_unsigned;
    return true;
}

/* Why the item is listed only, or "". */
static enum nd_status find_reason(const struct nd_encodings *encodings, const char *name, const json_t *item,
                                  struct nd_stated *stated, char why[96], struct nd_error *err)
{
    const struct nd_described at = {encodings, name, item};
    const char *dtype;
    int block;
    why[0] = '\0';
    ND_TRY(nd_encodings_text(&at, "output_dtype", &dtype, err));
    if (!parse_integer(dtype, stated)) {
        if (strncmp(dtype, "float", 5) != 0 && strncmp(dtype, "bfloat", 6) != 0)
            return nd_encodings_fail(encodings, name, "output_dtype", err,
                                     "is '%s', expected int2..int32, uint2..uint32 or a float type", dtype);
        snprintf(why, 96, "of type %s", dtype);
        return ND_OK;
    }
    if (json_is_integer(json_object_get(item, "block_size"))) {
        ND_TRY(nd_encodings_whole(&at, "block_size", 0, 1 << 30, &block, err));
        snprintf(why, 96, "in blocks of %d", block);
        return ND_OK;
    }
    if (json_object_get(item, "per_block_int_scale") != NULL ||
        json_is_object(json_object_get(item, "y_scale")))
        snprintf(why, 96, "with scales that are quantised themselves");
    return ND_OK;
}

static enum nd_status read_zero_points(const struct nd_encodings *encodings, const json_t *item,
                                       const struct nd_stated *stated, double **out, struct nd_error *err)
{
    const struct nd_described at = {encodings, stated->name, item};
    size_t n = stated->n;
    double *zero_points = NULL;
    const json_t *given = json_object_get(item, "y_zero_point");
    if (given == NULL || json_is_null(given)) {
        zero_points = nd_calloc(n, sizeof *zero_points);
        ND_TRY_MEMORY(zero_points != NULL, err);
    } else {
        ND_TRY(nd_encodings_numbers(&at, "y_zero_point", &zero_points, &n, err));
    }
    if (n != stated->n) {
        free(zero_points);
        return nd_encodings_fail(encodings, stated->name, "y_zero_point", err,
                                 "has %zu numbers, and 'y_scale' has %zu", n, stated->n);
    }
    *out = zero_points;
    return ND_OK;
}

static enum nd_status read_axis(const struct nd_encodings *encodings, const json_t *item,
                                struct nd_stated *stated, struct nd_error *err)
{
    const json_t *axis = json_object_get(item, "axis");
    stated->has_axis = axis != NULL && !json_is_null(axis);
    if (!stated->has_axis)
        return ND_OK;
    return nd_encodings_whole(&(struct nd_described){encodings, stated->name, item}, "axis", -ND_MAX_RANK,
                              ND_MAX_RANK - 1, &stated->axis, err);
}

static enum nd_status read_affine(struct nd_encodings *encodings, const json_t *item, struct nd_stated *stated,
                                  struct nd_error *err)
{
    ND_FREED double *scales = NULL, *zero_points = NULL;
    ND_TRY(nd_encodings_numbers(&(struct nd_described){encodings, stated->name, item}, "y_scale", &scales,
                                &stated->n, err));
    if (stated->n == 0)
        return nd_encodings_add_unhandled(encodings, stated->name, stated->role,
                                          "scales along several dimensions", err);
    ND_TRY(read_axis(encodings, item, stated, err));
    ND_TRY(read_zero_points(encodings, item, stated, &zero_points, err));
    stated->scales = scales;
    stated->zero_points = zero_points;
    stated->is_symmetric = stated->is_signed;
    for (size_t i = 0; i < stated->n; i++)
        stated->is_symmetric = stated->is_symmetric && zero_points[i] == 0;
    return nd_encodings_add(encodings, stated, err);
}

static enum nd_status read_list(struct nd_encodings *encodings, const json_t *list, const char *key,
                                enum nd_encoding_role role, struct nd_error *err)
{
    const json_t *item;
    size_t i;
    if (!json_is_array(list))
        return nd_encodings_fail(encodings, NULL, key, err, "is %s, expected a list of objects",
                                 list == NULL ? "missing" : "another thing");
    json_array_foreach(list, i, item) {
        struct nd_stated stated = {.role = role};
        char why[96];
        ND_TRY(nd_encodings_text(&(struct nd_described){encodings, NULL, item}, "name", &stated.name, err));
        ND_TRY(find_reason(encodings, stated.name, item, &stated, why, err));
        if (why[0] != '\0')
            ND_TRY(nd_encodings_add_unhandled(encodings, stated.name, role, why, err));
        else
            ND_TRY(read_affine(encodings, item, &stated, err));
    }
    return ND_OK;
}

static enum nd_status nd_encodings_read_aimet_2(struct nd_encodings *encodings, const json_t *root,
                                                struct nd_error *err)
{
    const json_t *all = json_object_get(root, "encodings");
    if (all != NULL)
        return read_list(encodings, all, "encodings", ND_ENCODING_UNSTATED, err);
    ND_TRY(read_list(encodings, json_object_get(root, "activation_encodings"), "activation_encodings",
                     ND_ENCODING_ACTIVATION, err));
    return read_list(encodings, json_object_get(root, "param_encodings"), "param_encodings", ND_ENCODING_PARAM,
                     err);
}

/* AIMET 0.6.1: objects by a tensor's name, a list of one object per channel; offsets; booleans as texts. */

struct entry {
    bool is_float;
    bool is_symmetric;
    int bits;
    double scale;
    double offset;
};

/* true, "True" and "true"; AIMET writes the second. */
static enum nd_status read_boolean(const struct nd_described *at, const char *key, bool *out,
                                   struct nd_error *err)
{
    const json_t *value = json_object_get(at->object, key);
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    *out = json_is_true(value) || strcmp(text, "True") == 0 || strcmp(text, "true") == 0;
    if (value == NULL || *out || json_is_false(value) || strcmp(text, "False") == 0 ||
        strcmp(text, "false") == 0)
        return ND_OK;
    return nd_encodings_fail(at->encodings, at->tensor, key, err,
                             "is neither a boolean nor \"True\" or \"False\"");
}

/* min and max, where they are given, have to be what scale and offset say, to a step. */
static enum nd_status check_range(const struct nd_encodings *encodings, const char *tensor,
                                  const json_t *object, const struct entry *entry, struct nd_error *err)
{
    const json_t *low = json_object_get(object, "min"), *high = json_object_get(object, "max");
    double steps = ldexp(1, entry->bits) - 1;
    double min = entry->scale * entry->offset, max = entry->scale * (entry->offset + steps);
    if (json_is_number(low) && !(fabs(json_number_value(low) - min) <= entry->scale * 1.001))
        return nd_encodings_fail(encodings, tensor, "min", err, "is %g, and scale %g with offset %g give %g",
                                 json_number_value(low), entry->scale, entry->offset, min);
    if (json_is_number(high) && !(fabs(json_number_value(high) - max) <= entry->scale * 1.001))
        return nd_encodings_fail(encodings, tensor, "max", err, "is %g, and scale %g with offset %g give %g",
                                 json_number_value(high), entry->scale, entry->offset, max);
    return ND_OK;
}

static enum nd_status read_entry(const struct nd_encodings *encodings, const char *tensor, const json_t *object,
                                 struct entry *entry, struct nd_error *err)
{
    const struct nd_described at = {encodings, tensor, object};
    const char *dtype = "int";
    *entry = (struct entry){0};
    ND_TRY(nd_encodings_whole(&at, "bitwidth", 2, 32, &entry->bits, err));
    if (json_object_get(object, "dtype") != NULL)
        ND_TRY(nd_encodings_text(&at, "dtype", &dtype, err));
    entry->is_float = strcmp(dtype, "float") == 0;
    if (entry->is_float)
        return ND_OK;
    if (strcmp(dtype, "int") != 0)
        return nd_encodings_fail(encodings, tensor, "dtype", err, "is '%s', expected 'int' or 'float'", dtype);
    ND_TRY(read_boolean(&at, "is_symmetric", &entry->is_symmetric, err));
    ND_TRY(nd_encodings_number(&at, "scale", &entry->scale, err));
    ND_TRY(nd_encodings_number(&at, "offset", &entry->offset, err));
    /* A scale that is none is refused, with its own message, when it is added. */
    bool has_scale = isfinite(entry->scale) && entry->scale > 0;
    return has_scale ? check_range(encodings, tensor, object, entry, err) : ND_OK;
}

static enum nd_status add_entries(struct nd_encodings *encodings, const char *tensor,
                                  enum nd_encoding_role role, const struct entry *entries, size_t n,
                                  struct nd_error *err)
{
    char why[64];
    struct nd_stated stated = {
        .name = tensor, .role = role, .bits = entries[0].bits, .is_symmetric = entries[0].is_symmetric, .n = n};
    for (size_t i = 1; i < n; i++)
        if (entries[i].is_float != entries[0].is_float || entries[i].bits != entries[0].bits ||
            entries[i].is_symmetric != entries[0].is_symmetric)
            return nd_encodings_fail(encodings, tensor, "bitwidth", err,
                                     "or type or symmetry of channel %zu is another than that of channel 0", i);
    if (entries[0].is_float) {
        snprintf(why, sizeof why, "float of %d bits", entries[0].bits);
        return nd_encodings_add_unhandled(encodings, tensor, role, why, err);
    }
    ND_FREED double *scales = nd_calloc(n, sizeof *scales), *offsets = nd_calloc(n, sizeof *offsets);
    ND_TRY(scales != NULL && offsets != NULL ? ND_OK : nd_fail_memory(err));
    for (size_t i = 0; i < n; i++) {
        scales[i] = entries[i].scale;
        offsets[i] = entries[i].offset;
    }
    stated.scales = scales;
    return nd_encodings_add_offset(encodings, &stated, offsets, err);
}

static enum nd_status read_list_of_aimet_0(struct nd_encodings *encodings, const char *tensor,
                                           enum nd_encoding_role role, const json_t *list, struct nd_error *err)
{
    size_t n = json_array_size(list), i;
    const json_t *object;
    if (n == 0)
        return nd_fail(err, ND_E_ENCODINGS_FORMAT, tensor,
                       "'%s': tensor '%s' has no encoding, expected a list of objects", encodings->path,
                       tensor);
    ND_FREED struct entry *entries = nd_calloc(n, sizeof *entries);
    ND_TRY_MEMORY(entries != NULL, err);
    json_array_foreach(list, i, object) {
        ND_TRY(read_entry(encodings, tensor, object, &entries[i], err));
    }
    return add_entries(encodings, tensor, role, entries, n, err);
}

/* {"input": {"0": {...}}, "output": {...}} of one layer, as exported from torch. */
static enum nd_status read_layer(struct nd_encodings *encodings, const char *layer, const json_t *sides,
                                 struct nd_error *err)
{
    const char *side, *index;
    json_t *places, *object;
    enum nd_status status = ND_OK;
    json_object_foreach((json_t *)(uintptr_t)sides, side, places) {
        if (!json_is_object(places))
            return nd_encodings_fail(encodings, layer, side, err, "is no object of encodings by index");
        json_object_foreach(places, index, object) {
            struct entry entry;
            char *text = nd_text("%s.%s[%s]", layer, side, index);
            ND_TRY_MEMORY(text != NULL, err);
            status = read_entry(encodings, text, object, &entry, err);
            if (status == ND_OK)
                status = add_entries(encodings, text, ND_ENCODING_ACTIVATION, &entry, 1, err);
            free(text);
            if (status != ND_OK)
                return status;
        }
    }
    return ND_OK;
}

static enum nd_status read_group_of_aimet_0(struct nd_encodings *encodings, const json_t *root, const char *key,
                                            enum nd_encoding_role role, struct nd_error *err)
{
    json_t *group = json_object_get(root, key), *value;
    const char *tensor;
    if (!json_is_object(group))
        return nd_encodings_fail(encodings, NULL, key, err, "is %s, expected an object by the name of tensors",
                                 group == NULL ? "missing" : "another thing");
    json_object_foreach(group, tensor, value) {
        if (json_is_object(value) && role == ND_ENCODING_ACTIVATION)
            ND_TRY(read_layer(encodings, tensor, value, err));
        else
            ND_TRY(read_list_of_aimet_0(encodings, tensor, role, value, err));
    }
    return ND_OK;
}

static enum nd_status nd_encodings_read_aimet_0(struct nd_encodings *encodings, const json_t *root,
                                                struct nd_error *err)
{
    ND_TRY(read_group_of_aimet_0(encodings, root, "activation_encodings", ND_ENCODING_ACTIVATION, err));
    return read_group_of_aimet_0(encodings, root, "param_encodings", ND_ENCODING_PARAM, err);
}

/* The graphs' tensors in what qnn-context-binary-utility prints: real = scale * (quantised value + offset). */

/* Newer tools leave "Encoding" away. */
static const json_t *member(const json_t *object, const char *key, const char *older_key)
{
    const json_t *value = json_object_get(object, key);
    return value != NULL ? value : json_object_get(object, older_key);
}

static enum nd_status read_pair(const struct nd_encodings *encodings, const char *name, const json_t *object,
                                double *scale, double *zero_point, struct nd_error *err)
{
    const struct nd_described at = {encodings, name, object};
    double offset = 0;
    ND_TRY(nd_encodings_number(&at, "scale", scale, err));
    ND_TRY(nd_encodings_number(&at, "offset", &offset, err));
    *zero_point = 0.0 - offset;
    return ND_OK;
}

static enum nd_status read_axis_of_qnn(struct nd_encodings *encodings, const json_t *object,
                                       struct nd_stated *stated, struct nd_error *err)
{
    const json_t *list = member(object, "scaleOffset", "scaleOffsets"), *pair;
    size_t i, n = json_array_size(list);
    if (n == 0)
        return nd_encodings_fail(encodings, stated->name, "scaleOffset", err,
                                 "is no list of scales and offsets");
    ND_TRY(nd_encodings_whole(&(struct nd_described){encodings, stated->name, object}, "axis", 0,
                              ND_MAX_RANK - 1, &stated->axis, err));
    ND_FREED double *scales = nd_calloc(n, sizeof *scales), *zero_points = nd_calloc(n, sizeof *zero_points);
    ND_TRY_MEMORY(scales != NULL && zero_points != NULL, err);
    json_array_foreach(list, i, pair) {
        ND_TRY(read_pair(encodings, stated->name, pair, &scales[i], &zero_points[i], err));
    }
    stated->has_axis = true;
    stated->n = n;
    stated->scales = scales;
    stated->zero_points = zero_points;
    return nd_encodings_add(encodings, stated, err);
}

/* Whether graphs before have the tensor with the same parameters: several graphs of a context share tensors. */
static bool is_known(const struct nd_encodings *encodings, const json_t *object, const struct nd_stated *stated)
{
    size_t known = nd_encodings_find(encodings, stated->name);
    if (known == SIZE_MAX || object == NULL)
        return false;
    const struct nd_encoding *item = &encodings->items[known];
    return item->quant.n == 1 && item->bits == stated->bits &&
           item->quant.scale[0] == (float)json_number_value(json_object_get(object, "scale")) &&
           (double)item->quant.zero_point[0] == -json_number_value(json_object_get(object, "offset"));
}

static enum nd_status read_tensor(struct nd_encodings *encodings, const json_t *info, struct nd_error *err)
{
    struct nd_stated stated = {.role = ND_ENCODING_ACTIVATION};
    const struct nd_qnn_type *type = nd_qnn_type_read(json_object_get(info, "dataType"));
    const json_t *quant = json_object_get(info, "quantizeParams");
    enum nd_status status =
        nd_encodings_text(&(struct nd_described){encodings, NULL, info}, "name", &stated.name, err);
    if (status != ND_OK || type == NULL || !type->is_fixed_point)
        return status; /* floats and plain integers */
    const json_t *single = member(quant, "scaleOffset", "scaleOffsetEncoding");
    const json_t *axis = member(quant, "axisScaleOffset", "axisScaleOffsetEncoding");
    const char *encoding = json_string_value(json_object_get(quant, "quantizationEncoding"));
    stated.is_signed = nd_dtype_is_signed_integer(type->dtype);
    stated.bits = type->dtype == ND_DTYPE_U4 || type->dtype == ND_DTYPE_I4
                      ? 4
                      : 8 * (int)nd_dtype_size_bytes(type->dtype);
    if (is_known(encodings, single, &stated))
        return ND_OK;
    if (axis != NULL)
        return read_axis_of_qnn(encodings, axis, &stated, err);
    if (single == NULL)
        return nd_encodings_add_unhandled(encodings, stated.name, stated.role,
                                          encoding != NULL ? encoding : "a fixed point without a scale", err);
    double scale, zero_point;
    status = read_pair(encodings, stated.name, single, &scale, &zero_point, err);
    stated.n = 1;
    stated.scales = &scale;
    stated.zero_points = &zero_point;
    stated.is_symmetric = stated.is_signed && status == ND_OK && zero_point == 0;
    return status == ND_OK ? nd_encodings_add(encodings, &stated, err) : status;
}

static enum nd_status read_graph(struct nd_encodings *encodings, const json_t *graph, struct nd_error *err)
{
    static const char *const lists[] = {"graphInputs", "graphOutputs", "graphTensors", "updateableTensors"};
    const json_t *info = json_object_get(graph, "info"), *tensor;
    size_t i;
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        json_array_foreach(json_object_get(info, lists[l]), i, tensor) {
            ND_TRY(read_tensor(encodings, json_object_get(tensor, "info"), err));
        }
    }
    return ND_OK;
}

enum nd_status nd_encodings_read_qnn(struct nd_encodings *encodings, const json_t *root, struct nd_error *err)
{
    json_t *graphs = json_object_get(json_object_get(root, "info"), "graphs"), *graph;
    size_t i;
    if (json_is_object(graphs))
        ND_TRY(read_graph(encodings, graphs, err));
    json_array_foreach(graphs, i, graph) {
        ND_TRY(read_graph(encodings, graph, err));
    }
    return ND_OK;
}
