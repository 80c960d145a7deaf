/* What describes a run of qnn-net-run, and floats held against quantised values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/main.h"

#include "support/scratch.h"

#include "core/files/file.h"
#include "record/import/match_tensor.h"
#include "record/probes/loader.h"
#include "record/probes/npz.h"
#include "record/qnn/net_run.h"

static struct nd_error err;

static char *put(const char *name, const char *text)
{
    char *path = in_folder(name);
    expect_ok(nd_file_put(path, text, strlen(text), &err), &err);
    return path;
}

/* ---- floats and quantised values ---- */

enum { N_QVALUES = 256 };

struct grid {
    float scale;
    int64_t zero_point;
    struct nd_quant quant;
    struct nd_qnr_tensor tensor;
    uint8_t qvalues[N_QVALUES];
    float floats[N_QVALUES];
};

/* All quantised values of a byte, and their reals as the tool makes them. */
static void grid_init(struct grid *grid, float scale, int64_t zero_point)
{
    *grid = (struct grid){.scale = scale, .zero_point = zero_point};
    grid->quant = (struct nd_quant){1, -1, &grid->scale, &grid->zero_point};
    grid->tensor = (struct nd_qnr_tensor){
        .file = "x", .dtype = ND_DTYPE_U8, .shape = {1, {N_QVALUES}}, .quant = &grid->quant};
    for (int i = 0; i < N_QVALUES; i++) {
        grid->qvalues[i] = (uint8_t)i;
        grid->floats[i] = (float)(((double)i - (double)zero_point) * (double)scale);
    }
}

static bool read_back(const struct grid *grid, enum nd_dtype qvalues, size_t n, void *out)
{
    const struct nd_qvalue_grid target = {qvalues, &grid->quant, grid->tensor.shape};
    return nd_grid_qvalues(&target, ND_DTYPE_F32, grid->floats, n, out, NULL);
}

static const float scales[] = {1, 0.0235294122248888f, 3e-5f, 1e-30f, 7e20f};

static void reals_of_all_qvalues_are_read_back(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++)
        for (int64_t zero = 0; zero < N_QVALUES; zero += 51) {
            struct grid grid;
            uint8_t found[N_QVALUES] = {0};
            grid_init(&grid, scales[s], zero);
            assert_true(read_back(&grid, ND_DTYPE_U8, N_QVALUES, found));
            assert_memory_equal(found, grid.qvalues, N_QVALUES);
        }
}

static void what_no_qvalue_gives_is_not_read_back(void **state)
{
    (void)state;
    const float strange[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.5f, 256.0f, -1.0f, 1.000001f};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++)
        for (size_t at = 0; at < N_QVALUES; at += 85) {
            struct grid grid;
            grid_init(&grid, 1, 0);
            grid.floats[at] = strange[i];
            assert_false(read_back(&grid, ND_DTYPE_U8, N_QVALUES, NULL));
        }
    struct grid grid;
    grid_init(&grid, 1, 0);
    assert_false(read_back(&grid, ND_DTYPE_U4, N_QVALUES, NULL));
    assert_true(read_back(&grid, ND_DTYPE_U4, 16, NULL));
    assert_false(read_back(&grid, ND_DTYPE_I32, 1, NULL));
}

/* Half precision has 11 bits: many of its values prove a grid of 8 bits, few do not, and 16 bits never. */
static void half_precision_is_read_back_where_chance_is_excluded(void **state)
{
    (void)state;
    struct grid grid;
    uint16_t halves[N_QVALUES];
    uint8_t found[N_QVALUES] = {0};
    grid_init(&grid, 0.02f, 128);
    for (int i = 0; i < N_QVALUES; i++)
        halves[i] = nd_f16_from_f32(grid.floats[i]);
    const struct nd_qvalue_grid target = {ND_DTYPE_U8, &grid.quant, grid.tensor.shape};
    assert_true(nd_grid_qvalues(&target, ND_DTYPE_F16, halves, N_QVALUES, found, NULL));
    assert_memory_equal(found, grid.qvalues, N_QVALUES);
    assert_false(nd_grid_qvalues(&target, ND_DTYPE_F16, halves, 2, found, NULL));
    halves[77] ^= 1;
    struct nd_grid_miss miss;
    assert_false(nd_grid_qvalues(&target, ND_DTYPE_F16, halves, N_QVALUES, found, &miss));
    assert_int_equal(miss.n, 1);
    assert_int_equal(miss.first, 77);
}

static void one_wrong_float_is_found_at_its_place(void **state)
{
    (void)state;
    char what[] = "'x.raw'";
    const struct nd_source source = {.path = what, .what = what};
    for (size_t at = 0; at < N_QVALUES; at += 17) {
        struct grid grid;
        char expected[64];
        grid_init(&grid, 0.0235294122248888f, 114);
        expect_ok(nd_qnr_compare_floats(&grid.tensor, &source, grid.floats, grid.qvalues, N_QVALUES, &err),
                  &err);
        grid.floats[at] += grid.scale;
        assert_int_equal(
            nd_qnr_compare_floats(&grid.tensor, &source, grid.floats, grid.qvalues, N_QVALUES, &err),
            ND_ERR_FORMAT);
        assert_int_equal(err.id, ND_E_QNN_VALUES);
        snprintf(expected, sizeof expected, "element %zu of 'x'", at);
        assert_non_null(strstr(err.message, expected));
        grid.floats[at] = NAN;
        assert_int_equal(
            nd_qnr_compare_floats(&grid.tensor, &source, grid.floats, grid.qvalues, N_QVALUES, &err),
            ND_ERR_FORMAT);
    }
}

/* The sums of indices and the like are 64 bits wide, with a sign or without. */
static void qvalues_of_64_bits_are_compared_with_their_floats(void **state)
{
    (void)state;
    enum { N = 4 };
    const int64_t with_sign[N] = {-3, 0, 5, INT64_C(1) << 40};
    const uint64_t without[N] = {UINT64_C(1) << 63, 0, 5, UINT64_C(1) << 40};
    char what[] = "'x.raw'";
    const struct nd_source source = {.path = what, .what = what};
    struct grid grid;
    grid_init(&grid, 0.5f, 2);
    grid.tensor.shape = (struct nd_shape){1, {N}};
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const void *qvalues = is_signed ? (const void *)with_sign : without;
        grid.tensor.dtype = is_signed ? ND_DTYPE_I64 : ND_DTYPE_U64;
        for (size_t i = 0; i < N; i++)
            grid.floats[i] = (float)(((is_signed ? (double)with_sign[i] : (double)without[i]) - 2) * 0.5);
        expect_ok(nd_qnr_compare_floats(&grid.tensor, &source, grid.floats, qvalues, N, &err), &err);
        grid.floats[2] += 0.5f;
        assert_int_equal(nd_qnr_compare_floats(&grid.tensor, &source, grid.floats, qvalues, N, &err),
                         ND_ERR_FORMAT);
        assert_non_null(strstr(err.message, "element 2 of 'x'"));
        assert_non_null(strstr(err.message, "quantised value 5,"));
    }
}

/* ---- <name>_native.raw.json ---- */

static void a_sidecar_is_read_in_every_spelling(void **state)
{
    (void)state;
    static const char *const spellings[] = {
        "{\"scale\": 0.5, \"offset\": -3}",
        "{\"scaleOffset\": {\"scale\": 0.5, \"offset\": -3}, \"other\": []}",
        "{\"scaleOffsetEncoding\": {\"scale\": 0.5, \"offset\": -3}}",
        "{\"quantizeParams\": {\"scaleOffset\": {\"scale\": 0.5, \"offset\": -3}}, \"dimensions\": [2, 3]}",
        ("{\"dataType\": \"QNN_DATATYPE_UFIXED_POINT_8\", \"quantizeParams\": {\"scaleOffsetEncoding\": "
         "{\"scale\": 0.5, \"offset\": -3}}}"),
        "{\"dataType\": 1032, \"scale\": 0.5, \"offset\": -3}",
    };
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        struct nd_qnr_stated stated = {0};
        char *path = put("x_native.raw.json", spellings[i]);
        expect_ok(nd_qnr_read_sidecar(path, "x", ND_DTYPE_U8, &stated, &err), &err);
        assert_int_equal(stated.quant.n, 1);
        assert_int_equal(stated.quant.zero_point[0], 3);
        assert_true(stated.quant.scale[0] == 0.5f);
        assert_int_equal(stated.shape.rank, i == 3 ? 2 : -1);
        nd_qnr_stated_deinit(&stated);
        free(path);
    }
}

/* ---- contexts ---- */

/* Two sources of one tensor: scales of as many channels along different dimensions are a contradiction. */
static void scales_along_different_dimensions_contradict(void **state)
{
    (void)state;
    float scale[4] = {0.5f, 0.25f, 0.125f, 1}, other_scale[4] = {0.5f, 0.25f, 0.125f, 2};
    int64_t zero_point[4] = {0, 1, 2, 3};
    struct nd_qnr_stated a = {.file = (char *)(uintptr_t) "t", .shape = {.rank = 2, .dims = {4, 4}}};
    a.quant = (struct nd_quant){.n = 4, .axis = 0, .scale = scale, .zero_point = zero_point};
    struct nd_qnr_stated b = a;
    assert_int_equal(nd_qnr_agree(&a, "a.json", &b, "b.json", &err), ND_OK);
    b.quant.axis = 1;
    assert_int_equal(nd_qnr_agree(&a, "a.json", &b, "b.json", &err), ND_ERR_FORMAT);
    assert_int_equal(err.id, ND_E_QNN_STATED);
    assert_non_null(strstr(err.message, "along dimension 0 in 'a.json', but along dimension 1 in 'b.json'"));
    b.quant.axis = 0;
    b.quant.scale = other_scale; /* the message names the channel that differs */
    assert_int_equal(nd_qnr_agree(&a, "a.json", &b, "b.json", &err), ND_ERR_FORMAT);
    assert_non_null(
        strstr(err.message, "scale 1, zero point 3 in 'a.json', but scale 2, zero point 3 in 'b.json'"));
    assert_non_null(strstr(err.message, "channel 3"));
    b.quant = (struct nd_quant){.n = 1, .axis = -1, .scale = scale, .zero_point = zero_point};
    assert_int_equal(nd_qnr_agree(&a, "a.json", &b, "b.json", &err), ND_ERR_FORMAT);
    assert_non_null(strstr(err.message, "4 scales in 'a.json', but 1 in 'b.json'"));
    /* Of one scale the axis has no meaning. */
    a.quant = (struct nd_quant){.n = 1, .axis = 0, .scale = scale, .zero_point = zero_point};
    assert_int_equal(nd_qnr_agree(&a, "a.json", &b, "b.json", &err), ND_OK);
}

static void types_of_a_context_are_names_or_numbers(void **state)
{
    (void)state;
    char *path = put(
        "c.json", "{\"info\": {\"buildId\": \"v2.51.0\", \"graphs\": [{\"info\": {\"graphName\": \"g\", "
                  "\"graphInputs\": [], \"graphOutputs\": ["
                  "{\"info\": {\"name\": \"a\", \"dataType\": 534, \"dimensions\": []}},"
                  "{\"info\": {\"name\": \"b\", \"dataType\": \"QNN_DATATYPE_BOOL_8\", \"dimensions\": [0, 2]}}"
                  "]}}]}}");
    struct nd_qnr_source source = {0};
    expect_ok(nd_qnr_read_context(path, NULL, &source, &err), &err);
    assert_int_equal(source.outputs.n, 2);
    assert_string_equal(source.build_id, "v2.51.0");
    assert_int_equal(nd_qnr_find(&source.outputs, "a")->dtype, ND_DTYPE_F16);
    assert_int_equal(nd_qnr_find(&source.outputs, "a")->shape.rank, 0);
    assert_int_equal(nd_qnr_find(&source.outputs, "b")->dtype, ND_DTYPE_BOOL);
    assert_null(nd_qnr_find(&source.outputs, "c"));
    nd_qnr_source_deinit(&source);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reals_of_all_qvalues_are_read_back),
        cmocka_unit_test(what_no_qvalue_gives_is_not_read_back),
        cmocka_unit_test(half_precision_is_read_back_where_chance_is_excluded),
        cmocka_unit_test(one_wrong_float_is_found_at_its_place),
        cmocka_unit_test(qvalues_of_64_bits_are_compared_with_their_floats),
        cmocka_unit_test(scales_along_different_dimensions_contradict),
        cmocka_unit_test_setup_teardown(a_sidecar_is_read_in_every_spelling, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(types_of_a_context_are_names_or_numbers, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
