/* What `npudiff explain` prints. */
#ifndef ND_CLI_EXPLAIN_REPORT_H
#define ND_CLI_EXPLAIN_REPORT_H

#include <jansson.h>

#include "npudiff/explain.h"

/* Prints the text for people, lines of at most `width` (at least 100) columns but for words that are longer;
 * with a table of all units of devices that have local mismatches where it is asked for. */
void explain_print_text(const struct nd_explanation *explanation, size_t width, bool with_units);

/* The first line of a device: its verdict, the evidence for it, and whose the error at the outputs is. */
void explain_print_headline(const struct nd_explanation *explanation, const struct nd_explained_device *device,
                            size_t width);
/* Its layers that are faulty, unexplained, or explained in a way that is worth telling. */
void explain_print_layers(const struct nd_explanation *explanation, const struct nd_explained_device *device,
                          size_t width);

/* That table. */
void explain_print_units(const struct nd_explanation *explanation, const struct nd_explained_device *device,
                         size_t width);

/* Where the device's units were computed, where that is not plainly where the device says; all of them with
 * with_units. */
void explain_print_execution(const struct nd_explanation *explanation, const struct nd_explained_device *device,
                             size_t width, bool with_units);
json_t *explain_execution_json(const struct nd_explained_execution *execution);

/* Of a device that has a program of whole units: which, what follows it, what that costs, what is not known.
 */
void explain_print_program(const struct nd_explanation *explanation, const struct nd_explained_device *device,
                           size_t width);
/* Why such devices differ. */
void explain_print_differences(const struct nd_explanation *explanation, size_t width);
json_t *explain_losses_json(const struct nd_explanation *explanation, const struct nd_explained_device *device);
json_t *explain_differences_json(const struct nd_explanation *explanation);

/* What nd_identify_captures found: operator types and devices, with_units all units and their thresholds.
 * NULL: nothing is printed. */
void explain_print_identification(const json_t *identification, size_t width, bool with_units);

/* Everything, as JSON; NULL when memory is out. */
json_t *explain_json(const struct nd_explanation *explanation);

#endif
