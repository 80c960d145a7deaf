/* The chipsets that are known by name. Thread-safe: the table is constant.
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_ARITHMETIC_CHIPSET_H
#define NPUDIFF_ARITHMETIC_CHIPSET_H

#include <stddef.h>

#include "npudiff/core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One SoC. Strings are static; "" where nothing is known. */
struct nd_chipset {
    const char *sm;        /* "SM8650" */
    int soc_model;         /* QNN's number for it */
    const char *arch;      /* Hexagon architecture, "v75" */
    const char *alias;     /* "gen3" */
    const char *marketing; /* "Snapdragon 8 Gen 3" */
};
ND_PUBLIC const struct nd_chipset *nd_chipsets(size_t *n);

/* By SM number or alias, in any case; a phone's "SM8650-AC" is an SM8650. NULL when unknown. */
ND_PUBLIC const struct nd_chipset *nd_chipset_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
