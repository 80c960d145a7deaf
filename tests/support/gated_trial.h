/* x Sigmoid(x) as one operation, held against what the simulator of the HTP makes of it. */
#ifndef ND_TESTS_SUPPORT_GATED_TRIAL_H
#define ND_TESTS_SUPPORT_GATED_TRIAL_H

#include <string.h>

#include "arithmetic/variants/layer_other.h"
#include "support/arithmetic_trial.h"

static enum nd_status make_gated(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                                 bool *is_made, struct nd_error *err)
{
    struct trial *t = context;
    if (strcmp(layer->call->node->op_type, "Mul") != 0)
        return ND_OK;
    const struct nd_layer_gate gate = {.input = 0};
    enum nd_status status = nd_layer_run_gated(layer, &gate, qvalues, is_made, err);
    t->is_covered = *is_made;
    return status;
}

/* Every quantised value of the one sample, on either generation. */
static void expect_gated(const char *name)
{
    static const char *const chipsets[] = {"v69", "v73"};
    static unsigned char x[MAX_BYTES], y[MAX_BYTES];
    const struct nd_exact_options options = {.struct_size = sizeof options, .make = make_gated};
    struct nd_error err = {0};
    struct nd_array expected = {0};
    struct trial t;
    open_case(&t, name);
    size_t n_bytes = t.inputs[0].n * nd_dtype_size_bytes(t.inputs[0].dtype);
    assert_int_equal(read_qvalues(name, "x", x), n_bytes);
    nd_array_load(t.inputs[0].dtype, x, t.inputs[0].n, t.inputs[0].x);
    if (nd_exact_graph_run(t.graph, t.inputs, &options, keep, &t, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_true(t.is_covered);
    assert_int_equal(nd_array_make(&expected, t.made.dtype, &t.made.shape, NULL), ND_OK);
    for (size_t c = 0; c < 2; c++) {
        assert_int_equal(read_qvalues(name, chipsets[c], y), n_bytes);
        nd_array_load(t.made.dtype, y, t.made.n, expected.x);
        for (size_t i = 0; i < t.made.n; i++)
            if (t.made.x[i] != expected.x[i])
                fail_msg("%s: quantised value %zu of %s", name, i, chipsets[c]);
    }
    nd_array_deinit(&expected);
    close_case(&t);
}

#endif
