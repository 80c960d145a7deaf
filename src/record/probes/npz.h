/* NumPy's .npz: a zip archive of .npy members, stored or deflated. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "npudiff/core/tensor.h"

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

/* NumPy's .npy format, versions 1.0, 2.0 and 3.0: read only. Nothing in a header is believed before it was
 * checked against the number of bytes that are there. */

enum {
    ND_NPY_MAX_RANK = ND_MAX_RANK + 1, /* one more than a tensor, for the samples */
    ND_NPY_MAX_HEADER_BYTES = 64 * 1024,
};

struct nd_npy {
    enum nd_dtype dtype; /* ND_DTYPE_NONE: nothing that a model input can be; descr says what */
    char descr[48];      /* as in the header, cut to fit, without control characters: "<f4", "|O" */
    bool is_big_endian;
    bool is_fortran_order;
    int rank;
    int64_t dims[ND_NPY_MAX_RANK];
    size_t n_elems;    /* these two are 0 for ND_DTYPE_NONE */
    size_t size_bytes; /* of the data */
};

/* Reads everything before the data. ND_ERR_FORMAT: not a .npy file, a version or header that is not understood,
 * more than ND_NPY_MAX_RANK dimensions (ND_E_PROBE_SHAPE), or another number of bytes behind the header than
 * the shape needs (not checked for ND_DTYPE_NONE). */
enum nd_status nd_npy_open(struct nd_source *source, struct nd_npy *npy, struct nd_error *err);

/* Reads the data, size_bytes of them, into out: C order, little endian; the bits of floats are kept. Then the
 * source must be at its end. ND_ERR_FORMAT: also a bool that is neither 0 nor 1. dtype is not ND_DTYPE_NONE. */
enum nd_status nd_npy_read(struct nd_source *source, const struct nd_npy *npy, void *out, struct nd_error *err);

/* ND_ERR_FORMAT when one of n bools is neither 0 nor 1. */
enum nd_status nd_npy_check_bools(const struct nd_source *source, const void *data, size_t n,
                                  struct nd_error *err);

/* Writes "(700, 1, 8, 8)" as NumPy does; returns buf, which is always terminated. */
char *nd_npy_format_shape(const struct nd_npy *npy, char *buf, size_t buf_size);

/* The element type's name, or the header's word for an unknown one: "float32", "object ('|O', a pickle)". */
char *nd_npy_format_dtype(const struct nd_npy *npy, char *buf, size_t buf_size);
