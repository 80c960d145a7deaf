/* Units made in another way than one operator with the model's encodings: with other encodings of what is read
 * or made, narrowed by what comes after, or two operators as one function. */
#ifndef ND_ARITH_UNIT_OTHER_H
#define ND_ARITH_UNIT_OTHER_H

#include "arith/htp.h"

enum { ND_UNIT_MOST_INPUTS = 8 };

/* Encodings that take the place of a unit's own, each of one scale; NULL: its own. Borrowed. */
struct nd_unit_encodings {
    const struct nd_quant *inputs[ND_UNIT_MOST_INPUTS];
    const struct nd_array
        *codes[ND_UNIT_MOST_INPUTS]; /* of an input, in the place of what it has; NULL: its own */
    const struct nd_quant *output;
    enum nd_dtype dtype; /* of the output, where that is given */
};

size_t nd_unit_n_inputs(const struct nd_exact_unit *unit);

/* Whether input i has the scale and the zero point of the output. */
bool nd_unit_keeps_encoding(const struct nd_exact_unit *unit, size_t i);

/* As nd_unit_program_run, without a memory. A unit with more than ND_UNIT_MOST_INPUTS inputs is not covered. */
enum nd_status nd_unit_run_with(const struct nd_unit_program *program, const struct nd_exact_unit *unit,
                                const struct nd_unit_encodings *encodings, struct nd_array *codes,
                                bool *is_covered, struct nd_error *err);

/* Input i of a Concat, which is one of the graph, in the encoding of the output. */
enum nd_status nd_unit_bring_input(const struct nd_unit_program *program, const struct nd_exact_unit *unit,
                                   size_t i, struct nd_array *codes, bool *is_covered, struct nd_error *err);

/* The same of an input that a unit made, which lies in the layout of a Conv. uint8 and uint16 only: else
 * *is_covered is false. */
enum nd_status nd_unit_bring_made(const struct nd_exact_unit *unit, size_t i, struct nd_array *codes,
                                  bool *is_covered, struct nd_error *err);

/* Narrows codes of the unit's encoding to what its own Relu or Clip leaves. */
void nd_unit_narrow(const struct nd_exact_unit *unit, struct nd_array *codes);

/* x times Sigmoid(x), or where is_hard HardSigmoid(x) with alpha 1/6 and beta 1/2, as one function of input i
 * of the unit (docs/science/htp-arithmetic.md#tables). Not where it is hard and of uint16: that is no operation
 * of its own. ND_ERR_MEMORY. */
enum nd_status nd_unit_run_gated(const struct nd_exact_unit *unit, size_t i, bool is_hard,
                                 struct nd_array *codes, bool *is_covered, struct nd_error *err);

#endif
