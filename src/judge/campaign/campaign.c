/* A campaign as it is read: its models, probes and devices: one by its URI, every phone, or all combinations of
 * chipsets, runtimes and options. docs/reference/campaign.md. */
#include "judge/campaign/policy.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/devices/device.h"

struct nd_campaign_reading {
    struct nd_yaml yaml;
    const char *folder; /* of the file: paths are relative to it */
    struct nd_campaign *campaign;
    struct nd_error *err;
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Devices as the file has them: one by its URI, or all combinations. */
struct raw_devices {
    char *uri;
    struct nd_texts chipsets, runtimes, options;
    const yaml_node_t *prepared;
};

/* *path is replaced by itself from the folder of the campaign. False: out of memory. */
static bool nd_campaign_relocate(const char *folder, char **path)
{
    char *joined = strcmp(folder, ".") == 0 ? nd_strdup(*path) : nd_path_join(folder, *path);
    free(*path);
    *path = joined;
    return joined != NULL;
}

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
    ND_FREED char *path = nd_strdup(uri + strlen(emulated));
    ND_FREED char *relocated = NULL;
    if (path != NULL && nd_campaign_relocate(reading->folder, &path)) {
        relocated = nd_text("%s%s", emulated, path);
    }
    return relocated != NULL ? add_device(reading, node, relocated, prepared) : nd_fail_memory(reading->err);
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
    ND_FREED char *text = nd_strbuf_take(&uri);
    return text != NULL ? add_device(reading, node, text, raw->prepared) : nd_fail_memory(reading->err);
}

static enum nd_status add_combinations(struct nd_campaign_reading *reading, const yaml_node_t *node,
                                       const struct raw_devices *raw)
{
    size_t at[3];
    for (at[0] = 0; at[0] < raw->chipsets.n; at[0]++)
        for (at[1] = 0; at[1] == 0 || at[1] < raw->runtimes.n; at[1]++)
            for (at[2] = 0; at[2] == 0 || at[2] < raw->options.n; at[2]++)
                ND_TRY(add_combination(reading, node, raw, at));
    return ND_OK;
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

/* Reads the list of devices into the campaign, whose models have been read. */
static enum nd_status nd_campaign_read_devices(struct nd_campaign_reading *reading, const yaml_node_t *list)
{
    size_t n;
    enum nd_status status = nd_yaml_list(&reading->yaml, list, "devices", &n, reading->err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        const yaml_node_t *node = nd_yaml_item(&reading->yaml, list, i);
        status = nd_yaml_text(node) != NULL ? add_uri(reading, node, nd_yaml_text(node), NULL)
                                            : read_device_mapping(reading, node);
    }
    return status;
}

#define COUNT_of_campaign(array) (sizeof(array) / sizeof(array)[0])

/* The root as the file has it. */
struct raw_campaign {
    struct nd_campaign campaign;
    const yaml_node_t *models, *devices, *policy;
};

/* ---- freeing ---- */

static void device_deinit(struct nd_campaign_device *device)
{
    for (size_t i = 0; i < device->n_prepared; i++)
        ND_FREE_ALL(device->prepared[i].model, device->prepared[i].path);
    ND_FREE_ALL(device->prepared, device->uri);
    *device = (struct nd_campaign_device){0};
}

void nd_campaign_deinit(struct nd_campaign *campaign)
{
    for (size_t i = 0; i < campaign->n_models; i++) {
        struct nd_campaign_model *model = &campaign->models[i];
        ND_FREE_ALL(model->name, model->quantised, model->float_model);
        nd_texts_deinit(&model->probes);
        nd_texts_deinit(&model->dims);
    }
    for (size_t i = 0; i < campaign->n_devices; i++)
        device_deinit(&campaign->devices[i]);
    ND_FREE_ALL(campaign->models, campaign->devices);
    nd_policy_deinit(&campaign->policy);
    ND_FREE_ALL(campaign->path, campaign->name, campaign->output, campaign->tensors, campaign->reference);
    *campaign = (struct nd_campaign){0};
}

/* ---- paths ---- */

/* "NAME=PATH[,labels=PATH]" with both paths relocated; anything else stays as it is. */
static bool relocate_probe(const char *folder, char **spec)
{
    static const char labels[] = ",labels=";
    char *equals = strchr(*spec, '=');
    if (equals == NULL)
        return true;
    char *second = strstr(equals, labels);
    char *path = strndup(equals + 1, second != NULL ? (size_t)(second - equals - 1) : strlen(equals + 1));
    ND_FREED char *label_path = second != NULL ? nd_strdup(second + strlen(labels)) : NULL;
    struct nd_strbuf out = {0};
    bool is_good = path != NULL && nd_campaign_relocate(folder, &path);
    if (is_good && second != NULL)
        is_good = label_path != NULL && nd_campaign_relocate(folder, &label_path);
    if (is_good) {
        nd_strbuf_append(&out, *spec, (size_t)(equals - *spec + 1));
        nd_strbuf_printf(&out, "%s%s%s", path, second != NULL ? labels : "", second != NULL ? label_path : "");
        free(*spec);
        *spec = nd_strbuf_take(&out);
    }
    free(path);
    return is_good && *spec != NULL;
}

/* ---- models ---- */

/* "models/cnn.w8a8.onnx" gives "cnn.w8a8". */
static char *name_of_file(const char *path)
{
    char *name = nd_strdup(nd_path_base(path));
    size_t n_stem = name != NULL ? nd_stem_bytes(name, ".onnx") : 0;
    if (n_stem > 0)
        name[n_stem] = '\0';
    return name;
}

static enum nd_status check_name(struct nd_campaign_reading *reading, const yaml_node_t *node, const char *name,
                                 size_t n)
{
    /* It is the name of a folder. */
    if (name[0] == '.' || strchr(name, '/') != NULL || strlen(name) > 100)
        return nd_yaml_fail(&reading->yaml, &node->start_mark, reading->err,
                            "a model's name is that of a folder: '%s' starts with a dot, holds a slash or has "
                            "over 100 bytes",
                            name);
    for (size_t i = 0; i < n; i++)
        if (strcmp(reading->campaign->models[i].name, name) == 0)
            return nd_yaml_fail(&reading->yaml, &node->start_mark, reading->err, "there is a second model '%s'",
                                name);
    return ND_OK;
}

static enum nd_status read_model(struct nd_campaign_reading *reading, const yaml_node_t *node, size_t i)
{
    static const struct nd_yaml_key keys[] = {
#define AT_of_campaign(member) offsetof(struct nd_campaign_model, member)
        {"name", ND_YAML_TEXT, AT_of_campaign(name), 0, 0, false},
        {"quantised", ND_YAML_TEXT, AT_of_campaign(quantised), 0, 0, true},
        {"float", ND_YAML_TEXT, AT_of_campaign(float_model), 0, 0, false},
        {"probes", ND_YAML_TEXTS, AT_of_campaign(probes), 0, 0, true},
        {"dims", ND_YAML_TEXTS, AT_of_campaign(dims), 0, 0, false},
#undef AT_of_campaign
    };
    struct nd_campaign_model *model = &reading->campaign->models[i];
    ND_TRY(nd_yaml_map(&reading->yaml, node, &(struct nd_yaml_kind){"a model", keys, COUNT_of_campaign(keys)},
                       model, reading->err));
    if (model->name == NULL)
        model->name = name_of_file(model->quantised);
    bool is_good = model->name != NULL && nd_campaign_relocate(reading->folder, &model->quantised) &&
                   (model->float_model == NULL || nd_campaign_relocate(reading->folder, &model->float_model));
    for (size_t p = 0; is_good && p < model->probes.n; p++)
        is_good = relocate_probe(reading->folder, &model->probes.items[p]);
    return is_good ? check_name(reading, node, model->name, i) : nd_fail_memory(reading->err);
}

static enum nd_status read_models(struct nd_campaign_reading *reading, const yaml_node_t *list)
{
    size_t n;
    ND_TRY(nd_yaml_list(&reading->yaml, list, "models", &n, reading->err));
    reading->campaign->models = nd_calloc(n, sizeof *reading->campaign->models);
    if (reading->campaign->models == NULL)
        return nd_fail_memory(reading->err);
    reading->campaign->n_models = n;
    for (size_t i = 0; i < n; i++)
        ND_TRY(read_model(reading, nd_yaml_item(&reading->yaml, list, i), i));
    return ND_OK;
}

/* ---- all of it ---- */

static const struct nd_yaml_key campaign_keys[] = {
#define AT_of_campaign(member) offsetof(struct raw_campaign, member)
    {"name", ND_YAML_TEXT, AT_of_campaign(campaign.name), 0, 0, false},
    {"models", ND_YAML_NODE, AT_of_campaign(models), 0, 0, true},
    {"devices", ND_YAML_NODE, AT_of_campaign(devices), 0, 0, true},
    {"policy", ND_YAML_NODE, AT_of_campaign(policy), 0, 0, false},
    {"tensors", ND_YAML_TEXT, AT_of_campaign(campaign.tensors), 0, 0, false},
    {"repeats", ND_YAML_COUNT, AT_of_campaign(campaign.n_repeats), 1, 10000, false},
    {"reference", ND_YAML_TEXT, AT_of_campaign(campaign.reference), 0, 0, false},
    {"margin", ND_YAML_REAL, AT_of_campaign(campaign.margin), 1e-6, 0.999999, false},
    {"confidence", ND_YAML_REAL, AT_of_campaign(campaign.confidence), 0.500001, 0.999999, false},
    {"power", ND_YAML_REAL, AT_of_campaign(campaign.power), 0.5, 0.999999, false},
    {"explain", ND_YAML_FLAG, AT_of_campaign(campaign.explain), 0, 0, false},
    {"output", ND_YAML_TEXT, AT_of_campaign(campaign.output), 0, 0, false},
    {"edges", ND_YAML_TEXT, AT_of_campaign(campaign.tensors), 0, 0, false}, /* the name in version 0.1 */
#undef AT_of_campaign
};

static bool fill_defaults(struct nd_campaign *campaign, const char *folder)
{
    if (campaign->name == NULL) {
        /* The name of the file stands in for that of the campaign. */
        char *name = nd_strdup(nd_path_base(campaign->path));
        char *dot = name != NULL ? strrchr(name, '.') : NULL;
        if (dot != NULL && dot != name)
            *dot = '\0';
        campaign->name = name;
    }
    if (campaign->tensors == NULL)
        campaign->tensors = nd_strdup("all");
    if (campaign->reference == NULL)
        campaign->reference = nd_strdup(ND_REFERENCE_QUANTISED);
    return campaign->name != NULL && campaign->tensors != NULL && campaign->reference != NULL &&
           (campaign->output == NULL || nd_campaign_relocate(folder, &campaign->output));
}

static enum nd_status read_root(struct nd_campaign_reading *reading, bool without_policy)
{
    struct nd_campaign *campaign = reading->campaign;
    struct raw_campaign raw = {.campaign = *campaign};
    const yaml_node_t *root = nd_yaml_root(&reading->yaml);
    const enum nd_status status =
        nd_yaml_map(&reading->yaml, root,
                    &(struct nd_yaml_kind){"a campaign", campaign_keys, COUNT_of_campaign(campaign_keys)}, &raw,
                    reading->err);
    *campaign = raw.campaign; /* also what is to be freed after a failure */
    ND_TRY(status);
    if (!fill_defaults(campaign, reading->folder))
        return nd_fail_memory(reading->err);
    if (strcmp(campaign->tensors, "none") == 0)
        return nd_yaml_fail(&reading->yaml, &root->start_mark, reading->err,
                            "'tensors' is all, outputs or patterns: with none there is nothing to judge");
    ND_TRY(read_models(reading, raw.models));
    ND_TRY(nd_campaign_read_devices(reading, raw.devices));
    if (raw.policy == NULL && !without_policy)
        return nd_yaml_fail(&reading->yaml, &root->start_mark, reading->err,
                            "a campaign needs the key 'policy' (qualify --suggest proposes one)");
    const struct nd_policy_defaults defaults = {.reference = campaign->reference,
                                                .margin = campaign->margin,
                                                .confidence = campaign->confidence,
                                                .power = campaign->power};
    return raw.policy != NULL
               ? nd_policy_read(&reading->yaml, raw.policy, &defaults, &campaign->policy, reading->err)
               : ND_OK;
}

enum nd_status nd_campaign_read(const char *path, bool without_policy, struct nd_campaign *out,
                                struct nd_error *err)
{
    ND_CLEANUP(nd_campaign_deinit)
    struct nd_campaign campaign = {.path = nd_strdup(path), .margin = 0.01, .confidence = 0.95, .power = 0.9};
    ND_FREED char *folder = nd_path_dir(path);
    ND_FREED void *bytes = NULL;
    size_t n_bytes = 0;
    *out = (struct nd_campaign){0};
    ND_TRY_MEMORY(folder != NULL && campaign.path != NULL, err);
    ND_TRY(nd_file_read(path, ND_CAMPAIGN_MAX_BYTES, &bytes, &n_bytes, err));
    struct nd_campaign_reading reading = {.folder = folder, .campaign = &campaign, .err = err};
    nd_sha256_bytes(bytes, n_bytes, campaign.sha256);
    const struct nd_yaml_file file = {path, "a campaign", ND_E_CAMPAIGN_FORMAT};
    enum nd_status status = nd_yaml_load(&reading.yaml, &file, bytes, n_bytes, err);
    if (status == ND_OK)
        status = read_root(&reading, without_policy);
    nd_yaml_deinit(&reading.yaml);
    return status == ND_OK ? ND_GIVE(out, campaign) : status;
}

/* ---- files of a campaign that are made once, and made again when what they were made from has changed ---- */

enum {
    KEY_BYTES = 130, /* two digests, each with its line's end */
    MAX_KEY_BYTES = 4096,
};

/* The third line of the key of a file that is made again the next time. */
#define AGAIN "again\n"

static char *key_path(const char *path)
{
    return nd_text("%s.key", path);
}

bool nd_keyed_is_missing(const char *path)
{
    return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

static enum nd_status look(const char *path, const char *beside, const char *key, struct nd_keyed *out,
                           struct nd_error *err)
{
    ND_FREED void *bytes = NULL;
    size_t n_bytes;
    if (nd_keyed_is_missing(path) || nd_keyed_is_missing(beside))
        return ND_OK;
    enum nd_status status = nd_file_read(beside, MAX_KEY_BYTES, &bytes, &n_bytes, err);
    if (status == ND_OK && n_bytes >= KEY_BYTES && strncmp(bytes, key, 64) == 0) {
        status = nd_sha256_file(path, out->sha256, err);
        out->is_current = status == ND_OK && strncmp((const char *)bytes + 65, out->sha256, 64) == 0;
        out->is_final = out->is_current && n_bytes == KEY_BYTES;
    }
    return status;
}

enum nd_status nd_keyed_look(const char *path, const char *key, struct nd_keyed *out, struct nd_error *err)
{
    *out = (struct nd_keyed){0};
    ND_FREED char *beside = key_path(path);
    return beside != NULL ? look(path, beside, key, out, err) : nd_fail_memory(err);
}

enum nd_status nd_keyed_write(const char *path, const char *key, const char *sha256, bool is_final,
                              struct nd_error *err)
{
    char text[KEY_BYTES + sizeof AGAIN];
    int n = snprintf(text, sizeof text, "%s\n%s\n%s", key, sha256, is_final ? "" : AGAIN);
    ND_FREED char *beside = key_path(path);
    return beside != NULL ? nd_file_put(beside, text, (size_t)n, err) : nd_fail_memory(err);
}
