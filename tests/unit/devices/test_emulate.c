/* Emulated devices: each fault is what it says, where it says, and nothing else. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "devices/emulator/emulate.h"
#include "support/emulated_model.h"

/* Every layer follows from the quantised values that the device shows for what it reads, but the faulty ones,
 * and of those with one fault as many quantised values differ as the device counted. */
static void check_truth(struct bench *b, const char *text, size_t n_samples)
{
    struct nd_emulation emulation;
    struct nd_emulator *emulator = make_device(b, &emulation, text, 1);
    uint64_t counts[MAX_TENSORS] = {0};
    for (size_t s = 0; s < n_samples; s++) {
        struct nd_array given[MAX_TENSORS];
        feed(b, s);
        run_device(b, emulator);
        for (size_t e = 0; e < MAX_TENSORS; e++) {
            given[e] = b->qvalues[e];
            if (e >= nd_model_n_tensors(b->model) || !nd_dtype_is_integer(nd_model_tensor(b->model, e)->dtype))
                given[e].shape.rank = -1;
        }
        run_plain(b, b->again, given);
        for (size_t e = 0; e < nd_model_n_tensors(b->model); e++)
            if (given[e].shape.rank >= 0)
                counts[e] += differing(&b->again[e], &b->qvalues[e]);
    }
    size_t n;
    const struct nd_emu_truth *truth = nd_emulator_truth(emulator, &n);
    for (size_t e = 0; e < nd_model_n_tensors(b->model); e++) {
        uint64_t told = 0;
        for (size_t i = 0; i < n; i++)
            told += strcmp(truth[i].tensor, nd_model_tensor(b->model, e)->name) == 0 ? truth[i].n_changed : 0;
        if (told != counts[e])
            fail_msg("%s: %llu quantised values of '%s' are faulty; the truth says %llu", text,
                     (unsigned long long)counts[e], nd_model_tensor(b->model, e)->name,
                     (unsigned long long)told);
    }
    nd_emulator_destroy(&emulator);
    nd_emulation_deinit(&emulation);
}

static void faults_are_where_the_truth_says(void **state)
{
    (void)state;
    static const char *const cnn[] = {
        "half-even",
        "fallback=Conv",
        "round@pointwise/relu=floor",
        "round@logits=stochastic:4",
        "fuse@residual/conv",
        "fuse@stem/relu,fuse@pool",
        "stale@residual/conv",
        "zero-point@residual/conv=3:2",
        "scale@residual/conv=2:1.02",
        "saturate@residual/conv=11",
        "wrap@logits=14",
        "permute@residual/conv=5",
        "flip@residual/conv=0.01",
        "window@residual/conv=10:100",
        "zero@pool",
        "shift@residual/relu=1",
        "transpose@residual/conv",
        "clamp@residual/conv=100:150",
        "cliff@residual/conv=150",
        "stale@logits,flip@pool=0.1,scale@stem/relu=*:0.99,fuse@depthwise/relu",
    };
    static const char *const vit[] = {"half-even", "fuse@%s", "stale@%s", "transpose@%s", "round@%s=to-zero"};
    struct bench b;
    open_bench(&b, "cnn.w8a8");
    for (size_t i = 0; i < sizeof cnn / sizeof cnn[0]; i++)
        check_truth(&b, cnn[i], 2);
    close_bench(&b);
    open_bench(&b, "vit.w8a16");
    const struct nd_model_layer *middle = NULL; /* of rank 3, and read by somebody */
    for (size_t u = 0; u < nd_model_n_layers(b.model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(b.model, u);
        if (nd_model_tensor(b.model, layer->tensor)->shape.rank == 3 &&
            strstr(layer->op_types, "MatMul") != NULL)
            middle = layer;
    }
    assert_non_null(middle);
    for (size_t i = 0; i < sizeof vit / sizeof vit[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, vit[i], middle->name);
        check_truth(&b, text, 1);
    }
    close_bench(&b);
}

static void healthy_devices_are_the_reference(void **state)
{
    (void)state;
    static const char *const names[] = {"cnn.w8a8", "cnn.w8a16", "vit.w8a8"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct bench b;
        struct nd_emulation emulation;
        open_bench(&b, names[k]);
        feed(&b, k);
        struct nd_emulator *emulator = make_device(&b, &emulation, "round=half-even", 1);
        run_device(&b, emulator);
        run_plain(&b, b.plain, NULL);
        for (size_t e = 0; e < nd_model_n_tensors(b.model); e++)
            assert_int_equal(differing(&b.qvalues[e], &b.plain[e]), 0);
        size_t n;
        nd_emulator_truth(emulator, &n);
        assert_int_equal(n, 0);
        nd_emulator_destroy(&emulator);
        nd_emulation_deinit(&emulation);
        close_bench(&b);
    }
}

/* What a fault of quantised values makes of the healthy ones, written down once more. */
static double expected_qvalue(const char *word, const struct nd_array *plain, const struct nd_array *before,
                              size_t i, double zero)
{
    const int64_t *dims = plain->shape.dims;
    size_t n_channels = (size_t)dims[1], n_inner = (size_t)(dims[2] * dims[3]), n = plain->n;
    size_t channel = i / n_inner;
    double x = plain->x[i];
    if (strcmp(word, "stale") == 0)
        return before->x[i];
    if (strcmp(word, "zero") == 0)
        return zero;
    if (strcmp(word, "shift") == 0)
        return plain->x[(i + n - 3) % n];
    if (strcmp(word, "transpose") == 0)
        return plain->x[i % n_channels * n_inner + i / n_channels];
    if (strcmp(word, "clamp") == 0)
        return x < 100 ? 100 : x > 150 ? 150 : x;
    if (strcmp(word, "cliff") == 0)
        return x > 150 ? zero : x;
    if (strcmp(word, "window") == 0)
        return i >= 10 && i < 20 ? 0 : x;
    assert_string_equal(word, "zero-point");
    return channel == 3 ? fmin(x + 2, 255) : x;
}

static void faults_of_qvalues_are_as_documented(void **state)
{
    (void)state;
    static const char *const words[][2] = {
        {"stale", ""},     {"zero", ""},          {"shift", "=-3"},     {"transpose", ""},
        {"cliff", "=150"}, {"clamp", "=100:150"}, {"window", "=10:10"}, {"zero-point", "=3:2"},
    };
    struct bench b;
    open_bench(&b, "cnn.w8a8");
    size_t tensor = tensor_of(&b, "residual/conv");
    double zero = (double)nd_model_tensor(b.model, tensor)->quant.zero_point[0];
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++) {
        char text[128];
        struct nd_emulation emulation;
        snprintf(text, sizeof text, "%s@residual/conv%s", words[k][0], words[k][1]);
        struct nd_emulator *emulator = make_device(&b, &emulation, text, 1);
        struct nd_array before = {0};
        for (uint64_t s = 0; s < 2; s++) {
            feed(&b, s);
            run_plain(&b, b.plain, NULL);
            run_device(&b, emulator);
            if (s == 0)
                assert_int_equal(nd_array_copy(&b.plain[tensor], &before, NULL), ND_OK);
            for (size_t e = 0; e < tensor; e++)
                assert_int_equal(differing(&b.qvalues[e], &b.plain[e]), 0);
            for (size_t i = 0; i < b.plain[tensor].n; i++)
                assert_f64_bits(b.qvalues[tensor].x[i],
                                expected_qvalue(words[k][0], &b.plain[tensor], &before, i, zero));
        }
        nd_array_deinit(&before);
        nd_emulator_destroy(&emulator);
        nd_emulation_deinit(&emulation);
    }
    close_bench(&b);
}

static void permute_leaves_no_channel(void **state)
{
    (void)state;
    struct bench b;
    struct nd_emulation emulation;
    open_bench(&b, "cnn.w8a8");
    size_t tensor = tensor_of(&b, "residual/conv");
    feed(&b, 5);
    run_plain(&b, b.plain, NULL);
    for (uint64_t seed = 0; seed < 20; seed++) {
        char text[64];
        snprintf(text, sizeof text, "permute@residual/conv=%llu", (unsigned long long)seed);
        struct nd_emulator *emulator = make_device(&b, &emulation, text, 1);
        run_device(&b, emulator);
        const struct nd_array *from = &b.plain[tensor], *to = &b.qvalues[tensor];
        size_t n_channels = (size_t)from->shape.dims[1], n_inner = from->n / n_channels;
        bool is_taken[256] = {false};
        for (size_t c = 0; c < n_channels; c++) {
            size_t source = 0;
            while (source < n_channels &&
                   (is_taken[source] ||
                    memcmp(&to->x[c * n_inner], &from->x[source * n_inner], n_inner * sizeof *to->x) != 0))
                source++;
            assert_true(source < n_channels && source != c);
            is_taken[source] = true;
        }
        nd_emulator_destroy(&emulator);
        nd_emulation_deinit(&emulation);
    }
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_where_the_truth_says),
        cmocka_unit_test(healthy_devices_are_the_reference),
        cmocka_unit_test(faults_of_qvalues_are_as_documented),
        cmocka_unit_test(permute_leaves_no_channel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
