#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/strbuf.h"

enum {
    MAX_TEMPORARIES = 1000, /* chosen: writers of one file at once */
    PIPE_WAIT_MS = 3000,    /* chosen: for somebody who writes a named pipe */
};

static enum nd_status fail_large(const char *path, size_t max_bytes, struct nd_error *err)
{
    return nd_fail(err, ND_E_SIZE_OVERFLOW, path, "'%s' is larger than the %zu bytes accepted here", path,
                   max_bytes);
}

/* read of a descriptor that does not block: waits for whoever writes a pipe. */
static ssize_t read_some(int fd, void *to, size_t n)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    ssize_t got;
    while ((got = read(fd, to, n)) < 0 && (errno == EINTR || errno == EAGAIN))
        if (errno == EAGAIN)
            poll(&polled, 1, -1);
    return got;
}

static bool is_silent(int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    return poll(&polled, 1, PIPE_WAIT_MS) == 0;
}

static enum nd_status read_open_file(int fd, const char *path, size_t max_bytes, void **data,
                                     size_t *size_bytes, struct nd_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': it is a folder", path);
    if (S_ISREG(info.st_mode) && (uint64_t)info.st_size > max_bytes)
        return fail_large(path, max_bytes, err);
    /* A pipe has no size: then read until it ends, growing, and never more than one byte over the limit. */
    bool has_no_writer = S_ISFIFO(info.st_mode) && is_silent(fd); /* unless reading has to wait for one */
    size_t capacity = info.st_size > 0 ? (size_t)info.st_size + 1 : 65536;
    size_t n = 0;
    char *buffer = nd_calloc(capacity, 1);
    if (buffer == NULL)
        return nd_fail_memory(err);
    for (;;) {
        size_t room = capacity - n - 1;
        ssize_t got = read_some(fd, buffer + n, room - 1 < max_bytes - n ? room : max_bytes - n + 1);
        if (got < 0 || (got == 0 && n == 0 && has_no_writer)) {
            free(buffer);
            return got < 0 ? nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path, strerror(errno))
                           : nd_fail(err, ND_E_FILE_TIME, path,
                                     "cannot read '%s': it is a pipe that nobody writes", path);
        }
        n += (size_t)got;
        if (n > max_bytes) {
            free(buffer);
            return fail_large(path, max_bytes, err);
        }
        if (got == 0)
            break;
        if (capacity - n < 2 && !nd_grow((void **)&buffer, &capacity, capacity + 65536, 1)) {
            free(buffer);
            return nd_fail_memory(err);
        }
    }
    buffer[n] = '\0';
    *data = buffer;
    *size_bytes = n;
    return ND_OK;
}

enum nd_status nd_file_read(const char *path, size_t max_bytes, void **data, size_t *size_bytes,
                            struct nd_error *err)
{
    /* Without O_NONBLOCK opening a named pipe would wait for its writer, without end. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    enum nd_status status = read_open_file(fd, path, max_bytes, data, size_bytes, err);
    close(fd);
    return status;
}

enum nd_status nd_file_write_all(int fd, const void *data, size_t size_bytes, const char *path,
                                 struct nd_error *err)
{
    const char *at = data;
    while (size_bytes > 0) {
        ssize_t n = write(fd, at, size_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(errno));
        at += n;
        size_bytes -= (size_t)n;
    }
    return ND_OK;
}

/* Closes fd. */
static enum nd_status write_and_sync(int fd, const char *path, const void *data, size_t size_bytes,
                                     struct nd_error *err)
{
    enum nd_status status = nd_file_write_all(fd, data, size_bytes, path, err);
    if (status == ND_OK && fsync(fd) != 0)
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(errno));
    if (close(fd) != 0 && status == ND_OK)
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(errno));
    return status;
}

/* A new file beside path, under a name that no other writer has. Another thread, or a process of another
 * machine or container with the same number, may be writing the same file. */
static enum nd_status create_temporary(const char *path, char **name, int *fd, struct nd_error *err)
{
    for (int i = 0; i < MAX_TEMPORARIES; i++) {
        struct nd_strbuf buf = {0};
        nd_strbuf_printf(&buf, i > 0 ? "%s.tmp-%ld-%d" : "%s.tmp-%ld", path, (long)getpid(), i);
        char *made = nd_strbuf_take(&buf);
        if (made == NULL)
            return nd_fail_memory(err);
        *fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd >= 0) {
            *name = made;
            return ND_OK;
        }
        bool is_taken = errno == EEXIST && i + 1 < MAX_TEMPORARIES;
        if (!is_taken)
            nd_fail(err, ND_E_FILE_WRITE, made, "cannot create '%s': %s", made, strerror(errno));
        free(made);
        if (!is_taken)
            break;
    }
    return ND_ERR_IO;
}

enum nd_status nd_file_put(const char *path, const void *data, size_t size_bytes, struct nd_error *err)
{
    char *name = NULL;
    int fd = -1;
    enum nd_status status = create_temporary(path, &name, &fd, err);
    if (status != ND_OK)
        return status;
    status = write_and_sync(fd, name, data, size_bytes, err);
    if (status == ND_OK)
        status = nd_file_publish(name, path, true, err);
    if (status != ND_OK)
        unlink(name);
    free(name);
    return status;
}

static enum nd_status sync_dir_of(const char *path, struct nd_error *err)
{
    char *dir = nd_path_dir(path);
    if (dir == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems cannot sync a folder (EINVAL); the rename itself has then to be enough. */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        status = nd_fail(err, ND_E_FILE_WRITE, dir, "cannot sync folder '%s': %s", dir, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(dir);
    return status;
}

static int rename_without_replacing(const char *from, const char *to)
{
#ifdef SYS_renameat2
    const unsigned int no_replace = 1; /* RENAME_NOREPLACE, which older C libraries do not declare */
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, no_replace) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
#endif
    /* File systems without that flag: a hard link refuses to replace as well. */
    if (link(from, to) != 0)
        return -1;
    return unlink(from);
}

enum nd_status nd_file_publish(const char *temporary, const char *final_path, bool replace,
                               struct nd_error *err)
{
    int rc = replace ? rename(temporary, final_path) : rename_without_replacing(temporary, final_path);
    if (rc != 0 && errno == EEXIST)
        return nd_fail(err, ND_E_FILE_EXISTS, final_path, "'%s' exists already", final_path);
    if (rc != 0)
        return nd_fail(err, ND_E_FILE_WRITE, final_path, "cannot rename '%s' to '%s': %s", temporary,
                       final_path, strerror(errno));
    return sync_dir_of(final_path, err);
}

enum nd_status nd_dir_make_temporary(char **path, struct nd_error *err)
{
    const char *base = getenv("TMPDIR");
    char *made = nd_path_join(base != NULL && base[0] != '\0' ? base : "/tmp", "npudiff-XXXXXX");
    if (made == NULL)
        return nd_fail_memory(err);
    if (mkdtemp(made) == NULL) {
        enum nd_status status = nd_fail(err, ND_E_FILE_WRITE, made, "cannot create a temporary folder '%s': %s",
                                        made, strerror(errno));
        free(made);
        return status;
    }
    *path = made;
    return ND_OK;
}

enum nd_status nd_dir_make(const char *path, struct nd_error *err)
{
    char *partial = nd_strdup(path);
    if (partial == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (char *at = partial + 1; status == ND_OK; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char kept = *at;
        *at = '\0';
        struct stat info;
        if (mkdir(partial, 0777) != 0 && !(stat(partial, &info) == 0 && S_ISDIR(info.st_mode)))
            status =
                nd_fail(err, ND_E_FILE_WRITE, path, "cannot create folder '%s': %s", partial, strerror(errno));
        *at = kept;
        if (kept == '\0')
            break;
    }
    free(partial);
    return status;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    remove(path);
    return 0;
}

void nd_dir_remove(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

char *nd_path_join(const char *dir, const char *name)
{
    if (name[0] == '/' || dir[0] == '\0')
        return nd_strdup(name);
    struct nd_strbuf buf = {0};
    size_t n = strlen(dir);
    nd_strbuf_printf(&buf, dir[n - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
    return nd_strbuf_take(&buf);
}

const char *nd_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

char *nd_path_dir(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return nd_strdup(".");
    return slash == path ? nd_strdup("/") : strndup(path, (size_t)(slash - path));
}

bool nd_path_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

uint64_t nd_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
