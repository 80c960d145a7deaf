/* What a unit's own mistakes do to the outputs: the quantised reference is run again with nothing but that
 * unit's local error put in. Units are ranked by effect, and not by size. docs/science/theory.md#harm. */
#ifndef ND_EXPLAIN_HARM_H
#define ND_EXPLAIN_HARM_H

#include "explain/worker.h"

/* Some samples are enough, and a run for every unit is dear: `n_harm_samples` of the options, evenly spaced. */
bool nd_explain_is_harm_sample(const struct nd_explain_job *job, size_t sample);

/* For the sample and device at hand, after `reference`, `given` and `own` of all steps are known. */
enum nd_status nd_explain_measure_harm(struct nd_explain_worker *w, struct nd_error *err);

#endif
