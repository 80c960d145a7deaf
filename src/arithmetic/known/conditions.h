/* Layers that a release of an SDK is known to compute wrongly, recognised by the operator, its attributes and
 * what it reads. */
#ifndef ND_ARITH_CONDITIONS_H
#define ND_ARITH_CONDITIONS_H

#include "arithmetic/htp/htp.h"
#include "npudiff/model/model.h"

enum nd_unit_condition {
    ND_UNIT_DEPTHWISE_1X1,       /* a depthwise Conv with a kernel of 1x1 */
    ND_UNIT_RESIZE_TO_FLOOR,     /* a Resize with mode nearest, half_pixel and nearest_mode floor */
    ND_UNIT_MEAN_OF_PADDED,      /* a mean of what a Pad makes: GlobalAveragePool, ReduceMean, or an AveragePool
                                    without count_include_pad */
    ND_UNIT_SOFTMAX_OF_EQUALS,   /* a uint16 or int16 Softmax, some row of which reads nearly equal values */
    ND_UNIT_CONCAT_WITH_INPUT,   /* a Concat of three tensors or more: one is an input of the model, in another
                                    encoding */
    ND_UNIT_BIAS_WITHOUT_SIGN,   /* a BatchNormalization whose greatest bias does not fit 32 bits */
    ND_UNIT_CONCAT_OF_CLIPPED,   /* a uint16 or int16 Concat that reads the least or the greatest code somewhere
                                  */
    ND_UNIT_RECIPROCAL_OF_FINE,  /* a Reciprocal whose input has no code for one */
    ND_UNIT_SUM_OF_TRANSPOSED,   /* an Add of a constant for each channel, behind a ConvTranspose */
    ND_UNIT_NORM_OF_SLICE,       /* a uint8 or int8 BatchNormalization of what a Slice makes */
    ND_UNIT_POOL_OF_FLOATS,      /* an AveragePool that reads floats and does not count its padding */
    ND_UNIT_CLIP_LEFT_OUT,       /* a Clip that cuts something off what a product, a sum or a Mul made */
    ND_UNIT_BIAS_WRAPS,          /* a uint8 Conv, ConvTranspose or Gemm with a bias of more than 32 bits */
    ND_UNIT_GATHER_LOSES_LAST,   /* a Gather of 32 rows or more of 8, 16 or 32 bytes that takes the last one */
    ND_UNIT_PAD_OF_KEPT,         /* a Pad of copies, in another encoding than a model input that it reads */
    ND_UNIT_CONCAT_OF_KEPT,      /* a Concat in another encoding than what was moved from a model input */
    ND_UNIT_POOL_OF_PADDED,      /* a MaxPool with padding of its own, of what a Pad makes */
    ND_UNIT_HARD_SWISH_IN_PARTS, /* the last Mul of a uint8 x clip(x + c, 0, d) k, of an input or a MatMul by
                                  * constants, or an Add that reads the last Div
                                  */
    ND_UNIT_SOFTMAX_WITH_ZERO,   /* a uint8 Softmax of three or more, whose zero point is neither 0 nor 128 */
    ND_UNIT_MEAN_OF_SHIFTED,     /* an AveragePool of codes that a Slice cuts out, or that a Pad pads and
                                    count_include_pad counts */
    ND_UNIT_SWISH_WRAPS,         /* a HardSwish, by nd_unit_encodings.wraps of the product before it: no unit by
                                    itself is such a one */
    ND_UNIT_TANH_OF_ROWS,        /* a uint16 or int16 Tanh of 16 rows */
    ND_UNIT_SILU_RACES,   /* the Sigmoid or the Mul of a uint16 or int16 x Sigmoid(x), x from a convolution,
                             of a height that is no multiple of 8, or a Conv that reads it */
    ND_UNIT_PAD_OF_PAD,   /* a Pad of what a Pad makes */
    ND_UNIT_DEPTH_OF_KEPT /* a SpaceToDepth in another encoding than what it reads, or a DepthToSpace of a
                                    model input */
};
enum { ND_N_UNIT_CONDITIONS = ND_UNIT_DEPTH_OF_KEPT + 1 };

/* What a Reciprocal divides, in steps of its input, of which there is one scale: one as a code of that
 * encoding, which is clipped. *is_clipped: by more than a step. Measured with golden/found/reciprocal.u16.onnx
 * and 46 others of its kind. */
double nd_reciprocal_dividend(const struct nd_quant *x, enum nd_dtype dtype, bool *is_clipped);

/* Whether the unit is such a one, by its operator and what it reads of the sample at hand. model may be NULL:
 * then nothing is known of what a Pad makes, or which tensors are inputs. Any thread. */
bool nd_unit_is(const struct nd_model *model, const struct nd_exact_unit *unit,
                enum nd_unit_condition condition);

/* The codes of input i of a Concat, where the HTP may not bring them to the encoding of the Concat: a defect.
 * NULL: it does, or nothing is known. Borrowed. model may be NULL. Any thread. */
const struct nd_array *nd_unit_kept_codes(const struct nd_model *model, const struct nd_exact_unit *unit,
                                          size_t i);

#endif
