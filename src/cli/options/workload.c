/* What a command line names: models with the sizes of their dynamic dimensions, probes, and devices. */
#include "cli/options/workload.h"

#include <stdlib.h>
#include <string.h>

#include "cli/terminal/errors.h"
#include "npudiff/capture/captured_model.h"
#include "npudiff/core/parse.h"

enum nd_status cli_set_dims(struct nd_model *model, const struct cli_list *dims, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < dims->n; i++) {
        const char *equals = strchr(dims->items[i], '=');
        int64_t n = 0;
        nd_parse_i64(equals + 1, &n); /* the option parser has checked it */
        char *name = strndup(dims->items[i], (size_t)(equals - dims->items[i]));
        status = name != NULL ? nd_model_set_dim(model, name, n, err) : cli_memory_error(err);
        free(name);
    }
    return status;
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
    enum nd_status status = cli_model_load(path, &load->dims, &out->model, err);
    if (status == ND_OK)
        status = nd_probes_check_static(out->model, load->probes.items, load->probes.n, err);
    if (status == ND_OK)
        status = cli_model_load(load->float_model, &load->dims, &out->float_model, err);
    if (status == ND_OK)
        status = cli_devices_parse(&load->devices, &out->devices, err);
    return status == ND_OK
               ? cli_probes_make(out->model, &load->probes, load->allow_nonfinite, &out->probes, err)
               : status;
}

void cli_work_close(struct cli_work *work)
{
    cli_probes_deinit(&work->probes);
    cli_devices_deinit(&work->devices);
    nd_model_destroy(&work->float_model);
    nd_model_destroy(&work->model);
}
