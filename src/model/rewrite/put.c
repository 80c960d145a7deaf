/* Changed models on their way to a file, with their external files beside it. */
#include "model/rewrite/put.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "model/graph/loaded.h"

/* ---- external files beside the copy ---- */

/* What nd_external_place made, so that it can be undone when a later step fails. Zeroed is empty. */
struct nd_external_copy {
    struct nd_external_placed *placed;
    size_t n;
};

/* What was made for one file. */
struct nd_external_placed {
    char *path;      /* the file, NULL while it was there before */
    char *dir;       /* its folder */
    size_t kept_len; /* the part of dir that existed before */
};

static enum nd_status copy_file(const char *source, const char *target, struct nd_error *err)
{
    ND_CLEANUP(nd_fd_close) int from = -1;
    ND_TRY(nd_file_open(source, &from, NULL, err));
    int to = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (to < 0)
        return nd_fail(err, ND_E_FILE_WRITE, target, "cannot create '%s': %s", target, strerror(errno));
    enum nd_status status = nd_file_copy(from, source, to, target, err);
    if (close(to) != 0 && status == ND_OK)
        status = nd_fail(err, ND_E_FILE_WRITE, target, "cannot write '%s': %s", target, strerror(errno));
    if (status != ND_OK)
        unlink(target);
    return status;
}

/* ND_OK when the file that is in the way holds the same bytes. */
static enum nd_status check_present(const struct nd_external_file *file, const char *target,
                                    struct nd_error *err)
{
    struct stat source_info, target_info;
    if (stat(file->path, &source_info) == 0 && stat(target, &target_info) == 0 &&
        source_info.st_dev == target_info.st_dev && source_info.st_ino == target_info.st_ino)
        return ND_OK;
    char sha256[ND_SHA256_HEX_BYTES];
    enum nd_status status = nd_sha256_file(target, sha256, err);
    if (status == ND_OK && strcmp(sha256, file->sha256) != 0)
        status = nd_fail(err, ND_E_FILE_EXISTS, target,
                         "'%s' exists already and is not the external data of the model", target);
    return status;
}

/* The length of the longest leading part of dir that exists. */
static size_t existing_part(const char *dir)
{
    ND_FREED char *part = nd_strdup(dir);
    if (part == NULL)
        return strlen(dir);
    size_t n = strlen(part);
    while (n > 1 && !nd_path_exists(part)) {
        while (n > 0 && part[n - 1] != '/')
            n--;
        while (n > 1 && part[n - 1] == '/')
            n--;
        part[n] = '\0';
    }
    return n;
}

static enum nd_status place_file(const struct nd_external_file *file, const char *copy_dir,
                                 struct nd_external_placed *placed, struct nd_error *err)
{
    ND_FREED char *target = nd_path_join(copy_dir, file->location);
    placed->dir = target != NULL ? nd_path_dir(target) : NULL;
    ND_TRY_MEMORY(placed->dir != NULL, err);
    placed->kept_len = existing_part(placed->dir);
    ND_TRY(nd_dir_make(placed->dir, err));
    /* The data itself and not a symbolic link to it, whose target may be relative to the folder it is in. */
    bool is_linked = linkat(AT_FDCWD, file->path, AT_FDCWD, target, AT_SYMLINK_FOLLOW) == 0;
    if (!is_linked && errno == EEXIST)
        return check_present(file, target, err);
    if (!is_linked)
        ND_TRY(copy_file(file->path, target, err));
    return ND_GIVE(&placed->path, target);
}

static void undo(struct nd_external_placed *placed)
{
    if (placed->path != NULL)
        unlink(placed->path);
    if (placed->dir == NULL)
        return;
    for (size_t n = strlen(placed->dir);
         n > placed->kept_len && (rmdir(placed->dir) == 0 || errno == ENOENT);) {
        while (n > placed->kept_len && placed->dir[n - 1] != '/')
            n--;
        while (n > placed->kept_len && placed->dir[n - 1] == '/')
            n--;
        placed->dir[n] = '\0';
    }
}

/* Frees the list; with remove the files and folders that were made go, too. */
static void nd_external_copy_end(struct nd_external_copy *copy, bool remove)
{
    for (size_t i = copy->n; i-- > 0;) {
        if (remove)
            undo(&copy->placed[i]);
        ND_FREE_ALL(copy->placed[i].path, copy->placed[i].dir);
    }
    free(copy->placed);
    *copy = (struct nd_external_copy){0};
}

/* Puts all files beside the model at copy_path, as hard links where the file system can, else as copies. A file
 * that is there already with the same content stays; with another content it is ND_E_FILE_EXISTS. On failure
 * nothing that was made is left, and *copy is empty. */
static enum nd_status nd_external_place(const struct nd_external *external, const char *copy_path,
                                        struct nd_external_copy *copy, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    ND_FREED char *dir = nd_path_dir(copy_path);
    *copy = (struct nd_external_copy){.placed = nd_calloc(external->n, sizeof *copy->placed), .n = external->n};
    if (dir == NULL || copy->placed == NULL) {
        copy->n = 0;
        status = nd_fail_memory(err);
    }
    for (size_t i = 0; i < external->n && status == ND_OK; i++)
        status = place_file(&external->files[i], dir, &copy->placed[i], err);
    if (status != ND_OK)
        nd_external_copy_end(copy, true);
    return status;
}

/* ---- the copy ---- */

enum nd_status nd_rewrite_put(const Onnx__ModelProto *proto, const struct nd_external *external,
                              const char *path, struct nd_error *err)
{
    struct nd_external_copy copy = {0};
    size_t n = onnx__model_proto__get_packed_size(proto);
    if (n > INT_MAX)
        return nd_fail(err, ND_E_SIZE_OVERFLOW, path, "'%s' would be larger than the 2 GiB of a protobuf",
                       path);
    ND_FREED uint8_t *bytes = nd_calloc(n, 1);
    ND_TRY_MEMORY(bytes != NULL, err);
    onnx__model_proto__pack(proto, bytes);
    enum nd_status status = nd_external_place(external, path, &copy, err);
    if (status == ND_OK)
        status = nd_file_put(path, bytes, n, err);
    nd_external_copy_end(&copy, status != ND_OK);
    return status;
}
