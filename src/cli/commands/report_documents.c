/* The results that a report is made of: from captures, from a campaign, from files of results.
 * docs/guides/report.md. */
#include "cli/commands/report_documents.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/options/workload.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/rows.h"
#include "npudiff/capture/capture.h"
#include "npudiff/capture/captured_model.h"

enum { OUTPUT_EFFECT_SAMPLES = 16 }; /* as `npudiff explain` takes by default */

/* Takes over json; NULL adds nothing. */
static enum nd_status report_documents_add(struct report_documents *documents, const char *name,
                                           const char *model, char *json, struct nd_error *err)
{
    if (json == NULL)
        return ND_OK;
    if (documents->n == CLI_REPORT_DOCUMENTS) {
        free(json);
        return cli_error(err, ND_ERR_USAGE, CLI_E_OPTION_VALUE, name,
                         "too many results for one report: at most %d", CLI_REPORT_DOCUMENTS);
    }
    documents->texts[documents->n] = json;
    documents->items[documents->n++] = (struct nd_report_document){.json = json, .name = name, .model = model};
    return ND_OK;
}

/* A copy of the text that lives as long as the documents; NULL when there is no room or memory for it. */
static const char *report_documents_keep(struct report_documents *documents, const char *text)
{
    if (documents->n_names == CLI_REPORT_DOCUMENTS)
        return NULL;
    char *copy = strdup(text);
    if (copy != NULL)
        documents->names[documents->n_names++] = copy;
    else
        cli_errors_lost_memory();
    return copy;
}

void report_documents_deinit(struct report_documents *documents)
{
    for (size_t i = 0; i < documents->n_names; i++)
        free(documents->names[i]);
    for (size_t i = 0; i < documents->n; i++)
        free(documents->texts[i]);
    documents->n = 0;
}

enum nd_status report_documents_of_comparison(struct report_documents *documents, const char *model,
                                              struct nd_comparison *comparison,
                                              const struct nd_capture *const *captures, struct nd_error *err)
{
    char *json = NULL, *images = NULL;
    CLI_TRY(nd_find_changed_samples(comparison, captures, CLI_REPORT_SAMPLES, err));
    CLI_TRY(nd_report_json(comparison, &json, err));
    CLI_TRY(report_documents_add(documents, "compare", model, json, err));
    CLI_TRY(nd_report_images_json(comparison, captures, &images, err));
    return report_documents_add(documents, "images", model, images, err);
}

static enum nd_status compare(struct report_documents *documents, struct nd_capture *const *opened, size_t n,
                              const struct report_sources *sources, struct nd_error *err)
{
    const struct nd_capture *const *captures = (const struct nd_capture *const *)opened;
    struct nd_compare_options options = nd_compare_options_default();
    CLI_OWNED(nd_comparison_destroy) struct nd_comparison *comparison = NULL;
    options.n_threads = sources->n_threads;
    CLI_TRY(nd_compare_captures(captures, n, &options, &comparison, err));
    CLI_TRY(nd_diagnose_comparison(comparison, captures, err));
    return report_documents_of_comparison(documents, sources->model, comparison, captures, err);
}

/* ---- with the model ---- */

static void show_progress(void *context, size_t n_done, size_t n_samples)
{
    cli_progress_count(context, "report", "explains", "samples", n_done, n_samples);
}

static enum nd_status explain(struct report_documents *documents, const struct nd_model *quantised,
                              const struct nd_model *float_model, struct nd_capture *const *captures, size_t n,
                              const struct report_sources *sources, struct nd_error *err)
{
    CLI_OWNED(nd_explanation_destroy) struct nd_explanation *explanation = NULL;
    struct cli_progress *progress = cli_progress_create(1, 1, sources->quiet);
    char *json = NULL;
    const struct nd_explain_options options = {.struct_size = sizeof options,
                                               .n_samples = sources->n_samples,
                                               .n_output_effect_samples = OUTPUT_EFFECT_SAMPLES,
                                               .n_threads = sources->n_threads,
                                               .progress = show_progress,
                                               .progress_context = progress};
    enum nd_status status = nd_explain(quantised, float_model, (const struct nd_capture *const *)captures, n,
                                       &options, &explanation, err);
    cli_progress_destroy(progress);
    CLI_TRY(status);
    CLI_TRY(nd_report_explanation_json(explanation, NULL, &json, err));
    return report_documents_add(documents, "explain", sources->model, json, err);
}

enum nd_status cli_place(const struct nd_model *model, struct nd_capture *capture, struct nd_placed_device *out,
                         struct nd_error *err)
{
    const char *label = nd_capture_string(capture, "device", "label");
    const char *uri = nd_capture_string(capture, "device", "uri");
    *out = (struct nd_placed_device){.capture = capture,
                                     .label = label != NULL ? label : nd_capture_path(capture),
                                     .uri = uri != NULL ? uri : "",
                                     .has_failed = nd_capture_state(capture) == ND_CAPTURE_FAILED};
    return nd_placement_examine(model, capture, &out->report, err);
}

static enum nd_status add_explanation(struct report_documents *documents, struct nd_capture *const *captures,
                                      size_t n, const struct report_sources *sources, struct nd_error *err)
{
    CLI_OWNED(nd_model_destroy) struct nd_model *quantised = NULL, *float_model = NULL;
    CLI_TRY(sources->quantised != NULL ? nd_model_load(sources->quantised, &quantised, err)
                                       : cli_captured_model(captures, n, NULL, &quantised, err));
    if (sources->float_model != NULL)
        CLI_TRY(nd_model_load(sources->float_model, &float_model, err));
    CLI_TRY(nd_capture_set_dims(captures[0], quantised, err));
    if (float_model != NULL)
        CLI_TRY(nd_capture_set_dims(captures[0], float_model, err));
    CLI_TRY(explain(documents, quantised, float_model, captures, n, sources, err));
    struct nd_placed_device *devices = calloc(n, sizeof *devices);
    char *json = NULL;
    enum nd_status status = devices != NULL ? ND_OK : cli_memory_error(err);
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = cli_place(quantised, captures[i], &devices[i], err);
    if (status == ND_OK)
        status = nd_report_placement_json(quantised, devices, n, &json, err);
    for (size_t i = 0; devices != NULL && i < n; i++)
        nd_placement_destroy(&devices[i].report);
    free(devices);
    return status == ND_OK ? report_documents_add(documents, "placement", sources->model, json, err) : status;
}

/* What is only explained if possible leaves trouble with files and memory as it is. */
static enum nd_status look_into_model(struct report_documents *documents, struct nd_capture *const *captures,
                                      size_t n, const struct report_sources *sources, struct nd_error *err)
{
    struct nd_error problem = {0};
    if (sources->quantised == NULL && !sources->finds_model)
        return ND_OK;
    enum nd_status status = add_explanation(documents, captures, n, sources, &problem);
    if (status == ND_OK ||
        (sources->is_explained_if_possible && status != ND_ERR_MEMORY && status != ND_ERR_IO))
        return ND_OK;
    *err = problem;
    return status;
}

/* ---- latencies ---- */

static enum nd_status add_series(struct nd_latency_series **series, size_t *n_series,
                                 const struct nd_capture *capture, size_t probe,
                                 const struct nd_latency_options *options, struct nd_error *err)
{
    struct nd_latency_series *grown = realloc(*series, (*n_series + 1) * sizeof *grown);
    if (grown == NULL)
        return cli_memory_error(err);
    *series = grown;
    struct nd_latency_series *one = &grown[*n_series];
    *one = (struct nd_latency_series){
        .file = nd_capture_path(capture), .probe = nd_capture_probe(capture, probe)->name, .format = "capture"};
    enum nd_status status = nd_latency_of_capture(capture, probe, options, &one->latency, err);
    if (status != ND_OK)
        return status;
    one->us = nd_capture_probe(capture, probe)->latency_us;
    one->n_us = nd_capture_probe(capture, probe)->n_samples * nd_capture_probe(capture, probe)->n_repeats;
    if (one->latency.join.first_tied != SIZE_MAX)
        one->first_tied = nd_capture_tensor(capture, one->latency.join.first_tied)->name;
    *n_series += 1;
    return ND_OK;
}

static enum nd_status time_runs(struct report_documents *documents, struct nd_capture *const *captures,
                                size_t n, const struct report_sources *sources, struct nd_error *err)
{
    struct nd_latency_options options;
    CLI_FREED struct nd_latency_series *series = NULL;
    size_t n_series = 0;
    char *json = NULL;
    nd_latency_options_init(&options);
    for (size_t i = 0; i < n; i++)
        for (size_t p = 0; p < nd_capture_n_probes(captures[i]); p++)
            CLI_TRY(add_series(&series, &n_series, captures[i], p, &options, err));
    if (n_series > 0)
        CLI_TRY(nd_report_latency_json(series, n_series, &options, &json, err));
    return report_documents_add(documents, "latency", sources->model, json, err);
}

enum nd_status report_documents_of_captures(struct report_documents *documents, const char *const *paths,
                                            size_t n, const struct report_sources *sources,
                                            struct nd_error *err)
{
    struct nd_capture **captures = calloc(n, sizeof(struct nd_capture *));
    enum nd_status status = captures != NULL ? ND_OK : cli_memory_error(err);
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = nd_capture_open(paths[i], &captures[i], err);
    if (status == ND_OK && n > 1)
        status = compare(documents, captures, n, sources, err);
    if (status == ND_OK)
        status = look_into_model(documents, captures, n, sources, err);
    if (status == ND_OK)
        status = time_runs(documents, captures, n, sources, err);
    for (size_t i = 0; captures != NULL && i < n; i++)
        nd_capture_close(&captures[i]);
    free(captures);
    return status;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum { MAX_RESULT_BYTES = 1 << 30 };

static enum nd_status read_result(const char *path, char **text, struct nd_error *err)
{
    struct stat info;
    /* Of a pipe fopen would wait for the writer. */
    FILE *file = stat(path, &info) == 0 && S_ISREG(info.st_mode) ? fopen(path, "re") : NULL;
    if (file == NULL || fstat(fileno(file), &info) != 0 || info.st_size > MAX_RESULT_BYTES) {
        if (file != NULL)
            fclose(file);
        return cli_error(err, ND_ERR_IO, CLI_E_FILE_READ, path, "cannot read '%s' as a result", path);
    }
    size_t size = (size_t)info.st_size;
    char *read = malloc(size + 1);
    size_t n = read != NULL ? fread(read, 1, size, file) : 0;
    fclose(file);
    if (read == NULL)
        return cli_memory_error(err);
    read[n] = '\0';
    if (n == size) {
        *text = read;
        return ND_OK;
    }
    free(read);
    return cli_error(err, ND_ERR_IO, CLI_E_FILE_READ, path, "cannot read '%s' whole", path);
}

/* Adds what a command printed into a file. */
/* Adds what a command printed into a file. */
static enum nd_status report_documents_of_file(struct report_documents *documents, const char *path,
                                               struct nd_error *err)
{
    char *text = NULL;
    CLI_TRY(read_result(path, &text, err));
    return report_documents_add(documents, path, NULL, text, err);
}

enum nd_status report_documents_of_operands(struct report_documents *documents, const char *const *operands,
                                            size_t n, const struct report_sources *sources,
                                            struct nd_error *err)
{
    CLI_FREED const char **captures = calloc(n, sizeof *captures);
    size_t n_captures = 0;
    if (captures == NULL)
        return cli_memory_error(err);
    for (size_t i = 0; i < n; i++) {
        if (sources->takes_campaigns && is_folder(operands[i]))
            CLI_TRY(report_documents_of_campaign(documents, operands[i], sources, err));
        else if (cli_is_hdf5(operands[i]) || cli_ends_with(operands[i], ".h5"))
            captures[n_captures++] = operands[i];
        else
            CLI_TRY(report_documents_of_file(documents, operands[i], err));
    }
    return n_captures > 0 ? report_documents_of_captures(documents, captures, n_captures, sources, err) : ND_OK;
}

/* ---- of a campaign, and files of results ---- */

struct folder_captures {
    const char *folder;
    char **paths; /* [n] */
    size_t n;
};

/* A path in the folder that is there and was not added before. */
static enum nd_status add_capture(struct folder_captures *captures, const char *relative, struct nd_error *err)
{
    char *path = cli_path_in(captures->folder, relative);
    if (path == NULL)
        return cli_memory_error(err);
    bool is_new = relative[0] != '\0' && access(path, R_OK) == 0;
    for (size_t i = 0; i < captures->n; i++)
        is_new = is_new && strcmp(captures->paths[i], path) != 0;
    if (is_new)
        captures->paths[captures->n++] = path;
    else
        free(path);
    return ND_OK;
}

/* The reference first: the device of that label, or the reference of that name. Then every device. */
static enum nd_status gather(const json_t *campaign, const json_t *model, struct folder_captures *captures,
                             struct nd_error *err)
{
    const char *reference = cli_text_of(campaign, "reference");
    const json_t *devices = json_object_get(model, "devices"),
                 *references = json_object_get(model, "references"), *one;
    size_t i;
    captures->paths = calloc(json_array_size(devices) + json_array_size(references) + 2, sizeof(char *));
    if (captures->paths == NULL)
        return cli_memory_error(err);
    json_array_foreach(references, i, one) {
        if (strcmp(cli_text_of(one, "reference"), reference) == 0)
            CLI_TRY(add_capture(captures, cli_text_of(one, "capture"), err));
    }
    json_array_foreach(devices, i, one) {
        if (strcmp(cli_text_of(one, "device"), reference) == 0)
            CLI_TRY(add_capture(captures, cli_text_of(one, "capture"), err));
    }
    bool has_reference = captures->n > 0;
    json_array_foreach(devices, i, one) {
        if (has_reference)
            CLI_TRY(add_capture(captures, cli_text_of(one, "capture"), err));
    }
    return ND_OK;
}

/* Samples of each model that are explained, so that a report of many models takes minutes at most; chosen. */
enum { EXPLAINED_SAMPLES = 64 };

/* The float model is looked for beside the quantised one. NULL: not there. */
static const char *find_beside(struct report_documents *documents, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    char beside[4096];
    int n = snprintf(beside, sizeof beside, "%.*s%s", slash != NULL ? (int)(slash + 1 - path) : 0, path, name);
    bool is_there = name[0] != '\0' && n > 0 && (size_t)n < sizeof beside && access(beside, R_OK) == 0;
    return is_there ? report_documents_keep(documents, beside) : NULL;
}

/* Where the models are, as the first capture states it. A float reference has a model of its own. */
static enum nd_status find_models(struct report_documents *documents, const json_t *campaign,
                                  const json_t *model, const char *path, struct report_sources *about,
                                  struct nd_error *err)
{
    CLI_OWNED(nd_capture_close) struct nd_capture *capture = NULL;
    if (strcmp(cli_text_of(campaign, "reference"), "float") == 0)
        return ND_OK;
    CLI_TRY(nd_capture_open(path, &capture, err));
    const char *stated = nd_capture_model_path(capture);
    bool is_there = stated != NULL && access(stated, R_OK) == 0;
    about->quantised = is_there ? report_documents_keep(documents, stated) : NULL;
    if (about->quantised != NULL)
        about->float_model = find_beside(documents, about->quantised, cli_text_of(model, "float"));
    about->is_explained_if_possible = true;
    about->n_samples = EXPLAINED_SAMPLES;
    return ND_OK;
}

static enum nd_status add_model(struct report_documents *documents, const char *folder, const json_t *campaign,
                                const json_t *model, const struct report_sources *sources, struct nd_error *err)
{
    struct folder_captures captures = {.folder = folder};
    struct report_sources about = *sources;
    about.finds_model = false;
    bool is_one = json_array_size(json_object_get(campaign, "models")) == 1;
    about.model = is_one ? NULL : report_documents_keep(documents, cli_text_of(model, "name"));
    enum nd_status status = gather(campaign, model, &captures, err);
    if (status == ND_OK && captures.n > 1 && about.quantised == NULL)
        status = find_models(documents, campaign, model, captures.paths[0], &about, err);
    if (status == ND_OK && captures.n > 1)
        status = report_documents_of_captures(documents, (const char *const *)captures.paths, captures.n,
                                              &about, err);
    for (size_t i = 0; i < captures.n; i++)
        free(captures.paths[i]);
    free(captures.paths);
    return status;
}

enum nd_status report_documents_of_campaign(struct report_documents *documents, const char *folder,
                                            const struct report_sources *sources, struct nd_error *err)
{
    size_t at = documents->n, i;
    CLI_FREED char *path = cli_path_in(folder, "result.json");
    if (path == NULL)
        return cli_memory_error(err);
    CLI_TRY(report_documents_of_file(documents, path, err));
    documents->items[at].name = "result.json";
    json_error_t problem;
    json_auto_t *campaign = json_loads(documents->texts[at], 0, &problem);
    json_t *model;
    if (campaign == NULL && json_error_code(&problem) == json_error_out_of_memory)
        return cli_memory_error(err); /* what is no JSON the report refuses itself */
    json_array_foreach(json_object_get(campaign, "models"), i, model) {
        CLI_TRY(add_model(documents, folder, campaign, model, sources, err));
    }
    return ND_OK;
}

/* ---- the HTML report of a command that has --report ---- */

/* A report is made to be made again; a capture whose name was given by mistake is not. */
static bool is_other_file(const char *path)
{
    static const char start[] = "<!DOCTYPE html>";
    char found[sizeof start] = "";
    size_t n = cli_peek(path, found, sizeof start - 1);
    return n > 0 && memcmp(found, start, sizeof start - 1) != 0;
}

int cli_report_check(const char *path)
{
    if (path == NULL)
        return 0;
    if (is_other_file(path))
        return cli_fail(CLI_E_FILE_EXISTS, path,
                        "'%s' exists and is no report: give the report a different name", path);
    return cli_check_text_output(path, true, "");
}

int cli_report_write(const char *path, const struct nd_report_document *documents, size_t n, const char *title)
{
    struct nd_error err = {0};
    char *page = NULL;
    if (nd_report_page(documents, n, title, &page, &err) != ND_OK)
        return cli_report_error(&err);
    int exit_code = cli_write_text(path, page, true);
    free(page);
    return exit_code;
}

int cli_report_tell(const char *path, const char *command, const struct cli_answer *answer,
                    enum nd_status status, char *json, char *text, const struct nd_error *err)
{
    const struct nd_report_document document = {.json = json, .name = command};
    int exit_code = status == ND_OK && path != NULL ? cli_report_write(path, &document, 1, NULL) : 0;
    char *shown = answer->json ? json : text;
    free(answer->json ? text : json);
    return status == ND_OK && shown == NULL
               ? exit_code
               : cli_worse(exit_code, cli_print_answer(status, shown, answer, err));
}
