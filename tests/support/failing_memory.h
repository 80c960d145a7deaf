/* Allocations that fail when a test says so. Its binary links with --wrap (unit_link_args in meson.build), so
 * that the linker sends what the library allocates through here; shared libraries are left alone. Include after
 * main.h, once. */
#ifndef ND_TESTS_FAILING_MEMORY_H
#define ND_TESTS_FAILING_MEMORY_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void *__real_malloc(size_t size_bytes);
void *__real_calloc(size_t n, size_t size_bytes);
void *__real_realloc(void *memory, size_t size_bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t size_bytes);
void *__wrap_calloc(size_t n, size_t size_bytes);
void *__wrap_realloc(void *memory, size_t size_bytes);
void __wrap_free(void *memory);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);
int __wrap_vasprintf(char **out, const char *fmt, va_list args);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size_bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t size_bytes);

/* The first n_left allocations succeed, then one fails, then all others succeed. */
static atomic_llong n_left = -1;
static atomic_llong n_live; /* allocated less freed */

static bool must_fail(void)
{
    return atomic_load(&n_left) >= 0 && atomic_fetch_sub(&n_left, 1) == 0;
}

static void *count(void *memory)
{
    atomic_fetch_add(&n_live, memory != NULL);
    return memory;
}

void *__wrap_malloc(size_t size_bytes)
{
    return must_fail() ? NULL : count(__real_malloc(size_bytes));
}

void *__wrap_calloc(size_t n, size_t size_bytes)
{
    return must_fail() ? NULL : count(__real_calloc(n, size_bytes));
}

void *__wrap_realloc(void *memory, size_t size_bytes)
{
    if (must_fail())
        return NULL;
    void *moved = __real_realloc(memory, size_bytes);
    return memory == NULL ? count(moved) : moved;
}

void __wrap_free(void *memory)
{
    atomic_fetch_sub(&n_live, memory != NULL);
    __real_free(memory);
}

char *__wrap_strndup(const char *text, size_t n)
{
    size_t len = strnlen(text, n);
    char *copy = __wrap_malloc(len + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

char *__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, strlen(text));
}

int __wrap_vasprintf(char **out, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *made = n < 0 ? NULL : __wrap_malloc((size_t)n + 1);
    if (made == NULL)
        return -1;
    vsnprintf(made, (size_t)n + 1, fmt, args);
    *out = made;
    return n;
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size_bytes)
{
    if (must_fail())
        return 12; /* ENOMEM */
    int status = __real_posix_memalign(out, alignment, size_bytes);
    atomic_fetch_add(&n_live, status == 0);
    return status;
}

#endif
