/* Small captures, written to order, for tests of the golden store. Include after main.h. */
#ifndef ND_TESTS_GOLDEN_CAPTURE_H
#define ND_TESTS_GOLDEN_CAPTURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/write/write.h"

enum { GOLD_TENSORS = 3, GOLD_QVALUES = 8, GOLD_SAMPLES = 2 };

/* What a capture was made with; NULL: the usual. */
struct gold {
    const char *chipset, *sdk, *model, *kernel, *kind;
    const char *uri;           /* NULL: CHIPSET@SDK */
    const char *passes, *fp16; /* options; NULL: not there */
    bool may_fall_back;
    unsigned char qvalues[GOLD_TENSORS]; /* added to every quantised value of a tensor */
    unsigned char input;                 /* what was fed */
    bool has_failed;
    bool digests_only;
    bool is_nan;           /* the last tensor is a float output without any number */
    bool with_extra_probe; /* the same once more, under another name */
};

static const char *const gold_tensors[GOLD_TENSORS] = {"secret/conv", "secret/mul", "secret/out"};
static const char *const gold_ops[GOLD_TENSORS] = {"Conv+Relu", "Mul", "Gemm"};

static inline void gold_ok(enum nd_status status, const struct nd_error *err)
{
    if (status != ND_OK)
        print_message("# %s\n", err->message);
    assert_int_equal(status, ND_OK);
}

static inline void gold_attr(struct nd_capture_writer *writer, const char *group, const char *key,
                             const char *text)
{
    struct nd_error err;
    const struct nd_attr attr = {.group = (char *)(uintptr_t)group,
                                 .key = (char *)(uintptr_t)key,
                                 .type = ND_ATTR_STRING,
                                 .string = (char *)(uintptr_t)text};
    gold_ok(nd_capture_writer_attr(writer, &attr, &err), &err);
}

static inline void gold_attrs(struct nd_capture_writer *writer, const struct gold *gold)
{
    const char *sdk = gold->sdk != NULL ? gold->sdk : "qairt-1";
    const char *chipset = gold->chipset != NULL ? gold->chipset : "SM8650";
    char path[128], label[128];
    snprintf(path, sizeof path, "/home/user/%s/libQnnHtp.so", sdk);
    snprintf(label, sizeof label, "%s@%s", chipset, sdk);
    gold_attr(writer, "device", "label", label);
    gold_attr(writer, "device", "uri", gold->uri != NULL ? gold->uri : label);
    gold_attr(writer, "device", "kind", gold->kind != NULL ? gold->kind : "htp-sim");
    gold_attr(writer, "device", "chipset", chipset);
    gold_attr(writer, "device", "transport", "ssh");
    gold_attr(writer, "device", "address", "anna@lab.example");
    gold_attr(writer, "device", "nickname", "zerberus");
    gold_attr(writer, "device", "phone_source", "facts.yaml");
    gold_attr(writer, "runtime", "id", sdk);
    gold_attr(writer, "runtime", "library_000_path", "/lib/libc.so.6");
    gold_attr(writer, "runtime", "library_000_sha256", "c0");
    gold_attr(writer, "runtime", "library_000_build_id", "c1");
    gold_attr(writer, "runtime", "library_001_path", path);
    gold_attr(writer, "runtime", "library_001_sha256", sdk);
    gold_attr(writer, "runtime", "library_001_build_id", "");
    gold_attr(writer, "runtime", "option_backend_path", path);
    gold_attr(writer, "runtime", "option_cache", "/home/user/private.bin");
    if (gold->passes != NULL) {
        gold_attr(writer, "runtime", "passes", gold->passes);
        gold_attr(writer, "runtime", "edges_in", strcmp(gold->passes, "1") == 0 ? "one session" : "passes");
    }
    if (gold->fp16 != NULL)
        gold_attr(writer, "runtime", "option_enable_htp_fp16_precision", gold->fp16);
    gold_attr(writer, "runtime", "fallback_allowed", gold->may_fall_back ? "1" : "0");
    gold_attr(writer, "model", "file", "private-model.onnx");
    gold_attr(writer, "model", "sha256", gold->model != NULL ? gold->model : "aa");
    gold_attr(writer, "model", "edges", "secret/*");
    gold_attr(writer, "host", "kernel", gold->kernel != NULL ? gold->kernel : "6.1");
    if (gold->has_failed) {
        const struct nd_attr code = {.group = (char *)(uintptr_t) "failure",
                                     .key = (char *)(uintptr_t) "code",
                                     .type = ND_ATTR_I64,
                                     .i64 = 531};
        struct nd_error err;
        gold_attr(writer, "failure", "stage", "run");
        gold_attr(writer, "failure", "message", "the agent died at secret/mul");
        gold_ok(nd_capture_writer_attr(writer, &code, &err), &err);
    }
}

static inline void gold_tensor(struct nd_capture_writer *writer, const struct gold *gold,
                               const struct nd_capture_probe *probe, const struct nd_tensor *tensor, size_t e)
{
    struct nd_error err;
    unsigned char qvalues[GOLD_SAMPLES][GOLD_QVALUES];
    float floats[GOLD_SAMPLES][GOLD_QVALUES];
    bool is_float = tensor->dtype == ND_DTYPE_F32;
    struct nd_digest digests[GOLD_SAMPLES];
    for (size_t s = 0; s < GOLD_SAMPLES; s++) {
        for (size_t i = 0; i < GOLD_QVALUES; i++)
            qvalues[s][i] = (unsigned char)(e * 50 + s * 10 + i);
        qvalues[s][0] = (unsigned char)(qvalues[s][0] + gold->qvalues[e]); /* one quantised value of eight */
        for (size_t i = 0; i < GOLD_QVALUES; i++)
            floats[s][i] = gold->is_nan ? (float)NAN : (float)i;
        digests[s] =
            is_float ? nd_digest_bytes(floats[s], sizeof floats[s]) : nd_digest_bytes(qvalues[s], GOLD_QVALUES);
    }
    gold_ok(nd_capture_writer_digests(writer, probe, tensor, digests, &err), &err);
    if (gold->digests_only)
        return;
    const void *data = is_float ? (const void *)floats : qvalues;
    gold_ok(
        nd_capture_writer_outputs(writer, &(struct nd_capture_output){probe, tensor, "QNN", NULL}, data, &err),
        &err);
}

static inline void gold_write(const char *path, const struct gold *gold)
{
    static float scale[1] = {0.5f};
    static int64_t zero_point[1] = {3};
    static const char *const providers[GOLD_TENSORS] = {"QNN", "QNN", "QNN"};
    struct nd_tensor tensors[GOLD_TENSORS];
    struct nd_capture_input input = {(char *)(uintptr_t) "image", ND_DTYPE_U8, {1, {1}}};
    int64_t labels[GOLD_SAMPLES] = {424242, 434343};
    struct nd_capture_probe probe = {.source = (char *)(uintptr_t) "/home/user/photos.npz",
                                     .n_samples = GOLD_SAMPLES,
                                     .n_samples_expected = GOLD_SAMPLES,
                                     .n_repeats = 1,
                                     .n_inputs = 1,
                                     .inputs = &input,
                                     .labels = labels};
    for (size_t e = 0; e < GOLD_TENSORS; e++)
        tensors[e] = (struct nd_tensor){.name = (char *)(uintptr_t)gold_tensors[e],
                                        .onnx_name = (char *)(uintptr_t)gold_tensors[e],
                                        .op_types = (char *)(uintptr_t)gold_ops[e],
                                        .node = (char *)(uintptr_t) "private-node",
                                        .dtype = ND_DTYPE_U8,
                                        .shape = {1, {GOLD_QVALUES}},
                                        .quant = {1, -1, scale, zero_point}};
    if (gold->is_nan) {
        tensors[GOLD_TENSORS - 1].dtype = ND_DTYPE_F32;
        tensors[GOLD_TENSORS - 1].quant = (struct nd_quant){.axis = -1};
        tensors[GOLD_TENSORS - 1].is_model_output = true;
    }
    struct nd_error err;
    struct nd_capture_writer *writer = NULL;
    const unsigned char inputs[GOLD_SAMPLES] = {gold->input, 1};
    gold_ok(nd_capture_writer_create(path, true, &writer, &err), &err);
    gold_attrs(writer, gold);
    gold_ok(nd_capture_writer_tensors(writer, tensors, providers, GOLD_TENSORS, &err), &err);
    for (int p = 0; p < 1 + gold->with_extra_probe; p++) {
        probe.name = (char *)(uintptr_t)(p == 0 ? "my-photos" : "another");
        gold_ok(nd_capture_writer_probe(writer, &probe, &err), &err);
        gold_ok(nd_capture_writer_input(writer, &probe, 0, inputs, &err), &err);
        for (size_t e = 0; e < GOLD_TENSORS; e++)
            gold_tensor(writer, gold, &probe, &tensors[e], e);
    }
    gold_ok(nd_capture_writer_commit(writer, gold->has_failed ? ND_CAPTURE_FAILED : ND_CAPTURE_COMPLETE, &err),
            &err);
    nd_capture_writer_destroy(&writer);
}

#endif
