/* Runs of a device that does not exist: tensors of every kind, bytes that follow from where they are, and the
 * spool that the agent's store thread makes of them. No assertions, so that threads may use it. */
#ifndef ND_TESTS_FAKE_RUN_H
#define ND_TESTS_FAKE_RUN_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "devices/agent/agent.h"
#include "devices/agent/spool/job_file.h"
#include "devices/agent/spool/spool.h"

enum { FAKE_TENSORS = 7, FAKE_PROBES = 2, FAKE_PASSES = 2 };
enum { TENSOR_QVALUES, TENSOR_PAIR, TENSOR_BIG, TENSOR_EMPTY, TENSOR_SCALAR, TENSOR_WHOLE, TENSOR_LATE };

/* With five samples: one chunk of all, three chunks of two, chunks within a sample (of which the last is
 * partial), no chunk, one chunk of all, one chunk a sample, and one chunk of all. */
static const struct fake_tensor {
    const char *name;
    enum nd_dtype dtype;
    struct nd_shape shape;
    size_t pass; /* where there are two */
} fake_tensors[FAKE_TENSORS] = {
    {"conv/codes", ND_DTYPE_U8, {3, {1, 3, 4}}, 0},
    {"pair", ND_DTYPE_U16, {2, {1, 45000}}, 0},
    {"big", ND_DTYPE_I16, {2, {3, 45000}}, 1},
    {"empty", ND_DTYPE_F32, {3, {1, 0, 2}}, 0},
    {"scalar", ND_DTYPE_F64, {0, {0}}, 0},
    {"whole", ND_DTYPE_F32, {2, {170, 200}}, 1},
    {"late", ND_DTYPE_U8, {1, {7}}, 1},
};
static const size_t fake_samples[FAKE_PROBES] = {1, 5};
static const char *const fake_probe_names[FAKE_PROBES] = {"one", "five"};

struct fake_options {
    size_t n_repeats;
    int level;
    size_t n_passes;
    bool digests_only;
    bool pauses;     /* so that some samples are acknowledged before their chunk is whole */
    bool has_reruns; /* the first 4 samples of each probe are run again */
    bool fails;      /* ends with a failure record instead of the end */
};

static inline size_t fake_bytes(size_t tensor)
{
    size_t n = 0;
    nd_shape_size_bytes(&fake_tensors[tensor].shape, fake_tensors[tensor].dtype, &n, NULL);
    return n;
}

static inline size_t fake_pass(const struct fake_options *options, size_t tensor)
{
    return options->n_passes > 1 ? fake_tensors[tensor].pass : 0;
}

/* Whether this repeat gives other bytes than the first. */
static inline bool fake_differs(size_t probe, size_t tensor, size_t sample, size_t repeat)
{
    return repeat > 0 && (probe + tensor + sample + repeat) % 3 == 0;
}

static inline void fake_output(size_t probe, size_t tensor, size_t sample, size_t repeat, unsigned char *out)
{
    size_t n = fake_bytes(tensor);
    if (!fake_differs(probe, tensor, sample, repeat))
        repeat = 0;
    uint32_t word = (uint32_t)(probe * 7919 + tensor * 104729 + sample * 1299709 + repeat * 15485863 + 1);
    for (size_t i = 0; i < n; i++) {
        word = i % 64 == 0 ? word * 1664525u + 1013904223u : word;
        out[i] = (unsigned char)((word >> 24) + i % 5);
    }
}

/* ---- the job ---- */

struct fake_job {
    struct nd_agent_job job;
    struct nd_job_pass passes[FAKE_PASSES];
    struct nd_job_tensor tensors[FAKE_TENSORS];
    struct nd_job_probe probes[FAKE_PROBES];
};

static inline void fake_job_fill(struct fake_job *fake, const struct fake_options *options)
{
    *fake = (struct fake_job){.job = {.n_repeats = options->n_repeats,
                                      .deflate_level = (uint64_t)options->level,
                                      .store = options->digests_only ? ND_STORE_DIGEST : ND_STORE_FULL,
                                      .n_passes = options->n_passes,
                                      .n_tensors = FAKE_TENSORS,
                                      .n_probes = FAKE_PROBES}};
    fake->job.passes = fake->passes;
    fake->job.tensors = fake->tensors;
    fake->job.probes = fake->probes;
    for (size_t e = 0; e < FAKE_TENSORS; e++)
        fake->tensors[e] = (struct nd_job_tensor){.output = (char *)(uintptr_t)fake_tensors[e].name,
                                                  .dtype = fake_tensors[e].dtype,
                                                  .pass = fake_pass(options, e)};
    for (size_t p = 0; p < FAKE_PROBES; p++)
        fake->probes[p] = (struct nd_job_probe){.name = (char *)(uintptr_t)fake_probe_names[p],
                                                .n_samples = fake_samples[p],
                                                .n_rerun = !options->has_reruns  ? 0
                                                           : fake_samples[p] < 4 ? fake_samples[p]
                                                                                 : 4};
}

/* ---- one run ---- */

struct fake_views {
    size_t pass;
    struct nd_output_view all[FAKE_TENSORS];
    const struct nd_output_view *of_pass[FAKE_TENSORS];
};

static inline bool fake_views_make(struct fake_views *views, const struct fake_options *options, size_t pass)
{
    size_t n = 0;
    bool is_whole = true;
    *views = (struct fake_views){.pass = pass};
    for (size_t e = 0; e < FAKE_TENSORS; e++) {
        views->all[e] = (struct nd_output_view){.dtype = fake_tensors[e].dtype,
                                                .shape = fake_tensors[e].shape,
                                                .data = nd_tensor_alloc(fake_bytes(e)),
                                                .size_bytes = fake_bytes(e)};
        is_whole = is_whole && views->all[e].data != NULL;
        if (fake_pass(options, e) == pass)
            views->of_pass[n++] = &views->all[e];
    }
    return is_whole;
}

static inline void fake_views_free(struct fake_views *views)
{
    for (size_t e = 0; e < FAKE_TENSORS; e++)
        free((void *)(uintptr_t)views->all[e].data);
}

static inline uint64_t fake_latency_ns(size_t pass, size_t probe, size_t sample, size_t repeat)
{
    return 1000 * (probe * 100 + sample * 10 + repeat) + 500 + pass;
}

static inline enum nd_status fake_put(struct nd_store_thread *store, struct fake_views *views, size_t probe,
                                      size_t sample, size_t repeat, struct nd_error *err)
{
    for (size_t e = 0; e < FAKE_TENSORS; e++)
        fake_output(probe, e, sample, repeat, (unsigned char *)(uintptr_t)views->all[e].data);
    const struct nd_store_run run = {.probe = probe,
                                     .sample = sample,
                                     .repeat = repeat,
                                     .latency_ns = fake_latency_ns(views->pass, probe, sample, repeat),
                                     .views = views->of_pass};
    return nd_store_put(store, &run, err);
}

static inline void fake_pause(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* ---- a whole spool ---- */

static inline enum nd_status fake_run_pass(const struct nd_agent_job *job, const struct fake_options *options,
                                           size_t pass, struct nd_spool_writer *writer, struct nd_error *err)
{
    struct fake_views views;
    struct nd_store_thread *store = NULL;
    enum nd_status status =
        nd_spool_append(writer, &(struct nd_record){.kind = ND_RECORD_PASS, .index = {pass}}, err);
    if (!fake_views_make(&views, options, pass))
        status = ND_ERR_MEMORY;
    if (status == ND_OK)
        status = nd_store_start(job, pass, writer, &store, err);
    for (size_t p = 0; p < FAKE_PROBES; p++)
        for (size_t s = 0; s < fake_samples[p]; s++)
            for (size_t r = 0; status == ND_OK && r < options->n_repeats; r++) {
                if (options->pauses && s % 2 == 0 && s > 0 && r + 1 == options->n_repeats)
                    fake_pause(450);
                status = fake_put(store, &views, p, s, r, err);
            }
    enum nd_status finished = nd_store_finish(&store, status == ND_OK ? err : NULL);
    fake_views_free(&views);
    return status != ND_OK ? status : finished;
}

static inline enum nd_status fake_fields(struct nd_spool_writer *writer, enum nd_record_kind kind,
                                         const char *const (*fields)[2], struct nd_error *err)
{
    struct nd_strbuf payload = {0};
    for (; (*fields)[0] != NULL; fields++)
        nd_fields_add(&payload, (*fields)[0], (*fields)[1]);
    return nd_fields_append(writer, kind, NULL, 0, &payload, err);
}

static inline enum nd_status fake_head(struct nd_spool_writer *writer, struct nd_error *err)
{
    static const char *const load[][2] = {{"stage", "load"}, {NULL, NULL}};
    static const char *const runtime[][2] = {{"version", "1.2.3"}, {"build_info", "fake build"}, {NULL, NULL}};
    static const char *const library[][2] = {{"path", "/no/such/lib.so"}, {"build_id", "c0ffee"}, {NULL, NULL}};
    static const char *const node[][2] = {
        {"provider", "FakeProvider"}, {"name", "n0"}, {"op_type", "Conv"}, {"domain", ""}, {NULL, NULL}};
    /* On another provider, so that nothing can be said of nodes that are not listed. */
    static const char *const other[][2] = {
        {"provider", "OtherProvider"}, {"name", "n9"}, {"op_type", "Add"}, {"domain", ""}, {NULL, NULL}};
    static const char *const log[][2] = {
        {"severity", "2"}, {"location", "here"}, {"message", "a warning"}, {NULL, NULL}};
    static const char *const run[][2] = {{"stage", "run"}, {NULL, NULL}};
    enum nd_status status = fake_fields(writer, ND_RECORD_STAGE, load, err);
    if (status == ND_OK)
        status = fake_fields(writer, ND_RECORD_RUNTIME, runtime, err);
    if (status == ND_OK)
        status = fake_fields(writer, ND_RECORD_LIBRARY, library, err);
    if (status == ND_OK)
        status = fake_fields(writer, ND_RECORD_NODE, node, err);
    if (status == ND_OK)
        status = fake_fields(writer, ND_RECORD_NODE, other, err);
    if (status == ND_OK)
        status = fake_fields(writer, ND_RECORD_LOG, log, err);
    return status == ND_OK ? fake_fields(writer, ND_RECORD_STAGE, run, err) : status;
}

/* The spool of a device that runs everything, in the new file path. */
static inline enum nd_status fake_spool(const char *path, const struct fake_options *options,
                                        struct nd_error *err)
{
    static const char *const failure[][2] = {
        {"stage", "run"}, {"code", "527"}, {"object", "n0"}, {"message", "a node fell"}, {NULL, NULL}};
    struct fake_job fake;
    struct nd_spool_writer writer;
    fake_job_fill(&fake, options);
    enum nd_status status = nd_spool_writer_open(&writer, path, err);
    if (status != ND_OK)
        return status;
    status = fake_head(&writer, err);
    for (size_t pass = 0; status == ND_OK && pass < options->n_passes; pass++)
        status = fake_run_pass(&fake.job, options, pass, &writer, err);
    if (status == ND_OK && options->fails)
        status = fake_fields(&writer, ND_RECORD_FAILURE, failure, err);
    else if (status == ND_OK)
        status = nd_spool_append(&writer, &(struct nd_record){.kind = ND_RECORD_END}, err);
    enum nd_status closed = nd_spool_writer_close(&writer, status == ND_OK ? err : NULL);
    return status != ND_OK ? status : closed;
}

/* Several spools at once: those with pauses mostly wait. */
struct fake_task {
    const char *path;
    const struct fake_options *options;
    enum nd_status status;
    struct nd_error error;
    pthread_t thread;
};

static inline void *fake_task_run(void *context)
{
    struct fake_task *task = context;
    task->status = fake_spool(task->path, task->options, &task->error);
    return NULL;
}

static inline bool fake_spools(struct fake_task *tasks, size_t n)
{
    size_t n_started = 0;
    bool is_whole = true;
    while (n_started < n &&
           pthread_create(&tasks[n_started].thread, NULL, fake_task_run, &tasks[n_started]) == 0)
        n_started++;
    for (size_t i = 0; i < n_started; i++) {
        pthread_join(tasks[i].thread, NULL);
        is_whole = is_whole && tasks[i].status == ND_OK;
    }
    return is_whole && n_started == n;
}

#endif
