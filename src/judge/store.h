/* A golden store in memory, and the little that reading, writing and judging share. docs/reference/store.md. */
#ifndef ND_JUDGE_STORE_H
#define ND_JUDGE_STORE_H

#include "base/error.h"
#include "base/sha256.h"
#include "judge/store_record.h"
#include "npudiff/judge.h"

enum { ND_STORE_VERSION = 1, ND_STORE_MAX_ENTRY_BYTES = 64 << 20 };

struct nd_store_entry {
    char id[ND_SHA256_HEX_BYTES]; /* SHA-256 of its file */
    json_t *json;                 /* sound (nd_record_problem) */
};

/* A snapshot: what others write later is not seen until nd_store_load. */
struct nd_golden {
    char *path;
    size_t n, capacity;
    struct nd_store_entry *entries; /* by date, label and id */
    json_t *problems;               /* [{"object", "problem"}] */
};

/* Reads all entries anew. Damage is a problem of the store, not an error. */
enum nd_status nd_store_load(struct nd_golden *store, struct nd_error *err);

/* "<store>/<folder>/<name><suffix>" in new memory, or NULL when out of memory. */
char *nd_store_path(const struct nd_golden *store, const char *folder, const char *name, const char *suffix);

/* The digest that `name` starts with when it is "<64 digits><suffix>", else false. */
bool nd_store_digest_of(const char *name, const char *suffix, char hex[static ND_SHA256_HEX_BYTES]);

/* Waits until no other writer is at work; *fd is to be given to nd_store_unlock. */
enum nd_status nd_store_lock(const char *path, int *fd, struct nd_error *err);
void nd_store_unlock(int *fd);

/* Opens the object of an entry, after checking its bytes against its name. ND_ERR_NOT_FOUND: the entry has
 * digests only, or the object is gone; ND_ERR_FORMAT: it is damaged. */
enum nd_status nd_store_open_object(const struct nd_golden *store, const struct nd_store_entry *entry,
                                    struct nd_capture **out, struct nd_error *err);

/* Adds to every edge of a comparison's list "different" (nd_record_compare, of plain records) how much it
 * differs, over its "probes": "elements", "elements_differing", "share", "max_lsb" (null: floats) and "max_abs"
 * in real units; null where it is not known, as without ref (nullable), or where a side keeps digests only. */
enum nd_status nd_store_measure(const struct nd_capture *ref, const struct nd_capture *test, json_t *comparison,
                                struct nd_error *err);

/* {"id", "label", "date", "sdk", "chipset", "store"}: an entry in a few words; NULL when memory is out. */
json_t *nd_store_describe(const struct nd_golden *store, const struct nd_store_entry *entry);

/* Ends a report: its text, indented, into *json. Takes over the reference; NULL gives ND_ERR_MEMORY. Adds the
 * store's problems (nullable store). */
enum nd_status nd_store_report(const struct nd_golden *store, json_t *report, char **json,
                               struct nd_error *err);

#endif
