/* A growing string, which stays failed once memory was out. */
#include "core/text/strbuf.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "npudiff/core/parse.h"

static bool reserve(struct nd_strbuf *buf, size_t extra)
{
    size_t needed;
    if (buf->failed)
        return false;
    if (!nd_size_add(buf->len, extra, &needed) || !nd_size_add(needed, 1, &needed) ||
        !nd_grow((void **)&buf->text, &buf->capacity, needed, 1)) {
        buf->failed = true;
        nd_note_lost_text();
    }
    return !buf->failed;
}

void nd_strbuf_append(struct nd_strbuf *buf, const char *bytes, size_t n)
{
    if (!reserve(buf, n))
        return;
    if (n > 0)
        memcpy(buf->text + buf->len, bytes, n);
    buf->len += n;
    buf->text[buf->len] = '\0';
}

void nd_strbuf_puts(struct nd_strbuf *buf, const char *text)
{
    nd_strbuf_append(buf, text, strlen(text));
}

static void append_printed(struct nd_strbuf *buf, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    if (n < 0)
        buf->failed = true;
    else if (reserve(buf, (size_t)n)) {
        vsnprintf(buf->text + buf->len, (size_t)n + 1, fmt, again);
        buf->len += (size_t)n;
    }
    va_end(again);
}

void nd_strbuf_printf(struct nd_strbuf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    append_printed(buf, fmt, args);
    va_end(args);
}

char *nd_strbuf_take(struct nd_strbuf *buf)
{
    nd_strbuf_append(buf, "", 0);
    char *text = buf->failed ? NULL : buf->text;
    if (text == NULL)
        free(buf->text);
    *buf = (struct nd_strbuf){0};
    return text;
}

char *nd_text(const char *fmt, ...)
{
    struct nd_strbuf text = {0};
    va_list args;
    va_start(args, fmt);
    append_printed(&text, fmt, args);
    va_end(args);
    return nd_strbuf_take(&text);
}

void nd_strbuf_deinit(struct nd_strbuf *buf)
{
    free(buf->text);
    *buf = (struct nd_strbuf){0};
}

/* ---- numbers from text, in the C locale ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t nd_use_c_locale(void)
{
    pthread_once(&once, make_c_locale);
    return uselocale(c_locale);
}

static bool has_only_digits(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

bool nd_parse_u64(const char *text, uint64_t *out)
{
    if (!has_only_digits(text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0)
        return false;
    *out = value;
    return true;
}

bool nd_parse_i64(const char *text, int64_t *out)
{
    if (!has_only_digits(text[0] == '-' ? text + 1 : text))
        return false;
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno != 0)
        return false;
    *out = value;
    return true;
}

bool nd_parse_double(const char *text, double *out)
{
    if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0')
        return false;
    char *end;
    locale_t before = nd_use_c_locale();
    double value = strtod(text, &end);
    uselocale(before);
    if (*end != '\0' || end == text || !isfinite(value))
        return false;
    *out = value;
    return true;
}

char *nd_format_double(double value, char buf[])
{
    if (isnan(value))
        return strcpy(buf, "NaN");
    if (isinf(value))
        return strcpy(buf, value > 0 ? "Infinity" : "-Infinity");
    locale_t before = nd_use_c_locale();
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    uselocale(before);
    return buf;
}

bool nd_is_one_of(const char *word, const char *const *words)
{
    while (word != NULL && *words != NULL && strcmp(word, *words) != 0)
        words++;
    return word != NULL && *words != NULL;
}
