/* What the sections of a datasheet share. A section is one file section_<name>.c that asks the device and says
 * what it found; the list of them is in fingerprint.c.
 *
 * A section gives an array of entries, one for each operator that it looked at:
 *     "operator", "types"       what was asked, such as "MatMul" and "u8 x u8 -> u8"
 *     "verdict"                 "identified": one program, or several that give the same codes wherever they
 * were held against each other; "not identified"; "bounded":
 * parameters have limits, and no program is claimed; "failed"; "not on the NPU" "programs"                those
 * that are not excluded, by name "parameters"              what was solved for "evidence" counts: "codes",
 * "deciding", "fresh", "right" ... "undecided"               what could not be told apart, each {"what",
 * "probe": what would decide it} "failure", "provider"     where there is one */
#ifndef ND_FINGERPRINT_SECTION_H
#define ND_FINGERPRINT_SECTION_H

#include <jansson.h>

#include "fingerprint/trial.h"

/* Appends its entries. What the device refuses is an entry, not an error. */
typedef enum nd_status nd_section(struct nd_bench *bench, json_t *entries, struct nd_error *err);

nd_section nd_section_linear_u8;      /* section_linear.c */
nd_section nd_section_elementwise_u8; /* section_elementwise.c */
nd_section nd_section_linear_u16;     /* section_linear_u16.c */
nd_section nd_section_table_u8;       /* section_table.c */
nd_section nd_section_table_u16;
nd_section nd_section_pool_u8;   /* section_pool.c */
nd_section nd_section_quantise;  /* section_quantise.c */
nd_section nd_section_normalise; /* section_normalise.c */

nd_section nd_section_bias;            /* section_bias.c */
nd_section nd_section_weights;         /* section_weights.c */
nd_section nd_section_accumulator_f16; /* section_accumulator.c */

/* A new entry with operator, types, verdict and provider, appended to entries and borrowed from it; NULL: out
 * of memory.
 */
json_t *nd_section_entry(json_t *entries, const char *operator_name, const char *types, const char *verdict,
                         const char *provider);
/* Sets a member; takes over value; false, also for a NULL value: out of memory. */
bool nd_section_set(json_t *object, const char *key, json_t *value);
bool nd_section_undecided(json_t *entry, const char *what, const char *probe);
/* The entry of an operator that failed in a trial. */
enum nd_status nd_section_failed(json_t *entries, const char *operator_name, const char *types,
                                 const struct nd_trial_result *result, struct nd_error *err);

#endif
