/* Where a set of edges is split that does not hold. */
#ifndef ND_RECORD_PASS_SPLIT_H
#define ND_RECORD_PASS_SPLIT_H

#include "npudiff/model/model.h"
#include "record/sessions/tried.h"

struct nd_candidate {
    size_t at;   /* position among the recording's edges */
    size_t kind; /* edge_kinds.h */
};

/* Marks the kinds of edges that fallen nodes make or read. A provider's layout pass renames some nodes: those
 * tell nothing. kinds: of the model's edges; is_near: [n edges of the model], by kind. */
void nd_near_kinds(const struct nd_model *model, const size_t *kinds, const struct nd_fallen *fallen,
                   bool *is_near);

/* The same, but of what they read alone. */
void nd_read_kinds(const struct nd_model *model, const size_t *kinds, const struct nd_fallen *fallen,
                   bool *is_read);

/* Moves the candidates of which is_near says that their kind is near what fell to the end; how many are in
 * front. */
size_t nd_part_suspects(struct nd_candidate *x, size_t n, const bool *is_near);

/* Orders the candidates, of which there are two at least, and returns how many of them are to be tried first: 1
 * to n - 1. The suspects come last: kinds near what fell, then kinds of which some were rejected. Else kinds
 * are split from one another, and those of one kind last. n_accepted, n_rejected: of each kind, until now. */
size_t nd_split(struct nd_candidate *x, size_t n, const bool *is_near, const size_t *n_accepted,
                const size_t *n_rejected);

#endif
