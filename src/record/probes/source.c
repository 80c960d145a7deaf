#include "record/probes/source.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#include "core/files/file.h"
#include "core/memory.h"
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
    enum nd_status status = nd_file_open(path, &made.fd, &size_bytes, err);
    if (status != ND_OK)
        return status;
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

enum nd_status nd_source_from_zip(struct nd_source *source, const char *path, const char *array,
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

enum nd_status nd_source_from_memory(struct nd_source *source, const char *path, const char *what,
                                     const void *bytes, size_t size_bytes, struct nd_error *err)
{
    struct nd_source made = {
        .memory = bytes, .size_bytes = size_bytes, .path = nd_strdup(path), .what = nd_strdup(what)};
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
    free(source->path);
    free(source->what);
    memset(source, 0, sizeof *source);
}
