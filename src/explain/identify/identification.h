/* What nd_identify_captures makes: which arithmetics the captures leave possible. identify_captures.c counts,
 * identify_captures.c decides, report/ writes it. */
#pragma once

#include "explain/identify/identify.h"
#include "explain/trials/layer_trial.h"
#include "npudiff/explain/explain.h"

/* What is said of a layer, of the layers of one operator type, or of a device. */
struct nd_answer {
    struct nd_identify_result result;
    const char *verdict; /* "too-few", "none", "several", "single". Static */
    uint64_t exceptions; /* quantised values that the best arithmetic does not give; where it is not applicable,
                            half-even does not */
    uint64_t reference;  /* quantised values that half-even does not give */
    double explained;    /* 1 - exceptions / reference; NaN without a reference */
    struct nd_other_tally whole; /* n and wrong, by arithmetic of whole layers */
};

/* One layer, in any step of the model; what is no layer is left zeroed. */
struct nd_identified_layer {
    char *name, *op_types;
    bool is_layer, is_conv;
    bool is_double;        /* evaluated in double precision */
    bool is_changing;      /* from run to run: then nothing is counted */
    bool has_fed;          /* of those, its inputs change as well */
    char *why_not;         /* it cannot be looked at in some probe; NULL: it could in all */
    struct nd_wide *steps; /* of its accumulator; NULL without one */
    size_t n_steps;
    struct nd_specified_sum specified;
    struct nd_identify_tally tally;
    struct nd_layer_tally as_whole; /* by arithmetic of whole layers */
    struct nd_answer *answer;       /* NULL: nothing was counted */
};

struct nd_identified_type {
    const char *op_types; /* borrowed from a layer */
    size_t n_layers;
    struct nd_answer answer;
};

struct nd_identified_probe {
    char *name;
    size_t n_samples;
};

struct nd_identified_device {
    char *uri, *chipset, *capture;
    char *failure; /* NULL: it did not fail */
    size_t n_probes;
    struct nd_identified_probe *probes;
    size_t n_layers;
    struct nd_identified_layer *layers; /* [n_units] one for every step, or none */
    uint64_t n_samples;                 /* of all probes */
    size_t n_types;
    struct nd_identified_type *types; /* [n_types] in the order of their first layers */
    struct nd_answer *answer;         /* of all types; NULL when it failed */
};

struct nd_identification {
    size_t n_devices;
    struct nd_identified_device *devices;
};

/* Whether the arithmetic is one that is not excluded. */
bool nd_identified_is_left(const struct nd_identify_result *result, size_t arithmetic);
/* The classes of arithmetics that are not excluded, by the first arithmetic of each: the one after that one,
 * SIZE_MAX for the first. SIZE_MAX: there is none, as always with too few quantised values. */
size_t nd_identified_next_class(const struct nd_identify_result *result, size_t after);
/* There is no threshold, or contamination. */
bool nd_identified_is_crossed(const struct nd_identify_bracket *bracket);
/* Of a layer without an answer. */
const char *nd_identified_why_not(const struct nd_identified_layer *layer);
