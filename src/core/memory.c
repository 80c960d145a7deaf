/* Checked sizes and allocation. */
#include "core/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
