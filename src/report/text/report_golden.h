/* What the JSON and the text of the golden store have in common: cells of the table of upgrades. */
#ifndef ND_REPORT_REPORT_GOLDEN_H
#define ND_REPORT_REPORT_GOLDEN_H

#include "core/documents/json_out.h"
#include "core/text/strbuf.h"
#include "npudiff/report/report.h"

enum { ND_UPGRADE_BYTES = 256 };

/* A short name for a value, "a" for 0; "-" for SIZE_MAX. */
enum { ND_HISTORY_LETTER_BYTES = 16 };
const char *nd_history_letter(size_t value, char buf[static ND_HISTORY_LETTER_BYTES]);

/* The member "problems" of a store. */
void nd_report_put_problems(struct nd_json *json, const struct nd_golden *store);

/* A line with what changed of the axis; what people call it; whether a key changed. */
const char *nd_golden_axis_name(const char *axis);

#endif
