/* Where the name of a file on a server or in a bucket leads to. docs/guides/servers.md. */
#include "capture/fetch/fetch.h"

#include <ctype.h>

#include "core/memory.h"
#include "core/text/strbuf.h"

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
    struct nd_strbuf signer = {0}, header = {0};
    nd_strbuf_printf(&signer, "aws:amz:%s:s3", region);
    place->signer = nd_strbuf_take(&signer);
    place->key = nd_strdup(key);
    place->secret = nd_strdup(secret);
    if (token != NULL) {
        nd_strbuf_printf(&header, "x-amz-security-token: %s", token);
        place->token_header = nd_strbuf_take(&header);
    }
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
