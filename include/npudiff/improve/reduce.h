/* Cutting a model to the smallest part that a device still refuses in the same way, or that still differs.
 *
 * The method is delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing
 * input", 2002), first over the layers of the model, then over the operators that remain. Every part that is
 * tried runs through nd_capture_run in an agent of its own.
 *
 * Example:
 *
 *     static enum nd_status cut_down(const struct nd_model *model, const struct nd_device *device,
 *                                    struct nd_error *err)
 *     {
 *         struct nd_reduce_options options;
 *         struct nd_reduction *reduction = NULL;
 *         nd_reduce_options_init(&options);
 *         options.folder = "reproducer";
 *         const struct nd_workload work = {model, device, NULL, 0};
 *         enum nd_status status = nd_reduce(&work, &options, &reduction, err);
 *         if (status == ND_OK && reduction->end == ND_REDUCTION_REDUCED)
 *             printf("%zu of %zu operators are enough\n", reduction->n_operators_left, reduction->n_operators);
 *         nd_reduction_destroy(&reduction);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_REDUCE_H
#define NPUDIFF_REDUCE_H

#include "npudiff/devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How far the reduction has got; reported before every session. */
struct nd_reduce_progress {
    const char *step; /* "whole model", "reference", "layers", "operators", "confirm" */
    size_t n_sessions;
    size_t session_limit;
    size_t n_left; /* parts of the smallest that was found so far */
    size_t n_tried;
};

struct nd_reduce_options {
    size_t struct_size;   /* sizeof(struct nd_reduce_options) */
    const char *folder;   /* where the reproducer goes; NULL: nowhere */
    bool replace;         /* a folder that exists is replaced */
    size_t session_limit; /* agent sessions, of whatever device; at least ND_REDUCE_MIN_SESSIONS */
    size_t n_samples;     /* fed to every part, at most; 1..ND_REDUCE_MAX_SAMPLES */
    bool has_difference;  /* what is looked for is a difference, not a failure */
    double lsb;           /* with it: an output differs by more than that many steps; NaN: not looked at */
    double fraction;      /* or in more than that share of its elements, 0..1; NaN: not looked at */
    const char *tensor;   /* look at that tensor alone; NULL: at every output of the part */
    const struct nd_device *against; /* differs from that device; NULL: from the quantised reference (exact) */
    bool allow_fallback;
    double time_limit_s; /* of one session; 0: none */
    const char *agent;   /* as nd_capture_options.agent */
    void (*progress)(void *context, const struct nd_reduce_progress *progress);
    void *progress_context;
    bool (*is_cancelled)(void *context);
    void *cancel_context;
};

enum { ND_REDUCE_MIN_SESSIONS = 5, ND_REDUCE_MAX_SAMPLES = 64 };

/* 60 sessions, 4 samples, 300 s a session. */
ND_PUBLIC void nd_reduce_options_init_sized(struct nd_reduce_options *options, size_t struct_size);
static inline void nd_reduce_options_init(struct nd_reduce_options *options)
{
    nd_reduce_options_init_sized(options, sizeof *options);
}

enum nd_reduction_end {
    ND_REDUCTION_REDUCED, /* a smaller part does the same */
    ND_REDUCTION_WHOLE,   /* the whole model does, and no smaller part that was tried */
    ND_REDUCTION_NOTHING, /* the whole model does not fail (or differ) on this device */
    ND_REDUCTION_NO_MODEL /* the device failed before it saw the model: there is nothing to cut */
};

/* One failure as far as it can be compared with another one, as a capture's /failure and /findings tell it.
 * Texts that are not known are "". */
struct nd_reduction_failure {
    char stage[32];
    int id; /* of the error */
    char message[512];
    char qnn_stage[16]; /* "compose", "finalize", "execute" */
    bool has_raw_code;
    int64_t raw_code;    /* of the runtime */
    char symbol[64];     /* its name */
    char op[64];         /* the device's own operator: "q::QNN_Elu" */
    char node[256];      /* of the model, where it is certain */
    char cause_kind[16]; /* kind of the finding that says most: "preparation", "quantisation", ... */
    char cause[192];     /* and its line: "could not create op: q::QNN_Elu" */
};

/* How much an output differs at most. */
struct nd_reduction_difference {
    char tensor[256]; /* the worst; "" when nothing differs or could be compared */
    double max_lsb;   /* NaN for floats */
    double fraction;
};

struct nd_reduction {
    enum nd_reduction_end end;
    bool is_minimal;   /* no part less one unit (and less one operator) does the same: all of them were tried */
    bool is_confirmed; /* the same again when what was found was run once more */
    bool is_confirm_known;                     /* it was run once more */
    struct nd_reduction_failure failure;       /* of the whole model */
    struct nd_reduction_difference difference; /* of the whole model, then of what was found */
    struct nd_reduction_difference left_difference;
    size_t n_sessions, session_limit;
    size_t n_same, n_other, n_fine, n_uncut; /* parts that did the same, failed otherwise, did not, and could
                                                not be cut out */
    size_t n_layers, n_layers_left;          /* layers, and operators outside of layers */
    size_t n_operators, n_operators_left;    /* without QuantizeLinear, DequantizeLinear and constants */
    char **operators;                        /* [n_operators_left]: "Selu 'block0/act'" */
    char inputs[64];  /* where the inputs of the parts come from: "cpu", "exact", "zeros" */
    size_t n_samples; /* of them */
    char *device;     /* URI, chipset and runtime of the device */
    char *chipset;
    char *runtime;
    char *command; /* that reproduces it in the folder; NULL without one */
    double elapsed_s;
};

/* Reduces the model. No probes stand for one sample of zeros. The caller destroys *out.
 *
 * ND_ERR_USAGE: options that contradict each other, an unknown tensor; ND_ERR_IO: the folder cannot be written
 * or exists, an agent cannot be started; ND_ERR_UNSUPPORTED: dynamic dimensions, or a difference where the
 * reference cannot be evaluated; and what nd_capture_run returns. Nothing is left half-written. Not more than
 * one session runs at a time. Thread-safe. */
ND_PUBLIC enum nd_status nd_reduce(const struct nd_workload *workload, const struct nd_reduce_options *options,
                                   struct nd_reduction **out, struct nd_error *err);

/* NULL in *reduction is accepted. */
ND_PUBLIC void nd_reduction_destroy(struct nd_reduction **reduction);

#ifdef __cplusplus
}
#endif
#endif
