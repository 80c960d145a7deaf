/* Whole files, complete writes, and files that appear under their final name only when they are whole. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"

/* The whole file as one block of *size_bytes, followed by a NUL that is not counted. The caller frees it. Files
 * over max_bytes are refused (ND_E_SIZE_OVERFLOW). */
enum nd_status nd_file_read(const char *path, size_t max_bytes, void **data, size_t *size_bytes,
                            struct nd_error *err);

/* The error of a file that cannot be opened: ND_E_FILE_LIMIT where errno was EMFILE, else ND_E_FILE_OPEN. */
enum nd_status nd_file_fail_open(const char *path, int problem, struct nd_error *err);

/* Whether the error is one of these two. */
bool nd_file_is_unopened(const struct nd_error *err);

/* Opens a regular file for reading; the caller closes *fd. size_bytes may be NULL. ND_E_FILE_OPEN, and
 * ND_E_FILE_READ for folders, pipes and devices: opening a pipe would wait for its writer, without end. */
enum nd_status nd_file_open(const char *path, int *fd, uint64_t *size_bytes, struct nd_error *err);

/* For ND_CLEANUP: closes what was opened, and accepts what was not (-1, NULL). */
void nd_fd_close(int *fd);
void nd_dir_close(DIR **dir);
void nd_stdio_close(FILE **file);

/* Reads all of n_bytes from an offset on. ND_E_FILE_READ: the file ends before, or cannot be read. */
enum nd_status nd_file_read_at(int fd, const char *path, uint64_t offset, void *buf, size_t n_bytes,
                               struct nd_error *err);

/* Writes all bytes to fd, retrying short writes. path is for the message only. ND_E_CANCELLED: a signal came
 * while it waited for whoever reads an fd that does not block. */
enum nd_status nd_file_write_all(int fd, const void *data, size_t size_bytes, const char *path,
                                 struct nd_error *err);

/* Copies what is left of `in` to `out`. The names are for messages only. */
enum nd_status nd_file_copy(int in, const char *from, int out, const char *to, struct nd_error *err);

/* Gives the finished folder its name, where nothing may be (ND_E_FILE_EXISTS), and syncs the one around it. */
enum nd_status nd_dir_publish(const char *temporary, const char *final_path, struct nd_error *err);

/* A new folder under $TMPDIR (default /tmp) for one run; it holds nothing but a lock. The caller frees the
 * path, and removes the folder with nd_dir_remove. Those of processes that were killed go on the way. */
enum nd_status nd_dir_make_temporary(char **path, struct nd_error *err);

/* The same for a purpose, such as the path of a result, of at most 4096 bytes. Of a process that was killed the
 * folder of a purpose stays for a day, unless the purpose is asked for again: then it is removed or, with
 * takes_over, handed over as it was left. ND_E_FILE_BUSY: a living process has a folder for the purpose. */
enum nd_status nd_dir_make_for(const char *purpose, bool takes_over, char **path, struct nd_error *err);

/* Removes what processes that were killed, or have left their folders, left for the purpose. */
void nd_dir_remove_for(const char *purpose);

/* Leaves such a folder as a process that was killed would. */
void nd_dir_leave(const char *path);

/* Creates path and its missing parents. */
enum nd_status nd_dir_make(const char *path, struct nd_error *err);

/* Removes a folder with all it holds; does not follow symbolic links. Best effort. */
void nd_dir_remove(const char *path);

/* "dir/name" in new memory, or NULL when out of memory. An absolute name is returned alone. */
char *nd_path_join(const char *dir, const char *name);

/* What npudiff keeps for all its runs: $XDG_CACHE_HOME/npudiff/name where that is an absolute path, else
 * ~/.cache/npudiff/name. In new memory, or NULL when out of memory. */
char *nd_cache_folder(const char *name);

/* The part after the last '/'; borrowed from path. */
const char *nd_path_base(const char *path);

/* The folder part in new memory ("." when there is none), or NULL when out of memory. */
char *nd_path_dir(const char *path);

bool nd_path_exists(const char *path);

/* The last line of n bytes of text, and of a regular file ("" where there is none; of a line of over 64 KiB the
 * end): without its end of line, as much of it as fits. */
void nd_last_line(const char *text, size_t n, char *line, size_t size);
void nd_file_last_line(const char *path, char *line, size_t size);

/* Nanoseconds of the monotonic clock. */
uint64_t nd_clock_ns(void);

/* A clock that stands still while this process is stopped (Ctrl-Z, a debugger), so that nobody else is blamed
 * for that time. Each thread has its own. It knows of a stop by loops that wait for others in short naps: each
 * of their turns calls nd_clock_turn, with *turn_ns of the turn before, 0 at first. A turn of over a second was
 * no nap: then the clock is set back by it. */
uint64_t nd_clock_awake_ns(void);
void nd_clock_turn(uint64_t *turn_ns);

/* Opens a regular file, and neither follows a link nor waits for a pipe in its place: for files of folders in
 * which somebody else may write. flags as of open(2), a new file is for its owner alone. -1 and errno (EINVAL:
 * something else is there).
 */
int nd_file_open_regular(const char *path, int flags);

/* A file that appears under its final name only when it is whole, and never takes the place of anything that is
 * not a regular file. Until then it has a name of its own in the same folder, <final name>.tmp-<16 hexadecimal
 * digits>, drawn at random so that nobody can put a symbolic link there first. Of a final name of over 234
 * bytes stands there the beginning, '~' and 16 digits of the digest of all of it. */

struct nd_new_file {
    char *path;      /* final name; owned */
    char *temporary; /* name until then; owned */
    int fd;       /* open for reading and writing, locked: who finds the name and gets the lock may remove it */
    int folder;   /* the folder of both names */
    bool replace; /* whether a regular file under the final name may be there */
    bool is_ours; /* the temporary name exists and is ours to remove */
};

/* What to begin with; nd_new_file_discard may always be called on it. */
static inline struct nd_new_file nd_new_file_none(void)
{
    return (struct nd_new_file){.fd = -1, .folder = -1};
}

/* Creates the temporary file (mode 0666 less umask). ND_E_FILE_EXISTS when the final name is taken: by
 * anything, or by a file that somebody else is making now, without replace; by anything but a regular file with
 * it. Temporary files of writers that were killed while they made the same file are removed. */
enum nd_status nd_new_file_create(const char *path, bool replace, struct nd_new_file *file,
                                  struct nd_error *err);

/* Syncs the file, gives it its final name, syncs the folder, and frees what the file has. After a failure
 * nd_new_file_discard is still to be called. */
enum nd_status nd_new_file_commit(struct nd_new_file *file, struct nd_error *err);

/* Removes a file that was not committed, and frees what it has. */
void nd_new_file_discard(struct nd_new_file *file);

/* ---- files that are locked as long as somebody needs them ---- */

/* Whether the name, without folders, is one that nd_new_file_create gives to what is not finished. */
bool nd_file_is_temporary(const char *name);

/* Whether somebody else has locked the file; if not, it is locked now. A file system without locks leaves the
 * answer open. */
enum nd_writer { ND_WRITER_GONE, ND_WRITER_LIVES, ND_WRITER_UNKNOWN };

/* Whether path is a pipe, a terminal or another device, /dev/stdout among them, into which bytes are written as
 * they are. */
bool nd_path_is_stream(const char *path);

/* Writes the bytes: to a new file that is committed, or into a stream. */
enum nd_status nd_file_put(const char *path, const void *data, size_t size_bytes, struct nd_error *err);

/* The same; with replace false an existing file is an error (ND_E_FILE_EXISTS) and stays as it was. */
enum nd_status nd_file_put_new(const char *path, const void *data, size_t size_bytes, bool replace,
                               struct nd_error *err);

/* ---- how a text ends: file names and their extensions, names of nodes and their tokens ---- */

/* Whether text ends in `end`, or is `end`. */
static inline bool nd_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

/* The bytes of text before `end`; 0 where text does not end in it, or is it. */
static inline size_t nd_stem_bytes(const char *text, const char *end)
{
    return nd_ends_with(text, end) ? strlen(text) - strlen(end) : 0;
}

/* The length of a node's name without the "_token_<n>" that ONNX Runtime's layout pass puts behind it. */
static inline size_t nd_token_stem_bytes(const char *name)
{
    static const char mark[] = "_token_";
    const size_t n = strlen(name), n_mark = sizeof mark - 1;
    size_t digits = n;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    bool has_token = digits < n && digits > n_mark && memcmp(name + digits - n_mark, mark, n_mark) == 0;
    return has_token ? digits - n_mark : n;
}
