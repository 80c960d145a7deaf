/* Arithmetics of whole layers: what the HTP (its simulator, QAIRT 2.47 to 2.51) makes of the quantised values
 * that a layer reads, bit for bit. Formulas, and the evidence for each: docs/science/htp-arithmetic.md.
 *
 *     struct nd_exact_options options = {.struct_size = sizeof options, .make = ..., .given = device_codes};
 *     static enum nd_status make(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
 *                                bool *is_made, struct nd_error *err)
 *     {
 *         return nd_layer_arithmetic_run(arithmetic, layer, memory, qvalues, is_made, err);
 *     }
 *
 * With a device's quantised values given, what the arithmetic makes of each layer is compared with what the
 * device made of the same inputs; without, the graph is what such a device would show. */
#pragma once

#include "arithmetic/exact/eval_graph.h"

enum nd_htp_arch {
    ND_HTP_V69, /* and v68 */
    ND_HTP_V73, /* and v75, v79, v81 */
};
enum { ND_HTP_N_ARCHS = ND_HTP_V73 + 1 };

/* What is made with a layer in one operation: with a product by v73, or with an InstanceNormalization; the last
 * three by all. */
enum nd_layer_after {
    ND_LAYER_AFTER_NONE,
    ND_LAYER_AFTER_LINES, /* a LeakyRelu, or a Relu with another zero point than 0 */
    ND_LAYER_AFTER_HARD_SWISH,
    ND_LAYER_AFTER_CHANNELS, /* a Mul, and perhaps an Add, by numbers for the channels, of groups of them */
    ND_LAYER_AFTER_SUM,      /* of a Mul by a vector: the sum along that axis, which makes a MatMul */
    ND_LAYER_AFTER_NORM,     /* of a Sub: the Div behind it, which makes a LayerNormalization of both */
    ND_LAYER_AFTER_INVERSE,  /* of a Sqrt: a Reciprocal */
    ND_LAYER_AFTER_GATE,     /* of half of what is read: a Mul by one more than a Tanh, which makes a Gelu */
};

struct nd_layer_arithmetic {
    const char *name; /* static */
    const char *summary;
    enum nd_htp_arch arch;
    bool rounds_products; /* uint8 Mul adds a half before its first shift: QAIRT 2.48 to 2.50 */
    bool is_v81;          /* of none in the list: nd_layer_run_as_v81 */
};

/* All of them. "htp-v69" and "htp-v73" are QAIRT 2.47 and 2.51; ":2.48" behind the name is 2.48 to 2.50. */
const struct nd_layer_arithmetic *nd_layer_arithmetics(size_t *n);
const struct nd_layer_arithmetic *nd_layer_arithmetic_at(size_t place);
/* NULL: none is called that. */
const struct nd_layer_arithmetic *nd_layer_arithmetic_from_name(const char *name);

/* What layers of one sample made that the quantised values of their tensors do not show: a MatMul whose second
 * operand is the sum of a uint8 Add, or a product, may read that with another zero point, from before it was
 * clipped to the quantised values (docs/science/htp-arithmetic.md#operands-that-are-calculated). One for each
 * run at a time. */
struct nd_layer_memory;
enum nd_status nd_layer_memory_create(size_t n_tensors, struct nd_layer_memory **out, struct nd_error *err);
/* Weights that it keeps from sample to sample take so many bytes at most; the others are made again. */
void nd_layer_memory_limit(struct nd_layer_memory *memory, size_t limit_bytes);
void nd_layer_memory_destroy(struct nd_layer_memory **memory);
void nd_layer_memory_forget(struct nd_layer_memory *memory); /* before the next sample */
/* The quantised values that the tensor has are not those that an arithmetic made: then nothing else is known of
 * it, either. */
void nd_layer_memory_forget_tensor(struct nd_layer_memory *memory, size_t tensor);
/* They are not those that this arithmetic made. */
void nd_layer_memory_refute(struct nd_layer_memory *memory, size_t tensor,
                            const struct nd_layer_arithmetic *arithmetic);

/* Makes the quantised values of one layer: qvalues, zeroed before, is an array of the output's shape,
 * to be freed by the caller on success and failure. *is_covered false: the arithmetic does not say what the
 * device makes of such a layer, and qvalues is left as it was; that is so for operators,
 * quantisations and attributes on which there is no evidence. ND_ERR_FORMAT where shapes do not fit,
 * ND_ERR_MEMORY. Threads may call at the same time with a memory each. memory NULL: none, then such a MatMul
 * takes the quantised values for what was calculated. */
enum nd_status nd_layer_arithmetic_run(const struct nd_layer_arithmetic *arithmetic,
                                       const struct nd_exact_layer *layer, struct nd_layer_memory *memory,
                                       struct nd_array *qvalues, bool *is_covered, struct nd_error *err);

/* The same on v81, which has the arithmetics of v73 but for what moves uint16 quantised values to another
 * encoding, in floats (docs/science/htp-arithmetic.md#moves16): covers nothing else. */
enum nd_status nd_layer_run_as_v81(const struct nd_layer_arithmetic *arithmetic,
                                   const struct nd_exact_layer *layer, struct nd_layer_memory *memory,
                                   struct nd_array *qvalues, bool *is_covered, struct nd_error *err);

/* Whether the two make the same of every layer of the same operator and type. */
bool nd_layer_arithmetics_agree(const struct nd_layer_arithmetic *a, const struct nd_layer_arithmetic *b,
                                const struct nd_exact_layer *layer);

/* The same of a layer that a device makes by itself: a LeakyRelu that it does not make with the Gemm or MatMul
 * before it is one to all of them. */
bool nd_layer_arithmetics_agree_alone(const struct nd_layer_arithmetic *a, const struct nd_layer_arithmetic *b,
                                      const struct nd_exact_layer *layer);

/* Which share of the quantised values of a layer that it covers the arithmetic may have off by one on a device
 * that does follow it, as the formula is not complete (docs/science/htp-arithmetic.md); 0 where no quantised
 * value differed. 1: nothing is known of how an operand is brought there, or how it is summed, and quantised
 * values that differ say nothing. Asked before the next layer is run with that memory (NULL: none). */
double nd_layer_arithmetic_doubt(const struct nd_layer_arithmetic *arithmetic,
                                 const struct nd_exact_layer *layer, const struct nd_layer_memory *memory);

/* Of a chain in float16, which that doubts: whether it is one that always followed, the root that divides or
 * the mean of squares of rows of a LayerNormalization in parts: 75 and 75 of 150 layers of networks of a
 * stranger, 58 of them drawn afterwards. Asked before the next layer, as that. */
bool nd_layer_is_sure_chain(const struct nd_exact_layer *layer, const struct nd_layer_memory *memory);
/* The same of a uint8 product with a number: whether it is known how what was read lies. */
bool nd_layer_is_sure_product(const struct nd_exact_layer *layer, const struct nd_layer_memory *memory);

/* Whether a GlobalMaxPool is of planes that are known to be rescaled in one way: up to 7 by 7. Of larger ones
 * three ways were seen, by their sides. */
bool nd_htp_is_small_plane(const struct nd_exact_layer *layer);
/* Whether functions of a tensor of that shape, which lies flat, are made in parts of 8 rows each
 * (docs/science/htp-arithmetic.md#two-tables). */
bool nd_htp_is_shape_of_parts(const struct nd_shape *shape);

/* In which layout the device has what a layer made, in the order in which it makes them
 * (docs/science/htp-arithmetic.md#layout). */
enum nd_htp_layout { ND_HTP_UNKNOWN, ND_HTP_FLAT, ND_HTP_BLOCKED };
enum nd_htp_layout nd_layer_layout(const struct nd_layer_memory *memory, size_t tensor);
/* Whether it has the channels last. */
bool nd_layer_is_laid_out(const struct nd_layer_memory *memory, size_t tensor);

/* Whether the layer reads a calculated second operand that the device makes fit 8 signed bits, by its values,
 * or that arithmetics that agree on its quantised values may make in different ways. */
bool nd_layer_rescales_operand(const struct nd_exact_layer *layer, const struct nd_layer_memory *memory);

/* Whether the provider makes of its greatest bias a quantised value that does not fit 32 bits: a
 * BatchNormalization, the device has that bias with the wrong sign (docs/results/found.md#batch-norm). */
bool nd_layer_loses_sign_of_bias(const struct nd_exact_layer *layer);

/* Whether a bias of a uint8 product, in steps of the sum, does not fit 32 bits on v73, or on v69, where the
 * zero point of the output is part of it: it wraps (docs/results/found.md#bias). */
bool nd_layer_wraps_bias(const struct nd_exact_layer *layer);

/* Whether the multiplier of an output channel of a uint16 product is below 2^-24: its shift wraps
 * (docs/science/htp-arithmetic.md#biases). */
bool nd_layer_wraps_multiplier(const struct nd_exact_layer *layer);

/* Whether it is a uint16 depthwise Conv of 5 x 5 by two whose padding on the left is not the zero point
 * (docs/science/htp-arithmetic.md#depthwise). */
bool nd_layer_pads_wrongly(const struct nd_exact_layer *layer);

/* What a Reciprocal divides, in steps of its input, of which there is one scale: one as a quantised value of
 * that encoding, which is clipped. *is_clipped: by more than a step. Measured with
 * golden/found/reciprocal.u16.onnx and 46 others of its kind. */
double nd_reciprocal_dividend(const struct nd_quant *x, enum nd_dtype dtype, bool *is_clipped);

/* What is known of two arithmetics on everything that a layer can read: the given inputs show only its shapes.
 */
enum nd_layer_proof_end {
    ND_LAYER_PROOF_NONE,    /* nothing: reason says why */
    ND_LAYER_PROOF_EQUAL,   /* they give the same quantised values for all inputs */
    ND_LAYER_PROOF_UNEQUAL, /* of a product: there are sums for which they give different quantised values */
};
struct nd_layer_proof {
    enum nd_layer_proof_end end;
    const char *reason; /* static; NULL where it is known */
    /* Of Conv, ConvTranspose, Gemm and MatMul, else 0. A sum is that of products, quantised values less zero
     * points, without the bias. Of calculated weights every 8-bit number is taken as possible. */
    size_t n_channels,
        n_unequal; /* output channels, and those with such a sum; of a ConvTranspose for each phase */
    double n_sums; /* that were covered, over all channels */
    /* The first of them. */
    size_t channel;
    double sum, qvalues[2]; /* what a and b make of it */
};

/* Of a Conv, ConvTranspose, Gemm or MatMul. Between the least and the greatest sum of each channel the
 * quantised values of both arithmetics never fall as the sum rises, so that the ends of the runs of equal
 * quantised values decide for all sums. is_unequal is NULL, or room for one entry per output channel: those
 * that n_unequal counts become true. ND_ERR_MEMORY. Threads may call at the same time. */
enum nd_status nd_layer_product_prove(const struct nd_layer_arithmetic *a, const struct nd_layer_arithmetic *b,
                                      const struct nd_exact_layer *layer, struct nd_layer_proof *proof,
                                      bool *is_unequal, struct nd_error *err);

/* Whether the operator is one of those. */
bool nd_layer_is_product(const struct nd_exact_layer *layer);

/* What tells two arithmetics apart in layers of the operator with such quantised values. */
struct nd_layer_difference {
    const char *name;  /* "zero-point", "multiplier-bits", ...: stable */
    const char *a, *b; /* what each does: "keeps 10 bits of the multiplier" */
};
enum { ND_LAYER_MAX_DIFFERENCES = 8 };
/* out[ND_LAYER_MAX_DIFFERENCES]; how many. Texts are static. op_type may be several, joined by '+': the first
 * counts. */
size_t nd_layer_arithmetic_differences(const struct nd_layer_arithmetic *a, const struct nd_layer_arithmetic *b,
                                       const char *op_type, enum nd_dtype dtype,
                                       struct nd_layer_difference *out);
