/* A file on a web server or in a bucket, read in ranges: http://, https:// and s3:// names.
 *
 * The first request takes the size and the version of the file (its ETag, else Last-Modified). Every later
 * answer must be of that size and version, so that what is read is one file and never a mixture of two. Ranges
 * are fetched in blocks, which are kept (at most ND_FETCH_CACHE_BYTES of a file).
 *
 * Only this process fetches, never the confined child that libhdf5 runs in (hdf5/reading.h). libcurl is loaded
 * when it is first needed: without it, everything but these names works.
 *
 * Next: hdf5, whose index reads files through this folder. */
#ifndef ND_FETCH_FETCH_H
#define ND_FETCH_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum { ND_FETCH_CACHE_BYTES = 16 << 20 };

struct nd_fetch;

/* Whether the name is one of http://, https:// or s3://. No file is looked for. */
bool nd_fetch_is_url(const char *name);

/* The name as messages and reports show it: without user and password, and without what follows '?', which may
 * be a signature that opens the file to everybody. Other names stay as they are. The caller frees it; NULL: out
 * of memory. */
char *nd_fetch_shown(const char *name);

/* ND_E_FETCH_LIBRARY, ND_E_FETCH_URL, ND_E_FETCH_FAILED, ND_E_FETCH_ANSWER, ND_E_MEMORY. The caller closes
 * *out.
 */
enum nd_status nd_fetch_open(const char *url, struct nd_fetch **out, struct nd_error *err);
void nd_fetch_close(struct nd_fetch **fetch);

/* The size of the file. */
uint64_t nd_fetch_bytes(const struct nd_fetch *fetch);

/* Bytes [offset, offset + n_bytes), which lie in the file (asserted), into buf. Any thread may call it; one
 * request is made at a time. As nd_fetch_open, and ND_E_CAPTURE_CHANGED: the server has a different file now.
 */
enum nd_status nd_fetch_read(struct nd_fetch *fetch, uint64_t offset, void *buf, size_t n_bytes,
                             struct nd_error *err);

#endif
