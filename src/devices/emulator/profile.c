/* The profile of an emulated device (emulate.h): from the URI or from a YAML file. */
#include "core/memory.h"
#include "devices/emulator/emulate.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "core/documents/yaml_map.h"
#include "core/files/file.h"
#include "core/tensors/sha256.h"

enum { ND_PROFILE_MAX_BYTES = 32768 };

/* A file being read. */
struct profile {
    const char *path;
    yaml_document_t *document;
    struct nd_emulation *out;
    struct nd_error *err;
};

static const char *scalar_text(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

static enum nd_status fail_at(const struct profile *profile, const yaml_mark_t *mark, const char *what,
                              const char *text)
{
    return nd_fail(profile->err, ND_E_DEVICE_PROFILE, profile->path, "%s:%zu:%zu: %s%s%s%s", profile->path,
                   mark->line + 1, mark->column + 1, what, text != NULL ? " '" : "", text != NULL ? text : "",
                   text != NULL ? "'" : "");
}

static enum nd_status add_item(const struct profile *profile, const yaml_node_t *node, const char *prefix)
{
    if (node->type != YAML_SCALAR_NODE || strlen(scalar_text(node)) != node->data.scalar.length)
        return fail_at(profile, &node->start_mark, *prefix != '\0' ? "a number is needed" : "an item is a text",
                       NULL);
    ND_FREED char *item = nd_text("%s%s", prefix, scalar_text(node));
    enum nd_status status =
        item != NULL ? nd_emulation_add(profile->out, item, profile->err) : nd_fail_memory(profile->err);
    if (status == ND_ERR_USAGE)
        nd_error_context(profile->err, "%s:%zu:%zu", profile->path, node->start_mark.line + 1,
                         node->start_mark.column + 1);
    return status;
}

static enum nd_status add_items(const struct profile *profile, const yaml_node_t *list)
{
    if (list->type != YAML_SEQUENCE_NODE || list->data.sequence.items.start == list->data.sequence.items.top)
        return fail_at(profile, &list->start_mark, "'items' is a list of one text or more", NULL);
    for (const yaml_node_item_t *item = list->data.sequence.items.start; item < list->data.sequence.items.top;
         item++)
        ND_TRY(add_item(profile, yaml_document_get_node(profile->document, *item), ""));
    return ND_OK;
}

static enum nd_status read_mapping(const struct profile *profile, const yaml_node_t *root)
{
    static const char *const keys[] = {"items", "seed"};
    bool is_there[] = {false, false};
    for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top;
         pair++) {
        const yaml_node_t *key = yaml_document_get_node(profile->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(profile->document, pair->value);
        size_t k = 0;
        while (k < 2 && (key->type != YAML_SCALAR_NODE || strcmp(scalar_text(key), keys[k]) != 0))
            k++;
        if (k == 2)
            return fail_at(profile, &key->start_mark, "keys are 'items' and 'seed', not",
                           key->type == YAML_SCALAR_NODE ? scalar_text(key) : "");
        if (is_there[k])
            return fail_at(profile, &key->start_mark, "there is a second", keys[k]);
        is_there[k] = true;
        ND_TRY(k == 0 ? add_items(profile, value) : add_item(profile, value, "seed="));
    }
    return !is_there[0] ? fail_at(profile, &root->start_mark, "there are no", keys[0]) : ND_OK;
}

static enum nd_status fail_yaml(const struct profile *profile, const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return nd_fail_memory(profile->err);
    return fail_at(profile, &parser->problem_mark,
                   parser->problem != NULL ? parser->problem : "this is no YAML", NULL);
}

static enum nd_status read_yaml(struct profile *profile, const char *text, size_t n_bytes)
{
    yaml_parser_t parser;
    yaml_document_t document;
    struct nd_yaml_excess excess;
    if (!nd_yaml_check_text(text, n_bytes, &excess))
        return nd_fail_memory(profile->err);
    if (excess.problem != NULL)
        return fail_at(profile, &excess.mark, excess.problem, NULL);
    if (yaml_parser_initialize(&parser) == 0)
        return nd_fail_memory(profile->err);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n_bytes);
    if (yaml_parser_load(&parser, &document) == 0) {
        enum nd_status status = fail_yaml(profile, &parser);
        yaml_parser_delete(&parser);
        return status;
    }
    profile->document = &document;
    static const yaml_mark_t begin;
    const yaml_node_t *root = yaml_document_get_root_node(&document);
    enum nd_status status = root != NULL && root->type == YAML_MAPPING_NODE
                                ? read_mapping(profile, root)
                                : fail_at(profile, root != NULL ? &root->start_mark : &begin,
                                          "a mapping with 'items' is needed", NULL);
    yaml_document_delete(&document);
    if (status == ND_OK) {
        if (yaml_parser_load(&parser, &document) == 0) {
            status = fail_yaml(profile, &parser);
        } else {
            root = yaml_document_get_root_node(&document);
            if (root != NULL)
                status = fail_at(profile, &root->start_mark, "there is a second document", NULL);
            yaml_document_delete(&document);
        }
    }
    yaml_parser_delete(&parser);
    return status;
}

static bool is_file_name(const char *what)
{
    return nd_stem_bytes(what, ".yaml") > 0 || nd_stem_bytes(what, ".yml") > 0;
}

enum nd_status nd_profile_read(const char *what, struct nd_emulation *out, struct nd_profile_file *file,
                               struct nd_error *err)
{
    ND_CLEANUP(nd_emulation_deinit) struct nd_emulation emulation = {0};
    ND_FREED void *bytes = NULL;
    size_t n_bytes = 0;
    *file = (struct nd_profile_file){0};
    if (!is_file_name(what))
        return nd_emulation_parse(what, out, err);
    ND_TRY(nd_file_read(what, ND_PROFILE_MAX_BYTES, &bytes, &n_bytes, err));
    ND_FREED char *text = strndup(bytes, n_bytes);
    ND_TRY_MEMORY(text != NULL, err);
    struct profile profile = {.path = what, .out = &emulation, .err = err};
    ND_TRY(read_yaml(&profile, text, strlen(text)));
    nd_sha256_bytes(bytes, n_bytes, file->sha256);
    (void)ND_GIVE(&file->text, text);
    return ND_GIVE(out, emulation);
}
