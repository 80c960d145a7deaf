/* NumPy's .npz: a zip archive of .npy members, stored or deflated. */
#ifndef ND_PROBE_NPZ_H
#define ND_PROBE_NPZ_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

/* A run of bytes of known length, read from front to back: a file, a member of a zip archive, or memory. */

struct zip;
struct zip_file;

struct nd_source {
    char *path; /* the file, the object of every error */
    char *what; /* for messages: "'x.npy'", or "array 'a' of 'x.npz'" */
    size_t size_bytes;
    size_t n_read;
    bool is_file; /* read fd, else zip, else memory */
    int fd;
    struct zip_file *zip;
    const unsigned char *memory; /* borrowed */
};

/* Opens a regular file. ND_ERR_IO: it is missing, cannot be opened, or is a folder, pipe or device. On failure
 * nothing needs to be closed. */
enum nd_status nd_source_open(struct nd_source *source, const char *path, struct nd_error *err);

/* Reads exactly size_bytes. ND_ERR_FORMAT (ND_E_FILE_SHORT) when fewer are left. */
enum nd_status nd_source_read(struct nd_source *source, void *buf, size_t size_bytes, struct nd_error *err);

/* Checks that everything was read; a zip member's checksum is thereby verified too. */
enum nd_status nd_source_finish(struct nd_source *source, struct nd_error *err);

/* Accepts a zeroed source. */
void nd_source_close(struct nd_source *source);

struct nd_npz;

/* ND_ERR_IO: it cannot be opened; ND_ERR_FORMAT: not a zip archive, or one that is no .npz: a member whose name
 * does not end in ".npy", is not unique, is encrypted, compressed otherwise, or claims to hold more than its
 * bytes can. */
enum nd_status nd_npz_open(const char *path, struct nd_npz **out, struct nd_error *err);
void nd_npz_close(struct nd_npz **npz);

size_t nd_npz_n_arrays(const struct nd_npz *npz);

/* Name of array i, without ".npy". Borrowed. */
const char *nd_npz_name(const struct nd_npz *npz, size_t i);

/* Opens array i as a source, which must be closed before the archive. */
enum nd_status nd_npz_source(const struct nd_npz *npz, size_t i, struct nd_source *source,
                             struct nd_error *err);

#endif
