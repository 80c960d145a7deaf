#include "npudiff/import.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strbuf.h"
#include "import/formats.h"
#include "npudiff/probe.h"
#include "probe/user.h"

/* ---- inputs by the probe reader, where a model says what they must be ---- */

static enum nd_status make_probe(const struct nd_import_options *options, struct nd_probe **out,
                                 struct nd_error *err)
{
    size_t n = nd_model_n_inputs(options->model);
    enum nd_status status = nd_model_check_static(options->model, err);
    if (status != ND_OK)
        return status;
    struct nd_probe_target *targets = nd_calloc(n, sizeof *targets);
    struct nd_strbuf spec = {0};
    nd_strbuf_printf(&spec, "inputs=%s", options->inputs);
    char *text = nd_strbuf_take(&spec);
    if (targets == NULL || text == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        const struct nd_model_io *io = nd_model_input(options->model, i);
        targets[i] = (struct nd_probe_target){io->name, io->dtype, io->shape, io->quant, io->quant_dtype};
    }
    if (status == ND_OK)
        status = nd_probe_create(text, targets, n, out, err);
    free(text);
    free(targets);
    return status;
}

static enum nd_status add_probe(const struct nd_import_options *options, struct nd_imported *imported,
                                struct nd_error *err)
{
    struct nd_probe *probe = NULL;
    enum nd_status status = make_probe(options, &probe, err);
    for (size_t i = 0; status == ND_OK && i < probe->n_inputs; i++) {
        const struct nd_probe_input *input = &probe->inputs[i];
        for (size_t s = 0; status == ND_OK && s < probe->n_samples; s++) {
            void *data = NULL;
            status = nd_imported_sample(imported, ND_IMPORTED_INPUT, input->name, options->inputs, s,
                                        input->dtype, &input->shape, &data, err);
            if (status == ND_OK && input->sample_bytes > 0)
                memcpy(data, (const char *)input->data + s * input->sample_bytes, input->sample_bytes);
        }
    }
    if (status == ND_OK && probe->labels != NULL) {
        imported->labels = probe->labels;
        imported->n_labels = probe->n_samples;
        probe->labels = NULL;
    }
    nd_probe_destroy(&probe);
    return status;
}

static enum nd_status add_inputs(const struct nd_import_options *options, struct nd_imported *imported,
                                 struct nd_error *err)
{
    if (options->inputs == NULL)
        return ND_OK;
    if (imported->sides[ND_IMPORTED_INPUT].n > 0)
        return nd_fail(err, ND_E_IMPORT_OPTION, options->inputs, "--inputs is given, but %s",
                       "the files hold inputs themselves");
    enum nd_status status;
    if (nd_user_has_extension(options->inputs, ".h5"))
        status = nd_aihub_add(imported, ND_IMPORTED_INPUT, options->inputs, err);
    else if (options->model != NULL)
        status = add_probe(options, imported, err);
    else
        status = nd_numpy_add(imported, ND_IMPORTED_INPUT, options->inputs, err);
    return status == ND_OK ? nd_imported_fact(imported, "inputs", NULL, "--inputs", err) : status;
}

enum nd_status nd_import(const struct nd_import_options *options, struct nd_import_result *out,
                         struct nd_error *err)
{
    const struct nd_import_reader *reader = nd_import_reader_find(options->format);
    struct nd_imported imported = {0};
    if (reader == NULL)
        return nd_fail(err, ND_E_IMPORT_OPTION, options->format, "there is no format '%s'", options->format);
    if (options->n_paths == 0)
        return nd_fail(err, ND_E_IMPORT_OPTION, options->format, "no file to import");
    enum nd_status status = reader->read(options, &imported, err);
    if (status == ND_OK)
        status = add_inputs(options, &imported, err);
    if (status == ND_OK)
        status = nd_imported_write(&imported, options, out, err);
    nd_imported_deinit(&imported);
    return status;
}

void nd_import_result_deinit(struct nd_import_result *result)
{
    for (size_t i = 0; i < result->n_facts; i++) {
        free(result->facts[i].kind);
        free(result->facts[i].source);
    }
    free(result->facts);
    free(result->cut_short);
    *result = (struct nd_import_result){0};
}
