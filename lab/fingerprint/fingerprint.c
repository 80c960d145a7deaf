#include "npudiff/lab/fingerprint.h"

#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "lab/fingerprint/section.h"
#include "lab/fingerprint/sheet.h"
#include "npudiff/core/parse.h"

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
    json_array_foreach(entries, i, entry)
    {
        is_whole = is_whole && set(entry, "verdict", json_string("changes from run to run")) &&
                   set(entry, "unstable_trials", json_integer((json_int_t)n_trials));
    }
    return is_whole;
}

static enum nd_status take_section(struct nd_bench *bench, size_t section, json_t *entries,
                                   struct nd_error *err)
{
    size_t n_before = bench->n_unstable;
    enum nd_status status = sections[section].take(bench, entries, err);
    if (status == ND_OK && bench->n_unstable > n_before &&
        !tell_unstable(entries, bench->n_unstable - n_before))
        status = nd_fail_memory(err);
    return status;
}

static enum nd_status take_sections(struct nd_bench *bench, const struct nd_fingerprint_options *options,
                                    json_t *sheet, struct nd_error *err)
{
    json_t *list = json_object();
    size_t n_wanted = 0;
    enum nd_status status = set(sheet, "sections", list) ? ND_OK : nd_fail_memory(err);
    for (size_t s = 0; status == ND_OK && s < N_SECTIONS; s++) {
        if (!is_wanted(options, sections[s].name) || !is_in_part(options, n_wanted++))
            continue;
        json_t *entries = json_array();
        report(options, bench, s);
        if (!set(list, sections[s].name, entries))
            status = nd_fail_memory(err);
        if (status == ND_OK)
            status = take_section(bench, s, entries, err);
        if (status == ND_OK && options->is_cancelled != NULL && options->is_cancelled(options->cancel_context))
            status = nd_fail(err, ND_E_CANCELLED, NULL, "stopped on request");
    }
    if (status == ND_OK && !set(sheet, "trials", json_integer((json_int_t)(bench->n_run + bench->n_kept))))
        status = nd_fail_memory(err);
    return status;
}

static enum nd_status make_sheet(struct nd_bench *bench, const struct nd_fingerprint_options *options,
                                 char **json, struct nd_error *err)
{
    json_t *sheet = nd_json_document(ND_DOCUMENT_DATASHEET,
                                     json_pack("{s:i, s:o?}", "npudiff_datasheet", ND_DATASHEET_VERSION,
                                               "device", describe_device(bench->device)));
    bool is_made = sheet != NULL;
    if (is_made && options->n_parts > 0)
        is_made = set(sheet, "part", json_integer((json_int_t)options->part)) &&
                  set(sheet, "parts", json_integer((json_int_t)options->n_parts));
    enum nd_status status = is_made ? take_sections(bench, options, sheet, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_sheet_format(sheet, json, err);
    json_decref(sheet);
    return status;
}

/* What stands in for a folder of the user's. */
static enum nd_status choose_folder(const struct nd_fingerprint_options *options, char **folder,
                                    struct nd_error *err)
{
    if (options->folder == NULL)
        return nd_dir_make_temporary(folder, err);
    enum nd_status status = nd_dir_make(options->folder, err);
    if (status == ND_OK && (*folder = nd_strdup(options->folder)) == NULL)
        status = nd_fail_memory(err);
    return status;
}

enum nd_status nd_fingerprint_take(const struct nd_device *device, const struct nd_fingerprint_options *options,
                                   char **json, struct nd_error *err)
{
    struct nd_fingerprint_options own;
    nd_fingerprint_options_init(&own);
    char *folder = NULL;
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    options = &own;
    if (own.n_parts > 0 && own.part >= own.n_parts)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "there is no part %zu of %zu", own.part + 1, own.n_parts);
    status = check_sections(options, err);
    if (status == ND_OK)
        status = choose_folder(options, &folder, err);
    if (status != ND_OK)
        return status;
    struct nd_bench bench = {.device = device, .folder = folder};
    nd_capture_options_init(&bench.options);
    bench.options.agent = options->agent;
    bench.options.time_limit_s = options->time_limit_s > 0 ? options->time_limit_s : 600;
    bench.options.is_cancelled = options->is_cancelled;
    bench.options.cancel_context = options->cancel_context;
    status = make_sheet(&bench, options, json, err);
    if (options->folder == NULL)
        nd_dir_remove(folder);
    free(folder);
    return status;
}
