/* A campaign's result as JSON, and the files of it in a folder. docs/reference/json.md. */
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "judge/release/qualify.h"
#include "npudiff/report/report.h"
#include "report/text/tree.h"

/* ---- JSON ---- */

/* An object that begins with what it is. The version is that which made the result. */
static struct nd_json begin(struct nd_strbuf *buf, size_t indent, enum nd_document kind)
{
    struct nd_json json = {.out = buf, .indent = indent};
    nd_json_open(&json, NULL, '{');
    nd_json_text(&json, "kind", nd_document_word(kind));
    nd_json_int(&json, "format", ND_JSON_FORMAT);
    return json;
}

enum nd_status nd_report_qualification_json(const struct nd_qualified *result, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, 1, ND_DOCUMENT_QUALIFICATION);
    nd_json_put_members(&json, &nd_qualified_members, result);
    return nd_document_end(&json, out, err);
}

enum nd_status nd_report_suggestion_json(const struct nd_qualified *result, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, 2, ND_DOCUMENT_SUGGESTION);
    nd_json_text(&json, "npudiff", result->version);
    nd_json_text(&json, "campaign", result->campaign);
    nd_json_text(&json, "yaml", result->suggestion);
    nd_json_put_members(&json, &nd_suggestion_members, result);
    return nd_document_end(&json, out, err);
}

/* ---- files ---- */

static enum nd_status put(const char *folder, const char *name, const char *text, struct nd_error *err)
{
    ND_FREED char *path = nd_path_join(folder, name);
    return path != NULL ? nd_file_put(path, text, strlen(text), err) : nd_fail_memory(err);
}

enum nd_status nd_report_qualification_write(const struct nd_qualify_result *result, struct nd_error *err)
{
    static const struct {
        const char *name;
        enum nd_status (*make)(const struct nd_qualified *result, char **out, struct nd_error *err);
    } files[] = {{"result.txt", nd_report_qualification_text},
                 {"result.csv", nd_report_qualification_csv},
                 {"junit.xml", nd_report_qualification_junit},
                 /* The last one: where it is, the others are, too. */
                 {"result.json", nd_report_qualification_json}};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof files / sizeof files[0]; i++) {
        char *text = NULL;
        status = files[i].make(&result->found, &text, err);
        if (status == ND_OK)
            status = put(result->folder, files[i].name, text, err);
        free(text);
    }
    return status;
}
