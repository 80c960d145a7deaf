/* Is a twin this chip? The values of a capture against those of the twin of its chipset and SDK, bit by bit.
 *
 * Example:
 *
 *     static enum nd_status check(const struct nd_capture *capture, const struct nd_model *model,
 *                                 bool *is_equal, struct nd_error *err)
 *     {
 *         struct nd_twin_check *found = NULL;
 *         enum nd_status status = nd_twin_check(capture, model, NULL, 0, &found, err);
 *         if (status == ND_OK)
 *             *is_equal = found->end == ND_TWIN_EQUAL;
 *         nd_twin_check_destroy(&found);
 *         return status;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_TWIN_CHECK_H
#define NPUDIFF_TWIN_CHECK_H

#include "npudiff/capture/capture.h"
#include "npudiff/devices/twin.h"

#ifdef __cplusplus
extern "C" {
#endif

enum nd_twin_end {
    ND_TWIN_EQUAL,   /* every tensor, in every bit */
    ND_TWIN_MARKED,  /* tensors differ, and the twin says of each that it is not known or behind one */
    ND_TWIN_DIFFERS, /* a tensor differs whose values the twin claims */
};

/* "equal", "not-known", "differs". Static. */
ND_PUBLIC const char *nd_twin_end_name(enum nd_twin_end end);

/* One tensor, over all samples of all probes. */
struct nd_twin_checked {
    const char *name, *op_types; /* of the model */
    struct nd_twin_mark mark;
    size_t n_samples, n_samples_differing;
    uint64_t n_values,
        n_differing; /* NaN is compared by its bits; n_differing is 0 where has_values is false */
    double largest;  /* difference, in steps of quantised values, else in real units; NaN: not known */
    bool has_values; /* false: the capture has digests only */
};

struct nd_twin_check {
    size_t struct_size;
    enum nd_twin_end end;
    char *capture, *device, *chip;     /* path; name; of the twin, "SM8650@qairt-2.51" */
    char *content_digest;              /* of the capture; NULL: it states none */
    size_t n_samples, n_samples_equal; /* over all probes; equal in every tensor */
    size_t n_tensors, n_equal, n_claimed, n_claimed_equal;
    struct nd_twin_checked *tensors; /* [n_tensors], in the order of the graph */
    size_t n_left_out;               /* recorded tensors that the twin does not have in that type and shape */
    uint64_t n_values, n_differing;
};

/* model: as it was captured, with the dimensions set; borrowed until the check is destroyed. chip: as
 * nd_twin_model_open; NULL: the chipset and the SDK that the capture states. n_threads: 0: as many as the
 * process may use. Captures with digests only are compared by their digests. Safe on any thread; the result
 * does not depend on n_threads. ND_E_COMPARE_MODEL: the capture is of another model; ND_E_COMPARE_NOTHING: it
 * states no chipset, has no tensor in common with the twin, or no sample; ND_ERR_FORMAT: values that do not
 * have their digest; and those of nd_twin_model_open. The caller destroys *out. */
ND_PUBLIC enum nd_status nd_twin_check(const struct nd_capture *capture, const struct nd_model *model,
                                       const char *chip, size_t n_threads, struct nd_twin_check **out,
                                       struct nd_error *err);
/* Accepts a pointer to NULL, and sets it to NULL. */
ND_PUBLIC void nd_twin_check_destroy(struct nd_twin_check **check);

#ifdef __cplusplus
}
#endif
#endif
