/* Which program a runner is, so that an interrupted run is not continued by another one. */
#ifndef ND_RUNNER_PROGRAM_H
#define ND_RUNNER_PROGRAM_H

#include <sys/types.h>

#include "core/tensors/sha256.h"

/* SHA-256 over the digests of three files: the one that was started, at `path`; the executable that the process
 * is now, such as the interpreter of a script; and the first file that its command line names, such as the
 * script that a wrapper has started. What cannot be read counts as empty; what the program loads later is not
 * in it. */
void nd_runner_measure(const char *path, pid_t pid, char hex[static ND_SHA256_HEX_BYTES]);

#endif
