/* The sections of the text report, in the order in which they are written. Each appends to out; a failed
 * allocation is remembered by out. */
#pragma once

#include "core/text/strbuf.h"
#include "npudiff/report/report.h"
#include "report/text/tree.h"

struct nd_text_report {
    const struct nd_comparison *comparison;
    bool is_brief, all_tensors, details, worst;
    const char *model;      /* file name; NULL: not known */
    const char *model_path; /* where the file is, for the next command; NULL: not known */
    size_t width;
    const struct nd_matrix *matrices; /* [n_matrices] */
    size_t n_matrices;
    struct nd_strbuf *out;
};

/* Lists that are not the main table stop after this many lines unless all_edges. */
enum { ND_TEXT_LIST_LINES = 12, ND_TEXT_BRIEF_LINES = 3 };

/* Longer names and labels lose their middle in tables. */
enum { ND_TEXT_NAME_MAX = 32, ND_TEXT_LABEL_MAX = 30 };

/* All of the default text, of parts of the sections below. */
void nd_text_brief(const struct nd_text_report *report);

/* What is odd about a device (it ran on the CPU, ...); which failed. */
void nd_text_device_notes(const struct nd_text_report *report);
void nd_text_failures(const struct nd_text_report *report);

/* What is not a number, before any verdict. And the samples of a tensor that are NaN in every
 * value on both sides: the most of any test. */
void nd_text_numbers(const struct nd_text_report *report);

/* One row per tensor, one column per test device. */
void nd_text_tensors(const struct nd_text_report *report);

/* What repeats of a device say. A sentence for each device that does not repeat itself; all
 * tables. */
void nd_text_not_repeatable(const struct nd_text_report *report);
/* Outputs that do not depend on the input. */
void nd_text_stuck(const struct nd_text_report *report);

/* What fails its gate, and what could not be compared. */
void nd_text_gates(const struct nd_text_report *report);
void nd_text_problems(const struct nd_text_report *report);

/* Where the differing elements are, and which are the worst. */
void nd_text_structure(const struct nd_text_report *report);
void nd_text_worst(const struct nd_text_report *report);

/* What makes values differ, and how errors grow. */
void nd_text_diagnoses(const struct nd_text_report *report);
void nd_text_predicates(const struct nd_text_report *report);

/* The worst channels of each pair that differs. */
void nd_text_channels(const struct nd_text_report *report);

/* Every device against every other. */
void nd_text_matrices(const struct nd_text_report *report);

/* Whether that tensor is spelled out for that test: it differs there, and is a model output or where the test's
 * difference begins. */
bool nd_text_is_detailed(const struct nd_comparison *comparison, size_t tensor, size_t test);

/* Lines that a list may have. */
size_t nd_text_list_limit(const struct nd_text_report *report);

/* "  and 3 more" where a list of n lines was cut. */
void nd_text_put_more(const struct nd_text_report *report, size_t n);

/* " [1,0,2]", "" for a scalar. */
void nd_text_put_coordinates(struct nd_strbuf *out, const struct nd_shape *shape,
                             const struct nd_difference_place *place);

/* Appends text, wrapped within the width. It may come from a file. */
void nd_text_put_wrapped(const struct nd_text_report *report, const char *text, size_t indent);

/* Renders the table within the width below the title (wrapped; its newlines are the caller's) unless it has no
 * row but the n_title_cells of its titles, then frees it. */
void nd_text_put_table(const struct nd_text_report *report, struct nd_table *table, size_t n_title_cells,
                       size_t n_keys, const char *title);

/* Cells: the column titles, a count, four significant digits. */
void nd_text_add_titles(struct nd_table *table, const char *const *titles);
void nd_text_add_count(struct nd_table *table, uint64_t n);
void nd_text_add_short(struct nd_table *table, double value);

/* The same, and a value near 1; "-" where there is none. */
void nd_text_add_short_if(struct nd_table *table, bool exists, double value);
/* A measure of a difference as its form asks for; "-" where it is not known. */
const char *nd_text_measure(const struct nd_measure *measure, const struct nd_difference *difference,
                            char buf[static ND_NUMBER_BYTES]);
