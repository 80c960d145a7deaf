/* Layers that are out of line are looked at once more: their quantised values and exact values are kept, for
 * some samples, and diagnosed, together with what other arithmetic would have given. */
#pragma once

#include "explain/diagnosis/diagnosis.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"
#include "explain/stages.h"

/* The quantiser of a model's input, alone or behind operators that only change the shape: its exact values are
 * the probe's own floats. */

/* Rounds x, in steps of the input, as QuantizeLinear is known to do on devices that have nothing wrong: ONNX's
 * own arithmetic first. Returns the whole number without zero point, before it is clipped. */
enum { ND_N_INPUT_ARITHMETICS = 8 };
double nd_input_arithmetic(size_t arithmetic, float x, float scale);
/* "ties are rounded half away from zero, not half to even": NULL for the first. Static. */
const char *nd_input_arithmetic_text(size_t arithmetic);

/* The whole numbers of what is a fault of a quantiser of inputs. */
enum nd_input_fault {
    ND_INPUT_TO_ZERO,    /* cut off */
    ND_INPUT_QVALUE_CUT, /* cut off with the zero point in it */
    ND_INPUT_FLOOR,
    ND_INPUT_CEIL,
    ND_INPUT_MAGNITUDE, /* the sign is dropped */
};
enum { ND_N_INPUT_FAULTS = ND_INPUT_MAGNITUDE + 1 };
double nd_input_fault_qvalue(enum nd_input_fault fault, double steps, double zero_point);

/* layer diagnosis: job, reader, device and step are given, the rest is zero. Fills quantised values, values,
 * expected and the hypotheses; where known arithmetic gives every quantised value *follows says so, in words,
 * or is "" where it is ONNX's beside ties. ND_ERR_MEMORY, and the errors of reading. */
struct nd_input_layer_diagnosis {
    struct nd_layer_diagnosis diagnosis;
    double *faults[ND_N_INPUT_FAULTS];
    size_t n_hypotheses;
    struct nd_hypothesis hypotheses[ND_N_INPUT_FAULTS];
    const char *follows; /* NULL: it does not */
    const char *why;     /* of the layer, then */
};

/* Names the faults of the devices, after they have been judged. */
enum nd_status nd_explain_diagnose(const struct nd_explain_job *job, struct nd_error *err);
