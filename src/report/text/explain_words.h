/* Numbers and names as `npudiff explain` writes them. */
#ifndef ND_REPORT_EXPLAIN_WORDS_H
#define ND_REPORT_EXPLAIN_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "core/text/strbuf.h"
#include "npudiff/explain/explain.h"

enum { EXPLAIN_CELL_BYTES = 512 };

/* Names come from files: nothing of them may steer a terminal. */
void nd_explain_clean(char *text);

/* Three digits; "-" for NaN. */
char *nd_explain_real(double value, char buf[static 32]);

/* A copy of at most `max` characters that lost its middle; bytes of UTF-8 are not cut apart. */
void nd_explain_shorten(const char *text, size_t max, char out[static EXPLAIN_CELL_BYTES]);

/* Appends a paragraph behind `indent` blanks, broken at blanks; lines that follow are indented by two more. */
ND_PRINTF(4, 5)
void nd_explain_put_wrapped(struct nd_strbuf *out, size_t width, size_t indent, const char *fmt, ...);

/* The layer's effect on the outputs (harm) as a share of the effects of all layers together; NaN where it was
 * not measured, or no layer has any. */
double nd_explain_effect_share(const struct nd_explanation *e, const struct nd_explained_device *device,
                               size_t step);
/* The layer with the greatest effect on the outputs; SIZE_MAX: none has any, or none was measured. */
size_t nd_explain_greatest(const struct nd_explanation *e, const struct nd_explained_device *device);

#endif
