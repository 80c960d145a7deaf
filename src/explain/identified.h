/* What nd_identify_captures keeps of a capture (identified.c) and how it is written (identified_json.c). */
#ifndef ND_EXPLAIN_IDENTIFIED_H
#define ND_EXPLAIN_IDENTIFIED_H

#include <jansson.h>

#include "explain/unit_programs.h"
#include "identify/identify.h"
#include "npudiff/capture.h"

/* One unit, in any step of the model; what is no unit is left zeroed. */
struct nd_identified_unit {
    char *name, *op_types;
    bool is_unit, is_conv;
    bool is_double;        /* evaluated in double precision */
    bool is_changing;      /* from run to run: then nothing is counted */
    bool has_fed;          /* of those, its inputs change as well */
    char *why_not;         /* it cannot be looked at in some probe; NULL: it could in all */
    struct nd_wide *steps; /* of its accumulator; NULL without one */
    size_t n_steps;
    struct nd_identify_tally tally;
    struct nd_explain_unit_tally as_whole; /* by program of whole units */
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
    size_t n_units;
    struct nd_identified_unit *units; /* [n_units] one for every step, or none */
    uint64_t n_samples;               /* of all probes */
};

/* NULL when memory is out. */
json_t *nd_identified_json(const struct nd_identified_device *device);

#endif
