/* Files and folders in the making. A file appears under its name when it is whole. Folders for one run do not
 * outlive the process that made them for long: each has a file that its process keeps locked, and whoever makes
 * the next one removes those that nobody holds. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
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

/* Locks fd, which is open for writing, until it is closed. True also where the file system knows no locks.
 * Locks of an open file description: a lock goes with the process that holds it, however it ends. flock() would
 * get into the way of libhdf5, which may lock the file so. */
static bool nd_file_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int rc = fcntl(fd, F_OFD_SETLK, &whole);
    return rc == 0 || errno == EINVAL || errno == ENOLCK || errno == EOPNOTSUPP;
}

static enum nd_writer nd_file_writer(int fd)
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
        nd_fd_close(&fd);
    }
    nd_dir_close(&dir);
    return is_busy;
}

/* Whether the name still leads to fd. It does not when a cleaner came between creating and locking. */
static bool nd_file_is_at(int folder, const char *name, int fd)
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
        ND_TRY_MEMORY(file->temporary != NULL, err);
        const char *base = nd_path_base(file->temporary);
        file->fd = openat(file->folder, base, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file->fd < 0 && errno != EEXIST)
            break;
        if (file->fd >= 0 && nd_file_lock(file->fd) && nd_file_is_at(file->folder, base, file->fd)) {
            file->is_ours = true;
            return ND_OK;
        }
        nd_fd_close(&file->fd);
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
    ND_FREE_ALL(stem, folder);
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
    return linkat(folder, from, folder, to, 0) != 0 ? -1 : unlinkat(folder, from, 0);
}

enum nd_status nd_new_file_commit(struct nd_new_file *file, struct nd_error *err)
{
    const char *from = nd_path_base(file->temporary), *to = nd_path_base(file->path);
    if (fsync(file->fd) != 0)
        return fail_write(file->temporary, err);
    /* Once more: the file may have been made over hours. */
    ND_TRY(check_place(file, to, err));
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
    nd_fd_close(&file->fd);
    nd_fd_close(&file->folder);
    ND_FREE_ALL(file->temporary, file->path);
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
    ND_CLEANUP(nd_new_file_discard) struct nd_new_file file = nd_new_file_none();
    ND_TRY(nd_new_file_create(path, replace, &file, err));
    ND_TRY(nd_file_write_all(file.fd, data, size_bytes, file.temporary, err));
    return nd_new_file_commit(&file, err);
}

enum nd_status nd_file_put(const char *path, const void *data, size_t size_bytes, struct nd_error *err)
{
    return nd_file_put_new(path, data, size_bytes, true, err);
}

static const char template[] = "npudiff-XXXXXX";
static const char lock_name[] = ".npudiff-lock";
static const char purpose_name[] = ".npudiff-for"; /* holds the purpose */
enum { MAX_PURPOSE = 4096 };

/* A folder of this process, which may be known by several paths. */
struct held {
    dev_t device;
    ino_t inode;
    int fd; /* of its lock */
    struct held *next;
};
static struct held *all_held;
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_mark(const char *name)
{
    return strcmp(name, lock_name) == 0 || strcmp(name, purpose_name) == 0;
}

/* Everything in the folder, by its descriptor, which this closes: who puts a link in the place of a folder
 * meanwhile makes nothing go that lies outside. Lock and purpose, in the outermost folder, are left. */
static void remove_below(int folder, bool is_outermost)
{
    DIR *dir = fdopendir(folder);
    for (struct dirent *entry = NULL; dir != NULL && (entry = readdir(dir)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || (is_outermost && is_mark(name)) ||
            unlinkat(folder, name, 0) == 0)
            continue;
        int below = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0)
            remove_below(below, false);
        unlinkat(folder, name, AT_REMOVEDIR);
    }
    if (dir == NULL)
        close(folder);
    nd_dir_close(&dir);
}

static bool is_empty_but_for_marks(int folder)
{
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again >= 0 ? fdopendir(again) : NULL;
    bool is_empty = dir != NULL;
    for (struct dirent *entry = NULL; is_empty && (entry = readdir(dir)) != NULL;)
        is_empty =
            strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || is_mark(entry->d_name);
    if (dir == NULL)
        nd_fd_close(&again);
    nd_dir_close(&dir);
    return is_empty;
}

/* The lock goes last, and before it the purpose: a folder of which something stays, as its process is killed,
 * is found by the next run, and known by the one that asks for it. */
static void remove_tree(const char *path)
{
    enum { ATTEMPTS = 2 }; /* where memory or descriptors were short for a moment */
    bool is_empty = false;
    for (int i = 0; i < ATTEMPTS && !is_empty; i++) {
        int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int held = folder >= 0 ? fcntl(folder, F_DUPFD_CLOEXEC, 0) : -1;
        if (folder >= 0)
            remove_below(folder, true);
        is_empty = held >= 0 && is_empty_but_for_marks(held);
        if (is_empty && (unlinkat(held, purpose_name, 0) == 0 || errno == ENOENT))
            unlinkat(held, lock_name, 0);
        nd_fd_close(&held);
    }
    rmdir(path);
}

static bool is_temporary(const char *name)
{
    size_t n_begin = strcspn(template, "X");
    return strncmp(name, template, n_begin) == 0 && strlen(name) == strlen(template) &&
           strspn(name + n_begin, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") ==
               strlen(template) - n_begin;
}

/* What is looked for among the folders of killed processes. */
struct search {
    const char *base;
    const char *purpose; /* NULL: none */
    bool takes_over;     /* one of this purpose is not removed but taken */
    char *taken;         /* its path */
    const char *own;     /* path of a folder that is not looked at; NULL: none */
    bool is_busy;        /* a process that lives has a folder of this purpose */
};

/* A folder of another purpose may be asked for yet; for so long. Chosen. */
static const double kept_s = 24 * 3600;

/* Whether the folder has a purpose; *is_same: the one looked for; *is_young: it may be asked for yet. */
static bool has_purpose(int folder, const char *purpose, bool *is_same, bool *is_young)
{
    char text[MAX_PURPOSE];
    struct stat info;
    int fd = openat(folder, purpose_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? read(fd, text, sizeof text) : -1;
    nd_fd_close(&fd);
    if (n <= 0)
        return false;
    *is_same = purpose != NULL && strlen(purpose) == (size_t)n && memcmp(purpose, text, (size_t)n) == 0;
    *is_young = difftime(time(NULL), info.st_mtime) < kept_s;
    return true;
}

static bool remember(const struct stat *folder, int fd)
{
    struct held *held = nd_calloc(1, sizeof *held);
    if (held == NULL)
        return false;
    *held = (struct held){.device = folder->st_dev, .inode = folder->st_ino, .fd = fd};
    pthread_mutex_lock(&held_lock);
    held->next = all_held;
    all_held = held;
    pthread_mutex_unlock(&held_lock);
    return true;
}

/* Nobody else holds fd, the lock of the folder: takes it over, removes it or leaves it. True: fd is kept. */
static bool settle(struct search *search, int folder, int fd, const char *path)
{
    struct stat info;
    bool is_same = false, is_young = false;
    bool is_for_something = has_purpose(folder, search->purpose, &is_same, &is_young);
    if (is_same && search->takes_over && search->taken == NULL && fstat(folder, &info) == 0) {
        search->taken = nd_strdup(path);
        return search->taken != NULL && remember(&info, fd);
    }
    if (!is_for_something || is_same || !is_young)
        remove_tree(path);
    return false;
}

/* A process between fork and exec has the lock of its host, which may have been killed just now: so long it is
 * waited for, where the folder is the one that is asked for. Chosen: 4 of 200 kills at load 20 met such a
 * process (docs/results/faults.md). */
enum { FORKED_MS = 500, LOOK_AGAIN_MS = 10 };

static bool is_writer_gone(int fd, int folder, struct search *search)
{
    bool is_same = false, is_young;
    int waited_ms = 0;
    enum nd_writer writer;
    while ((writer = nd_file_writer(fd)) != ND_WRITER_GONE) {
        bool is_asked_for = has_purpose(folder, search->purpose, &is_same, &is_young) && is_same;
        if (!is_asked_for || waited_ms >= FORKED_MS) {
            search->is_busy = search->is_busy || (is_asked_for && writer == ND_WRITER_LIVES);
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_MS * 1000000}, NULL);
        waited_ms += LOOK_AGAIN_MS;
    }
    return true;
}

/* A folder without a lock is just being made, after so long by nobody. Chosen. */
static const double made_s = 60;

/* Only what is ours and has a lock that nobody holds. Of those without one only what is old and empty: its
 * process was killed before it had a lock. */
static void look_if_abandoned(struct search *search, int parent, const char *name)
{
    struct stat info;
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool is_ours = folder >= 0 && fstat(folder, &info) == 0 && info.st_uid == geteuid();
    int fd = is_ours ? openat(folder, lock_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    if (is_ours && fd < 0 && errno == ENOENT && difftime(time(NULL), info.st_mtime) > made_s)
        unlinkat(parent, name, AT_REMOVEDIR);
    char *path = fd >= 0 ? nd_path_join(search->base, name) : NULL;
    bool is_own = path != NULL && search->own != NULL && strcmp(path, search->own) == 0;
    bool is_abandoned = path != NULL && !is_own && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                        is_writer_gone(fd, folder, search);
    if ((!is_abandoned || !settle(search, folder, fd, path)) && fd >= 0)
        close(fd);
    free(path);
    nd_fd_close(&folder);
}

static void look_for_abandoned(struct search *search)
{
    DIR *dir = opendir(search->base);
    for (struct dirent *entry = NULL; dir != NULL && (entry = readdir(dir)) != NULL;)
        if (is_temporary(entry->d_name))
            look_if_abandoned(search, dirfd(dir), entry->d_name);
    nd_dir_close(&dir);
}

/* Best effort: a folder that cannot be locked stays where its process is killed. False when somebody has
 * removed it between making and locking. */
static bool hold(const char *path)
{
    struct stat info;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = folder >= 0 && fstat(folder, &info) == 0
                 ? openat(folder, lock_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)
                 : -1;
    bool is_there = fd < 0 || (nd_file_lock(fd) && nd_file_is_at(folder, lock_name, fd));
    nd_fd_close(&folder);
    if (fd >= 0 && (!is_there || !remember(&info, fd)))
        close(fd);
    return is_there;
}

static void release(const struct stat *info)
{
    ND_FREED struct held *found = NULL;
    pthread_mutex_lock(&held_lock);
    for (struct held **at = &all_held; *at != NULL && found == NULL;) {
        if ((*at)->device == info->st_dev && (*at)->inode == info->st_ino) {
            found = *at;
            *at = found->next;
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&held_lock);
    if (found != NULL)
        close(found->fd);
}

/* What cannot be written down is not asked for again. */
static void write_purpose(const char *path, const char *purpose)
{
    ND_FREED char *name = nd_path_join(path, purpose_name);
    int fd = name != NULL ? open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && nd_file_write_all(fd, purpose, strlen(purpose), name, NULL) != ND_OK)
        unlink(name);
    nd_fd_close(&fd);
}

static enum nd_status make(const char *base, char **path, struct nd_error *err)
{

    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        char *made = nd_path_join(base, template);
        ND_TRY_MEMORY(made != NULL, err);
        if (mkdtemp(made) == NULL) {
            enum nd_status status = nd_fail(err, ND_E_FILE_WRITE, made,
                                            "cannot create a temporary folder '%s': %s", made, strerror(errno));
            free(made);
            return status;
        }
        if (hold(made)) {
            *path = made;
            return ND_OK;
        }
        free(made);
    }
    return nd_fail(err, ND_E_FILE_WRITE, base, "temporary folders in '%s' disappear while they are made", base);
}

static const char *base_folder(void)
{
    const char *base = getenv("TMPDIR");
    return base != NULL && base[0] != '\0' ? base : "/tmp";
}

/* What is taken over, else a new folder; *path stays NULL where another process has one of this purpose. Two
 * that begin at the same time find each other, since each looks again when its own folder is there. */
static enum nd_status make_for(struct search *search, char **path, struct nd_error *err)
{
    char *made = NULL;
    look_for_abandoned(search);
    if (search->taken != NULL && !search->is_busy) {
        *path = search->taken;
        return ND_OK;
    }
    if (search->taken != NULL)
        nd_dir_leave(search->taken);
    free(search->taken);
    search->taken = NULL;
    if (search->is_busy)
        return ND_OK;
    enum nd_status status = make(search->base, &made, err);
    if (status != ND_OK || search->purpose == NULL || strlen(search->purpose) > MAX_PURPOSE) {
        *path = made;
        return status;
    }
    write_purpose(made, search->purpose);
    search->own = made;
    look_for_abandoned(search);
    search->own = NULL;
    if (search->is_busy) {
        nd_dir_remove(made);
        free(made);
    } else {
        *path = made;
    }
    return ND_OK;
}

void nd_dir_remove_for(const char *purpose)
{
    struct search search = {.base = base_folder(), .purpose = purpose};
    look_for_abandoned(&search);
}

enum nd_status nd_dir_make_for(const char *purpose, bool takes_over, char **path, struct nd_error *err)
{
    char *made = NULL;
    struct search search = {.base = base_folder(), .purpose = purpose, .takes_over = takes_over};
    ND_TRY(make_for(&search, &made, err));
    if (made == NULL)
        return nd_fail(err, ND_E_FILE_BUSY, purpose, "'%s' is being made by another process", purpose);
    *path = made;
    return ND_OK;
}

enum nd_status nd_dir_make_temporary(char **path, struct nd_error *err)
{
    return nd_dir_make_for(NULL, false, path, err);
}

void nd_dir_leave(const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0)
        release(&info);
}

void nd_dir_remove(const char *path)
{
    struct stat info;
    if (path == NULL)
        return;
    bool is_there = stat(path, &info) == 0;
    remove_tree(path);
    if (is_there)
        release(&info);
}
