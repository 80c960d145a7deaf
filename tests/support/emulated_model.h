/* Small models and their values on emulated devices. */
#ifndef ND_TESTS_EMULATED_MODEL_H
#define ND_TESTS_EMULATED_MODEL_H

#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "devices/emulator/emulate.h"

enum { MAX_TENSORS = 96 };

struct bench {
    struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_array input;
    struct nd_array plain[MAX_TENSORS];   /* of a healthy device */
    struct nd_array qvalues[MAX_TENSORS]; /* of the device */
    struct nd_array again[MAX_TENSORS];   /* worked out once more from the quantised values of the device */
    struct nd_array *found;
};

static inline enum nd_status keep(void *context, size_t tensor, const struct nd_array *values,
                                  enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    struct bench *bench = context;
    return nd_array_copy(values, &bench->found[tensor], err);
}

static inline void open_bench(struct bench *b, const char *name)
{
    char path[512];
    struct nd_error err = {0};
    *b = (struct bench){0};
    snprintf(path, sizeof path, "%s/models/%s.onnx", getenv("GOLDEN"), name);
    if (nd_model_load(path, &b->model, &err) != ND_OK ||
        nd_exact_graph_create(b->model, &b->graph, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_true(nd_model_n_tensors(b->model) <= MAX_TENSORS);
    const struct nd_model_io *io = nd_model_input(b->model, 0);
    assert_int_equal(nd_array_make(&b->input, io->dtype, &io->shape, &err), ND_OK);
}

static inline void close_bench(struct bench *b)
{
    for (size_t e = 0; e < MAX_TENSORS; e++) {
        nd_array_deinit(&b->plain[e]);
        nd_array_deinit(&b->qvalues[e]);
        nd_array_deinit(&b->again[e]);
    }
    nd_array_deinit(&b->input);
    nd_exact_graph_destroy(&b->graph);
    nd_model_destroy(&b->model);
}

static inline void feed(struct bench *b, uint64_t seed)
{
    seed = seed * 2654435761u + 1;
    for (size_t i = 0; i < b->input.n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        b->input.x[i] = (double)(seed >> 40) / 0x1p24;
    }
}

static inline struct nd_emulator *make_device(struct bench *b, struct nd_emulation *emulation, const char *text,
                                              size_t n_repeats)
{
    struct nd_error err = {0};
    struct nd_emulator *emulator = NULL;
    const struct nd_emulator_options options = {.struct_size = sizeof options, .n_repeats = n_repeats};
    if (nd_emulation_parse(text, emulation, &err) != ND_OK ||
        nd_emulator_create(emulation, b->model, b->graph, &options, &emulator, &err) != ND_OK)
        fail_msg("%s: %s", text, err.message);
    return emulator;
}

static inline void run_device(struct bench *b, struct nd_emulator *emulator)
{
    struct nd_error err = {0};
    b->found = b->qvalues;
    if (nd_emulator_run(emulator, &b->input, keep, b, &err) != ND_OK)
        fail_msg("%s", err.message);
}

/* By round half to even; given: from these quantised values. */
static inline void run_plain(struct bench *b, struct nd_array *into, const struct nd_array *given)
{
    struct nd_error err = {0};
    const struct nd_exact_options options = {.struct_size = sizeof options, .given = given};
    b->found = into;
    if (nd_exact_graph_run(b->graph, &b->input, &options, keep, b, &err) != ND_OK)
        fail_msg("%s", err.message);
}

static inline size_t differing(const struct nd_array *a, const struct nd_array *b)
{
    size_t n = 0;
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        n += a->x[i] != b->x[i];
    return n;
}

static inline size_t tensor_of(const struct bench *b, const char *name)
{
    size_t e = 0;
    while (e < nd_model_n_tensors(b->model) && strcmp(nd_model_tensor(b->model, e)->name, name) != 0)
        e++;
    assert_true(e < nd_model_n_tensors(b->model));
    return e;
}

/* The values of one tensor before rounding. */
struct values {
    size_t tensor;
    double *v;
    size_t n;
};

#endif
