/* Takes one datasheet, alone or as a cell of a campaign. */
#include "lab/cli/take.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"

static void show_progress(void *context, const struct nd_fingerprint_progress *progress)
{
    const struct fingerprint_order *order = context;
    cli_progress_show(order->progress, order->index,
                      &(struct cli_progress_state){.label = order->label,
                                                   .stage = progress->section,
                                                   .unit = "sections",
                                                   .done = progress->section_index,
                                                   .total = progress->n_sections});
}

enum nd_status fingerprint_take(const struct fingerprint_values *values, const struct fingerprint_order *order,
                                char **text, struct nd_error *err)
{
    struct nd_fingerprint_options options;
    struct fingerprint_order shown = *order;
    nd_fingerprint_options_init(&options);
    options.folder = order->answers;
    options.agent = values->agent;
    options.time_limit_s = values->time_limit_s;
    options.sections = order->sections.n > 0 ? order->sections.items : NULL;
    options.n_sections = order->sections.n;
    options.part = values->part.part;
    options.n_parts = values->part.n_parts;
    options.progress = show_progress;
    options.progress_context = &shown;
    options.is_cancelled = cli_signals_came;
    return nd_fingerprint_take(order->device, &options, text, err);
}

int fingerprint_judge(const json_t *sheet, const char *device)
{
    const char *section, *failure = NULL;
    json_t *entries, *entry;
    size_t i, n = 0, n_failed = 0;
    json_object_foreach(json_object_get(sheet, "sections"), section, entries) {
        json_array_foreach(entries, i, entry) {
            bool has_failed = strcmp(cli_text_of(entry, "verdict"), "failed") == 0;
            failure = failure == NULL && has_failed ? cli_text_of(entry, "failure") : failure;
            n_failed += has_failed;
            n++;
        }
    }
    if (n_failed == 0 || n_failed < n)
        return ND_EXIT_SAME;
    cli_fail(CLI_E_RUNTIME_CALL, device, "device '%s' failed in all %zu operators that were tried: %s", device,
             n, failure[0] != '\0' ? failure : "its answers do not say why");
    return ND_EXIT_DEVICE_FAILED;
}

char *fingerprint_read(const char *path)
{
    enum { MAX_BYTES = 64 << 20 };
    FILE *file = fopen(path, "r");
    char *text = file != NULL ? calloc(MAX_BYTES + 1, 1) : NULL;
    size_t n = text != NULL ? fread(text, 1, MAX_BYTES, file) : 0;
    bool is_whole = text != NULL && !ferror(file) && n < MAX_BYTES;
    if (!is_whole)
        cli_fail(CLI_E_FILE_READ, path, "cannot read '%s': %s", path,
                 errno != 0 ? strerror(errno) : "too large");
    else if (strlen(text) != n)
        cli_fail(CLI_E_FILE_READ, path, "cannot read '%s': it has a NUL byte, which no text has", path);
    is_whole = is_whole && strlen(text) == n;
    if (file != NULL)
        fclose(file);
    if (is_whole)
        return text;
    free(text);
    return NULL;
}
