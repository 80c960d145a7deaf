/* Models whose quantisation is put by hand, so that what it costs is known, and their explanation. Include
 * after main.h and scratch.h. */
#ifndef ND_TESTS_QUANTISED_BENCH_H
#define ND_TESTS_QUANTISED_BENCH_H

#include "support/explain_fixture.h"

#include <math.h>

#include "model/graph/parts.h"
#include "model/rewrite/compose.h"
#include "quantisation/study.h"

enum { MAX_ITEMS = 8 };

/* A model under construction: the float model's parts, and how its tensors are quantised. */
struct bench {
    struct nd_compose *compose;
    struct nd_shape shape;
    size_t n, n_items;
    struct nd_quantised_tensor items[MAX_ITEMS];
    struct nd_quant quants[MAX_ITEMS];
    float scales[MAX_ITEMS][16];
    int64_t zeros[MAX_ITEMS][16];
};

__attribute__((unused)) static void begin(struct bench *b, size_t n)
{
    struct nd_error err = {0};
    *b = (struct bench){.n = n, .shape = {.rank = 2, .dims = {1, (int64_t)n}}};
    expect_ok(nd_compose_create(21, &b->compose, &err), &err);
    nd_compose_input(b->compose, "x", ND_DTYPE_F32, &b->shape);
    nd_compose_output(b->compose, "y", ND_DTYPE_F32, &b->shape);
}

__attribute__((unused)) static void node(struct bench *b, const char *op_type, const char *a, const char *c,
                                         const char *output)
{
    nd_compose_node(b->compose, op_type, (const char *const[]){a, c, NULL}, output);
}

/* Quantised values of n scales; bits 0: as many as the type has. */
__attribute__((unused)) static struct nd_quantised_tensor *item(struct bench *b, const char *tensor,
                                                                enum nd_dtype dtype, size_t n)
{
    size_t k = b->n_items++;
    assert_true(k < MAX_ITEMS && n <= 16);
    b->quants[k] = (struct nd_quant){.n = n, .axis = -1, .scale = b->scales[k], .zero_point = b->zeros[k]};
    b->items[k] = (struct nd_quantised_tensor){.tensor = tensor,
                                               .dtype = dtype,
                                               .bits = 8 * (int)nd_dtype_size_bytes(dtype),
                                               .is_signed = dtype == ND_DTYPE_I8 || dtype == ND_DTYPE_I32,
                                               .quant = &b->quants[k]};
    return &b->items[k];
}

/* uint8 quantised values from low to high. */
__attribute__((unused)) static void quantise(struct bench *b, const char *tensor, double low, double high)
{
    const struct nd_fit fit = nd_fit_range((struct nd_range){low, high}, 0, 255);
    item(b, tensor, ND_DTYPE_U8, 1);
    b->scales[b->n_items - 1][0] = (float)fit.scale;
    b->zeros[b->n_items - 1][0] = (int64_t)fit.zero;
}

__attribute__((unused)) static struct nd_quantised_tensor *find_item(struct bench *b, const char *tensor)
{
    size_t k = 0;
    while (k < b->n_items && strcmp(b->items[k].tensor, tensor) != 0)
        k++;
    assert_true(k < b->n_items);
    return &b->items[k];
}

static struct nd_model *load_path(const char *path)
{
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    expect_ok(nd_model_load(path, &model, &err), &err);
    return model;
}

/* Quantises as the items say, captures with exact arithmetic, and explains beside this float model. */
static struct fixture run_beside(struct bench *b, struct nd_compose *float_model)
{
    struct nd_error err = {0};
    char *float_path = in_folder("float.onnx"), *path = in_folder("quantised.onnx");
    expect_ok(nd_compose_write(b->compose, float_path, &err), &err);
    struct nd_model *plain = load_path(float_path);
    expect_ok(nd_model_write_quantised(plain, b->items, b->n_items, path, &err), &err);
    nd_model_destroy(&plain);
    expect_ok(nd_compose_write(float_model, float_path, &err), &err);
    struct fixture f = {.float_model = load_path(float_path), .n_output_effect_samples = MC_SAMPLES};
    f.model = load_path(path);
    add_device(&f, &(struct mc_device){.shape = &b->shape});
    explain_ok(&f);
    assert_non_null(f.e->quantisation);
    free(float_path);
    free(path);
    return f;
}

/* The same beside the model before quantisation. */
__attribute__((unused)) static struct fixture run(struct bench *b)
{
    return run_beside(b, b->compose);
}

__attribute__((unused)) static const struct nd_quantised_layer *quantised_layer_of(const struct fixture *f,
                                                                                   const char *name)
{
    return &f->e->quantisation->layers[find_step(f, name)];
}

__attribute__((unused)) static const struct nd_remedy *remedy_of(const struct nd_quantised_layer *layer,
                                                                 enum nd_remedy_kind kind)
{
    for (size_t i = 0; i < layer->n_remedies; i++)
        if (layer->remedies[i].kind == kind)
            return &layer->remedies[i];
    fail_msg("no remedy '%s'; the cause is %s: %s", nd_remedy_kind_name(kind), nd_loss_cause_name(layer->cause),
             layer->cause_text);
    return NULL;
}

__attribute__((unused)) static void end(struct bench *b, struct fixture *f)
{
    close_fixture(f);
    nd_compose_destroy(&b->compose);
}

/* The model with that change, really made, is better by what was said. */
__attribute__((unused)) static void assert_gain(struct bench *b, struct fixture *f, double gain_db)
{
    double before = f->e->quantisation->output_sqnr_db;
    close_fixture(f);
    *f = run(b);
    double measured = f->e->quantisation->output_sqnr_db - before;
    print_message("# said %+.3f dB, measured %+.3f dB\n", gain_db, measured);
    assert_true(fabs(measured - gain_db) < 0.05);
}

#endif
