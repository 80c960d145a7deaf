/* Changing the quantisation of a model so that different chips give the same bits, and proving it.
 *
 * A Conv, Gemm or MatMul multiplies a sum of whole numbers with M = s_x s_w / s_y and rounds. The known
 * arithmetics of the HTP (docs/science/htp-arithmetic.md) hold M with few bits and round in different places;
 * where M is a power of two and the weights fit into 8 signed bits, all of them give the same value. nd_align
 * chooses such scales, layer by layer, and makes either the weights or the output coarser for it, by up to 2.
 * Then it reads what it has written and proves each layer, for every sum that the layer can have, or says that
 * it cannot. docs/science/align.md has the method.
 *
 * Example:
 *
 *     static enum nd_status align(const struct nd_model *model, struct nd_error *err)
 *     {
 *         struct nd_align_options options;
 *         struct nd_alignment *alignment = NULL;
 *         nd_align_options_init(&options);
 *         options.output = "aligned.onnx";
 *         enum nd_status status = nd_align(model, &options, &alignment, err);
 *         if (status == ND_OK)
 *             printf("%zu of %zu layers are proven\n", alignment->n_proven, alignment->n_layers);
 *         nd_alignment_destroy(&alignment);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_ALIGN_H
#define NPUDIFF_ALIGN_H

#include "npudiff/devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_align_options {
    size_t struct_size;                 /* sizeof(struct nd_align_options) */
    const char *output;                 /* the model to write; NULL: none */
    const char *certificate;            /* where to write a certificate of the output; NULL: nowhere */
    bool replace;                       /* existing files */
    const struct nd_model *float_model; /* weights are rounded anew from it, and the accuracy cost is the
                                           distance from it; NULL: from the quantised weights */
    const char *const *arithmetics;     /* names of those that are to agree; NULL: "htp-v69", "htp-v73" */
    size_t n_arithmetics;
    const char *const *chipsets; /* their arithmetics must agree, too: "gen1", "SM8650" */
    size_t n_chipsets;
    /* Tensors whose layers may get new scales, as nd_model_select_tensors takes them. "auto": those first whose
     * difference between the arithmetics has the largest effect on the outputs, as many as the budget allows;
     * needs a budget. NULL: all. */
    const char *layers;
    const struct nd_probe *const *probes; /* inputs for the accuracy cost and for the devices */
    size_t n_probes;
    size_t n_samples; /* of all probes together that the accuracy cost is taken from; 0: all */
    double budget_db; /* the most that an output's signal-to-noise ratio may lose; NaN: any. Needs float_model
                         and probes */
    const struct nd_device *const *devices; /* the new model runs on them, with the probes */
    size_t n_devices;
    const char *agent; /* as nd_capture_options.agent */
    size_t n_threads;  /* 0: as many as the process may use */
    /* Told what is done: "observe", "equalise", "curve", "plan", "prove", "accuracy cost", "capture"; of
     * n_total parts n_done are finished. NULL: nobody. */
    void (*progress)(void *context, const char *stage, size_t n_done, size_t n_total);
    void *progress_context;
    bool (*is_cancelled)(void *context); /* asked now and then; true stops (ND_E_CANCELLED). NULL: never */
    void *cancel_context;
    /* Inputs that weights are rounded for: up to 8 samples, so that the outputs of layers have the least error.
     * NULL: those of the first probe; without probes each weight is rounded to the nearest. */
    const struct nd_probe *const *fit;
    size_t n_fit;
    /* With a float model and inputs, channels between two layers are scaled against each other where that gains
     * 0.5 dB or more at the outputs. Those tensors then hold other values than the float model's, and scales
     * alone do not make the model from it. true: nothing is scaled. */
    bool keeps_channels;
};

/* All samples, no budget. */
ND_PUBLIC void nd_align_options_init_sized(struct nd_align_options *options, size_t struct_size);
static inline void nd_align_options_init(struct nd_align_options *options)
{
    nd_align_options_init_sized(options, sizeof *options);
}

enum nd_align_state {
    ND_ALIGN_PROVEN,  /* all arithmetics give the same values for every input */
    ND_ALIGN_TESTED,  /* not proven; equal on all devices that were asked */
    ND_ALIGN_UNKNOWN, /* neither */
    ND_ALIGN_DIFFERS, /* there is an input for which they differ: by calculation, or seen on the devices */
};

/* "proven", "tested", "unknown", "differs". Static. */
ND_PUBLIC const char *nd_align_state_name(enum nd_align_state state);

/* One layer. Strings are owned but for the static ones. */
struct nd_alignment_layer {
    char *name;     /* of the tensor that it makes */
    char *op_types; /* "Conv+Relu" */
    enum nd_align_state state;
    const char *reason;                  /* why it is not proven; NULL: it is. Static */
    bool is_product;                     /* a Conv, Gemm or MatMul: the following is known of it */
    bool is_planned;                     /* its scales were chosen; else obstacle says why not */
    bool has_weights;                    /* constant ones; else both operands are calculated */
    const char *obstacle;                /* static */
    int exponent;                        /* the multiplier is 2^-exponent, of several channels at least */
    bool has_exponents;                  /* the channels have different ones */
    double output_factor, weight_factor; /* by which the output and the weights became coarser */
    bool is_from_float;                  /* the weights were rounded anew from the float model */
    size_t n_channels, n_unequal; /* output channels; and those with a sum for which arithmetics differ */
    double n_sums;                /* sums of products that the proof covers, over all channels */
    /* With n_unequal > 0, the first such sum, and what the two arithmetics make of it. */
    size_t channel, against; /* against: index of the arithmetic that differs from the first */
    double sum, values[2];
    /* With devices: how many groups of identical devices its tensor has (1: all equal), 0 without data; and
     * whether all that it reads is equal. */
    size_t n_groups;
    bool has_equal_inputs;
};

/* An output before and after, in exact arithmetic. */
struct nd_alignment_output {
    char *name;
    double sqnr_before_db; /* signal-to-noise ratio to the float model; NaN without one */
    double sqnr_after_db;  /* to the float model; without one to the model as it was */
    double loss_db;        /* before less after; NaN without a float model */
};

/* What alignment of the first layers costs and brings, by known arithmetic: a point of the curve. */
struct nd_alignment_point {
    size_t
        n_layers; /* Conv, Gemm and MatMul that may get new scales; those with the largest effect come first */
    char *layer;  /* the last of them; NULL: there is none */
    double effect_db;             /* of that layer: signal to noise at the outputs if it alone has a different
                                     arithmetic; infinite: none */
    double sqnr_db;               /* the least of the outputs, as nd_alignment_output.sqnr_after_db */
    double loss_db;               /* the most of the outputs; NaN without a float model */
    size_t n_values, n_different; /* of the outputs, between the arithmetics */
    size_t n_tensors, n_tensors_different;
};

enum nd_align_end {
    ND_ALIGN_END_ALIGNED,     /* every layer is proven or tested */
    ND_ALIGN_END_DIFFERS,     /* a layer differs */
    ND_ALIGN_END_UNKNOWN,     /* no layer is known to differ, and some are unknown */
    ND_ALIGN_END_OVER_BUDGET, /* it costs more than the budget: nothing was written, and no device was asked */
};

struct nd_alignment {
    size_t struct_size;
    enum nd_align_end end;
    char *model;       /* path */
    char *output;      /* path; NULL: none was written */
    char *certificate; /* the same */
    char *float_model; /* path, or NULL */
    size_t n_arithmetics;
    char **arithmetics;
    size_t n_layers;
    struct nd_alignment_layer *layers; /* in graph order */
    size_t n_proven, n_tested, n_unknown, n_differ;
    size_t n_products, n_planned; /* Conv, Gemm and MatMul; and those with new scales */
    size_t n_weighted,
        n_from_float; /* of these, those with constant weights; rounded anew from the float model */
    size_t n_floats;  /* tensors of floats that operators make outside of layers: nothing is said of them */
    size_t n_points;  /* the curve: with layers "auto", and where the budget is not enough */
    struct nd_alignment_point *points;
    size_t n_curve_samples; /* that sqnr_db and loss_db are measured on */
    size_t n_outputs;       /* 0 without probes */
    struct nd_alignment_output *outputs;
    size_t n_samples;                                 /* that the accuracy cost is taken from */
    double budget_db;                                 /* NaN: none */
    size_t n_labelled, n_right_before, n_right_after; /* samples with a label, and how many the first output has
                                                         right, in exact arithmetic */
    size_t n_changed;                                 /* samples whose class changed */
    size_t n_devices;
    char **devices;                    /* labels */
    char **environments;               /* of each: "QAIRT 2.51.0, simulator"; "" unknown */
    char *groups;                      /* "gen1 = gen3", over all tensors; NULL without devices */
    size_t n_tensors, n_tensors_equal; /* on all devices */
    size_t n_device_samples;
    size_t
        n_refuted; /* layers that are proven and differ on devices although what they read is equal: then their
                      arithmetic is not the one that the proof is about. Their state is ND_ALIGN_DIFFERS */
    size_t n_folded;      /* BatchNormalization that became part of the ConvTranspose before it */
    size_t n_fit_samples; /* that weights were rounded for; 0: none */
    size_t n_fit_priced;  /* of these, those that the accuracy cost is taken from, too, and so is better than of
                             others */
    size_t n_right_to_wrong; /* labelled samples whose class was right before and is not any more */
    size_t
        n_equalised; /* pairs of layers whose channels were scaled against each other, which gains precision */
};

/* Plans, writes, proves, and as the options say weighs and runs it. The caller destroys *out.
 *
 * ND_ERR_UNSUPPORTED: a model without quantised layers (ND_E_ALIGN_FLOAT), one of whose Conv, Gemm and MatMul
 * none can be aligned (ND_E_ALIGN_NOTHING), open dimensions; ND_ERR_NOT_FOUND: no tensor matches `layers`;
 * ND_ERR_USAGE: an unknown arithmetic or chipset, chipsets of one arithmetic, a budget
 * without a float model or probes, devices without probes, a float model whose outputs are other ones;
 * ND_ERR_IO: the output exists or cannot be written; ND_ERR_DEVICE: a device failed; ND_ERR_MEMORY. Nothing is
 * left half-written. Thread-safe. */
ND_PUBLIC enum nd_status nd_align(const struct nd_model *model, const struct nd_align_options *options,
                                  struct nd_alignment **out, struct nd_error *err);

/* NULL in *alignment is accepted. */
ND_PUBLIC void nd_alignment_destroy(struct nd_alignment **alignment);

#ifdef __cplusplus
}
#endif
#endif
