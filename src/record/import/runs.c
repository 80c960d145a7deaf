/* Lists of numbers that a fact states: labels and latencies. */
#include "record/import/imported.h"

#include <math.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "npudiff/core/parse.h"
#include "record/import/match_tensor.h"

enum { MAX_TEXT_BYTES = 256 << 20 };

/* "12.5"; null and nan are NaN: not known. */
static bool read_number(const char *text, double *out)
{
    static const char *const unknown[] = {"null", "~", "nan", "NaN"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        if (strcmp(text, unknown[i]) == 0) {
            *out = NAN;
            return true;
        }
    return nd_parse_double(text, out);
}

static enum nd_status read_list(const struct nd_statement *statement, const char *name, double **out, size_t *n,
                                struct nd_error *err)
{
    double *numbers = nd_calloc(statement->values.n, sizeof *numbers);
    ND_TRY_MEMORY(numbers != NULL, err);
    for (size_t i = 0; i < statement->values.n; i++)
        if (!read_number(statement->values.items[i], &numbers[i])) {
            free(numbers);
            return nd_fail(err, ND_E_IMPORT_FACT, name, "%s: '%s' of '%s' is no number", statement->where,
                           statement->values.items[i], name);
        }
    *out = numbers;
    *n = statement->values.n;
    return ND_OK;
}

static enum nd_status read_npy(const char *path, double **out, size_t *n, struct nd_error *err)
{
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    ND_CLEANUP(nd_imported_deinit) struct nd_imported imported = {0};
    ND_TRY(nd_source_open(&source, path, err));
    ND_TRY(nd_npy_add(&imported, ND_IMPORTED_OUTPUT, "numbers", ND_IMPORTED_ARRAY, &source, err));
    const struct nd_imported_tensor *t = &imported.sides[ND_IMPORTED_OUTPUT].items[0];
    *n = t->sample_bytes / nd_dtype_size_bytes(t->dtype);
    *out = nd_calloc(*n, sizeof **out);
    ND_TRY_MEMORY(*out != NULL, err);
    for (size_t i = 0; i < *n; i++)
        (*out)[i] = nd_grid_value(t->dtype, t->data, i);
    return ND_OK;
}

/* Numbers with blanks, commas or new lines between them. */
static enum nd_status read_text(const char *path, double **out, size_t *n_out, struct nd_error *err)
{
    static const char blanks[] = " \t\r\n,;";
    ND_FREED void *text = NULL;
    ND_FREED double *numbers = NULL;
    size_t n_bytes = 0, n = 0, capacity = 0;
    char *rest = NULL;
    ND_TRY(nd_file_read(path, MAX_TEXT_BYTES, &text, &n_bytes, err));
    if (strlen(text) != n_bytes)
        return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' is no text: it has a zero byte", path);
    for (char *word = strtok_r(text, blanks, &rest); word != NULL; word = strtok_r(NULL, blanks, &rest)) {
        ND_TRY_MEMORY(nd_grow((void **)&numbers, &capacity, n + 1, sizeof *numbers), err);
        if (!read_number(word, &numbers[n++]))
            return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s': '%.40s' is no number", path, word);
    }
    *n_out = n;
    return ND_GIVE(out, numbers);
}

/* Numbers that a fact states: a list of them, or the one file (.npy, or text) that holds them. null and nan are
 * NaN. *out is NULL, *n 0 when the fact is not stated. The caller frees *out. ND_E_IMPORT_FACT, or what reading
 * says. */
static enum nd_status nd_stated_numbers(const struct nd_statements *statements, enum nd_stated_key key,
                                        double **out, size_t *n, struct nd_error *err)
{
    double number;
    const struct nd_statement *statement = &statements->of[key];
    *out = NULL;
    *n = 0;
    if (statement->values.n == 0)
        return ND_OK;
    if (statement->values.n > 1 || read_number(statement->values.items[0], &number))
        return read_list(statement, nd_stated_name(key), out, n, err);
    ND_FREED char *path = nd_stated_path(statements, key, 0);
    ND_TRY_MEMORY(path != NULL, err);
    double *numbers = NULL;
    enum nd_status status =
        nd_ends_with(path, ".npy") ? read_npy(path, &numbers, n, err) : read_text(path, &numbers, n, err);
    if (status != ND_OK) {
        nd_error_context(err, "%s, '%s'", statement->where, nd_stated_name(key));
        free(numbers);
        *n = 0;
    } else {
        *out = numbers;
    }
    return status;
}

/* ---- further runs ---- */

static enum nd_status check_alike(const struct nd_imported_tensor *a, const struct nd_imported_tensor *b,
                                  size_t number, struct nd_error *err)
{
    char found[128], expected[128];
    if (a->dtype == b->dtype && a->n_samples == b->n_samples && nd_shape_equal(&a->shape, &b->shape))
        return ND_OK;
    return nd_fail(err, ND_E_IMPORT_MISMATCH, a->name,
                   "%s is %zu samples of %s %s, but in repeat %zu it is %zu of %s %s (%s)", a->where,
                   a->n_samples, nd_dtype_name(a->dtype), nd_shape_format(&a->shape, expected, sizeof expected),
                   number, b->n_samples, nd_dtype_name(b->dtype),
                   nd_shape_format(&b->shape, found, sizeof found), b->where);
}

static enum nd_status append_samples(struct nd_imported_tensor *to, size_t n_run,
                                     const struct nd_imported_tensor *from, struct nd_error *err)
{
    size_t n_old = 0, n_new = 0, n_all = 0;
    bool fits = nd_size_mul(to->n_samples, to->sample_bytes, &n_old) &&
                nd_size_mul(n_run, from->sample_bytes, &n_new) && nd_size_add(n_old, n_new, &n_all);
    void *grown = fits ? nd_tensor_alloc(n_all) : NULL;
    ND_TRY_MEMORY(grown != NULL, err);
    if (n_old > 0)
        memcpy(grown, to->data, n_old);
    if (n_new > 0)
        memcpy((char *)grown + n_old, from->data, n_new);
    free(to->data);
    to->data = grown;
    to->capacity_bytes = n_all;
    to->n_samples += n_run;
    return ND_OK;
}

static enum nd_status append_outputs(struct nd_imported *imported, const struct nd_imported *repeat,
                                     size_t number, struct nd_error *err)
{
    struct nd_imported_list *list = &imported->sides[ND_IMPORTED_OUTPUT];
    for (size_t i = 0; i < list->n; i++) {
        struct nd_imported_tensor *to = &list->items[i];
        const struct nd_imported_tensor *from = nd_imported_find(repeat, ND_IMPORTED_OUTPUT, to->name);
        struct nd_imported_tensor first = *to; /* of the first run */
        first.n_samples /= number;
        if (from == NULL)
            return nd_fail(err, ND_E_IMPORT_MISMATCH, to->name, "repeat %zu has no tensor '%s', which %s is",
                           number, to->name, to->where);
        ND_TRY(check_alike(&first, from, number, err));
        ND_TRY(append_samples(to, from->n_samples, from, err));
    }
    if (repeat->sides[ND_IMPORTED_OUTPUT].n != list->n)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, NULL, "repeat %zu has %zu tensors, the first run %zu", number,
                       repeat->sides[ND_IMPORTED_OUTPUT].n, list->n);
    return ND_OK;
}

/* A run that was fed otherwise is no repeat. */
static enum nd_status check_inputs(const struct nd_imported *imported, const struct nd_imported *repeat,
                                   size_t number, struct nd_error *err)
{
    const struct nd_imported_list *list = &repeat->sides[ND_IMPORTED_INPUT];
    for (size_t i = 0; i < list->n; i++) {
        const struct nd_imported_tensor *b = &list->items[i];
        const struct nd_imported_tensor *a = nd_imported_find(imported, ND_IMPORTED_INPUT, b->name);
        if (a == NULL)
            continue;
        ND_TRY(check_alike(a, b, number, err));
        if (a->n_samples * a->sample_bytes > 0 && memcmp(a->data, b->data, a->n_samples * a->sample_bytes) != 0)
            return nd_fail(err, ND_E_IMPORT_MISMATCH, a->name, "%s was fed otherwise in repeat %zu (%s)",
                           a->where, number, b->where);
    }
    return ND_OK;
}

enum nd_status nd_runs_append(struct nd_imported *imported, const struct nd_imported *repeat, size_t number,
                              struct nd_error *err)
{
    ND_TRY(append_outputs(imported, repeat, number, err));
    ND_TRY(check_inputs(imported, repeat, number, err));
    for (size_t i = 0; i < repeat->n_latencies; i++)
        ND_TRY(nd_imported_latency(imported, repeat->latency_us[i], err));
    imported->n_repeats = number + 1;
    return ND_OK;
}

/* ---- labels and latencies ---- */

/* Classes count from 0. */
static enum nd_status take_labels(struct nd_imported *imported, const double *numbers, size_t n,
                                  struct nd_error *err)
{
    const char *where = imported->stated.of[ND_STATED_LABELS].where;
    ND_FREED int64_t *labels = nd_calloc(n, sizeof *labels);
    ND_TRY_MEMORY(labels != NULL, err);
    for (size_t i = 0; i < n; i++) {
        bool is_class = numbers[i] >= 0 && numbers[i] < 0x1p53 && numbers[i] == floor(numbers[i]);
        labels[i] = is_class ? (int64_t)numbers[i] : -1;
        bool is_other = imported->labels != NULL && i < imported->n_labels && imported->labels[i] != labels[i];
        if (is_class && !is_other)
            continue;
        return is_class ? nd_fail(err, ND_E_IMPORT_FACT, "labels",
                                  "label %zu is %lld by %s, but %lld by what was fed (--inputs)", i,
                                  (long long)labels[i], where, (long long)imported->labels[i])
                        : nd_fail(err, ND_E_IMPORT_FACT, "labels",
                                  "%s: label %zu is %g, which is no class from 0 on", where, i, numbers[i]);
    }
    free(imported->labels);
    (void)ND_GIVE(&imported->labels, labels);
    imported->n_labels = n;
    return nd_imported_fact(imported, "labels", NULL, where, err);
}

static enum nd_status find_labels(struct nd_imported *imported, size_t n_expected, struct nd_error *err)
{
    ND_FREED double *numbers = NULL;
    size_t n = 0;
    ND_TRY(nd_stated_numbers(&imported->stated, ND_STATED_LABELS, &numbers, &n, err));
    if (numbers != NULL && imported->n_parts > 0)
        return nd_fail(err, ND_E_IMPORT_FACT, "labels", "%s: a prepared folder has its labels in npudiff.json",
                       imported->stated.of[ND_STATED_LABELS].where);
    if (numbers != NULL)
        ND_TRY(take_labels(imported, numbers, n, err));
    if (imported->labels != NULL && imported->n_labels != n_expected)
        return nd_fail(err, ND_E_IMPORT_MISMATCH, "labels", "there are %zu labels for %zu samples",
                       imported->n_labels, n_expected);
    return ND_OK;
}

static enum nd_status take_latencies(struct nd_imported *imported, enum nd_stated_key key, double *numbers,
                                     size_t n, struct nd_error *err)
{
    const char *where = imported->stated.of[key].where;
    for (size_t i = 0; i < n; i++) {
        if (!isnan(numbers[i]) && !(numbers[i] > 0 && isfinite(numbers[i])))
            return nd_fail(err, ND_E_IMPORT_FACT, nd_stated_name(key),
                           "%s: latency %zu is %g, which is no time", where, i, numbers[i]);
        numbers[i] *= key == ND_STATED_LATENCY_MS ? 1000 : 1;
    }
    if (imported->latency_us != NULL)
        return nd_fail(err, ND_E_IMPORT_FACT, nd_stated_name(key),
                       "%s states latencies, but the files state them themselves (the first is %g us)", where,
                       imported->latency_us[0]);
    for (size_t i = 0; i < n; i++)
        ND_TRY(nd_imported_latency(imported, numbers[i], err));
    return nd_imported_fact(imported, "latencies", NULL, where, err);
}

/* As the files have them, run by run, to [samples][repeats]. What facts state is in that order already. */
static enum nd_status turn_latencies(struct nd_imported *imported, size_t n_samples, size_t n_repeats,
                                     struct nd_error *err)
{
    double *turned = nd_calloc(n_samples * n_repeats, sizeof *turned);
    ND_TRY_MEMORY(turned != NULL, err);
    for (size_t s = 0; s < n_samples; s++)
        for (size_t r = 0; r < n_repeats; r++)
            turned[s * n_repeats + r] = imported->latency_us[r * n_samples + s];
    free(imported->latency_us);
    imported->latency_us = turned;
    return ND_OK;
}

static enum nd_status find_latencies(struct nd_imported *imported, size_t n_samples, struct nd_error *err)
{
    static const enum nd_stated_key keys[] = {ND_STATED_LATENCY_US, ND_STATED_LATENCY_MS};
    size_t n_repeats = imported->n_repeats > 0 ? imported->n_repeats : 1;
    const char *order = nd_stated(&imported->stated, ND_STATED_REPEAT_ORDER);
    bool is_of_files = imported->latency_us != NULL;
    for (size_t k = 0; k < 2; k++) {
        ND_FREED double *numbers = NULL;
        size_t n = 0;
        ND_TRY(nd_stated_numbers(&imported->stated, keys[k], &numbers, &n, err));
        if (numbers != NULL)
            ND_TRY(take_latencies(imported, keys[k], numbers, n, err));
    }
    if (imported->latency_us == NULL)
        return ND_OK;
    if (imported->n_latencies != n_samples * n_repeats)
        return nd_fail(err, ND_E_IMPORT_FACT, "latencies",
                       "there are %zu latencies for %zu samples of %zu repeats", imported->n_latencies,
                       n_samples, n_repeats);
    bool is_by_run = is_of_files && !(order != NULL && strcmp(order, "sample-by-sample") == 0);
    return is_by_run && n_repeats > 1 ? turn_latencies(imported, n_samples, n_repeats, err) : ND_OK;
}

enum nd_status nd_runs_facts(struct nd_imported *imported, size_t n_samples, size_t n_expected,
                             struct nd_error *err)
{
    enum nd_status status = find_labels(imported, n_expected, err);
    return status == ND_OK ? find_latencies(imported, n_samples, err) : status;
}
