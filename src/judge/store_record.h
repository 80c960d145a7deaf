/* What an entry of the golden store, or a bundle, says of one capture: its axes and a digest of every edge.
 * docs/reference/store.md#entries. Records are JSON objects; every function that makes one gives a new
 * reference. */
#ifndef ND_JUDGE_STORE_RECORD_H
#define ND_JUDGE_STORE_RECORD_H

#include "base/error.h"
#include "judge/axes.h"

/* {"axes", "status", "failure", "probes", "edges"}; NULL when memory is out. */
json_t *nd_record_of_capture(const struct nd_capture *capture);

/* NULL when the record has all that the functions here read, else what is wrong. Static. */
const char *nd_record_problem(const json_t *record);

/* SHA-256 of the record's canonical text: the same for two captures that are equal in all that matters. False:
 * out of memory. */
bool nd_record_identity(const json_t *record, char hex[static 65]);

/* A copy without names, types, operators and messages, for a bundle; NULL when memory is out. */
json_t *nd_record_hidden(const json_t *record);

/* How test stands to ref (both sound, both plain or both hidden). `shown` has ref's plain names (ref itself, or
 * what it was hidden from). NULL when memory is out, else
 *   "axes": names of those that differ; "changed": their keys (nd_axes_compare);
 *   "probes": names of those in both with the same inputs; "same_model";
 *   "same_chipset": the SM number, or what stands for it; "n_edges": of ref; "n_equal"; "same_end": both
 * complete, or failed alike; "different": [{"name", "op_types", "index", "probes"}] in graph order; "missing":
 * those that test lacks; "extra": those that only test has. */
json_t *nd_record_compare(const json_t *ref, const json_t *test, const json_t *shown);

/* Members of what nd_record_compare gave. */
size_t nd_record_count(const json_t *comparison, const char *list); /* length of a list */
bool nd_record_is_comparable(const json_t *comparison);             /* same model, a probe in common */
bool nd_record_is_equal(const json_t *comparison); /* all edges of all common probes, and the end */

/* The text member, "" when there is none. */
const char *nd_record_text(const json_t *object, const char *key);

#endif
