/* With which settings a capture was made, how two of them differ, and how encodings fit its values.
 *
 * Every function is thread safe, and what it returns does not change.
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_CONFIG_H
#define NPUDIFF_CONFIG_H

#include "npudiff/capture/capture.h"
#include "npudiff/model/encodings.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is known of a setting. */
enum nd_config_effect {
    ND_CONFIG_UNKNOWN,
    ND_CONFIG_BITS,        /* it can change results: stated by the vendor, or measured */
    ND_CONFIG_PERFORMANCE, /* it changes how fast, not what */
};

/* "not known", "can change bits", "performance only". Static. */
ND_PUBLIC const char *nd_config_effect_name(enum nd_config_effect effect);

/* What the one table of settings says of a key ("runtime.option_vtcm_mb", "htp.graphs[0].O"): its last part
 * decides. */
ND_PUBLIC enum nd_config_effect nd_config_effect_of(const char *key);

struct nd_config_item {
    char *key; /* "device.soc_model", "runtime.optimisation", "library.libQnnHtp.so", "htp.graphs[0].O" */
    char *value;
    enum nd_config_effect effect;
};

/* What a capture says of how its results were made: device, runtime with provider options, loaded libraries (by
 * build id, else SHA-256), processor, and the HTP configuration stored with it, flattened. Sorted bytewise by
 * key. */
struct nd_config {
    size_t n;
    struct nd_config_item *items;
};

/* ND_ERR_FORMAT when the capture's HTP configuration is no JSON. The caller frees *out with nd_config_deinit.
 */
ND_PUBLIC enum nd_status nd_config_of_capture(const struct nd_capture *capture, struct nd_config *out,
                                              struct nd_error *err);
ND_PUBLIC void nd_config_deinit(struct nd_config *config);

/* A setting that two captures have not in common. The texts are owned; NULL: not set on that side. */
struct nd_config_change {
    char *key;
    char *ref;
    char *test;
    enum nd_config_effect effect;
};

struct nd_config_diff {
    size_t n;
    size_t n_bits; /* how many of them can change bits */
    struct nd_config_change
        *changes; /* those that can change bits first, then unknown ones, each sorted by key */
};

/* What differs between the configurations of two captures. Errors as nd_config_of_capture. Thread safe. */
ND_PUBLIC enum nd_status nd_config_diff(const struct nd_capture *ref, const struct nd_capture *test,
                                        struct nd_config_diff *out, struct nd_error *err);
ND_PUBLIC void nd_config_diff_deinit(struct nd_config_diff *diff);

/* An HTP configuration as qnn-net-run and the QNN samples take it: FILE given to --config_file, which names
 * another one in backend_extensions.config_file_path; or that other one alone. Texts are whole files, owned. */
struct nd_htp_config {
    char *outer; /* NULL when the file is the inner one */
    char *inner; /* with "graphs", "devices", ... ; NULL when the outer one names none */
};

/* Reads both, each of at most 32 KiB; a relative path is looked for in the folder of the outer file, then in
 * the current one. ND_ERR_IO: cannot be read; ND_ERR_FORMAT: no JSON object (with line and column). */
ND_PUBLIC enum nd_status nd_htp_config_read(const char *path, struct nd_htp_config *out, struct nd_error *err);
ND_PUBLIC void nd_htp_config_deinit(struct nd_htp_config *config);

/* How one encoding fits what a capture holds of its tensor, over all probes and samples. */
struct nd_encoding_use {
    const struct nd_encoding *encoding; /* borrowed */
    size_t tensor;                      /* of the capture; SIZE_MAX: it has none of that name */
    bool is_stated_same;                /* the tensor's own scale and zero point say the same reals */
    bool has_values;                    /* they are stored, and of a type that can be looked at */
    uint64_t n_elements;                /* NaN left out */
    uint64_t n_nan;
    double lowest, highest; /* real values that occur */
    double low_share;       /* of elements at or below the lowest real that the encoding can express */
    double high_share;      /* at or above the highest */
    double used_range; /* (highest - lowest + step) / whole range, in quantised values; per channel: of the best
                          used */
};

struct nd_encodings_check {
    size_t n_used;
    struct nd_encoding_use
        *uses; /* of every handled encoding that is no parameter, in the order of the encodings */
    size_t n_without;
    size_t *without; /* tensors of the capture that are quantised and have no encoding */
};

/* Looks at captured quantised values (as the capture's own scale and zero point mean them) or floats. A channel
 * of an encoding per channel counts with its own range. ND_ERR_FORMAT: chunks that cannot be decoded, or
 * another number of channels than the tensor has; ND_ERR_IO. The caller frees *out with
 * nd_encodings_check_deinit. */
ND_PUBLIC enum nd_status nd_encodings_check(const struct nd_encodings *encodings,
                                            const struct nd_capture *capture, struct nd_encodings_check *out,
                                            struct nd_error *err);
ND_PUBLIC void nd_encodings_check_deinit(struct nd_encodings_check *check);

#ifdef __cplusplus
}
#endif
#endif
