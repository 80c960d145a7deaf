/* Which options of a device change what it computes: a model runs with each value of each option, one option at
 * a time, and every run is compared with that of the device as it is.
 *
 * Example:
 *
 *     static enum nd_status sweep(const struct nd_model *model, const struct nd_sweep_options *options,
 *                                 struct nd_error *err)
 *     {
 *         struct nd_sweep *result = NULL;
 *         enum nd_status status = nd_sweep(model, options, &result, err);
 *         for (size_t i = 1; status == ND_OK && i < result->n_settings; i++)
 *             printf("%s=%s: %zu tensors differ\n", result->settings[i].option, result->settings[i].value,
 *                    result->settings[i].n_different);
 *         nd_sweep_destroy(&result);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_SWEEP_H
#define NPUDIFF_SWEEP_H

#include "npudiff/compare/config.h"
#include "npudiff/devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_sweep_options {
    size_t struct_size; /* sizeof(struct nd_sweep_options) */
    const char *device; /* a URI (nd_device_parse), with the options that stay */
    /* "OPTION=VALUE,VALUE,...": options as a URI has them, which neither name files nor load libraries. None:
     * those that are known to change bits or times of that kind of device (nd_sweep_defaults). */
    const char *const *variations;
    size_t n_variations;
    const struct nd_probe *const *probes;
    size_t n_probes;
    const struct nd_model *float_model; /* how near the outputs are to it; NULL: not asked */
    size_t n_repeats;                   /* runs of each sample, for times; 0: one */
    const char *agent;                  /* as nd_capture_options.agent */
    size_t n_threads;                   /* 0: as many as the process may use */
    /* Told how many of n_total runs are finished. NULL: nobody. */
    void (*progress)(void *context, const char *stage, size_t n_done, size_t n_total);
    void *progress_context;
    bool (*is_cancelled)(void *context); /* true stops (ND_E_CANCELLED). NULL: never */
    void *cancel_context;
};

ND_PUBLIC void nd_sweep_options_init_sized(struct nd_sweep_options *options, size_t struct_size);
static inline void nd_sweep_options_init(struct nd_sweep_options *options)
{
    nd_sweep_options_init_sized(options, sizeof *options);
}

/* What a sweep varies where nobody says: "OPTION=VALUE,VALUE", ends with NULL. Static. */
ND_PUBLIC const char *const *nd_sweep_defaults(enum nd_device_kind kind);

/* One run. Strings are owned. */
struct nd_sweep_setting {
    char *option, *value;         /* NULL: the device as it is */
    enum nd_config_effect effect; /* what is known of the option (nd_config_effect_of) */
    char *uri;
    char *failure;                 /* why it gave no values; NULL: it did. Then all below is 0 or NaN */
    size_t n_tensors, n_different; /* compared, and of these with another bit than the device as it is */
    char *first;                   /* the first of these in graph order; NULL: none */
    double output_share;           /* of the values of the outputs that differ */
    uint64_t output_lsb;           /* the largest difference there, in steps of quantised outputs */
    double sqnr_db;                /* of the outputs to the float model; NaN: not asked */
    size_t n_labelled, n_right;    /* samples with a label, and with the right top-1 class */
    size_t n_changed;              /* samples with another top-1 class than the device as it is */
    double median_us;              /* of the runs of the first probe; NaN: not known */
};

struct nd_sweep {
    size_t struct_size;
    char *model;
    char *device;      /* label */
    char *environment; /* "QAIRT 2.51.0, simulator"; "" */
    size_t n_samples;
    size_t n_settings;                 /* the device as it is goes first */
    struct nd_sweep_setting *settings; /* [n_settings] */
    size_t n_changing, n_failed;       /* settings that change a bit; that were asked for and failed */
    size_t n_refused;                  /* that nobody asked for, and the device does not take */
};

/* ND_E_OPTION_VALUE: a variation that is not "OPTION=VALUE", or none for a kind of device without defaults;
 * ND_E_DEVICE_UNKNOWN, ND_E_DEVICE_OPTION: a value or an option that the device does not take (what the
 * provider itself refuses is a failed setting). ND_ERR_DEVICE and others: the device fails as it is.
 * ND_ERR_MEMORY. The caller destroys *out. */
ND_PUBLIC enum nd_status nd_sweep(const struct nd_model *model, const struct nd_sweep_options *options,
                                  struct nd_sweep **out, struct nd_error *err);
ND_PUBLIC void nd_sweep_destroy(struct nd_sweep **sweep);

#ifdef __cplusplus
}
#endif
#endif
