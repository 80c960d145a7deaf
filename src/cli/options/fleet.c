/* Captures one model on several devices, with a line of progress for each. */
#include "cli/options/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/terminal/progress.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "npudiff/capture/capture.h"

/* ---- devices ---- */

/* A device elsewhere that is named twice is one: 'adb:*' and a phone by its name. On this machine somebody has
 * spelled one device in two ways ("gen3" and "SM8650"), and would compare it with itself. */
static const struct cli_cell *find_same(const struct cli_fleet *fleet, const struct nd_device *device)
{
    for (size_t i = 0; i < fleet->n_cells; i++) {
        const struct nd_device *other = &fleet->cells[i].device;
        bool is_elsewhere = device->transport != ND_TRANSPORT_NONE;
        if (other->transport == device->transport &&
            strcmp(is_elsewhere ? other->label : other->uri, is_elsewhere ? device->label : device->uri) == 0)
            return &fleet->cells[i];
    }
    return NULL;
}

static enum nd_status add_cell(struct cli_fleet *fleet, const char *uri, struct nd_error *err)
{
    struct nd_device device;
    enum nd_status status =
        fleet->trusts_options ? nd_device_parse_trusted(uri, &device, err) : nd_device_parse(uri, &device, err);
    if (status != ND_OK)
        return status;
    const struct cli_cell *same = find_same(fleet, &device);
    struct cli_cell *cells = NULL;
    if (same != NULL && device.transport == ND_TRANSPORT_NONE)
        status =
            cli_error(err, ND_ERR_USAGE, CLI_E_OPTION_CONFLICT, uri, "'%s' and '%s' are the same device ('%s')",
                      same->device.label, device.label, device.uri);
    else if (same == NULL && (cells = realloc(fleet->cells, (fleet->n_cells + 1) * sizeof *cells)) == NULL)
        status = cli_memory_error(err);
    if (cells == NULL) {
        nd_device_deinit(&device);
        return status;
    }
    fleet->cells = cells;
    fleet->cells[fleet->n_cells++] = (struct cli_cell){.device = device};
    return ND_OK;
}

enum nd_status cli_fleet_set_devices(struct cli_fleet *fleet, const struct cli_list *uris, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < uris->n; i++) {
        char **expanded = NULL;
        size_t n = 0;
        status = nd_device_expand(uris->items[i], &expanded, &n, err);
        for (size_t k = 0; status == ND_OK && k < n; k++)
            status = add_cell(fleet, expanded[k], err);
        nd_device_uris_free(expanded, n);
    }
    return status;
}

/* ---- running ---- */

struct work {
    struct cli_fleet *fleet;
    struct cli_progress *progress;
};

/* What comes of a cell stands in it: no error of the fleet. */
static enum nd_status run_cell(void *context, size_t i, struct nd_error *err)
{
    (void)err;
    const struct work *work = context;
    const struct cli_fleet *fleet = work->fleet;
    struct cli_cell *cell = &fleet->cells[i];
    if (cell->is_kept || cli_signals_came(NULL))
        return ND_OK;
    struct nd_capture_options options = fleet->options;
    options.replace = options.replace || cell->replace;
    options.progress = cli_progress_update;
    options.progress_context = cli_progress_context(work->progress, i);
    options.is_cancelled = cli_signals_came;
    options.is_resumable = fleet->is_resumable;
    const struct nd_workload workload = {fleet->model, &cell->device, fleet->probes, fleet->n_probes};
    cell->status = nd_capture_run(&workload, cell->path, &options, &cell->outcome, &cell->error);
    cli_progress_done(work->progress, i);
    return ND_OK;
}

static enum nd_status run_cells(struct work *work, struct nd_error *err)
{
    const struct cli_fleet *fleet = work->fleet;
    CLI_FREED const struct nd_device **devices = calloc(fleet->n_cells, sizeof *devices);
    if (devices == NULL)
        return cli_memory_error(err);
    for (size_t i = 0; i < fleet->n_cells; i++)
        devices[i] = &fleet->cells[i].device;
    return nd_devices_run(devices, fleet->n_cells, fleet->n_threads, run_cell, work, err);
}

/* ---- telling ---- */

/* What the capture says of the machine that it was made on, where that is another one. An exit code, as all
 * that read the capture again. */
static int tell_machine(const struct cli_cell *cell, json_t *row)
{
    static const char *const keys[] = {"phone", "board", "serial", "firmware", "machine_soc", "machine_abi"};
    struct nd_error err = {0};
    struct nd_capture *capture = NULL;
    if (cell->device.transport == ND_TRANSPORT_NONE)
        return ND_EXIT_SAME;
    bool is_adb = cell->device.transport == ND_TRANSPORT_ADB;
    cli_row_set(row, "transport", json_string(is_adb ? "adb" : "ssh"));
    cli_row_set(row, "address", cli_text(cell->device.address));
    if (cell->status != ND_OK)
        return ND_EXIT_SAME;
    if (nd_capture_open(cell->path, &capture, &err) != ND_OK)
        return cli_report_error(&err);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *text = nd_capture_string(capture, "device", keys[i]);
        if (text != NULL)
            cli_row_set(row, keys[i], cli_text(text));
    }
    const char *chipset = nd_capture_string(capture, "device", "chipset");
    const char *phone = nd_capture_string(capture, "device", "phone");
    const char *uri = nd_capture_string(capture, "device", "uri");
    if (chipset != NULL)
        cli_row_set(row, "chipset", cli_text(chipset));
    if (uri != NULL)
        cli_row_set(row, "uri", cli_text(uri)); /* with what only the machine knew */
    if (phone == NULL)
        phone = nd_capture_string(capture, "device", "board");
    cli_row_set(row, "machine", cli_text(phone != NULL ? phone : "-"));
    nd_capture_close(&capture);
    return ND_EXIT_SAME;
}

/* Adds the tensors that no session shows, and the outputs that recording changes, as the capture lists them. */
static int tell_tensors(const struct cli_cell *cell, json_t *row)
{
    struct nd_error err = {0};
    struct nd_capture *capture = NULL;
    bool has_list = cell->status == ND_OK && (cell->outcome.n_left_out > 0 || cell->outcome.is_changed ||
                                              cell->device.kind == ND_DEVICE_TWIN);
    if (has_list && nd_capture_open(cell->path, &capture, &err) != ND_OK)
        return cli_report_error(&err);
    cli_row_set(row, "left_out", has_list ? cli_tensor_rows(capture, "left_out", "reason") : json_array());
    cli_row_set(row, "untouched_differs",
                has_list ? cli_tensor_rows(capture, "untouched_differs", "differs") : json_array());
    cli_row_set(row, "not_known", has_list ? cli_tensor_rows(capture, "not_known", "reason") : json_array());
    const char *why = has_list ? nd_capture_string(capture, "runtime", "untouched_unknown") : NULL;
    cli_row_set(row, "untouched_unknown", why != NULL ? cli_text(why) : json_null());
    nd_capture_close(&capture);
    return ND_EXIT_SAME;
}

/* Tensors that are left out, or not known, and the first of them with the reason. */
static void say_tensors(const struct cli_cell *cell, const json_t *row, const char *list, const char *what)
{
    const json_t *rows = json_object_get(row, list), *first = json_array_get(rows, 0);
    if (first != NULL)
        fprintf(stderr, "npudiff: device '%s': %zu tensor%s %s, first '%s': %s\n", cell->device.label,
                json_array_size(rows), json_array_size(rows) == 1 ? " is" : "s are", what,
                cli_text_of(first, "tensor"), cli_text_of(first, "reason"));
}

static void say_changed(const struct cli_cell *cell, const json_t *row)
{
    const json_t *rows = json_object_get(row, "untouched_differs"), *first = json_array_get(rows, 0);
    const char *why = json_string_value(json_object_get(row, "untouched_unknown"));
    if (first != NULL)
        fprintf(stderr,
                "npudiff: device '%s': recording changes %zu output%s of the model: without it, of '%s' %s. "
                "The capture is of the recorded graph, not of the one that ships\n",
                cell->device.label, json_array_size(rows), json_array_size(rows) == 1 ? "" : "s",
                cli_text_of(first, "tensor"), cli_text_of(first, "differs"));
    if (why != NULL)
        fprintf(stderr, "npudiff: device '%s': whether recording changes the outputs is not known: %s\n",
                cell->device.label, why);
}

static json_t *cell_row(const struct cli_cell *cell, int *exit_code)
{
    const char *status = cell->status != ND_OK      ? "no capture"
                         : cell->outcome.is_partial ? "partial"
                         : cell->outcome.has_failed ? "failed"
                                                    : "complete";
    const struct nd_error *error = cell->status != ND_OK ? &cell->error : &cell->outcome.failure;
    struct stat info;
    json_int_t size = cell->status == ND_OK && stat(cell->path, &info) == 0 ? (json_int_t)info.st_size : 0;
    char samples[64];
    snprintf(samples, sizeof samples, "%zu/%zu", cell->outcome.samples_done, cell->outcome.samples_total);
    json_t *row = json_pack("{s:o, s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:s, s:o}", "device",
                            cli_text(cell->device.label), "uri", cli_text(cell->device.uri), "capture",
                            cli_text(cell->status == ND_OK ? cell->path : "-"), "status", status, "samples",
                            samples, "samples_done", (json_int_t)cell->outcome.samples_done, "samples_total",
                            (json_int_t)cell->outcome.samples_total, "bytes", size, "stage",
                            cell->outcome.stage, "reason", cli_text(error->message));
    cli_row_set(row, "sessions", json_integer((json_int_t)cell->outcome.n_sessions));
    *exit_code = cli_worse(*exit_code, tell_tensors(cell, row));
    if (cell->is_kept)
        cli_row_set(row, "kept", json_true());
    *exit_code = cli_worse(*exit_code, tell_machine(cell, row));
    return row;
}

static int cell_exit_code(const struct cli_cell *cell)
{
    if (cell->status != ND_OK)
        return (int)nd_status_exit_code(cell->status);
    if (cell->outcome.is_partial && cell->outcome.failure.status == ND_ERR_IO)
        return ND_EXIT_TROUBLE; /* the disk of this machine is full: no device's failure */
    return cell->outcome.has_failed ? ND_EXIT_DEVICE_FAILED : ND_EXIT_SAME;
}

static int tell(const struct cli_fleet *fleet)
{
    json_t *rows = json_array();
    int exit_code = ND_EXIT_SAME;
    bool is_elsewhere = false;
    for (size_t i = 0; i < fleet->n_cells; i++) {
        const struct cli_cell *cell = &fleet->cells[i];
        cli_row_append(rows, cell_row(cell, &exit_code));
        if (!fleet->is_quiet)
            say_tensors(cell, json_array_get(rows, i), "left_out", "left out");
        if (!fleet->is_quiet)
            say_tensors(cell, json_array_get(rows, i), "not_known", "not known");
        if (!fleet->is_quiet)
            say_changed(cell, json_array_get(rows, i));
        if (!fleet->is_quiet && cell->status == ND_OK && cell->outcome.anew[0] != '\0')
            fprintf(stderr,
                    "npudiff: device '%s' began anew, since the interrupted run cannot be continued: %s\n",
                    cell->device.label, cell->outcome.anew);
        is_elsewhere = is_elsewhere || cell->device.transport != ND_TRANSPORT_NONE;
        if (cell->status != ND_OK)
            cli_report_error(&cell->error);
        else if (cell->outcome.has_failed)
            cli_report_device(cell->device.label, cell->outcome.stage, &cell->outcome.failure);
        exit_code = cli_worse(exit_code, cell_exit_code(cell));
    }
    static const struct nd_report_column here[] = {{"device", "DEVICE"},   {"status", "STATUS"},
                                                   {"samples", "SAMPLES"}, {"bytes", "BYTES"},
                                                   {"capture", "CAPTURE"}, {NULL, NULL}};
    static const struct nd_report_column elsewhere[] = {
        {"device", "DEVICE"},   {"machine", "MACHINE"}, {"chipset", "CHIPSET"}, {"status", "STATUS"},
        {"samples", "SAMPLES"}, {"bytes", "BYTES"},     {"capture", "CAPTURE"}, {NULL, NULL}};
    if (fleet->is_quiet || fleet->has_no_table) {
        json_decref(rows);
        return exit_code;
    }
    int printed =
        cli_print_rows(ND_DOCUMENT_CAPTURES, "captures", rows, is_elsewhere ? elsewhere : here, fleet->is_json);
    return printed != 0 ? printed : exit_code;
}

/* After Ctrl-C: what is there, and how to go on. */
static void tell_stopped(const struct cli_fleet *fleet)
{
    size_t n_complete = 0, n_elsewhere = 0, n_begun = 0;
    char kept[200], begun[64] = "";
    for (size_t i = 0; i < fleet->n_cells; i++) {
        const struct cli_cell *cell = &fleet->cells[i];
        bool has_run = cell->is_kept || (cell->status == ND_OK && cell->outcome.samples_total > 0);
        n_complete += has_run && !cell->outcome.has_failed;
        n_elsewhere += cell->device.transport != ND_TRANSPORT_NONE;
        n_begun += cell->status != ND_OK && cell->outcome.is_partial;
    }
    if (n_begun > 0)
        snprintf(begun, sizeof begun, ", and the samples of %zu more for a day", n_begun);
    snprintf(kept, sizeof kept, "%zu of %zu capture%s complete and kept%s%s", n_complete, fleet->n_cells,
             fleet->n_cells == 1 ? " is" : "s are", begun,
             n_elsewhere > 0 ? ", and results that are still on a phone or board" : "");
    cli_stopped_tell(kept, "--resume");
}

/* ---- all of it ---- */

int cli_fleet_capture(struct cli_fleet *fleet)
{
    /* One whose process was killed when the capture was there, and its folder not gone, is not run again. */
    for (size_t i = 0; i < fleet->n_cells; i++) {
        if (!fleet->cells[i].is_kept)
            continue;
        nd_capture_forget_run(fleet->cells[i].path);
        if (!fleet->is_quiet)
            fprintf(stderr, "npudiff: kept '%s', which is complete\n", fleet->cells[i].path);
    }
    struct work work = {.fleet = fleet, .progress = cli_progress_create(fleet->n_cells, 0, fleet->is_quiet)};
    struct nd_error err = {0};
    cli_signals_catch();
    enum nd_status status = run_cells(&work, &err);
    cli_progress_destroy(work.progress);
    if (status != ND_OK)
        return cli_report_error(&err);
    if (!cli_signals_came(NULL))
        return tell(fleet);
    if (fleet->is_resumable)
        tell_stopped(fleet);
    return ND_EXIT_TROUBLE;
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

/* ---- which captures --resume continues, keeps, or refuses ---- */

/* The input that the capture holds is the one that is asked for, every sample of it. */
static bool has_input(const struct nd_capture *capture, size_t p, const struct nd_probe_input *input)
{
    const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
    size_t i = 0;
    while (i < probe->n_inputs && strcmp(probe->inputs[i].name, input->name) != 0)
        i++;
    if (i == probe->n_inputs || probe->inputs[i].dtype != input->dtype)
        return false;
    for (size_t s = 0; s < probe->n_samples_expected; s++) {
        const char *bytes = (const char *)input->data + s * input->sample_bytes;
        struct nd_digest here = nd_digest_bytes(bytes, input->sample_bytes);
        struct nd_digest there = nd_capture_input_digest(capture, p, i, s);
        if (here.low != there.low || here.high != there.high)
            return false;
    }
    return true;
}

static bool has_probe(const struct nd_capture *capture, const struct nd_probe *probe, size_t n_repeats)
{
    size_t p = nd_capture_find_probe(capture, probe->name);
    if (p == SIZE_MAX)
        return false;
    const struct nd_capture_probe *there = nd_capture_probe(capture, p);
    bool is_so =
        there->n_samples_expected == probe->n_samples && there->n_repeats == (n_repeats > 0 ? n_repeats : 1);
    for (size_t i = 0; is_so && i < probe->n_inputs; i++)
        is_so = has_input(capture, p, &probe->inputs[i]);
    return is_so;
}

static bool is_text(const struct nd_capture *capture, const char *group, const char *key, const char *wanted)
{
    const char *text = nd_capture_string(capture, group, key);
    return text != NULL && strcmp(text, wanted) == 0;
}

/* What differs from what is asked for, in words; NULL when nothing does. The URI of a device on another machine
 * names what only that machine knew: there the label counts. */
static const char *find_difference(const struct cli_fleet *fleet, const struct cli_cell *cell,
                                   const struct nd_capture *capture)
{
    bool is_here = cell->device.transport == ND_TRANSPORT_NONE;
    const char *tensors = fleet->options.tensors != NULL ? fleet->options.tensors : "all";
    if (!is_text(capture, "model", "sha256", nd_model_sha256(fleet->model)))
        return "a different model";
    if (is_here ? !is_text(capture, "device", "uri", cell->device.uri)
                : !is_text(capture, "device", "label", cell->device.label))
        return "a different device";
    if (!is_text(capture, "model", "edges", tensors))
        return "other tensors";
    if (nd_capture_n_probes(capture) != fleet->n_probes)
        return "other probes";
    for (size_t p = 0; p < fleet->n_probes; p++)
        if (!has_probe(capture, fleet->probes[p], fleet->options.n_repeats))
            return "other probes";
    /* Options that change what a capture holds or where it comes from. */
    if (is_text(capture, "runtime", "edges_in", "prefixes") != fleet->options.prefixes)
        return fleet->options.prefixes ? "a run without --prefixes" : "a run with --prefixes";
    if (is_text(capture, "runtime", "store", "digest") != fleet->options.store_digests_only)
        return fleet->options.store_digests_only ? "whole tensors" : "digests alone";
    if (nd_capture_integer(capture, "runtime", "fallback_allowed", 0) != fleet->options.allow_fallback)
        return fleet->options.allow_fallback ? "a run without --allow-fallback" : "a run with --allow-fallback";
    return NULL;
}

static size_t count_samples(const struct nd_capture *capture)
{
    size_t n = 0;
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++)
        n += nd_capture_probe(capture, p)->n_samples;
    return n;
}

enum nd_status cli_resume(struct cli_fleet *fleet, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < fleet->n_cells; i++) {
        struct cli_cell *cell = &fleet->cells[i];
        struct nd_capture *capture = NULL;
        if (access(cell->path, F_OK) != 0)
            continue;
        status = nd_capture_open(cell->path, &capture, err);
        if (status != ND_OK)
            break;
        bool is_complete = nd_capture_state(capture) == ND_CAPTURE_COMPLETE;
        /* What failed before its first sample is nothing to lose. */
        const char *difference =
            is_complete || count_samples(capture) > 0 ? find_difference(fleet, cell, capture) : NULL;
        cell->replace = !is_complete;
        if (difference != NULL) {
            /* An error of the command's own, as the library would give it. */
            status = cli_error(err, ND_ERR_IO, CLI_E_FILE_EXISTS, cell->path,
                               "'%s' exists already and %s, but of %s; --force overwrites it", cell->path,
                               is_complete ? "is complete" : "holds samples", difference);
        } else if (is_complete) {
            cell->is_kept = true;
            for (size_t p = 0; p < nd_capture_n_probes(capture); p++) {
                cell->outcome.samples_done += nd_capture_probe(capture, p)->n_samples;
                cell->outcome.samples_total += nd_capture_probe(capture, p)->n_samples_expected;
            }
        }
        nd_capture_close(&capture);
    }
    return status;
}
