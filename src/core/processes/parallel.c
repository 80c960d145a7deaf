/* One task per index on several threads, with the same outcome whatever the threads do. */
#include "core/processes/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/memory.h"

/* Fewer than the kernel knows of is an error of sched_getaffinity: ask with more room until it is enough. */
enum { MIN_CPUS = 1024, MAX_CPUS = 1 << 20 };

static size_t count_cpus(size_t n_cpus)
{
    cpu_set_t *set = CPU_ALLOC(n_cpus);
    if (set == NULL)
        return 0;
    size_t size_bytes = CPU_ALLOC_SIZE(n_cpus);
    int count = sched_getaffinity(0, size_bytes, set) == 0 ? CPU_COUNT_S(size_bytes, set) : 0;
    CPU_FREE(set);
    return count > 0 ? (size_t)count : 0;
}

size_t nd_parallel_n_threads(void)
{
    for (size_t n_cpus = MIN_CPUS; n_cpus <= MAX_CPUS; n_cpus *= 4) {
        size_t count = count_cpus(n_cpus);
        if (count > 0)
            return count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (size_t)online : 1;
}

struct work {
    enum nd_status (*run)(void *context, size_t worker, size_t task, struct nd_error *err);
    void *context;
    size_t n_tasks;
    atomic_size_t next;
    atomic_bool stop;
    pthread_mutex_t lock; /* of what follows */
    enum nd_status status;
    size_t failed_task;
    struct nd_error error;
};

struct worker {
    struct work *work;
    size_t index;
    pthread_t thread;
};

static void note_failure(struct work *work, size_t task, enum nd_status status, const struct nd_error *error)
{
    pthread_mutex_lock(&work->lock);
    if (work->status == ND_OK || task < work->failed_task) {
        work->status = status;
        work->failed_task = task;
        work->error = *error;
    }
    pthread_mutex_unlock(&work->lock);
    atomic_store(&work->stop, true);
}

static void *run_worker(void *argument)
{
    const struct worker *worker = argument;
    struct work *work = worker->work;
    /* Stop is asked before a task is taken: a task that was taken is run, so that below a failed task none is
     * left out. */
    while (!atomic_load(&work->stop)) {
        size_t task = atomic_fetch_add(&work->next, 1);
        if (task >= work->n_tasks)
            break;
        struct nd_error error = {0};
        enum nd_status status = work->run(work->context, worker->index, task, &error);
        if (status != ND_OK)
            note_failure(work, task, status, &error);
    }
    return NULL;
}

enum nd_status nd_parallel_for(size_t n_threads, size_t n_tasks,
                               enum nd_status (*run)(void *context, size_t worker, size_t task,
                                                     struct nd_error *err),
                               void *context, struct nd_error *err)
{
    struct work work = {
        .run = run, .context = context, .n_tasks = n_tasks, .lock = PTHREAD_MUTEX_INITIALIZER, .status = ND_OK};
    struct worker self = {.work = &work};
    size_t n_wanted = n_threads > 0 ? n_threads : nd_parallel_n_threads();
    size_t n_workers = n_wanted < n_tasks ? n_wanted : n_tasks;
    struct worker *others = n_workers > 1 ? nd_calloc(n_workers - 1, sizeof *others) : NULL;
    size_t n_created = 0;
    while (others != NULL && n_created + 1 < n_workers) {
        struct worker *other = &others[n_created];
        *other = (struct worker){.work = &work, .index = n_created + 1};
        if (pthread_create(&other->thread, NULL, run_worker, other) != 0)
            break;
        n_created++;
    }
    run_worker(&self);
    for (size_t i = 0; i < n_created; i++)
        pthread_join(others[i].thread, NULL);
    free(others);
    pthread_mutex_destroy(&work.lock);
    if (work.status != ND_OK && err != NULL)
        *err = work.error;
    return work.status;
}
