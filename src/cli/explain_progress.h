/* How far `npudiff explain` is: a line that is redrawn on a terminal, else a line every 10 seconds; on stderr.
 */
#ifndef ND_CLI_EXPLAIN_PROGRESS_H
#define ND_CLI_EXPLAIN_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

struct explain_progress {
    bool is_terminal, is_drawn;
    struct timespec last;
};

void explain_progress_begin(struct explain_progress *progress);
/* nd_explain_options.progress; the context is the progress. */
void explain_progress_update(void *context, size_t n_done, size_t n_samples);
/* Erases the line. */
void explain_progress_end(struct explain_progress *progress);

#endif
