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
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* ---- where a name leads to: the URL that is asked, and how requests are signed ---- */

struct nd_fetch_place {
    char *shown; /* for messages */
    char *url;
    bool is_s3;
    /* Of a bucket whose requests are signed; else NULL. */
    char *signer; /* what libcurl's CURLOPT_AWS_SIGV4 takes */
    char *key, *secret;
    char *token_header; /* "x-amz-security-token: ...", or NULL */
};

/* s3://BUCKET/KEY with the usual AWS_* variables of the environment; the others stay as they are.
 * ND_E_FETCH_URL. The caller calls nd_fetch_place_deinit, also after an error. */
enum nd_status nd_fetch_place_find(const char *name, struct nd_fetch_place *place, struct nd_error *err);
void nd_fetch_place_deinit(struct nd_fetch_place *place);

/* ---- the file, and its ranges ---- */

/* One range of one file, asked of its server until the answer is right or certainly wrong. */

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

/* The answer of a server as it comes in, checked before a byte of it is believed. */

enum { ND_FETCH_BODY_BYTES = 1024 }; /* of an answer that is an error; S3 gives its reason there */

struct nd_fetch_answer {
    const struct nd_fetch_range *range;
    /* Of the last answer in a chain of redirections. */
    int status;
    bool has_range; /* Content-Range, whose three numbers follow */
    uint64_t first, last;
    struct nd_fetch_version version;
    bool is_encoded; /* Content-Encoding: the bytes are not those of the file */
    size_t n_got;    /* of the range */
    bool is_too_long;
    char body[ND_FETCH_BODY_BYTES + 1];
    size_t n_body;
};

/* One line of the head; begins anew with every "HTTP/". */
void nd_fetch_answer_header(struct nd_fetch_answer *answer, const char *line, size_t n_bytes);
/* Bytes of the body; false: that is enough. */
bool nd_fetch_answer_body(struct nd_fetch_answer *answer, const char *bytes, size_t n_bytes);

/* Whether the answer is the range of the version that was asked for. is_first: any version, and a file may end
 * within the range. */
enum nd_status nd_fetch_answer_check(const struct nd_fetch_answer *answer, const struct nd_fetch_place *place,
                                     bool is_first, const struct nd_fetch_version *version,
                                     struct nd_error *err);

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
 * request is made at a time. As nd_fetch_open, and ND_E_CAPTURE_CHANGED: it is another file now. */
enum nd_status nd_fetch_read(struct nd_fetch *fetch, uint64_t offset, void *buf, size_t n_bytes,
                             struct nd_error *err);
