/* Units that are out of line are looked at once more: their codes and exact values are kept, for some samples,
 * and diagnosed, together with what other arithmetic would have given. */
#ifndef ND_EXPLAIN_DIAGNOSE_LAYERS_H
#define ND_EXPLAIN_DIAGNOSE_LAYERS_H

#include "explain/stages.h"

/* Names the faults of the devices, after they have been judged. */
enum nd_status nd_explain_diagnose(const struct nd_explain_job *job, struct nd_error *err);

#endif
