/* A layer of two inputs, 2 x 2 each, and whether the arithmetics cover it. */
#ifndef ND_TESTS_SUPPORT_ASKED_LAYER_H
#define ND_TESTS_SUPPORT_ASKED_LAYER_H

#include <math.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/htp/htp.h"

static char output_name[] = "y";
static char *output_names[] = {output_name};

struct asked {
    Onnx__NodeProto node;
    struct nd_array values[2];
    struct nd_quant quants[3];
    float scales[3];
    int64_t zeros[3];
    struct nd_linear_input inputs[2];
    struct nd_linear_call call;
    enum nd_exact_origin origins[2];
    struct nd_exact_layer layer;
};

static void ask(struct asked *a, const char *op_type, enum nd_dtype dtype)
{
    const struct nd_shape shape = {.rank = 2, .dims = {2, 2}};
    *a = (struct asked){.node = ONNX__NODE_PROTO__INIT, .scales = {0.5F, 0.25F, 0.5F}};
    a->node.op_type = (char *)(uintptr_t)op_type;
    a->node.output = output_names;
    a->node.n_output = 1;
    for (size_t i = 0; i < 3; i++)
        a->quants[i] =
            (struct nd_quant){.n = 1, .axis = -1, .scale = &a->scales[i], .zero_point = &a->zeros[i]};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(nd_array_make(&a->values[i], dtype, &shape, NULL), ND_OK);
        a->inputs[i] = (struct nd_linear_input){.values = &a->values[i], .quant = &a->quants[i]};
        a->origins[i] = ND_EXACT_FROM_INPUT;
    }
    a->call = (struct nd_linear_call){.node = &a->node,
                                      .opset = 21,
                                      .n_inputs = 2,
                                      .inputs = a->inputs,
                                      .low = -HUGE_VAL,
                                      .high = HUGE_VAL,
                                      .out_quant = &a->quants[2]};
    a->layer = (struct nd_exact_layer){.call = &a->call, .origins = a->origins, .dtype = dtype};
}

static bool is_covered(struct asked *a)
{
    struct nd_array qvalues = {0};
    bool covered = true;
    assert_int_equal(nd_layer_arithmetic_run(nd_layer_arithmetic_from_name("htp-v73"), &a->layer, NULL,
                                             &qvalues, &covered, NULL),
                     ND_OK);
    assert_true(covered == (qvalues.x != NULL)); /* or left as they were */
    nd_array_deinit(&qvalues);
    nd_array_deinit(&a->values[0]);
    nd_array_deinit(&a->values[1]);
    return covered;
}

#endif
