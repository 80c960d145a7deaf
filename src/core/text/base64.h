/* Bytes as text: base64 (RFC 4648), by nettle. */
#ifndef ND_BASE_BASE64_H
#define ND_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* The text with its padding, NUL-terminated, in new memory; NULL when memory is out. */
char *nd_base64(const void *data, size_t size_bytes);

/* The bytes of such a text: data has room for capacity. False: it is no base64, or there are more bytes. */
bool nd_base64_read(const char *text, void *data, size_t capacity, size_t *size_bytes);

#endif
