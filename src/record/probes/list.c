/* A text list, one sample per line, as QNN's tools read it: items separated by blanks, each PATH or
 * INPUT:=PATH. Lines that start with '#' or '%' name outputs there and are passed over; paths are relative to
 * the list's folder. */
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/files/suffix.h"
#include "record/probes/user.h"

static const size_t max_list_bytes = (size_t)64 << 20;
static const char blanks[] = " \t\r";

struct list {
    const char *path;
    char *folder;
    char *text;
    size_t n;
};

static bool is_sample(const char *line)
{
    return line[0] != '#' && line[0] != '%' && line[strspn(line, blanks)] != '\0';
}

/* The line after this one, or NULL. Lines end with a NUL each; so does the text. */
static char *next_line(const struct list *list, char *line)
{
    char *next = line + strlen(line) + 1;
    return next <= list->text + list->n ? next : NULL;
}

/* Makes a NUL of every line's end and counts the lines that are samples. */
static size_t cut_lines(const struct list *list)
{
    size_t n_samples = 0;
    for (size_t i = 0; i < list->n; i++)
        if (list->text[i] == '\n')
            list->text[i] = '\0';
    for (char *line = list->text; line != NULL; line = next_line(list, line))
        n_samples += is_sample(line);
    return n_samples;
}

/* Splits INPUT:=PATH. A bare PATH is for the only input. */
static enum nd_status find_input(const struct nd_loader *loader, const char *list, char *item, size_t *input,
                                 const char **path, struct nd_error *err)
{
    char *assign = strstr(item, ":=");
    if (assign == NULL) {
        if (loader->probe->n_inputs != 1)
            return nd_fail(err, ND_E_PROBE_FORMAT, list,
                           "'%s' does not say for which of the %zu inputs it is; write INPUT:=PATH", item,
                           loader->probe->n_inputs);
        *input = 0;
        *path = item;
        return ND_OK;
    }
    *assign = '\0';
    *input = nd_loader_find_input(loader, item);
    *path = assign + 2;
    if (*input == SIZE_MAX)
        return nd_fail(err, ND_E_PROBE_FORMAT, list, "the model has no input '%s'", item);
    return ND_OK;
}

static enum nd_status load_raw(struct nd_loader *loader, const char *path, size_t input, size_t sample,
                               struct nd_error *err)
{
    struct nd_source source = {0};
    enum nd_status status = nd_source_open(&source, path, err);
    if (status == ND_OK)
        status = nd_loader_read_raw(loader, input, sample, &source, err);
    nd_source_close(&source);
    return status;
}

static enum nd_status load_item(struct nd_loader *loader, const struct list *list, char *item, size_t sample,
                                struct nd_error *err)
{
    size_t input = 0;
    const char *relative = NULL;
    enum nd_status status = find_input(loader, list->path, item, &input, &relative, err);
    if (status != ND_OK)
        return status;
    char *path = nd_path_join(list->folder, relative);
    if (path == NULL)
        status = nd_fail_memory(err);
    else if (nd_ends_with(path, ".npy"))
        status = nd_user_load_npy(loader, path, input, sample, err);
    else if (nd_ends_with(path, ".raw") || nd_ends_with(path, ".bin"))
        status = load_raw(loader, path, input, sample, err);
    else
        status = nd_fail(err, ND_E_PROBE_FORMAT, list->path, "'%s' is none of .npy, .raw and .bin", relative);
    free(path);
    return status;
}

static enum nd_status load_line(struct nd_loader *loader, const struct list *list, char *line, size_t sample,
                                struct nd_error *err)
{
    enum nd_status status = ND_OK;
    char *rest = NULL;
    nd_loader_next_sample(loader);
    for (char *item = strtok_r(line, blanks, &rest); item != NULL && status == ND_OK;
         item = strtok_r(NULL, blanks, &rest))
        status = load_item(loader, list, item, sample, err);
    return status == ND_OK ? nd_loader_check_filled(loader, list->path, err) : status;
}

static enum nd_status load_lines(struct nd_loader *loader, const struct list *list, struct nd_error *err)
{
    size_t n_samples = cut_lines(list);
    if (n_samples == 0)
        return nd_fail(err, ND_E_PROBE_SHAPE, list->path, "list '%s' has no samples", list->path);
    enum nd_status status = nd_loader_begin_samples(loader, n_samples, list->path, err);
    size_t number = 0, sample = 0;
    for (char *line = list->text, *next; line != NULL && status == ND_OK; line = next) {
        next = next_line(list, line); /* before load_line cuts the line into items */
        number++;
        if (!is_sample(line))
            continue;
        status = load_line(loader, list, line, sample++, err);
        if (status != ND_OK)
            nd_error_context(err, "line %zu of '%s'", number, list->path);
    }
    return status;
}

enum nd_status nd_list_load(struct nd_loader *loader, const char *path, struct nd_error *err)
{
    struct list list = {.path = path};
    void *text = NULL;
    size_t n = 0;
    enum nd_status status = nd_file_read(path, max_list_bytes, &text, &n, err);
    if (status != ND_OK)
        return status;
    list.text = text;
    list.n = n;
    if (memchr(text, '\0', n) != NULL) {
        status =
            nd_fail(err, ND_E_PROBE_FORMAT, path,
                    "'%s' is neither a folder nor a .npy, a .npz or a text list: it holds a zero byte", path);
        goto out;
    }
    list.folder = nd_path_dir(path);
    status = list.folder != NULL ? load_lines(loader, &list, err) : nd_fail_memory(err);
out:
    free(list.folder);
    free(list.text);
    return status;
}
