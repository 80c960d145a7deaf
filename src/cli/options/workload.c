/* What a command line names: models with the sizes of their dynamic dimensions, probes, and devices; and
 * where the files go that it writes. */
#include "cli/options/workload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/terminal/errors.h"
#include "cli/terminal/output.h"
#include "npudiff/core/parse.h"
#include "npudiff/model/encodings.h"

/* Where captures and datasheets are written, by default and by -o. */

enum { MAX_LABEL_BYTES = 100, MAX_NAME_BYTES = MAX_LABEL_BYTES + 16, MAX_SUFFIX_BYTES = 8 };

/* Digits for what a file name cannot tell apart (FNV-1a). */
static uint32_t hash_text(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

/* The label as a file name: what that had better not hold becomes '-'. Digits follow where it was too long or
 * held what is not in the names of devices. */
static void name_file(const char *label, bool with_digits, char name[MAX_NAME_BYTES])
{
    const char *replaced = strncmp(label, "emu:", 4) == 0 ? "/?&=: @,'\"*<>|\\" : "/?&=: ";
    const char *strange = "'\"*<>|\\";
    size_t n = 0;
    for (const char *at = label; *at != '\0'; at++) {
        bool is_control = (unsigned char)*at < ' ' || *at == 127;
        with_digits = with_digits || is_control || strchr(strange, *at) != NULL;
        if (n < MAX_LABEL_BYTES)
            name[n] = is_control || strchr(replaced, *at) != NULL ? '-' : *at;
        n++;
    }
    with_digits = with_digits || n > MAX_LABEL_BYTES;
    n = n < MAX_LABEL_BYTES ? n : MAX_LABEL_BYTES;
    while (n < strlen(label) && n > 0 && ((unsigned char)label[n] & 0xc0) == 0x80)
        n--; /* not within a character */
    name[n] = '\0';
    if (with_digits)
        snprintf(name + n, MAX_NAME_BYTES - n, "-%08x", (unsigned int)hash_text(label));
}

char *cli_path_in(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path != NULL)
        snprintf(path, size, "%s/%s", folder, name);
    return path;
}

/* "<folder>/<label><suffix>" */
static char *file_path(const char *folder, const char *label, bool with_digits, const char *suffix)
{
    char name[MAX_NAME_BYTES + MAX_SUFFIX_BYTES];
    name_file(label, with_digits, name);
    size_t n = strlen(name);
    snprintf(name + n, sizeof name - n, "%s", suffix);
    return cli_path_in(folder, name);
}

/* True when it is a folder afterwards, which *is_new says was not there; else errno says why not. */
static bool make_one_folder(const char *path, bool *is_new)
{
    struct stat info;
    *is_new = mkdir(path, 0777) == 0;
    if (*is_new)
        return true;
    int problem = errno;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return true;
    errno = problem == EEXIST ? ENOTDIR : problem;
    return false;
}

bool cli_make_folder(const char *path, size_t *n_old)
{
    char *partial = strdup(path);
    bool is_made = partial != NULL, is_new = false, has_new = false;
    *n_old = 0;
    for (char *at = partial; is_made && at != NULL; at = strchr(at + 1, '/')) {
        char kept = *at;
        if (at == partial)
            continue;
        *at = '\0';
        is_made = make_one_folder(partial, &is_new);
        *at = kept;
        has_new = has_new || is_new;
        if (is_made && !has_new)
            *n_old = (size_t)(at - partial);
    }
    is_made = is_made && make_one_folder(path, &is_new);
    if (is_made && !has_new && !is_new)
        *n_old = strlen(path);
    if (!is_made)
        cli_fail(CLI_E_FILE_WRITE, path, "cannot create folder '%s': %s", path, strerror(errno));
    free(partial);
    return is_made;
}

void cli_remove_empty_folder(const char *path, size_t n_old)
{
    char *partial = strdup(path);
    size_t n = partial != NULL ? strlen(partial) : 0;
    for (;;) {
        while (n > n_old && partial[n - 1] == '/')
            partial[--n] = '\0';
        if (n <= n_old || rmdir(partial) != 0)
            break;
        while (n > n_old && partial[n - 1] != '/')
            partial[--n] = '\0';
    }
    free(partial);
}

/* Two devices whose names differ only in what a file name does not hold. */
static bool is_taken(const struct cli_fleet *fleet, size_t n, const char *path, const char *label)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(fleet->cells[i].path, path) == 0 && strcmp(fleet->cells[i].device.label, label) != 0)
            return true;
    return false;
}

bool cli_name_files(struct cli_fleet *fleet, const char *folder, const char *suffix)
{
    for (size_t i = 0; i < fleet->n_cells; i++) {
        struct cli_cell *cell = &fleet->cells[i];
        cell->path = file_path(folder, cell->device.label, false, suffix);
        if (cell->path != NULL && is_taken(fleet, i, cell->path, cell->device.label)) {
            free(cell->path);
            cell->path = file_path(folder, cell->device.label, true, suffix);
        }
        if (cell->path == NULL)
            return false;
    }
    return true;
}

/* Exports the scales of a model that a command wrote, for other quantisers. */

int cli_check_exports(const char *command, const struct cli_exports *exports, const char *output,
                      const char *option)
{
    const struct {
        const char *option, *path;
    } files[] = {{"--encodings", exports->encodings}, {"--overrides", exports->overrides}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i].path != NULL && output == NULL)
            return cli_usage_error(command, "%s needs %s: it is about that file", files[i].option, option);
        if (files[i].path != NULL &&
            cli_check_output(files[i].path, exports->force, "--force overwrites it") != 0)
            return ND_EXIT_TROUBLE;
    }
    return 0;
}

int cli_export_scales(const char *path, const struct cli_exports *exports)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    CLI_OWNED(nd_encodings_destroy) struct nd_encodings *encodings = NULL;
    const char *const paths[] = {exports->encodings, exports->overrides};
    static const enum nd_encodings_format formats[] = {ND_ENCODINGS_AIMET, ND_ENCODINGS_OVERRIDES};
    if (exports->encodings == NULL && exports->overrides == NULL)
        return 0;
    if (nd_model_load(path, &model, &err) != ND_OK || nd_encodings_of_model(model, &encodings, &err) != ND_OK)
        return cli_report_error(&err);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i] != NULL &&
            nd_encodings_write(encodings, formats[i], paths[i], exports->force, &err) != ND_OK)
            return cli_report_error(&err);
    return ND_EXIT_SAME;
}

enum nd_status cli_set_dims(struct nd_model *model, const struct cli_list *dims, struct nd_error *err)
{
    for (size_t i = 0; i < dims->n; i++) {
        const char *equals = strchr(dims->items[i], '=');
        int64_t n = 0;
        nd_parse_i64(equals + 1, &n); /* the option parser has checked it */
        CLI_FREED char *name = strndup(dims->items[i], (size_t)(equals - dims->items[i]));
        CLI_TRY(name != NULL ? nd_model_set_dim(model, name, n, err) : cli_memory_error(err));
    }
    return ND_OK;
}

enum nd_status cli_model_load(const char *path, const struct cli_list *dims, struct nd_model **out,
                              struct nd_error *err)
{
    if (path == NULL)
        return ND_OK;
    enum nd_status status = nd_model_load(path, out, err);
    return status == ND_OK ? cli_set_dims(*out, dims, err) : status;
}

enum nd_status cli_captured_model(struct nd_capture *const *captures, size_t n, const struct cli_list *dims,
                                  struct nd_model **out, struct nd_error *err)
{
    struct nd_error first = {0}, problem;
    enum nd_status status = ND_ERR_NOT_FOUND;
    for (size_t i = 0; status == ND_ERR_NOT_FOUND && i < n; i++)
        status = nd_capture_load_model(captures[i], out, i == 0 ? &first : &problem);
    if (status == ND_OK)
        return dims != NULL ? cli_set_dims(*out, dims, err) : ND_OK;
    if (status == ND_ERR_NOT_FOUND)
        return cli_error(err, status, CLI_E_MODEL_GONE, first.object, "%s; --quantised MODEL names it",
                         first.message);
    return cli_memory_error(err);
}

/* ---- probes and devices ---- */

struct cli_list cli_probes_or_default(const struct cli_list *specs)
{
    static const char *none_given[] = {"zeros", "ones", "ramp", "uniform"};
    return specs->n > 0 ? *specs : (struct cli_list){.items = none_given, .n = 4};
}

enum nd_status cli_probes_make(const struct nd_model *model, const struct cli_list *specs, bool allow_nonfinite,
                               struct cli_probes *out, struct nd_error *err)
{
    *out = (struct cli_probes){.items = calloc(specs->n + 1, sizeof *out->items), .n = specs->n};
    if (out->items == NULL)
        return cli_memory_error(err);
    return (allow_nonfinite ? nd_probes_for_model_any : nd_probes_for_model)(model, specs->items, specs->n,
                                                                             out->items, err);
}

void cli_probes_deinit(struct cli_probes *probes)
{
    for (size_t i = 0; probes->items != NULL && i < probes->n; i++)
        nd_probe_destroy(&probes->items[i]);
    free(probes->items);
    *probes = (struct cli_probes){0};
}

enum nd_status cli_devices_parse(const struct cli_list *uris, struct cli_devices *out, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    *out = (struct cli_devices){.all = calloc(uris->n + 1, sizeof *out->all),
                                .items = calloc(uris->n + 1, sizeof *out->items)};
    if (out->all == NULL || out->items == NULL)
        return cli_memory_error(err);
    for (; out->n < uris->n && status == ND_OK; out->n++) {
        out->items[out->n] = &out->all[out->n];
        status = nd_device_parse(uris->items[out->n], &out->all[out->n], err);
    }
    return status;
}

void cli_devices_deinit(struct cli_devices *devices)
{
    for (size_t i = 0; i < devices->n; i++)
        nd_device_deinit(&devices->all[i]);
    free(devices->all);
    free(devices->items);
    *devices = (struct cli_devices){0};
}

const struct cli_option cli_load_rows[] = {
    OPT_ALLOW_NONFINITE(struct cli_load), OPT_DIM(struct cli_load), OPT_THREADS(struct cli_load),
    OPT_AGENT(struct cli_load),           {.name = NULL},
};

enum nd_status cli_work_open(const char *path, const struct cli_load *load, struct cli_work *out,
                             struct nd_error *err)
{
    *out = (struct cli_work){0};
    CLI_TRY(cli_model_load(path, &load->dims, &out->model, err));
    CLI_TRY(nd_probes_check_static(out->model, load->probes.items, load->probes.n, err));
    CLI_TRY(cli_model_load(load->float_model, &load->dims, &out->float_model, err));
    CLI_TRY(cli_devices_parse(&load->devices, &out->devices, err));
    return cli_probes_make(out->model, &load->probes, load->allow_nonfinite, &out->probes, err);
}

void cli_work_close(struct cli_work *work)
{
    cli_probes_deinit(&work->probes);
    cli_devices_deinit(&work->devices);
    nd_model_destroy(&work->float_model);
    nd_model_destroy(&work->model);
}
