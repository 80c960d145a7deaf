/* Quantisers whose ranges are bound to each other, or stand for an operator that a quantiser left out. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/random.h"
#include "model/rewrite/compose.h"
#include "npudiff/improve/align.h"
#include "npudiff/improve/certificate.h"
#include "support/scratch.h"

enum { WIDTH = 8, BRANCHES = 2 };

/* x -> Gemm a, Gemm b -> Concat -> Gemm end. */
struct recipe {
    float scales[BRANCHES], joined;
    int64_t zeros[BRANCHES], joined_zero;
    uint64_t seed;          /* of the weights */
    bool is_open;           /* the first dimension of x */
    bool hands_out_qvalues; /* of the Concat, whose scale stays then */
};

static void quantise(struct nd_compose *c, const char *tensor, float scale, int64_t zero)
{
    const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero};
    char qvalues[32], reals[32];
    snprintf(qvalues, sizeof qvalues, "%s.q", tensor);
    snprintf(reals, sizeof reals, "%s.dq", tensor);
    nd_compose_quantize(c, tensor, qvalues, &quant, ND_DTYPE_U8);
    nd_compose_dequantize(c, qvalues, reals, &quant, ND_DTYPE_U8);
}

static void add_gemm(struct nd_compose *c, const char *input, const char *output, size_t n_inner,
                     uint64_t *state)
{
    int8_t w[WIDTH * BRANCHES * WIDTH];
    float scale = (float)(0.02 + 0.03 * nd_splitmix_uniform(state));
    int64_t zero = 0;
    const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero};
    char names[2][32];
    for (size_t i = 0; i < sizeof w; i++)
        w[i] = (int8_t)((nd_splitmix_uniform(state) - 0.5) * 250);
    snprintf(names[0], sizeof names[0], "%s.wq", output);
    snprintf(names[1], sizeof names[1], "%s.w", output);
    nd_compose_constant(c, names[0], ND_DTYPE_I8, &(struct nd_shape){2, {(int64_t)n_inner, WIDTH}}, w);
    nd_compose_dequantize(c, names[0], names[1], &quant, ND_DTYPE_I8);
    nd_compose_node(c, "Gemm", (const char *[]){input, names[1], NULL}, output);
}

static void write_model(const struct recipe *recipe, const char *path)
{
    struct nd_compose *c = NULL;
    uint64_t state = 20261123 + recipe->seed;
    assert_int_equal(nd_compose_create(21, &c, NULL), ND_OK);
    nd_compose_input(c, "x", ND_DTYPE_F32, &(struct nd_shape){2, {recipe->is_open ? -1 : 1, WIDTH}});
    quantise(c, "x", 0.02F, 128);
    add_gemm(c, "x.dq", "a", WIDTH, &state);
    quantise(c, "a", recipe->scales[0], recipe->zeros[0]);
    add_gemm(c, "x.dq", "b", WIDTH, &state);
    quantise(c, "b", recipe->scales[1], recipe->zeros[1]);
    nd_compose_node(c, "Concat", (const char *[]){"a.dq", "b.dq", NULL}, "joined");
    nd_compose_attribute_i(c, "axis", 1);
    quantise(c, "joined", recipe->joined, recipe->joined_zero);
    add_gemm(c, "joined.dq", "end", BRANCHES * WIDTH, &state);
    quantise(c, "end", 0.03F, 120);
    nd_compose_output(c, "end.dq", ND_DTYPE_F32, &(struct nd_shape){2, {1, WIDTH}});
    if (recipe->hands_out_qvalues)
        nd_compose_output(c, "joined.q", ND_DTYPE_U8, &(struct nd_shape){2, {1, BRANCHES * WIDTH}});
    assert_int_equal(nd_compose_write(c, path, NULL), ND_OK);
    nd_compose_destroy(&c);
}

struct made {
    struct nd_model *model;
    struct nd_alignment *alignment;
};

static void align(const struct recipe *recipe, struct made *made)
{
    char *from = in_folder("model.onnx"), *to = in_folder("aligned.onnx");
    struct nd_model *model = NULL;
    struct nd_align_options options;
    struct nd_error err = {0};
    write_model(recipe, from);
    nd_align_options_init(&options);
    options.output = to;
    options.replace = true;
    expect_ok(nd_model_load(from, &model, &err), &err);
    expect_ok(nd_align(model, &options, &made->alignment, &err), &err);
    expect_ok(nd_model_load(to, &made->model, &err), &err);
    nd_model_destroy(&model);
    free(from);
    free(to);
}

static void release(struct made *made)
{
    nd_alignment_destroy(&made->alignment);
    nd_model_destroy(&made->model);
}

static const struct nd_quant *quant_of(const struct made *made, const char *name)
{
    for (size_t e = 0; e < nd_model_n_tensors(made->model); e++)
        if (strcmp(nd_model_tensor(made->model, e)->onnx_name, name) == 0)
            return &nd_model_tensor(made->model, e)->quant;
    fail_msg("no tensor '%s'", name);
    return NULL;
}

static const struct nd_alignment_layer *layer_of(const struct made *made, const char *op_types)
{
    for (size_t i = 0; i < made->alignment->n_layers; i++)
        if (strcmp(made->alignment->layers[i].op_types, op_types) == 0)
            return &made->alignment->layers[i];
    fail_msg("no layer '%s'", op_types);
    return NULL;
}

static bool is_one_quantiser(const struct made *made)
{
    const struct nd_quant *a = quant_of(made, "a.q"), *b = quant_of(made, "b.q"),
                          *c = quant_of(made, "joined.q");
    return a->scale[0] == b->scale[0] && b->scale[0] == c->scale[0] && a->zero_point[0] == b->zero_point[0] &&
           b->zero_point[0] == c->zero_point[0];
}

static void branches_of_a_concat_get_one_scale(void **state)
{
    (void)state;
    const struct recipe recipe = {{0.02F, 0.03F}, 0.031F, {100, 140}, 130, 0, false, false};
    struct made made = {0};
    align(&recipe, &made);
    assert_true(is_one_quantiser(&made));
    const struct nd_quant *quant = quant_of(&made, "a.q");
    double scale = (double)quant->scale[0], zero = (double)quant->zero_point[0];
    assert_true(-zero * scale <= -140 * 0.03 && (255 - zero) * scale >= 125 * 0.031); /* the widest ranges */
    assert_int_equal(layer_of(&made, "Concat")->state, ND_ALIGN_PROVEN);
    assert_int_equal(made.alignment->n_proven, made.alignment->n_layers);
    release(&made);
}

/* Whether the branch's scale is a power of two times that of the Concat, as far as float32 has it. */
static bool is_related(const struct made *made, const char *branch)
{
    double log = log2((double)quant_of(made, branch)->scale[0] / (double)quant_of(made, "joined.q")->scale[0]);
    return fabs(log - nearbyint(log)) < 1e-6;
}

/* The quantiser of such a branch clips at 0: it may be all that is left of a Relu. */
static void a_branch_that_begins_with_0_goes_on_to_do_so(void **state)
{
    (void)state;
    struct made made = {0};
    align(&(struct recipe){{0.02F, 0.03F}, 0.031F, {0, 140}, 130, 0, false, false}, &made);
    assert_int_equal(quant_of(&made, "a.q")->zero_point[0], 0);
    assert_int_equal(quant_of(&made, "b.q")->zero_point[0], 140);
    assert_int_equal(layer_of(&made, "Concat")->state, ND_ALIGN_PROVEN);
    assert_true(is_related(&made, "a.q") && is_related(&made, "b.q"));
    assert_true(quant_of(&made, "a.q")->scale[0] < 2 * 0.02F && quant_of(&made, "b.q")->scale[0] < 2 * 0.03F);
    assert_true(quant_of(&made, "joined.q")->scale[0] < 2 * 0.031F);
    release(&made);
}

static void branches_that_all_begin_with_0_get_one_scale(void **state)
{
    (void)state;
    struct made made = {0};
    align(&(struct recipe){{0.02F, 0.013F}, 0.02F, {0, 0}, 0, 0, false, false}, &made);
    assert_true(is_one_quantiser(&made));
    assert_int_equal(quant_of(&made, "a.q")->zero_point[0], 0);
    assert_int_equal(layer_of(&made, "Concat")->state, ND_ALIGN_PROVEN);
    release(&made);
}

/* What is rescaled before a Concat is rescaled in one of two ways, which agree where scales are powers of two
 * apart; what is made for it is made with its scale. */
static void a_concat_whose_scale_must_stay_is_not_proven(void **state)
{
    (void)state;
    const float six = 6.0F / 255; /* a range of 0 to 6 keeps its scale, too */
    struct made made = {0};
    align(&(struct recipe){{six, six}, six * 1.2837F, {0, 0}, 130, 0, false, true}, &made);
    assert_int_equal(layer_of(&made, "Concat")->state, ND_ALIGN_UNKNOWN);
    assert_non_null(strstr(layer_of(&made, "Concat")->reason, "ways"));
    release(&made);
    align(&(struct recipe){{six, six}, six * 0.5F, {0, 0}, 130, 0, false, true}, &made);
    assert_int_equal(layer_of(&made, "Concat")->state, ND_ALIGN_PROVEN);
    release(&made);
    /* With the zero point 0, too, the Concat has its parts made with its own scale. */
    align(&(struct recipe){{six, six}, six * 1.2837F, {0, 0}, 0, 0, false, true}, &made);
    assert_int_equal(layer_of(&made, "Concat")->state, ND_ALIGN_DIFFERS);
    assert_non_null(strstr(layer_of(&made, "Concat")->reason, "this layer's scale"));
    release(&made);
    align(&(struct recipe){{six, six}, six * 0.5F, {0, 0}, 0, 0, false, true}, &made);
    assert_int_equal(layer_of(&made, "Concat")->state, ND_ALIGN_UNKNOWN);
    release(&made);
    align(&(struct recipe){{six, 0.03F}, six * 1.2837F, {0, 140}, 130, 0, false, true}, &made);
    assert_int_equal(layer_of(&made, "Concat")->state, ND_ALIGN_DIFFERS);
    release(&made);
}

/* Two bits are the most that a branch may lose. */
static void a_branch_of_another_size_stays_about_as_fine(void **state)
{
    (void)state;
    struct made made = {0};
    align(&(struct recipe){{0.02F, 0.004F}, 0.02F, {0, 0}, 0, 0, false, false}, &made);
    assert_false(is_one_quantiser(&made));
    assert_true((double)quant_of(&made, "b.q")->scale[0] < 0.0081);
    assert_true(is_related(&made, "a.q") && is_related(&made, "b.q"));
    release(&made);
}

/* How many of some models have another scale for a branch with that range. */
static size_t count_changed(float scale)
{
    enum { SEEDS = 8 };
    size_t n = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct made made = {0};
        align(&(struct recipe){{scale, 0.03F}, 0.031F, {0, 140}, 130, seed, false, false}, &made);
        n += quant_of(&made, "a.q")->scale[0] != scale;
        assert_int_equal(made.alignment->n_planned, 3);
        release(&made);
    }
    return n;
}

/* 0 to 6: the Clip is gone, and a coarser step would let larger values pass. */
static void the_range_of_a_relu6_stays(void **state)
{
    (void)state;
    assert_int_equal(count_changed(6.0F / 255), 0);
    assert_true(count_changed(5.9F / 255) > 0); /* another range */
}

/* The aligned model has the size that was set, and the certificate gives it to the model as it came. */
static void an_open_dimension_is_in_the_certificate(void **state)
{
    (void)state;
    char *from = in_folder("model.onnx"), *to = in_folder("aligned.onnx"), *path = in_folder("cert.json");
    struct nd_model *model = NULL, *aligned = NULL;
    struct nd_align_options options;
    struct nd_alignment *alignment = NULL;
    struct nd_certificate *certificate = NULL;
    struct nd_certificate_check *check = NULL;
    struct nd_error err = {0};
    write_model(&(struct recipe){{0.02F, 0.03F}, 0.031F, {100, 140}, 130, 0, true, false}, from);
    expect_ok(nd_model_load(from, &model, &err), &err);
    expect_ok(nd_model_set_dim(model, "x:0", 3, &err), &err);
    nd_align_options_init(&options);
    options.output = to;
    options.certificate = path;
    expect_ok(nd_align(model, &options, &alignment, &err), &err);
    expect_ok(nd_certificate_read(path, &certificate, &err), &err);
    nd_model_destroy(&model);
    expect_ok(nd_model_load(from, &model, &err), &err);
    assert_int_equal(nd_certificate_verify(certificate, model, NULL, &check, &err), ND_ERR_UNSUPPORTED);
    expect_ok(nd_certificate_set_dims(certificate, model, &err), &err);
    assert_int_equal(nd_model_input(model, 0)->shape.dims[0], 3);
    expect_ok(nd_model_load(to, &aligned, &err), &err);
    expect_ok(nd_certificate_verify(certificate, aligned, NULL, &check, &err), &err);
    assert_int_equal(check->end, ND_CERTIFICATE_HOLDS);
    assert_int_equal(check->n_proven_again, alignment->n_layers);
    nd_certificate_check_destroy(&check);
    nd_certificate_destroy(&certificate);
    nd_alignment_destroy(&alignment);
    nd_model_destroy(&aligned);
    nd_model_destroy(&model);
    free(from);
    free(to);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(branches_of_a_concat_get_one_scale, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_branch_that_begins_with_0_goes_on_to_do_so, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(branches_that_all_begin_with_0_get_one_scale, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_concat_whose_scale_must_stay_is_not_proven, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_branch_of_another_size_stays_about_as_fine, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(the_range_of_a_relu6_stays, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(an_open_dimension_is_in_the_certificate, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
