#include "judge/release/digest_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/files/new_file.h"
#include "core/text/strbuf.h"

enum {
    MAX_CACHE_BYTES = 1 << 22,
    KEPT_BYTES = 1 << 20, /* of entries that nobody asked for now: chosen; thousands of files */
    SETTLE_S = 2,         /* chosen: the coarsest time stamps in use (FAT) step by 2 s */
};

static bool add(struct nd_digest_cache *cache, const char *key, const char *sha256, bool is_used)
{
    if (!nd_grow((void **)&cache->items, &cache->capacity, cache->n + 1, sizeof *cache->items))
        return false;
    struct nd_cached_digest *item = &cache->items[cache->n];
    *item = (struct nd_cached_digest){.key = nd_strdup(key), .is_used = is_used};
    if (item->key == NULL)
        return false;
    memcpy(item->sha256, sha256, ND_SHA256_HEX_BYTES - 1);
    cache->n++;
    return true;
}

static bool is_digest(const char *text)
{
    return strspn(text, "0123456789abcdef") == ND_SHA256_HEX_BYTES - 1;
}

/* One line for each file: 64 digits, a space, the key. Other lines are skipped. */
static bool parse(struct nd_digest_cache *cache, char *text)
{
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (strlen(line) <= ND_SHA256_HEX_BYTES || line[ND_SHA256_HEX_BYTES - 1] != ' ')
            continue;
        line[ND_SHA256_HEX_BYTES - 1] = '\0';
        if (is_digest(line) && !add(cache, line + ND_SHA256_HEX_BYTES, line, false))
            return false;
    }
    return true;
}

enum nd_status nd_digest_cache_open(const char *path, struct nd_digest_cache *out, struct nd_error *err)
{
    struct nd_digest_cache cache = {.path = nd_strdup(path)};
    void *bytes = NULL;
    size_t n;
    bool is_whole = cache.path != NULL;
    if (is_whole && nd_path_exists(path) && nd_file_read(path, MAX_CACHE_BYTES, &bytes, &n, NULL) == ND_OK) {
        char *text = strndup(bytes, n);
        is_whole = text != NULL && parse(&cache, text);
        free(text);
    }
    free(bytes);
    if (!is_whole) {
        cache.has_changed = false;
        nd_digest_cache_close(&cache);
        return nd_fail_memory(err);
    }
    *out = cache;
    return ND_OK;
}

/* NULL when memory is out. */
static char *make_key(const char *file, const struct stat *info)
{
    struct nd_strbuf key = {0};
    nd_strbuf_printf(&key, "%llu %llu %lld %lld.%09ld %lld.%09ld %s", (unsigned long long)info->st_dev,
                     (unsigned long long)info->st_ino, (long long)info->st_size,
                     (long long)info->st_mtim.tv_sec, info->st_mtim.tv_nsec, (long long)info->st_ctim.tv_sec,
                     info->st_ctim.tv_nsec, file);
    return nd_strbuf_take(&key);
}

/* Whether a later change would show in the times. A clock that was set back says nothing. */
static bool has_settled(const struct stat *info)
{
    struct timespec now;
    return clock_gettime(CLOCK_REALTIME, &now) == 0 && info->st_ctim.tv_sec + SETTLE_S < now.tv_sec &&
           info->st_mtim.tv_sec + SETTLE_S < now.tv_sec;
}

enum nd_status nd_digest_cache_find(struct nd_digest_cache *cache, const char *file,
                                    char hex[static ND_SHA256_HEX_BYTES], struct nd_error *err)
{
    struct stat info;
    if (stat(file, &info) != 0)
        return nd_fail(err, ND_E_FILE_OPEN, file, "cannot open '%s': %s", file, strerror(errno));
    char *key = make_key(file, &info);
    if (key == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < cache->n; i++)
        if (strcmp(cache->items[i].key, key) == 0) {
            cache->items[i].is_used = true;
            memcpy(hex, cache->items[i].sha256, ND_SHA256_HEX_BYTES);
            free(key);
            return ND_OK;
        }
    bool can_be_kept = has_settled(&info) && strchr(file, '\n') == NULL;
    enum nd_status status = nd_sha256_file(file, hex, err);
    cache->n_read += status == ND_OK;
    if (status == ND_OK && can_be_kept) {
        status = add(cache, key, hex, true) ? ND_OK : nd_fail_memory(err);
        cache->has_changed = true;
    }
    free(key);
    return status;
}

static void put_items(struct nd_strbuf *text, const struct nd_digest_cache *cache, bool are_used,
                      size_t max_bytes)
{
    for (size_t i = 0; i < cache->n && text->len < max_bytes; i++)
        if (cache->items[i].is_used == are_used)
            nd_strbuf_printf(text, "%s %s\n", cache->items[i].sha256, cache->items[i].key);
}

/* Those that were asked for first. Of the others as many as fit: several machines may share the folder, each
 * with files of its own, and each task of a campaign asks for a few only. */
static void write_out(const struct nd_digest_cache *cache)
{
    struct nd_strbuf text = {0};
    put_items(&text, cache, true, SIZE_MAX);
    put_items(&text, cache, false, KEPT_BYTES);
    if (!text.failed && text.len <= MAX_CACHE_BYTES)
        nd_file_put(cache->path, text.text != NULL ? text.text : "", text.len, NULL);
    nd_strbuf_deinit(&text);
}

void nd_digest_cache_close(struct nd_digest_cache *cache)
{
    if (cache->has_changed)
        write_out(cache);
    for (size_t i = 0; i < cache->n; i++)
        free(cache->items[i].key);
    free(cache->items);
    free(cache->path);
    *cache = (struct nd_digest_cache){0};
}
