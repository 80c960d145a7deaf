/* Whole files and folders: reads, complete writes, paths, and clocks. */
#include "core/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/text/strbuf.h"

enum {
    PIPE_WAIT_MS = 3000, /* chosen: for somebody who writes a named pipe */
};

static enum nd_status fail_large(const char *path, size_t max_bytes, struct nd_error *err)
{
    return nd_fail(err, ND_E_SIZE_OVERFLOW, path, "'%s' is larger than the %zu bytes accepted here", path,
                   max_bytes);
}

/* read of a descriptor that does not block: waits for whoever writes a pipe, until a signal is handled, which
 * would else be answered when the writer is done. */
static ssize_t read_some(int fd, void *to, size_t n)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    ssize_t got;
    while ((got = read(fd, to, n)) < 0 && (errno == EINTR || errno == EAGAIN))
        if (errno == EAGAIN && poll(&polled, 1, -1) < 0)
            break;
    return got;
}

static enum nd_status fail_read(const char *path, struct nd_error *err)
{
    if (errno == EINTR)
        return nd_fail(err, ND_E_CANCELLED, path, "reading '%s' was stopped on request", path);
    return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path, strerror(errno));
}

/* As poll: 0 when nobody writes the pipe, -1 when a signal came. */
static int wait_for_writer(int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    return poll(&polled, 1, PIPE_WAIT_MS);
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
    int waited = S_ISFIFO(info.st_mode) ? wait_for_writer(fd) : 1;
    if (waited < 0)
        return fail_read(path, err);
    bool has_no_writer = waited == 0; /* unless reading has to wait for one */
    size_t capacity = info.st_size > 0 ? (size_t)info.st_size + 1 : 65536;
    size_t n = 0;
    ND_FREED char *buffer = nd_calloc(capacity, 1);
    ND_TRY_MEMORY(buffer != NULL, err);
    for (;;) {
        size_t room = capacity - n - 1;
        ssize_t got = read_some(fd, buffer + n, room - 1 < max_bytes - n ? room : max_bytes - n + 1);
        if (got < 0)
            return fail_read(path, err);
        if (got == 0 && n == 0 && has_no_writer)
            return nd_fail(err, ND_E_FILE_TIME, path, "cannot read '%s': it is a pipe that nobody writes",
                           path);
        n += (size_t)got;
        if (n > max_bytes)
            return fail_large(path, max_bytes, err);
        if (got == 0)
            break;
        if (capacity - n < 2 && !nd_grow((void **)&buffer, &capacity, capacity + 65536, 1))
            return nd_fail_memory(err);
    }
    buffer[n] = '\0';
    *size_bytes = n;
    return ND_GIVE(data, buffer);
}

enum nd_status nd_file_fail_open(const char *path, int problem, struct nd_error *err)
{
    struct rlimit limit;
    if (problem != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(problem));
    return nd_fail(err, ND_E_FILE_LIMIT, path,
                   "cannot open '%s': this process may have %llu files open at once (ulimit -n)", path,
                   (unsigned long long)limit.rlim_cur);
}

bool nd_file_is_unopened(const struct nd_error *err)
{
    return err->id == ND_E_FILE_OPEN || err->id == ND_E_FILE_LIMIT;
}

enum nd_status nd_file_open(const char *path, int *fd, uint64_t *size_bytes, struct nd_error *err)
{
    struct stat info;
    enum nd_status status = ND_OK;
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0)
        return nd_file_fail_open(path, errno, err);
    if (fstat(opened, &info) != 0)
        status = nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': it is not a regular file", path);
    if (status != ND_OK) {
        close(opened);
        return status;
    }
    *fd = opened;
    if (size_bytes != NULL)
        *size_bytes = (uint64_t)info.st_size;
    return ND_OK;
}

void nd_fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void nd_dir_close(DIR **dir)
{
    if (*dir != NULL)
        closedir(*dir);
}

void nd_stdio_close(FILE **file)
{
    if (*file != NULL)
        fclose(*file);
}

enum nd_status nd_file_read(const char *path, size_t max_bytes, void **data, size_t *size_bytes,
                            struct nd_error *err)
{
    /* Without O_NONBLOCK opening a named pipe would wait for its writer, without end. */
    ND_CLEANUP(nd_fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return nd_file_fail_open(path, errno, err);
    return read_open_file(fd, path, max_bytes, data, size_bytes, err);
}

enum nd_status nd_file_read_at(int fd, const char *path, uint64_t offset, void *buf, size_t n_bytes,
                               struct nd_error *err)
{
    for (char *at = buf; n_bytes > 0;) {
        ssize_t n = pread(fd, at, n_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path,
                           n < 0 ? strerror(errno) : "it became shorter");
        at += n;
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return ND_OK;
}

enum nd_status nd_file_write_all(int fd, const void *data, size_t size_bytes, const char *path,
                                 struct nd_error *err)
{
    const char *at = data;
    while (size_bytes > 0) {
        struct pollfd polled = {.fd = fd, .events = POLLOUT};
        ssize_t n = write(fd, at, size_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN && poll(&polled, 1, -1) >= 0)
            continue;
        if (n < 0 && errno == EINTR)
            return nd_fail(err, ND_E_CANCELLED, path, "writing '%s' was stopped on request", path);
        if (n < 0)
            return nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(errno));
        at += n;
        size_bytes -= (size_t)n;
    }
    return ND_OK;
}

enum nd_status nd_file_copy(int in, const char *from, int out, const char *to, struct nd_error *err)
{
    enum { BLOCK_BYTES = 1 << 20 };
    ND_FREED char *block = nd_calloc(BLOCK_BYTES, 1);
    ND_TRY_MEMORY(block != NULL, err);
    for (ssize_t n; (n = read(in, block, BLOCK_BYTES)) != 0;) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return nd_fail(err, ND_E_FILE_READ, from, "cannot read '%s': %s", from, strerror(errno));
        ND_TRY(nd_file_write_all(out, block, (size_t)n, to, err));
    }
    return ND_OK;
}

static enum nd_status sync_dir_of(const char *path, struct nd_error *err)
{
    ND_FREED char *dir = nd_path_dir(path);
    ND_TRY_MEMORY(dir != NULL, err);
    ND_CLEANUP(nd_fd_close) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems cannot sync a folder (EINVAL); the rename itself has then to be enough. */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        return nd_fail(err, ND_E_FILE_WRITE, dir, "cannot sync folder '%s': %s", dir, strerror(errno));
    return ND_OK;
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
    return link(from, to) != 0 ? -1 : unlink(from);
}

enum nd_status nd_dir_publish(const char *temporary, const char *final_path, struct nd_error *err)
{
    if (rename_without_replacing(temporary, final_path) == 0)
        return sync_dir_of(final_path, err);
    if (errno == EEXIST)
        return nd_fail(err, ND_E_FILE_EXISTS, final_path, "'%s' exists already", final_path);
    return nd_fail(err, ND_E_FILE_WRITE, final_path, "cannot rename '%s' to '%s': %s", temporary, final_path,
                   strerror(errno));
}

enum nd_status nd_dir_make(const char *path, struct nd_error *err)
{
    ND_FREED char *partial = nd_strdup(path);
    ND_TRY_MEMORY(partial != NULL, err);
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
    return status;
}

char *nd_path_join(const char *dir, const char *name)
{
    if (name[0] == '/' || dir[0] == '\0')
        return nd_strdup(name);
    size_t n = strlen(dir);
    return nd_text(dir[n - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
}

char *nd_cache_folder(const char *name)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool has_cache = cache != NULL && cache[0] == '/';
    ND_FREED char *relative = nd_text(has_cache ? "npudiff/%s" : ".cache/npudiff/%s", name);
    return relative == NULL ? NULL
           : has_cache      ? nd_path_join(cache, relative)
                            : nd_path_join(home != NULL && home[0] != '\0' ? home : "/", relative);
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

/* Chosen: twenty naps of 50 ms. On a machine that is so busy that a turn takes longer, others get no processor
 * either. */
static const uint64_t longest_turn_ns = 1000000000u;
static _Thread_local uint64_t stopped_ns;

uint64_t nd_clock_awake_ns(void)
{
    return nd_clock_ns() - stopped_ns;
}

void nd_clock_turn(uint64_t *turn_ns)
{
    uint64_t now = nd_clock_ns(), before = *turn_ns;
    if (before != 0 && now - before > longest_turn_ns)
        stopped_ns += now - before;
    *turn_ns = now;
}

int nd_file_open_regular(const char *path, int flags)
{
    struct stat info;
    int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd < 0 || (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

void nd_last_line(const char *text, size_t n, char *line, size_t size)
{
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' '))
        n--;
    size_t begin = n;
    while (begin > 0 && text[begin - 1] != '\n')
        begin--;
    snprintf(line, size, "%.*s", (int)(n - begin), text + begin);
}

void nd_file_last_line(const char *path, char *line, size_t size)
{
    enum { LONGEST = 65536 };
    struct stat info;
    int fd = nd_file_open_regular(path, O_RDONLY);
    char *text = fd >= 0 && fstat(fd, &info) == 0 ? malloc(LONGEST) : NULL;
    off_t from = text != NULL && info.st_size > LONGEST ? info.st_size - LONGEST : 0;
    ssize_t n = text != NULL ? pread(fd, text, LONGEST, from) : -1;
    nd_last_line(text, n > 0 ? (size_t)n : 0, line, size);
    free(text);
    if (fd >= 0)
        close(fd);
}
