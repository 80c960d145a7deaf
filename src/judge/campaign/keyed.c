/* Files of a campaign that are made once, and made again when what they were made from has changed. */
#include "core/memory.h"
#include "judge/campaign/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/text/strbuf.h"

enum {
    KEY_BYTES = 130, /* two digests, each with its line's end */
    MAX_KEY_BYTES = 4096,
};

/* The third line of the key of a file that is made again the next time. */
#define AGAIN "again\n"

static char *key_path(const char *path)
{
    return nd_text("%s.key", path);
}

bool nd_keyed_is_missing(const char *path)
{
    return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

static enum nd_status look(const char *path, const char *beside, const char *key, struct nd_keyed *out,
                           struct nd_error *err)
{
    ND_FREED void *bytes = NULL;
    size_t n_bytes;
    if (nd_keyed_is_missing(path) || nd_keyed_is_missing(beside))
        return ND_OK;
    enum nd_status status = nd_file_read(beside, MAX_KEY_BYTES, &bytes, &n_bytes, err);
    if (status == ND_OK && n_bytes >= KEY_BYTES && strncmp(bytes, key, 64) == 0) {
        status = nd_sha256_file(path, out->sha256, err);
        out->is_current = status == ND_OK && strncmp((const char *)bytes + 65, out->sha256, 64) == 0;
        out->is_final = out->is_current && n_bytes == KEY_BYTES;
    }
    return status;
}

enum nd_status nd_keyed_look(const char *path, const char *key, struct nd_keyed *out, struct nd_error *err)
{
    *out = (struct nd_keyed){0};
    ND_FREED char *beside = key_path(path);
    return beside != NULL ? look(path, beside, key, out, err) : nd_fail_memory(err);
}

enum nd_status nd_keyed_write(const char *path, const char *key, const char *sha256, bool is_final,
                              struct nd_error *err)
{
    char text[KEY_BYTES + sizeof AGAIN];
    int n = snprintf(text, sizeof text, "%s\n%s\n%s", key, sha256, is_final ? "" : AGAIN);
    ND_FREED char *beside = key_path(path);
    return beside != NULL ? nd_file_put(beside, text, (size_t)n, err) : nd_fail_memory(err);
}
