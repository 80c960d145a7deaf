#include "arithmetic/arithmetics/accumulate_order.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    bool has_width;
} kinds[] = {
    [ND_SUM_SEQUENTIAL] = {"sequential", false},
    [ND_SUM_REVERSED] = {"reversed", false},
    [ND_SUM_PAIRWISE] = {"pairwise", false},
    [ND_SUM_HALVING] = {"halving", false},
    [ND_SUM_LANES] = {"lanes", true},
    [ND_SUM_BLOCKS] = {"blocks", true},
    [ND_SUM_TREES] = {"trees", true},
    [ND_SUM_FUSED] = {"fused", true},
    [ND_SUM_GIVEN] = {"tree", false},
};

const char *nd_sum_order_name(const struct nd_sum_order *order, char buf[ND_SUM_ORDER_NAME_BYTES])
{
    if (kinds[order->kind].has_width)
        snprintf(buf, ND_SUM_ORDER_NAME_BYTES, "%s:%d", kinds[order->kind].name, order->width);
    else
        snprintf(buf, ND_SUM_ORDER_NAME_BYTES, "%s", kinds[order->kind].name);
    return buf;
}

/* The slot of a new node. */
static uint16_t add_node(struct nd_sum_tree *tree, const uint16_t *children, size_t n)
{
    assert(tree->n_nodes < ND_SUM_MAX_TERMS);
    size_t first = tree->first[tree->n_nodes];
    memcpy(tree->children + first, children, n * sizeof *children);
    tree->first[++tree->n_nodes] = (uint16_t)(first + n);
    return (uint16_t)(tree->n_terms + tree->n_nodes - 1);
}

static uint16_t add_pair(struct nd_sum_tree *tree, uint16_t a, uint16_t b)
{
    const uint16_t pair[] = {a, b};
    return add_node(tree, pair, 2);
}

static uint16_t add_sequence(struct nd_sum_tree *tree, const uint16_t *slots, size_t n)
{
    uint16_t sum = slots[0];
    for (size_t i = 1; i < n; i++)
        sum = add_pair(tree, sum, slots[i]);
    return sum;
}

/* Each with its neighbour until one is left; a last one without a neighbour goes on as it is. */
static uint16_t add_pairwise(struct nd_sum_tree *tree, const uint16_t *slots, size_t n)
{
    uint16_t level[ND_SUM_MAX_TERMS];
    memcpy(level, slots, n * sizeof *slots);
    for (; n > 1; n = (n + 1) / 2)
        for (size_t i = 0; i < n; i += 2)
            level[i / 2] = i + 1 < n ? add_pair(tree, level[i], level[i + 1]) : level[i];
    return level[0];
}

static uint16_t add_halving(struct nd_sum_tree *tree, const uint16_t *slots, size_t n)
{
    uint16_t level[ND_SUM_MAX_TERMS];
    memcpy(level, slots, n * sizeof *slots);
    for (size_t half; n > 1; n = half) {
        half = (n + 1) / 2;
        for (size_t i = 0; i + half < n; i++)
            level[i] = add_pair(tree, level[i], level[i + half]);
    }
    return level[0];
}

static uint16_t add_lanes(struct nd_sum_tree *tree, size_t width)
{
    uint16_t lanes[ND_SUM_MAX_TERMS];
    for (size_t lane = 0; lane < width; lane++) {
        lanes[lane] = (uint16_t)lane;
        for (size_t i = lane + width; i < tree->n_terms; i += width)
            lanes[lane] = add_pair(tree, lanes[lane], (uint16_t)i);
    }
    return add_pairwise(tree, lanes, width);
}

static uint16_t add_blocks(struct nd_sum_tree *tree, const uint16_t *slots, size_t width, bool is_pairwise)
{
    uint16_t sums[ND_SUM_MAX_TERMS];
    size_t n_blocks = 0;
    for (size_t i = 0; i < tree->n_terms; i += width) {
        size_t n = tree->n_terms - i < width ? tree->n_terms - i : width;
        sums[n_blocks++] = (is_pairwise ? add_pairwise : add_sequence)(tree, slots + i, n);
    }
    return add_sequence(tree, sums, n_blocks);
}

static uint16_t add_fused(struct nd_sum_tree *tree, const uint16_t *slots, size_t width)
{
    uint16_t children[ND_SUM_MAX_TERMS + 1], sum = 0;
    for (size_t i = 0; i < tree->n_terms; i += width) {
        size_t n = tree->n_terms - i < width ? tree->n_terms - i : width, before = i > 0 ? 1 : 0;
        children[0] = sum;
        memcpy(children + before, slots + i, n * sizeof *slots);
        sum = add_node(tree, children, n + before);
    }
    return sum;
}

void nd_sum_tree_of(const struct nd_sum_order *order, size_t n_terms, struct nd_sum_tree *out)
{
    assert(n_terms >= 1 && n_terms <= ND_SUM_MAX_TERMS);
    uint16_t slots[ND_SUM_MAX_TERMS];
    size_t width = (size_t)order->width < n_terms ? (size_t)order->width : n_terms;
    *out = (struct nd_sum_tree){.n_terms = n_terms};
    for (size_t i = 0; i < n_terms; i++)
        slots[i] = (uint16_t)(order->kind == ND_SUM_REVERSED ? n_terms - 1 - i : i);
    if (n_terms == 1) {
        add_node(out, slots, 1);
        return;
    }
    switch (order->kind) {
    case ND_SUM_SEQUENTIAL:
    case ND_SUM_REVERSED:
        add_sequence(out, slots, n_terms);
        break;
    case ND_SUM_PAIRWISE:
        add_pairwise(out, slots, n_terms);
        break;
    case ND_SUM_HALVING:
        add_halving(out, slots, n_terms);
        break;
    case ND_SUM_LANES:
        add_lanes(out, width);
        break;
    case ND_SUM_BLOCKS:
    case ND_SUM_TREES:
        add_blocks(out, slots, width, order->kind == ND_SUM_TREES);
        break;
    case ND_SUM_FUSED:
        add_fused(out, slots, width);
        break;
    case ND_SUM_GIVEN:
        assert(false);
        break;
    }
}

/* leaves[slot]: a bit for every term under it. */
static void leaves_below(const struct nd_sum_tree *tree, uint64_t leaves[2 * ND_SUM_MAX_TERMS])
{
    for (size_t i = 0; i < tree->n_terms; i++)
        leaves[i] = (uint64_t)1 << i;
    for (size_t k = 0; k < tree->n_nodes; k++) {
        leaves[tree->n_terms + k] = 0;
        for (size_t c = tree->first[k]; c < tree->first[k + 1]; c++)
            leaves[tree->n_terms + k] |= leaves[tree->children[c]];
    }
}

/* A tree is the set of what its nodes cover. */
bool nd_sum_tree_equal(const struct nd_sum_tree *a, const struct nd_sum_tree *b)
{
    uint64_t leaves_a[2 * ND_SUM_MAX_TERMS], leaves_b[2 * ND_SUM_MAX_TERMS];
    if (a->n_terms != b->n_terms || a->n_nodes != b->n_nodes)
        return false;
    leaves_below(a, leaves_a);
    leaves_below(b, leaves_b);
    for (size_t i = 0; i < a->n_nodes; i++) {
        bool is_found = false;
        for (size_t j = 0; j < b->n_nodes && !is_found; j++)
            is_found = leaves_a[a->n_terms + i] == leaves_b[b->n_terms + j];
        if (!is_found)
            return false;
    }
    return true;
}

void nd_sum_tree_joins(const struct nd_sum_tree *tree, uint8_t *l)
{
    uint64_t leaves[2 * ND_SUM_MAX_TERMS];
    size_t n = tree->n_terms;
    leaves_below(tree, leaves);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            uint64_t both = (uint64_t)1 << i | (uint64_t)1 << j;
            size_t k = 0;
            while ((leaves[n + k] & both) != both)
                k++;
            l[i * n + j] = (uint8_t)(i == j ? 1 : __builtin_popcountll(leaves[n + k]));
        }
}

/* The slot that sums the terms of a set. Below its node, the terms that join under fewer leaves than the set
 * has are one child. */
static uint16_t grow(const uint8_t *l, uint64_t set, struct nd_sum_tree *tree)
{
    size_t n = tree->n_terms, n_children = 0;
    int n_leaves = __builtin_popcountll(set);
    uint16_t children[ND_SUM_MAX_TERMS];
    if (n_leaves == 1)
        return (uint16_t)__builtin_ctzll(set);
    while (set != 0) {
        size_t i = (size_t)__builtin_ctzll(set);
        uint64_t child = 0;
        for (size_t j = i; j < n; j++)
            if (set >> j & 1 && l[i * n + j] < n_leaves)
                child |= (uint64_t)1 << j;
        child |= (uint64_t)1 << i;
        set &= ~child;
        /* Endless where all terms join below the set itself: no tree. */
        children[n_children++] = __builtin_popcountll(child) < n_leaves ? grow(l, child, tree) : (uint16_t)i;
    }
    if (tree->n_nodes == ND_SUM_MAX_TERMS || tree->first[tree->n_nodes] + n_children > 2 * ND_SUM_MAX_TERMS)
        return 0;
    return add_node(tree, children, n_children);
}

bool nd_sum_tree_from_joins(const uint8_t *l, size_t n_terms, struct nd_sum_tree *out)
{
    assert(n_terms >= 2 && n_terms <= ND_SUM_MAX_TERMS);
    uint8_t back[ND_SUM_MAX_TERMS * ND_SUM_MAX_TERMS];
    struct nd_sum_tree tree = {.n_terms = n_terms};
    grow(l, n_terms == 64 ? UINT64_MAX : ((uint64_t)1 << n_terms) - 1, &tree);
    uint64_t leaves[2 * ND_SUM_MAX_TERMS];
    leaves_below(&tree, leaves);
    if (tree.n_nodes == 0 || __builtin_popcountll(leaves[n_terms + tree.n_nodes - 1]) != (int)n_terms)
        return false;
    nd_sum_tree_joins(&tree, back);
    if (memcmp(back, l, n_terms * n_terms) != 0)
        return false;
    *out = tree;
    return true;
}

static void put(char **buf, size_t *size, const char *text)
{
    size_t n = strlen(text);
    if (n >= *size)
        n = *size - 1;
    memcpy(*buf, text, n);
    *buf += n;
    *size -= n;
    **buf = '\0';
}

static void format_slot(const struct nd_sum_tree *tree, size_t slot, char **buf, size_t *size)
{
    if (slot < tree->n_terms) {
        char number[8];
        snprintf(number, sizeof number, "%u", (unsigned)(uint8_t)slot);
        put(buf, size, number);
        return;
    }
    size_t k = slot - tree->n_terms;
    put(buf, size, "(");
    for (size_t c = tree->first[k]; c < tree->first[k + 1]; c++) {
        put(buf, size, c > tree->first[k] ? " " : "");
        format_slot(tree, tree->children[c], buf, size);
    }
    put(buf, size, ")");
}

void nd_sum_tree_format(const struct nd_sum_tree *tree, char *buf, size_t buf_size)
{
    assert(buf_size > 0);
    *buf = '\0';
    format_slot(tree, tree->n_terms + tree->n_nodes - 1, &buf, &buf_size);
}
