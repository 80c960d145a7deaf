/* A growing string, which stays failed once memory was out. */
#include "core/text/strbuf.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/memory.h"

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
