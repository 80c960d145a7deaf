/* The folder that holds the runtimes, while something in it is changed: one process at a time, and what comes
 * in is whole. */
#ifndef ND_SDK_RUNTIME_STORE_H
#define ND_SDK_RUNTIME_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

enum { ND_RUNTIME_STORE_MAX_PUTS = 3 };

struct nd_runtime_store {
    char *root;
    char *work; /* a folder for what is not ready, in the same file system; removed on closing */
    int lock;
    size_t n_puts;
    struct nd_runtime_put {
        char *place; /* where it is now */
        char *old;   /* where what was there before is; NULL for nothing */
    } puts[ND_RUNTIME_STORE_MAX_PUTS];
};

/* Waits for other processes (tools/setup takes the same lock), and removes what a killed one left. */
enum nd_status nd_runtime_store_open(struct nd_runtime_store *out, struct nd_error *err);
/* Removes the working folder and lets others in. Accepts one that was never opened. */
void nd_runtime_store_close(struct nd_runtime_store *store);

/* Moves "<work>/<abi>" to its final place, and what is there away. On failure everything that this store put is
 * taken back. */
enum nd_status nd_runtime_store_put(struct nd_runtime_store *store, const char *id, const char *abi,
                                    struct nd_error *err);

#endif
