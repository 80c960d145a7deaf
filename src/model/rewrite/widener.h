/* A widened copy while it is made: for widen.c and widen_biases.c. */
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

/* A name that lives as long as the copy. */
enum nd_status nd_widener_name(struct nd_widener *w, const char *tensor, const char *suffix, const char **out,
                               struct nd_error *err);

/* A quantiser that lives as long as the copy; NULL: out of memory. */
struct nd_quant *nd_widener_quant(struct nd_widener *w, size_t n, int axis);

/* Its scale, its zero point and its own name begin with the name of what it makes. */
enum nd_status nd_widener_add(struct nd_widener *w, const struct nd_widener_part *part, struct nd_error *err);

/* The biases of products whose scales are others in the copy, after all else was changed. channels: the
 * quantisers of what->weights. */
enum nd_status nd_widener_biases(struct nd_widener *w, struct nd_quant *const *channels, struct nd_error *err);

#endif
