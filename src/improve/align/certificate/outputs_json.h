/* What certificates and reports say of the outputs of an aligned model. */
#pragma once

#include <jansson.h>

#include "npudiff/improve/align.h"

/* An array: each output's SQNR before and after, and the loss, in dB. NULL without memory. */
json_t *nd_alignment_outputs_json(const struct nd_alignment *alignment);
