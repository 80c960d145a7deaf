/* Bytes as text and back: base64 (RFC 4648), by nettle. */
#include "core/text/strbuf.h"

#include <nettle/base64.h>
#include <stdint.h>
#include <string.h>

#include "core/memory.h"

char *nd_base64(const void *data, size_t size_bytes)
{
    if (size_bytes > SIZE_MAX / 2)
        return NULL;
    size_t length = BASE64_ENCODE_RAW_LENGTH(size_bytes);
    char *text = nd_calloc(length + 1, 1);
    if (text != NULL && size_bytes > 0)
        base64_encode_raw(text, size_bytes, data);
    return text;
}

bool nd_base64_read(const char *text, void *data, size_t capacity, size_t *size_bytes)
{
    /* The padding stands for up to two bytes fewer than the characters give. */
    size_t n = strlen(text), n_padding = 0;
    struct base64_decode_ctx ctx;
    while (n_padding < 2 && n_padding < n && text[n - 1 - n_padding] == '=')
        n_padding++;
    if (n % 4 != 0 || n / 4 * 3 - n_padding > capacity)
        return false;
    base64_decode_init(&ctx);
    *size_bytes = capacity;
    return base64_decode_update(&ctx, size_bytes, data, n, text) && base64_decode_final(&ctx);
}
