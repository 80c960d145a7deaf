/* Predicates: see the header. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "arithmetic/operators/array.h"
#include "compare/findings/predicates.h"
#include "core/items.h"
#include "core/text/strbuf.h"

/* Which few words tell the wrong cells from the right ones. docs/reference/metrics.md#predicate. */

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

static char *say(const struct condition *c)
{
    const char *key = c->fact->key;
    struct nd_strbuf out = {0};
    bool is_not = c->relation == HAS_NOT;
    if (is_numeric(c->fact->kind)) {
        const char *noun = c->fact->kind == ND_FACT_NAME_NUMBER ? c->fact->key
                           : c->fact->kind == ND_FACT_RANK      ? "rank"
                           : c->fact->kind == ND_FACT_DIMENSION ? "dimension "
                           : c->fact->kind == ND_FACT_ELEMENTS  ? "element count"
                                                                : "sample index";
        nd_strbuf_printf(&out, "with %s%s", noun, c->fact->kind == ND_FACT_DIMENSION ? c->fact->key : "");
        if (c->relation <= AT_MOST)
            nd_strbuf_printf(&out, " %s %" PRId64,
                             c->relation == EQUAL ? "=" : (c->relation == AT_LEAST ? ">=" : "<="), c->value);
        else if (c->modulus == 2)
            nd_strbuf_puts(&out, c->relation == REMAINDER && c->value == 0 ? " even" : " odd");
        else if (c->relation == REMAINDER && c->value != 0)
            nd_strbuf_printf(&out, " = %" PRId64 " modulo %" PRId64, c->value, c->modulus);
        else
            nd_strbuf_printf(&out, " %sa multiple of %" PRId64, c->relation == REMAINDER ? "" : "not ",
                             c->modulus);
    } else if (c->fact->kind == ND_FACT_NAME_PART)
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

/* 20 dB, as a whole tensor is called wrong (predicates.c); and a gap of 20 dB to all others. Both chosen. */
static const double min_gross = 0.1, min_gap = 10;

/* A sample of more elements is read once, by the engine, and not a second time here: chosen, as
 * ND_OUTPUT_WHOLE. */
static const size_t max_elems = (size_t)1 << 20;

/* Bytes of each side that are read at once: a chunk has 256 KiB of small samples, and is inflated once. Chosen.
 */
static const size_t block_bytes = (size_t)4 << 20;

struct reader {
    const struct nd_aligned_captures *alignment;
    size_t tensor, test, probe, n_elems, sample_bytes;
    size_t block;            /* samples that are read at once, 1 or more */
    unsigned char *bytes[2]; /* of a block */
    double *values[2];       /* [n_elems] of the reference and of the test */
    size_t n;                /* elements of which the reference is finite */
    double sum, squares;
};

/* n: at most a block. */
static enum nd_status read_block(struct reader *r, size_t first, size_t n, struct nd_error *err)
{
    const size_t captures[2] = {0, r->test};
    for (size_t k = 0; k < 2; k++) {
        const struct nd_probe_values tensor = nd_aligned_values(r->alignment, r->tensor, r->probe, captures[k]);
        ND_TRY(nd_capture_read_verified(&tensor, first, n, r->bytes[k], err));
    }
    return ND_OK;
}

/* The root mean square of a sample. */
static double measure(struct reader *r)
{
    double squares = 0;
    for (size_t i = 0; i < r->n_elems; i++) {
        double x = r->values[0][i], y = r->values[1][i];
        if (isfinite(x)) {
            r->n++;
            r->sum += x;
            r->squares += x * x;
        }
        if (isfinite(x) != isfinite(y))
            return HUGE_VAL;
        if (isfinite(x))
            squares += (y - x) * (y - x);
    }
    return sqrt(squares / (double)r->n_elems);
}

/* Leaves bytes and values NULL where the samples, n of them, are not to be read. */
static enum nd_status open_reader(struct reader *r, size_t n, struct nd_error *err)
{
    const struct nd_tensor *tensor = nd_aligned_tensor(r->alignment, r->tensor, 0);
    ND_TRY(nd_shape_size_bytes(&tensor->shape, tensor->dtype, &r->sample_bytes, err));
    ND_TRY(nd_shape_n_elems(&tensor->shape, &r->n_elems, err));
    r->block = r->sample_bytes < block_bytes && r->sample_bytes > 0 ? block_bytes / r->sample_bytes : 1;
    if (r->block > n)
        r->block = n > 0 ? n : 1;
    for (size_t k = 0; k < 2 && r->n_elems > 0 && r->n_elems <= max_elems; k++) {
        r->bytes[k] = nd_tensor_alloc(r->block * r->sample_bytes);
        r->values[k] = nd_calloc(r->n_elems, sizeof *r->values[k]);
        ND_TRY_MEMORY(r->bytes[k] != NULL && r->values[k] != NULL, err);
    }
    return ND_OK;
}

static enum nd_status read_all(struct reader *r, size_t n, double *sizes, bool *is_known, struct nd_error *err)
{
    const size_t captures[2] = {0, r->test};
    size_t n_read = 0;
    for (r->probe = 0; r->probe < r->alignment->n_probes && *is_known; r->probe++) {
        size_t n_common = nd_align_n_common(r->alignment, r->probe, 0, r->test);
        *is_known = n_common == 0 || (nd_aligned_has_values(r->alignment, r->tensor, r->probe, 0) &&
                                      nd_aligned_has_values(r->alignment, r->tensor, r->probe, r->test));
        n_common = *is_known && n_common > n - n_read ? n - n_read : n_common;
        for (size_t s = 0; s < n_common && *is_known; s += r->block) {
            size_t n_block = n_common - s < r->block ? n_common - s : r->block;
            ND_TRY(read_block(r, s, n_block, err));
            for (size_t i = 0; i < n_block; i++) {
                /* The values of a sample of the block. */
                for (size_t k = 0; k < 2; k++)
                    nd_array_load(nd_aligned_tensor(r->alignment, r->tensor, captures[k])->dtype,
                                  r->bytes[k] + i * r->sample_bytes, r->n_elems, r->values[k]);
                sizes[n_read++] = measure(r);
            }
        }
    }
    *is_known = *is_known && n_read == n;
    return ND_OK;
}

/* Root mean square of test - reference of each of the n samples that nd_align_samples gives, probe after probe,
 * in units of the reference's spread over all of them; infinite where one side alone is not finite. Quantised
 * values are compared as quantised values. *is_known: both captures keep all values, and the reference is not
 * one value. sizes: [n]. ND_ERR_MEMORY, or what reading gives. */
static enum nd_status nd_sample_sizes_read(const struct nd_aligned_captures *alignment, size_t tensor,
                                           size_t test, size_t n, double *sizes, bool *is_known,
                                           struct nd_error *err)
{
    struct reader r = {.alignment = alignment, .tensor = tensor, .test = test};
    enum nd_status status = open_reader(&r, n, err);
    *is_known = r.bytes[0] != NULL && status == ND_OK;
    if (*is_known)
        status = read_all(&r, n, sizes, is_known, err);
    double mean = r.n > 0 ? r.sum / (double)r.n : 0;
    double spread = r.n > 0 ? sqrt(fmax(r.squares / (double)r.n - mean * mean, 0)) : 0;
    *is_known = *is_known && spread > 0;
    for (size_t s = 0; s < n && *is_known; s++)
        sizes[s] /= spread;
    for (size_t k = 0; k < 2; k++)
        ND_FREE_ALL(r.bytes[k], r.values[k]);
    return status;
}

bool nd_sample_sizes_part(const double *sizes, size_t n, bool *is_gross)
{
    double least = HUGE_VAL, most = 0; /* of gross samples; of the others */
    size_t n_gross = 0;
    for (size_t s = 0; s < n; s++) {
        if (isnan(sizes[s]))
            return false;
        is_gross[s] = sizes[s] >= min_gross;
        n_gross += is_gross[s];
        least = is_gross[s] ? fmin(least, sizes[s]) : least;
        most = is_gross[s] ? most : fmax(most, sizes[s]);
    }
    return n_gross > 0 && n_gross < n && least >= min_gap * most;
}

/* Of longer names the first ones are used (chosen). */
enum { MAX_PARTS = 64 };

enum nd_status nd_cells_add(struct nd_cells *cells, size_t cell, enum nd_fact_kind kind, const char *key,
                            size_t n_key, int64_t number, struct nd_error *err)
{
    char *copy = nd_calloc(n_key + 1, 1);
    if (copy == NULL ||
        !nd_grow((void **)&cells->facts, &cells->capacity, cells->n_facts + 1, sizeof *cells->facts)) {
        free(copy);
        return nd_fail_memory(err);
    }
    memcpy(copy, key, n_key);
    cells->facts[cells->n_facts++] =
        (struct nd_fact){.kind = kind, .key = copy, .number = number, .cell = cell};
    return ND_OK;
}

void nd_cells_deinit(struct nd_cells *cells)
{
    ND_FREE_EACH(cells->facts, cells->n_facts, .key);
    cells->facts = NULL;
    cells->n_facts = cells->capacity = 0;
}

/* Letters or digits that stand together in a name. */
struct part {
    const char *text;
    size_t n;
    bool is_number;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Every byte of a character outside ASCII counts as a letter. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

static size_t split(const char *name, struct part parts[MAX_PARTS])
{
    size_t n = 0;
    for (const char *at = name; *at != '\0' && n < MAX_PARTS;) {
        bool is_number = is_digit(*at);
        const char *end = at;
        while (is_number ? is_digit(*end) : is_letter(*end))
            end++;
        if (end > at)
            parts[n++] = (struct part){.text = at, .n = (size_t)(end - at), .is_number = is_number};
        at = end > at ? end : at + 1;
    }
    return n;
}

/* Whether the letters of part p stand before another number already. */
static bool is_used(const struct part *parts, size_t p)
{
    for (size_t i = 0; i < p; i++)
        if (parts[i].n == parts[p].n && memcmp(parts[i].text, parts[p].text, parts[p].n) == 0 &&
            parts[i + 1].is_number)
            return true;
    return false;
}

enum nd_status nd_cells_add_name(struct nd_cells *cells, size_t cell, const char *name, struct nd_error *err)
{
    enum { MAX_DIGITS = 18 }; /* that fit into the number */
    struct part parts[MAX_PARTS];
    size_t n = split(name, parts);
    for (size_t p = 0; p < n; p++) {
        const struct part *part = &parts[p];
        if (!part->is_number)
            ND_TRY(nd_cells_add(cells, cell, ND_FACT_NAME_PART, part->text, part->n, 0, err));
        else if (p > 0 && !parts[p - 1].is_number && part->n <= MAX_DIGITS && !is_used(parts, p - 1))
            ND_TRY(nd_cells_add(cells, cell, ND_FACT_NAME_NUMBER, parts[p - 1].text, parts[p - 1].n,
                                strtoll(part->text, NULL, 10), err));
        if (p + 1 < n)
            ND_TRY(nd_cells_add(cells, cell, ND_FACT_NAME_BEGIN, name, (size_t)(part->text + part->n - name), 0,
                                err));
        if (p > 0)
            ND_TRY(nd_cells_add(cells, cell, ND_FACT_NAME_END, part->text, strlen(part->text), 0, err));
    }
    return ND_OK;
}

/* Without gates a tensor is wrong when it differs by more than a rounding. 20 dB is an error of a tenth of the
 * signal: 8 bits give some 40 dB, half precision 60. A sum that is rounded otherwise moves a quantised value by
 * one step, one that is rounded twice by two. Both chosen. */
static const double wrong_sqnr_db = 20;
enum { ROUNDING_LSB = 2 };

/* Tensors of a test whose samples are searched (chosen: the time of each is the same). */
enum { MAX_SAMPLE_SEARCHES = 16 };

/* Samples that are listed one by one where no rule fits (chosen: they fit into a line). */
enum { MAX_LISTED = 8 };

bool nd_predicates_is_wrong(const struct nd_difference *d, bool has_gates)
{
    if (has_gates)
        return d->n_failing > 0;
    if (d->n_nan_mismatch > 0 || d->n_inf_mismatch > 0)
        return true;
    bool is_far = d->is_integer && d->max_lsb > ROUNDING_LSB;
    return is_far || (d->n_differing > 0 && d->has_signal && d->sqnr_db < wrong_sqnr_db);
}

/* Whether it is known if the tensor is wrong: it was compared, and is not fed to the model. */
static bool is_cell(const struct nd_compared_tensor *tensor, const struct nd_compared_pair *pair)
{
    const struct nd_difference *d = &pair->total.difference;
    return !tensor->is_model_input && pair->label == NULL && pair->total.coverage != ND_COVERAGE_NONE &&
           d->n_samples > 0 && (d->n_samples_differing == 0 || d->has_values);
}

static enum nd_status add_tensor(struct nd_cells *cells, size_t cell, const struct nd_compared_tensor *tensor,
                                 struct nd_error *err)
{
    const char *type = nd_dtype_name(tensor->dtype);
    ND_TRY(nd_cells_add(cells, cell, ND_FACT_TYPE, type, strlen(type), 0, err));
    if (tensor->op_types[0] != '\0')
        ND_TRY(nd_cells_add(cells, cell, ND_FACT_OPERATOR, tensor->op_types, strlen(tensor->op_types), 0, err));
    ND_TRY(nd_cells_add_name(cells, cell, tensor->name, err));
    const struct nd_shape *shape = &tensor->shape;
    int64_t n_elems = 1;
    if (shape->rank < 0)
        return ND_OK;
    ND_TRY(nd_cells_add(cells, cell, ND_FACT_RANK, "", 0, shape->rank, err));
    for (int d = 0; d < shape->rank; d++) {
        char key[16];
        int n = snprintf(key, sizeof key, "%d", d);
        n_elems *= shape->dims[d]; /* of a compared tensor, so it fits */
        ND_TRY(nd_cells_add(cells, cell, ND_FACT_DIMENSION, key, (size_t)n, shape->dims[d], err));
    }
    return nd_cells_add(cells, cell, ND_FACT_ELEMENTS, "", 0, n_elems, err);
}

/* What is asked: of the tensors of a device (tensor: SIZE_MAX), or of the samples of one. */
struct question {
    size_t device, tensor;
    bool is_of_size; /* which samples are grossly wrong, not which differ */
};

/* No rule: a few samples are listed one by one. That is no guess, so chance has no part in it. */
static enum nd_status list_samples(const struct nd_cells *cells, struct nd_predicate *out, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    size_t n_wrong = 0, n_told = 0;
    for (size_t i = 0; i < cells->n; i++)
        n_wrong += cells->is_wrong[i];
    if (n_wrong > MAX_LISTED || n_wrong * 2 > cells->n)
        return ND_OK;
    nd_strbuf_puts(&text, "with sample index ");
    for (size_t i = 0; i < cells->n; i++)
        if (cells->is_wrong[i])
            nd_strbuf_printf(&text, "%s%zu", n_told++ == 0 ? "" : n_told == n_wrong ? " or " : ", ", i);
    out->conditions[0] = nd_strbuf_take(&text);
    out->n_conditions = out->conditions[0] != NULL;
    out->log2_chance = NAN;
    return out->n_conditions > 0 ? ND_OK : nd_fail_memory(err);
}

static enum nd_status find_and_note(struct nd_comparison *comparison, const struct question *q,
                                    struct nd_cells *cells, struct nd_error *err)
{
    ND_CLEANUP(nd_predicate_deinit) struct nd_predicate found = {0};
    ND_TRY(nd_predicate_find(cells, &found, err));
    if (found.n_conditions == 0 && q->is_of_size && comparison->n_probes == 1)
        ND_TRY(list_samples(cells, &found, err));
    /* Appends what was found, when anything was. */
    struct nd_strbuf text = {0};
    size_t n_wrong = 0, capacity = comparison->n_predicates;
    if (found.n_conditions == 0)
        return ND_OK;
    ND_TRY_MEMORY(nd_grow((void **)&comparison->predicates, &capacity, comparison->n_predicates + 1,
                          sizeof *comparison->predicates),
                  err);
    for (size_t i = 0; i < cells->n; i++)
        n_wrong += cells->is_wrong[i];
    size_t n = cells->n;
    const char *label = comparison->devices[q->device].label;
    if (q->tensor == SIZE_MAX)
        nd_strbuf_printf(&text, "the %zu wrong tensors of %zu on %s are exactly those ", n_wrong, n, label);
    else
        nd_strbuf_printf(&text, "the %zu samples of %zu of '%s' that %s on %s are exactly those ", n_wrong, n,
                         comparison->tensors[q->tensor].name,
                         q->is_of_size ? "are wrong by more than rounding" : "differ", label);
    nd_strbuf_printf(&text, "%s%s%s%s", found.conditions[0], found.n_conditions > 1 ? " and " : "",
                     found.n_conditions > 1 ? found.conditions[1] : "",
                     q->is_of_size ? "; all others differ by rounding at most" : "");
    struct nd_compared_predicate *predicate = &comparison->predicates[comparison->n_predicates++];
    *predicate = (struct nd_compared_predicate){.device = q->device,
                                                .tensor = q->tensor,
                                                .n_wrong = n_wrong,
                                                .n = cells->n,
                                                .n_conditions = found.n_conditions,
                                                .log2_chance = found.log2_chance,
                                                .text = nd_strbuf_take(&text)};
    for (size_t i = 0; i < found.n_conditions; i++) {
        predicate->conditions[i] = found.conditions[i];
        found.conditions[i] = NULL;
    }
    return predicate->text != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status search_tensors(const struct nd_aligned_captures *alignment,
                                     struct nd_comparison *comparison, size_t test, bool *is_wrong,
                                     struct nd_error *err)
{
    ND_CLEANUP(nd_cells_deinit)
    struct nd_cells cells = {.is_wrong = is_wrong, .is_inherited = !alignment->unknown_models, .n_searches = 1};
    size_t n_wrong = 0;
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        const struct nd_compared_pair *pair = &comparison->tensors[e].pairs[test - 1];
        if (!is_cell(&comparison->tensors[e], pair))
            continue;
        is_wrong[cells.n] = nd_predicates_is_wrong(&pair->total.difference, comparison->has_gates);
        n_wrong += is_wrong[cells.n++];
    }
    if (n_wrong == 0 || n_wrong == cells.n || cells.n > ND_PREDICATE_MAX_CELLS)
        return ND_OK;
    for (size_t e = 0, cell = 0; e < comparison->n_tensors; e++)
        if (is_cell(&comparison->tensors[e], &comparison->tensors[e].pairs[test - 1]))
            ND_TRY(add_tensor(&cells, cell++, &comparison->tensors[e], err));
    return find_and_note(comparison, &(struct question){test, SIZE_MAX, false}, &cells, err);
}

/* ---- samples ---- */

/* Which samples are grossly wrong among others that differ by rounding, in place of which differ; false in
 * *is_of_size: the sizes do not part them, or are not known. */
static enum nd_status part_by_size(const struct nd_aligned_captures *alignment, size_t test, size_t tensor,
                                   size_t n, bool *is_wrong, bool *is_of_size, struct nd_error *err)
{
    ND_FREED double *sizes = nd_calloc(n, sizeof *sizes);
    ND_FREED bool *is_gross = nd_calloc(n, sizeof *is_gross);
    bool is_known = false;
    enum nd_status status = sizes != NULL && is_gross != NULL
                                ? nd_sample_sizes_read(alignment, tensor, test, n, sizes, &is_known, err)
                                : nd_fail_memory(err);
    bool is_told = status == ND_OK && is_known && nd_sample_sizes_part(sizes, n, is_gross);
    *is_of_size = false;
    /* Where all that differ are gross, "differ" says it. */
    for (size_t i = 0; i < n && is_told; i++)
        *is_of_size = *is_of_size || (is_wrong[i] && !is_gross[i]);
    for (size_t i = 0; i < n && *is_of_size; i++)
        is_wrong[i] = is_gross[i];
    return status;
}

/* The samples of a tensor that differ; where some are grossly wrong among others that differ by rounding,
 * these. */
static enum nd_status search_samples(const struct nd_aligned_captures *alignment,
                                     struct nd_comparison *comparison, size_t test, size_t tensor,
                                     size_t n_searches, struct nd_error *err)
{
    size_t n_samples = comparison->tensors[tensor].pairs[test - 1].total.difference.n_samples;
    ND_FREED bool *is_wrong = nd_calloc(n_samples, sizeof *is_wrong);
    ND_TRY_MEMORY(is_wrong != NULL, err);
    ND_CLEANUP(nd_cells_deinit) struct nd_cells cells = {.is_wrong = is_wrong, .n_searches = n_searches};
    for (size_t p = 0; p < alignment->n_probes; p++) {
        size_t n = nd_align_n_common(alignment, p, 0, test);
        const char *probe = alignment->probe_names[p];
        for (size_t s = 0; s < n && cells.n < n_samples; s++) {
            is_wrong[cells.n] = !nd_aligned_is_equal(alignment, tensor, p, 0, test, s);
            ND_TRY(nd_cells_add(&cells, cells.n, ND_FACT_PROBE, probe, strlen(probe), 0, err));
            ND_TRY(nd_cells_add(&cells, cells.n, ND_FACT_SAMPLE, "", 0, (int64_t)s, err));
            cells.n++;
        }
    }
    struct question question = {test, tensor, false};
    if (cells.n == n_samples)
        ND_TRY(part_by_size(alignment, test, tensor, n_samples, is_wrong, &question.is_of_size, err));
    return find_and_note(comparison, &question, &cells, err);
}

/* Samples may be told apart: by digests, or by the sizes of their differences. */
static enum nd_status is_searched(const struct nd_aligned_captures *alignment,
                                  const struct nd_comparison *comparison, size_t test, size_t tensor, bool *out,
                                  struct nd_error *err)
{
    const struct nd_compared_pair *pair = &comparison->tensors[tensor].pairs[test - 1];
    const struct nd_difference *d = &pair->total.difference;
    *out = false;
    if (!is_cell(&comparison->tensors[tensor], pair) || !nd_predicates_is_wrong(d, comparison->has_gates) ||
        d->n_samples < 2 || d->n_samples > ND_PREDICATE_MAX_CELLS)
        return ND_OK;
    return nd_align_is_alike(nd_aligned_tensor(alignment, tensor, 0),
                             nd_aligned_tensor(alignment, tensor, test), out, err);
}

/* The first tensor that has something to say. In a model, later tensors inherit the samples of the first. */
static enum nd_status search_all_samples(const struct nd_aligned_captures *alignment,
                                         struct nd_comparison *comparison, size_t test, struct nd_error *err)
{
    size_t tensors[MAX_SAMPLE_SEARCHES], n = 0, n_before = comparison->n_predicates;
    size_t limit = alignment->unknown_models ? MAX_SAMPLE_SEARCHES : 1;
    for (size_t e = 0; e < comparison->n_tensors && n < limit; e++) {
        bool is_wanted;
        ND_TRY(is_searched(alignment, comparison, test, e, &is_wanted, err));
        if (is_wanted)
            tensors[n++] = e;
    }
    for (size_t i = 0; i < n && comparison->n_predicates == n_before; i++)
        ND_TRY(search_samples(alignment, comparison, test, tensors[i], n, err));
    return ND_OK;
}

enum nd_status nd_predicates_find(const struct nd_aligned_captures *alignment,
                                  const struct nd_compare_options *options, struct nd_comparison *comparison,
                                  struct nd_error *err)
{
    ND_FREED bool *is_wrong = nd_calloc(comparison->n_tensors, sizeof *is_wrong);
    enum nd_status status = is_wrong != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t t = 1; t < comparison->n_devices && status == ND_OK; t++) {
        size_t n_before = comparison->n_predicates;
        if (options->is_cancelled != NULL && options->is_cancelled(options->cancel_context)) {
            status = nd_fail(err, ND_E_CANCELLED, NULL, "the comparison was stopped on request");
            break;
        }
        if (options->progress != NULL)
            options->progress(options->progress_context, "look where", t - 1, comparison->n_devices - 1);
        status = search_tensors(alignment, comparison, t, is_wrong, err);
        if (status == ND_OK && comparison->n_predicates == n_before)
            status = search_all_samples(alignment, comparison, t, err);
    }
    return status;
}
