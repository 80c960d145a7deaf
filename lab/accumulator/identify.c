/* Which accumulators the outputs of the battery do not exclude, and whether that holds on random vectors. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "lab/accumulator/accumulator.h"
#include "lab/experiment/candidates.h"

enum { N_TERMS = ND_BATTERY_TERMS, NEAREST_ROWS = 96 };

bool nd_accumulator_is_same_output(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Rows of one or more blocks, as factors, with what the device gave for them. */
struct observations {
    int64_t *x;        /* [n, 32] */
    const int64_t **w; /* [n] */
    float *outputs;    /* [n] */
    size_t n;
    int64_t weights[ND_BATTERY_BLOCKS][N_TERMS];
};

static void observations_deinit(struct observations *seen)
{
    free(seen->x);
    free(seen->w);
    free(seen->outputs);
}

static enum nd_status observations_alloc(struct observations *seen, size_t n, struct nd_error *err)
{
    size_t n_factors;
    if (!nd_size_mul(n, N_TERMS, &n_factors))
        return nd_fail_memory(err);
    seen->x = nd_calloc(n_factors, sizeof *seen->x);
    seen->w = nd_calloc(n, sizeof *seen->w);
    seen->outputs = nd_calloc(n, sizeof *seen->outputs);
    return seen->x == NULL || seen->w == NULL || seen->outputs == NULL ? nd_fail_memory(err) : ND_OK;
}

static void take_factors(const float *values, int64_t *out)
{
    bool is_half = nd_accumulator_factors(values, N_TERMS, out);
    assert(is_half);
    (void)is_half;
}

static size_t common_divisor(size_t a, size_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* All rows of the battery, mixed: the first few already show most of what there is. */
static enum nd_status observe(const struct nd_accumulator_battery *battery, const float *const *outputs,
                              struct observations *seen, struct nd_error *err)
{
    size_t n = 0, stride = 2741, at = 0;
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++)
        n += battery->blocks[b].n_rows;
    enum nd_status status = observations_alloc(seen, n, err);
    if (status != ND_OK)
        return status;
    while (common_divisor(stride, n) != 1)
        stride++;
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++) {
        take_factors(battery->blocks[b].w, seen->weights[b]);
        for (size_t r = 0; r < battery->blocks[b].n_rows; r++) {
            take_factors(battery->blocks[b].x + r * N_TERMS, seen->x + at * N_TERMS);
            seen->w[at] = seen->weights[b];
            seen->outputs[at] = outputs[b][r];
            at = (at + stride) % n;
        }
    }
    seen->n = n;
    return ND_OK;
}

/* The tree of an accumulator; false: it needs one that was not read. */
static bool tree_of(const struct nd_accumulator *item, const struct nd_accumulator_readings *readings,
                    struct nd_sum_tree *out)
{
    if (item->order.kind != ND_SUM_GIVEN) {
        nd_sum_tree_of(&item->order, N_TERMS, out);
        return true;
    }
    if (readings->has_tree)
        *out = readings->tree;
    return readings->has_tree;
}

/* How many outputs the accumulator gives; counting ends once it misses more than n_allowed. */
static size_t count_matches(const struct nd_accumulator *item, const struct nd_accumulator_readings *readings,
                            const struct observations *seen, size_t n_allowed)
{
    struct nd_sum_tree tree;
    size_t n_missed = 0;
    if (!tree_of(item, readings, &tree))
        return 0;
    for (size_t i = 0; i < seen->n; i++) {
        float output = nd_accumulate_factors(item, &tree, seen->x + i * N_TERMS, seen->w[i]);
        if (nd_accumulator_is_same_output(output, seen->outputs[i]))
            continue;
        if (n_missed++ == n_allowed)
            return 0;
    }
    return seen->n - n_missed;
}

/* Keeps in order those that give all outputs. */
static enum nd_status sift(struct nd_accumulator_findings *findings, const struct nd_accumulator *hypotheses,
                           size_t n_hypotheses, const struct observations *seen, struct nd_error *err)
{
    struct nd_candidates candidates = {.arithmetics = (void **)&findings->items,
                                       .n_arithmetics = &findings->n,
                                       .arithmetic_bytes = sizeof *findings->items};
    findings->n_hypotheses = n_hypotheses;
    for (size_t i = 0; i < n_hypotheses; i++)
        if (count_matches(&hypotheses[i], &findings->readings, seen, 0) == seen->n)
            nd_candidates_keep(&candidates, &hypotheses[i]);
    return nd_candidates_end(&candidates, err);
}

/* Which one gives most of the first outputs, which are of all kinds; how many of all it gives. */
static void find_nearest(struct nd_accumulator_findings *findings, const struct nd_accumulator *hypotheses,
                         size_t n_hypotheses, const struct observations *seen)
{
    struct observations few = *seen;
    size_t n_max = 0;
    few.n = seen->n < NEAREST_ROWS ? seen->n : NEAREST_ROWS;
    for (size_t i = 0; i < n_hypotheses; i++) {
        size_t n_matching = count_matches(&hypotheses[i], &findings->readings, &few, few.n - n_max);
        if (n_matching > n_max) {
            findings->nearest = hypotheses[i];
            n_max = n_matching;
        }
    }
    if (n_max > 0)
        findings->n_nearest = count_matches(&findings->nearest, &findings->readings, seen, seen->n);
}

/* Outputs that all are one unit up are taken back to what they were; else a copy. */
static enum nd_status convert(const struct nd_accumulator_battery *battery, const float *const *outputs,
                              float *converted[ND_BATTERY_BLOCKS], bool *is_one_up, struct nd_error *err)
{
    *is_one_up = true;
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++) {
        size_t n = battery->blocks[b].n_rows;
        converted[b] = nd_calloc(n, sizeof *converted[b]);
        if (converted[b] == NULL)
            return nd_fail_memory(err);
        *is_one_up = *is_one_up && nd_accumulator_undo_one_up(outputs[b], n, converted[b]);
    }
    for (size_t b = 0; b < ND_BATTERY_BLOCKS && !*is_one_up; b++)
        memcpy(converted[b], outputs[b], battery->blocks[b].n_rows * sizeof *converted[b]);
    return ND_OK;
}

static bool is_named_tree(const struct nd_accumulator *items, size_t n, const struct nd_sum_tree *tree)
{
    for (size_t i = 0; i < n; i++) {
        struct nd_sum_tree other;
        if (i > 0 && items[i].order.kind == items[i - 1].order.kind &&
            items[i].order.width == items[i - 1].order.width)
            continue;
        nd_sum_tree_of(&items[i].order, N_TERMS, &other);
        if (nd_sum_tree_equal(tree, &other))
            return true;
    }
    return false;
}

/* The family; behind it, once more with the tree that was read, unless a named order has that. */
static enum nd_status make_family(const struct nd_accumulator_readings *readings, struct nd_accumulator **items,
                                  size_t *n, struct nd_error *err)
{
    enum nd_status status = nd_accumulator_family(items, n, err);
    if (status != ND_OK || !readings->has_tree || is_named_tree(*items, *n, &readings->tree))
        return status;
    size_t n_named = *n, capacity = n_named;
    for (size_t i = 0; i < n_named; i++) {
        if ((*items)[i].order.kind != ND_SUM_SEQUENTIAL || (*items)[i].sum == ND_SUM_EXACT)
            continue;
        if (!nd_grow((void **)items, &capacity, *n + 1, sizeof **items)) {
            free(*items);
            return nd_fail_memory(err);
        }
        (*items)[*n] = (*items)[i];
        (*items)[(*n)++].order = (struct nd_sum_order){.kind = ND_SUM_GIVEN};
    }
    return ND_OK;
}

enum nd_status nd_accumulator_identify(const struct nd_accumulator_battery *battery,
                                       const float *const *outputs, const struct nd_accumulator *hypotheses,
                                       size_t n_hypotheses, struct nd_accumulator_findings *out,
                                       struct nd_error *err)
{
    struct nd_accumulator_findings findings = {0};
    struct observations seen = {0};
    struct nd_accumulator *family = NULL;
    float *converted[ND_BATTERY_BLOCKS] = {NULL};
    bool is_one_up = false;
    enum nd_status status = convert(battery, outputs, converted, &is_one_up, err);
    const float *const borrowed[ND_BATTERY_BLOCKS] = {converted[0], converted[1]};
    if (status == ND_OK)
        status = observe(battery, borrowed, &seen, err);
    if (status == ND_OK) {
        nd_accumulator_read(battery, borrowed, &findings.readings);
        findings.readings.is_one_up = is_one_up;
    }
    if (status == ND_OK && hypotheses == NULL) {
        status = make_family(&findings.readings, &family, &n_hypotheses, err);
        hypotheses = family;
    }
    if (status == ND_OK)
        status = sift(&findings, hypotheses, n_hypotheses, &seen, err);
    if (status == ND_OK && findings.n == 0)
        find_nearest(&findings, hypotheses, n_hypotheses, &seen);
    findings.n_outputs = seen.n;
    if (status == ND_OK)
        *out = findings;
    else
        nd_accumulator_findings_deinit(&findings);
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++)
        free(converted[b]);
    free(family);
    observations_deinit(&seen);
    return status;
}

void nd_accumulator_findings_deinit(struct nd_accumulator_findings *findings)
{
    free(findings->items);
    *findings = (struct nd_accumulator_findings){0};
}

/* One block of random vectors. */
static enum nd_status confirm_block(struct nd_accumulator_findings *findings, const struct observations *seen,
                                    bool *is_missed, struct nd_error *err)
{
    bool *is_kept = nd_calloc(findings->n, sizeof *is_kept);
    size_t n_kept = 0;
    if (is_kept == NULL)
        return nd_fail_memory(err);
    memset(is_missed, 1, seen->n * sizeof *is_missed);
    for (size_t k = 0; k < findings->n; k++) {
        struct nd_sum_tree tree;
        is_kept[k] = tree_of(&findings->items[k], &findings->readings, &tree);
        for (size_t i = 0; i < seen->n; i++) {
            float output = nd_accumulate_factors(&findings->items[k], &tree, seen->x + i * N_TERMS, seen->w[i]);
            bool is_same = nd_accumulator_is_same_output(output, seen->outputs[i]);
            is_kept[k] &= is_same;
            is_missed[i] &= !is_same;
        }
        n_kept += is_kept[k];
    }
    if (n_kept > 0) {
        size_t n = 0;
        for (size_t k = 0; k < findings->n; k++)
            if (is_kept[k])
                findings->items[n++] = findings->items[k];
        findings->n = n;
    }
    for (size_t i = 0; i < seen->n; i++) {
        findings->n_confirmed += !is_missed[i];
        findings->n_failed += is_missed[i];
    }
    /* Each was given by one of them, but all by none. */
    if (n_kept == 0)
        findings->n_failed += findings->n_failed == 0;
    free(is_kept);
    return ND_OK;
}

/* What is not one unit up stays as it is, and is found to differ: it is no half precision number. */
static void undo_each(float *outputs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float undone;
        if (nd_accumulator_undo_one_up(&outputs[i], 1, &undone))
            outputs[i] = undone;
    }
}

enum nd_status nd_accumulator_confirm(struct nd_accumulator_findings *findings, nd_accumulator_device *device,
                                      void *context, uint64_t n_vectors, uint64_t seed, struct nd_error *err)
{
    struct observations seen = {.n = ND_CONFIRMING_BLOCK};
    float w[N_TERMS];
    enum nd_status status = observations_alloc(&seen, ND_CONFIRMING_BLOCK, err);
    float *x = nd_calloc((size_t)ND_CONFIRMING_BLOCK * N_TERMS, sizeof *x);
    bool *is_missed = nd_calloc(ND_CONFIRMING_BLOCK, sizeof *is_missed);
    if (status == ND_OK && (x == NULL || is_missed == NULL))
        status = nd_fail_memory(err);
    for (uint64_t done = 0, block = 0; status == ND_OK && findings->n > 0 && done < n_vectors;
         done += ND_CONFIRMING_BLOCK, block++) {
        nd_accumulator_random_weights(seed, block, w);
        nd_accumulator_random_rows(seed, block, ND_CONFIRMING_BLOCK, x);
        status = device(context, w, x, ND_CONFIRMING_BLOCK, seen.outputs, err);
        if (status != ND_OK)
            break;
        if (findings->readings.is_one_up)
            undo_each(seen.outputs, ND_CONFIRMING_BLOCK);
        take_factors(w, seen.weights[0]);
        for (size_t i = 0; i < ND_CONFIRMING_BLOCK; i++) {
            take_factors(x + i * N_TERMS, seen.x + i * N_TERMS);
            seen.w[i] = seen.weights[0];
        }
        status = confirm_block(findings, &seen, is_missed, err);
    }
    free(is_missed);
    free(x);
    observations_deinit(&seen);
    return status;
}

bool nd_accumulator_is_confirmed(const struct nd_accumulator_findings *findings)
{
    return findings->n > 0 && findings->n_failed == 0 && findings->n_confirmed >= ND_CONFIRMING_VECTORS;
}
