/* Comparing the fleet of support/fake_fleet.h. Include after support/main.h, in one file of a binary. */
#ifndef ND_TESTS_FLEET_COMPARE_H
#define ND_TESTS_FLEET_COMPARE_H

#include "base/error.h"
#include "npudiff/compare.h"
#include "support/fake_fleet.h"

enum { N_MAX = 6 };

struct fleet {
    struct nd_capture *captures[N_MAX];
    size_t n;
    struct nd_comparison *comparison;
    struct nd_compare_options options;
    struct nd_error err;
};

static inline void fleet_start(struct fleet *fleet, size_t n)
{
    static const char *const labels[N_MAX] = {"cpu", "gen1", "gen2", "gen3", "gen4", "gen5"};
    *fleet = (struct fleet){.n = n, .options = {.struct_size = sizeof fleet->options}};
    for (size_t i = 0; i < n; i++)
        fleet->captures[i] = fleet_make(labels[i], i == 0 ? "" : "SM8450");
}

static inline enum nd_status fleet_run(struct fleet *fleet)
{
    nd_comparison_destroy(&fleet->comparison);
    return nd_compare_captures((const struct nd_capture *const *)fleet->captures, fleet->n, &fleet->options,
                               &fleet->comparison, &fleet->err);
}

static inline const struct nd_comparison *fleet_compare(struct fleet *fleet)
{
    if (fleet_run(fleet) != ND_OK)
        fail_msg("%s", fleet->err.message);
    return fleet->comparison;
}

static inline void fleet_stop(struct fleet *fleet)
{
    nd_comparison_destroy(&fleet->comparison);
    for (size_t i = 0; i < fleet->n; i++)
        nd_capture_close(&fleet->captures[i]);
}

static inline const struct nd_compared_part *total_of(const struct nd_comparison *c, size_t edge, size_t test)
{
    return &c->edges[edge].pairs[test - 1].total;
}

#endif
