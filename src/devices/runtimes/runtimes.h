/* runtime.json, which says what a runtime's folder holds.
 *
 * An object; paths are relative to the folder. Only "ort_library" or "net_run" must be there:
 *   "onnxruntime", "onnxruntime_qnn", "build_id"             versions, as texts
 *   "abi"                                                    "x86_64-linux" when it is not there
 *   "ort_library", "provider_library", "backend_library", "net_run"
 *   "files"     array of paths: what another machine needs of it; found by rule when it is not there
 *   "sha256"    object: path to digest, of the files as they were added
 *   "origin"    array of {"name", "sha256"}: what it was made of
 *   "made_by"   "npudiff runtimes add" of those that 'npudiff runtimes remove' may remove
 * The folder's name is the id, with ".<abi>" behind it where the ABI is not x86_64-linux: an id may exist for
 * several. tools/setup writes the same file. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "npudiff/devices/device.h"

#define ND_RUNTIME_MANIFEST "runtime.json"
#define ND_RUNTIME_MADE_BY "npudiff runtimes add"
#define ND_ABI_DEFAULT "x86_64-linux"

/* The folder that holds all runtimes, an absolute path in new memory; NULL when out of memory. */
char *nd_runtimes_folder(void);

/* Reads the manifest in the folder. *out is NULL where there is none that can be used, and *problem, in new
 * memory, says why: it is damaged, or must not be read; NULL: there is none. ND_ERR_IO: one that may be read
 * cannot be read now (too many open files), and a run must not take another runtime for that; ND_ERR_MEMORY. */
enum nd_status nd_runtime_manifest_load(const char *folder, json_t **out, char **problem, struct nd_error *err);

/* Whether a library beside the backend is ever loaded for running a model: the backend, what prepares and reads
 * contexts, stubs and skeletons, what configuration files need, C++ libraries; but not other backends and
 * tools. */
bool nd_runtime_is_needed(const char *name);

/* 75 for libQnnHtpV75Skel.so ("Skel") or libQnnHtpV75Stub.so ("Stub"), 0 for other names. */
int nd_runtime_arch_of(const char *name, const char *what);

/* What a runtime can be used for, as a JSON array: "cpu", "htp", "qnn-net-run". NULL when out of memory. */
json_t *nd_runtime_uses(const struct nd_runtime_info *info);

/* The word is an ABI that npudiff has a name for. */
bool nd_abi_is_known(const char *abi);

/* The folder that holds the runtimes, while something in it is changed: one process at a time, and what comes
 * in is whole. */

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

/* What an ELF file says of itself: for which machine it is, and what it needs. A name says nothing of that. */

/* Owned by the caller, who deinits it. */
struct nd_elf_facts {
    const char *abi;  /* "x86_64-linux", "aarch64-linux", "aarch64-android", "hexagon", or NULL: no ABI that
                         npudiff knows. Static. */
    char machine[32]; /* in words: "AArch64", "x86-64", "Hexagon", "machine 40" */
    char *soname;     /* NULL where there is none */
    char *build_id;   /* GNU build id in hexadecimal; NULL where there is none */
    char *version; /* what stands behind "VERS_" in a version that it defines (ONNX Runtime's own); or NULL */
    size_t n_needed;
    char **needed; /* libraries that it is linked with */
};

/* Reads an executable or shared library, through libelf; every offset that the file gives is held against its
 * size there. *is_elf is false, and nothing else set, for a file of another kind (an empty one, an archive, a
 * Windows library); ND_E_RUNTIME_LIBRARY for one that is cut off or contradicts itself. */
enum nd_status nd_elf_read(const char *path, bool *is_elf, struct nd_elf_facts *out, struct nd_error *err);
void nd_elf_deinit(struct nd_elf_facts *facts);

/* The QNN build id that the file's bytes hold ("v2.51.0.260929181845"): the first "v2.<n>.<n>.<six digits or
 * more>"; *out is NULL when there is none. */
enum nd_status nd_elf_find_qnn_build(const char *path, char **out, struct nd_error *err);

/* Where a runtime is taken from: an archive (a wheel, an AAR: both are zip files) or a folder. */

struct nd_source_file {
    char *name; /* its path inside, without a '/' at the start and without ".." */
    uint64_t size_bytes;
    uint64_t index; /* of an archive's member */
    char *digest; /* of a wheel's file as its RECORD says it: base64 of SHA-256, with '-' and '_', without '=';
                     NULL: RECORD says none */
};

struct nd_runtime_source {
    char *path;
    struct zip *zip; /* NULL for a folder */
    bool is_wheel;   /* it has a RECORD: a file is taken only if it has the digest that is there */
    size_t n;
    struct nd_source_file *files; /* sorted by name; regular files, and links to such in a folder */
};

/* Lists what is inside. ND_E_FILE_OPEN; ND_E_RUNTIME_SOURCE for what is neither folder nor zip file, for
 * archives that are damaged or hold a name that leads out of them, a link, an encrypted member, one name twice
 * or a size that cannot be, for wheels without RECORD or with one that cannot be read, and for folders with
 * more than 200 000 files. Links to folders are not followed. */
enum nd_status nd_runtime_source_open(const char *path, struct nd_runtime_source *out, struct nd_error *err);
void nd_runtime_source_close(struct nd_runtime_source *source);

/* Writes file i to `to`, which must not exist: all of it (an archive's checksum and a wheel's digest are
 * verified) or nothing. is_cancelled is nullable. */
enum nd_status nd_runtime_source_extract(const struct nd_runtime_source *source, size_t i, const char *to,
                                         bool (*is_cancelled)(void *), void *context, struct nd_error *err);

/* The text of file i in new memory, cut off behind 1 MiB; a longer one in a wheel is refused, as unverified. */
enum nd_status nd_runtime_source_text(const struct nd_runtime_source *source, size_t i, char **out,
                                      struct nd_error *err);

/* ---- which of the files in wheels, folders and SDKs make a runtime, ABI by ABI ---- */

/* A library or program that may be part of a runtime, looked into. */
struct nd_part {
    size_t source, file; /* which of which source */
    const char *name;    /* its path there; borrowed */
    const char *base;    /* the last part of it */
    char *path;          /* where its bytes are: in the folder itself, or taken out of the archive */
    bool is_extracted;   /* path is in the working folder */
    struct nd_elf_facts facts;
};

/* Everything that was found, and a working folder for what is in archives. */
struct nd_runtime_parts {
    const struct nd_runtime_source *sources;
    size_t n_sources;
    const char *folder;
    bool (*is_cancelled)(void *);
    void *cancel_context;
    size_t n, capacity;
    struct nd_part *items;
    bool has_windows, has_macos; /* libraries for them were seen */
};

/* Looks into every file whose name may belong to a runtime, and into those that these are linked with.
 * ND_E_RUNTIME_LIBRARY for one that is no library, or a damaged one. */
enum nd_status nd_parts_find(struct nd_runtime_parts *parts, struct nd_error *err);
void nd_parts_deinit(struct nd_runtime_parts *parts);

/* What one ABI gets. Borrowed from the parts; NULL: not there. */
struct nd_pick {
    const char *abi;
    const struct nd_part *ort, *provider, *backend, *net_run;
    size_t n, capacity;
    const struct nd_part **files; /* all of them, the above among them */
    const char *passed_over;      /* a folder with another build for this ABI, or NULL */
};

/* Fills pick for pick->abi; empty (n = 0) when nothing is for it. ND_E_RUNTIME_SOURCE when two sources give the
 * same library. */
enum nd_status nd_pick_choose(const struct nd_runtime_parts *parts, struct nd_pick *pick, struct nd_error *err);
