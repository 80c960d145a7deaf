/* Descriptions of probes and the generated ones. Files are in test_probe_files.c. */
#include "support/main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "record/probes/loader.h"
#include "support/probe_cases.h"

static float byte_scale[] = {1.0f / 255};
static int64_t byte_zero[] = {0};
static const struct nd_quant byte_quant = {1, -1, byte_scale, byte_zero};
static const struct nd_probe_target image = {
    "image", ND_DTYPE_F32, {4, {1, 1, 8, 8}}, &byte_quant, ND_DTYPE_U8};
static const struct nd_probe_target plain = {"plain", ND_DTYPE_F32, {1, {5}}, NULL, ND_DTYPE_NONE};
static const struct nd_probe_target qvalues = {"codes", ND_DTYPE_U8, {1, {5}}, NULL, ND_DTYPE_NONE};

static struct nd_probe *make(const char *spec, const struct nd_probe_target *targets, size_t n)
{
    struct nd_probe *probe = NULL;
    struct nd_error err = {0};
    if (nd_probe_create(spec, targets, n, &probe, &err) != ND_OK)
        fail_msg("%s: %s", spec, err.message);
    return probe;
}

static struct nd_error refuse(const char *spec, const struct nd_probe_target *targets, size_t n)
{
    struct nd_probe *untouched = (struct nd_probe *)&byte_scale, *probe = untouched;
    struct nd_error err = {0};
    enum nd_status status = nd_probe_create(spec, targets, n, &probe, &err);
    if (status == ND_OK)
        fail_msg("'%s' was accepted", spec);
    assert_ptr_equal(probe, untouched);
    assert_int_equal(status, err.status);
    assert_int_equal(nd_probe_create(spec, targets, n, &probe, NULL), status);
    return err;
}

static void generator_every_bit_matches_the_oracle(void **state)
{
    (void)state;
    json_t *cases = load_cases("oracle/probe/generators.json");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *expected = json_array_get(cases, i);
        struct case_targets targets;
        read_targets(json_object_get(expected, "targets"), &targets);
        struct nd_probe *probe =
            make(json_string_value(json_object_get(expected, "spec")), targets.items, targets.n);
        check_probe(expected, &targets, probe);
        assert_string_equal(probe->source, json_string_value(json_object_get(expected, "source")));
        nd_probe_destroy(&probe);
        targets_deinit(&targets);
    }
    json_decref(cases);
}

static void oracle_check_finds_one_flipped_bit(void **state)
{
    (void)state;
    static const unsigned char data[] = {0x00, 0xff, 0x12};
    assert_true(is_expected_data("00ff12", data, 3));
    assert_false(is_expected_data("00ff13", data, 3));
    assert_false(is_expected_data("80ff12", data, 3));
    assert_false(is_expected_data("00ff", data, 3));
    char sum[7 + ND_SHA256_HEX_BYTES] = "sha256:";
    nd_sha256_bytes(data, 3, sum + 7);
    assert_true(is_expected_data(sum, data, 3));
    assert_false(is_expected_data(sum, data, 2));
}

static void uniform_element_depends_on_seed_name_sample_and_place(void **state)
{
    (void)state;
    struct nd_probe_target pair[] = {plain, plain};
    pair[1].name = "other";
    struct nd_probe *both = make("uniform:3:9", pair, 2), *one = make("uniform:2:9", pair + 1, 1);
    struct nd_probe *seeded = make("uniform:2:10", pair + 1, 1);
    size_t bytes = one->inputs[0].sample_bytes;
    /* More samples, or other inputs beside it, leave what was there. */
    assert_memory_equal(one->inputs[0].data, both->inputs[1].data, 2 * bytes);
    assert_memory_not_equal(both->inputs[0].data, both->inputs[1].data, bytes);
    assert_memory_not_equal(one->inputs[0].data, seeded->inputs[0].data, bytes);
    assert_memory_not_equal(one->inputs[0].data, (char *)one->inputs[0].data + bytes, bytes);
    nd_probe_destroy(&both);
    nd_probe_destroy(&one);
    nd_probe_destroy(&seeded);
    assert_null(one);
    nd_probe_destroy(&one);
}

static void ties_value_is_half_way_between_qvalues(void **state)
{
    (void)state;
    static const float scales[] = {1.0f / 255, 0.0123f, 0.5f, 3.1e-5f, 7e-41f, 1e30f};
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        float scale = scales[s];
        int64_t zero = 77;
        const struct nd_quant quant = {1, -1, &scale, &zero};
        const struct nd_probe_target target = {"x", ND_DTYPE_F32, {1, {255}}, &quant, ND_DTYPE_U8};
        struct nd_probe *probe = make("ties:2", &target, 1);
        const float *x = probe->inputs[0].data;
        size_t n_exact = 0, n_seen[255] = {0};
        for (size_t i = 0; i < 510; i++) {
            float quotient = x[i] / scale;
            float below = floorf(quotient);
            assert_true(fabsf(quotient - below - 0.5f) <= (scale < 1e-37f ? 0.5f : 1e-4f));
            n_exact += quotient - below == 0.5f;
            if (scale > 1e-37f) {
                int number = (int)below + 77;
                assert_in_range(number, 0, 254);
                n_seen[number]++;
            }
        }
        for (size_t k = 0; k < 255 && scale > 1e-37f; k++)
            assert_int_equal(n_seen[k], 2);
        /* A power of two hits every tie; any normal scale most of them; a subnormal one, of few bits, hardly
         * any. */
        assert_true(n_exact == 510 || scale != 0.5f);
        assert_true(n_exact > 400 || scale < 1e-37f);
        nd_probe_destroy(&probe);
    }
}

static void ties_that_float32_cannot_hit_alternate_sides(void **state)
{
    (void)state;
    float scale = 0.0123f;
    int64_t zero = 0;
    const struct nd_quant quant = {1, -1, &scale, &zero};
    const struct nd_probe_target target = {"x", ND_DTYPE_F16, {1, {255}}, &quant, ND_DTYPE_I8};
    struct nd_probe *probe = make("ties:2", &target, 1);
    const uint16_t *x = probe->inputs[0].data;
    size_t n_missed = 0;
    for (size_t i = 0; i < 255; i++) {
        float first = nd_f32_from_f16(x[i]) / scale, second = nd_f32_from_f16(x[i + 255]) / scale;
        if (x[i] == x[i + 255])
            continue;
        n_missed++;
        float tie = floorf(fminf(first, second)) + 0.5f;
        assert_true((first < tie) != (second < tie));
        int distance = abs((int)x[i] - (int)x[i + 255]);
        assert_int_equal(distance, 1); /* neighbours in float16 */
    }
    assert_true(n_missed > 200);
    nd_probe_destroy(&probe);
}

static void ties_without_quantiser_say_why(void **state)
{
    (void)state;
    struct nd_error err = refuse("ties", &qvalues, 1);
    assert_int_equal(err.id, ND_E_PROBE_SPEC);
    assert_non_null(strstr(err.message, "'codes' takes uint8 quantised values"));
    err = refuse("ties:4", &plain, 1);
    assert_int_equal(err.id, ND_E_PROBE_SPEC);
    assert_non_null(strstr(err.message, "'plain' has no quantiser"));
    assert_int_equal(refuse("ties", NULL, 0).id, ND_E_PROBE_SPEC);
    const struct nd_probe_target mixed[] = {plain, image, qvalues};
    struct nd_probe *probe = make("ties:1", mixed, 3);
    static const unsigned char zeros[20] = {0};
    assert_memory_equal(probe->inputs[0].data, zeros, 20);
    assert_memory_not_equal(probe->inputs[1].data, zeros, 20);
    assert_memory_equal(probe->inputs[2].data, zeros, 5);
    nd_probe_destroy(&probe);
}

static void spec_not_understood_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "zero",
        "zeros:1",
        "zeros:",
        "ones:x",
        "ramp:2",
        "uniform:",
        "uniform:0",
        "uniform:x",
        "uniform:-1",
        "uniform: 1",
        "uniform:1:",
        "uniform:1:x",
        "uniform:1:2:3",
        "uniform::",
        "uniform:1.5",
        "uniform:nan",
        "uniform,1",
        "ties:0",
        "ties:1:1",
        "Uniform",
        "=x.npy",
        "zeros=x.npy",
        "ties=x.npy",
        "a b=x.npy",
        "a/b=x.npy",
        "a:1=x.npy",
        "set=",
        "set=,labels=x.npy",
        "set=x.npy,labels=",
        "uniform:1073741825",
        "uniform:1:18446744073709551616",
        "uniform:00000000000000000000000000000001",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct nd_error err = refuse(bad[i], &image, 1);
        if (err.id != ND_E_PROBE_SPEC || strstr(err.message, bad[i]) == NULL)
            fail_msg("'%s' gave ND-%d: %s", bad[i], err.id, err.message);
    }
    struct nd_probe_target large = plain;
    large.shape = (struct nd_shape){2, {1 << 20, 1 << 10}};
    assert_int_equal(refuse("uniform:17", &large, 1).id, ND_E_SIZE_OVERFLOW);
    assert_int_equal(refuse("set=x.npy", NULL, 0).id, ND_E_PROBE_SPEC);
}

static void target_that_contradicts_itself_is_refused(void **state)
{
    (void)state;
    static const struct {
        float scale;
        int64_t zero_point;
        size_t n;
        int axis;
        enum nd_dtype dtype, quant_dtype;
        enum nd_error_id id;
    } rows[] = {
        {0.0f, 0, 1, -1, ND_DTYPE_F32, ND_DTYPE_U8, ND_E_MODEL_GRAPH},
        {-1.0f, 0, 1, -1, ND_DTYPE_F32, ND_DTYPE_U8, ND_E_MODEL_GRAPH},
        {NAN, 0, 1, -1, ND_DTYPE_F32, ND_DTYPE_U8, ND_E_MODEL_GRAPH},
        {INFINITY, 0, 1, -1, ND_DTYPE_F32, ND_DTYPE_U8, ND_E_MODEL_GRAPH},
        {1e38f, 0, 1, -1, ND_DTYPE_F32, ND_DTYPE_U8, ND_E_MODEL_GRAPH},
        {300.0f, 0, 1, -1, ND_DTYPE_F16, ND_DTYPE_U8, ND_E_MODEL_GRAPH},
        {1.0f, -1, 1, -1, ND_DTYPE_F32, ND_DTYPE_U8, ND_E_MODEL_GRAPH},
        {1.0f, 128, 1, -1, ND_DTYPE_F32, ND_DTYPE_I8, ND_E_MODEL_GRAPH},
        {1.0f, 0, 2, 0, ND_DTYPE_F32, ND_DTYPE_U8, ND_E_MODEL_GRAPH},
        {1.0f, 0, 2, 1, ND_DTYPE_F32, ND_DTYPE_U8, ND_E_MODEL_GRAPH},
        {1.0f, 0, 2, -1, ND_DTYPE_F32, ND_DTYPE_U8, ND_E_MODEL_GRAPH},
        {1.0f, 0, 1, -1, ND_DTYPE_F32, ND_DTYPE_I32, ND_E_MODEL_UNSUPPORTED},
        {1.0f, 0, 1, -1, ND_DTYPE_F32, ND_DTYPE_NONE, ND_E_MODEL_UNSUPPORTED},
    };
    static const char *const specs[] = {"ramp", "uniform", "ties"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float scales[] = {rows[i].scale, rows[i].scale};
        int64_t zero_points[] = {rows[i].zero_point, rows[i].zero_point};
        const struct nd_quant quant = {rows[i].n, rows[i].axis, scales, zero_points};
        const struct nd_probe_target target = {"x", rows[i].dtype, {1, {3}}, &quant, rows[i].quant_dtype};
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(refuse(specs[k], &target, 1).id, rows[i].id);
        struct nd_probe *probe = make("zeros", &target, 1); /* needs no quantiser */
        nd_probe_destroy(&probe);
    }
    struct nd_probe_target odd = plain;
    odd.shape.dims[0] = -1;
    assert_int_equal(refuse("zeros", &odd, 1).status, ND_ERR_FORMAT);
    odd = plain;
    odd.dtype = ND_DTYPE_NONE;
    assert_int_equal(refuse("ones", &odd, 1).status, ND_ERR_FORMAT);
    static const enum nd_dtype not_made[] = {ND_DTYPE_F8E4M3FN, ND_DTYPE_F8E5M2, ND_DTYPE_U4, ND_DTYPE_I4};
    for (size_t i = 0; i < sizeof not_made / sizeof not_made[0]; i++) {
        odd.dtype = not_made[i];
        assert_int_equal(refuse("zeros", &odd, 1).id, ND_E_MODEL_UNSUPPORTED);
    }
    struct nd_probe *probe = make("uniform", NULL, 0);
    assert_int_equal(probe->n_inputs, 0);
    nd_probe_destroy(&probe);
}

static void half_every_value_survives_the_round_trip(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float half = nd_f32_from_f16((uint16_t)bits), brain = nd_f32_from_bf16((uint16_t)bits);
        if (isnan(half))
            assert_true(isnan(nd_f32_from_f16(nd_f16_from_f32(half))));
        else
            assert_int_equal(nd_f16_from_f32(half), bits);
        if (isnan(brain))
            assert_true(isnan(nd_f32_from_bf16(nd_bf16_from_f32(brain))));
        else
            assert_int_equal(nd_bf16_from_f32(brain), bits);
        if ((bits & 0x7fff) >= 0x7bff)
            continue;
        /* Half-way to the next value goes to the even one, anything off it to the nearer one. */
        float next = nd_f32_from_f16((uint16_t)(bits + 1)), middle = half + (next - half) / 2;
        assert_int_equal(nd_f16_from_f32(middle), bits + (bits & 1));
        assert_int_equal(nd_f16_from_f32(nextafterf(middle, next)), bits + 1);
        assert_int_equal(nd_f16_from_f32(nextafterf(middle, half)), bits);
    }
    assert_int_equal(nd_f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(nd_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(nd_f16_from_f32(-1e-30f), 0x8000);
}

static void kinds_table_lists_what_can_be_made(void **state)
{
    (void)state;
    size_t n = 0;
    for (const struct nd_probe_kind *kind = nd_probe_kinds(); kind->name != NULL; kind++, n++) {
        assert_true(strlen(kind->summary) > 0);
        assert_memory_equal(kind->syntax, kind->name, strlen(kind->name));
        struct nd_probe *probe = make(kind->name, &image, 1);
        assert_string_equal(probe->name, kind->name);
        assert_int_equal((uintptr_t)probe->inputs[0].data % 64, 0);
        struct nd_probe *again = make(probe->source, &image, 1); /* the source is a description of the same */
        assert_int_equal(again->n_samples, probe->n_samples);
        assert_memory_equal(again->inputs[0].data, probe->inputs[0].data,
                            probe->n_samples * probe->inputs[0].sample_bytes);
        nd_probe_destroy(&probe);
        nd_probe_destroy(&again);
        struct nd_error err = refuse("unheard-of", &image, 1);
        assert_non_null(strstr(err.message, kind->name));
    }
    assert_int_equal(n, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generator_every_bit_matches_the_oracle),
        cmocka_unit_test(oracle_check_finds_one_flipped_bit),
        cmocka_unit_test(uniform_element_depends_on_seed_name_sample_and_place),
        cmocka_unit_test(ties_value_is_half_way_between_qvalues),
        cmocka_unit_test(ties_that_float32_cannot_hit_alternate_sides),
        cmocka_unit_test(ties_without_quantiser_say_why),
        cmocka_unit_test(spec_not_understood_is_refused),
        cmocka_unit_test(target_that_contradicts_itself_is_refused),
        cmocka_unit_test(half_every_value_survives_the_round_trip),
        cmocka_unit_test(kinds_table_lists_what_can_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
