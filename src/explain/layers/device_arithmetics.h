/* Which arithmetics a layer's quantised values leave possible, and which one a device uses. A device has one
 * arithmetic for all its layers, or one per operator type; what does not follow it is the suspect, however
 * small the difference. */
#pragma once

#include "explain/evaluate/evaluation.h"

/* How a layer stands to the arithmetic of layers of its device (see below). */
enum nd_standing {
    ND_STANDING_NONE,    /* the device has no such arithmetic */
    ND_STANDING_FOLLOWS, /* it is explained, whatever its size */
    ND_STANDING_FAULTY,  /* it does something else, and layers of its kind do not */
    ND_STANDING_UNKNOWN, /* the arithmetic says nothing of such layers, or is wrong about their kind */
};

/* What is asked and told of one step of a device. */
struct nd_observed_arithmetic {
    const char *op_types;
    bool is_counted; /* a layer that was examined */
    const struct nd_qvalue_tally *tally;
    const struct nd_layer_tally *layers; /* of arithmetics of layers; nullable */
    uint64_t n_qvalues;                  /* of the layer */
    bool is_table; /* an integer device may make it from a table of 256 entries, which are worked out in floats
                      (nd_layer_is_table) */
    size_t
        places; /* of nd_rounding_rules: two roundings, the first to the places that the layer's own multiplier
                   is shifted by (gemmlowp, arithmetic/arithmetics/requantise.h); SIZE_MAX: not thought of */
    size_t arithmetic; /* out: of nd_rounding_rules, what the device does in such layers; SIZE_MAX: not known */
    bool is_exact;     /* out: in every quantised value, else but for what float32 arithmetic can move */
    bool follows;      /* out: the layer does that; true where nothing is known */
    enum nd_standing standing; /* out */
    bool is_of_values;         /* out: and that is by `program`, which all layers of its kind follow */
    bool is_apart;   /* out: it is a table of plain rounding, and has no say in what the other layers do */
    bool is_suspect; /* out, of judge_layers.c: known arithmetic does not give all of its quantised values */
};
/* Of all devices. */
struct nd_observed_arithmetics {
    struct nd_observed_arithmetic *layers; /* [n_devices][n_steps] */
    size_t *layer_arithmetic;              /* [n_devices] of nd_layer_arithmetics; SIZE_MAX: none */
};

/* The arithmetic of a device is the one that most of its layers follow; operator types of which most layers
 * follow another one have their own. Plain rounding to the nearest beside layers of a fixed point arithmetic is
 * no arithmetic of an operator type, but float arithmetic: fallback; but for tables, which show how their
 * entries were worked out, and not how the device multiplies. *device_program is SIZE_MAX when there is none.
 */
void nd_find_observed_arithmetics(struct nd_observed_arithmetic *observations, size_t n,
                                  size_t *device_arithmetic);

/* Whether it is what arithmetic in floats looks like: rounding once, to the nearest. */
bool nd_is_plain(size_t arithmetic);

/* ---- which arithmetic of whole layers (arithmetic/htp/htp.h) a device has, beside those of values, and
 * which of its layers do not follow it ---- */

/* Beside what nd_find_observed_arithmetics has found (judge_layers.c): whether that is an arithmetic of layers;
 * *arithmetic is SIZE_MAX if it is none. Where an arithmetic is expected only arithmetics of that one are
 * thought of, and one of them is found unless the layers plainly follow something else: then *is_refuted.
 * is_possible[ND_MAX_LAYER_ARITHMETICS]: all those that every layer that follows *arithmetic follows, too. Then
 * observed arithmetics of layers that it covers lose their arithmetic of values, and of the others only kinds
 * that follow one keep it. */
void nd_find_layer_arithmetics(struct nd_observed_arithmetic *observations, size_t n,
                               enum nd_expectation expectation, size_t *arithmetic, bool *is_possible,
                               bool *is_refuted);
