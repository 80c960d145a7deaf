/* The sections of a datasheet. fingerprint.c has the list of them; each one makes experiments (experiment.h).
 *
 * A section gives an array of entries, one for each operator that it looked at (docs/reference/datasheet.md):
 *
 *     "operator", "types"    what was asked, such as "MatMul" and "u8 x u8 -> u8"
 *     "verdict"              "identified": one arithmetic, or several that give the same quantised values
 * wherever they were held against each other; "not identified"; "bounded": parameters have limits, and no
 * arithmetic is claimed; "failed"; "not on the NPU" "possible_arithmetic"  those that are not excluded, by name
 *     "parameters"           what was solved for
 *     "evidence"             counts: "values", "deciding", "fresh", "right" ...
 *     "undecided"            what could not be told apart, each {"what", "probe": what would decide it}
 *     "failure", "provider"  where there is one */
#ifndef ND_FINGERPRINT_SECTION_H
#define ND_FINGERPRINT_SECTION_H

#include <jansson.h>

#include "lab/experiment/trial.h"

/* Of the file. Version 1 (npudiff 0.1) had "programs" for "possible_arithmetic", and counts "codes" for
 * "values". */
enum { ND_DATASHEET_VERSION = 3, ND_DATASHEET_WITH_DIGEST = 3 };

/* Appends its entries. What the device refuses is an entry, not an error. */
typedef enum nd_status nd_section(struct nd_bench *bench, json_t *entries, struct nd_error *err);

nd_section nd_section_linear_u8;      /* linear.c */
nd_section nd_section_elementwise_u8; /* elementwise.c */
nd_section nd_section_linear_u16;     /* linear_u16.c */
nd_section nd_section_table_u8;       /* section_table.c */
nd_section nd_section_table_u16;
nd_section nd_section_pool_u8;   /* section_pool.c */
nd_section nd_section_quantise;  /* section_quantise.c */
nd_section nd_section_normalise; /* section_normalise.c */

nd_section nd_section_bias;            /* bias.c */
nd_section nd_section_weights;         /* weights.c */
nd_section nd_section_accumulator_f16; /* section_accumulator.c */

#endif
