/* The gates of one tensor, worked out from the rules the user gave. docs/reference/metrics.md#gates. */
#pragma once

#include "npudiff/compare/compare.h"

/* What an element of one tensor must keep to; all that is set must hold. */
struct nd_gate_values {
    bool bitwise;
    bool has_lsb, has_ulp, has_tolerance;
    uint64_t lsb, ulp;
    double atol, rtol;
};

/* True when at least one rule was given. gates may be NULL. */
bool nd_gates_any(const struct nd_gates *gates);

/* The values for one tensor. Where no rule applies (lsb does not apply to floats, nor ulp to integers) only
 * bit-equality passes: bitwise is set. gates may be NULL. */
struct nd_gate_values nd_gates_resolve(const struct nd_gates *gates, const char *tensor, bool is_float);

/* Refuses rules that name no tensor, and rules whose exact name is a tensor of a type they do not apply to. */
enum nd_status nd_gates_check(const struct nd_gates *gates, const struct nd_compared_tensor *tensors,
                              size_t n_tensors, struct nd_error *err);

/* "bit-equal", "lsb <= 1", "ulp <= 4, |d| <= 0.1 + 0.01 |ref|" in new memory, NULL when out of memory. */
char *nd_gate_describe(const struct nd_gate_values *gate);
