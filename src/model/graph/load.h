/* What a model keeps in files beside it: data of tensors, and the binaries of EPContext nodes. */
#ifndef ND_MODEL_EXTERNAL_H
#define ND_MODEL_EXTERNAL_H

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

bool nd_external_is(const Onnx__TensorProto *tensor);

/* An EPContext node, which stands for a binary that was made for a device beforehand. */
bool nd_external_is_prepared(const Onnx__NodeProto *node);

/* The bytes of one external tensor, which nd_external_init has seen. The caller frees *data. */
enum nd_status nd_external_read(const Onnx__TensorProto *tensor, const char *model_path, void **data,
                                size_t *size_bytes, struct nd_error *err);

/* What nd_external_place made, so that it can be undone when a later step fails. Zeroed is empty. */
struct nd_external_copy {
    struct nd_external_placed *placed;
    size_t n;
};

/* Puts all files beside the model at copy_path, as hard links where the file system can, else as copies. A file
 * that is there already with the same content stays; with another content it is ND_E_FILE_EXISTS. On failure
 * nothing that was made is left, and *copy is empty. */
enum nd_status nd_external_place(const struct nd_external *external, const char *copy_path,
                                 struct nd_external_copy *copy, struct nd_error *err);

/* Frees the list; with remove the files and folders that were made go, too. */
void nd_external_copy_end(struct nd_external_copy *copy, bool remove);

#endif
