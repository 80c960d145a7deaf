/* What `npudiff explain` prints. */
#ifndef ND_CLI_EXPLAIN_REPORT_H
#define ND_CLI_EXPLAIN_REPORT_H

#include <jansson.h>

#include "npudiff/explain.h"

/* Prints the text for people, lines of at most `width` (at least 100) columns but for words that are longer.
 * Devices without a local mismatch get no table. */
void explain_print_text(const struct nd_explanation *explanation, size_t width);

/* Everything, as JSON; NULL when memory is out. */
json_t *explain_json(const struct nd_explanation *explanation);

#endif
