/* The sections of the text report, in the order in which they are written. Each appends to out; a failed
 * allocation is remembered by out. */
#ifndef ND_REPORT_TEXT_H
#define ND_REPORT_TEXT_H

#include "base/strbuf.h"
#include "npudiff/report.h"

struct nd_text_report {
    const struct nd_comparison *comparison;
    bool all_edges;
    size_t width;
    struct nd_strbuf *out;
};

/* Lists that are not the main table stop after this many lines unless all_edges. */
enum { ND_TEXT_LIST_LINES = 12 };

/* text_devices.c: who was compared, who agrees with whom, where it starts. */
void nd_text_devices(const struct nd_text_report *report);
void nd_text_classes(const struct nd_text_report *report);
void nd_text_first_differences(const struct nd_text_report *report);

/* text_edges.c: one row per edge, one column per test device. */
void nd_text_edges(const struct nd_text_report *report);

/* text_problems.c: what fails its gate, and what could not be compared. */
void nd_text_gates(const struct nd_text_report *report);
void nd_text_problems(const struct nd_text_report *report);

/* text_details.c: magnitudes at the outputs and at the first difference, top-1. */
void nd_text_magnitudes(const struct nd_text_report *report);
void nd_text_top1(const struct nd_text_report *report);

/* Appends text with nd_clean_text. */
void nd_text_put_clean(struct nd_strbuf *out, const char *text);

#endif
