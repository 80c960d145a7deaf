/* Questions to a device that are one operator between codes: DequantizeLinear, the operator, QuantizeLinear; or
 * the operator alone between floats. What the device makes of them, and what the operator is in double
 * precision. */
#ifndef ND_EXPERIMENT_ASK_H
#define ND_EXPERIMENT_ASK_H

#include "lab/experiment/trial.h"

enum { ND_ASK_MAX_ATTRIBUTES = 4, ND_ASK_MAX_OPERANDS = 2, ND_ASK_MAX_SCALES = 256 };

/* n integers: one is an attribute of that type, more (or is_list) are a list; none: the float. */
struct nd_ask_attribute {
    const char *name;
    size_t n;
    bool is_list;
    int64_t ints[4];
    float f;
};

/* What follows the first input: quantised values of 8 or 32 bits, or numbers that are no quantised values.
 * Borrowed. */
struct nd_ask_operand {
    enum nd_dtype dtype; /* codes: ND_DTYPE_U8, _I8, _I32; numbers: ND_DTYPE_I64, _F32 */
    struct nd_shape shape;
    const void *data;
    float scale; /* of all quantised values */
    int64_t zero;
    const float *scales; /* NULL, or one scale for each place along axis 0, with zero points of 0 */
    bool is_input;       /* of the model, and data are one sample; else a constant */
};

struct nd_ask {
    const char *op_type;
    enum nd_dtype
        dtype; /* on both sides: quantised values, ND_DTYPE_U8 or ND_DTYPE_U16, or floats, ND_DTYPE_F32 */
    struct nd_shape x, y;
    float scale_x, scale_y;
    int64_t zero_x, zero_y;
    size_t n_attributes, n_operands;
    struct nd_ask_attribute attributes[ND_ASK_MAX_ATTRIBUTES];
    struct nd_ask_operand operands[ND_ASK_MAX_OPERANDS];
};

/* What the operator gives in double precision, before it is quantised: values [n_samples] times y, of which
 * there is room. in_float32: of the float32 numbers that quantised values are dequantised to; else of the exact
 * ones. Errors as of nd_op_run. */
enum nd_status nd_ask_values(const struct nd_ask *ask, const double *qvalues, size_t n_samples, bool in_float32,
                             double *values, struct nd_error *err);

/* Elements of a shape that is known to be small. */
size_t nd_ask_elems(const struct nd_shape *shape);

#endif
