/* The arithmetic datasheet of a device: what the device does between integer sums and quantised values,
 * operator by operator.
 *
 * The library makes small models of one operator each, runs them on the device, and finds the rounding,
 * shifts and multipliers from the values at which the quantised values change. No model of the user's is
 * needed. The datasheet is JSON text, described in docs/reference/datasheet.md.
 *
 * Example:
 *
 *     static enum nd_status print_sheet(const struct nd_device *device, struct nd_error *err)
 *     {
 *         char *json = NULL;
 *         enum nd_status status = nd_fingerprint_take(device, NULL, &json, err);
 *         if (status == ND_OK)
 *             fputs(json, stdout);
 *         free(json);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; arithmetics
 * that use it are compiled again. */
#ifndef NPUDIFF_FINGERPRINT_H
#define NPUDIFF_FINGERPRINT_H

#include "npudiff/devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_fingerprint_progress {
    const char *section;
    size_t section_index, n_sections;
    size_t n_trials; /* answered by the device so far, those that were kept from an earlier run among them */
};

struct nd_fingerprint_options {
    size_t struct_size; /* sizeof(struct nd_fingerprint_options) */
    /* Where answers of the device are kept, so that a fingerprint that was stopped goes on where it was. Made
     * when it is not there. Borrowed. NULL: a temporary folder, removed at the end. */
    const char *folder;
    const char *const *sections; /* names; NULL: all */
    size_t n_sections;
    double time_limit_s; /* of one trial; 0: 600 */
    const char *agent;   /* as nd_capture_options.agent */
    void (*progress)(void *context, const struct nd_fingerprint_progress *progress);
    void *progress_context;
    bool (*is_cancelled)(void *context); /* as nd_capture_options.is_cancelled */
    void *cancel_context;
    /* Several machines may share the work: only part `part` of `n_parts` of the sections (from 0; section i of
     * those that are asked for is in part i % n_parts). n_parts 0: all of them. */
    size_t part, n_parts;
};
ND_PUBLIC void nd_fingerprint_options_init_sized(struct nd_fingerprint_options *options, size_t struct_size);
static inline void nd_fingerprint_options_init(struct nd_fingerprint_options *options)
{
    nd_fingerprint_options_init_sized(options, sizeof *options);
}

/* The name of section i, in the order in which they are taken; NULL after the last. */
ND_PUBLIC const char *nd_fingerprint_section(size_t i);

/* Takes the fingerprint. *json is the datasheet (docs/reference/datasheet.md), text with a final newline,
 * freed by the caller. A device that refuses some of the models is a datasheet that says so. ND_ERR_NOT_FOUND:
 * no such section; ND_E_CANCELLED; ND_ERR_IO: the folder cannot be written; ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_fingerprint_take(const struct nd_device *device,
                                             const struct nd_fingerprint_options *options, char **json,
                                             struct nd_error *err);

/* A datasheet as nd_fingerprint_take gave it. */
struct nd_datasheet {
    const char *text;
    const char *name; /* for messages and results: its file */
};

/* The datasheet that the parts of one device make, given in any order: the same bytes as without parts. *json
 * is freed by the caller. ND_ERR_FORMAT (ND_E_RESULT_FORMAT): one is no part of a datasheet, or of a different
 * device or npudiff, or one is missing or there twice. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_fingerprint_merge(const struct nd_datasheet *parts, size_t n, char **json,
                                              struct nd_error *err);

/* What two datasheets say differently, as JSON, freed by the caller: sections and operators with both sides.
 * *is_same: nothing that both know differs. ND_ERR_FORMAT: not a datasheet. */
ND_PUBLIC enum nd_status nd_fingerprint_diff(const struct nd_datasheet *a, const struct nd_datasheet *b,
                                             char **json, bool *is_same, struct nd_error *err);

/* Datasheets of several devices and runtimes as one table, in any order: which operators compute alike
 * everywhere, and at which step (from one runtime to the next, from one architecture to the next) each of the
 * others changes. *json is docs/reference/schemas/datasheet_campaign.json, freed by the caller. *is_same:
 * nothing that is known differs. ND_ERR_FORMAT: one is no datasheet, or two are of the same device with the
 * same runtime; ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_fingerprint_campaign(const struct nd_datasheet *sheets, size_t n, char **json,
                                                 bool *is_same, struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
