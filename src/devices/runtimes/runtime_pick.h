/* Which of the files in wheels, folders and SDKs make a runtime, ABI by ABI. */
#ifndef ND_SDK_RUNTIME_PICK_H
#define ND_SDK_RUNTIME_PICK_H

#include "devices/runtimes/elf_facts.h"
#include "devices/runtimes/runtime_source.h"

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
void nd_pick_deinit(struct nd_pick *pick);

#endif
