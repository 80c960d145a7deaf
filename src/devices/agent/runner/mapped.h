/* The libraries that another process has loaded. */
#ifndef ND_RUNNER_MAPPED_H
#define ND_RUNNER_MAPPED_H

#include <sys/types.h>

#include "devices/agent/runtime/runtime.h"

/* Every file with code that the process has mapped: its path, and its build id ("" without one). Best effort.
 */
void nd_visit_mapped(pid_t pid, nd_library_visitor visit, void *context);

#endif
