/* The results that a report of a campaign is made of, and files of results. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/report_documents.h"
#include "cli/options/capture_paths.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/rows.h"
#include "npudiff/capture/capture.h"
#include "npudiff/capture/captured_model.h"

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

enum nd_status report_documents_of_file(struct report_documents *documents, const char *path,
                                        struct nd_error *err)
{
    char *text = NULL;
    enum nd_status status = read_result(path, &text, err);
    return report_documents_add(documents, path, NULL, status, text, err);
}

/* ---- campaigns ---- */

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
    enum nd_status status = ND_OK;
    size_t i;
    captures->paths = calloc(json_array_size(devices) + json_array_size(references) + 2, sizeof(char *));
    if (captures->paths == NULL)
        return cli_memory_error(err);
    json_array_foreach(references, i, one)
    {
        if (status == ND_OK && strcmp(cli_text_of(one, "reference"), reference) == 0)
            status = add_capture(captures, cli_text_of(one, "capture"), err);
    }
    json_array_foreach(devices, i, one)
    {
        if (status == ND_OK && strcmp(cli_text_of(one, "device"), reference) == 0)
            status = add_capture(captures, cli_text_of(one, "capture"), err);
    }
    bool has_reference = captures->n > 0;
    json_array_foreach(devices, i, one)
    {
        if (status == ND_OK && has_reference)
            status = add_capture(captures, cli_text_of(one, "capture"), err);
    }
    return status;
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
    struct nd_capture *capture = NULL;
    if (strcmp(cli_text_of(campaign, "reference"), "float") == 0)
        return ND_OK;
    enum nd_status status = nd_capture_open(path, &capture, err);
    if (status != ND_OK)
        return status;
    const char *stated = nd_capture_model_path(capture);
    bool is_there = stated != NULL && access(stated, R_OK) == 0;
    about->quantised = is_there ? report_documents_keep(documents, stated) : NULL;
    if (about->quantised != NULL)
        about->float_model = find_beside(documents, about->quantised, cli_text_of(model, "float"));
    about->is_explained_if_possible = true;
    about->n_samples = EXPLAINED_SAMPLES;
    nd_capture_close(&capture);
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
    size_t size = strlen(folder) + 32, i;
    char *path = malloc(size);
    if (path == NULL)
        return cli_memory_error(err);
    snprintf(path, size, "%s/result.json", folder);
    size_t at = documents->n;
    enum nd_status status = report_documents_of_file(documents, path, err);
    free(path);
    if (status != ND_OK)
        return status;
    documents->items[at].name = "result.json";
    json_error_t problem;
    json_t *campaign = json_loads(documents->texts[at], 0, &problem), *model;
    if (campaign == NULL && json_error_code(&problem) == json_error_out_of_memory)
        status = cli_memory_error(err); /* what is no JSON the report refuses itself */
    json_array_foreach(json_object_get(campaign, "models"), i, model)
    {
        if (status == ND_OK)
            status = add_model(documents, folder, campaign, model, sources, err);
    }
    json_decref(campaign);
    return status;
}
