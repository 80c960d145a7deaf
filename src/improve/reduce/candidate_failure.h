/* Whether two failures are the same one, and which nodes a failure speaks of. */
#ifndef ND_REDUCE_CANDIDATE_FAILURE_H
#define ND_REDUCE_CANDIDATE_FAILURE_H

#include "npudiff/capture/capture.h"
#include "npudiff/devices/device.h"
#include "npudiff/improve/reduce.h"
#include "npudiff/model/model.h"

/* From how a capture ended, and what is in it (nullable): its /failure, and what its logs were found to say. */
void nd_failure_read(const struct nd_capture_outcome *outcome, const struct nd_capture *capture,
                     struct nd_reduction_failure *out);

/* The same stage, error, code, operator, kind of reason, and message but for names, addresses and long numbers.
 */
bool nd_failure_is_same(const struct nd_reduction_failure *a, const struct nd_reduction_failure *b);

/* Replaces what is in quotes by '*', addresses by 0x* and numbers of five and more digits by #; at most size -
 * 1 bytes. */
void nd_failure_normalise(const char *text, char *out, size_t size);

enum { ND_FAILURE_BEST_SCORE = 4 };

/* score[node] for every node of the model: 0: nothing speaks of it; else larger is better, at most
 * ND_FAILURE_BEST_SCORE. By the names in the findings, and by the kind of the operator. */
enum nd_status nd_failure_score_nodes(const struct nd_model *model, const struct nd_reduction_failure *failure,
                                      const struct nd_capture *capture, unsigned *score, struct nd_error *err);

#endif
