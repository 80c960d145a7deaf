/* Bytes read from front to back, of a file, of memory or of a member of NumPy's .npz, a zip archive. */
#include "record/probes/npz.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>
#include <zip.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"

static char *quoted(const char *path, const char *array)
{
    struct nd_strbuf buf = {0};
    if (array != NULL)
        nd_strbuf_printf(&buf, "array '%s' of ", array);
    nd_strbuf_printf(&buf, "'%s'", path);
    return nd_strbuf_take(&buf);
}

enum nd_status nd_source_open(struct nd_source *source, const char *path, struct nd_error *err)
{
    struct nd_source made = {.is_file = true};
    uint64_t size_bytes;
    ND_TRY(nd_file_open(path, &made.fd, &size_bytes, err));
    made.size_bytes = (size_t)size_bytes;
    made.path = nd_strdup(path);
    made.what = quoted(path, NULL);
    if (made.path != NULL && made.what != NULL) {
        *source = made;
        return ND_OK;
    }
    nd_source_close(&made);
    return nd_fail_memory(err);
}

/* Takes over an open zip member of size_bytes, and closes it also on failure (ND_ERR_MEMORY). */
static enum nd_status nd_source_from_zip(struct nd_source *source, const char *path, const char *array,
                                         size_t size_bytes, struct zip_file *zip, struct nd_error *err)
{
    struct nd_source made = {
        .zip = zip, .size_bytes = size_bytes, .path = nd_strdup(path), .what = quoted(path, array)};
    if (made.path == NULL || made.what == NULL) {
        nd_source_close(&made);
        return nd_fail_memory(err);
    }
    *source = made;
    return ND_OK;
}

/* One read call: bytes read, 0 at the end, -1 with the reason. */
static ssize_t read_some(struct nd_source *source, void *buf, size_t size_bytes, const char **reason)
{
    if (source->zip != NULL) {
        zip_int64_t n = zip_fread(source->zip, buf, size_bytes);
        if (n < 0)
            *reason = zip_file_strerror(source->zip);
        return (ssize_t)n;
    }
    if (!source->is_file) {
        size_t n_left = source->size_bytes - source->n_read;
        size_bytes = size_bytes < n_left ? size_bytes : n_left;
        if (size_bytes > 0)
            memcpy(buf, source->memory + source->n_read, size_bytes);
        return (ssize_t)size_bytes;
    }
    ssize_t n;
    do
        n = read(source->fd, buf, size_bytes);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        *reason = strerror(errno);
    return n;
}

static enum nd_status fail_read(const struct nd_source *source, const char *reason, struct nd_error *err)
{
    /* A zip member that cannot be read is damaged; a file that cannot be read is the system's refusal. */
    return nd_fail(err, source->zip != NULL ? ND_E_PROBE_FORMAT : ND_E_FILE_READ, source->path,
                   "cannot read %s: %s", source->what, reason);
}

enum nd_status nd_source_read(struct nd_source *source, void *buf, size_t size_bytes, struct nd_error *err)
{
    const size_t at_once = (size_t)1 << 30; /* Linux reads at most 2 GiB in one call */
    char *at = buf;
    while (size_bytes > 0) {
        const char *reason = "";
        ssize_t n = read_some(source, at, size_bytes < at_once ? size_bytes : at_once, &reason);
        if (n < 0)
            return fail_read(source, reason, err);
        if (n == 0)
            return nd_fail(err, ND_E_FILE_SHORT, source->path,
                           "%s ends after %zu bytes; %zu more were expected there", source->what,
                           source->n_read, size_bytes);
        at += n;
        size_bytes -= (size_t)n;
        source->n_read += (size_t)n;
    }
    return ND_OK;
}

enum nd_status nd_source_finish(struct nd_source *source, struct nd_error *err)
{
    char extra;
    const char *reason = "";
    ssize_t n = read_some(source, &extra, 1, &reason);
    if (n < 0)
        return fail_read(source, reason, err);
    if (n > 0)
        return nd_fail(err, ND_E_PROBE_FORMAT, source->path, "%s has more bytes after its data of %zu bytes",
                       source->what, source->n_read);
    return ND_OK;
}

void nd_source_close(struct nd_source *source)
{
    if (source->zip != NULL)
        zip_fclose(source->zip);
    if (source->is_file)
        close(source->fd);
    ND_FREE_ALL(source->path, source->what);
    memset(source, 0, sizeof *source);
}

struct array {
    char *name;
    size_t size_bytes;
};

struct nd_npz {
    char *path;
    struct zip *zip;
    size_t n_arrays;
    struct array *arrays;
};

static enum nd_status fail_open(const char *path, int qvalue, struct nd_error *err)
{
    ND_CLEANUP(zip_error_fini) zip_error_t error = {0};
    ND_TRY_MEMORY(qvalue != ZIP_ER_MEMORY, err);
    zip_error_init_with_code(&error, qvalue);
    bool is_system = zip_error_system_type(&error) == ZIP_ET_SYS && qvalue != ZIP_ER_SEEK;
    return is_system || qvalue == ZIP_ER_NOENT
               ? nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, zip_error_strerror(&error))
               : nd_fail(err, ND_E_PROBE_FORMAT, path, "'%s' is not a .npz file, or a damaged one: %s", path,
                         zip_error_strerror(&error));
}

/* Deflate cannot shrink data to less than about 1/1032, so a larger claim is a lie or a bomb. */
static bool is_size_credible(const struct zip_stat *info, uint64_t file_bytes)
{
    const uint64_t most = 1032, slack = 1024;
    if (info->comp_size > file_bytes || info->size > SIZE_MAX)
        return false;
    if (info->comp_method == ZIP_CM_STORE)
        return info->size == info->comp_size;
    return info->size <= slack || (info->size - slack) / most <= info->comp_size;
}

static enum nd_status index_member(struct nd_npz *npz, size_t i, uint64_t file_bytes, struct nd_error *err)
{
    const uint64_t needed = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    struct zip_stat info;
    zip_stat_init(&info);
    if (zip_stat_index(npz->zip, i, 0, &info) != 0 || (info.valid & needed) != needed)
        return nd_fail(err, ND_E_PROBE_FORMAT, npz->path, "'%s' has a damaged member %zu", npz->path, i);
    size_t n = strlen(info.name);
    if (n < 4 || strcmp(info.name + n - 4, ".npy") != 0)
        return nd_fail(err, ND_E_PROBE_FORMAT, npz->path, "'%s' has the member '%s', which is not a .npy array",
                       npz->path, info.name);
    if ((info.valid & ZIP_STAT_ENCRYPTION_METHOD) != 0 && info.encryption_method != ZIP_EM_NONE)
        return nd_fail(err, ND_E_PROBE_FORMAT, npz->path, "'%s': the member '%s' is encrypted", npz->path,
                       info.name);
    if (info.comp_method != ZIP_CM_STORE && info.comp_method != ZIP_CM_DEFLATE)
        return nd_fail(
            err, ND_E_PROBE_FORMAT, npz->path,
            "'%s': the member '%s' has the compression method %u; .npz arrays are stored or deflated",
            npz->path, info.name, info.comp_method);
    if (!is_size_credible(&info, file_bytes))
        return nd_fail(err, ND_E_PROBE_FORMAT, npz->path,
                       "'%s': the member '%s' claims %llu bytes, more than its %llu compressed bytes can hold",
                       npz->path, info.name, (unsigned long long)info.size, (unsigned long long)info.comp_size);
    npz->arrays[i].name = strndup(info.name, n - 4);
    npz->arrays[i].size_bytes = (size_t)info.size;
    return npz->arrays[i].name != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status check_unique(const struct nd_npz *npz, struct nd_error *err)
{
    ND_FREED struct array *sorted = nd_calloc(npz->n_arrays, sizeof *sorted);
    ND_TRY_MEMORY(sorted != NULL, err);
    if (npz->n_arrays > 0)
        memcpy(sorted, npz->arrays, npz->n_arrays * sizeof *sorted);
    qsort(sorted, npz->n_arrays, sizeof *sorted, nd_compare_texts);
    for (size_t i = 1; i < npz->n_arrays; i++)
        if (strcmp(sorted[i - 1].name, sorted[i].name) == 0)
            return nd_fail(err, ND_E_PROBE_FORMAT, npz->path, "'%s' has the array '%s' twice", npz->path,
                           sorted[i].name);
    return ND_OK;
}

enum nd_status nd_npz_open(const char *path, struct nd_npz **out, struct nd_error *err)
{
    /* Opened by nd_source_open first: its messages of what is missing or no file are better than libzip's. */
    struct nd_source file = {0};
    ND_TRY(nd_source_open(&file, path, err));
    uint64_t file_bytes = file.size_bytes;
    nd_source_close(&file);
    if (file_bytes == 0) /* which libzip takes for an archive without members */
        return nd_fail(err, ND_E_FILE_SHORT, path, "'%s' is not a .npz file: it is empty", path);

    ND_CLEANUP(nd_npz_close) struct nd_npz *npz = nd_calloc(1, sizeof *npz);
    ND_TRY_MEMORY(npz != NULL && (npz->path = nd_strdup(path)) != NULL, err);
    int problem = 0;
    npz->zip = zip_open(path, ZIP_RDONLY, &problem);
    if (npz->zip == NULL)
        return fail_open(path, problem, err);
    zip_int64_t n = zip_get_num_entries(npz->zip, 0);
    npz->arrays = nd_calloc(n > 0 ? (size_t)n : 0, sizeof *npz->arrays);
    ND_TRY_MEMORY(npz->arrays != NULL, err);
    npz->n_arrays = n > 0 ? (size_t)n : 0;
    for (size_t i = 0; i < npz->n_arrays; i++)
        ND_TRY(index_member(npz, i, file_bytes, err));
    ND_TRY(check_unique(npz, err));
    return ND_GIVE(out, npz);
}

void nd_npz_close(struct nd_npz **npz)
{
    if (*npz == NULL)
        return;
    if ((*npz)->zip != NULL)
        zip_discard((*npz)->zip);
    ND_FREE_EACH((*npz)->arrays, (*npz)->n_arrays, .name);
    ND_FREE_ALL((*npz)->path, *npz);
    *npz = NULL;
}

size_t nd_npz_n_arrays(const struct nd_npz *npz)
{
    return npz->n_arrays;
}

const char *nd_npz_name(const struct nd_npz *npz, size_t i)
{
    return npz->arrays[i].name;
}

enum nd_status nd_npz_source(const struct nd_npz *npz, size_t i, struct nd_source *source, struct nd_error *err)
{
    struct zip_file *member = zip_fopen_index(npz->zip, i, 0);
    if (member == NULL && zip_error_code_zip(zip_get_error(npz->zip)) == ZIP_ER_MEMORY)
        return nd_fail_memory(err);
    if (member == NULL)
        return nd_fail(err, ND_E_PROBE_FORMAT, npz->path, "cannot read array '%s' of '%s': %s",
                       npz->arrays[i].name, npz->path, zip_strerror(npz->zip));
    return nd_source_from_zip(source, npz->path, npz->arrays[i].name, npz->arrays[i].size_bytes, member, err);
}
