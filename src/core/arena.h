/* Memory of one result: all of it is freed at once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "npudiff/core/status.h"

struct nd_arena;

/* NULL: out of memory. */
struct nd_arena *nd_arena_create(void);

/* Accepts NULL. */
void nd_arena_destroy(struct nd_arena *arena);

/* n elements of size_bytes, zeroed; NULL: out of memory, which the arena remembers. */
void *nd_arena_calloc(struct nd_arena *arena, size_t n, size_t size_bytes);

/* A copy of the text; "" for NULL, and without memory, which the arena remembers. */
const char *nd_arena_text(struct nd_arena *arena, const char *text);
const char *nd_arena_printf(struct nd_arena *arena, const char *fmt, ...) ND_PRINTF(2, 3);

/* Whether an allocation has failed; and remembers one that failed elsewhere. */
bool nd_arena_has_failed(const struct nd_arena *arena);
void nd_arena_fail(struct nd_arena *arena);
