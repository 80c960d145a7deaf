#include "cli/fleet.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cli/options.h"
#include "cli/progress.h"
#include "cli/rows.h"
#include "cli/signals.h"

/* ---- running ---- */

/* Shared by the threads; next is guarded by lock. */
struct work {
    struct cli_fleet *fleet;
    struct cli_progress *progress;
    pthread_mutex_t lock;
    size_t next;
};

static void *run_cells(void *context)
{
    struct work *work = context;
    for (;;) {
        pthread_mutex_lock(&work->lock);
        size_t i = work->next++;
        pthread_mutex_unlock(&work->lock);
        const struct cli_fleet *fleet = work->fleet;
        if (i >= fleet->n_cells || cli_signals_came(NULL))
            return NULL;
        struct cli_cell *cell = &fleet->cells[i];
        struct nd_capture_options options = fleet->options;
        options.progress = cli_progress_update;
        options.progress_context = cli_progress_context(work->progress, i);
        options.is_cancelled = cli_signals_came;
        cell->status = nd_capture_run(fleet->model, &cell->device, fleet->probes, fleet->n_probes, cell->path,
                                      &options, &cell->outcome, &cell->error);
        cli_progress_done(work->progress, i);
    }
}

static void run_in_threads(struct work *work)
{
    size_t n = work->fleet->n_threads > 0 ? work->fleet->n_threads : 1;
    pthread_t *threads = calloc(n, sizeof *threads);
    size_t n_started = 0;
    pthread_mutex_init(&work->lock, NULL);
    while (threads != NULL && n_started + 1 < n &&
           pthread_create(&threads[n_started], NULL, run_cells, work) == 0)
        n_started++;
    run_cells(work); /* this thread is one of them */
    for (size_t i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&work->lock);
    free(threads);
}

/* ---- telling ---- */

static json_t *cell_row(const struct cli_cell *cell)
{
    const char *status = cell->status != ND_OK      ? "no capture"
                         : cell->outcome.has_failed ? "failed"
                                                    : "complete";
    const struct nd_error *error = cell->status != ND_OK ? &cell->error : &cell->outcome.failure;
    struct stat info;
    json_int_t size = cell->status == ND_OK && stat(cell->path, &info) == 0 ? (json_int_t)info.st_size : 0;
    char samples[64];
    snprintf(samples, sizeof samples, "%zu/%zu", cell->outcome.samples_done, cell->outcome.samples_total);
    return json_pack("{s:o, s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:s, s:o}", "device",
                     cli_text(cell->device.label), "uri", cli_text(cell->device.uri), "capture",
                     cli_text(cell->status == ND_OK ? cell->path : "-"), "status", status, "samples", samples,
                     "samples_done", (json_int_t)cell->outcome.samples_done, "samples_total",
                     (json_int_t)cell->outcome.samples_total, "bytes", size, "stage", cell->outcome.stage,
                     "reason", cli_text(error->message));
}

static int cell_exit_code(const struct cli_cell *cell)
{
    if (cell->status != ND_OK)
        return (int)nd_status_exit_code(cell->status);
    return cell->outcome.has_failed ? ND_EXIT_DEVICE_FAILED : ND_EXIT_SAME;
}

static int tell(const struct cli_fleet *fleet)
{
    json_t *rows = json_array();
    int exit_code = ND_EXIT_SAME;
    for (size_t i = 0; i < fleet->n_cells; i++) {
        const struct cli_cell *cell = &fleet->cells[i];
        int code = cell_exit_code(cell);
        json_array_append_new(rows, cell_row(cell));
        if (cell->status != ND_OK)
            cli_report_error(&cell->error);
        else if (cell->outcome.has_failed)
            fprintf(stderr, "npudiff: device '%s' failed at stage '%s': %s [ND-%d]\n", cell->device.label,
                    cell->outcome.stage, cell->outcome.failure.message, cell->outcome.failure.id);
        /* Trouble outranks a failed device: something was not even tried. */
        if (exit_code == ND_EXIT_SAME || code == ND_EXIT_TROUBLE)
            exit_code = code;
    }
    static const struct cli_column columns[] = {{"device", "DEVICE"},   {"status", "STATUS"},
                                                {"samples", "SAMPLES"}, {"bytes", "BYTES"},
                                                {"capture", "CAPTURE"}, {NULL, NULL}};
    if (fleet->is_quiet) {
        json_decref(rows);
        return exit_code;
    }
    int printed = cli_print_rows("captures", rows, columns, fleet->is_json);
    return printed != 0 ? printed : exit_code;
}

/* ---- all of it ---- */

int cli_fleet_capture(struct cli_fleet *fleet)
{
    struct work work = {.fleet = fleet, .progress = cli_progress_create(fleet->n_cells, fleet->is_quiet)};
    cli_signals_catch();
    run_in_threads(&work);
    cli_progress_destroy(work.progress);
    return cli_signals_came(NULL) ? ND_EXIT_TROUBLE : tell(fleet);
}

void cli_fleet_deinit(struct cli_fleet *fleet)
{
    for (size_t i = 0; fleet->cells != NULL && i < fleet->n_cells; i++) {
        nd_device_deinit(&fleet->cells[i].device);
        free(fleet->cells[i].path);
    }
    free(fleet->cells);
    *fleet = (struct cli_fleet){0};
}
