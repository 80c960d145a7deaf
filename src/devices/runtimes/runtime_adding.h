/* Between the files of one call of nd_runtimes_add: what was found, and the folder that is made of it. */
#ifndef ND_SDK_RUNTIME_ADDING_H
#define ND_SDK_RUNTIME_ADDING_H

#include <jansson.h>

#include "npudiff/devices/device.h"
#include "devices/runtimes/runtime_pick.h"
#include "devices/runtimes/runtime_store.h"

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

/* ND_E_CANCELLED once the caller wants to stop. */
enum nd_status nd_adding_check(const struct nd_adding *adding, struct nd_error *err);

/* Fills `folder`, which does not exist yet, with the files of the ABI's pick and what it borrows; the manifest
 * comes last. */
enum nd_status nd_adding_stage(struct nd_adding *adding, size_t abi, const char *folder, struct nd_error *err);

#endif
