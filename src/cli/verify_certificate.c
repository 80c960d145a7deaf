#include "cli/verify_certificate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/rows.h"
#include "cli/signals.h"
#include "cli/stopped.h"
#include "cli/terminal.h"
#include "npudiff/report.h"

struct work {
    struct nd_certificate *certificate;
    struct nd_model *aligned, *model, *float_model;
    struct nd_probe **probes;
    struct nd_device *devices;
    const struct nd_device **pointers;
    size_t n_devices;
    struct nd_certificate_check *check;
};

bool cli_is_json(const char *path)
{
    FILE *file = fopen(path, "rb");
    int c = file != NULL ? getc(file) : EOF;
    while (c == ' ' || c == '\t' || c == '\n' || c == '\r')
        c = getc(file);
    if (file != NULL)
        fclose(file);
    return c == '{';
}

static void show_progress(void *context, const char *stage, size_t n_done, size_t n_total)
{
    cli_progress_show(
        context, 0,
        &(struct cli_progress_state){
            .label = "verify", .stage = stage, .unit = "", .done = n_done, .total = n_total > 1 ? n_total : 0});
}

static enum nd_status open_model(const struct work *work, const char *path, struct nd_model **out,
                                 struct nd_error *err)
{
    enum nd_status status = path != NULL ? nd_model_load(path, out, err) : ND_OK;
    return status == ND_OK && *out != NULL ? nd_certificate_set_dims(work->certificate, *out, err) : status;
}

static enum nd_status open_all(const struct cli_certificate *given, struct work *work, struct nd_error *err)
{
    work->probes = calloc(given->probes.n + 1, sizeof *work->probes);
    work->devices = calloc(given->devices.n + 1, sizeof *work->devices);
    work->pointers = calloc(given->devices.n + 1, sizeof *work->pointers);
    if (work->probes == NULL || work->devices == NULL || work->pointers == NULL)
        return cli_memory_error(err);
    enum nd_status status = nd_certificate_read(given->path, &work->certificate, err);
    if (status == ND_OK)
        status = open_model(work, given->aligned, &work->aligned, err);
    if (status == ND_OK)
        status = open_model(work, given->model, &work->model, err);
    if (status == ND_OK)
        status = open_model(work, given->float_model, &work->float_model, err);
    for (size_t d = 0; d < given->devices.n && status == ND_OK; d++) {
        status = nd_device_parse(given->devices.items[d], &work->devices[d], err);
        work->pointers[d] = &work->devices[d];
        work->n_devices = d + 1;
    }
    if (status == ND_OK && given->probes.n > 0)
        status = (given->allow_nonfinite ? nd_probes_for_model_any : nd_probes_for_model)(
            work->aligned, given->probes.items, given->probes.n, work->probes, err);
    return status;
}

static void close_all(const struct cli_certificate *given, struct work *work)
{
    nd_certificate_check_destroy(&work->check);
    for (size_t i = 0; work->probes != NULL && i < given->probes.n; i++)
        nd_probe_destroy(&work->probes[i]);
    for (size_t d = 0; d < work->n_devices; d++)
        nd_device_deinit(&work->devices[d]);
    free(work->probes);
    free(work->devices);
    free(work->pointers);
    nd_model_destroy(&work->float_model);
    nd_model_destroy(&work->model);
    nd_model_destroy(&work->aligned);
    nd_certificate_destroy(&work->certificate);
}

static int report(const struct cli_certificate *given, const struct nd_certificate_check *check)
{
    static const int exit_codes[] = {ND_EXIT_SAME, ND_EXIT_INCONCLUSIVE, ND_EXIT_DIFFERS, ND_EXIT_DIFFERS};
    struct nd_error err = {0};
    char *text = NULL;
    int exit_code = exit_codes[check->end];
    if (given->quiet && !given->json)
        return exit_code;
    enum nd_status status = given->json ? nd_report_certificate_json(check, &text, &err)
                                        : nd_report_certificate_brief(check, cli_text_width(0), &text, &err);
    return cli_worse(exit_code,
                     cli_print_answer(status, text, &(struct cli_style){.is_json = given->json}, &err));
}

static int check(const struct cli_certificate *given, struct work *work)
{
    struct nd_error err = {0};
    struct nd_certificate_options options;
    nd_certificate_options_init(&options);
    struct cli_progress *progress = cli_progress_create(1, 1, given->quiet);
    options.model = work->model;
    options.float_model = work->float_model;
    options.probes = (const struct nd_probe *const *)work->probes;
    options.n_probes = given->probes.n;
    options.devices = work->pointers;
    options.n_devices = work->n_devices;
    options.agent = given->agent;
    options.n_threads = given->n_threads;
    options.progress = show_progress;
    options.progress_context = progress;
    options.is_cancelled = cli_signals_came;
    cli_signals_catch();
    enum nd_status status =
        nd_certificate_verify(work->certificate, work->aligned, &options, &work->check, &err);
    cli_progress_destroy(progress);
    if (cli_signals_came(NULL)) {
        cli_stopped_tell("nothing was changed", NULL);
        return ND_EXIT_TROUBLE;
    }
    return status == ND_OK ? report(given, work->check) : cli_report_error(&err);
}

int cli_verify_certificate(const struct cli_certificate *given)
{
    struct nd_error err = {0};
    struct work work = {0};
    enum nd_status status = open_all(given, &work, &err);
    int exit_code = status == ND_OK ? check(given, &work) : cli_report_error(&err);
    close_all(given, &work);
    cli_signals_end_if_came();
    return exit_code;
}
