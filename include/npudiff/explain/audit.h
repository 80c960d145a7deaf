/* Re-derives what a capture states: `npudiff verify --paranoid`.
 *
 * nd_capture_verify holds a capture against its own digests. Here each statement of the capture is held against
 * others of the same file, and with the model against the model: so damage is found that has digests which fit
 * it, made by a writer with a defect, or by somebody who changed the file on purpose without care.
 *
 * Example:
 *
 *     static bool is_sound(const struct nd_capture *capture, const struct nd_model *model)
 *     {
 *         struct nd_audit audit;
 *         if (nd_capture_audit(capture, model, &audit, NULL) != ND_OK)
 *             return false;
 *         for (size_t i = 0; i < ND_AUDIT_N_CHECKS; i++)
 *             if (audit.checks[i].n_wrong > 0)
 *                 printf("%s: %s\n", nd_audit_name(i), audit.checks[i].text);
 *         return audit.n_wrong == 0;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_AUDIT_H
#define NPUDIFF_AUDIT_H

#include "npudiff/capture/capture.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nd_model;

enum nd_audit_kind {
    ND_AUDIT_VALUES,  /* stored samples, inputs and repeats against their digests */
    ND_AUDIT_CONTENT, /* names, shapes, types, attributes and tables against the content digest */
    ND_AUDIT_PLACES,  /* datasets: inside the file, and no two share a byte */
    ND_AUDIT_SCALES,  /* tensors: scales above 0 and finite, zero points within the type, an axis that fits */
    ND_AUDIT_COUNTS,  /* probes: samples, labels and latencies against the state of the capture */
    ND_AUDIT_MODEL,   /* the model's SHA-256: done where the capture states it */
    ND_AUDIT_TENSORS, /* names, types, shapes and scales against the model */
    ND_AUDIT_EXACT,   /* of the devices `exact` and `float64`: every stored sample, computed again */
};
enum { ND_AUDIT_N_CHECKS = ND_AUDIT_EXACT + 1 };

struct nd_audit_check {
    bool is_done;
    size_t n;       /* things that were looked at */
    size_t n_wrong; /* of these */
    char text[512]; /* the first that is wrong; or why the check was not done; or "" */
};

struct nd_audit {
    struct nd_audit_check checks[ND_AUDIT_N_CHECKS]; /* by enum nd_audit_kind */
    size_t n_wrong;                                  /* checks that found something */
};

/* "values", "content", ...; kind < ND_AUDIT_N_CHECKS (asserted). */
ND_PUBLIC const char *nd_audit_name(enum nd_audit_kind kind);
/* What the check looks at, in words. */
ND_PUBLIC const char *nd_audit_subject(enum nd_audit_kind kind);

/* Makes all checks that can be made. model, nullable: the one that the capture says was run, with the
 * dimensions that it was run with. What is wrong is a result. ND_E_COMPARE_MODEL: the
 * capture is of a different model; ND_ERR_IO: the file cannot be read;
 * ND_ERR_MEMORY. The capture is best opened by nd_capture_open_unchecked: nd_capture_open refuses most damage.
 */
ND_PUBLIC enum nd_status nd_capture_audit(const struct nd_capture *capture, const struct nd_model *model,
                                          struct nd_audit *out, struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
