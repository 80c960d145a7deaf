/* Comparing whole captures, held in memory by support/fake_capture.h. */
#include "support/main.h"

#include <math.h>

#include "support/fleet_compare.h"

static float other_scale[] = {0.25f};

static void captures_identical_are_same_and_only_floats_are_read(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 3);
    f.captures[0]->tensors[FLEET_LOGITS].is_model_output = false;
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(c->verdict, ND_VERDICT_SAME);
    assert_int_equal(nd_verdict_exit_code(c->verdict), ND_EXIT_SAME);
    assert_string_equal(c->classes_text, "cpu = gen1 = gen2");
    assert_true(c->first_tensor == SIZE_MAX && c->first_test == SIZE_MAX);
    assert_int_equal(c->n_tensors, FLEET_TENSORS);
    for (size_t e = 0; e < c->n_tensors; e++)
        for (size_t t = 1; t < 3; t++) {
            assert_int_equal(total_of(c, e, t)->coverage, ND_COVERAGE_FULL);
            assert_int_equal(total_of(c, e, t)->difference.n_samples, FLEET_SAMPLES);
            assert_int_equal(total_of(c, e, t)->difference.n_differing, 0);
            assert_true(total_of(c, e, t)->difference.n_elems > 0);
        }
    /* The float output is read once for all three, to see whether it holds numbers. */
    assert_int_equal(f.captures[0]->n_reads, 1);
    assert_int_equal(f.captures[1]->n_reads + f.captures[2]->n_reads, 0);
    fleet_stop(&f);
}

/* Whichever byte of whichever sample is changed: it is found there, whatever is read at once. */
static void capture_with_one_bit_flipped_differs_there(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 3);
    for (size_t i = 0; i < 24 * FLEET_SAMPLES; i++) {
        f.options.n_threads = 1 + i % 3;
        f.options.memory_bytes = i % 2 * (8 << 20);
        f.captures[i % 3]->chunk_bytes[FLEET_CONV] = i % 30;
        f.captures[2]->outputs[0][FLEET_CONV][i] ^= 1;
        const struct nd_comparison *c = fleet_compare(&f);
        const struct nd_difference *d = &total_of(c, FLEET_CONV, 2)->difference;
        assert_int_equal(c->verdict, ND_VERDICT_DIFFERS);
        assert_int_equal(d->n_differing, 1);
        assert_int_equal(d->n_samples_differing, 1);
        assert_int_equal(d->n_elems, 24 * FLEET_SAMPLES);
        assert_int_equal(d->max_lsb, 1);
        assert_f64_bits(d->abs.max, 0.5);
        assert_int_equal(d->first.sample, i / 24);
        assert_int_equal(d->first.index, i % 24);
        assert_int_equal(d->first.coordinates[0], i % 24 / 12);
        assert_int_equal(d->first.coordinates[1], i % 12 / 4);
        assert_int_equal(d->first.coordinates[2], i % 4);
        assert_int_equal(total_of(c, FLEET_CONV, 1)->difference.n_differing, 0);
        assert_int_equal(c->first_tensor, FLEET_CONV);
        assert_int_equal(c->first_test, 2);
        assert_true(c->devices[1].first_tensor == SIZE_MAX && c->devices[2].first_tensor == FLEET_CONV);
        assert_string_equal(c->classes_text, "cpu = gen1 | gen2");
        assert_string_equal(c->output_classes_text, "cpu = gen1 = gen2");
        f.captures[2]->outputs[0][FLEET_CONV][i] ^= 1;
    }
    fleet_stop(&f);
}

static void captures_swapped_mirror(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    f.captures[1]->outputs[0][FLEET_CONV][5] += 2;
    fleet_set_qvalue(f.captures[1], 1, 4, 900); /* right becomes wrong */
    fleet_set_qvalue(f.captures[0], 2, 0, 900); /* wrong becomes right */
    fleet_set_qvalue(f.captures[0], 3, 0, 900);
    const struct nd_comparison *c = fleet_compare(&f);
    struct nd_difference ab = total_of(c, FLEET_CONV, 1)->difference;
    struct nd_top1_pair flips = c->top1[0].pairs[0];
    struct nd_capture *swap = f.captures[0];
    f.captures[0] = f.captures[1];
    f.captures[1] = swap;
    c = fleet_compare(&f);
    const struct nd_difference *ba = &total_of(c, FLEET_CONV, 1)->difference;
    for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
        assert_int_equal(ab.lsb_histogram[i], ba->lsb_histogram[ND_LSB_BUCKETS - 1 - i]);
    assert_true(ab.signed_mean_lsb > 0);
    assert_f64_bits(ab.signed_mean_lsb, -ba->signed_mean_lsb);
    assert_int_equal(flips.n_lost, 1);
    assert_int_equal(flips.n_gained, 2);
    assert_int_equal(c->top1[0].pairs[0].n_lost, 2);
    assert_int_equal(c->top1[0].pairs[0].n_gained, 1);
    assert_f64_bits(flips.p_value, c->top1[0].pairs[0].p_value);
    fleet_stop(&f);
}

static void accuracy_of_a_device_is_counted_against_the_labels(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    fleet_set_qvalue(f.captures[1], 0, 1, 900);
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(c->n_top1, 2);
    assert_true(c->top1[0].has_labels);
    assert_f64_bits(c->top1[0].devices[0].accuracy, 1);
    assert_f64_bits(c->top1[0].devices[1].accuracy, 0.75);
    assert_int_equal(c->top1[0].pairs[0].n_lost, 1);
    assert_f64_bits(c->top1[0].pairs[0].agreement, 0.75);
    assert_false(c->top1[0].pairs[0].is_significant);
    assert_f64_bits(c->top1[1].devices[1].accuracy, 1);
    int64_t other[FLEET_SAMPLES] = {0, 1, 2, 4}, wild[FLEET_SAMPLES] = {0, 1, 2, 5};
    f.captures[1]->probes[0].labels = other;
    c = fleet_compare(&f);
    assert_false(c->top1[0].has_labels);
    assert_non_null(strstr(c->top1[0].labels_missing_reason, "different labels"));
    f.captures[0]->probes[0].labels = f.captures[1]->probes[0].labels = wild;
    c = fleet_compare(&f);
    assert_false(c->top1[0].has_labels);
    assert_non_null(strstr(c->top1[0].labels_missing_reason, "label 5 of sample 3"));
    f.captures[0]->probes[0].labels = f.captures[1]->probes[0].labels = NULL;
    c = fleet_compare(&f);
    assert_false(c->top1[0].has_labels);
    assert_null(c->top1[0].labels_missing_reason);
    assert_int_equal(c->top1[0].pairs[0].n_agree, 3);
    fleet_stop(&f);
}

static void assert_not_comparable(struct fleet *f, size_t tensor, const char *reason)
{
    const struct nd_comparison *c = fleet_compare(f);
    assert_int_equal(c->verdict, ND_VERDICT_NOT_COMPARABLE);
    assert_int_equal(nd_verdict_exit_code(c->verdict), ND_EXIT_NOT_COMPARABLE);
    assert_false(c->tensors[tensor].comparable);
    assert_int_not_equal(total_of(c, tensor, 1)->coverage, ND_COVERAGE_FULL);
    assert_non_null(total_of(c, tensor, 1)->reason);
    if (strstr(total_of(c, tensor, 1)->reason, reason) == NULL)
        fail_msg("'%s' lacks '%s'", total_of(c, tensor, 1)->reason, reason);
}

/* The same bytes under another label. */
static void assert_wrong_label(struct fleet *f, size_t tensor, const char *called)
{
    const struct nd_comparison *c = fleet_compare(f);
    const struct nd_compared_pair *pair = &c->tensors[tensor].pairs[0];
    assert_int_equal(c->verdict, ND_VERDICT_DIFFERS);
    assert_int_equal(nd_verdict_exit_code(c->verdict), ND_EXIT_DIFFERS);
    assert_false(c->tensors[tensor].comparable);
    assert_non_null(pair->label);
    assert_string_equal(pair->label, pair->total.reason);
    assert_non_null(strstr(pair->label, "the same bytes in all"));
    assert_non_null(strstr(pair->label, "one label is wrong"));
    if (strstr(pair->label, called) == NULL)
        fail_msg("'%s' lacks '%s'", pair->label, called);
}

static void tensor_missing_or_other_is_never_equal(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    struct nd_capture *test = f.captures[1];
    struct nd_capture saved = *test;
    test->n_tensors--;
    assert_not_comparable(&f, FLEET_SCORES, "missing in the test");
    assert_int_equal(f.comparison->tensors[FLEET_SCORES].devices[1].class_id, -1);
    *test = saved;
    f.captures[0]->n_tensors--;
    assert_not_comparable(&f, FLEET_SCORES, "missing in the reference");
    f.captures[0]->n_tensors++;
    test->tensors[FLEET_CONV].dtype = ND_DTYPE_I8;
    assert_wrong_label(&f, FLEET_CONV, "in 'cpu' and int8 with scale");
    assert_string_equal(f.comparison->classes_text, "cpu | gen1");
    *test = saved;
    test->tensors[FLEET_CONV].shape = (struct nd_shape){.rank = 3, .dims = {3, 2, 4}};
    assert_not_comparable(&f, FLEET_CONV, "shape 2x3x4 against 3x2x4");
    *test = saved;
    test->tensors[FLEET_CONV].quant.scale = other_scale;
    assert_wrong_label(&f, FLEET_CONV, "in 'cpu' and scale 0.25");
    assert_string_equal(f.comparison->classes_text, "cpu | gen1");
    *test = saved;
    test->tensors[FLEET_CONV].quant.n = 0;
    assert_not_comparable(&f, FLEET_CONV, "the same quantised values, but 'gen1' does not state their scale");
    *test = saved;
    test->tensors[FLEET_SCORES].quant = test->tensors[FLEET_CONV].quant; /* floats are compared as they are */
    assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_SAME);
    fleet_stop(&f);
}

/* Floats of an untouched run have no quantised values of the model's inputs. */
static void model_input_that_is_not_recorded_decides_nothing(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 3);
    for (size_t i = 0; i < 3; i++)
        f.captures[i]->tensors[FLEET_SCORES].is_model_input = true;
    size_t n_tensors = f.captures[0]->n_tensors;
    for (size_t lacking = 0; lacking < 3; lacking++) {
        f.captures[lacking]->n_tensors--;
        const struct nd_comparison *c = fleet_compare(&f);
        assert_int_equal(c->verdict, ND_VERDICT_SAME);
        assert_int_equal(c->tensors[FLEET_SCORES].verdict, ND_VERDICT_NOT_COMPARABLE);
        for (size_t t = 1; t < 3; t++)
            assert_int_equal(c->tensors[FLEET_SCORES].pairs[t - 1].is_unrecorded_input,
                             lacking == 0 || lacking == t);
        f.captures[lacking]->n_tensors = n_tensors;
    }
    f.captures[2]->n_tensors--; /* what else differs or is missing decides as ever */
    f.captures[1]->outputs[0][FLEET_CONV][30] ^= 1;
    assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_DIFFERS);
    f.captures[1]->outputs[0][FLEET_CONV][30] ^= 1;
    f.captures[0]->tensors[FLEET_SCORES].is_model_input = false; /* the first that has it says what it is */
    assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_NOT_COMPARABLE);
    for (size_t i = 0; i < 3; i++)
        for (size_t e = 0; e < n_tensors; e++)
            f.captures[i]->tensors[e].is_model_input = true;
    f.captures[2]->n_tensors = 0; /* nothing of the third is compared */
    assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_NOT_COMPARABLE);
    f.captures[2]->n_tensors = n_tensors;
    fleet_stop(&f);
}

static void probe_missing_or_fed_otherwise_is_never_equal(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    struct nd_capture *test = f.captures[1];
    test->inputs[0][2] ^= 1;
    assert_int_equal(fleet_run(&f), ND_ERR_NOT_COMPARABLE);
    assert_int_equal(f.err.id, ND_E_COMPARE_NOTHING);
    assert_non_null(strstr(f.err.message, "other inputs"));
    test->inputs[0][2] ^= 1;
    f.captures[0]->probes[1] = f.captures[0]->probes[0];
    f.captures[0]->probes[1].name = (char *)(uintptr_t) "zeros";
    f.captures[0]->n_probes = 2;
    assert_not_comparable(&f, FLEET_CONV, "probe 'zeros' is missing in the test");
    assert_int_equal(total_of(f.comparison, FLEET_CONV, 1)->coverage, ND_COVERAGE_PART);
    assert_int_equal(f.comparison->tensors[FLEET_CONV].devices[1].class_id, 1);
    struct nd_capture *swap = f.captures[0];
    f.captures[0] = f.captures[1];
    f.captures[1] = swap;
    assert_not_comparable(&f, FLEET_CONV, "probe 'zeros' is missing in the reference");
    fleet_stop(&f);
}

static void probes_are_counted_apart_and_together(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    for (size_t i = 0; i < 2; i++) {
        f.captures[i]->probes[1] = f.captures[i]->probes[0];
        f.captures[i]->probes[1].name = (char *)(uintptr_t) "zeros";
        f.captures[i]->n_probes = 2;
    }
    f.captures[1]->outputs[1][FLEET_CONV][30] = 9;
    f.captures[1]->outputs[0][FLEET_CONV][70] ^= 1;
    const struct nd_comparison *c = fleet_compare(&f);
    const struct nd_compared_pair *pair = &c->tensors[FLEET_CONV].pairs[0];
    assert_int_equal(pair->probes[0].difference.n_differing, 1);
    assert_int_equal(pair->probes[1].difference.n_differing, 1);
    assert_int_equal(pair->probes[1].difference.max_lsb, 9);
    assert_int_equal(pair->total.difference.n_differing, 2);
    assert_int_equal(pair->total.difference.n_elems, 2 * 24 * FLEET_SAMPLES);
    assert_int_equal(pair->total.difference.max_lsb, 9);
    assert_int_equal(pair->total.difference.first.probe, 0);
    assert_int_equal(pair->total.difference.first.sample, 2);
    assert_f64_bits(pair->total.difference.mean_lsb, 10.0 / (2 * 24 * FLEET_SAMPLES));
    fleet_stop(&f);
}

static void capture_that_stopped_early_is_compared_in_part_and_failed(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 3);
    f.captures[1]->state = ND_CAPTURE_FAILED;
    f.captures[1]->probes[0].n_samples = 2;
    fleet_set_attr(f.captures[1], "failure", "message", "it broke");
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(c->verdict, ND_VERDICT_FAILED);
    assert_int_equal(nd_verdict_exit_code(c->verdict), ND_EXIT_DEVICE_FAILED);
    assert_int_equal(total_of(c, FLEET_CONV, 1)->coverage, ND_COVERAGE_PART);
    assert_int_equal(total_of(c, FLEET_CONV, 1)->difference.n_samples, 2);
    assert_string_equal(total_of(c, FLEET_CONV, 1)->reason, "probe 'val': only 2 of 4 samples on both sides");
    assert_string_equal(c->classes_text, "cpu = gen1* = gen2");
    assert_string_equal(c->devices[1].failure, "it broke");
    assert_int_equal(c->top1[0].pairs[0].n_samples, 2);
    f.captures[1]->state = ND_CAPTURE_PARTIAL;
    assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_NOT_COMPARABLE);
    f.captures[1]->state = ND_CAPTURE_FAILED;
    f.captures[1]->n_tensors = f.captures[1]->n_probes = 0; /* it never ran */
    c = fleet_compare(&f);
    assert_int_equal(c->verdict, ND_VERDICT_FAILED);
    assert_string_equal(c->classes_text, "cpu = gen2 | (gen1: no data)");
    assert_int_equal(c->devices[1].class_id, -1);
    struct nd_capture *swap = f.captures[0]; /* a reference that never ran */
    f.captures[0] = f.captures[1];
    f.captures[1] = swap;
    c = fleet_compare(&f);
    assert_int_equal(c->verdict, ND_VERDICT_FAILED);
    assert_int_equal(c->n_tensors, FLEET_TENSORS);
    assert_string_equal(c->classes_text, "cpu = gen2 | (gen1: no data)");
    fleet_stop(&f);
}

static void digests_alone_count_samples_but_no_elements(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    f.captures[1]->digest_only = true;
    assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_SAME);
    f.captures[1]->outputs[0][FLEET_CONV][30] ^= 1;
    const struct nd_comparison *c = fleet_compare(&f);
    const struct nd_difference *d = &total_of(c, FLEET_CONV, 1)->difference;
    assert_int_equal(c->verdict, ND_VERDICT_DIFFERS);
    assert_false(d->has_values);
    assert_int_equal(d->n_samples_differing, 1);
    assert_true(d->has_first && !d->first.has_index);
    assert_int_equal(d->first.sample, 1);
    assert_false(c->top1[0].devices[1].exists);
    assert_false(c->top1[0].pairs[0].exists);
    struct nd_gates *gates;
    assert_int_equal(nd_gates_create(&gates, NULL), ND_OK);
    assert_int_equal(nd_gates_parse(gates, ND_GATE_LSB, "5", NULL), ND_OK);
    f.options.gates = gates;
    assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_NOT_COMPARABLE);
    assert_int_equal(nd_gates_parse(gates, ND_GATE_BITWISE, NULL, NULL), ND_OK);
    assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_DIFFERS);
    nd_gates_destroy(&gates);
    fleet_stop(&f);
}

static void digest_that_lies_is_an_error(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    f.captures[1]->lying[FLEET_CONV] = true;
    assert_int_equal(fleet_run(&f), ND_ERR_FORMAT);
    assert_int_equal(f.err.id, ND_E_CAPTURE_DIGEST);
    assert_null(f.comparison);
    fleet_stop(&f);
}

static void models_that_differ_are_refused_unless_allowed(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    fleet_set_attr(f.captures[1], "model", "sha256", "00fe");
    assert_int_equal(fleet_run(&f), ND_ERR_NOT_COMPARABLE);
    assert_int_equal(f.err.id, ND_E_COMPARE_MODEL);
    f.options.allow_different_models = true;
    assert_true(fleet_compare(&f)->different_models);
    assert_false(f.comparison->unknown_models);
    assert_int_equal(f.comparison->verdict, ND_VERDICT_SAME);
    f.n = 1;
    assert_int_equal(fleet_run(&f), ND_ERR_USAGE);
    f.n = 2;
    fleet_stop(&f);
}

static void a_model_that_is_not_stated_is_noted(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 3);
    fleet_set_attr(f.captures[0], "model", "sha256", NULL);
    assert_true(fleet_compare(&f)->unknown_models);
    assert_false(f.comparison->different_models);
    assert_int_equal(f.comparison->verdict, ND_VERDICT_SAME);
    fleet_set_attr(f.captures[2], "model", "sha256", "00fe"); /* those that state it must still agree */
    assert_int_equal(fleet_run(&f), ND_ERR_NOT_COMPARABLE);
    assert_int_equal(f.err.id, ND_E_COMPARE_MODEL);
    fleet_stop(&f);
}

static void devices_are_labelled_and_marked(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 3);
    fleet_set_attr(f.captures[2], "device", "uri", "gen1");
    f.captures[0]->providers[FLEET_CONV] = "CPUExecutionProvider";
    f.captures[1]->providers[FLEET_CONV] = f.captures[1]->providers[FLEET_IN] = "CPUExecutionProvider";
    f.captures[1]->unstable[FLEET_CONV] = true;
    const struct nd_comparison *c = fleet_compare(&f);
    assert_string_equal(c->devices[1].label, "gen1");
    assert_string_equal(c->devices[2].label, "gen1#2");
    assert_false(c->tensors[FLEET_CONV].devices[0].is_on_cpu); /* a CPU is a CPU */
    assert_true(c->tensors[FLEET_CONV].devices[1].is_on_cpu);
    assert_false(c->tensors[FLEET_IN].devices[1].is_on_cpu); /* expected there */
    assert_string_equal(c->tensors[FLEET_IN].devices[1].provider, "CPUExecutionProvider");
    assert_int_equal(c->tensors[FLEET_CONV].devices[1].n_unstable, FLEET_SAMPLES);
    assert_int_equal(c->devices[1].n_unstable_tensors, 1);
    assert_int_equal(c->devices[1].n_cpu_tensors, 1);
    assert_int_equal(c->verdict, ND_VERDICT_SAME);
    fleet_stop(&f);
}

static void empty_tensors_are_equal(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    for (size_t i = 0; i < 2; i++)
        f.captures[i]->tensors[FLEET_CONV].shape.dims[1] = 0;
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(c->verdict, ND_VERDICT_SAME);
    assert_int_equal(total_of(c, FLEET_CONV, 1)->difference.n_elems, 0);
    assert_f64_bits(total_of(c, FLEET_CONV, 1)->difference.share, 0);
    fleet_stop(&f);
}

/* Gates. */

static enum nd_verdict gated(struct fleet *f, enum nd_gate_kind kind, const char *text, enum nd_gate_kind other,
                             const char *other_text)
{
    struct nd_gates *gates;
    assert_int_equal(nd_gates_create(&gates, NULL), ND_OK);
    assert_int_equal(nd_gates_parse(gates, kind, text, NULL), ND_OK);
    if (other_text != NULL)
        assert_int_equal(nd_gates_parse(gates, other, other_text, NULL), ND_OK);
    f->options.gates = gates;
    enum nd_verdict verdict = fleet_compare(f)->verdict;
    f->options.gates = NULL;
    nd_gates_destroy(&gates);
    return verdict;
}

static void gates_decide_between_within_and_differs(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    f.captures[1]->outputs[0][FLEET_CONV][10] += 2; /* +2 LSB, 1.0; reference 114: real 55.5 */
    assert_int_equal(gated(&f, ND_GATE_LSB, "2", 0, NULL), ND_VERDICT_WITHIN);
    assert_int_equal(gated(&f, ND_GATE_LSB, "1", 0, NULL), ND_VERDICT_DIFFERS);
    assert_int_equal(total_of(f.comparison, FLEET_CONV, 1)->difference.n_failing, 1);
    assert_int_equal(gated(&f, ND_GATE_LSB, "1,conv:2", 0, NULL), ND_VERDICT_WITHIN);
    assert_int_equal(gated(&f, ND_GATE_LSB, "2,c*:1", 0, NULL), ND_VERDICT_DIFFERS);
    assert_int_equal(gated(&f, ND_GATE_LSB, "conv:2,c*:1", 0, NULL), ND_VERDICT_WITHIN);
    assert_int_equal(gated(&f, ND_GATE_LSB, "1,2", 0, NULL), ND_VERDICT_WITHIN);
    assert_int_equal(gated(&f, ND_GATE_LSB, "9", ND_GATE_BITWISE, ""), ND_VERDICT_DIFFERS);
    assert_int_equal(gated(&f, ND_GATE_LSB, "9", ND_GATE_BITWISE, "logits"), ND_VERDICT_WITHIN);
    assert_int_equal(gated(&f, ND_GATE_LSB, "logits:9", 0, NULL), ND_VERDICT_DIFFERS); /* no gate for conv */
    assert_int_equal(gated(&f, ND_GATE_ULP, "9", 0, NULL), ND_VERDICT_DIFFERS);        /* nor here */
    assert_int_equal(gated(&f, ND_GATE_ATOL, "1", 0, NULL), ND_VERDICT_WITHIN);
    assert_int_equal(gated(&f, ND_GATE_ATOL, "0.99", 0, NULL), ND_VERDICT_DIFFERS);
    assert_int_equal(gated(&f, ND_GATE_RTOL, "0.0181", 0, NULL), ND_VERDICT_WITHIN);
    assert_int_equal(gated(&f, ND_GATE_RTOL, "0.018", 0, NULL), ND_VERDICT_DIFFERS);
    assert_int_equal(gated(&f, ND_GATE_RTOL, "0.018", ND_GATE_ATOL, "0.002"), ND_VERDICT_WITHIN);
    assert_int_equal(gated(&f, ND_GATE_RTOL, "1", ND_GATE_LSB, "1"), ND_VERDICT_DIFFERS); /* both must hold */
    f.captures[1]->outputs[0][FLEET_CONV][10] -= 2;
    fleet_set_score(f.captures[1], 0, 1, nextafterf(0.0625f, 1));
    assert_int_equal(gated(&f, ND_GATE_ULP, "1", 0, NULL), ND_VERDICT_WITHIN);
    assert_int_equal(gated(&f, ND_GATE_ULP, "0", 0, NULL), ND_VERDICT_DIFFERS);
    assert_int_equal(gated(&f, ND_GATE_LSB, "9", 0, NULL), ND_VERDICT_DIFFERS);
    fleet_set_score(f.captures[1], 0, 1, NAN);
    assert_int_equal(gated(&f, ND_GATE_ATOL, "1e300", ND_GATE_ULP, "18446744073709551615"), ND_VERDICT_DIFFERS);
    fleet_stop(&f);
}

static void gates_not_understood_are_refused(void **state)
{
    (void)state;
    static const struct {
        enum nd_gate_kind kind;
        const char *text;
    } bad[] = {{ND_GATE_LSB, ""},      {ND_GATE_LSB, "1.5"}, {ND_GATE_LSB, "-1"},   {ND_GATE_LSB, "a:"},
               {ND_GATE_LSB, ":1"},    {ND_GATE_LSB, "1,"},  {ND_GATE_LSB, "a"},    {ND_GATE_ULP, "1x"},
               {ND_GATE_ATOL, "nan"},  {ND_GATE_ATOL, "-1"}, {ND_GATE_ATOL, "inf"}, {ND_GATE_RTOL, "a:b"},
               {ND_GATE_BITWISE, ","}, {ND_GATE_LSB, NULL},  {ND_GATE_LSB, "1 "}};
    struct nd_gates *gates;
    assert_int_equal(nd_gates_create(&gates, NULL), ND_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(nd_gates_parse(gates, bad[i].kind, bad[i].text, NULL), ND_ERR_USAGE);
    struct fleet f;
    fleet_start(&f, 2);
    f.options.gates = gates;
    assert_false(fleet_compare(&f)->has_gates); /* nothing was taken over */
    assert_int_equal(nd_gates_parse(gates, ND_GATE_LSB, "convx:1", NULL), ND_OK);
    assert_int_equal(fleet_run(&f), ND_ERR_USAGE);
    assert_int_equal(f.err.id, ND_E_COMPARE_GATE);
    nd_gates_destroy(&gates);
    assert_int_equal(nd_gates_create(&gates, NULL), ND_OK);
    assert_int_equal(nd_gates_parse(gates, ND_GATE_LSB, "scores:1", NULL), ND_OK);
    f.options.gates = gates;
    assert_int_equal(fleet_run(&f), ND_ERR_USAGE); /* scores are floats */
    assert_int_equal(f.err.id, ND_E_COMPARE_GATE);
    nd_gates_destroy(&gates);
    fleet_stop(&f);
}

static void classes_of_six_devices_are_rendered(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 6);
    for (size_t i = 1; i < 6; i++)
        f.captures[i]->outputs[0][FLEET_CONV][40] ^= i == 1 ? 1 : i == 2 ? 0 : 2;
    f.captures[5]->outputs[0][FLEET_LOGITS][0] ^= 1;
    const struct nd_comparison *c = fleet_compare(&f);
    static const int expected[] = {0, 1, 0, 2, 2, 2};
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(c->tensors[FLEET_CONV].devices[i].class_id, expected[i]);
    assert_string_equal(c->classes_text, "cpu = gen2 | gen1 | gen3 = gen4 | gen5");
    assert_string_equal(c->output_classes_text, "cpu = gen1 = gen2 = gen3 = gen4 | gen5");
    fleet_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captures_identical_are_same_and_only_floats_are_read),
        cmocka_unit_test(capture_with_one_bit_flipped_differs_there),
        cmocka_unit_test(captures_swapped_mirror),
        cmocka_unit_test(accuracy_of_a_device_is_counted_against_the_labels),
        cmocka_unit_test(tensor_missing_or_other_is_never_equal),
        cmocka_unit_test(model_input_that_is_not_recorded_decides_nothing),
        cmocka_unit_test(probe_missing_or_fed_otherwise_is_never_equal),
        cmocka_unit_test(probes_are_counted_apart_and_together),
        cmocka_unit_test(capture_that_stopped_early_is_compared_in_part_and_failed),
        cmocka_unit_test(digests_alone_count_samples_but_no_elements),
        cmocka_unit_test(digest_that_lies_is_an_error),
        cmocka_unit_test(models_that_differ_are_refused_unless_allowed),
        cmocka_unit_test(a_model_that_is_not_stated_is_noted),
        cmocka_unit_test(devices_are_labelled_and_marked),
        cmocka_unit_test(empty_tensors_are_equal),
        cmocka_unit_test(gates_decide_between_within_and_differs),
        cmocka_unit_test(gates_not_understood_are_refused),
        cmocka_unit_test(classes_of_six_devices_are_rendered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
