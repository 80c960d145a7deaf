/* Where differing elements are: patterns, runs, strides, coordinates, exchanged axes. */
#include "support/main.h"

#include "compare/metrics/layout.h"
#include "compare/metrics/states.h"
#include "support/pair_check.h"

enum { N = 4000, MAX_SAMPLES = 3 };

/* is_set[sample][i]: the element differs. */
static struct nd_difference compare_masks(const struct nd_shape *shape, size_t n_samples, size_t n_elems,
                                          bool (*is_set)[N])
{
    static uint8_t ref[N], test[N];
    struct nd_tensor tensor = tensor_of(ND_DTYPE_U8, 0);
    tensor.shape = *shape;
    struct nd_pair_context context = context_of(&tensor, &tensor, NULL);
    struct nd_pair_state *state = nd_pair_state_create(&context, NULL);
    struct nd_difference d;
    context.n_worst = 0;
    for (size_t s = 0; s < n_samples; s++) {
        for (size_t i = 0; i < n_elems; i++)
            test[i] = is_set[s][i];
        assert_int_equal(
            nd_sample_compare(state, &context, do_bytes_differ(&context, ref, test), ref, test, 0, s, NULL),
            ND_OK);
    }
    assert_int_equal(nd_pair_state_finish(state, &context, &d, NULL), ND_OK);
    nd_pair_state_destroy(&state);
    free(d.worst);
    return d;
}

static bool mask[MAX_SAMPLES][N];

static enum nd_pattern pattern_of(const struct nd_shape *shape, size_t n_samples)
{
    size_t n_elems;
    assert_int_equal(nd_shape_n_elems(shape, &n_elems, NULL), ND_OK);
    return compare_masks(shape, n_samples, n_elems, mask).structure.pattern;
}

static void patterns_are_told_apart(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    const struct nd_shape line = {.rank = 1, .dims = {3000}};
    memset(mask, 0, sizeof mask);
    assert_int_equal(pattern_of(&line, 1), ND_PATTERN_NONE);
    mask[0][2999] = mask[1][2999] = true;
    assert_int_equal(pattern_of(&line, 2), ND_PATTERN_ONE_ELEMENT);
    memset(mask, 0, sizeof mask);
    for (size_t i = 1000; i < 1100; i++)
        mask[0][i] = mask[1][i] = true;
    assert_int_equal(pattern_of(&line, 1), ND_PATTERN_RANGE);
    assert_int_equal(pattern_of(&line, 2), ND_PATTERN_RANGE);
    mask[1][1050] = false;
    assert_int_equal(pattern_of(&line, 2), ND_PATTERN_SCATTERED);
    memset(mask, 1, sizeof mask);
    assert_int_equal(pattern_of(&line, 1), ND_PATTERN_EVERYWHERE);
    mask[0][0] = false;
    assert_int_equal(pattern_of(&line, 1), ND_PATTERN_RANGE); /* not the whole tensor */
    memset(mask, 0, sizeof mask);
    for (size_t i = 5; i < 3000; i += 7)
        mask[0][i] = below(&seed, 3) > 0 || i < 30;
    assert_int_equal(pattern_of(&line, 1), ND_PATTERN_STRIDE);
    for (size_t k = 0; k < 12; k++) {
        memset(mask, 0, sizeof mask);
        for (size_t i = (size_t)1 << k; i < 3000; i++)
            mask[0][i] = below(&seed, 4) == 0 || i == (size_t)1 << k || i == ((size_t)1 << k) + 1 || i == 2999;
        assert_int_equal(pattern_of(&line, 1), k < 4 ? ND_PATTERN_SCATTERED : ND_PATTERN_FROM_POWER_OF_TWO);
    }
    for (size_t i = 2812; i < 3000; i++)
        mask[0][i] = false; /* the last 1/16 begins at 2813 */
    assert_int_equal(pattern_of(&line, 1), ND_PATTERN_SCATTERED);
    for (size_t i = 0; i < 3000; i++)
        mask[0][i] = i < 2 || i == 2999 || below(&seed, 3) > 0;
    assert_int_equal(pattern_of(&line, 1), ND_PATTERN_EVERYWHERE);
    assert_string_equal(nd_pattern_name(ND_PATTERN_FROM_POWER_OF_TWO), "from 2^k on");
}

static void pattern_of_one_coordinate_names_the_dimension(void **state)
{
    (void)state;
    const struct nd_shape shape = {.rank = 4, .dims = {1, 4, 5, 6}};
    for (int axis = 1; axis < 4; axis++) {
        size_t inner = axis == 1 ? 30 : axis == 2 ? 6 : 1, dim = (size_t)shape.dims[axis];
        for (size_t at = 0; at < dim; at++) {
            for (size_t i = 0; i < 120; i++)
                mask[0][i] = i / inner % dim == at;
            struct nd_difference d = compare_masks(&shape, 1, 120, mask);
            assert_int_equal(d.structure.pattern, ND_PATTERN_ONE_COORDINATE);
            assert_int_equal(d.structure.axis, axis);
            assert_int_equal(d.structure.axes[axis].n, 1);
            assert_int_equal(d.structure.axes[axis].first, at);
            assert_int_equal(d.structure.axes[axis].last, at);
            assert_int_equal(d.structure.axes[axis % 3 + 1].n, shape.dims[axis % 3 + 1]);
        }
    }
}

static uint64_t divisor_of(uint64_t a, uint64_t b)
{
    return b == 0 ? a : divisor_of(b, a % b);
}

/* Everything again, by looking at every element. */
static void check_against_plain_loops(const struct nd_structure *s, const struct nd_shape *shape,
                                      size_t n_samples, size_t n_elems)
{
    size_t first = SIZE_MAX, last = 0, n_runs = 0, longest = 0;
    uint64_t stride = 0;
    for (size_t k = 0; k < n_samples; k++)
        for (size_t i = 0, run = 0; i < n_elems; i++) {
            run = !mask[k][i] ? 0 : i % 1024 == 0 ? 1 : run + 1;
            n_runs += run == 1;
            longest = run > longest ? run : longest;
            if (!mask[k][i])
                continue;
            first = i < first ? i : first;
            last = i > last ? i : last;
        }
    for (size_t k = 0; k < n_samples; k++)
        for (size_t i = 0; i < n_elems; i++)
            stride = mask[k][i] ? divisor_of(i - first, stride) : stride;
    assert_int_equal(s->first_index, first);
    assert_int_equal(s->last_index, last);
    assert_int_equal(s->stride, stride);
    assert_int_equal(s->n_runs, n_runs);
    assert_int_equal(s->longest_run, longest);
    for (int axis = 0; axis < shape->rank; axis++) {
        bool seen[N] = {false};
        size_t n = 0, low = SIZE_MAX, high = 0, inner = 1;
        for (int i = axis + 1; i < shape->rank; i++)
            inner *= (size_t)shape->dims[i];
        for (size_t k = 0; k < n_samples; k++)
            for (size_t i = 0; i < n_elems; i++) {
                size_t at = i / inner % (size_t)shape->dims[axis];
                if (!mask[k][i])
                    continue;
                n += !seen[at];
                seen[at] = true;
                low = at < low ? at : low;
                high = at > high ? at : high;
            }
        assert_true(s->axes[axis].is_known);
        assert_int_equal(s->axes[axis].n, n);
        assert_int_equal(s->axes[axis].first, low);
        assert_int_equal(s->axes[axis].last, high);
    }
}

static void structure_is_that_of_plain_loops(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (size_t run = 0; run < 150; run++) {
        struct nd_shape shape = {.rank = (int)below(&seed, 5)};
        size_t n_elems = 1, n_samples = 1 + below(&seed, MAX_SAMPLES), n_set = 0;
        for (int i = 0; i < shape.rank; i++) {
            shape.dims[i] = 1 + (int64_t)below(&seed, i == 0 ? 30 : 7);
            n_elems *= (size_t)shape.dims[i];
        }
        if (n_elems > N)
            continue;
        size_t one_in = 1 + below(&seed, 60), step = 1 + below(&seed, 5);
        for (size_t k = 0; k < n_samples; k++)
            for (size_t i = 0; i < N; i++)
                n_set += mask[k][i] = i < n_elems && i % step == 0 && below(&seed, one_in) == 0;
        if (n_set == 0)
            continue;
        struct nd_difference d = compare_masks(&shape, n_samples, n_elems, mask);
        check_against_plain_loops(&d.structure, &shape, n_samples, n_elems);
    }
}

static void coordinates_of_long_dimensions_are_not_counted(void **state)
{
    (void)state;
    static uint8_t ref[65537], test[65537];
    struct nd_tensor tensor = tensor_of(ND_DTYPE_U8, 65537);
    struct nd_pair_context context = context_of(&tensor, &tensor, NULL);
    test[65536] = test[17] = 1;
    struct nd_difference d = compare_pair(&context, ref, test);
    assert_false(d.structure.axes[0].is_known);
    assert_int_equal(d.structure.pattern, ND_PATTERN_STRIDE);
    assert_int_equal(d.structure.stride, 65519);
    free(d.worst);
    tensor = tensor_of(ND_DTYPE_U8, 65536);
    context = context_of(&tensor, &tensor, NULL);
    d = compare_pair(&context, ref, test);
    assert_true(d.structure.axes[0].is_known && d.structure.axes[0].first == 17);
    free(d.worst);
}

/* Permutations. */

/* test's dimension i runs over ref's dimension p[i]. */
static void transpose(const struct nd_shape *shape, const int *p, size_t elem_bytes, const unsigned char *ref,
                      unsigned char *test)
{
    size_t strides[ND_MAX_RANK], n = 1, at[ND_MAX_RANK] = {0};
    for (int i = shape->rank - 1; i >= 0; i--) {
        strides[i] = n;
        n *= (size_t)shape->dims[i];
    }
    for (size_t k = 0; k < n; k++) {
        size_t offset = 0;
        for (int i = 0; i < shape->rank; i++)
            offset += at[i] * strides[p[i]];
        memcpy(test + k * elem_bytes, ref + offset * elem_bytes, elem_bytes);
        for (int i = shape->rank - 1; i >= 0; i--) {
            if (++at[i] < (size_t)shape->dims[p[i]])
                break;
            at[i] = 0;
        }
    }
}

static void check_all_permutations(const struct nd_shape *shape, uint64_t n_permutations, size_t elem_bytes,
                                   uint64_t *seed)
{
    static unsigned char ref[8 * N], test[8 * N];
    for (size_t i = 0; i < sizeof ref; i++)
        ref[i] = (unsigned char)next_random(seed);
    int previous[ND_MAX_RANK] = {0};
    for (uint64_t number = 0; number < n_permutations; number++) {
        int p[ND_MAX_RANK] = {0};
        bool is_used[ND_MAX_RANK] = {false};
        nd_permutation_describe(shape, number, p);
        for (int i = 0; i < shape->rank; i++) {
            assert_true(p[i] >= 0 && p[i] < shape->rank && !is_used[p[i]]);
            is_used[p[i]] = true;
            assert_true(number > 0 || p[i] == i);
            assert_true(shape->dims[i] > 1 || p[i] == i);
        }
        int order = 0; /* lexicographic */
        for (int i = 0; i < shape->rank && order == 0; i++)
            order = p[i] - previous[i];
        assert_true(number == 0 || order > 0);
        memcpy(previous, p, sizeof p);
        transpose(shape, p, elem_bytes, ref, test);
        assert_int_equal(nd_permutation_find(shape, elem_bytes, ref, test), number);
        test[0] ^= 1;
        assert_int_equal(nd_permutation_find(shape, elem_bytes, ref, test), 0);
    }
}

static void permutations_are_found_by_their_number(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    check_all_permutations(&(struct nd_shape){.rank = 2, .dims = {7, 30}}, 2, 2, &seed);
    check_all_permutations(&(struct nd_shape){.rank = 3, .dims = {8, 9, 10}}, 6, 1, &seed);
    check_all_permutations(&(struct nd_shape){.rank = 3, .dims = {6, 6, 6}}, 6, 4, &seed);
    check_all_permutations(&(struct nd_shape){.rank = 4, .dims = {1, 5, 4, 6}}, 6, 8, &seed);
    check_all_permutations(&(struct nd_shape){.rank = 4, .dims = {3, 5, 4, 6}}, 24, 4, &seed);
    check_all_permutations(&(struct nd_shape){.rank = 6, .dims = {4, 1, 5, 3, 1, 2}}, 24, 2, &seed);
    check_all_permutations(&(struct nd_shape){.rank = 6, .dims = {2, 3, 2, 3, 4, 2}}, 720, 4, &seed);
    unsigned char bytes[128] = {0}, other[128] = {1};
    const struct nd_shape many = {.rank = 7, .dims = {2, 2, 2, 2, 2, 2, 2}};
    assert_int_equal(nd_permutation_find(&many, 1, bytes, other), 0);
}

/* Numbers that parts may hold, but no permutation has. */
static void permutation_of_an_impossible_number_is_the_identity(void **state)
{
    (void)state;
    const struct nd_shape shape = {.rank = 3, .dims = {2, 3, 4}};
    static const uint64_t numbers[] = {6, 7, 1000, UINT64_MAX};
    for (size_t k = 0; k < 4; k++) {
        int p[ND_MAX_RANK] = {9, 9, 9};
        nd_permutation_describe(&shape, numbers[k], p);
        assert_true(p[0] == 0 && p[1] == 1 && p[2] == 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_are_told_apart),
        cmocka_unit_test(pattern_of_one_coordinate_names_the_dimension),
        cmocka_unit_test(structure_is_that_of_plain_loops),
        cmocka_unit_test(coordinates_of_long_dimensions_are_not_counted),
        cmocka_unit_test(permutations_are_found_by_their_number),
        cmocka_unit_test(permutation_of_an_impossible_number_is_the_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
