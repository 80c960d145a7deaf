#include "cli/progress.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct device_line {
    struct cli_progress *progress;
    bool is_running;
    char device[64];
    char stage[16];
    size_t done;
    size_t total;
    double elapsed_s;
    double printed_s; /* when a line was last printed for it (not on a terminal) */
};

struct cli_progress {
    pthread_mutex_t lock;
    bool is_terminal;
    bool is_quiet;
    bool has_line;
    size_t n;
    struct device_line *devices;
};

static const double line_interval_s = 10; /* between lines in a log file */

struct cli_progress *cli_progress_create(size_t n_devices, bool is_quiet)
{
    struct cli_progress *progress = calloc(1, sizeof *progress);
    struct device_line *devices = calloc(n_devices, sizeof *devices);
    if (progress == NULL || devices == NULL) {
        free(progress);
        free(devices);
        return NULL;
    }
    pthread_mutex_init(&progress->lock, NULL);
    progress->is_terminal = isatty(STDERR_FILENO) == 1;
    progress->is_quiet = is_quiet;
    progress->n = n_devices;
    progress->devices = devices;
    for (size_t i = 0; i < n_devices; i++)
        devices[i].progress = progress;
    return progress;
}

void *cli_progress_context(struct cli_progress *progress, size_t index)
{
    return progress != NULL ? &progress->devices[index] : NULL;
}

static void draw_bar(const struct device_line *device)
{
    enum { CELLS = 12 };
    size_t filled = device->total > 0 ? device->done * CELLS / device->total : 0;
    fprintf(stderr, "%s ", device->device);
    if (strcmp(device->stage, "run") != 0) {
        fprintf(stderr, "%s %.0fs   ", device->stage, device->elapsed_s);
        return;
    }
    fputc('[', stderr);
    for (size_t i = 0; i < CELLS; i++)
        fputc(i < filled ? '#' : '.', stderr);
    fprintf(stderr, "] %zu/%zu %.0fs   ", device->done, device->total, device->elapsed_s);
}

static void erase(struct cli_progress *progress)
{
    if (progress->has_line)
        fputs("\r\033[K", stderr);
    progress->has_line = false;
}

static void redraw(struct cli_progress *progress)
{
    erase(progress);
    for (size_t i = 0; i < progress->n; i++)
        if (progress->devices[i].is_running)
            draw_bar(&progress->devices[i]);
    progress->has_line = true;
    fflush(stderr);
}

/* In a log: when the stage changes, and every now and then. */
static void print_line(struct device_line *device, bool is_new_stage)
{
    if (!is_new_stage && device->elapsed_s - device->printed_s < line_interval_s)
        return;
    device->printed_s = device->elapsed_s;
    if (strcmp(device->stage, "run") == 0)
        fprintf(stderr, "%s: run, %zu of %zu samples, %.1f s\n", device->device, device->done, device->total,
                device->elapsed_s);
    else
        fprintf(stderr, "%s: %s\n", device->device, device->stage);
}

void cli_progress_update(void *context, const struct nd_capture_progress *state)
{
    struct device_line *device = context;
    if (device == NULL || device->progress->is_quiet)
        return;
    struct cli_progress *progress = device->progress;
    pthread_mutex_lock(&progress->lock);
    bool is_new_stage = strcmp(device->stage, state->stage) != 0;
    device->is_running = true;
    snprintf(device->device, sizeof device->device, "%s", state->device);
    snprintf(device->stage, sizeof device->stage, "%s", state->stage);
    device->done = state->samples_done;
    device->total = state->samples_total;
    device->elapsed_s = state->elapsed_s;
    if (progress->is_terminal)
        redraw(progress);
    else
        print_line(device, is_new_stage);
    pthread_mutex_unlock(&progress->lock);
}

void cli_progress_done(struct cli_progress *progress, size_t index)
{
    if (progress == NULL)
        return;
    pthread_mutex_lock(&progress->lock);
    progress->devices[index].is_running = false;
    pthread_mutex_unlock(&progress->lock);
}

void cli_progress_clear(struct cli_progress *progress)
{
    if (progress == NULL)
        return;
    pthread_mutex_lock(&progress->lock);
    erase(progress);
    pthread_mutex_unlock(&progress->lock);
}

void cli_progress_destroy(struct cli_progress *progress)
{
    if (progress == NULL)
        return;
    cli_progress_clear(progress);
    pthread_mutex_destroy(&progress->lock);
    free(progress->devices);
    free(progress);
}
