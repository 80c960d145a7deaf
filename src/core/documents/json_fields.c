/* Writes and reads structs as JSON by tables that say which member has which key (json_fields.h). */
#include "core/documents/json_fields.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* What the members of these kinds are. */
struct list {
    size_t n;
    void *items;
};
struct texts {
    size_t n;
    const char **items;
};
struct counts {
    size_t n;
    struct nd_named_count *items;
};
struct range {
    double low, high;
};

/* ---- writing ---- */

static bool is_unknown(const struct nd_json_field *field, const void *at)
{
    return field->kind == ND_FIELD_TEXT    ? (*(const char *const *)at)[0] == '\0'
           : field->kind == ND_FIELD_INT   ? *(const int *)at == INT_MIN
           : field->kind == ND_FIELD_COUNT ? *(const size_t *)at == SIZE_MAX
           : field->kind == ND_FIELD_REAL_IF || field->kind == ND_FIELD_PART_IF ? isnan(*(const double *)at)
                                                                                : false;
}

static bool is_empty_list(const struct nd_json_field *field, const void *at)
{
    return field->kind == ND_FIELD_TEXTS && ((const struct texts *)at)->n == 0;
}

static void put_object(struct nd_json *json, const char *key, const struct nd_members *members,
                       const void *object)
{
    nd_json_open(json, key, '{');
    nd_json_put_members(json, members, object);
    nd_json_close(json, '}');
}

static void put_list(struct nd_json *json, const struct nd_json_field *field, const struct list *list)
{
    ND_JSON_LIST(json, field->key, i, list->n)
        put_object(json, NULL, field->members, (const char *)list->items + i * field->members->bytes);
}

static void put_range(struct nd_json *json, const char *key, const struct range *range)
{
    nd_json_open(json, key, '[');
    nd_json_real(json, NULL, range->low);
    nd_json_real(json, NULL, range->high);
    nd_json_close(json, ']');
}

static void put_counts(struct nd_json *json, const char *key, const struct counts *counts)
{
    nd_json_open(json, key, '{');
    for (size_t i = 0; i < counts->n; i++)
        nd_json_count(json, counts->items[i].name, counts->items[i].n);
    nd_json_close(json, '}');
}

static void put_known(struct nd_json *json, const struct nd_json_field *field, const void *at)
{
    switch (field->kind) {
    case ND_FIELD_WORD:
    case ND_FIELD_TEXT:
        nd_json_text(json, field->key, *(const char *const *)at);
        break;
    case ND_FIELD_INT:
        nd_json_int(json, field->key, *(const int *)at);
        break;
    case ND_FIELD_COUNT:
        nd_json_count(json, field->key, *(const size_t *)at);
        break;
    case ND_FIELD_REAL:
    case ND_FIELD_REAL_IF:
        nd_json_real(json, field->key, *(const double *)at);
        break;
    case ND_FIELD_RANGE:
        put_range(json, field->key, at);
        break;
    case ND_FIELD_TEXTS:
        nd_json_texts(json, field->key, ((const struct texts *)at)->items, ((const struct texts *)at)->n);
        break;
    case ND_FIELD_PART:
    case ND_FIELD_PART_IF:
        put_object(json, field->key, field->members, at);
        break;
    case ND_FIELD_LIST:
        put_list(json, field, at);
        break;
    case ND_FIELD_COUNTS:
        put_counts(json, field->key, at);
    }
}

void nd_json_put_members(struct nd_json *json, const struct nd_members *members, const void *object)
{
    for (const struct nd_json_field *field = members->fields; field->key != NULL; field++) {
        const void *at = (const char *)object + field->offset;
        if (members->is_sparse && (is_unknown(field, at) || is_empty_list(field, at)))
            continue;
        if (is_unknown(field, at))
            nd_json_null(json, field->key);
        else
            put_known(json, field, at);
    }
}

/* ---- reading ---- */

static double real_of(const json_t *value)
{
    const char *text = json_string_value(value);
    if (json_is_number(value))
        return json_number_value(value);
    if (text == NULL || strstr(text, "Infinity") == NULL)
        return NAN;
    return text[0] == '-' ? -INFINITY : INFINITY;
}

static size_t count_of(const json_t *value)
{
    bool is_count = json_is_integer(value) && json_integer_value(value) >= 0;
    return is_count ? (size_t)json_integer_value(value) : SIZE_MAX;
}

static void get_texts(const json_t *value, struct texts *out, struct nd_arena *arena)
{
    size_t i;
    const json_t *item;
    out->n = 0;
    out->items = nd_arena_calloc(arena, json_array_size(value), sizeof *out->items);
    if (out->items != NULL)
        json_array_foreach(value, i, item)
            out->items[out->n++] = nd_arena_text(arena, json_string_value(item));
}

static void get_list(const json_t *value, const struct nd_members *members, struct list *out,
                     struct nd_arena *arena)
{
    size_t i;
    const json_t *item;
    out->n = 0;
    out->items = nd_arena_calloc(arena, json_array_size(value), members->bytes);
    if (out->items == NULL)
        return;
    json_array_foreach(value, i, item)
        nd_json_get_members(item, members, (char *)out->items + out->n++ * members->bytes, arena);
}

static void get_counts(const json_t *value, struct counts *out, struct nd_arena *arena)
{
    const char *key;
    const json_t *item;
    out->n = 0;
    out->items = nd_arena_calloc(arena, json_object_size(value), sizeof *out->items);
    if (out->items == NULL)
        return;
    json_object_foreach((json_t *)(uintptr_t)value, key, item)
        out->items[out->n++] = (struct nd_named_count){nd_arena_text(arena, key), count_of(item)};
}

static void get(const json_t *value, const struct nd_json_field *field, void *at, struct nd_arena *arena)
{
    switch (field->kind) {
    case ND_FIELD_WORD:
    case ND_FIELD_TEXT:
        *(const char **)at = nd_arena_text(arena, json_string_value(value));
        break;
    case ND_FIELD_INT:
        *(int *)at = json_is_integer(value) ? (int)json_integer_value(value) : INT_MIN;
        break;
    case ND_FIELD_COUNT:
        *(size_t *)at = count_of(value);
        break;
    case ND_FIELD_REAL:
    case ND_FIELD_REAL_IF:
        *(double *)at = real_of(value);
        break;
    case ND_FIELD_RANGE:
        *(struct range *)at =
            (struct range){real_of(json_array_get(value, 0)), real_of(json_array_get(value, 1))};
        break;
    case ND_FIELD_TEXTS:
        get_texts(value, at, arena);
        break;
    case ND_FIELD_PART:
    case ND_FIELD_PART_IF:
        nd_json_get_members(value, field->members, at, arena);
        break;
    case ND_FIELD_LIST:
        get_list(value, field->members, at, arena);
        break;
    case ND_FIELD_COUNTS:
        get_counts(value, at, arena);
    }
}

void nd_json_get_members(const json_t *tree, const struct nd_members *members, void *object,
                         struct nd_arena *arena)
{
    for (const struct nd_json_field *field = members->fields; field->key != NULL; field++)
        get(json_object_get(tree, field->key), field, (char *)object + field->offset, arena);
}
