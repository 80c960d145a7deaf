/* The answer of a server as it comes in, checked before a byte of it is believed. */
#ifndef ND_FETCH_ANSWER_H
#define ND_FETCH_ANSWER_H

#include "capture/fetch/request.h"

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

#endif
