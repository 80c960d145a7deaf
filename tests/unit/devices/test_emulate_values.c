/* Values that emulated devices give: roundings, accumulators, seeds, runs. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "devices/emulator/emulate.h"
#include "support/emulated_model.h"

static enum nd_status collect(void *context, const struct nd_exact_values *values, struct nd_array *qvalues,
                              struct nd_error *err)
{
    (void)err;
    struct values *wanted = context;
    for (size_t i = 0; i < values->n; i++)
        qvalues->x[i] = nd_qvalue_of_ratio(&values->v[i], (double)values->quant->zero_point[0], values->dtype,
                                           ND_ROUND_HALF_EVEN);
    if (values->tensor != wanted->tensor)
        return ND_OK;
    free(wanted->v);
    wanted->n = values->n;
    wanted->v = calloc(values->n, sizeof *wanted->v);
    for (size_t i = 0; i < values->n; i++)
        wanted->v[i] = nd_ratio_value(&values->v[i]);
    return ND_OK;
}

static enum nd_status ignore(void *context, size_t tensor, const struct nd_array *values,
                             enum nd_exact_method method, struct nd_error *err)
{
    (void)context;
    (void)tensor;
    (void)values;
    (void)method;
    (void)err;
    return ND_OK;
}

static struct values values_of(struct bench *b, size_t tensor)
{
    struct values values = {.tensor = tensor};
    const struct nd_exact_options options = {.struct_size = sizeof options, .round = collect};
    assert_int_equal(nd_exact_graph_run(b->graph, &b->input, &options, ignore, &values, NULL), ND_OK);
    assert_non_null(values.v);
    return values;
}

/* In every tenth of the fractions as many are rounded up as the fractions say, within five deviations. */
static void stochastic_rounds_up_as_often_as_the_fraction_says(void **state)
{
    (void)state;
    enum { N_BINS = 10 };
    double n_up[N_BINS] = {0}, expected[N_BINS] = {0}, variance[N_BINS] = {0};
    struct bench b;
    struct nd_emulation emulation;
    open_bench(&b, "cnn.w8a8");
    size_t tensor = tensor_of(&b, "stem/relu");
    struct nd_emulator *emulator = make_device(&b, &emulation, "stochastic:11", 1);
    double zero = (double)nd_model_tensor(b.model, tensor)->quant.zero_point[0];
    for (uint64_t s = 0; s < 30; s++) {
        feed(&b, s);
        struct values values = values_of(&b, tensor);
        run_device(&b, emulator);
        for (size_t i = 0; i < values.n; i++) {
            double below = floor(values.v[i]), fraction = values.v[i] - below,
                   up = b.qvalues[tensor].x[i] - zero - below;
            if (below < 0 || below > 250)
                continue; /* clipped */
            assert_true(up == 0 || up == 1);
            assert_true(fraction > 0 || up == 0);
            size_t bin = (size_t)(fraction * N_BINS);
            n_up[bin] += up;
            expected[bin] += fraction;
            variance[bin] += fraction * (1 - fraction);
        }
        free(values.v);
    }
    for (size_t i = 0; i < N_BINS; i++) {
        assert_true(variance[i] > 10);
        if (fabs(n_up[i] - expected[i]) > 5 * sqrt(variance[i]))
            fail_msg("bin %zu: %g rounded up, %g expected, deviation %g", i, n_up[i], expected[i],
                     sqrt(variance[i]));
    }
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
    close_bench(&b);
}

static double confined(bool is_wrapped, double accumulator, int n_bits)
{
    int64_t range = (int64_t)1 << n_bits, a = (int64_t)accumulator;
    if (!is_wrapped)
        return a >= range / 2 ? (double)(range / 2 - 1) : a < -range / 2 ? (double)(-range / 2) : (double)a;
    a = ((a % range) + range) % range;
    return (double)(a >= range / 2 ? a - range : a);
}

static void accumulators_are_whole_numbers_of_so_many_bits(void **state)
{
    (void)state;
    static const char *const tensors[] = {"residual/conv", "logits"};
    struct bench b;
    open_bench(&b, "cnn.w8a8");
    feed(&b, 3);
    for (size_t k = 0; k < 4; k++) {
        const char *name = tensors[k / 2];
        bool is_wrapped = k % 2 == 1;
        int n_bits = k / 2 == 0 ? 13 : 15;
        size_t e = tensor_of(&b, name), n_steps;
        const struct nd_tensor *tensor = nd_model_tensor(b.model, e);
        struct nd_wide *steps;
        struct nd_emulation emulation;
        char text[64];
        snprintf(text, sizeof text, "%s@%s=%d", is_wrapped ? "wrap" : "saturate", name, n_bits);
        assert_int_equal(nd_exact_accumulator_steps(b.graph, e, &steps, &n_steps, NULL), ND_OK);
        struct values values = values_of(&b, e);
        run_plain(&b, b.plain, NULL);
        struct nd_emulator *emulator = make_device(&b, &emulation, text, 1);
        run_device(&b, emulator);
        size_t n_outside = 0;
        for (size_t i = 0; i < values.n; i++) {
            size_t n_inner =
                tensor->shape.rank == 4 ? (size_t)(tensor->shape.dims[2] * tensor->shape.dims[3]) : 1;
            double step = steps[i / n_inner % (size_t)tensor->shape.dims[1] % n_steps].parts[0];
            double scale = (double)tensor->quant.scale[0], accumulator = values.v[i] * scale / step;
            assert_true(fabs(accumulator - rint(accumulator)) < 0.02);
            double kept = confined(is_wrapped, rint(accumulator), n_bits), v = kept * step / scale;
            n_outside += kept != rint(accumulator);
            double qvalue = fmin(fmax(rint(v) + (double)tensor->quant.zero_point[0], 0), 255);
            if (fabs(v - floor(v) - 0.5) > 1e-9)
                assert_f64_bits(b.qvalues[e].x[i], qvalue);
            if (kept == rint(accumulator))
                assert_f64_bits(b.qvalues[e].x[i], b.plain[e].x[i]);
        }
        assert_true(n_outside > 0 && n_outside < values.n);
        free(values.v);
        free(steps);
        nd_emulator_destroy(&emulator);
        nd_emulation_deinit(&emulation);
    }
    close_bench(&b);
}

static void accumulators_of_other_layers_are_refused(void **state)
{
    (void)state;
    struct bench b;
    struct nd_wide *steps;
    size_t n;
    struct nd_error err = {0};
    open_bench(&b, "cnn.w8a8");
    assert_int_equal(nd_exact_accumulator_steps(b.graph, tensor_of(&b, "pool"), &steps, &n, &err),
                     ND_ERR_UNSUPPORTED);
    assert_int_equal(err.id, ND_E_EXACT_OPERATOR);
    assert_int_equal(nd_exact_accumulator_steps(b.graph, tensor_of(&b, "image"), &steps, &n, &err),
                     ND_ERR_UNSUPPORTED);
    close_bench(&b);
}

/* Runs n_runs of the same sample and keeps the quantised values of a tensor: made[run]. */
static void record_runs(struct bench *b, const char *text, size_t n_repeats, size_t tensor,
                        struct nd_array *made, size_t n_runs)
{
    struct nd_emulation emulation;
    struct nd_emulator *emulator = make_device(b, &emulation, text, n_repeats);
    for (size_t r = 0; r < n_runs; r++) {
        run_device(b, emulator);
        assert_int_equal(nd_array_copy(&b->qvalues[tensor], &made[r], NULL), ND_OK);
    }
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
}

static void seeds_repeat_and_runs_differ(void **state)
{
    (void)state;
    enum { N = 4 };
    struct bench b;
    struct nd_array first[N] = {{.n = 0}}, second[N] = {{.n = 0}};
    open_bench(&b, "cnn.w8a8");
    feed(&b, 9);
    size_t tensor = tensor_of(&b, "residual/conv");
    /* flips: every run is another one, the same device makes the same, another seed others */
    record_runs(&b, "flip@residual/conv=0.05", 2, tensor, first, N);
    record_runs(&b, "flip@residual/conv=0.05,seed=1", 2, tensor, second, N);
    for (size_t r = 0; r < N; r++) {
        assert_int_equal(differing(&first[r], &second[r]), 0);
        for (size_t k = 0; k < r; k++)
            assert_true(differing(&first[r], &first[k]) > 0);
    }
    record_runs(&b, "flip@residual/conv=0.05,seed=2", 2, tensor, second, N);
    assert_true(differing(&first[0], &second[0]) > 0);
    /* stochastic rounding: another one in every sample, the same in its repeats */
    record_runs(&b, "stochastic:1", 2, tensor, first, N);
    record_runs(&b, "stochastic:2", 2, tensor, second, N);
    assert_int_equal(differing(&first[0], &first[1]), 0);
    assert_true(differing(&first[1], &first[2]) > 0);
    assert_int_equal(differing(&first[2], &first[3]), 0);
    assert_true(differing(&first[0], &second[0]) > 0);
    for (size_t r = 0; r < N; r++) {
        nd_array_deinit(&first[r]);
        nd_array_deinit(&second[r]);
    }
    close_bench(&b);
}

static void stale_tensors_show_the_sample_before_in_every_repeat(void **state)
{
    (void)state;
    struct bench b;
    struct nd_emulation emulation;
    open_bench(&b, "cnn.w8a8");
    size_t tensor = tensor_of(&b, "logits");
    struct nd_array before = {0};
    struct nd_emulator *emulator = make_device(&b, &emulation, "stale@logits", 3);
    for (uint64_t s = 0; s < 3; s++) {
        feed(&b, s);
        run_plain(&b, b.plain, NULL);
        for (size_t r = 0; r < 3; r++) {
            run_device(&b, emulator);
            assert_int_equal(differing(&b.qvalues[tensor], s == 0 ? &b.plain[tensor] : &before), 0);
        }
        assert_int_equal(nd_array_copy(&b.plain[tensor], &before, NULL), ND_OK);
    }
    nd_array_deinit(&before);
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
    close_bench(&b);
}

static void programs_the_most_specific_counts(void **state)
{
    (void)state;
    struct bench b;
    struct nd_emulation emulation;
    size_t n;
    open_bench(&b, "cnn.w8a8");
    struct nd_emulator *emulator = make_device(
        &b, &emulation, "round@logits=ceil,round.Conv=floor,round.Gemm=ceil,round=to-zero,fallback@pool", 1);
    const struct nd_emu_truth *truth = nd_emulator_truth(emulator, &n);
    assert_int_equal(n, 1); /* logits has the program of its operator */
    assert_string_equal(truth[0].tensor, "pool");
    assert_string_equal(truth[0].kind, "fallback");
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
    emulator = make_device(&b, &emulation, "round@logits=ceil,round.Gemm=floor,fallback=Add", 1);
    truth = nd_emulator_truth(emulator, &n);
    assert_int_equal(n, 2);
    assert_string_equal(truth[0].tensor, "residual/relu");
    assert_string_equal(truth[0].kind, "fallback");
    assert_string_equal(truth[1].kind, "rounding");
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stochastic_rounds_up_as_often_as_the_fraction_says),
        cmocka_unit_test(accumulators_are_whole_numbers_of_so_many_bits),
        cmocka_unit_test(accumulators_of_other_layers_are_refused),
        cmocka_unit_test(seeds_repeat_and_runs_differ),
        cmocka_unit_test(stale_tensors_show_the_sample_before_in_every_repeat),
        cmocka_unit_test(programs_the_most_specific_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
