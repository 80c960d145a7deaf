/* A growing string. After an allocation failure it stays failed and empty of further appends; check once at the
 * end. */
#ifndef ND_BASE_STRBUF_H
#define ND_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

#include "npudiff/core/status.h"

struct nd_strbuf {
    char *text; /* NUL-terminated, or NULL while nothing was appended */
    size_t len;
    size_t capacity;
    bool failed;
};

void nd_strbuf_append(struct nd_strbuf *buf, const char *bytes, size_t n);
void nd_strbuf_puts(struct nd_strbuf *buf, const char *text);
void nd_strbuf_printf(struct nd_strbuf *buf, const char *fmt, ...) ND_PRINTF(2, 3);

/* Hands the text over (never NULL on success; "" when empty) and resets buf; NULL when an append had failed. */
char *nd_strbuf_take(struct nd_strbuf *buf);

/* The printed text alone, in new memory; NULL when memory is out. */
char *nd_text(const char *fmt, ...) ND_PRINTF(1, 2);

void nd_strbuf_deinit(struct nd_strbuf *buf);

#endif
