/* For tests only: an agent that stops at a point that the test names (stop.h). */
#include "devices/agent/stop.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char variable[] = "NPUDIFF_TEST_AGENT_STOP";

const char *nd_stop_path(void)
{
    return getenv(variable);
}

static bool is_point(const char *point)
{
    const char *path = nd_stop_path();
    char line[128];
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return strcmp(line, point) == 0;
}

void nd_stop(void)
{
    unlink(nd_stop_path()); /* once for each request: an agent that continues the run does not stop again */
    raise(SIGSTOP);
}

void nd_stop_at_stage(const char *stage)
{
    char point[64];
    snprintf(point, sizeof point, "stage %s", stage);
    if (is_point(point))
        nd_stop();
}

bool nd_stop_is_at_sample(size_t probe, size_t n_samples)
{
    char point[64];
    if (probe != 0 || nd_stop_path() == NULL)
        return false;
    snprintf(point, sizeof point, "acknowledged %zu", n_samples);
    return is_point(point);
}
