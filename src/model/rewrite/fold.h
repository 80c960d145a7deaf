/* Copies of a quantised model in which a BatchNormalization of its own is part of the ConvTranspose before it.
 */
#pragma once

#include "npudiff/model/model.h"

/* Writes the copy. A BatchNormalization is folded if its constants are known, and if it reads a ConvTranspose
 * of one group with constant weights through one QuantizeLinear and DequantizeLinear, with or without an Add of
 * a constant for each channel (and its quantisers) between, and nobody else reads what lies between. The
 * weights get int8 quantised values and one scale (the arithmetic of a ConvTranspose with several is not
 * known), the bias int32 quantised values in steps of input times weights. The layers between are gone; the
 * output keeps its name and its quantiser. *n_folded: how many; 0: nothing is written. External data is placed
 * as by nd_model_write_exposed. Errors: nd_model_write_whole's. */
enum nd_status nd_model_write_folded(const struct nd_model *model, const char *path, size_t *n_folded,
                                     struct nd_error *err);
