/* Writing JSON as it is visited, straight into a string: a comparison of many devices has millions of members,
 * and a tree of them would not fit in memory. Keys are NULL in arrays and for the root. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "npudiff/core/document_kinds.h"

struct nd_json {
    struct nd_strbuf *out; /* remembers a failed allocation */
    size_t depth;
    size_t line_depth; /* containers from this depth on stand in one line; 0: none does */
    bool has_member;   /* of the container that is open */
    size_t indent;     /* blanks for each container; 0: 1 */
};

/* The version of the names of members in all documents. Format 1: npudiff 0.1 (docs/reference/json-0.2.md). */
enum { ND_JSON_FORMAT = 2 };

/* What the member "kind" of such a document says. */
const char *nd_document_word(enum nd_document kind);

/* Opens a document: '{' and the members "kind", "format" and "npudiff" (version), which every document has. */
void nd_json_open_document(struct nd_json *json, enum nd_document kind);

/* bracket: '{' or '['. What nd_json_open_line opens stands in one line with all that is in it. */
void nd_json_open(struct nd_json *json, const char *key, char bracket);
void nd_json_open_line(struct nd_json *json, const char *key, char bracket);
void nd_json_close(struct nd_json *json, char bracket);

/* Opens an object in one line, if what it says is known; else null, and false. */
bool nd_json_open_if(struct nd_json *json, const char *key, bool is_known);

/* A list of n (in one line): `ND_JSON_LIST(json, "devices", i, n) put_device(json, &devices[i]);`. Nothing may
 * leave it before its end. */
#define ND_JSON_LIST(json, key, i, n) ND_JSON_LIST_(nd_json_open, json, key, i, n)
#define ND_JSON_LINE_LIST(json, key, i, n) ND_JSON_LIST_(nd_json_open_line, json, key, i, n)
#define ND_JSON_LIST_(open, json, key, i, n)                                                                   \
    for (size_t i = (open((json), (key), '['), 0); i < (n) || (nd_json_close((json), ']'), false); i++)

void nd_json_null(struct nd_json *json, const char *key);
void nd_json_bool(struct nd_json *json, const char *key, bool value);
void nd_json_int(struct nd_json *json, const char *key, int64_t value);

/* Beyond 2^63 - 1 the nearest real: readers with 64-bit integers would refuse it. */
void nd_json_count(struct nd_json *json, const char *key, uint64_t n);

/* Reads back to the same double and as a real; "NaN", "Infinity", "-Infinity". */
void nd_json_real(struct nd_json *json, const char *key, double value);

/* NULL gives null. Text that is no UTF-8 is cleaned first (nd_clean_text). */
void nd_json_text(struct nd_json *json, const char *key, const char *text);

/* null where a statistic does not apply or is not known. */
void nd_json_count_if(struct nd_json *json, const char *key, bool is_known, uint64_t n);
void nd_json_real_if(struct nd_json *json, const char *key, bool is_known, double value);

/* SIZE_MAX gives null. */
void nd_json_index(struct nd_json *json, const char *key, size_t index);

/* A list of texts. */
void nd_json_texts(struct nd_json *json, const char *key, const char *const *texts, size_t n);

/* A document: an object with the three members that every document has, and after them those of `members`,
 * which this takes over. NULL when memory is out, or when members is NULL. */
json_t *nd_json_document(enum nd_document kind, json_t *members);

/* json_object_set_new and json_array_append_new that note what is lost, be it a value that is NULL as it could
 * not be made, for the end of the text (base/memory.h). */
void nd_tree_set(json_t *object, const char *key, json_t *value);
void nd_tree_append(json_t *array, json_t *value);

/* The tree as text with a final newline, in new memory; NULL when memory is out, or a part is lost. */
char *nd_json_dump(const json_t *tree, size_t indent);

/* SHA-256 over the content of a document: all members but "digest", sorted, without blanks. It finds what is
 * changed by accident and by hand, and is no signature. */
enum nd_status nd_json_digest(const json_t *root, char hex[static ND_SHA256_HEX_BYTES], struct nd_error *err);

/* Adds that member. */
enum nd_status nd_json_stamp(json_t *root, struct nd_error *err);

/* The same in jansson's layout: json_dumps, but NULL also when a part is lost. */
char *nd_json_dumps(const json_t *tree, size_t flags);

/* A string of a tree; NULL is "", and what is no UTF-8 has '?' in the place of every byte beyond ASCII. NULL
 * without memory. */
json_t *nd_json_string(const char *text);

/* A number of a tree; what JSON has no number for is "NaN", "Infinity" or "-Infinity". */
json_t *nd_json_number(double value);

/* The same where NaN stands for what is not known: null. */
json_t *nd_json_known(double value);
