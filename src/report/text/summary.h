/* What the default texts of all commands have in common: wrapped sentences, and the command to paste next. */
#pragma once

#include "core/documents/json_out.h"
#include "core/text/strbuf.h"
#include "npudiff/judge/campaign.h"
#include "npudiff/judge/judge.h"
#include "npudiff/report/report.h"

/* Columns of a text for which no width is given, and the fewest that one may have. */
enum { ND_SUMMARY_WIDTH = 80, ND_SUMMARY_MIN_WIDTH = 40 };

/* The width to lay out for; 0: nobody said which. */
size_t nd_summary_width(size_t width);

/* Appends a paragraph of its own lines, broken at blanks: the first line starts with `indent` blanks, the
 * others with `hanging`. Control characters become '?'. */
ND_PRINTF(5, 6)
void nd_summary_put(struct nd_strbuf *out, size_t width, size_t indent, size_t hanging, const char *fmt, ...);

/* The same of text of several lines, each a paragraph with the indentation that it has; the last ends it. */
ND_PRINTF(3, 4)
void nd_summary_put_lines(struct nd_strbuf *out, size_t width, const char *fmt, ...);

/* One line that says where the devices ran: "ran on: QAIRT 2.51.0, simulator (gen1, gen3); ...", without the
 * names where all ran on the same. Devices that do not say ("") are left out; nothing where none does. */
void nd_summary_put_environments(struct nd_strbuf *out, size_t width, const char *const *labels,
                                 const char *const *environments, size_t n);

/* Lines that a default text may have in all, however much there is to say. */
enum { ND_SUMMARY_LINES = 24 };

/* The number of lines of a text. */
size_t nd_summary_count_lines(const struct nd_strbuf *text);

/* Appends the text, or where it has more lines than that so many paragraphs as fit, and a line that says so. A
 * line belongs to the paragraph before it when it is indented deeper. */
void nd_summary_append_cut(struct nd_strbuf *out, const struct nd_strbuf *text, size_t max_lines);

/* "Next, WHY:" and the command, quoted for a shell. A command that is too long for a line continues after a
 * backslash, so that it can be pasted as it stands. */
void nd_summary_put_next(struct nd_strbuf *out, size_t width, const char *why, const char *const *words,
                         size_t n_words);

/* The same; where `model` is the name of a file whose folder is not known, the text asks for its path. */
void nd_summary_put_next_of(struct nd_strbuf *out, size_t width, const char *why, const char *model,
                            const char *const *words, size_t n_words);

/* Whether the capture does not hold what the model was fed, as imports without --inputs: then `explain` can
 * judge no layer. */
bool nd_summary_lacks_inputs(const char *capture);

/* "Next: import 'a.h5' again with --inputs": in the place of `explain`. */
void nd_summary_put_import_again(struct nd_strbuf *out, size_t width, const char *capture);

/* `explain` of one capture, or nd_summary_put_import_again; model: the name of its file, for captures that do
 * not say where it is; NULL: not known. */
void nd_summary_put_explain(struct nd_strbuf *out, size_t width, const char *why, const char *capture,
                            const char *model);

/* What the JSON and the text of the golden store have in common: cells of the table of upgrades. */

enum { ND_UPGRADE_BYTES = 256 };

/* A short name for a value, "a" for 0; "-" for SIZE_MAX. */
enum { ND_HISTORY_LETTER_BYTES = 16 };
const char *nd_history_letter(size_t value, char buf[static ND_HISTORY_LETTER_BYTES]);

/* The member "problems" of a store. */
void nd_report_put_problems(struct nd_json *json, const struct nd_golden *store);

/* A line with what changed of the axis; what people call it; whether a key changed. */
const char *nd_golden_axis_name(const char *axis);

/* ---- what the writers of a campaign's result have in common ---- */

/* The gate of a case; one that is not there gives an empty gate. */
const struct nd_qualified_gate *nd_qualified_gate_of(const struct nd_qualified *result,
                                                     const struct nd_qualified_case *one);

/* Whether a case is about that model and device. */
bool nd_qualified_is_about(const struct nd_qualified_case *one, const struct nd_qualified_model *model,
                           const struct nd_qualified_device *device);

/* ---- the tasks of a campaign as scripts, one file for each engine ---- */

/* Appends the word as a shell reads it back. */
void nd_shell_put(struct nd_strbuf *out, const char *word);
