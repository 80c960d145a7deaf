/* The tensors of a run: what they are, and their bytes. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"
#include "record/import/imported.h"
#include "record/import/match_tensor.h"
#include "record/probes/npz.h"
#include "record/qnn/net_run.h"

/* The names in one folder of a run. */

void nd_qnr_files_deinit(struct nd_qnr_files *files)
{
    ND_FREE_ITEMS(files->names, files->n);
    *files = (struct nd_qnr_files){0};
}

static bool is_utf8(const char *name)
{
    json_auto_t *text = json_string(name); /* NULL for anything else */
    return text != NULL;
}

static enum nd_status fail_bytes(const char *folder, const char *name, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    for (const unsigned char *at = (const unsigned char *)name; *at != '\0'; at++)
        nd_strbuf_printf(&text, *at >= 0x20 && *at < 0x7f ? "%c" : "\\x%02x", *at);
    ND_FREED char *plain = nd_strbuf_take(&text);
    return nd_fail(err, ND_E_QNN_FOLDER, plain, "'%s': the name '%s' is no UTF-8", folder,
                   plain != NULL ? plain : "");
}

static enum nd_status add_name(const char *path, const char *name, struct nd_qnr_files *out,
                               struct nd_error *err)
{
    struct stat info;
    if (!is_utf8(name))
        return fail_bytes(path, name, err);
    ND_FREED char *whole = nd_path_join(path, name);
    ND_TRY_MEMORY(whole != NULL, err);
    ND_TRY_MEMORY(nd_grow((void **)&out->names, &out->capacity, out->n + 1, sizeof *out->names), err);
    if (lstat(whole, &info) != 0)
        return nd_fail(err, ND_E_FILE_READ, whole, "cannot read '%s': %s", whole, strerror(errno));
    if (S_ISLNK(info.st_mode))
        return nd_fail(err, ND_E_QNN_FOLDER, whole, "'%s' is a symbolic link, which is not followed", whole);
    ND_TRY_MEMORY((out->names[out->n] = nd_strdup(name)) != NULL, err);
    out->n++;
    return ND_OK;
}

enum nd_status nd_qnr_list_folder(const char *path, struct nd_qnr_files *out, struct nd_error *err)
{
    struct dirent *entry;
    ND_CLEANUP(nd_qnr_files_deinit) struct nd_qnr_files found = {0};
    ND_CLEANUP(nd_dir_close) DIR *folder = opendir(path);
    if (folder == NULL)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    while ((entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.')
            ND_TRY(add_name(path, entry->d_name, &found, err));
    if (found.n > 0)
        qsort(found.names, found.n, sizeof *found.names, nd_compare_texts);
    return ND_GIVE(out, found);
}

static bool nd_qnr_has_name(const struct nd_qnr_files *files, const char *name)
{
    return files->n > 0 &&
           bsearch(&name, files->names, files->n, sizeof *files->names, nd_compare_texts) != NULL;
}

/* The folders of a run: Result_<i>, several graphs, and which tensors have files in them. */

static const char result_prefix[] = "Result_";
static const char native_suffix[] = "_native.raw", sidecar_suffix[] = "_native.raw.json", raw_suffix[] = ".raw";

static bool is_folder(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* "<results>/Result_<i>/<file><suffix>"; NULL: out of memory. */
static char *nd_qnr_path(const struct nd_qnr *run, size_t result, const char *file, const char *suffix)
{
    return nd_text("%s/%s%zu/%s%s", run->results, result_prefix, result, file, suffix);
}

/* ---- results ---- */

static bool is_result(const char *name)
{
    return strncmp(name, result_prefix, sizeof result_prefix - 1) == 0;
}

static bool has_results(const char *folder, bool *has, struct nd_error *err, enum nd_status *status)
{
    ND_CLEANUP(nd_qnr_files_deinit) struct nd_qnr_files files = {0};
    *has = false;
    *status = nd_qnr_list_folder(folder, &files, err);
    for (size_t i = 0; i < files.n; i++)
        *has = *has || is_result(files.names[i]);
    return *status == ND_OK;
}

/* Result_0, Result_1, ... without a gap, none spelled otherwise. */
static enum nd_status count_results(struct nd_qnr *run, struct nd_error *err)
{
    ND_CLEANUP(nd_qnr_files_deinit) struct nd_qnr_files files = {0};
    size_t n = 0;
    uint64_t largest = 0;
    ND_TRY(nd_qnr_list_folder(run->results, &files, err));
    for (size_t i = 0; i < files.n; i++) {
        uint64_t number = 0;
        const char *text = files.names[i] + sizeof result_prefix - 1;
        if (!is_result(files.names[i]))
            continue;
        if (!isdigit((unsigned char)text[0]) || !nd_parse_u64(text, &number) ||
            (text[0] == '0' && text[1] != '\0'))
            return nd_fail(err, ND_E_QNN_FOLDER, files.names[i],
                           "'%s': '%s' is not Result_<number> as qnn-net-run writes it", run->results,
                           files.names[i]);
        largest = number > largest ? number : largest;
        n++;
    }
    for (size_t i = 0; i < files.n; i++) {
        ND_FREED char *path = nd_path_join(run->results, files.names[i]);
        ND_TRY_MEMORY(path != NULL, err);
        if (is_result(files.names[i]) && !is_folder(path))
            return nd_fail(err, ND_E_QNN_FOLDER, path, "'%s' is no folder", path);
    }
    for (size_t i = 0; i < n; i++) {
        ND_FREED char *path = nd_qnr_path(run, i, "", "");
        ND_TRY_MEMORY(path != NULL, err);
        if (!nd_path_exists(path))
            return nd_fail(err, ND_E_QNN_FOLDER, path,
                           "'%s': Result_%zu is missing: there are %zu folders up to Result_%llu", run->results,
                           i, n, (unsigned long long)largest);
    }
    if (n == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, run->results, "'%s' holds no Result_<i> of qnn-net-run",
                       run->results);
    run->n_results = run->n_complete = n;
    return ND_OK;
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
    ND_FREED char *path = nd_path_join(folder, "npudiff.json");
    *is_memory = path == NULL;
    return path != NULL && nd_path_exists(path);
}

enum nd_status nd_qnr_find_folders(struct nd_qnr *run, struct nd_error *err)
{
    bool is_memory = false;
    run->top = nd_strdup(run->options->paths[0]);
    for (size_t n = run->top != NULL ? strlen(run->top) : 0; n > 1 && run->top[n - 1] == '/'; n--)
        run->top[n - 1] = '\0';
    char *parent = run->top != NULL ? nd_path_dir(run->top) : NULL;
    ND_TRY_MEMORY(parent != NULL, err);
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
        return nd_fail(err, ND_E_IMPORT_NOTHING, run->output,
                       "'%s' is prepared, but has no folder 'output': run.sh was not run or ended before "
                       "qnn-net-run (see 'stderr.txt' there), or what it made is not here",
                       run->base);
    enum nd_status status = choose_graph(run, err);
    return status == ND_OK ? count_results(run, err) : status;
}

/* ---- tensors ---- */

static struct nd_qnr_tensor *find_tensor(const struct nd_qnr *run, const char *stem)
{
    return nd_find_text(run->tensors, run->n_tensors, sizeof *run->tensors, stem);
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
    ND_FREED char *whole = strndup(name, nd_stem_bytes(name, raw_suffix)), *stem = strndup(name, n_native);
    bool has_whole = whole != NULL && nd_qnr_find(list, whole) != NULL;
    bool has_stem = stem != NULL && nd_qnr_find(list, stem) != NULL;
    enum nd_status status = whole != NULL && stem != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && has_whole && has_stem)
        status = nd_fail(err, ND_E_QNN_FOLDER, name,
                         "'%s' may be the native '%s' or the float '%s': both are outputs", name, stem, whole);
    *is_native = !has_whole;
    return status;
}

static enum nd_status add_file(struct nd_qnr *run, const char *name, struct nd_error *err)
{
    bool is_native = false;
    size_t n_sidecar = nd_stem_bytes(name, sidecar_suffix), n_raw = nd_stem_bytes(name, raw_suffix);
    if (n_sidecar == 0 && n_raw == 0)
        return nd_qnr_fact(run, "ignored", NULL, err, "'%s' and what else is no .raw file", name);
    ND_TRY(n_sidecar > 0 ? ND_OK : is_native_of(run, name, &is_native, err));
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
    ND_CLEANUP(nd_qnr_files_deinit) struct nd_qnr_files files = {0};
    ND_FREED char *path = nd_qnr_path(run, result, "", "");
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
    return status;
}

enum nd_status nd_qnr_find_tensors(struct nd_qnr *run, struct nd_error *err)
{
    ND_CLEANUP(nd_qnr_files_deinit) struct nd_qnr_files files = {0};
    ND_FREED char *path = nd_qnr_path(run, 0, "", "");
    ND_TRY(path != NULL ? nd_qnr_list_folder(path, &files, err) : nd_fail_memory(err));
    /* What differs from folder to folder is told before what all of them lack. */
    for (size_t i = 1; i < run->n_complete; i++)
        ND_TRY(check_result(run, &files, i, err));
    for (size_t i = 0; i < files.n; i++)
        ND_TRY(add_file(run, files.names[i], err));
    if (run->n_tensors == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, path, "'%s' holds no .raw file", path);
    return connect(run, err);
}

/* Codes and the floats that a tool makes of them. */

/* The tool's own floats must be the codes' reals: a float32 rounding or two apart, no more. */
enum nd_status nd_qnr_compare_floats(const struct nd_qnr_tensor *t, const struct nd_source *source,
                                     const float *floats, const void *qvalues, size_t n, struct nd_error *err)
{
    size_t inner = nd_quant_inner(t->quant, &t->shape);
    for (size_t i = 0; i < n; i++) {
        size_t c = i / inner % t->quant->n;
        double qvalue = nd_grid_value(t->dtype, qvalues, i);
        double real = (qvalue - (double)t->quant->zero_point[c]) * (double)t->quant->scale[c];
        if (fabs((double)floats[i] - real) <= ldexp(fabs(real), -22))
            continue;
        return nd_fail(err, ND_E_QNN_VALUES, source->path,
                       "%s: element %zu of '%s' is %.9g, but its native file has quantised value %.0f, which "
                       "is %.9g (scale %.9g, zero point %lld)",
                       source->what, i, t->file, (double)floats[i], qvalue, real, (double)t->quant->scale[c],
                       (long long)t->quant->zero_point[c]);
    }
    return ND_OK;
}

/* Reals of codes are finite. */
static enum nd_status nd_qnr_check_finite(const struct nd_qnr_tensor *t, const struct nd_source *source,
                                          const float *floats, size_t n, struct nd_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(floats[i]))
            return nd_fail(err, ND_E_QNN_VALUES, source->path,
                           "%s: element %zu of '%s' is %s, which no code of it stands for", source->what, i,
                           t->file, isnan(floats[i]) ? "NaN" : "infinite");
    return ND_OK;
}

/* The name in the capture, or the one that the model is searched for. */
static const char *name_of(const struct nd_qnr_tensor *t)
{
    return t->stated != NULL && t->stated->name != NULL ? t->stated->name : t->file;
}

/* ---- what they are ---- */

static enum nd_status find_model_tensor(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    size_t tensor = 0;
    enum nd_name_method method;
    struct nd_error problem = {0};
    const struct nd_model *model = run->options->model;
    const char *mapped = t->item != NULL ? t->item->tensor : NULL;
    if (model == NULL)
        return ND_OK;
    enum nd_status status =
        nd_name_find_tensor(model, mapped != NULL ? mapped : name_of(t),
                            run->imported->has_sanitised_names && mapped == NULL, &tensor, &method, &problem);
    if (status == ND_OK)
        t->tensor = nd_model_tensor(model, tensor);
    else if (status == ND_ERR_NOT_FOUND) /* the matching says what comes of it */
        status = ND_OK;
    else if (err != NULL)
        *err = problem;
    return status;
}

static enum nd_status read_sidecar(struct nd_qnr *run, struct nd_qnr_tensor *t, size_t result,
                                   struct nd_qnr_stated *out, struct nd_error *err)
{
    enum nd_dtype known = t->stated != NULL   ? t->stated->dtype
                          : t->tensor != NULL ? t->tensor->dtype
                                              : ND_DTYPE_NONE;
    ND_FREED char *path = nd_qnr_path(run, result, t->file, "_native.raw.json");
    ND_TRY(path != NULL ? nd_qnr_read_sidecar(path, t->file, known, out, err) : nd_fail_memory(err));
    if (t->stated != NULL)
        ND_TRY(nd_qnr_agree(t->stated, run->manifest.path != NULL ? run->manifest.path : run->context.path, out,
                            path, err));
    if (t->sidecar.file != NULL && out != &t->sidecar)
        ND_TRY(nd_qnr_agree(&t->sidecar, "Result_0", out, path, err));
    return ND_OK;
}

static const char *stated_by(const struct nd_qnr *run)
{
    return run->manifest.path != NULL ? "npudiff.json" : "the context's JSON";
}

static enum nd_status find_type(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    const char *from = NULL;
    if (!t->has_native) {
        t->dtype = ND_DTYPE_F32;
        from = "float files of the tool";
    } else if (t->stated != NULL) {
        t->dtype = t->stated->dtype;
        from = stated_by(run);
    } else if (t->sidecar.dtype != ND_DTYPE_NONE) {
        t->dtype = t->sidecar.dtype;
        from = "_native.raw.json";
    } else if (t->item != NULL && t->item->dtype != ND_DTYPE_NONE) {
        t->dtype = t->item->dtype;
        from = t->item->where;
    } else if (t->tensor != NULL && t->tensor->dtype != ND_DTYPE_NONE) {
        t->dtype = t->tensor->dtype;
        from = "the model";
    } else {
        return nd_fail(err, ND_E_QNN_UNSTATED, t->file,
                       "nothing states the type of the native tensor '%s': --context-json, --model, 'dtype' in "
                       "a --map, or import a prepared folder",
                       t->file);
    }
    return nd_qnr_fact(run, "types", name_of(t), err, "%s", from);
}

/* Whether moving channels moves data. */
static bool is_movable(const struct nd_shape *shape)
{
    int64_t inner = 1;
    for (int d = 2; d < shape->rank; d++)
        inner *= shape->dims[d] > 1 ? 2 : 1;
    return shape->rank > 2 && shape->dims[1] > 1 && inner > 1;
}

static enum nd_status fail_layout(const struct nd_qnr_tensor *t, struct nd_error *err)
{
    char shape[128];
    return nd_fail(err, ND_E_QNN_UNSTATED, t->file,
                   "nothing states the layout of '%s': with shape %s channels may be second or last; --layout "
                   "NCHW or NHWC says it, or 'layout' in a --map",
                   t->file, nd_shape_format(&t->shape, shape, sizeof shape));
}

/* Dimensions that are stated, against those of the model. */
static enum nd_status compare_layouts(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    if (t->tensor == NULL || t->tensor->shape.rank < 0)
        return nd_qnr_fact(run, "layout", NULL, err, "not stated: as the dimensions are");
    struct nd_shape moved = nd_layout_channels_last(&t->tensor->shape);
    bool is_equal = nd_shape_equal(&t->shape, &t->tensor->shape), is_moved = nd_shape_equal(&t->shape, &moved);
    if (is_equal && is_moved && is_movable(&t->tensor->shape))
        return fail_layout(t, err);
    t->is_channel_last = is_moved && !is_equal;
    return nd_qnr_fact(run, "layout", t->is_channel_last ? name_of(t) : NULL, err,
                       "dimensions against the model's%s", t->is_channel_last ? ": channels last, moved" : "");
}

static enum nd_status find_layout(struct nd_qnr *run, struct nd_qnr_tensor *t, bool is_of_model,
                                  struct nd_error *err)
{
    bool is_mapped = t->item != NULL && t->item->layout_rank > 0;
    bool is_last = is_mapped ? t->item->is_channel_last
                             : run->options->layout != NULL && strcmp(run->options->layout, "NHWC") == 0;
    if (t->stated != NULL && t->stated->is_model_layout)
        return nd_qnr_fact(run, "layout", NULL, err, "%s", stated_by(run));
    if (is_mapped || run->options->layout != NULL) {
        if (is_last && is_of_model && t->shape.rank > 2)
            t->shape = nd_layout_channels_last(&t->shape);
        t->is_channel_last = is_last && !is_mapped && t->shape.rank > 2;
        return is_mapped ? ND_OK : nd_qnr_fact(run, "layout", NULL, err, "--layout");
    }
    if (!is_of_model)
        return compare_layouts(run, t, err);
    return is_movable(&t->shape) ? fail_layout(t, err)
                                 : nd_qnr_fact(run, "layout", NULL, err, "the shape allows but one");
}

static enum nd_status assume_shape(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    ND_FREED char *path = nd_qnr_path(run, 0, t->file, ".raw");
    ND_TRY(path != NULL ? nd_source_open(&source, path, err) : nd_fail_memory(err));
    if (source.size_bytes % (sizeof(float) * run->n_batch) != 0)
        return nd_fail(err, ND_E_QNN_SIZE, path, "'%s' has %zu bytes, which are no whole float32", path,
                       source.size_bytes);
    t->shape = (struct nd_shape){1, {(int64_t)(source.size_bytes / sizeof(float) / run->n_batch)}};
    return nd_qnr_fact(run, "shapes", name_of(t), err, "not stated: --assume float32, one dimension");
}

static enum nd_status find_shape(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    const char *from = stated_by(run);
    bool is_of_model = false;
    if (t->stated != NULL && t->stated->shape.rank >= 0) {
        t->shape = t->stated->shape;
    } else if (t->sidecar.file != NULL && t->sidecar.shape.rank >= 0) {
        t->shape = t->sidecar.shape;
        from = "_native.raw.json";
    } else if (t->tensor != NULL && t->tensor->shape.rank >= 0) {
        t->shape = t->tensor->shape;
        from = "the model";
        is_of_model = true;
    } else if (run->options->assumes_float32 && t->dtype == ND_DTYPE_F32 && !t->has_native)
        return assume_shape(run, t, err);
    else
        return nd_fail(
            err, ND_E_QNN_UNSTATED, t->file,
            "nothing states the shape of '%s': --context-json or --model does, or import a prepared folder%s",
            t->file, t->has_native ? "" : "; --assume float32 takes it as it is");
    ND_TRY(find_layout(run, t, is_of_model, err));
    return nd_qnr_fact(run, "shapes", name_of(t), err, "%s", from);
}

static enum nd_status describe(struct nd_qnr *run, struct nd_qnr_tensor *t, struct nd_error *err)
{
    static float one = 1;
    static int64_t zero = 0;
    static const struct nd_quant as_they_are = {1, -1, &one, &zero};
    t->item = nd_map_find(&run->map, ND_IMPORTED_OUTPUT, name_of(t));
    if (t->item != NULL && t->item->is_skipped)
        return ND_OK;
    ND_TRY(find_model_tensor(run, t, err));
    if (t->has_sidecar)
        ND_TRY(read_sidecar(run, t, 0, &t->sidecar, err));
    ND_TRY(find_type(run, t, err));
    ND_TRY(find_shape(run, t, err));
    if (t->dtype == ND_DTYPE_BOOL)
        t->quant = &as_they_are;
    else if (t->stated != NULL && t->stated->quant.n > 0)
        t->quant = &t->stated->quant;
    else if (t->sidecar.quant.n > 0)
        t->quant = &t->sidecar.quant;
    else if (t->item != NULL && t->item->quant.n == 1)
        t->quant = &t->item->quant;
    else if (t->tensor != NULL && t->tensor->quant.n == 1)
        t->quant = &t->tensor->quant;
    return ND_OK;
}

enum nd_status nd_qnr_describe(struct nd_qnr *run, struct nd_error *err)
{
    for (size_t i = 0; i < run->n_tensors; i++)
        ND_TRY(describe(run, &run->tensors[i], err));
    return ND_OK;
}

/* ---- their bytes ---- */

static enum nd_status fail_size(const struct nd_qnr_tensor *t, const struct nd_source *source,
                                enum nd_dtype dtype, size_t n_bytes, struct nd_error *err)
{
    char shape[128], hint[96] = "";
    size_t n_elems = n_bytes / nd_dtype_size_bytes(dtype);
    if (source->size_bytes == 0)
        snprintf(hint, sizeof hint, ": it is empty");
    else if (source->size_bytes == n_elems * sizeof(float) && dtype != ND_DTYPE_F32)
        snprintf(hint, sizeof hint, ": it has the size of float32");
    else if (n_bytes > 0 && source->size_bytes % n_bytes == 0)
        snprintf(hint, sizeof hint, ": it may hold %zu samples (--batch)", source->size_bytes / n_bytes);
    return nd_fail(err, ND_E_QNN_SIZE, source->path, "%s has %zu bytes, but '%s', %s %s, takes %zu%s",
                   source->what, source->size_bytes, t->file, nd_dtype_name(dtype),
                   nd_shape_format(&t->shape, shape, sizeof shape), n_bytes, hint);
}

/* A file of n_batch samples. The caller closes the source on success. */
static enum nd_status open_file(const struct nd_qnr *run, const struct nd_qnr_tensor *t, size_t result,
                                bool is_native, struct nd_source *out, struct nd_error *err)
{
    size_t n_bytes = 0, n_all = 0;
    enum nd_dtype dtype = is_native ? t->dtype : ND_DTYPE_F32;
    ND_FREED char *path = nd_qnr_path(run, result, t->file, is_native ? "_native.raw" : ".raw");
    ND_TRY_MEMORY(path != NULL, err);
    ND_TRY(nd_shape_size_bytes(&t->shape, dtype, &n_bytes, err));
    if (!nd_size_mul(n_bytes, run->n_batch, &n_all))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, path, "'%s': %zu samples are too many", path, run->n_batch);
    ND_TRY(nd_source_open(out, path, err));
    if (out->size_bytes == n_all)
        return ND_OK;
    enum nd_status status = fail_size(t, out, dtype, n_all, err);
    nd_source_close(out);
    return status;
}

static enum nd_status check_floats(struct nd_qnr *run, const struct nd_qnr_tensor *t, size_t result,
                                   const void *qvalues, struct nd_error *err)
{
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    ND_TRY(open_file(run, t, result, false, &source, err));
    size_t n = source.size_bytes / sizeof(float);
    ND_FREED float *floats = nd_tensor_alloc(source.size_bytes);
    ND_TRY(floats != NULL ? nd_source_read(&source, floats, source.size_bytes, err) : nd_fail_memory(err));
    if (t->quant != NULL && (nd_dtype_is_integer(t->dtype) || t->dtype == ND_DTYPE_BOOL))
        ND_TRY(nd_qnr_compare_floats(t, &source, floats, qvalues, n, err));
    else
        ND_TRY(nd_qnr_fact(run, "float files", t->file, err,
                           "not compared with the native ones: the scale is not known"));
    return ND_OK;
}

/* The samples of a file, as they are to be stored. */
static enum nd_status take_samples(struct nd_qnr *run, const struct nd_qnr_tensor *t, size_t result,
                                   const char *what, const unsigned char *bytes, struct nd_error *err)
{
    size_t n_bytes = 0;
    ND_TRY(nd_shape_size_bytes(&t->shape, t->dtype, &n_bytes, err));
    for (size_t b = 0; b < run->n_batch; b++) {
        void *data = NULL;
        const void *from = bytes + b * n_bytes;
        const struct nd_imported_new sample = {ND_IMPORTED_OUTPUT, name_of(t), what,
                                               t->dtype,           t->shape,   result * run->n_batch + b};
        ND_TRY(nd_imported_add(run->imported, &sample, &data, err));
        if (n_bytes > 0)
            memcpy(data, from, n_bytes);
    }
    return ND_OK;
}

static enum nd_status read_file(struct nd_qnr *run, struct nd_qnr_tensor *t, size_t result,
                                struct nd_error *err)
{
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    ND_CLEANUP(nd_qnr_stated_deinit) struct nd_qnr_stated sidecar = {0};
    if (t->has_sidecar && result > 0)
        ND_TRY(read_sidecar(run, t, result, &sidecar, err));
    ND_TRY(open_file(run, t, result, t->has_native, &source, err));
    /* The native file counts; a float one beside it is held against it. */
    ND_FREED unsigned char *bytes = nd_tensor_alloc(source.size_bytes);
    ND_TRY(bytes != NULL ? nd_source_read(&source, bytes, source.size_bytes, err) : nd_fail_memory(err));
    if (!t->has_native && t->quant != NULL)
        ND_TRY(nd_qnr_check_finite(t, &source, (const float *)(const void *)bytes,
                                   source.size_bytes / sizeof(float), err));
    if (t->has_native && t->has_float)
        ND_TRY(check_floats(run, t, result, bytes, err));
    return take_samples(run, t, result, source.what, bytes, err);
}

enum nd_status nd_qnr_read_tensors(struct nd_qnr *run, struct nd_error *err)
{
    for (size_t i = 0; i < run->n_tensors; i++) {
        struct nd_qnr_tensor *t = &run->tensors[i];
        if (t->item != NULL && t->item->is_skipped)
            continue;
        for (size_t r = 0; r < run->n_complete; r++)
            ND_TRY(read_file(run, t, r, err));
        struct nd_imported_tensor *made = nd_imported_find(run->imported, ND_IMPORTED_OUTPUT, name_of(t));
        if (made == NULL)
            continue;
        made->is_channel_last = t->is_channel_last;
        bool is_stated = t->quant != NULL && (t->stated != NULL ? t->quant == &t->stated->quant : false);
        is_stated = is_stated || (t->quant != NULL && t->quant == &t->sidecar.quant);
        if (is_stated)
            ND_TRY(nd_imported_set_quant(made, t->quant, err));
        if (t->has_native || t->quant == NULL)
            continue;
        made->qvalues = t->stated != NULL   ? t->stated->dtype
                        : t->tensor != NULL ? t->tensor->dtype
                                            : ND_DTYPE_NONE;
        ND_TRY(nd_qnr_fact(run, "quantisation", name_of(t), err,
                           "reals of quantised values, as the tool dequantised them"));
    }
    return ND_OK;
}
