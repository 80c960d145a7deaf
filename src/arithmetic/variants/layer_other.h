/* Layers made in another way than one operator with the model's encodings: with other encodings of what is read
 * or made, narrowed by what comes after, or two operators as one function. */
#pragma once

#include "arithmetic/htp/htp.h"

enum { ND_LAYER_MAX_INPUTS = 8 };

/* Encodings that take the place of a layer's own, each of one scale; NULL: its own. Borrowed. */
struct nd_layer_encodings {
    const struct nd_quant *inputs[ND_LAYER_MAX_INPUTS];
    const struct nd_array
        *qvalues[ND_LAYER_MAX_INPUTS]; /* of an input, in the place of what it has; NULL: its own */
    const struct nd_quant *output;
    struct nd_layer_memory *memory; /* nullable: of what the layer reads; nothing is noted of what it makes */
    enum nd_dtype dtype;            /* of the output, where that is given */
    enum nd_layer_after after;      /* made with the layer */
    double slope;                   /* of it, below zero; of a Relu 0 */
    double *slopes;                 /* of a PRelu or Mul, one for each column or channel, owned; else NULL */
    size_t n_slopes;
    double epsilon;  /* of ND_LAYER_AFTER_NORM */
    double *offsets; /* of an Add behind the Mul, as many, owned; else NULL */
    bool *wraps; /* nullable; becomes true where a HardSwish reads a sum of more bits than are kept of it, and
                    its quantised value is wrong by more than 1 (docs/results/found.md#hard-swish-wraps) */
};

/* alpha of the LeakyRelu that makes the tensor; 0: another operator does. */
double nd_tensor_slope(const struct nd_model *model, size_t tensor);

/* What makes the tensor, and its slopes and offsets, which the caller frees: encodings->after. ND_ERR_MEMORY,
 * and the errors of reading a constant. */
enum nd_status nd_tensor_after(const struct nd_model *model, size_t tensor,
                               struct nd_layer_encodings *encodings, struct nd_error *err);

size_t nd_layer_n_inputs(const struct nd_exact_layer *layer);

/* How many quantised values input i has; 0: it is not known. */
size_t nd_layer_input_size(const struct nd_exact_layer *layer, size_t i);

bool nd_layer_input_is_quantised(const struct nd_exact_layer *layer, size_t i);

/* The axis of a Concat of that rank; -1: none. */
int nd_layer_concat_axis(const struct nd_exact_layer *layer, int rank);

/* Whether input i has the scale and the zero point of the output. */
bool nd_layer_keeps_encoding(const struct nd_exact_layer *layer, size_t i);

/* As nd_layer_arithmetic_run, without a memory. With something after it only products of v73 are covered;
 * ND_ERR_UNSUPPORTED: the device makes the two in one operation, and it is not known how. A layer with
 * more than ND_LAYER_MAX_INPUTS inputs is not covered. */
enum nd_status nd_layer_run_with(const struct nd_layer_arithmetic *arithmetic,
                                 const struct nd_exact_layer *layer, const struct nd_layer_encodings *encodings,
                                 struct nd_array *qvalues, bool *is_covered, struct nd_error *err);

/* How the quantised values of an input of a Concat are brought to the encoding of the Concat. */
enum nd_bring {
    ND_BRING_FLAT,   /* as Slice and Split do */
    ND_BRING_LAYOUT, /* where they lie in the layout of a Conv */
    ND_BRING_TABLE,  /* uint8: as a function of one input is made */
    ND_N_BRINGS
};

struct nd_layer_brought {
    struct nd_array qvalues; /* owned */
    bool is_covered;
};

/* Input i of a Concat, of which it reads these quantised values (NULL: its own) as of the encoding `from`
 * (NULL: its own), in the encoding of the output. 8 and 16 bits only: else *is_covered is false.
 * ND_ERR_MEMORY. */
enum nd_status nd_layer_bring(const struct nd_exact_layer *layer, size_t i, const struct nd_array *given,
                              const struct nd_quant *from, enum nd_bring method,
                              struct nd_layer_brought *brought, struct nd_error *err);

/* A uint8 function of one input that reads quantised values in another encoding than they had before: the
 * device makes one table of the change of the encoding (ND_BRING_TABLE) and of the function. given: the
 * quantised values before the change, in the encoding `from`. */
enum nd_status nd_layer_run_brought(const struct nd_layer_arithmetic *arithmetic,
                                    const struct nd_exact_layer *layer, const struct nd_array *given,
                                    const struct nd_quant *from, struct nd_array *qvalues, bool *is_covered,
                                    struct nd_error *err);

/* Narrows quantised values of that encoding to what the layer's own Relu or Clip leaves. */
void nd_layer_narrow(const struct nd_exact_layer *layer, const struct nd_quant *quant,
                     struct nd_array *qvalues);

enum nd_gate {
    ND_GATE_SIGMOID,
    ND_GATE_HARD,  /* HardSigmoid with alpha 1/6 and beta 1/2 */
    ND_GATE_GELU,  /* 1 + Tanh(...), halved before or after: a Gelu of what is read */
    ND_GATE_SWISH, /* Clip(x + 3) times a sixth: a HardSwish of what is read */
};
/* x times a gate of x: which input of the layer is x, and what the gate is. */
struct nd_layer_gate {
    size_t input;
    enum nd_gate kind;
    const struct nd_quant *output; /* in the place of the layer's own; NULL: that */
};

/* The gate as one function of the input (docs/science/htp-arithmetic.md#tables). Of uint16 a Sigmoid and
 * the gate of a HardSwish: others are no operation of their own. ND_ERR_MEMORY. */
enum nd_status nd_layer_run_gated(const struct nd_exact_layer *layer, const struct nd_layer_gate *gate,
                                  struct nd_array *qvalues, bool *is_covered, struct nd_error *err);

/* What depends on where a tensor lies, which the layer does not say: a uint16 Mul, Div or Sub by one number, in
 * blocks where a layer that reads it wants them (docs/science/htp-arithmetic.md#numbers); a uint8 Reshape or
 * the like that moves nothing, flat or in blocks (R5 and R6 of docs/science/htp-arithmetic.md#rescaling). Not
 * covered of other layers. shape: of the output. ND_ERR_MEMORY. */
enum nd_status nd_layer_run_laid_out(const struct nd_exact_layer *layer, bool is_in_blocks,
                                     const struct nd_shape *shape, struct nd_array *qvalues, bool *is_covered,
                                     struct nd_error *err);
