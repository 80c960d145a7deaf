/* One task per index on several threads, with the same outcome whatever the threads do. */
#pragma once

#include <stddef.h>

#include "npudiff/core/status.h"

/* How many processors this process may use (its affinity mask; limits of processor time are not looked at). At
 * least 1. */
size_t nd_parallel_n_threads(void);

/* Runs tasks 0 .. n_tasks - 1, each once, on n_threads workers (0: nd_parallel_n_threads; never more than
 * tasks). They are taken in increasing order. The calling thread is worker 0; what a worker number indexes
 * needs no lock. With one worker everything runs in the calling thread. Threads that cannot be created are done
 * without.
 *
 * After a failure no new task begins, and those that have begun are waited for. The status and error are those
 * of the lowest task that failed, which does not depend on timing when it does not depend on it whether a task
 * fails. run's err is never NULL. All that the tasks wrote is visible to the caller afterwards. */
enum nd_status nd_parallel_for(size_t n_threads, size_t n_tasks,
                               enum nd_status (*run)(void *context, size_t worker, size_t task,
                                                     struct nd_error *err),
                               void *context, struct nd_error *err);
