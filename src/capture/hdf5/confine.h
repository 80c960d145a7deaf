/* A child process for libraries that read strangers' files: what it may still do is read, write to what is
 * open, and get memory. */
#ifndef ND_HDF5_CONFINE_H
#define ND_HDF5_CONFINE_H

#include <stdint.h>

/* Call this before the process looks at a stranger's file. It holds for good, and for the whole process:
 * files can be opened for reading only; there are no new processes, sockets or signals to others (each such
 * call fails with EPERM); there is no core dump; the kernel ends the process after max_cpu_s seconds of
 * processor time; and the process dies with its parent. Where the kernel lacks one of these, the others
 * hold. */
void nd_confine_to_reading(uint64_t max_cpu_s);

/* After that: nothing is opened any more, either. */
void nd_confine(void);

#endif
