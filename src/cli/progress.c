#include "cli/progress.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "npudiff/parse.h"

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

/* ---- the line on a terminal ---- */

/* Text that knows how many columns it takes (its characters, near enough). */
struct line {
    char text[2048];
    size_t n;
};

static void put(struct line *line, const char *fmt, ...) ND_PRINTF(2, 3);

static void put(struct line *line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line->text + line->n, sizeof line->text - line->n, fmt, args);
    va_end(args);
    if (n > 0)
        line->n += (size_t)n < sizeof line->text - line->n ? (size_t)n : sizeof line->text - line->n - 1;
}

static bool is_first_byte(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

static size_t count_columns(const struct line *line)
{
    size_t n = 0;
    for (size_t i = 0; i < line->n; i++)
        n += is_first_byte(line->text[i]);
    return n;
}

/* What tells running devices apart: of other machines, each of which runs one device at a time, the end of the
 * serial or host, else the end of the label. At most `most` characters. */
static void put_short_label(struct line *line, const char *label, size_t most)
{
    bool is_elsewhere = strncmp(label, "adb:", 4) == 0 || strncmp(label, "ssh:", 4) == 0;
    const char *begin = is_elsewhere ? label + 4 : label, *end = label + strlen(label);
    if (is_elsewhere)
        end = begin + strcspn(begin, "/?");
    size_t n = 0;
    const char *at = end;
    while (at > begin && n < most)
        n += is_first_byte(*--at);
    put(line, "%.*s ", (int)(end - at), at);
}

enum style { WITH_BARS, WITH_COUNTS, SHORT, IN_SUM, N_STYLES };

static void put_device(struct line *line, const struct device_line *device, enum style style)
{
    enum { CELLS = 12, SHORT_LABEL = 11, SHORT_STAGE = 4 };
    bool is_run = strcmp(device->stage, "run") == 0;
    size_t filled = device->total > 0 ? device->done * CELLS / device->total : 0;
    if (style == SHORT) {
        put_short_label(line, device->device, SHORT_LABEL);
        if (is_run && device->total > 0)
            put(line, "%zu%% ", device->done * 100 / device->total);
        else
            put(line, "%.*s ", (int)SHORT_STAGE, device->stage);
        return;
    }
    put(line, "%s ", device->device);
    if (!is_run) {
        put(line, "%s %.0fs   ", device->stage, device->elapsed_s);
        return;
    }
    if (style == WITH_BARS) {
        put(line, "[");
        for (size_t i = 0; i < CELLS; i++)
            put(line, "%c", i < filled ? '#' : '.');
        put(line, "] ");
    }
    put(line, "%zu/%zu %.0fs   ", device->done, device->total, device->elapsed_s);
}

static void put_sum(struct line *line, const struct cli_progress *progress)
{
    size_t n = 0, done = 0, total = 0;
    double elapsed_s = 0;
    for (size_t i = 0; i < progress->n; i++) {
        const struct device_line *device = &progress->devices[i];
        if (!device->is_running)
            continue;
        n++;
        done += device->done;
        total += device->total;
        elapsed_s = device->elapsed_s > elapsed_s ? device->elapsed_s : elapsed_s;
    }
    put(line, "%zu devices %zu/%zu %.0fs", n, done, total, elapsed_s);
}

/* Columns of the terminal that may be used: in the last one a cursor may wrap. */
static size_t usable_columns(void)
{
    struct winsize size = {0};
    uint64_t columns = 80;
    const char *text = getenv("COLUMNS");
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    else if (text != NULL)
        nd_parse_u64(text, &columns);
    return columns > 1 ? (size_t)columns - 1 : 1;
}

/* The richest form that fits: a line that wrapped could not be erased. */
static void compose(struct line *line, const struct cli_progress *progress, size_t most)
{
    for (int style = WITH_BARS; style < N_STYLES; style++) {
        *line = (struct line){0};
        for (size_t i = 0; style < IN_SUM && i < progress->n; i++)
            if (progress->devices[i].is_running)
                put_device(line, &progress->devices[i], (enum style)style);
        if (style == IN_SUM)
            put_sum(line, progress);
        while (line->n > 0 && line->text[line->n - 1] == ' ')
            line->text[--line->n] = '\0';
        if (count_columns(line) <= most && line->n + 1 < sizeof line->text)
            return;
    }
    while (line->n > 0 && count_columns(line) > most)
        line->text[--line->n] = '\0';
}

static void erase(struct cli_progress *progress)
{
    if (progress->has_line)
        fputs("\r\033[K", stderr);
    progress->has_line = false;
}

static void redraw(struct cli_progress *progress)
{
    struct line line;
    erase(progress);
    compose(&line, progress, usable_columns());
    fputs(line.text, stderr);
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
