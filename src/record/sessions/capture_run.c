/* A capture: what it says of its device, model, runtime and host, so that it can be judged years later; its
 * run, and the file. docs/reference/capture-format.md. */
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "capture/read/environment.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/agent/spool/spool.h"
#include "devices/launch.h"
#include "devices/phones/fleet.h"
#include "devices/phones/remote.h"
#include "npudiff/capture/capture.h"
#include "npudiff/devices/device.h"
#include "record/qnn/prepare_internal.h"
#include "record/sessions/assemble_outputs.h"
#include "record/sessions/capture_run.h"

struct nd_device_facts; /* remote/identity.h */

struct nd_remote;

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
            nd_attr_list_add_text(provenance, "device", "way", nd_remote_method_name(device->method));
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
        char *text = nd_text("option_%s", device->option_keys[i]);
        is_whole = text != NULL && nd_attr_list_add_text(provenance, "runtime", text, device->option_values[i]);
        free(text);
    }
    return is_whole;
}

const struct nd_chipset *nd_binary_chipset(const struct nd_prepared *binary, char name[static ND_BINARY_BYTES])
{
    size_t n;
    const struct nd_chipset *all = nd_chipsets(&n), *found = nd_chipset_find(binary->chipset);
    for (size_t i = 0; found == NULL && i < n; i++)
        if (binary->soc_model != 0 && all[i].soc_model == binary->soc_model)
            found = &all[i];
    name[0] = '\0';
    if (found != NULL)
        snprintf(name, ND_BINARY_BYTES, "%s (%s)", found->sm, found->arch);
    else if (binary->chipset[0] != '\0')
        snprintf(name, ND_BINARY_BYTES, "%s", binary->chipset);
    else if (binary->soc_model != 0)
        snprintf(name, ND_BINARY_BYTES, "soc_model %d", binary->soc_model);
    return found;
}

/* A binary that cannot be read says nothing; the device will say why it does not run. */
static bool add_model(struct nd_attr_list *provenance, const struct nd_model *model,
                      const struct nd_capture_options *options)
{
    struct nd_prepared binary = {0};
    char chipset[ND_BINARY_BYTES] = "";
    if (nd_prepared_read(model, &binary, NULL) == ND_OK && binary.exists)
        nd_binary_chipset(&binary, chipset);
    return (chipset[0] == '\0' || nd_attr_list_add_text(provenance, "model", "binary_chipset", chipset)) &&
           nd_attr_list_add_text(provenance, "model", "file", nd_path_base(nd_model_path(model))) &&
           nd_attr_list_add_text(provenance, "model", "path", nd_model_path(model)) &&
           nd_attr_list_add_text(provenance, "model", "sha256", nd_model_sha256(model)) &&
           nd_attr_list_add_number(provenance, "model", "opset", nd_model_opset(model)) &&
           nd_attr_list_add_text(provenance, "model", "edges",
                                 options->tensors != NULL ? options->tensors : "all");
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

/* n_passes: over how many sessions the tensors are spread. The caller frees *out with nd_attr_list_deinit. */
static enum nd_status nd_provenance_collect(const struct nd_device *device, const struct nd_model *model,
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

/* What another machine said of itself; battery and temperatures only where what differs between two equal runs
 * may be stored. */
static enum nd_status nd_provenance_add_device_facts(struct nd_attr_list *provenance,
                                                     const struct nd_device_facts *device_facts,
                                                     struct nd_error *err)
{
    const struct nd_attr_list *facts[] = {&device_facts->facts, &device_facts->warmth};
    bool is_whole = true;
    for (size_t f = 0; f < (nd_is_reproducible() ? 1u : 2u); f++)
        for (size_t i = 0; is_whole && i < facts[f]->n; i++) {
            const struct nd_attr *attr = &facts[f]->attrs[i];
            is_whole = attr->type == ND_ATTR_STRING
                           ? nd_attr_list_add_text(provenance, attr->group, attr->key, attr->string)
                       : attr->type == ND_ATTR_I64
                           ? nd_attr_list_add_number(provenance, attr->group, attr->key, attr->i64)
                           : nd_attr_list_add_real(provenance, attr->group, attr->key, attr->f64);
        }
    return is_whole ? ND_OK : nd_fail_memory(err);
}

/* Agent and models that ran there, by the digests that the machine measured before the run. */
static enum nd_status nd_provenance_add_measured(struct nd_attr_list *provenance,
                                                 const struct nd_remote *remote, struct nd_error *err)
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
    ND_FREED char *measured = nd_strbuf_take(&text);
    bool is_whole = measured != NULL && nd_attr_list_add_text(provenance, "device", "measured", measured);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

/* The tensor whose session failed, in a capture of prefixes. */
static enum nd_status nd_provenance_add_failed_tensor(struct nd_attr_list *provenance, const char *tensor,
                                                      struct nd_error *err)
{
    return nd_attr_list_add_text(provenance, "failure", "edge", tensor) ? ND_OK : nd_fail_memory(err);
}

/* Names the tensors that were recorded through their floats; nothing where there is none. */
static enum nd_status nd_provenance_add_floats(struct nd_attr_list *provenance,
                                               const struct nd_capture_job *capture, struct nd_error *err)
{
    enum { MAX_TEXT = 60000 }; /* a text that is stored with a file has at most 64 KiB */
    struct nd_strbuf text = {0};
    for (size_t e = 0; e < capture->n_tensors; e++)
        if (capture->as_floats[capture->selected[e]] && text.len < MAX_TEXT)
            nd_strbuf_printf(&text, "%s%s", text.len > 0 ? "\n" : "", capture->tensors[e].name);
    if (text.len == 0 && !text.failed)
        return ND_OK;
    ND_FREED char *names = nd_strbuf_take(&text);
    bool is_whole = names != NULL && nd_attr_list_add_text(provenance, "runtime", "from_floats", names);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

/* Nodes that recording moved to the CPU, one a line. */
static enum nd_status nd_provenance_add_moved(struct nd_attr_list *provenance, const char *nodes,
                                              struct nd_error *err)
{
    return nd_attr_list_add_text(provenance, "runtime", "moved_by_recording", nodes) ? ND_OK
                                                                                     : nd_fail_memory(err);
}

/* ---- which prefix failed ---- */

/* The tensor that a pass records alone. */
static const struct nd_tensor *tensor_of_prefix(const struct nd_capture_job *capture, size_t pass)
{
    for (size_t e = 0; e < capture->n_tensors; e++)
        if (capture->pass_of_tensor[e] == pass)
            return &capture->tensors[e];
    return NULL;
}

/* Of a capture of prefixes whose agent failed: the tensor whose session was in work. *tensor is NULL where
 * there is none such. */
static enum nd_status find_failed_prefix(const struct nd_capture_job *capture, const char *folder,
                                         const struct nd_agent_exit *exit, const struct nd_tensor **tensor,
                                         struct nd_error *err)
{
    ND_CLEANUP(nd_spool_reader_close) struct nd_spool_reader reader = {0};
    struct nd_record record;
    size_t pass = SIZE_MAX;
    *tensor = NULL;
    if (!capture->options->prefixes || exit->error.id == 0)
        return ND_OK;
    ND_FREED char *spool = nd_path_join(folder, "spool.nds");
    ND_TRY(spool != NULL ? ND_OK : nd_fail_memory(err));
    if (nd_path_exists(spool))
        ND_TRY(nd_spool_reader_open(&reader, spool, err));
    while (nd_spool_next(&reader, &record)) {
        if (record.kind == ND_RECORD_PASS)
            pass = (size_t)record.index[0];
        else if (record.kind == ND_RECORD_END)
            pass = SIZE_MAX; /* it died after its work */
    }
    *tensor = tensor_of_prefix(capture, pass);
    return ND_OK;
}

/* ---- the capture ---- */

static enum nd_status collect_provenance(const struct nd_capture_job *capture, const struct nd_tensor *failed,
                                         struct nd_attr_list *out, struct nd_error *err)
{
    ND_TRY(nd_provenance_collect(capture->device, capture->model, capture->options, capture->job.n_passes, out,
                                 err));
    if (capture->remote != NULL)
        ND_TRY(nd_provenance_add_device_facts(out, &capture->remote->device_facts, err));
    if (capture->remote != NULL)
        ND_TRY(nd_provenance_add_measured(out, capture->remote, err));
    if (capture->moved != NULL)
        ND_TRY(nd_provenance_add_moved(out, capture->moved, err));
    /* What planning the sessions came to: how many were tried before those that recorded, and the tensors that
     * none shows, as lines of name, tab and reason (NULL: none). */
    bool is_whole = capture->n_tried == 0 ||
                    nd_attr_list_add_number(out, "runtime", "sessions_tried", (int64_t)capture->n_tried);
    is_whole = is_whole && (capture->left_out == NULL ||
                            nd_attr_list_add_text(out, "runtime", "left_out", capture->left_out));
    ND_TRY_MEMORY(is_whole, err);
    ND_TRY(nd_provenance_add_floats(out, capture, err));
    return failed != NULL ? nd_provenance_add_failed_tensor(out, failed->name, err) : ND_OK;
}

/* With resume: how many samples the capture holds that is to be replaced. */
static enum nd_status count_kept(const char *path, const struct nd_capture_options *options, size_t *n_kept,
                                 struct nd_error *err)
{
    ND_CLEANUP(nd_capture_close) struct nd_capture *capture = NULL;
    *n_kept = 0;
    if (!options->resume || !options->replace || !nd_path_exists(path))
        return ND_OK;
    ND_TRY(nd_capture_open(path, &capture, err));
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++)
        *n_kept += nd_capture_probe(capture, p)->n_samples;
    return ND_OK;
}

/* What was moved to and from the machine until now, as a line of text. */
static void nd_remote_describe_traffic(const struct nd_remote *remote, char *text, size_t size)
{
    const struct nd_transport_traffic *traffic = &remote->transport->traffic;
    snprintf(text, size, "sent %llu bytes of files, received %llu bytes, %zu commands, link lost %zu times\n",
             (unsigned long long)traffic->bytes_sent, (unsigned long long)traffic->bytes_received,
             traffic->n_commands, traffic->n_lost);
}

static enum nd_status assemble(const struct nd_capture_job *capture, const char *folder,
                               const struct nd_agent_exit *exit, const char *path, struct nd_assembled *out,
                               struct nd_error *err)
{
    const struct nd_tensor *failed = NULL;
    ND_CLEANUP(nd_attr_list_deinit) struct nd_attr_list provenance = {0};
    ND_FREED char *spool_path = nd_path_join(folder, "spool.nds");
    ND_FREED char *stdout_path = nd_path_join(folder, "stdout.txt");
    ND_FREED const struct nd_tensor **tensors = nd_calloc(capture->n_tensors, sizeof *tensors);
    size_t n_kept = 0;
    ND_TRY_MEMORY(spool_path != NULL && stdout_path != NULL && tensors != NULL, err);
    ND_TRY(find_failed_prefix(capture, folder, exit, &failed, err));
    ND_TRY(collect_provenance(capture, failed, &provenance, err));
    ND_TRY(count_kept(path, capture->options, &n_kept, err));
    for (size_t i = 0; tensors != NULL && i < capture->n_tensors; i++)
        tensors[i] = &capture->tensors[i];
    char transfer[160];
    if (capture->remote != NULL)
        nd_remote_describe_traffic(capture->remote, transfer, sizeof transfer);
    const struct nd_assembly assembly = {
        .spool_path = spool_path,
        .stdout_path = stdout_path,
        .path = path,
        .replace = capture->options->replace,
        .n_kept = n_kept,
        .attrs = provenance.attrs,
        .n_attrs = provenance.n,
        .tensors = tensors,
        .pass_of_tensor = capture->pass_of_tensor,
        .n_tensors = capture->n_tensors,
        .n_passes = capture->job.n_passes,
        .probes = capture->probes,
        .n_probes = capture->n_probes,
        .n_repeats = (size_t)capture->job.n_repeats,
        .has_reruns = capture->options->n_repeats == 0,
        .deflate_level = capture->options->deflate_level,
        .store_digests_only = capture->options->store_digests_only,
        .model = capture->model,
        .death = exit->error.id != 0 ? &exit->error : NULL,
        .death_stage = exit->stage,
        .transfer = capture->remote != NULL ? transfer : NULL,
        .can_resume = exit->can_resume,
        .is_elsewhere = capture->device->transport != ND_TRANSPORT_NONE,
        .libraries = capture->remote != NULL ? capture->remote->libraries : NULL,
        .n_libraries = capture->remote != NULL ? capture->remote->n_libraries : 0,
        .logcat = capture->remote != NULL ? capture->remote->device_facts.logcat : NULL,
        .logcat_bytes = capture->remote != NULL ? capture->remote->device_facts.logcat_bytes : 0,
        .untouched = capture->untouched,
        .untouched_why = capture->untouched_why,
        .is_reproducible = nd_is_reproducible(),
    };
    ND_TRY(nd_capture_assemble(&assembly, out, err));
    if (failed != NULL)
        nd_error_context(&out->failure, "tensor '%s'", failed->name);
    return ND_OK;
}

/* What would stop the writing at the end is found before anything runs. */
static enum nd_status check_target(const char *path, bool replace, struct nd_error *err)
{
    struct stat info;
    bool is_there = stat(path, &info) == 0;
    if (is_there && S_ISDIR(info.st_mode))
        return nd_fail(err, ND_E_FILE_EXISTS, path, "'%s' is a folder", path);
    if (is_there && !replace)
        return nd_fail(err, ND_E_FILE_EXISTS, path, "'%s' exists already", path);
    ND_FREED char *folder = nd_path_dir(path);
    ND_TRY_MEMORY(folder != NULL, err);
    if (access(folder, W_OK) != 0)
        return nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(errno));
    return ND_OK;
}

static enum nd_status check_request(const struct nd_workload *workload, const char *path,
                                    const struct nd_capture_options *options, struct nd_error *err)
{
    const struct nd_probe *const *probes = workload->probes;
    for (size_t i = 0; i < workload->n_probes; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(probes[i]->name, probes[k]->name) == 0)
                return nd_fail(err, ND_E_OPTION_CONFLICT, probes[i]->name,
                               "two probes are called '%s' ('%s' and '%s')", probes[i]->name, probes[k]->source,
                               probes[i]->source);
    if (options->prefixes && options->tensors != NULL && strcmp(options->tensors, "none") == 0)
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL,
                       "prefixes cut the model behind each tensor, and tensors 'none' leave it untouched");
    if (options->deflate_level < 0 || options->deflate_level > 9)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "the deflate level is %d; 0 to 9 are possible",
                       options->deflate_level);
    enum nd_status status = check_target(path, options->replace, err);
    return status == ND_OK ? nd_model_check_static(workload->model, err) : status;
}

/* What its temporary folder is for: the capture by its full path. NULL: no memory, or no such folder. */
static char *purpose_of(const char *path)
{
    ND_FREED char *dir = nd_path_dir(path);
    ND_FREED char *full = dir != NULL ? realpath(dir, NULL) : NULL;
    return full != NULL ? nd_path_join(full, nd_path_base(path)) : NULL;
}

void nd_capture_forget_run(const char *path)
{
    ND_FREED char *purpose = purpose_of(path);
    if (purpose != NULL)
        nd_dir_remove_for(purpose);
}

/* A temporary folder by its full path: the agent works in another folder than the host. One that an earlier run
 * for the same capture left, when it was killed or out of room, is taken over with resume: its spools are. On
 * another machine they are there. */
static enum nd_status make_folder(const char *path, bool resume, char **out, struct nd_error *err)
{
    ND_FREED char *folder = NULL, *purpose = purpose_of(path);
    ND_TRY(nd_dir_make_for(purpose, resume, &folder, err));
    *out = realpath(folder, NULL);
    if (*out != NULL)
        return ND_OK;
    enum nd_status status =
        nd_fail(err, ND_E_FILE_OPEN, folder, "cannot find '%s': %s", folder, strerror(errno));
    nd_dir_remove(folder);
    return status;
}

/* ---- on another machine ---- */

/* The machine, and what the device is there. Zeroed for this one. */
struct place {
    struct nd_lease lease;
    struct nd_remote remote;
    struct nd_device resolved;
};

/* Reaches the machine and makes of the device what can run there. A machine that cannot be used is an outcome:
 * then *exit says why. capture->remote stays NULL where it cannot be reached. */
static enum nd_status reach(struct nd_capture_job *capture, struct place *place, struct nd_agent_exit *exit,
                            struct nd_error *err)
{
    struct nd_error why = {0};
    const struct nd_device *device = capture->device;
    if (device->transport == ND_TRANSPORT_NONE)
        return ND_OK;
    const char *stage = "lease";
    enum nd_status status = nd_lease_take(device, capture->options, &place->lease, &why);
    capture->begun_ns = nd_clock_awake_ns(); /* to wait for the device takes none of its time */
    if (status == ND_OK) {
        stage = "connect";
        status = nd_remote_open(&place->remote, device, capture->options, &why);
    }
    if (status == ND_OK) {
        capture->remote = &place->remote; /* what it says of itself is kept, too, when it cannot run this */
        status = nd_device_resolve(device, &place->remote.device_facts, &place->resolved, &why);
    }
    if (status == ND_OK) {
        capture->device = &place->resolved;
    } else if (nd_remote_is_of_device(&why)) {
        exit->error = why;
        exit->stage = stage;
        status = ND_OK;
    } else if (err != NULL) {
        *err = why;
    }
    return status;
}

/* Runs it, unless the machine could not be reached. *run_folder: see nd_capture_run_agent. */
static enum nd_status run_if_reached(struct nd_capture_job *capture, char **run_folder,
                                     struct nd_agent_exit *exit, struct nd_error *err)
{
    if (exit->error.id != 0) {
        *run_folder = nd_strdup(capture->folder);
        return *run_folder != NULL ? ND_OK : nd_fail_memory(err);
    }
    bool is_agent = capture->device->method == ND_REMOTE_AGENT;
    ND_TRY(is_agent ? nd_capture_run_agent(capture, run_folder, exit, err)
                    : nd_prepared_capture(capture, run_folder, exit, err));
    /* How warm it is now, and what its system logged; the run counts without it. */
    if (capture->remote != NULL && !capture->remote->is_lost)
        nd_device_facts_finish(capture->remote->transport, &capture->remote->device_facts, NULL);
    return ND_OK;
}

static void fill_outcome(const struct nd_capture_job *capture, const struct nd_assembled *assembled,
                         const struct nd_agent_exit *exit, struct nd_capture_outcome *outcome)
{
    *outcome = (struct nd_capture_outcome){.has_failed = assembled->state != ND_CAPTURE_COMPLETE,
                                           .is_partial = assembled->state == ND_CAPTURE_PARTIAL,
                                           .samples_done = assembled->samples_done,
                                           .samples_total = nd_capture_job_n_samples(capture),
                                           .n_left_out = capture->n_left_out,
                                           .is_changed = assembled->is_changed,
                                           .n_sessions =
                                               capture->n_untouched + capture->n_tried + capture->job.n_passes,
                                           .failure = assembled->failure};
    snprintf(outcome->stage, sizeof outcome->stage, "%s", assembled->stage);
    snprintf(outcome->anew, sizeof outcome->anew, "%s", exit->anew);
}

/* Whether --resume finds more in the folder than in the capture. */
static bool can_go_on(const struct nd_workload *workload, const struct nd_capture_options *options,
                      enum nd_status status, const struct nd_agent_exit *exit, const char *run_folder)
{
    if (!options->is_resumable || workload->device->transport != ND_TRANSPORT_NONE)
        return false;
    /* Acknowledged, and in no capture: the run was stopped, or there was no room for the capture. */
    bool is_lost = status == ND_ERR_IO && run_folder != NULL && nd_job_run_has_samples(run_folder, false);
    return exit->can_resume || is_lost;
}

/* Nobody would look for it by themselves. */
static void say_kept(enum nd_status status, struct nd_error *err)
{
    if (status == ND_OK || err == NULL)
        return;
    size_t n = strlen(err->message);
    snprintf(err->message + n, sizeof err->message - n,
             "; what was captured is kept for a day, and --resume goes on with it");
}

/* Removes the folder, or leaves it to the next run; whether it is left. */
static bool settle_folder(const char *folder, bool is_kept, enum nd_status status, struct nd_error *err)
{
    if (folder == NULL)
        return false;
    if (is_kept) {
        nd_dir_leave(folder);
        say_kept(status, err);
    } else {
        nd_dir_remove(folder);
    }
    return is_kept;
}

/* Runs the job in capture->folder and writes the capture. *run_folder: see nd_capture_run_agent; the caller
 * frees it, on a failure, too. */
static enum nd_status run_in_folder(struct nd_capture_job *capture, const char *path, char **run_folder,
                                    struct nd_agent_exit *exit, struct nd_capture_outcome *outcome,
                                    struct nd_error *err)
{
    struct place place = {0};
    struct nd_assembled assembled = {0};
    enum nd_status status = reach(capture, &place, exit, err);
    if (status == ND_OK)
        status = nd_capture_job_init(capture, err);
    if (status == ND_OK)
        status = run_if_reached(capture, run_folder, exit, err);
    if (status == ND_OK) {
        nd_capture_report_stage(capture, "write", exit->elapsed_s);
        status = assemble(capture, *run_folder, exit, path, &assembled, err);
    }
    if (status == ND_OK)
        fill_outcome(capture, &assembled, exit, outcome);
    nd_capture_job_deinit(capture);
    nd_remote_close(&place.remote);
    nd_lease_end(&place.lease);
    nd_device_deinit(&place.resolved);
    return status;
}

enum nd_status nd_capture_run(const struct nd_workload *workload, const char *path,
                              const struct nd_capture_options *options, struct nd_capture_outcome *outcome,
                              struct nd_error *err)
{
    struct nd_capture_options own;
    nd_capture_options_init(&own);
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    options = &own;
    struct nd_capture_job capture = {.model = workload->model,
                                     .device = workload->device,
                                     .probes = workload->probes,
                                     .n_probes = workload->n_probes,
                                     .options = options,
                                     .begun_ns = nd_clock_awake_ns()};
    struct nd_agent_exit exit = {0};
    ND_FREED char *folder = NULL, *run_folder = NULL;
    enum nd_status status = check_request(workload, path, options, err);
    if (status == ND_OK)
        status = make_folder(path, options->resume, &folder, err);
    if (status == ND_OK && !options->replace && access(path, F_OK) == 0) {
        /* Between the check and the folder: this run is as late as one that finds the folder taken. */
        nd_dir_remove(folder);
        return nd_fail(err, ND_E_FILE_BUSY, path, "'%s' was made by another process just now", path);
    }
    capture.folder = folder;
    if (status == ND_OK)
        status = run_in_folder(&capture, path, &run_folder, &exit, outcome, err);
    bool is_kept = settle_folder(folder, can_go_on(workload, options, status, &exit, run_folder), status, err);
    if (status != ND_OK)
        outcome->is_partial = is_kept;
    return status;
}

enum nd_status nd_capture_run_and_open(const struct nd_workload *workload, const char *path,
                                       const struct nd_capture_options *options, struct nd_capture **out,
                                       struct nd_error *failure, struct nd_error *err)
{
    struct nd_capture_outcome outcome = {0};
    enum nd_status status = nd_capture_run(workload, path, options, &outcome, err);
    if (status != ND_OK || !outcome.has_failed)
        return status == ND_OK ? nd_capture_open(path, out, err) : status;
    *failure = outcome.failure;
    failure->status = failure->status != ND_OK ? failure->status : ND_ERR_DEVICE;
    return ND_OK;
}

enum nd_status nd_capture_pass_on(const struct nd_error *failure, const struct nd_model *model,
                                  const struct nd_device *device, struct nd_error *err)
{
    if (err != NULL) {
        *err = *failure;
        nd_error_context(err, "'%s' on '%s'", nd_model_path(model), device->label);
    }
    return failure->status;
}
