/* Checked sizes and allocation. */
#include "core/memory.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "core/error.h"

/* Memory of one result: all of it is freed at once. */

struct block {
    struct block *next;
    max_align_t bytes[];
};

struct nd_arena {
    struct block *blocks;
    bool has_failed;
};

struct nd_arena *nd_arena_create(void)
{
    return nd_calloc(1, sizeof(struct nd_arena));
}

void nd_arena_destroy(struct nd_arena *arena)
{
    for (struct block *block = arena != NULL ? arena->blocks : NULL, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    free(arena);
}

void *nd_arena_calloc(struct nd_arena *arena, size_t n, size_t size_bytes)
{
    size_t n_bytes;
    struct block *block = NULL;
    if (nd_size_mul(n, size_bytes, &n_bytes) && nd_size_add(n_bytes, sizeof *block, &n_bytes))
        block = nd_calloc(1, n_bytes);
    if (block == NULL) {
        arena->has_failed = true;
        return NULL;
    }
    block->next = arena->blocks;
    arena->blocks = block;
    return block->bytes;
}

const char *nd_arena_text(struct nd_arena *arena, const char *text)
{
    size_t n = text != NULL ? strlen(text) : 0;
    char *copy = n > 0 ? nd_arena_calloc(arena, n + 1, 1) : NULL;
    return copy != NULL ? memcpy(copy, text, n) : "";
}

const char *nd_arena_printf(struct nd_arena *arena, const char *fmt, ...)
{
    va_list arguments, again;
    va_start(arguments, fmt);
    va_copy(again, arguments);
    int n = vsnprintf(NULL, 0, fmt, arguments);
    char *text = n >= 0 ? nd_arena_calloc(arena, (size_t)n + 1, 1) : NULL;
    if (text != NULL)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(arguments);
    return text != NULL ? text : "";
}

bool nd_arena_has_failed(const struct nd_arena *arena)
{
    return arena->has_failed;
}

void nd_arena_fail(struct nd_arena *arena)
{
    arena->has_failed = true;
}

bool nd_size_mul(size_t a, size_t b, size_t *out)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

bool nd_size_add(size_t a, size_t b, size_t *out)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

size_t nd_machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t memory;
    bool is_known = pages > 0 && page > 0 && nd_size_mul((size_t)pages, (size_t)page, &memory);
    return is_known ? memory : SIZE_MAX;
}

void *nd_calloc(size_t n, size_t size_bytes)
{
    return calloc(n > 0 ? n : 1, size_bytes > 0 ? size_bytes : 1);
}

static void *allocate_aligned(size_t size_bytes, bool is_zeroed)
{
    const size_t alignment = 64;
    size_t padded;
    if (!nd_size_add(size_bytes, 2 * alignment - 1, &padded))
        return NULL;
    padded -= padded % alignment;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, padded) != 0)
        return NULL;
    if (is_zeroed)
        memset(memory, 0, padded);
    return memory;
}

void *nd_tensor_alloc(size_t size_bytes)
{
    return allocate_aligned(size_bytes, true);
}

void *nd_tensor_room(size_t size_bytes)
{
    return allocate_aligned(size_bytes, false);
}

static _Thread_local bool has_lost_text;

void nd_note_lost_text(void)
{
    has_lost_text = true;
}

bool nd_take_lost_text(void)
{
    bool has_lost = has_lost_text;
    has_lost_text = false;
    return has_lost;
}

char *nd_strdup(const char *text)
{
    char *copy = text != NULL ? strdup(text) : NULL;
    if (text != NULL && copy == NULL)
        nd_note_lost_text();
    return copy;
}

bool nd_grow(void **items, size_t *capacity, size_t n_needed, size_t item_bytes)
{
    if (n_needed <= *capacity)
        return true;
    size_t wanted = *capacity > 0 ? *capacity : 8;
    while (wanted < n_needed)
        if (!nd_size_mul(wanted, 2, &wanted))
            return false;
    size_t bytes;
    if (!nd_size_mul(wanted, item_bytes, &bytes))
        return false;
    void *grown = realloc(*items, bytes);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

void nd_free_all(void *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(all[i]);
}
