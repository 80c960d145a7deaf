#include "report/qualification.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_out.h"
#include "npudiff/report.h"
#include "report/tree.h"

const struct nd_qualified_gate *nd_qualified_gate_of(const struct nd_qualified *result,
                                                     const struct nd_qualified_case *one)
{
    static const struct nd_qualified_gate none = {.gate = "", .text = "", .line = SIZE_MAX};
    return one->gate < result->gates.n ? &result->gates.items[one->gate] : &none;
}

bool nd_qualified_is_about(const struct nd_qualified_case *one, const struct nd_qualified_model *model,
                           const struct nd_qualified_device *device)
{
    return strcmp(one->model, model->name) == 0 && strcmp(one->device, device->label) == 0;
}

/* ---- the suggestion ---- */

static void put_word(struct nd_json *json, const char *key, const char *text)
{
    if (text[0] != '\0')
        nd_json_text(json, key, text);
}

static void put_number(struct nd_json *json, const char *key, double value)
{
    if (!isnan(value))
        nd_json_real(json, key, value);
}

static void put_gate(struct nd_json *json, const struct nd_qualified_suggestion *gate)
{
    nd_json_open(json, NULL, '{');
    nd_json_text(json, "gate", gate->gate);
    put_number(json, "max", gate->max);
    put_number(json, "margin", gate->margin);
    put_number(json, "confidence", gate->confidence);
    put_word(json, "edges", gate->edges);
    put_word(json, "to", gate->to);
    put_word(json, "reference", gate->reference);
    put_word(json, "models", gate->models);
    if (gate->devices.n > 0)
        nd_json_texts(json, "devices", gate->devices.items, gate->devices.n);
    nd_json_close(json, '}');
}

enum nd_status nd_report_suggestion_json(const struct nd_qualified *result, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = {.out = &buf, .indent = 2};
    nd_json_open(&json, NULL, '{');
    nd_json_text(&json, "kind", "suggestion");
    nd_json_int(&json, "format", 1);
    nd_json_text(&json, "npudiff", result->version);
    nd_json_text(&json, "campaign", result->campaign);
    nd_json_text(&json, "yaml", result->suggestion);
    nd_json_open(&json, "policy", '[');
    for (size_t i = 0; i < result->policy.n; i++)
        put_gate(&json, &result->policy.items[i]);
    nd_json_close(&json, ']');
    nd_json_open(&json, "left_out", '[');
    for (size_t i = 0; i < result->left_out.n; i++) {
        const struct nd_qualified_omission *omission = &result->left_out.items[i];
        nd_json_open(&json, NULL, '{');
        nd_json_text(&json, "model", omission->model);
        nd_json_text(&json, "device", omission->device);
        nd_json_text(&json, "reason", omission->reason);
        nd_json_close(&json, '}');
    }
    nd_json_close(&json, ']');
    nd_json_close(&json, '}');
    nd_strbuf_puts(&buf, "\n");
    return nd_text_end(&buf, out, err);
}

/* ---- files ---- */

static enum nd_status put(const char *folder, const char *name, const char *text, struct nd_error *err)
{
    char *path = nd_path_join(folder, name);
    enum nd_status status = path != NULL ? nd_file_put(path, text, strlen(text), err) : nd_fail_memory(err);
    free(path);
    return status;
}

enum nd_status nd_report_qualification_write(const struct nd_qualify_result *result, struct nd_error *err)
{
    static const struct {
        const char *name;
        enum nd_status (*make)(const struct nd_qualified *result, char **out, struct nd_error *err);
    } files[] = {{"result.txt", nd_report_qualification_text},
                 {"result.csv", nd_report_qualification_csv},
                 {"junit.xml", nd_report_qualification_junit}};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof files / sizeof files[0]; i++) {
        char *text = NULL;
        status = files[i].make(&result->found, &text, err);
        if (status == ND_OK)
            status = put(result->folder, files[i].name, text, err);
        free(text);
    }
    /* The last one: where it is, the others are, too. */
    return status == ND_OK ? put(result->folder, "result.json", result->json, err) : status;
}
