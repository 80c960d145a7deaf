/* Layers whose values are floats: whether they are those of half precision (or float32). In a quantised model
 * that is what lies between DequantizeLinear and QuantizeLinear where tensors are visible, or before and after
 * all of them. */
#pragma once

#include "explain/stages.h"

/* Evaluates every layer whose values are floats, fills `floats` of the layers, their state, evidence and fault,
 * and float_error of the devices, which stays unknown for a quantised model. After nd_explain_diagnose, before
 * the verdicts. Errors are those of reading captures, ND_ERR_MEMORY. */
enum nd_status nd_explain_judge_floats(const struct nd_explain_job *job,
                                       const struct nd_explain_options *options, struct nd_error *err);
