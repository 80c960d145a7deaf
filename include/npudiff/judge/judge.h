/* Judging captures against what was accepted before: the store of accepted captures, triage of captures
 * from the field, and campaigns that qualify models on devices against a policy.
 *
 * Results are structs. npudiff/report.h writes them as JSON and as text, as the commands `golden`, `triage` and
 * `qualify` do.
 *
 * Example:
 *
 *     static int check(const struct nd_golden *store, const char *capture)
 *     {
 *         struct nd_golden_check found;
 *         struct nd_error err;
 *         if (nd_golden_check(store, capture, false, &found, &err) != ND_OK) {
 *             fprintf(stderr, "%s\n", err.message);
 *             return ND_EXIT_TROUBLE;
 *         }
 *         printf("%s: %s\n", capture, found.verdict);
 *         int exit_code = (int)found.exit_code;
 *         nd_golden_check_deinit(&found);
 *         return exit_code;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_JUDGE_H
#define NPUDIFF_JUDGE_H

#include "npudiff/capture/capture.h"
#include "npudiff/explain/explain.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the golden store ----
 *
 * A folder of accepted captures, described in docs/reference/store.md. Entries that are damaged or of another
 * format version are skipped, and nothing is changed about them: nd_golden_problem lists them. Reading takes no
 * lock and writes nothing; writing waits for other writers. One store belongs to one thread at a time.
 *
 * What is found is a struct. Its texts and arrays live until its _deinit, which the caller calls after success
 * only; they need no store. Texts that are not known are "". npudiff/report.h writes all of them as JSON and as
 * text. */

struct nd_golden;

/* Reads all entries. With create a missing or empty folder becomes a store. ND_ERR_IO: it cannot be read or
 * made; ND_ERR_FORMAT (ND_E_STORE_FORMAT): the folder is no store; ND_ERR_UNSUPPORTED (ND_E_STORE_VERSION): a
 * store of another format version. The caller closes *out. */
ND_PUBLIC enum nd_status nd_golden_open(const char *path, bool create, struct nd_golden **out,
                                        struct nd_error *err);
ND_PUBLIC void nd_golden_close(struct nd_golden **store);

ND_PUBLIC size_t nd_golden_n_entries(const struct nd_golden *store);
ND_PUBLIC size_t nd_golden_n_problems(const struct nd_golden *store);

/* An entry that was skipped. Borrowed, until the store is written to or closed. */
struct nd_golden_problem {
    const char *object; /* its path in the store */
    const char *problem;
};
ND_PUBLIC struct nd_golden_problem nd_golden_problem(const struct nd_golden *store, size_t i);

/* One entry in a few words. */
struct nd_golden_entry {
    char id[65]; /* SHA-256 of its file */
    const char *label, *date, *chipset, *sdk, *model, *status;
    const char *kept; /* "full", "digest", or "missing" when the capture that it kept is gone */
    const char *accepted_by, *note;
    size_t n_probes, n_tensors;
    /* How it was captured. */
    const char *uri, *tensors;
    bool has_prefixes, allows_fallback;
    void *owner; /* of the texts */
};
ND_PUBLIC void nd_golden_entry_deinit(struct nd_golden_entry *entry);

/* Entry i < nd_golden_n_entries, by date, label and id. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_golden_entry(const struct nd_golden *store, size_t i, struct nd_golden_entry *out,
                                         struct nd_error *err);

/* How a capture is accepted. Texts are nullable and borrowed. */
struct nd_golden_acceptance {
    size_t struct_size; /* sizeof(struct nd_golden_acceptance) */
    const char *note;
    const char *accepted_by;
    bool digest_only; /* keep no copy of the capture itself */
};

struct nd_golden_added {
    const char *capture; /* as it was given; borrowed from the caller */
    bool is_new;
    struct nd_golden_entry entry; /* ends with nd_golden_entry_deinit */
};

/* Verifies a capture (as `npudiff verify` does) and adds it. A capture that is equal to an entry in its axes,
 * its digests and its failure adds nothing (is_new false), but for the copy that a digest-only entry lacks. The
 * store then holds what other writers added, too. ND_ERR_FORMAT (ND_E_CAPTURE_DIGEST): the capture is damaged.
 */
ND_PUBLIC enum nd_status nd_golden_add(struct nd_golden *store, const char *capture,
                                       const struct nd_golden_acceptance *how, struct nd_golden_added *out,
                                       struct nd_error *err);

/* A key of an axis that is not the same: docs/reference/store.md#axes. */
struct nd_golden_change {
    const char *axis, *key;
    const char *ref, *test;   /* NULL: that side lacks it */
    const char *follows_from; /* the axis whose change explains it; NULL: none */
};

/* A tensor that differs. */
struct nd_golden_tensor {
    const char *name, *op_types;
    size_t index; /* among those of the entry, in graph order */
    size_t n_probes;
    const char **probes; /* on which it differs */
    /* By how much, over these probes; the numbers stand only where it is known. */
    bool is_known;
    bool has_lsb;   /* integers */
    bool has_error; /* some difference is a number */
    uint64_t n_elems, n_differing, max_lsb;
    double max_abs; /* real units */
};

enum { ND_GOLDEN_N_AXES = 6 };
struct nd_golden_names {
    size_t n;
    const char **items;
};

/* How a capture, or another entry, stands to an entry. */
struct nd_golden_difference {
    size_t n_axes;
    const char *axes[ND_GOLDEN_N_AXES]; /* those that differ; static */
    size_t n_changes;
    struct nd_golden_change *changes;
    bool is_same_model;
    bool is_same_chipset;          /* the SM number, or what stands for it */
    bool is_same_end;              /* both complete, or failed alike */
    struct nd_golden_names probes; /* of both, with the same inputs */
    size_t n_tensors;              /* of the entry */
    size_t n_equal;
    size_t n_different;
    struct nd_golden_tensor *different; /* in graph order */
    struct nd_golden_names missing;     /* tensors that only the entry has */
    struct nd_golden_names extra;       /* tensors that it lacks */
    void *owners[3];                    /* of the texts */
};

/* Why a device failed. */
struct nd_golden_failure {
    bool has_failed;
    const char *stage;
    const char *message; /* NULL in a bundle */
    int64_t code;        /* of the error: ND-<code> */
};

struct nd_golden_check {
    /* "same", "differs", "failed", "inconclusive", "reference broken", "not comparable". Static. */
    const char *verdict;
    enum nd_exit exit_code;
    const char *capture; /* as it was given, borrowed from the caller; NULL of nd_golden_diff */
    bool has_entry; /* false: the store has none of that model and these probes, and what follows is empty */
    struct nd_golden_entry entry;
    struct nd_golden_entry test; /* of nd_golden_diff only */
    struct nd_golden_difference difference;
    size_t n_blamed;
    const char *blamed[ND_GOLDEN_N_AXES]; /* axes; static */
    struct nd_golden_failure failure;     /* of the test */
    size_t n_unstable[2];                 /* samples that differ from run to run: of the entry, of the test */
    char *broken;                         /* why the entry, or both, cannot be right; NULL: nothing says so */
    char *test_broken;                    /* of nd_golden_diff: why the second entry cannot be right, or NULL */
};
ND_PUBLIC void nd_golden_check_deinit(struct nd_golden_check *check);

/* Holds a capture against the entry that differs in the fewest axes. out->exit_code: same; differs (with at
 * most one axis changed, or blame); inconclusive (two axes changed, and what differs cannot be blamed on
 * either; or one of the two is not repeatable, n_unstable, so that noise may be the difference); not comparable
 * (no entry of that model and probe, or the capture equals one that cannot be right: verdict "reference
 * broken"); device failed. */
ND_PUBLIC enum nd_status nd_golden_check(const struct nd_golden *store, const char *capture, bool blame,
                                         struct nd_golden_check *out, struct nd_error *err);

/* Two entries by a label, or by an unambiguous start of the name or label. What is equal to a broken first
 * entry, or differs from it, has the verdict "reference broken" and is not comparable. ND_ERR_NOT_FOUND
 * (ND_E_STORE_ENTRY): none, or several. */
ND_PUBLIC enum nd_status nd_golden_diff(const struct nd_golden *store, const char *ref, const char *test,
                                        struct nd_golden_check *out, struct nd_error *err);

/* ---- history ---- */

/* What one chipset gave with one SDK: the newest entry of both. */
struct nd_golden_cell {
    char id[65];       /* of the entry; "": there is none, and the rest is empty */
    size_t n_accepted; /* entries of this chipset and SDK */
    bool has_failed;   /* its device did */
    bool is_unstable;  /* samples of it differ from run to run */
    size_t value; /* cells with the same number are equal in every tensor, and failed alike; from 0. SIZE_MAX:
                     no entry */
};

/* From one SDK to the next that the chipset has an entry of. */
struct nd_golden_step {
    size_t chipset, from, to; /* indices; to is the newer SDK */
    /* "same", "differs", "fails", "works again", "inconclusive" (one of the two is not repeatable, so that
     * noise may be the difference). Static. */
    const char *verdict;
    size_t n_different, n_missing, n_extra; /* tensors */
    size_t first;                           /* tensor that differs first in graph order; SIZE_MAX: none */
    size_t n_also;
    const char *also[ND_GOLDEN_N_AXES]; /* what changed besides the SDK; static */
};

struct nd_charted_tensor {
    const char *name, *op_types;
    size_t *values; /* [n_chipsets][n_sdks] the same number: the same bits on all probes; SIZE_MAX: not there */
    size_t n_steps; /* those at which it differs, of verdict "differs" */
};

/* Entries of one model with the same inputs and options. */
struct nd_golden_chart {
    const char *model; /* file name */
    size_t n_entries;
    struct nd_golden_names probes, sdks; /* SDKs by version */
    struct nd_golden_names chipsets;     /* with the kind of device where it says more: "SM8650 (htp-sim)" */
    struct nd_golden_cell *cells;        /* [n_chipsets][n_sdks] */
    size_t n_tensors;                    /* of all entries, in the graph order of the first */
    struct nd_charted_tensor *tensors;
    size_t n_steps;
    struct nd_golden_step *steps; /* by chipset, then SDK */
};

struct nd_golden_history {
    size_t n_charts;
    struct nd_golden_chart *charts; /* by the first entry's date */
    struct nd_arena *owner;
};

/* Which tensors changed at which SDK, on every chipset of the store: from the digests of its entries alone.
 * ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_golden_history(const struct nd_golden *store, struct nd_golden_history *out,
                                           struct nd_error *err);
ND_PUBLIC void nd_golden_history_deinit(struct nd_golden_history *history);

struct nd_golden_plan {
    size_t n;
    struct nd_golden_entry *entries;
    size_t n_without_runtime; /* entries of the model whose devices take no runtime: emulated ones and
                                 references */
};
ND_PUBLIC void nd_golden_plan_deinit(struct nd_golden_plan *plan);

/* What to capture again with another runtime: the newest entry of each chipset, of this model, whose runtime is
 * another; by chipset. Entries whose device takes no runtime are counted only. */
ND_PUBLIC enum nd_status nd_golden_plan(const struct nd_golden *store, const char *model_sha256,
                                        const char *runtime, struct nd_golden_plan *out, struct nd_error *err);

/* The capture that a full entry keeps, after checking its bytes; the caller closes *out. ND_ERR_NOT_FOUND:
 * there is no such entry, or it has digests only; ND_ERR_FORMAT: it is damaged. */
ND_PUBLIC enum nd_status nd_golden_open_capture(const struct nd_golden *store, const char *id,
                                                struct nd_capture **out, struct nd_error *err);

/* Files that were removed, or would be. */
enum nd_golden_part { ND_GOLDEN_ENTRIES, ND_GOLDEN_OBJECTS, ND_GOLDEN_LEFTOVERS };
enum { ND_GOLDEN_N_PARTS = 3 };
struct nd_golden_removed {
    size_t n, capacity;
    char **names;
};
struct nd_golden_pruning {
    size_t n_kept; /* entries */
    bool dry_run;
    struct nd_golden_removed removed[ND_GOLDEN_N_PARTS];
};
ND_PUBLIC void nd_golden_pruning_deinit(struct nd_golden_pruning *pruning);

/* Removes leftovers of killed writers, objects that no entry names, and, with keep > 0, of every combination of
 * axes all but the newest `keep` entries. Damaged entries stay, and then all objects. */
ND_PUBLIC enum nd_status nd_golden_prune(struct nd_golden *store, size_t keep, bool dry_run,
                                         struct nd_golden_pruning *out, struct nd_error *err);

/* ---- triage ---- */

/* An entry beside what came from the field. */
struct nd_triage_standing {
    struct nd_golden_entry entry;           /* filled for those that stand in a verdict */
    struct nd_golden_difference difference; /* without magnitudes */
    double share;                           /* of differing elements; NaN: not known */
    size_t index;                           /* of the entry */
};

struct nd_triage {
    const char *verdict; /* "known", "new", "not comparable". Static */
    enum nd_exit exit_code;
    bool is_bundle;
    const char *chipset;
    struct nd_golden_failure failure;
    size_t n;                             /* entries that are comparable */
    struct nd_triage_standing *standings; /* equal ones first, then the nearest */
    size_t n_equal;
    size_t nearest; /* of standings; SIZE_MAX: none, or the field's is known */
    size_t closer;  /* with more equal tensors than the nearest, but of another chipset; SIZE_MAX: none */
    void *owner;
};
ND_PUBLIC void nd_triage_deinit(struct nd_triage *triage);

/* Which accepted class a capture or a bundle from the field is. out->exit_code: same (it is a known one),
 * differs (new), not comparable. ND_ERR_FORMAT (ND_E_BUNDLE_FORMAT): neither a capture nor a bundle. */
ND_PUBLIC enum nd_status nd_triage(const struct nd_golden *store, const char *field, struct nd_triage *out,
                                   struct nd_error *err);

/* The text of a bundle of a capture: digests and axes, nothing of the user's data, model or names. The caller
 * frees it. */
ND_PUBLIC enum nd_status nd_bundle_make(const struct nd_capture *capture, char **text, struct nd_error *err);

/* ---- campaigns ---- */

/* How far one of the steps that run at the same time is. Texts live as long as the call. */
struct nd_qualify_progress {
    size_t index, n;    /* which of the captures that are made; explaining is 0 of 1 */
    const char *label;  /* device, and the model where there are several */
    const char *stage;  /* "load", "run", ... */
    size_t done, total; /* samples; total 0: nothing is counted */
    bool is_done;       /* this one has ended */
};

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
    /* Called by any thread; several may call at once. NULL: nobody. */
    void (*progress)(void *context, const struct nd_qualify_progress *progress);
    void *progress_context;
    /* Only of tasks (npudiff/campaign.h): every explanation is made of so many parts, each a task of its own. 0
     * and 1: it is one task. The result does not depend on it. */
    size_t n_explain_parts;
};

/* The result of a campaign: docs/reference/campaign.md describes it. Texts that are not known are "", real
 * numbers NaN, counts SIZE_MAX. */
struct nd_qualified_texts {
    size_t n;
    const char **items;
};

/* A mean, and its interval. */
struct nd_estimate {
    double value;
    struct nd_interval interval;
};

/* The share of samples for which something holds. */
struct nd_qualified_share {
    size_t n, of;
    double share;
    struct nd_interval interval;
};

/* A device against a reference, by the labelled samples that were right. */
struct nd_qualified_pair {
    const char *reference;
    size_t n_samples, n_right_before, n_right_after, n_right_to_wrong, n_wrong_to_right, n_wrong_to_wrong;
    double difference; /* of the accuracies */
    struct nd_interval interval;
    double p_value, p_value_holm; /* of no change; adjusted for the number of devices */
    double margin;                /* that is asked about */
    struct nd_interval margin_interval;
    const char *answer;
    size_t n_samples_needed;
    double e_value, largest_e; /* evidence, sample after sample: at the end, and at its largest */
    size_t stop;               /* samples after which it sufficed */
    size_t gate;               /* of gates: the one that asks; SIZE_MAX: the campaign does */
};
struct nd_qualified_pairs {
    const char *device;
    struct {
        size_t n;
        struct nd_qualified_pair *items;
    } against;
};

/* Samples that a device or a reference had right. */
struct nd_qualified_right {
    const char *label;
    size_t n;
};

/* One probe with labels at one output. */
struct nd_qualified_study {
    const char *probe, *tensor;
    size_t n_samples;
    double confidence;
    struct {
        size_t n;
        struct nd_qualified_pairs *items;
    } devices;
    struct {
        size_t n_devices;
        double mean;
        struct nd_interval mean_interval;
        struct nd_qualified_share any_differs, unstable;
    } changes;
    struct {
        const char *verdict, *best, *worst;
        double margin;
        struct nd_estimate spread, common, quantised, beyond;
    } spread;
    struct {
        size_t n;
        struct nd_qualified_right *items;
    } baseline; /* what the next result of the campaign is compared with */
};

/* A device against a reference, by their distances from a target tensor. */
struct nd_qualified_distance {
    const char *device, *reference;
    struct nd_estimate mean_error_before, mean_error, mean_error_change;
    struct nd_estimate sqnr_db_before, sqnr_db, sqnr_db_change;
};
struct nd_qualified_target {
    const char *probe, *tensor;
    size_t n_samples;
    double confidence;
    struct {
        size_t n;
        struct nd_qualified_distance *items;
    } against;
};

struct nd_qualified_device {
    const char *label, *uri, *chipset, *runtime;
    const char *capture, *capture_sha256;                   /* the path from the folder of results */
    const char *prepared, *prepared_sdk, *prepared_chipset; /* what went to the device in place of the model */
    const char *status, *failure;
    struct nd_qualified_texts findings;
    size_t n_tensors, n_tensors_differing;
    const char *first_difference, *first_op_types;
    int class_id;       /* of the comparison; INT_MIN: not compared */
    const char *broken; /* why it cannot be right as a reference */
    const char *explanation;
    double run_s; /* of all runs that the capture holds, in seconds; NaN: no run is timed */
};
struct nd_qualified_reference {
    const char *label, *capture, *failure, *broken;
};
struct nd_qualified_model {
    const char *name, *quantised, *sha256, *float_model;
    const char *classes, *output_classes;
    struct {
        size_t n;
        struct nd_qualified_reference *items;
    } references;
    struct {
        size_t n;
        struct nd_qualified_device *items;
    } devices;
    struct {
        size_t n;
        struct nd_qualified_study *items;
    } accuracy;
    struct {
        size_t n;
        struct nd_qualified_target *items;
    } targets;
};

struct nd_qualified_gate {
    const char *gate, *text;
    struct nd_qualified_texts models, devices, tensors, probes; /* patterns */
    const char *reason, *owner, *until;
    size_t line;
};

/* One gate on one model and device. */
struct nd_qualified_case {
    const char *model, *device;
    size_t gate; /* of gates */
    const char *verdict;
    double value, bound;
    const char *tensor, *probe; /* where the worst is */
    size_t n_checked, n_failing, n_samples, n_samples_needed;
    const char *message;
};

/* A gate of the tightest policy; what a gate of its kind does not have is NaN or "". */
struct nd_qualified_suggestion {
    const char *gate;
    double max, margin, confidence;
    const char *tensors, *to, *reference, *models;
    struct nd_qualified_texts devices;
};
struct nd_qualified_omission {
    const char *model, *device, *reason;
};

enum { ND_QUALIFIED_N_VERDICTS = 6 };
struct nd_qualified {
    const char *version; /* of the npudiff that made it */
    const char *key;     /* digest of all that it was made of */
    const char *campaign, *verdict, *reference;
    int exit_code; /* enum nd_exit */
    /* Cases of each verdict. Names are static. */
    struct {
        const char *verdict;
        size_t n;
    } counts[ND_QUALIFIED_N_VERDICTS];
    struct {
        size_t n;
        struct nd_qualified_model *items;
    } models;
    struct {
        size_t n;
        struct nd_qualified_gate *items;
    } gates;
    struct {
        size_t n;
        struct nd_qualified_case *items;
    } cases;
    const char *suggestion; /* the tightest policy that the captures pass: YAML; as parts: */
    struct {
        size_t n;
        struct nd_qualified_suggestion *items;
    } policy;
    struct {
        size_t n;
        struct nd_qualified_omission *items;
    } left_out;
    void *owner; /* of the texts and lists */
};

/* Reads a result.json. ND_ERR_FORMAT (ND_E_RESULT_FORMAT): it is none, or of another format. The caller ends it
 * with nd_qualified_deinit. */
ND_PUBLIC enum nd_status nd_qualified_read(const char *json, struct nd_qualified *out, struct nd_error *err);
ND_PUBLIC void nd_qualified_deinit(struct nd_qualified *result);

struct nd_qualify_result {
    struct nd_qualified found;
    char *folder;      /* where it belongs */
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
