/* A golden store in memory, and the little that reading, writing and judging share. docs/reference/store.md. */
#ifndef ND_GOLDEN_STORE_H
#define ND_GOLDEN_STORE_H

#include "core/error.h"
#include "core/tensors/sha256.h"
#include "judge/golden/store_record.h"
#include "npudiff/judge/judge.h"

enum { ND_STORE_VERSION = 1, ND_STORE_MAX_ENTRY_BYTES = 64 << 20 };

struct nd_store_entry {
    char id[ND_SHA256_HEX_BYTES]; /* SHA-256 of its file */
    json_t *json;                 /* sound (nd_record_problem) */
};

/* A snapshot: what others write later is not seen until nd_store_load. */
struct nd_golden {
    char *path;
    size_t n;
    struct nd_store_entry *entries; /* by date, label and id */
    size_t n_read;                  /* files of entries that were read so far */
    size_t n_problems, problem_capacity;
    struct nd_store_problem {
        char *object, *problem;
    } * problems;
};

/* "<store>/<folder>/<name><suffix>" in new memory, or NULL when out of memory. */
char *nd_store_path(const struct nd_golden *store, const char *folder, const char *name, const char *suffix);

/* Opens the object of an entry, after checking its bytes against its name. ND_ERR_NOT_FOUND: the entry has
 * digests only, or the object is gone; ND_ERR_FORMAT: it is damaged. */
enum nd_status nd_store_open_object(const struct nd_golden *store, const struct nd_store_entry *entry,
                                    struct nd_capture **out, struct nd_error *err);

#endif
