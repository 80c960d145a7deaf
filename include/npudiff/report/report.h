/* Writing what was found (comparisons, latencies, checks against accepted captures, campaigns) for people and
 * for programs.
 *
 * The functions return text and never print. They only read what they are given.
 *
 * Example:
 *
 *     static enum nd_status print_text(const struct nd_comparison *comparison, struct nd_error *err)
 *     {
 *         char *text = NULL;
 *         enum nd_status status = nd_report_text(comparison, NULL, &text, err);
 *         if (status == ND_OK)
 *             fputs(text, stdout);
 *         free(text);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_REPORT_H
#define NPUDIFF_REPORT_H

#include "npudiff/capture/logs.h"
#include "npudiff/compare/compare.h"
#include "npudiff/compare/config.h"
#include "npudiff/compare/latency.h"
#include "npudiff/compare/placement.h"
#include "npudiff/core/document_kinds.h"
#include "npudiff/explain/explain.h"
#include "npudiff/improve/align.h"
#include "npudiff/improve/certificate.h"
#include "npudiff/improve/lint.h"
#include "npudiff/improve/promote.h"
#include "npudiff/improve/reduce.h"
#include "npudiff/improve/sweep.h"
#include "npudiff/judge/campaign.h"
#include "npudiff/judge/judge.h"
#include "npudiff/judge/twin_check.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One measure of each pair of devices. docs/reference/metrics.md#bits to #distributions. */
struct nd_matrix {
    const struct nd_measure *measure; /* one that has an option */
    const char *tensor;               /* borrowed; NULL: one matrix for every model output */
};

/* Reads "METRIC" or "METRIC:NAME": METRIC is the option of a measure (nd_measure), NAME a tensor; out->tensor
 * points into text. ND_ERR_USAGE: not understood (ND_E_OPTION_VALUE); *out is then unchanged. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_matrix_parse(const char *text, struct nd_matrix *out, struct nd_error *err);

/* ND_ERR_USAGE: the comparison has no tensor of that name (ND_E_OPTION_VALUE). */
ND_PUBLIC enum nd_status nd_matrix_check(const struct nd_matrix *matrix, const struct nd_comparison *comparison,
                                         struct nd_error *err);

struct nd_report_options {
    size_t struct_size;               /* sizeof(struct nd_report_options) */
    bool all_tensors;                 /* list the bit-equal tensors too, and never cut a list */
    bool details;                     /* show the worst elements and the smallest gates that would pass, too */
    bool worst;                       /* show the worst elements, too */
    size_t width;                     /* columns; 0: 120 (at least 80) */
    const struct nd_matrix *matrices; /* [n_matrices], borrowed; complete when all pairs were compared */
    size_t n_matrices;
    bool is_brief;     /* instead of the tables: the verdict first, a row for each group of identical devices,
                          what is worth knowing, and the next command; 80 columns where width is 0 */
    const char *model; /* borrowed: the name of its file; NULL: not known */
    const char *model_path; /* borrowed: where that file is, for the next command; NULL: not known */
};

/* The comparison as text for a terminal, UTF-8 (only the sign "±" is not ASCII, besides names), lines end with
 * "\n" and keep within the width, the verdict is the last line. Control characters in names are shown as '?'.
 * The caller frees *out. options NULL: the defaults. Independent of the locale. ND_ERR_USAGE: a matrix of an
 * unknown tensor (nd_matrix_check). ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_text(const struct nd_comparison *comparison,
                                        const struct nd_report_options *options, char **out,
                                        struct nd_error *err);

/* The comparison as JSON with a final newline: indented down to tensors, devices and pairs, while each of their
 * parts (a probe, a channel, an element) stands in one line. Numbers are numbers and read back to the same
 * double; NaN and infinities are the strings "NaN", "Infinity", "-Infinity"; null is what does not apply or is
 * not known (max_ulp of quantised values, the differing elements where only digests are stored). The comparison
 * must be whole (cut is ND_CUT_NONE). The caller frees *out. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_json(const struct nd_comparison *comparison, char **out,
                                        struct nd_error *err);

/* A document of this kind: "kind", "format" and "npudiff" (the version), and the members of a JSON object, in
 * any layout. Indented by 2, numbers the shortest that read back equal, with a final newline. The caller frees
 * it; NULL when memory is out, or the text is no JSON object. */
ND_PUBLIC char *nd_report_document(enum nd_document kind, const char *json);

/* "npudiff VERSION" and, one per line, the versions of the libraries that it uses. The caller frees it; NULL
 * when memory is out. */
ND_PUBLIC char *nd_report_versions(void);

/* Rows (a JSON array of objects with texts, numbers, booleans or null) as an aligned table. The caller frees
 * it; NULL as above. */
struct nd_report_column {
    const char *key; /* of the object; NULL ends the list */
    const char *title;
};
ND_PUBLIC char *nd_report_rows(const char *json, const struct nd_report_column *columns);

/* ---- one screen ----
 *
 * What a command prints by default: sentences, tables, and the next command, within the width and 24 lines.
 * Tables get the lines that the sentences leave, and say how many rows are left out. NULL as a screen (memory
 * is out) is accepted; nd_report_screen_end reports it. */

struct nd_report_screen;
ND_PUBLIC struct nd_report_screen *nd_report_screen_create(size_t width); /* columns; 0: 80 */

/* Sentences, one per line, with the indentation that they have; lines that are too long are wrapped. */
ND_PUBLIC void nd_report_screen_put(struct nd_report_screen *screen, const char *fmt, ...) ND_PRINTF(2, 3);

/* A text that belongs on the screen was lost for want of memory: nd_report_screen_end reports it. */
ND_PUBLIC void nd_report_screen_lose(struct nd_report_screen *screen);

/* No cell of the rows that were put last loses anything: columns that do not fit follow below the others. */
ND_PUBLIC void nd_report_screen_whole(struct nd_report_screen *screen);

/* Rows as for nd_report_rows; NULL: they were lost for want of memory. The columns are read at the end. more:
 * what shows the rows that are left out, such as "-v shows all". */
ND_PUBLIC void nd_report_screen_rows(struct nd_report_screen *screen, const char *json,
                                     const struct nd_report_column *columns, const char *more);

/* "Next, WHY:" and the words of a command, quoted for a shell. */
ND_PUBLIC void nd_report_screen_next(struct nd_report_screen *screen, const char *why, const char *const *words,
                                     size_t n_words);

/* A command as a shell takes it, indented; where it is too long for a line it continues after a backslash. */
ND_PUBLIC void nd_report_screen_command(struct nd_report_screen *screen, const char *command);

/* Frees the screen. The caller frees *out. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_screen_end(struct nd_report_screen **screen, char **out,
                                              struct nd_error *err);

/* ---- explanations ----
 *
 * identification: what nd_identify_captures gave, or NULL. The caller frees *out. ND_ERR_MEMORY. In JSON it is
 * the object `identification`:
 *
 *     devices       one for every capture, in their order:
 *       uri, chipset, capture
 *       failure     what it said when it failed, or null; then there is nothing else
 *       probes      [{name, samples}] that were looked at
 *       ANSWER      of the whole device: what is left in all types; none when a type has none
 *       types       [{op_type, layers (their number), ANSWER}] by operator type: left in all its layers and
 *                   in their values taken together
 *       layers      [{name, op_type, method, ANSWER, thresholds, curve}]; method: "exact ratio" or "double"
 *       not_identified  [{name, op_type, why}]: not captured, not covered, or changes from run to run
 *
 * ANSWER is, of quantised values:
 *
 *     verdict       "too-few": fewer than 64 that are neither whole nor clipped; "several"; "single": one
 *                   group is left and explains: no exception, or 0.999 and more; "none": no group is left,
 *                   or one that does not explain
 *     split         of a verdict none: parts have arithmetics, but not the same
 *     groups        [[names]] of arithmetics that are not excluded; those of one list gave equal values on
 *                   everything seen. Empty for too-few
 *     nearest       the best arithmetic, or null
 *     values, open, deciding   all; those that are neither whole nor clipped; those on which arithmetics differ
 *     exceptions    values that the best does not give; where it is not applicable, half-even does not give
 *     explained     1 - exceptions / values that half-even does not give; null when there are none of these
 *     layer_arithmetic  [{name, values, exceptions}] beside it, arithmetics of whole layers (htp-v73): the
 *                   values of which each says what they are, and those of them that the device has otherwise
 *
 * thresholds is {positive, negative, binades, channels}: BRACKET by sign of the value v in steps of the output,
 * [{sign, from, to, BRACKET}] by |v|, and [{channel, BRACKET}] of layers with 2 to 32 channels. BRACKET is
 * {down, up, max_down, min_up, crossed} or null: of so many values rounded down and up, fractions up to
 * max_down went down and from min_up on up, each null where there are none; crossed: max_down >= min_up, so
 * there is no threshold, or contamination.
 *
 * curve is [{from, to, values, p, low, high}]: P(up | fraction) in those of 32 bins that are not empty, with
 * the 95 % interval of Clopper and Pearson. src/explain/identify/identify.h says how arithmetics are excluded.
 */

ND_PUBLIC enum nd_status nd_report_explanation_json(const struct nd_explanation *explanation,
                                                    const struct nd_identification *identification, char **out,
                                                    struct nd_error *err);

/* The answer in one screen: the verdict, a paragraph for each group of devices with equal values, the next
 * command. width: columns, 0: 80; captures whose names (without folder and ".h5") are unique are called by
 * them. */
ND_PUBLIC enum nd_status nd_report_explanation_brief(const struct nd_explanation *explanation,
                                                     const struct nd_identification *identification,
                                                     size_t width, char **out, struct nd_error *err);

/* Lines of at most `width` (at least 100) columns but for words that are longer; with_units: a table of all
 * layers of devices that have local mismatches. */
ND_PUBLIC enum nd_status nd_report_explanation_text(const struct nd_explanation *explanation,
                                                    const struct nd_identification *identification,
                                                    size_t width, bool with_layers, char **out,
                                                    struct nd_error *err);

/* ---- latencies ---- */

/* One series of a capture or a list; texts are borrowed. */
struct nd_latency_series {
    const char *file;
    const char *probe;      /* NULL: of a list */
    const char *first_tied; /* name of the first tensor that slow runs change; NULL: none */
    const char *format;     /* "capture", or that of nd_latency_list */
    const char *where;      /* of a profile: where its kernels ran; NULL */
    struct nd_latency latency;
    const double
        *us; /* [n_us]: the runs in their order, for the JSON; NULL: not to be there. NaN: not recorded */
    size_t n_us;
};

/* The caller frees *out. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_latency_json(const struct nd_latency_series *series, size_t n,
                                                const struct nd_latency_options *options, char **out,
                                                struct nd_error *err);

/* The answer in one screen: the verdict, a table of all series, what is odd about the first ones that are not
 * healthy. width: columns, 0: 80. */
ND_PUBLIC enum nd_status nd_report_latency_brief(const struct nd_latency_series *series, size_t n,
                                                 const struct nd_latency_options *options, size_t width,
                                                 char **out, struct nd_error *err);

/* Every series, a table of all where there are several, and the rule with how often it is wrong. */
ND_PUBLIC enum nd_status nd_report_latency_text(const struct nd_latency_series *series, size_t n,
                                                const struct nd_latency_options *options, char **out,
                                                struct nd_error *err);

/* ---- logs ---- */

/* A line of text. The caller frees *out. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_log_finding(const struct nd_log_finding *finding, char **out,
                                               struct nd_error *err);

/* ---- encodings ----
 *
 * The caller frees *out. ND_ERR_MEMORY. */

ND_PUBLIC enum nd_status nd_report_encodings_json(const struct nd_encodings *encodings, char **out,
                                                  struct nd_error *err);
/* The brief texts are those of one screen; width: columns, 0: 80. */
ND_PUBLIC enum nd_status nd_report_encodings_brief(const struct nd_encodings *encodings, size_t width,
                                                   char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_encodings_diff_brief(const struct nd_encodings_diff *diff,
                                                        const struct nd_encodings *ref,
                                                        const struct nd_encodings *test, size_t width,
                                                        char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_encodings_check_brief(const struct nd_encodings_check *check,
                                                         const struct nd_encodings *encodings,
                                                         const struct nd_capture *capture, size_t width,
                                                         char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_encodings_text(const struct nd_encodings *encodings, char **out,
                                                  struct nd_error *err);

/* output: what was written, or NULL. */
ND_PUBLIC enum nd_status nd_report_encodings_applied_json(const struct nd_encodings_match *match,
                                                          const struct nd_encodings *encodings,
                                                          const char *output, char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_encodings_diff_json(const struct nd_encodings_diff *diff,
                                                       const struct nd_encodings *ref,
                                                       const struct nd_encodings *test, char **out,
                                                       struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_encodings_diff_text(const struct nd_encodings_diff *diff,
                                                       const struct nd_encodings *ref,
                                                       const struct nd_encodings *test, char **out,
                                                       struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_encodings_check_json(const struct nd_encodings_check *check,
                                                        const struct nd_encodings *encodings,
                                                        const struct nd_capture *capture, char **out,
                                                        struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_encodings_check_text(const struct nd_encodings_check *check,
                                                        const struct nd_encodings *encodings,
                                                        const struct nd_capture *capture, char **out,
                                                        struct nd_error *err);

/* ---- placement ---- */

/* What the capture of a device says of where nodes ran. */
struct nd_placed_device {
    struct nd_capture *capture;
    struct nd_placement_report *report; /* of nd_placement_examine */
    const char *label, *uri;            /* borrowed */
    bool has_failed;
};

/* How many nodes of an NPU device should be on the NPU and are known not to be. Quantisation that a provider
 * added counts as little as that of inputs and outputs. */
ND_PUBLIC size_t nd_placed_n_fell_back(const struct nd_placed_device *device);

/* The caller frees *out. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_placement_json(const struct nd_model *model,
                                                  const struct nd_placed_device *devices, size_t n, char **out,
                                                  struct nd_error *err);

/* The answer in one screen: whether the model left an NPU, and with which nodes; devices of which the same is
 * to be said together. width: columns, 0: 80. */
ND_PUBLIC enum nd_status nd_report_placement_brief(const struct nd_placed_device *devices, size_t n,
                                                   size_t width, char **out, struct nd_error *err);

/* The matrix of chipsets and operators, then a part for every device; is_verbose: no list is cut. */
ND_PUBLIC enum nd_status nd_report_placement_text(const struct nd_placed_device *devices, size_t n,
                                                  bool is_verbose, char **out, struct nd_error *err);

/* ---- reductions ---- */

/* has_difference: a difference was looked for, not a failure; folder: of the reproducer, or NULL. The caller
 * frees *out. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_reduction_json(const struct nd_reduction *reduction, bool has_difference,
                                                  const char *folder, char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_reduction_brief(const struct nd_reduction *reduction, bool has_difference,
                                                   const char *folder, size_t width, char **out,
                                                   struct nd_error *err); /* one screen; width 0: 80 columns */
ND_PUBLIC enum nd_status nd_report_reduction_text(const struct nd_reduction *reduction, bool has_difference,
                                                  const char *folder, char **out, struct nd_error *err);

/* ---- alignments ----
 *
 * The caller frees *out. ND_ERR_MEMORY. brief: one screen; width 0: 80 columns. */

ND_PUBLIC enum nd_status nd_report_alignment_json(const struct nd_alignment *alignment, char **out,
                                                  struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_alignment_brief(const struct nd_alignment *alignment, size_t width,
                                                   char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_alignment_text(const struct nd_alignment *alignment, char **out,
                                                  struct nd_error *err);

/* What verifying a certificate found. */
ND_PUBLIC enum nd_status nd_report_certificate_json(const struct nd_certificate_check *check, char **out,
                                                    struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_certificate_brief(const struct nd_certificate_check *check, size_t width,
                                                     char **out, struct nd_error *err);

/* ---- twins against chips ----
 *
 * Of captures of one model. The JSON is the certificate. The caller frees *out. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_twin_json(const struct nd_twin_check *const *checks, size_t n,
                                             const struct nd_model *model, char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_twin_text(const struct nd_twin_check *const *checks, size_t n,
                                             const struct nd_model *model, size_t width, char **out,
                                             struct nd_error *err);

/* ---- faults found by lint ----
 *
 * The caller frees *out. ND_ERR_MEMORY. brief: one screen; width 0: 80 columns. sarif: the Static Analysis
 * Results Interchange Format 2.1.0. */

ND_PUBLIC enum nd_status nd_report_lint_json(const struct nd_lint *lint, char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_lint_sarif(const struct nd_lint *lint, char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_lint_brief(const struct nd_lint *lint, size_t width, char **out,
                                              struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_lint_text(const struct nd_lint *lint, size_t width, char **out,
                                             struct nd_error *err);
/* The rules themselves. */
ND_PUBLIC enum nd_status nd_report_lint_rules_json(char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_lint_rules_text(size_t width, char **out, struct nd_error *err);

/* ---- layers that get more bits ----
 *
 * The caller frees *out. ND_ERR_MEMORY. brief: one screen; width 0: 80 columns. text: also the proposals that
 * were not kept, and why. */

ND_PUBLIC enum nd_status nd_report_promotion_json(const struct nd_promoted *promoted, char **out,
                                                  struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_promotion_brief(const struct nd_promoted *promoted, size_t width, char **out,
                                                   struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_promotion_text(const struct nd_promoted *promoted, size_t width, char **out,
                                                  struct nd_error *err);

/* ---- options of a device ----
 *
 * The caller frees *out. ND_ERR_MEMORY. brief: one screen; width 0: 80 columns. */

ND_PUBLIC enum nd_status nd_report_sweep_json(const struct nd_sweep *sweep, char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_sweep_brief(const struct nd_sweep *sweep, size_t width, char **out,
                                               struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_sweep_text(const struct nd_sweep *sweep, size_t width, char **out,
                                              struct nd_error *err);

/* ---- the golden store and triage ----
 *
 * The caller frees *out. ND_ERR_MEMORY. JSON is one object, indented, with a final newline; with a store it
 * holds the store's "problems". */

ND_PUBLIC enum nd_status nd_report_golden_list_json(const struct nd_golden *store, char **out,
                                                    struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_golden_list_brief(const struct nd_golden *store, const char *path,
                                                     size_t width, char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_golden_list_text(const struct nd_golden *store, char **out,
                                                    struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_golden_added_json(const struct nd_golden_added *added, size_t n, char **out,
                                                     struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_golden_checks_json(const struct nd_golden_check *checks, size_t n,
                                                      const struct nd_golden *store, char **out,
                                                      struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_golden_diff_json(const struct nd_golden_check *check,
                                                    const struct nd_golden *store, char **out,
                                                    struct nd_error *err);

/* Chipsets by SDKs of every chart, and the steps at which something changed. width: columns, 0: 80. is_verbose:
 * all steps, and the tensors that changed. */
ND_PUBLIC enum nd_status nd_report_golden_history_json(const struct nd_golden_history *history,
                                                       const struct nd_golden *store, char **out,
                                                       struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_golden_history_text(const struct nd_golden_history *history, size_t width,
                                                       bool is_verbose, char **out, struct nd_error *err);

/* What a check or a diff found, the verdict first; `name` is the test. width: columns, 0: 80; at most `most`
 * tensors are listed. */
ND_PUBLIC enum nd_status nd_report_golden_check_text(const struct nd_golden_check *check, const char *name,
                                                     size_t width, size_t most, char **out,
                                                     struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_golden_pruning_json(const struct nd_golden_pruning *pruning,
                                                       const struct nd_golden *store, char **out,
                                                       struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_golden_pruning_text(const struct nd_golden_pruning *pruning, char **out,
                                                       struct nd_error *err);

/* A chipset of the store, captured again with another runtime. */
struct nd_golden_upgrade {
    const char *chipset, *runtime; /* borrowed */
    struct nd_golden_check check;
    /* Labelled samples whose class was right: known where the entry keeps its capture, and there are labels. */
    bool has_top1;
    size_t n_samples, n_right_before, n_right_after, n_lost, n_gained;
    double p_value; /* of no change */
};
ND_PUBLIC enum nd_status nd_report_golden_upgrades_json(const struct nd_golden_upgrade *upgrades, size_t n,
                                                        char **out, struct nd_error *err);

/* The verdict, a table of all, then what changed for the first that is not the same; is_verbose: for each. */
ND_PUBLIC enum nd_status nd_report_golden_upgrades_text(const struct nd_golden_upgrade *upgrades, size_t n,
                                                        size_t width, bool is_verbose, char **out,
                                                        struct nd_error *err);

/* field: the path of what came from the field. */
ND_PUBLIC enum nd_status nd_report_triage_json(const struct nd_triage *triage, const char *field,
                                               const struct nd_golden *store, char **out, struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_triage_text(const struct nd_triage *triage, const char *field, size_t width,
                                               char **out, struct nd_error *err);

/* ---- the result of a campaign ----
 *
 * The caller frees *out. ND_ERR_MEMORY. */

/* Where the files are that the next command names; both may be NULL. */
struct nd_qualification_place {
    const char *folder; /* of the result */
    const char *model;  /* path of the model of the first failure; NULL: the text asks for it */
};

/* The answer in one screen: may it ship, devices by models, what fails, the next command. width: columns, 0:
 * 80. */
ND_PUBLIC enum nd_status nd_report_qualification_brief(const struct nd_qualified *result,
                                                       const struct nd_qualification_place *place, size_t width,
                                                       char **out, struct nd_error *err);

/* The capture of the first gate that fails, in the folder of the result, and the name of its model's file.
 * False where none fails. */
ND_PUBLIC bool nd_report_first_failure(const struct nd_qualified *result, const char **quantised,
                                       const char **capture);

/* All tables; ends with the verdict. Independent of the locale. */
ND_PUBLIC enum nd_status nd_report_qualification_text(const struct nd_qualified *result, char **out,
                                                      struct nd_error *err);

/* result.json: docs/reference/campaign.md. nd_qualified_read reads it. */
ND_PUBLIC enum nd_status nd_report_qualification_json(const struct nd_qualified *result, char **out,
                                                      struct nd_error *err);

/* RFC 4180 with a header: one row for every device and gate, whose tensor patterns stand in one column. */
ND_PUBLIC enum nd_status nd_report_qualification_csv(const struct nd_qualified *result, char **out,
                                                     struct nd_error *err);

/* JUnit XML, UTF-8: one suite for every model and device, one case for every gate that is about it. Failures
 * are gates that failed, errors are devices that failed or cannot be compared, skipped is what too few samples
 * were given for. Times are 0. */
ND_PUBLIC enum nd_status nd_report_qualification_junit(const struct nd_qualified *result, char **out,
                                                       struct nd_error *err);

/* The tightest policy that the captures pass, as JSON. */
ND_PUBLIC enum nd_status nd_report_suggestion_json(const struct nd_qualified *result, char **out,
                                                   struct nd_error *err);

/* What a campaign comes to: in one screen (width: columns, 0: 80), with every task, as JSON. */
ND_PUBLIC enum nd_status nd_report_plan_brief(const struct nd_plan_of_campaign *plan, size_t width, char **out,
                                              struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_plan_text(const struct nd_plan_of_campaign *plan, char **out,
                                             struct nd_error *err);
ND_PUBLIC enum nd_status nd_report_plan_json(const struct nd_plan_of_campaign *plan, char **out,
                                             struct nd_error *err);

/* The tasks that are not done as a script for an engine: "tasks" (lines for a shell), "slurm", "snakemake",
 * "make", "github". ND_ERR_USAGE: another engine, more captures than it takes (ND_E_OPTION_VALUE), or a name
 * that cannot stand in its script (ND_E_OPTION_CONFLICT). The caller frees *out. */
ND_PUBLIC enum nd_status nd_report_plan_script(const struct nd_plan_of_campaign *plan, const char *engine,
                                               char **out, struct nd_error *err);

/* Writes result.json, result.txt, result.csv and junit.xml into the folder of the result; each is replaced at
 * once or not at all. ND_ERR_IO. */
ND_PUBLIC enum nd_status nd_report_qualification_write(const struct nd_qualify_result *result,
                                                       struct nd_error *err);

/* Writes a document. A regular file appears under its name when it is whole, and takes the place of another one
 * only with replace; nothing that is not a regular file is ever replaced. A pipe, /dev/stdout or another device
 * is written into. ND_ERR_IO (ND_E_FILE_WRITE, ND_E_FILE_EXISTS). Thread-safe. */
ND_PUBLIC enum nd_status nd_document_write(const char *path, const char *text, bool replace,
                                           struct nd_error *err);

/* Whether nd_document_write would write into what is there: a pipe, or a device such as /dev/stdout. */
ND_PUBLIC bool nd_document_is_stream(const char *path);

/* ---- the report: one HTML file ---- */

/* The inputs of the changed samples (nd_find_changed_samples) as pictures, for nd_report_page: {"images":
 * [{"probe", "sample", "png": base64}]}. Only of inputs that look like pictures: H x W with 1 or 3 channels; at
 * most 96 pixels wide and high, and 768 KiB together. captures: those of the comparison. The caller frees *out.
 * ND_ERR_IO, ND_ERR_FORMAT, ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_images_json(const struct nd_comparison *comparison,
                                               const struct nd_capture *const *captures, char **out,
                                               struct nd_error *err);

/* What a command printed with --json. Texts are borrowed. */
struct nd_report_document {
    const char *json;
    const char *name;  /* for messages: the file, or "compare" */
    const char *model; /* the model of a campaign that it is about; NULL or "": the page is about one model */
};

/* Node data for Google's Model Explorer: a value by node of the model, and how values are coloured. */
struct nd_node_data_file {
    char *name; /* of the file, such as "gen3.share.json": the device is named after its capture's file */
    char *json; /* its text, as Model Explorer reads it */
    const char *measure; /* what the values are. Static */
    size_t n_nodes;      /* nodes that have a value */
};

struct nd_node_data {
    char *graph; /* the id of the graph in Model Explorer */
    struct nd_node_data_file *files;
    size_t n;
};

/* A file for each device and measure of what compare, explain and run printed. Of a comparison, for each device
 * against the first: the verdict, the share of values that differ, and the largest difference; of an
 * explanation, for each device: the state of the layer, the share of values that differ because of it, and its
 * effect on the outputs. Nodes of which nothing is known have no value. Other documents are passed over. The
 * caller frees *out with nd_node_data_deinit. ND_ERR_FORMAT (ND_E_REPORT_DOCUMENT): nothing is said of any node
 * of the model. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_node_data(const struct nd_model *model,
                                             const struct nd_report_document *documents, size_t n,
                                             struct nd_node_data *out, struct nd_error *err);
ND_PUBLIC void nd_node_data_deinit(struct nd_node_data *data);

/* One HTML page of the results of compare, explain, placement, latency, golden check, golden diff, golden
 * history, qualify, align and promote: at most one of each for a model, at most 64 models. The page loads
 * nothing and is complete without JavaScript. Every text of a document is escaped. title NULL: the model's
 * name. SOURCE_DATE_EPOCH is the date where it is set. The caller frees *out. ND_ERR_FORMAT
 * (ND_E_REPORT_DOCUMENT): no such result, or two of one kind for a model. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_page(const struct nd_report_document *documents, size_t n, const char *title,
                                        char **out, struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
