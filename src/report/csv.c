#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "npudiff/report.h"
#include "report/format.h"
#include "report/qualification.h"

static void put_cell(struct nd_strbuf *out, const char *text, bool is_last)
{
    bool is_quoted = strpbrk(text, ",\"\r\n") != NULL;
    nd_strbuf_puts(out, is_quoted ? "\"" : "");
    for (; *text != '\0'; text++)
        nd_strbuf_append(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    nd_strbuf_printf(out, "%s%s", is_quoted ? "\"" : "", is_last ? "\r\n" : ",");
}

static void put_value(struct nd_strbuf *out, const json_t *value, bool is_last)
{
    char number[ND_NUMBER_BYTES] = "";
    if (json_is_string(value)) {
        put_cell(out, json_string_value(value), is_last);
        return;
    }
    if (json_is_real(value))
        nd_format_real(json_real_value(value), number);
    else if (json_is_integer(value)) /* every digit: programs read it */
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    put_cell(out, number, is_last);
}

/* "conv*" "logits" as one text; none stands for all. */
static void put_patterns(struct nd_strbuf *out, const json_t *patterns)
{
    struct nd_strbuf joined = {0};
    size_t i;
    const json_t *pattern;
    json_array_foreach(patterns, i, pattern)
        nd_strbuf_printf(&joined, "%s%s", i > 0 ? " " : "", json_string_value(pattern));
    char *text = nd_strbuf_take(&joined);
    if (text == NULL)
        out->failed = true;
    else
        put_cell(out, text[0] != '\0' ? text : "*", false);
    free(text);
}

static void put_case(struct nd_strbuf *out, const json_t *root, const json_t *one)
{
    static const char *const keys[] = {"value",   "bound",   "edge",           "probe",  "checked",
                                       "failing", "samples", "samples_needed", "message"};
    const json_t *gate = nd_qualification_gate(root, one);
    put_value(out, json_object_get(one, "model"), false);
    put_value(out, json_object_get(one, "device"), false);
    put_value(out, json_object_get(gate, "gate"), false);
    put_value(out, json_object_get(gate, "text"), false);
    put_patterns(out, json_object_get(gate, "edges"));
    put_value(out, json_object_get(one, "verdict"), false);
    size_t n = sizeof keys / sizeof keys[0];
    for (size_t i = 0; i < n; i++)
        put_value(out, json_object_get(one, keys[i]), i + 1 == n);
}

enum nd_status nd_report_qualification_csv(const char *json, char **out, struct nd_error *err)
{
    json_t *root = NULL;
    enum nd_status status = nd_qualification_parse(json, &root, err);
    if (status != ND_OK)
        return status;
    struct nd_strbuf buf = {0};
    nd_strbuf_puts(&buf,
                   "model,device,gate,text,edges,verdict,value,bound,worst_edge,worst_probe,checked,failing,"
                   "samples,samples_needed,message\r\n");
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(root, "cases"), i, one) put_case(&buf, root, one);
    json_decref(root);
    *out = nd_strbuf_take(&buf);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}
