/* Whole files, complete writes, and files that appear under their final name only when they are whole. */
#ifndef ND_BASE_FILE_H
#define ND_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Reads all of n_bytes from an offset on. ND_E_FILE_READ: the file ends before, or cannot be read. */
enum nd_status nd_file_read_at(int fd, const char *path, uint64_t offset, void *buf, size_t n_bytes,
                               struct nd_error *err);

/* Writes all bytes to fd, retrying short writes. path is for the message only. ND_E_CANCELLED: a signal came
 * while it waited for whoever reads an fd that does not block. */
enum nd_status nd_file_write_all(int fd, const void *data, size_t size_bytes, const char *path,
                                 struct nd_error *err);

/* Copies what is left of `in` to `out`. The names are for messages only. */
enum nd_status nd_file_copy(int in, const char *from, int out, const char *to, struct nd_error *err);

/* Gives the finished folder its final name, where nothing may be (ND_E_FILE_EXISTS), and syncs the folder
 * around it. */
enum nd_status nd_dir_publish(const char *temporary, const char *final_path, struct nd_error *err);

/* A new folder under $TMPDIR (default /tmp) for one run; it holds nothing but a lock. The caller frees the
 * path, and removes the folder with nd_dir_remove. Folders of processes that were killed are removed on the
 * way. */
enum nd_status nd_dir_make_temporary(char **path, struct nd_error *err);

/* The same for a purpose, such as the path of a result, of at most 4096 bytes. Of a process that was killed the
 * folder of a purpose stays for a day, unless the purpose is asked for again: then it is removed or, with
 * takes_over, handed over as it was left. ND_E_FILE_BUSY: a process that lives has a folder for the same
 * purpose. */
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

#endif
