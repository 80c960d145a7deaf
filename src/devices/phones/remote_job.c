/* A job as it is elsewhere: what it names is sent there, and named by its place there. */
#include "devices/phones/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/items.h"
#include "devices/agent/spool/spool.h"
#include "model/graph/parts.h"

static const double min_limit_s = 30;
static const double slowest_read_bytes_s = 5e6;

enum nd_status nd_bundle_add(struct nd_bundle *bundle, const char *name, const char *path, bool is_executable,
                             struct nd_error *err)
{
    struct stat info;
    for (size_t i = 0; i < bundle->n; i++)
        if (strcmp(bundle->files[i].name, name) == 0)
            return ND_OK;
    if (stat(path, &info) != 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    ND_TRY_MEMORY(nd_grow((void **)&bundle->files, &bundle->capacity, bundle->n + 1, sizeof *bundle->files),
                  err);
    struct nd_bundle_file *file = &bundle->files[bundle->n];
    *file = (struct nd_bundle_file){.name = nd_strdup(name),
                                    .path = nd_strdup(path),
                                    .size_bytes = (uint64_t)info.st_size,
                                    .is_executable = is_executable};
    bundle->n++;
    return file->name != NULL && file->path != NULL ? nd_sha256_file(path, file->sha256, err)
                                                    : nd_fail_memory(err);
}

void nd_bundle_deinit(struct nd_bundle *bundle)
{
    ND_FREE_BOTH(bundle->files, bundle->n, .name, .path);
    free(bundle->folder);
    *bundle = (struct nd_bundle){0};
}

static enum nd_status name_folder(struct nd_bundle *bundle, const char *root, struct nd_error *err)
{
    struct nd_strbuf list = {0}, path = {0};
    char hex[ND_SHA256_HEX_BYTES];
    for (size_t i = 0; i < bundle->n; i++)
        nd_strbuf_printf(&list, "%s %c %s\n", bundle->files[i].sha256,
                         bundle->files[i].is_executable ? 'x' : '-', bundle->files[i].name);
    size_t n = list.len;
    ND_FREED char *text = nd_strbuf_take(&list);
    ND_TRY_MEMORY(text != NULL, err);
    nd_sha256_bytes(text, n, hex);
    nd_strbuf_printf(&path, "%s/store/%s", root, hex);
    free(bundle->folder);
    bundle->folder = nd_strbuf_take(&path);
    return bundle->folder != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- what is there ---- */

/* Makes the folder, and prints "complete" or "partial", then for each file the digest that the machine measures
 * now; "-" for none, and for a program that cannot be run. Sizes and times prove nothing: what runs there is
 * what was measured. */
static void add_question(struct nd_strbuf *text, const struct nd_bundle *bundle)
{
    nd_strbuf_puts(text, "mkdir -p ");
    nd_shell_quote(text, bundle->folder);
    nd_strbuf_puts(text, " && cd ");
    nd_shell_quote(text, bundle->folder);
    nd_strbuf_puts(
        text, " || exit 1; c=partial; [ -f .complete ] && c=complete && touch .complete; echo $c; for f in");
    for (size_t i = 0; i < bundle->n; i++) {
        nd_strbuf_puts(text, bundle->files[i].is_executable ? " x" : " f");
        nd_shell_quote(text, bundle->files[i].name);
    }
    nd_strbuf_puts(text, "; do m=-${f%\"${f#?}\"}; f=${f#?}; d=${f%/*}; [ \"$d\" = \"$f\" ] || mkdir -p \"$d\" "
                         "|| exit 1; [ -f \"$f\" ] && [ $m \"$f\" ] && sha256sum < \"$f\" || echo -; done; ");
}

/* One question for all bundles: a login costs more than the words. */
static char *question(struct nd_bundle *const *bundles, size_t n)
{
    struct nd_strbuf text = {0};
    for (size_t b = 0; b < n; b++)
        add_question(&text, bundles[b]);
    return nd_strbuf_take(&text);
}

/* The machine has to read all that it has of the bundles. */
static enum nd_status ask(struct nd_bundle *const *bundles, size_t n, struct nd_transport *transport,
                          struct nd_remote_reply *reply, struct nd_error *err)
{
    uint64_t size_bytes = 0;
    for (size_t b = 0; b < n; b++)
        for (size_t i = 0; i < bundles[b]->n; i++)
            size_bytes += bundles[b]->files[i].size_bytes;
    ND_FREED char *text = question(bundles, n);
    ND_TRY_MEMORY(text != NULL, err);
    const struct nd_remote_command command = {
        .text = text, .time_limit_s = min_limit_s + (double)size_bytes / slowest_read_bytes_s};
    ND_TRY(nd_transport_run(transport, &command, reply, err));
    if (reply->exit_code == 0)
        return ND_OK;
    char line[300];
    nd_transport_last_line(reply->errors, line, sizeof line);
    return nd_fail(err, ND_E_DEVICE_PUSH, bundles[0]->folder, "cannot make a folder on the device '%s': %s",
                   transport->address, line);
}

/* Marks what has to be sent. was_there: nothing, and the machine knows it. */
static void read_answer(struct nd_bundle *bundle, char **rest)
{
    const char *line = *rest != NULL ? strsep(rest, "\n") : NULL;
    bool is_marked = line != NULL && strcmp(line, "complete") == 0;
    bundle->was_there = is_marked;
    bundle->was_damaged = false;
    for (size_t i = 0; i < bundle->n; i++) {
        struct nd_bundle_file *file = &bundle->files[i];
        line = *rest != NULL ? strsep(rest, "\n") : NULL;
        file->is_missing = line == NULL || strncmp(line, file->sha256, strlen(file->sha256)) != 0;
        bundle->was_there = bundle->was_there && !file->is_missing;
        bundle->was_damaged = bundle->was_damaged || (is_marked && file->is_missing);
    }
}

/* ---- sending ---- */

static enum nd_status check_space(struct nd_bundle *const *bundles, size_t n, uint64_t free_bytes,
                                  const struct nd_transport *transport, struct nd_error *err)
{
    uint64_t needed = 0;
    for (size_t b = 0; b < n; b++)
        for (size_t i = 0; i < bundles[b]->n; i++)
            needed += bundles[b]->files[i].is_missing ? bundles[b]->files[i].size_bytes : 0;
    if (needed <= free_bytes)
        return ND_OK;
    return nd_fail(err, ND_E_DEVICE_PUSH, bundles[0]->folder,
                   "no space on the device '%s': needs %llu MiB, has %llu MiB", transport->address,
                   (unsigned long long)(needed >> 20) + 1, (unsigned long long)(free_bytes >> 20));
}

static enum nd_status send_missing(const struct nd_bundle *bundle, struct nd_transport *transport,
                                   uint64_t *free_bytes, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < bundle->n && status == ND_OK; i++) {
        const struct nd_bundle_file *file = &bundle->files[i];
        if (!file->is_missing)
            continue;
        char *there = nd_path_join(bundle->folder, file->name);
        status = there != NULL
                     ? nd_transport_push(transport, file->path, file->sha256, there, file->is_executable, err)
                     : nd_fail_memory(err);
        *free_bytes -= *free_bytes < file->size_bytes ? *free_bytes : file->size_bytes;
        free(there);
    }
    return status;
}

/* The mark is on the disk after what it marks. */
static enum nd_status mark_complete(const struct nd_bundle *bundle, struct nd_transport *transport,
                                    struct nd_error *err)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "cd ");
    nd_shell_quote(&text, bundle->folder);
    nd_strbuf_puts(&text, " && sync && touch .complete");
    ND_FREED char *command = nd_strbuf_take(&text);
    return command != NULL ? nd_transport_shell(transport, command, NULL, err) : nd_fail_memory(err);
}

enum nd_status nd_bundles_place(struct nd_bundle *const *bundles, size_t n, struct nd_transport *transport,
                                const char *root, uint64_t *free_bytes, struct nd_error *err)
{
    ND_CLEANUP(nd_remote_reply_deinit) struct nd_remote_reply reply = {0};
    enum nd_status status = ND_OK;
    for (size_t b = 0; b < n && status == ND_OK; b++)
        status = name_folder(bundles[b], root, err);
    if (status == ND_OK)
        status = ask(bundles, n, transport, &reply, err);
    if (status == ND_OK) {
        char *rest = reply.out;
        for (size_t b = 0; b < n; b++)
            read_answer(bundles[b], &rest);
        status = check_space(bundles, n, *free_bytes, transport, err);
    }
    for (size_t b = 0; b < n && status == ND_OK; b++) {
        status = send_missing(bundles[b], transport, free_bytes, err);
        if (status == ND_OK && !bundles[b]->was_there)
            status = mark_complete(bundles[b], transport, err);
    }
    for (size_t b = 0; b < n && status != ND_OK; b++) {
        free(bundles[b]->folder);
        bundles[b]->folder = NULL;
    }
    return status;
}

/* ---- looking up ---- */

enum nd_status nd_bundle_find(const struct nd_bundle *bundle, const char *path, char **out,
                              struct nd_error *err)
{
    *out = NULL;
    for (size_t i = 0; i < bundle->n && path != NULL && bundle->folder != NULL; i++)
        if (strcmp(bundle->files[i].path, path) == 0) {
            *out = nd_path_join(bundle->folder, bundle->files[i].name);
            return *out != NULL ? ND_OK : nd_fail_memory(err);
        }
    return ND_OK;
}

const char *nd_bundle_sha256(const struct nd_bundle *bundle, const char *path_there)
{
    size_t n = bundle->folder != NULL ? strlen(bundle->folder) : 0;
    if (n == 0 || strncmp(path_there, bundle->folder, n) != 0 || path_there[n] != '/')
        return NULL;
    for (size_t i = 0; i < bundle->n; i++)
        if (strcmp(bundle->files[i].name, path_there + n + 1) == 0)
            return bundle->files[i].sha256;
    return NULL;
}

/* Which libraries a run elsewhere loaded: their digests, for the capture. */

enum { MAX_LIBRARIES = 1000, HEX_DIGITS = ND_SHA256_HEX_BYTES - 1 };

void nd_remote_free_libraries(struct nd_remote *remote)
{
    ND_FREE_EACH(remote->libraries, remote->n_libraries, .path);
    remote->libraries = NULL;
    remote->n_libraries = 0;
}

/* Takes the path; what was sent there has a digest already. */
static enum nd_status add(struct nd_remote *remote, size_t *capacity, char *path, struct nd_error *err)
{
    const char *sha256 = NULL;
    if (path == NULL ||
        !nd_grow((void **)&remote->libraries, capacity, remote->n_libraries + 1, sizeof *remote->libraries)) {
        free(path);
        return nd_fail_memory(err);
    }
    struct nd_remote_library *library = &remote->libraries[remote->n_libraries++];
    *library = (struct nd_remote_library){.path = path};
    sha256 = nd_bundle_sha256(&remote->runtime, path);
    if (sha256 == NULL)
        sha256 = nd_bundle_sha256(&remote->agent, path);
    if (sha256 != NULL)
        memcpy(library->sha256, sha256, ND_SHA256_HEX_BYTES);
    return ND_OK;
}

static enum nd_status list(struct nd_remote *remote, const char *spool, struct nd_error *err)
{
    ND_CLEANUP(nd_spool_reader_close) struct nd_spool_reader reader = {0};
    struct nd_record record;
    size_t capacity = 0;
    ND_TRY(nd_spool_reader_open(&reader, spool, err));
    while (remote->n_libraries < MAX_LIBRARIES && nd_spool_next(&reader, &record))
        if (record.kind == ND_RECORD_LIBRARY)
            ND_TRY(add(remote, &capacity, nd_fields_get(&record, "path"), err));
    return ND_OK;
}

/* Prints a digest, or "-", for each library that has none yet. */
static char *question_of_remote_libraries(const struct nd_remote *remote)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "for f in");
    for (size_t i = 0; i < remote->n_libraries; i++)
        if (remote->libraries[i].sha256[0] == '\0') {
            nd_strbuf_puts(&text, " ");
            nd_shell_quote(&text, remote->libraries[i].path);
        }
    nd_strbuf_puts(&text, "; do sha256sum < \"$f\" 2>/dev/null || echo -; done");
    return nd_strbuf_take(&text);
}

enum nd_status nd_remote_read_libraries(struct nd_remote *remote, const char *spool, struct nd_error *err)
{
    ND_CLEANUP(nd_remote_reply_deinit) struct nd_remote_reply reply = {0};
    nd_remote_free_libraries(remote);
    ND_TRY(list(remote, spool, err));
    if (remote->n_libraries == 0)
        return ND_OK;
    ND_FREED char *text = question_of_remote_libraries(remote);
    ND_TRY_MEMORY(text != NULL, err);
    ND_TRY(nd_transport_shell(remote->transport, text, &reply, err));
    char *rest = reply.out;
    for (size_t i = 0; i < remote->n_libraries; i++) {
        if (remote->libraries[i].sha256[0] != '\0')
            continue;
        const char *line = rest != NULL ? strsep(&rest, "\n") : NULL;
        if (line != NULL && strspn(line, "0123456789abcdef") == HEX_DIGITS)
            memcpy(remote->libraries[i].sha256, line, HEX_DIGITS);
    }
    return ND_OK;
}

/* ---- what is sent ---- */

static enum nd_status collect_runtime(struct nd_bundle *bundle, const struct nd_device *device,
                                      struct nd_error *err)
{
    const struct nd_runtime_info *runtime = &device->runtime;
    enum nd_runtime_need need = nd_device_is_npu(device->kind) ? ND_RUNTIME_FOR_NPU : ND_RUNTIME_FOR_CPU;
    const char *arch = device->chipset != NULL ? device->chipset->arch : NULL;
    bool is_npu = need == ND_RUNTIME_FOR_NPU;
    const char *const libraries[] = {runtime->ort_library, is_npu ? runtime->provider_library : NULL,
                                     is_npu ? runtime->backend_library : NULL};
    for (size_t i = 0; i < 3; i++)
        if (libraries[i] != NULL && libraries[i][0] != '\0')
            ND_TRY(nd_bundle_add(bundle, nd_path_base(libraries[i]), libraries[i], false, err));
    /* Flat: the loader looks for all of them in one folder. */
    for (size_t i = 0; i < runtime->n_files; i++)
        if (nd_runtime_file_serves(runtime->files[i], arch, need))
            ND_TRY(nd_bundle_add(bundle, nd_path_base(runtime->files[i]), runtime->files[i], false, err));
    return ND_OK;
}

/* The files that a model keeps beside it, which lie beside each of its copies. */
static enum nd_status collect_beside(struct nd_bundle *bundle, const struct nd_model *model, const char *copy,
                                     struct nd_error *err)
{
    ND_FREED char *folder = nd_path_dir(copy);
    ND_TRY_MEMORY(folder != NULL, err);
    for (size_t i = 0; i < nd_model_n_external(model); i++) {
        const char *location = nd_model_external(model, i);
        ND_FREED char *path = nd_path_join(folder, location);
        ND_TRY(path != NULL ? nd_bundle_add(bundle, location, path, false, err) : nd_fail_memory(err));
    }
    return ND_OK;
}

static enum nd_status collect_agent(struct nd_remote *remote, const struct nd_remote_run *run,
                                    struct nd_error *err)
{
    ND_FREED char *path = NULL;
    ND_TRY(nd_agent_find_abi(run->options->agent, remote->device_facts.abi, &path, err));
    return nd_bundle_add(&remote->agent, "npudiff-agent", path, true, err);
}

/* Agent and runtime are those of all runs on the machine, and measured again before each of them; a trial, of
 * which there may be many, believes what was measured on this connection. */
static enum nd_status send_all(struct nd_remote *remote, const struct nd_remote_run *run, struct nd_error *err)
{
    struct nd_bundle *bundles[] = {&remote->model, &remote->agent, &remote->runtime};
    if (remote->agent.n == 0)
        ND_TRY(collect_agent(remote, run, err));
    if (remote->runtime.n == 0)
        ND_TRY(collect_runtime(&remote->runtime, run->device, err));
    nd_bundle_deinit(&remote->model);
    const struct nd_agent_job *job = run->job;
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < job->n_passes && status == ND_OK; p++)
        status =
            nd_bundle_add(&remote->model, nd_path_base(job->passes[p].model), job->passes[p].model, false, err);
    ND_TRY(status == ND_OK && run->model != NULL
               ? collect_beside(&remote->model, run->model, job->passes[0].model, err)
               : status);
    bool is_known = run->is_trial && remote->agent.folder != NULL && remote->runtime.folder != NULL;
    return nd_bundles_place(bundles, is_known ? 1 : 3, remote->transport, remote->root, &remote->free_bytes,
                            err);
}

/* ---- how it is called there ---- */

/* What is a file here, by its place there; anything else as it is. */
static enum nd_status translate(const struct nd_bundle *bundle, const char *text, char **out,
                                struct nd_error *err)
{
    enum nd_status status = nd_bundle_find(bundle, text, out, err);
    if (status == ND_OK && *out == NULL && (*out = nd_strdup(text != NULL ? text : "")) == NULL)
        status = nd_fail_memory(err);
    return status;
}

static enum nd_status translate_options(const struct nd_remote *remote, const struct nd_agent_job *job,
                                        struct nd_agent_job *out, struct nd_error *err)
{
    out->provider_options = nd_calloc(job->n_provider_options, sizeof *out->provider_options);
    out->n_provider_options = 0;
    ND_TRY_MEMORY(out->provider_options != NULL, err);
    for (size_t i = 0; i < job->n_provider_options; i++) {
        struct nd_agent_option *pair = &out->provider_options[out->n_provider_options++];
        *pair = (struct nd_agent_option){.key = job->provider_options[i].key}; /* borrowed */
        ND_TRY(translate(&remote->runtime, job->provider_options[i].value, &pair->value, err));
    }
    return ND_OK;
}

static enum nd_status translate_passes(const struct nd_remote *remote, const struct nd_agent_job *job,
                                       struct nd_agent_job *out, struct nd_error *err)
{
    out->passes = nd_calloc(job->n_passes, sizeof *out->passes);
    out->n_passes = 0;
    ND_TRY_MEMORY(out->passes != NULL, err);
    for (size_t p = 0; p < job->n_passes; p++) {
        struct nd_job_pass *pass = &out->passes[out->n_passes++];
        *pass = job->passes[p]; /* its checks are borrowed */
        ND_TRY(translate(&remote->model, job->passes[p].model, &pass->model, err));
    }
    return ND_OK;
}

void nd_remote_job_free(struct nd_agent_job *job)
{
    ND_FREE_ALL(job->ort_library, job->provider_library);
    ND_FREE_EACH(job->provider_options, job->n_provider_options, .value);
    ND_FREE_EACH(job->passes, job->n_passes, .model);
    *job = (struct nd_agent_job){0};
}

enum nd_status nd_remote_job_make(struct nd_remote *remote, const struct nd_remote_run *run,
                                  struct nd_agent_job *out, char **agent, struct nd_error *err)
{
    ND_CLEANUP(nd_remote_job_free) struct nd_agent_job job = *run->job; /* shares all but what is translated */
    char *agent_there = NULL;
    job.ort_library = NULL;
    job.provider_library = NULL;
    job.provider_options = NULL;
    job.passes = NULL;
    ND_TRY(send_all(remote, run, err));
    ND_TRY(translate(&remote->runtime, run->job->ort_library, &job.ort_library, err));
    ND_TRY(translate(&remote->runtime, run->job->provider_library, &job.provider_library, err));
    ND_TRY(translate_options(remote, run->job, &job, err));
    ND_TRY(translate_passes(remote, run->job, &job, err));
    ND_TRY(translate(&remote->agent, remote->agent.files[0].path, &agent_there, err));
    *out = job;
    job = (struct nd_agent_job){0};
    *agent = agent_there;
    return ND_OK;
}
