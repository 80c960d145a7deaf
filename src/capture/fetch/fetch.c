/* A file on a web server or in a bucket, read in ranges by libcurl, which is loaded when it is first needed.
 * Every answer is checked. docs/architecture.md#confined. */
#include "capture/fetch/fetch.h"

#include <assert.h>
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <strings.h>
#include <time.h>

#include "core/memory.h"
#include "core/processes/process.h"
#include "core/text/strbuf.h"

/* ---- libcurl ---- */

#if ND_HAVE_CURL_H
#define CURL_DISABLE_TYPECHECK /* functions are called through pointers */
#include <curl/curl.h>
#include <dlfcn.h>

struct nd_libcurl {
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
    CURLcode (*easy_perform)(CURL *);
    void (*easy_cleanup)(CURL *);
    const char *(*easy_strerror)(CURLcode);
    struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
    void (*slist_free_all)(struct curl_slist *);
    unsigned version; /* as LIBCURL_VERSION_NUM */
};

/* 7.85 has CURLOPT_PROTOCOLS_STR; since 7.88 the headers that npudiff adds are part of an S3 signature. */
enum { OLDEST = 0x075800 };

static struct nd_libcurl loaded;
static bool is_loaded;
static char problem[200] = "it cannot be started";

/* dlsym gives an object's pointer for a function's: POSIX has it so. */
static bool find(void *library, const char *name, void *function_at)
{
    *(void **)function_at = dlsym(library, name);
    return *(void **)function_at != NULL;
}

static void load(void)
{
    /* Debian's and others' name; that of the flavour with GnuTLS. */
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(problem, sizeof problem, "libcurl.so.4 is not there (Debian: libcurl4)");
        return;
    }
    CURLcode (*global_init)(long) = NULL;
    curl_version_info_data *(*version_info)(CURLversion) = NULL;
    if (!find(library, "curl_global_init", &global_init) ||
        !find(library, "curl_version_info", &version_info) ||
        !find(library, "curl_easy_init", &loaded.easy_init) ||
        !find(library, "curl_easy_setopt", &loaded.easy_setopt) ||
        !find(library, "curl_easy_perform", &loaded.easy_perform) ||
        !find(library, "curl_easy_cleanup", &loaded.easy_cleanup) ||
        !find(library, "curl_easy_strerror", &loaded.easy_strerror) ||
        !find(library, "curl_slist_append", &loaded.slist_append) ||
        !find(library, "curl_slist_free_all", &loaded.slist_free_all))
        return;
    const curl_version_info_data *version = version_info(CURLVERSION_NOW);
    loaded.version = version->version_num;
    if (loaded.version < OLDEST) {
        snprintf(problem, sizeof problem, "libcurl %s is older than 7.88", version->version);
        return;
    }
    is_loaded = global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

/* The same one for the whole process, never unloaded; any thread. ND_E_FETCH_LIBRARY: there is none, or it is
 * too old. object: the file that it is needed for. */
static enum nd_status nd_libcurl(const struct nd_libcurl **out, const char *object, struct nd_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (!is_loaded)
        return nd_fail(err, ND_E_FETCH_LIBRARY, object, "a file on a server needs libcurl: %s", problem);
    *out = &loaded;
    return ND_OK;
}
#endif

/* ---- answers ---- */

static void nd_fetch_link_close(struct nd_fetch_link **link_at);

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
    if (status == 401 || status == 403)
        return !place->is_s3 ? "the server refuses it"
               : place->key == NULL
                   ? "the server refuses it; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"
                   : "the server refuses it to these AWS_* credentials";
    if (status == 404 || status == 410)
        return "the server does not have it";
    if ((status >= 301 && status <= 303) || status == 307 || status == 308)
        return place->is_s3 ? "the bucket is in a different region: set AWS_REGION"
                            : "the server sends elsewhere";
    return status >= 500 || status == 429 ? "the server cannot answer now"
                                          : "the server gives an answer that npudiff does not know";
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
    ND_TRY(check_status(answer, place, is_first, err));
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
    return answer->n_got != n_wanted ? fail_answer(place, "the answer is shorter than it says", err) : ND_OK;
}

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
                set_long(link, CURLOPT_PATH_AS_IS, place->is_s3) && /* a key is no path: ".." is of its name */
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

/* ND_E_FETCH_LIBRARY, ND_E_MEMORY. place outlives it. The caller closes *out. */
static enum nd_status nd_fetch_link_open(const struct nd_fetch_place *place, struct nd_fetch_link **out,
                                         struct nd_error *err)
{
    ND_CLEANUP(nd_fetch_link_close) struct nd_fetch_link *link = nd_calloc(1, sizeof *link);
    ND_TRY_MEMORY(link != NULL, err);
    link->place = place;
    link->limit_s = limit_s();
    ND_TRY(nd_libcurl(&link->curl, place->shown, err));
    ND_TRY_MEMORY((link->handle = link->curl->easy_init()) != NULL, err);
    if (!set_up(link))
        return nd_fail(err, ND_E_FETCH_LIBRARY, place->shown, "this libcurl cannot do what is needed");
    return ND_GIVE(out, link);
}

static void nd_fetch_link_close(struct nd_fetch_link **link_at)
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
    struct nd_sigpipe held;
    nd_sigpipe_hold(&held);
    CURLcode code = link->curl->easy_perform(link->handle);
    nd_sigpipe_release(&held);
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
    ND_TRY_MEMORY(set_text(link, CURLOPT_RANGE, text) && set_long(link, CURLOPT_TIMEOUT, all_s) &&
                      link->curl->easy_setopt(link->handle, CURLOPT_HTTPHEADER, headers) == CURLE_OK &&
                      link->curl->easy_setopt(link->handle, CURLOPT_HEADERDATA, answer) == CURLE_OK &&
                      link->curl->easy_setopt(link->handle, CURLOPT_WRITEDATA, answer) == CURLE_OK,
                  err);
    *code = perform_without_sigpipe(link);
    /* The list is the caller's and goes with it. */
    link->curl->easy_setopt(link->handle, CURLOPT_HTTPHEADER, NULL);
    return ND_OK;
}

/* Whether the next try may end differently. Not after a limit of time: three times as long helps nobody. */
static bool may_pass(CURLcode code, int http_status)
{
    if (code == CURLE_OK || code == CURLE_WRITE_ERROR) /* npudiff has read enough of it */
        return http_status == 429 || http_status == 500 || (http_status >= 502 && http_status <= 504);
    return code == CURLE_COULDNT_CONNECT || code == CURLE_GOT_NOTHING || code == CURLE_PARTIAL_FILE ||
           code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR || code == CURLE_HTTP2 ||
           code == CURLE_HTTP2_STREAM;
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

/* Fetches the range into its buf. With is_first, *version is taken from the answer, and *n_got may be less than
 * n_bytes where the file is; else the answer has to be of *version, and *n_got is n_bytes. The errors are those
 * of nd_fetch_read. */
static enum nd_status nd_fetch_request(struct nd_fetch_link *link, const struct nd_fetch_range *range,
                                       bool is_first, struct nd_fetch_version *version, size_t *n_got,
                                       struct nd_error *err)
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

static enum nd_status nd_fetch_link_open(const struct nd_fetch_place *place, struct nd_fetch_link **out,
                                         struct nd_error *err)
{
    (void)out;
    return nd_fail(err, ND_E_FETCH_LIBRARY, place->shown,
                   "a file on a server needs libcurl, and this npudiff was built without it (Debian: "
                   "libcurl4-openssl-dev)");
}

static void nd_fetch_link_close(struct nd_fetch_link **link)
{
    *link = NULL;
}

static enum nd_status nd_fetch_request(struct nd_fetch_link *link, const struct nd_fetch_range *range,
                                       bool is_first, struct nd_fetch_version *version, size_t *n_got,
                                       struct nd_error *err)
{
    (void)link, (void)range, (void)is_first, (void)version, (void)n_got;
    return nd_fail(err, ND_E_FETCH_LIBRARY, NULL, "this npudiff was built without libcurl");
}
#endif

/* Measured on a capture of 117 MB (docs/results/remote.md): older captures have metadata in pieces of some 2 KB
 * all over the file. Smaller blocks need more requests, larger ones read more of what nobody asked for. Who
 * reads on where the last request ended gets twice as much each time. */
enum { BLOCK_BYTES = 8 << 10, N_SLOTS = ND_FETCH_CACHE_BYTES / BLOCK_BYTES };
enum { MAX_AHEAD_BLOCKS = 128, MAX_REQUEST_BLOCKS = 512 };

/* Block b is kept in slot b % N_SLOTS or not at all, so that up to ND_FETCH_CACHE_BYTES in a row never push one
 * another out. */
struct slot {
    unsigned char *bytes; /* BLOCK_BYTES; NULL: empty */
    uint64_t block;
};

struct nd_fetch {
    struct nd_fetch_place place;
    struct nd_fetch_link *link;
    struct nd_fetch_version version;
    pthread_mutex_t mutex; /* guards what follows, and link */
    struct slot slots[N_SLOTS];
    unsigned char *incoming; /* MAX_REQUEST_BLOCKS */
    uint64_t next_block;     /* where the last request ended */
    uint64_t n_ahead;        /* blocks of a request at the least */
};

static uint64_t n_blocks(const struct nd_fetch *fetch)
{
    return (fetch->version.n_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static size_t block_bytes(const struct nd_fetch *fetch, uint64_t block)
{
    uint64_t rest = fetch->version.n_bytes - block * BLOCK_BYTES;
    return rest < BLOCK_BYTES ? (size_t)rest : BLOCK_BYTES;
}

static struct slot *slot_of(struct nd_fetch *fetch, uint64_t block)
{
    return &fetch->slots[block % N_SLOTS];
}

static bool is_kept(struct nd_fetch *fetch, uint64_t block)
{
    const struct slot *slot = slot_of(fetch, block);
    return slot->bytes != NULL && slot->block == block;
}

static enum nd_status keep_of_fetch(struct nd_fetch *fetch, uint64_t block, const unsigned char *bytes,
                                    struct nd_error *err)
{
    struct slot *slot = slot_of(fetch, block);
    if (slot->bytes == NULL && (slot->bytes = nd_calloc(BLOCK_BYTES, 1)) == NULL)
        return nd_fail_memory(err);
    memcpy(slot->bytes, bytes, block_bytes(fetch, block));
    slot->block = block;
    return ND_OK;
}

static enum nd_status fetch_blocks(struct nd_fetch *fetch, uint64_t first, uint64_t end, struct nd_error *err)
{
    /* How many blocks from `first` on one request takes; those up to `end` are wanted. */
    bool goes_on = first == fetch->next_block;
    fetch->n_ahead = !goes_on ? 1 : fetch->n_ahead < MAX_AHEAD_BLOCKS ? 2 * fetch->n_ahead : MAX_AHEAD_BLOCKS;
    uint64_t n_wanted = end - first > fetch->n_ahead ? end - first : fetch->n_ahead, n = 1;
    if (n_wanted > MAX_REQUEST_BLOCKS)
        n_wanted = MAX_REQUEST_BLOCKS;
    while (n < n_wanted && first + n < n_blocks(fetch) && !is_kept(fetch, first + n))
        n++;
    struct nd_fetch_range range = {.offset = first * BLOCK_BYTES, .buf = fetch->incoming};
    size_t n_got = 0;
    for (uint64_t i = 0; i < n; i++)
        range.n_bytes += block_bytes(fetch, first + i);
    ND_TRY(nd_fetch_request(fetch->link, &range, false, &fetch->version, &n_got, err));
    for (uint64_t i = 0; i < n; i++)
        ND_TRY(keep_of_fetch(fetch, first + i, fetch->incoming + i * BLOCK_BYTES, err));
    fetch->next_block = first + n;
    return ND_OK;
}

enum nd_status nd_fetch_read(struct nd_fetch *fetch, uint64_t offset, void *buf, size_t n_bytes,
                             struct nd_error *err)
{
    assert(offset <= fetch->version.n_bytes && n_bytes <= fetch->version.n_bytes - offset);
    unsigned char *to = buf;
    uint64_t end = (offset + n_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    enum nd_status status = ND_OK;
    pthread_mutex_lock(&fetch->mutex);
    while (n_bytes > 0) {
        uint64_t block = offset / BLOCK_BYTES;
        size_t at = (size_t)(offset % BLOCK_BYTES), n = BLOCK_BYTES - at < n_bytes ? BLOCK_BYTES - at : n_bytes;
        if (!is_kept(fetch, block) && (status = fetch_blocks(fetch, block, end, err)) != ND_OK)
            break;
        memcpy(to, slot_of(fetch, block)->bytes + at, n);
        to += n;
        offset += n;
        n_bytes -= n;
    }
    pthread_mutex_unlock(&fetch->mutex);
    return status;
}

/* The first block tells size and version. */
static enum nd_status begin(struct nd_fetch *fetch, struct nd_error *err)
{
    const struct nd_fetch_range range = {.buf = fetch->incoming, .n_bytes = BLOCK_BYTES};
    size_t n_got = 0;
    ND_TRY(nd_fetch_request(fetch->link, &range, true, &fetch->version, &n_got, err));
    ND_TRY(keep_of_fetch(fetch, 0, fetch->incoming, err));
    fetch->next_block = fetch->n_ahead = 1;
    return ND_OK;
}

enum nd_status nd_fetch_open(const char *url, struct nd_fetch **out, struct nd_error *err)
{
    struct nd_fetch *made = nd_calloc(1, sizeof *made);
    ND_TRY_MEMORY(made != NULL, err);
    if (pthread_mutex_init(&made->mutex, NULL) != 0) {
        free(made);
        return nd_fail_memory(err);
    }
    ND_CLEANUP(nd_fetch_close) struct nd_fetch *fetch = made;
    fetch->incoming = nd_calloc(MAX_REQUEST_BLOCKS, BLOCK_BYTES);
    ND_TRY_MEMORY(fetch->incoming != NULL, err);
    ND_TRY(nd_fetch_place_find(url, &fetch->place, err));
    ND_TRY(nd_fetch_link_open(&fetch->place, &fetch->link, err));
    ND_TRY(begin(fetch, err));
    return ND_GIVE(out, fetch);
}

void nd_fetch_close(struct nd_fetch **fetch_at)
{
    struct nd_fetch *fetch = *fetch_at;
    if (fetch == NULL)
        return;
    nd_fetch_link_close(&fetch->link);
    nd_fetch_place_deinit(&fetch->place);
    for (size_t i = 0; i < N_SLOTS; i++)
        free(fetch->slots[i].bytes);
    free(fetch->incoming);
    pthread_mutex_destroy(&fetch->mutex);
    free(fetch);
    *fetch_at = NULL;
}

uint64_t nd_fetch_bytes(const struct nd_fetch *fetch)
{
    return fetch->version.n_bytes;
}

/* ---- where the name of a file on a server or in a bucket leads to. docs/guides/servers.md ---- */

static const char s3[] = "s3://";

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

bool nd_fetch_is_url(const char *name)
{
    return starts_with(name, "http://") || starts_with(name, "https://") || starts_with(name, s3);
}

/* The host of a URL, and behind it port and path; its user and password are before that. */
static const char *host_of(const char *url)
{
    const char *host = strchr(url, ':') + 3;
    for (const char *at = host, *end = host + strcspn(host, "/?#"); at < end; at++)
        if (*at == '@')
            host = at + 1;
    return host;
}

char *nd_fetch_shown(const char *name)
{
    if (!nd_fetch_is_url(name) || starts_with(name, s3)) /* the key of an object may have a '?' in it */
        return nd_strdup(name);
    const char *host = host_of(name);
    struct nd_strbuf shown = {0};
    nd_strbuf_append(&shown, name, (size_t)(strchr(name, ':') + 3 - name));
    nd_strbuf_append(&shown, host, strcspn(host, "?#"));
    return nd_strbuf_take(&shown);
}

static enum nd_status fail_name(const struct nd_fetch_place *place, const char *why, struct nd_error *err)
{
    return nd_fail(err, ND_E_FETCH_URL, place->shown, "no name of a file on a server: %s", why);
}

/* An empty variable is as one that is not set. */
static const char *setting(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

static const char *setting_or(const char *name, const char *other)
{
    const char *text = setting(name);
    return text != NULL ? text : other;
}

/* RFC 3986's unreserved characters and '/' stay; so S3 wants paths, also in what is signed. */
static void put_path(struct nd_strbuf *buf, const char *path)
{
    for (; *path != '\0'; path++)
        if (isalnum((unsigned char)*path) || strchr("-._~/", *path) != NULL)
            nd_strbuf_append(buf, path, 1);
        else
            nd_strbuf_printf(buf, "%%%02X", (unsigned)(unsigned char)*path);
}

static bool is_bucket(const char *name, size_t n)
{
    return n >= 3 && n <= 63 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") >= n;
}

static bool is_region(const char *name)
{
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0';
}

static enum nd_status sign(struct nd_fetch_place *place, const char *region, struct nd_error *err)
{
    const char *key = setting("AWS_ACCESS_KEY_ID"), *secret = setting("AWS_SECRET_ACCESS_KEY");
    const char *token = setting("AWS_SESSION_TOKEN");
    if (key == NULL && secret == NULL)
        return ND_OK; /* what everybody may read needs no signature */
    if (key == NULL || secret == NULL)
        return fail_name(place, "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only one is set", err);
    if (token != NULL && strpbrk(token, "\r\n") != NULL)
        return fail_name(place, "AWS_SESSION_TOKEN has a line break", err);
    place->signer = nd_text("aws:amz:%s:s3", region);
    place->key = nd_strdup(key);
    place->secret = nd_strdup(secret);
    place->token_header = token != NULL ? nd_text("x-amz-security-token: %s", token) : NULL;
    return place->signer == NULL || place->key == NULL || place->secret == NULL ||
                   (token != NULL && place->token_header == NULL)
               ? nd_fail_memory(err)
               : ND_OK;
}

static enum nd_status find_object(const char *name, struct nd_fetch_place *place, struct nd_error *err)
{
    const char *bucket = name + strlen(s3);
    size_t n = strcspn(bucket, "/");
    const char *object = bucket[n] != '\0' ? bucket + n + 1 : "";
    const char *region = setting_or("AWS_REGION", setting_or("AWS_DEFAULT_REGION", "us-east-1"));
    const char *endpoint = setting_or("AWS_ENDPOINT_URL_S3", setting("AWS_ENDPOINT_URL"));
    if (!is_bucket(bucket, n) || object[0] == '\0')
        return fail_name(place, "it should be s3://BUCKET/KEY", err);
    if (!is_region(region))
        return fail_name(place, "AWS_REGION is no region", err);
    if (endpoint != NULL && !starts_with(endpoint, "http://") && !starts_with(endpoint, "https://"))
        return fail_name(place, "AWS_ENDPOINT_URL is no http:// or https:// URL", err);
    struct nd_strbuf url = {0};
    bool has_dot = memchr(bucket, '.', n) != NULL; /* no certificate of a wildcard fits */
    if (endpoint != NULL) {
        size_t n_endpoint = strlen(endpoint);
        while (n_endpoint > 0 && endpoint[n_endpoint - 1] == '/')
            n_endpoint--;
        nd_strbuf_printf(&url, "%.*s/%.*s/", (int)n_endpoint, endpoint, (int)n, bucket);
    } else if (has_dot) {
        nd_strbuf_printf(&url, "https://s3.%s.amazonaws.com/%.*s/", region, (int)n, bucket);
    } else {
        nd_strbuf_printf(&url, "https://%.*s.s3.%s.amazonaws.com/", (int)n, bucket, region);
    }
    put_path(&url, object);
    place->url = nd_strbuf_take(&url);
    place->is_s3 = true;
    return place->url == NULL ? nd_fail_memory(err) : sign(place, region, err);
}

enum nd_status nd_fetch_place_find(const char *name, struct nd_fetch_place *place, struct nd_error *err)
{
    *place = (struct nd_fetch_place){.shown = nd_fetch_shown(name)};
    ND_TRY_MEMORY(place->shown != NULL, err);
    for (const char *at = name; *at != '\0'; at++)
        if (iscntrl((unsigned char)*at))
            return fail_name(place, "it has control characters", err);
    if (starts_with(name, s3))
        return find_object(name, place, err);
    const char *host = host_of(name);
    if (strcspn(host, "/?#") == 0)
        return fail_name(place, "it has no host", err);
    if (host[-1] == '@') /* others see the arguments of a program */
        return fail_name(place, "a user and a password belong into ~/.netrc", err);
    place->url = nd_strdup(name);
    return place->url == NULL ? nd_fail_memory(err) : ND_OK;
}

void nd_fetch_place_deinit(struct nd_fetch_place *place)
{
    free(place->shown);
    free(place->url);
    free(place->signer);
    free(place->key);
    free(place->secret);
    free(place->token_header);
    *place = (struct nd_fetch_place){0};
}
