/* How large a task is, and what it took to make a file, kept beside it for estimates: a line for each field,
 * "<name> <value>". */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "judge/campaign/policy.h"
#include "judge/tasks/task.h"
#include "npudiff/core/parse.h"

const char *nd_task_kind_name(enum nd_task_kind kind)
{
    static const char *const names[ND_TASK_N_KINDS] = {"capture", "compare", "explain_part", "explain",
                                                       "judge"};
    return names[kind];
}

/* ---- how large a task is ---- */

/* Bytes that one sample of the tensor takes, and how many values it has; 0 where its shape is not known. */
static void measure_tensor(const struct nd_tensor *tensor, uint64_t *bytes, uint64_t *n_elems)
{
    size_t n = 0;
    if (tensor->shape.rank < 0 || nd_shape_n_elems(&tensor->shape, &n, NULL) != ND_OK)
        n = 0;
    *n_elems = n;
    *bytes = n * (tensor->dtype != ND_DTYPE_NONE ? nd_dtype_size_bytes(tensor->dtype) : sizeof(float));
}

static void measure_cell(const struct nd_qualification *q, const struct nd_qualify_model *model,
                         const struct nd_qualify_cell *cell, struct nd_task_size *size)
{
    size_t *selected = NULL, n = 0;
    uint64_t n_runs = 0, bytes = 0, n_elems = 0, tensor_bytes, tensor_elems;
    for (size_t p = 0; p < model->n_probes; p++)
        n_runs += cell->probes[p]->n_samples;
    if (nd_model_select_tensors(cell->model, cell->tensors, &selected, &n, NULL) != ND_OK)
        n = 0;
    for (size_t i = 0; i < n; i++) {
        measure_tensor(nd_model_tensor(cell->model, selected[i]), &tensor_bytes, &tensor_elems);
        bytes += tensor_bytes;
    }
    for (size_t i = 0; i < nd_model_n_tensors(cell->model); i++) {
        measure_tensor(nd_model_tensor(cell->model, i), &tensor_bytes, &tensor_elems);
        n_elems += tensor_elems;
    }
    free(selected);
    size->raw_bytes += bytes * n_runs;
    n_runs *= q->campaign.n_repeats > 0 ? q->campaign.n_repeats : 1;
    size->n_runs += n_runs;
    size->work += n_elems * n_runs;
}

void nd_task_measure(const struct nd_qualification *q, const struct nd_task_place *place,
                     struct nd_task_size *out)
{
    *out = (struct nd_task_size){.model = "", .device = "", .uri = ""};
    for (size_t m = 0; m < q->campaign.n_models; m++) {
        const struct nd_qualify_model *model = &q->models[m];
        if (place->model != SIZE_MAX && place->model != m)
            continue;
        for (size_t c = 0; c < model->n_cells; c++)
            if (place->kind != ND_TASK_CAPTURE || c == place->cell)
                measure_cell(q, model, &model->cells[c], out);
    }
    if (place->kind == ND_TASK_EXPLAIN_PART) {
        out->n_runs /= nd_qualify_explain_parts(q);
        out->raw_bytes /= nd_qualify_explain_parts(q);
        out->work /= nd_qualify_explain_parts(q);
    }
    if (place->model == SIZE_MAX)
        return;
    const struct nd_qualify_model *model = &q->models[place->model];
    out->model = nd_model_sha256(model->model);
    if (place->kind == ND_TASK_CAPTURE) {
        const struct nd_qualify_cell *cell = &model->cells[place->cell];
        out->model = nd_model_sha256(cell->model);
        out->device = nd_device_kind_name(cell->device.kind);
        out->uri = cell->device.uri;
    }
}

#define SUFFIX ".took"

enum { MAX_TOOK_BYTES = 4096 };

/* ---- writing ---- */

/* The most that this process has had, and the largest of those that it has waited for. */
static uint64_t memory_used(void)
{
    struct rusage self, children;
    if (getrusage(RUSAGE_SELF, &self) != 0 || getrusage(RUSAGE_CHILDREN, &children) != 0)
        return 0;
    return ((uint64_t)self.ru_maxrss + (uint64_t)children.ru_maxrss) * 1024;
}

void nd_took_write(const char *path, struct nd_took *took)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf name = {0}, text = {0};
    struct stat info;
    took->bytes = stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
    took->memory_bytes = memory_used();
    nd_strbuf_printf(&name, "%s" SUFFIX, path);
    nd_strbuf_printf(&text,
                     "task %s\nmodel %s\ndevice %s\nuri %s\nruns %llu\nseconds %.3f\nmemory_bytes %llu\n"
                     "bytes %llu\n",
                     nd_task_kind_name(took->kind), took->model, took->device, took->uri,
                     (unsigned long long)took->n_runs, took->seconds, (unsigned long long)took->memory_bytes,
                     (unsigned long long)took->bytes);
    if (!name.failed && !text.failed)
        nd_file_put(name.text, text.text, text.len, NULL);
}

/* ---- reading ---- */

static bool parse_kind(const char *word, enum nd_task_kind *out)
{
    for (int kind = 0; kind < ND_TASK_N_KINDS; kind++)
        if (strcmp(word, nd_task_kind_name((enum nd_task_kind)kind)) == 0) {
            *out = (enum nd_task_kind)kind;
            return true;
        }
    return false;
}

static bool put_text(const char *value, char *out, size_t size)
{
    return (size_t)snprintf(out, size, "%s", value) < size;
}

/* The field of that place in a file. */
static bool parse_field(size_t i, const char *value, struct nd_took *took)
{
    switch (i) {
    case 0:
        return parse_kind(value, &took->kind);
    case 1:
        return put_text(value, took->model, sizeof took->model);
    case 2:
        return put_text(value, took->device, sizeof took->device);
    case 3:
        return put_text(value, took->uri, sizeof took->uri);
    case 4:
        return nd_parse_u64(value, &took->n_runs) && took->n_runs > 0;
    case 5:
        return nd_parse_double(value, &took->seconds) && isfinite(took->seconds) && took->seconds >= 0;
    case 6:
        return nd_parse_u64(value, &took->memory_bytes);
    default:
        return nd_parse_u64(value, &took->bytes);
    }
}

/* The eight lines as they were written, each with its end; false for any other file. */
static bool parse(char *text, size_t n_bytes, struct nd_took *took)
{
    static const char *const names[] = {"task", "model",   "device",       "uri",
                                        "runs", "seconds", "memory_bytes", "bytes"};
    if (strlen(text) != n_bytes)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *end = strchr(text, '\n');
        size_t n = strlen(names[i]);
        if (end == NULL || strncmp(text, names[i], n) != 0 || text[n] != ' ')
            return false;
        *end = '\0';
        if (!parse_field(i, text + n + 1, took))
            return false;
        text = end + 1;
    }
    return *text == '\0';
}

/* A file that is there and cannot be read is an error: a default in its place would be an estimate for no
 * reason. */
static enum nd_status read_one(const char *folder, const char *relative, struct nd_took_list *list,
                               struct nd_error *err)
{
    struct nd_took took = {0};
    ND_FREED void *bytes = NULL;
    size_t n_bytes;
    ND_FREED char *path = nd_path_join(folder, relative);
    ND_TRY_MEMORY(path != NULL, err);
    if (!nd_keyed_is_missing(path))
        ND_TRY(nd_file_read(path, MAX_TOOK_BYTES, &bytes, &n_bytes, err));
    if (bytes == NULL || !parse(bytes, n_bytes, &took))
        return ND_OK;
    ND_TRY_MEMORY(nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items), err);
    took.file = strndup(relative, strlen(relative) - strlen(SUFFIX));
    ND_TRY_MEMORY(took.file != NULL, err);
    list->items[list->n++] = took;
    return ND_OK;
}

/* Goes down `depth` folders. */
static enum nd_status read_below(const char *root, const char *relative, int depth, struct nd_took_list *list,
                                 struct nd_error *err)
{
    ND_FREED struct dirent **entries = NULL;
    ND_FREED char *folder = nd_path_join(root, relative);
    enum nd_status status = folder != NULL ? ND_OK : nd_fail_memory(err);
    int n = folder != NULL ? scandir(folder, &entries, NULL, alphasort) : 0;
    if (n < 0 && errno != ENOENT && errno != ENOTDIR)
        status = nd_fail(err, ND_E_FILE_READ, folder, "cannot list '%s': %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        bool is_hidden = name[0] == '.';
        char *below = is_hidden ? NULL : nd_path_join(relative, name);
        if (!is_hidden && below == NULL && status == ND_OK)
            status = nd_fail_memory(err);
        if (below != NULL && status == ND_OK && nd_ends_with(name, SUFFIX))
            status = read_one(root, below, list, err);
        else if (below != NULL && status == ND_OK && depth > 0)
            status = read_below(root, below, depth - 1, list, err);
        ND_FREE_ALL(below, entries[i]);
    }
    return status;
}

enum nd_status nd_took_read_folder(const char *folder, struct nd_took_list *list, struct nd_error *err)
{
    ND_TRY(read_below(folder, "captures", 1, list, err));
    ND_TRY(read_below(folder, "parts", 1, list, err));
    return read_one(folder, ND_TASK_RESULT SUFFIX, list, err);
}

void nd_took_list_deinit(struct nd_took_list *list)
{
    ND_FREE_EACH(list->items, list->n, .file);
    *list = (struct nd_took_list){0};
}
