/* Lists of numbers that a fact states: labels and latencies. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/files/suffix.h"
#include "record/import/grid.h"
#include "record/import/npy_array.h"
#include "npudiff/core/parse.h"
#include "record/probes/user.h"

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
    if (numbers == NULL)
        return nd_fail_memory(err);
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
    struct nd_source source = {0};
    struct nd_imported imported = {0};
    enum nd_status status = nd_source_open(&source, path, err);
    if (status == ND_OK)
        status = nd_npy_add(&imported, ND_IMPORTED_OUTPUT, "numbers", ND_IMPORTED_ARRAY, &source, err);
    nd_source_close(&source);
    if (status == ND_OK) {
        const struct nd_imported_tensor *t = &imported.sides[ND_IMPORTED_OUTPUT].items[0];
        *n = t->sample_bytes / nd_dtype_size_bytes(t->dtype);
        *out = nd_calloc(*n, sizeof **out);
        if (*out == NULL)
            status = nd_fail_memory(err);
        for (size_t i = 0; status == ND_OK && i < *n; i++)
            (*out)[i] = nd_grid_value(t->dtype, t->data, i);
    }
    nd_imported_deinit(&imported);
    return status;
}

/* Numbers with blanks, commas or new lines between them. */
static enum nd_status read_text(const char *path, double **out, size_t *n_out, struct nd_error *err)
{
    static const char blanks[] = " \t\r\n,;";
    void *text = NULL;
    double *numbers = NULL;
    size_t n_bytes = 0, n = 0, capacity = 0;
    char *rest = NULL;
    enum nd_status status = nd_file_read(path, MAX_TEXT_BYTES, &text, &n_bytes, err);
    if (status == ND_OK && strlen(text) != n_bytes)
        status = nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' is no text: it has a zero byte", path);
    for (char *word = status == ND_OK ? strtok_r(text, blanks, &rest) : NULL; status == ND_OK && word != NULL;
         word = strtok_r(NULL, blanks, &rest)) {
        if (!nd_grow((void **)&numbers, &capacity, n + 1, sizeof *numbers))
            status = nd_fail_memory(err);
        else if (!read_number(word, &numbers[n++]))
            status = nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s': '%.40s' is no number", path, word);
    }
    free(text);
    if (status != ND_OK) {
        free(numbers);
        return status;
    }
    *out = numbers;
    *n_out = n;
    return ND_OK;
}

enum nd_status nd_stated_numbers(const struct nd_statements *statements, enum nd_stated_key key, double **out,
                                 size_t *n, struct nd_error *err)
{
    double number;
    const struct nd_statement *statement = &statements->of[key];
    *out = NULL;
    *n = 0;
    if (statement->values.n == 0)
        return ND_OK;
    if (statement->values.n > 1 || read_number(statement->values.items[0], &number))
        return read_list(statement, nd_stated_name(key), out, n, err);
    char *path = nd_stated_path(statements, key, 0);
    if (path == NULL)
        return nd_fail_memory(err);
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
    free(path);
    return status;
}
