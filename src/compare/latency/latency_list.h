/* A list of latencies while it is read: latency_read.c (text, CSV, NumPy), latency_json.c. */
#ifndef ND_LATENCY_LATENCY_LIST_H
#define ND_LATENCY_LATENCY_LIST_H

#include "core/error.h"
#include "npudiff/compare/latency.h"

struct nd_list {
    const char *path;
    const char *column; /* or NULL */
    double unit_us;
    double *us;
    size_t n, capacity;
    const char *format;
};

/* Appends value times the unit. `place` and `number` say where it stood ("line 7"). ND_ERR_FORMAT: not
 * positive, or not finite; more than ND_LATENCY_MAX_RUNS. */
enum nd_status nd_list_add(struct nd_list *list, double value, const char *place, size_t number,
                           struct nd_error *err);

/* Reads JSON text. */
enum nd_status nd_list_read_json(struct nd_list *list, const char *text, size_t n_bytes, struct nd_error *err);

/* Fails for a column that is not there; names is what there is, "'a', 'b'". */
enum nd_status nd_list_no_column(const struct nd_list *list, const char *names, struct nd_error *err);

#endif
