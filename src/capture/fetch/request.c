#include "capture/fetch/request.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "capture/fetch/answer.h"
#include "capture/fetch/libcurl.h"

#if ND_HAVE_CURL_H

/* All chosen. A server that sends less than SLOW_BYTES_PER_S for the limit of time is given up. Half a minute
 * is what a loaded server may take to begin; $NPUDIFF_FETCH_LIMIT says otherwise. A request as a whole may take
 * twice the limit, and as long as a line of 160 kbit/s needs. */
enum { LIMIT_S = 30, MAX_LIMIT_S = 3600, CONNECT_S = 15, SLOW_BYTES_PER_S = 1000, LINE_BYTES_PER_S = 20000 };
enum { MAX_REDIRECTS = 5, MAX_TRIES = 3 };
static const long pause_ms[MAX_TRIES - 1] = {250, 1000};

struct nd_fetch_link {
    const struct nd_fetch_place *place;
    const struct nd_libcurl *curl;
    CURL *handle;
    long limit_s;
    char said[CURL_ERROR_SIZE];
};

static long limit_s(void)
{
    const char *text = getenv("NPUDIFF_FETCH_LIMIT");
    long limit = text != NULL ? strtol(text, NULL, 10) : 0;
    return limit >= 1 && limit <= MAX_LIMIT_S ? limit : LIMIT_S;
}

static size_t take_header(char *bytes, size_t one, size_t n, void *answer)
{
    nd_fetch_answer_header(answer, bytes, one * n);
    return one * n;
}

static size_t take_body(char *bytes, size_t one, size_t n, void *answer)
{
    return nd_fetch_answer_body(answer, bytes, one * n) ? one * n : 0;
}

static bool set_long(struct nd_fetch_link *link, CURLoption option, long value)
{
    return link->curl->easy_setopt(link->handle, option, value) == CURLE_OK;
}

static bool set_text(struct nd_fetch_link *link, CURLoption option, const char *value)
{
    return link->curl->easy_setopt(link->handle, option, value) == CURLE_OK;
}

/* What is the same for all requests. */
static bool set_up(struct nd_fetch_link *link)
{
    const struct nd_fetch_place *place = link->place;
    bool is_https = strncmp(place->url, "https:", 6) == 0;
    const char *authorities = getenv("CURL_CA_BUNDLE");
    bool done = set_text(link, CURLOPT_URL, place->url) &&
                set_text(link, CURLOPT_PROTOCOLS_STR, "http,https") &&
                /* A secure name leads nowhere insecure; a signature holds for one host alone. */
                set_text(link, CURLOPT_REDIR_PROTOCOLS_STR, is_https ? "https" : "http,https") &&
                set_long(link, CURLOPT_FOLLOWLOCATION, place->is_s3 ? 0 : 1) &&
                set_long(link, CURLOPT_MAXREDIRS, MAX_REDIRECTS) && set_long(link, CURLOPT_NOSIGNAL, 1) &&
                set_long(link, CURLOPT_CONNECTTIMEOUT, link->limit_s < CONNECT_S ? link->limit_s : CONNECT_S) &&
                set_long(link, CURLOPT_LOW_SPEED_LIMIT, SLOW_BYTES_PER_S) &&
                set_long(link, CURLOPT_LOW_SPEED_TIME, link->limit_s) &&
                set_text(link, CURLOPT_USERAGENT, "npudiff/" ND_VERSION) &&
                link->curl->easy_setopt(link->handle, CURLOPT_ERRORBUFFER, link->said) == CURLE_OK &&
                link->curl->easy_setopt(link->handle, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
                link->curl->easy_setopt(link->handle, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK;
    if (done && authorities != NULL && authorities[0] != '\0')
        done = set_text(link, CURLOPT_CAINFO, authorities);
    if (done && !place->is_s3)
        done = set_long(link, CURLOPT_NETRC, CURL_NETRC_OPTIONAL);
    if (done && place->signer != NULL)
        done = set_text(link, CURLOPT_AWS_SIGV4, place->signer) &&
               set_text(link, CURLOPT_USERNAME, place->key) && set_text(link, CURLOPT_PASSWORD, place->secret);
    return done;
}

enum nd_status nd_fetch_link_open(const struct nd_fetch_place *place, struct nd_fetch_link **out,
                                  struct nd_error *err)
{
    struct nd_fetch_link *link = nd_calloc(1, sizeof *link);
    if (link == NULL)
        return nd_fail_memory(err);
    link->place = place;
    link->limit_s = limit_s();
    enum nd_status status = nd_libcurl(&link->curl, place->shown, err);
    if (status == ND_OK && (link->handle = link->curl->easy_init()) == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK && !set_up(link))
        status = nd_fail(err, ND_E_FETCH_LIBRARY, place->shown, "this libcurl cannot do what is needed");
    if (status != ND_OK) {
        nd_fetch_link_close(&link);
        return status;
    }
    *out = link;
    return ND_OK;
}

void nd_fetch_link_close(struct nd_fetch_link **link_at)
{
    struct nd_fetch_link *link = *link_at;
    if (link != NULL && link->handle != NULL)
        link->curl->easy_cleanup(link->handle);
    free(link);
    *link_at = NULL;
}

/* Appends a header; false: out of memory, the list is as it was. */
static bool add_header(const struct nd_libcurl *curl, struct curl_slist **list, const char *header)
{
    struct curl_slist *grown = curl->slist_append(*list, header);
    if (grown != NULL)
        *list = grown;
    return grown != NULL;
}

/* A weak ETag matches nothing (RFC 9110, 13.1.1); the answer's own is compared in any case. */
static bool add_condition(const struct nd_fetch_link *link, const struct nd_fetch_version *version,
                          struct curl_slist **list)
{
    char header[300];
    if (version->etag[0] == '"')
        snprintf(header, sizeof header, "If-Match: %s", version->etag);
    else if (version->etag[0] == '\0')
        snprintf(header, sizeof header, "If-Unmodified-Since: %s", version->modified);
    else
        return true;
    return add_header(link->curl, list, header);
}

/* S3 wants the digest of a request's body; that of none. */
static bool add_s3_headers(const struct nd_fetch_link *link, struct curl_slist **list)
{
    static const char digest[] =
        "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const struct nd_fetch_place *place = link->place;
    return (place->signer == NULL || add_header(link->curl, list, digest)) &&
           (place->token_header == NULL || add_header(link->curl, list, place->token_header));
}

/* A server that closes a TLS connection early must not end the program: OpenSSL writes without MSG_NOSIGNAL. */
static CURLcode perform_without_sigpipe(const struct nd_fetch_link *link)
{
    sigset_t pipe, before, waiting;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&waiting);
    bool was_waiting = sigismember(&waiting, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    CURLcode code = link->curl->easy_perform(link->handle);
    while (!was_waiting && sigtimedwait(&pipe, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static enum nd_status ask_once(struct nd_fetch_link *link, struct nd_fetch_answer *answer,
                               struct curl_slist *headers, CURLcode *code, struct nd_error *err)
{
    const struct nd_fetch_range *range = answer->range;
    char text[64];
    snprintf(text, sizeof text, "%llu-%llu", (unsigned long long)range->offset,
             (unsigned long long)(range->offset + range->n_bytes - 1));
    link->said[0] = '\0';
    long all_s = 2 * link->limit_s + (long)(range->n_bytes / LINE_BYTES_PER_S);
    if (!set_text(link, CURLOPT_RANGE, text) || !set_long(link, CURLOPT_TIMEOUT, all_s) ||
        link->curl->easy_setopt(link->handle, CURLOPT_HTTPHEADER, headers) != CURLE_OK ||
        link->curl->easy_setopt(link->handle, CURLOPT_HEADERDATA, answer) != CURLE_OK ||
        link->curl->easy_setopt(link->handle, CURLOPT_WRITEDATA, answer) != CURLE_OK)
        return nd_fail_memory(err);
    *code = perform_without_sigpipe(link);
    /* The list is the caller's and goes with it. */
    link->curl->easy_setopt(link->handle, CURLOPT_HTTPHEADER, NULL);
    return ND_OK;
}

/* Whether the next try may end differently. Not after a limit of time: three times as long helps nobody. */
static bool may_pass(CURLcode code, int http_status)
{
    switch (code) {
    case CURLE_OK:
    case CURLE_WRITE_ERROR: /* npudiff has read enough of it */
        return http_status == 429 || http_status == 500 || http_status == 502 || http_status == 503 ||
               http_status == 504;
    case CURLE_COULDNT_CONNECT:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return true;
    default:
        return false;
    }
}

static enum nd_status fail_transfer(const struct nd_fetch_link *link, CURLcode code, struct nd_error *err)
{
    const char *shown = link->place->shown;
    if (code == CURLE_OPERATION_TIMEDOUT)
        return nd_fail(err, ND_E_FETCH_FAILED, shown,
                       "the server is too slow or does not answer (limit: %ld s without at least %d bytes/s; "
                       "NPUDIFF_FETCH_LIMIT changes it)",
                       link->limit_s, SLOW_BYTES_PER_S);
    if (code == CURLE_TOO_MANY_REDIRECTS)
        return nd_fail(err, ND_E_FETCH_FAILED, shown, "more than %d redirections", MAX_REDIRECTS);
    if (code == CURLE_PARTIAL_FILE || code == CURLE_GOT_NOTHING)
        return nd_fail(err, ND_E_FETCH_FAILED, shown,
                       "the server ended the connection in the middle of an answer, %d times", MAX_TRIES);
    return nd_fail(err, ND_E_FETCH_FAILED, shown, "cannot fetch the file: %s",
                   link->said[0] != '\0' ? link->said : link->curl->easy_strerror(code));
}

static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

enum nd_status nd_fetch_request(struct nd_fetch_link *link, const struct nd_fetch_range *range, bool is_first,
                                struct nd_fetch_version *version, size_t *n_got, struct nd_error *err)
{
    struct curl_slist *headers = NULL;
    struct nd_fetch_answer answer;
    CURLcode code = CURLE_OK;
    enum nd_status status = ND_OK;
    if ((!is_first && !add_condition(link, version, &headers)) || !add_s3_headers(link, &headers))
        status = nd_fail_memory(err);
    for (int i = 0; status == ND_OK && i < MAX_TRIES; i++) {
        if (i > 0)
            wait_ms(pause_ms[i - 1]);
        answer = (struct nd_fetch_answer){.range = range};
        status = ask_once(link, &answer, headers, &code, err);
        if (!may_pass(code, answer.status))
            break;
    }
    link->curl->slist_free_all(headers);
    if (status == ND_OK)
        status = code != CURLE_OK && code != CURLE_WRITE_ERROR
                     ? fail_transfer(link, code, err)
                     : nd_fetch_answer_check(&answer, link->place, is_first, version, err);
    if (status != ND_OK)
        return status;
    if (is_first)
        *version = answer.version;
    *n_got = answer.n_got;
    return ND_OK;
}

#else

enum nd_status nd_fetch_link_open(const struct nd_fetch_place *place, struct nd_fetch_link **out,
                                  struct nd_error *err)
{
    (void)out;
    return nd_fail(err, ND_E_FETCH_LIBRARY, place->shown,
                   "a file on a server needs libcurl, and this npudiff was built without it (Debian: "
                   "libcurl4-openssl-dev)");
}

void nd_fetch_link_close(struct nd_fetch_link **link)
{
    *link = NULL;
}

enum nd_status nd_fetch_request(struct nd_fetch_link *link, const struct nd_fetch_range *range, bool is_first,
                                struct nd_fetch_version *version, size_t *n_got, struct nd_error *err)
{
    (void)link, (void)range, (void)is_first, (void)version, (void)n_got;
    return nd_fail(err, ND_E_FETCH_LIBRARY, NULL, "this npudiff was built without libcurl");
}
#endif
