/* Probes: named sets of fixed inputs, generated or read from the user's files. */
#ifndef NPUDIFF_PROBE_H
#define NPUDIFF_PROBE_H

#include "npudiff/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a probe must feed: one graph input of the model. The fields are borrowed for the call. */
struct nd_probe_target {
    const char *name;
    enum nd_dtype dtype;
    struct nd_shape shape;        /* of one sample, every dimension fixed */
    const struct nd_quant *quant; /* of the input's quantiser, or NULL */
    enum nd_dtype quant_dtype;    /* type of its codes */
};

/* The samples of one input: n_samples times sample_bytes, in C order, little endian. Owned by the probe. */
struct nd_probe_input {
    char *name;
    enum nd_dtype dtype;
    struct nd_shape shape; /* of one sample */
    size_t sample_bytes;
    void *data;
};

struct nd_probe {
    char *name;
    char *source;      /* how it was made: "uniform:8:1", or the user's path */
    size_t n_samples;
    size_t n_inputs;
    struct nd_probe_input *inputs; /* in the order of the targets */
    int64_t *labels;   /* n_samples class indices, or NULL */
};

/* Makes the probe that `spec` describes for these inputs.
 *   zeros | ones | ramp         one sample (integer inputs: codes 0, codes 1, rising codes)
 *   uniform[:SAMPLES[:SEED]]    default 8 samples, seed 1; src/probe/GENERATORS.md gives the generator
 *   ties[:SAMPLES]              inputs that fall on rounding ties of the input's own quantiser
 *   NAME=PATH[,labels=PATH]     user data: .npz (one array per input; "labels" or "label" or "y" is taken as labels), .npy (a model with one
 *                               input), a folder of NAME.npy or of one .npz/.npy per sample, or a text list (one sample per line: PATH or INPUT:=PATH …)
 * ND_ERR_USAGE: spec not understood; ND_ERR_IO: file missing; ND_ERR_FORMAT: damaged file, wrong type, wrong shape (the
 * message names file, input, what was found and what was expected); ND_ERR_NOT_FOUND: an input has no data. The caller destroys *out. */
ND_PUBLIC enum nd_status nd_probe_create(const char *spec, const struct nd_probe_target *targets, size_t n_targets,
                                         struct nd_probe **out, struct nd_error *err);
ND_PUBLIC void nd_probe_destroy(struct nd_probe **probe);

/* The built-in probes, for `npudiff probes`: a table that ends with a NULL name. Static storage. */
struct nd_probe_kind {
    const char *name;
    const char *syntax;
    const char *summary;
};
ND_PUBLIC const struct nd_probe_kind *nd_probe_kinds(void);

#ifdef __cplusplus
}
#endif
#endif
