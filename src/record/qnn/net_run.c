/* qnn-net-run's output folder, read in the order in which a person would look at it. */
#include "record/qnn/net_run.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

enum nd_status nd_qnr_fact(struct nd_qnr *run, const char *kind, const char *tensor, struct nd_error *err,
                           const char *fmt, ...)
{
    char text[1000];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return nd_imported_fact(run->imported, kind, tensor, text, err);
}

enum nd_status nd_qnr_cut(struct nd_qnr *run, size_t n, struct nd_error *err, const char *fmt, ...)
{
    char text[1000];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < run->n_complete)
        run->n_complete = n;
    struct nd_strbuf all = {0};
    nd_strbuf_printf(&all, "%s%s%s", run->imported->cut_short != NULL ? run->imported->cut_short : "",
                     run->imported->cut_short != NULL ? "; " : "", text);
    free(run->imported->cut_short);
    run->imported->cut_short = nd_strbuf_take(&all);
    if (run->imported->cut_short == NULL)
        return nd_fail_memory(err);
    if (run->n_complete == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, run->output, "no inference is complete: %s", text);
    return ND_OK;
}

static void run_deinit(struct nd_qnr *run)
{
    for (size_t i = 0; i < run->n_tensors; i++) {
        free(run->tensors[i].file);
        nd_qnr_stated_deinit(&run->tensors[i].sidecar);
    }
    free(run->tensors);
    nd_qnr_source_deinit(&run->manifest);
    nd_qnr_source_deinit(&run->context);
    nd_map_deinit(&run->map);
    free(run->top);
    free(run->base);
    free(run->output);
    free(run->results);
}

/* Where both state an output they state the same. */
static enum nd_status check_sources(const struct nd_qnr *run, struct nd_error *err)
{
    for (size_t i = 0; i < run->manifest.outputs.n && run->context.path != NULL; i++) {
        const struct nd_qnr_stated *a = &run->manifest.outputs.items[i];
        const struct nd_qnr_stated *b = nd_qnr_find(&run->context.outputs, a->file);
        if (b == NULL)
            return nd_fail(err, ND_E_QNN_STATED, a->file, "'%s' has an output '%s', but '%s' has none",
                           run->manifest.path, a->file, run->context.path);
        enum nd_status status = nd_qnr_agree(a, run->manifest.path, b, run->context.path, err);
        if (status != ND_OK)
            return status;
    }
    if (run->manifest.build_id != NULL && run->context.build_id != NULL &&
        strcmp(run->manifest.build_id, run->context.build_id) != 0) {
        const char *a = run->manifest.build_id, *b = run->context.build_id;
        if (strcmp(a + (a[0] == 'v'), b + (b[0] == 'v')) != 0)
            return nd_fail(err, ND_E_QNN_STATED, run->context.path,
                           "'%s' is of a context made by SDK build '%s', but '%s' by '%s'", run->context.path,
                           b, run->manifest.path, a);
    }
    return ND_OK;
}

/* The model is the one that was prepared; the chipset is stated there. */
static enum nd_status use_manifest(struct nd_qnr *run, struct nd_error *err)
{
    const json_t *model = json_object_get(run->manifest.root, "model");
    const json_t *chip = json_object_get(json_object_get(run->manifest.root, "chipset"), "sm");
    const char *sha256 = json_string_value(json_object_get(model, "sha256"));
    if (run->options->model != NULL && sha256 != NULL &&
        strcmp(nd_model_sha256(run->options->model), sha256) != 0)
        return nd_fail(err, ND_E_QNN_STATED, run->manifest.path,
                       "'%s' was prepared from a different model: SHA-256 %.16s..., but '%s' has %.16s...",
                       run->manifest.path, sha256, nd_model_path(run->options->model),
                       nd_model_sha256(run->options->model));
    const char *texts[] = {json_string_value(chip), sha256, json_string_value(json_object_get(model, "file"))};
    char **const at[] = {&run->imported->chipset, &run->imported->model_sha256, &run->imported->model_file};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++)
        if (texts[i] != NULL && (*at[i] = nd_strdup(texts[i])) == NULL)
            return nd_fail_memory(err);
    if (chip != NULL && (run->imported->kind = nd_strdup("npu")) == NULL) /* a folder is prepared for an NPU */
        return nd_fail_memory(err);
    return ND_OK;
}

static enum nd_status read_sources(struct nd_qnr *run, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    if (run->base != NULL) {
        char *path = nd_path_join(run->base, "npudiff.json");
        status = path != NULL ? nd_qnr_read_manifest(path, &run->manifest, err) : nd_fail_memory(err);
        free(path);
        if (status == ND_OK)
            status = use_manifest(run, err);
    }
    if (status == ND_OK && run->options->context_json != NULL)
        status = nd_qnr_read_context(run->options->context_json,
                                     run->options->graph != NULL ? run->options->graph : run->graph,
                                     &run->context, err);
    return status == ND_OK ? check_sources(run, err) : status;
}

static bool is_sanitised(const char *name)
{
    while (isalnum((unsigned char)*name) || *name == '_')
        name++;
    return *name == '\0';
}

static enum nd_status state_facts(struct nd_qnr *run, struct nd_error *err)
{
    const char *from = run->manifest.path != NULL  ? "npudiff.json"
                       : run->context.path != NULL ? "the context's JSON"
                                                   : NULL;
    enum nd_status status =
        nd_qnr_fact(run, "names", NULL, err, "%s", run->manifest.path != NULL ? from : "names of the files");
    if (status == ND_OK)
        status = nd_qnr_fact(run, "samples", NULL, err, "%zu folders Result_<i>%s%s", run->n_results,
                             run->graph != NULL ? " of graph " : "", run->graph != NULL ? run->graph : "");
    if (status == ND_OK && run->context.build_id != NULL)
        status = nd_qnr_fact(run, "sdk", NULL, err, "the context was made by %s", run->context.build_id);
    else if (status == ND_OK && run->manifest.build_id != NULL)
        status = nd_qnr_fact(run, "sdk", NULL, err, "the context was made by %s", run->manifest.build_id);
    return status;
}

static enum nd_status read_run(struct nd_qnr *run, struct nd_error *err)
{
    const struct nd_import_options *options = run->options;
    enum nd_status status = nd_map_read(options->map, options->names, options->n_names, &run->map, err);
    if (status == ND_OK)
        status = nd_qnr_find_folders(run, err);
    if (status == ND_OK)
        status = read_sources(run, err);
    if (status == ND_OK)
        status = nd_qnr_read_metadata(run, err);
    if (status == ND_OK)
        status = state_facts(run, err);
    if (status == ND_OK)
        status = nd_qnr_read_inputs(run, err);
    if (status == ND_OK)
        status = nd_qnr_find_tensors(run, err);
    /* Whether names are sanitised is seen by all of them: snpe-net-run keeps ':' and the like. */
    run->imported->has_sanitised_names = run->manifest.path == NULL;
    for (size_t i = 0; i < run->n_tensors; i++)
        if (!is_sanitised(run->tensors[i].file))
            run->imported->has_sanitised_names = false;
    run->imported->keeps_unknown = true;
    if (status == ND_OK)
        status = nd_qnr_describe(run, err);
    if (status == ND_OK)
        status = nd_qnr_read_tensors(run, err);
    return status == ND_OK ? nd_qnr_read_logs(run, err) : status;
}

static enum nd_status read_qnn_net_run(const struct nd_import_options *options, struct nd_imported *imported,
                                       struct nd_error *err)
{
    struct nd_qnr run = {
        .options = options, .imported = imported, .n_batch = options->batch > 0 ? options->batch : 1};
    if (options->n_paths != 1)
        return nd_fail(err, ND_E_IMPORT_OPTION, options->format, "qnn-net-run takes one folder, not %zu",
                       options->n_paths);
    enum nd_status status = read_run(&run, err);
    run_deinit(&run);
    return status;
}

const struct nd_import_reader nd_import_qnn_net_run = {
    .format = {"qnn-net-run", "FOLDER",
               "what qnn-net-run or snpe-net-run wrote: the output folder (Result_<i>/<name>.raw, "
               "<name>_native.raw), or a prepared folder with 'output' in it; types, shapes and scales from "
               "npudiff.json, --context-json, --model or --map"},
    .read = read_qnn_net_run,
};
