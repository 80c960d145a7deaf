/* Reading a store into charts: history.c has the rows, columns and steps, history_values.c says which cells
 * have the same bits. */
#ifndef ND_GOLDEN_HISTORY_H
#define ND_GOLDEN_HISTORY_H

#include "core/arena.h"
#include "judge/golden/store.h"

struct nd_history_reading {
    const struct nd_golden *store;
    struct nd_arena *arena;
    size_t *chart_of; /* [store->n] */
    size_t *first_of; /* [charts] its first entry */
    size_t *newest;   /* [cells] of the chart at hand: an entry, or SIZE_MAX */
};

static inline const json_t *nd_history_record(const struct nd_history_reading *r, size_t entry)
{
    return r->store->entries[entry].json;
}

/* The place of the name, or names->n. hint: where it mostly is. */
size_t nd_history_place(const struct nd_golden_names *names, size_t hint, const char *name);

/* Fills the tensors of the chart, and the values of its cells. ND_ERR_MEMORY. */
enum nd_status nd_history_find_values(const struct nd_history_reading *r, struct nd_golden_chart *chart,
                                      struct nd_error *err);

#endif
