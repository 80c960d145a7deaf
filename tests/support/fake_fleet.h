/* A small fleet of fake captures for tests of comparison and report: an input "in", quantised tensors "conv"
 * and "logits" and a float tensor "scores", one probe "val" with labels. Equal until a test changes something.
 */
#ifndef ND_TESTS_FAKE_FLEET_H
#define ND_TESTS_FAKE_FLEET_H

#include "support/fake_capture.h"

enum { FLEET_IN, FLEET_CONV, FLEET_LOGITS, FLEET_SCORES, FLEET_TENSORS };
enum { FLEET_SAMPLES = 4, FLEET_CLASSES = 5 };

static float fleet_scale[] = {0.5f};
static int64_t fleet_zero_point[] = {3};
static double fleet_latency[2 * FAKE_SAMPLES];

static inline void fleet_add_tensor(struct nd_capture *capture, const char *name, const char *op,
                                    enum nd_dtype dtype, struct nd_shape shape)
{
    struct nd_tensor *tensor = &capture->tensors[capture->n_tensors];
    bool is_float = nd_dtype_is_float(dtype);
    *tensor = (struct nd_tensor){.name = (char *)(uintptr_t)name,
                                 .onnx_name = (char *)(uintptr_t)name,
                                 .op_types = (char *)(uintptr_t)op,
                                 .node = (char *)(uintptr_t)name,
                                 .dtype = dtype,
                                 .shape = shape,
                                 .quant = {.n = is_float ? 0 : 1,
                                           .axis = -1,
                                           .scale = is_float ? NULL : fleet_scale,
                                           .zero_point = is_float ? NULL : fleet_zero_point}};
    capture->providers[capture->n_tensors++] = "QNNExecutionProvider";
}

static inline void fleet_set_attr(struct nd_capture *capture, const char *group, const char *key,
                                  const char *value)
{
    size_t i = 0;
    while (capture->attrs[i].group != NULL && strcmp(capture->attrs[i].key, key) != 0)
        i++;
    capture->attrs[i].group = group;
    capture->attrs[i].key = key;
    capture->attrs[i].value = value;
}

static inline struct nd_capture *fleet_make(const char *label, const char *chipset)
{
    static struct nd_capture_input input = {(char *)(uintptr_t) "in", ND_DTYPE_U8, {.rank = 1, .dims = {1}}};
    static int64_t labels[FAKE_SAMPLES] = {0, 1, 2, 3};
    struct nd_capture *c = calloc(1, sizeof *c);
    if (c == NULL)
        abort();
    c->path = label;
    fleet_set_attr(c, "device", "uri", label);
    fleet_set_attr(c, "device", "chipset", chipset);
    fleet_set_attr(c, "device", "kind", strcmp(label, "cpu") == 0 ? "cpu" : "htp-sim");
    fleet_set_attr(c, "runtime", "id", "qairt-2.48.40");
    fleet_set_attr(c, "model", "sha256", "00ff");
    fleet_add_tensor(c, "in", "input", ND_DTYPE_U8, (struct nd_shape){.rank = 1, .dims = {1}});
    fleet_add_tensor(c, "conv", "Conv+Relu", ND_DTYPE_U8, (struct nd_shape){.rank = 3, .dims = {2, 3, 4}});
    fleet_add_tensor(c, "logits", "Gemm", ND_DTYPE_I16,
                     (struct nd_shape){.rank = 2, .dims = {1, FLEET_CLASSES}});
    fleet_add_tensor(c, "scores", "Softmax", ND_DTYPE_F32,
                     (struct nd_shape){.rank = 2, .dims = {1, FLEET_CLASSES}});
    c->tensors[FLEET_IN].is_model_input = true;
    c->tensors[FLEET_LOGITS].is_model_output = c->tensors[FLEET_SCORES].is_model_output = true;
    c->n_probes = 1;
    c->probes[0] = (struct nd_capture_probe){.name = (char *)(uintptr_t) "val",
                                             .source = (char *)(uintptr_t) "val.npz",
                                             .n_samples = FLEET_SAMPLES,
                                             .n_samples_expected = FLEET_SAMPLES,
                                             .n_repeats = 2,
                                             .n_inputs = 1,
                                             .inputs = &input,
                                             .labels = labels,
                                             .latency_us = fleet_latency};
    for (size_t i = 0; i < 24 * FLEET_SAMPLES; i++)
        c->outputs[0][FLEET_CONV][i] = (unsigned char)(i * 37);
    for (size_t s = 0; s < FLEET_SAMPLES; s++)
        for (size_t k = 0; k < FLEET_CLASSES; k++) {
            int16_t qvalue = k == s ? 500 : (int16_t)(k * 7);
            float score = k == s ? 0.75f : 0.0625f;
            memcpy(c->outputs[0][FLEET_LOGITS] + (s * FLEET_CLASSES + k) * sizeof qvalue, &qvalue,
                   sizeof qvalue);
            memcpy(c->outputs[0][FLEET_SCORES] + (s * FLEET_CLASSES + k) * sizeof score, &score, sizeof score);
        }
    return c;
}

static inline void fleet_set_qvalue(struct nd_capture *capture, size_t sample, size_t k, int16_t qvalue)
{
    memcpy(capture->outputs[0][FLEET_LOGITS] + (sample * FLEET_CLASSES + k) * sizeof qvalue, &qvalue,
           sizeof qvalue);
}

static inline void fleet_set_score(struct nd_capture *capture, size_t sample, size_t k, float score)
{
    memcpy(capture->outputs[0][FLEET_SCORES] + (sample * FLEET_CLASSES + k) * sizeof score, &score,
           sizeof score);
}

#endif
