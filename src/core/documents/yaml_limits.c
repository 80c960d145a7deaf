#include "core/documents/yaml_limits.h"

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
    switch (type) {
    case YAML_BLOCK_SEQUENCE_START_TOKEN:
    case YAML_BLOCK_MAPPING_START_TOKEN:
    case YAML_FLOW_SEQUENCE_START_TOKEN:
    case YAML_FLOW_MAPPING_START_TOKEN:
        return ++counts->depth > MAX_DEPTH ? TOO_DEEP : NULL;
    case YAML_BLOCK_END_TOKEN:
    case YAML_FLOW_SEQUENCE_END_TOKEN:
    case YAML_FLOW_MAPPING_END_TOKEN:
        counts->depth--;
        return NULL;
    case YAML_ANCHOR_TOKEN:
        return ++counts->n_anchors > MAX_ANCHORS ? "there are more than 256 anchors" : NULL;
    case YAML_TAG_DIRECTIVE_TOKEN:
        return ++counts->n_directives > MAX_DIRECTIVES ? "there are more than 16 tag directives" : NULL;
    default:
        return NULL;
    }
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

void nd_yaml_check_aliases(yaml_document_t *document, struct nd_yaml_excess *excess)
{
    *excess = (struct nd_yaml_excess){0};
    if (yaml_document_get_root_node(document) == NULL)
        return;
    size_t n = (size_t)(document->nodes.top - document->nodes.start);
    struct walk walk = {document, n + MAX_ALIASED, excess};
    walk_node(&walk, 1, 0);
}
