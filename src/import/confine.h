/* A child process for libraries that read strangers' files: what it may still do is read, write to what is
 * open, and get memory. */
#ifndef ND_IMPORT_CONFINE_H
#define ND_IMPORT_CONFINE_H

/* For good, and for the whole process: no new files, processes, sockets or signals to others (each such call
 * fails with EPERM), no core dump, an hour of processor time; it dies with its parent. Where the kernel lacks a
 * part of that, the rest holds. */
void nd_confine(void);

#endif
