/* The wall time of a command: runs it up to ROUNDS times with its standard output in the file OUTPUT and prints
 * the seconds of the fastest run. No further run is started once LIMIT seconds are spent. An exit code over 1
 * is a failure: 1 is how the tools that compare say that things differ. With -c it is the processor time of all
 * threads, user and system, which other processes on the machine disturb less.
 *
 * usage: fastest [-c] ROUNDS LIMIT OUTPUT COMMAND [ARGUMENT...] */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file.h"
#include "npudiff/core/parse.h"

extern char **environ;

static uint64_t ns_of(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_usec * 1000;
}

/* False when the command cannot be run or fails. */
static bool run_once(const char *output, char **command, bool by_processor, uint64_t *elapsed_ns)
{
    struct rusage used = {0};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int state = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    uint64_t start = nd_clock_ns();
    int rc = posix_spawnp(&child, command[0], &actions, NULL, command, environ);
    if (rc == 0)
        while (wait4(child, &state, 0, &used) < 0 && errno == EINTR)
            continue;
    *elapsed_ns = by_processor ? ns_of(&used.ru_utime) + ns_of(&used.ru_stime) : nd_clock_ns() - start;
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        fprintf(stderr, "fastest: cannot run '%s': %s\n", command[0], strerror(rc));
    return rc == 0 && WIFEXITED(state) && WEXITSTATUS(state) <= 1;
}

int main(int argc, char **argv)
{
    uint64_t n_rounds, limit, spent_ns = 0, fastest_ns = UINT64_MAX;
    bool by_processor = argc > 1 && strcmp(argv[1], "-c") == 0;
    argc -= by_processor;
    argv += by_processor;
    if (argc < 5 || !nd_parse_u64(argv[1], &n_rounds) || n_rounds == 0 || !nd_parse_u64(argv[2], &limit)) {
        fprintf(stderr, "usage: fastest [-c] ROUNDS LIMIT OUTPUT COMMAND [ARGUMENT...]\n");
        return 2;
    }
    for (uint64_t i = 0; i < n_rounds && (i == 0 || spent_ns / 1000000000 < limit); i++) {
        uint64_t elapsed_ns;
        if (!run_once(argv[3], argv + 4, by_processor, &elapsed_ns))
            return 2;
        fastest_ns = elapsed_ns < fastest_ns ? elapsed_ns : fastest_ns;
        spent_ns += elapsed_ns;
    }
    printf("%.6f\n", (double)fastest_ns / 1e9);
    return 0;
}
