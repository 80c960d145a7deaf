/* The parts of the text and JSON of an explanation. */
#ifndef ND_REPORT_EXPLAIN_H
#define ND_REPORT_EXPLAIN_H

#include <jansson.h>

#include "base/strbuf.h"
#include "npudiff/report.h"

/* The first line of a device: its verdict, the evidence for it, and whose the error at the outputs is. */
void nd_explain_put_headline(struct nd_strbuf *out, const struct nd_explanation *explanation,
                             const struct nd_explained_device *device, size_t width);
/* Its layers that are faulty, unexplained, or explained in a way that is worth telling. */
void nd_explain_put_layers(struct nd_strbuf *out, const struct nd_explanation *explanation,
                           const struct nd_explained_device *device, size_t width);

/* The table of all units. */
void nd_explain_put_units(struct nd_strbuf *out, const struct nd_explanation *explanation,
                          const struct nd_explained_device *device, size_t width);

/* Where the device's units were computed, where that is not plainly where the device says; all of them with
 * with_units. */
void nd_explain_put_execution(struct nd_strbuf *out, const struct nd_explanation *explanation,
                              const struct nd_explained_device *device, size_t width, bool with_units);
json_t *nd_explain_execution_json(const struct nd_explained_execution *execution);

/* Of a device that has a program of whole units: which, what follows it, what that costs, what is not known.
 */
void nd_explain_put_program(struct nd_strbuf *out, const struct nd_explanation *explanation,
                            const struct nd_explained_device *device, size_t width);
/* Why such devices differ. */
void nd_explain_put_differences(struct nd_strbuf *out, const struct nd_explanation *explanation, size_t width);
json_t *nd_explain_losses_json(const struct nd_explanation *explanation,
                               const struct nd_explained_device *device);
json_t *nd_explain_differences_json(const struct nd_explanation *explanation);

/* What nd_identify_captures found, as JSON; NULL: memory is out. */
json_t *nd_identification_json(const struct nd_identification *identification);
/* The same as text: operator types and devices, with_units all units and their thresholds.
 * NULL: nothing is printed. */
void nd_explain_put_identification(struct nd_strbuf *out, const struct nd_identification *identification,
                                   size_t width, bool with_units);

#endif
