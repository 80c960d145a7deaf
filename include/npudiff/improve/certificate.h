/* Certificates of aligned models: what nd_align found, in a file that can be checked again from nothing.
 *
 * A certificate belongs to one model file. It says of each layer how it is equal on the named arithmetics, and
 * what the alignment cost. nd_certificate_verify believes none of it: it compares digests, proves each layer
 * again, and as the options say runs the model on devices and measures the accuracy cost again. The format:
 * docs/reference/certificate.md.
 *
 * Example:
 *
 *     static enum nd_status check(const char *path, const char *aligned, bool *is_good, struct nd_error *err)
 *     {
 *         struct nd_certificate *certificate = NULL;
 *         struct nd_certificate_check *found = NULL;
 *         struct nd_model *model = NULL;
 *         enum nd_status status = nd_certificate_read(path, &certificate, err);
 *         if (status == ND_OK)
 *             status = nd_model_load(aligned, &model, err);
 *         if (status == ND_OK)
 *             status = nd_certificate_set_dims(certificate, model, err);
 *         if (status == ND_OK)
 *             status = nd_certificate_verify(certificate, model, NULL, &found, err);
 *         if (status == ND_OK)
 *             *is_good = found->end == ND_CERTIFICATE_HOLDS;
 *         nd_certificate_check_destroy(&found);
 *         nd_certificate_destroy(&certificate);
 *         nd_model_destroy(&model);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_CERTIFICATE_H
#define NPUDIFF_CERTIFICATE_H

#include "npudiff/devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_certificate;

/* ND_ERR_IO; ND_ERR_FORMAT (ND_E_CERTIFICATE_FORMAT): no certificate, or one of another format. The caller
 * destroys *out. */
ND_PUBLIC enum nd_status nd_certificate_read(const char *path, struct nd_certificate **out,
                                             struct nd_error *err);
/* NULL in *certificate is accepted. */
ND_PUBLIC void nd_certificate_destroy(struct nd_certificate **certificate);

/* Sets the model's open dimensions to the sizes that the certificate is about. Errors as nd_model_set_dim. */
ND_PUBLIC enum nd_status nd_certificate_set_dims(const struct nd_certificate *certificate,
                                                 struct nd_model *model, struct nd_error *err);

struct nd_certificate_options {
    size_t struct_size;
    const struct nd_model *model; /* as it was before it was aligned: with it and the certificate's inputs the
                                     accuracy cost is measured again. NULL: it is not */
    const struct nd_model *float_model; /* needed for that if the accuracy cost was measured against one */
    const struct nd_probe *const *probes;
    size_t n_probes;
    const struct nd_device *const *devices; /* the aligned model runs on them, with the probes */
    size_t n_devices;
    const char *agent; /* as nd_capture_options.agent */
    size_t n_threads;  /* 0: as many as the process may use */
    /* As nd_align_options.progress: "prove", "accuracy_cost", "capture". NULL: not reported. */
    void (*progress)(void *context, const char *stage, size_t n_done, size_t n_total);
    void *progress_context;
    bool (*is_cancelled)(void *context);
    void *cancel_context;
};
ND_PUBLIC void nd_certificate_options_init_sized(struct nd_certificate_options *options, size_t struct_size);
static inline void nd_certificate_options_init(struct nd_certificate_options *options)
{
    nd_certificate_options_init_sized(options, sizeof *options);
}

enum nd_certificate_end {
    ND_CERTIFICATE_HOLDS, /* all that it says was found again, and every layer is equal */
    ND_CERTIFICATE_OPEN,  /* nothing contradicts it; but layers are unknown, or as tested and did not run again
                           */
    ND_CERTIFICATE_DIFFERS, /* nothing contradicts it; and it says that layers differ */
    ND_CERTIFICATE_REFUSED, /* something contradicts it */
};

/* "holds", "open", "differs", "refused". Static. */
ND_PUBLIC const char *nd_certificate_end_name(enum nd_certificate_end end);

/* Why a certificate is refused. */
struct nd_certificate_refusal {
    const char
        *what;  /* static: "content", "file", "arithmetic", "layers", "proof", "devices" or "accuracy_cost" */
    char *text; /* a sentence */
};

struct nd_certificate_check {
    size_t struct_size;
    enum nd_certificate_end end;
    char *certificate, *model; /* paths */
    char *version;             /* of the npudiff that wrote the certificate; "" unknown */
    size_t n_refusals;
    struct nd_certificate_refusal *refusals;
    size_t n_arithmetics;
    char **arithmetics;
    /* Layers by what the certificate says of them. */
    size_t n_layers, n_proven, n_tested, n_unknown, n_differ;
    size_t n_proven_again; /* of n_proven */
    size_t n_tested_again; /* of n_tested: equal on the devices, or proven by now */
    double n_sums;         /* sums of products that the new proofs cover */
    bool has_accuracy_cost, is_accuracy_cost_checked;
    size_t n_devices; /* on which the model ran now */
    char *groups;     /* "gen1 = gen3", over all tensors; NULL without devices */
};

/* Checks digests first, and ends with the first that is wrong; then each layer. What contradicts the
 * certificate is a refusal, not an error. options NULL: files, arithmetics and proofs only.
 *
 * ND_ERR_USAGE (ND_E_CERTIFICATE_INPUT): to measure the accuracy cost again, other models or other inputs are
 * given than those of the certificate; fewer than two devices, or no inputs for them. ND_ERR_UNSUPPORTED: the
 * model has open dimensions. ND_ERR_DEVICE, ND_ERR_IO, ND_ERR_MEMORY. The caller destroys *out. Thread-safe. */
ND_PUBLIC enum nd_status nd_certificate_verify(const struct nd_certificate *certificate,
                                               const struct nd_model *model,
                                               const struct nd_certificate_options *options,
                                               struct nd_certificate_check **out, struct nd_error *err);

/* NULL in *check is accepted. */
ND_PUBLIC void nd_certificate_check_destroy(struct nd_certificate_check **check);

#ifdef __cplusplus
}
#endif
#endif
