/* SHA-256 of files, by nettle. Used where a digest must mean something elsewhere: models, libraries. */
#pragma once

#include <stddef.h>

#include "core/error.h"

enum { ND_SHA256_HEX_BYTES = 65 };

/* Lower-case hexadecimal digest of the file's bytes, NUL-terminated. */
enum nd_status nd_sha256_file(const char *path, char hex[static ND_SHA256_HEX_BYTES], struct nd_error *err);

/* The same, but a file that this process hashed before is not read again while it is the same inode of the same
 * size and times. For libraries, which several devices of one run load. Any thread. */
enum nd_status nd_sha256_file_once(const char *path, char hex[static ND_SHA256_HEX_BYTES],
                                   struct nd_error *err);

/* The same of a block of memory. */
void nd_sha256_bytes(const void *data, size_t size_bytes, char hex[static ND_SHA256_HEX_BYTES]);
