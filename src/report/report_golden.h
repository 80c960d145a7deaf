/* What the JSON and the text of the golden store have in common: cells of the table of upgrades. */
#ifndef ND_REPORT_REPORT_GOLDEN_H
#define ND_REPORT_REPORT_GOLDEN_H

#include "base/strbuf.h"
#include "npudiff/report.h"

enum { ND_UPGRADE_BYTES = 256 };

/* "3/50": edges that differ. */
const char *nd_upgrade_changed(const struct nd_golden_upgrade *upgrade, char buf[static ND_UPGRADE_BYTES]);

/* The operators of the edges that differ, each once, in graph order. */
const char *nd_upgrade_operators(const struct nd_golden_upgrade *upgrade, char buf[static ND_UPGRADE_BYTES]);

/* "48/50 -> 47/50, p 1", or "". */
const char *nd_upgrade_accuracy(const struct nd_golden_upgrade *upgrade, char buf[static ND_UPGRADE_BYTES]);

/* text_changes.c: a line with what changed of the axis; what people call it; whether a key changed. */
void nd_golden_put_axis(struct nd_strbuf *out, const char *axis, const struct nd_golden_difference *difference,
                        size_t width);
const char *nd_golden_axis_name(const char *axis);
bool nd_golden_has_changed(const struct nd_golden_difference *difference, const char *key);

#endif
