#include "devices/phones/remote_bundle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"

static const double least_limit_s = 30;
static const double slowest_read_bytes_s = 5e6;

enum nd_status nd_bundle_add(struct nd_bundle *bundle, const char *name, const char *path, bool is_executable,
                             struct nd_error *err)
{
    struct stat info;
    for (size_t i = 0; i < bundle->n; i++)
        if (strcmp(bundle->files[i].name, name) == 0)
            return ND_OK;
    if (stat(path, &info) != 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    if (!nd_grow((void **)&bundle->files, &bundle->capacity, bundle->n + 1, sizeof *bundle->files))
        return nd_fail_memory(err);
    struct nd_bundle_file *file = &bundle->files[bundle->n];
    *file = (struct nd_bundle_file){.name = nd_strdup(name),
                                    .path = nd_strdup(path),
                                    .size_bytes = (uint64_t)info.st_size,
                                    .is_executable = is_executable};
    bundle->n++;
    return file->name != NULL && file->path != NULL ? nd_sha256_file(path, file->sha256, err)
                                                    : nd_fail_memory(err);
}

void nd_bundle_deinit(struct nd_bundle *bundle)
{
    for (size_t i = 0; i < bundle->n; i++) {
        free(bundle->files[i].name);
        free(bundle->files[i].path);
    }
    free(bundle->files);
    free(bundle->folder);
    *bundle = (struct nd_bundle){0};
}

static enum nd_status name_folder(struct nd_bundle *bundle, const char *root, struct nd_error *err)
{
    struct nd_strbuf list = {0}, path = {0};
    char hex[ND_SHA256_HEX_BYTES];
    for (size_t i = 0; i < bundle->n; i++)
        nd_strbuf_printf(&list, "%s %c %s\n", bundle->files[i].sha256,
                         bundle->files[i].is_executable ? 'x' : '-', bundle->files[i].name);
    size_t n = list.len;
    char *text = nd_strbuf_take(&list);
    if (text == NULL)
        return nd_fail_memory(err);
    nd_sha256_bytes(text, n, hex);
    free(text);
    nd_strbuf_printf(&path, "%s/store/%s", root, hex);
    free(bundle->folder);
    bundle->folder = nd_strbuf_take(&path);
    return bundle->folder != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- what is there ---- */

/* Makes the folder, and prints "complete" or "partial", then for each file the digest that the machine measures
 * now; "-" for none, and for a program that cannot be run. Sizes and times prove nothing: what runs there is
 * what was measured. */
static void add_question(struct nd_strbuf *text, const struct nd_bundle *bundle)
{
    nd_strbuf_puts(text, "mkdir -p ");
    nd_shell_quote(text, bundle->folder);
    nd_strbuf_puts(text, " && cd ");
    nd_shell_quote(text, bundle->folder);
    nd_strbuf_puts(
        text, " || exit 1; c=partial; [ -f .complete ] && c=complete && touch .complete; echo $c; for f in");
    for (size_t i = 0; i < bundle->n; i++) {
        nd_strbuf_puts(text, bundle->files[i].is_executable ? " x" : " f");
        nd_shell_quote(text, bundle->files[i].name);
    }
    nd_strbuf_puts(text, "; do m=-${f%\"${f#?}\"}; f=${f#?}; d=${f%/*}; "
                         "[ \"$d\" = \"$f\" ] || mkdir -p \"$d\" || exit 1; "
                         "[ -f \"$f\" ] && [ $m \"$f\" ] && sha256sum < \"$f\" || echo -; done; ");
}

/* One question for all bundles: a login costs more than the words. */
static char *question(struct nd_bundle *const *bundles, size_t n)
{
    struct nd_strbuf text = {0};
    for (size_t b = 0; b < n; b++)
        add_question(&text, bundles[b]);
    return nd_strbuf_take(&text);
}

/* The machine has to read all that it has of the bundles. */
static enum nd_status ask(struct nd_bundle *const *bundles, size_t n, struct nd_transport *transport,
                          struct nd_remote_reply *reply, struct nd_error *err)
{
    uint64_t size_bytes = 0;
    for (size_t b = 0; b < n; b++)
        for (size_t i = 0; i < bundles[b]->n; i++)
            size_bytes += bundles[b]->files[i].size_bytes;
    char *text = question(bundles, n);
    if (text == NULL)
        return nd_fail_memory(err);
    const struct nd_remote_command command = {
        .text = text, .time_limit_s = least_limit_s + (double)size_bytes / slowest_read_bytes_s};
    enum nd_status status = nd_transport_run(transport, &command, reply, err);
    free(text);
    if (status != ND_OK || reply->exit_code == 0)
        return status;
    char line[300];
    nd_transport_last_line(reply->errors, line, sizeof line);
    return nd_fail(err, ND_E_DEVICE_PUSH, bundles[0]->folder, "cannot make a folder on the device '%s': %s",
                   transport->address, line);
}

/* Marks what has to be sent. was_there: nothing, and the machine knows it. */
static void read_answer(struct nd_bundle *bundle, char **rest)
{
    const char *line = *rest != NULL ? strsep(rest, "\n") : NULL;
    bool is_marked = line != NULL && strcmp(line, "complete") == 0;
    bundle->was_there = is_marked;
    bundle->was_damaged = false;
    for (size_t i = 0; i < bundle->n; i++) {
        struct nd_bundle_file *file = &bundle->files[i];
        line = *rest != NULL ? strsep(rest, "\n") : NULL;
        file->is_missing = line == NULL || strncmp(line, file->sha256, strlen(file->sha256)) != 0;
        bundle->was_there = bundle->was_there && !file->is_missing;
        bundle->was_damaged = bundle->was_damaged || (is_marked && file->is_missing);
    }
}

/* ---- sending ---- */

static enum nd_status check_space(struct nd_bundle *const *bundles, size_t n, uint64_t free_bytes,
                                  const struct nd_transport *transport, struct nd_error *err)
{
    uint64_t needed = 0;
    for (size_t b = 0; b < n; b++)
        for (size_t i = 0; i < bundles[b]->n; i++)
            needed += bundles[b]->files[i].is_missing ? bundles[b]->files[i].size_bytes : 0;
    if (needed <= free_bytes)
        return ND_OK;
    return nd_fail(err, ND_E_DEVICE_PUSH, bundles[0]->folder,
                   "no space on the device '%s': needs %llu MiB, has %llu MiB", transport->address,
                   (unsigned long long)(needed >> 20) + 1, (unsigned long long)(free_bytes >> 20));
}

static enum nd_status send_missing(const struct nd_bundle *bundle, struct nd_transport *transport,
                                   uint64_t *free_bytes, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < bundle->n && status == ND_OK; i++) {
        const struct nd_bundle_file *file = &bundle->files[i];
        if (!file->is_missing)
            continue;
        char *there = nd_path_join(bundle->folder, file->name);
        status = there != NULL
                     ? nd_transport_push(transport, file->path, file->sha256, there, file->is_executable, err)
                     : nd_fail_memory(err);
        *free_bytes -= *free_bytes < file->size_bytes ? *free_bytes : file->size_bytes;
        free(there);
    }
    return status;
}

/* The mark is on the disk after what it marks. */
static enum nd_status mark_complete(const struct nd_bundle *bundle, struct nd_transport *transport,
                                    struct nd_error *err)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "cd ");
    nd_shell_quote(&text, bundle->folder);
    nd_strbuf_puts(&text, " && sync && touch .complete");
    char *command = nd_strbuf_take(&text);
    enum nd_status status =
        command != NULL ? nd_transport_shell(transport, command, NULL, err) : nd_fail_memory(err);
    free(command);
    return status;
}

enum nd_status nd_bundles_place(struct nd_bundle *const *bundles, size_t n, struct nd_transport *transport,
                                const char *root, uint64_t *free_bytes, struct nd_error *err)
{
    struct nd_remote_reply reply = {0};
    enum nd_status status = ND_OK;
    for (size_t b = 0; b < n && status == ND_OK; b++)
        status = name_folder(bundles[b], root, err);
    if (status == ND_OK)
        status = ask(bundles, n, transport, &reply, err);
    if (status == ND_OK) {
        char *rest = reply.out;
        for (size_t b = 0; b < n; b++)
            read_answer(bundles[b], &rest);
        status = check_space(bundles, n, *free_bytes, transport, err);
    }
    for (size_t b = 0; b < n && status == ND_OK; b++) {
        status = send_missing(bundles[b], transport, free_bytes, err);
        if (status == ND_OK && !bundles[b]->was_there)
            status = mark_complete(bundles[b], transport, err);
    }
    for (size_t b = 0; b < n && status != ND_OK; b++) {
        free(bundles[b]->folder);
        bundles[b]->folder = NULL;
    }
    nd_remote_reply_deinit(&reply);
    return status;
}

/* ---- looking up ---- */

enum nd_status nd_bundle_find(const struct nd_bundle *bundle, const char *path, char **out,
                              struct nd_error *err)
{
    *out = NULL;
    for (size_t i = 0; i < bundle->n && path != NULL && bundle->folder != NULL; i++)
        if (strcmp(bundle->files[i].path, path) == 0) {
            *out = nd_path_join(bundle->folder, bundle->files[i].name);
            return *out != NULL ? ND_OK : nd_fail_memory(err);
        }
    return ND_OK;
}

const char *nd_bundle_sha256(const struct nd_bundle *bundle, const char *path_there)
{
    size_t n = bundle->folder != NULL ? strlen(bundle->folder) : 0;
    if (n == 0 || strncmp(path_there, bundle->folder, n) != 0 || path_there[n] != '/')
        return NULL;
    for (size_t i = 0; i < bundle->n; i++)
        if (strcmp(bundle->files[i].name, path_there + n + 1) == 0)
            return bundle->files[i].sha256;
    return NULL;
}
