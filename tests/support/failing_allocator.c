/* Preloaded into npudiff: the allocation whose number NPUDIFF_FAIL_AT says fails, counted from 1 in the order
 * in which the process makes them. At its end it appends to the file NPUDIFF_FAIL_COUNT how many there were.
 * Only the process that was started with these variables fails: its children (the agent, the reader of a
 * stranger's file) inherit neither them nor this library. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_long n_made, fails_at;
static pid_t process;
static char count_path[4096];

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static uintptr_t hdf5_first, hdf5_end;

static int must_fail(uintptr_t caller)
{
    long wanted = atomic_load(&fails_at);
    if (process == 0 || getpid() != process || (caller >= hdf5_first && caller < hdf5_end))
        return 0;
    return atomic_fetch_add(&n_made, 1) + 1 == wanted;
}

void *malloc(size_t size)
{
    if (must_fail((uintptr_t)__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    if (must_fail((uintptr_t)__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_calloc(n, size);
}

void *realloc(void *memory, size_t size)
{
    if (must_fail((uintptr_t)__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(memory, size);
}

char *strndup(const char *text, size_t n)
{
    size_t length = strnlen(text, n);
    char *copy = must_fail((uintptr_t)__builtin_return_address(0)) ? NULL : __libc_malloc(length + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *strdup(const char *text)
{
    size_t length = strlen(text);
    char *copy = must_fail((uintptr_t)__builtin_return_address(0)) ? NULL : __libc_malloc(length + 1);
    return copy != NULL ? memcpy(copy, text, length + 1) : NULL;
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *memory = must_fail((uintptr_t)__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
    if (memory == NULL)
        return ENOMEM;
    *out = memory;
    return 0;
}

static int find_hdf5(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    (void)context;
    if (strstr(info->dlpi_name, "libhdf5") == NULL)
        return 0;
    hdf5_first = hdf5_end = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz > hdf5_end)
            hdf5_end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    return 1;
}

__attribute__((constructor)) static void start(void)
{
    const char *at = getenv("NPUDIFF_FAIL_AT"), *path = getenv("NPUDIFF_FAIL_COUNT");
    if (at == NULL)
        return;
    atomic_store(&fails_at, atol(at));
    snprintf(count_path, sizeof count_path, "%s", path != NULL ? path : "");
    unsetenv("NPUDIFF_FAIL_AT");
    unsetenv("NPUDIFF_FAIL_COUNT");
    unsetenv("LD_PRELOAD");
    dl_iterate_phdr(find_hdf5, NULL);
    process = getpid();
}

__attribute__((destructor)) static void finish(void)
{
    char text[32];
    if (process == 0 || getpid() != process || count_path[0] == '\0')
        return;
    int n = snprintf(text, sizeof text, "%ld\n", atomic_load(&n_made));
    int fd = open(count_path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd >= 0 && write(fd, text, (size_t)n) != n)
        _exit(99);
    if (fd >= 0)
        close(fd);
}
