#include "record/import/write_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"
#include "core/text/names.h"
#include "core/text/utc.h"
#include "npudiff/core/parse.h"

static enum nd_status put_text(const struct nd_import_writing *w, const char *group, const char *key,
                               const char *text, struct nd_error *err)
{
    const struct nd_attr attr = {
        .group = (char *)group, .key = (char *)key, .type = ND_ATTR_STRING, .string = (char *)text};
    return nd_capture_writer_attr(w->writer, &attr, err);
}

static enum nd_status put_number(const struct nd_import_writing *w, const char *group, const char *key,
                                 int64_t number, struct nd_error *err)
{
    const struct nd_attr attr = {
        .group = (char *)group, .key = (char *)key, .type = ND_ATTR_I64, .i64 = number};
    return nd_capture_writer_attr(w->writer, &attr, err);
}

/* ---- what is stated, against what is known ---- */

static bool is_yes(const char *word)
{
    return strcmp(word, "yes") == 0 || strcmp(word, "true") == 0;
}

static const char *chipset_name(const struct nd_import_options *options, const char *word,
                                struct nd_import_chipset *found)
{
    bool is_known = word != NULL && options->find_chipset != NULL && options->find_chipset(word, found);
    return is_known ? found->sm : word;
}

static enum nd_status check(const struct nd_imported *imported, enum nd_stated_key key, const char *other,
                            const char *from, struct nd_error *err)
{
    const char *stated = nd_stated(&imported->stated, key);
    if (stated == NULL || other == NULL || strcmp(stated, other) == 0)
        return ND_OK;
    return nd_stated_conflict(&imported->stated, key, other, from, err);
}

enum nd_status nd_import_check_stated(const struct nd_imported *imported,
                                      const struct nd_import_options *options, struct nd_error *err)
{
    struct nd_import_chipset stated = {0}, found = {0};
    const struct nd_model *model = options->model;
    const char *from = options->paths != NULL && options->n_paths > 0 ? options->paths[0] : "the file";
    const char *chipset = chipset_name(options, nd_stated(&imported->stated, ND_STATED_CHIPSET), &stated);
    const char *of_files = chipset_name(options, imported->chipset, &found);
    enum nd_status status = ND_OK;
    if (chipset != NULL && of_files != NULL && strcmp(chipset, of_files) != 0)
        status = nd_stated_conflict(&imported->stated, ND_STATED_CHIPSET, imported->chipset, from, err);
    if (status == ND_OK)
        status = check(imported, ND_STATED_KIND, imported->kind, from, err);
    if (status == ND_OK)
        status = check(imported, ND_STATED_MODEL_SHA256, imported->model_sha256, from, err);
    if (status == ND_OK && model != NULL)
        status = check(imported, ND_STATED_MODEL_SHA256, nd_model_sha256(model), nd_model_path(model), err);
    if (status == ND_OK && model != NULL) {
        char opset[32];
        snprintf(opset, sizeof opset, "%lld", (long long)nd_model_opset(model));
        status = check(imported, ND_STATED_OPSET, opset, nd_model_path(model), err);
    }
    return status;
}

static enum nd_status fail_end(const struct nd_imported *imported, enum nd_stated_key key, const char *name,
                               const struct nd_matched *matched, struct nd_error *err)
{
    const struct nd_matched_tensor *tensors = matched->sides[ND_IMPORTED_OUTPUT];
    size_t nearest =
        matched->n[ND_IMPORTED_OUTPUT] > 0
            ? nd_word_nearest(name, &tensors[0].tensor.name, matched->n[ND_IMPORTED_OUTPUT], sizeof *tensors)
            : SIZE_MAX;
    return nd_fail(err, ND_E_IMPORT_FACT, nd_stated_name(key),
                   "%s: '%s' names '%s', which no tensor of the import is%s%s%s",
                   imported->stated.of[key].where, nd_stated_name(key), name,
                   nearest != SIZE_MAX ? "; the nearest is '" : "",
                   nearest != SIZE_MAX ? tensors[nearest].tensor.name : "", nearest != SIZE_MAX ? "'" : "");
}

static enum nd_status mark(const struct nd_imported *imported, enum nd_stated_key key,
                           const struct nd_model *model, struct nd_matched *matched, struct nd_error *err)
{
    const struct nd_statement *statement = &imported->stated.of[key];
    for (size_t i = 0; i < statement->values.n; i++) {
        const char *name = statement->values.items[i];
        size_t t = 0;
        while (t < matched->n[ND_IMPORTED_OUTPUT] &&
               strcmp(matched->sides[ND_IMPORTED_OUTPUT][t].tensor.name, name) != 0)
            t++;
        if (t == matched->n[ND_IMPORTED_OUTPUT])
            return fail_end(imported, key, name, matched, err);
        struct nd_tensor *tensor = &matched->sides[ND_IMPORTED_OUTPUT][t].tensor;
        bool *is_end = key == ND_STATED_OUTPUTS ? &tensor->is_model_output : &tensor->is_model_input;
        if (model != NULL && !*is_end)
            return nd_fail(err, ND_E_IMPORT_FACT, nd_stated_name(key),
                           "%s: '%s' names '%s', which is none of '%s'", statement->where, nd_stated_name(key),
                           name, nd_model_path(model));
        *is_end = true;
    }
    return ND_OK;
}

enum nd_status nd_import_mark_ends(const struct nd_imported *imported, const struct nd_model *model,
                                   struct nd_matched *matched, struct nd_error *err)
{
    enum nd_status status = mark(imported, ND_STATED_OUTPUTS, model, matched, err);
    return status == ND_OK ? mark(imported, ND_STATED_MODEL_INPUTS, model, matched, err) : status;
}

/* Where a fact is from: the statement, or the files. */
static const char *source_of(const struct nd_imported *imported, enum nd_stated_key key)
{
    bool is_of_files = (key == ND_STATED_CHIPSET && imported->chipset != NULL) ||
                       (key == ND_STATED_KIND && imported->kind != NULL);
    const char *where = imported->stated.of[key].where;
    return where != NULL ? where : is_of_files ? "the files" : "not stated";
}

enum nd_status nd_import_stated_facts(struct nd_imported *imported, struct nd_error *err)
{
    enum nd_status status =
        nd_imported_fact(imported, "device", NULL, source_of(imported, ND_STATED_KIND), err);
    if (status == ND_OK)
        status = nd_imported_fact(imported, "chipset", NULL, source_of(imported, ND_STATED_CHIPSET), err);
    for (size_t k = 0; status == ND_OK && k < ND_N_STATED; k++) {
        bool is_elsewhere = k == ND_STATED_KIND || k == ND_STATED_CHIPSET || k == ND_STATED_LABEL ||
                            k == ND_STATED_LABELS || k == ND_STATED_LATENCY_US || k == ND_STATED_LATENCY_MS;
        if (imported->stated.of[k].values.n > 0 && !is_elsewhere)
            status = nd_imported_fact(imported, nd_stated_name((enum nd_stated_key)k), NULL,
                                      imported->stated.of[k].where, err);
    }
    return status;
}

/* ---- attributes ---- */

/* As every capture has it; SOURCE_DATE_EPOCH makes two imports of the same the same. */
static enum nd_status put_time(const struct nd_import_writing *w, struct nd_error *err)
{
    char text[32];
    return nd_utc_now(ND_UTC_TIME, text, sizeof text) ? put_text(w, "", "created", text, err) : ND_OK;
}

/* Where nothing states a label: the first file's name without its extension; without a file that of the
 * capture. */
static enum nd_status put_label(const struct nd_import_writing *w, struct nd_error *err)
{
    if (nd_stated(&w->imported->stated, ND_STATED_LABEL) != NULL)
        return ND_OK;
    char *path = nd_strdup(w->options->n_paths > 0 ? w->options->paths[0] : w->options->output);
    size_t n = path != NULL ? strlen(path) : 0;
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    char *base = path != NULL ? nd_strdup(nd_path_base(path)) : NULL;
    char *dot = base != NULL ? strrchr(base, '.') : NULL;
    if (dot != NULL && dot != base)
        *dot = '\0';
    enum nd_status status = base != NULL ? put_text(w, "device", "label", base, err) : nd_fail_memory(err);
    free(base);
    free(path);
    return status;
}

/* The chipset by the name that every capture has for it, and what the table of chipsets knows of it. */
static enum nd_status put_chipset(const struct nd_import_writing *w, struct nd_error *err)
{
    struct nd_import_chipset chipset = {0};
    const char *stated = nd_stated(&w->imported->stated, ND_STATED_CHIPSET);
    const char *name = chipset_name(w->options, stated != NULL ? stated : w->imported->chipset, &chipset);
    enum nd_status status =
        put_text(w, "device", "chipset_source", source_of(w->imported, ND_STATED_CHIPSET), err);
    if (status == ND_OK && name != NULL)
        status = put_text(w, "device", "chipset", name, err);
    if (status != ND_OK || chipset.sm == NULL)
        return status;
    status = put_number(w, "device", "soc_model", chipset.soc_model, err);
    if (status == ND_OK)
        status = put_text(w, "device", "arch", chipset.arch, err);
    return status == ND_OK ? put_text(w, "device", "marketing", chipset.marketing, err) : status;
}

static enum nd_status put_device(const struct nd_import_writing *w, struct nd_error *err)
{
    char uri[64];
    snprintf(uri, sizeof uri, "import:%s", w->options->format);
    const char *simulator = nd_stated(&w->imported->stated, ND_STATED_SIMULATOR);
    enum nd_status status = put_text(w, "device", "uri", uri, err);
    if (status == ND_OK)
        status = put_label(w, err);
    if (status == ND_OK && nd_stated(&w->imported->stated, ND_STATED_KIND) == NULL)
        status = put_text(w, "device", "kind", w->imported->kind != NULL ? w->imported->kind : "import", err);
    if (status == ND_OK && simulator != NULL)
        status = put_number(w, "device", "is_simulator", is_yes(simulator), err);
    return status == ND_OK ? put_chipset(w, err) : status;
}

/* Facts that are attributes as they stand. */
static enum nd_status put_stated(const struct nd_import_writing *w, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t k = 0; status == ND_OK && k < ND_N_STATED; k++) {
        const char *group, *attribute, *value = nd_stated(&w->imported->stated, (enum nd_stated_key)k);
        bool is_number;
        int64_t number = 0;
        if (value == NULL || !nd_stated_attribute((enum nd_stated_key)k, &group, &attribute, &is_number))
            continue;
        if (is_number && nd_parse_i64(value, &number))
            status = put_number(w, group, attribute, number, err);
        else
            status = put_text(w, group, attribute, value, err);
    }
    return status;
}

static enum nd_status put_model(const struct nd_import_writing *w, struct nd_error *err)
{
    const struct nd_model *model = w->options->model;
    const struct nd_statements *stated = &w->imported->stated;
    const char *sha256 = model != NULL                       ? nd_model_sha256(model)
                         : w->imported->model_sha256 != NULL ? w->imported->model_sha256
                                                             : nd_stated(stated, ND_STATED_MODEL_SHA256);
    const char *file = model != NULL                     ? nd_model_path(model)
                       : w->imported->model_file != NULL ? w->imported->model_file
                                                         : nd_stated(stated, ND_STATED_MODEL_FILE);
    int64_t opset = model != NULL ? nd_model_opset(model) : 0;
    const char *stated_opset = nd_stated(stated, ND_STATED_OPSET);
    if (opset == 0 && stated_opset != NULL)
        (void)nd_parse_i64(stated_opset, &opset);
    enum nd_status status = file != NULL ? put_text(w, "model", "file", file, err) : ND_OK;
    if (status == ND_OK && sha256 != NULL)
        status = put_text(w, "model", "sha256", sha256, err);
    return status == ND_OK && opset > 0 ? put_number(w, "model", "opset", opset, err) : status;
}

/* Which files, and where each fact is from. */
static enum nd_status put_import(const struct nd_import_writing *w, struct nd_error *err)
{
    enum nd_status status = put_text(w, "import", "format", w->options->format, err);
    for (size_t i = 0; status == ND_OK && i < w->options->n_paths; i++) {
        char key[48], hex[ND_SHA256_HEX_BYTES];
        struct stat info;
        const char *path = w->options->paths[i];
        snprintf(key, sizeof key, "path_%03zu", i);
        status = put_text(w, "import", key, path, err);
        if (status != ND_OK || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        snprintf(key, sizeof key, "path_%03zu_sha256", i);
        status = nd_sha256_file(path, hex, err);
        if (status == ND_OK)
            status = put_text(w, "import", key, hex, err);
    }
    for (size_t i = 0; status == ND_OK && i < w->result->n_facts; i++)
        status = put_text(w, "import", w->result->facts[i].kind, w->result->facts[i].source, err);
    return status;
}

/* What a failed device left: as `npudiff capture` says it. The facts are written by put_stated. */
static enum nd_status put_failure(const struct nd_import_writing *w, struct nd_error *err)
{
    if (!w->imported->is_failed)
        return ND_OK;
    enum nd_status status = put_number(w, "failure", "code", ND_E_DEVICE_COMMAND, err);
    if (status == ND_OK && nd_stated(&w->imported->stated, ND_STATED_FAILED_STAGE) == NULL)
        status = put_text(w, "failure", "stage", "run", err);
    if (status == ND_OK && nd_stated(&w->imported->stated, ND_STATED_FAILED) == NULL)
        status = put_text(w, "failure", "message", w->imported->cut_short, err);
    const char *object = w->options->n_paths > 0 ? w->options->paths[0] : "";
    return status == ND_OK ? put_text(w, "failure", "object", object, err) : status;
}

enum nd_status nd_import_put_attributes(const struct nd_import_writing *w, struct nd_error *err)
{
    enum nd_status status = put_time(w, err);
    if (status == ND_OK)
        status = put_device(w, err);
    if (status == ND_OK)
        status = put_stated(w, err);
    if (status == ND_OK)
        status = put_model(w, err);
    if (status == ND_OK)
        status = put_import(w, err);
    return status == ND_OK ? put_failure(w, err) : status;
}
