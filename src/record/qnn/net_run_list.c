/* What an input list says was fed to a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "record/import/edge_names.h"
#include "record/import/sample_layout.h"
#include "record/probes/source.h"
#include "record/qnn/net_run.h"

enum { MAX_LIST_BYTES = 256 << 20 };

/* One input of one inference. */
struct item {
    size_t line;  /* of the file, from 1 */
    size_t index; /* of the inference, from 0 */
    char *name;   /* "" without one */
    char *path;
};

struct list {
    char *file;
    size_t n, capacity, n_lines;
    struct item *items;
};

static void list_deinit(struct list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->items[i].name);
        free(list->items[i].path);
    }
    free(list->items);
    free(list->file);
}

/* ---- the grammar ---- */

static enum nd_status add_item(struct list *list, size_t line, const char *text, size_t n, struct nd_error *err)
{
    char *whole = strndup(text, n);
    char *mark = whole != NULL ? strstr(whole, ":=") : NULL;
    enum nd_status status = ND_OK;
    if (whole == NULL || !nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items)) {
        free(whole);
        return nd_fail_memory(err);
    }
    struct item item = {.line = line, .index = list->n_lines};
    if (mark != NULL && strstr(mark + 2, ":=") != NULL)
        status = nd_fail(err, ND_E_QNN_STATED, whole, "'%s':%zu: '%s' has two ':='", list->file, line, whole);
    else if (mark != NULL && (mark == whole || mark[2] == '\0'))
        status = nd_fail(err, ND_E_QNN_STATED, whole, "'%s':%zu: '%s' has no %s", list->file, line, whole,
                         mark == whole ? "name before ':='" : "path behind ':='");
    if (status == ND_OK) {
        item.name = mark != NULL ? strndup(whole, (size_t)(mark - whole)) : nd_strdup("");
        item.path = nd_strdup(mark != NULL ? mark + 2 : whole);
        list->items[list->n++] = item;
        if (item.name == NULL || item.path == NULL)
            status = nd_fail_memory(err);
    }
    free(whole);
    return status;
}

/* All lines feed the same inputs; several have names. */
static enum nd_status check_line(const struct list *list, size_t first, size_t line, struct nd_error *err)
{
    size_t n = list->n - first, n_expected = 0;
    while (n_expected < list->n && list->items[n_expected].index == 0)
        n_expected++;
    if (n != n_expected)
        return nd_fail(err, ND_E_QNN_STATED, list->file,
                       "'%s':%zu has %zu inputs, but the first inference has %zu", list->file, line, n,
                       n_expected);
    for (size_t i = first; i < list->n; i++) {
        bool is_known = false;
        if (n > 1 && list->items[i].name[0] == '\0')
            return nd_fail(err, ND_E_QNN_STATED, list->items[i].path,
                           "'%s':%zu: several inputs need names: 'name:=%s'", list->file, line,
                           list->items[i].path);
        for (size_t k = 0; k < n_expected; k++)
            is_known = is_known || strcmp(list->items[k].name, list->items[i].name) == 0;
        for (size_t k = first; k < i; k++)
            is_known = is_known && strcmp(list->items[k].name, list->items[i].name) != 0;
        if (!is_known)
            return nd_fail(err, ND_E_QNN_STATED, list->items[i].name,
                           "'%s':%zu: input '%s' is there twice, or not fed by the first inference", list->file,
                           line, list->items[i].name);
    }
    return ND_OK;
}

static enum nd_status parse(struct list *list, const char *text, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t line = 1; status == ND_OK && *text != '\0'; line++) {
        size_t n = strcspn(text, "\n"), first = list->n;
        bool is_comment = text[0] == '#' || text[0] == '%';
        for (size_t at = 0; status == ND_OK && !is_comment && at < n;) {
            at += strspn(text + at, " \t\r");
            size_t length = strcspn(text + at, " \t\r\n");
            if (at < n && length > 0)
                status = add_item(list, line, text + at, length, err);
            at += length;
        }
        if (status == ND_OK && list->n > first)
            status = check_line(list, first, line, err);
        list->n_lines += list->n > first;
        text += n + (text[n] == '\n');
    }
    return status;
}

static enum nd_status read_list(const char *path, struct list *out, struct nd_error *err)
{
    void *bytes = NULL;
    size_t n_bytes = 0;
    enum nd_status status = nd_file_read(path, MAX_LIST_BYTES, &bytes, &n_bytes, err);
    if (status != ND_OK)
        return status;
    out->file = nd_strdup(path);
    if (out->file == NULL)
        status = nd_fail_memory(err);
    else if (memchr(bytes, '\0', n_bytes) != NULL)
        status = nd_fail(err, ND_E_QNN_STATED, path, "'%s' is no input list: it holds a NUL", path);
    else
        status = parse(out, bytes, err);
    free(bytes);
    if (status == ND_OK && out->n_lines == 0)
        status = nd_fail(err, ND_E_QNN_STATED, path, "'%s' lists no inference", path);
    return status;
}

enum nd_status nd_qnr_check_number(struct nd_qnr *run, const char *from, size_t n, struct nd_error *err)
{
    if (n < run->n_results)
        return nd_fail(err, ND_E_QNN_STATED, from,
                       "'%s' lists %zu inferences, but there are %zu folders: Result_%zu is of none of them",
                       from, n, run->n_results, n);
    return n > run->n_results ? nd_qnr_cut(run, run->n_complete, err,
                                           "of %zu inferences in '%s' only %zu have a folder Result_<i>", n,
                                           from, run->n_results)
                              : ND_OK;
}

void nd_qnr_drop_inputs(struct nd_imported *imported)
{
    struct nd_imported spare = {.sides[ND_IMPORTED_INPUT] = imported->sides[ND_IMPORTED_INPUT]};
    imported->sides[ND_IMPORTED_INPUT] = (struct nd_imported_list){0};
    nd_imported_deinit(&spare);
}

/* ---- inputs of a list ---- */

/* What an input is: of the context, else of the model. false: nothing says. */
static bool find_input(const struct nd_qnr *run, const char *name, struct nd_qnr_stated *out,
                       const struct nd_model_io **io)
{
    size_t at = 0;
    enum nd_name_way way;
    const struct nd_model *model = run->options->model;
    const struct nd_qnr_stated *stated = nd_qnr_find(&run->context.inputs, name);
    bool is_only = name[0] == '\0';
    *io = NULL;
    if (is_only && run->context.inputs.n == 1)
        stated = &run->context.inputs.items[0];
    if (model != NULL && is_only && nd_model_n_inputs(model) == 1)
        *io = nd_model_input(model, 0);
    else if (model != NULL && nd_name_find_input(model, name, true, &at, &way, NULL) == ND_OK)
        *io = nd_model_input(model, at);
    if (stated != NULL)
        *out = *stated;
    else if (*io != NULL && nd_shape_n_elems(&(*io)->shape, &at, NULL) == ND_OK)
        *out =
            (struct nd_qnr_stated){.file = (char *)(*io)->name, .dtype = (*io)->dtype, .shape = (*io)->shape};
    else
        return false;
    return true;
}

/* Whether the dimensions of the file are the model's or those with channels last; else it is uncertain. */
static bool find_order(const struct nd_qnr_stated *stated, const struct nd_model_io *io, bool *is_last)
{
    *is_last = false;
    if (io == NULL)
        return true;
    struct nd_shape moved = nd_layout_channels_last(&io->shape);
    bool is_equal = nd_shape_equal(&stated->shape, &io->shape),
         is_moved = nd_shape_equal(&stated->shape, &moved);
    *is_last = is_moved && !is_equal;
    return is_equal != is_moved || io->shape.rank < 3 || io->shape.dims[1] == 1;
}

static enum nd_status add_input(struct nd_qnr *run, const char *name, const struct nd_qnr_stated *stated,
                                struct nd_source *source, size_t index, struct nd_error *err)
{
    char shape[128];
    void *data = NULL;
    size_t n_elems = 0, n_native = 0;
    enum nd_status status = nd_shape_size_bytes(&stated->shape, stated->dtype, &n_native, err);
    if (status == ND_OK)
        status = nd_shape_n_elems(&stated->shape, &n_elems, err);
    if (status != ND_OK)
        return status;
    enum nd_dtype dtype = source->size_bytes == n_native ? stated->dtype : ND_DTYPE_F32;
    if (source->size_bytes != n_native && source->size_bytes != n_elems * sizeof(float))
        return nd_fail(err, ND_E_QNN_SIZE, source->path, "%s has %zu bytes, but input '%s', %s %s, takes %zu",
                       source->what, source->size_bytes, name, nd_dtype_name(stated->dtype),
                       nd_shape_format(&stated->shape, shape, sizeof shape), n_native);
    const struct nd_imported_new sample = {ND_IMPORTED_INPUT, name, source->what, dtype, stated->shape, index};
    status = nd_imported_add(run->imported, &sample, &data, err);
    return status == ND_OK ? nd_source_read(source, data, source->size_bytes, err) : status;
}

/* Whether all inputs of the list can be stored: known, there, and of a type that the model takes. */
static bool can_store(const struct nd_qnr *run, const struct list *list, char why[400])
{
    bool is_last = false;
    for (size_t i = 0; i < list->n && list->items[i].index < run->n_complete; i++) {
        struct nd_qnr_stated stated;
        const struct nd_model_io *io = NULL;
        const struct item *item = &list->items[i];
        char *folder = nd_path_dir(list->file),
             *path = folder != NULL ? nd_path_join(folder, item->path) : NULL;
        bool is_there = path != NULL && nd_path_exists(path);
        free(path);
        free(folder);
        why[0] = '\0';
        if (!is_there)
            snprintf(why, 400, "not stored: '%.200s' of line %zu is missing", item->path, item->line);
        else if (!find_input(run, item->name, &stated, &io))
            snprintf(why, 400, "not stored: nothing states type and shape of '%.200s'", item->name);
        else if (run->n_batch > 1)
            snprintf(why, 400, "not stored: files of several samples");
        else if (!find_order(&stated, io, &is_last))
            snprintf(why, 400, "not stored: the layout of '%.200s' is not stated", item->name);
        if (why[0] != '\0')
            return false;
    }
    return true;
}

static enum nd_status read_item(struct nd_qnr *run, const struct list *list, const struct item *item,
                                bool *is_wrong_type, struct nd_error *err)
{
    struct nd_qnr_stated stated;
    const struct nd_model_io *io = NULL;
    struct nd_source source = {0};
    bool is_last = false;
    if (!find_input(run, item->name, &stated, &io))
        return ND_OK;
    (void)find_order(&stated, io, &is_last);
    const char *name = io != NULL ? io->name : item->name[0] != '\0' ? item->name : stated.file;
    char *folder = nd_path_dir(list->file), *path = folder != NULL ? nd_path_join(folder, item->path) : NULL;
    enum nd_status status = path != NULL ? nd_source_open(&source, path, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = add_input(run, name, &stated, &source, item->index, err);
    if (status != ND_OK)
        nd_error_context(err, "'%s':%zu", list->file, item->line);
    nd_source_close(&source);
    free(path);
    free(folder);
    struct nd_imported_tensor *made = nd_imported_find(run->imported, ND_IMPORTED_INPUT, name);
    if (status == ND_OK && made != NULL) {
        made->is_channel_last = is_last;
        *is_wrong_type = *is_wrong_type || (io != NULL && io->dtype != made->dtype);
    }
    return status;
}

static enum nd_status read_listed(struct nd_qnr *run, const char *path, struct nd_error *err)
{
    char why[400];
    bool is_wrong_type = false;
    struct list list = {0};
    enum nd_status status = read_list(path, &list, err);
    if (status == ND_OK)
        status = nd_qnr_check_number(run, path, list.n_lines, err);
    if (status != ND_OK || run->options->inputs != NULL) {
        list_deinit(&list);
        return status;
    }
    bool can = can_store(run, &list, why);
    for (size_t i = 0; status == ND_OK && can && i < list.n; i++)
        if (list.items[i].index < run->n_complete)
            status = read_item(run, &list, &list.items[i], &is_wrong_type, err);
    if (is_wrong_type)
        nd_qnr_drop_inputs(run->imported);
    if (status == ND_OK)
        status = nd_qnr_fact(run, "inputs", NULL, err, "%s",
                             !can            ? why
                             : is_wrong_type ? "not stored: the files hold codes, the model takes floats"
                                             : "the input list");
    list_deinit(&list);
    return status;
}

enum nd_status nd_qnr_count_lines(const char *path, size_t *out, struct nd_error *err)
{
    struct list list = {0};
    enum nd_status status = read_list(path, &list, err);
    *out = list.n_lines;
    list_deinit(&list);
    return status;
}

enum nd_status nd_qnr_read_inputs(struct nd_qnr *run, struct nd_error *err)
{
    if (run->manifest.path != NULL)
        return nd_qnr_read_prepared(run, err);
    if (run->options->input_list != NULL)
        return read_listed(run, run->options->input_list, err);
    char *path = nd_path_join(run->output, "input_list.txt");
    enum nd_status status = path == NULL           ? nd_fail_memory(err)
                            : nd_path_exists(path) ? read_listed(run, path, err)
                                                   : ND_OK;
    free(path);
    return status;
}
