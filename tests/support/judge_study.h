/* Simulated studies for the statistics of the judge: shared by a unit test, which runs some, and
 * tools/coverage, which runs many. */
#ifndef ND_TESTS_JUDGE_STUDY_H
#define ND_TESTS_JUDGE_STUDY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/random.h"
#include "core/statistics/evidence.h"
#include "judge/accuracy/fleet_accuracy.h"

/* What is true of every sample of a study of two devices. */
struct study {
    uint64_t n;
    double discordant, difference;
};

static inline double study_uniform(uint64_t *state)
{
    return (double)nd_splitmix_below(state, 0xffffffffu) / 0xffffffffu;
}

static inline struct nd_paired study_draw(const struct study *study, uint64_t *state)
{
    double test_only = (study->discordant + study->difference) / 2;
    struct nd_paired table = {0};
    for (uint64_t i = 0; i < study->n; i++) {
        double u = study_uniform(state);
        table.test_only += u < test_only;
        table.ref_only += u >= test_only && u < study->discordant;
    }
    table.both_right = (study->n - table.test_only - table.ref_only) * 3 / 4;
    table.both_wrong = study->n - table.test_only - table.ref_only - table.both_right;
    return table;
}

static inline bool study_is_within(const struct nd_interval *interval, double value)
{
    return interval->low <= value && value <= interval->high;
}

/* How many discordant samples pass before the evidence suffices; 0: more than n_looks. */
static inline uint64_t study_stop(double test_share, uint64_t n_looks, uint64_t *state)
{
    struct nd_sequential_evidence evidence = {0};
    for (uint64_t i = 1; i <= n_looks; i++) {
        nd_evidence_add(&evidence, study_uniform(state) < test_share);
        if (nd_evidence_suffices(&evidence, ND_EVIDENCE_STOP))
            return i;
    }
    return 0;
}

/* Devices that lose what the float model got right with probability lost, the last one with lost + more, and
 * get right what it got wrong with probability gained. It is right on 3 of 4. */
struct fleet_study {
    size_t n_devices, n_samples;
    double lost, more, gained;
};

/* devices: [n_devices * n_samples], reference: [n_samples]. */
static inline void study_draw_fleet(const struct fleet_study *study, uint64_t *state, unsigned char *devices,
                                    unsigned char *reference)
{
    for (size_t i = 0; i < study->n_samples; i++) {
        reference[i] = study_uniform(state) < 0.75;
        for (size_t d = 0; d < study->n_devices; d++) {
            double lost = study->lost + (d + 1 == study->n_devices ? study->more : 0), u = study_uniform(state);
            devices[d * study->n_samples + i] = reference[i] ? u >= lost : u < study->gained;
        }
    }
}

#endif
