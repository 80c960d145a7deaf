/* Preloaded into npudiff or its agent: makes calls to the system fail.
 *
 * NPUDIFF_FAULT is KIND:N: the N-th call of that kind fails, counted from 1; with N 0 none fails, they are only
 * counted. KIND:N+: all from the N-th on, as on a disk that stays full. kill:N: the process is killed (SIGKILL)
 * before its N-th call of any kind but malloc. KIND is open, write, fsync, close, rename, mmap, malloc or fork.
 *
 * NPUDIFF_FAULT_PROGRAM is the name of the program that it is for; others pass the variables on to their
 * children.
 *
 * NPUDIFF_FAULT_COUNT: to this file goes a line at the process's end: how many calls there were, and whether
 * one failed.
 *
 * NPUDIFF_FAULT_SPOOL: when a call fails, or the process is killed, spool.nds of the working folder is copied
 * here.
 *
 * Only the process itself is meant: its children without exec do not fail, nor do those with exec that do not
 * have the name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN, WRITE, FSYNC, CLOSE, RENAME, MMAP, MALLOC, FORK, KILL, N_KINDS };
static const char *const names[] = {"open", "write",  "fsync", "close", "rename",
                                    "mmap", "malloc", "fork",  "kill"};
/* What the system says of a disk that is full or broken, and of limits. */
static const int errors[] = {EMFILE, ENOSPC, EIO, EIO, EIO, ENOMEM, ENOMEM, EAGAIN};

static enum kind wanted;
static long fails_at;
static bool fails_on;
static atomic_long n_made;
static atomic_bool has_failed;
static pid_t process; /* 0: nothing fails here */
static char count_path[4096], spool_path[4096];

#define REAL(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

/* By calls that are not watched. */
static void copy_spool(void)
{
    char block[65536];
    long in = spool_path[0] != '\0' ? syscall(SYS_openat, AT_FDCWD, "spool.nds", O_RDONLY, 0) : -1;
    long out = in >= 0 ? syscall(SYS_openat, AT_FDCWD, spool_path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    for (long n = 1; out >= 0 && n > 0;) {
        n = syscall(SYS_read, in, block, sizeof block);
        if (n > 0 && syscall(SYS_write, out, block, n) != n)
            n = -1;
    }
    if (in >= 0)
        syscall(SYS_close, in);
    if (out >= 0)
        syscall(SYS_close, out);
}

static bool must_fail(enum kind kind)
{
    bool is_meant = wanted == kind || (wanted == KILL && kind != MALLOC);
    if (process == 0 || !is_meant || syscall(SYS_getpid) != process)
        return false;
    long n = atomic_fetch_add(&n_made, 1) + 1;
    if (fails_at == 0 || n < fails_at || (n > fails_at && !fails_on))
        return false;
    if (!atomic_exchange(&has_failed, true))
        copy_spool();
    if (wanted == KILL)
        kill(process, SIGKILL);
    errno = errors[kind];
    return true;
}

/* ---- the calls ---- */

#define FAILS(kind, result)                                                                                    \
    do {                                                                                                       \
        if (must_fail(kind))                                                                                   \
            return (result);                                                                                   \
    } while (0)

#define OPENER(name)                                                                                           \
    int name(const char *path, int flags, ...)                                                                 \
    {                                                                                                          \
        va_list rest;                                                                                          \
        va_start(rest, flags);                                                                                 \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;                                      \
        va_end(rest);                                                                                          \
        FAILS(OPEN, -1);                                                                                       \
        return REAL(name)(path, flags, mode);                                                                  \
    }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name)                                                                                        \
    int name(int folder, const char *path, int flags, ...)                                                     \
    {                                                                                                          \
        va_list rest;                                                                                          \
        va_start(rest, flags);                                                                                 \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;                                      \
        va_end(rest);                                                                                          \
        FAILS(OPEN, -1);                                                                                       \
        return REAL(name)(folder, path, flags, mode);                                                          \
    }
OPENER_AT(openat)
OPENER_AT(openat64)

#define WRAP(kind, result, failure, name, parameters, arguments)                                               \
    result name parameters                                                                                     \
    {                                                                                                          \
        FAILS(kind, failure);                                                                                  \
        return REAL(name) arguments;                                                                           \
    }
WRAP(OPEN, FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode))
WRAP(OPEN, FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode))
WRAP(OPEN, int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(OPEN, char *, NULL, mkdtemp, (char *template), (template))
WRAP(WRITE, ssize_t, -1, write, (int fd, const void *data, size_t n), (fd, data, n))
WRAP(WRITE, ssize_t, -1, writev, (int fd, const struct iovec *parts, int n), (fd, parts, n))
WRAP(WRITE, ssize_t, -1, pwrite, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at))
WRAP(WRITE, ssize_t, -1, pwrite64, (int fd, const void *data, size_t n, off64_t at), (fd, data, n, at))
WRAP(WRITE, int, -1, ftruncate, (int fd, off_t size), (fd, size))
WRAP(WRITE, int, -1, ftruncate64, (int fd, off64_t size), (fd, size))
WRAP(WRITE, int, ENOSPC, posix_fallocate, (int fd, off_t at, off_t n), (fd, at, n))
WRAP(WRITE, int, ENOSPC, posix_fallocate64, (int fd, off64_t at, off64_t n), (fd, at, n))
WRAP(WRITE, int, -1, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
WRAP(WRITE, int, -1, fallocate64, (int fd, int mode, off64_t at, off64_t n), (fd, mode, at, n))
WRAP(FSYNC, int, -1, fsync, (int fd), (fd))
WRAP(FSYNC, int, -1, fdatasync, (int fd), (fd))
WRAP(RENAME, int, -1, rename, (const char *from, const char *to), (from, to))
WRAP(RENAME, int, -1, link, (const char *from, const char *to), (from, to))
WRAP(RENAME, int, -1, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
WRAP(RENAME, int, -1, renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
     (a, from, b, to, flags))
WRAP(RENAME, int, -1, linkat, (int a, const char *from, int b, const char *to, int flags),
     (a, from, b, to, flags))
WRAP(MMAP, void *, MAP_FAILED, mmap, (void *at, size_t n, int access, int flags, int fd, off_t offset),
     (at, n, access, flags, fd, offset))
WRAP(MMAP, void *, MAP_FAILED, mmap64, (void *at, size_t n, int access, int flags, int fd, off64_t offset),
     (at, n, access, flags, fd, offset))
WRAP(FORK, pid_t, -1, fork, (void), ())
WRAP(FORK, int, EAGAIN, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context),
     (thread, attributes, run, context))

/* What fails in glibc is remembered in the stream, for ferror. */
static void note(FILE *file)
{
    enum { ERR_SEEN = 0x20 };
    if (file != NULL)
        file->_flags |= ERR_SEEN;
}

size_t fwrite(const void *data, size_t size, size_t n, FILE *file)
{
    if (!must_fail(WRITE))
        return REAL(fwrite)(data, size, n, file);
    note(file);
    return 0;
}

int fflush(FILE *file)
{
    if (!must_fail(WRITE))
        return REAL(fflush)(file);
    note(file);
    return EOF;
}

/* Closed all the same, as the system does. */
int close(int fd)
{
    int rc = (int)syscall(SYS_close, fd);
    FAILS(CLOSE, -1);
    return rc;
}

int fclose(FILE *file)
{
    int rc = REAL(fclose)(file);
    FAILS(CLOSE, EOF);
    return rc;
}

/* ---- memory ---- */

/* libhdf5 1.10 itself dies where its own allocations fail: those are left out. */
static uintptr_t hdf5_first, hdf5_end;

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

static bool is_out(uintptr_t caller)
{
    return (caller < hdf5_first || caller >= hdf5_end) && must_fail(MALLOC);
}

#define FAILS_MEMORY(result)                                                                                   \
    do {                                                                                                       \
        if (is_out((uintptr_t)__builtin_return_address(0)))                                                    \
            return (result);                                                                                   \
    } while (0)

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t size)
{
    FAILS_MEMORY(NULL);
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    FAILS_MEMORY(NULL);
    return __libc_calloc(n, size);
}

void *realloc(void *memory, size_t size)
{
    FAILS_MEMORY(NULL);
    return __libc_realloc(memory, size);
}

char *strndup(const char *text, size_t n)
{
    size_t length = strnlen(text, n);
    FAILS_MEMORY(NULL);
    char *copy = __libc_malloc(length + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *strdup(const char *text)
{
    size_t length = strlen(text);
    FAILS_MEMORY(NULL);
    char *copy = __libc_malloc(length + 1);
    return copy != NULL ? memcpy(copy, text, length + 1) : NULL;
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    FAILS_MEMORY(ENOMEM);
    *out = __libc_memalign(alignment, size);
    return *out != NULL ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    FAILS_MEMORY(NULL);
    return __libc_memalign(alignment, size);
}

/* ---- when ---- */

static bool is_meant(void)
{
    const char *program = getenv("NPUDIFF_FAULT_PROGRAM");
    return program == NULL || strcmp(program, program_invocation_short_name) == 0;
}

__attribute__((constructor)) static void start(void)
{
    const char *fault = getenv("NPUDIFF_FAULT"), *count = getenv("NPUDIFF_FAULT_COUNT"),
               *spool = getenv("NPUDIFF_FAULT_SPOOL");
    const char *colon = fault != NULL ? strchr(fault, ':') : NULL;
    if (colon == NULL || !is_meant())
        return;
    for (int k = 0; k < N_KINDS; k++)
        if (strncmp(names[k], fault, (size_t)(colon - fault)) == 0)
            wanted = (enum kind)k;
    fails_at = atol(colon + 1);
    fails_on = strchr(colon, '+') != NULL;
    snprintf(count_path, sizeof count_path, "%s", count != NULL ? count : "");
    snprintf(spool_path, sizeof spool_path, "%s", spool != NULL ? spool : "");
    unsetenv("LD_PRELOAD");
    unsetenv("NPUDIFF_FAULT");
    dl_iterate_phdr(find_hdf5, NULL);
    process = getpid();
}

__attribute__((destructor)) static void finish(void)
{
    char text[64];
    if (process == 0 || syscall(SYS_getpid) != process || count_path[0] == '\0')
        return;
    int n = snprintf(text, sizeof text, "%ld %d\n", atomic_load(&n_made), atomic_load(&has_failed));
    long fd = syscall(SYS_openat, AT_FDCWD, count_path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0 || syscall(SYS_write, fd, text, n) != n)
        _exit(99);
    syscall(SYS_close, fd);
}
