/* Which tensors have one scale, and which scale each of them is to have. */
#ifndef ND_ALIGN_QUANTISERS_H
#define ND_ALIGN_QUANTISERS_H

#include "model/graph/loaded.h"

/* Tensors that must have the same scale and zero point: what an operator reads and makes that only moves values
 * or chooses among them, where the two have it in the model; and where they have not, as the inputs of a
 * Concat, but can have a common one. */
struct nd_quantiser {
    struct nd_quant quant; /* as planned; n is 0 for tensors without one scale. Owned */
    float old_scale;
    int64_t old_zero_point;
    bool is_settled; /* nobody may change it any more */
};

struct nd_quantisers {
    struct nd_quantiser *items; /* [n_edges], by of_edge */
    size_t *of_tensor;          /* [n_edges] */
    size_t n_tensors;
};

/* Settled from the start: quantised values that the model takes in or hands out, quantised values that somebody
 * reads without a DequantizeLinear of the same scale, and ranges that stand for a Clip that a quantiser left
 * out: float_model, nullable, has the Clip, or the range is 0 to 6. Call deinit in any case. ND_ERR_MEMORY, and
 * as nd_node_quant_read. */
enum nd_status nd_quantisers_init(struct nd_quantisers *q, const struct nd_model *model,
                                  const struct nd_model *float_model, struct nd_error *err);
void nd_quantisers_deinit(struct nd_quantisers *q);

/* The tensor whose quantised values the node, a QuantizeLinear or DequantizeLinear, makes or reads;
 * ND_NO_INDEX: none, or a constant's. */
size_t nd_quantiser_tensor(const struct nd_model *model, size_t node);

struct nd_quantiser *nd_quantiser_of(const struct nd_quantisers *q, size_t tensor);

#endif
