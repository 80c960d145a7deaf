/* Twins: a quantised model on a chip that is not there. Each layer is computed by the code with which `explain`
 * predicts what the chip makes of it, in this process: no runtime, no SDK, no agent.
 *
 * Values. A twin has inputs and outputs, those of the model, and tensors, those of nd_model_n_tensors. Buffers
 * belong to the caller and hold samples one after the other, each in C order and little endian. An input has
 * the type of the model. An output is what the model gives: float32 where a last DequantizeLinear stands, else
 * its quantised values. A tensor is given as it is recorded: quantised values, or float32 where it has none.
 * NaN in an input is quantised to the least quantised value, infinities to the ends.
 *
 * What is asked for changes the chip, and so its twin: a tensor that nobody looks at may be made in one
 * operation with what reads it. Outputs are always looked at, tensors where the caller gives a buffer.
 *
 * What a twin does not know it rounds exactly, and says so (struct nd_twin_mark).
 *
 * Example:
 *
 *     static enum nd_status run(const struct nd_model *model, const void *images, size_t n, void *logits,
 *                               struct nd_error *err)
 *     {
 *         struct nd_twin_model *twin = NULL;
 *         enum nd_status status = nd_twin_model_open(model, "gen3", 0, &twin, err);
 *         const struct nd_twin_samples samples = {.n = n, .inputs = &images, .outputs = &logits};
 *         if (status == ND_OK)
 *             status = nd_twin_model_run(twin, &samples, err);
 *         nd_twin_model_close(&twin);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_TWIN_H
#define NPUDIFF_TWIN_H

#include "npudiff/arithmetic/twin_mark.h"
#include "npudiff/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model on a chip. Used by one thread at a time; it starts threads of its own. */
struct nd_twin_model;

enum nd_twin_kind { ND_TWIN_INPUT, ND_TWIN_OUTPUT, ND_TWIN_TENSOR };

/* What is fed or given. Borrowed from the twin and its model. */
struct nd_twin_value {
    struct nd_model_io io; /* as it is fed or given; the shape of one sample, rank -1 of what cannot be had */
    const char *op_types;  /* of a tensor, as struct nd_tensor; else NULL */
    size_t size_bytes;     /* of one sample; of what cannot be had: 0 */
    struct nd_twin_mark mark; /* of a tensor, from all runs so far that were successful */
};

/* chip: what a device URI has after "twin:", "gen3", "SM8650@qairt-2.48" or "gen3?strict=1". n_threads: over
 * which samples are spread; 0: all processors that this process may use. Results do not depend on it. One
 * sample of zeros is run. The model is borrowed until the twin is closed, and may not be changed meanwhile.
 * ND_E_DEVICE_UNKNOWN: the chipset, the SDK or an option is not known, or the model is not quantised;
 * ND_E_MODEL_DYNAMIC: dimensions are open (nd_model_set_dim); ND_E_EXACT_OPERATOR: an operator, or an output,
 * that the twin cannot compute. The caller closes *out. */
ND_PUBLIC enum nd_status nd_twin_model_open(const struct nd_model *model, const char *chip, size_t n_threads,
                                            struct nd_twin_model **out, struct nd_error *err);
/* Accepts a pointer to NULL, and sets it to NULL. */
ND_PUBLIC void nd_twin_model_close(struct nd_twin_model **twin);

/* All values of that kind, in the order of the model. */
ND_PUBLIC const struct nd_twin_value *nd_twin_model_values(const struct nd_twin_model *twin,
                                                           enum nd_twin_kind kind, size_t *n);

/* Samples, and what is made of them. Each buffer has n * size_bytes bytes. */
struct nd_twin_samples {
    size_t n;
    const void *const *inputs; /* [n inputs] */
    /* [n outputs] and [n tensors], NULL in the place of those that are not wanted, or that cannot be had; NULL:
     * none is wanted. Tensors that are wanted are recorded. */
    void *const *outputs;
    void *const *tensors;
};

/* Memory does not grow with the number of samples. After an error the buffers may be written in part.
 * ND_E_EXACT_OPERATOR: with strict=1, a tensor is not known, which the message names with the reason, that of
 * the first such sample. ND_ERR_MEMORY. */
ND_PUBLIC enum nd_status nd_twin_model_run(struct nd_twin_model *twin, const struct nd_twin_samples *samples,
                                           struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
