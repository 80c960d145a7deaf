/* Shared by result_store.c and result_store_restore.c only: what the store thread knows. */
#ifndef ND_AGENT_RESULT_STORE_INTERNAL_H
#define ND_AGENT_RESULT_STORE_INTERNAL_H

#include <pthread.h>

#include "core/tensors/chunk.h"
#include "devices/agent/result_store.h"

enum { N_SLOTS = 4 }; /* runs that may wait for the thread */

/* A run that waits for the thread. */
struct slot {
    size_t probe;
    size_t sample;
    size_t repeat;
    uint64_t latency_ns;
    void **data; /* per tensor */
};

/* What the thread keeps per tensor. */
struct tensor_state {
    enum nd_dtype dtype;
    struct nd_shape shape;
    size_t sample_bytes;
    struct nd_chunk_layout layout; /* for the probe in work */
    unsigned char *open_chunk;     /* samples of a chunk that is not whole yet */
    size_t n_open;                 /* samples in it */
    size_t n_acknowledged;         /* of those, stored as fragments already */
};

struct nd_store_thread {
    const struct nd_job *job;
    struct nd_spool_writer *writer;
    size_t n_tensors;   /* of the pass */
    size_t *tensor_ids; /* their numbers in the job */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slot slots[N_SLOTS]; /* a ring: n_waiting of them from first on */
    size_t first;
    size_t n_waiting;
    bool is_ending;
    bool has_shapes;
    enum nd_status status;
    struct nd_error error;
    /* the thread's own */
    struct tensor_state *tensors;
    struct nd_digest *digests;       /* of the run in work */
    struct nd_digest *first_digests; /* of repeat 0 of the sample in work */
    unsigned char *encoded;
    size_t encoded_bytes;
    size_t probe;  /* in work; SIZE_MAX before the first */
    size_t n_runs; /* of the sample in work */
    size_t n_complete;
    size_t n_acknowledged;
    uint64_t acknowledged_ns;
};

/* Fixes what a tensor (of the pass) is and makes the buffers for it. Once per tensor. */
enum nd_status nd_store_set_shape(struct nd_store_thread *store, size_t tensor, enum nd_dtype dtype,
                                  const struct nd_shape *shape, struct nd_error *err);

/* Cuts the tensors into chunks for that probe, none of them begun. */
enum nd_status nd_store_begin_probe(struct nd_store_thread *store, size_t probe, struct nd_error *err);

#endif
