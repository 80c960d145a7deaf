/* Arithmetics of layers, held against what the simulator of the HTP makes of random quantised values
 * (golden/programs): one operator each. */
#ifndef ND_TESTS_SUPPORT_ARITHMETIC_TRIAL_H
#define ND_TESTS_SUPPORT_ARITHMETIC_TRIAL_H

#include <stdio.h>
#include <stdlib.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/htp/htp.h"
#include "support/arithmetic_qvalues.h"

enum { MAX_INPUTS = 3, MAX_BYTES = 1 << 18 };

struct trial {
    struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_layer_memory *memory; /* NULL: arithmetics have none */
    const struct nd_layer_arithmetic *arithmetic;
    struct nd_array inputs[MAX_INPUTS], made;
    bool is_covered, loses_sign;
};

static enum nd_status make(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                           bool *is_made, struct nd_error *err)
{
    struct trial *t = context;
    if (t->arithmetic == NULL)
        return ND_OK;
    enum nd_status status = nd_layer_arithmetic_run(t->arithmetic, layer, t->memory, qvalues, is_made, err);
    t->is_covered = *is_made;
    t->loses_sign = nd_layer_loses_sign_of_bias(layer);
    return status;
}

static enum nd_status keep(void *context, size_t tensor, const struct nd_array *values,
                           enum nd_exact_method method, struct nd_error *err)
{
    struct trial *t = context;
    (void)tensor;
    assert_true((method == ND_EXACT_AS_MADE) == t->is_covered);
    nd_array_deinit(&t->made);
    return nd_array_copy(values, &t->made, err);
}

static size_t read_qvalues(const char *name, const char *part, unsigned char *bytes)
{
    return read_arithmetic_qvalues("", name, part, bytes, MAX_BYTES);
}

static void open_case(struct trial *t, const char *name)
{
    char path[512];
    struct nd_error err = {0};
    *t = (struct trial){0};
    snprintf(path, sizeof path, "%s/programs/%s.onnx", getenv("GOLDEN"), name);
    if (nd_model_load(path, &t->model, &err) != ND_OK ||
        nd_exact_graph_create(t->model, &t->graph, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_true(nd_model_n_inputs(t->model) <= MAX_INPUTS);
    for (size_t i = 0; i < nd_model_n_inputs(t->model); i++) {
        const struct nd_model_io *io = nd_model_input(t->model, i);
        assert_int_equal(nd_array_make(&t->inputs[i], io->dtype, &io->shape, NULL), ND_OK);
    }
}

static void close_case(struct trial *t)
{
    for (size_t i = 0; i < MAX_INPUTS; i++)
        nd_array_deinit(&t->inputs[i]);
    nd_array_deinit(&t->made);
    nd_layer_memory_destroy(&t->memory);
    nd_exact_graph_destroy(&t->graph);
    nd_model_destroy(&t->model);
}

static void run(struct trial *t, const struct nd_layer_arithmetic *arithmetic)
{
    const struct nd_exact_options options = {.struct_size = sizeof options, .make = make};
    struct nd_error err = {0};
    t->arithmetic = arithmetic;
    t->is_covered = false;
    if (nd_exact_graph_run(t->graph, t->inputs, &options, keep, t, &err) != ND_OK)
        fail_msg("%s", err.message);
}

/* Quantised values of all samples that the arithmetic does not make; *n_exact_wrong: that rounding half to even
 * does not. */
static size_t count_with(bool has_memory, const char *name, const char *part, const char *arithmetic,
                         size_t *n_exact_wrong)
{
    static unsigned char qvalues[MAX_INPUTS][MAX_BYTES], made[MAX_BYTES];
    struct trial t;
    open_case(&t, name);
    if (has_memory)
        assert_int_equal(nd_layer_memory_create(nd_model_n_tensors(t.model), &t.memory, NULL), ND_OK);
    size_t n_wrong = 0, n_samples = 0, n_inputs = nd_model_n_inputs(t.model), at = 0;
    for (size_t i = 0; i < n_inputs; i++)
        n_samples = read_qvalues(name, nd_model_input(t.model, i)->name, qvalues[i]) /
                    (t.inputs[i].n * nd_dtype_size_bytes(t.inputs[i].dtype));
    size_t n_bytes = read_qvalues(name, part, made);
    *n_exact_wrong = 0;
    for (size_t s = 0; s < n_samples; s++) {
        for (size_t i = 0; i < n_inputs; i++)
            nd_array_load(t.inputs[i].dtype,
                          qvalues[i] + s * t.inputs[i].n * nd_dtype_size_bytes(t.inputs[i].dtype),
                          t.inputs[i].n, t.inputs[i].x);
        if (has_memory)
            nd_layer_memory_forget(t.memory);
        for (int is_arithmetic = 0; is_arithmetic < 2; is_arithmetic++) {
            run(&t, is_arithmetic ? nd_layer_arithmetic_from_name(arithmetic) : NULL);
            if (t.is_covered != is_arithmetic)
                fail_msg("%s: covered %d, by an arithmetic %d", name, t.is_covered, is_arithmetic);
            double *expected = calloc(t.made.n, sizeof *expected);
            assert_non_null(expected);
            nd_array_load(t.made.dtype, made + at, t.made.n, expected);
            for (size_t i = 0; i < t.made.n; i++)
                *(is_arithmetic ? &n_wrong : n_exact_wrong) += t.made.x[i] != expected[i];
            free(expected);
        }
        at += t.made.n * nd_dtype_size_bytes(t.made.dtype);
    }
    assert_int_equal(at, n_bytes);
    close_case(&t);
    return n_wrong;
}

static size_t count_wrong(const char *name, const char *part, const char *arithmetic, size_t *n_exact_wrong)
{
    return count_with(false, name, part, arithmetic, n_exact_wrong);
}

static void expect_all(const char *const *names, size_t n, bool is_rounding_wrong)
{
    for (size_t i = 0; i < n; i++)
        for (int is_old = 0; is_old < 2; is_old++) {
            size_t n_exact, n_wrong = count_wrong(names[i], is_old ? "v69" : "v73",
                                                  is_old ? "htp-v69" : "htp-v73", &n_exact);
            if (n_wrong != 0)
                fail_msg("%s: %zu quantised values of %s differ", names[i], n_wrong, is_old ? "v69" : "v73");
            if (is_rounding_wrong && n_exact == 0)
                fail_msg("%s: rounding gives all quantised values, the case shows nothing", names[i]);
        }
}
#define EXPECT_ALL(is_rounding_wrong, ...)                                                                     \
    do {                                                                                                       \
        static const char *const names[] = {__VA_ARGS__};                                                      \
        expect_all(names, sizeof names / sizeof names[0], is_rounding_wrong);                                  \
    } while (0)

#endif
