/* Two datasheets against each other. */
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/text/strbuf.h"
#include "lab/fingerprint/sheet.h"

struct diff {
    const char *name_a, *name_b; /* files */
    json_t *differences, *unknown;
    size_t n_same;
    bool is_whole;
};

static void compare_entries(struct diff *diff, const char *section, const json_t *a, const json_t *b)
{
    json_t *claim_a = nd_sheet_claim(a), *claim_b = nd_sheet_claim(b);
    bool is_same = claim_a != NULL && claim_b != NULL && json_equal(claim_a, claim_b) == 1;
    const char *digest_a = nd_sheet_answers(a), *digest_b = nd_sheet_answers(b);
    bool has_digests = digest_a[0] != '\0' && digest_b[0] != '\0';
    bool is_unknown = !nd_sheet_is_identified(a) && !nd_sheet_is_identified(b) && !has_digests;
    if (has_digests)
        is_same = is_same && strcmp(digest_a, digest_b) == 0;
    if (is_same && !is_unknown)
        diff->n_same++;
    json_t *row = is_same && !is_unknown ? NULL
                                         : json_pack("{s:s, s:s, s:s, s:O?, s:O?}", "section", section,
                                                     "operator", nd_sheet_text(a, "operator"), "types",
                                                     nd_sheet_text(a, "types"), "a", claim_a, "b", claim_b);
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
            const json_t *other = nd_sheet_find(others, entry);
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
    char *text = nd_json_dumps(out, JSON_INDENT(1));
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
        status = nd_sheet_read(a, &sheet_a, err);
    if (status == ND_OK)
        status = nd_sheet_read(b, &sheet_b, err);
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
