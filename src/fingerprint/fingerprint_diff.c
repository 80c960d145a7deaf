/* Two datasheets against each other. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_out.h"
#include "base/strbuf.h"
#include "fingerprint/section.h"
#include "npudiff/fingerprint.h"

static enum nd_status read_sheet(const struct nd_datasheet *from, json_t **out, struct nd_error *err)
{
    const char *name = from->name;
    json_error_t where;
    json_t *sheet = json_loads(from->text, JSON_REJECT_DUPLICATES, &where);
    if (sheet == NULL)
        return nd_fail(err, ND_E_RESULT_FORMAT, name, "'%s' is no JSON: %s (line %d)", name, where.text,
                       where.line);
    json_int_t version = json_integer_value(json_object_get(sheet, "npudiff_datasheet"));
    if (version < 1 || version > ND_DATASHEET_VERSION || !json_is_object(json_object_get(sheet, "sections")) ||
        !json_is_object(json_object_get(sheet, "device"))) {
        json_decref(sheet);
        return nd_fail(err, ND_E_RESULT_FORMAT, name, "'%s' is not a datasheet of version 1 or %d", name,
                       ND_DATASHEET_VERSION);
    }
    *out = sheet;
    return ND_OK;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* The entry of the same operator and types, or NULL. */
static const json_t *find_entry(const json_t *entries, const json_t *like)
{
    const json_t *entry;
    size_t i;
    json_array_foreach(entries, i, entry)
    {
        if (strcmp(text_of(entry, "operator"), text_of(like, "operator")) == 0 &&
            strcmp(text_of(entry, "types"), text_of(like, "types")) == 0)
            return entry;
    }
    return NULL;
}

/* The arithmetic that an entry claims: without counts, and without what was asked. */
static json_t *claim_of(const json_t *entry)
{
    static const char *const members[] = {"verdict", "possible_arithmetic", "parameters", "table", "nearest",
                                          "failure"};
    json_t *claim = json_object();
    for (size_t i = 0; claim != NULL && i < sizeof members / sizeof members[0]; i++) {
        json_t *member = json_object_get(entry, members[i]);
        if (member == NULL && strcmp(members[i], "possible_arithmetic") == 0)
            member = json_object_get(entry, "programs"); /* version 1 */
        if (member != NULL)
            json_object_set(claim, members[i], member);
    }
    return claim;
}

static bool is_known(const json_t *entry)
{
    return strcmp(text_of(entry, "verdict"), "identified") == 0;
}

struct diff {
    const char *name_a, *name_b; /* files */
    json_t *differences, *unknown;
    size_t n_same;
    bool is_whole;
};

static void compare_entries(struct diff *diff, const char *section, const json_t *a, const json_t *b)
{
    json_t *claim_a = claim_of(a), *claim_b = claim_of(b);
    bool is_same = claim_a != NULL && claim_b != NULL && json_equal(claim_a, claim_b) == 1;
    /* Codes tell also where no program does: sections give a digest of what the device answered. */
    const char *digest_a = text_of(a, "answers"), *digest_b = text_of(b, "answers");
    bool has_digests = digest_a[0] != '\0' && digest_b[0] != '\0';
    bool is_unknown = !is_known(a) && !is_known(b) && !has_digests;
    if (has_digests)
        is_same = is_same && strcmp(digest_a, digest_b) == 0;
    if (is_same && !is_unknown)
        diff->n_same++;
    json_t *row = is_same && !is_unknown ? NULL
                                         : json_pack("{s:s, s:s, s:s, s:O?, s:O?}", "section", section,
                                                     "operator", text_of(a, "operator"), "types",
                                                     text_of(a, "types"), "a", claim_a, "b", claim_b);
    if (row != NULL)
        diff->is_whole &= json_array_append_new(is_same ? diff->unknown : diff->differences, row) == 0;
    else
        diff->is_whole &= is_same && !is_unknown;
    json_decref(claim_a);
    json_decref(claim_b);
}

static void compare_sections(struct diff *diff, const json_t *a, const json_t *b)
{
    const char *section;
    json_t *entries;
    json_object_foreach((json_t *)(uintptr_t)json_object_get(a, "sections"), section, entries)
    {
        const json_t *others = json_object_get(json_object_get(b, "sections"), section), *entry;
        size_t i;
        json_array_foreach(entries, i, entry)
        {
            const json_t *other = find_entry(others, entry);
            if (other != NULL)
                compare_entries(diff, section, entry, other);
        }
    }
}

static enum nd_status write_result(const struct diff *diff, const json_t *a, const json_t *b, char **json,
                                   struct nd_error *err)
{
    json_t *members = json_pack("{s:s, s:{s:s, s:O}, s:{s:s, s:O}, s:I, s:O, s:O}", "verdict",
                                json_array_size(diff->differences) == 0 ? "same" : "differs", "a", "file",
                                diff->name_a, "device", json_object_get(a, "device"), "b", "file", diff->name_b,
                                "device", json_object_get(b, "device"), "n_same", (json_int_t)diff->n_same,
                                "differences", diff->differences, "not_known", diff->unknown);
    json_t *out = nd_json_document(ND_DOCUMENT_DATASHEET_DIFFERENCE, members);
    char *text = out != NULL ? json_dumps(out, JSON_INDENT(1)) : NULL;
    struct nd_strbuf buf = {0};
    json_decref(out);
    nd_strbuf_printf(&buf, "%s\n", text != NULL ? text : "");
    bool is_whole = text != NULL;
    free(text);
    *json = nd_strbuf_take(&buf);
    if (is_whole && *json != NULL)
        return ND_OK;
    free(*json);
    *json = NULL;
    return nd_fail_memory(err);
}

enum nd_status nd_fingerprint_diff(const struct nd_datasheet *a, const struct nd_datasheet *b, char **json,
                                   bool *is_same, struct nd_error *err)
{
    json_t *sheet_a = NULL, *sheet_b = NULL;
    struct diff diff = {.name_a = a->name,
                        .name_b = b->name,
                        .differences = json_array(),
                        .unknown = json_array(),
                        .is_whole = true};
    enum nd_status status = diff.differences != NULL && diff.unknown != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = read_sheet(a, &sheet_a, err);
    if (status == ND_OK)
        status = read_sheet(b, &sheet_b, err);
    if (status == ND_OK) {
        compare_sections(&diff, sheet_a, sheet_b);
        status = diff.is_whole ? write_result(&diff, sheet_a, sheet_b, json, err) : nd_fail_memory(err);
    }
    if (status == ND_OK)
        *is_same = json_array_size(diff.differences) == 0;
    json_decref(sheet_a);
    json_decref(sheet_b);
    json_decref(diff.differences);
    json_decref(diff.unknown);
    return status;
}
