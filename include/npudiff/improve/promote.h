/* Which few layers should get more bits, made and measured on devices.
 *
 * A proposal gives one layer 16 bits for what it makes, or a scale for each channel of its weights. nd_promote
 * computes for each layer what a proposal gains at the outputs and what it costs, and tries the proposals with
 * the largest gain for their cost one after the other: each is put into the model, and the new model runs on
 * all devices. A proposal stays when the outputs of every device become nearer to the float model. The others
 * are taken out again. docs/guides/fix-it.md has an example.
 *
 * Example:
 *
 *     static enum nd_status promote(const struct nd_model *model, struct nd_promote_options *options,
 *                                   struct nd_error *err)
 *     {
 *         struct nd_promoted *promoted = NULL;
 *         enum nd_status status = nd_promote(model, options, &promoted, err);
 *         for (size_t i = 0; status == ND_OK && i < promoted->n_layers; i++)
 *             if (promoted->layers[i].fate == ND_PROMOTE_KEPT)
 *                 printf("%s: %+.1f dB\n", promoted->layers[i].name, promoted->layers[i].measured_db);
 *         nd_promoted_destroy(&promoted);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_PROMOTE_H
#define NPUDIFF_PROMOTE_H

#include "npudiff/devices/device.h"
#include "npudiff/quantisation/quantisation.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_promote_options {
    size_t struct_size;                 /* sizeof(struct nd_promote_options) */
    const struct nd_model *float_model; /* the model before quantisation */
    const struct nd_probe *const *probes;
    size_t n_probes;
    const struct nd_device *const *devices; /* on which every proposal has to help */
    size_t n_devices;
    const char *output;    /* the model to write; NULL: none. Nothing is written where no proposal helps */
    bool replace;          /* an existing file */
    size_t n_layers;       /* the most that are promoted; 0: 4 */
    double budget_percent; /* the most that all of them cost together (nd_promotion_cost.percent); NaN: any */
    const char *agent;     /* as nd_capture_options.agent */
    size_t n_threads;      /* 0: as many as the process may use; the result does not depend on it */
    /* Told what is done: "float", "capture", "layers", "verify"; of n_total parts n_done are finished. NULL:
     * nobody. */
    void (*progress)(void *context, const char *stage, size_t n_done, size_t n_total);
    void *progress_context;
    bool (*is_cancelled)(void *context); /* asked now and then; true stops (ND_E_CANCELLED). NULL: never */
    void *cancel_context;
};

/* Four layers, no budget. */
ND_PUBLIC void nd_promote_options_init_sized(struct nd_promote_options *options, size_t struct_size);
static inline void nd_promote_options_init(struct nd_promote_options *options)
{
    nd_promote_options_init_sized(options, sizeof *options);
}

/* What proposals cost in one inference of one sample, beyond the model as it came. */
struct nd_promotion_cost {
    double activation_bytes; /* of tensors that have 16 bits, and of copies that were converted to 16 bits */
    double weight_bytes;     /* of scales */
    double multiply_adds;    /* that are computed with 16-bit activations */
    size_t n_conversions;    /* between 8 and 16 bits */
    double percent; /* the larger of two shares: of these bytes by all bytes of activations and constants of the
                       model, and of these multiply-adds by all of the model */
};

enum nd_promotion_fate {
    ND_PROMOTE_KEPT,        /* it helps on every device */
    ND_PROMOTE_NO_GAIN,     /* it does not, as measured; it was taken out again */
    ND_PROMOTE_REFUSED,     /* the model could not be made, or a device refused it: reason says why */
    ND_PROMOTE_OVER_BUDGET, /* not tried: with it the budget would be exceeded */
    ND_PROMOTE_NOT_TRIED,   /* as computed it does not help, or enough others were tried before */
};
/* "kept", "no-gain", "refused", "over-budget", "not-tried". Static. */
ND_PUBLIC const char *nd_promotion_fate_name(enum nd_promotion_fate fate);

/* One proposal. Strings are owned. */
struct nd_promoted_layer {
    char *name;               /* of the tensor that the layer makes */
    char *op_types;           /* "Conv+Relu" */
    enum nd_remedy_kind kind; /* ND_REMEDY_16_BITS or ND_REMEDY_WEIGHT_CHANNELS */
    enum nd_promotion_fate fate;
    char *reason;        /* of ND_PROMOTE_REFUSED; else NULL */
    double effect_share; /* of the layer's quantisation error, of the effects of all layers on the outputs */
    double alone_db;     /* computed: by how much the error at the outputs shrinks with this proposal alone */
    double predicted_db; /* computed: in addition to those that were kept before it; NaN: not tried */
    double measured_db;  /* the same on the device that gains least; NaN: not measured */
    double *device_db;   /* [n_devices] measured; NaN: not measured */
    struct nd_promotion_cost cost; /* alone */
};

struct nd_promoted_device {
    char *label;
    double before_db, after_db; /* signal-to-noise ratio of its outputs to the float model */
    size_t n_labelled;          /* samples with a label, of the model's largest output; 0: none */
    size_t n_right_before, n_right_after;
};

struct nd_promoted {
    size_t struct_size;
    char *model, *float_model;
    char *output;                                 /* what was written; NULL: nothing */
    size_t n_samples;                             /* measured on the devices */
    size_t n_computed_samples;                    /* for which gains were computed */
    double computed_before_db, computed_after_db; /* of the quantised reference; NaN: not known */
    size_t n_devices;
    struct nd_promoted_device *devices;
    size_t n_layers, n_kept;
    struct nd_promoted_layer
        *layers;                   /* [n_layers] all proposals: those that were tried first, in their order */
    struct nd_promotion_cost cost; /* of those that were kept, together */
    double budget_percent;         /* NaN: none */
};

/* Finds, tries and measures proposals. The float model, a probe and a device are needed (ND_E_OPTION_CONFLICT).
 * ND_E_PROMOTE_FLOAT: the model has no quantised layer. ND_E_PROMOTE_REFERENCE: the float model does not have
 * the inputs and outputs of the quantised one. ND_ERR_DEVICE and others: a device fails with the model as it
 * came (that it refuses a proposal is no error). ND_ERR_IO: the output cannot be written, or exists without
 * `replace`. ND_ERR_MEMORY. The caller destroys *out. */
ND_PUBLIC enum nd_status nd_promote(const struct nd_model *model, const struct nd_promote_options *options,
                                    struct nd_promoted **out, struct nd_error *err);
ND_PUBLIC void nd_promoted_destroy(struct nd_promoted **promoted);

#ifdef __cplusplus
}
#endif
#endif
