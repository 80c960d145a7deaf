/* A look at what a capture says, before its quantised values are explained: from the capture and the model, and
 * from the quantised reference (of a float model: the float reference) of the first few samples.
 *
 * Per tensor that the model computes: the quantisation that the capture states; its type's label; where it
 * holds floats, on which grid they lie and whether another device has other floats for the same quantised
 * values; quantised values that pile up at an end of their type, or never change. */
#pragma once

#include "explain/diagnosis/values.h"
#include "explain/plan/plan.h"
#include "explain/plan/read_tensor.h"

/* Fills `findings` of devices[n_devices], in order of steps. The plan has samples. Devices that failed
 * are left out. ND_ERR_MEMORY, and the errors of nd_capture_read_outputs and nd_exact_graph_run. */
enum nd_status nd_explain_examine_captures(const struct nd_plan *plan, struct nd_explained_device *devices,
                                           struct nd_error *err);

/* ---- what findings.c (who is looked at), findings.c (what is said) and the files that judge share:
 * findings.c judges quantised values, findings.c floats, findings.c whole tensors of floats. Those read no
 * capture ---- */

enum {
    ND_LOOK_SAMPLES = 4,      /* of the reference */
    ND_LOOK_FLOATS = 1 << 16, /* kept of a tensor, evenly over its elements */
    ND_LOOK_OTHERS = 6        /* tensors of the same shape beside one, the nearest before it */
};

/* The type's two ends. */
enum { ND_LOW_END, ND_HIGH_END, ND_N_ENDS };

/* The quantised values of one tensor of one device against the reference's: read as the model's type, whatever
 * the label says. */
struct nd_qvalue_look {
    size_t n;
    size_t at_end[ND_N_ENDS], ref_at_end[ND_N_ENDS];
    size_t far[ND_N_ENDS]; /* at the end, while the reference is well inside */
    size_t n_near;         /* about the reference's */
    size_t n_signed;       /* that are another number when the type's sign is read otherwise */
    size_t n_signed_near;
    double low, high, ref_low, ref_high;
};

/* dtype: the model's. n quantised values of one sample. */
void nd_look_at_qvalues(struct nd_qvalue_look *look, enum nd_dtype dtype, const double *ref,
                        const double *qvalues, size_t n);

/* The bits are quantised values of the model's type although the capture calls them otherwise. */
bool nd_look_finds_wrong_type(const struct nd_qvalue_look *look);
/* Quantised values that pile up at that end. */
bool nd_look_finds_saturation(const struct nd_qvalue_look *look, int end);
/* All are one quantised value, and the reference's are not. */
bool nd_look_finds_constant(const struct nd_qvalue_look *look, enum nd_dtype dtype);

/* Floats of one tensor, as far as they are kept. Freed by the owner. */
struct nd_float_look {
    float *x;
    size_t n;
};

/* Every stride-th of n values of a sample goes behind what is there, as long as there is room. The same values
 * are kept of two tensors of one shape. */
enum nd_status nd_look_keep_floats(struct nd_float_look *look, const double *x, size_t n, size_t n_samples,
                                   struct nd_error *err);

/* Floats of a tensor without codes: on the grid of a narrower type on which the reference's are not. */
void nd_look_at_grid(const struct nd_float_look *ref, const struct nd_float_look *test,
                     struct nd_diagnosis *out);
/* What a tensor is examined with: its floats, and those of tensors of the same shape that come before it. */
struct nd_value_look {
    size_t n_samples;
    struct nd_shape shape;
    enum nd_dtype dtype; /* of the capture */
    const struct nd_float_look *ref, *test;
    size_t n_others;
    const char *names[ND_LOOK_OTHERS];
    const struct nd_float_look *others[ND_LOOK_OTHERS][2]; /* ref and test */
};

/* How a tensor of a capture is looked at. */
enum nd_look_kind {
    ND_LOOK_AS_NOT,
    ND_LOOK_AS_QVALUES,    /* of the model's type */
    ND_LOOK_AS_OTHER_SIGN, /* quantised values, but called signed where the model's are unsigned, or the reverse
                            */
    ND_LOOK_AS_QVALUE_FLOATS, /* floats where the model has quantised values */
    ND_LOOK_AS_FLOATS,        /* floats where the model has floats */
};

struct nd_finding_look {
    enum nd_look_kind kind;
    struct nd_probe_values place; /* its tensor is SIZE_MAX where the capture has none */
    struct nd_qvalue_look qvalues;
    struct nd_float_look floats;
};

struct nd_examination {
    const struct nd_plan *plan;
    struct nd_explained_device *devices; /* [n_devices] */
    struct nd_finding_look *looks;       /* [n_devices][n_steps] */
    struct nd_float_look *floats;        /* [n_steps] the reference's, of tensors without quantised values */
    size_t n_samples, sample;            /* of the reference; the one at hand */
    struct nd_values_history *histories; /* [n_devices] */
};

static inline struct nd_finding_look *nd_look_of(const struct nd_examination *x, size_t device, size_t step)
{
    return &x->looks[device * x->plan->n_steps + step];
}

/* Floats of a quantised tensor on two devices; *is_pair: they stand for the same quantised values, so that no
 * other device need be asked. */
void nd_look_at_pair(const struct nd_float_look *ref, const struct nd_float_look *test,
                     const struct nd_quant *quant, bool *is_pair, struct nd_diagnosis *out);
