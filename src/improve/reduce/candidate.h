/* Writing NumPy's .npz, which src/record/probes reads back. */
#ifndef ND_REDUCE_NPZ_WRITE_H
#define ND_REDUCE_NPZ_WRITE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "npudiff/core/tensor.h"

struct nd_npz_array {
    const char *name;
    enum nd_dtype dtype;
    struct nd_shape shape; /* of one sample */
    size_t n_samples;      /* the array's shape is [n_samples] + shape */
    const void *data;      /* C order, little endian */
    size_t size_bytes;
};

/* Creates path, which must not exist, with the arrays stored as they are. The same arrays give the same bytes.
 * ND_ERR_UNSUPPORTED for a type that NumPy lacks; ND_ERR_IO; ND_ERR_MEMORY. */
enum nd_status nd_npz_write(const char *path, const struct nd_npz_array *arrays, size_t n_arrays,
                            struct nd_error *err);

/* Delta debugging: a smallest set of parts that still does what all of them together do. */

enum nd_trial {
    ND_TRIAL_SAME, /* it does the same: go on with this one */
    ND_TRIAL_NOT,  /* it does not, or something else */
    ND_TRIAL_STOP, /* there may be no more trials */
};

/* Tries a set of parts, given in rising order. A status other than ND_OK ends the search with it. */
typedef enum nd_status (*nd_trial_function)(void *context, const size_t *parts, size_t n, enum nd_trial *out,
                                            struct nd_error *err);

/* Shrinks parts[*n] (in rising order, known to do the same) in place. Halves first, in order, then ever smaller
 * pieces and what is left without them. *is_minimal: ended because no part can be left out alone; false after
 * ND_TRIAL_STOP. At most O(n^2) trials; log2(n) pairs where a single part is responsible. */
enum nd_status nd_ddmin(size_t *parts, size_t *n, nd_trial_function test, void *context, bool *is_minimal,
                        struct nd_error *err);

/* Sets that were tried, and what came of it. Zeroed is empty. */
struct nd_trials {
    struct nd_trial_entry *entries;
    size_t n, capacity;
};
/* False when the set was not tried yet. */
bool nd_trials_find(const struct nd_trials *trials, const size_t *parts, size_t n, enum nd_trial *out);
enum nd_status nd_trials_add(struct nd_trials *trials, const size_t *parts, size_t n, enum nd_trial trial,
                             struct nd_error *err);
void nd_trials_deinit(struct nd_trials *trials);

#endif
