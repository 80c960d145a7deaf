/* One line of a progress: as much as fits. */
#ifndef ND_CLI_PROGRESS_LINE_H
#define ND_CLI_PROGRESS_LINE_H

#include <stddef.h>

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

#endif
