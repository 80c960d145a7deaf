/* What the values of a comparison show, without the model: symptoms.c looks at pairs of tensors,
 * symptoms_readings.c for wrong types, symptoms_runs.c at repeats of one device and at depth; symptoms_list.c
 * keeps what they find. What goes in is a finished comparison and its captures; what comes out is its
 * `diagnoses` and `depths`. */
#ifndef ND_SYMPTOMS_SYMPTOMS_H
#define ND_SYMPTOMS_SYMPTOMS_H

#include "explain/diagnosis/values.h"
#include "npudiff/explain/explain.h"

/* Samples [first, first + n) of the first run; with repeat > 0 that run of one sample. */
struct nd_diagnose_range {
    size_t first, n, repeat;
};

/* The values of an edge of a capture as real numbers (codes are dequantised), into x with room for them. What
 * reading a capture returns. */
enum nd_status nd_diagnose_read(const struct nd_capture *capture, size_t probe, size_t edge,
                                const struct nd_diagnose_range *range, double *x, struct nd_error *err);

/* A tensor of one of the two captures. */
struct nd_diagnose_side {
    const struct nd_capture *capture;
    size_t probe, edge; /* of the capture */
    struct nd_diagnose_range range;
};

/* The same, of bytes that are read as another type of the same size. */
enum nd_status nd_diagnose_read_as(const struct nd_diagnose_side *side, enum nd_dtype dtype, double *x,
                                   struct nd_error *err);

/* Replaces what was found by ND_FAULT_WRONG_TYPE where the bytes of the test, else of the reference, are floats
 * (or are called so) and read as another type are what the other side has: n values each. ND_ERR_MEMORY, or
 * what reading returns. */
enum nd_status nd_diagnose_readings(const struct nd_diagnose_side sides[2], const double *ref,
                                    const double *test, size_t n, struct nd_findings *found,
                                    struct nd_error *err);

/* Appends to comparison->diagnoses. ND_ERR_MEMORY. */
enum nd_status nd_diagnose_add(struct nd_comparison *comparison, size_t device, size_t edge,
                               const struct nd_finding *finding, bool is_of_runs, struct nd_error *err);

/* Those of device `from`, but for the ones of its runs, hold of `to` as well: the two are bit-equal.
 * ND_ERR_MEMORY. */
enum nd_status nd_diagnose_copy(struct nd_comparison *comparison, size_t from, size_t to, struct nd_error *err);

/* Fills n_later of all. */
void nd_diagnose_count_later(struct nd_comparison *comparison);

/* Runs of one device beside each other. */
enum nd_status nd_diagnose_runs(struct nd_comparison *comparison, const struct nd_capture *const *captures,
                                size_t device, struct nd_error *err);

/* Fills comparison->depths from the differences and the diagnoses that are there. ND_ERR_MEMORY. */
enum nd_status nd_diagnose_depths(struct nd_comparison *comparison, const struct nd_capture *const *captures,
                                  struct nd_error *err);

#endif
