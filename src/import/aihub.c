/* Datasets of Qualcomm AI Hub: /data/<i> with the attributes name, batch_count and order, and in it batch_<k>,
 * one array for each sample. libhdf5 reads them in a confined child, which sends the samples through a pipe: a
 * file that breaks libhdf5 breaks that child alone. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "capture/libhdf5.h"
#include "import/aihub_walk.h"
#include "import/formats.h"

enum { MAX_TEXT_BYTES = 65536 };
enum message_kind { MESSAGE_SAMPLE = 1, MESSAGE_END, MESSAGE_ERROR };

/* What goes through the pipe; after it the name, the place in the file, and the data; or a struct nd_error. */
struct message {
    enum message_kind kind;
    enum nd_dtype dtype;
    struct nd_shape shape;
    size_t sample;
    size_t name_bytes;
    size_t what_bytes;
    size_t n_bytes;
};

/* ---- the child ---- */

struct sender {
    int pipe;
    const char *path;
};

static enum nd_status send_sample(void *context, const struct nd_aihub_sample *sample, struct nd_error *err)
{
    const struct sender *sender = context;
    const struct message message = {.kind = MESSAGE_SAMPLE,
                                    .dtype = sample->dtype,
                                    .shape = sample->shape,
                                    .sample = sample->sample,
                                    .name_bytes = strlen(sample->name),
                                    .what_bytes = strlen(sample->what),
                                    .n_bytes = sample->n_bytes};
    const struct {
        const void *bytes;
        size_t n;
    } parts[] = {{&message, sizeof message},
                 {sample->name, message.name_bytes},
                 {sample->what, message.what_bytes},
                 {sample->data, sample->n_bytes}};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof parts / sizeof parts[0]; i++)
        status = nd_file_write_all(sender->pipe, parts[i].bytes, parts[i].n, sender->path, err);
    return status;
}

/* Never returns. */
static void run_child(const char *path, int fd, int pipe_fd)
{
    struct nd_error err = {0};
    struct sender sender = {pipe_fd, path};
    enum nd_status status = nd_aihub_walk(path, fd, send_sample, &sender, &err);
    const struct message message = {.kind = status == ND_OK ? MESSAGE_END : MESSAGE_ERROR};
    if (nd_file_write_all(pipe_fd, &message, sizeof message, path, NULL) == ND_OK && status != ND_OK)
        nd_file_write_all(pipe_fd, &err, sizeof err, path, NULL);
    _exit(0);
}

/* ---- the parent ---- */

struct receiver {
    struct nd_imported *imported;
    enum nd_imported_side side;
    const char *path;
    int pipe;
};

/* False when the child has gone before. */
static bool receive(const struct receiver *r, void *buf, size_t n_bytes)
{
    char *at = buf;
    while (n_bytes > 0) {
        ssize_t n = read(r->pipe, at, n_bytes < (size_t)1 << 30 ? n_bytes : (size_t)1 << 30);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

static char *receive_text(const struct receiver *r, size_t n_bytes)
{
    char *text = n_bytes <= MAX_TEXT_BYTES ? nd_calloc(n_bytes + 1, 1) : NULL;
    if (text != NULL && !receive(r, text, n_bytes)) {
        free(text);
        return NULL;
    }
    return text;
}

static enum nd_status fail_child(const struct receiver *r, struct nd_error *err)
{
    return nd_fail(err, ND_E_IMPORT_FORMAT, r->path, "'%s' is damaged: libhdf5 died of it", r->path);
}

/* What the child says is checked like a file: a file may have taken it over. */
static enum nd_status receive_sample(const struct receiver *r, const struct message *message,
                                     struct nd_error *err)
{
    size_t n_bytes = 0;
    void *data = NULL;
    struct nd_strbuf buf = {0};
    if (message->shape.rank < 0 || message->shape.rank >= ND_MAX_RANK ||
        nd_dtype_size_bytes(message->dtype) == 0 ||
        nd_shape_size_bytes(&message->shape, message->dtype, &n_bytes, NULL) != ND_OK ||
        n_bytes != message->n_bytes)
        return fail_child(r, err);
    char *name = receive_text(r, message->name_bytes);
    char *what = name != NULL ? receive_text(r, message->what_bytes) : NULL;
    nd_strbuf_printf(&buf, "%s of '%s' (tensor '%.200s')", what != NULL ? what : "", r->path,
                     name != NULL ? name : "");
    char *where = nd_strbuf_take(&buf);
    enum nd_status status = what == NULL ? fail_child(r, err) : where == NULL ? nd_fail_memory(err) : ND_OK;
    if (status == ND_OK)
        status = nd_imported_sample(r->imported, r->side, name, where, message->sample, message->dtype,
                                    &message->shape, &data, err);
    if (status == ND_OK && !receive(r, data, n_bytes))
        status = fail_child(r, err);
    free(where);
    free(what);
    free(name);
    return status;
}

static enum nd_status receive_error(const struct receiver *r, struct nd_error *err)
{
    struct nd_error said;
    if (!receive(r, &said, sizeof said))
        return fail_child(r, err);
    said.message[sizeof said.message - 1] = said.object[sizeof said.object - 1] = '\0';
    if (said.status <= ND_OK || said.status > ND_ERR_MEMORY)
        return fail_child(r, err);
    if (err != NULL)
        *err = said;
    return said.status;
}

static enum nd_status receive_all(const struct receiver *r, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    while (status == ND_OK) {
        struct message message;
        if (!receive(r, &message, sizeof message))
            return fail_child(r, err);
        if (message.kind == MESSAGE_END)
            return ND_OK;
        if (message.kind == MESSAGE_ERROR)
            return receive_error(r, err);
        status = message.kind == MESSAGE_SAMPLE ? receive_sample(r, &message, err) : fail_child(r, err);
    }
    return status;
}

static enum nd_status read_by_child(const struct receiver *r, int fd, int ends[2], struct nd_error *err)
{
    struct receiver own = *r;
    nd_hdf5_lock(); /* so that no other thread is in libhdf5 when the child begins */
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        run_child(r->path, fd, ends[1]);
    }
    nd_hdf5_unlock();
    close(ends[1]);
    own.pipe = ends[0];
    enum nd_status status = child > 0
                                ? receive_all(&own, err)
                                : nd_fail(err, ND_E_FILE_READ, r->path,
                                          "cannot start a process to read '%s': %s", r->path, strerror(errno));
    close(ends[0]);
    if (child > 0) {
        if (status != ND_OK)
            kill(child, SIGKILL); /* it may still have much to send */
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    return status;
}

enum nd_status nd_aihub_add(struct nd_imported *imported, enum nd_imported_side side, const char *path,
                            struct nd_error *err)
{
    const struct receiver receiver = {imported, side, path, -1};
    int ends[2];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    enum nd_status status;
    if (pipe2(ends, O_CLOEXEC) != 0)
        status = nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path, strerror(errno));
    else
        status = read_by_child(&receiver, fd, ends, err);
    close(fd);
    return status;
}

static enum nd_status read_aihub(const struct nd_import_options *options, struct nd_imported *imported,
                                 struct nd_error *err)
{
    static const char *const facts[][2] = {{"names", "attribute 'name'"},
                                           {"types", "HDF5 type"},
                                           {"shapes", "HDF5 dataset"},
                                           {"samples", "one of each batch_N"}};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < options->n_paths; i++)
        status = nd_aihub_add(imported, ND_IMPORTED_OUTPUT, options->paths[i], err);
    for (size_t i = 0; status == ND_OK && i < sizeof facts / sizeof facts[0]; i++)
        status = nd_imported_fact(imported, facts[i][0], NULL, facts[i][1], err);
    return status;
}

const struct nd_import_reader nd_import_aihub = {
    .format = {"aihub", "DATASET.h5...",
               "datasets of Qualcomm AI Hub (output data of an inference job, as downloaded): "
               "each batch_N is a sample"},
    .read = read_aihub,
};
