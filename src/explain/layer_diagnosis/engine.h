/* Whether a device that nothing is known of multiplies as integer processors do, by one arithmetic of
 * arithmetic/arithmetics.h: then its layers are held to that before any of them is called anything. */
#pragma once

#include "explain/identify/identify.h"
#include "explain/plan/replay.h"
#include "explain/stages.h"

/* What the values of one layer leave possible. */
struct nd_engine_tally {
    struct nd_identify_tally counts;
    struct nd_wide *steps; /* of its accumulator; NULL: it has none */
    size_t n_steps;
    struct nd_specified_sum specified;
    bool is_conv;
    size_t only; /* as nd_identify_sample has it */
};

struct nd_layer_diagnosis;

/* Counts the layer over samples of max_values in all, at least one, and leaves it as it was. A zeroed tally,
 * freed by nd_engine_tally_deinit in any case. ND_ERR_MEMORY, and errors of reading captures. */
enum nd_status nd_engine_look(struct nd_layer_diagnosis *diagnosis, size_t max_values,
                              struct nd_engine_tally *tally, struct nd_error *err);
enum nd_status nd_engine_count(struct nd_engine_tally *tally, const struct nd_exact_values *values,
                               const double *given, size_t sample, struct nd_error *err);
void nd_engine_tally_deinit(struct nd_engine_tally *tally);

/* Whether the arithmetic of nd_arithmetics says what the layer is, and every value is that. */
bool nd_engine_gives(const struct nd_engine_tally *tally, size_t arithmetic);

/* The arithmetic of nd_arithmetics that most products of a device of which nothing is known follow, and fewer
 * follow plain rounding; SIZE_MAX: there is none. Where no product follows another one the device is said to
 * have it. readers[n_threads] of the plan. ND_ERR_MEMORY, and errors of reading captures. */
enum nd_status nd_engine_find(const struct nd_explain_job *job, size_t device, struct nd_reader *readers,
                              size_t *engine, struct nd_error *err);
