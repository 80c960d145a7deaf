/* Models of strangers that are small enough to be evaluated thousands of times, and inputs for them. */
#ifndef ND_TESTS_FUZZ_SMALL_MODEL_H
#define ND_TESTS_FUZZ_SMALL_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "arithmetic/operators/array.h"
#include "npudiff/model/model.h"

struct small_model {
    struct nd_model *model;
    struct nd_array *inputs; /* [nd_model_n_inputs] one sample */
};

/* False: it cannot be loaded, or is too large. Closed by the caller in any case. */
bool small_model_open(struct small_model *small, const uint8_t *data, size_t size);
void small_model_close(struct small_model *small);

#endif
