/* YAML mappings into structs: every key is known, occurs once and has its type, or the error says line and
 * column. For campaigns (docs/reference/campaign.md) and for what describes an import
 * (docs/reference/import-map.md). And the limits on what a hostile file may cost. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

#include "core/error.h"

/* Which file it is, for messages; borrowed. */
struct nd_yaml_file {
    const char *path;
    const char *what;       /* "a campaign" */
    enum nd_error_id error; /* of everything that is wrong in it */
};

struct nd_yaml {
    struct nd_yaml_file file;
    yaml_document_t document;
    bool is_loaded;
};

/* One document, whose root is a mapping. text must not hold NUL. A text that was made to cost much is refused:
 * the limits are below. */
enum nd_status nd_yaml_load(struct nd_yaml *yaml, const struct nd_yaml_file *file, const char *text,
                            size_t n_bytes, struct nd_error *err);
/* The same of the file itself; one over 64 MiB is refused. ND_ERR_IO. */
enum nd_status nd_yaml_read(struct nd_yaml *yaml, const struct nd_yaml_file *file, struct nd_error *err);
void nd_yaml_deinit(struct nd_yaml *yaml);

const yaml_node_t *nd_yaml_root(struct nd_yaml *yaml);

/* The text of a node; NULL: it is none, it is empty, or there is a NUL in it. Borrowed. */
const char *nd_yaml_text(const yaml_node_t *node);

/* Texts of a list; a single text stands for a list of one. */
struct nd_texts {
    size_t n;
    char **items;
};

bool nd_texts_add(struct nd_texts *texts, const char *text);
void nd_texts_deinit(struct nd_texts *texts);

/* Whether one of the shell patterns matches ('*' matches '/' as well; a name matches itself). Without any,
 * everything does. */
bool nd_texts_match(const struct nd_texts *patterns, const char *name);

enum nd_yaml_type {
    ND_YAML_TEXT,  /* char *: not empty */
    ND_YAML_TEXTS, /* struct nd_texts: a text, or a list of at least one */
    ND_YAML_REAL,  /* double in [min, max] */
    ND_YAML_COUNT, /* size_t in [min, max] */
    ND_YAML_FLAG,  /* bool: yes, no, true, false */
    ND_YAML_NODE,  /* const yaml_node_t *: whatever it is */
};

/* A later key with the same offset is an old name of the earlier one: it is read, and nothing names it. */
struct nd_yaml_key {
    const char *name;
    enum nd_yaml_type type;
    size_t offset; /* in the struct */
    double min, max;
    bool is_needed;
};

/* What a mapping may hold. */
struct nd_yaml_kind {
    const char *what; /* "a gate", "the campaign" */
    const struct nd_yaml_key *keys;
    size_t n_keys;
};

/* Fills what the mapping names; the rest of out stays. On failure out may be filled in part: its owner frees it
 * as ever. */
enum nd_status nd_yaml_map(struct nd_yaml *yaml, const yaml_node_t *node, const struct nd_yaml_kind *kind,
                           void *out, struct nd_error *err);

/* The items of a list of at least one: *n of them, each by nd_yaml_item. */
enum nd_status nd_yaml_list(struct nd_yaml *yaml, const yaml_node_t *node, const char *what, size_t *n,
                            struct nd_error *err);
const yaml_node_t *nd_yaml_item(struct nd_yaml *yaml, const yaml_node_t *list, size_t i);

/* "FILE:LINE:COLUMN: ..." */
enum nd_status nd_yaml_fail(const struct nd_yaml *yaml, const yaml_mark_t *mark, struct nd_error *err,
                            const char *fmt, ...) ND_PRINTF(4, 5);

/* ---- limits of a YAML document, so that one that was made to cost much costs nothing ---- */

/* What is wrong, and where. */
struct nd_yaml_excess {
    const char *problem; /* NULL: nothing; static text */
    yaml_mark_t mark;
};

/* Before the text is parsed: how deep lists and mappings lie in each other, how many anchors and tag directives
 * there are. What is no YAML is left to the parser. False when out of memory. */
bool nd_yaml_check_text(const char *text, size_t n_bytes, struct nd_yaml_excess *excess);
