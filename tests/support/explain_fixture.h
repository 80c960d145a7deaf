/* Explaining captures of golden models by devices of model_capture.h. Include after main.h and scratch.h. */
#ifndef ND_TESTS_EXPLAIN_FIXTURE_H
#define ND_TESTS_EXPLAIN_FIXTURE_H

#include "support/model_capture.h"

#include "npudiff/explain/explain.h"

enum { EF_MAX_DEVICES = 8 };

struct fixture {
    struct nd_model *model, *float_model;
    struct nd_capture *captures[EF_MAX_DEVICES];
    size_t n_captures;
    size_t n_output_effect_samples, n_untouched; /* the last captures are untouched ones */
    struct nd_explanation *e;
};

__attribute__((unused)) static struct nd_model *load(const char *name)
{
    char path[512];
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    snprintf(path, sizeof path, "%s/models/%s.onnx", getenv("GOLDEN"), name);
    expect_ok(nd_model_load(path, &model, &err), &err);
    return model;
}

static void add_device(struct fixture *f, const struct mc_device *device)
{
    struct nd_error err = {0};
    char name[32];
    snprintf(name, sizeof name, "%zu.h5", f->n_captures);
    char *path = in_folder(name);
    mc_capture(f->model, device, path);
    expect_ok(nd_capture_open(path, &f->captures[f->n_captures++], &err), &err);
    free(path);
}

static enum nd_status explain(struct fixture *f, size_t n_threads, struct nd_error *err)
{
    const struct nd_capture *const *captures = (const struct nd_capture *const *)f->captures;
    size_t n_devices = f->n_captures - f->n_untouched;
    const struct nd_explain_options options = {.struct_size = sizeof options,
                                               .n_output_effect_samples = f->n_output_effect_samples,
                                               .n_threads = n_threads,
                                               .untouched = captures + n_devices,
                                               .n_untouched = f->n_untouched};
    nd_explanation_destroy(&f->e);
    return nd_explain(f->model, f->float_model, captures, n_devices, &options, &f->e, err);
}

__attribute__((unused)) static void explain_ok(struct fixture *f)
{
    struct nd_error err = {0};
    expect_ok(explain(f, 0, &err), &err);
}

static void close_fixture(struct fixture *f)
{
    nd_explanation_destroy(&f->e);
    for (size_t i = 0; i < f->n_captures; i++)
        nd_capture_close(&f->captures[i]);
    nd_model_destroy(&f->model);
    nd_model_destroy(&f->float_model);
}

static size_t find_step(const struct fixture *f, const char *name)
{
    size_t s = 0;
    while (s < f->e->n_steps && strcmp(f->e->steps[s].name, name) != 0)
        s++;
    assert_true(s < f->e->n_steps);
    return s;
}

__attribute__((unused)) static const struct nd_explained_layer *layer_of(const struct fixture *f,
                                                                         const char *name)
{
    return &f->e->devices[0].layers[find_step(f, name)];
}

#endif
