/* Tasks on several devices at once: those of one machine follow each other. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "npudiff/devices/device.h"

enum { MAX_THREADS = 256 }; /* chosen: of more machines than that the last ones wait for a thread */
static const size_t this_machine = SIZE_MAX;

struct lanes {
    const struct nd_device *const *devices;
    size_t n;
    nd_device_task *run;
    void *context;
    size_t *machines; /* [n], of the lanes: whose tasks a lane runs */
    size_t n_lanes;
    pthread_mutex_t lock; /* of what follows */
    bool *is_begun;       /* [n] */
    bool has_failed;      /* then nothing more is begun */
};

/* Which machine a task runs on: the first task that runs there stands for it. */
static size_t machine_of(const struct lanes *lanes, size_t task)
{
    const struct nd_device *device = lanes->devices[task];
    size_t first = 0;
    if (device->transport == ND_TRANSPORT_NONE)
        return this_machine;
    while (lanes->devices[first]->transport != device->transport ||
           strcmp(lanes->devices[first]->address, device->address) != 0)
        first++;
    return first;
}

/* Every other machine has one lane, this one as many as were asked for. */
static void make_lanes(struct lanes *lanes, size_t n_here)
{
    size_t n_made = 0;
    for (size_t i = 0; i < lanes->n; i++) {
        size_t machine = machine_of(lanes, i);
        if (machine == this_machine ? n_made++ < n_here : machine == i)
            lanes->machines[lanes->n_lanes++] = machine;
    }
}

/* The next task of the machine that nobody has begun; n when there is none. */
static size_t begin_next(struct lanes *lanes, size_t machine)
{
    size_t next = 0;
    pthread_mutex_lock(&lanes->lock);
    while (next < lanes->n && (lanes->is_begun[next] || machine_of(lanes, next) != machine))
        next++;
    if (lanes->has_failed)
        next = lanes->n;
    if (next < lanes->n)
        lanes->is_begun[next] = true;
    pthread_mutex_unlock(&lanes->lock);
    return next;
}

static enum nd_status run_lane(void *context, size_t worker, size_t lane, struct nd_error *err)
{
    (void)worker;
    struct lanes *lanes = context;
    enum nd_status status = ND_OK;
    size_t task;
    while (status == ND_OK && (task = begin_next(lanes, lanes->machines[lane])) < lanes->n)
        status = lanes->run(lanes->context, task, err);
    if (status != ND_OK) {
        pthread_mutex_lock(&lanes->lock);
        lanes->has_failed = true;
        pthread_mutex_unlock(&lanes->lock);
    }
    return status;
}

enum nd_status nd_devices_run(const struct nd_device *const *devices, size_t n, size_t n_here,
                              nd_device_task *run, void *context, struct nd_error *err)
{
    struct lanes lanes = {.devices = devices,
                          .n = n,
                          .run = run,
                          .context = context,
                          .machines = nd_calloc(n, sizeof *lanes.machines),
                          .is_begun = nd_calloc(n, sizeof *lanes.is_begun),
                          .lock = PTHREAD_MUTEX_INITIALIZER};
    enum nd_status status = ND_OK;
    if (lanes.machines == NULL || lanes.is_begun == NULL) {
        status = nd_fail_memory(err);
    } else if (n > 0) {
        make_lanes(&lanes, n_here > 0 ? n_here : 1);
        status = nd_parallel_for(lanes.n_lanes < MAX_THREADS ? lanes.n_lanes : MAX_THREADS, lanes.n_lanes,
                                 run_lane, &lanes, err);
    }
    pthread_mutex_destroy(&lanes.lock);
    ND_FREE_ALL(lanes.machines, lanes.is_begun);
    return status;
}
