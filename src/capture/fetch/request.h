/* One range of one file, asked of its server until the answer is right or certainly wrong. */
#ifndef ND_FETCH_REQUEST_H
#define ND_FETCH_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "capture/fetch/place.h"

/* What a server said of the file that it has. */
struct nd_fetch_version {
    uint64_t n_bytes;
    char etag[256];    /* "" where there is none */
    char modified[64]; /* Last-Modified, or "" */
};

struct nd_fetch_range {
    uint64_t offset;
    void *buf;
    size_t n_bytes; /* of the first request: at most so many */
};

/* A connection, kept open from request to request. Used by one thread at a time. */
struct nd_fetch_link;

/* ND_E_FETCH_LIBRARY, ND_E_MEMORY. place outlives it. The caller closes *out. */
enum nd_status nd_fetch_link_open(const struct nd_fetch_place *place, struct nd_fetch_link **out,
                                  struct nd_error *err);
void nd_fetch_link_close(struct nd_fetch_link **link);

/* Fetches the range into its buf. With is_first, *version is taken from the answer, and *n_got may be less than
 * n_bytes where the file is; else the answer has to be of *version, and *n_got is n_bytes. The errors are those
 * of nd_fetch_read. */
enum nd_status nd_fetch_request(struct nd_fetch_link *link, const struct nd_fetch_range *range, bool is_first,
                                struct nd_fetch_version *version, size_t *n_got, struct nd_error *err);

#endif
