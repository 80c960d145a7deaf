/* Devices with a program of whole units: it is named, what follows it is explained and what does not is found.
 * They are emulated, so that the truth is known. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/changed_model.h"
#include "support/explain_fixture.h"

#include <math.h>

#include "explain/layers/judge_layers.h"

/* ---- one device ---- */

static void explain_emulated(struct fixture *f, const char *model, const char *emulated)
{
    *f = (struct fixture){.model = load(model)};
    add_device(f, &(struct mc_device){.emulated = emulated});
    explain_ok(f);
}

static bool is_listed(char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

static void program_of_units_is_named_and_explains_them(void **state)
{
    (void)state;
    static const char *const models[] = {"cnn.w8a8", "cnn.w8a16", "vit.w8a8"};
    static const char *const programs[] = {"htp-v73", "htp-v69"};
    for (size_t k = 0; k < 6; k++) {
        struct fixture f;
        explain_emulated(&f, models[k / 2], programs[k % 2]);
        const struct nd_explained_device *device = &f.e->devices[0];
        assert_string_equal(device->program, programs[k % 2]);
        assert_int_equal(device->n_programs, 2); /* no uint8 Mul tells the other SDKs from it */
        assert_int_equal(device->n_faulty, 0);
        assert_int_equal(f.e->verdict, ND_VERDICT_DIFFERS);
        for (size_t s = 0; s < f.e->n_steps; s++) {
            const struct nd_explained_unit *unit = &device->units[s];
            if (!f.e->steps[s].is_unit || !unit->is_covered)
                continue;
            assert_string_equal(unit->program, device->program);
            assert_int_equal(unit->n_unexplained, 0);
            assert_true(unit->explained_fraction == 1);
            assert_true(is_listed(unit->programs, unit->n_programs, device->program));
        }
        close_fixture(&f);
    }
}

static void units_without_a_program_are_not_known_and_not_faulty(void **state)
{
    (void)state;
    struct fixture f;
    explain_emulated(&f, "../programs/unknown-softmax", "htp-v73,round.Softmax=floor");
    const struct nd_explained_unit *softmax = unit_of(&f, "softmax");
    assert_false(softmax->is_covered || softmax->is_faulty);
    assert_null(softmax->program);
    assert_true(softmax->local.n_differing > 0);
    assert_int_equal(f.e->devices[0].n_faulty, 0);
    close_fixture(&f);
}

/* The one layer that does not follow known arithmetic, whether that is proof of a fault or not. */
static size_t find_odd(const struct nd_explained_device *device)
{
    if (device->n_faulty + device->n_unexplained != 1)
        return SIZE_MAX;
    return device->n_faulty > 0 ? device->faulty[0] : device->unexplained[0];
}

/* kind NULL: it is not known; a kind must be proved, which a few values that are off by one are not. */
static void assert_found(const char *model, const char *emulated, const char *edge, const char *kind)
{
    struct fixture f;
    explain_emulated(&f, model, emulated);
    const struct nd_explained_device *device = &f.e->devices[0];
    size_t odd = find_odd(device);
    if (odd == SIZE_MAX || strcmp(f.e->steps[odd].name, edge) != 0)
        fail_msg("%s on %s: %zu faulty, %zu unexplained, the first is %s", emulated, model, device->n_faulty,
                 device->n_unexplained, odd != SIZE_MAX ? f.e->steps[odd].name : "none");
    const struct nd_explained_unit *unit = &device->units[odd];
    assert_true(unit->n_unexplained > 0);
    assert_non_null(unit->evidence);
    assert_int_equal(f.e->health, device->n_faulty > 0 ? ND_HEALTH_FAULTY : ND_HEALTH_UNEXPLAINED);
    if (kind != NULL && unit->state != ND_LAYER_FAULTY)
        fail_msg("%s on %s: '%s' is not called faulty", emulated, model, edge);
    if (kind != NULL && (unit->fault.kind == NULL || strcmp(unit->fault.kind, kind) != 0))
        fail_msg("%s on %s is called %s", emulated, model,
                 unit->fault.kind != NULL ? unit->fault.kind : "nothing");
    close_fixture(&f);
}

static void fault_over_a_program_of_units_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *model, *emulated, *edge, *kind;
    } faults[] = {
        {"cnn.w8a8", "htp-v73,stale@residual/conv", "residual/conv", "stale"},
        {"cnn.w8a8", "htp-v69,fallback@residual/conv", "residual/conv", "fallback"},
        {"cnn.w8a8", "htp-v73,zero@average", "average", "all-zero"},
        {"cnn.w8a8", "htp-v73,scale@residual/conv=*:1.02", "residual/conv", "scale"},
        {"cnn.w8a8", "htp-v73,window@pool=7:1", "pool", "unwritten-window"},
        {"cnn.w8a8", "htp-v73,round@stem/relu=htp-v69", "stem/relu", NULL},
        {"cnn.w8a16", "htp-v73,zero-point@depthwise/relu=2:300", "depthwise/relu", "channel-zero-point"},
        {"cnn.w8a16", "htp-v73,zero-point@depthwise/relu=2:1", "depthwise/relu",
         NULL}, /* a bias rounded otherwise */
        {"cnn.w8a16", "htp-v69,permute@pointwise/relu=3", "pointwise/relu", "channel-permutation"},
        {"vit.w8a8", "htp-v73,stale@block1/attn/k/bias", "block1/attn/k/bias", "stale"},
        {"vit.w8a8", "htp-v73,stale@block0/norm2", "block0/norm2", "stale"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        assert_found(faults[i].model, faults[i].emulated, faults[i].edge, faults[i].kind);
}

/* 100 values, of which the two arithmetics differ in a few: all of them are exact, and that proves no fallback.
 */
static void exact_values_of_a_small_layer_are_no_fallback(void **state)
{
    (void)state;
    struct fixture f;
    explain_emulated(&f, "cnn.w8a8", "htp-v73,fallback=Gemm");
    assert_int_equal(f.e->devices[0].n_faulty, 0);
    assert_int_equal(f.e->health, ND_HEALTH_HEALTHY);
    const struct nd_explained_unit *unit = unit_of(&f, "logits");
    assert_true(unit->n_unexplained > 0 && unit->local.n_differing == 0);
    assert_int_equal(unit->state, ND_LAYER_FOLLOWS);
    assert_string_equal(unit->why_follows, "exact");
    close_fixture(&f);
}

static void rounding_once_is_no_program_of_units(void **state)
{
    (void)state;
    static const char *const devices[] = {"half-even", "double:8", "floor", "double:8,fallback@residual/conv"};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        struct fixture f;
        explain_emulated(&f, "cnn.w8a8", devices[i]);
        assert_int_equal(f.e->devices[0].n_programs, 0);
        assert_int_equal(f.e->devices[0].n_faulty, i == 3);
        close_fixture(&f);
    }
}

/* Every tenth value of a Conv is off by `moved` LSB, up and down in turn, as no fault with a name makes it. */
static double moved;

static void move_some(const struct mc_run *run, const struct nd_edge *edge, struct nd_array *codes)
{
    for (size_t i = run->sample % 10; i < codes->n && strcmp(edge->name, "residual/conv") == 0; i += 10)
        codes->x[i] += (i / 10 % 2 == 0) == (codes->x[i] >= moved) && codes->x[i] <= 255 - moved ? moved
                       : codes->x[i] >= moved                                                    ? -moved
                                                                                                 : 0;
}

static void product_by_constants_that_is_far_off_is_faulty(void **state)
{
    (void)state;
    static const struct {
        double moved;
        enum nd_layer_state state;
    } rows[] = {{5, ND_LAYER_FAULTY}, {4, ND_LAYER_UNEXPLAINED}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture f = {.model = load("cnn.w8a8")};
        moved = rows[i].moved;
        add_device(&f, &(struct mc_device){
                           .emulated = "htp-v73",
                           .import = "npu",
                           .arch = "v75",
                           .sdk = "2.51.0",
                           .change = move_some,
                           .missing_edge = "residual/relu"}); /* which would show that it read other values */
        explain_ok(&f);
        const struct nd_explained_unit *unit = unit_of(&f, "residual/conv");
        assert_int_equal(unit->state, rows[i].state);
        assert_null(unit->fault.kind);
        if (unit->state == ND_LAYER_FAULTY) {
            assert_int_equal(unit->certainty, ND_CERTAINTY_LIKELY);
            assert_non_null(strstr(unit->evidence, "are off by more than 4 LSB"));
        }
        close_fixture(&f);
    }
}

static void program_that_costs_much_is_told(void **state)
{
    (void)state;
    struct fixture f;
    explain_emulated(&f, "cnn.w8a16", "htp-v73");
    const struct nd_explained_device *device = &f.e->devices[0];
    assert_true(device->n_losses > 0);
    for (size_t i = 0; i < device->n_losses; i++)
        assert_true(device->units[device->losses[i]].local.max >= 10 &&
                    !device->units[device->losses[i]].is_faulty);
    close_fixture(&f);
}

/* ---- where it ran ---- */

static void program_says_which_unit_an_npu_computed(void **state)
{
    (void)state;
    struct fixture f;
    explain_emulated(&f, "cnn.w8a8", "htp-v73,fallback@residual/conv");
    const struct nd_explained_execution *fallen = &unit_of(&f, "residual/conv")->execution;
    const struct nd_explained_execution *other = &unit_of(&f, "depthwise/relu")->execution;
    assert_int_equal(fallen->verdict, ND_EXECUTION_NOT_NPU);
    assert_int_equal(other->verdict, ND_EXECUTION_NPU);
    assert_string_equal(fallen->evidence[0].kind, "program");
    assert_string_equal(other->evidence[0].kind, "program");
    close_fixture(&f);
}

static void set_scale(Onnx__ModelProto *proto, const char *name, float scale)
{
    Onnx__TensorProto *tensor = tensor_of(proto, name);
    if (tensor->raw_data.len > 0)
        memcpy(tensor->raw_data.data, &scale, sizeof scale);
    else
        tensor->float_data[0] = scale;
}

/* A Conv whose sums are odd, and whose multiplier is 2^-10: nothing is rounded twice, and there are no ties. */
static void make_exact(Onnx__ModelProto *proto)
{
    set_scale(proto, "pointwise/relu_scale", 0x1p-5F); /* of 'pool', too */
    set_scale(proto, "residual.weight_scale", 0x1p-8F);
    set_scale(proto, "residual.bias_quantized_scale", 0x1p-13F);
    set_scale(proto, "residual/conv_scale", 0x1p-3F);
    Onnx__TensorProto *weights = tensor_of(proto, "residual.weight_quantized"),
                      *bias = tensor_of(proto, "residual.bias_quantized");
    for (size_t i = 0; i < weights->raw_data.len;
         i++) { /* less the zero point of 130: even, of 8 signed bits */
        uint8_t *code = &weights->raw_data.data[i];
        *code = *code < 4 ? 4 : *code & 0xfe;
    }
    for (size_t i = 0; i < bias->raw_data.len; i += 4) /* of 32 bits: odd */
        bias->raw_data.data[i] |= 1;
}

/* Its codes are those of floats on the NPU, too. */
static void unit_of_which_the_program_gives_exact_codes_does_not_tell(void **state)
{
    (void)state;
    struct fixture f = {.model = load_changed("cnn.w8a8", make_exact)};
    add_device(&f, &(struct mc_device){.emulated = "htp-v73"});
    explain_ok(&f);
    const struct nd_explained_unit *unit = unit_of(&f, "residual/conv");
    assert_int_equal(unit->local.n_differing, 0);
    assert_true(unit->execution.n_deciding > 1000);
    assert_int_equal(unit->execution.verdict, ND_EXECUTION_UNKNOWN);
    assert_int_equal(unit_of(&f, "depthwise/relu")->execution.verdict, ND_EXECUTION_NPU);
    close_fixture(&f);
}

/* ---- two devices ---- */

static void two_programs_say_why_devices_differ(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.emulated = "htp-v69"});
    add_device(&f, &(struct mc_device){.emulated = "htp-v73"});
    add_device(&f, &(struct mc_device){.emulated = "htp-v73"});
    explain_ok(&f);
    assert_int_equal(f.e->n_differences, 1); /* the third is the second */
    const struct nd_explained_difference *difference = &f.e->differences[0];
    assert_int_equal(difference->devices[0], 0);
    assert_int_equal(difference->devices[1], 1);
    assert_string_equal(difference->programs[0], "htp-v69");
    assert_string_equal(difference->programs[1], "htp-v73");
    assert_true(difference->n_differing > 0 && difference->n_differing < difference->n_codes);
    bool has_bits = false;
    for (size_t i = 0; i < difference->n_because; i++)
        has_bits |= strcmp(difference->because[i].name, "multiplier-bits") == 0 &&
                    strstr(difference->because[i].texts[0], "10 bits") != NULL &&
                    strstr(difference->because[i].texts[1], "11 bits") != NULL;
    assert_true(has_bits);
    /* The first unit reads the same on both: there it is every code that the devices have otherwise. */
    const struct nd_explained_unit *a = &f.e->devices[0].units[find_step(&f, "stem/relu")],
                                   *b = &f.e->devices[1].units[find_step(&f, "stem/relu")];
    assert_true(a->local.n_differing != b->local.n_differing);
    close_fixture(&f);
}

/* ---- habits ---- */

enum { N_UNITS = 4 };

struct kind {
    struct nd_code_tally tally[N_UNITS];
    struct nd_unit_tally units[N_UNITS];
    struct nd_habit habits[N_UNITS];
    bool is_possible[ND_MAX_UNIT_PROGRAMS];
    size_t program;
};

/* Units of 1000 codes, 100 of which no rounding gives; wrong[i] of them are not those of any program of units.
 */
static void find(struct kind *k, const char *const *op_types, const uint64_t *wrong, double doubt)
{
    *k = (struct kind){0};
    for (size_t i = 0; i < N_UNITS; i++) {
        k->tally[i].n_open = 1000;
        for (size_t p = 0; p < ND_MAX_PROGRAMS; p++)
            k->tally[i].wrong[p] = k->tally[i].far[p] = 100;
        for (size_t p = 0; p < ND_MAX_UNIT_PROGRAMS; p++) {
            k->units[i].n[p] = 1000;
            k->units[i].wrong[p] = wrong[i];
            k->units[i].max[p] = wrong[i] > 0 ? 1 : 0;
            k->units[i].doubt[p] = doubt;
        }
        k->habits[i] = (struct nd_habit){.op_types = op_types[i],
                                         .is_counted = true,
                                         .tally = &k->tally[i],
                                         .units = &k->units[i],
                                         .n_codes = 1000,
                                         .program = SIZE_MAX,
                                         .follows = true};
    }
    bool is_refuted;
    nd_find_unit_habits(k->habits, N_UNITS, ND_EXPECT_ANY, &k->program, k->is_possible, &is_refuted);
}

static void unit_that_is_off_is_faulty_beside_its_kind(void **state)
{
    (void)state;
    static const char *const op_types[N_UNITS] = {"Conv", "Conv", "Conv", "Add"};
    struct kind k;
    find(&k, op_types, (const uint64_t[]){0, 1, 0, 0}, 0);
    assert_int_equal(k.program, 0);
    for (size_t i = 0; i < N_UNITS; i++)
        assert_int_equal(k.habits[i].standing, i == 1 ? ND_STANDING_FAULTY : ND_STANDING_FOLLOWS);
}

static void kind_that_is_off_is_not_known(void **state)
{
    (void)state;
    static const char *const op_types[N_UNITS] = {"Conv", "Conv", "Add", "Add"};
    struct kind k;
    find(&k, op_types, (const uint64_t[]){0, 0, 7, 9}, 0);
    assert_int_equal(k.habits[0].standing, ND_STANDING_FOLLOWS);
    assert_int_equal(k.habits[2].standing, ND_STANDING_UNKNOWN);
    assert_int_equal(k.habits[3].standing, ND_STANDING_UNKNOWN);
}

static void doubt_is_allowed_and_no_more(void **state)
{
    (void)state;
    static const char *const op_types[N_UNITS] = {"A", "B", "C", "D"};
    struct kind k;
    find(&k, op_types, (const uint64_t[]){0, 15, 16, 0}, 0.015);
    assert_int_equal(k.habits[1].standing, ND_STANDING_FOLLOWS);
    assert_int_equal(k.habits[2].standing, ND_STANDING_FAULTY);
    find(&k, op_types, (const uint64_t[]){0, 1, 0, 0}, 1);
    assert_int_equal(k.habits[1].standing, ND_STANDING_UNKNOWN);
}

/* ---- what tells programs apart ---- */

static void sdks_differ_in_mul_and_nothing_else(void **state)
{
    (void)state;
    struct nd_unit_difference out[ND_UNIT_MOST_DIFFERENCES];
    const struct nd_unit_program *a = nd_unit_program_from_name("htp-v73"),
                                 *b = nd_unit_program_from_name("htp-v73:2.48");
    assert_int_equal(nd_unit_program_differences(a, b, "Mul", ND_DTYPE_U8, out), 1);
    assert_string_equal(out[0].name, "product-rounding");
    assert_string_not_equal(out[0].a, out[0].b);
    assert_int_equal(nd_unit_program_differences(a, b, "Conv+Relu", ND_DTYPE_U8, out), 0);
    b = nd_unit_program_from_name("htp-v69");
    assert_int_equal(nd_unit_program_differences(a, b, "Mul", ND_DTYPE_U8, out), 0);
    assert_true(nd_unit_program_differences(a, b, "Conv+Relu", ND_DTYPE_U8, out) > 1);
    assert_true(nd_unit_program_differences(a, b, "Gemm", ND_DTYPE_U16, out) > 1);
    assert_int_equal(nd_unit_program_differences(a, b, "Softmax", ND_DTYPE_U8, out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(program_of_units_is_named_and_explains_them),
        cmocka_unit_test(units_without_a_program_are_not_known_and_not_faulty),
        cmocka_unit_test(fault_over_a_program_of_units_is_found),
        cmocka_unit_test(exact_values_of_a_small_layer_are_no_fallback),
        cmocka_unit_test(rounding_once_is_no_program_of_units),
        cmocka_unit_test(product_by_constants_that_is_far_off_is_faulty),
        cmocka_unit_test(program_that_costs_much_is_told),
        cmocka_unit_test(program_says_which_unit_an_npu_computed),
        cmocka_unit_test(unit_of_which_the_program_gives_exact_codes_does_not_tell),
        cmocka_unit_test(two_programs_say_why_devices_differ),
        cmocka_unit_test(unit_that_is_off_is_faulty_beside_its_kind),
        cmocka_unit_test(kind_that_is_off_is_not_known),
        cmocka_unit_test(doubt_is_allowed_and_no_more),
        cmocka_unit_test(sdks_differ_in_mul_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
