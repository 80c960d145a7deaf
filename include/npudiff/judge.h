/* Judging captures against what was accepted before. */
#ifndef NPUDIFF_JUDGE_H
#define NPUDIFF_JUDGE_H

#include "npudiff/capture.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the golden store ----
 *
 * A folder of accepted captures, described in docs/reference/store.md. Every function that judges gives its
 * report as JSON text (indented, final newline, the caller frees it): what `npudiff golden --json` prints. The
 * member "problems" of a report lists entries that are damaged or of another format version; they are skipped,
 * and nothing is changed about them. A report is made also when there are such. Reading takes no lock and
 * writes nothing; writing waits for other writers. One store belongs to one thread at a time. */

struct nd_golden;

/* Reads all entries. With create a missing or empty folder becomes a store. ND_ERR_IO: it cannot be read or
 * made; ND_ERR_FORMAT (ND_E_STORE_FORMAT): the folder is no store; ND_ERR_UNSUPPORTED (ND_E_STORE_VERSION): a
 * store of another format version. The caller closes *out. */
ND_PUBLIC enum nd_status nd_golden_open(const char *path, bool create, struct nd_golden **out,
                                        struct nd_error *err);
ND_PUBLIC void nd_golden_close(struct nd_golden **store);

ND_PUBLIC size_t nd_golden_n_entries(const struct nd_golden *store);
ND_PUBLIC size_t nd_golden_n_problems(const struct nd_golden *store);

/* How a capture is accepted. Texts are nullable and borrowed. */
struct nd_golden_acceptance {
    size_t struct_size; /* sizeof(struct nd_golden_acceptance) */
    const char *note;
    const char *accepted_by;
    bool digest_only; /* keep no copy of the capture itself */
};

/* Verifies a capture (as `npudiff verify` does) and adds it; a capture that is equal to an entry in its axes,
 * its digests and its failure adds nothing ("is_new" false), but for the copy that a digest-only entry lacks.
 * The store then holds what other writers added, too. ND_ERR_FORMAT (ND_E_CAPTURE_DIGEST): the capture is
 * damaged.
 */
ND_PUBLIC enum nd_status nd_golden_add(struct nd_golden *store, const char *capture,
                                       const struct nd_golden_acceptance *how, char **json,
                                       struct nd_error *err);

ND_PUBLIC enum nd_status nd_golden_list(const struct nd_golden *store, char **json, struct nd_error *err);

/* Holds a capture against the entry that differs in the fewest axes. *exit_code: same; differs (with at most
 * one axis changed, or blame); inconclusive (two axes changed, and what differs cannot be blamed on either);
 * not comparable (no entry of that model and probe, or the capture equals one that cannot be right: verdict
 * "reference broken"); device failed. */
ND_PUBLIC enum nd_status nd_golden_check(const struct nd_golden *store, const char *capture, bool blame,
                                         char **json, enum nd_exit *exit_code, struct nd_error *err);

/* Two entries by a label, or by an unambiguous start of the name or label. "broken" and "test_broken" say why the
 * first and the second cannot be right (null: nothing says so, or the entry keeps no values); what is equal to a
 * broken first entry, or differs from it, has the verdict "reference broken" and is not comparable.
 * ND_ERR_NOT_FOUND (ND_E_STORE_ENTRY): none, or several. */
ND_PUBLIC enum nd_status nd_golden_diff(const struct nd_golden *store, const char *ref, const char *test,
                                        char **json, enum nd_exit *exit_code, struct nd_error *err);

/* What to capture again with another runtime: {"cells": [{"id", "uri", "chipset", "edges", "prefixes",
 * "fallback_allowed", ...}]}, the newest entry of each chipset, of this model, whose runtime is another. */
ND_PUBLIC enum nd_status nd_golden_plan(const struct nd_golden *store, const char *model_sha256,
                                        const char *runtime, char **json, struct nd_error *err);

/* The capture that a full entry keeps, after checking its bytes; the caller closes *out. ND_ERR_NOT_FOUND:
 * there is no such entry, or it has digests only; ND_ERR_FORMAT: it is damaged. */
ND_PUBLIC enum nd_status nd_golden_open_capture(const struct nd_golden *store, const char *id,
                                                struct nd_capture **out, struct nd_error *err);

/* Removes leftovers of killed writers, objects that no entry names, and, with keep > 0, of every combination of
 * axes all but the newest `keep` entries. Damaged entries stay, and then all objects. */
ND_PUBLIC enum nd_status nd_golden_prune(struct nd_golden *store, size_t keep, bool dry_run, char **json,
                                         struct nd_error *err);

/* ---- triage ---- */

/* Which accepted class a capture or a bundle from the field is. *exit_code: same (it is a known one), differs
 * (new), not comparable. ND_ERR_FORMAT (ND_E_BUNDLE_FORMAT): neither a capture nor a bundle. */
ND_PUBLIC enum nd_status nd_triage(const struct nd_golden *store, const char *field, char **json,
                                   enum nd_exit *exit_code, struct nd_error *err);

/* The text of a bundle of a capture: digests and axes, nothing of the user's data, model or names. The caller
 * frees it. */
ND_PUBLIC enum nd_status nd_bundle_make(const struct nd_capture *capture, char **text, struct nd_error *err);

/* ---- campaigns ---- */

struct nd_qualify_options {
    size_t struct_size;  /* sizeof(struct nd_qualify_options) */
    const char *folder;  /* of captures and results; NULL: the one that the campaign names */
    bool force;          /* capture and judge everything again */
    bool without_policy; /* accept a campaign without one: to get a suggestion */
    size_t n_jobs;       /* devices of this machine captured at once; 0: 1. Latencies then disturb one
                            another. Other machines are captured beside them in any case. */
    size_t n_threads;    /* for comparing and explaining; 0: as many as the process may use */
    /* Told in words what is going on, by any thread, one at a time; NULL: nobody. */
    void (*say)(void *context, const char *text);
    void *say_context;
    /* Asked every 50 ms or so while capturing; true stops (ND_E_CANCELLED). Captures made so far stay. */
    bool (*is_cancelled)(void *context);
    void *cancel_context;
};

struct nd_qualify_result {
    char *json;       /* the whole result, described in docs/reference/campaign.md; indented, final newline */
    char *folder;     /* where it belongs */
    char *suggestion; /* the tightest policy that the captures pass: YAML */
    enum nd_exit exit_code;
    size_t n_captured; /* captures made by this call */
    bool is_cached;    /* nothing has changed since the result in the folder was made */
};

/* Makes what a campaign (docs/reference/campaign.md) asks for: captures that are missing or stale, into
 * <folder>/captures/<model>/<device>.h5, comparisons, accuracies, explanations, and the policy's verdicts. A
 * device that fails, or differs, is a result. Writes nothing into the folder but captures and their keys.
 * ND_ERR_USAGE: the campaign or its policy cannot be followed (ND_E_CAMPAIGN_FORMAT with file, line and column;
 * ND_E_CAMPAIGN_POLICY: a gate matches nothing or contradicts another); ND_ERR_IO (ND_E_QUALIFY_BUSY): another
 * process qualifies into the folder. Free *out with nd_qualify_result_deinit. One call at a time for a folder.
 */
ND_PUBLIC enum nd_status nd_qualify(const char *campaign, const struct nd_qualify_options *options,
                                    struct nd_qualify_result *out, struct nd_error *err);
ND_PUBLIC void nd_qualify_result_deinit(struct nd_qualify_result *result);

#ifdef __cplusplus
}
#endif
#endif
