#include "npudiff/record/import.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "core/text/strbuf.h"
#include "core/files/suffix.h"
#include "record/import/write_facts.h"
#include "record/import/formats/formats.h"
#include "npudiff/record/probe.h"
#include "record/probes/for_model.h"

/* ---- inputs by the probe reader, where a model says what they must be ---- */

static enum nd_status make_probe(const struct nd_import_options *options, struct nd_probe **out,
                                 struct nd_error *err)
{
    enum nd_status status = nd_model_check_static(options->model, err);
    if (status != ND_OK)
        return status;
    struct nd_strbuf spec = {0};
    nd_strbuf_printf(&spec, "inputs=%s", options->inputs);
    char *text = nd_strbuf_take(&spec);
    status = text != NULL ? nd_probe_for_model(options->model, text, out, err) : nd_fail_memory(err);
    free(text);
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
            const struct nd_imported_new sample = {ND_IMPORTED_INPUT, input->name,  options->inputs,
                                                   input->dtype,      input->shape, s};
            status = nd_imported_add(imported, &sample, &data, err);
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
    if (nd_ends_with(options->inputs, ".h5"))
        status = nd_aihub_add(imported, ND_IMPORTED_INPUT, options->inputs, err);
    else if (options->model != NULL)
        status = add_probe(options, imported, err);
    else
        status = nd_numpy_add(imported, ND_IMPORTED_INPUT, options->inputs, err);
    return status == ND_OK ? nd_imported_fact(imported, "inputs", NULL, "--inputs", err) : status;
}

/* ---- facts ---- */

/* Options first, so that messages name them; then the file of facts, then the map. */
static enum nd_status collect_facts(const struct nd_import_options *options, struct nd_statements *out,
                                    struct nd_error *err)
{
    enum nd_status status = ND_OK;
    if (options->label != NULL)
        status = nd_statements_add(out, "label", options->label, "--label", err);
    if (status == ND_OK && options->chipset != NULL)
        status = nd_statements_add(out, "chipset", options->chipset, "--chipset", err);
    for (size_t i = 0; status == ND_OK && i < options->n_stated; i++)
        status = nd_statements_add(out, options->stated[i].key, options->stated[i].value,
                                   options->stated[i].option, err);
    if (status == ND_OK && options->facts != NULL)
        status = nd_statements_read(out, options->facts, options->map == NULL, err);
    if (status == ND_OK && options->map != NULL)
        status = nd_statements_read(out, options->map, true, err);
    return status == ND_OK ? nd_statements_check(out, err) : status;
}

static enum nd_status add_logs(struct nd_imported *imported, struct nd_error *err)
{
    enum { MAX_LOG_BYTES = 64 << 20 };
    enum nd_status status = ND_OK;
    const struct nd_statement *logs = &imported->stated.of[ND_STATED_LOGS];
    for (size_t i = 0; status == ND_OK && i < logs->values.n; i++) {
        void *text = NULL;
        size_t n = 0;
        char *path = nd_stated_path(&imported->stated, ND_STATED_LOGS, i);
        status = path != NULL ? nd_file_read(path, MAX_LOG_BYTES, &text, &n, err) : nd_fail_memory(err);
        for (size_t k = 0; status == ND_OK && k < imported->n_logs; k++)
            if (strcmp(imported->logs[k].name, nd_path_base(path)) == 0)
                status = nd_fail(err, ND_E_IMPORT_FACT, path, "%s: there is a log '%s' already", logs->where,
                                 nd_path_base(path));
        if (status == ND_OK)
            status = nd_imported_log(imported, nd_path_base(path), text, n, err);
        free(text);
        free(path);
    }
    return status;
}

/* ---- repeats ---- */

static enum nd_status read_repeats(const struct nd_import_reader *reader,
                                   const struct nd_import_options *options, const struct nd_statements *stated,
                                   struct nd_imported *repeats, struct nd_error *err)
{
    const struct nd_statement *files = &stated->of[ND_STATED_REPEAT_FILES];
    enum nd_status status = ND_OK;
    if (files->values.n > 0 && options->n_paths != 1)
        return nd_fail(
            err, ND_E_IMPORT_FACT, "repeat_files",
            "%s: each repeat is one PATH, but the first run has %zu; put them into one folder or file",
            files->where, options->n_paths);
    for (size_t i = 0; status == ND_OK && i < files->values.n; i++) {
        char *path = nd_stated_path(stated, ND_STATED_REPEAT_FILES, i);
        const char *paths[] = {path};
        struct nd_import_options again = *options;
        again.paths = paths;
        status = path != NULL ? reader->read(&again, &repeats[i], err) : nd_fail_memory(err);
        if (status != ND_OK)
            nd_error_context(err, "repeat %zu", i + 1);
        free(path);
    }
    return status;
}

/* ---- all of it ---- */

static enum nd_status read_all(const struct nd_import_reader *reader, const struct nd_import_options *options,
                               struct nd_imported *imported, struct nd_error *err)
{
    bool has_failed = nd_stated(&imported->stated, ND_STATED_FAILED) != NULL;
    enum nd_status status = ND_OK;
    if (options->n_paths == 0 && !has_failed)
        return nd_fail(err, ND_E_IMPORT_OPTION, options->format,
                       "no file to import; of a run that gave none 'failed' states why");
    if (options->n_paths > 0)
        status = reader->read(options, imported, err);
    if (status == ND_OK)
        status = add_inputs(options, imported, err);
    if (status == ND_OK)
        status = add_logs(imported, err);
    return status == ND_OK ? nd_import_check_stated(imported, options, err) : status;
}

enum nd_status nd_import(const struct nd_import_options *given, struct nd_import_result *out,
                         struct nd_error *err)
{
    struct nd_imported imported = {0};
    struct nd_import_options options = {.struct_size = sizeof options};
    enum nd_status status = nd_options_read(&options, sizeof options, given, err);
    if (status != ND_OK)
        return status;
    const char *format = options.format != NULL ? options.format : "";
    const struct nd_import_reader *reader = nd_import_reader_find(format);
    if (reader == NULL)
        return nd_fail(err, ND_E_IMPORT_OPTION, format, "there is no format '%s'", format);
    status = collect_facts(&options, &imported.stated, err);
    size_t n_repeats = imported.stated.of[ND_STATED_REPEAT_FILES].values.n;
    struct nd_imported *repeats = nd_calloc(n_repeats, sizeof *repeats);
    if (status == ND_OK && repeats == NULL)
        status = nd_fail_memory(err);
    if (options.map == NULL)
        options.map = options.facts; /* tensors may be described in either file */
    if (status == ND_OK)
        status = read_all(reader, &options, &imported, err);
    if (status == ND_OK)
        status = read_repeats(reader, &options, &imported.stated, repeats, err);
    if (status == ND_OK)
        status = nd_imported_write(&imported, repeats, n_repeats, &options, out, err);
    for (size_t i = 0; repeats != NULL && i < n_repeats; i++)
        nd_imported_deinit(&repeats[i]);
    free(repeats);
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
