#include "capture/fetch/fetch.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "capture/fetch/request.h"

/* Measured on a capture of 117 MB (docs/results/remote.md): older captures have metadata in pieces of some 2 KB
 * all over the file. Smaller blocks need more requests, larger ones read more of what nobody asked for. Who
 * reads on where the last request ended gets twice as much each time. */
enum { BLOCK_BYTES = 8 << 10, N_SLOTS = ND_FETCH_CACHE_BYTES / BLOCK_BYTES };
enum { MAX_AHEAD_BLOCKS = 128, MAX_REQUEST_BLOCKS = 512 };

/* Block b is kept in slot b % N_SLOTS or not at all, so that up to ND_FETCH_CACHE_BYTES in a row never push one
 * another out. */
struct slot {
    unsigned char *bytes; /* BLOCK_BYTES; NULL: empty */
    uint64_t block;
};

struct nd_fetch {
    struct nd_fetch_place place;
    struct nd_fetch_link *link;
    struct nd_fetch_version version;
    pthread_mutex_t mutex; /* guards what follows, and link */
    struct slot slots[N_SLOTS];
    unsigned char *incoming; /* MAX_REQUEST_BLOCKS */
    uint64_t next_block;     /* where the last request ended */
    uint64_t n_ahead;        /* blocks of a request at the least */
};

static uint64_t n_blocks(const struct nd_fetch *fetch)
{
    return (fetch->version.n_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static size_t block_bytes(const struct nd_fetch *fetch, uint64_t block)
{
    uint64_t rest = fetch->version.n_bytes - block * BLOCK_BYTES;
    return rest < BLOCK_BYTES ? (size_t)rest : BLOCK_BYTES;
}

static struct slot *slot_of(struct nd_fetch *fetch, uint64_t block)
{
    return &fetch->slots[block % N_SLOTS];
}

static bool is_kept(struct nd_fetch *fetch, uint64_t block)
{
    const struct slot *slot = slot_of(fetch, block);
    return slot->bytes != NULL && slot->block == block;
}

static enum nd_status keep(struct nd_fetch *fetch, uint64_t block, const unsigned char *bytes,
                           struct nd_error *err)
{
    struct slot *slot = slot_of(fetch, block);
    if (slot->bytes == NULL && (slot->bytes = nd_calloc(BLOCK_BYTES, 1)) == NULL)
        return nd_fail_memory(err);
    memcpy(slot->bytes, bytes, block_bytes(fetch, block));
    slot->block = block;
    return ND_OK;
}

/* How many blocks from `first` on one request takes; those up to `end` are wanted. */
static uint64_t blocks_to_fetch(struct nd_fetch *fetch, uint64_t first, uint64_t end)
{
    bool goes_on = first == fetch->next_block;
    fetch->n_ahead = !goes_on ? 1 : fetch->n_ahead < MAX_AHEAD_BLOCKS ? 2 * fetch->n_ahead : MAX_AHEAD_BLOCKS;
    uint64_t n_wanted = end - first > fetch->n_ahead ? end - first : fetch->n_ahead, n = 1;
    if (n_wanted > MAX_REQUEST_BLOCKS)
        n_wanted = MAX_REQUEST_BLOCKS;
    while (n < n_wanted && first + n < n_blocks(fetch) && !is_kept(fetch, first + n))
        n++;
    return n;
}

static enum nd_status fetch_blocks(struct nd_fetch *fetch, uint64_t first, uint64_t end, struct nd_error *err)
{
    uint64_t n = blocks_to_fetch(fetch, first, end);
    struct nd_fetch_range range = {.offset = first * BLOCK_BYTES, .buf = fetch->incoming};
    size_t n_got = 0;
    for (uint64_t i = 0; i < n; i++)
        range.n_bytes += block_bytes(fetch, first + i);
    enum nd_status status = nd_fetch_request(fetch->link, &range, false, &fetch->version, &n_got, err);
    for (uint64_t i = 0; status == ND_OK && i < n; i++)
        status = keep(fetch, first + i, fetch->incoming + i * BLOCK_BYTES, err);
    fetch->next_block = first + n;
    return status;
}

enum nd_status nd_fetch_read(struct nd_fetch *fetch, uint64_t offset, void *buf, size_t n_bytes,
                             struct nd_error *err)
{
    assert(offset <= fetch->version.n_bytes && n_bytes <= fetch->version.n_bytes - offset);
    unsigned char *to = buf;
    uint64_t end = (offset + n_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    enum nd_status status = ND_OK;
    pthread_mutex_lock(&fetch->mutex);
    while (n_bytes > 0) {
        uint64_t block = offset / BLOCK_BYTES;
        size_t at = (size_t)(offset % BLOCK_BYTES), n = BLOCK_BYTES - at < n_bytes ? BLOCK_BYTES - at : n_bytes;
        if (!is_kept(fetch, block) && (status = fetch_blocks(fetch, block, end, err)) != ND_OK)
            break;
        memcpy(to, slot_of(fetch, block)->bytes + at, n);
        to += n;
        offset += n;
        n_bytes -= n;
    }
    pthread_mutex_unlock(&fetch->mutex);
    return status;
}

/* The first block tells size and version. */
static enum nd_status begin(struct nd_fetch *fetch, struct nd_error *err)
{
    const struct nd_fetch_range range = {.buf = fetch->incoming, .n_bytes = BLOCK_BYTES};
    size_t n_got = 0;
    enum nd_status status = nd_fetch_request(fetch->link, &range, true, &fetch->version, &n_got, err);
    if (status == ND_OK)
        status = keep(fetch, 0, fetch->incoming, err);
    fetch->next_block = fetch->n_ahead = 1;
    return status;
}

enum nd_status nd_fetch_open(const char *url, struct nd_fetch **out, struct nd_error *err)
{
    struct nd_fetch *fetch = nd_calloc(1, sizeof *fetch);
    if (fetch == NULL)
        return nd_fail_memory(err);
    if (pthread_mutex_init(&fetch->mutex, NULL) != 0) {
        free(fetch);
        return nd_fail_memory(err);
    }
    fetch->incoming = nd_calloc(MAX_REQUEST_BLOCKS, BLOCK_BYTES);
    enum nd_status status = fetch->incoming != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_fetch_place_find(url, &fetch->place, err);
    if (status == ND_OK)
        status = nd_fetch_link_open(&fetch->place, &fetch->link, err);
    if (status == ND_OK)
        status = begin(fetch, err);
    if (status != ND_OK)
        nd_fetch_close(&fetch);
    else
        *out = fetch;
    return status;
}

void nd_fetch_close(struct nd_fetch **fetch_at)
{
    struct nd_fetch *fetch = *fetch_at;
    if (fetch == NULL)
        return;
    nd_fetch_link_close(&fetch->link);
    nd_fetch_place_deinit(&fetch->place);
    for (size_t i = 0; i < N_SLOTS; i++)
        free(fetch->slots[i].bytes);
    free(fetch->incoming);
    pthread_mutex_destroy(&fetch->mutex);
    free(fetch);
    *fetch_at = NULL;
}

uint64_t nd_fetch_bytes(const struct nd_fetch *fetch)
{
    return fetch->version.n_bytes;
}
