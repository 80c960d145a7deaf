/* Files that a machine elsewhere keeps between runs: sets of them under names that follow from what is in them,
 * so that nothing is sent twice. */
#ifndef ND_REMOTE_REMOTE_BUNDLE_H
#define ND_REMOTE_REMOTE_BUNDLE_H

#include "core/tensors/sha256.h"
#include "devices/phones/transport.h"

struct nd_bundle_file {
    char *name; /* in the bundle; may have folders */
    char *path; /* on this machine */
    char sha256[ND_SHA256_HEX_BYTES];
    uint64_t size_bytes;
    bool is_executable;
    bool is_missing; /* there, when it was last placed */
};

/* Zeroed is empty. */
struct nd_bundle {
    struct nd_bundle_file *files;
    size_t n;
    size_t capacity;
    char *folder;     /* there; NULL until it was placed */
    bool was_there;   /* complete, before it was placed */
    bool was_damaged; /* marked as complete, while a file was another one or gone */
};

/* Adds a file and reads its digest. A name that is there already is left out, with the same content or not: the
 * first counts, as on a search path. */
enum nd_status nd_bundle_add(struct nd_bundle *bundle, const char *name, const char *path, bool is_executable,
                             struct nd_error *err);
void nd_bundle_deinit(struct nd_bundle *bundle);

/* Makes sure that the machine has the bundles, whole, each at <root>/store/<digest of names and contents>: what
 * is there from a push that was interrupted stays. The machine measures the digest of every file now
 * (sha256sum); what differs, at whatever size, is sent again. *free_bytes: what the machine has left; goes down
 * by what is sent. n >= 1. ND_E_DEVICE_PUSH: no space (how much is needed, how much there is), a file that does
 * not arrive. */
enum nd_status nd_bundles_place(struct nd_bundle *const *bundles, size_t n, struct nd_transport *transport,
                                const char *root, uint64_t *free_bytes, struct nd_error *err);

/* The path there of what is `path` here, in new memory. *out is NULL when it is not in the bundle. */
enum nd_status nd_bundle_find(const struct nd_bundle *bundle, const char *path, char **out,
                              struct nd_error *err);

/* The digest that was measured there, when the bundle was placed, of the file at that path there; NULL when it
 * is not of this bundle. Borrowed. */
const char *nd_bundle_sha256(const struct nd_bundle *bundle, const char *path_there);

#endif
