/* A widened copy while it is made: for widen.c and widen.c. */
#ifndef ND_REWRITE_WIDENER_H
#define ND_REWRITE_WIDENER_H

#include "model/rewrite/requantise_model.h"
#include "model/rewrite/widen.h"

/* 16-bit steps in one 8-bit step: then every 8-bit value is a 16-bit value, too. */
enum { ND_WIDE_STEPS = 256 };

struct nd_widener {
    struct nd_requantiser r;
    const struct nd_widening *what;
    struct nd_wide_parts parts;
};

/* What a new QuantizeLinear or DequantizeLinear is made of. */
struct nd_widener_part {
    const char *op_type, *input, *output;
    enum nd_dtype dtype;
    const struct nd_quant *quant;
    size_t behind; /* a node */
};

#endif
