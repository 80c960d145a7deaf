/* A qualification while it is made: what is captured, what was found, what it comes to. plan.c says what is to
 * be captured, run.c captures what is missing, product.c compares and explains, gates/ hold every gate against
 * every device, qualified.c knows the form of the result, and qualify.c is the order of events. */
#pragma once

#include <unistd.h>

#include <stdbool.h>
#include <stddef.h>

#include "core/documents/json_fields.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"
#include "judge/accuracy/fleet_accuracy.h"
#include "judge/campaign/policy.h"
#include "model/graph/prepared.h"
#include "npudiff/capture/capture.h"
#include "npudiff/compare/compare.h"
#include "npudiff/devices/device.h"
#include "npudiff/judge/judge.h"

/* The members of a campaign's result in JSON. */

/* struct nd_qualified, without "kind" and "format", which come first in the file. */
extern const struct nd_members nd_qualified_members;

/* Of struct nd_qualified: the gates that are proposed, and for what nothing is. */
extern const struct nd_members nd_suggestion_members;

/* One device and one model: a capture. */
struct nd_qualify_cell {
    struct nd_device device;
    const char *label;            /* that of the device; "quantised", "float" for the references */
    const struct nd_model *model; /* what is captured */
    struct nd_model *prepared;    /* that, where the campaign names one for the device; owned */
    struct nd_prepared binary;    /* what it says of the binary in it */
    const struct nd_probe *const *probes;
    const char *tensors;
    bool allow_fallback;
    char *path;      /* of the capture */
    char *relative;  /* the same from the folder of results */
    char key[65];    /* digest of everything that the capture depends on */
    char sha256[65]; /* of the capture file */
    bool is_fresh;   /* it need not be captured again */
    struct nd_capture *capture;
    char *failure; /* why the device failed, or NULL */
    char *broken;  /* of a reference: why it cannot be right, or NULL */
};

struct nd_qualify_model {
    const struct nd_campaign_model *campaign;
    struct nd_model *model, *float_model;
    size_t n_probes;
    struct nd_probe **probes, **float_probes;
    size_t n_tensors; /* that are captured */
    struct nd_scope_tensor *tensors;
    struct nd_scope_probe *scope_probes;
    size_t n_cells; /* the devices of the campaign in its order, then the references that are needed */
    struct nd_qualify_cell *cells;
    size_t quantised, float64; /* cells; SIZE_MAX: not needed or not there */
    bool has_prepared;
    size_t n_comparisons;
    struct nd_qualify_comparison *comparisons;
    size_t n_studies;
    struct nd_accuracy_study *studies;
    size_t n_targets;
    struct nd_qualify_target *targets;
    char **explanations; /* [n_devices], NULL where there is nothing to explain */
};

/* How far all cells are from one target tensor. */
struct nd_qualify_target {
    const char *probe, *tensor; /* borrowed */
    size_t n_samples;
    struct nd_target_sums **sums; /* [n_cells][n_samples]; NULL where there are no such outputs */
};

/* Devices against one reference. */
struct nd_qualify_comparison {
    size_t ref;                       /* cell */
    size_t *devices;                  /* [n_cells]: index in the comparison, SIZE_MAX: not in it */
    struct nd_comparison *comparison; /* NULL: the reference failed, or nothing is comparable: why_not */
    char *why_not;
};

struct nd_qualification {
    struct nd_campaign campaign;
    const struct nd_qualify_options *options;
    char *folder;
    char today[16];
    size_t n_devices;
    bool is_one_model;   /* the campaign was cut to one of its models: its policy cannot be checked */
    const char **labels; /* [n_devices] */
    struct nd_scope_model *scopes;
    struct nd_qualify_model *models; /* [campaign.n_models] */
    char key[65];                    /* of the whole result */
    size_t n_captured;
    struct nd_qualified last; /* the result in the folder; empty: none, or everything is to be judged anew */
    struct nd_arena *arena;   /* of the result that is made */
};

/* ---- qualify.c ---- */

/* Reads the campaign and decides on the folder. The caller frees with nd_qualify_plan_deinit,
 * nd_campaign_deinit and free(q->folder), on success only. */
enum nd_status nd_qualify_begin(const char *campaign, const struct nd_qualify_options *options,
                                struct nd_qualification *q, struct nd_error *err);

/* Who captures all that is missing has the folder alone; those who make one task each share it. The caller
 * closes *out. ND_E_QUALIFY_BUSY. */
enum nd_status nd_qualify_lock(const char *folder, bool is_shared, int *out, struct nd_error *err);

/* Gives such a lock back, or one that the file of a task has; -1 is none. */
static inline void nd_qualify_unlock(int *lock)
{
    if (*lock >= 0)
        close(*lock);
}

/* The result of captures that are all there. */
enum nd_status nd_qualify_end_result(struct nd_qualification *q, struct nd_qualify_result *out,
                                     struct nd_error *err);

/* ---- plan.c ---- */

/* Loads what the campaign names, and checks its policy against it. */
enum nd_status nd_qualify_plan(struct nd_qualification *q, struct nd_error *err);
void nd_qualify_plan_deinit(struct nd_qualification *q);

/* The cell that `to` of a rule means for a model; SIZE_MAX: none. */
size_t nd_qualify_find_cell(const struct nd_qualify_model *model, size_t n_devices, const char *to);

/* ---- run.c ---- */

/* Fills the keys of all cells. */
enum nd_status nd_qualify_make_keys(struct nd_qualification *q, struct nd_error *err);

/* The same, and says which captures are fresh. */
enum nd_status nd_qualify_check_fresh(struct nd_qualification *q, struct nd_error *err);

/* Says of one cell, whose key is known, whether it is fresh. A capture of a machine that could not be reached
 * is not: it is made again by whoever makes captures. A capture that is there and cannot be read just now is an
 * error: it is not made again over what may be whole. */
enum nd_status nd_qualify_look(const struct nd_qualification *q, struct nd_qualify_cell *cell,
                               struct nd_error *err);

/* The same for whoever only reads captures; takes that of a machine that could not be reached, too.
 * ND_E_QUALIFY_NEEDS where there is none. */
enum nd_status nd_qualify_find_usable(struct nd_qualify_cell *cell, struct nd_error *err);

/* Writes beside a capture what it is, and fills cell->sha256. Not is_final: it is captured again the next time.
 */
void nd_qualify_make_key(struct nd_qualification *q);

/* Opens all captures. */
enum nd_status nd_qualify_open(struct nd_qualification *q, struct nd_error *err);

/* ---- gates/judge.c: fallback ---- */

/* Nodes of an NPU device's capture that run on the CPU, without those that quantise inputs and outputs. */
struct nd_qualified_fallback {
    size_t n_nodes;                      /* of the capture */
    size_t n_fell_back;                  /* that are not allowed to */
    const struct nd_capture_node *first; /* of them; NULL: there are none */
    size_t n_moved;                      /* that fell only because tensors were recorded: not counted above */
    const struct nd_capture_node *moved; /* the first of these, or NULL */
};

/* Where no gate says what of the cell may fall back, a fallback is the device's failure: fills cell->failure.
 */
enum nd_status nd_qualify_note_fallback(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                        struct nd_qualify_cell *cell, struct nd_error *err);

/* Appends a text where recording moved nodes and nothing prevented it. */
void nd_qualify_add_moved_finding(const struct nd_qualification *q, const struct nd_qualify_cell *cell,
                                  struct nd_qualified_texts *findings);

/* ---- run.c: captures ---- */

/* Captures what is not fresh. */
enum nd_status nd_qualify_capture(struct nd_qualification *q, struct nd_error *err);

/* ---- product.c: comparisons ---- */

/* Which comparisons a rule or the report needs: fills model->comparisons, of each only the reference. */
enum nd_status nd_qualify_list_comparisons(const struct nd_qualification *q, struct nd_qualify_model *model,
                                           struct nd_error *err);

/* Whether a comparison is made to be written into a file, or is taken from one. */
struct nd_qualify_share {
    bool is_part;
    const struct nd_parts *parts; /* or NULL */
};

/* All of them, by the products that are there. */
enum nd_status nd_qualify_compare(struct nd_qualification *q, struct nd_error *err);

/* The comparison with that cell as the reference, or NULL. */
const struct nd_qualify_comparison *nd_qualify_find_comparison(const struct nd_qualify_model *model,
                                                               size_t ref);

/* The comparison of a device with the reference of the campaign, and which device of it that is; NULL: the two
 * were not compared. */
const struct nd_comparison *nd_qualify_compared(const struct nd_qualification *q,
                                                const struct nd_qualify_model *model, size_t device,
                                                size_t *test);

/* ---- gates/accuracy.c ---- */

/* What accuracy gates, and the campaign where no gate does, ask: is the device worse by less than the margin?
 */
struct nd_paired_question nd_qualify_question(double margin, double confidence, double power);
void nd_qualify_fill_accuracy(const struct nd_qualification *q, const struct nd_qualify_model *model,
                              struct nd_qualified_model *out);

/* ---- gates/accuracy.c: references ---- */

/* Fills cell->broken of the references; after nd_qualify_study. */
enum nd_status nd_qualify_find_broken(struct nd_qualification *q, struct nd_qualify_model *model,
                                      struct nd_error *err);

/* ---- gates/accuracy.c: target tensors ---- */

/* Measures all cells against every target tensor of an output. ND_E_PROBE_SHAPE: a target of another size than
 * the output. */
enum nd_status nd_qualify_measure_targets(struct nd_qualification *q, struct nd_qualify_model *model,
                                          struct nd_error *err);

/* Compares two cells; false where one of them has no such outputs, or for want of memory. */
bool nd_qualify_compare_target(const struct nd_qualify_target *target, size_t ref, size_t device,
                               double confidence, struct nd_target_comparison *out);

/* ---- product.c: explanations ---- */

/* Of how many parts explanations are made: 1 and more. */
size_t nd_qualify_explain_parts(const struct nd_qualification *q);

/* ---- product.c: files ---- */

/* What a task made for the one that judges, from the folder of results:
 * "parts/<model>/compare-<reference>.json", "parts/<model>/explain.txt", "parts/<model>/explain-1-of-4.json".
 * In new memory; NULL without memory. */
char *nd_qualify_comparison_file(const struct nd_qualify_model *model, size_t ref);
char *nd_qualify_explanation_file(const struct nd_qualify_model *model);
char *nd_qualify_explanation_part_file(const struct nd_qualify_model *model, size_t part, size_t n_parts);

/* Whether the file, which this takes over, is there, made of these captures, whose digests are known. */
enum nd_status nd_qualify_has_file(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                   char *relative, bool *out, struct nd_error *err);

/* Makes the file unless it is there, made of the same captures. Those are open. *is_made: whether it was made.
 */
enum nd_status nd_qualify_write_comparison(const struct nd_qualification *q,
                                           const struct nd_qualify_model *model, size_t ref, bool *is_made,
                                           struct nd_error *err);
/* Of an explanation from the files of its parts, where all are there. */
enum nd_status nd_qualify_write_explanation(struct nd_qualification *q, struct nd_qualify_model *model,
                                            bool *is_made, struct nd_error *err);
enum nd_status nd_qualify_write_explanation_part(struct nd_qualification *q, struct nd_qualify_model *model,
                                                 size_t part, bool *is_made, struct nd_error *err);

/* The same as nd_qualify_compare_one and nd_qualify_explain_one, from such a file where it is there and made of
 * the same captures. */
enum nd_status nd_qualify_explain(struct nd_qualification *q, struct nd_qualify_model *model,
                                  struct nd_error *err);

/* ---- gates/judge.c ---- */

enum nd_case_verdict {
    ND_CASE_PASSED,
    ND_CASE_WARNED, /* passed, but is looked at */
    ND_CASE_FAILED,
    ND_CASE_INCONCLUSIVE,
    ND_CASE_NOT_COMPARABLE,
    ND_CASE_DEVICE_FAILED,
};
const char *nd_case_verdict_name(enum nd_case_verdict verdict);
enum nd_exit nd_case_exit_code(enum nd_case_verdict verdict);

/* Of the answer to an accuracy gate's question: passed, failed, inconclusive. */
enum nd_case_verdict nd_case_verdict_of_answer(enum nd_answer_kind kind);

/* The more severe of two, in the order of nd_exit_worse; warned is more severe than passed. */
enum nd_case_verdict nd_case_verdict_worse(enum nd_case_verdict a, enum nd_case_verdict b);

/* One gate on one device. */
struct nd_case {
    enum nd_case_verdict verdict;
    bool applies;                 /* false: the rule governs nothing of this device and model */
    double value, bound;          /* the worst that was found, and what it must keep to; NaN: none */
    const char *tensor, *probe;   /* where; borrowed, or NULL */
    const char *first_failing;    /* the first tensor in graph order that fails; the same */
    size_t n_cells, n_failing;    /* tensors x probes */
    uint64_t n_samples, n_needed; /* of an accuracy gate */
    char message[400];
};

void nd_qualify_judge(const struct nd_qualification *q, const struct nd_qualify_model *model, size_t device,
                      size_t rule, struct nd_case *out);

/* ---- gates/judge.c: tensors ---- */

/* Steps, a share, ULPs, dB, or for bit-equality samples that differ. */
struct nd_tensor_value {
    bool is_known;
    double value;
    const char *why_not; /* static */
};

/* step: of the tensor's codes (nd_tensor_step), for codes against floats. */
struct nd_tensor_value nd_tensor_value_of(enum nd_policy_gate gate, const struct nd_difference *d, double step);

/* ---- the result ---- */

/* Texts of one device that nd_qualify_add_... appends. */
enum { ND_QUALIFY_MAX_FINDINGS = 4 };

/* A copy in the arena; "" for NULL. Names come from files: what is no UTF-8 has '?' in the place of every byte
 * beyond ASCII. */
const char *nd_qualify_text(const struct nd_qualification *q, const char *text);

/* SHA-256 of files that seldom change, such as a runtime's libraries: kept in a text file, so that hundreds of
 * megabytes are read once. A digest stands for a file of the same device, inode, size, and times of its last
 * change of content and of status, to the nanosecond; the last of these no program can set back. */

struct nd_digest_cache {
    char *path;                 /* of the file; what cannot be read or written there is only slower */
    size_t n, capacity, n_read; /* n_read: files that were hashed by this object */
    struct nd_cached_digest {
        char *key; /* path and status of the file in words, without line breaks */
        char sha256[ND_SHA256_HEX_BYTES];
        bool is_used; /* asked for: the others are forgotten */
    } * items;
    bool has_changed;
};

/* Reads what an earlier cache left at `path`. Only memory can fail. */
enum nd_status nd_digest_cache_open(const char *path, struct nd_digest_cache *out, struct nd_error *err);

/* SHA-256 of the file's content. A file that was changed within the last two seconds is hashed and not kept:
 * it might change again and show the same times. ND_ERR_IO. */
enum nd_status nd_digest_cache_find(struct nd_digest_cache *cache, const char *file,
                                    char hex[static ND_SHA256_HEX_BYTES], struct nd_error *err);

/* Writes what was asked for, where that changed, and frees. Accepts a zeroed struct. */
void nd_digest_cache_close(struct nd_digest_cache *cache);
