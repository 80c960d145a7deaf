/* Comparing the fleet of support/fake_fleet.h. Include after support/main.h, in one file of a binary. */
#ifndef ND_TESTS_FLEET_COMPARE_H
#define ND_TESTS_FLEET_COMPARE_H

#include "core/error.h"
#include "npudiff/compare/compare.h"
#include "support/fake_fleet.h"
#include "support/pair_check.h"

enum { N_MAX = 6 };

struct fleet {
    struct nd_capture *captures[N_MAX];
    size_t n;
    struct nd_comparison *comparison;
    struct nd_compare_options options;
    struct nd_error err;
};

static inline void fleet_start(struct fleet *fleet, size_t n)
{
    static const char *const labels[N_MAX] = {"cpu", "gen1", "gen2", "gen3", "gen4", "gen5"};
    *fleet = (struct fleet){.n = n, .options = {.struct_size = sizeof fleet->options}};
    for (size_t i = 0; i < n; i++)
        fleet->captures[i] = fleet_make(labels[i], i == 0 ? "" : "SM8450");
}

static inline enum nd_status fleet_run(struct fleet *fleet)
{
    nd_comparison_destroy(&fleet->comparison);
    return nd_compare_captures((const struct nd_capture *const *)fleet->captures, fleet->n, &fleet->options,
                               &fleet->comparison, &fleet->err);
}

static inline const struct nd_comparison *fleet_compare(struct fleet *fleet)
{
    if (fleet_run(fleet) != ND_OK)
        fail_msg("%s", fleet->err.message);
    return fleet->comparison;
}

static inline void fleet_stop(struct fleet *fleet)
{
    nd_comparison_destroy(&fleet->comparison);
    for (size_t i = 0; i < fleet->n; i++)
        nd_capture_close(&fleet->captures[i]);
}

static inline const struct nd_compared_part *total_of(const struct nd_comparison *c, size_t tensor, size_t test)
{
    return &c->tensors[tensor].pairs[test - 1].total;
}

/* Everything that was found about a pair, to the bit. */
static inline void assert_same_pair(const struct nd_compared_pair *a, const struct nd_compared_pair *b,
                                    size_t n_probes)
{
    assert_int_equal(a->verdict, b->verdict);
    assert_int_equal(a->within_noise, b->within_noise);
    assert_int_equal(a->total.coverage, b->total.coverage);
    assert_same_difference(&a->total.difference, &b->total.difference);
    for (size_t p = 0; p < n_probes; p++)
        assert_same_difference(&a->probes[p].difference, &b->probes[p].difference);
    assert_int_equal(a->n_channels, b->n_channels);
    for (size_t i = 0; i < a->n_channels; i++)
        assert_same_difference(&a->channels[i], &b->channels[i]);
}

static inline void assert_same_top1(const struct nd_top1 *a, const struct nd_top1 *b, size_t n_devices)
{
    assert_int_equal(a->tensor, b->tensor);
    assert_int_equal(a->probe, b->probe);
    assert_int_equal(a->has_labels, b->has_labels);
    for (size_t i = 0; i < n_devices; i++) {
        assert_int_equal(a->devices[i].exists, b->devices[i].exists);
        assert_int_equal(a->devices[i].n_samples, b->devices[i].n_samples);
        assert_int_equal(a->devices[i].n_invalid, b->devices[i].n_invalid);
        assert_int_equal(a->devices[i].n_correct, b->devices[i].n_correct);
    }
    for (size_t i = 0; i + 1 < n_devices; i++) {
        assert_int_equal(a->pairs[i].n_agree, b->pairs[i].n_agree);
        assert_int_equal(a->pairs[i].n_lost, b->pairs[i].n_lost);
        assert_int_equal(a->pairs[i].n_gained, b->pairs[i].n_gained);
        assert_f64_bits(a->pairs[i].p_value, b->pairs[i].p_value);
    }
}

static inline void assert_same_comparison(const struct nd_comparison *a, const struct nd_comparison *b)
{
    assert_int_equal(a->verdict, b->verdict);
    assert_string_equal(a->classes_text, b->classes_text);
    assert_string_equal(a->output_classes_text, b->output_classes_text);
    assert_int_equal(a->n_tensors, b->n_tensors);
    assert_int_equal(a->n_pairs, b->n_pairs);
    assert_int_equal(a->n_top1, b->n_top1);
    assert_int_equal(a->first_tensor, b->first_tensor);
    assert_int_equal(a->odd_one_out, b->odd_one_out);
    for (size_t e = 0; e < a->n_tensors; e++)
        for (size_t p = 0; p < a->n_pairs; p++)
            assert_same_pair(&a->tensors[e].pairs[p], &b->tensors[e].pairs[p], a->n_probes);
    for (size_t i = 0; i < a->n_top1; i++)
        assert_same_top1(&a->top1[i], &b->top1[i], a->n_devices);
}

#endif
