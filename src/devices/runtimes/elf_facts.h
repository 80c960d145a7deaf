/* What an ELF file says of itself: for which machine it is, and what it needs. A name says nothing of that. */
#ifndef ND_SDK_ELF_FACTS_H
#define ND_SDK_ELF_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

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

#endif
