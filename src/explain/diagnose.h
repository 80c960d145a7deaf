/* What diagnose.c, diagnose_list.c and diagnose_runs.c share. */
#ifndef ND_EXPLAIN_DIAGNOSE_H
#define ND_EXPLAIN_DIAGNOSE_H

#include "explain/doctor/doctor.h"
#include "npudiff/explain.h"

/* Samples [first, first + n) of the first run; with repeat > 0 that run of one sample. */
struct nd_diagnose_range {
    size_t first, n, repeat;
};

/* The values of an edge of a capture as real numbers (codes are dequantised), into x with room for them. What
 * reading a capture returns. */
enum nd_status nd_diagnose_read(const struct nd_capture *capture, size_t probe, size_t edge,
                                const struct nd_diagnose_range *range, double *x, struct nd_error *err);

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
