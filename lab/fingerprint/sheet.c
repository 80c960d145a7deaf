#include "lab/fingerprint/sheet.h"

#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/text/strbuf.h"
#include "lab/fingerprint/section.h"

/* Whether the content is that which was written. */
static enum nd_status check_digest(const json_t *sheet, const char *name, struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    const char *stated = nd_sheet_text(sheet, "digest");
    enum nd_status status = nd_json_digest(sheet, hex, err);
    if (status == ND_OK && strcmp(stated, hex) != 0)
        status =
            nd_fail(err, ND_E_RESULT_FORMAT, name,
                    "'%s' is damaged: the digest of its content is %s, and it states '%s'", name, hex, stated);
    return status;
}

enum nd_status nd_sheet_read(const struct nd_datasheet *from, json_t **out, struct nd_error *err)
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
        return nd_fail(err, ND_E_RESULT_FORMAT, name, "'%s' is not a datasheet of version 1 to %d", name,
                       ND_DATASHEET_VERSION);
    }
    /* One that has a digest is not of an older version, whatever its version says. */
    bool has_digest = version >= ND_DATASHEET_WITH_DIGEST || json_object_get(sheet, "digest") != NULL;
    enum nd_status status = has_digest ? check_digest(sheet, name, err) : ND_OK;
    if (status == ND_OK)
        *out = sheet;
    else
        json_decref(sheet);
    return status;
}

enum nd_status nd_sheet_format(json_t *sheet, char **out, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    enum nd_status status = nd_json_stamp(sheet, err);
    if (status != ND_OK)
        return status;
    char *json = nd_json_dumps(sheet, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    nd_strbuf_printf(&text, "%s\n", json != NULL ? json : "");
    char *taken = nd_strbuf_take(&text);
    if (json == NULL || taken == NULL) {
        free(json);
        free(taken);
        return nd_fail_memory(err);
    }
    free(json);
    *out = taken;
    return ND_OK;
}

const char *nd_sheet_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

const json_t *nd_sheet_find(const json_t *entries, const json_t *like)
{
    const json_t *entry;
    size_t i;
    json_array_foreach(entries, i, entry)
    {
        if (strcmp(nd_sheet_text(entry, "operator"), nd_sheet_text(like, "operator")) == 0 &&
            strcmp(nd_sheet_text(entry, "types"), nd_sheet_text(like, "types")) == 0)
            return entry;
    }
    return NULL;
}

json_t *nd_sheet_claim(const json_t *entry)
{
    static const char *const members[] = {"verdict", "possible_arithmetic", "parameters", "table", "nearest",
                                          "failure"};
    json_t *claim = json_object();
    for (size_t i = 0; claim != NULL && i < sizeof members / sizeof members[0]; i++) {
        json_t *member = json_object_get(entry, members[i]);
        if (member == NULL && strcmp(members[i], "possible_arithmetic") == 0)
            member = json_object_get(entry, "programs"); /* version 1 */
        if (member != NULL && json_object_set(claim, members[i], member) != 0) {
            json_decref(claim);
            claim = NULL;
        }
    }
    return claim;
}

const char *nd_sheet_answers(const json_t *entry)
{
    return nd_sheet_text(entry, "answers");
}

bool nd_sheet_is_identified(const json_t *entry)
{
    return strcmp(nd_sheet_text(entry, "verdict"), "identified") == 0;
}
