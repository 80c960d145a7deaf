/* What a comparison says about many devices: classes, who is alone, where classes part; and pairs of other
 * types, channels, repeats and exchanged axes in whole captures. */
#include "support/main.h"

#include "support/fleet_compare.h"

/* groups[c] of each capture at a tensor: equal numbers are made equal there. */
static void set_groups(struct fleet *f, size_t tensor, const int *groups)
{
    for (size_t c = 0; c < f->n; c++)
        f->captures[c]->outputs[0][tensor][2] = (unsigned char)(16 + groups[c]);
}

static size_t odd_of(struct fleet *f, const int *groups, size_t *overall)
{
    set_groups(f, FLEET_CONV, groups);
    const struct nd_comparison *c = fleet_compare(f);
    *overall = c->odd_one_out;
    return c->tensors[FLEET_CONV].odd_one_out;
}

static void odd_one_out_is_alone_against_two_or_more(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        int groups[N_MAX];
        size_t odd;
    } cases[] = {
        {2, {0, 1}, SIZE_MAX},       {3, {0, 0, 0}, SIZE_MAX},   {3, {0, 1, 1}, 0},
        {3, {0, 1, 0}, 1},           {3, {0, 0, 1}, 2},          {3, {0, 1, 2}, SIZE_MAX},
        {4, {0, 0, 1, 1}, SIZE_MAX}, {4, {0, 0, 1, 0}, 2},       {4, {0, 0, 1, 2}, SIZE_MAX},
        {6, {5, 5, 5, 5, 5, 1}, 5},  {6, {1, 5, 5, 5, 5, 5}, 0}, {6, {1, 5, 5, 5, 5, 1}, SIZE_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fleet f;
        size_t overall;
        fleet_start(&f, cases[i].n);
        assert_true(odd_of(&f, cases[i].groups, &overall) == cases[i].odd);
        assert_true(overall == cases[i].odd);
        assert_true(f.comparison->tensors[FLEET_SCORES].odd_one_out == SIZE_MAX);
        fleet_stop(&f);
    }
}

static void odd_one_out_of_an_tensor_need_not_be_that_of_all(void **state)
{
    (void)state;
    struct fleet f;
    size_t overall;
    fleet_start(&f, 4);
    set_groups(&f, FLEET_LOGITS, (int[]){0, 0, 0, 1});
    assert_int_equal(odd_of(&f, (int[]){0, 0, 1, 0}, &overall), 2);
    assert_int_equal(f.comparison->tensors[FLEET_LOGITS].odd_one_out, 3);
    assert_true(overall == SIZE_MAX);
    f.captures[3]->state = ND_CAPTURE_FAILED; /* a device without data is not counted */
    f.captures[3]->n_tensors = f.captures[3]->n_probes = 0;
    assert_int_equal(odd_of(&f, (int[]){0, 0, 1, 0}, &overall), 2);
    assert_int_equal(overall, 2);
    fleet_stop(&f);
}

static void classes_part_at_the_first_tensor_that_tells_them_apart(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 5);
    assert_int_equal(fleet_compare(&f)->n_partings, 0);
    set_groups(&f, FLEET_CONV, (int[]){0, 0, 1, 1, 0});
    set_groups(&f, FLEET_LOGITS, (int[]){0, 0, 1, 2, 0});
    set_groups(&f, FLEET_SCORES, (int[]){0, 0, 1, 2, 3});
    const struct nd_comparison *c = fleet_compare(&f);
    assert_string_equal(c->classes_text, "cpu = gen1 | gen2 | gen3 | gen4");
    static const struct nd_parting expected[] = {{0, 1, 0, 2, FLEET_CONV},   {0, 2, 0, 3, FLEET_CONV},
                                                 {0, 3, 0, 4, FLEET_SCORES}, {1, 2, 2, 3, FLEET_LOGITS},
                                                 {1, 3, 2, 4, FLEET_CONV},   {2, 3, 3, 4, FLEET_CONV}};
    assert_int_equal(c->n_partings, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(c->partings[i].class_a, expected[i].class_a);
        assert_int_equal(c->partings[i].class_b, expected[i].class_b);
        assert_int_equal(c->partings[i].device_a, expected[i].device_a);
        assert_int_equal(c->partings[i].device_b, expected[i].device_b);
        assert_int_equal(c->partings[i].tensor, expected[i].tensor);
    }
    f.captures[4]->n_tensors--; /* scores are missing there: nothing else tells 0 and 4 apart */
    c = fleet_compare(&f);
    assert_string_equal(c->classes_text, "cpu = gen1 | gen2 | gen3 | gen4");
    assert_true(c->partings[2].tensor == SIZE_MAX);
    fleet_stop(&f);
}

/* Pairs of two tests say something, but the verdict is about the reference. */
static void pairs_of_tests_do_not_change_the_verdict(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 3);
    f.captures[2]->n_tensors = f.captures[1]->n_tensors = f.captures[0]->n_tensors;
    f.options.all_pairs = true;
    set_groups(&f, FLEET_CONV, (int[]){0, 1, 2});
    struct nd_gates *gates;
    assert_int_equal(nd_gates_create(&gates, NULL), ND_OK);
    assert_int_equal(nd_gates_parse(gates, ND_GATE_LSB, "1", NULL), ND_OK);
    f.options.gates = gates;
    f.captures[0]->outputs[0][FLEET_CONV][2] = 17; /* between the two tests, 16 and 18 */
    f.captures[1]->outputs[0][FLEET_CONV][2] = 16;
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(c->verdict, ND_VERDICT_WITHIN);
    assert_int_equal(c->tensors[FLEET_CONV].pairs[2].verdict, ND_VERDICT_DIFFERS);
    assert_int_equal(c->tensors[FLEET_CONV].pairs[2].total.difference.max_lsb, 2);
    nd_gates_destroy(&gates);
    fleet_stop(&f);
}

static void axes_that_were_exchanged_are_recognised(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 3);
    for (size_t s = 1; s < 3; s++)
        for (size_t i = 0; i < 24; i++) { /* 2x3x4, the test runs over 4, 2, 3 */
            size_t a = i / 6, b = i / 3 % 2, c = i % 3;
            f.captures[2]->outputs[0][FLEET_CONV][24 * s + i] =
                f.captures[0]->outputs[0][FLEET_CONV][24 * s + b * 12 + c * 4 + a];
        }
    for (size_t run = 0; run < 3; run++) {
        f.options.n_threads = 1 + run;
        const struct nd_comparison *c = fleet_compare(&f);
        const struct nd_structure *s = &total_of(c, FLEET_CONV, 2)->difference.structure;
        assert_int_equal(s->pattern, ND_PATTERN_PERMUTED_AXES);
        assert_true(s->permutation[0] == 2 && s->permutation[1] == 0 && s->permutation[2] == 1);
    }
    f.captures[2]->outputs[0][FLEET_CONV][24 + 6] ^= 1; /* the first differing sample is no longer */
    assert_int_not_equal(total_of(fleet_compare(&f), FLEET_CONV, 2)->difference.structure.pattern,
                         ND_PATTERN_PERMUTED_AXES);
    fleet_stop(&f);
}

/* Other types. */

static void store_half(struct nd_capture *capture, size_t i, uint16_t half)
{
    memcpy(capture->outputs[0][FLEET_SCORES] + 2 * i, &half, sizeof half);
}

/* 0.75 and 0.0625 are exact in float16. */
static void make_half(struct nd_capture *capture)
{
    capture->tensors[FLEET_SCORES].dtype = ND_DTYPE_F16;
    for (size_t i = 0; i < FLEET_SAMPLES * FLEET_CLASSES; i++)
        store_half(capture, i, i / FLEET_CLASSES == i % FLEET_CLASSES ? 0x3a00 : 0x2c00);
}

static void floats_of_other_types_are_within_when_equal(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 4);
    f.options.n_worst = 3;
    make_half(f.captures[1]);
    make_half(f.captures[3]);
    for (size_t run = 0; run < 4; run++) {
        f.options.all_pairs = run % 2 == 1;
        f.options.n_threads = 1 + run;
        f.options.verify_digests = run > 1;
        const struct nd_comparison *c = fleet_compare(&f);
        const struct nd_difference *d = &total_of(c, FLEET_SCORES, 1)->difference;
        assert_int_equal(c->verdict, ND_VERDICT_WITHIN);
        assert_int_equal(c->tensors[FLEET_SCORES].pairs[0].verdict, ND_VERDICT_WITHIN);
        assert_int_equal(c->tensors[FLEET_SCORES].pairs[1].verdict, ND_VERDICT_SAME);
        assert_true(d->is_mixed);
        assert_int_equal(d->n_samples_differing + d->n_differing, 0);
        assert_int_equal(d->n_elems, FLEET_SAMPLES * FLEET_CLASSES);
        assert_string_equal(c->classes_text, "cpu = gen2 | gen1 = gen3");
        assert_f64_bits(c->top1[1].pairs[0].agreement, 1);
        if (f.options.all_pairs) /* gen1 against gen3 is not mixed */
            assert_false(c->tensors[FLEET_SCORES].pairs[4].total.difference.is_mixed);
    }
    fleet_stop(&f);
}

static void floats_of_other_types_differ_by_values(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    make_half(f.captures[1]);
    store_half(f.captures[1], 2 * FLEET_CLASSES + 1, 0x2c02);     /* two float16 above 0.0625 */
    fleet_set_score(f.captures[0], 2, 3, nextafterf(0.0625f, 1)); /* rounds to the same float16 */
    const struct nd_comparison *c = fleet_compare(&f);
    const struct nd_difference *d = &total_of(c, FLEET_SCORES, 1)->difference;
    assert_int_equal(c->verdict, ND_VERDICT_DIFFERS);
    assert_int_equal(d->n_differing, 2);
    assert_int_equal(d->n_samples_differing, 1);
    assert_int_equal(d->max_ulp, 2);
    assert_f64_bits(d->abs.max, 0x1p-13);
    assert_int_equal(d->first.sample, 2);
    assert_int_equal(d->first.index, 1);
    f.captures[1]->digest_only = true;
    assert_int_equal(fleet_compare(&f)->tensors[FLEET_SCORES].verdict, ND_VERDICT_NOT_COMPARABLE);
    fleet_stop(&f);
}

/* conv of a float device: scale 0.5, zero point 3. */
static void qvalues_are_compared_with_floats(void **state)
{
    (void)state;
    static float reals[24 * FLEET_SAMPLES];
    struct fleet f;
    fleet_start(&f, 3);
    for (size_t i = 0; i < 24 * FLEET_SAMPLES; i++)
        reals[i] = 0.5f * (float)(f.captures[0]->outputs[0][FLEET_CONV][i] - 3);
    f.captures[0]->tensors[FLEET_CONV].dtype = ND_DTYPE_F32;
    f.captures[0]->tensors[FLEET_CONV].quant = (struct nd_quant){.axis = -1};
    f.captures[0]->large[0][FLEET_CONV] = (unsigned char *)reals;
    f.captures[2]->outputs[0][FLEET_CONV][24 + 5] += 3;
    f.options.per_channel = true;
    f.options.channel_axis = 1;
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(c->tensors[FLEET_CONV].pairs[0].verdict, ND_VERDICT_WITHIN);
    assert_int_equal(c->tensors[FLEET_CONV].pairs[1].verdict, ND_VERDICT_DIFFERS);
    const struct nd_compared_pair *pair = &c->tensors[FLEET_CONV].pairs[1];
    assert_int_equal(pair->total.difference.n_differing, 1);
    assert_f64_bits(pair->total.difference.abs.max, 1.5);
    assert_int_equal(pair->n_channels, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pair->channels[i].n_samples, FLEET_SAMPLES);
        assert_int_equal(pair->channels[i].n_differing, i == 1);
        assert_int_equal(pair->channels[i].n_samples_differing, i == 1);
    }
    f.captures[1]->tensors[FLEET_CONV].quant.n = 0; /* plain integers have no real values */
    c = fleet_compare(&f);
    assert_int_equal(c->tensors[FLEET_CONV].pairs[0].verdict, ND_VERDICT_NOT_COMPARABLE);
    fleet_stop(&f);
}

/* Captures whose output has a scale per channel, next to mixed ones. */
static void outputs_with_scales_per_channel_are_compared(void **state)
{
    (void)state;
    static float scales[FLEET_CLASSES] = {1, 2, 3, 4, 5}, reals[FLEET_SAMPLES * FLEET_CLASSES];
    static int64_t zeros[FLEET_CLASSES] = {0, 1, 2, 3, 4};
    struct fleet f;
    fleet_start(&f, 6);
    for (size_t c = 0; c < 6; c++)
        f.captures[c]->tensors[FLEET_LOGITS].quant =
            (struct nd_quant){.n = FLEET_CLASSES, .axis = 1, .scale = scales, .zero_point = zeros};
    fleet_set_qvalue(f.captures[1], 1, 0, 10);
    fleet_set_qvalue(f.captures[2], 1, 0, 11);
    f.options.all_pairs = true;
    for (size_t run = 0; run < 4; run++) {
        f.options.verify_digests = run % 2 == 1;
        if (run == 2) { /* and one of floats */
            f.captures[5]->tensors[FLEET_LOGITS].dtype = ND_DTYPE_F32;
            f.captures[5]->large[0][FLEET_LOGITS] = (unsigned char *)reals;
        }
        const struct nd_comparison *c = fleet_compare(&f);
        const struct nd_difference *d = &total_of(c, FLEET_LOGITS, 1)->difference;
        assert_int_equal(d->n_differing, 1);
        assert_int_equal(d->max_lsb, 10);
        assert_f64_bits(d->abs.max, 10);
        assert_int_equal(total_of(c, FLEET_LOGITS, 3)->difference.n_differing, 0);
        assert_int_equal(total_of(c, FLEET_LOGITS, 5)->difference.is_mixed, run > 1);
        assert_true(c->top1[0].devices[4].exists);
    }
    fleet_stop(&f);
}

/* Channels. */

static void channels_are_tensors_of_their_own(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    static const size_t dims[] = {2, 3, 4}, inners[] = {12, 4, 1};
    for (int axis = -3; axis < 3; axis++) {
        struct fleet f;
        fleet_start(&f, 2);
        size_t dim = dims[(axis + 3) % 3], inner = inners[(axis + 3) % 3], n_slice = 24 / dim;
        for (size_t k = 0; k < 9; k++)
            f.captures[1]->outputs[0][FLEET_CONV][below(&seed, 96)] += (unsigned char)below(&seed, 9);
        f.options.n_worst = 4;
        f.options.per_channel = true;
        f.options.channel_axis = axis;
        const struct nd_compared_pair *pair = &fleet_compare(&f)->tensors[FLEET_CONV].pairs[0];
        assert_int_equal(pair->n_channels, dim);
        struct nd_tensor slice = f.captures[0]->tensors[FLEET_CONV];
        slice.shape.dims[(axis + 3) % 3] = 1;
        struct nd_pair_context context = context_of(&slice, &slice, &f.options);
        for (size_t c = 0; c < dim; c++) {
            struct nd_pair_state *plain = nd_pair_state_create(&context, NULL);
            struct nd_difference d;
            for (size_t s = 0; s < FLEET_SAMPLES; s++) {
                unsigned char parts[2][24];
                for (size_t side = 0; side < 2; side++)
                    for (size_t i = 0, n = 0; i < 24; i++)
                        if (i / inner % dim == c)
                            parts[side][n++] = f.captures[side]->outputs[0][FLEET_CONV][24 * s + i];
                assert_int_equal(nd_sample_compare(plain, &context, memcmp(parts[0], parts[1], n_slice) != 0,
                                                   parts[0], parts[1], 0, s, NULL),
                                 ND_OK);
            }
            assert_int_equal(nd_pair_state_finish(plain, &context, &d, NULL), ND_OK);
            const struct nd_difference *actual = &pair->channels[c];
            assert_int_equal(actual->n_worst, d.n_worst);
            for (size_t i = 0; i < d.n_worst; i++) { /* places are those of the whole tensor */
                size_t k = d.worst[i].place.index;
                d.worst[i].place.index = (k / inner * dim + c) * inner + k % inner;
                d.worst[i].place.coordinates[(axis + 3) % 3] = (int64_t)c;
            }
            if (d.has_first) {
                d.first.index = (d.first.index / inner * dim + c) * inner + d.first.index % inner;
                d.first.coordinates[(axis + 3) % 3] = (int64_t)c;
            }
            assert_same_difference(&d, actual);
            free(d.worst);
            nd_pair_state_destroy(&plain);
        }
        fleet_stop(&f);
    }
}

static void channels_exist_only_where_the_axis_does(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    f.captures[1]->outputs[0][FLEET_CONV][3] ^= 1;
    f.captures[1]->outputs[0][FLEET_LOGITS][3] ^= 1;
    f.options.per_channel = true;
    f.options.channel_axis = 2;
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(c->tensors[FLEET_CONV].pairs[0].n_channels, 4);
    assert_int_equal(c->tensors[FLEET_LOGITS].pairs[0].n_channels, 0); /* of rank 2 */
    f.options.channel_axis = -3;
    c = fleet_compare(&f);
    assert_int_equal(c->tensors[FLEET_CONV].pairs[0].n_channels, 2);
    assert_int_equal(c->tensors[FLEET_LOGITS].pairs[0].n_channels, 0);
    fleet_stop(&f);
}

/* Repeats. */

static void difference_like_that_of_repeats_is_within_noise(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 3);
    f.captures[1]->unstable[FLEET_CONV] = true; /* one step at the first element of each sample */
    f.captures[1]->outputs[0][FLEET_CONV][24] += 1;
    f.captures[2]->outputs[0][FLEET_CONV][24] += 1;
    const struct nd_comparison *c = fleet_compare(&f);
    const struct nd_tensor_on_device *on = &c->tensors[FLEET_CONV].devices[1];
    assert_int_equal(on->n_repeats, FLEET_SAMPLES);
    assert_int_equal(on->n_repeats_unequal, FLEET_SAMPLES);
    assert_int_equal(on->n_unstable, FLEET_SAMPLES);
    assert_f64_bits(on->unstable_bound, 1);
    assert_non_null(on->noise);
    assert_int_equal(on->noise->n_differing, FLEET_SAMPLES);
    assert_int_equal(on->noise->n_elems, 24 * FLEET_SAMPLES);
    assert_int_equal(on->noise->max_lsb, 1);
    assert_null(c->tensors[FLEET_CONV].devices[0].noise);
    double bound = c->tensors[FLEET_CONV].devices[0].unstable_bound; /* 0 of 4: 1 - 0.05^(1/4) */
    assert_true(fabs(bound - 0.5271291954984121) < 1e-9);
    assert_true(c->tensors[FLEET_CONV].pairs[0].within_noise);
    assert_false(c->tensors[FLEET_CONV].pairs[1].within_noise); /* neither of these is unstable */
    assert_int_equal(c->tensors[FLEET_CONV].pairs[0].verdict, ND_VERDICT_INCONCLUSIVE);
    assert_int_equal(c->tensors[FLEET_CONV].pairs[1].verdict, ND_VERDICT_DIFFERS);
    for (size_t i = 1; i < 16; i++)
        f.captures[1]->outputs[0][FLEET_CONV][24 + i] += 1; /* as large, but of more than twice the elements */
    assert_false(fleet_compare(&f)->tensors[FLEET_CONV].pairs[0].within_noise);
    for (size_t i = 1; i < 16; i++)
        f.captures[1]->outputs[0][FLEET_CONV][24 + i] -= 1;
    assert_true(fleet_compare(&f)->tensors[FLEET_CONV].pairs[0].within_noise);
    f.captures[1]->outputs[0][FLEET_CONV][24] += 8; /* nine steps: more than eight times the noise */
    assert_false(fleet_compare(&f)->tensors[FLEET_CONV].pairs[0].within_noise);
    fleet_stop(&f);
}

static void device_that_always_says_the_same_is_stuck(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    for (size_t s = 0; s < FLEET_SAMPLES; s++)
        memcpy(f.captures[1]->outputs[0][FLEET_CONV] + 24 * s, f.captures[1]->outputs[0][FLEET_CONV], 24);
    const struct nd_comparison *c = fleet_compare(&f);
    assert_false(c->tensors[FLEET_CONV].devices[1].is_stuck); /* the inputs are all equal, too */
    for (size_t i = 0; i < 2; i++)
        f.captures[i]->inputs[0][1] = 7;
    c = fleet_compare(&f);
    assert_true(c->tensors[FLEET_CONV].devices[1].is_stuck);
    assert_false(c->tensors[FLEET_CONV].devices[0].is_stuck);
    fleet_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_one_out_is_alone_against_two_or_more),
        cmocka_unit_test(odd_one_out_of_an_tensor_need_not_be_that_of_all),
        cmocka_unit_test(classes_part_at_the_first_tensor_that_tells_them_apart),
        cmocka_unit_test(pairs_of_tests_do_not_change_the_verdict),
        cmocka_unit_test(axes_that_were_exchanged_are_recognised),
        cmocka_unit_test(floats_of_other_types_are_within_when_equal),
        cmocka_unit_test(floats_of_other_types_differ_by_values),
        cmocka_unit_test(qvalues_are_compared_with_floats),
        cmocka_unit_test(outputs_with_scales_per_channel_are_compared),
        cmocka_unit_test(channels_are_tensors_of_their_own),
        cmocka_unit_test(channels_exist_only_where_the_axis_does),
        cmocka_unit_test(difference_like_that_of_repeats_is_within_noise),
        cmocka_unit_test(device_that_always_says_the_same_is_stuck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
