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
#ifndef ND_SDK_RUNTIME_MANIFEST_H
#define ND_SDK_RUNTIME_MANIFEST_H

#include <jansson.h>

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

#endif
