/* Whether two captures fed a probe alike. docs/reference/metrics.md#alignment. */
#ifndef ND_COMPARE_INPUTS_H
#define ND_COMPARE_INPUTS_H

#include "npudiff/capture/capture.h"

/* One digest per stored sample [n_samples] over the names, types, shapes and digests of its inputs, owned by
 * the caller; *out is NULL when the capture holds no inputs of this probe or no sample. ND_ERR_MEMORY. */
enum nd_status nd_input_digests(const struct nd_capture *capture, size_t probe, struct nd_digest **out,
                                struct nd_error *err);

#endif
