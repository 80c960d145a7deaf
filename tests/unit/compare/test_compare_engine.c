/* The engine: what it reads, and that results depend neither on threads, memory, chunks and instruction sets
 * nor on which captures stand beside the pair. */
#include "support/main.h"

#include "support/fleet_compare.h"

enum { BIG = FLEET_TENSORS, BIG_SAMPLES = 2, BIG_ELEMS = 2 * 1024 * 1100 }; /* more than one layer's 2 MiB */

/* A tensor of large samples, of which only the first two are there: the fleet then has two samples. */
static void add_big_tensor(struct fleet *f, uint64_t *seed)
{
    for (size_t c = 0; c < f->n; c++) {
        struct nd_capture *capture = f->captures[c];
        fleet_add_tensor(capture, "big", "Conv", ND_DTYPE_U8,
                         (struct nd_shape){.rank = 3, .dims = {2, 1024, 1100}});
        capture->probes[0].n_samples = capture->probes[0].n_samples_expected = BIG_SAMPLES;
        capture->large[0][BIG] = malloc((size_t)BIG_SAMPLES * BIG_ELEMS);
        assert_non_null(capture->large[0][BIG]);
        if (c == 0) {
            uint64_t bits = 0;
            for (size_t i = 0; i < (size_t)BIG_SAMPLES * BIG_ELEMS; i++, bits >>= 8) {
                bits = i % 8 == 0 ? next_random(seed) : bits;
                capture->large[0][BIG][i] = (unsigned char)bits;
            }
            continue;
        }
        memcpy(capture->large[0][BIG], f->captures[0]->large[0][BIG], (size_t)BIG_SAMPLES * BIG_ELEMS);
        for (size_t k = 0; k < 3000 * c; k++)
            capture->large[0][BIG][below(seed, (size_t)BIG_SAMPLES * BIG_ELEMS)] += (unsigned char)(k % 5);
    }
}

static void free_big(struct fleet *f)
{
    for (size_t c = 0; c < f->n; c++)
        free(f->captures[c]->large[0][BIG]);
}

/* Captures that differ in every way that a fleet can. */
static void scramble(struct fleet *f, uint64_t *seed)
{
    f->options.n_worst = 5;
    f->options.ulp_in = ND_DTYPE_F16;
    for (size_t c = 1; c < f->n; c++) {
        for (size_t k = 0; k < 10; k++)
            f->captures[c]->outputs[0][FLEET_CONV][below(seed, 24 * FLEET_SAMPLES)] ^=
                (unsigned char)(1 + below(seed, 7));
        for (size_t k = 0; k < 4; k++) {
            fleet_set_qvalue(f->captures[c], below(seed, FLEET_SAMPLES), below(seed, FLEET_CLASSES),
                             (int16_t)below(seed, 800));
            fleet_set_score(f->captures[c], below(seed, FLEET_SAMPLES), below(seed, FLEET_CLASSES),
                            k == 3 && c % 2 == 0 ? NAN : (float)below(seed, 100) / 100);
        }
    }
    if (f->n > 3) /* one that is equal to another */
        memcpy(f->captures[3]->outputs, f->captures[1]->outputs, sizeof f->captures[1]->outputs);
}

static struct nd_comparison *take_comparison(struct fleet *f)
{
    fleet_compare(f);
    struct nd_comparison *taken = f->comparison;
    f->comparison = NULL;
    return taken;
}

static void vary_and_compare(struct fleet *f, size_t n_runs, uint64_t *seed)
{
    static const size_t chunks[] = {0, 1000, 1 << 20, 3 << 20, 2 * BIG_ELEMS, 24, 48, 4096, BIG_ELEMS};
    static const char *const caps[] = {"scalar", "avx2", "avx512", NULL};
    f->options.all_pairs = true;
    f->options.n_threads = 1;
    struct nd_comparison *expected = take_comparison(f);
    assert_int_equal(expected->n_pairs, 6);
    for (size_t run = 0; run < n_runs; run++) {
        f->options.n_threads = 1 + run % 3;
        f->options.memory_bytes = run % 2 * (100 << 20);
        f->options.cpu_cap = run % 2 == 1 ? caps[run / 2 % 4] : NULL;
        for (size_t c = 0; c < f->n; c++)
            for (size_t e = 0; e <= BIG; e++)
                f->captures[c]->chunk_bytes[e] = chunks[run < 9 ? run : below(seed, 9)];
        struct nd_comparison *actual = take_comparison(f);
        assert_same_comparison(expected, actual);
        nd_comparison_destroy(&actual);
    }
    nd_comparison_destroy(&expected);
}

static void results_do_not_depend_on_how_they_were_made(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    fleet_start(&f, 4);
    scramble(&f, &seed);
    vary_and_compare(&f, 40, &seed);
    fleet_stop(&f);
}

static void results_of_big_tensors_do_not_depend_on_how_they_were_made(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    fleet_start(&f, 4);
    add_big_tensor(&f, &seed);
    scramble(&f, &seed);
    vary_and_compare(&f, 5, &seed);
    free_big(&f);
    fleet_stop(&f);
}

/* The engine, which cuts tensors, against one sample after the other. */
static void big_tensors_give_what_whole_samples_give(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    fleet_start(&f, 2);
    add_big_tensor(&f, &seed);
    f.captures[1]->chunk_bytes[BIG] = 1 << 20;
    f.options.n_worst = 5;
    f.options.n_threads = 3;
    const struct nd_comparison *c = fleet_compare(&f);
    struct nd_pair_context context =
        context_of(&f.captures[0]->tensors[BIG], &f.captures[1]->tensors[BIG], &f.options);
    struct nd_pair_state *plain = nd_pair_state_create(&context, NULL);
    for (size_t s = 0; s < BIG_SAMPLES; s++)
        assert_int_equal(nd_sample_compare(plain, &context, true, f.captures[0]->large[0][BIG] + s * BIG_ELEMS,
                                           f.captures[1]->large[0][BIG] + s * BIG_ELEMS, 0, s, NULL),
                         ND_OK);
    struct nd_difference d;
    assert_int_equal(nd_pair_state_finish(plain, &context, &d, NULL), ND_OK);
    assert_same_difference(&d, &total_of(c, BIG, 1)->difference);
    free(d.worst);
    nd_pair_state_destroy(&plain);
    free_big(&f);
    fleet_stop(&f);
}

static void stuck_samples_are_seen_although_they_are_cut(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    fleet_start(&f, 3);
    add_big_tensor(&f, &seed);
    f.captures[0]->chunk_bytes[BIG] = 1 << 20;
    memset(f.captures[1]->large[0][BIG], 9, BIG_ELEMS);
    memset(f.captures[2]->large[0][BIG], 9, 2 * BIG_ELEMS);
    f.captures[2]->large[0][BIG][BIG_ELEMS - 1] = 8;
    for (size_t run = 0; run < 3; run++) {
        f.options.n_threads = 1 + run;
        const struct nd_comparison *c = fleet_compare(&f);
        assert_int_equal(total_of(c, BIG, 1)->difference.test_side.n_stuck_samples, 1);
        assert_int_equal(total_of(c, BIG, 2)->difference.test_side.n_stuck_samples, 1);
        assert_int_equal(total_of(c, BIG, 1)->difference.ref_side.n_stuck_samples, 0);
    }
    free_big(&f);
    fleet_stop(&f);
}

/* A NaN in one piece of a sample, and none in the others. */
static void samples_with_a_nan_are_not_stuck_although_they_are_cut(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    fleet_start(&f, 2);
    add_big_tensor(&f, &seed);
    for (size_t c = 0; c < 2; c++) {
        float *reals = (float *)(void *)f.captures[c]->large[0][BIG];
        f.captures[c]->tensors[BIG].dtype = ND_DTYPE_F32;
        f.captures[c]->tensors[BIG].quant = (struct nd_quant){.axis = -1};
        f.captures[c]->tensors[BIG].shape.dims[2] /= 4;
        for (size_t i = 0; i < (size_t)2 * BIG_ELEMS / 4; i++)
            reals[i] = 1.5f + (float)c;
    }
    f.captures[0]->chunk_bytes[BIG] = 1 << 20;
    ((float *)(void *)f.captures[1]->large[0][BIG])[BIG_ELEMS / 4 - 1] = NAN;
    const struct nd_difference *d = &total_of(fleet_compare(&f), BIG, 1)->difference;
    assert_int_equal(d->ref_side.n_stuck_samples, 2);
    assert_int_equal(d->test_side.n_stuck_samples, 1);
    free_big(&f);
    fleet_stop(&f);
}

static void all_pairs_are_what_two_captures_alone_give(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f, two;
    fleet_start(&f, 5);
    scramble(&f, &seed);
    f.options.all_pairs = true;
    f.options.per_channel = true;
    f.options.channel_axis = -1;
    for (size_t run = 0; run < 8; run++) {
        size_t a = 1 + below(&seed, 4), b = 1 + below(&seed, 4); /* another order of the tests */
        struct nd_capture *swap = f.captures[a];
        f.captures[a] = f.captures[b];
        f.captures[b] = swap;
        f.options.n_threads = 1 + run % 3;
        const struct nd_comparison *c = fleet_compare(&f);
        assert_int_equal(c->n_pairs, 10);
        for (size_t p = 0; p < c->n_pairs; p++) {
            size_t ref = c->tensors[0].pairs[p].ref, test = c->tensors[0].pairs[p].test;
            assert_true(ref < test && (p >= 4 || ref == 0)); /* those with the reference come first */
            two = (struct fleet){.captures = {f.captures[ref], f.captures[test]}, .n = 2, .options = f.options};
            const struct nd_comparison *alone = fleet_compare(&two);
            assert_int_equal(alone->n_pairs, 1);
            for (size_t e = 0; e < c->n_tensors; e++) {
                assert_int_equal(c->tensors[e].pairs[p].ref, ref);
                assert_int_equal(c->tensors[e].pairs[p].test, test);
                assert_same_pair(&alone->tensors[e].pairs[0], &c->tensors[e].pairs[p], 1);
            }
            nd_comparison_destroy(&two.comparison);
        }
    }
    fleet_stop(&f);
}

/* Reading. */

static size_t count_bytes(const struct fleet *f, size_t *n_reads)
{
    size_t n_bytes = 0;
    *n_reads = 0;
    for (size_t c = 0; c < f->n; c++) {
        n_bytes += atomic_exchange(&f->captures[c]->n_bytes_read, 0);
        *n_reads += atomic_exchange(&f->captures[c]->n_reads, 0);
    }
    return n_bytes;
}

/* The only output that remains is one small tensor of floats, of which one reading serves all captures. */
enum { ALWAYS_READ = FLEET_CLASSES * 4 /* bytes of a sample */ };

static void hide_outputs(struct fleet *f)
{
    for (size_t c = 0; c < f->n; c++)
        for (size_t e = 0; e < FLEET_TENSORS; e++)
            f->captures[c]->tensors[e].is_model_output = e == FLEET_SCORES;
}

/* Six captures in three classes: three reads, with all pairs, too. */
static void tensors_are_read_once_and_equal_ones_once_together(void **state)
{
    (void)state;
    struct fleet f;
    size_t n_reads;
    fleet_start(&f, 6);
    hide_outputs(&f);
    for (size_t c = 1; c < 6; c++)
        for (size_t s = 0; s < FLEET_SAMPLES; s++)
            f.captures[c]->outputs[0][FLEET_CONV][24 * s + 7] += (unsigned char)(c % 3);
    for (int all_pairs = 0; all_pairs < 2; all_pairs++) {
        f.options.all_pairs = all_pairs != 0;
        fleet_compare(&f);
        assert_int_equal(count_bytes(&f, &n_reads), (3 * 24 + ALWAYS_READ) * FLEET_SAMPLES);
        assert_int_equal(n_reads, 4);
    }
    for (size_t c = 0; c < 6; c++) { /* as outputs, all tensors are looked at, equal ones together */
        f.captures[c]->tensors[FLEET_CONV].is_model_output = true;
        f.captures[c]->tensors[FLEET_LOGITS].is_model_output = true;
    }
    fleet_compare(&f);
    assert_int_equal(count_bytes(&f, &n_reads), (3 * 24 + FLEET_CLASSES * 2 + ALWAYS_READ) * FLEET_SAMPLES);
    assert_int_equal(n_reads, 5);
    fleet_stop(&f);
}

static void only_samples_that_differ_are_read(void **state)
{
    (void)state;
    struct fleet f;
    size_t n_reads;
    fleet_start(&f, 3);
    hide_outputs(&f);
    fleet_compare(&f);
    assert_int_equal(count_bytes(&f, &n_reads), ALWAYS_READ * FLEET_SAMPLES);
    f.captures[1]->outputs[0][FLEET_CONV][24 * 2] ^= 1;
    fleet_compare(&f);
    assert_int_equal(count_bytes(&f, &n_reads), 2 * 24 + ALWAYS_READ * FLEET_SAMPLES);
    fleet_stop(&f);
}

static void big_tensors_are_read_once(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    size_t n_reads;
    fleet_start(&f, 4);
    hide_outputs(&f);
    add_big_tensor(&f, &seed);
    f.options.all_pairs = true;
    f.options.n_threads = 2;
    for (size_t run = 0; run < 3; run++) {
        for (size_t c = 0; c < f.n; c++)
            f.captures[c]->chunk_bytes[BIG] = run * 500000;
        fleet_compare(&f);
        assert_int_equal(count_bytes(&f, &n_reads), BIG_SAMPLES * (4 * BIG_ELEMS + ALWAYS_READ));
    }
    free_big(&f);
    fleet_stop(&f);
}

/* Digests. */

static void verified_digests_that_are_right_change_nothing(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    size_t n_reads;
    fleet_start(&f, 4);
    scramble(&f, &seed);
    f.options.all_pairs = true;
    struct nd_comparison *expected = take_comparison(&f);
    count_bytes(&f, &n_reads);
    f.options.verify_digests = true;
    struct nd_comparison *actual = take_comparison(&f);
    assert_same_comparison(expected, actual);
    assert_true(count_bytes(&f, &n_reads) >= 4 * 24 * FLEET_SAMPLES);
    nd_comparison_destroy(&expected);
    nd_comparison_destroy(&actual);
    fleet_stop(&f);
}

/* Equal digests over unequal bytes. */
static void digest_that_hides_a_difference_is_found_when_verified(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 4);
    for (size_t e = FLEET_CONV; e < FLEET_TENSORS; e++)
        f.captures[2]->claimed[0][e] = f.captures[3]->claimed[0][e] = f.captures[0]->outputs[0][e];
    fleet_set_score(f.captures[2], 0, 1, 0.5f);
    fleet_set_qvalue(f.captures[3], 1, 3, 99);
    f.captures[3]->outputs[0][FLEET_CONV][24 * 3 + 5] ^= 1;
    f.captures[2]->outputs[0][FLEET_CONV][24 * 2 + 23] ^= 1;
    assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_SAME); /* taken at their word */
    f.options.verify_digests = true;
    for (size_t run = 0; run < 12; run++) {
        f.options.n_threads = 1 + run % 3;
        f.options.all_pairs = run / 3 % 2 == 1;
        assert_int_equal(fleet_run(&f), ND_ERR_FORMAT);
        assert_int_equal(f.err.id, ND_E_CAPTURE_DIGEST);
        if (strstr(f.err.message, "tensor 'conv', probe 'val', sample 2") == NULL ||
            strstr(f.err.message, "gen2") == NULL)
            fail_msg("%s", f.err.message);
        assert_null(f.comparison);
    }
    fleet_stop(&f);
}

/* What is read is held against its digest, also of samples that several layers read; what is not read is not.
 */
static void data_that_is_not_what_its_digest_was_made_of_is_an_error(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    fleet_start(&f, 4);
    add_big_tensor(&f, &seed);
    unsigned char *was = malloc((size_t)BIG_SAMPLES * BIG_ELEMS);
    assert_non_null(was);
    memcpy(was, f.captures[2]->large[0][BIG], (size_t)BIG_SAMPLES * BIG_ELEMS);
    f.captures[2]->claimed[0][BIG] = was;
    for (size_t run = 0; run < 12; run++) {
        f.options.n_threads = 1 + run % 4;
        f.options.trust_digests = run % 2 == 1;
        assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_DIFFERS);
        size_t at = BIG_ELEMS + below(&seed, BIG_ELEMS);
        f.captures[2]->large[0][BIG][at] ^= 4;
        if (f.options.trust_digests) {
            assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_DIFFERS);
        } else {
            assert_int_equal(fleet_run(&f), ND_ERR_FORMAT);
            assert_int_equal(f.err.id, ND_E_CAPTURE_DIGEST);
            if (strstr(f.err.message, "'gen2' is damaged: tensor 'big', probe 'val', sample 1") == NULL)
                fail_msg("byte %zu: %s", at, f.err.message);
        }
        f.captures[2]->large[0][BIG][at] ^= 4;
    }
    free(was);
    free_big(&f);
    fleet_stop(&f);
}

/* Other digests over equal bytes: always the lowest place is named. */
static void digests_that_differ_over_equal_data_name_the_lowest_place(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 4);
    f.captures[2]->lying[FLEET_LOGITS] = f.captures[3]->lying[FLEET_LOGITS] =
        f.captures[3]->lying[FLEET_SCORES] = true;
    f.options.trust_digests = true;
    fleet_set_qvalue(f.captures[2], 0, 2, 77); /* there the digests are right to differ */
    fleet_set_qvalue(f.captures[3], 0, 2, 78);
    for (size_t run = 0; run < 12; run++) {
        f.options.n_threads = 1 + run % 3;
        f.options.all_pairs = run / 3 % 2 == 1;
        f.captures[2]->chunk_bytes[FLEET_LOGITS] = f.captures[0]->chunk_bytes[FLEET_LOGITS] = run / 6 * 10;
        assert_int_equal(fleet_run(&f), ND_ERR_FORMAT);
        assert_int_equal(f.err.id, ND_E_CAPTURE_DIGEST);
        if (strstr(f.err.message, "tensor 'logits', probe 'val', sample 1") == NULL ||
            strstr(f.err.message, "gen2") == NULL)
            fail_msg("%s", f.err.message);
    }
    fleet_stop(&f);
}

static void big_digest_that_differs_over_equal_data_is_an_error(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    fleet_start(&f, 2);
    add_big_tensor(&f, &seed);
    memcpy(f.captures[1]->large[0][BIG], f.captures[0]->large[0][BIG], 2 * BIG_ELEMS);
    f.captures[1]->large[0][BIG][5] ^= 1; /* sample 0 really differs */
    f.captures[1]->lying[BIG] = true;
    f.options.trust_digests = true;
    for (size_t run = 0; run < 3; run++) {
        f.options.n_threads = 1 + run;
        assert_int_equal(fleet_run(&f), ND_ERR_FORMAT);
        assert_non_null(strstr(f.err.message, "tensor 'big', probe 'val', sample 1"));
    }
    free_big(&f);
    fleet_stop(&f);
}

static void capture_that_is_changed_meanwhile_is_an_error(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 3);
    f.captures[2]->is_changed = true;
    assert_int_equal(fleet_run(&f), ND_ERR_IO);
    assert_int_equal(f.err.id, ND_E_CAPTURE_CHANGED);
    fleet_stop(&f);
}

static void memory_that_cannot_suffice_is_an_error(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 3);
    f.captures[1]->outputs[0][FLEET_CONV][3] ^= 1;
    f.captures[1]->chunk_bytes[FLEET_CONV] = 64 << 20;
    f.options.memory_bytes = 100 << 20;
    assert_int_equal(fleet_run(&f), ND_ERR_MEMORY);
    assert_int_equal(f.err.id, ND_E_COMPARE_MEMORY);
    assert_non_null(strstr(f.err.message, "conv"));
    f.options.memory_bytes = 400 << 20;
    assert_int_equal(fleet_run(&f), ND_OK);
    f.options.memory_bytes = 0;
    f.options.cpu_cap = "sse9";
    assert_int_equal(fleet_run(&f), ND_ERR_USAGE);
    fleet_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_do_not_depend_on_how_they_were_made),
        cmocka_unit_test(results_of_big_tensors_do_not_depend_on_how_they_were_made),
        cmocka_unit_test(big_tensors_give_what_whole_samples_give),
        cmocka_unit_test(stuck_samples_are_seen_although_they_are_cut),
        cmocka_unit_test(samples_with_a_nan_are_not_stuck_although_they_are_cut),
        cmocka_unit_test(all_pairs_are_what_two_captures_alone_give),
        cmocka_unit_test(tensors_are_read_once_and_equal_ones_once_together),
        cmocka_unit_test(only_samples_that_differ_are_read),
        cmocka_unit_test(big_tensors_are_read_once),
        cmocka_unit_test(verified_digests_that_are_right_change_nothing),
        cmocka_unit_test(digest_that_hides_a_difference_is_found_when_verified),
        cmocka_unit_test(data_that_is_not_what_its_digest_was_made_of_is_an_error),
        cmocka_unit_test(digests_that_differ_over_equal_data_name_the_lowest_place),
        cmocka_unit_test(big_digest_that_differs_over_equal_data_is_an_error),
        cmocka_unit_test(capture_that_is_changed_meanwhile_is_an_error),
        cmocka_unit_test(memory_that_cannot_suffice_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
