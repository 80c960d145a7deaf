/* A part of an evaluation as a file: that of some of the samples. Sums stand for single samples and tallies are
 * counts and extremes, so that the parts together are the evaluation, to the bit. docs/science/theory.md#parts
 */
#ifndef ND_REPLAY_EVALUATION_PART_H
#define ND_REPLAY_EVALUATION_PART_H

#include "explain/evaluate/evaluation.h"

/* The samples of part `part` of n_parts: as many as of every other part, or one less. */
struct nd_sample_span nd_part_span(size_t n_samples, size_t part, size_t n_parts);

/* The text (JSON) of part `part` of n_parts, whose samples are evaluated, in new memory. ND_ERR_MEMORY. */
enum nd_status nd_evaluation_part_format(struct nd_evaluation *evaluation, size_t part, size_t n_parts,
                                         char **out, struct nd_error *err);

/* Fills an evaluation, which is all zero, from the files of all parts, in any order; one file is held at a
 * time. ND_ERR_IO; ND_ERR_FORMAT (ND_E_EXPLAIN_PART): damaged, of a different plan or version, missing or there
 * twice. */
enum nd_status nd_evaluation_parts_load(struct nd_evaluation *evaluation, const char *const *paths, size_t n,
                                        struct nd_error *err);

#endif
