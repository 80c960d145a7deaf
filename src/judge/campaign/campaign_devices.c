/* The devices of a campaign: one by its URI, every phone, or all combinations of chipsets, runtimes and
 * options. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "core/files/suffix.h"
#include "judge/campaign/campaign_reading.h"
#include "npudiff/devices/device.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Devices as the file has them: one by its URI, or all combinations. */
struct raw_devices {
    char *uri;
    struct nd_texts chipsets, runtimes, options;
    const yaml_node_t *prepared;
};

/* The mapping of model names to files, whose keys nobody knows beforehand. */
static enum nd_status read_prepared(struct nd_campaign_reading *reading, const yaml_node_t *node,
                                    struct nd_campaign_device *device)
{
    if (node->type != YAML_MAPPING_NODE)
        return nd_yaml_fail(&reading->yaml, &node->start_mark, reading->err,
                            "'prepared' is a mapping of models to the files that go to the device");
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
         pair++) {
        const yaml_node_t *key = yaml_document_get_node(&reading->yaml.document, pair->key);
        const char *name = nd_yaml_text(key);
        size_t m = 0;
        while (m < reading->campaign->n_models &&
               (name == NULL || strcmp(reading->campaign->models[m].name, name) != 0))
            m++;
        if (m == reading->campaign->n_models)
            return nd_yaml_fail(&reading->yaml, &key->start_mark, reading->err, "there is no model '%s'",
                                name != NULL ? name : "");
        for (size_t i = 0; i < device->n_prepared; i++)
            if (strcmp(device->prepared[i].model, name) == 0)
                return nd_yaml_fail(&reading->yaml, &key->start_mark, reading->err, "there is a second '%s'",
                                    name);
        struct nd_campaign_prepared *grown =
            realloc(device->prepared, (device->n_prepared + 1) * sizeof *device->prepared);
        if (grown == NULL)
            return nd_fail_memory(reading->err);
        device->prepared = grown;
        struct nd_campaign_prepared *prepared = &grown[device->n_prepared];
        *prepared = (struct nd_campaign_prepared){.model = nd_strdup(name)};
        device->n_prepared++;
        const yaml_node_t *value = yaml_document_get_node(&reading->yaml.document, pair->value);
        const char *path = nd_yaml_text(value);
        if (path == NULL)
            return nd_yaml_fail(&reading->yaml, &value->start_mark, reading->err, "'%s' takes a file", name);
        prepared->path = nd_strdup(path);
        if (prepared->model == NULL || prepared->path == NULL ||
            !nd_campaign_relocate(reading->folder, &prepared->path))
            return nd_fail_memory(reading->err);
    }
    return ND_OK;
}

static enum nd_status add_device(struct nd_campaign_reading *reading, const yaml_node_t *node, const char *uri,
                                 const yaml_node_t *prepared)
{
    struct nd_campaign *campaign = reading->campaign;
    for (size_t i = 0; i < campaign->n_devices; i++)
        if (strcmp(campaign->devices[i].uri, uri) == 0)
            return nd_yaml_fail(&reading->yaml, &node->start_mark, reading->err,
                                "there is a second device '%s'", uri);
    if (campaign->n_devices == ND_CAMPAIGN_MAX_DEVICES)
        return nd_yaml_fail(&reading->yaml, &node->start_mark, reading->err, "there are more than %d devices",
                            ND_CAMPAIGN_MAX_DEVICES);
    struct nd_campaign_device *grown =
        realloc(campaign->devices, (campaign->n_devices + 1) * sizeof *campaign->devices);
    if (grown == NULL)
        return nd_fail_memory(reading->err);
    campaign->devices = grown;
    struct nd_campaign_device *device = &grown[campaign->n_devices++];
    *device = (struct nd_campaign_device){.uri = nd_strdup(uri), .mark = node->start_mark};
    if (device->uri == NULL)
        return nd_fail_memory(reading->err);
    return prepared != NULL ? read_prepared(reading, prepared, device) : ND_OK;
}

/* "adb:*" is every phone that is attached now. */
static enum nd_status add_phones(struct nd_campaign_reading *reading, const yaml_node_t *node, const char *uri,
                                 const yaml_node_t *prepared)
{
    char **uris = NULL;
    size_t n = 0;
    enum nd_status status = nd_device_expand(uri, &uris, &n, reading->err);
    if (status != ND_OK)
        nd_error_context(reading->err, "%s:%zu:%zu", reading->campaign->path, node->start_mark.line + 1,
                         node->start_mark.column + 1);
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = add_device(reading, node, uris[i], prepared);
    nd_device_uris_free(uris, n);
    return status;
}

/* Profiles of emulated devices are files beside the campaign. */
static enum nd_status add_uri(struct nd_campaign_reading *reading, const yaml_node_t *node, const char *uri,
                              const yaml_node_t *prepared)
{
    static const char emulated[] = "emu:";
    if (strncmp(uri, emulated, strlen(emulated)) != 0 || !nd_ends_with(uri, ".yaml"))
        return add_phones(reading, node, uri, prepared);
    char *path = nd_strdup(uri + strlen(emulated));
    struct nd_strbuf text = {0};
    char *relocated = NULL;
    if (path != NULL && nd_campaign_relocate(reading->folder, &path)) {
        nd_strbuf_printf(&text, "%s%s", emulated, path);
        relocated = nd_strbuf_take(&text);
    }
    enum nd_status status =
        relocated != NULL ? add_device(reading, node, relocated, prepared) : nd_fail_memory(reading->err);
    free(path);
    free(relocated);
    return status;
}

static enum nd_status add_combination(struct nd_campaign_reading *reading, const yaml_node_t *node,
                                      const struct raw_devices *raw, const size_t at[static 3])
{
    struct nd_strbuf uri = {0};
    const char *chipset = raw->chipsets.items[at[0]];
    bool is_plain = strcmp(chipset, "cpu") == 0;
    nd_strbuf_printf(&uri, "%s%s", is_plain ? "" : "htp-sim:", chipset);
    if (raw->runtimes.n > 0)
        nd_strbuf_printf(&uri, "@%s", raw->runtimes.items[at[1]]);
    if (raw->options.n > 0 && strcmp(raw->options.items[at[2]], "none") != 0)
        nd_strbuf_printf(&uri, "?%s", raw->options.items[at[2]]);
    char *text = nd_strbuf_take(&uri);
    enum nd_status status =
        text != NULL ? add_device(reading, node, text, raw->prepared) : nd_fail_memory(reading->err);
    free(text);
    return status;
}

static enum nd_status add_combinations(struct nd_campaign_reading *reading, const yaml_node_t *node,
                                       const struct raw_devices *raw)
{
    enum nd_status status = ND_OK;
    size_t at[3];
    for (at[0] = 0; status == ND_OK && at[0] < raw->chipsets.n; at[0]++)
        for (at[1] = 0; status == ND_OK && (at[1] == 0 || at[1] < raw->runtimes.n); at[1]++)
            for (at[2] = 0; status == ND_OK && (at[2] == 0 || at[2] < raw->options.n); at[2]++)
                status = add_combination(reading, node, raw, at);
    return status;
}

static enum nd_status read_device_mapping(struct nd_campaign_reading *reading, const yaml_node_t *node)
{
    static const struct nd_yaml_key keys[] = {
#define AT(member) offsetof(struct raw_devices, member)
        {"device", ND_YAML_TEXT, AT(uri), 0, 0, false},
        {"chipsets", ND_YAML_TEXTS, AT(chipsets), 0, 0, false},
        {"runtimes", ND_YAML_TEXTS, AT(runtimes), 0, 0, false},
        {"options", ND_YAML_TEXTS, AT(options), 0, 0, false},
        {"prepared", ND_YAML_NODE, AT(prepared), 0, 0, false},
#undef AT
    };
    struct raw_devices raw = {0};
    enum nd_status status = nd_yaml_map(
        &reading->yaml, node, &(struct nd_yaml_kind){"a device", keys, COUNT(keys)}, &raw, reading->err);
    bool has_parts = raw.runtimes.n > 0 || raw.options.n > 0;
    if (status == ND_OK && ((raw.uri != NULL) == (raw.chipsets.n > 0) || (raw.uri != NULL && has_parts)))
        status = nd_yaml_fail(&reading->yaml, &node->start_mark, reading->err,
                              "a device is named by 'device', or by 'chipsets' with 'runtimes' and 'options'");
    if (status == ND_OK)
        status = raw.uri != NULL ? add_uri(reading, node, raw.uri, raw.prepared)
                                 : add_combinations(reading, node, &raw);
    free(raw.uri);
    nd_texts_deinit(&raw.chipsets);
    nd_texts_deinit(&raw.runtimes);
    nd_texts_deinit(&raw.options);
    return status;
}

enum nd_status nd_campaign_read_devices(struct nd_campaign_reading *reading, const yaml_node_t *list)
{
    size_t n;
    enum nd_status status = nd_yaml_list(&reading->yaml, list, "devices", &n, reading->err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        const yaml_node_t *node = nd_yaml_item(&reading->yaml, list, i);
        if (nd_yaml_text(node) != NULL)
            status = add_uri(reading, node, nd_yaml_text(node), NULL);
        else
            status = read_device_mapping(reading, node);
    }
    return status;
}
