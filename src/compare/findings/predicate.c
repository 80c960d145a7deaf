/* Which few words tell the wrong cells from the right ones. docs/reference/metrics.md#predicate. */
#include "compare/findings/predicate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"

/* Bits by which the information in the pattern must exceed that in the choice of the candidate: a random
 * pattern then gives a sentence in less than 1 of 2^9 cases at the worst. Chosen. */
static const double margin_bits = 9;

/* Patterns of candidates that are kept; where there are more, only those that can hit are, and the others are
 * counted. Pairs of that many are gone through in some 0.1 s. Chosen. */
enum { MAX_KEPT = 1024 };

static const int64_t moduli[] = {2, 3, 4, 8, 16, 32, 64};

/* Plain ones first, then those that nobody thinks of first. */
enum relation { HAS, EQUAL, AT_LEAST, AT_MOST, REMAINDER, HAS_NOT, NO_MULTIPLE };

struct condition {
    const struct nd_fact *fact; /* kind and key */
    enum relation relation;
    int64_t value, modulus;
    size_t n;              /* cells of which it holds */
    uint64_t hash, *cells; /* cells: [n_words] bits */
};

struct search {
    const struct nd_cells *cells;
    size_t n_words, n_wrong;
    uint64_t *wrong, *scratch; /* [n_words] */
    struct condition *kept;
    size_t n_kept, capacity;
    size_t n_all; /* conditions with the ones that are not kept */
};

/* ---- sets of cells ---- */

static void set_bit(uint64_t *set, size_t i)
{
    set[i / 64] |= (uint64_t)1 << (i % 64);
}

static size_t count_bits(const uint64_t *set, size_t n_words)
{
    size_t n = 0;
    for (size_t w = 0; w < n_words; w++)
        n += (size_t)__builtin_popcountll(set[w]);
    return n;
}

static uint64_t hash_bits(const uint64_t *set, size_t n_words)
{
    uint64_t hash = 0xcbf29ce484222325U;
    for (size_t w = 0; w < n_words; w++) {
        hash = (hash ^ set[w]) * 0x9e3779b97f4a7c15U;
        hash ^= hash >> 29;
    }
    return hash;
}

static bool includes(const uint64_t *set, const uint64_t *part, size_t n_words)
{
    for (size_t w = 0; w < n_words; w++)
        if ((part[w] & ~set[w]) != 0)
            return false;
    return true;
}

/* ---- the candidates ---- */

static bool is_numeric(enum nd_fact_kind kind)
{
    return kind == ND_FACT_NAME_NUMBER || kind == ND_FACT_RANK || kind == ND_FACT_DIMENSION ||
           kind == ND_FACT_ELEMENTS || kind == ND_FACT_SAMPLE;
}

static bool holds(const struct condition *condition, int64_t number)
{
    switch (condition->relation) {
    case EQUAL:
        return number == condition->value;
    case AT_LEAST:
        return number >= condition->value;
    case AT_MOST:
        return number <= condition->value;
    case REMAINDER:
        return number % condition->modulus == condition->value;
    case NO_MULTIPLE:
        return number % condition->modulus != 0;
    default:
        return true;
    }
}

/* Keeps a condition on the facts [0, n) of one kind and key, unless it holds for all cells, for none, or for
 * the same cells as one before. */
static enum nd_status try_condition(struct search *s, struct condition *c, size_t n, struct nd_error *err)
{
    memset(s->scratch, 0, s->n_words * sizeof *s->scratch);
    for (size_t i = 0; i < n; i++)
        if (holds(c, c->fact[i].number))
            set_bit(s->scratch, c->fact[i].cell);
    for (size_t i = 0; c->relation == HAS_NOT && i < s->cells->n; i++)
        s->scratch[i / 64] ^= (uint64_t)1 << (i % 64);
    c->n = count_bits(s->scratch, s->n_words);
    /* What only one name has is its name and no rule; nor is what only one has not. */
    bool is_name = c->fact->kind >= ND_FACT_NAME_BEGIN && c->fact->kind <= ND_FACT_NAME_PART;
    if (c->n <= is_name || c->n + is_name >= s->cells->n)
        return ND_OK;
    c->hash = hash_bits(s->scratch, s->n_words);
    for (size_t i = 0; i < s->n_kept; i++)
        if (s->kept[i].hash == c->hash &&
            memcmp(s->kept[i].cells, s->scratch, s->n_words * sizeof *s->scratch) == 0)
            return ND_OK;
    s->n_all++;
    if (s->n_kept >= MAX_KEPT && !includes(s->scratch, s->wrong, s->n_words))
        return ND_OK;
    ND_TRY_MEMORY(nd_grow((void **)&s->kept, &s->capacity, s->n_kept + 1, sizeof *s->kept) &&
                      (c->cells = nd_calloc(s->n_words, sizeof *c->cells)) != NULL,
                  err);
    memcpy(c->cells, s->scratch, s->n_words * sizeof *s->scratch);
    s->kept[s->n_kept++] = *c;
    return ND_OK;
}

static enum nd_status try_moduli(struct search *s, struct condition *c, size_t n, struct nd_error *err)
{
    for (size_t k = 0; k < sizeof moduli / sizeof moduli[0]; k++) {
        c->modulus = moduli[k];
        int64_t end = c->relation == REMAINDER && c->fact->kind == ND_FACT_SAMPLE ? c->modulus : 1;
        for (c->value = 0; c->value < end; c->value++)
            ND_TRY(try_condition(s, c, n, err));
    }
    return ND_OK;
}

/* Every number but the one that makes the condition hold for all of them: that there is a number at all is no
 * condition on it, and a part of the name says that. */
static enum nd_status try_numbers(struct search *s, struct condition *c, size_t n, struct nd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        c->value = c->fact[i].number;
        bool is_any = (c->relation == AT_LEAST && c->value == c->fact[0].number) ||
                      (c->relation == AT_MOST && c->value == c->fact[n - 1].number);
        if ((i == 0 || c->value != c->fact[i - 1].number) && !is_any)
            ND_TRY(try_condition(s, c, n, err));
    }
    return ND_OK;
}

/* The conditions of some relations on the facts [0, n), which are of one kind and key and sorted by number. */
static enum nd_status try_facts(struct search *s, const struct nd_fact *facts, size_t n, bool is_plain,
                                struct nd_error *err)
{
    bool is_number = is_numeric(facts->kind);
    enum relation first = is_plain ? HAS : REMAINDER, last = is_plain ? AT_MOST : NO_MULTIPLE;
    struct condition c = {.fact = facts};
    for (c.relation = first; c.relation <= last; c.relation++) {
        bool is_of_text = c.relation == HAS || c.relation == HAS_NOT;
        if (is_of_text == is_number)
            continue;
        ND_TRY(is_of_text              ? try_condition(s, &c, n, err)
               : c.relation <= AT_MOST ? try_numbers(s, &c, n, err)
                                       : try_moduli(s, &c, n, err));
    }
    return ND_OK;
}

static int compare_keys(const struct nd_fact *x, const struct nd_fact *y)
{
    size_t n_x = strlen(x->key), n_y = strlen(y->key);
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return n_x != n_y ? (n_x < n_y ? -1 : 1) : strcmp(x->key, y->key);
}

static int compare_facts(const void *a, const void *b)
{
    const struct nd_fact *x = a, *y = b;
    int order = compare_keys(x, y);
    if (order != 0)
        return order;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return (x->cell > y->cell) - (x->cell < y->cell);
}

static enum nd_status try_all(struct search *s, struct nd_cells *cells, struct nd_error *err)
{
    if (cells->n_facts > 0)
        qsort(cells->facts, cells->n_facts, sizeof *cells->facts, compare_facts);
    for (int is_plain = 1; is_plain >= 0; is_plain--)
        for (size_t i = 0, n; i < cells->n_facts; i += n) {
            for (n = 1; i + n < cells->n_facts && compare_keys(&cells->facts[i], &cells->facts[i + n]) == 0;)
                n++;
            ND_TRY(try_facts(s, &cells->facts[i], n, is_plain, err));
        }
    return ND_OK;
}

/* ---- how likely a chance hit is ---- */

static double log2_choose(size_t n, size_t k)
{
    return (lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1)) / log(2);
}

/* The information in the pattern of wrong cells. Where errors are inherited they come in runs, so only the
 * choice among the patterns of as many runs is information; and none is in "all from the first on". */
static double pattern_bits(const struct search *s)
{
    size_t n = s->cells->n, k = s->n_wrong, n_runs = 0;
    double bits = log2_choose(n, k);
    if (!s->cells->is_inherited)
        return bits;
    for (size_t i = 0; i < n; i++)
        n_runs += s->cells->is_wrong[i] && (i == 0 || !s->cells->is_wrong[i - 1]);
    if (n_runs == 1 && s->cells->is_wrong[n - 1])
        return 0;
    return fmin(bits, log2_choose(k - 1, n_runs - 1) + log2_choose(n - k + 1, n_runs));
}

static int compare_hashes(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static size_t count_distinct(uint64_t *hashes, size_t n)
{
    size_t n_distinct = 0;
    if (n > 0)
        qsort(hashes, n, sizeof *hashes, compare_hashes);
    for (size_t i = 0; i < n; i++)
        n_distinct += i == 0 || hashes[i] != hashes[i - 1];
    return n_distinct;
}

struct hashes {
    uint64_t *items;
    size_t n, capacity;
};

/* Notes the cells of which both conditions hold, when they are as many as are wrong. */
static enum nd_status note_set(struct search *s, size_t i, size_t j, struct hashes *hashes,
                               struct nd_error *err)
{
    for (size_t w = 0; w < s->n_words; w++)
        s->scratch[w] = s->kept[i].cells[w] & s->kept[j].cells[w];
    if (count_bits(s->scratch, s->n_words) != s->n_wrong)
        return ND_OK;
    ND_TRY_MEMORY(nd_grow((void **)&hashes->items, &hashes->capacity, hashes->n + 1, sizeof *hashes->items),
                  err);
    hashes->items[hashes->n++] = hash_bits(s->scratch, s->n_words);
    return ND_OK;
}

/* The sets of as many cells as are wrong that the candidates up to the hit make, in the order in which they are
 * tried. Others cannot hit a pattern of that many wrong cells, and the order does not depend on the pattern; so
 * a hit among the first m sets has at most m chances of all such patterns. At most all candidates, which is
 * taken where not all are kept. */
static enum nd_status count_tried(struct search *s, const size_t *hit, size_t n_conditions, double *out,
                                  struct nd_error *err)
{
    struct hashes hashes = {0};
    enum nd_status status = ND_OK;
    *out = n_conditions == 1 ? (double)s->n_all : (double)s->n_all * ((double)s->n_all + 1) / 2;
    if (s->n_kept < s->n_all)
        return ND_OK;
    for (size_t i = 0; i < (n_conditions == 1 ? hit[0] + 1 : s->n_kept) && status == ND_OK; i++)
        status = note_set(s, i, i, &hashes, err);
    for (size_t i = 0; n_conditions > 1 && i <= hit[0]; i++)
        for (size_t j = i + 1; j < (i == hit[0] ? hit[1] + 1 : s->n_kept) && status == ND_OK; j++)
            status = note_set(s, i, j, &hashes, err);
    *out = (double)count_distinct(hashes.items, hashes.n);
    free(hashes.items);
    return status;
}

/* ---- what is said ---- */

static void put_number(struct nd_strbuf *out, const struct condition *c)
{
    const char *noun = c->fact->kind == ND_FACT_NAME_NUMBER ? c->fact->key
                       : c->fact->kind == ND_FACT_RANK      ? "rank"
                       : c->fact->kind == ND_FACT_DIMENSION ? "dimension "
                       : c->fact->kind == ND_FACT_ELEMENTS  ? "element count"
                                                            : "sample index";
    nd_strbuf_printf(out, "with %s%s", noun, c->fact->kind == ND_FACT_DIMENSION ? c->fact->key : "");
    if (c->relation <= AT_MOST)
        nd_strbuf_printf(out, " %s %" PRId64,
                         c->relation == EQUAL ? "=" : (c->relation == AT_LEAST ? ">=" : "<="), c->value);
    else if (c->modulus == 2)
        nd_strbuf_puts(out, c->relation == REMAINDER && c->value == 0 ? " even" : " odd");
    else if (c->relation == REMAINDER && c->value != 0)
        nd_strbuf_printf(out, " = %" PRId64 " modulo %" PRId64, c->value, c->modulus);
    else
        nd_strbuf_printf(out, " %sa multiple of %" PRId64, c->relation == REMAINDER ? "" : "not ", c->modulus);
}

static char *say(const struct condition *c)
{
    const char *key = c->fact->key;
    struct nd_strbuf out = {0};
    bool is_not = c->relation == HAS_NOT;
    if (is_numeric(c->fact->kind))
        put_number(&out, c);
    else if (c->fact->kind == ND_FACT_NAME_PART)
        nd_strbuf_printf(&out, "%s '%s' in the name", is_not ? "without" : "with", key);
    else if (c->fact->kind == ND_FACT_NAME_BEGIN || c->fact->kind == ND_FACT_NAME_END)
        nd_strbuf_printf(&out, "with a name that %s with '%s'",
                         c->fact->kind == ND_FACT_NAME_BEGIN ? (is_not ? "does not begin" : "begins")
                         : is_not                            ? "does not end"
                                                             : "ends",
                         key);
    else
        nd_strbuf_printf(&out, "%sof %s %s", is_not ? "not " : "",
                         c->fact->kind == ND_FACT_TYPE       ? "type"
                         : c->fact->kind == ND_FACT_OPERATOR ? "operator"
                                                             : "probe",
                         key);
    return nd_strbuf_take(&out);
}

/* ---- the search ---- */

/* The first condition, else the first two, in order, that hold exactly for the wrong cells. */
static size_t find_hit(const struct search *s, size_t hit[ND_PREDICATE_MAX_CONDITIONS])
{
    for (hit[0] = 0; hit[0] < s->n_kept; hit[0]++)
        if (s->kept[hit[0]].n == s->n_wrong && includes(s->kept[hit[0]].cells, s->wrong, s->n_words))
            return 1;
    for (hit[0] = 0; hit[0] < s->n_kept; hit[0]++)
        for (hit[1] = hit[0] + 1; includes(s->kept[hit[0]].cells, s->wrong, s->n_words) && hit[1] < s->n_kept;
             hit[1]++) {
            for (size_t w = 0; w < s->n_words; w++)
                s->scratch[w] = s->kept[hit[0]].cells[w] & s->kept[hit[1]].cells[w];
            if (memcmp(s->scratch, s->wrong, s->n_words * sizeof *s->wrong) == 0)
                return 2;
        }
    return 0;
}

static enum nd_status judge(struct search *s, struct nd_predicate *out, struct nd_error *err)
{
    size_t hit[ND_PREDICATE_MAX_CONDITIONS];
    size_t n_conditions = find_hit(s, hit);
    double n_candidates = 0;
    if (n_conditions == 0)
        return ND_OK;
    ND_TRY(count_tried(s, hit, n_conditions, &n_candidates, err));
    out->log2_chance = log2(n_candidates) + log2((double)s->cells->n_searches) - pattern_bits(s);
    if (!(out->log2_chance < -margin_bits))
        return ND_OK;
    for (size_t i = 0; i < n_conditions; i++)
        ND_TRY_MEMORY((out->conditions[i] = say(&s->kept[hit[i]])) != NULL, err);
    out->n_conditions = n_conditions;
    return ND_OK;
}

enum nd_status nd_predicate_find(struct nd_cells *cells, struct nd_predicate *out, struct nd_error *err)
{
    struct search s = {.cells = cells, .n_words = (cells->n + 63) / 64};
    *out = (struct nd_predicate){0};
    for (size_t i = 0; i < cells->n; i++)
        s.n_wrong += cells->is_wrong[i];
    if (cells->n > ND_PREDICATE_MAX_CELLS || s.n_wrong == 0 || s.n_wrong == cells->n)
        return ND_OK;
    s.wrong = nd_calloc(2 * s.n_words, sizeof *s.wrong);
    ND_TRY_MEMORY(s.wrong != NULL, err);
    s.scratch = s.wrong + s.n_words;
    for (size_t i = 0; i < cells->n; i++)
        if (cells->is_wrong[i])
            set_bit(s.wrong, i);
    enum nd_status status = try_all(&s, cells, err);
    if (status == ND_OK)
        status = judge(&s, out, err);
    for (size_t i = 0; i < s.n_kept; i++)
        free(s.kept[i].cells);
    ND_FREE_ALL(s.kept, s.wrong);
    return status;
}

void nd_predicate_deinit(struct nd_predicate *predicate)
{
    for (size_t i = 0; i < ND_PREDICATE_MAX_CONDITIONS; i++)
        free(predicate->conditions[i]);
    *predicate = (struct nd_predicate){0};
}
