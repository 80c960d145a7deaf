/* Parts of a datasheet, each with some of its sections, become the datasheet. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "lab/fingerprint/sheet.h"

struct merge {
    json_t **sheets;    /* [n] by part */
    const char **names; /* [n] of their files */
    size_t n;
};

static json_int_t integer_of(const json_t *sheet, const char *key)
{
    const json_t *value = json_object_get(sheet, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* Takes over the sheet. */
static enum nd_status place(struct merge *merge, const char *name, json_t *sheet, struct nd_error *err)
{
    json_int_t part = integer_of(sheet, "part"), n = integer_of(sheet, "parts");
    enum nd_status status = ND_OK;
    if (part < 0 || n < 1 || part >= n)
        status = nd_fail(err, ND_E_RESULT_FORMAT, name, "'%s' is no part of a datasheet", name);
    else if ((size_t)n != merge->n)
        status = nd_fail(err, ND_E_RESULT_FORMAT, name, "'%s' is part %lld of %lld, and %zu files were given",
                         name, (long long)part + 1, (long long)n, merge->n);
    else if (merge->sheets[part] != NULL)
        status = nd_fail(err, ND_E_RESULT_FORMAT, name, "'%s' and '%s' are the same part: %lld of %lld",
                         merge->names[part], name, (long long)part + 1, (long long)n);
    if (status != ND_OK) {
        json_decref(sheet);
        return status;
    }
    merge->sheets[part] = sheet;
    merge->names[part] = name;
    return ND_OK;
}

/* What has to be alike in all parts. */
static enum nd_status check_alike(const struct merge *merge, struct nd_error *err)
{
    static const char *const members[] = {"npudiff", "npudiff_datasheet", "device"};
    for (size_t i = 1; i < merge->n; i++)
        for (size_t m = 0; m < sizeof members / sizeof members[0]; m++)
            if (!json_equal(json_object_get(merge->sheets[i], members[m]),
                            json_object_get(merge->sheets[0], members[m])))
                return nd_fail(err, ND_E_RESULT_FORMAT, merge->names[i],
                               "'%s' and '%s' are not of one datasheet: '%s' differs", merge->names[0],
                               merge->names[i], members[m]);
    return ND_OK;
}

/* The section of whichever part has it. */
static enum nd_status take_section(const struct merge *merge, const char *section, json_t *sections,
                                   struct nd_error *err)
{
    for (size_t i = 0; i < merge->n; i++) {
        json_t *entries = json_object_get(json_object_get(merge->sheets[i], "sections"), section);
        if (entries == NULL)
            continue;
        if (json_object_get(sections, section) != NULL)
            return nd_fail(err, ND_E_RESULT_FORMAT, merge->names[i],
                           "'%s' has the section '%s', and so has a part before it: parts of one datasheet are "
                           "made with the same --section",
                           merge->names[i], section);
        if (json_object_set(sections, section, entries) != 0)
            return nd_fail_memory(err);
    }
    return ND_OK;
}

/* The first part without what makes it one, with the sections of all. */
static enum nd_status join(const struct merge *merge, char **json, struct nd_error *err)
{
    json_t *whole = json_copy(merge->sheets[0]), *sections = json_object();
    json_int_t n_trials = 0;
    bool is_made = whole != NULL && sections != NULL && json_object_del(whole, "part") == 0 &&
                   json_object_del(whole, "parts") == 0;
    enum nd_status status = is_made ? ND_OK : nd_fail_memory(err);
    for (size_t s = 0; status == ND_OK && nd_fingerprint_section(s) != NULL; s++)
        status = take_section(merge, nd_fingerprint_section(s), sections, err);
    for (size_t i = 0; i < merge->n; i++)
        n_trials += json_integer_value(json_object_get(merge->sheets[i], "trials"));
    if (status == ND_OK && (json_object_set(whole, "sections", sections) != 0 ||
                            json_object_set_new(whole, "trials", json_integer(n_trials)) != 0))
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_sheet_format(whole, json, err);
    json_decref(sections);
    json_decref(whole);
    return status;
}

enum nd_status nd_fingerprint_merge(const struct nd_datasheet *parts, size_t n, char **json,
                                    struct nd_error *err)
{
    struct merge merge = {
        .sheets = nd_calloc(n, sizeof *merge.sheets), .names = nd_calloc(n, sizeof *merge.names), .n = n};
    enum nd_status status = merge.sheets != NULL && merge.names != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) { /* n of n without a repetition: none is missing */
        json_t *sheet = NULL;
        status = nd_sheet_read(&parts[i], &sheet, err);
        if (status == ND_OK)
            status = place(&merge, parts[i].name, sheet, err);
    }
    if (status == ND_OK && n == 0)
        status = nd_fail(err, ND_E_RESULT_FORMAT, NULL, "there are no parts");
    if (status == ND_OK)
        status = check_alike(&merge, err);
    if (status == ND_OK)
        status = join(&merge, json, err);
    for (size_t i = 0; merge.sheets != NULL && i < n; i++)
        json_decref(merge.sheets[i]);
    free(merge.sheets);
    free((void *)merge.names);
    return status;
}
