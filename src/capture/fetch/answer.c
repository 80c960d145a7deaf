#include "capture/fetch/answer.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- as it comes in ---- */

/* Digits, and what follows them; 18 digits fit. */
static bool take_number(const char **text, uint64_t *out)
{
    const char *at = *text;
    *out = 0;
    while (isdigit((unsigned char)*at) && at - *text < 18)
        *out = *out * 10 + (uint64_t)(*at++ - '0');
    bool is_number = at > *text && !isdigit((unsigned char)*at);
    *text = at;
    return is_number;
}

static bool take_char(const char **text, char wanted)
{
    return *(*text)++ == wanted;
}

/* "bytes 0-99/12345". */
static void read_content_range(struct nd_fetch_answer *answer, const char *text)
{
    answer->has_range = false;
    if (strncasecmp(text, "bytes ", 6) != 0)
        return;
    text += 6;
    answer->has_range = take_number(&text, &answer->first) && take_char(&text, '-') &&
                        take_number(&text, &answer->last) && take_char(&text, '/') &&
                        take_number(&text, &answer->version.n_bytes) && *text == '\0' &&
                        answer->first <= answer->last && answer->last < answer->version.n_bytes;
}

/* The value of the header, if the line is that header; else NULL. */
static const char *value_of(const char *line, const char *header)
{
    size_t n = strlen(header);
    if (strncasecmp(line, header, n) != 0 || line[n] != ':')
        return NULL;
    return line + n + 1 + strspn(line + n + 1, " \t");
}

/* A value that does not fit is none: no part of it is compared with anything. */
static void keep(char *to, size_t n_to, const char *value)
{
    if (strlen(value) < n_to)
        snprintf(to, n_to, "%s", value);
}

void nd_fetch_answer_header(struct nd_fetch_answer *answer, const char *bytes, size_t n_bytes)
{
    char line[512];
    while (n_bytes > 0 && isspace((unsigned char)bytes[n_bytes - 1]))
        n_bytes--;
    if (n_bytes >= sizeof line)
        return;
    memcpy(line, bytes, n_bytes);
    line[n_bytes] = '\0';
    const char *value;
    if (strncmp(line, "HTTP/", 5) == 0) {
        const char *at = line + strcspn(line, " ");
        *answer = (struct nd_fetch_answer){.range = answer->range};
        if (sscanf(at, " %3d", &answer->status) != 1)
            answer->status = 0;
    } else if ((value = value_of(line, "Content-Range")) != NULL) {
        read_content_range(answer, value);
    } else if ((value = value_of(line, "ETag")) != NULL) {
        keep(answer->version.etag, sizeof answer->version.etag, value);
    } else if ((value = value_of(line, "Last-Modified")) != NULL) {
        keep(answer->version.modified, sizeof answer->version.modified, value);
    } else if ((value = value_of(line, "Content-Encoding")) != NULL) {
        answer->is_encoded = strcasecmp(value, "identity") != 0;
    }
}

bool nd_fetch_answer_body(struct nd_fetch_answer *answer, const char *bytes, size_t n_bytes)
{
    if (answer->status == 206) {
        size_t room = answer->range->n_bytes - answer->n_got;
        answer->is_too_long = n_bytes > room;
        n_bytes = answer->is_too_long ? room : n_bytes;
        memcpy((char *)answer->range->buf + answer->n_got, bytes, n_bytes);
        answer->n_got += n_bytes;
        return !answer->is_too_long;
    }
    size_t room = ND_FETCH_BODY_BYTES - answer->n_body, n = n_bytes < room ? n_bytes : room;
    memcpy(answer->body + answer->n_body, bytes, n);
    answer->n_body += n;
    return n == n_bytes;
}

/* ---- checked ---- */

/* S3's reason, such as "NoSuchKey": letters only. */
static bool find_code(const struct nd_fetch_answer *answer, char *code, size_t n_code)
{
    const char *at = strstr(answer->body, "<Code>");
    size_t n = 0;
    if (at == NULL)
        return false;
    for (at += 6; isalnum((unsigned char)at[n]) && n + 1 < n_code; n++)
        code[n] = at[n];
    code[n] = '\0';
    return n > 0;
}

static const char *meaning_of(int status, const struct nd_fetch_place *place)
{
    switch (status) {
    case 401:
    case 403:
        return place->is_s3 && place->key == NULL
                   ? "the server refuses it; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"
               : place->is_s3 ? "the server refuses it to these AWS_* credentials"
                              : "the server refuses it";
    case 404:
    case 410:
        return "the server does not have it";
    case 301:
    case 302:
    case 303:
    case 307:
    case 308:
        return place->is_s3 ? "the bucket is in a different region: set AWS_REGION"
                            : "the server sends elsewhere";
    default:
        return status >= 500 || status == 429 ? "the server cannot answer now"
                                              : "the server gives an answer that npudiff does not know";
    }
}

static enum nd_status fail_status(const struct nd_fetch_answer *answer, const struct nd_fetch_place *place,
                                  struct nd_error *err)
{
    char code[64] = "";
    bool has_code = find_code(answer, code, sizeof code);
    return nd_fail(err, ND_E_FETCH_FAILED, place->shown, "%s (HTTP status %d%s%s)",
                   meaning_of(answer->status, place), answer->status, has_code ? ", " : "", code);
}

static enum nd_status fail_answer(const struct nd_fetch_place *place, const char *why, struct nd_error *err)
{
    return nd_fail(err, ND_E_FETCH_ANSWER, place->shown, "the file cannot be read in parts: %s", why);
}

static enum nd_status fail_changed(const struct nd_fetch_place *place, struct nd_error *err)
{
    return nd_fail(err, ND_E_CAPTURE_CHANGED, place->shown,
                   "the file was changed on its server while it was being read");
}

static enum nd_status check_status(const struct nd_fetch_answer *answer, const struct nd_fetch_place *place,
                                   bool is_first, struct nd_error *err)
{
    if (answer->status == 200)
        return fail_answer(
            place, "the server sends the whole file where a range was asked for; download the file", err);
    if (answer->status == 416 && is_first)
        return nd_fail(err, ND_E_CAPTURE_FORMAT, place->shown, "the file is empty");
    if ((answer->status == 416 || answer->status == 412) && !is_first)
        return fail_changed(place, err);
    return answer->status == 206 ? ND_OK : fail_status(answer, place, err);
}

/* Last-Modified says nothing where there is an ETag: the servers of one name may differ in it. */
static bool is_same_version(const struct nd_fetch_version *a, const struct nd_fetch_version *b)
{
    return a->n_bytes == b->n_bytes && strcmp(a->etag, b->etag) == 0 &&
           (b->etag[0] != '\0' || strcmp(a->modified, b->modified) == 0);
}

enum nd_status nd_fetch_answer_check(const struct nd_fetch_answer *answer, const struct nd_fetch_place *place,
                                     bool is_first, const struct nd_fetch_version *version,
                                     struct nd_error *err)
{
    const struct nd_fetch_range *range = answer->range;
    enum nd_status status = check_status(answer, place, is_first, err);
    if (status != ND_OK)
        return status;
    if (!answer->has_range)
        return fail_answer(place, "the answer does not say which range it is", err);
    if (answer->is_encoded)
        return fail_answer(place, "the server compresses what it sends", err);
    if (answer->version.etag[0] == '\0' && answer->version.modified[0] == '\0')
        return fail_answer(
            place,
            "the server sends neither ETag nor Last-Modified, so that a change of the file would "
            "not be seen; download the file",
            err);
    if (!is_first && !is_same_version(&answer->version, version))
        return fail_changed(place, err);
    uint64_t rest = answer->version.n_bytes > range->offset ? answer->version.n_bytes - range->offset : 0;
    uint64_t n_wanted = is_first && range->n_bytes > rest ? rest : range->n_bytes;
    if (answer->first != range->offset || answer->last - answer->first + 1 != n_wanted)
        return fail_answer(place, "the answer is a different range than was asked for", err);
    if (answer->is_too_long)
        return fail_answer(place, "the answer is longer than it says", err);
    if (answer->n_got != n_wanted)
        return fail_answer(place, "the answer is shorter than it says", err);
    return ND_OK;
}
