/* A file that appears under its final name only when it is whole, and never takes the place of anything that is
 * not a regular file. Until then it has a name of its own in the same folder, <final name>.tmp-<16 hexadecimal
 * digits>, drawn at random so that nobody can put a symbolic link there first. Of a final name of over 234
 * bytes stands there the beginning, '~' and 16 digits of the digest of all of it. */
#ifndef ND_BASE_NEW_FILE_H
#define ND_BASE_NEW_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

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

#endif
