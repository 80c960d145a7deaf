/* Reading the documents. */
#include <math.h>
#include <stdio.h>

#include "core/memory.h"
#include "report/html/html.h"

const json_t *nd_doc_get(const json_t *object, const char *key)
{
    return json_object_get(object, key);
}

const char *nd_doc_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

const json_t *nd_doc_find(const json_t *list, const char *key, const char *text)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one) {
        if (strcmp(nd_doc_text(one, key), text) == 0)
            return one;
    }
    return NULL;
}

double nd_doc_value(const json_t *value)
{
    const char *word = json_string_value(value);
    if (json_is_number(value))
        return json_number_value(value);
    if (word != NULL && strcmp(word, "Infinity") == 0)
        return INFINITY;
    return word != NULL && strcmp(word, "-Infinity") == 0 ? -INFINITY : NAN;
}

double nd_doc_number(const json_t *object, const char *key)
{
    return nd_doc_value(json_object_get(object, key));
}

bool nd_doc_is(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

size_t nd_doc_index(const json_t *object, const char *key, size_t limit)
{
    const json_t *value = json_object_get(object, key);
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
    return n >= 0 && (uint64_t)n < limit ? (size_t)n : SIZE_MAX;
}

const json_t *nd_doc_pair(const json_t *tensor, size_t device)
{
    const json_t *pairs = nd_doc_get(tensor, "pairs"), *pair;
    size_t i;
    json_array_foreach(pairs, i, pair) {
        if (nd_doc_index(pair, "ref", SIZE_MAX) == 0 && nd_doc_index(pair, "test", SIZE_MAX) == device)
            return pair;
    }
    return NULL;
}

const char *nd_doc_device_label(const json_t *device)
{
    const char *label = nd_doc_text(device, "label");
    return label[0] != '\0' ? label : nd_doc_text(device, "uri");
}

/* ---- groups ---- */

/* -1 where the device has no data at all. */
static json_int_t class_of(const json_t *device)
{
    const json_t *value = nd_doc_get(device, "group");
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static char *group_label(const json_t *devices, size_t first, size_t *n)
{
    struct nd_strbuf label = {0};
    const json_t *leader = json_array_get(devices, first), *device;
    size_t i;
    *n = 0;
    json_array_foreach(devices, i, device) {
        if (i != first && (i < first || class_of(leader) < 0 || class_of(device) != class_of(leader)))
            continue;
        if ((*n)++ > 0)
            nd_strbuf_puts(&label, " = ");
        nd_strbuf_puts(&label, nd_doc_device_label(device));
    }
    return nd_strbuf_take(&label);
}

/* A device is the first of its group unless one before it has the same class. */
static bool is_leader(const json_t *devices, size_t d)
{
    json_int_t class = class_of(json_array_get(devices, d));
    for (size_t i = 0; i < d; i++)
        if (class >= 0 && class_of(json_array_get(devices, i)) == class)
            return false;
    return true;
}

enum nd_status nd_page_find_groups(struct nd_page_part *part, struct nd_error *err)
{
    const json_t *devices = nd_doc_get(part->documents[ND_PAGE_COMPARISON], "devices");
    size_t n = json_array_size(devices);
    part->groups = nd_calloc(n + 1, sizeof *part->groups);
    ND_TRY_MEMORY(part->groups != NULL, err);
    for (size_t d = 0; d < n; d++) {
        if (!is_leader(devices, d))
            continue;
        struct nd_page_group *group = &part->groups[part->n_groups];
        group->device = d;
        group->label = group_label(devices, d, &group->n_devices);
        ND_TRY_MEMORY(group->label != NULL, err);
        part->n_groups++;
    }
    return ND_OK;
}

static bool has_capture(const json_t *devices, const struct nd_page_group *group, const char *capture)
{
    const json_t *leader = json_array_get(devices, group->device), *device;
    size_t i;
    json_array_foreach(devices, i, device) {
        bool is_member = i == group->device || (class_of(leader) >= 0 && class_of(device) == class_of(leader));
        if (is_member && strcmp(nd_doc_text(device, "capture"), capture) == 0)
            return true;
    }
    return false;
}

const char *nd_page_device_label(const struct nd_page_part *part, const json_t *device)
{
    const json_t *devices = nd_doc_get(part->documents[ND_PAGE_COMPARISON], "devices");
    const char *capture = nd_doc_text(device, "capture");
    for (size_t g = 0; capture[0] != '\0' && g < part->n_groups; g++)
        if (has_capture(devices, &part->groups[g], capture))
            return part->groups[g].label;
    return nd_doc_device_label(device);
}

bool nd_doc_is_leader(const json_t *device, size_t d)
{
    size_t same = nd_doc_index(device, "same_as", SIZE_MAX);
    return same == SIZE_MAX || same == d;
}

/* ---- large models ---- */

const json_t *nd_page_explained(const struct nd_page_part *part, const json_t *device)
{
    return nd_doc_find(nd_doc_get(part->documents[ND_PAGE_EXPLANATION], "devices"), "capture",
                       nd_doc_text(device, "capture"));
}

/* ---- a document against its description ---- */

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
    json_array_foreach(wanted, i, one) {
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
    json_array_foreach(check->needs_all ? json_object_get(schema, "required") : NULL, i, key) {
        if (json_object_get(object, json_string_value(key)) == NULL)
            return fits_at(check, NULL, NULL, json_string_value(key), 0);
    }
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
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
    json_array_foreach(ways, i, one) {
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
    json_array_foreach(items != NULL ? value : NULL, i, one) {
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
