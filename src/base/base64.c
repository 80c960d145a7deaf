#include "base/base64.h"

#include <nettle/base64.h>
#include <stdint.h>

#include "base/memory.h"

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
