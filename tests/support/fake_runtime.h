/* runtime/runtime.h over the tensors of fake_run.h: for tests of the agent itself, in this process. The one
 * input of a session holds the numbers of probe and sample; which repeat it is, the session counts. */
#ifndef ND_TESTS_FAKE_RUNTIME_H
#define ND_TESTS_FAKE_RUNTIME_H

#include "core/memory.h"
#include "devices/agent/runtime/runtime.h"
#include "support/fake_run.h"

/* What the device is like today. */
static struct fake_device {
    struct fake_options options;
    bool is_remembering; /* what it did wrong counts from the beginning of a session */
    size_t fails_at;     /* runs of this process until one fails; 0: none */
    size_t n_runs;
    size_t first[3];      /* probe, sample, repeat that the next session begins with */
    const char *version;  /* of the runtime */
    const char *build_id; /* of its library */
    const char *provider; /* of its second node */
} fake_device;

static const struct fake_device healthy_device = {.version = "1.2.3", .build_id = "c0ffee", .provider = "B"};

struct nd_runtime {
    int unused;
};

struct nd_runtime_session {
    size_t n_outputs;
    size_t tensors[FAKE_TENSORS]; /* output -> tensor */
    struct nd_session_io input, outputs[FAKE_TENSORS];
    void *data[FAKE_TENSORS];
    size_t now[3]; /* probe, sample, repeat */
    size_t n_runs;
};

enum nd_status nd_runtime_create(const struct nd_runtime_options *options, struct nd_runtime **out,
                                 struct nd_error *err)
{
    (void)options;
    *out = nd_calloc(1, sizeof **out);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}

void nd_runtime_destroy(struct nd_runtime **runtime)
{
    free(*runtime);
    *runtime = NULL;
}

const char *nd_runtime_version(const struct nd_runtime *runtime)
{
    (void)runtime;
    return fake_device.version;
}

const char *nd_runtime_build_info(const struct nd_runtime *runtime)
{
    (void)runtime;
    return "fake build";
}

/* Which tensors later passes check. */
static inline bool fake_is_check(size_t tensor)
{
    return tensor == TENSOR_PAIR || tensor == TENSOR_SCALAR;
}

enum nd_status nd_session_create(struct nd_runtime *runtime, const struct nd_session_options *options,
                                 struct nd_runtime_session **out, struct nd_error *err)
{
    (void)runtime;
    size_t pass = (size_t)(options->model_path[0] - '0');
    struct nd_runtime_session *session = nd_calloc(1, sizeof *session);
    if (session == NULL)
        return nd_fail_memory(err);
    session->input = (struct nd_session_io){(char *)(uintptr_t) "in", ND_DTYPE_U8, {1, {2}}};
    memcpy(session->now, fake_device.first, sizeof session->now);
    memset(fake_device.first, 0, sizeof fake_device.first);
    for (size_t e = 0; e < FAKE_TENSORS; e++) {
        if (fake_pass(&fake_device.options, e) != pass && !fake_is_check(e))
            continue;
        size_t i = session->n_outputs++;
        session->tensors[i] = e;
        session->data[i] = nd_tensor_alloc(fake_bytes(e));
        session->outputs[i] = (struct nd_session_io){
            (char *)(uintptr_t)fake_tensors[e].name, fake_tensors[e].dtype, {.rank = -1}};
    }
    *out = session;
    return ND_OK;
}

void nd_session_destroy(struct nd_runtime_session **session)
{
    for (size_t i = 0; *session != NULL && i < (*session)->n_outputs; i++)
        free((*session)->data[i]);
    free(*session);
    *session = NULL;
}

struct nd_session_ends nd_session_ends(const struct nd_runtime_session *session)
{
    return (struct nd_session_ends){(struct nd_session_io *)(uintptr_t)&session->input, 1, session->outputs,
                                    session->n_outputs};
}

enum nd_status nd_session_placement(const struct nd_runtime_session *session, struct nd_placement **out,
                                    size_t *n, struct nd_error *err)
{
    (void)session;
    struct nd_placement *nodes = nd_calloc(2, sizeof *nodes);
    if (nodes == NULL)
        return nd_fail_memory(err);
    nodes[0] = (struct nd_placement){"A", "n0", "Conv", "", 0};
    nodes[1] = (struct nd_placement){fake_device.provider, "n1", "Add", "", 1};
    *out = nodes;
    *n = 2;
    return ND_OK;
}

bool nd_runtime_starts_program(void)
{
    return false;
}

const char *nd_runtime_program(const struct nd_runtime *runtime)
{
    (void)runtime;
    return "";
}

void nd_session_missing(const struct nd_runtime_session *session, nd_missing_visit *visit, void *context)
{
    (void)session;
    (void)visit;
    (void)context;
}

void nd_session_repeat(struct nd_runtime_session *session)
{
    (void)session; /* it counts the runs of a sample itself */
}

size_t nd_session_ahead(struct nd_runtime_session *session, const void *const *inputs, size_t n)
{
    (void)session, (void)inputs, (void)n;
    return 0;
}

enum nd_status nd_session_run(struct nd_runtime_session *session, const void *const *inputs,
                              struct nd_output_view *views, struct nd_error *err)
{
    const unsigned char *at = inputs[0];
    size_t n_repeats = fake_device.options.n_repeats;
    if (at[0] != session->now[0] || at[1] != session->now[1]) {
        session->now[0] = at[0];
        session->now[1] = at[1];
        session->now[2] = 0;
    }
    size_t sample = at[1], repeat = session->now[2]++;
    session->n_runs++;
    if (++fake_device.n_runs == fake_device.fails_at)
        return nd_fail(err, ND_E_DEVICE_OUTPUT, "n0", "the device is tired");
    /* Before the last repeat: so that a sample that is not complete lies before an acknowledgement. */
    if (fake_device.options.pauses && sample % 2 == 0 && sample > 0 && repeat + 1 == n_repeats)
        fake_pause(450);
    for (size_t i = 0; i < session->n_outputs; i++) {
        size_t e = session->tensors[i];
        fake_output(at[0], e, sample, repeat, session->data[i]);
        views[i] = (struct nd_output_view){fake_tensors[e].dtype, fake_tensors[e].shape, session->data[i],
                                           fake_bytes(e)};
    }
    return ND_OK;
}

enum nd_status nd_session_truth(const struct nd_runtime_session *session, nd_truth_visit *visit, void *context,
                                struct nd_error *err)
{
    char count[24];
    (void)err;
    if (!fake_device.is_remembering)
        return ND_OK;
    snprintf(count, sizeof count, "%zu", session->n_runs);
    visit(context, "profile", "flip");
    visit(context, "faulty", "pair");
    visit(context, "kinds", "flip");
    visit(context, "n_changed", count);
    return ND_OK;
}

enum nd_status nd_session_end_profile(struct nd_runtime_session *session, char **path, struct nd_error *err)
{
    (void)session;
    (void)path;
    return nd_fail(err, ND_E_DEVICE_OUTPUT, NULL, "there is no profile");
}

void nd_runtime_visit_libraries(nd_library_visitor visit, void *context)
{
    visit(context, "/no/such/lib.so", fake_device.build_id);
    visit(context, "linux-vdso.so.1", "");
}

/* ---- its job ---- */

struct fake_agent_job {
    struct fake_job base;
    struct nd_job_target target;
    unsigned char inputs[FAKE_PROBES][5][2];
    const void *input_of_probe[FAKE_PROBES][1];
    size_t checks[2];
};

static inline void fake_agent_job_fill(struct fake_agent_job *fake, const struct fake_options *options)
{
    struct nd_agent_job *job = &fake->base.job;
    fake_job_fill(&fake->base, options);
    job->profile_prefix = (char *)(uintptr_t) "";
    job->log_severity = 2;
    job->digest = (struct nd_digest){.low = 17 + options->n_passes, .high = 4};
    for (size_t p = 0; p < options->n_passes; p++)
        fake->base.passes[p].model = (char *)(uintptr_t)(p == 0 ? "0" : "1");
    if (options->n_passes > 1) {
        fake->checks[0] = TENSOR_PAIR;
        fake->checks[1] = TENSOR_SCALAR;
        fake->base.passes[1].checks = fake->checks;
        fake->base.passes[1].n_checks = 2;
    }
    fake->target = (struct nd_job_target){(char *)(uintptr_t) "in", ND_DTYPE_U8, {1, {2}}, 2};
    job->targets = &fake->target;
    job->n_targets = 1;
    for (size_t p = 0; p < FAKE_PROBES; p++) {
        for (size_t s = 0; s < fake_samples[p]; s++) {
            fake->inputs[p][s][0] = (unsigned char)p;
            fake->inputs[p][s][1] = (unsigned char)s;
        }
        fake->input_of_probe[p][0] = fake->inputs[p];
        fake->base.probes[p].inputs = fake->input_of_probe[p];
    }
}

#endif
