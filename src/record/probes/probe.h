/* Writing generated values as elements of a model input, and the input's own quantiser.
 * docs/reference/probes.md gives every rounding. Everything here is a pure function of its arguments. */
#ifndef ND_PROBE_PROBE_H
#define ND_PROBE_PROBE_H

#include "core/error.h"
#include "npudiff/model/model.h"
#include "npudiff/record/probe.h"

/* A 16-bit float is rounded to nearest, ties to even; a value beyond its range becomes infinite. NaN stays NaN.
 */
uint16_t nd_f16_from_f32(float value);
uint16_t nd_bf16_from_f32(float value);
float nd_f32_from_f16(uint16_t bits);
float nd_f32_from_bf16(uint16_t bits);

/* The quantised values min..max of an integer type. min is 0 for unsigned types; n_bits is log2 of their
 * number. */
struct nd_qvalue_range {
    int64_t min;
    uint64_t max;
    unsigned n_bits;
};
struct nd_qvalue_range nd_qvalue_range_of(enum nd_dtype dtype);

/* The quantiser of a float input, checked: all scales are finite and positive, zero points are quantised
 * values, and the ends of its real range are finite in the input's type. Borrows the target. */
struct nd_probe_quantiser {
    const struct nd_quant *quant;
    int64_t qvalue_min;
    int64_t qvalue_max;
    size_t n_inner; /* element i belongs to channel (i / n_inner) % quant->n */
};

/* ND_ERR_UNSUPPORTED: its quantised values have neither 8 nor 16 bits; ND_ERR_FORMAT: one of the checks above
 * fails. */
enum nd_status nd_quantiser_init(struct nd_probe_quantiser *quantiser, const struct nd_probe_target *target,
                                 struct nd_error *err);

/* ---- a probe for the inputs of a model ---- */

/* nd_probe_create with the model's inputs as targets. Values and labels are not checked: nd_probes_for_model
 * does. */
enum nd_status nd_probe_for_model(const struct nd_model *model, const char *spec, struct nd_probe **out,
                                  struct nd_error *err);

#endif
