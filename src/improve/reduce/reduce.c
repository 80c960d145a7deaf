#include "npudiff/improve/reduce.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"
#include "improve/reduce/reducer.h"

void nd_reduce_options_init_sized(struct nd_reduce_options *options, size_t struct_size)
{
    const struct nd_reduce_options own = {
        .session_limit = 60, .n_samples = 4, .lsb = NAN, .fraction = NAN, .time_limit_s = 300};
    nd_options_write(options, struct_size, &own, sizeof own);
}

void nd_reduction_destroy(struct nd_reduction **reduction)
{
    struct nd_reduction *old = *reduction;
    if (old == NULL)
        return;
    for (size_t i = 0; i < old->n_operators_left; i++)
        free(old->operators[i]);
    free(old->operators);
    free(old->device);
    free(old->chipset);
    free(old->runtime);
    free(old->command);
    free(old);
    *reduction = NULL;
}

/* ---- before anything runs ---- */

static enum nd_status check_options(const struct nd_reduce_options *options, struct nd_error *err)
{
    if (options->session_limit < ND_REDUCE_MIN_SESSIONS)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "a reduction needs at least %d sessions, not %zu",
                       ND_REDUCE_MIN_SESSIONS, options->session_limit);
    if (options->n_samples < 1 || options->n_samples > ND_REDUCE_MAX_SAMPLES)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "1 to %d samples can be fed, not %zu",
                       ND_REDUCE_MAX_SAMPLES, options->n_samples);
    if (options->has_difference && isnan(options->lsb) && isnan(options->fraction))
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "a difference needs an amount");
    if (!options->has_difference && (options->edge != NULL || options->against != NULL))
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL,
                       "an edge, and a device to compare with, are for differences only");
    return ND_OK;
}

/* A folder is only replaced when it is empty or one of ours: what else is in it is nobody's to remove. */
static bool is_replaceable(const char *folder)
{
    struct stat info;
    char *model = nd_path_join(folder, "reproducer.onnx"), *readme = nd_path_join(folder, "README.txt");
    bool is_ours = model != NULL && readme != NULL && nd_path_exists(model) && nd_path_exists(readme);
    free(model);
    free(readme);
    if (is_ours)
        return lstat(folder, &info) == 0 && S_ISDIR(info.st_mode);
    return rmdir(folder) == 0 && mkdir(folder, 0777) == 0; /* which it lets happen to empty ones alone */
}

static enum nd_status make_staging(struct nd_reducer *reducer, struct nd_error *err)
{
    const char *folder = reducer->options->folder;
    if (folder == NULL)
        return ND_OK;
    if (nd_path_exists(folder) && !reducer->options->replace)
        return nd_fail(err, ND_E_FILE_EXISTS, folder, "'%s' exists already", folder);
    if (nd_path_exists(folder) && !is_replaceable(folder))
        return nd_fail(err, ND_E_FILE_EXISTS, folder,
                       "'%s' exists already and is not the folder of a reproducer: it is not replaced", folder);
    struct nd_strbuf text = {0};
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    nd_strbuf_append(&text, folder, n);
    nd_strbuf_printf(&text, ".tmp-%ld", (long)getpid());
    char *parent = nd_path_dir(folder);
    reducer->staging = nd_strbuf_take(&text);
    enum nd_status status =
        parent != NULL && reducer->staging != NULL ? nd_dir_make(parent, err) : nd_fail_memory(err);
    if (status == ND_OK && mkdir(reducer->staging, 0777) != 0) {
        status =
            nd_fail(err, ND_E_FILE_WRITE, folder, "cannot create '%s': %s", reducer->staging, strerror(errno));
        free(reducer->staging);
        reducer->staging = NULL;
    }
    free(parent);
    return status;
}

static enum nd_status find_wanted(struct nd_reducer *reducer, struct nd_error *err)
{
    const char *name = reducer->options->edge;
    reducer->wanted_node = SIZE_MAX;
    for (size_t e = 0; name != NULL && e < nd_model_n_edges(reducer->model); e++) {
        const struct nd_edge *edge = nd_model_edge(reducer->model, e);
        if (strcmp(edge->name, name) != 0)
            continue;
        size_t tensor = nd_names_find(&reducer->model->graph.names, edge->onnx_name);
        reducer->wanted_tensor = edge->onnx_name;
        reducer->wanted_node = reducer->model->graph.tensors[tensor].producer;
    }
    if (name != NULL && reducer->wanted_node == SIZE_MAX)
        return nd_fail(err, ND_E_MODEL_NO_EDGE, name, "'%s' makes no edge '%s'", nd_model_path(reducer->model),
                       name);
    return ND_OK;
}

static enum nd_status parse_references(struct nd_reducer *reducer, struct nd_error *err)
{
    const struct nd_runtime_info *runtime = &reducer->device->runtime;
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "cpu");
    /* An emulated device has npudiff's own version there, which is no runtime that a CPU could have. */
    if (runtime->id != NULL && runtime->id[0] != '\0' && runtime->ort_library != NULL &&
        runtime->ort_library[0] != '\0')
        nd_strbuf_printf(&text, "@%s", runtime->id);
    char *uri = nd_strbuf_take(&text);
    enum nd_status status = uri != NULL ? nd_device_parse(uri, &reducer->cpu, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_device_parse("exact", &reducer->exact, err);
    free(uri);
    return status;
}

static enum nd_status describe(struct nd_reducer *reducer, struct nd_error *err)
{
    const struct nd_device *device = reducer->device;
    struct nd_reduction *out = reducer->out;
    out->difference.max_lsb = out->left_difference.max_lsb = NAN;
    out->session_limit = reducer->options->session_limit;
    out->device = nd_strdup(device->uri);
    out->chipset = nd_strdup(device->chipset != NULL ? device->chipset->sm : "");
    out->runtime = nd_strdup(device->runtime.id != NULL ? device->runtime.id : "");
    for (size_t n = 0; n < nd_model_n_nodes(reducer->model); n++)
        out->n_operators += nd_node_is_operator(reducer->model, n);
    for (size_t p = 0; p < reducer->recorded.n_probes; p++)
        out->n_samples += reducer->recorded.probes[p]->n_samples;
    if (out->n_samples > reducer->options->n_samples)
        out->n_samples = reducer->options->n_samples;
    reducer->recorded.n_samples = out->n_samples;
    return out->device != NULL && out->chipset != NULL && out->runtime != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- the reduction ---- */

static enum nd_status work(struct nd_reducer *reducer, struct nd_error *err)
{
    struct nd_reduction *out = reducer->out;
    bool has_difference = reducer->options->has_difference;
    unsigned *score = nd_calloc(nd_model_n_nodes(reducer->model), sizeof *score);
    enum nd_status status = score != NULL ? ND_OK : nd_fail_memory(err);
    out->end = ND_REDUCTION_REDUCED;
    /* A difference is one from what was recorded; of a failure the whole model comes first, as it may not fail.
     */
    if (status == ND_OK && has_difference)
        status = nd_reducer_record(reducer, err);
    if (status == ND_OK)
        status = nd_reducer_try_whole(reducer, score, err);
    bool has_work = out->end == ND_REDUCTION_REDUCED;
    if (status == ND_OK && has_work && !has_difference)
        status = nd_reducer_record(reducer, err);
    if (status == ND_OK && has_work)
        status = nd_reducer_search(reducer, score, err);
    if (status == ND_OK && has_work && out->n_same == 0)
        out->end = ND_REDUCTION_WHOLE;
    if (status == ND_OK && has_work && out->n_same > 0)
        status = nd_reducer_finish(reducer, err);
    free(score);
    return status;
}

static void deinit(struct nd_reducer *reducer)
{
    if (reducer->folder != NULL)
        nd_dir_remove(reducer->folder);
    if (reducer->staging != NULL)
        nd_dir_remove(reducer->staging);
    nd_recorded_deinit(&reducer->recorded);
    nd_pieces_deinit(&reducer->pieces);
    nd_trials_deinit(&reducer->trials);
    nd_device_deinit(&reducer->cpu);
    nd_device_deinit(&reducer->exact);
    free(reducer->left);
    free(reducer->folder);
    free(reducer->staging);
}

enum nd_status nd_reduce(const struct nd_workload *workload, const struct nd_reduce_options *options,
                         struct nd_reduction **out, struct nd_error *err)
{
    struct nd_reduce_options own;
    nd_reduce_options_init(&own);
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    options = &own;
    struct nd_reducer reducer = {.model = workload->model,
                                 .device = workload->device,
                                 .options = options,
                                 .out = nd_calloc(1, sizeof *reducer.out),
                                 .recorded = {.probes = workload->probes, .n_probes = workload->n_probes},
                                 .start_ns = nd_clock_ns()};
    const char *zeros[] = {"zeros"};
    struct nd_probe *default_probe = NULL;
    if (reducer.out == NULL)
        return nd_fail_memory(err);
    status = check_options(options, err);
    if (status == ND_OK)
        status = nd_model_check_static(workload->model, err);
    if (status == ND_OK && workload->n_probes == 0) {
        status = nd_probes_for_model(workload->model, zeros, 1, &default_probe, err);
        reducer.recorded.probes = (const struct nd_probe *const *)&default_probe;
        reducer.recorded.n_probes = 1;
    }
    if (status == ND_OK)
        status = describe(&reducer, err);
    if (status == ND_OK)
        status = find_wanted(&reducer, err);
    if (status == ND_OK)
        status = parse_references(&reducer, err);
    if (status == ND_OK)
        status = make_staging(&reducer, err);
    if (status == ND_OK)
        status = nd_dir_make_temporary(&reducer.folder, err);
    if (status == ND_OK)
        status = work(&reducer, err);
    reducer.out->elapsed_s = (double)(nd_clock_ns() - reducer.start_ns) / 1e9;
    deinit(&reducer);
    nd_probe_destroy(&default_probe);
    if (status != ND_OK)
        nd_reduction_destroy(&reducer.out);
    else
        *out = reducer.out;
    return status;
}
