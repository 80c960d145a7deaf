#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

static void finish(struct sha256_ctx *context, char hex[static ND_SHA256_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_digest(context, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[ND_SHA256_HEX_BYTES - 1] = '\0';
}

void nd_sha256_bytes(const void *data, size_t size_bytes, char hex[static ND_SHA256_HEX_BYTES])
{
    struct sha256_ctx context;
    sha256_init(&context);
    sha256_update(&context, size_bytes, data);
    finish(&context, hex);
}

static enum nd_status hash_open_file(int fd, const char *path, char hex[static ND_SHA256_HEX_BYTES],
                                     struct nd_error *err)
{
    const size_t block_bytes = 1u << 20;
    uint8_t *block = nd_calloc(block_bytes, 1);
    if (block == NULL)
        return nd_fail_memory(err);
    struct sha256_ctx context;
    sha256_init(&context);
    ssize_t n;
    while ((n = read(fd, block, block_bytes)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        sha256_update(&context, (size_t)n, block);
    }
    free(block);
    if (n < 0)
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path, strerror(errno));
    finish(&context, hex);
    return ND_OK;
}

enum nd_status nd_sha256_file(const char *path, char hex[static ND_SHA256_HEX_BYTES], struct nd_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    enum nd_status status = hash_open_file(fd, path, hex, err);
    close(fd);
    return status;
}
