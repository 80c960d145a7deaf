#include "core/files/new_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/core/tensor.h"

/* Random names collide once in 2^32 files; more than a few in a row mean that something else is wrong. */
enum { MAX_ATTEMPTS = 16, N_RANDOM_DIGITS = 16 };

static enum nd_status fail_write(const char *path, struct nd_error *err)
{
    return nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(errno));
}

/* The descriptor of this process that the path names; -1: none. */
static int descriptor_of(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    int fd = strcmp(path, "/dev/stdout") == 0   ? STDOUT_FILENO
             : strcmp(path, "/dev/stderr") == 0 ? STDERR_FILENO
                                                : -1;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t n = strlen(folders[i]),
               n_digits = strspn(path + (strncmp(path, folders[i], n) == 0 ? n : 0), "0123456789");
        if (strncmp(path, folders[i], n) == 0 && n_digits > 0 && n_digits < 9 && path[n + n_digits] == '\0')
            fd = atoi(path + n);
    }
    return fd;
}

bool nd_path_is_stream(const char *path)
{
    struct stat info;
    return descriptor_of(path) >= 0 ||
           (stat(path, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)));
}

/* Locks of an open file description: a lock goes with the process that holds it, however it ends. flock() would
 * get into the way of libhdf5, which may lock the file so. */
bool nd_file_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int rc = fcntl(fd, F_OFD_SETLK, &whole);
    return rc == 0 || errno == EINVAL || errno == ENOLCK || errno == EOPNOTSUPP;
}

enum nd_writer nd_file_writer(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &whole) == 0)
        return ND_WRITER_GONE;
    return errno == EAGAIN || errno == EACCES ? ND_WRITER_LIVES : ND_WRITER_UNKNOWN;
}

bool nd_file_is_temporary(const char *name)
{
    static const char middle[] = ".tmp-";
    const char *at = strstr(name, middle);
    for (const char *next = at; next != NULL; next = strstr(next + 1, middle))
        at = next;
    return at != NULL && strspn(at + sizeof middle - 1, "0123456789abcdef") == N_RANDOM_DIGITS &&
           at[sizeof middle - 1 + N_RANDOM_DIGITS] == '\0';
}

/* What a temporary name begins with: the final name, or, where the whole would be too long for a file system,
 * as much of it as fits with a digest of all of it. Two names have one beginning only if their digests are
 * equal.
 */
static char *stem_of(const char *base)
{
    enum { MOST = NAME_MAX - (sizeof ".tmp-" - 1) - N_RANDOM_DIGITS, KEPT = MOST - 1 - N_RANDOM_DIGITS };
    size_t n = strlen(base), n_kept = n <= MOST ? n : KEPT;
    struct nd_strbuf stem = {0};
    while (n > MOST && n_kept > 0 && ((unsigned char)base[n_kept] & 0xc0) == 0x80)
        n_kept--; /* not within a character of UTF-8 */
    nd_strbuf_append(&stem, base, n_kept);
    if (n > MOST)
        nd_strbuf_printf(&stem, "~%0*" PRIx64, N_RANDOM_DIGITS, nd_digest_bytes(base, n).low);
    return nd_strbuf_take(&stem);
}

static bool is_temporary_of(const char *name, const char *stem)
{
    size_t n = strlen(stem);
    return strncmp(name, stem, n) == 0 && strncmp(name + n, ".tmp-", 5) == 0 && nd_file_is_temporary(name + n);
}

/* Best effort: a folder that cannot be listed keeps what it has. Returns whether somebody is making the same
 * file now. */
static bool remove_abandoned(int folder, const char *stem)
{
    bool is_busy = false;
    int listed = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = listed >= 0 ? fdopendir(listed) : NULL;
    if (dir == NULL && listed >= 0)
        close(listed);
    for (struct dirent *entry = NULL; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (!is_temporary_of(entry->d_name, stem))
            continue;
        struct stat info;
        int fd = openat(folder, entry->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        bool is_file = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
        enum nd_writer writer = is_file ? nd_file_writer(fd) : ND_WRITER_UNKNOWN;
        is_busy |= writer == ND_WRITER_LIVES;
        if (writer == ND_WRITER_GONE)
            unlinkat(folder, entry->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (dir != NULL)
        closedir(dir);
    return is_busy;
}

bool nd_file_is_at(int folder, const char *name, int fd)
{
    struct stat named, opened;
    return fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &opened) == 0 &&
           named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

static enum nd_status check_place(const struct nd_new_file *file, const char *base, struct nd_error *err)
{
    struct stat info;
    if (fstatat(file->folder, base, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? ND_OK : fail_write(file->path, err);
    if (!file->replace)
        return nd_fail(err, ND_E_FILE_EXISTS, file->path, "'%s' exists already", file->path);
    if (S_ISREG(info.st_mode))
        return ND_OK;
    return nd_fail(err, ND_E_FILE_EXISTS, file->path, "'%s' is %s, and only a regular file is replaced",
                   file->path,
                   S_ISDIR(info.st_mode)   ? "a folder"
                   : S_ISLNK(info.st_mode) ? "a symbolic link"
                                           : "a device, pipe or socket");
}

static enum nd_status create_locked(struct nd_new_file *file, const char *stem, struct nd_error *err)
{
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        uint64_t number;
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
            return fail_write(file->path, err);
        struct nd_strbuf name = {0};
        nd_strbuf_append(&name, file->path, (size_t)(nd_path_base(file->path) - file->path));
        nd_strbuf_printf(&name, "%s.tmp-%0*" PRIx64, stem, N_RANDOM_DIGITS, number);
        free(file->temporary);
        file->temporary = nd_strbuf_take(&name);
        if (file->temporary == NULL)
            return nd_fail_memory(err);
        const char *base = nd_path_base(file->temporary);
        file->fd = openat(file->folder, base, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file->fd < 0 && errno != EEXIST)
            break;
        if (file->fd >= 0 && nd_file_lock(file->fd) && nd_file_is_at(file->folder, base, file->fd)) {
            file->is_ours = true;
            return ND_OK;
        }
        if (file->fd >= 0)
            close(file->fd);
        file->fd = -1;
    }
    return nd_fail(err, ND_E_FILE_WRITE, file->path, "cannot create '%s': %s", file->temporary,
                   strerror(errno));
}

enum nd_status nd_new_file_create(const char *path, bool replace, struct nd_new_file *file,
                                  struct nd_error *err)
{
    *file = nd_new_file_none();
    file->replace = replace;
    file->path = nd_strdup(path);
    const char *base = nd_path_base(path);
    char *folder = nd_path_dir(path), *stem = stem_of(base);
    enum nd_status status = file->path != NULL && folder != NULL && stem != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && path[0] == '\0')
        status = nd_fail(err, ND_E_FILE_WRITE, path, "the name of the file to write is empty");
    if (status == ND_OK) {
        file->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (file->folder < 0)
            status = fail_write(path, err);
    }
    if (status == ND_OK)
        status = check_place(file, base, err);
    if (status == ND_OK && remove_abandoned(file->folder, stem) && !replace)
        status = nd_fail(err, ND_E_FILE_EXISTS, path, "'%s' is being made by another process", path);
    if (status == ND_OK)
        status = create_locked(file, stem, err);
    free(stem);
    free(folder);
    if (status != ND_OK)
        nd_new_file_discard(file);
    return status;
}

static int rename_without_replacing(int folder, const char *from, const char *to)
{
    const unsigned int no_replace = 1; /* RENAME_NOREPLACE, which older C libraries do not declare */
    if (renameat2(folder, from, folder, to, no_replace) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    /* File systems without that flag: a hard link refuses to replace as well. */
    if (linkat(folder, from, folder, to, 0) != 0)
        return -1;
    return unlinkat(folder, from, 0);
}

enum nd_status nd_new_file_commit(struct nd_new_file *file, struct nd_error *err)
{
    const char *from = nd_path_base(file->temporary), *to = nd_path_base(file->path);
    if (fsync(file->fd) != 0)
        return fail_write(file->temporary, err);
    /* Once more: the file may have been made over hours. */
    enum nd_status status = check_place(file, to, err);
    if (status != ND_OK)
        return status;
    int rc = file->replace ? renameat(file->folder, from, file->folder, to)
                           : rename_without_replacing(file->folder, from, to);
    if (rc != 0 && errno == EEXIST)
        return nd_fail(err, ND_E_FILE_EXISTS, file->path, "'%s' exists already", file->path);
    if (rc != 0)
        return nd_fail(err, ND_E_FILE_WRITE, file->path, "cannot rename '%s' to '%s': %s", file->temporary,
                       file->path, strerror(errno));
    file->is_ours = false;
    /* Some file systems cannot sync a folder (EINVAL); the rename itself has then to be enough. */
    if (fsync(file->folder) != 0 && errno != EINVAL)
        return fail_write(file->path, err);
    nd_new_file_discard(file);
    return ND_OK;
}

void nd_new_file_discard(struct nd_new_file *file)
{
    if (file->is_ours)
        unlinkat(file->folder, nd_path_base(file->temporary), 0);
    if (file->fd >= 0)
        close(file->fd);
    if (file->folder >= 0)
        close(file->folder);
    free(file->temporary);
    free(file->path);
    *file = nd_new_file_none();
}

/* Waits for whoever reads a pipe, until a signal is handled: a blocking open would then be begun again. */
static int open_stream(const char *path)
{
    static const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000}; /* chosen: nobody notices it */
    /* As it was opened: where it stands, at the end or not at all for writing. */
    if (descriptor_of(path) >= 0)
        return fcntl(descriptor_of(path), F_DUPFD_CLOEXEC, 0);
    for (;;) {
        struct stat info;
        int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd >= 0 || errno != ENXIO)
            return fd;
        if (stat(path, &info) != 0 || !S_ISFIFO(info.st_mode)) {
            errno = ENXIO;
            return -1;
        }
        if (nanosleep(&pause, NULL) != 0)
            return -1;
    }
}

static enum nd_status put_into_stream(const char *path, const void *data, size_t size_bytes,
                                      struct nd_error *err)
{
    int fd = open_stream(path);
    if (fd < 0 && errno == EINTR)
        return nd_fail(err, ND_E_CANCELLED, path, "writing '%s' was stopped on request", path);
    if (fd < 0)
        return fail_write(path, err);
    enum nd_status status = nd_file_write_all(fd, data, size_bytes, path, err);
    if (close(fd) != 0 && status == ND_OK)
        status = fail_write(path, err);
    return status;
}

enum nd_status nd_file_put_new(const char *path, const void *data, size_t size_bytes, bool replace,
                               struct nd_error *err)
{
    if (nd_path_is_stream(path))
        return put_into_stream(path, data, size_bytes, err);
    struct nd_new_file file;
    enum nd_status status = nd_new_file_create(path, replace, &file, err);
    if (status == ND_OK)
        status = nd_file_write_all(file.fd, data, size_bytes, file.temporary, err);
    if (status == ND_OK)
        status = nd_new_file_commit(&file, err);
    nd_new_file_discard(&file);
    return status;
}

enum nd_status nd_file_put(const char *path, const void *data, size_t size_bytes, struct nd_error *err)
{
    return nd_file_put_new(path, data, size_bytes, true, err);
}
