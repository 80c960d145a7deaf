/* Probes: named sets of fixed inputs, generated or read from the user's files.
 *
 * A probe holds one or more samples; a sample is one value for each input of a model. A generated probe has
 * the same bits on every machine. A probe does not change after nd_probe_create; several threads may read
 * it. NaN, infinities and signed zeros in the user's data are kept bit for bit.
 *
 * Example:
 *
 *     static enum nd_status make(struct nd_probe **out, struct nd_error *err)
 *     {
 *         const struct nd_probe_target input = {
 *             .name = "image", .dtype = ND_DTYPE_F32, .shape = {.rank = 4, .dims = {1, 1, 8, 8}}};
 *         return nd_probe_create("uniform:16:1", &input, 1, out, err);
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_PROBE_H
#define NPUDIFF_PROBE_H

#include "npudiff/core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most that all samples of all inputs of one probe may take together: 64 GiB, or all memory of the machine
 * if it has less. */
#define ND_PROBE_MAX_BYTES ((uint64_t)1 << 36)

/* What a probe must feed: one graph input of the model. The fields are borrowed for the call. */
struct nd_probe_target {
    const char *name;
    enum nd_dtype dtype;
    struct nd_shape shape;        /* of one sample, every dimension fixed */
    const struct nd_quant *quant; /* scale and zero point of the input's quantiser, or NULL */
    enum nd_dtype quant_dtype;    /* type of the input's quantised values */
};

/* The samples of one input: n_samples times sample_bytes, in C order, little endian. Owned by the probe. The
 * memory is 64-byte aligned and padded by 64 bytes. */
struct nd_probe_input {
    char *name;
    enum nd_dtype dtype;
    struct nd_shape shape; /* of one sample */
    size_t sample_bytes;   /* 0 for an input without elements */
    void *data;
};

/* A target tensor: what an output of the model should be. Owned by the probe. */
struct nd_probe_goal {
    char *output; /* name */
    size_t n_samples;
    size_t n_elems; /* of one sample */
    double *values; /* [n_samples * n_elems], real values in C order; NaN and infinities are kept */
};

struct nd_probe {
    char *name;   /* "uniform", or the user's NAME */
    char *source; /* how it was made: "uniform:8:1" with every parameter, or the user's text after "NAME=" */
    size_t n_samples; /* at least 1 */
    size_t n_inputs;
    struct nd_probe_input *inputs; /* in the order of the targets */
    int64_t *labels;               /* n_samples class indices, or NULL */
    size_t n_goals;
    struct nd_probe_goal *goals; /* at most one for each output */
};

/* Makes the probe that `spec` describes for these inputs. docs/reference/probes.md says how every generated
 * value is made, and has all rules for files.
 *
 *     zeros | ones | ramp        one sample (integer inputs: 0 everywhere, 1 everywhere, rising values)
 *     uniform[:SAMPLES[:SEED]]   default 8 samples, seed 1
 *     ties[:SAMPLES]             inputs on rounding ties of the input's own quantiser; default 8 samples
 *     NAME=PATH[,labels=PATH]    user data: .npz (one array per input; "labels", "label" or "y" is taken as
 *                                labels, "target:OUTPUT" as the wanted values of that output), .npy (a model
 *                                with one input), a folder of NAME.npy or of one .npz or .npy per sample, or
 *                                a text list (one sample per line: PATH or INPUT:=PATH ...)
 *
 * User data must have exactly the input's type, and samples of exactly its shape. ND_ERR_USAGE: the spec is
 * not understood, or it is `ties` and no input has a quantiser; ND_ERR_IO: a file is missing or cannot be read;
 * ND_ERR_FORMAT: a damaged file, a wrong type or shape, an array that is no input, wrong labels (the message
 * names file, input, what was found and what was expected), or a target or quantiser that contradicts itself;
 * ND_ERR_NOT_FOUND: an input has no data; ND_ERR_UNSUPPORTED: a quantiser with neither 8 nor 16 bits;
 * ND_ERR_MEMORY: out of memory, or more than ND_PROBE_MAX_BYTES. The caller destroys *out, which stays
 * unchanged on failure. Thread-safe. */
ND_PUBLIC enum nd_status nd_probe_create(const char *spec, const struct nd_probe_target *targets,
                                         size_t n_targets, struct nd_probe **out, struct nd_error *err);

/* Frees the probe and sets *probe to NULL; accepts a pointer to NULL. */
ND_PUBLIC void nd_probe_destroy(struct nd_probe **probe);

/* The target of the output with this name, or NULL. */
ND_PUBLIC const struct nd_probe_goal *nd_probe_find_goal(const struct nd_probe *probe, const char *output);

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
