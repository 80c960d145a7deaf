/* Showing several running captures: one line that is redrawn on a terminal, and shortened until it fits there,
 * else a line per device and stage. */
#ifndef ND_CLI_PROGRESS_H
#define ND_CLI_PROGRESS_H

#include "npudiff/device.h"

struct cli_progress;

/* For n devices; is_quiet shows nothing. NULL when out of memory (every function accepts it). */
struct cli_progress *cli_progress_create(size_t n_devices, bool is_quiet);

/* Context for nd_capture_options.progress of device `index`; lives as long as the progress. */
void *cli_progress_context(struct cli_progress *progress, size_t index);
void cli_progress_update(void *context, const struct nd_capture_progress *state);

/* Device `index` is done: no longer shown in the line. */
void cli_progress_done(struct cli_progress *progress, size_t index);

/* Erases the line, so that something else can be printed. */
void cli_progress_clear(struct cli_progress *progress);
void cli_progress_destroy(struct cli_progress *progress);

#endif
