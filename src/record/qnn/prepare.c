/* A prepared folder, made under a temporary name beside its own, and renamed when it is whole. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "core/text/strbuf.h"
#include "npudiff/devices/device.h"
#include "record/qnn/prepare_internal.h"

void nd_prepare_options_init_sized(struct nd_prepare_options *options, size_t struct_size)
{
    const struct nd_prepare_options own = {.time_limit_s = 3600};
    nd_options_write(options, struct_size, &own, sizeof own);
}

/* Not synced one by one: a folder of thousands of inputs would take minutes, and one that lost its power is
 * made again. */
enum nd_status nd_prepare_put(const struct nd_prepare_work *work, const char *name, const void *data, size_t n,
                              struct nd_error *err)
{
    char *path = nd_path_join(work->folder, name);
    char *folder = path != NULL ? nd_path_dir(path) : NULL;
    enum nd_status status = folder != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err);
    FILE *file = status == ND_OK ? fopen(path, "wbe") : NULL;
    bool is_written = file != NULL && (n == 0 || fwrite(data, 1, n, file) == n);
    int problem = errno;
    if (file != NULL && fclose(file) != 0) {
        is_written = false;
        problem = errno;
    }
    if (status == ND_OK && !is_written)
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(problem));
    free(folder);
    free(path);
    return status;
}

/* ---- what was asked ---- */

static bool has_manifest(const char *folder)
{
    enum { MOST_BYTES = 64 << 20 };
    char *path = nd_path_join(folder, "npudiff.json");
    void *text = NULL;
    size_t n = 0;
    bool is_read =
        path != NULL && nd_path_exists(path) && nd_file_read(path, MOST_BYTES, &text, &n, NULL) == ND_OK;
    json_t *root = is_read ? json_loadb(text, n, 0, NULL) : NULL;
    bool is_ours = json_is_integer(json_object_get(root, ND_PREPARED_KEY));
    json_decref(root);
    free(text);
    free(path);
    return is_ours;
}

/* A folder is only replaced when it is empty or one of ours: what else is in it is nobody's to remove. */
static bool is_replaceable(const char *folder)
{
    struct stat info;
    if (has_manifest(folder))
        return lstat(folder, &info) == 0 && S_ISDIR(info.st_mode);
    return rmdir(folder) == 0 && mkdir(folder, 0777) == 0; /* which it lets happen to empty ones alone */
}

static enum nd_status check_request(const struct nd_prepare_work *work, const char *folder,
                                    struct nd_error *err)
{
    const struct nd_prepare_options *options = work->options;
    struct stat info;
    if (work->device->kind != ND_DEVICE_HTP_SIM || work->device->transport != ND_TRANSPORT_NONE)
        return nd_fail(err, ND_E_OPTION_VALUE, work->device->label,
                       "device '%s' makes no context: a 'htp-sim:CHIPSET' does", work->device->label);
    if (options->edges != NULL && strcmp(options->edges, "none") == 0)
        return nd_fail(err, ND_E_OPTION_VALUE, "none",
                       "edges 'none' leave the model untouched, and a context gives codes: use 'outputs'");
    if (lstat(folder, &info) == 0 && !options->replace)
        return nd_fail(err, ND_E_FILE_EXISTS, folder, "'%s' exists already", folder);
    if (lstat(folder, &info) == 0 && !is_replaceable(folder))
        return nd_fail(err, ND_E_FILE_EXISTS, folder,
                       "'%s' exists already and is not a prepared folder: it is not replaced", folder);
    for (size_t i = 0; i < work->n_probes; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(work->probes[i]->name, work->probes[k]->name) == 0)
                return nd_fail(err, ND_E_OPTION_CONFLICT, work->probes[i]->name, "two probes are called '%s'",
                               work->probes[i]->name);
    return nd_model_check_static(work->model, err);
}

/* An edge that is the codes of an input stays outside: it is what the context is fed. */
static enum nd_status choose_edges(struct nd_prepare_work *work, struct nd_error *err)
{
    const char *spec = work->options->edges != NULL ? work->options->edges : "all";
    size_t *selected = NULL, n = 0;
    enum nd_status status = nd_model_select_edges(work->model, spec, &selected, &n, err);
    if (status != ND_OK)
        return status;
    work->edges = nd_calloc(n, sizeof *work->edges);
    work->fed = nd_calloc(n, sizeof *work->fed);
    if (work->edges == NULL || work->fed == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        const struct nd_edge *edge = nd_model_edge(work->model, selected[i]);
        if (edge->is_model_input && strcmp(edge->op_types, "input") == 0)
            work->fed[work->n_fed++].edge = selected[i];
        else
            work->edges[work->n_edges++] = selected[i];
    }
    free(selected);
    if (status == ND_OK && work->n_edges == 0)
        status = nd_fail(err, ND_E_MODEL_NO_EDGE, spec,
                         "edges '%s' are inputs of '%s': a context has to compute something", spec,
                         nd_model_path(work->model));
    return status;
}

/* Which input each fed edge is; the context may not have it after all (nothing reads it). */
static void find_fed(struct nd_prepare_work *work)
{
    size_t n = 0;
    for (size_t i = 0; i < work->n_fed; i++)
        for (size_t k = 0; k < work->n_inputs; k++)
            if (strcmp(nd_model_edge(work->model, work->fed[i].edge)->onnx_name, work->inputs[k].onnx_name) ==
                0)
                work->fed[n++] = (struct nd_fed){.edge = work->fed[i].edge, .input = k};
    work->n_fed = n;
}

/* ---- the folder ---- */

/* Beside the final place, so that one rename ends it. *full: the final path, absolute. */
static enum nd_status make_folders(struct nd_prepare_work *work, const char *folder, char **final_path,
                                   struct nd_error *err)
{
    struct nd_strbuf path = {0}, scratch = {0};
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    nd_strbuf_append(&path, folder, n);
    *final_path = nd_strbuf_take(&path);
    char *parent = *final_path != NULL ? nd_path_dir(*final_path) : NULL;
    char *full_parent = parent != NULL ? realpath(parent, NULL) : NULL; /* the agent works elsewhere */
    enum nd_status status = ND_OK;
    if (parent != NULL && full_parent == NULL)
        status = nd_fail(err, ND_E_FILE_WRITE, parent, "cannot find folder '%s': %s", parent, strerror(errno));
    nd_strbuf_printf(&path, "%s/.npudiff-prepare-XXXXXX", full_parent != NULL ? full_parent : "");
    char *template = nd_strbuf_take(&path);
    if (status == ND_OK && (*final_path == NULL || template == NULL))
        status = nd_fail_memory(err);
    if (status == ND_OK && mkdtemp(template) == NULL)
        status = nd_fail(err, ND_E_FILE_WRITE, folder, "cannot make folder '%s': %s", folder, strerror(errno));
    else if (status == ND_OK) {
        work->folder = template;
        template = NULL;
        nd_strbuf_printf(&scratch, "%s/.context", work->folder);
        work->scratch = nd_strbuf_take(&scratch);
        status = work->scratch != NULL ? nd_dir_make(work->scratch, err) : nd_fail_memory(err);
    }
    free(template);
    free(parent);
    free(full_parent);
    return status;
}

static enum nd_status publish(struct nd_prepare_work *work, const char *final_path, struct nd_error *err)
{
    /* mkdtemp lets nobody else in; the scratch folder is as open as a new folder is. umask() cannot be asked
     * without setting it, for all threads. */
    struct stat made;
    bool is_open = stat(work->scratch, &made) == 0 && chmod(work->folder, made.st_mode & 0777) == 0;
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s.old", work->folder);
    char *old = nd_strbuf_take(&text);
    if (old == NULL)
        return nd_fail_memory(err);
    bool is_moved = is_open && work->options->replace && rename(final_path, old) == 0;
    enum nd_status status = ND_OK;
    if (is_open)
        nd_dir_remove(work->scratch);
    if (!is_open || rename(work->folder, final_path) != 0)
        status = nd_fail(err, errno == ENOTEMPTY || errno == EEXIST ? ND_E_FILE_EXISTS : ND_E_FILE_WRITE,
                         final_path, "cannot make folder '%s': %s", final_path, strerror(errno));
    if (is_moved && status == ND_OK)
        nd_dir_remove(old);
    else if (is_moved && rename(old, final_path) != 0)
        nd_error_context(err, "what was in '%s' is now in '%s'", final_path, old);
    free(old);
    if (status != ND_OK)
        return status;
    free(work->folder);
    work->folder = NULL;
    return ND_OK;
}

void nd_prepare_work_deinit(struct nd_prepare_work *work)
{
    if (work->folder != NULL)
        nd_dir_remove(work->folder);
    nd_native_deinit(&work->native);
    free(work->folder);
    free(work->scratch);
    free(work->edges);
    free(work->fed);
    free(work->inputs);
    free(work->outputs);
    free(work->digests);
}

static void summarise(const struct nd_prepare_work *work, struct nd_prepared_summary *summary)
{
    *summary = (struct nd_prepared_summary){
        .context_bytes = work->context.size_bytes, .n_inputs = work->n_inputs, .n_outputs = work->n_outputs};
    snprintf(summary->graph, sizeof summary->graph, "%s", work->context.graph);
    snprintf(summary->sdk, sizeof summary->sdk, "%s", work->context.build_id);
    for (size_t p = 0; p < work->n_probes; p++)
        summary->n_results += work->probes[p]->n_samples;
}

enum nd_status nd_prepare_folder(struct nd_prepare_work *work, const char *folder, struct nd_error *err)
{
    char *final_path = NULL;
    enum nd_status status = check_request(work, folder, err);
    if (status == ND_OK)
        status = choose_edges(work, err);
    if (status == ND_OK)
        status = make_folders(work, folder, &final_path, err);
    if (status == ND_OK)
        status = nd_prepare_context(work, err);
    if (status == ND_OK) {
        find_fed(work);
        status = nd_prepare_inputs(work, err);
    }
    if (status == ND_OK)
        status = nd_prepare_manifest(work, err);
    if (status == ND_OK)
        status = nd_prepare_files(work, err);
    if (status == ND_OK)
        status = publish(work, final_path, err);
    free(final_path);
    return status;
}

enum nd_status nd_prepare(const struct nd_workload *workload, const char *folder,
                          const struct nd_prepare_options *options, struct nd_prepared_summary *summary,
                          struct nd_error *err)
{
    struct nd_prepare_options own;
    nd_prepare_options_init(&own);
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    options = &own;
    struct nd_prepare_work work = {.model = workload->model,
                                   .device = workload->device,
                                   .probes = workload->probes,
                                   .n_probes = workload->n_probes,
                                   .options = options};
    status = nd_prepare_folder(&work, folder, err);
    if (status == ND_OK && summary != NULL)
        summarise(&work, summary);
    nd_prepare_work_deinit(&work);
    return status;
}
