/* How far a command is, on stderr: lines that are redrawn on a terminal, else a line now and then. */
#include "cli/terminal/progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/terminal/terminal.h"
#include "npudiff/core/parse.h"
#include "npudiff/core/status.h"

struct line {
    char *text;
    size_t n;
};

static void put(struct line *line, const char *fmt, ...) ND_PRINTF(2, 3);

static void put(struct line *line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line->text + line->n, CLI_PROGRESS_LINE_BYTES - line->n, fmt, args);
    va_end(args);
    size_t room = CLI_PROGRESS_LINE_BYTES - line->n - 1;
    if (n > 0)
        line->n += (size_t)n < room ? (size_t)n : room;
}

static bool is_first_byte(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

/* Characters, which are columns near enough. */
static size_t count_columns(const struct line *line)
{
    size_t n = 0;
    for (size_t i = 0; i < line->n; i++)
        n += is_first_byte(line->text[i]);
    return n;
}

/* What tells running devices apart: of phones and boards, each of which runs one device at a time, the end of
 * the serial or host, else the end of the label. At most `most` characters. */
static void put_label(struct line *line, const char *label, size_t most)
{
    size_t n_all = 0;
    for (const char *c = label; *c != '\0'; c++)
        n_all += is_first_byte(*c);
    bool is_elsewhere = strncmp(label, "adb:", 4) == 0 || strncmp(label, "ssh:", 4) == 0;
    const char *begin = label, *end = label + strlen(label);
    if (n_all > most && is_elsewhere) {
        begin = label + 4;
        end = begin + strcspn(begin, "/?");
    }
    const char *at = end;
    for (size_t n = 0; at > begin && n < most;)
        n += is_first_byte(*--at);
    put(line, "%.*s", (int)(end - at), at);
}

static void put_time(struct line *line, double seconds)
{
    size_t s = (size_t)(seconds + 0.5);
    if (s >= 3600)
        put(line, "%zu:%02zu:%02zu", s / 3600, s / 60 % 60, s % 60);
    else
        put(line, "%zu:%02zu", s / 60, s % 60);
}

struct form {
    size_t max_label;
    size_t cells; /* of the bar; 0: none */
    bool has_stage, has_counts, has_unit, has_rate, has_rest;
};

static void put_counted(struct line *line, const struct cli_progress_track *track, const struct form *form)
{
    const double min_s = 1; /* before that a rate says nothing */
    size_t done = track->done < track->total ? track->done : track->total;
    size_t filled = form->cells * done / track->total;
    if (form->cells > 0)
        put(line, " [");
    for (size_t i = 0; i < form->cells; i++)
        put(line, "%c", i < filled ? '#' : '.');
    if (form->cells > 0)
        put(line, "]");
    if (form->has_counts)
        put(line, " %zu/%zu", done, track->total);
    else
        put(line, " %zu%%", 100 * done / track->total);
    if (form->has_unit && track->unit[0] != '\0')
        put(line, " %s", track->unit);
    if (track->elapsed_s < min_s || track->done <= track->done_before)
        return;
    double rate = (double)(track->done - track->done_before) / track->elapsed_s;
    if (form->has_rate) {
        if (rate >= 10)
            put(line, "  %.0f/s", rate);
        else if (rate >= 0.1)
            put(line, "  %.1f/s", rate);
        else
            put(line, "  %.1f/min", 60 * rate);
    }
    if (!form->has_rest)
        return;
    put(line, form->has_rate ? "  " : " ");
    put_time(line, (double)(track->total - done) / rate);
    put(line, " left");
}

void cli_progress_compose(const struct cli_progress_track *track, size_t columns,
                          char line[CLI_PROGRESS_LINE_BYTES])
{
    static const struct form forms[] = {
        {95, 20, true, true, true, true, true},     {40, 12, true, true, false, true, true},
        {16, 10, true, true, false, false, true},   {12, 6, true, true, false, false, true},
        {11, 0, true, false, false, false, true},   {11, 0, false, false, false, false, true},
        {11, 0, false, false, false, false, false}, {5, 0, false, false, false, false, false},
    };
    struct line out = {.text = line};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        out.n = 0;
        line[0] = '\0';
        put_label(&out, track->label, forms[i].max_label);
        if (forms[i].has_stage || track->total == 0)
            put(&out, " %s", track->stage);
        if (track->total > 0)
            put_counted(&out, track, &forms[i]);
        else
            put(&out, " %.0f s", track->elapsed_s);
        if (count_columns(&out) <= columns)
            return;
    }
    while (out.n > 0 && (count_columns(&out) > columns || !is_first_byte(line[out.n])))
        line[--out.n] = '\0';
}

struct device_line {
    struct cli_progress *progress;
    bool is_running;
    bool is_printed; /* the stage has its line in a log */
    double since_s;  /* when the stage began */
    double printed_s;
    struct cli_progress_track track;
};

struct cli_progress {
    pthread_mutex_t lock;
    bool is_terminal;
    bool is_quiet;
    double begin_s, delay_s;
    double drawn_s;
    size_t n_drawn; /* lines that stand on the terminal */
    size_t n;
    struct device_line *devices;
    /* Shows a stage that tells nothing for a while, too. */
    pthread_t ticker;
    pthread_cond_t ended;
    bool has_ticker, is_ended;
};

static const double redraw_s = 0.1;      /* chosen: no more than ten times a second */
static const double sign_of_life_s = 60; /* chosen: in a log, a long stage says once a minute how far it is */
enum { MAX_LINES = 8 };                  /* chosen: of devices; the rest is one line */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *tick(void *context);

/* Signals are for the other threads. Without a thread a stage is shown when it tells how far it is. */
static void start_ticker(struct cli_progress *progress)
{
    sigset_t all, before;
    pthread_cond_init(&progress->ended, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    progress->has_ticker = pthread_create(&progress->ticker, NULL, tick, progress) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

struct cli_progress *cli_progress_create(size_t n_devices, double delay_s, bool is_quiet)
{
    struct cli_progress *progress = calloc(1, sizeof *progress);
    struct device_line *devices = calloc(n_devices, sizeof *devices);
    if (progress == NULL || devices == NULL) {
        free(progress);
        free(devices);
        return NULL;
    }
    pthread_mutex_init(&progress->lock, NULL);
    /* A terminal that can move its cursor. */
    const char *kind = getenv("TERM");
    progress->is_terminal = isatty(STDERR_FILENO) == 1 && (kind == NULL || strcmp(kind, "dumb") != 0);
    progress->is_quiet = is_quiet;
    progress->begin_s = now_s();
    progress->delay_s = delay_s;
    progress->n = n_devices;
    progress->devices = devices;
    for (size_t i = 0; i < n_devices; i++)
        devices[i].progress = progress;
    if (!is_quiet)
        start_ticker(progress);
    return progress;
}

void cli_progress_count(struct cli_progress *progress, const char *label, const char *stage, const char *unit,
                        size_t done, size_t total)
{
    cli_progress_show(progress, 0, &(struct cli_progress_state){label, stage, unit, done, total});
}

void *cli_progress_context(struct cli_progress *progress, size_t index)
{
    return progress != NULL ? &progress->devices[index] : NULL;
}

/* ---- on a terminal ---- */

/* Columns and lines of the terminal that may be used: in the last column a cursor may wrap. */
static void measure(size_t *columns, size_t *lines)
{
    struct winsize size = {0};
    uint64_t wide = 80;
    const char *text = getenv("COLUMNS");
    bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    if (is_known)
        wide = size.ws_col;
    else if (text != NULL)
        nd_parse_u64(text, &wide);
    size_t high = is_known && size.ws_row > 1 ? size.ws_row - 1 : MAX_LINES;
    *columns = wide > 1 ? (size_t)wide - 1 : 1;
    *lines = high < MAX_LINES ? high : MAX_LINES;
}

static void erase(struct cli_progress *progress)
{
    for (size_t i = 1; i < progress->n_drawn; i++)
        cli_put_escape(stderr, "\033[A");
    if (progress->n_drawn > 0)
        cli_put_escape(stderr, "\r\033[J");
    progress->n_drawn = 0;
}

static void draw_line(struct cli_progress *progress, const struct cli_progress_track *track, size_t columns)
{
    char line[CLI_PROGRESS_LINE_BYTES];
    cli_progress_compose(track, columns, line);
    fprintf(stderr, "%s%s", progress->n_drawn++ > 0 ? "\n" : "", line);
}

/* The devices that have no line of their own. */
static struct cli_progress_track sum_up(const struct cli_progress *progress, size_t first)
{
    struct cli_progress_track sum = {.stage = "run"};
    size_t n = 0;
    for (size_t i = first; i < progress->n; i++) {
        const struct cli_progress_track *track = &progress->devices[i].track;
        if (!progress->devices[i].is_running)
            continue;
        n++;
        sum.done += track->done;
        sum.done_before += track->done_before;
        sum.total += track->total;
        sum.elapsed_s = track->elapsed_s > sum.elapsed_s ? track->elapsed_s : sum.elapsed_s;
    }
    snprintf(sum.label, sizeof sum.label, "%zu more devices", n);
    return sum;
}

static void redraw(struct cli_progress *progress, double now)
{
    size_t columns, lines, n_running = 0;
    measure(&columns, &lines);
    erase(progress);
    for (size_t i = 0; i < progress->n; i++)
        n_running += progress->devices[i].is_running;
    for (size_t i = 0; i < progress->n; i++) {
        struct device_line *device = &progress->devices[i];
        if (!device->is_running)
            continue;
        device->track.elapsed_s = now - device->since_s;
        if (progress->n_drawn + 1 == lines && n_running > lines) {
            struct cli_progress_track sum = sum_up(progress, i);
            draw_line(progress, &sum, columns);
            break;
        }
        draw_line(progress, &device->track, columns);
    }
    progress->drawn_s = now;
    fflush(stderr);
}

/* ---- elsewhere ---- */

static void print_line(struct device_line *device, double now)
{
    const struct cli_progress_track *track = &device->track;
    if (device->is_printed && (track->total == 0 || now - device->printed_s < sign_of_life_s))
        return;
    const char *unit = track->unit[0] != '\0' ? track->unit : "done";
    if (device->is_printed)
        fprintf(stderr, "%s: %s, %zu of %zu %s, %.0f s\n", track->label, track->stage, track->done,
                track->total, unit, now - device->since_s);
    else if (track->total > 0)
        fprintf(stderr, "%s: %s, %zu %s\n", track->label, track->stage, track->total, unit);
    else
        fprintf(stderr, "%s: %s\n", track->label, track->stage);
    device->is_printed = true;
    device->printed_s = now;
}

/* ---- both ---- */

static void *tick(void *context)
{
    enum { EVERY_S = 1 };
    struct cli_progress *progress = context;
    struct timespec next;
    clock_gettime(CLOCK_REALTIME, &next);
    pthread_mutex_lock(&progress->lock);
    while (!progress->is_ended) {
        next.tv_sec += EVERY_S;
        while (!progress->is_ended && pthread_cond_timedwait(&progress->ended, &progress->lock, &next) == 0)
            ;
        double now = now_s();
        if (progress->is_ended || now - progress->begin_s < progress->delay_s)
            continue;
        if (progress->is_terminal && now - progress->drawn_s >= redraw_s)
            redraw(progress, now);
        for (size_t i = 0; i < progress->n && !progress->is_terminal; i++)
            if (progress->devices[i].is_running && !progress->devices[i].is_printed)
                print_line(&progress->devices[i], now);
    }
    pthread_mutex_unlock(&progress->lock);
    return NULL;
}

void cli_progress_show(struct cli_progress *progress, size_t index, const struct cli_progress_state *state)
{
    if (progress == NULL || progress->is_quiet)
        return;
    struct device_line *device = &progress->devices[index];
    struct cli_progress_track *track = &device->track;
    double now = now_s();
    pthread_mutex_lock(&progress->lock);
    bool is_new_stage = !device->is_running || strcmp(track->stage, state->stage) != 0;
    if (is_new_stage) {
        device->is_running = true;
        device->is_printed = false;
        device->since_s = now;
        track->done_before = state->done;
    }
    snprintf(track->label, sizeof track->label, "%s", state->label);
    snprintf(track->stage, sizeof track->stage, "%s", state->stage);
    snprintf(track->unit, sizeof track->unit, "%s", state->unit != NULL ? state->unit : "");
    track->done = state->done;
    track->total = state->total;
    track->elapsed_s = now - device->since_s;
    if (now - progress->begin_s >= progress->delay_s) {
        if (!progress->is_terminal)
            print_line(device, now);
        else if (is_new_stage || now - progress->drawn_s >= redraw_s)
            redraw(progress, now);
    }
    pthread_mutex_unlock(&progress->lock);
}

void cli_progress_update(void *context, const struct nd_capture_progress *state)
{
    const struct device_line *device = context;
    if (device == NULL)
        return;
    bool is_run = strcmp(state->stage, "run") == 0;
    cli_progress_show(device->progress, (size_t)(device - device->progress->devices),
                      &(struct cli_progress_state){.label = state->device,
                                                   .stage = state->stage,
                                                   .unit = "samples",
                                                   .done = is_run ? state->samples_done : 0,
                                                   .total = is_run ? state->samples_total : 0});
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
    pthread_mutex_lock(&progress->lock);
    progress->is_ended = true;
    if (progress->has_ticker)
        pthread_cond_signal(&progress->ended);
    pthread_mutex_unlock(&progress->lock);
    if (progress->has_ticker)
        pthread_join(progress->ticker, NULL);
    cli_progress_clear(progress);
    pthread_mutex_destroy(&progress->lock);
    free(progress->devices);
    free(progress);
}
