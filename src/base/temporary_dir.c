/* Folders for one run, which do not outlive the process that made them for long: each has a file that its
 * process keeps locked, and whoever makes the next one removes those that nobody holds. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/new_file.h"

static const char template[] = "npudiff-XXXXXX";
static const char lock_name[] = ".npudiff-lock";

/* A folder of this process, which may be known by several paths. */
struct held {
    dev_t device;
    ino_t inode;
    int fd; /* of its lock */
    struct held *next;
};
static struct held *all_held;
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    remove(path);
    return 0;
}

static void remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static bool is_temporary(const char *name)
{
    size_t n_begin = strcspn(template, "X");
    return strncmp(name, template, n_begin) == 0 && strlen(name) == strlen(template) &&
           strspn(name + n_begin, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") ==
               strlen(template) - n_begin;
}

/* Only what is ours and has a lock that nobody holds. A folder without one is just being made, or was left
 * there on purpose. */
static void remove_if_abandoned(int parent, const char *base, const char *name)
{
    struct stat info;
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool is_ours = folder >= 0 && fstat(folder, &info) == 0 && info.st_uid == geteuid();
    int fd = is_ours ? openat(folder, lock_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    char *path = fd >= 0 ? nd_path_join(base, name) : NULL;
    if (path != NULL && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && nd_file_writer(fd) == ND_WRITER_GONE)
        remove_tree(path);
    free(path);
    if (fd >= 0)
        close(fd);
    if (folder >= 0)
        close(folder);
}

static void remove_abandoned(const char *base)
{
    DIR *dir = opendir(base);
    for (struct dirent *entry = NULL; dir != NULL && (entry = readdir(dir)) != NULL;)
        if (is_temporary(entry->d_name))
            remove_if_abandoned(dirfd(dir), base, entry->d_name);
    if (dir != NULL)
        closedir(dir);
}

/* Best effort: a folder that cannot be locked stays where its process is killed. False when somebody has
 * removed it between making and locking. */
static bool hold(const char *path)
{
    struct stat info;
    struct held *held = nd_calloc(1, sizeof *held);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = held != NULL && folder >= 0 && fstat(folder, &info) == 0
                 ? openat(folder, lock_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)
                 : -1;
    bool is_there = fd < 0 || (nd_file_lock(fd) && nd_file_is_at(folder, lock_name, fd));
    if (folder >= 0)
        close(folder);
    if (fd < 0 || !is_there) {
        if (fd >= 0)
            close(fd);
        free(held);
        return is_there;
    }
    *held = (struct held){.device = info.st_dev, .inode = info.st_ino, .fd = fd};
    pthread_mutex_lock(&held_lock);
    held->next = all_held;
    all_held = held;
    pthread_mutex_unlock(&held_lock);
    return true;
}

static void release(const struct stat *info)
{
    struct held *found = NULL;
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
    free(found);
}

enum nd_status nd_dir_make_temporary(char **path, struct nd_error *err)
{
    enum { MAX_ATTEMPTS = 16 };
    const char *base = getenv("TMPDIR");
    base = base != NULL && base[0] != '\0' ? base : "/tmp";
    remove_abandoned(base);
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        char *made = nd_path_join(base, template);
        if (made == NULL)
            return nd_fail_memory(err);
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

void nd_dir_remove(const char *path)
{
    struct stat info;
    bool is_there = stat(path, &info) == 0;
    remove_tree(path);
    if (is_there)
        release(&info);
}
