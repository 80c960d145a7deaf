/* Writing a comparison for people and for programs. Both writers only read the comparison and never print. */
#ifndef NPUDIFF_REPORT_H
#define NPUDIFF_REPORT_H

#include "npudiff/compare.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_report_options {
    size_t struct_size; /* sizeof(struct nd_report_options) */
    bool all_edges;     /* list the bit-equal edges too, and never cut a list */
    size_t width;       /* columns; 0: 120 (at least 80) */
};

/* The comparison as text for a terminal, UTF-8 (only the sign "±" is not ASCII, besides names), lines end with
 * "\n", the verdict is the last line. Control characters in names are shown as '?'. The caller frees *out.
 * options NULL: the defaults. Independent of the locale. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_text(const struct nd_comparison *comparison,
                                        const struct nd_report_options *options, char **out,
                                        struct nd_error *err);

/* The comparison as JSON, indented, with a final newline. Numbers are numbers and read back to the same double;
 * NaN and infinities are the strings "NaN", "Infinity", "-Infinity"; null is what does not apply or is not
 * known (max_ulp of codes, the differing elements where only digests are stored). The caller frees *out.
 * ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_report_json(const struct nd_comparison *comparison, char **out,
                                        struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
