/* What a provider may make of layers of a quantised graph other than one operator at a time with the model's
 * encodings: innocent explanations that are tried before a layer is called anything.
 * docs/science/htp-arithmetic.md has what each was seen on.
 *
 *     fused    one operation makes the layer's values and those of the operator before it, with this layer's
 *              encoding (Conv, then Relu with a quantiser of its own; a change of the type, then a move into
 * another encoding; a LayerNormalization or Gelu in parts, Sqrt and Reciprocal); or what makes the inputs of a
 * Concat makes each of them with the encoding of the Concat, or they are rescaled before it; or x times a gate
 * of x is one function (SiLU, HardSwish) forced   the layer reads an operand with the encoding that the
 * provider forces on its maker (uint16 Tanh, Sigmoid), whatever the model says v81      an arithmetic of v73
 * with the floats of v81 */
#pragma once

#include "arithmetic/variants/layer_other.h"
#include "core/text/strbuf.h"
#include "npudiff/model/model.h"

enum nd_alternative { ND_ALTERNATIVE_FUSED, ND_ALTERNATIVE_FORCED, ND_ALTERNATIVE_V81 };
enum { ND_N_ALTERNATIVES = ND_ALTERNATIVE_V81 + 1 };

/* "fused", "forced-encoding", "v81". Static storage. */
const char *nd_alternative_name(enum nd_alternative alternative);

/* An encoding that a provider gives the output of an operator, whatever the model asks for. */
struct nd_forced {
    const char *op_type;
    enum nd_dtype dtype;
    struct nd_quant quant;
    const char *text; /* "1/65536 with zero point 0" */
};

/* That of the operator for outputs of this type; NULL: none. Static storage. */
const struct nd_forced *nd_forced_find(const char *op_type, enum nd_dtype dtype);

/* The maker of one tensor may make another tensor, too, or its part of that. */
struct nd_fused_part {
    size_t from, to; /* tensors */
    size_t next;     /* the next part from the same tensor; SIZE_MAX: none */
};

/* How a tensor is wanted: in blocks, as a Conv writes them, or not; PERHAPS: seen both ways. */
enum nd_wanted { ND_WANTED_ANYHOW, ND_WANTED_PERHAPS, ND_WANTED_IN_BLOCKS };

/* Which alternatives the tensors of a model have. */
struct nd_alternatives {
    size_t n_tensors;
    struct nd_fused_part *parts;
    size_t n_parts;
    size_t *part_to;     /* [n_edges] the first part to this tensor, which the others follow; SIZE_MAX: none */
    size_t *first_part;  /* [n_edges] the first part from this tensor; SIZE_MAX: none */
    size_t *fused_from;  /* [n_edges] the tensor whose maker may make all of this one; SIZE_MAX: none */
    bool *is_joined;     /* [n_edges] a Concat of which the makers of its inputs may make the parts */
    size_t *gated;       /* [n_edges] of a product of x and a gate of x the tensor x; SIZE_MAX: none */
    enum nd_gate *gates; /* [n_edges] what the gate is */
    const struct nd_forced **forced; /* [n_edges] of the operator that made its quantised values, however they
                                        were moved since; NULL: none */
    enum nd_wanted *wanted;          /* [n_edges] by what reads the tensor */
    bool *is_forced_here;            /* [n_edges] and that operator made the tensor itself */
};
/* ND_ERR_MEMORY. deinit accepts a zeroed one. */
enum nd_status nd_alternatives_init(struct nd_alternatives *alternatives, const struct nd_model *model,
                                    struct nd_error *err);
void nd_alternatives_deinit(struct nd_alternatives *alternatives);

/* The part that the maker of `from` may make of `to`; SIZE_MAX: none. */
size_t nd_fused_part_of(const struct nd_alternatives *alternatives, size_t from, size_t to);

/* The encoding of what a Split divides, where that of its part, the tensor, is another: a Concat takes the part
 * from there. NULL: it is no such part. */
const struct nd_quant *nd_divided_from(const struct nd_model *model, size_t tensor);

/* Whether the one zero point of the tensor is its least quantised value, as of the output of a Relu. */
bool nd_starts_at_least(const struct nd_tensor *tensor);

/* Whether every operator of the layer, joined by '+', is one of these, and the first one of the first n_first.
 */
bool nd_is_chain_of(const char *op_types, const char *const *names, size_t n, size_t n_first);

/* Whether the layer reads one more than a Tanh beside another tensor. */
bool nd_reads_tanh_and_one(const struct nd_model *model, const struct nd_model_layer *layer);
/* Whether it is the Tanh of a number times a sum of x and another tensor, as a Gelu in parts has it. */
bool nd_is_gated_by_tanh_of(const struct nd_model *model, const struct nd_model_layer *layer, size_t x);

/* Whether the layer hands on what its maker made with the encoding of a Concat behind it. */
bool nd_layer_carries(const struct nd_model_layer *layer);
/* A Relu by itself: before a Concat what made its input may make what is joined, and it narrows that. */
bool nd_layer_narrows(const struct nd_model_layer *layer);

/* As nd_layer_carries, of all its inputs: a Concat before a Concat does so, too. */
bool nd_layer_carries_all(const struct nd_model_layer *layer);

/* Whether the layer is a function of one tensor of 8 bits, element by element: integer devices make it from a
 * table, the entries of which are worked out in floats and rounded once, however the device multiplies
 * elsewhere. */
bool nd_layer_is_table(const struct nd_model *model, const struct nd_model_layer *layer);

/* Whether the layer is a Div by a root, which may be a norm in parts however it was moved meanwhile. */
bool nd_may_be_norm_in_parts(const struct nd_model *model, const struct nd_model_layer *layer);

/* Whether the layer is a mean or a sum over elements of one tensor. */
bool nd_layer_is_mean(const struct nd_model_layer *layer);

/* Which encodings the provider forces on what the layer writes and reads, and what is wrong then, in words. */
void nd_say_forced(const struct nd_alternatives *alternatives, const struct nd_model *model,
                   const struct nd_model_layer *layer, bool is_model_output, struct nd_strbuf *text);
