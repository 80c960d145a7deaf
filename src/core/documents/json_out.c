/* Writes JSON as it is visited, straight into a string, without a tree in memory. */
#include "core/documents/json_out.h"

#include <math.h>

#include "core/memory.h"
#include "npudiff/core/parse.h"

static bool is_in_line(const struct nd_json *json)
{
    return json->line_depth > 0 && json->depth >= json->line_depth;
}

static void start_line(struct nd_json *json)
{
    nd_strbuf_append(json->out, "\n", 1);
    for (size_t i = 0; i < json->depth * (json->indent > 0 ? json->indent : 1); i++)
        nd_strbuf_append(json->out, " ", 1);
}

/* ASCII that needs no escape. */
static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || (unsigned char)*text >= 0x7f || *text == '"' || *text == '\\')
            return false;
    return true;
}

/* JSON text, with escapes in the place of characters that a terminal or a log of CI obeys, which are in its
 * strings alone. What shows them otherwise (src/cli/terminal/terminal.c) would break the text. */
static void put_escaped(struct nd_strbuf *out, const char *text)
{
    const char *begin = text;
    for (unsigned code; *text != '\0';) {
        size_t n = nd_control_bytes((const unsigned char *)text, &code);
        if (n > 0) {
            nd_strbuf_append(out, begin, (size_t)(text - begin));
            nd_strbuf_printf(out, "\\u%04x", code);
            begin = text + n;
        }
        text += n > 0 ? n : 1;
    }
    nd_strbuf_puts(out, begin);
}

static void put_quoted(struct nd_strbuf *out, const char *text)
{
    if (is_plain(text)) {
        nd_strbuf_append(out, "\"", 1);
        put_escaped(out, text);
        nd_strbuf_append(out, "\"", 1);
        return;
    }
    json_t *value = json_string(text);
    if (value == NULL) { /* no UTF-8: jansson takes nothing else */
        char *clean = nd_clean_text(text);
        value = clean != NULL ? json_string(clean) : NULL;
        free(clean);
    }
    ND_FREED char *quoted = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    if (quoted == NULL)
        out->failed = true;
    else
        put_escaped(out, quoted);
}

static void start_value(struct nd_json *json, const char *key)
{
    if (json->has_member)
        nd_strbuf_puts(json->out, is_in_line(json) ? ", " : ",");
    if (json->depth > 0 && !is_in_line(json))
        start_line(json);
    if (key != NULL) {
        put_quoted(json->out, key);
        nd_strbuf_puts(json->out, ": ");
    }
    json->has_member = true;
}

static void put(struct nd_json *json, const char *key, const char *value)
{
    start_value(json, key);
    nd_strbuf_puts(json->out, value);
}

void nd_json_open(struct nd_json *json, const char *key, char bracket)
{
    start_value(json, key);
    nd_strbuf_append(json->out, &bracket, 1);
    json->depth++;
    json->has_member = false;
}

void nd_json_open_line(struct nd_json *json, const char *key, char bracket)
{
    nd_json_open(json, key, bracket);
    if (json->line_depth == 0)
        json->line_depth = json->depth;
}

void nd_json_close(struct nd_json *json, char bracket)
{
    bool was_in_line = is_in_line(json);
    json->depth--;
    if (json->has_member && !was_in_line)
        start_line(json);
    if (json->depth < json->line_depth)
        json->line_depth = 0;
    nd_strbuf_append(json->out, &bracket, 1);
    json->has_member = true;
}

bool nd_json_open_if(struct nd_json *json, const char *key, bool is_known)
{
    if (is_known)
        nd_json_open_line(json, key, '{');
    else
        nd_json_null(json, key);
    return is_known;
}

const char *nd_document_word(enum nd_document kind)
{
    static const char *const words[] = {
#define ND_DOCUMENT(name, word) word,
#include "npudiff/core/document_kinds.def"
#undef ND_DOCUMENT
    };
    return words[kind];
}

void nd_json_open_document(struct nd_json *json, enum nd_document kind)
{
    nd_json_open(json, NULL, '{');
    nd_json_text(json, "kind", nd_document_word(kind));
    nd_json_int(json, "format", ND_JSON_FORMAT);
    nd_json_text(json, "npudiff", ND_VERSION);
}

json_t *nd_json_document(enum nd_document kind, json_t *members)
{
    json_t *document = json_pack("{s:s, s:i, s:s}", "kind", nd_document_word(kind), "format", ND_JSON_FORMAT,
                                 "npudiff", ND_VERSION);
    if (document == NULL || members == NULL || json_object_update(document, members) != 0) {
        json_decref(document);
        document = NULL;
    }
    json_decref(members);
    return document;
}

void nd_json_null(struct nd_json *json, const char *key)
{
    put(json, key, "null");
}

void nd_json_bool(struct nd_json *json, const char *key, bool value)
{
    put(json, key, value ? "true" : "false");
}

void nd_json_int(struct nd_json *json, const char *key, int64_t value)
{
    start_value(json, key);
    nd_strbuf_printf(json->out, "%lld", (long long)value);
}

void nd_json_count(struct nd_json *json, const char *key, uint64_t n)
{
    if (n <= INT64_MAX)
        nd_json_int(json, key, (int64_t)n);
    else
        nd_json_real(json, key, (double)n);
}

void nd_json_real(struct nd_json *json, const char *key, double value)
{
    char number[ND_NUMBER_BYTES];
    start_value(json, key);
    if (isfinite(value))
        nd_strbuf_puts(json->out, nd_format_real(value, number));
    else
        nd_strbuf_printf(json->out, "\"%s\"", nd_format_double(value, number));
}

void nd_json_text(struct nd_json *json, const char *key, const char *text)
{
    if (text == NULL) {
        nd_json_null(json, key);
        return;
    }
    start_value(json, key);
    put_quoted(json->out, text);
}

void nd_json_count_if(struct nd_json *json, const char *key, bool is_known, uint64_t n)
{
    if (is_known)
        nd_json_count(json, key, n);
    else
        nd_json_null(json, key);
}

void nd_json_real_if(struct nd_json *json, const char *key, bool is_known, double value)
{
    if (is_known)
        nd_json_real(json, key, value);
    else
        nd_json_null(json, key);
}

void nd_json_index(struct nd_json *json, const char *key, size_t index)
{
    nd_json_count_if(json, key, index != SIZE_MAX, index);
}

void nd_json_texts(struct nd_json *json, const char *key, const char *const *texts, size_t n)
{
    ND_JSON_LIST(json, key, i, n)
        nd_json_text(json, NULL, texts[i]);
}

/* A tree of jansson's; NULL is one for which there was no memory, and there is none for the text then. */
static void make_tree(struct nd_json *json, const char *key, const json_t *tree)
{
    const char *name;
    const json_t *item;
    size_t i;
    if (tree == NULL) { /* it could not be made */
        json->out->failed = true;
        return;
    }
    switch (json_typeof(tree)) {
    case JSON_OBJECT:
        nd_json_open(json, key, '{');
        json_object_foreach((json_t *)(uintptr_t)tree, name, item)
            make_tree(json, name, item);
        nd_json_close(json, '}');
        break;
    case JSON_ARRAY:
        nd_json_open(json, key, '[');
        json_array_foreach(tree, i, item)
            make_tree(json, NULL, item);
        nd_json_close(json, ']');
        break;
    case JSON_STRING:
        nd_json_text(json, key, json_string_value(tree));
        break;
    case JSON_INTEGER:
        nd_json_int(json, key, json_integer_value(tree));
        break;
    case JSON_REAL:
        nd_json_real(json, key, json_real_value(tree));
        break;
    case JSON_NULL:
        nd_json_null(json, key);
        break;
    default:
        nd_json_bool(json, key, json_is_true(tree));
    }
}

void nd_tree_set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        nd_note_lost_text();
}

void nd_tree_append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        nd_note_lost_text();
}

char *nd_json_dump(const json_t *tree, size_t indent)
{
    struct nd_strbuf out = {0};
    struct nd_json json = {.out = &out, .indent = indent};
    make_tree(&json, NULL, tree);
    nd_strbuf_puts(&out, "\n");
    char *text = nd_strbuf_take(&out);
    if (!nd_take_lost_text())
        return text;
    free(text);
    return NULL;
}

enum nd_status nd_json_digest(const json_t *root, char hex[static ND_SHA256_HEX_BYTES], struct nd_error *err)
{
    json_t *content = json_copy((json_t *)(uintptr_t)root);
    if (content != NULL)
        json_object_del(content, "digest");
    ND_FREED char *text = content != NULL ? json_dumps(content, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(content);
    ND_TRY_MEMORY(text != NULL, err);
    nd_sha256_bytes(text, strlen(text), hex);
    return ND_OK;
}

enum nd_status nd_json_stamp(json_t *root, struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    enum nd_status status = nd_json_digest(root, hex, err);
    if (status == ND_OK && json_object_set_new(root, "digest", json_string(hex)) != 0)
        status = nd_fail_memory(err);
    return status;
}

char *nd_json_dumps(const json_t *tree, size_t flags)
{
    char *text = tree != NULL ? json_dumps(tree, flags) : NULL;
    struct nd_strbuf out = {0};
    bool is_whole = !nd_take_lost_text() && text != NULL;
    if (is_whole)
        put_escaped(&out, text);
    free(text);
    char *escaped = nd_strbuf_take(&out);
    if (is_whole)
        return escaped;
    free(escaped);
    return NULL;
}

json_t *nd_json_string(const char *text)
{
    json_t *value = json_string(text != NULL ? text : "");
    if (value != NULL)
        return value;
    ND_FREED char *clean = nd_strdup(text); /* no UTF-8, or no memory */
    for (char *at = clean; at != NULL && *at != '\0'; at++)
        *at = (unsigned char)*at < 0x80 ? *at : '?';
    value = clean != NULL ? json_string(clean) : NULL;
    return value;
}

json_t *nd_json_number(double value)
{
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

json_t *nd_json_known(double value)
{
    return isnan(value) ? json_null() : nd_json_number(value);
}
