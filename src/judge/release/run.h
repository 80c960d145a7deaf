/* SHA-256 of files that seldom change, such as a runtime's libraries: kept in a text file, so that hundreds of
 * megabytes are read once. A digest stands for a file of the same device, inode, size, and times of its last
 * change of content and of status, to the nanosecond; the last of these no program can set back. */
#ifndef ND_JUDGE_DIGEST_CACHE_H
#define ND_JUDGE_DIGEST_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "core/tensors/sha256.h"

struct nd_digest_cache {
    char *path;                 /* of the file; what cannot be read or written there is only slower */
    size_t n, capacity, n_read; /* n_read: files that were hashed by this object */
    struct nd_cached_digest {
        char *key; /* path and status of the file in words, without line breaks */
        char sha256[ND_SHA256_HEX_BYTES];
        bool is_used; /* asked for: the others are forgotten */
    } * items;
    bool has_changed;
};

/* Reads what an earlier cache left at `path`. Only memory can fail. */
enum nd_status nd_digest_cache_open(const char *path, struct nd_digest_cache *out, struct nd_error *err);

/* SHA-256 of the file's content. A file that was changed within the last two seconds is hashed and not kept:
 * it might change again and show the same times. ND_ERR_IO. */
enum nd_status nd_digest_cache_find(struct nd_digest_cache *cache, const char *file,
                                    char hex[static ND_SHA256_HEX_BYTES], struct nd_error *err);

/* Writes what was asked for, where that changed, and frees. Accepts a zeroed struct. */
void nd_digest_cache_close(struct nd_digest_cache *cache);

#endif
