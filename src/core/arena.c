/* Memory of one result: all of it is freed at once. */
#include "core/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

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
