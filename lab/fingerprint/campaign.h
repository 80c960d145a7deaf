/* Datasheets of several devices and runtimes as one grid: which cell has which arithmetic of an operator, and
 * between which cells it changes. fingerprint_campaign.c fills it in, campaign_steps.c finds the steps. */
#ifndef ND_FINGERPRINT_CAMPAIGN_H
#define ND_FINGERPRINT_CAMPAIGN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What stands in a cell instead of the number of an arithmetic. */
enum {
    ND_CELL_EMPTY = -1,   /* no datasheet, or the operator is not in it */
    ND_CELL_UNKNOWN = -2, /* no arithmetic and no digests, or it changes from run to run */
    ND_CELL_FAILED = -3,  /* the device refused or broke off */
};

struct nd_campaign_operator {
    const char *section; /* borrowed from a datasheet */
    const json_t *entry; /* the first: its "operator" and "types" */
    json_t *claims;      /* [number of the arithmetic]; owned */
    int *cells;          /* [n_devices * n_runtimes], device by device; owned */
};

/* Devices in the order of their architectures, runtimes in that of their versions. */
struct nd_campaign {
    char **devices, **runtimes; /* [n_...], owned */
    const char *
        *titles; /* [n_devices]: the architecture, where only one device has it; borrowed; owned array */
    size_t n_devices, n_runtimes;
    size_t *sheet_of; /* [n_devices * n_runtimes]: number of the datasheet, SIZE_MAX: none; owned */
    struct nd_campaign_operator *operators;
    size_t n_operators, operators_capacity;
};

/* The steps, an array of docs/reference/schemas/datasheet_campaign.json; NULL: memory is out. */
json_t *nd_campaign_steps(const struct nd_campaign *campaign);

/* Whether the operator has the same arithmetic in all cells that tell; *is_known: at least two cells do. */
bool nd_campaign_is_same(const struct nd_campaign *campaign, const struct nd_campaign_operator *operator,
                         bool * is_known);

#endif
