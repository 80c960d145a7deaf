/* A look at what a capture says, before its quantised values are explained: from the capture and the model, and
 * from the quantised reference (of a float model: the float reference) of the first few samples.
 *
 * Per tensor that the model computes: the quantisation that the capture states; its type's label; where it
 * holds floats, on which grid they lie and whether another device has other floats for the same quantised
 * values; quantised values that pile up at an end of their type, or never change. */
#pragma once

#include "explain/plan/plan.h"

/* Fills `findings` of devices[n_devices], in order of steps. The plan has samples. Devices that failed
 * are left out. ND_ERR_MEMORY, and the errors of nd_capture_read_outputs and nd_exact_graph_run. */
enum nd_status nd_explain_examine_captures(const struct nd_plan *plan, struct nd_explained_device *devices,
                                           struct nd_error *err);
