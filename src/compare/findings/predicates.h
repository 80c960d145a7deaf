/* Which tensors of a test are wrong, or which samples of a tensor. docs/reference/metrics.md#predicate. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compare/matching/matching.h"
#include "npudiff/core/status.h"

/* How far off each sample of a tensor is, and which are so by more than rounding.
 * docs/reference/metrics.md#predicate. */

/* Marks the samples that are grossly wrong among others that differ by rounding at most; false: the sizes do
 * not part so. A gross sample is off by a tenth of the spread or more, and ten times as far as every sample
 * that is not. NaN counts as nothing known. */
bool nd_sample_sizes_part(const double *sizes, size_t n, bool *is_gross);

/* Fills comparison->predicates; verdicts are known. ND_ERR_MEMORY. */
enum nd_status nd_predicates_find(const struct nd_aligned_captures *alignment,
                                  const struct nd_compare_options *options, struct nd_comparison *comparison,
                                  struct nd_error *err);

/* Whether a pair is grossly wrong: it fails its gate, or without gates differs by more than any rounding. */
bool nd_predicates_is_wrong(const struct nd_difference *difference, bool has_gates);

/* Which few words tell the wrong cells from the right ones: "type uint8 and n >= 5". A cell is a tensor, or a
 * sample of one. docs/reference/metrics.md#predicate. */

/* In the order in which conditions are preferred. */
enum nd_fact_kind {
    ND_FACT_TYPE,        /* key: the element type */
    ND_FACT_OPERATOR,    /* key: the operators */
    ND_FACT_NAME_NUMBER, /* key: the letters before a number in the name */
    ND_FACT_NAME_BEGIN,  /* key: how the name begins */
    ND_FACT_NAME_END,
    ND_FACT_NAME_PART, /* key: letters in the name */
    ND_FACT_RANK,
    ND_FACT_DIMENSION, /* key: which, from 0 */
    ND_FACT_ELEMENTS,
    ND_FACT_PROBE, /* key: its name */
    ND_FACT_SAMPLE,
};

/* What is known of a cell. */
struct nd_fact {
    enum nd_fact_kind kind;
    char *key;
    int64_t number; /* of kinds that have one */
    size_t cell;
};

struct nd_cells {
    size_t n;
    const bool *is_wrong;  /* [n], borrowed */
    bool is_inherited;     /* a cell inherits errors of earlier ones, as the tensors of a model do */
    size_t n_searches;     /* how many such questions are asked at once; at least 1 */
    struct nd_fact *facts; /* [n_facts] */
    size_t n_facts, capacity;
};

/* More cells than these are not searched, since the time grows with them (chosen). */
enum { ND_PREDICATE_MAX_CELLS = 4096, ND_PREDICATE_MAX_CONDITIONS = 2 };

struct nd_predicate {
    size_t n_conditions; /* 0: nothing can be said */
    char *conditions[ND_PREDICATE_MAX_CONDITIONS];
    double log2_chance; /* of the bound on the probability that some candidate hits a random pattern */
};

/* Adds a fact; key is copied (n bytes of it). ND_ERR_MEMORY. */
enum nd_status nd_cells_add(struct nd_cells *cells, size_t cell, enum nd_fact_kind kind, const char *key,
                            size_t n_key, int64_t number, struct nd_error *err);
/* Adds what a name says: numbers, how it begins and ends, and its parts. */
enum nd_status nd_cells_add_name(struct nd_cells *cells, size_t cell, const char *name, struct nd_error *err);
void nd_cells_deinit(struct nd_cells *cells);

/* The simplest condition, or two, that hold exactly for the wrong cells; none where there is none, where a
 * chance hit is likely, or where it would be trivial. Sorts the facts. ND_ERR_MEMORY. */
enum nd_status nd_predicate_find(struct nd_cells *cells, struct nd_predicate *out, struct nd_error *err);
void nd_predicate_deinit(struct nd_predicate *predicate);
