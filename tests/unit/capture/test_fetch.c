/* Names of files on servers, and answers of servers: what is believed, and what is not. The network itself is
 * in tests/e2e/test_servers.py. */
#include "support/main.h"

#include <stdlib.h>
#include <string.h>

#include "capture/fetch/fetch.h"

static const char *const variables[] = {"AWS_REGION",          "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID",  "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN"};

static int forget_variables(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    return 0;
}

static void assert_url(const char *name, const char *url)
{
    struct nd_fetch_place place;
    struct nd_error err = {0};
    assert_int_equal(nd_fetch_place_find(name, &place, &err), ND_OK);
    assert_string_equal(place.url, url);
    nd_fetch_place_deinit(&place);
}

static void assert_refused(const char *name)
{
    struct nd_fetch_place place;
    struct nd_error err = {0};
    assert_int_equal(nd_fetch_place_find(name, &place, &err), ND_ERR_USAGE);
    assert_int_equal(err.id, ND_E_FETCH_URL);
    assert_null(strstr(err.message, "secret"));
    assert_null(strstr(err.object, "secret"));
    nd_fetch_place_deinit(&place);
}

static void names_lead_to_urls(void **state)
{
    (void)state;
    assert_true(nd_fetch_is_url("s3://b/k") && nd_fetch_is_url("http://h") && nd_fetch_is_url("https://h"));
    assert_false(nd_fetch_is_url("captures/a.h5") || nd_fetch_is_url("ftp://h/a") ||
                 nd_fetch_is_url("https:/h"));
    assert_url("https://host/a.h5?key=1", "https://host/a.h5?key=1");
    assert_url("s3://bucket/a/b c+?.h5", "https://bucket.s3.us-east-1.amazonaws.com/a/b%20c%2B%3F.h5");
    assert_url("s3://my.bucket/a", "https://s3.us-east-1.amazonaws.com/my.bucket/a");
    setenv("AWS_DEFAULT_REGION", "eu-west-1", 1);
    assert_url("s3://bucket/a", "https://bucket.s3.eu-west-1.amazonaws.com/a");
    setenv("AWS_REGION", "eu-north-1", 1);
    assert_url("s3://bucket/a", "https://bucket.s3.eu-north-1.amazonaws.com/a");
    setenv("AWS_ENDPOINT_URL", "http://localhost:9000/", 1);
    assert_url("s3://bucket/a", "http://localhost:9000/bucket/a");
    setenv("AWS_ENDPOINT_URL_S3", "https://s3.example", 1);
    assert_url("s3://bucket/a", "https://s3.example/bucket/a");
}

static void names_that_lead_nowhere_are_refused(void **state)
{
    (void)state;
    assert_refused("s3://bucket");
    assert_refused("s3://bucket/");
    assert_refused("s3://ab/x");
    assert_refused("s3://Bucket/x");
    assert_refused("s3://a@evil.example/x");
    assert_refused("https:///x");
    assert_refused("http://host/a\r\nX-Header: 1");
    assert_refused("https://me:secret@host/a.h5");
    setenv("AWS_REGION", "eu.evil.example/", 1);
    assert_refused("s3://bucket/x");
    setenv("AWS_REGION", "", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    assert_refused("s3://bucket/x");
    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SESSION_TOKEN", "secret\nX: 1", 1);
    assert_refused("s3://bucket/x");
}

static void what_is_shown_opens_nothing(void **state)
{
    (void)state;
    static const char *const shown[][2] = {
        {"https://host/a.h5?X-Amz-Signature=secret", "https://host/a.h5"},
        {"https://host/a.h5#secret", "https://host/a.h5"},
        {"https://me:secret@host/a@b.h5", "https://host/a@b.h5"},
        {"s3://bucket/a?b", "s3://bucket/a?b"},
        {"dir/a?b.h5", "dir/a?b.h5"},
    };
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        char *text = nd_fetch_shown(shown[i][0]);
        assert_string_equal(text, shown[i][1]);
        free(text);
    }
}

/* ---- answers ---- */

static char received[100];
static const struct nd_fetch_range range = {.offset = 100, .buf = received, .n_bytes = sizeof received};
static const struct nd_fetch_version version = {.n_bytes = 1000, .etag = "\"e\"", .modified = "m"};

/* The id of the error that an answer is, or 0. Lines are parted by '|'. */
static int judge(const char *head, size_t n_body, bool is_first)
{
    static const char body[2 * sizeof received] = "<Code>NoSuchKey</Code>";
    const struct nd_fetch_place place = {.shown = (char *)(uintptr_t) "https://host/a"};
    struct nd_fetch_answer answer = {.range = &range};
    struct nd_error err = {0};
    for (const char *line = head; *line != '\0';) {
        size_t n = strcspn(line, "|");
        nd_fetch_answer_header(&answer, line, n);
        line += n + (line[n] == '|');
    }
    nd_fetch_answer_body(&answer, body, n_body / 2);
    nd_fetch_answer_body(&answer, body, n_body - n_body / 2);
    return nd_fetch_answer_check(&answer, &place, is_first, &version, &err) == ND_OK ? 0 : (int)err.id;
}

static void the_range_that_was_asked_for_is_taken(void **state)
{
    (void)state;
    assert_int_equal(judge("HTTP/1.1 206 x|content-range: bytes 100-199/1000|ETAG:\"e\"", 100, false), 0);
    /* The head of the last answer counts. */
    assert_int_equal(
        judge("HTTP/1.1 302 x|ETag: \"no\"|HTTP/2 206|Content-Range: bytes 100-199/1000|ETag: \"e\"", 100,
              false),
        0);
    /* At first the file may be shorter than the range, and of any version. */
    assert_int_equal(judge("HTTP/1.1 206 x|Content-Range: bytes 100-149/150|Last-Modified: n", 50, true), 0);
}

static void any_other_answer_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        size_t n_body;
        int id;
    } cases[] = {
        {"HTTP/1.1 206 x|Content-Range: bytes 100-199/1000|ETag: \"e\"", 99, ND_E_FETCH_ANSWER},
        {"HTTP/1.1 206 x|Content-Range: bytes 100-199/1000|ETag: \"e\"", 101, ND_E_FETCH_ANSWER},
        {"HTTP/1.1 206 x|Content-Range: bytes 99-198/1000|ETag: \"e\"", 100, ND_E_FETCH_ANSWER},
        {"HTTP/1.1 206 x|Content-Range: bytes 100-198/1000|ETag: \"e\"", 99, ND_E_FETCH_ANSWER},
        {"HTTP/1.1 206 x|Content-Range: bytes 100-199/*|ETag: \"e\"", 100, ND_E_FETCH_ANSWER},
        {"HTTP/1.1 206 x|Content-Range: bytes 100-199/1000 |ETag: \"e\"|Content-Encoding: gzip", 100,
         ND_E_FETCH_ANSWER},
        {"HTTP/1.1 206 x|Content-Range: bytes -100-199/1000|ETag: \"e\"", 100, ND_E_FETCH_ANSWER},
        {"HTTP/1.1 206 x|Content-Range: bytes 100-99999999999999999999/1000|ETag: \"e\"", 100,
         ND_E_FETCH_ANSWER},
        {"HTTP/1.1 206 x|ETag: \"e\"", 100, ND_E_FETCH_ANSWER},
        {"HTTP/1.1 206 x|Content-Range: bytes 100-199/1000", 100, ND_E_FETCH_ANSWER},
        {"HTTP/1.1 206 x|Content-Range: bytes 100-199/1001|ETag: \"e\"", 100, ND_E_CAPTURE_CHANGED},
        {"HTTP/1.1 206 x|Content-Range: bytes 100-199/1000|ETag: \"f\"", 100, ND_E_CAPTURE_CHANGED},
        {"HTTP/1.1 206 x|Content-Range: bytes 100-199/1000|Last-Modified: m", 100, ND_E_CAPTURE_CHANGED},
        {"HTTP/1.1 412 x", 0, ND_E_CAPTURE_CHANGED},
        {"HTTP/1.1 416 x", 0, ND_E_CAPTURE_CHANGED},
        {"HTTP/1.1 200 x|ETag: \"e\"", 100, ND_E_FETCH_ANSWER},
        {"HTTP/1.1 404 x", 100, ND_E_FETCH_FAILED},
        {"HTTP/1.1 403 x", 100, ND_E_FETCH_FAILED},
        {"HTTP/1.1 xyz", 0, ND_E_FETCH_FAILED},
        {"", 0, ND_E_FETCH_FAILED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (judge(cases[i].head, cases[i].n_body, false) != cases[i].id)
            fail_msg("answer %zu: %d, not %d", i, judge(cases[i].head, cases[i].n_body, false), cases[i].id);
    assert_int_equal(judge("HTTP/1.1 416 x", 0, true), ND_E_CAPTURE_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_lead_to_urls, forget_variables, forget_variables),
        cmocka_unit_test_setup_teardown(names_that_lead_nowhere_are_refused, forget_variables,
                                        forget_variables),
        cmocka_unit_test(what_is_shown_opens_nothing),
        cmocka_unit_test(the_range_that_was_asked_for_is_taken),
        cmocka_unit_test(any_other_answer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
