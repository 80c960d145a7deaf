/* What the user says of the tensors of a foreign file: docs/reference/import-map.md. */
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/documents/yaml_map.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/tensors/scales.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"
#include "record/import/imported.h"
#include "record/import/map.h"
#include "record/import/write_capture.h"

/* What the user states of an imported run (docs/reference/import-facts.md): read, checked, held against files
 * and model, and written as attributes of the capture. */

enum form { TEXT, TEXTS, WORD, COUNT_of_statements, FLAG };

struct row {
    const char *name;
    enum form form;
    const char *words; /* of a WORD: those that there are, each followed by a space */
    const char *group, *attribute;
};

/* docs/reference/import-facts.md says what each means. */
static const struct row rows[ND_N_STATED] = {
    [ND_STATED_KIND] = {"kind", WORD, "npu cpu gpu reference ", "device", "kind"},
    [ND_STATED_LABEL] = {"label", TEXT, NULL, "device", "label"},
    [ND_STATED_PHONE] = {"phone", TEXT, NULL, "device", "phone"},
    [ND_STATED_BOARD] = {"board", TEXT, NULL, "device", "board"},
    [ND_STATED_FIRMWARE] = {"firmware", TEXT, NULL, "device", "firmware"},
    [ND_STATED_SERIAL] = {"serial", TEXT, NULL, "device", "serial"},
    [ND_STATED_SIMULATOR] = {"simulator", FLAG, NULL, NULL, NULL},
    [ND_STATED_CHIPSET] = {"chipset", TEXT, NULL, NULL, NULL},
    [ND_STATED_RUNTIME] = {"runtime", TEXT, NULL, "runtime", "id"},
    [ND_STATED_RUNTIME_VERSION] = {"runtime_version", TEXT, NULL, "runtime", "version"},
    [ND_STATED_SDK] = {"sdk", TEXT, NULL, "runtime", "sdk_version"},
    [ND_STATED_PROVIDER] = {"provider", TEXT, NULL, "runtime", "provider"},
    [ND_STATED_OPTIMISATION] = {"optimisation", TEXT, NULL, "runtime", "optimisation"},
    [ND_STATED_THREADS] = {"threads", COUNT_of_statements, NULL, "runtime", "threads"},
    [ND_STATED_MODEL_FILE] = {"model_file", TEXT, NULL, NULL, NULL},
    [ND_STATED_MODEL_SHA256] = {"model_sha256", TEXT, NULL, NULL, NULL},
    [ND_STATED_OPSET] = {"opset", COUNT_of_statements, NULL, NULL, NULL},
    [ND_STATED_OUTPUTS] = {"outputs", TEXTS, NULL, NULL, NULL},
    [ND_STATED_MODEL_INPUTS] = {"model_inputs", TEXTS, NULL, NULL, NULL},
    [ND_STATED_SAMPLES] = {"samples_expected", COUNT_of_statements, NULL, NULL, NULL},
    [ND_STATED_LABELS] = {"labels", TEXTS, NULL, NULL, NULL},
    [ND_STATED_FLOATS] = {"floats", WORD, "codes keep ", NULL, NULL},
    [ND_STATED_REPEATS] = {"repeats", COUNT_of_statements, NULL, NULL, NULL},
    [ND_STATED_REPEAT_ORDER] = {"repeat_order", WORD, "run-by-run sample-by-sample ", NULL, NULL},
    [ND_STATED_REPEAT_FILES] = {"repeat_files", TEXTS, NULL, NULL, NULL},
    [ND_STATED_LATENCY_US] = {"latency_us", TEXTS, NULL, NULL, NULL},
    [ND_STATED_LATENCY_MS] = {"latency_ms", TEXTS, NULL, NULL, NULL},
    [ND_STATED_LOGS] = {"logs", TEXTS, NULL, NULL, NULL},
    [ND_STATED_FAILED] = {"failed", TEXT, NULL, "failure", "message"},
    [ND_STATED_FAILED_STAGE] = {"failed_stage", WORD, "load session placement run ", "failure", "stage"},
    [ND_STATED_FAILED_OPERATOR] = {"failed_operator", TEXT, NULL, "failure", "operator"},
    [ND_STATED_FAILED_NODE] = {"failed_node", TEXT, NULL, "failure", "node"},
    [ND_STATED_FAILED_CODE] = {"failed_code", COUNT_of_statements, NULL, "failure", "raw_code"},
    [ND_STATED_FAILED_SYMBOL] = {"failed_symbol", TEXT, NULL, "failure", "symbol"},
};

const char *nd_stated_name(enum nd_stated_key key)
{
    return rows[key].name;
}

static bool nd_stated_attribute(enum nd_stated_key key, const char **group, const char **attribute,
                                bool *is_number)
{
    *group = rows[key].group;
    *attribute = rows[key].attribute;
    *is_number = rows[key].form == COUNT_of_statements;
    return rows[key].group != NULL;
}

const char *nd_stated(const struct nd_statements *statements, enum nd_stated_key key)
{
    const struct nd_statement *statement = &statements->of[key];
    return statement->values.n > 0 ? statement->values.items[0] : NULL;
}

/* ---- single values ---- */

static enum nd_status check_value(enum nd_stated_key key, const char *value, const char *where,
                                  struct nd_error *err)
{
    const struct row *row = &rows[key];
    uint64_t count;
    if (value[0] == '\0')
        return nd_fail(err, ND_E_IMPORT_FACT, row->name, "%s: '%s' is empty", where, row->name);
    if (row->form == WORD && !nd_has_word(row->words, value))
        return nd_fail(err, ND_E_IMPORT_FACT, row->name, "%s: '%s' is one of %.*s, not '%s'", where, row->name,
                       (int)strlen(row->words) - 1, row->words, value);
    if (row->form == FLAG && !nd_has_word("yes no true false ", value))
        return nd_fail(err, ND_E_IMPORT_FACT, row->name, "%s: '%s' is yes or no, not '%s'", where, row->name,
                       value);
    if (row->form == COUNT_of_statements && (!nd_parse_u64(value, &count) || count == 0 || count > 1000000000))
        return nd_fail(err, ND_E_IMPORT_FACT, row->name,
                       "%s: '%s' is a whole number from 1 to 1000000000, not '%s'", where, row->name, value);
    return ND_OK;
}

static bool is_same(const struct nd_texts *a, const struct nd_texts *b)
{
    bool is_equal = a->n == b->n;
    for (size_t i = 0; is_equal && i < a->n; i++)
        is_equal = strcmp(a->items[i], b->items[i]) == 0;
    return is_equal;
}

/* Takes over values, also on failure. */
static enum nd_status state(struct nd_statements *statements, enum nd_stated_key key, struct nd_texts *values,
                            const char *where, const char *folder, struct nd_error *err)
{
    struct nd_statement *statement = &statements->of[key];
    const struct row *row = &rows[key];
    enum nd_status status = ND_OK;
    if (values->n > 1 && row->form != TEXTS)
        status = nd_fail(err, ND_E_IMPORT_FACT, row->name, "%s: '%s' takes one value, not %zu", where,
                         row->name, values->n);
    for (size_t i = 0; status == ND_OK && i < values->n; i++)
        status = check_value(key, values->items[i], where, err);
    if (status == ND_OK && statement->values.n > 0 && !is_same(&statement->values, values))
        status = nd_fail(err, ND_E_IMPORT_FACT, row->name,
                         "'%s' is stated twice: %s says '%s'%s, but %s '%s'%s", row->name, statement->where,
                         statement->values.items[0], statement->values.n > 1 ? ", ..." : "", where,
                         values->items[0], values->n > 1 ? ", ..." : "");
    if (status == ND_OK && statement->values.n == 0) {
        statement->values = *values;
        *values = (struct nd_texts){0};
        statement->where = nd_strdup(where);
        statement->folder = nd_strdup(folder);
        if (statement->where == NULL || statement->folder == NULL)
            status = nd_fail_memory(err);
    }
    nd_texts_deinit(values);
    return status;
}

enum nd_status nd_statements_add(struct nd_statements *statements, const char *key, const char *value,
                                 const char *where, struct nd_error *err)
{
    size_t k = 0;
    while (k < ND_N_STATED && strcmp(rows[k].name, key) != 0)
        k++;
    if (k == ND_N_STATED) {
        size_t nearest = nd_word_nearest(key, &rows[0].name, ND_N_STATED, sizeof rows[0]);
        return nd_fail(err, ND_E_IMPORT_FACT, key, "%s: there is no fact '%s'; the nearest is '%s'", where, key,
                       rows[nearest].name);
    }
    struct nd_statement *statement = &statements->of[k];
    bool is_more = rows[k].form == TEXTS && statement->values.n > 0 && strcmp(statement->where, where) == 0;
    if (is_more)
        return nd_texts_add(&statement->values, value) ? ND_OK : nd_fail_memory(err);
    struct nd_texts values = {0};
    ND_TRY_MEMORY(nd_texts_add(&values, value), err);
    return state(statements, (enum nd_stated_key)k, &values, where, "", err);
}

/* ---- files ---- */

/* Rows of nd_yaml_map for all keys, at offsets of struct nd_texts[ND_N_STATED]; keys has for ND_N_STATED. */
static void statements_keys(struct nd_yaml_key *keys, size_t offset)
{
    for (size_t k = 0; k < ND_N_STATED; k++)
        keys[k] = (struct nd_yaml_key){
            .name = rows[k].name, .type = ND_YAML_TEXTS, .offset = offset + k * sizeof(struct nd_texts)};
}

/* "FILE:LINE:COLUMN" of a key at the top level. */
static char *place_of(struct nd_yaml *yaml, const char *name)
{
    struct nd_strbuf text = {0};
    const yaml_node_t *root = nd_yaml_root(yaml);
    for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top;
         pair++) {
        const yaml_node_t *key = yaml_document_get_node(&yaml->document, pair->key);
        if (key->type == YAML_SCALAR_NODE && strcmp((const char *)key->data.scalar.value, name) == 0)
            nd_strbuf_printf(&text, "%s:%zu:%zu", yaml->file.path, key->start_mark.line + 1,
                             key->start_mark.column + 1);
    }
    return nd_strbuf_take(&text);
}

static enum nd_status state_all(struct nd_statements *statements, struct nd_yaml *yaml, struct nd_texts *values,
                                struct nd_error *err)
{
    ND_FREED char *folder = nd_path_dir(yaml->file.path);
    ND_TRY_MEMORY(folder != NULL, err);
    for (size_t k = 0; k < ND_N_STATED; k++) {
        if (values[k].n == 0)
            continue;
        ND_FREED char *where = place_of(yaml, rows[k].name);
        ND_TRY(where != NULL ? state(statements, (enum nd_stated_key)k, &values[k], where, folder, err)
                             : nd_fail_memory(err));
    }
    return ND_OK;
}

enum nd_status nd_statements_read(struct nd_statements *statements, const char *path, bool is_map,
                                  struct nd_error *err)
{
    struct {
        struct nd_texts values[ND_N_STATED];
        const yaml_node_t *tensors, *inputs;
    } root = {0};
    struct nd_yaml_key keys[ND_N_STATED + 2];
    statements_keys(keys, 0);
    keys[ND_N_STATED] = (struct nd_yaml_key){
        .name = "tensors", .type = ND_YAML_NODE, .offset = (size_t)((char *)&root.tensors - (char *)&root)};
    keys[ND_N_STATED + 1] = (struct nd_yaml_key){
        .name = "inputs", .type = ND_YAML_NODE, .offset = (size_t)((char *)&root.inputs - (char *)&root)};
    const struct nd_yaml_file file = {path, is_map ? "a map" : "a file of facts",
                                      is_map ? ND_E_IMPORT_MAP : ND_E_IMPORT_FACT};
    ND_CLEANUP(nd_yaml_deinit) struct nd_yaml yaml = {0};
    enum nd_status status = nd_yaml_read(&yaml, &file, err);
    if (status == ND_OK)
        status = nd_yaml_map(&yaml, nd_yaml_root(&yaml),
                             &(struct nd_yaml_kind){file.what, keys, ND_N_STATED + 2}, &root, err);
    const yaml_node_t *tensors = root.tensors != NULL ? root.tensors : root.inputs;
    if (status == ND_OK && tensors != NULL && !is_map)
        status = nd_yaml_fail(&yaml, &tensors->start_mark, err,
                              "with a --map beside it a file of facts has no 'tensors' and no 'inputs'");
    if (status == ND_OK)
        status = state_all(statements, &yaml, root.values, err);
    for (size_t k = 0; k < ND_N_STATED; k++)
        nd_texts_deinit(&root.values[k]);
    return status;
}

char *nd_stated_path(const struct nd_statements *statements, enum nd_stated_key key, size_t i)
{
    const struct nd_statement *statement = &statements->of[key];
    return statement->folder[0] != '\0' ? nd_path_join(statement->folder, statement->values.items[i])
                                        : nd_strdup(statement->values.items[i]);
}

/* ---- what contradicts what ---- */

enum nd_status nd_stated_conflict(const struct nd_statements *statements, enum nd_stated_key key,
                                  const char *other, const char *from, struct nd_error *err)
{
    const struct nd_statement *statement = &statements->of[key];
    return nd_fail(err, ND_E_IMPORT_FACT, rows[key].name, "'%s' is '%s' by %s, but %s says '%s'",
                   rows[key].name, statement->values.items[0], statement->where, from, other);
}

static enum nd_status needs(const struct nd_statements *s, enum nd_stated_key key, enum nd_stated_key other,
                            struct nd_error *err)
{
    if (nd_stated(s, key) == NULL || nd_stated(s, other) != NULL)
        return ND_OK;
    return nd_fail(err, ND_E_IMPORT_FACT, rows[key].name, "%s: '%s' needs '%s'", s->of[key].where,
                   rows[key].name, rows[other].name);
}

static enum nd_status excludes(const struct nd_statements *s, enum nd_stated_key key, enum nd_stated_key other,
                               const char *why, struct nd_error *err)
{
    if (nd_stated(s, key) == NULL || nd_stated(s, other) == NULL)
        return ND_OK;
    return nd_fail(err, ND_E_IMPORT_FACT, rows[key].name, "'%s' (%s) and '%s' (%s) are both stated: %s",
                   rows[key].name, s->of[key].where, rows[other].name, s->of[other].where, why);
}

enum nd_status nd_statements_check(const struct nd_statements *s, struct nd_error *err)
{
    static const enum nd_stated_key of_failure[] = {ND_STATED_FAILED_STAGE, ND_STATED_FAILED_OPERATOR,
                                                    ND_STATED_FAILED_NODE, ND_STATED_FAILED_CODE,
                                                    ND_STATED_FAILED_SYMBOL};
    const char *sha256 = nd_stated(s, ND_STATED_MODEL_SHA256);
    ND_TRY(excludes(s, ND_STATED_LATENCY_US, ND_STATED_LATENCY_MS, "they are one fact in two units", err));
    ND_TRY(excludes(s, ND_STATED_REPEATS, ND_STATED_REPEAT_FILES,
                    "the repeats are either in the files or in files of their own", err));
    ND_TRY(needs(s, ND_STATED_REPEAT_ORDER, ND_STATED_REPEATS, err));
    for (size_t i = 0; i < sizeof of_failure / sizeof of_failure[0]; i++)
        ND_TRY(needs(s, of_failure[i], ND_STATED_FAILED, err));
    if (sha256 != NULL && (strlen(sha256) != 64 || sha256[strspn(sha256, "0123456789abcdef")] != '\0'))
        return nd_fail(err, ND_E_IMPORT_FACT, "model_sha256", "%s: '%s' is no SHA-256: 64 digits 0-9 and a-f",
                       s->of[ND_STATED_MODEL_SHA256].where, sha256);
    return ND_OK;
}

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
    if (chipset != NULL && of_files != NULL && strcmp(chipset, of_files) != 0)
        ND_TRY(nd_stated_conflict(&imported->stated, ND_STATED_CHIPSET, imported->chipset, from, err));
    ND_TRY(check(imported, ND_STATED_KIND, imported->kind, from, err));
    ND_TRY(check(imported, ND_STATED_MODEL_SHA256, imported->model_sha256, from, err));
    if (model != NULL)
        ND_TRY(check(imported, ND_STATED_MODEL_SHA256, nd_model_sha256(model), nd_model_path(model), err));
    if (model != NULL) {
        char opset[32];
        snprintf(opset, sizeof opset, "%lld", (long long)nd_model_opset(model));
        ND_TRY(check(imported, ND_STATED_OPSET, opset, nd_model_path(model), err));
    }
    return ND_OK;
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
    ND_TRY(nd_imported_fact(imported, "device", NULL, source_of(imported, ND_STATED_KIND), err));
    ND_TRY(nd_imported_fact(imported, "chipset", NULL, source_of(imported, ND_STATED_CHIPSET), err));
    for (size_t k = 0; k < ND_N_STATED; k++) {
        bool is_elsewhere = k == ND_STATED_KIND || k == ND_STATED_CHIPSET || k == ND_STATED_LABEL ||
                            k == ND_STATED_LABELS || k == ND_STATED_LATENCY_US || k == ND_STATED_LATENCY_MS;
        if (imported->stated.of[k].values.n > 0 && !is_elsewhere)
            ND_TRY(nd_imported_fact(imported, nd_stated_name((enum nd_stated_key)k), NULL,
                                    imported->stated.of[k].where, err));
    }
    return ND_OK;
}

/* ---- attributes ---- */

/* As every capture has it; SOURCE_DATE_EPOCH makes two imports of the same the same. */
static enum nd_status put_time(const struct nd_import_writing *w, struct nd_error *err)
{
    char text[32];
    return nd_utc_now(ND_UTC_TIME, text, sizeof text) ? put_text(w, "", "created", text, err) : ND_OK;
}

/* Where nothing states a label: the first file's name without extension; without a file that of the capture. */
static enum nd_status put_label(const struct nd_import_writing *w, struct nd_error *err)
{
    if (nd_stated(&w->imported->stated, ND_STATED_LABEL) != NULL)
        return ND_OK;
    ND_FREED char *path = nd_strdup(w->options->n_paths > 0 ? w->options->paths[0] : w->options->output);
    size_t n = path != NULL ? strlen(path) : 0;
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    ND_FREED char *base = path != NULL ? nd_strdup(nd_path_base(path)) : NULL;
    char *dot = base != NULL ? strrchr(base, '.') : NULL;
    if (dot != NULL && dot != base)
        *dot = '\0';
    return base != NULL ? put_text(w, "device", "label", base, err) : nd_fail_memory(err);
}

/* The chipset by the name that every capture has for it, and what the table of chipsets knows of it. */
static enum nd_status put_chipset(const struct nd_import_writing *w, struct nd_error *err)
{
    struct nd_import_chipset chipset = {0};
    const char *stated = nd_stated(&w->imported->stated, ND_STATED_CHIPSET);
    const char *name = chipset_name(w->options, stated != NULL ? stated : w->imported->chipset, &chipset);
    ND_TRY(put_text(w, "device", "chipset_source", source_of(w->imported, ND_STATED_CHIPSET), err));
    if (name != NULL)
        ND_TRY(put_text(w, "device", "chipset", name, err));
    if (chipset.sm == NULL)
        return ND_OK;
    ND_TRY(put_number(w, "device", "soc_model", chipset.soc_model, err));
    ND_TRY(put_text(w, "device", "arch", chipset.arch, err));
    return put_text(w, "device", "marketing", chipset.marketing, err);
}

static enum nd_status put_device(const struct nd_import_writing *w, struct nd_error *err)
{
    char uri[64];
    snprintf(uri, sizeof uri, "import:%s", w->options->format);
    const char *simulator = nd_stated(&w->imported->stated, ND_STATED_SIMULATOR);
    ND_TRY(put_text(w, "device", "uri", uri, err));
    ND_TRY(put_label(w, err));
    if (nd_stated(&w->imported->stated, ND_STATED_KIND) == NULL)
        ND_TRY(put_text(w, "device", "kind", w->imported->kind != NULL ? w->imported->kind : "import", err));
    if (simulator != NULL)
        ND_TRY(put_number(w, "device", "is_simulator", is_yes(simulator), err));
    return put_chipset(w, err);
}

/* Facts that are attributes as they stand. */
static enum nd_status put_stated(const struct nd_import_writing *w, struct nd_error *err)
{
    for (size_t k = 0; k < ND_N_STATED; k++) {
        const char *group, *attribute, *value = nd_stated(&w->imported->stated, (enum nd_stated_key)k);
        bool is_number;
        int64_t number = 0;
        if (value == NULL || !nd_stated_attribute((enum nd_stated_key)k, &group, &attribute, &is_number))
            continue;
        if (is_number && nd_parse_i64(value, &number))
            ND_TRY(put_number(w, group, attribute, number, err));
        else
            ND_TRY(put_text(w, group, attribute, value, err));
    }
    return ND_OK;
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
    if (file != NULL)
        ND_TRY(put_text(w, "model", "file", file, err));
    if (sha256 != NULL)
        ND_TRY(put_text(w, "model", "sha256", sha256, err));
    return opset > 0 ? put_number(w, "model", "opset", opset, err) : ND_OK;
}

/* Which files, and where each fact is from. */
static enum nd_status put_import(const struct nd_import_writing *w, struct nd_error *err)
{
    ND_TRY(put_text(w, "import", "format", w->options->format, err));
    for (size_t i = 0; i < w->options->n_paths; i++) {
        char key[48], hex[ND_SHA256_HEX_BYTES];
        struct stat info;
        const char *path = w->options->paths[i];
        snprintf(key, sizeof key, "path_%03zu", i);
        ND_TRY(put_text(w, "import", key, path, err));
        if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        snprintf(key, sizeof key, "path_%03zu_sha256", i);
        ND_TRY(nd_sha256_file(path, hex, err));
        ND_TRY(put_text(w, "import", key, hex, err));
    }
    for (size_t i = 0; i < w->result->n_facts; i++)
        ND_TRY(put_text(w, "import", w->result->facts[i].kind, w->result->facts[i].source, err));
    return ND_OK;
}

/* What a failed device left: as `npudiff capture` says it. The facts are written by put_stated. */
static enum nd_status put_failure(const struct nd_import_writing *w, struct nd_error *err)
{
    if (!w->imported->is_failed)
        return ND_OK;
    ND_TRY(put_number(w, "failure", "code", ND_E_DEVICE_COMMAND, err));
    if (nd_stated(&w->imported->stated, ND_STATED_FAILED_STAGE) == NULL)
        ND_TRY(put_text(w, "failure", "stage", "run", err));
    if (nd_stated(&w->imported->stated, ND_STATED_FAILED) == NULL)
        ND_TRY(put_text(w, "failure", "message", w->imported->cut_short, err));
    return put_text(w, "failure", "object", w->options->n_paths > 0 ? w->options->paths[0] : "", err);
}

enum nd_status nd_import_put_attributes(const struct nd_import_writing *w, struct nd_error *err)
{
    ND_TRY(put_time(w, err));
    ND_TRY(put_device(w, err));
    ND_TRY(put_stated(w, err));
    ND_TRY(put_model(w, err));
    ND_TRY(put_import(w, err));
    return put_failure(w, err);
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* An item as the file has it. */
struct raw_item {
    char *name, *tensor, *layout, *dtype, *convention, *qvalues, *holds, *op_types, *node, *provider;
    struct nd_texts scale, zero_point, offset;
    double axis, batch_axis;
    size_t n_samples;
    bool is_skipped;
};

static void raw_item_deinit(struct raw_item *raw)
{
    ND_FREE_ALL(raw->name, raw->tensor, raw->layout, raw->dtype, raw->convention, raw->qvalues, raw->holds,
                raw->op_types, raw->node, raw->provider);
    nd_texts_deinit(&raw->scale);
    nd_texts_deinit(&raw->zero_point);
    nd_texts_deinit(&raw->offset);
}

static void item_deinit(struct nd_map_item *item)
{
    ND_FREE_ALL(item->name, item->tensor);
    nd_quant_deinit(&item->quant);
    ND_FREE_ALL(item->op_types, item->node, item->provider, item->where);
    *item = (struct nd_map_item){0};
}

void nd_map_deinit(struct nd_map *map)
{
    for (size_t s = 0; s < 2; s++) {
        ND_DEINIT_EACH(item_deinit, map->sides[s].items, map->sides[s].n);
    }
    *map = (struct nd_map){0};
}

struct nd_map_item *nd_map_find(const struct nd_map *map, enum nd_imported_side side, const char *name)
{
    const struct nd_map_list *list = &map->sides[side];
    return nd_find_text(list->items, list->n, sizeof *list->items, name);
}

/* ---- one item ---- */

static enum nd_status read_layout(struct nd_yaml *yaml, const yaml_node_t *node, const char *word,
                                  struct nd_map_item *item, struct nd_error *err)
{
    static const struct {
        const char *word;
        int rank;
        bool is_channel_last;
    } layouts[] = {{"NCW", 3, false}, {"NCHW", 4, false}, {"NCDHW", 5, false},
                   {"NWC", 3, true},  {"NHWC", 4, true},  {"NDHWC", 5, true}};
    for (size_t i = 0; i < COUNT(layouts); i++)
        if (strcmp(layouts[i].word, word) == 0) {
            item->layout_rank = layouts[i].rank;
            item->is_channel_last = layouts[i].is_channel_last;
            return ND_OK;
        }
    return nd_yaml_fail(yaml, &node->start_mark, err,
                        "there is no layout '%s'; there are NCW, NCHW, NCDHW, NWC, NHWC and NDHWC", word);
}

static enum nd_status read_scale(struct nd_yaml *yaml, const yaml_node_t *node, const char *text, float *out,
                                 struct nd_error *err)
{
    double value = 0;
    if (!nd_parse_double(text, &value) || !isfinite((float)value) || !((float)value > 0))
        return nd_yaml_fail(yaml, &node->start_mark, err, "'%s' is no scale: it is a number above 0", text);
    *out = (float)value;
    return ND_OK;
}

/* Which key holds the zero points, and whether their sign is QNN's: real = scale (quantised value + offset). */
static enum nd_status choose_convention(struct nd_yaml *yaml, const yaml_node_t *node,
                                        const struct raw_item *raw, bool *is_qnn, struct nd_error *err)
{
    *is_qnn = raw->convention != NULL && strcmp(raw->convention, "qnn") == 0;
    if (raw->convention != NULL && !*is_qnn && strcmp(raw->convention, "onnx") != 0)
        return nd_yaml_fail(yaml, &node->start_mark, err, "'convention' is onnx or qnn, not '%s'",
                            raw->convention);
    if (!*is_qnn && raw->offset.n > 0)
        return nd_yaml_fail(yaml, &node->start_mark, err,
                            "'offset' needs 'convention: qnn' (real = scale * (quantised value + offset)); "
                            "with 'convention: onnx' give 'zero_point'");
    if (*is_qnn && raw->zero_point.n > 0)
        return nd_yaml_fail(
            yaml, &node->start_mark, err,
            "'zero_point' contradicts 'convention: qnn', where real = scale * (quantised value + offset)");
    if (raw->scale.n == 0 && (raw->offset.n > 0 || raw->zero_point.n > 0 || raw->convention != NULL))
        return nd_yaml_fail(yaml, &node->start_mark, err, "tensor '%s' needs a 'scale'", raw->name);
    return ND_OK;
}

static enum nd_status read_quant(struct nd_yaml *yaml, const yaml_node_t *node, const struct raw_item *raw,
                                 struct nd_map_item *item, struct nd_error *err)
{
    bool is_qnn = false;
    ND_TRY(choose_convention(yaml, node, raw, &is_qnn, err));
    const struct nd_texts *zeros = is_qnn ? &raw->offset : &raw->zero_point;
    size_t n = raw->scale.n;
    if (n == 0)
        return ND_OK;
    if (zeros->n != 1 && zeros->n != n)
        return nd_yaml_fail(yaml, &node->start_mark, err,
                            "tensor '%s' has %zu scales, but %zu of '%s'; one each or one for all", raw->name,
                            n, zeros->n, is_qnn ? "offset" : "zero_point");
    if ((n > 1) != (raw->axis >= 0))
        return nd_yaml_fail(yaml, &node->start_mark, err, "tensor '%s' has %zu scale%s and %s 'axis'",
                            raw->name, n, n > 1 ? "s" : "", n > 1 ? "needs an" : "therefore no");
    item->quant.scale = nd_calloc(n, sizeof *item->quant.scale);
    item->quant.zero_point = nd_calloc(n, sizeof *item->quant.zero_point);
    ND_TRY_MEMORY(item->quant.scale != NULL && item->quant.zero_point != NULL, err);
    item->quant.n = n;
    item->quant.axis = n > 1 ? (int)raw->axis : -1;
    for (size_t i = 0; i < n; i++) {
        const char *text = zeros->items[zeros->n == 1 ? 0 : i];
        int64_t zero = 0;
        ND_TRY(read_scale(yaml, node, raw->scale.items[i], &item->quant.scale[i], err));
        if (!nd_parse_i64(text, &zero) || zero < -INT64_C(4294967296) || zero > INT64_C(4294967296))
            return nd_yaml_fail(yaml, &node->start_mark, err, "'%s' is no whole number of at most 33 bits",
                                text);
        item->quant.zero_point[i] = is_qnn ? -zero : zero;
    }
    return ND_OK;
}

static enum nd_status read_type(struct nd_yaml *yaml, const yaml_node_t *node, const char *name,
                                enum nd_dtype *out, struct nd_error *err)
{
    if (name == NULL)
        return ND_OK;
    *out = nd_dtype_from_name(name);
    return *out != ND_DTYPE_NONE ? ND_OK
                                 : nd_yaml_fail(yaml, &node->start_mark, err, "there is no type '%s'", name);
}

/* Where the samples are, and whether the values are reals or quantised values. */
static enum nd_status read_values(struct nd_yaml *yaml, const yaml_node_t *node, const struct raw_item *raw,
                                  struct nd_map_item *item, struct nd_error *err)
{
    bool is_qvalues = raw->holds != NULL && strcmp(raw->holds, "codes") == 0;
    if (raw->holds != NULL && !is_qvalues && strcmp(raw->holds, "reals") != 0)
        return nd_yaml_fail(yaml, &node->start_mark, err, "'holds' is reals or quantised values, not '%s'",
                            raw->holds);
    if (raw->batch_axis >= 0 && raw->batch_axis != floor(raw->batch_axis))
        return nd_yaml_fail(yaml, &node->start_mark, err, "'batch_axis' is a whole number");
    if (raw->batch_axis >= 0 && raw->n_samples > 0)
        return nd_yaml_fail(yaml, &node->start_mark, err,
                            "'batch_axis' says that a dimension is the samples, 'samples' that the first "
                            "dimension holds more than them; give one");
    item->holds_qvalues = is_qvalues;
    item->batch_axis = raw->batch_axis >= 0 ? (int)raw->batch_axis : -1;
    item->n_samples = raw->n_samples;
    return ND_OK;
}

static enum nd_status take_raw(struct nd_yaml *yaml, const yaml_node_t *node, struct raw_item *raw,
                               struct nd_map_item *item, struct nd_error *err)
{
    item->name = raw->name;
    item->tensor = raw->tensor;
    item->op_types = raw->op_types;
    item->node = raw->node;
    item->provider = raw->provider;
    raw->name = raw->tensor = raw->op_types = raw->node = raw->provider = NULL;
    item->is_skipped = raw->is_skipped;
    if (raw->layout != NULL)
        ND_TRY(read_layout(yaml, node, raw->layout, item, err));
    ND_TRY(read_type(yaml, node, raw->dtype, &item->dtype, err));
    ND_TRY(read_type(yaml, node, raw->qvalues, &item->qvalues, err));
    ND_TRY(read_values(yaml, node, raw, item, err));
    struct nd_strbuf where = {0};
    nd_strbuf_printf(&where, "%s:%zu:%zu", yaml->file.path, node->start_mark.line + 1,
                     node->start_mark.column + 1);
    item->where = nd_strbuf_take(&where);
    return item->where == NULL ? nd_fail_memory(err) : ND_OK;
}

static enum nd_status read_item(struct nd_yaml *yaml, const yaml_node_t *node, struct nd_map_item *item,
                                struct nd_error *err)
{
    static const struct nd_yaml_key keys[] = {
        {"name", ND_YAML_TEXT, offsetof(struct raw_item, name), 0, 0, true},
        {"edge", ND_YAML_TEXT, offsetof(struct raw_item, tensor), 0, 0, false},
        {"layout", ND_YAML_TEXT, offsetof(struct raw_item, layout), 0, 0, false},
        {"dtype", ND_YAML_TEXT, offsetof(struct raw_item, dtype), 0, 0, false},
        {"scale", ND_YAML_TEXTS, offsetof(struct raw_item, scale), 0, 0, false},
        {"zero_point", ND_YAML_TEXTS, offsetof(struct raw_item, zero_point), 0, 0, false},
        {"offset", ND_YAML_TEXTS, offsetof(struct raw_item, offset), 0, 0, false},
        {"axis", ND_YAML_REAL, offsetof(struct raw_item, axis), 0, ND_MAX_RANK - 1, false},
        {"convention", ND_YAML_TEXT, offsetof(struct raw_item, convention), 0, 0, false},
        {"codes", ND_YAML_TEXT, offsetof(struct raw_item, qvalues), 0, 0, false},
        {"holds", ND_YAML_TEXT, offsetof(struct raw_item, holds), 0, 0, false},
        {"batch_axis", ND_YAML_REAL, offsetof(struct raw_item, batch_axis), 0, ND_MAX_RANK, false},
        {"samples", ND_YAML_COUNT, offsetof(struct raw_item, n_samples), 1, 1000000, false},
        {"op_types", ND_YAML_TEXT, offsetof(struct raw_item, op_types), 0, 0, false},
        {"node", ND_YAML_TEXT, offsetof(struct raw_item, node), 0, 0, false},
        {"provider", ND_YAML_TEXT, offsetof(struct raw_item, provider), 0, 0, false},
        {"skip", ND_YAML_FLAG, offsetof(struct raw_item, is_skipped), 0, 0, false},
    };
    ND_CLEANUP(raw_item_deinit) struct raw_item raw = {.axis = -1, .batch_axis = -1};
    ND_TRY(nd_yaml_map(yaml, node, &(struct nd_yaml_kind){"a tensor of a map", keys, COUNT(keys)}, &raw, err));
    if (raw.axis >= 0 && raw.axis != floor(raw.axis))
        return nd_yaml_fail(yaml, &node->start_mark, err, "'axis' is a whole number");
    ND_TRY(read_quant(yaml, node, &raw, item, err));
    return take_raw(yaml, node, &raw, item, err);
}

/* ---- the file ---- */

/* Each tensor and each tensor once. */
static enum nd_status check_unique(const struct nd_map_list *list, const struct nd_map_item *item,
                                   struct nd_error *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct nd_map_item *other = &list->items[i];
        bool is_same_name = strcmp(other->name, item->name) == 0;
        if (is_same_name ||
            (other->tensor != NULL && item->tensor != NULL && strcmp(other->tensor, item->tensor) == 0))
            return nd_fail(err, ND_E_IMPORT_MAP, item->name, "%s: %s '%s' is mapped already by %s", item->where,
                           is_same_name ? "tensor" : "edge", is_same_name ? item->name : item->tensor,
                           other->where);
    }
    return ND_OK;
}

static enum nd_status add_item(struct nd_map_list *list, struct nd_map_item *item, struct nd_error *err)
{
    enum nd_status status = check_unique(list, item, err);
    if (status == ND_OK && !nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items))
        status = nd_fail_memory(err);
    if (status != ND_OK) {
        item_deinit(item);
        return status;
    }
    list->items[list->n++] = *item;
    return ND_OK;
}

static enum nd_status read_list(struct nd_yaml *yaml, const yaml_node_t *node, const char *what,
                                struct nd_map_list *list, struct nd_error *err)
{
    size_t n = 0;
    enum nd_status status = node != NULL ? nd_yaml_list(yaml, node, what, &n, err) : ND_OK;
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        struct nd_map_item item = {.batch_axis = -1};
        status = read_item(yaml, nd_yaml_item(yaml, node, i), &item, err);
        if (status == ND_OK)
            status = add_item(list, &item, err);
        else
            item_deinit(&item);
    }
    return status;
}

static enum nd_status read_file(const char *path, struct nd_map *map, struct nd_error *err)
{
    struct {
        const yaml_node_t *tensors, *inputs;
        struct nd_texts facts[ND_N_STATED]; /* taken by nd_statements_read */
    } root = {0};
    struct nd_yaml_key keys[ND_N_STATED + 2] = {{"tensors", ND_YAML_NODE, 0, 0, 0, false},
                                                {"inputs", ND_YAML_NODE, sizeof(void *), 0, 0, false}};
    statements_keys(keys + 2, (size_t)((char *)root.facts - (char *)&root));
    const struct nd_yaml_file file = {path, "a map", ND_E_IMPORT_MAP};
    ND_CLEANUP(nd_yaml_deinit) struct nd_yaml yaml = {0};
    enum nd_status status = nd_yaml_read(&yaml, &file, err);
    if (status == ND_OK)
        status = nd_yaml_map(&yaml, nd_yaml_root(&yaml), &(struct nd_yaml_kind){"a map", keys, COUNT(keys)},
                             &root, err);
    if (status == ND_OK)
        status = read_list(&yaml, root.tensors, "tensors", &map->sides[ND_IMPORTED_OUTPUT], err);
    if (status == ND_OK)
        status = read_list(&yaml, root.inputs, "inputs", &map->sides[ND_IMPORTED_INPUT], err);
    for (size_t k = 0; k < ND_N_STATED; k++)
        nd_texts_deinit(&root.facts[k]);
    return status;
}

/* NAME=EDGE, split at the last '='. It completes an item of the file that names no tensor. */
static enum nd_status add_short_form(struct nd_map *map, const char *text, struct nd_error *err)
{
    const char *equals = strrchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == '\0')
        return nd_fail(err, ND_E_IMPORT_MAP, text, "--map takes a YAML file or TENSOR=EDGE, not '%s'", text);
    struct nd_strbuf where = {0};
    nd_strbuf_printf(&where, "--map %s", text);
    struct nd_map_item made = {.name = strndup(text, (size_t)(equals - text)),
                               .tensor = nd_strdup(equals + 1),
                               .batch_axis = -1,
                               .where = nd_strbuf_take(&where)};
    if (made.name == NULL || made.tensor == NULL || made.where == NULL) {
        item_deinit(&made);
        return nd_fail_memory(err);
    }
    struct nd_map_item *item = nd_map_find(map, ND_IMPORTED_OUTPUT, made.name);
    if (item == NULL || item->tensor != NULL)
        return add_item(&map->sides[ND_IMPORTED_OUTPUT], &made, err);
    item->tensor = made.tensor;
    made.tensor = NULL;
    item_deinit(&made);
    return ND_OK;
}

enum nd_status nd_map_read(const char *path, const char *const *short_forms, size_t n_short_forms,
                           struct nd_map *out, struct nd_error *err)
{
    ND_CLEANUP(nd_map_deinit) struct nd_map map = {0};
    ND_TRY(path != NULL ? read_file(path, &map, err) : ND_OK);
    for (size_t i = 0; i < n_short_forms; i++)
        ND_TRY(add_short_form(&map, short_forms[i], err));
    return ND_GIVE(out, map);
}
