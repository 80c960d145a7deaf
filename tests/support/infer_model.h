/* A model of one node, and the shape that is inferred. */
#ifndef ND_TESTS_INFER_MODEL_H
#define ND_TESTS_INFER_MODEL_H

#include "support/main.h"

#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/text/strbuf.h"
#include "model/graph/infer.h"
#include "model/rewrite/compose.h"
#include "npudiff/model/model.h"
#include "support/scratch.h"

#define INTS(...) ((const int64_t[]){__VA_ARGS__})

#define SHAPE(...)                                                                                             \
    ((struct nd_shape){.rank = sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = {__VA_ARGS__}})

static const struct nd_shape unknown = {.rank = -1};

static inline void add_integers(struct nd_compose *c, const char *name, const int64_t *values, size_t n)
{
    nd_compose_constant(c, name, ND_DTYPE_I64, &(struct nd_shape){1, {(int64_t)n}}, values);
}

/* A model with input x, of which the caller makes y: nothing but x and the constants is declared. */
static inline struct nd_compose *begin(struct nd_shape x)
{
    struct nd_compose *c = NULL;
    assert_int_equal(nd_compose_create(21, &c, NULL), ND_OK);
    nd_compose_input(c, "x", ND_DTYPE_F32, &x);
    return c;
}

/* Loads the model and forgets what it declares of tensors that nodes make; *declared keeps it. */
static inline struct nd_model *load_blind(const char *path, struct nd_tensor_info **infos,
                                          struct nd_tensor_info **declared)
{
    struct nd_model *model = NULL;
    struct nd_error err = {0};
    expect_ok(nd_model_load(path, &model, &err), &err);
    size_t n = model->graph.n_tensors;
    *infos = calloc(n, sizeof **infos);
    *declared = calloc(n, sizeof **declared);
    assert_true(*infos != NULL && *declared != NULL);
    nd_infer_declared(model, *declared);
    for (size_t t = 0; t < n; t++)
        (*infos)[t] = model->graph.tensors[t].producer == ND_NO_INDEX
                          ? (*declared)[t]
                          : (struct nd_tensor_info){.shape = unknown};
    nd_infer_propagate(model, *infos);
    return model;
}

static inline void assert_shape(const char *what, const struct nd_shape *shape, const struct nd_shape *want)
{
    bool is_same = shape->rank == want->rank;
    for (int i = 0; is_same && i < want->rank; i++)
        is_same = shape->dims[i] == want->dims[i];
    if (!is_same) {
        print_message("# %s: rank %d", what, shape->rank);
        for (int i = 0; i < shape->rank; i++)
            print_message(" %lld", (long long)shape->dims[i]);
        print_message("\n");
    }
    assert_true(is_same);
}

static inline struct nd_tensor_info info_in(const char *path, const char *tensor)
{
    struct nd_tensor_info *infos, *declared;
    struct nd_model *model = load_blind(path, &infos, &declared);
    size_t at = nd_names_find(&model->graph.names, tensor);
    assert_true(at != SIZE_MAX);
    struct nd_tensor_info info = infos[at];
    free(infos);
    free(declared);
    nd_model_destroy(&model);
    return info;
}

/* Ends what begin() began: what is known of y. */
static inline void expect_y(struct nd_compose *c, struct nd_shape want)
{
    struct nd_error err = {0};
    char *path = in_folder("model.onnx");
    expect_ok(nd_compose_write(c, path, &err), &err);
    struct nd_tensor_info info = info_in(path, "y");
    assert_shape("y", &info.shape, &want);
    assert_int_equal(info.dtype, ND_DTYPE_F32);
    nd_compose_destroy(&c);
    free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

#endif
