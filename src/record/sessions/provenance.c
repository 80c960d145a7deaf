#include "record/sessions/provenance.h"

#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "core/text/utc.h"
#include "devices/phones/remote.h"
#include "devices/phones/remote_uri.h"

static bool add_time(struct nd_attr_list *provenance)
{
    char text[32];
    return nd_utc_now(ND_UTC_TIME, text, sizeof text) && nd_attr_list_add_text(provenance, "", "created", text);
}

static bool add_device(struct nd_attr_list *provenance, const struct nd_device *device)
{
    const struct nd_chipset *chipset = device->chipset;
    bool is_whole = nd_attr_list_add_text(provenance, "device", "uri", device->uri) &&
                    nd_attr_list_add_text(provenance, "device", "label", device->label) &&
                    nd_attr_list_add_text(provenance, "device", "kind", nd_device_kind_name(device->kind));
    if (device->kind != ND_DEVICE_EXEC) /* nobody knows what a runner runs on */
        is_whole = is_whole && nd_attr_list_add_number(provenance, "device", "is_simulator",
                                                       device->kind == ND_DEVICE_HTP_SIM);
    if (device->transport != ND_TRANSPORT_NONE)
        is_whole =
            is_whole &&
            nd_attr_list_add_text(provenance, "device", "transport", nd_transport_name(device->transport)) &&
            nd_attr_list_add_text(provenance, "device", "address", device->address) &&
            nd_attr_list_add_text(provenance, "device", "way", nd_remote_way_name(device->way));
    if (chipset == NULL)
        return is_whole;
    return is_whole && nd_attr_list_add_text(provenance, "device", "chipset", chipset->sm) &&
           nd_attr_list_add_number(provenance, "device", "soc_model", chipset->soc_model) &&
           nd_attr_list_add_text(provenance, "device", "arch", chipset->arch) &&
           nd_attr_list_add_text(provenance, "device", "marketing", chipset->marketing);
}

static bool add_runtime(struct nd_attr_list *provenance, const struct nd_device *device,
                        const struct nd_capture_options *options)
{
    bool is_whole = nd_attr_list_add_text(provenance, "runtime", "id", device->runtime.id) &&
                    nd_attr_list_add_text(provenance, "runtime", "optimisation", device->optimisation) &&
                    nd_attr_list_add_number(provenance, "runtime", "threads", device->n_threads) &&
                    nd_attr_list_add_number(provenance, "runtime", "fallback_allowed", options->allow_fallback);
    if (nd_device_is_npu(device->kind))
        is_whole =
            is_whole && nd_attr_list_add_text(provenance, "runtime", "provider", "QNNExecutionProvider") &&
            nd_attr_list_add_text(provenance, "runtime", "provider_version", device->runtime.provider_version);
    if (options->htp_config != NULL)
        is_whole = is_whole && nd_attr_list_add_text(provenance, "runtime", "htp_config", options->htp_config);
    if (options->htp_config_outer != NULL)
        is_whole = is_whole &&
                   nd_attr_list_add_text(provenance, "runtime", "htp_config_outer", options->htp_config_outer);
    for (size_t i = 0; is_whole && i < device->n_options; i++) {
        struct nd_strbuf key = {0};
        nd_strbuf_printf(&key, "option_%s", device->option_keys[i]);
        char *text = nd_strbuf_take(&key);
        is_whole = text != NULL && nd_attr_list_add_text(provenance, "runtime", text, device->option_values[i]);
        free(text);
    }
    return is_whole;
}

static bool add_model(struct nd_attr_list *provenance, const struct nd_model *model,
                      const struct nd_capture_options *options)
{
    return nd_attr_list_add_text(provenance, "model", "file", nd_path_base(nd_model_path(model))) &&
           nd_attr_list_add_text(provenance, "model", "path", nd_model_path(model)) &&
           nd_attr_list_add_text(provenance, "model", "sha256", nd_model_sha256(model)) &&
           nd_attr_list_add_number(provenance, "model", "opset", nd_model_opset(model)) &&
           nd_attr_list_add_text(provenance, "model", "edges", options->edges != NULL ? options->edges : "all");
}

/* The processor's name, from the first "model name" line the kernel gives. False when it has one that cannot be
 * read now. */
static bool read_processor(char *name, size_t size)
{
    static const char key[] = "model name", path[] = "/proc/cpuinfo";
    char line[512];
    FILE *file = fopen(path, "re");
    snprintf(name, size, "unknown");
    if (file == NULL)
        return access(path, R_OK) != 0;
    while (fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || colon == NULL)
            continue;
        snprintf(name, size, "%s", colon + 2);
        name[strcspn(name, "\n")] = '\0';
        break;
    }
    fclose(file);
    return true;
}

static bool add_host(struct nd_attr_list *provenance)
{
    struct utsname system;
    char processor[256];
    if (uname(&system) != 0)
        memset(&system, 0, sizeof system);
    return read_processor(processor, sizeof processor) &&
           nd_attr_list_add_text(provenance, "host", "system", system.sysname) &&
           nd_attr_list_add_text(provenance, "host", "kernel", system.release) &&
           nd_attr_list_add_text(provenance, "host", "machine", system.machine) &&
           nd_attr_list_add_text(provenance, "host", "processor", processor) &&
           nd_attr_list_add_text(provenance, "host", "libc", gnu_get_libc_version());
}

static bool add_sessions(struct nd_attr_list *provenance, const struct nd_capture_options *options,
                         size_t n_passes)
{
    /* Only what is not as usual. */
    if (options->store_digests_only && !nd_attr_list_add_text(provenance, "runtime", "store", "digest"))
        return false;
    return nd_attr_list_add_number(provenance, "runtime", "passes", (int64_t)n_passes) &&
           nd_attr_list_add_text(provenance, "runtime", "edges_in",
                                 options->prefixes ? "prefixes" : (n_passes > 1 ? "passes" : "one session"));
}

enum nd_status nd_provenance_collect(const struct nd_device *device, const struct nd_model *model,
                                     const struct nd_capture_options *options, size_t n_passes,
                                     struct nd_attr_list *out, struct nd_error *err)
{
    struct nd_attr_list provenance = {0};
    bool is_whole = add_time(&provenance) && add_device(&provenance, device) &&
                    add_runtime(&provenance, device, options) && add_sessions(&provenance, options, n_passes) &&
                    add_model(&provenance, model, options) && add_host(&provenance);
    if (!is_whole) {
        nd_attr_list_deinit(&provenance);
        return nd_fail_memory(err);
    }
    *out = provenance;
    return ND_OK;
}

enum nd_status nd_provenance_add_identity(struct nd_attr_list *provenance, const struct nd_identity *identity,
                                          struct nd_error *err)
{
    const struct nd_attr_list *facts[] = {&identity->facts, &identity->warmth};
    bool is_whole = true;
    for (size_t f = 0; f < (nd_is_reproducible() ? 1u : 2u); f++)
        for (size_t i = 0; is_whole && i < facts[f]->n; i++) {
            const struct nd_attr *attr = &facts[f]->attrs[i];
            if (attr->type == ND_ATTR_STRING)
                is_whole = nd_attr_list_add_text(provenance, attr->group, attr->key, attr->string);
            else if (attr->type == ND_ATTR_I64)
                is_whole = nd_attr_list_add_number(provenance, attr->group, attr->key, attr->i64);
            else
                is_whole = nd_attr_list_add_real(provenance, attr->group, attr->key, attr->f64);
        }
    return is_whole ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_provenance_add_measured(struct nd_attr_list *provenance, const struct nd_remote *remote,
                                          struct nd_error *err)
{
    enum { MAX_TEXT = 60000 }; /* a text that is stored with a file has at most 64 KiB */
    const struct nd_bundle *const bundles[] = {&remote->agent, &remote->model};
    struct nd_strbuf text = {0};
    for (size_t b = 0; b < 2; b++)
        for (size_t i = 0; bundles[b]->folder != NULL && i < bundles[b]->n && text.len < MAX_TEXT; i++)
            nd_strbuf_printf(&text, "%s%s %s", text.len > 0 ? "\n" : "", bundles[b]->files[i].sha256,
                             bundles[b]->files[i].name);
    if (text.len == 0 && !text.failed)
        return ND_OK;
    char *measured = nd_strbuf_take(&text);
    bool is_whole = measured != NULL && nd_attr_list_add_text(provenance, "device", "measured", measured);
    free(measured);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_provenance_add_failed_edge(struct nd_attr_list *provenance, const char *edge,
                                             struct nd_error *err)
{
    return nd_attr_list_add_text(provenance, "failure", "edge", edge) ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_provenance_add_planning(struct nd_attr_list *provenance, size_t n_tried, const char *left_out,
                                          struct nd_error *err)
{
    bool is_whole =
        n_tried == 0 || nd_attr_list_add_number(provenance, "runtime", "sessions_tried", (int64_t)n_tried);
    is_whole =
        is_whole && (left_out == NULL || nd_attr_list_add_text(provenance, "runtime", "left_out", left_out));
    return is_whole ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_provenance_add_floats(struct nd_attr_list *provenance, const struct nd_capture_job *capture,
                                        struct nd_error *err)
{
    enum { MAX_TEXT = 60000 }; /* a text that is stored with a file has at most 64 KiB */
    struct nd_strbuf text = {0};
    for (size_t e = 0; e < capture->n_edges; e++)
        if (capture->as_floats[capture->selected[e]] && text.len < MAX_TEXT)
            nd_strbuf_printf(&text, "%s%s", text.len > 0 ? "\n" : "", capture->edges[e].name);
    if (text.len == 0 && !text.failed)
        return ND_OK;
    char *names = nd_strbuf_take(&text);
    bool is_whole = names != NULL && nd_attr_list_add_text(provenance, "runtime", "from_floats", names);
    free(names);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_provenance_add_moved(struct nd_attr_list *provenance, const char *nodes, struct nd_error *err)
{
    return nd_attr_list_add_text(provenance, "runtime", "moved_by_recording", nodes) ? ND_OK
                                                                                     : nd_fail_memory(err);
}
