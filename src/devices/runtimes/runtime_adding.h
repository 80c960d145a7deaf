/* Between the files of one call of nd_runtimes_add: what was found, and the folder that is made of it. */
#ifndef ND_SDK_RUNTIME_ADDING_H
#define ND_SDK_RUNTIME_ADDING_H

#include <jansson.h>

#include "devices/runtimes/runtime_add.h"
#include "devices/runtimes/runtime_pick.h"
#include "npudiff/devices/device.h"

enum { ND_N_ABIS = 3 };

/* Everything about one call. */
struct nd_adding {
    const struct nd_runtime_adding *how;
    struct nd_runtime_store store;
    struct nd_runtime_source *sources;
    size_t n_sources;
    struct nd_parts parts;
    struct nd_pick picks[ND_N_ABIS];
    struct nd_runtime_info with[ND_N_ABIS]; /* what --with gives an ABI; empty for none */
    char *provider_version;                 /* NULL: not known */
    char *build_id;
    char *id;
    json_t *origin, *notes, *added;
};

#endif
