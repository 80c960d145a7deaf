/* How far a command is, on stderr. On a terminal every device, or other work, that runs has a line with a bar,
 * the rate and the remaining time; the lines are redrawn, and never wider than the terminal. Elsewhere there is
 * one line for each stage and device. */
#pragma once

#include <stddef.h>

#include "npudiff/devices/device.h"

/* One line of a progress: as much as fits. */

/* Of one device; elapsed_s and done_before count from the beginning of the stage. */
struct cli_progress_track {
    char label[96];
    char stage[24];
    char unit[16];
    size_t done, total;
    size_t done_before; /* what was done when the stage began */
    double elapsed_s;
};

enum { CLI_PROGRESS_LINE_BYTES = 512 };

/* Writes the richest form that takes at most `columns` columns: bar, counts, rate and remaining time; then
 * without the rate and with a shorter bar; at last the percentage alone. */
void cli_progress_compose(const struct cli_progress_track *track, size_t columns,
                          char line[CLI_PROGRESS_LINE_BYTES]);

struct cli_progress;

/* What one line shows. Texts are copied. */
struct cli_progress_state {
    const char *label; /* of the device, or the command */
    const char *stage;
    const char *unit; /* of done and total: "samples" */
    size_t done;
    size_t total; /* 0: nothing to count, the line shows the time that has passed */
};

/* For n devices. Work that ends within delay_s seconds shows nothing; is_quiet shows nothing at all. NULL when
 * out of memory (every function accepts it). */
struct cli_progress *cli_progress_create(size_t n_devices, double delay_s, bool is_quiet);

/* Device `index` is so far. May be called by several threads. */
void cli_progress_show(struct cli_progress *progress, size_t index, const struct cli_progress_state *state);

/* Work that is no device, alone in its progress. */
void cli_progress_count(struct cli_progress *progress, const char *label, const char *stage, const char *unit,
                        size_t done, size_t total);

/* Context and function for nd_capture_options.progress of device `index`; the context lives as long as the
 * progress. */
void *cli_progress_context(struct cli_progress *progress, size_t index);
void cli_progress_update(void *context, const struct nd_capture_progress *state);

/* Device `index` is done: its line goes. */
void cli_progress_done(struct cli_progress *progress, size_t index);

/* Erases the lines, so that something else can be printed. */
void cli_progress_clear(struct cli_progress *progress);
void cli_progress_destroy(struct cli_progress *progress);
