/* `npudiff verify CERT.json ALIGNED.onnx`. docs/reference/certificate.md. */
#include "cli/commands/verify_certificate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/stopped.h"
#include "cli/terminal/terminal.h"
#include "npudiff/report/report.h"

struct work {
    struct nd_certificate *certificate;
    struct nd_model *aligned, *model, *float_model;
    struct cli_probes probes;
    struct cli_devices devices;
    struct nd_certificate_check *check;
};

bool cli_is_json(const char *path)
{
    char start[256]; /* chosen: nobody writes as many blanks before an object */
    size_t n = cli_peek(path, start, sizeof start - 1);
    start[n] = '\0';
    return start[strspn(start, " \t\r\n")] == '{';
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
    enum nd_status status = nd_certificate_read(given->path, &work->certificate, err);
    if (status == ND_OK)
        status = open_model(work, given->aligned, &work->aligned, err);
    if (status == ND_OK)
        status = open_model(work, given->model, &work->model, err);
    if (status == ND_OK)
        status = open_model(work, given->float_model, &work->float_model, err);
    if (status == ND_OK)
        status = cli_devices_parse(&given->devices, &work->devices, err);
    if (status == ND_OK)
        status = cli_probes_make(work->aligned, &given->probes, given->allow_nonfinite, &work->probes, err);
    return status;
}

static void close_all(struct work *work)
{
    nd_certificate_check_destroy(&work->check);
    cli_probes_deinit(&work->probes);
    cli_devices_deinit(&work->devices);
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
    if (cli_is_silent(&given->answer))
        return exit_code;
    enum nd_status status = given->answer.json
                                ? nd_report_certificate_json(check, &text, &err)
                                : nd_report_certificate_brief(check, cli_text_width(0), &text, &err);
    return cli_worse(exit_code, cli_print_answer(status, text, &given->answer, &err));
}

static int check(const struct cli_certificate *given, struct work *work)
{
    struct nd_error err = {0};
    struct nd_certificate_options options;
    nd_certificate_options_init(&options);
    struct cli_progress *progress = cli_progress_create(1, 1, given->answer.quiet);
    options.model = work->model;
    options.float_model = work->float_model;
    options.probes = (const struct nd_probe *const *)work->probes.items;
    options.n_probes = work->probes.n;
    options.devices = work->devices.items;
    options.n_devices = work->devices.n;
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
    close_all(&work);
    cli_signals_end_if_came();
    return exit_code;
}
