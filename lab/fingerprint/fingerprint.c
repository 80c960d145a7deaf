/* Datasheets: one is taken, section by section; one is read; two are held against each other; and parts become
 * one. docs/reference/datasheet.md. */
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "lab/fingerprint/section.h"
#include "lab/fingerprint/sheet.h"
#include "npudiff/core/parse.h"
#include "npudiff/lab/fingerprint.h"

/* Whether the content is that which was written. */
static enum nd_status check_digest(const json_t *sheet, const char *name, struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    const char *stated = nd_sheet_text(sheet, "digest");
    ND_TRY(nd_json_digest(sheet, hex, err));
    if (strcmp(stated, hex) != 0)
        return nd_fail(err, ND_E_RESULT_FORMAT, name,
                       "'%s' is damaged: the digest of its content is %s, and it states '%s'", name, hex,
                       stated);
    return ND_OK;
}

enum nd_status nd_sheet_read(const struct nd_datasheet *from, json_t **out, struct nd_error *err)
{
    const char *name = from->name;
    json_error_t where;
    json_auto_t *sheet = json_loads(from->text, JSON_REJECT_DUPLICATES, &where);
    if (sheet == NULL)
        return nd_fail(err, ND_E_RESULT_FORMAT, name, "'%s' is no JSON: %s (line %d)", name, where.text,
                       where.line);
    json_int_t version = json_integer_value(json_object_get(sheet, "npudiff_datasheet"));
    if (version < 1 || version > ND_DATASHEET_VERSION || !json_is_object(json_object_get(sheet, "sections")) ||
        !json_is_object(json_object_get(sheet, "device")))
        return nd_fail(err, ND_E_RESULT_FORMAT, name, "'%s' is not a datasheet of version 1 to %d", name,
                       ND_DATASHEET_VERSION);
    /* One that has a digest is not of an older version, whatever its version says. */
    bool has_digest = version >= ND_DATASHEET_WITH_DIGEST || json_object_get(sheet, "digest") != NULL;
    ND_TRY(has_digest ? check_digest(sheet, name, err) : ND_OK);
    *out = sheet;
    sheet = NULL;
    return ND_OK;
}

/* The text of a datasheet's file, in new memory; the sheet gets its digest. ND_ERR_MEMORY. */
static enum nd_status nd_sheet_format(json_t *sheet, char **out, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    ND_TRY(nd_json_stamp(sheet, err));
    char *json = nd_json_dumps(sheet, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    nd_strbuf_printf(&text, "%s\n", json != NULL ? json : "");
    char *taken = nd_strbuf_take(&text);
    if (json == NULL || taken == NULL) {
        free(json);
        free(taken);
        return nd_fail_memory(err);
    }
    free(json);
    *out = taken;
    return ND_OK;
}

const char *nd_sheet_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* The entry of the same operator and types, or NULL. */
static const json_t *nd_sheet_find(const json_t *entries, const json_t *like)
{
    const json_t *entry;
    size_t i;
    json_array_foreach(entries, i, entry) {
        if (strcmp(nd_sheet_text(entry, "operator"), nd_sheet_text(like, "operator")) == 0 &&
            strcmp(nd_sheet_text(entry, "types"), nd_sheet_text(like, "types")) == 0)
            return entry;
    }
    return NULL;
}

json_t *nd_sheet_claim(const json_t *entry)
{
    static const char *const members[] = {"verdict", "possible_arithmetic", "parameters", "table", "nearest",
                                          "failure"};
    json_t *claim = json_object();
    for (size_t i = 0; claim != NULL && i < sizeof members / sizeof members[0]; i++) {
        json_t *member = json_object_get(entry, members[i]);
        if (member == NULL && strcmp(members[i], "possible_arithmetic") == 0)
            member = json_object_get(entry, "programs"); /* version 1 */
        if (member != NULL && json_object_set(claim, members[i], member) != 0) {
            json_decref(claim);
            claim = NULL;
        }
    }
    return claim;
}

const char *nd_sheet_answers(const json_t *entry)
{
    return nd_sheet_text(entry, "answers");
}

bool nd_sheet_is_identified(const json_t *entry)
{
    return strcmp(nd_sheet_text(entry, "verdict"), "identified") == 0;
}

/* ---- two datasheets against each other ---- */

struct diff {
    const char *name_a, *name_b; /* files */
    json_t *differences, *unknown;
    size_t n_same;
    bool is_whole;
};

static void compare_entries(struct diff *diff, const char *section, const json_t *a, const json_t *b)
{
    json_auto_t *claim_a = nd_sheet_claim(a), *claim_b = nd_sheet_claim(b);
    bool is_same = claim_a != NULL && claim_b != NULL && json_equal(claim_a, claim_b) == 1;
    const char *digest_a = nd_sheet_answers(a), *digest_b = nd_sheet_answers(b);
    bool has_digests = digest_a[0] != '\0' && digest_b[0] != '\0';
    bool is_unknown = !nd_sheet_is_identified(a) && !nd_sheet_is_identified(b) && !has_digests;
    if (has_digests)
        is_same = is_same && strcmp(digest_a, digest_b) == 0;
    if (is_same && !is_unknown)
        diff->n_same++;
    json_t *row = is_same && !is_unknown ? NULL
                                         : json_pack("{s:s, s:s, s:s, s:O?, s:O?}", "section", section,
                                                     "operator", nd_sheet_text(a, "operator"), "types",
                                                     nd_sheet_text(a, "types"), "a", claim_a, "b", claim_b);
    if (row != NULL)
        diff->is_whole &= json_array_append_new(is_same ? diff->unknown : diff->differences, row) == 0;
    else
        diff->is_whole &= is_same && !is_unknown;
}

static void compare_sections(struct diff *diff, const json_t *a, const json_t *b)
{
    const char *section;
    json_t *entries;
    json_object_foreach((json_t *)(uintptr_t)json_object_get(a, "sections"), section, entries) {
        const json_t *others = json_object_get(json_object_get(b, "sections"), section), *entry;
        size_t i;
        json_array_foreach(entries, i, entry) {
            const json_t *other = nd_sheet_find(others, entry);
            if (other != NULL)
                compare_entries(diff, section, entry, other);
        }
    }
}

static enum nd_status write_result(const struct diff *diff, const json_t *a, const json_t *b, char **json,
                                   struct nd_error *err)
{
    json_t *members = json_pack("{s:s, s:{s:s, s:O}, s:{s:s, s:O}, s:I, s:O, s:O}", "verdict",
                                json_array_size(diff->differences) == 0 ? "same" : "differs", "a", "file",
                                diff->name_a, "device", json_object_get(a, "device"), "b", "file", diff->name_b,
                                "device", json_object_get(b, "device"), "n_same", (json_int_t)diff->n_same,
                                "differences", diff->differences, "not_known", diff->unknown);
    json_t *out = nd_json_document(ND_DOCUMENT_DATASHEET_DIFFERENCE, members);
    char *text = nd_json_dumps(out, JSON_INDENT(1));
    struct nd_strbuf buf = {0};
    json_decref(out);
    nd_strbuf_printf(&buf, "%s\n", text != NULL ? text : "");
    bool is_whole = text != NULL;
    free(text);
    *json = nd_strbuf_take(&buf);
    if (is_whole && *json != NULL)
        return ND_OK;
    free(*json);
    *json = NULL;
    return nd_fail_memory(err);
}

enum nd_status nd_fingerprint_diff(const struct nd_datasheet *a, const struct nd_datasheet *b, char **json,
                                   bool *is_same, struct nd_error *err)
{
    json_t *sheet_a = NULL, *sheet_b = NULL;
    struct diff diff = {.name_a = a->name,
                        .name_b = b->name,
                        .differences = json_array(),
                        .unknown = json_array(),
                        .is_whole = true};
    enum nd_status status = diff.differences != NULL && diff.unknown != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_sheet_read(a, &sheet_a, err);
    if (status == ND_OK)
        status = nd_sheet_read(b, &sheet_b, err);
    if (status == ND_OK) {
        compare_sections(&diff, sheet_a, sheet_b);
        status = diff.is_whole ? write_result(&diff, sheet_a, sheet_b, json, err) : nd_fail_memory(err);
    }
    if (status == ND_OK)
        *is_same = json_array_size(diff.differences) == 0;
    json_decref(sheet_a);
    json_decref(sheet_b);
    json_decref(diff.differences);
    json_decref(diff.unknown);
    return status;
}

/* ---- parts of a datasheet, each with some of its sections, become the datasheet ---- */

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
static enum nd_status copy_section(const struct merge *merge, const char *section, json_t *sections,
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
        ND_TRY_MEMORY(json_object_set(sections, section, entries) == 0, err);
    }
    return ND_OK;
}

/* The first part without what makes it one, with the sections of all. */
static enum nd_status join(const struct merge *merge, char **json, struct nd_error *err)
{
    json_auto_t *whole = json_copy(merge->sheets[0]), *sections = json_object();
    json_int_t n_trials = 0;
    bool is_made = whole != NULL && sections != NULL && json_object_del(whole, "part") == 0 &&
                   json_object_del(whole, "parts") == 0;
    ND_TRY_MEMORY(is_made, err);
    for (size_t s = 0; nd_fingerprint_section(s) != NULL; s++)
        ND_TRY(copy_section(merge, nd_fingerprint_section(s), sections, err));
    for (size_t i = 0; i < merge->n; i++)
        n_trials += json_integer_value(json_object_get(merge->sheets[i], "trials"));
    ND_TRY_MEMORY(json_object_set(whole, "sections", sections) == 0 &&
                      json_object_set_new(whole, "trials", json_integer(n_trials)) == 0,
                  err);
    return nd_sheet_format(whole, json, err);
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

/* docs/reference/datasheet.md says what each holds. In the order in which they are taken: those on which most
 * models depend come first. */
static const struct section {
    const char *name;
    nd_section *take;
} sections[] = {
    {"linear-u8", nd_section_linear_u8},   {"elementwise-u8", nd_section_elementwise_u8},
    {"weights", nd_section_weights},       {"bias", nd_section_bias},
    {"linear-u16", nd_section_linear_u16}, {"accumulator-f16", nd_section_accumulator_f16},
    {"table-u8", nd_section_table_u8},     {"table-u16", nd_section_table_u16},
    {"pool-u8", nd_section_pool_u8},       {"quantise", nd_section_quantise},
    {"normalise", nd_section_normalise},
};
enum { N_SECTIONS = sizeof sections / sizeof sections[0] };

const char *nd_fingerprint_section(size_t i)
{
    return i < N_SECTIONS ? sections[i].name : NULL;
}

void nd_fingerprint_options_init_sized(struct nd_fingerprint_options *options, size_t struct_size)
{
    const struct nd_fingerprint_options own = {.struct_size = sizeof own};
    nd_options_write(options, struct_size, &own, sizeof own);
}

static bool is_wanted(const struct nd_fingerprint_options *options, const char *name)
{
    for (size_t i = 0; i < options->n_sections; i++)
        if (strcmp(options->sections[i], name) == 0)
            return true;
    return options->sections == NULL;
}

/* Whether the i-th section of those that are wanted is in the part that is asked for. */
static bool is_in_part(const struct nd_fingerprint_options *options, size_t i)
{
    return options->n_parts == 0 || i % options->n_parts == options->part;
}

static enum nd_status check_sections(const struct nd_fingerprint_options *options, struct nd_error *err)
{
    for (size_t i = 0; options->sections != NULL && i < options->n_sections; i++) {
        bool is_there = false;
        for (size_t s = 0; s < N_SECTIONS; s++)
            is_there = is_there || strcmp(sections[s].name, options->sections[i]) == 0;
        char meant[ND_DID_YOU_MEAN_BYTES];
        if (!is_there)
            return nd_fail(err, ND_E_OPTION_VALUE, options->sections[i], "a datasheet has no section '%s'%s",
                           options->sections[i],
                           nd_did_you_mean(options->sections[i], &sections[0].name, N_SECTIONS,
                                           sizeof sections[0], meant));
    }
    return ND_OK;
}

static json_t *describe_device(const struct nd_device *device)
{
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:b}", "uri", device->uri, "kind", nd_device_kind_name(device->kind),
                  "runtime", device->runtime.id != NULL ? device->runtime.id : "", "is_simulator",
                  device->kind == ND_DEVICE_HTP_SIM);
    if (out != NULL && device->chipset != NULL) {
        nd_tree_set(out, "chipset", json_string(device->chipset->sm));
        nd_tree_set(out, "arch", json_string(device->chipset->arch));
    }
    return out;
}

static void report(const struct nd_fingerprint_options *options, const struct nd_bench *bench, size_t section)
{
    if (options->progress == NULL)
        return;
    const struct nd_fingerprint_progress progress = {.section = sections[section].name,
                                                     .section_index = section,
                                                     .n_sections = N_SECTIONS,
                                                     .n_trials = bench->n_run + bench->n_kept};
    options->progress(options->progress_context, &progress);
}

/* Takes over value; false, also for a NULL value: out of memory. */
static bool set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

/* What changes from run to run has no arithmetic to be named. */
static bool tell_unstable(json_t *entries, size_t n_trials)
{
    json_t *entry;
    size_t i;
    bool is_whole = true;
    json_array_foreach(entries, i, entry) {
        is_whole = is_whole && set(entry, "verdict", json_string("changes from run to run")) &&
                   set(entry, "unstable_trials", json_integer((json_int_t)n_trials));
    }
    return is_whole;
}

static enum nd_status take_section(struct nd_bench *bench, size_t section, json_t *entries,
                                   struct nd_error *err)
{
    size_t n_before = bench->n_unstable;
    ND_TRY(sections[section].take(bench, entries, err));
    if (bench->n_unstable > n_before && !tell_unstable(entries, bench->n_unstable - n_before))
        return nd_fail_memory(err);
    return ND_OK;
}

static enum nd_status take_sections(struct nd_bench *bench, const struct nd_fingerprint_options *options,
                                    json_t *sheet, struct nd_error *err)
{
    json_t *list = json_object();
    size_t n_wanted = 0;
    ND_TRY_MEMORY(set(sheet, "sections", list), err);
    for (size_t s = 0; s < N_SECTIONS; s++) {
        if (!is_wanted(options, sections[s].name) || !is_in_part(options, n_wanted++))
            continue;
        json_t *entries = json_array();
        report(options, bench, s);
        ND_TRY_MEMORY(set(list, sections[s].name, entries), err);
        ND_TRY(take_section(bench, s, entries, err));
        if (options->is_cancelled != NULL && options->is_cancelled(options->cancel_context))
            return nd_fail(err, ND_E_CANCELLED, NULL, "stopped on request");
    }
    return set(sheet, "trials", json_integer((json_int_t)(bench->n_run + bench->n_kept))) ? ND_OK
                                                                                          : nd_fail_memory(err);
}

static enum nd_status make_sheet(struct nd_bench *bench, const struct nd_fingerprint_options *options,
                                 char **json, struct nd_error *err)
{
    json_auto_t *sheet = nd_json_document(ND_DOCUMENT_DATASHEET,
                                          json_pack("{s:i, s:o?}", "npudiff_datasheet", ND_DATASHEET_VERSION,
                                                    "device", describe_device(bench->device)));
    bool is_made = sheet != NULL;
    if (is_made && options->n_parts > 0)
        is_made = set(sheet, "part", json_integer((json_int_t)options->part)) &&
                  set(sheet, "parts", json_integer((json_int_t)options->n_parts));
    ND_TRY(is_made ? take_sections(bench, options, sheet, err) : nd_fail_memory(err));
    return nd_sheet_format(sheet, json, err);
}

/* What stands in for a folder of the user's. */
static enum nd_status choose_folder(const struct nd_fingerprint_options *options, char **folder,
                                    struct nd_error *err)
{
    if (options->folder == NULL)
        return nd_dir_make_temporary(folder, err);
    ND_TRY(nd_dir_make(options->folder, err));
    return (*folder = nd_strdup(options->folder)) != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_fingerprint_take(const struct nd_device *device, const struct nd_fingerprint_options *options,
                                   char **json, struct nd_error *err)
{
    struct nd_fingerprint_options own;
    nd_fingerprint_options_init(&own);
    ND_FREED char *folder = NULL;
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    options = &own;
    if (own.n_parts > 0 && own.part >= own.n_parts)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "there is no part %zu of %zu", own.part + 1, own.n_parts);
    ND_TRY(check_sections(options, err));
    ND_TRY(choose_folder(options, &folder, err));
    struct nd_bench bench = {.device = device, .folder = folder};
    nd_capture_options_init(&bench.options);
    bench.options.skips_untouched = true;
    bench.options.agent = options->agent;
    bench.options.time_limit_s = options->time_limit_s > 0 ? options->time_limit_s : 600;
    bench.options.is_cancelled = options->is_cancelled;
    bench.options.cancel_context = options->cancel_context;
    enum nd_status status = make_sheet(&bench, options, json, err);
    if (options->folder == NULL)
        nd_dir_remove(folder);
    return status;
}
