/* A golden store in memory, and the little that reading, writing and judging share. docs/reference/store.md. */
#pragma once

#include <jansson.h>

#include "core/error.h"
#include "core/tensors/sha256.h"
#include "npudiff/judge/judge.h"

/* What an entry of the golden store, or a bundle, says of one capture: its axes and a digest of every tensor.
 * docs/reference/store.md#entries. Records are JSON objects; every function that makes one gives a new
 * reference. */

/* What a capture was made with, sorted into six axes, so that two captures can be told apart by what changed
 * between them. docs/reference/store.md#axes. An axis is a flat JSON object of texts; all six are members of
 * one object. */

enum nd_axis {
    ND_AXIS_SDK,     /* the runtime: its id, versions and libraries */
    ND_AXIS_CHIPSET, /* the silicon or its simulator, the phone and its firmware */
    ND_AXIS_MODEL,
    ND_AXIS_PROBES,  /* what was fed */
    ND_AXIS_OPTIONS, /* of the provider, the session and the capture */
    ND_AXIS_HOST,
    ND_N_AXES,
};

/* "sdk", "chipset", "model", "probes", "options", "host". Static. */
const char *nd_axis_name(enum nd_axis axis);

/* "qairt-2.51.0"; of an import that names no runtime the version of the SDK that it states; "" without one. */
const char *nd_axes_sdk(const json_t *axes);

/* "SM8650"; of a device that is no Snapdragon its profile or kind; "unknown". Borrowed from axes, or static. */
const char *nd_axes_chipset(const json_t *axes);

/* What stands for a name that must not be told: '#' and the first 16 digits of its SHA-256. */
enum { ND_HIDDEN_BYTES = 18 };

/* {"axes", "status", "failure", "probes", "edges"}; NULL when memory is out. */
json_t *nd_record_of_capture(const struct nd_capture *capture);

/* NULL when the record has all that the functions here read, else what is wrong. Static. */
const char *nd_record_problem(const json_t *record);

/* A copy without names, types, operators and messages, for a bundle; NULL when memory is out. */
json_t *nd_record_hidden(const json_t *record);

/* The text member, "" when there is none. */
const char *nd_record_text(const json_t *object, const char *key);

/* Why its device failed; borrowed from the record. */
struct nd_golden_failure nd_record_failure(const json_t *record);

/* ---- how one record stands to another ---- */

/* How test stands to ref (both sound, both plain or both hidden), without magnitudes. `shown` has ref's plain
 * names (ref itself, or what it was hidden from). *out holds references to all three; the caller ends it with
 * nd_record_difference_deinit, also after a failure. */
enum nd_status nd_record_compare(const json_t *ref, const json_t *test, const json_t *shown,
                                 struct nd_golden_difference *out, struct nd_error *err);
void nd_record_difference_deinit(struct nd_golden_difference *difference);

bool nd_record_is_comparable(const struct nd_golden_difference *d); /* same model, a probe in common */
bool nd_record_is_equal(
    const struct nd_golden_difference *d); /* all tensors of all common probes, and the end */

/* ---- the store ---- */

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
