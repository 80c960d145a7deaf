/* Checked sizes and allocation. What is made here is used by <stdlib.h> and <string.h>, which come with it, as
 * does core/error.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

/* *out = a * b (or a + b); false when it does not fit, *out untouched. */
bool nd_size_mul(size_t a, size_t b, size_t *out);
bool nd_size_add(size_t a, size_t b, size_t *out);

/* Bytes of memory that this machine has; SIZE_MAX when it does not say. What a header promises is held against
 * it before any of it is taken: a few MB of an archive can stand for many GB. */
size_t nd_machine_memory(void);

/* n elements of size_bytes, zeroed, or NULL. n = 0 gives a pointer that can be freed. */
void *nd_calloc(size_t n, size_t size_bytes);

/* A tensor buffer: 64-byte aligned, zeroed, readable 64 bytes past its end. free() it. NULL: no memory. */
void *nd_tensor_alloc(size_t size_bytes);
/* The same with any bytes in it. */
void *nd_tensor_room(size_t size_bytes);

/* strdup that accepts NULL (gives NULL). */
char *nd_strdup(const char *text);

/* A part of a text that could not be had looks like one that is empty, and the text would go on without it. So
 * nd_strdup, a string (base/strbuf.h) and a tree (report/tree.h) note what they lose, for their thread, and who
 * hands out a whole text asks at its end. Asking forgets it, as nd_fail_memory does. */
void nd_note_lost_text(void);
bool nd_take_lost_text(void);

/* free() of each of them: `ND_FREE_ALL(device->uri, device->name);` */
#define ND_FREE_ALL(...) nd_free_all((void *[]){__VA_ARGS__}, sizeof((void *[]){__VA_ARGS__}) / sizeof(void *))
void nd_free_all(void *const *all, size_t n);

/* Grows the array *items of *capacity elements so that it holds n_needed; doubles. False: no memory, the array
 * is as it was. Usage: nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items) */
bool nd_grow(void **items, size_t *capacity, size_t n_needed, size_t item_bytes);

/* A local variable that owns something gives it back wherever its function returns: `ND_FREED char *path =
 * NULL;` is freed, `ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};` goes through a function that
 * takes its address and accepts the empty value. Of several the last declared goes first. */
#define ND_CLEANUP(function) __attribute__((cleanup(function)))
#define ND_FREED ND_CLEANUP(nd_free_variable)

static inline void nd_free_variable(void *variable)
{
    void *owned;
    memcpy(&owned, variable, sizeof owned);
    free(owned);
}

/* Hands what such a variable owns to who asked, at the end of a function: `return ND_GIVE(out, path);` */
#define ND_GIVE(out, owned) nd_give((out), &(owned), sizeof(*(out) = (owned)))

static inline enum nd_status nd_give(void *out, void *owned, size_t n_bytes)
{
    memcpy(out, owned, n_bytes);
    memset(owned, 0, n_bytes);
    return ND_OK;
}

/* ---- memory of one result: all of it is freed at once ---- */

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
