/* Bytes as text: base64 (RFC 4648), by nettle. */
#ifndef ND_BASE_BASE64_H
#define ND_BASE_BASE64_H

#include <stddef.h>

/* The text with its padding, NUL-terminated, in new memory; NULL when memory is out. */
char *nd_base64(const void *data, size_t size_bytes);

#endif
