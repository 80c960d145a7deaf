#include "cli/terminal/progress_line.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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

static void put_rate(struct line *line, double rate)
{
    if (rate >= 10)
        put(line, "  %.0f/s", rate);
    else if (rate >= 0.1)
        put(line, "  %.1f/s", rate);
    else
        put(line, "  %.1f/min", 60 * rate);
}

struct form {
    size_t most_label;
    size_t cells; /* of the bar; 0: none */
    bool has_stage, has_counts, has_unit, has_rate, has_rest;
};

static void put_counted(struct line *line, const struct cli_progress_track *track, const struct form *form)
{
    const double least_s = 1; /* before that a rate says nothing */
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
    if (track->elapsed_s < least_s || track->done <= track->done_before)
        return;
    double rate = (double)(track->done - track->done_before) / track->elapsed_s;
    if (form->has_rate)
        put_rate(line, rate);
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
        put_label(&out, track->label, forms[i].most_label);
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
