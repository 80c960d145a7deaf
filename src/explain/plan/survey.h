/* What one zeroed sample shows of a model: the tensors that are computed and their shapes, and those that
 * cannot be evaluated. */
#pragma once

#include "arithmetic/exact/eval_graph.h"
#include "npudiff/model/model.h"

/* Of one tensor; neither found nor missed: it is not computed. */
struct nd_survey_sight {
    bool is_found;
    char *why;             /* it cannot be evaluated; NULL: it can, or is not computed */
    size_t needs;          /* why: a tensor that is not known itself, or SIZE_MAX: it is its own operator */
    struct nd_shape shape; /* of what was found */
    size_t n;
};

struct nd_survey {
    size_t n_tensors, n_missed;
    struct nd_survey_sight *tensors; /* [n_edges] */
};
