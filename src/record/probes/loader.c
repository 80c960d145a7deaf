/* The user's data, an archive or a folder of .npy files, fitted to the inputs of the model
 * (docs/reference/probes.md). Files whose name starts with a dot are passed over; anything else that is no .npy
 * or .npz is an error, because nobody could tell what it was meant to be. */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "record/probes/loader.h"
#include "record/probes/npz.h"

static enum nd_status nd_loader_init(struct nd_loader *loader, struct nd_probe *probe, bool has_explicit_labels,
                                     struct nd_error *err)
{
    struct nd_loader made = {.probe = probe, .has_explicit_labels = has_explicit_labels};
    made.filled = nd_calloc(probe->n_inputs, sizeof *made.filled);
    ND_TRY_MEMORY(made.filled != NULL, err);
    *loader = made;
    return ND_OK;
}

/* ---- Types and shapes ---- */

static enum nd_status check_type(const struct nd_source *source, const struct nd_npy *npy,
                                 const struct nd_probe_input *input, struct nd_error *err)
{
    char found[96];
    if (npy->dtype == input->dtype)
        return ND_OK;
    return nd_fail(err, ND_E_PROBE_TYPE, source->path, "%s for input '%s' is %s, expected %s%s", source->what,
                   input->name, nd_npy_format_dtype(npy, found, sizeof found), nd_dtype_name(input->dtype),
                   input->dtype == ND_DTYPE_BF16 ? " (which .npy cannot hold: use .raw files in a list)" : "");
}

static bool dims_equal(const int64_t *a, const int64_t *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

/* The number of samples in an array: [S] + shape, or [S] + shape[1:] where a sample's own first dimension is 1,
 * or a single sample of exactly the shape. No two of these have the same rank unless they mean the same. */
static bool count_samples(const struct nd_npy *npy, const struct nd_shape *shape, size_t *n_samples)
{
    if (npy->rank == shape->rank + 1 && dims_equal(npy->dims + 1, shape->dims, shape->rank)) {
        *n_samples = (size_t)npy->dims[0];
        return true;
    }
    if (npy->rank != shape->rank)
        return false;
    if (shape->rank > 0 && shape->dims[0] == 1 && dims_equal(npy->dims + 1, shape->dims + 1, shape->rank - 1)) {
        *n_samples = (size_t)npy->dims[0];
        return true;
    }
    if (!dims_equal(npy->dims, shape->dims, shape->rank))
        return false;
    *n_samples = 1;
    return true;
}

static enum nd_status check_shape(const struct nd_source *source, const struct nd_npy *npy,
                                  const struct nd_probe_input *input, size_t *n_samples, struct nd_error *err)
{
    char found[256], expected[256];
    struct nd_npy wanted = {.rank = input->shape.rank};
    memcpy(wanted.dims, input->shape.dims, sizeof input->shape.dims);
    nd_npy_format_shape(&wanted, expected, sizeof expected);
    nd_npy_format_shape(npy, found, sizeof found);
    if (!count_samples(npy, &input->shape, n_samples)) {
        bool is_batch = input->shape.rank > 0 && input->shape.dims[0] == 1;
        return nd_fail(err, ND_E_PROBE_SHAPE, source->path,
                       "%s for input '%s' has shape %s, expected samples of shape %s%s", source->what,
                       input->name, found, expected,
                       is_batch ? " along the first dimension" : " behind a dimension of samples");
    }
    if (*n_samples == 0)
        return nd_fail(err, ND_E_PROBE_SHAPE, source->path, "%s for input '%s' has no samples (shape %s)",
                       source->what, input->name, found);
    return ND_OK;
}

/* The header of an array for an input, of the right type and shape. */
static enum nd_status open_array(const struct nd_loader *loader, size_t input, struct nd_source *source,
                                 struct nd_npy *npy, size_t *n_samples, struct nd_error *err)
{
    const struct nd_probe_input *wanted = &loader->probe->inputs[input];
    if (loader->filled[input])
        return nd_fail(err, ND_E_PROBE_FORMAT, source->path, "%s is the second data for input '%s'",
                       source->what, wanted->name);
    ND_TRY(nd_npy_open(source, npy, err));
    ND_TRY(check_type(source, npy, wanted, err));
    return check_shape(source, npy, wanted, n_samples, err);
}

/* ---- By whole inputs ---- */

static enum nd_status agree_on_samples(struct nd_loader *loader, size_t n_samples, const char *from,
                                       struct nd_error *err)
{
    if (loader->samples_from != NULL) {
        if (n_samples == loader->probe->n_samples)
            return ND_OK;
        return nd_fail(err, ND_E_PROBE_SHAPE, NULL, "%s has %zu samples, but %s has %zu", from, n_samples,
                       loader->samples_from, loader->probe->n_samples);
    }
    ND_TRY(nd_probe_set_samples(loader->probe, n_samples, err));
    loader->samples_from = nd_strdup(from);
    return loader->samples_from != NULL ? ND_OK : nd_fail_memory(err);
}

/* Reads a .npy source as all samples of an input. The first one sets the number of samples. ND_ERR_FORMAT:
 * wrong type (ND_E_PROBE_TYPE), wrong shape or another number of samples (ND_E_PROBE_SHAPE), damaged. */
static enum nd_status nd_loader_read_input(struct nd_loader *loader, size_t input, struct nd_source *source,
                                           struct nd_error *err)
{
    struct nd_npy npy;
    size_t n_samples = 0;
    ND_TRY(open_array(loader, input, source, &npy, &n_samples, err));
    ND_TRY(agree_on_samples(loader, n_samples, source->what, err));
    ND_TRY(nd_probe_alloc_input(loader->probe, input, err));
    ND_TRY(nd_npy_read(source, &npy, loader->probe->inputs[input].data, err));
    loader->filled[input] = true;
    return ND_OK;
}

/* ---- Sample by sample ---- */

/* Before the first sample: n_samples are to come, as `from` says. */
static enum nd_status nd_loader_begin_samples(struct nd_loader *loader, size_t n_samples, const char *from,
                                              struct nd_error *err)
{
    ND_TRY(agree_on_samples(loader, n_samples, from, err));
    for (size_t i = 0; i < loader->probe->n_inputs; i++)
        ND_TRY(nd_probe_alloc_input(loader->probe, i, err));
    return ND_OK;
}

/* Before each sample: no input is filled. */
static void nd_loader_next_sample(struct nd_loader *loader)
{
    memset(loader->filled, 0, loader->probe->n_inputs * sizeof *loader->filled);
}

static void *place_of(const struct nd_loader *loader, size_t input, size_t sample)
{
    const struct nd_probe_input *made = &loader->probe->inputs[input];
    return (unsigned char *)made->data + sample * made->sample_bytes;
}

/* Reads a .npy source as one sample of an input. */
static enum nd_status nd_loader_read_sample(struct nd_loader *loader, size_t input, size_t sample,
                                            struct nd_source *source, struct nd_error *err)
{
    struct nd_npy npy;
    size_t n_samples = 0;
    ND_TRY(open_array(loader, input, source, &npy, &n_samples, err));
    if (n_samples != 1)
        return nd_fail(err, ND_E_PROBE_SHAPE, source->path, "%s holds %zu samples of input '%s', expected one",
                       source->what, n_samples, loader->probe->inputs[input].name);
    ND_TRY(nd_npy_read(source, &npy, place_of(loader, input, sample), err));
    loader->filled[input] = true;
    return ND_OK;
}

/* Reads the bare bytes of one sample of an input. */
static enum nd_status nd_loader_read_raw(struct nd_loader *loader, size_t input, size_t sample,
                                         struct nd_source *source, struct nd_error *err)
{
    const struct nd_probe_input *wanted = &loader->probe->inputs[input];
    char shape[256];
    if (loader->filled[input])
        return nd_fail(err, ND_E_PROBE_FORMAT, source->path, "%s is the second data for input '%s'",
                       source->what, wanted->name);
    if (source->size_bytes != wanted->sample_bytes)
        return nd_fail(err, ND_E_PROBE_SHAPE, source->path,
                       "%s for input '%s' has %zu bytes, expected %zu: %s %s without a header", source->what,
                       wanted->name, source->size_bytes, wanted->sample_bytes, nd_dtype_name(wanted->dtype),
                       nd_shape_format(&wanted->shape, shape, sizeof shape));
    void *place = place_of(loader, input, sample);
    ND_TRY(nd_source_read(source, place, wanted->sample_bytes, err));
    ND_TRY(nd_source_finish(source, err));
    if (wanted->dtype == ND_DTYPE_BOOL)
        ND_TRY(nd_npy_check_bools(source, place, wanted->sample_bytes, err));
    loader->filled[input] = true;
    return ND_OK;
}

/* ---- At the end ---- */

/* ND_ERR_NOT_FOUND (ND_E_PROBE_INPUT) when an input is not filled; `where` is the file or folder without it. */
static enum nd_status nd_loader_check_filled(const struct nd_loader *loader, const char *where,
                                             struct nd_error *err)
{
    for (size_t i = 0; i < loader->probe->n_inputs; i++)
        if (!loader->filled[i])
            return nd_fail(err, ND_E_PROBE_INPUT, where, "'%s' has no data for input '%s'", where,
                           loader->probe->inputs[i].name);
    return ND_OK;
}

static enum nd_status nd_folder_load(struct nd_loader *loader, const char *path, struct nd_error *err);

/* Labels: integer class indices, one for each sample. */

/* Element i of an integer array; false when it does not fit in int64. */
static bool widen(enum nd_dtype dtype, const void *data, size_t i, int64_t *out)
{
    size_t size = nd_dtype_size_bytes(dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const unsigned char *)data + i * size, size);
    if (nd_dtype_is_signed_integer(dtype)) {
        uint64_t sign = (uint64_t)1 << (8 * size - 1);
        bits = (bits ^ sign) - sign;
    } else if (bits > INT64_MAX) {
        return false;
    }
    memcpy(out, &bits, sizeof *out);
    return true;
}

/* All elements of an integer .npy source, in new memory. They are widened where they are, from the back: a wide
 * element never covers a narrow one that is still to come. */
static enum nd_status read_integers(struct nd_source *source, const struct nd_npy *npy, int64_t **out,
                                    struct nd_error *err)
{
    ND_FREED int64_t *labels = nd_calloc(npy->n_elems, sizeof *labels);
    enum nd_status status = labels != NULL ? nd_npy_read(source, npy, labels, err) : nd_fail_memory(err);
    bool is_read = status == ND_OK;
    for (size_t i = npy->n_elems; is_read && i-- > 0;)
        if (!widen(npy->dtype, labels, i, &labels[i])) /* the first element that fails is told */
            status = nd_fail(err, ND_E_PROBE_LABELS, source->path, "%s has a label above %lld at element %zu",
                             source->what, (long long)INT64_MAX, i);
    return status == ND_OK ? ND_GIVE(out, labels) : status;
}

static enum nd_status open_labels(struct nd_source *source, struct nd_npy *npy, struct nd_error *err)
{
    char found[96];
    ND_TRY(nd_npy_open(source, npy, err));
    if (!nd_dtype_is_integer(npy->dtype))
        ND_TRY(nd_fail(err, ND_E_PROBE_LABELS, source->path, "%s for labels is %s, expected an integer type",
                       source->what, nd_npy_format_dtype(npy, found, sizeof found)));
    return ND_OK;
}

static enum nd_status check_number(const struct nd_loader *loader, struct nd_error *err)
{
    if (loader->n_labels == loader->probe->n_samples)
        return ND_OK;
    return nd_fail(err, ND_E_PROBE_LABELS, loader->probe->name, "probe '%s' has %zu labels for %zu samples",
                   loader->probe->name, loader->n_labels, loader->probe->n_samples);
}

/* Reads a .npy source as the labels of all samples: integers of any type, one dimension. Takes the place of
 * labels read before. The inputs come first: labels of another number are refused before they are read.
 * ND_E_PROBE_LABELS. */
static enum nd_status nd_loader_read_labels(struct nd_loader *loader, struct nd_source *source,
                                            struct nd_error *err)
{
    struct nd_npy npy;
    char shape[256];
    int64_t *labels = NULL;
    ND_TRY(open_labels(source, &npy, err));
    if (npy.rank != 1)
        return nd_fail(err, ND_E_PROBE_LABELS, source->path,
                       "%s for labels has shape %s, expected one dimension: a label for each sample",
                       source->what, nd_npy_format_shape(&npy, shape, sizeof shape));
    loader->n_labels = npy.n_elems;
    ND_TRY(check_number(loader, err));
    ND_TRY(read_integers(source, &npy, &labels, err));
    free(loader->labels);
    loader->labels = labels;
    return ND_OK;
}

/* Reads a .npy source as the label of one sample: a scalar or one element. */
static enum nd_status nd_loader_read_label(struct nd_loader *loader, size_t sample, struct nd_source *source,
                                           struct nd_error *err)
{
    struct nd_npy npy;
    char shape[256];
    ND_FREED int64_t *label = NULL;
    ND_TRY(open_labels(source, &npy, err));
    if (npy.rank > 1 || npy.n_elems != 1)
        return nd_fail(err, ND_E_PROBE_LABELS, source->path,
                       "%s has shape %s, expected the label of one sample", source->what,
                       nd_npy_format_shape(&npy, shape, sizeof shape));
    if (loader->labels == NULL) {
        loader->labels = nd_calloc(loader->probe->n_samples, sizeof *loader->labels);
        ND_TRY_MEMORY(loader->labels != NULL, err);
    }
    ND_TRY(read_integers(source, &npy, &label, err));
    loader->labels[sample] = *label;
    loader->n_labels++;
    return ND_OK;
}

/* Hands the labels to the probe. ND_E_PROBE_LABELS when there are labels, but not one for each sample. */
static enum nd_status nd_loader_finish(struct nd_loader *loader, struct nd_error *err)
{
    ND_TRY(loader->labels != NULL ? check_number(loader, err) : ND_OK);
    loader->probe->labels = loader->labels;
    loader->labels = NULL;
    return ND_OK;
}

/* A text list, one sample per line, as QNN's tools read it: items separated by blanks, each PATH or
 * INPUT:=PATH. Lines that start with '#' or '%' name outputs there and are passed over; paths are relative to
 * the list's folder. */

static const size_t max_list_bytes = (size_t)64 << 20;
static const char blanks[] = " \t\r";

struct list {
    const char *path;
    char *folder, *text;
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
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    ND_TRY(nd_source_open(&source, path, err));
    return nd_loader_read_raw(loader, input, sample, &source, err);
}

/* A .npy as one sample of an input, or, when sample is SIZE_MAX, as all of them. */
static enum nd_status nd_user_load_npy(struct nd_loader *loader, const char *path, size_t input, size_t sample,
                                       struct nd_error *err)
{
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    ND_TRY(nd_source_open(&source, path, err));
    return sample == SIZE_MAX ? nd_loader_read_input(loader, input, &source, err)
                              : nd_loader_read_sample(loader, input, sample, &source, err);
}

static enum nd_status load_item(struct nd_loader *loader, const struct list *list, char *item, size_t sample,
                                struct nd_error *err)
{
    size_t input = 0;
    const char *relative = NULL;
    ND_TRY(find_input(loader, list->path, item, &input, &relative, err));
    ND_FREED char *path = nd_path_join(list->folder, relative);
    if (path == NULL)
        return nd_fail_memory(err);
    else if (nd_ends_with(path, ".npy"))
        ND_TRY(nd_user_load_npy(loader, path, input, sample, err));
    else if (nd_ends_with(path, ".raw") || nd_ends_with(path, ".bin"))
        ND_TRY(load_raw(loader, path, input, sample, err));
    else
        return nd_fail(err, ND_E_PROBE_FORMAT, list->path, "'%s' is none of .npy, .raw and .bin", relative);
    return ND_OK;
}

static enum nd_status load_line(struct nd_loader *loader, const struct list *list, char *line, size_t sample,
                                struct nd_error *err)
{
    char *rest = NULL;
    nd_loader_next_sample(loader);
    for (char *item = strtok_r(line, blanks, &rest); item != NULL; item = strtok_r(NULL, blanks, &rest))
        ND_TRY(load_item(loader, list, item, sample, err));
    return nd_loader_check_filled(loader, list->path, err);
}

static enum nd_status load_lines(struct nd_loader *loader, const struct list *list, struct nd_error *err)
{
    /* Makes a NUL of every line's end and counts the lines that are samples. */
    size_t n_samples = 0;
    for (size_t i = 0; i < list->n; i++)
        if (list->text[i] == '\n')
            list->text[i] = '\0';
    for (char *line = list->text; line != NULL; line = next_line(list, line))
        n_samples += is_sample(line);
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

/* A text list in the grammar of QNN's input lists. */
static enum nd_status nd_list_load(struct nd_loader *loader, const char *path, struct nd_error *err)
{
    ND_FREED void *text = NULL;
    size_t n = 0;
    ND_TRY(nd_file_read(path, max_list_bytes, &text, &n, err));
    if (memchr(text, '\0', n) != NULL)
        return nd_fail(err, ND_E_PROBE_FORMAT, path,
                       "'%s' is neither a folder nor a .npy, a .npz or a text list: it holds a zero byte",
                       path);
    ND_FREED char *folder = nd_path_dir(path);
    ND_TRY_MEMORY(folder != NULL, err);
    struct list list = {.path = path, .text = text, .n = n, .folder = folder};
    return load_lines(loader, &list, err);
}

/* ---- .npy ---- */

static enum nd_status load_only_input(struct nd_loader *loader, const char *path, struct nd_error *err)
{
    if (loader->probe->n_inputs != 1)
        return nd_fail(err, ND_E_PROBE_INPUT, path,
                       "'%s' is one array, but the model has %zu inputs; a .npz or a folder can hold them all",
                       path, loader->probe->n_inputs);
    return nd_user_load_npy(loader, path, 0, SIZE_MAX, err);
}

/* ---- .npz ---- */

static enum nd_status load_member(struct nd_loader *loader, const struct nd_npz *npz, size_t i, size_t role,
                                  size_t sample, struct nd_error *err)
{
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    bool is_whole = sample == SIZE_MAX;
    if (role == ND_ROLE_LABELS && loader->has_explicit_labels)
        return ND_OK;
    ND_TRY(nd_npz_source(npz, i, &source, err));
    if (role == ND_ROLE_LABELS)
        return is_whole ? nd_loader_read_labels(loader, &source, err)
                        : nd_loader_read_label(loader, sample, &source, err);
    return is_whole ? nd_loader_read_input(loader, role, &source, err)
                    : nd_loader_read_sample(loader, role, sample, &source, err);
}

static enum nd_status load_goal(struct nd_loader *loader, const struct nd_npz *npz, size_t i,
                                struct nd_error *err)
{
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    ND_TRY(nd_npz_source(npz, i, &source, err));
    return nd_loader_read_goal(loader, nd_npz_name(npz, i), &source, err);
}

/* "labels", "label" and "y". */
static bool loader_is_label_name(const char *name)
{
    return strcmp(name, "labels") == 0 || strcmp(name, "label") == 0 || strcmp(name, "y") == 0;
}

static const size_t no_role = SIZE_MAX;

static enum nd_status fail_missing(const struct nd_loader *loader, size_t input, const char *const *names,
                                   size_t n, const char *where, struct nd_error *err)
{
    struct nd_strbuf found = {0};
    const size_t most = 16;
    for (size_t i = 0; i < n && i < most; i++)
        nd_strbuf_printf(&found, i > 0 ? ", '%s'" : "'%s'", names[i]);
    if (n > most)
        nd_strbuf_puts(&found, ", ...");
    ND_FREED char *text = nd_strbuf_take(&found);
    ND_TRY_MEMORY(text != NULL, err);
    return nd_fail(err, ND_E_PROBE_INPUT, where, "'%s' has no array for input '%s'; it has %s", where,
                   loader->probe->inputs[input].name, n > 0 ? text : "none at all");
}

static enum nd_status check_inputs(const struct nd_loader *loader, const size_t *roles,
                                   const char *const *names, size_t n, const char *where, struct nd_error *err)
{
    for (size_t input = 0; input < loader->probe->n_inputs; input++) {
        size_t i = 0;
        while (i < n && roles[i] != input)
            i++;
        if (i == n)
            return fail_missing(loader, input, names, n, where, err);
    }
    return ND_OK;
}

static enum nd_status check_arrays(const size_t *roles, const char *const *names, size_t n, const char *where,
                                   struct nd_error *err)
{
    size_t labels = no_role;
    for (size_t i = 0; i < n; i++) {
        if (roles[i] == no_role)
            return nd_fail(err, ND_E_PROBE_FORMAT, where, "array '%s' of '%s' belongs to no input of the model",
                           names[i], where);
        if (roles[i] != ND_ROLE_LABELS)
            continue;
        if (labels != no_role)
            return nd_fail(err, ND_E_PROBE_LABELS, where, "'%s' has two arrays of labels: '%s' and '%s'", where,
                           names[labels], names[i]);
        labels = i;
    }
    return ND_OK;
}

/* For every array the index of its input, or ND_ROLE_LABELS. An input's own name comes first; "labels", "label"
 * and "y" are labels; with one input and one array besides labels, that array is the input's whatever its name.
 * *out has n entries and is freed by the caller. `where` is the file or folder, for messages. ND_ERR_NOT_FOUND
 * (ND_E_PROBE_INPUT): an input has no array; ND_ERR_FORMAT: an array has no input (ND_E_PROBE_FORMAT), or there
 * are several of labels (ND_E_PROBE_LABELS). */
static enum nd_status roles_assign(const struct nd_loader *loader, const char *const *names, size_t n,
                                   const char *where, size_t **out, struct nd_error *err)
{
    ND_FREED size_t *roles = nd_calloc(n, sizeof *roles);
    ND_TRY_MEMORY(roles != NULL, err);
    size_t n_unlabelled = 0, unlabelled = 0;
    for (size_t i = 0; i < n; i++) {
        roles[i] = nd_loader_find_input(loader, names[i]);
        if (roles[i] == no_role && loader_is_label_name(names[i]))
            roles[i] = ND_ROLE_LABELS;
        if (roles[i] != ND_ROLE_LABELS) {
            n_unlabelled++;
            unlabelled = i;
        }
    }
    if (loader->probe->n_inputs == 1 && n_unlabelled == 1)
        roles[unlabelled] = 0;
    ND_TRY(check_inputs(loader, roles, names, n, where, err));
    ND_TRY(check_arrays(roles, names, n, where, err));
    return ND_GIVE(out, roles);
}

/* The inputs first: they say how many labels and targets there may be. Targets belong to whole probes: in a
 * file of one sample such a name is one like any other. */
static enum nd_status nd_user_load_npz(struct nd_loader *loader, const char *path, size_t sample,
                                       struct nd_error *err)
{
    ND_CLEANUP(nd_npz_close) struct nd_npz *npz = NULL;
    ND_FREED const char **names = NULL;
    ND_FREED size_t *roles = NULL, *members = NULL;
    size_t n = 0;
    ND_TRY(nd_npz_open(path, &npz, err));
    size_t n_arrays = nd_npz_n_arrays(npz);
    names = nd_calloc(n_arrays, sizeof *names);
    members = nd_calloc(n_arrays, sizeof *members);
    ND_TRY_MEMORY(names != NULL && members != NULL, err);
    for (size_t i = 0; i < n_arrays; i++) {
        if (sample == SIZE_MAX && nd_loader_is_goal_name(loader, nd_npz_name(npz, i)))
            continue;
        names[n] = nd_npz_name(npz, i);
        members[n++] = i;
    }
    ND_TRY(roles_assign(loader, names, n, path, &roles, err));
    for (int labels = 0; labels < 2; labels++)
        for (size_t i = 0; i < n; i++)
            if ((roles[i] == ND_ROLE_LABELS) == labels)
                ND_TRY(load_member(loader, npz, members[i], roles[i], sample, err));
    for (size_t i = 0; sample == SIZE_MAX && i < n_arrays; i++)
        if (nd_loader_is_goal_name(loader, nd_npz_name(npz, i)))
            ND_TRY(load_goal(loader, npz, i, err));
    return ND_OK;
}

/* ---- Labels from a file of their own ---- */

static enum nd_status find_labels(const struct nd_npz *npz, const char *path, size_t *out, struct nd_error *err)
{
    size_t n = nd_npz_n_arrays(npz), n_found = 0, found = 0;
    for (size_t i = 0; i < n; i++)
        if (loader_is_label_name(nd_npz_name(npz, i))) {
            n_found++;
            found = i;
        }
    if (n_found != 1 && n != 1)
        return nd_fail(err, ND_E_PROBE_LABELS, path,
                       "'%s' has %zu arrays named 'labels', 'label' or 'y'; expected one", path, n_found);
    *out = n_found == 1 ? found : 0;
    return ND_OK;
}

static enum nd_status load_npz_labels(struct nd_loader *loader, const char *path, struct nd_error *err)
{
    ND_CLEANUP(nd_npz_close) struct nd_npz *npz = NULL;
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    size_t i = 0;
    ND_TRY(nd_npz_open(path, &npz, err));
    ND_TRY(find_labels(npz, path, &i, err));
    ND_TRY(nd_npz_source(npz, i, &source, err));
    return nd_loader_read_labels(loader, &source, err);
}

/* Labels of all samples from a .npy, or from a .npz with one array or one that is named so. */
static enum nd_status nd_user_load_labels(struct nd_loader *loader, const char *path, struct nd_error *err)
{
    if (nd_ends_with(path, ".npz"))
        return load_npz_labels(loader, path, err);
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    ND_TRY(nd_source_open(&source, path, err));
    return nd_loader_read_labels(loader, &source, err);
}

/* ---- Any kind ---- */

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum nd_status nd_user_load(struct nd_probe *probe, const char *path, const char *labels_path,
                            struct nd_error *err)
{
    struct nd_loader loader;
    ND_TRY(nd_loader_init(&loader, probe, labels_path != NULL, err));
    enum nd_status status = is_folder(path)              ? nd_folder_load(&loader, path, err)
                            : nd_ends_with(path, ".npy") ? load_only_input(&loader, path, err)
                            : nd_ends_with(path, ".npz") ? nd_user_load_npz(&loader, path, SIZE_MAX, err)
                                                         : nd_list_load(&loader, path, err);
    if (status == ND_OK && labels_path != NULL)
        status = nd_user_load_labels(&loader, labels_path, err);
    if (status == ND_OK)
        status = nd_loader_finish(&loader, err);
    ND_FREE_ALL(loader.samples_from, loader.labels, loader.filled);
    memset(&loader, 0, sizeof loader);
    return status;
}

/* The files of a folder, sorted bytewise. */
struct listing {
    char **names;
    size_t n;
    size_t capacity;
};

static void listing_deinit(struct listing *listing)
{
    ND_FREE_ITEMS(listing->names, listing->n);
}

static enum nd_status listing_add(struct listing *listing, const char *path, const char *name,
                                  struct nd_error *err)
{
    if (!nd_ends_with(name, ".npy") && !nd_ends_with(name, ".npz"))
        return nd_fail(err, ND_E_PROBE_FORMAT, path, "folder '%s' holds '%s', which is neither .npy nor .npz",
                       path, name);
    ND_TRY_MEMORY(nd_grow((void **)&listing->names, &listing->capacity, listing->n + 1, sizeof *listing->names),
                  err);
    listing->names[listing->n] = nd_strdup(name);
    ND_TRY_MEMORY(listing->names[listing->n] != NULL, err);
    listing->n++;
    return ND_OK;
}

static enum nd_status listing_read(struct listing *listing, const char *path, struct nd_error *err)
{
    ND_CLEANUP(nd_dir_close) DIR *dir = opendir(path);
    if (dir == NULL)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open folder '%s': %s", path, strerror(errno));
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL && errno != 0)
            return nd_fail(err, ND_E_FILE_READ, path, "cannot read folder '%s': %s", path, strerror(errno));
        if (entry == NULL)
            break;
        if (entry->d_name[0] != '.')
            ND_TRY(listing_add(listing, path, entry->d_name, err));
    }
    if (listing->n == 0)
        return nd_fail(err, ND_E_PROBE_INPUT, path, "folder '%s' holds no .npy or .npz file", path);
    qsort(listing->names, listing->n, sizeof *listing->names, nd_compare_texts);
    return ND_OK;
}

/* The array that a file name stands for: without ".npy", "%2F" back to '/' and "%25" to '%'. In new memory;
 * NULL when out of memory. Other files keep their name, which is no input's. */
static char *array_name(const char *file)
{
    struct nd_strbuf name = {0};
    size_t n = strlen(file) - (nd_ends_with(file, ".npy") ? 4 : 0);
    for (size_t i = 0; i < n; i++) {
        bool is_slash = strncmp(file + i, "%2F", 3) == 0;
        bool is_percent = strncmp(file + i, "%25", 3) == 0;
        nd_strbuf_append(&name, is_slash ? "/" : is_percent ? "%" : file + i, 1);
        if (is_slash || is_percent)
            i += 2;
    }
    return nd_strbuf_take(&name);
}

/* Names of the arrays for all files; freed as a listing. */
static enum nd_status name_arrays(const struct listing *files, struct listing *arrays, struct nd_error *err)
{
    arrays->names = nd_calloc(files->n, sizeof *arrays->names);
    ND_TRY_MEMORY(arrays->names != NULL, err);
    for (size_t i = 0; i < files->n; i++) {
        arrays->names[i] = array_name(files->names[i]);
        ND_TRY_MEMORY(arrays->names[i] != NULL, err);
        arrays->n++;
    }
    return ND_OK;
}

/* ---- One file per input ---- */

static bool has_inputs_by_name(const struct nd_loader *loader, const struct listing *arrays)
{
    for (size_t i = 0; i < arrays->n; i++)
        if (nd_loader_find_input(loader, arrays->names[i]) != SIZE_MAX)
            return true;
    return false;
}

static enum nd_status load_file(struct nd_loader *loader, const char *folder, const char *name, size_t role,
                                struct nd_error *err)
{
    ND_FREED char *file = nd_path_join(folder, name);
    ND_TRY_MEMORY(file != NULL, err);
    return role == ND_ROLE_LABELS ? nd_user_load_labels(loader, file, err)
                                  : nd_user_load_npy(loader, file, role, SIZE_MAX, err);
}

static enum nd_status load_inputs(struct nd_loader *loader, const char *path, const struct listing *files,
                                  const struct listing *arrays, struct nd_error *err)
{
    ND_FREED size_t *roles = NULL;
    ND_TRY(roles_assign(loader, (const char *const *)arrays->names, arrays->n, path, &roles, err));
    /* The inputs first: they say how many labels there may be. */
    for (int labels = 0; labels < (loader->has_explicit_labels ? 1 : 2); labels++)
        for (size_t i = 0; i < files->n; i++)
            if ((roles[i] == ND_ROLE_LABELS) == labels)
                ND_TRY(load_file(loader, path, files->names[i], roles[i], err));
    return ND_OK;
}

/* ---- One file per sample ---- */

static bool is_labels(const char *file, const char *array)
{
    return nd_ends_with(file, ".npy") && loader_is_label_name(array);
}

static enum nd_status load_sample(struct nd_loader *loader, const char *file, size_t sample,
                                  struct nd_error *err)
{
    nd_loader_next_sample(loader);
    if (nd_ends_with(file, ".npz"))
        return nd_user_load_npz(loader, file, sample, err);
    if (loader->probe->n_inputs != 1)
        return nd_fail(err, ND_E_PROBE_INPUT, file,
                       "'%s' is one array, but the model has %zu inputs; each sample needs a .npz, or each "
                       "input a file of its name",
                       file, loader->probe->n_inputs);
    return nd_user_load_npy(loader, file, 0, sample, err);
}

static enum nd_status load_samples(struct nd_loader *loader, const char *path, const struct listing *files,
                                   const struct listing *arrays, struct nd_error *err)
{
    size_t n_labels = 0, labels = 0, sample = 0;
    for (size_t i = 0; i < files->n; i++)
        if (is_labels(files->names[i], arrays->names[i])) {
            n_labels++;
            labels = i;
        }
    if (n_labels > 1)
        return nd_fail(err, ND_E_PROBE_LABELS, path, "folder '%s' has several files of labels", path);
    if (n_labels == files->n)
        return nd_fail(err, ND_E_PROBE_INPUT, path, "folder '%s' has labels, but no samples", path);
    ND_TRY(nd_loader_begin_samples(loader, files->n - n_labels, path, err));
    for (size_t i = 0; i < files->n; i++) {
        if (n_labels == 1 && i == labels)
            continue;
        ND_FREED char *file = nd_path_join(path, files->names[i]);
        ND_TRY(file != NULL ? load_sample(loader, file, sample++, err) : nd_fail_memory(err));
    }
    if (n_labels == 0 || loader->has_explicit_labels)
        return ND_OK;
    ND_FREED char *file = nd_path_join(path, files->names[labels]);
    return file != NULL ? nd_user_load_labels(loader, file, err) : nd_fail_memory(err);
}

/* A folder of NAME.npy, or of one .npy or .npz per sample. */
static enum nd_status nd_folder_load(struct nd_loader *loader, const char *path, struct nd_error *err)
{
    ND_CLEANUP(listing_deinit) struct listing files = {0}, arrays = {0};
    ND_TRY(listing_read(&files, path, err));
    ND_TRY(name_arrays(&files, &arrays, err));
    return has_inputs_by_name(loader, &arrays) ? load_inputs(loader, path, &files, &arrays, err)
                                               : load_samples(loader, path, &files, &arrays, err);
}
