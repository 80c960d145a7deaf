/* Captures and bundles from the field. docs/reference/store.md#bundles. */
#ifndef ND_GOLDEN_TRIAGE_H
#define ND_GOLDEN_TRIAGE_H

#include "judge/golden/store.h"

enum { ND_BUNDLE_VERSION = 1, ND_BUNDLE_MAX_BYTES = 16 << 20 };

/* The record of a capture or a bundle; *capture is open, for the caller to close, when it was a capture. */
enum nd_status nd_field_read(const char *path, json_t **record, struct nd_capture **capture,
                             struct nd_error *err);

/* Share of differing elements over all edges and common probes of two captures that keep their tensors; NaN
 * where nothing can be compared. Edges of other types or sizes differ in all elements. */
enum nd_status nd_field_share(const struct nd_capture *ref, const struct nd_capture *test, double *out,
                              struct nd_error *err);

#endif
