/* The rows of the battery: accumulator.h lists them. */
#include "lab/accumulator/accumulator.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

enum { N_TERMS = ND_BATTERY_TERMS, N_PLACES = 6, N_RANDOM_ROWS = 72, BATTERY_SEED = 8 };

static const uint8_t places[N_PLACES] = {0, 1, 5, 15, 16, 31};
static const float big = 0x1p15F, tiny = 0x1p-14F;

/* A block under construction; once memory is out, rows go nowhere. */
struct builder {
    struct nd_accumulator_block *block;
    float nowhere[N_TERMS];
    bool failed;
};

/* The terms of a new row, all `fill`. */
static float *add_row(struct builder *builder, const struct nd_accumulator_row *row, float fill)
{
    struct nd_accumulator_block *block = builder->block;
    size_t n = block->n_rows;
    float *x = builder->nowhere;
    builder->failed |= !nd_grow((void **)&block->x, &block->capacity_x, (n + 1) * N_TERMS, sizeof *block->x) ||
                       !nd_grow((void **)&block->rows, &block->capacity_rows, n + 1, sizeof *block->rows);
    if (!builder->failed) {
        block->rows[n] = *row;
        x = block->x + n * N_TERMS;
        block->n_rows++;
    }
    for (size_t i = 0; i < N_TERMS; i++)
        x[i] = fill;
    return x;
}

/* A row that is zero but for some terms. */
static void add_terms(struct builder *builder, enum nd_accumulator_probe probe, const uint8_t *positions,
                      const float *values, size_t n)
{
    const struct nd_accumulator_row row = {.probe = probe};
    float *x = add_row(builder, &row, 0);
    for (size_t i = 0; i < n; i++)
        x[positions[i]] = values[i];
}

static void add_order(struct builder *builder)
{
    for (uint8_t i = 0; i < N_TERMS; i++)
        for (uint8_t j = 0; j < N_TERMS; j++) {
            const struct nd_accumulator_row row = {.probe = ND_PROBE_ORDER, .positions = {i, j}};
            if (i == j)
                continue;
            float *x = add_row(builder, &row, tiny);
            x[i] = big;
            x[j] = -big;
        }
}

static void add_widths(struct builder *builder, const uint8_t triple[3])
{
    for (uint8_t e = 6; e <= 26; e++) {
        struct nd_accumulator_row row = {.probe = ND_PROBE_WIDTH, .exponent = e};
        memcpy(row.positions, triple, sizeof row.positions);
        float *x = add_row(builder, &row, 0);
        x[triple[0]] = big;
        x[triple[1]] = ldexpf(big, -e);
        x[triple[2]] = -big;
    }
}

static void add_roundings(struct builder *builder, const uint8_t triple[3])
{
    static const int widths[] = {7, 10, 13, 23};
    static const float shares[] = {0.75F, 1.5F, -0.5F, -0.75F, -1.5F};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t k = 0; k < sizeof shares / sizeof *shares; k++) {
            const float values[] = {big, ldexpf(shares[k] * big, -widths[i]), -big};
            add_terms(builder, ND_PROBE_ROUNDING, triple, values, 3);
        }
}

static void add_triples(struct builder *builder, void (*add)(struct builder *, const uint8_t[3]))
{
    for (int i = 0; i < N_PLACES; i++)
        for (int j = 0; j < N_PLACES; j++)
            for (int k = 0; k < N_PLACES; k++) {
                const uint8_t triple[] = {places[i], places[j], places[k]};
                if (i != j && j != k && i != k)
                    add(builder, triple);
            }
}

/* All orders of four places: the sum is odd in its last bit where the tie comes. */
static void add_odd_ties(struct builder *builder)
{
    static const int widths[] = {7, 10, 13, 23};
    static const uint8_t four[] = {0, 5, 16, 31};
    for (int order = 0; order < 4 * 4 * 4; order++) {
        int a = order & 3, b = order >> 2 & 3, c = order >> 4, d = 6 - a - b - c;
        if (a == b || b == c || a == c)
            continue;
        const uint8_t positions[] = {four[a], four[b], four[c], four[d]};
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
            for (int sign = -1; sign <= 1; sign += 2) {
                float last = ldexpf(big, -widths[i]);
                const float values[] = {big, last, (float)sign * last / 2, -big};
                add_terms(builder, ND_PROBE_ROUNDING, positions, values, 4);
            }
    }
}

/* A tie of half precision, and next to it: what rounds twice takes some for the tie. */
static void add_double_ties(struct builder *builder)
{
    static const int gaps[] = {9, 13, 14, 15, 16, 24, 25, 26};
    static const uint8_t positions[] = {0, 1, 2};
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++)
        for (int is_odd = 0; is_odd < 2; is_odd++)
            for (int sign = -1; sign <= 1; sign += 2) {
                const float values[] = {0x1p12F + (is_odd ? 4 : 0), 2, (float)sign * ldexpf(0x1p12F, -gaps[g])};
                add_terms(builder, ND_PROBE_ROUNDING, positions, values, 3);
            }
}

static void add_ranges(struct builder *builder, const uint8_t triple[3])
{
    const float values[] = {big, big, -big};
    if (triple[0] < triple[1])
        add_terms(builder, ND_PROBE_RANGE, triple, values, 3);
}

/* A sum that is subnormal until the third term comes, and one that stays so. */
static void add_subnormals(struct builder *builder, const uint8_t triple[3])
{
    const float values[] = {1.5F * tiny, -tiny, 4 * tiny};
    if (triple[2] == places[5])
        add_terms(builder, ND_PROBE_SUBNORMAL_SUM, triple, values, 2);
    if (triple[0] < triple[1])
        add_terms(builder, ND_PROBE_SUBNORMAL_SUM, triple, values, 3);
}

static void add_random(struct builder *builder, uint64_t index)
{
    const struct nd_accumulator_row row = {.probe = ND_PROBE_RANDOM};
    float x[N_RANDOM_ROWS * N_TERMS];
    nd_accumulator_random_rows(BATTERY_SEED, index, N_RANDOM_ROWS, x);
    for (size_t i = 0; i < N_RANDOM_ROWS; i++)
        memcpy(add_row(builder, &row, 0), x + i * N_TERMS, N_TERMS * sizeof *x);
}

static void add_ones_block(struct builder *builder)
{
    for (size_t i = 0; i < N_TERMS; i++)
        builder->block->w[i] = 1;
    add_order(builder);
    add_triples(builder, add_widths);
    add_triples(builder, add_roundings);
    add_odd_ties(builder);
    add_double_ties(builder);
    for (int i = 0; i < N_PLACES; i++) {
        const float value = tiny / 2;
        add_terms(builder, ND_PROBE_SUBNORMAL_INPUT, &places[i], &value, 1);
    }
    add_triples(builder, add_subnormals);
    add_triples(builder, add_ranges);
    add_random(builder, 0);
}

static const float weights[] = {1 + 0x1p-6F, 1, 0x1p10F, 0x1p-10F};

/* Which weight a position has: in turn, but shifted, so that neighbours at any distance have different ones. */
static int kind_of(int position)
{
    return (position + position / 4 + position / 16) % 4;
}

/* A product that is longer than half precision, against one that takes away what is not. They meet directly in
 * some order, the one or the other first. */
static void add_products(struct builder *builder, int i)
{
    for (int distance = 1; distance < N_TERMS; distance *= 2) {
        int j = i ^ distance;
        const uint8_t positions[] = {(uint8_t)i, (uint8_t)j};
        const float values[] = {1 + 0x1p-6F, -(1 + 0x1p-5F) / weights[kind_of(j)]};
        if (kind_of(j) != 0)
            add_terms(builder, ND_PROBE_PRODUCT, positions, values, 2);
    }
}

/* Subnormal inputs of a normal product. */
static void add_scaled_up(struct builder *builder, int i)
{
    const uint8_t position = (uint8_t)i;
    const float half = tiny / 2, least = 0x1p-24F;
    add_terms(builder, ND_PROBE_SUBNORMAL_INPUT, &position, &half, 1);
    add_terms(builder, ND_PROBE_SUBNORMAL_INPUT, &position, &least, 1);
}

/* Two subnormal products whose sum is normal, and three that round up each, but not together. */
static void add_scaled_down(struct builder *builder, int i)
{
    uint8_t positions[3];
    for (size_t n = 0; n < 3; i = (i + 1) % N_TERMS)
        if (kind_of(i) == 3)
            positions[n++] = (uint8_t)i;
    const float halves[] = {0x1p-5F, 0x1p-5F}, parts[] = {0x1.6p-15F, 0x1.6p-15F, 0x1.6p-15F};
    add_terms(builder, ND_PROBE_SUBNORMAL_SUM, positions, halves, 2);
    add_terms(builder, ND_PROBE_SUBNORMAL_SUM, positions, parts, 3);
}

static void add_weighted_block(struct builder *builder)
{
    static void (*const adders[])(struct builder *, int) = {add_products, NULL, add_scaled_up, add_scaled_down};
    for (int i = 0; i < N_TERMS; i++)
        builder->block->w[i] = weights[kind_of(i)];
    for (int i = 0; i < N_TERMS; i++)
        if (adders[kind_of(i)] != NULL)
            adders[kind_of(i)](builder, i);
    add_random(builder, 1);
}

enum nd_status nd_accumulator_battery_init(struct nd_accumulator_battery *out, struct nd_error *err)
{
    struct nd_accumulator_battery battery = {0};
    struct builder ones = {.block = &battery.blocks[0]}, weighted = {.block = &battery.blocks[1]};
    add_ones_block(&ones);
    add_weighted_block(&weighted);
    if (ones.failed || weighted.failed) {
        nd_accumulator_battery_deinit(&battery);
        return nd_fail_memory(err);
    }
    *out = battery;
    return ND_OK;
}

void nd_accumulator_battery_deinit(struct nd_accumulator_battery *battery)
{
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++) {
        free(battery->blocks[b].x);
        free(battery->blocks[b].rows);
    }
    *battery = (struct nd_accumulator_battery){0};
}
