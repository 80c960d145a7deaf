/* NumPy's .npz: a zip archive of .npy members, stored or deflated. */
#ifndef ND_PROBE_NPZ_H
#define ND_PROBE_NPZ_H

#include "record/probes/source.h"

struct nd_npz;

/* ND_ERR_IO: it cannot be opened; ND_ERR_FORMAT: not a zip archive, or one that is no .npz: a member whose name
 * does not end in ".npy", is not unique, is encrypted, compressed otherwise, or claims to hold more than its
 * bytes can. */
enum nd_status nd_npz_open(const char *path, struct nd_npz **out, struct nd_error *err);
void nd_npz_close(struct nd_npz **npz);

size_t nd_npz_n_arrays(const struct nd_npz *npz);

/* Name of array i, without ".npy". Borrowed. */
const char *nd_npz_name(const struct nd_npz *npz, size_t i);

/* Opens array i as a source, which must be closed before the archive. */
enum nd_status nd_npz_source(const struct nd_npz *npz, size_t i, struct nd_source *source,
                             struct nd_error *err);

#endif
