/* uint8 operators, held against what the simulator of the HTP makes of random quantised values
 * (golden/programs/bytes-*, made by tools/oracles/make_htp_bytes_oracle.py and
 * tools/oracles/make_htp_layers_oracle.py): many operators side by side in a model. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/htp/htp.h"
#include "support/arithmetic_qvalues.h"

enum { MAX_BYTES = 1 << 17 };

struct trial {
    const struct nd_layer_arithmetic *arithmetic;
    struct nd_layer_memory *memory;
    struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_array *inputs, *made; /* [n of the model], [n_edges] */
    bool *is_covered;               /* [n_edges] */
    double doubt;                   /* of every layer, at most */
};

/* An arithmetic that is said to agree is not run of its own: it had better give the same quantised values. */
static void expect_agreement(const struct trial *t, const struct nd_exact_layer *layer,
                             const struct nd_array *qvalues)
{
    size_t n;
    const struct nd_layer_arithmetic *others = nd_layer_arithmetics(&n);
    for (size_t p = 0; p < n; p++) {
        struct nd_array made = {0};
        bool is_made = false;
        bool agrees = nd_layer_arithmetics_agree(t->arithmetic, &others[p], layer);
        if (!nd_layer_arithmetics_agree_alone(t->arithmetic, &others[p], layer))
            continue;
        assert_int_equal(
            nd_layer_arithmetic_run(&others[p], layer, agrees ? t->memory : NULL, &made, &is_made, NULL),
            ND_OK);
        assert_true(!agrees || is_made);
        assert_true(!is_made || made.n == qvalues->n);
        if (is_made)
            assert_memory_equal(made.x, qvalues->x, made.n * sizeof *made.x);
        nd_array_deinit(&made);
    }
}

static enum nd_status make(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                           bool *is_made, struct nd_error *err)
{
    struct trial *t = context;
    enum nd_status status = nd_layer_arithmetic_run(t->arithmetic, layer, t->memory, qvalues, is_made, err);
    t->is_covered[layer->tensor] = *is_made;
    if (*is_made) {
        assert_true(nd_layer_arithmetic_doubt(t->arithmetic, layer, t->memory) <= t->doubt);
        expect_agreement(t, layer, qvalues);
    }
    return status;
}

static enum nd_status keep(void *context, size_t tensor, const struct nd_array *values,
                           enum nd_exact_method method, struct nd_error *err)
{
    struct trial *t = context;
    (void)method;
    nd_array_deinit(&t->made[tensor]);
    return nd_array_copy(values, &t->made[tensor], err);
}

static size_t read_qvalues(const char *name, const char *part, unsigned char *bytes)
{
    return read_arithmetic_qvalues("bytes-", name, part, bytes, MAX_BYTES);
}

static void open_trial(struct trial *t, const char *name)
{
    static unsigned char qvalues[MAX_BYTES];
    char path[512];
    struct nd_error err = {0};
    snprintf(path, sizeof path, "%s/programs/bytes-%s.onnx", getenv("GOLDEN"), name);
    if (nd_model_load(path, &t->model, &err) != ND_OK ||
        nd_exact_graph_create(t->model, &t->graph, &err) != ND_OK)
        fail_msg("%s", err.message);
    size_t n_tensors = nd_model_n_tensors(t->model), at = 0, n = read_qvalues(name, "in", qvalues);
    t->inputs = calloc(nd_model_n_inputs(t->model), sizeof *t->inputs);
    t->made = calloc(n_tensors, sizeof *t->made);
    t->is_covered = calloc(n_tensors, sizeof *t->is_covered);
    assert_true(t->inputs != NULL && t->made != NULL && t->is_covered != NULL);
    assert_int_equal(nd_layer_memory_create(n_tensors, &t->memory, NULL), ND_OK);
    for (size_t i = 0; i < nd_model_n_inputs(t->model); i++) {
        const struct nd_model_io *io = nd_model_input(t->model, i);
        assert_int_equal(nd_array_make(&t->inputs[i], io->dtype, &io->shape, NULL), ND_OK);
        assert_true(at + t->inputs[i].n <= n);
        nd_array_load(io->dtype, qvalues + at, t->inputs[i].n, t->inputs[i].x);
        at += t->inputs[i].n;
    }
    assert_int_equal(at, n);
    const struct nd_exact_options options = {.struct_size = sizeof options, .make = make};
    if (nd_exact_graph_run(t->graph, t->inputs, &options, keep, t, &err) != ND_OK)
        fail_msg("%s", err.message);
}

static void close_trial(struct trial *t)
{
    for (size_t i = 0; i < nd_model_n_inputs(t->model); i++)
        nd_array_deinit(&t->inputs[i]);
    for (size_t e = 0; e < nd_model_n_tensors(t->model); e++)
        nd_array_deinit(&t->made[e]);
    free(t->inputs);
    free(t->made);
    free(t->is_covered);
    nd_layer_memory_destroy(&t->memory);
    nd_exact_graph_destroy(&t->graph);
    nd_model_destroy(&t->model);
}

static size_t tensor_of(const struct nd_model *model, const char *name)
{
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        if (strcmp(nd_model_tensor(model, e)->name, name) == 0)
            return e;
    fail_msg("no tensor %s", name);
    return 0;
}

/* Every operator of the group is covered, its doubt at most that, and no quantised value differs; or that share
 * of all at most, and by one. parts: what the quantised values of each chipset are called. */
static void expect_parts(const char *name, const char *const parts[2], double doubt, double share)
{
    static const char *const arithmetics[] = {"htp-v69", "htp-v73"};
    static unsigned char qvalues[MAX_BYTES];
    for (size_t p = 0; p < 2; p++) {
        struct trial t = {.arithmetic = nd_layer_arithmetic_from_name(arithmetics[p]), .doubt = doubt};
        open_trial(&t, name);
        size_t n = read_qvalues(name, parts[p], qvalues), at = 0, n_bad = 0, n_far = 0, n_all = 0;
        for (size_t i = 0; i < nd_model_n_outputs(t.model); i++) {
            size_t tensor = tensor_of(t.model, nd_model_output(t.model, i)->name), n_wrong = 0;
            const char *op_type = nd_model_tensor_operator(t.model, tensor)->op_type;
            assert_true(at + t.made[tensor].n <= n);
            for (size_t k = 0; k < t.made[tensor].n; k++) {
                n_wrong += t.made[tensor].x[k] != qvalues[at + k];
                n_far += fabs(t.made[tensor].x[k] - qvalues[at + k]) > 1;
            }
            at += t.made[tensor].n;
            if (!t.is_covered[tensor] || n_wrong > 0)
                print_message("%s %zu, %s: %s, %zu quantised values differ\n", name, i, op_type,
                              t.is_covered[tensor] ? "covered" : "not covered", n_wrong);
            n_bad += !t.is_covered[tensor] || (share == 0 && n_wrong > 0);
            n_all += n_wrong;
        }
        assert_int_equal(at, n);
        assert_int_equal(n_bad + n_far, 0);
        assert_true((double)n_all <= share * (double)n);
        close_trial(&t);
    }
}

static void expect_group(const char *name)
{
    static const char *const parts[] = {"out", "out"};
    expect_parts(name, parts, 0, 0);
}

/* Of a group on which chipsets may differ (tools/oracles/make_htp_layers_oracle.py). */
static void expect_layers(const char *name)
{
    static const char *const parts[] = {"v69", "v73"};
    expect_parts(name, parts, 0, 0);
}

static void functions_of_one_input_are_tables(void **state)
{
    (void)state;
    expect_group("tables");
}

/* Half way between two quantised values the one is taken that is even as a quantised value, with the zero
 * point. */
static void tables_add_the_zero_point_before_they_round(void **state)
{
    (void)state;
    expect_group("ties");
}

static void moves_rescale_in_their_own_ways(void **state)
{
    (void)state;
    expect_group("moves");
}

static void elements_are_bit_exact(void **state)
{
    (void)state;
    expect_group("elements");
}

static void windows_are_averaged_bit_exact(void **state)
{
    (void)state;
    expect_group("pools");
}

/* In a way of its own, and with weights beyond 8 signed bits. */
static void depthwise_products_with_strides_are_bit_exact(void **state)
{
    (void)state;
    expect_layers("strided");
}

/* Not only graph inputs: behind a Conv and an Add, where v69 and v73 differ. */
static void batch_norms_of_layers_are_bit_exact(void **state)
{
    (void)state;
    expect_layers("norms");
}

static void slopes_of_channels_are_bit_exact(void **state)
{
    (void)state;
    expect_layers("slopes");
}

/* As a Conv with steps of one place, as a strided one with steps of two, and by what is counted. */
static void windows_that_overlap_are_averaged_bit_exact(void **state)
{
    (void)state;
    expect_layers("averages");
}

static void transposed_products_with_a_row_more_are_bit_exact(void **state)
{
    (void)state;
    expect_layers("transposed");
}

/* Of small scales, too, multipliers of Sub have 15 bits behind the point. */
static void differences_of_small_scales_keep_their_shift(void **state)
{
    (void)state;
    expect_layers("differences");
}

static void multipliers_of_sums_are_rounded_as_the_provider_does(void **state)
{
    (void)state;
    expect_layers("sums");
}

/* Signed numbers of zero points from 112 to 144, of some operators that made them; the quantised values of the
 * tensor, else.
 */
static void second_operands_are_bit_exact(void **state)
{
    (void)state;
    expect_layers("operands");
}

static void instances_are_normalised_in_float16(void **state)
{
    (void)state;
    expect_layers("instances");
}

/* Negative powers of two, too. */
static void quotients_are_bit_exact(void **state)
{
    (void)state;
    expect_layers("quotients");
}

/* In the layout of a Conv, or not: what is in doubt in general is right here. */
static void products_with_a_number_are_rescaled_as_their_layout_is(void **state)
{
    static const char *const parts[] = {"v69", "v73"};
    (void)state;
    expect_parts("by_numbers", parts, 0x1p-5, 0);
}

/* Flat, or in the layout of a Conv: in the ways of other moves, with the last quantised values of a flat one
 * rounded down.
 */
static void transposes_are_rescaled_as_their_layout_is(void **state)
{
    static const char *const parts[] = {"v69", "v73"};
    (void)state;
    expect_parts("turned", parts, 0x1p-5, 0);
}

static void long_softmax_is_made_of_powers_of_two(void **state)
{
    (void)state;
    expect_layers("softmax");
}

static void short_softmax_has_the_inverse_of_div(void **state)
{
    (void)state;
    expect_layers("short_softmax");
}

/* Rows of 2, too, quantised values so fine that short rows are made as long ones, and any axis. */
static void softmax_of_128_is_rescaled_and_of_2_is_a_table(void **state)
{
    (void)state;
    expect_layers("rows");
}

/* The first layer of the group is covered, the second only by `program`, or by none. */
static void expect_second_of(const char *name, const char *arithmetic)
{
    static const char *const arithmetics[] = {"htp-v69", "htp-v73"};
    for (size_t p = 0; p < 2; p++) {
        struct trial t = {.arithmetic = nd_layer_arithmetic_from_name(arithmetics[p])};
        open_trial(&t, name);
        assert_true(t.is_covered[tensor_of(t.model, "y0")]);
        assert_int_equal(t.is_covered[tensor_of(t.model, "y1")], strcmp(arithmetics[p], arithmetic) == 0);
        close_trial(&t);
    }
}

/* v73 makes both in one operation. */
static void slope_behind_a_matrix_product_is_not_covered_on_v73(void **state)
{
    (void)state;
    expect_second_of("fused", "htp-v69");
}

/* Of few elements, of more, of planes in the layout of a Conv. */
static void means_and_sums_are_bit_exact(void **state)
{
    (void)state;
    expect_layers("means");
    expect_layers("totals");
}

static void reciprocals_are_bit_exact(void **state)
{
    (void)state;
    expect_layers("reciprocals");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_of_one_input_are_tables),
        cmocka_unit_test(tables_add_the_zero_point_before_they_round),
        cmocka_unit_test(moves_rescale_in_their_own_ways),
        cmocka_unit_test(elements_are_bit_exact),
        cmocka_unit_test(windows_are_averaged_bit_exact),
        cmocka_unit_test(depthwise_products_with_strides_are_bit_exact),
        cmocka_unit_test(batch_norms_of_layers_are_bit_exact),
        cmocka_unit_test(slopes_of_channels_are_bit_exact),
        cmocka_unit_test(windows_that_overlap_are_averaged_bit_exact),
        cmocka_unit_test(instances_are_normalised_in_float16),
        cmocka_unit_test(quotients_are_bit_exact),
        cmocka_unit_test(transposes_are_rescaled_as_their_layout_is),
        cmocka_unit_test(products_with_a_number_are_rescaled_as_their_layout_is),
        cmocka_unit_test(long_softmax_is_made_of_powers_of_two),
        cmocka_unit_test(short_softmax_has_the_inverse_of_div),
        cmocka_unit_test(softmax_of_128_is_rescaled_and_of_2_is_a_table),
        cmocka_unit_test(transposed_products_with_a_row_more_are_bit_exact),
        cmocka_unit_test(second_operands_are_bit_exact),
        cmocka_unit_test(differences_of_small_scales_keep_their_shift),
        cmocka_unit_test(multipliers_of_sums_are_rounded_as_the_provider_does),
        cmocka_unit_test(means_and_sums_are_bit_exact),
        cmocka_unit_test(reciprocals_are_bit_exact),
        cmocka_unit_test(slope_behind_a_matrix_product_is_not_covered_on_v73),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
