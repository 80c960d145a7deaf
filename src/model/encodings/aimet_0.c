/* AIMET 0.6.1: objects by the name of a tensor, a list of one object per channel; offsets; booleans as texts.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/encodings/building.h"

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
    enum nd_status status = nd_encodings_whole(&at, "bitwidth", 2, 32, &entry->bits, err);
    if (status == ND_OK && json_object_get(object, "dtype") != NULL)
        status = nd_encodings_text(&at, "dtype", &dtype, err);
    if (status != ND_OK)
        return status;
    entry->is_float = strcmp(dtype, "float") == 0;
    if (entry->is_float)
        return ND_OK;
    if (strcmp(dtype, "int") != 0)
        return nd_encodings_fail(encodings, tensor, "dtype", err, "is '%s', expected 'int' or 'float'", dtype);
    status = read_boolean(&at, "is_symmetric", &entry->is_symmetric, err);
    if (status == ND_OK)
        status = nd_encodings_number(&at, "scale", &entry->scale, err);
    if (status == ND_OK)
        status = nd_encodings_number(&at, "offset", &entry->offset, err);
    /* A scale that is none is refused, with its own message, when it is added. */
    bool has_scale = isfinite(entry->scale) && entry->scale > 0;
    return status == ND_OK && has_scale ? check_range(encodings, tensor, object, entry, err) : status;
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
    double *scales = nd_calloc(n, sizeof *scales), *offsets = nd_calloc(n, sizeof *offsets);
    enum nd_status status = scales != NULL && offsets != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        scales[i] = entries[i].scale;
        offsets[i] = entries[i].offset;
    }
    stated.scales = scales;
    if (status == ND_OK)
        status = nd_encodings_add_offset(encodings, &stated, offsets, err);
    free(scales);
    free(offsets);
    return status;
}

static enum nd_status read_list(struct nd_encodings *encodings, const char *tensor, enum nd_encoding_role role,
                                const json_t *list, struct nd_error *err)
{
    size_t n = json_array_size(list), i;
    const json_t *object;
    if (n == 0)
        return nd_fail(err, ND_E_ENCODINGS_FORMAT, tensor,
                       "'%s': tensor '%s' has no encoding, expected a list of objects", encodings->path,
                       tensor);
    struct entry *entries = nd_calloc(n, sizeof *entries);
    enum nd_status status = entries != NULL ? ND_OK : nd_fail_memory(err);
    json_array_foreach(list, i, object)
    {
        if (status == ND_OK)
            status = read_entry(encodings, tensor, object, &entries[i], err);
    }
    if (status == ND_OK)
        status = add_entries(encodings, tensor, role, entries, n, err);
    free(entries);
    return status;
}

/* {"input": {"0": {...}}, "output": {...}} of one layer, as exported from torch. */
static enum nd_status read_layer(struct nd_encodings *encodings, const char *layer, const json_t *sides,
                                 struct nd_error *err)
{
    const char *side, *index;
    json_t *places, *object;
    enum nd_status status = ND_OK;
    json_object_foreach((json_t *)(uintptr_t)sides, side, places)
    {
        if (!json_is_object(places))
            return nd_encodings_fail(encodings, layer, side, err, "is no object of encodings by index");
        json_object_foreach(places, index, object)
        {
            struct nd_strbuf name = {0};
            struct entry entry;
            nd_strbuf_printf(&name, "%s.%s[%s]", layer, side, index);
            char *text = nd_strbuf_take(&name);
            if (text == NULL)
                return nd_fail_memory(err);
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

static enum nd_status read_group(struct nd_encodings *encodings, const json_t *root, const char *key,
                                 enum nd_encoding_role role, struct nd_error *err)
{
    json_t *group = json_object_get(root, key), *value;
    const char *tensor;
    enum nd_status status = ND_OK;
    if (!json_is_object(group))
        return nd_encodings_fail(encodings, NULL, key, err, "is %s, expected an object by the name of tensors",
                                 group == NULL ? "missing" : "another thing");
    json_object_foreach(group, tensor, value)
    {
        if (json_is_object(value) && role == ND_ENCODING_ACTIVATION)
            status = read_layer(encodings, tensor, value, err);
        else
            status = read_list(encodings, tensor, role, value, err);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

enum nd_status nd_encodings_read_aimet_0(struct nd_encodings *encodings, const json_t *root,
                                         struct nd_error *err)
{
    enum nd_status status = read_group(encodings, root, "activation_encodings", ND_ENCODING_ACTIVATION, err);
    if (status == ND_OK)
        status = read_group(encodings, root, "param_encodings", ND_ENCODING_PARAM, err);
    return status;
}
