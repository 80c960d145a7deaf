#include "cli/explain_progress.h"

#include <stdio.h>
#include <unistd.h>

static double seconds_since(const struct timespec *then)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - then->tv_sec) + 1e-9 * (double)(now.tv_nsec - then->tv_nsec);
}

void explain_progress_begin(struct explain_progress *progress)
{
    *progress = (struct explain_progress){.is_terminal = isatty(STDERR_FILENO) != 0};
    clock_gettime(CLOCK_MONOTONIC, &progress->last);
}

void explain_progress_update(void *context, size_t n_done, size_t n_samples)
{
    struct explain_progress *progress = context;
    if (seconds_since(&progress->last) < (progress->is_terminal ? 0.1 : 10))
        return;
    clock_gettime(CLOCK_MONOTONIC, &progress->last);
    progress->is_drawn = true;
    fprintf(stderr,
            progress->is_terminal ? "\r\033[Kexplain: %zu of %zu samples" : "explain: %zu of %zu samples\n",
            n_done, n_samples);
    fflush(stderr);
}

void explain_progress_end(struct explain_progress *progress)
{
    if (progress->is_terminal && progress->is_drawn)
        fprintf(stderr, "\r\033[K");
}
