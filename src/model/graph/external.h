/* What a model keeps in files beside it: data of tensors, and the binaries of EPContext nodes. */
#pragma once

#include "core/tensors/sha256.h"
#include "model/graph/onnx.h"

struct nd_external_file {
    char *location; /* as the model says it, relative to its folder */
    char *path;
    char sha256[ND_SHA256_HEX_BYTES];
};

/* Sorted by location, each once. Zeroed is empty. */
struct nd_external {
    struct nd_external_file *files;
    size_t n;
    size_t capacity;
};

/* Lists and hashes the external files of a model. ND_E_MODEL_EXTERNAL: a location outside of the model's
 * folder, a file that is missing or too short for what the model says is in it, or more than 4 GiB of holes in
 * the files. Call nd_external_deinit in any case. */
enum nd_status nd_external_init(struct nd_external *external, const Onnx__ModelProto *model,
                                const char *model_path, struct nd_error *err);
void nd_external_deinit(struct nd_external *external);

bool nd_external_is(const Onnx__TensorProto *tensor);

/* An EPContext node, which stands for a binary that was made for a device beforehand. */
bool nd_external_is_prepared(const Onnx__NodeProto *node);

/* The bytes of one external tensor, which nd_external_init has seen. The caller frees *data. */
enum nd_status nd_external_read(const Onnx__TensorProto *tensor, const char *model_path, void **data,
                                size_t *size_bytes, struct nd_error *err);
