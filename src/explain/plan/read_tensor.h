/* One tensor of one sample of a capture, as an array. */
#pragma once

#include "arithmetic/operators/array.h"
#include "npudiff/capture/capture.h"

/* Of a capture that stores its values: *out is made (deinit in any case), with that type, which is as wide as
 * the captured one, and the captured shape. Errors are those of nd_capture_read_verified, and ND_ERR_MEMORY. */
enum nd_status nd_read_tensor(const struct nd_probe_values *place, size_t sample, enum nd_dtype dtype,
                              struct nd_array *out, struct nd_error *err);

/* Of the probe's input that is number `tensor`: out has been made. */
enum nd_status nd_read_input(const struct nd_probe_values *place, size_t sample, enum nd_dtype dtype,
                             struct nd_array *out, struct nd_error *err);
