/* How well the battery tells accumulators apart: tools/studies/score_accumulators. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/accumulator_zoo.h"

static const char *probe_name(enum nd_accumulator_probe probe)
{
    static const char *const names[] = {
        [ND_PROBE_ORDER] = "order",
        [ND_PROBE_WIDTH] = "width",
        [ND_PROBE_ROUNDING] = "rounding",
        [ND_PROBE_SUBNORMAL_INPUT] = "subnormal-input",
        [ND_PROBE_SUBNORMAL_SUM] = "subnormal-sum",
        [ND_PROBE_RANGE] = "range",
        [ND_PROBE_PRODUCT] = "product",
        [ND_PROBE_RANDOM] = "random",
    };
    return names[probe];
}

struct score {
    struct nd_accumulator items[ND_N_ZOO];
    size_t classes[ND_N_ZOO];
    struct nd_accumulator_battery battery;
    size_t n_right, n_unique, n_classes;
    size_t n_family_right, n_family_items, n_family_max, n_family_runs;
    size_t n_confirmed, n_refused, n_trees;
    double identify_s;
    int n_confirm_step; /* every so manieth is also looked for in the family, and confirmed */
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void check(enum nd_status status, const struct nd_error *err)
{
    if (status == ND_OK)
        return;
    fprintf(stderr, "score_accumulators: %s\n", err->message);
    exit(2);
}

static size_t class_size(const struct score *score, size_t i)
{
    size_t n = 0;
    for (size_t k = 0; k < ND_N_ZOO; k++)
        n += score->classes[k] == score->classes[i];
    return n;
}

/* Whether the set that was found is the class, no more and no less. */
static bool is_class(const struct score *score, size_t i, const struct nd_accumulator_findings *findings)
{
    char a[ND_ACCUMULATOR_NAME_BYTES], b[ND_ACCUMULATOR_NAME_BYTES];
    size_t at = 0;
    for (size_t k = 0; k < ND_N_ZOO; k++) {
        if (score->classes[k] != score->classes[i])
            continue;
        if (at == findings->n ||
            strcmp(nd_accumulator_name(&findings->items[at], a), nd_accumulator_name(&score->items[k], b)) != 0)
            return false;
        at++;
    }
    return at == findings->n;
}

static bool has_item(const struct nd_accumulator_findings *findings, const struct nd_accumulator *item)
{
    char a[ND_ACCUMULATOR_NAME_BYTES], b[ND_ACCUMULATOR_NAME_BYTES];
    nd_accumulator_name(item, a);
    for (size_t k = 0; k < findings->n; k++)
        if (strcmp(a, nd_accumulator_name(&findings->items[k], b)) == 0)
            return true;
    return false;
}

/* What the family leaves of one device; a true item may be listed there without flags that change nothing. */
static void score_family(struct score *score, size_t i, const float *const *outputs)
{
    struct nd_error err = {0};
    struct nd_accumulator_findings findings;
    struct nd_accumulator item = score->items[i];
    bool is_half_sum = item.sum == ND_SUM_F16 || item.product == ND_SUM_F16;
    item.is_flushing_sums = item.is_flushing_sums && is_half_sum;
    double start_s = now_s();
    check(nd_accumulator_identify(&score->battery, outputs, NULL, 0, &findings, &err), &err);
    score->identify_s += now_s() - start_s;
    bool has_truth = has_item(&findings, &item);
    check(nd_accumulator_confirm(&findings, zoo_device, &score->items[i], ND_CONFIRMING_VECTORS, 77 + i, &err),
          &err);
    has_truth = has_truth && has_item(&findings, &item);
    score->n_family_runs++;
    score->n_family_right += has_truth;
    score->n_family_items += findings.n;
    score->n_family_max = findings.n > score->n_family_max ? findings.n : score->n_family_max;
    score->n_confirmed += nd_accumulator_is_confirmed(&findings);
    /* A device that is another one from time to time must be refused. */
    nd_accumulator_findings_deinit(&findings);
}

static void score_item(struct score *score, size_t i)
{
    struct nd_error err = {0};
    char name[ND_ACCUMULATOR_NAME_BYTES];
    float *outputs[ND_BATTERY_BLOCKS];
    struct nd_accumulator_findings findings;
    zoo_run_battery(&score->battery, &score->items[i], outputs);
    const float *const borrowed[] = {outputs[0], outputs[1]};
    check(nd_accumulator_identify(&score->battery, borrowed, score->items, ND_N_ZOO, &findings, &err), &err);
    bool is_right = is_class(score, i, &findings);
    score->n_right += is_right;
    score->n_unique += class_size(score, i) == 1 && is_right;
    score->n_classes += score->classes[i] == i;
    if (findings.readings.has_tree) {
        struct nd_sum_tree tree;
        nd_sum_tree_of(&score->items[i].order, ND_BATTERY_TERMS, &tree);
        score->n_trees += nd_sum_tree_equal(&tree, &findings.readings.tree);
        if (!nd_sum_tree_equal(&tree, &findings.readings.tree))
            printf("  another tree was read: %s\n", nd_accumulator_name(&score->items[i], name));
    }
    if (!is_right)
        printf("  WRONG %s: %zu not excluded, %zu in its class\n", nd_accumulator_name(&score->items[i], name),
               findings.n, class_size(score, i));
    nd_accumulator_findings_deinit(&findings);
    if (score->n_confirm_step > 0 && i % (size_t)score->n_confirm_step == 0)
        score_family(score, i, borrowed);
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++)
        free(outputs[b]);
}

static void print_classes(const struct score *score)
{
    char name[ND_ACCUMULATOR_NAME_BYTES];
    for (size_t i = 0; i < ND_N_ZOO; i++) {
        if (score->classes[i] != i || class_size(score, i) == 1)
            continue;
        printf("  the same function, %zu:\n", class_size(score, i));
        for (size_t k = i; k < ND_N_ZOO; k++)
            if (score->classes[k] == i)
                printf("    %s\n", nd_accumulator_name(&score->items[k], name));
    }
}

/* Rows that only some probes have: how many of the 196 they alone single out. */
static void print_probes(const struct score *score)
{
    static uint64_t hashes[ND_N_ZOO];
    printf("unique by the rows of one kind, and by all up to it:\n");
    static uint64_t all[ND_N_ZOO];
    for (int probe = 0; probe < ND_N_ACCUMULATOR_PROBES; probe++) {
        size_t n_rows = 0, n_unique = 0, n_unique_all = 0;
        memset(hashes, 0, sizeof hashes);
        for (size_t i = 0; i < ND_N_ZOO; i++) {
            struct nd_sum_tree tree;
            nd_sum_tree_of(&score->items[i].order, ND_BATTERY_TERMS, &tree);
            for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++) {
                const struct nd_accumulator_block *block = &score->battery.blocks[b];
                int64_t w[ND_BATTERY_TERMS], x[ND_BATTERY_TERMS];
                zoo_factors(block->w, ND_BATTERY_TERMS, w);
                for (size_t r = 0; r < block->n_rows; r++) {
                    if (block->rows[r].probe != (enum nd_accumulator_probe)probe)
                        continue;
                    n_rows += i == 0;
                    zoo_factors(block->x + r * ND_BATTERY_TERMS, ND_BATTERY_TERMS, x);
                    float output = nd_accumulate_factors(&score->items[i], &tree, x, w);
                    hashes[i] = zoo_hash(hashes[i], output);
                    all[i] = zoo_hash(all[i], output);
                }
            }
        }
        for (size_t i = 0; i < ND_N_ZOO; i++) {
            size_t n = 0, n_all = 0;
            for (size_t k = 0; k < ND_N_ZOO; k++) {
                n += hashes[k] == hashes[i];
                n_all += all[k] == all[i];
            }
            n_unique += n == 1;
            n_unique_all += n_all == 1;
        }
        printf("  %-16s %5zu rows %4zu %4zu\n", probe_name((enum nd_accumulator_probe)probe), n_rows, n_unique,
               n_unique_all);
    }
}

int main(int argc, char **argv)
{
    static struct score score;
    struct nd_error err = {0};
    uint64_t n_blocks = argc > 1 ? strtoull(argv[1], NULL, 10) / ZOO_BLOCK_ROWS + 1 : 400;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 20261121;
    score.n_confirm_step = argc > 3 ? atoi(argv[3]) : 7;
    nd_accumulator_zoo(score.items);
    check(nd_accumulator_battery_init(&score.battery, &err), &err);
    double start_s = now_s();
    zoo_classes(score.items, ND_N_ZOO, seed, n_blocks, score.classes);
    printf("%d accumulators on %llu vectors (seed %llu) in %.1f s; battery of %zu outputs\n", ND_N_ZOO,
           (unsigned long long)n_blocks * ZOO_BLOCK_ROWS, (unsigned long long)seed, now_s() - start_s,
           score.battery.blocks[0].n_rows + score.battery.blocks[1].n_rows);
    for (size_t i = 0; i < ND_N_ZOO; i++)
        score_item(&score, i);
    printf("right class %zu of %d, unique %zu, classes %zu, trees read from P1 %zu\n", score.n_right, ND_N_ZOO,
           score.n_unique, score.n_classes, score.n_trees);
    print_classes(&score);
    print_probes(&score);
    if (score.n_family_runs > 0)
        printf("in the whole family, %zu devices: the true one in the set %zu, confirmed %zu, set of %.1f on "
               "average, %zu at "
               "most, %.1f s each\n",
               score.n_family_runs, score.n_family_right, score.n_confirmed,
               (double)score.n_family_items / (double)score.n_family_runs, score.n_family_max,
               score.identify_s / (double)score.n_family_runs);
    nd_accumulator_battery_deinit(&score.battery);
    return score.n_right == ND_N_ZOO && score.n_unique >= 170 && score.n_family_right == score.n_family_runs
               ? 0
               : 1;
}
