/* The tensors that a capture lacks, with the reasons, as it lists them itself. */
#ifndef ND_CLI_LEFT_OUT_H
#define ND_CLI_LEFT_OUT_H

#include <jansson.h>

#include "npudiff/capture/capture.h"

/* [{"tensor", "reason"}]; empty where all tensors that were asked for are there. Owned by the caller. */
json_t *cli_left_out_rows(const struct nd_capture *capture);

#endif
