/* A document against its description, docs/reference/schemas (JSON Schema): of what those files use all but
 * patterns. A member that is not described is a later version's, and passes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/html/html.h"

struct check {
    const json_t *definitions;
    bool needs_all; /* of this version of npudiff: no member that is described may be missing */
    bool is_missing;
    char place[200]; /* "$.charts[0].sdks" */
};

static int is_of_type(const json_t *value, const json_t *name)
{
    const char *type = json_string_value(name);
    double number = json_number_value(value);
    return strcmp(type, "object") == 0    ? json_is_object(value)
           : strcmp(type, "array") == 0   ? json_is_array(value)
           : strcmp(type, "string") == 0  ? json_is_string(value)
           : strcmp(type, "boolean") == 0 ? json_is_boolean(value)
           : strcmp(type, "null") == 0    ? json_is_null(value)
           : strcmp(type, "integer") == 0 ? json_is_number(value) && floor(number) >= number
                                          : json_is_number(value);
}

/* Whether the value is one of a list, or it alone. */
static bool is_one_of(const json_t *value, const json_t *wanted, int (*is)(const json_t *, const json_t *))
{
    const json_t *one;
    size_t i;
    json_array_foreach(wanted, i, one)
    {
        if (is(value, one))
            return true;
    }
    return wanted == NULL || (!json_is_array(wanted) && is(value, wanted));
}

static bool is_within(const json_t *value, const json_t *schema)
{
    bool is_list = json_is_array(value);
    const json_t *least = json_object_get(schema, is_list ? "minItems" : "minimum"),
                 *most = json_object_get(schema, is_list ? "maxItems" : "maximum");
    double n = is_list ? (double)json_array_size(value) : json_number_value(value);
    return (!is_list && !json_is_number(value)) ||
           (!(least != NULL && n < json_number_value(least)) && !(most != NULL && n > json_number_value(most)));
}

static bool fits(struct check *check, const json_t *value, const json_t *schema);

/* The same at a place below this one, which stays in check->place where it does not fit. */
static bool fits_at(struct check *check, const json_t *value, const json_t *schema, const char *key, size_t i)
{
    size_t n = strlen(check->place), room = sizeof check->place - n;
    if (key != NULL)
        snprintf(check->place + n, room, ".%s", key);
    else
        snprintf(check->place + n, room, "[%zu]", i);
    bool is = fits(check, value, schema);
    if (is)
        check->place[n] = '\0';
    return is;
}

static bool fit_members(struct check *check, const json_t *object, const json_t *schema)
{
    const json_t *members = json_object_get(schema, "properties"), *key;
    const json_t *others = json_object_get(schema, "additionalProperties");
    const char *name;
    json_t *value;
    size_t i;
    json_array_foreach(check->needs_all ? json_object_get(schema, "required") : NULL, i, key)
    {
        if (json_object_get(object, json_string_value(key)) == NULL)
            return fits_at(check, NULL, NULL, json_string_value(key), 0);
    }
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        const json_t *described = json_object_get(members, name);
        described = described == NULL && json_is_object(others) ? others : described;
        if (described != NULL && !fits_at(check, value, described, name, 0))
            return false;
    }
    return true;
}

/* value: NULL where it is missing. */
static bool fits(struct check *check, const json_t *value, const json_t *schema)
{
    static const char in_definitions[] = "#/$defs/";
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const json_t *ways = json_object_get(schema, "anyOf"), *items = json_object_get(schema, "items"), *one;
    size_t i, n = strlen(check->place);
    if (ref != NULL)
        return fits(check, value, json_object_get(check->definitions, ref + sizeof in_definitions - 1));
    ways = ways != NULL ? ways : json_object_get(schema, "oneOf");
    json_array_foreach(ways, i, one)
    {
        if (fits(check, value, one))
            return true;
        if (i + 1 < json_array_size(ways))
            check->place[n] = '\0';
    }
    check->is_missing = value == NULL;
    if (ways != NULL || value == NULL || !is_one_of(value, json_object_get(schema, "type"), is_of_type) ||
        !is_one_of(value, json_object_get(schema, "enum"), json_equal) ||
        !is_one_of(value, json_object_get(schema, "const"), json_equal) || !is_within(value, schema))
        return false;
    json_array_foreach(items != NULL ? value : NULL, i, one)
    {
        if (!fits_at(check, one, items, NULL, i))
            return false;
    }
    return !json_is_object(value) || fit_members(check, value, schema);
}

enum nd_status nd_page_check(const struct nd_report_document *document, const json_t *tree, const char *kind,
                             const char *schema, size_t n_bytes, struct nd_error *err)
{
    json_auto_t *description = json_loadb(schema, n_bytes, 0, NULL);
    ND_TRY_MEMORY(description != NULL, err);
    struct check check = {.definitions = json_object_get(description, "$defs"), .place = "$"};
    check.needs_all = strcmp(nd_doc_text(tree, "npudiff"), nd_version()) == 0;
    if (fits(&check, tree, description))
        return ND_OK;
    return nd_fail(err, ND_E_REPORT_DOCUMENT, document->name,
                   "'%s' is damaged: %s is %s docs/reference/schemas/%s.json describes it", document->name,
                   check.place, check.is_missing ? "missing, though" : "not as", kind);
}
