/* A child process for libraries that read strangers' files: what it may still do is read what is open, write to
 * its parent, and get memory up to a limit. docs/architecture.md#confined. */
#ifndef ND_HDF5_CONFINE_H
#define ND_HDF5_CONFINE_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* A kernel, or an emulator of one, that cannot confine: NPUDIFF_CONFINE=off reads without. */
#define ND_CONFINE_VARIABLE "NPUDIFF_CONFINE"
#define ND_CONFINE_OFF "off"

struct nd_confinement {
    const char *path; /* the stranger's file, for the message */
    const int *fds;   /* [n_fds], the descriptors that it keeps; -1: none */
    size_t n_fds;
    int pipe;                 /* the one of them that it may write to */
    const void *shared;       /* the memory that it shares with its parent; NULL: none */
    uint64_t max_cpu_s;       /* of processor time, after which the kernel ends it */
    uint64_t max_more_memory; /* bytes of addresses, beside what it has */
};

/* Call this in the child before it looks at a stranger's file. It holds for good, and for the whole process:
 * all other descriptors are closed, and memory that others can see is given back; nothing can be opened, and
 * there are no new processes, sockets or signals to others (each such call fails with EPERM); there is no core
 * dump; and the process dies with its parent. ND_E_FILE_READ: the kernel lacks one of these, and the caller
 * must not go on. Without /proc, the limit of memory and giving back shared memory are left out. */
enum nd_status nd_confine(const struct nd_confinement *confinement, struct nd_error *err);

#endif
