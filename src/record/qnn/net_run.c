/* qnn-net-run's output folder, read in the order in which a person would look at it. */
#include "record/qnn/net_run.h"

#include <ctype.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/documents/yaml_map.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "npudiff/core/parse.h"

/* What else a run leaves: how far it came, what it printed, and its profile. */

enum { MAX_LOG_BYTES = 256 << 20, MAX_HEADER_LINES = 50 };

static bool is_file(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* ---- execution_metadata.yaml ---- */

/* Unknown keys are none of ours: the schema is not public. */
static enum nd_status find_count(struct nd_yaml *yaml, const char **out, const yaml_mark_t **mark,
                                 struct nd_error *err)
{
    const yaml_node_t *root = nd_yaml_root(yaml);
    *out = NULL;
    for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top;
         pair++) {
        const yaml_node_t *key = yaml_document_get_node(&yaml->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(&yaml->document, pair->value);
        if (key->type != YAML_SCALAR_NODE ||
            strcmp((const char *)key->data.scalar.value, "inferences_completed") != 0)
            continue;
        if (*out != NULL)
            return nd_yaml_fail(yaml, &key->start_mark, err, "there is a second 'inferences_completed'");
        *out = value->type == YAML_SCALAR_NODE ? (const char *)value->data.scalar.value : "";
        *mark = &value->start_mark;
    }
    return ND_OK;
}

static enum nd_status use_count(struct nd_qnr *run, struct nd_yaml *yaml, struct nd_error *err)
{
    const char *text = NULL;
    const yaml_mark_t *mark = NULL;
    uint64_t n = 0;
    ND_TRY(find_count(yaml, &text, &mark, err));
    if (text == NULL)
        return nd_qnr_fact(run, "metadata", NULL, err, "'%s' does not state 'inferences_completed'",
                           yaml->file.path);
    if (!nd_parse_u64(text, &n))
        return nd_yaml_fail(yaml, mark, err, "'inferences_completed' is a whole number, not '%s'", text);
    if (run->n_graphs > 1)
        return nd_qnr_fact(run, "metadata", NULL, err,
                           "'inferences_completed' is %s, of %zu graphs: not compared with the folders", text,
                           run->n_graphs);
    if (n > run->n_results)
        return nd_yaml_fail(yaml, mark, err,
                            "'inferences_completed' is %s, but there are only %zu folders Result_<i>", text,
                            run->n_results);
    if (n < run->n_results)
        return nd_qnr_cut(run, (size_t)n, err,
                          "'%s' states %s inferences_completed, but there are %zu folders Result_<i>: those "
                          "from Result_%s on are left out",
                          yaml->file.path, text, run->n_results, text);
    return nd_qnr_fact(run, "metadata", NULL, err, "%s inferences completed", text);
}

static enum nd_status read_yaml(struct nd_qnr *run, const char *path, struct nd_error *err)
{
    ND_CLEANUP(nd_yaml_deinit) struct nd_yaml yaml = {0};
    const struct nd_yaml_file file = {path, "execution metadata", ND_E_QNN_STATED};
    ND_TRY(nd_yaml_read(&yaml, &file, err));
    return use_count(run, &yaml, err);
}

/* The exit code is written last: without it the run did not end. */
static enum nd_status read_exit_code(struct nd_qnr *run, struct nd_error *err)
{
    int64_t qvalue = 0;
    ND_FREED void *bytes = NULL;
    size_t n_bytes = 0;
    ND_FREED char *path = nd_path_join(run->base, "exit_code");
    ND_TRY_MEMORY(path != NULL, err);
    if (!nd_path_exists(path))
        return nd_qnr_cut(run, run->n_complete, err, "'%s' is missing: run.sh did not end", path);
    ND_TRY(nd_file_read(path, 64, &bytes, &n_bytes, err));
    ((char *)bytes)[strcspn(bytes, "\r\n")] = '\0';
    if (!nd_parse_i64(bytes, &qvalue))
        return nd_fail(err, ND_E_QNN_STATED, path, "'%s' holds no number, but '%s'", path, (char *)bytes);
    if (qvalue != 0) {
        run->imported->is_failed = true;
        ND_TRY(
            nd_qnr_cut(run, run->n_complete, err, "qnn-net-run ended with exit code %lld", (long long)qvalue));
    }
    return ND_OK;
}

/* execution_metadata.yaml and exit_code: sets n_complete and why it is less. */
static enum nd_status nd_qnr_read_metadata(struct nd_qnr *run, struct nd_error *err)
{
    ND_FREED char *own = nd_path_join(run->results, "execution_metadata.yaml");
    ND_FREED char *above = nd_path_join(run->output, "execution_metadata.yaml");
    ND_TRY_MEMORY(own != NULL && above != NULL, err);
    ND_TRY(nd_path_exists(own) ? read_yaml(run, own, err)
           : nd_path_exists(above)
               ? read_yaml(run, above, err)
               : nd_qnr_fact(run, "metadata", NULL, err, "there is no execution_metadata.yaml"));
    return run->base != NULL ? read_exit_code(run, err) : ND_OK;
}

/* ---- builds of the SDK ---- */

static bool read_build(const char *text, int64_t number[3])
{
    int n = 0;
    long long a = 0, b = 0, c = 0;
    n = sscanf(text + (text[0] == 'v'), "%6lld.%6lld.%6lld", &a, &b, &c);
    number[0] = a;
    number[1] = b;
    number[2] = c;
    return n == 3;
}

/* "... build version: v2.51.0.26..." in a log is of what ran; it loads no context that a newer one made. */
static enum nd_status check_build(struct nd_qnr *run, const char *path, const char *text, struct nd_error *err)
{
    static const char mark[] = "build version: ";
    char ran[64];
    int64_t made_by[3], ran_by[3];
    const char *made = run->context.build_id != NULL ? run->context.build_id : run->manifest.build_id;
    const char *at = strstr(text, mark);
    if (at == NULL)
        return ND_OK;
    at += sizeof mark - 1;
    snprintf(ran, sizeof ran, "%.*s", (int)(strcspn(at, " \r\n\t") < 60 ? strcspn(at, " \r\n\t") : 60), at);
    if (made == NULL || !read_build(ran, ran_by) || !read_build(made, made_by))
        return nd_qnr_fact(run, "sdk", NULL, err, "run by %s", ran);
    for (int i = 0; i < 3; i++) {
        if (ran_by[i] == made_by[i])
            continue;
        if (ran_by[i] > made_by[i])
            break;
        return nd_fail(
            err, ND_E_QNN_STATED, path,
            "'%s' says that SDK build %s ran, but the context was made by the newer %s, which it cannot load",
            path, ran, made);
    }
    return nd_qnr_fact(run, "sdk", NULL, err, "the context was made by %s, run by %s", made, ran);
}

/* ---- logs ---- */

/* Folders may have logs of one name: the second is called by its path. */
static enum nd_status keep(struct nd_qnr *run, const char *path, const char *name, const void *bytes,
                           size_t n_bytes, struct nd_error *err)
{
    for (size_t i = 0; i < run->imported->n_logs; i++)
        if (strcmp(run->imported->logs[i].name, name) == 0)
            return nd_imported_log(run->imported, path, bytes, n_bytes, err);
    return nd_imported_log(run->imported, name, bytes, n_bytes, err);
}

static enum nd_status add_text(struct nd_qnr *run, const char *path, const char *name, struct nd_error *err)
{
    ND_FREED void *bytes = NULL;
    size_t n_bytes = 0;
    ND_TRY(nd_file_read(path, MAX_LOG_BYTES, &bytes, &n_bytes, err));
    if (memchr(bytes, '\0', n_bytes) != NULL)
        ND_TRY(nd_qnr_fact(run, "logs", name, err,
                           "'%s' is binary: not stored (qnn-profile-viewer makes a CSV of it)", name));
    else {
        ND_TRY(check_build(run, path, bytes, err));
        if (n_bytes > 0)
            ND_TRY(keep(run, path, name, bytes, n_bytes, err));
    }
    return ND_OK;
}

/* The header may have lines of metadata before it. */
static bool has_header(const char *text)
{
    static const char header[] =
        "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier";
    for (int i = 0; i < MAX_HEADER_LINES && text != NULL; i++) {
        if (strncmp(text, header, sizeof header - 1) == 0)
            return true;
        text = strchr(text, '\n');
        text = text != NULL ? text + 1 : NULL;
    }
    return false;
}

static enum nd_status add_csv(struct nd_qnr *run, const char *path, const char *name, struct nd_error *err)
{
    ND_FREED void *bytes = NULL;
    size_t n_bytes = 0;
    ND_TRY(nd_file_read(path, MAX_LOG_BYTES, &bytes, &n_bytes, err));
    bool is_profile = memchr(bytes, '\0', n_bytes) == NULL && has_header(bytes), is_first = true;
    for (size_t i = 0; i < run->imported->n_logs; i++)
        is_first = is_first && strcmp(run->imported->logs[i].name, "qnn-profile") != 0;
    if (is_profile && is_first)
        ND_TRY(nd_qnr_fact(run, "profile", name, err, "'%s'", name));
    else
        ND_TRY(nd_qnr_fact(run, "profile", name, err, "'%s' %s", name,
                           is_profile ? "is a second one: stored under its own name"
                                      : "has no line 'Msg Timestamp,Message,...': no profile of QNN"));
    if (n_bytes > 0)
        ND_TRY(keep(run, path, is_profile && is_first ? "qnn-profile" : name, bytes, n_bytes, err));
    return ND_OK;
}

static enum nd_status add_logs_of(struct nd_qnr *run, const char *folder, struct nd_error *err)
{
    ND_CLEANUP(nd_qnr_files_deinit) struct nd_qnr_files files = {0};
    ND_TRY(nd_qnr_list_folder(folder, &files, err));
    for (size_t i = 0; i < files.n; i++) {
        const char *name = files.names[i];
        ND_FREED char *path = nd_path_join(folder, name);
        bool is_text = nd_stem_bytes(name, ".log") > 0 || strcmp(name, "stdout.txt") == 0 ||
                       strcmp(name, "stderr.txt") == 0;
        ND_TRY_MEMORY(path != NULL, err);
        if (is_text && !is_file(path))
            return nd_fail(err, ND_E_QNN_FOLDER, path, "'%s' is no regular file", path);
        if (is_text)
            ND_TRY(add_text(run, path, name, err));
        else if (nd_stem_bytes(name, ".csv") > 0 && is_file(path))
            ND_TRY(add_csv(run, path, name, err));
    }
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
    ND_FREE_ALL(run->top, run->base, run->output, run->results);
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
        ND_TRY(nd_qnr_agree(a, run->manifest.path, b, run->context.path, err));
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
    if (run->base != NULL) {
        ND_FREED char *path = nd_path_join(run->base, "npudiff.json");
        ND_TRY(path != NULL ? nd_qnr_read_manifest(path, &run->manifest, err) : nd_fail_memory(err));
        ND_TRY(use_manifest(run, err));
    }
    if (run->options->context_json != NULL)
        ND_TRY(nd_qnr_read_context(run->options->context_json,
                                   run->options->graph != NULL ? run->options->graph : run->graph,
                                   &run->context, err));
    return check_sources(run, err);
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
    ND_TRY(
        nd_qnr_fact(run, "names", NULL, err, "%s", run->manifest.path != NULL ? from : "names of the files"));
    ND_TRY(nd_qnr_fact(run, "samples", NULL, err, "%zu folders Result_<i>%s%s", run->n_results,
                       run->graph != NULL ? " of graph " : "", run->graph != NULL ? run->graph : ""));
    if (run->context.build_id != NULL)
        ND_TRY(nd_qnr_fact(run, "sdk", NULL, err, "the context was made by %s", run->context.build_id));
    else if (run->manifest.build_id != NULL)
        ND_TRY(nd_qnr_fact(run, "sdk", NULL, err, "the context was made by %s", run->manifest.build_id));
    return ND_OK;
}

static enum nd_status read_run(struct nd_qnr *run, struct nd_error *err)
{
    const struct nd_import_options *options = run->options;
    ND_TRY(nd_map_read(options->map, options->names, options->n_names, &run->map, err));
    ND_TRY(nd_qnr_find_folders(run, err));
    ND_TRY(read_sources(run, err));
    ND_TRY(nd_qnr_read_metadata(run, err));
    ND_TRY(state_facts(run, err));
    ND_TRY(nd_qnr_read_inputs(run, err));
    ND_TRY(nd_qnr_find_tensors(run, err));
    /* Whether names are sanitised is seen by all of them: snpe-net-run keeps ':' and the like. */
    run->imported->has_sanitised_names = run->manifest.path == NULL;
    for (size_t i = 0; i < run->n_tensors; i++)
        if (!is_sanitised(run->tensors[i].file))
            run->imported->has_sanitised_names = false;
    run->imported->keeps_unknown = true;
    ND_TRY(nd_qnr_describe(run, err));
    ND_TRY(nd_qnr_read_tensors(run, err));
    /* Logs and profiles; SDK builds that they name. */
    enum nd_status status = add_logs_of(run, run->output, err);
    if (status == ND_OK && run->graph != NULL)
        status = add_logs_of(run, run->results, err);
    return status == ND_OK && run->base != NULL ? add_logs_of(run, run->base, err) : status;
}

static enum nd_status read_qnn_net_run(const struct nd_import_options *options, struct nd_imported *imported,
                                       struct nd_error *err)
{
    ND_CLEANUP(run_deinit)
    struct nd_qnr run = {
        .options = options, .imported = imported, .n_batch = options->batch > 0 ? options->batch : 1};
    if (options->n_paths != 1)
        return nd_fail(err, ND_E_IMPORT_OPTION, options->format, "qnn-net-run takes one folder, not %zu",
                       options->n_paths);
    return read_run(&run, err);
}

const struct nd_import_reader nd_import_qnn_net_run = {
    .format = {"qnn-net-run", "FOLDER",
               "what qnn-net-run or snpe-net-run wrote: the output folder (Result_<i>/<name>.raw, "
               "<name>_native.raw), or a prepared folder with 'output' in it; types, shapes and scales from "
               "npudiff.json, --context-json, --model or --map"},
    .read = read_qnn_net_run,
};
