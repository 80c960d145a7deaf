/* Operators that a release of an SDK is known to compute wrongly, on chips that have nothing wrong with them:
 * what the condition is, how it looks, and what to do. A layer is faulty by its own evidence as any other; this
 * says whose fault it is. */
#pragma once

#include "arithmetic/known/conditions.h"
#include "explain/diagnosis/diagnosis.h"
#include "npudiff/capture/capture.h"
#include "npudiff/model/model.h"

enum { ND_DEFECT_MAX_KINDS = 10 };

struct nd_known_defect {
    enum nd_layer_condition condition; /* the layer: its operator, and what holds of it */
    const char *sdk, *older_sdk,
        *archs;             /* on which it was measured: "2.51.0", NULL or one more, "gen1, gen3" */
    const char *what;       /* what is computed wrongly, and how it looks: a clause */
    const char *remedy;     /* what to do: a sentence */
    bool is_in_arithmetics; /* the arithmetics of arith/ have it, and predict the wrong values */
    enum nd_fault_kind kinds[ND_DEFECT_MAX_KINDS]; /* the faults that it may look like, and no others; the
                                                       first is ND_FAULT_UNEXPLAINED: none that has a name */
    size_t n_kinds;
};

/* The one that a layer with these conditions (nd_layer_conditions) may have: the first, or the first that is
 * predicted; NULL: none. Any thread. */
const struct nd_known_defect *nd_known_defect_of(uint64_t conditions);

/* Whether an error that looks like that fault may be this defect. */
bool nd_known_defect_shows_as(const struct nd_known_defect *defect, enum nd_fault_kind kind);
