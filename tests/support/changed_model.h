/* Golden models with other constants. Include after main.h and scratch.h. */
#ifndef ND_TESTS_CHANGED_MODEL_H
#define ND_TESTS_CHANGED_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "npudiff/model/model.h"
#include "onnx.pb-c.h"

__attribute__((unused)) static Onnx__TensorProto *tensor_of(Onnx__ModelProto *proto, const char *name)
{
    for (size_t i = 0; i < proto->graph->n_initializer; i++)
        if (strcmp(proto->graph->initializer[i]->name, name) == 0)
            return proto->graph->initializer[i];
    fail_msg("no '%s'", name);
    return NULL;
}

/* A golden model, changed. */
__attribute__((unused)) static struct nd_model *load_changed(const char *name,
                                                             void (*change)(Onnx__ModelProto *proto))
{
    char from[512], *to = in_folder("changed.onnx");
    void *bytes = NULL;
    size_t n;
    struct nd_model *model = NULL;
    struct nd_error err = {0};
    snprintf(from, sizeof from, "%s/models/%s.onnx", getenv("GOLDEN"), name);
    expect_ok(nd_file_read(from, 1 << 24, &bytes, &n, &err), &err);
    Onnx__ModelProto *proto = onnx__model_proto__unpack(NULL, n, bytes);
    assert_non_null(proto);
    free(bytes);
    change(proto);
    n = onnx__model_proto__get_packed_size(proto);
    bytes = malloc(n);
    onnx__model_proto__pack(proto, bytes);
    expect_ok(nd_file_put(to, bytes, n, &err), &err);
    onnx__model_proto__free_unpacked(proto, NULL);
    expect_ok(nd_model_load(to, &model, &err), &err);
    free(bytes);
    free(to);
    return model;
}

#endif
