/* Where a runtime is taken from: an archive (a wheel, an AAR: both are zip files) or a folder. */
#ifndef ND_SDK_RUNTIME_SOURCE_H
#define ND_SDK_RUNTIME_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

struct nd_source_file {
    char *name; /* its path inside, without a '/' at the start and without ".." */
    uint64_t size_bytes;
    uint64_t index; /* of an archive's member */
    char *digest; /* of a wheel's file as its RECORD says it: base64 of SHA-256, with '-' and '_', without '=';
                     NULL: RECORD says none */
};

struct nd_runtime_source {
    char *path;
    struct zip *zip; /* NULL for a folder */
    bool is_wheel;   /* it has a RECORD: a file is taken only if it has the digest that is there */
    size_t n;
    struct nd_source_file *files; /* sorted by name; regular files, and links to such in a folder */
};

/* Lists what is inside. ND_E_FILE_OPEN; ND_E_RUNTIME_SOURCE for what is neither folder nor zip file, for
 * archives that are damaged or hold a name that leads out of them, a link, an encrypted member, one name twice
 * or a size that cannot be, for wheels without RECORD or with one that cannot be read, and for folders with
 * more than 200 000 files. Links to folders are not followed. */
enum nd_status nd_runtime_source_open(const char *path, struct nd_runtime_source *out, struct nd_error *err);
void nd_runtime_source_close(struct nd_runtime_source *source);

/* Writes file i to `to`, which must not exist: all of it (an archive's checksum and a wheel's digest are
 * verified) or nothing. is_cancelled is nullable. */
enum nd_status nd_runtime_source_extract(const struct nd_runtime_source *source, size_t i, const char *to,
                                         bool (*is_cancelled)(void *), void *context, struct nd_error *err);

/* The text of file i in new memory, cut off behind 1 MiB. A longer one in a wheel cannot be verified and is
 * refused. */
enum nd_status nd_runtime_source_text(const struct nd_runtime_source *source, size_t i, char **out,
                                      struct nd_error *err);

#endif
