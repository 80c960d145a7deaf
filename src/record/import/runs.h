/* Repeats: several runs of the same samples, from files of their own or one behind the other in the same files.
 */
#ifndef ND_FOREIGN_RUNS_H
#define ND_FOREIGN_RUNS_H

#include "record/import/imported.h"

/* All after nd_match_samples. */

/* Appends the samples of another run, and checks that it has the same tensors, shapes, types, numbers of
 * samples and inputs. `number` counts runs, for messages. ND_E_IMPORT_MISMATCH names both. */
enum nd_status nd_runs_append(struct nd_imported *imported, const struct nd_imported *repeat, size_t number,
                              struct nd_error *err);

/* Labels and latencies that the facts state, held against those of the files and against the numbers of samples
 * and repeats. Latencies are then [n_samples][n_repeats]. */
enum nd_status nd_runs_facts(struct nd_imported *imported, size_t n_samples, size_t n_expected,
                             struct nd_error *err);

#endif
