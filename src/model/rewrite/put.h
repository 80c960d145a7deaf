/* Changed models on their way to a file. */
#pragma once

#include "model/graph/external.h"

/* Writes the message, and puts external files beside it. ND_E_SIZE_OVERFLOW above the 2 GiB of a protobuf;
 * ND_ERR_IO when it cannot be written, and nothing is left behind then. */
enum nd_status nd_rewrite_put(const Onnx__ModelProto *proto, const struct nd_external *external,
                              const char *path, struct nd_error *err);
