/* The members that describe one difference. Those that do not apply or are not known are null. */
#ifndef ND_REPORT_JSON_DIFFERENCE_H
#define ND_REPORT_JSON_DIFFERENCE_H

#include "core/documents/json_out.h"
#include "npudiff/compare/compare.h"

/* Of a pair or of one of its probes, into the object that is open. */
void nd_json_put_part(struct nd_json *json, const struct nd_comparison *comparison,
                      const struct nd_compared_edge *edge, const struct nd_compared_part *part);

/* Of one channel, as an object in one line: docs/reference/metrics.md#per-channel. */
void nd_json_put_channel(struct nd_json *json, size_t channel, const struct nd_difference *difference);

/* {probe, sample, index, coordinates}; null when nothing differs. */
void nd_json_put_first(struct nd_json *json, const char *key, const struct nd_comparison *comparison,
                       const struct nd_compared_edge *edge, const struct nd_difference *difference);

/* An array in one line; null for an unknown rank. numbers: [shape->rank]. */
void nd_json_put_shape(struct nd_json *json, const char *key, const struct nd_shape *shape,
                       const int64_t *numbers);

#endif
