/* How a program begins and ends: memory, signals, errors, and what stands in standard output. */
#include "cli/terminal/program.h"

#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined __GLIBC__ /* known after a header of the library */
#include <malloc.h>
#endif

#include "cli/terminal/errors.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/core/status.h"

/* ---- the memory of JSON trees is counted, so that a lack of it is an error ---- */

/* Blocks of 64 bytes to 1 MiB, each twice the one before: the report of an error needs a few small ones.
 * Chosen. */
enum { N_BLOCKS = 15, MIN_BYTES = 64 };

/* Blocks of malloc, as who gets one gives it to free. NULL: taken. */
static _Atomic(void *) reserve[N_BLOCKS];
static void (*tell_lost)(void);

static void *allocate(size_t size_bytes)
{
    static const char message[] = "npudiff: out of memory\n";
    void *memory = malloc(size_bytes);
    if (memory != NULL)
        return memory;
    tell_lost();
    for (int i = 0; i < N_BLOCKS; i++)
        if (size_bytes <= (size_t)MIN_BYTES << i && (memory = atomic_exchange(&reserve[i], NULL)) != NULL)
            return memory;
    ssize_t n = write(STDERR_FILENO, message, sizeof message - 1);
    (void)n;
    _exit(2);
}

void cli_reserve_json_memory(void (*lost)(void))
{
    tell_lost = lost;
    for (int i = 0; i < N_BLOCKS; i++)
        if (atomic_load(&reserve[i]) == NULL)
            atomic_store(&reserve[i], malloc((size_t)MIN_BYTES << i));
    json_set_alloc_funcs(allocate, free);
}

/* Known before the options are parsed, as wrong options are errors, too. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

/* Tensors come and go thousands of times in an explanation. glibc gives their pages back to the system each
 * time, and gets them again, filled with zeros. One heap for all threads keeps up to 256 MiB for the next one;
 * tensors of 32 MiB and more still go back at once. Chosen. */
static void keep_freed_memory(void)
{
#if defined __GLIBC__
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_TOP_PAD, 16 << 20);
#endif
}

/* Every capture that is open takes a file, and the usual soft limit is 1024. It is raised up to the hard one,
 * but not beyond what a large campaign needs, because the programs that npudiff starts inherit it, and some of
 * them close every file that there might be. Chosen. */
static void allow_many_files(void)
{
    const rlim_t most = 32768;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= most)
        return;
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int cli_program(int argc, char **argv, int (*run)(int argc, char **argv))
{
    keep_freed_memory();
    allow_many_files();
    cli_guard_output();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error to report, like a full disk */
    signal(SIGCHLD, SIG_DFL); /* who started this may ignore it, and then nobody could wait for adb or ssh */
    cli_reserve_json_memory(cli_errors_lost_memory);
    cli_errors_begin(wants_json(argc, argv));
    cli_stopped_set_command(argc, argv);
    int exit_code = cli_errors_end(run(argc, argv));
    /* A result that could not be written is no result. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_signals_end_if_came(); /* which may be why: terminal.c */
        fprintf(stderr, "npudiff: cannot write to standard output\n");
        return ND_EXIT_TROUBLE;
    }
    return exit_code;
}
