/* The folders of a run: Result_<i>, several graphs, and which tensors have files in them. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "core/files/suffix.h"
#include "npudiff/core/parse.h"
#include "record/qnn/net_run.h"

static const char result_prefix[] = "Result_";
static const char native_suffix[] = "_native.raw", sidecar_suffix[] = "_native.raw.json", raw_suffix[] = ".raw";

static bool is_folder(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *nd_qnr_path(const struct nd_qnr *run, size_t result, const char *file, const char *suffix)
{
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s/%s%zu/%s%s", run->results, result_prefix, result, file, suffix);
    return nd_strbuf_take(&text);
}

/* ---- results ---- */

static bool is_result(const char *name)
{
    return strncmp(name, result_prefix, sizeof result_prefix - 1) == 0;
}

static bool has_results(const char *folder, bool *has, struct nd_error *err, enum nd_status *status)
{
    struct nd_qnr_files files = {0};
    *has = false;
    *status = nd_qnr_list_folder(folder, &files, err);
    for (size_t i = 0; i < files.n; i++)
        *has = *has || is_result(files.names[i]);
    nd_qnr_files_deinit(&files);
    return *status == ND_OK;
}

/* Result_0, Result_1, ... without a gap, none spelled otherwise. */
static enum nd_status count_results(struct nd_qnr *run, struct nd_error *err)
{
    struct nd_qnr_files files = {0};
    size_t n = 0;
    uint64_t largest = 0;
    enum nd_status status = nd_qnr_list_folder(run->results, &files, err);
    for (size_t i = 0; status == ND_OK && i < files.n; i++) {
        uint64_t number = 0;
        const char *text = files.names[i] + sizeof result_prefix - 1;
        if (!is_result(files.names[i]))
            continue;
        if (!isdigit((unsigned char)text[0]) || !nd_parse_u64(text, &number) ||
            (text[0] == '0' && text[1] != '\0'))
            status = nd_fail(err, ND_E_QNN_FOLDER, files.names[i],
                             "'%s': '%s' is not Result_<number> as qnn-net-run writes it", run->results,
                             files.names[i]);
        largest = number > largest ? number : largest;
        n++;
    }
    for (size_t i = 0; status == ND_OK && i < files.n; i++) {
        char *path = nd_path_join(run->results, files.names[i]);
        if (path == NULL)
            status = nd_fail_memory(err);
        else if (is_result(files.names[i]) && !is_folder(path))
            status = nd_fail(err, ND_E_QNN_FOLDER, path, "'%s' is no folder", path);
        free(path);
    }
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        char *path = nd_qnr_path(run, i, "", "");
        if (path == NULL)
            status = nd_fail_memory(err);
        else if (!nd_path_exists(path))
            status = nd_fail(err, ND_E_QNN_FOLDER, path,
                             "'%s': Result_%zu is missing: there are %zu folders up to Result_%llu",
                             run->results, i, n, (unsigned long long)largest);
        free(path);
    }
    if (status == ND_OK && n == 0)
        status = nd_fail(err, ND_E_IMPORT_NOTHING, run->results, "'%s' holds no Result_<i> of qnn-net-run",
                         run->results);
    nd_qnr_files_deinit(&files);
    run->n_results = run->n_complete = n;
    return status;
}

/* Results lie in output itself, or in one folder for each graph. */
static enum nd_status choose_graph(struct nd_qnr *run, struct nd_error *err)
{
    struct nd_qnr_files files = {0};
    struct nd_strbuf names = {0};
    bool has = false;
    const char *wanted = run->options->graph;
    enum nd_status status = ND_OK;
    if (!has_results(run->output, &has, err, &status))
        return status;
    if (!has)
        status = nd_qnr_list_folder(run->output, &files, err);
    for (size_t i = 0; status == ND_OK && i < files.n; i++) {
        char *path = nd_path_join(run->output, files.names[i]);
        if (path == NULL)
            status = nd_fail_memory(err);
        else if (is_folder(path) && has_results(path, &has, err, &status) && has) {
            nd_strbuf_printf(&names, "%s'%s'", run->n_graphs > 0 ? ", " : "", files.names[i]);
            run->n_graphs++;
            if (run->results == NULL || (wanted != NULL && strcmp(files.names[i], wanted) == 0)) {
                free(run->results);
                run->results = nd_strdup(path);
                if (run->results == NULL)
                    status = nd_fail_memory(err);
            }
        }
        free(path);
    }
    bool is_found = run->results != NULL && (wanted == NULL || strcmp(nd_path_base(run->results), wanted) == 0);
    char *list = nd_strbuf_take(&names);
    if (status == ND_OK && run->n_graphs > 0 && wanted != NULL && !is_found)
        status = nd_fail(err, ND_E_IMPORT_NOTHING, wanted, "'%s' has no results of graph '%s', only of %s",
                         run->output, wanted, list);
    if (status == ND_OK && run->n_graphs > 1 && wanted == NULL)
        status = nd_fail(err, ND_E_IMPORT_OPTION, run->output,
                         "'%s' holds several graphs; --graph says which: %s", run->output, list);
    free(list);
    nd_qnr_files_deinit(&files);
    if (status == ND_OK && run->results != NULL)
        run->graph = nd_path_base(run->results);
    else if (status == ND_OK && (run->results = nd_strdup(run->output)) == NULL)
        status = nd_fail_memory(err);
    return status;
}

static bool has_manifest(const char *folder, bool *is_memory)
{
    char *path = nd_path_join(folder, "npudiff.json");
    *is_memory = path == NULL;
    bool exists = path != NULL && nd_path_exists(path);
    free(path);
    return exists;
}

enum nd_status nd_qnr_find_folders(struct nd_qnr *run, struct nd_error *err)
{
    bool is_memory = false;
    run->top = nd_strdup(run->options->paths[0]);
    for (size_t n = run->top != NULL ? strlen(run->top) : 0; n > 1 && run->top[n - 1] == '/'; n--)
        run->top[n - 1] = '\0';
    char *parent = run->top != NULL ? nd_path_dir(run->top) : NULL;
    if (parent == NULL)
        return nd_fail_memory(err);
    if (has_manifest(run->top, &is_memory)) {
        run->base = nd_strdup(run->top);
        run->output = nd_path_join(run->top, "output");
    } else {
        run->output = nd_strdup(run->top);
        if (strcmp(nd_path_base(run->top), "output") == 0 && has_manifest(parent, &is_memory))
            run->base = nd_strdup(parent);
    }
    free(parent);
    if (is_memory || run->output == NULL)
        return nd_fail_memory(err);
    if (run->base != NULL && !is_folder(run->output))
        return nd_fail(
            err, ND_E_IMPORT_NOTHING, run->output,
            "'%s' is prepared, but has no folder 'output': run.sh was not run or ended before qnn-net-run (see "
            "'stderr.txt' there), or what it made is not here",
            run->base);
    enum nd_status status = choose_graph(run, err);
    return status == ND_OK ? count_results(run, err) : status;
}

/* ---- tensors ---- */

static struct nd_qnr_tensor *find_tensor(const struct nd_qnr *run, const char *stem)
{
    for (size_t i = 0; i < run->n_tensors; i++)
        if (strcmp(run->tensors[i].file, stem) == 0)
            return &run->tensors[i];
    return NULL;
}

static const struct nd_qnr_list *stated_outputs(const struct nd_qnr *run)
{
    return run->manifest.path != NULL  ? &run->manifest.outputs
           : run->context.path != NULL ? &run->context.outputs
                                       : NULL;
}

/* Whether the name, less "_native", is what is stated; x and x_native both stated leave nothing certain. */
static enum nd_status is_native_of(const struct nd_qnr *run, const char *name, bool *is_native,
                                   struct nd_error *err)
{
    const struct nd_qnr_list *list = stated_outputs(run);
    size_t n_native = nd_stem_bytes(name, native_suffix);
    *is_native = n_native > 0;
    if (n_native == 0 || list == NULL)
        return ND_OK;
    char *whole = strndup(name, nd_stem_bytes(name, raw_suffix)), *stem = strndup(name, n_native);
    bool has_whole = whole != NULL && nd_qnr_find(list, whole) != NULL;
    bool has_stem = stem != NULL && nd_qnr_find(list, stem) != NULL;
    enum nd_status status = whole != NULL && stem != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && has_whole && has_stem)
        status = nd_fail(err, ND_E_QNN_FOLDER, name,
                         "'%s' may be the native '%s' or the float '%s': both are outputs", name, stem, whole);
    *is_native = !has_whole;
    free(whole);
    free(stem);
    return status;
}

static enum nd_status add_file(struct nd_qnr *run, const char *name, struct nd_error *err)
{
    bool is_native = false;
    size_t n_sidecar = nd_stem_bytes(name, sidecar_suffix), n_raw = nd_stem_bytes(name, raw_suffix);
    if (n_sidecar == 0 && n_raw == 0)
        return nd_qnr_fact(run, "ignored", NULL, err, "'%s' and what else is no .raw file", name);
    enum nd_status status = n_sidecar > 0 ? ND_OK : is_native_of(run, name, &is_native, err);
    if (status != ND_OK)
        return status;
    size_t n = n_sidecar > 0 ? n_sidecar : is_native ? nd_stem_bytes(name, native_suffix) : n_raw;
    char *stem = strndup(name, n);
    struct nd_qnr_tensor *tensor = stem != NULL ? find_tensor(run, stem) : NULL;
    if (stem == NULL || (tensor == NULL && !nd_grow((void **)&run->tensors, &run->tensors_capacity,
                                                    run->n_tensors + 1, sizeof *run->tensors))) {
        free(stem);
        return nd_fail_memory(err);
    }
    if (tensor == NULL) {
        tensor = &run->tensors[run->n_tensors++];
        *tensor = (struct nd_qnr_tensor){.file = stem};
    } else {
        free(stem);
    }
    tensor->has_sidecar = tensor->has_sidecar || n_sidecar > 0;
    tensor->has_native = tensor->has_native || is_native;
    tensor->has_float = tensor->has_float || (n_sidecar == 0 && !is_native);
    return ND_OK;
}

/* "Output_3" is the fourth output where that has no name. */
static const struct nd_qnr_stated *find_unnamed(const struct nd_qnr_list *list, const char *file)
{
    uint64_t k = 0;
    if (strncmp(file, "Output_", 7) != 0 || !nd_parse_u64(file + 7, &k) || k >= list->n)
        return NULL;
    return list->items[k].file[0] == '\0' ? &list->items[k] : NULL;
}

/* Every file is stated, and every output that is stated has one. */
static enum nd_status connect(struct nd_qnr *run, struct nd_error *err)
{
    const struct nd_qnr_list *list = stated_outputs(run);
    const char *from = run->manifest.path != NULL ? run->manifest.path : run->context.path;
    for (size_t i = 0; i < run->n_tensors && list != NULL; i++) {
        struct nd_qnr_tensor *t = &run->tensors[i];
        t->stated = nd_qnr_find(list, t->file);
        if (t->stated == NULL)
            t->stated = find_unnamed(list, t->file);
        if (t->stated == NULL)
            return nd_fail(err, ND_E_QNN_FOLDER, t->file,
                           "Result_0 has files of '%s', which is no output in '%s'", t->file, from);
    }
    for (size_t i = 0; list != NULL && i < list->n; i++) {
        bool is_there = false;
        for (size_t k = 0; k < run->n_tensors; k++)
            is_there = is_there || run->tensors[k].stated == &list->items[i];
        if (!is_there)
            return nd_fail(err, ND_E_QNN_FOLDER, list->items[i].file,
                           "Result_0 has no file of '%s', which '%s' has as an output", list->items[i].file,
                           from);
    }
    for (size_t i = 0; i < run->n_tensors; i++)
        if (!run->tensors[i].has_float && !run->tensors[i].has_native)
            return nd_fail(err, ND_E_QNN_FOLDER, run->tensors[i].file, "Result_0 has '%s%s', but no '%s%s'",
                           run->tensors[i].file, sidecar_suffix, run->tensors[i].file, native_suffix);
    return ND_OK;
}

static const char *first_lacking(const struct nd_qnr_files *of, const struct nd_qnr_files *in)
{
    for (size_t i = 0; i < of->n; i++)
        if (!nd_qnr_has_name(in, of->names[i]) &&
            (nd_stem_bytes(of->names[i], raw_suffix) > 0 || nd_stem_bytes(of->names[i], sidecar_suffix) > 0))
            return of->names[i];
    return NULL;
}

static enum nd_status check_result(struct nd_qnr *run, const struct nd_qnr_files *first, size_t result,
                                   struct nd_error *err)
{
    struct nd_qnr_files files = {0};
    char *path = nd_qnr_path(run, result, "", "");
    enum nd_status status = path != NULL ? nd_qnr_list_folder(path, &files, err) : nd_fail_memory(err);
    const char *missing = status == ND_OK ? first_lacking(first, &files) : NULL;
    const char *extra = status == ND_OK ? first_lacking(&files, first) : NULL;
    if (missing != NULL && extra != NULL)
        status = nd_fail(err, ND_E_QNN_FOLDER, path,
                         "Result_%zu has no '%s', which Result_0 has; it has '%s', which Result_0 lacks",
                         result, missing, extra);
    else if (missing != NULL)
        status =
            nd_fail(err, ND_E_QNN_FOLDER, path, "Result_%zu has no '%s', which Result_0 has", result, missing);
    else if (extra != NULL)
        status =
            nd_fail(err, ND_E_QNN_FOLDER, path, "Result_%zu has '%s', which Result_0 lacks", result, extra);
    for (size_t i = 0; status == ND_OK && i < files.n; i++)
        if (nd_stem_bytes(files.names[i], raw_suffix) == 0 &&
            nd_stem_bytes(files.names[i], sidecar_suffix) == 0)
            status = nd_qnr_fact(run, "ignored", NULL, err, "'%s' of Result_%zu and what else is no .raw file",
                                 files.names[i], result);
    nd_qnr_files_deinit(&files);
    free(path);
    return status;
}

enum nd_status nd_qnr_find_tensors(struct nd_qnr *run, struct nd_error *err)
{
    struct nd_qnr_files files = {0};
    char *path = nd_qnr_path(run, 0, "", "");
    enum nd_status status = path != NULL ? nd_qnr_list_folder(path, &files, err) : nd_fail_memory(err);
    /* What differs from folder to folder is told before what all of them lack. */
    for (size_t i = 1; status == ND_OK && i < run->n_complete; i++)
        status = check_result(run, &files, i, err);
    for (size_t i = 0; status == ND_OK && i < files.n; i++)
        status = add_file(run, files.names[i], err);
    if (status == ND_OK && run->n_tensors == 0)
        status = nd_fail(err, ND_E_IMPORT_NOTHING, path, "'%s' holds no .raw file", path);
    if (status == ND_OK)
        status = connect(run, err);
    nd_qnr_files_deinit(&files);
    free(path);
    return status;
}
