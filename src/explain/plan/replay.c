/* Samples of a plan, in blocks, by several threads. */
#include <stdatomic.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "explain/plan/reader.h"

struct team {
    const struct nd_replay *replay;
    size_t block;
    atomic_size_t n_done; /* samples */
    unsigned char *states;
};

static struct nd_reader *state_of(const struct team *team, size_t worker)
{
    return (struct nd_reader *)(void *)(team->states + worker * team->replay->state_bytes);
}

static enum nd_status run_block(void *context, size_t worker, size_t task, struct nd_error *err)
{
    struct team *team = context;
    const struct nd_replay *replay = team->replay;
    struct nd_reader *r = state_of(team, worker);
    size_t skipped = task * team->block, left = replay->span.n - skipped;
    size_t first = replay->span.first + skipped, n = left < team->block ? left : team->block;
    enum nd_status status = ND_OK;
    if (r->plan == NULL) {
        status = nd_reader_init(r, replay->plan, err);
        if (status == ND_OK)
            status = replay->begin(r, replay->context, err);
    }
    if (status == ND_OK)
        status = nd_reader_block(r, first, n, err);
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        nd_reader_inputs(r, first + i);
        status = replay->run(r, err);
        size_t n_done = atomic_fetch_add(&team->n_done, 1) + 1;
        if (worker == 0 && replay->progress != NULL) /* the calling thread */
            replay->progress(replay->progress_context, n_done, replay->span.n);
        if (status == ND_OK && replay->is_cancelled != NULL && replay->is_cancelled(replay->cancel_context))
            status = nd_fail(err, ND_E_CANCELLED, NULL, "the explanation was stopped on request");
    }
    return status;
}

enum nd_status nd_replay_run(const struct nd_replay *replay, struct nd_error *err)
{
    size_t n_workers = replay->plan->n_threads;
    size_t each = (replay->span.n + n_workers - 1) / n_workers, most = replay->plan->block;
    size_t block = each < 1 ? 1 : each < most ? each : most; /* also of few samples every thread gets some */
    size_t n_blocks = (replay->span.n + block - 1) / block;
    struct team team = {.replay = replay, .block = block, .states = nd_calloc(n_workers, replay->state_bytes)};
    struct nd_error local = {0};
    if (team.states == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_parallel_for(n_workers, n_blocks, run_block, &team, &local);
    if (status != ND_OK && err != NULL)
        *err = local;
    for (size_t i = 0; i < n_workers; i++) {
        struct nd_reader *r = state_of(&team, i);
        if (r->plan == NULL)
            continue;
        replay->end(r, replay->context);
        nd_reader_deinit(r);
    }
    free(team.states);
    return status;
}
