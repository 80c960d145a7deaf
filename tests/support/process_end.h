/* Waiting for files and for ends of processes, with room for a machine that is busy with other work. */
#ifndef ND_TESTS_PROCESS_END_H
#define ND_TESTS_PROCESS_END_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_S = 60, LOOKS_PER_S = 50 };

/* Whether there is a file of this name within the time of patience. */
__attribute__((unused)) static bool does_appear(const char *path)
{
    for (int i = 0; i < PATIENCE_S * LOOKS_PER_S && access(path, F_OK) != 0; i++)
        usleep(1000 * 1000 / LOOKS_PER_S);
    return access(path, F_OK) == 0;
}

/* Whether a process of this id still runs. One that only waits for somebody to take note of its end does not.
 */
__attribute__((unused)) static bool does_run(long pid)
{
    char path[64], stat[512] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    size_t n = fread(stat, 1, sizeof stat - 1, file);
    fclose(file);
    const char *name_end = n > 0 ? strrchr(stat, ')') : NULL;
    return name_end != NULL && name_end[1] != '\0' && name_end[2] != 'Z' && name_end[2] != 'X';
}

/* Whether the process whose id is the first line of this file ends within the time of patience. */
__attribute__((unused)) static bool does_end(const char *path_of_id)
{
    long pid = 0;
    FILE *file = fopen(path_of_id, "r");
    bool has_id = file != NULL && fscanf(file, "%ld", &pid) == 1 && pid > 0;
    if (file != NULL)
        fclose(file);
    for (int i = 0; has_id && i < PATIENCE_S * LOOKS_PER_S && does_run(pid); i++)
        usleep(1000 * 1000 / LOOKS_PER_S);
    return has_id && !does_run(pid);
}

#endif
