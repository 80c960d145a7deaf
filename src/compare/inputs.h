/* Whether two captures fed a probe alike. METRICS.md section 7. */
#ifndef ND_COMPARE_INPUTS_H
#define ND_COMPARE_INPUTS_H

#include "npudiff/capture.h"

/* One digest per stored sample [n_samples] over the names, types, shapes and bytes of its inputs, owned by the
 * caller; *out is NULL when the capture holds no inputs of this probe or no sample. Reads at most block_bytes
 * (at least one sample) at once. Fails as nd_capture_read_inputs, but for data that is not stored. */
enum nd_status nd_input_digests(const struct nd_capture *capture, size_t probe, size_t block_bytes,
                                struct nd_digest **out, struct nd_error *err);

#endif
