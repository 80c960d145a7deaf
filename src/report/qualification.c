#include "report/qualification.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "npudiff/report.h"

enum nd_status nd_qualification_parse(const char *json, json_t **out, struct nd_error *err)
{
    json_error_t problem;
    json_t *root = json_loads(json, 0, &problem);
    if (root == NULL)
        return nd_fail(err, ND_E_RESULT_FORMAT, NULL, "no result of a campaign: line %d: %s", problem.line,
                       problem.text);
    bool is_good = strcmp(nd_qualification_text(root, "kind"), "qualification") == 0 &&
                   json_integer_value(json_object_get(root, "format")) == 1;
    if (!is_good) {
        json_decref(root);
        return nd_fail(err, ND_E_RESULT_FORMAT, NULL, "no result of a campaign, or one of another format");
    }
    *out = root;
    return ND_OK;
}

const char *nd_qualification_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

const json_t *nd_qualification_gate(const json_t *root, const json_t *one_case)
{
    json_int_t i = json_integer_value(json_object_get(one_case, "gate"));
    return i >= 0 ? json_array_get(json_object_get(root, "gates"), (size_t)i) : NULL;
}

bool nd_qualification_is_about(const json_t *one_case, const json_t *model, const json_t *device)
{
    return strcmp(nd_qualification_text(one_case, "model"), nd_qualification_text(model, "name")) == 0 &&
           strcmp(nd_qualification_text(one_case, "device"), nd_qualification_text(device, "device")) == 0;
}

/* ---- files ---- */

static enum nd_status put(const char *folder, const char *name, const char *text, struct nd_error *err)
{
    char *path = nd_path_join(folder, name);
    enum nd_status status = path != NULL ? nd_file_put(path, text, strlen(text), err) : nd_fail_memory(err);
    free(path);
    return status;
}

enum nd_status nd_report_qualification_write(const char *json, const char *folder, struct nd_error *err)
{
    static const struct {
        const char *name;
        enum nd_status (*make)(const char *json, char **out, struct nd_error *err);
    } files[] = {{"result.txt", nd_report_qualification_text},
                 {"result.csv", nd_report_qualification_csv},
                 {"junit.xml", nd_report_qualification_junit}};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof files / sizeof files[0]; i++) {
        char *text = NULL;
        status = files[i].make(json, &text, err);
        if (status == ND_OK)
            status = put(folder, files[i].name, text, err);
        free(text);
    }
    /* The last one: where it is, the others are, too. */
    return status == ND_OK ? put(folder, "result.json", json, err) : status;
}
