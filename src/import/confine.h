/* A child process for libraries that read strangers' files: what it may still do is read, write to what is
 * open, and get memory. */
#ifndef ND_IMPORT_CONFINE_H
#define ND_IMPORT_CONFINE_H

/* For good, and for the whole process: files can be opened for reading only, and there are no new processes,
 * sockets or signals to others (each such call fails with EPERM), no core dump, an hour of processor time; it
 * dies with its parent. Before a stranger's file is looked at. Where the kernel lacks a part of that, the rest
 * holds. */
void nd_confine_to_reading(void);

/* After that: nothing is opened any more, either. */
void nd_confine(void);

#endif
