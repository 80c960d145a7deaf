/* Is the accuracy that was lost lost on all devices alike (the quantisation), or on some (the NPU)?
 * docs/science/statistics.md#spread. */
#ifndef ND_ACCURACY_SPREAD_H
#define ND_ACCURACY_SPREAD_H

#include <stddef.h>
#include <stdint.h>

#include "npudiff/judge/judge.h"
#include "npudiff/core/status.h"

/* Who is right (1) or wrong (0), sample by sample; samples without a label are not among them. */
struct nd_rights {
    size_t n_devices, n_samples;    /* n_samples < 2^32 */
    const unsigned char *devices;   /* [n_devices * n_samples], device by device */
    const unsigned char *reference; /* [n_samples]: the float model, or NULL */
    const unsigned char *quantised; /* [n_samples]: the quantised model on the reference, or NULL */
};

struct nd_spread_options {
    double confidence; /* of each statement, 0 < confidence < 1 */
    double margin; /* devices that differ by less than this count as alike; 0: none is given, then no sample is
                      large enough to say "uniform" */
    double least;  /* a spread up to this is not called uneven; 0 unless told otherwise */
    uint64_t seed;
};

enum nd_spread_kind {
    ND_SPREAD_INCONCLUSIVE,
    ND_SPREAD_UNIFORM, /* the spread is below the margin: what is lost is lost by quantisation */
    ND_SPREAD_UNEVEN,  /* the spread is above options.least: the NPUs lose differently */
};

struct nd_spread {
    enum nd_spread_kind kind;
    size_t n_devices, n_samples;
    size_t best, worst;        /* devices: of the highest and the lowest accuracy, the first of equals */
    struct nd_estimate spread; /* accuracy of the best less that of the worst; 0 or more */
    struct nd_estimate common; /* mean accuracy of the devices less that of the float model; NaN without it */
    struct nd_estimate quantised; /* the quantised reference less the float model; NaN without one of them */
    struct nd_estimate beyond;    /* mean of the devices less the quantised reference; NaN without it */
    struct nd_estimate *own; /* [n_devices]: accuracy less the mean of the devices; intervals simultaneous */
};

/* Fewer than two devices, or no sample: inconclusive, NaN with the widest intervals where nothing is known. The
 * same seed gives the same bits. Fails for want of memory only, out untouched. */
enum nd_status nd_spread_measure(const struct nd_rights *in, const struct nd_spread_options *options,
                                 struct nd_spread *out, struct nd_error *err);

/* Accepts a zeroed struct. */
void nd_spread_deinit(struct nd_spread *spread);

/* "uniform: quantisation", "uneven: NPU", "inconclusive". */
const char *nd_spread_name(enum nd_spread_kind kind);

#endif
