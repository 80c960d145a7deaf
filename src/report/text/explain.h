/* The parts of the text and JSON of an explanation. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "core/text/strbuf.h"
#include "npudiff/explain/explain.h"
#include "npudiff/report/report.h"

/* The first line of a device: its verdict, the evidence for it, and whose the error at the outputs is. */
void nd_explain_put_headline(struct nd_strbuf *out, const struct nd_explanation *explanation,
                             const struct nd_explained_device *device, size_t width);
/* The same without the device's name and the word of the verdict. */
enum { EXPLAIN_SENTENCE_BYTES = 1024 };
void nd_explain_say_health(const struct nd_explanation *explanation, const struct nd_explained_device *device,
                           char out[static EXPLAIN_SENTENCE_BYTES]);

/* Its layers that are faulty, unexplained, or explained in a way that is worth telling; of each kind at most
 * `most`. */
void nd_explain_put_layers(struct nd_strbuf *out, const struct nd_explanation *explanation,
                           const struct nd_explained_device *device, size_t width, size_t most);

/* What contradicts the capture itself: at most `most` findings. */
void nd_explain_put_findings(struct nd_strbuf *out, const struct nd_explanation *explanation,
                             const struct nd_explained_device *device, size_t width, size_t most);

/* Layers that could not be examined: at most `most`. */
void nd_explain_put_not_examined(struct nd_strbuf *out, const struct nd_explanation *explanation,
                                 const struct nd_explained_device *device, size_t width, size_t most);

/* Layers that differ as float arithmetic does. */
void nd_explain_put_within(struct nd_strbuf *out, const struct nd_explanation *explanation,
                           const struct nd_explained_device *device, size_t width);

/* Whether observing the layers changed the outputs. */
void nd_explain_put_observer(struct nd_strbuf *out, const struct nd_explained_device *device, size_t width);

/* Of a float model: the first layer that is not the exact result, rounded once, and the greatest effect. And a
 * table of its layers. */
void nd_explain_put_floats(struct nd_strbuf *out, const struct nd_explanation *explanation,
                           const struct nd_explained_device *device, size_t width);

/* Where the reference ends, of all devices. */
void nd_explain_put_unreached(struct nd_strbuf *out, const struct nd_explanation *explanation, size_t width);

/* Whether the model has quantised values: a float model has none. */
bool nd_explain_has_qvalues(const struct nd_explanation *explanation);

/* Where the device's layers were computed, where that is not plainly where the device says; all of them with
 * with_units. */
void nd_explain_put_execution(struct nd_strbuf *out, const struct nd_explanation *explanation,
                              const struct nd_explained_device *device, size_t width, bool with_layers);
/* Only one sentence of that. */
void nd_explain_put_execution_line(struct nd_strbuf *out, const struct nd_explanation *explanation,
                                   const struct nd_explained_device *device, size_t width);

/* What the quantisation costs, by layer: one paragraph; everything; as JSON (null without a float model). */
void nd_explain_put_quantisation_line(struct nd_strbuf *out, const struct nd_explanation *explanation,
                                      size_t width);
void nd_explain_put_quantisation(struct nd_strbuf *out, const struct nd_explanation *explanation, size_t width);

/* What nd_identify_captures found, as JSON; NULL: memory is out. */
json_t *nd_identification_json(const struct nd_identification *identification);
/* The same as text: operator types and devices, with_units all layers and their thresholds.
 * NULL: nothing is printed. */
void nd_explain_put_identification(struct nd_strbuf *out, const struct nd_identification *identification,
                                   size_t width, bool with_layers);

/* ---- numbers and names as `npudiff explain` writes them ---- */

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
