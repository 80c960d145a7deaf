/* What chipsets have in common: the plurality of their codes, element by element. Lineages vote, not devices,
 * and where they do not agree the vote abstains. docs/science/theory.md#vote. */
#ifndef ND_EXPLAIN_VOTE_H
#define ND_EXPLAIN_VOTE_H

#include "explain/worker.h"

/* Of the sample at hand, whose block is read: fills what vote.c leaves in the sums of outputs. */
void nd_explain_vote(struct nd_explain_worker *w);

/* Draws the conclusion for all devices. */
enum nd_status nd_explain_conclude_vote(struct nd_explain_job *job, struct nd_error *err);

#endif
