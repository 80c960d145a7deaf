/* YAML files of the user, with limits on what a hostile one may cost, as maps whose keys are all known. */
#include <fnmatch.h>
#include <stdio.h>

#include "core/documents/yaml_map.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

/* Chosen. Our files need fewer than 16 levels. The time of libyaml grows with the square of the depth of flow
 * lists (200 000 brackets: a minute), of the number of anchors (40 000: 4.5 s) and of the number of tag
 * directives (20 000: 0.6 s). MAX_ALIASED: values that aliases repeat; readers look at each of them again, and
 * a list of raw files may name some thousand files for each of some thousand tensors. */
enum { MAX_DEPTH = 64, MAX_ANCHORS = 256, MAX_DIRECTIVES = 16, MAX_ALIASED = 10000000 };

#define TOO_DEEP "lists and mappings lie more than 64 deep in each other"
_Static_assert(MAX_DEPTH == 64 && MAX_ANCHORS == 256 && MAX_DIRECTIVES == 16 && MAX_ALIASED == 10000000,
               "the messages name the limits");

struct counts {
    int depth, n_anchors, n_directives;
};

static const char *count_token(struct counts *counts, yaml_token_type_t type)
{
    bool begins = type == YAML_BLOCK_SEQUENCE_START_TOKEN || type == YAML_BLOCK_MAPPING_START_TOKEN ||
                  type == YAML_FLOW_SEQUENCE_START_TOKEN || type == YAML_FLOW_MAPPING_START_TOKEN;
    bool ends = type == YAML_BLOCK_END_TOKEN || type == YAML_FLOW_SEQUENCE_END_TOKEN ||
                type == YAML_FLOW_MAPPING_END_TOKEN;
    counts->depth += begins - ends;
    counts->n_anchors += type == YAML_ANCHOR_TOKEN;
    counts->n_directives += type == YAML_TAG_DIRECTIVE_TOKEN;
    return counts->depth > MAX_DEPTH               ? TOO_DEEP
           : counts->n_anchors > MAX_ANCHORS       ? "there are more than 256 anchors"
           : counts->n_directives > MAX_DIRECTIVES ? "there are more than 16 tag directives"
                                                   : NULL;
}

bool nd_yaml_check_text(const char *text, size_t n_bytes, struct nd_yaml_excess *excess)
{
    yaml_parser_t parser;
    struct counts counts = {0};
    bool is_end = false;
    *excess = (struct nd_yaml_excess){0};
    if (yaml_parser_initialize(&parser) == 0)
        return false;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n_bytes);
    while (!is_end && excess->problem == NULL) {
        yaml_token_t token;
        if (yaml_parser_scan(&parser, &token) == 0)
            break; /* the parser says why */
        is_end = token.type == YAML_STREAM_END_TOKEN;
        *excess = (struct nd_yaml_excess){count_token(&counts, token.type), token.start_mark};
        yaml_token_delete(&token);
    }
    bool has_memory = parser.error != YAML_MEMORY_ERROR;
    yaml_parser_delete(&parser);
    return has_memory;
}

struct walk {
    yaml_document_t *document;
    size_t n_left; /* values that may still be met */
    struct nd_yaml_excess *excess;
};

static void walk_node(struct walk *walk, int index, int depth);

static void walk_children(struct walk *walk, const yaml_node_t *node, int depth)
{
    if (node->type == YAML_SEQUENCE_NODE)
        for (const yaml_node_item_t *item = node->data.sequence.items.start;
             item < node->data.sequence.items.top && walk->excess->problem == NULL; item++)
            walk_node(walk, *item, depth);
    if (node->type == YAML_MAPPING_NODE)
        for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
             pair < node->data.mapping.pairs.top && walk->excess->problem == NULL; pair++) {
            walk_node(walk, pair->key, depth);
            walk_node(walk, pair->value, depth);
        }
}

static void walk_node(struct walk *walk, int index, int depth)
{
    const yaml_node_t *node = yaml_document_get_node(walk->document, index);
    if (walk->excess->problem != NULL || node == NULL)
        return;
    const char *problem = NULL;
    if (walk->n_left-- == 0)
        problem = "aliases stand for more than 10000000 values";
    else if (node->type != YAML_SCALAR_NODE && depth == MAX_DEPTH)
        problem = TOO_DEEP;
    if (problem != NULL)
        *walk->excess = (struct nd_yaml_excess){problem, node->start_mark};
    else
        walk_children(walk, node, depth + 1);
}

/* After it: the same depth through aliases, and how many values the aliases stand for. */
static void nd_yaml_check_aliases(yaml_document_t *document, struct nd_yaml_excess *excess)
{
    *excess = (struct nd_yaml_excess){0};
    if (yaml_document_get_root_node(document) == NULL)
        return;
    size_t n = (size_t)(document->nodes.top - document->nodes.start);
    struct walk walk = {document, n + MAX_ALIASED, excess};
    walk_node(&walk, 1, 0);
}

enum { MAX_FILE_BYTES = 64 << 20 };

enum nd_status nd_yaml_fail(const struct nd_yaml *yaml, const yaml_mark_t *mark, struct nd_error *err,
                            const char *fmt, ...)
{
    char text[900];
    ND_PRINT_ARGUMENTS(text, fmt);
    return nd_fail(err, yaml->file.error, yaml->file.path, "%s:%zu:%zu: %s", yaml->file.path, mark->line + 1,
                   mark->column + 1, text);
}

/* ---- texts ---- */

bool nd_texts_add(struct nd_texts *texts, const char *text)
{
    char **items = realloc(texts->items, (texts->n + 1) * sizeof *items);
    if (items == NULL)
        return false;
    texts->items = items;
    items[texts->n] = nd_strdup(text);
    if (items[texts->n] == NULL)
        return false;
    texts->n++;
    return true;
}

void nd_texts_deinit(struct nd_texts *texts)
{
    ND_FREE_ITEMS(texts->items, texts->n);
    *texts = (struct nd_texts){0};
}

bool nd_texts_match(const struct nd_texts *patterns, const char *name)
{
    for (size_t i = 0; i < patterns->n; i++)
        if (strcmp(patterns->items[i], name) == 0 || fnmatch(patterns->items[i], name, 0) == 0)
            return true;
    return patterns->n == 0;
}

/* ---- documents ---- */

static enum nd_status fail_parser(const struct nd_yaml *yaml, const yaml_parser_t *parser, struct nd_error *err)
{
    ND_TRY_MEMORY(parser->error != YAML_MEMORY_ERROR, err);
    return nd_yaml_fail(yaml, &parser->problem_mark, err, "%s",
                        parser->problem != NULL ? parser->problem : "this is no YAML");
}

static enum nd_status expect_end(const struct nd_yaml *yaml, yaml_parser_t *parser, struct nd_error *err)
{
    yaml_document_t next;
    if (yaml_parser_load(parser, &next) == 0)
        return fail_parser(yaml, parser, err);
    const yaml_node_t *root = yaml_document_get_root_node(&next);
    enum nd_status status =
        root == NULL ? ND_OK : nd_yaml_fail(yaml, &root->start_mark, err, "there is a second document");
    yaml_document_delete(&next);
    return status;
}

/* The first document; is_loaded says whether there is one to delete. */
static enum nd_status load_document(struct nd_yaml *yaml, yaml_parser_t *parser, struct nd_error *err)
{
    struct nd_yaml_excess excess;
    if (yaml_parser_load(parser, &yaml->document) == 0)
        return fail_parser(yaml, parser, err);
    yaml->is_loaded = true;
    nd_yaml_check_aliases(&yaml->document, &excess);
    return excess.problem == NULL ? ND_OK : nd_yaml_fail(yaml, &excess.mark, err, "%s", excess.problem);
}

enum nd_status nd_yaml_load(struct nd_yaml *yaml, const struct nd_yaml_file *file, const char *text,
                            size_t n_bytes, struct nd_error *err)
{
    static const yaml_mark_t begin;
    yaml_parser_t parser;
    struct nd_yaml_excess excess;
    *yaml = (struct nd_yaml){.file = *file};
    ND_TRY_MEMORY(nd_yaml_check_text(text, n_bytes, &excess), err);
    if (excess.problem != NULL)
        return nd_yaml_fail(yaml, &excess.mark, err, "%s", excess.problem);
    ND_TRY_MEMORY(yaml_parser_initialize(&parser) != 0, err);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n_bytes);
    enum nd_status status = load_document(yaml, &parser, err);
    const yaml_node_t *root = yaml->is_loaded ? nd_yaml_root(yaml) : NULL;
    if (status == ND_OK && (root == NULL || root->type != YAML_MAPPING_NODE))
        status = nd_yaml_fail(yaml, root != NULL ? &root->start_mark : &begin, err,
                              "%s is a mapping of keys to values", file->what);
    if (status == ND_OK)
        status = expect_end(yaml, &parser, err);
    yaml_parser_delete(&parser);
    if (status != ND_OK)
        nd_yaml_deinit(yaml);
    return status;
}

enum nd_status nd_yaml_read(struct nd_yaml *yaml, const struct nd_yaml_file *file, struct nd_error *err)
{
    ND_FREED void *bytes = NULL;
    size_t n_bytes = 0;
    ND_TRY(nd_file_read(file->path, MAX_FILE_BYTES, &bytes, &n_bytes, err));
    return nd_yaml_load(yaml, file, bytes, n_bytes, err);
}

void nd_yaml_deinit(struct nd_yaml *yaml)
{
    if (yaml->is_loaded)
        yaml_document_delete(&yaml->document);
    yaml->is_loaded = false;
}

const yaml_node_t *nd_yaml_root(struct nd_yaml *yaml)
{
    return yaml_document_get_root_node(&yaml->document);
}

/* ---- values ---- */

/* NULL when the node is no text, or one with a NUL in it. */
static const char *scalar_of(const yaml_node_t *node)
{
    if (node->type != YAML_SCALAR_NODE)
        return NULL;
    const char *text = (const char *)node->data.scalar.value;
    return strlen(text) == node->data.scalar.length ? text : NULL;
}

const char *nd_yaml_text(const yaml_node_t *node)
{
    const char *text = scalar_of(node);
    return text != NULL && *text != '\0' ? text : NULL;
}

enum nd_status nd_yaml_list(struct nd_yaml *yaml, const yaml_node_t *node, const char *what, size_t *n,
                            struct nd_error *err)
{
    *n = 0;
    if (node->type == YAML_SEQUENCE_NODE)
        *n = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    return *n > 0 ? ND_OK : nd_yaml_fail(yaml, &node->start_mark, err, "'%s' is a list of at least one", what);
}

const yaml_node_t *nd_yaml_item(struct nd_yaml *yaml, const yaml_node_t *list, size_t i)
{
    return yaml_document_get_node(&yaml->document, list->data.sequence.items.start[i]);
}

static enum nd_status add_text(struct nd_yaml *yaml, const yaml_node_t *node, const char *name,
                               struct nd_texts *out, struct nd_error *err)
{
    const char *text = nd_yaml_text(node);
    if (text == NULL)
        return nd_yaml_fail(yaml, &node->start_mark, err, "'%s' takes texts that are not empty", name);
    return nd_texts_add(out, text) ? ND_OK : nd_fail_memory(err);
}

static enum nd_status read_texts(struct nd_yaml *yaml, const yaml_node_t *node, const char *name,
                                 struct nd_texts *out, struct nd_error *err)
{
    if (node->type == YAML_SCALAR_NODE)
        return add_text(yaml, node, name, out, err);
    size_t n;
    enum nd_status status = nd_yaml_list(yaml, node, name, &n, err);
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = add_text(yaml, nd_yaml_item(yaml, node, i), name, out, err);
    return status;
}

static enum nd_status read_number(struct nd_yaml *yaml, const yaml_node_t *node, const struct nd_yaml_key *key,
                                  void *at, struct nd_error *err)
{
    const char *text = scalar_of(node);
    double value = 0;
    uint64_t count = 0;
    bool is_count = key->type == ND_YAML_COUNT;
    bool is_number = text != NULL && (is_count ? nd_parse_u64(text, &count) : nd_parse_double(text, &value));
    if (is_count)
        value = (double)count;
    if (!is_number || value < key->min || value > key->max)
        return nd_yaml_fail(yaml, &node->start_mark, err, "'%s' is a %snumber from %.15g to %.15g%s%s%s",
                            key->name, is_count ? "whole " : "", key->min, key->max,
                            text != NULL ? ", not '" : "", text != NULL ? text : "", text != NULL ? "'" : "");
    if (is_count)
        *(size_t *)at = (size_t)count;
    else
        *(double *)at = value;
    return ND_OK;
}

static enum nd_status read_flag(struct nd_yaml *yaml, const yaml_node_t *node, const char *name, bool *out,
                                struct nd_error *err)
{
    const char *text = scalar_of(node);
    bool is_yes = text != NULL && (strcmp(text, "yes") == 0 || strcmp(text, "true") == 0);
    if (!is_yes && (text == NULL || (strcmp(text, "no") != 0 && strcmp(text, "false") != 0)))
        return nd_yaml_fail(yaml, &node->start_mark, err, "'%s' is yes or no", name);
    *out = is_yes;
    return ND_OK;
}

static enum nd_status read_value(struct nd_yaml *yaml, const yaml_node_t *node, const struct nd_yaml_key *key,
                                 void *at, struct nd_error *err)
{
    switch (key->type) {
    case ND_YAML_TEXT: {
        const char *text = nd_yaml_text(node);
        if (text == NULL)
            return nd_yaml_fail(yaml, &node->start_mark, err, "'%s' is a text that is not empty", key->name);
        *(char **)at = nd_strdup(text);
        return *(char **)at != NULL ? ND_OK : nd_fail_memory(err);
    }
    case ND_YAML_TEXTS:
        return read_texts(yaml, node, key->name, at, err);
    case ND_YAML_REAL:
    case ND_YAML_COUNT:
        return read_number(yaml, node, key, at, err);
    case ND_YAML_FLAG:
        return read_flag(yaml, node, key->name, at, err);
    case ND_YAML_NODE:
        *(const yaml_node_t **)at = node;
        return ND_OK;
    }
    return ND_OK;
}

/* ---- mappings ---- */

/* Its index, or that of the key of which it is an old name. */
static size_t current_key(const struct nd_yaml_key *keys, size_t k)
{
    size_t first = 0;
    while (keys[first].offset != keys[k].offset)
        first++;
    return first;
}

static enum nd_status fail_unknown(struct nd_yaml *yaml, const yaml_node_t *node,
                                   const struct nd_yaml_kind *kind, struct nd_error *err)
{
    const struct nd_yaml_key *keys = kind->keys;
    size_t n_keys = kind->n_keys;
    char known[512] = "";
    size_t at = 0;
    for (size_t k = 0; k < n_keys && at < sizeof known; k++)
        if (current_key(keys, k) == k)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", k > 0 ? ", " : "", keys[k].name);
    const char *name = scalar_of(node) != NULL ? scalar_of(node) : "";
    size_t nearest = current_key(keys, nd_word_nearest(name, &keys[0].name, n_keys, sizeof *keys));
    return nd_yaml_fail(yaml, &node->start_mark, err, "%s has no key '%s' (nearest: '%s'); it has %s%s",
                        kind->what, name, keys[nearest].name, known, at < sizeof known ? "" : "...");
}

static enum nd_status read_pair(struct nd_yaml *yaml, const yaml_node_pair_t *pair,
                                const struct nd_yaml_kind *kind, bool *is_there, void *out,
                                struct nd_error *err)
{
    const struct nd_yaml_key *keys = kind->keys;
    const yaml_node_t *node = yaml_document_get_node(&yaml->document, pair->key);
    const char *name = scalar_of(node);
    size_t k = 0;
    while (k < kind->n_keys && (name == NULL || strcmp(name, keys[k].name) != 0))
        k++;
    if (k == kind->n_keys)
        return fail_unknown(yaml, node, kind, err);
    size_t current = current_key(keys, k);
    if (is_there[k])
        return nd_yaml_fail(yaml, &node->start_mark, err, "there is a second '%s'", name);
    for (size_t other = 0; other < kind->n_keys; other++)
        if (is_there[other] && current_key(keys, other) == current)
            return nd_yaml_fail(yaml, &node->start_mark, err, "'%s' and '%s' are one key: give only '%s'",
                                keys[current].name, keys[current != k ? k : other].name, keys[current].name);
    is_there[k] = true;
    return read_value(yaml, yaml_document_get_node(&yaml->document, pair->value), &keys[k],
                      (char *)out + keys[k].offset, err);
}

enum nd_status nd_yaml_map(struct nd_yaml *yaml, const yaml_node_t *node, const struct nd_yaml_kind *kind,
                           void *out, struct nd_error *err)
{
    if (node->type != YAML_MAPPING_NODE)
        return nd_yaml_fail(yaml, &node->start_mark, err, "%s is a mapping of keys to values", kind->what);
    ND_FREED bool *is_there = nd_calloc(kind->n_keys, sizeof *is_there);
    ND_TRY_MEMORY(is_there != NULL, err);
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
         pair++)
        ND_TRY(read_pair(yaml, pair, kind, is_there, out, err));
    for (size_t k = 0; k < kind->n_keys; k++)
        if (kind->keys[k].is_needed && !is_there[k])
            ND_TRY(nd_yaml_fail(yaml, &node->start_mark, err, "%s needs the key '%s'", kind->what,
                                kind->keys[k].name));
    return ND_OK;
}
