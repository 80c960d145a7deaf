/* Tasks on threads: each once, in increasing order, one outcome. */
#include "support/main.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/processes/parallel.h"

enum { MAX_TASKS = 1000, MAX_WORKERS = 64 };

struct seen {
    atomic_int n_runs[MAX_TASKS];
    atomic_int n_busy[MAX_WORKERS]; /* tasks that this worker is in */
    atomic_int n_by_worker[MAX_WORKERS];
    atomic_int n_clashes;
    size_t n_workers;
    size_t fail_from, fail_every; /* tasks that fail; fail_every 0: none */
    pthread_t caller;
    int plain[MAX_TASKS]; /* written without a lock, read after the run */
};

static bool must_fail(const struct seen *seen, size_t task)
{
    return seen->fail_every != 0 && task >= seen->fail_from && (task - seen->fail_from) % seen->fail_every == 0;
}

static enum nd_status count(void *context, size_t worker, size_t task, struct nd_error *err)
{
    struct seen *seen = context;
    assert_true(worker < seen->n_workers && task < MAX_TASKS && err != NULL);
    if (worker == 0 && !pthread_equal(pthread_self(), seen->caller))
        atomic_fetch_add(&seen->n_clashes, 1);
    if (atomic_fetch_add(&seen->n_busy[worker], 1) != 0)
        atomic_fetch_add(&seen->n_clashes, 1);
    atomic_fetch_add(&seen->n_runs[task], 1);
    atomic_fetch_add(&seen->n_by_worker[worker], 1);
    seen->plain[task] = (int)task + 1;
    if (task % 97 == 0)
        sched_yield();
    atomic_fetch_sub(&seen->n_busy[worker], 1);
    if (must_fail(seen, task))
        return nd_fail(err, ND_E_CANCELLED, NULL, "task %zu", task);
    return ND_OK;
}

static struct seen *make_seen(size_t n_workers)
{
    struct seen *seen = calloc(1, sizeof *seen);
    assert_non_null(seen);
    seen->n_workers = n_workers;
    seen->caller = pthread_self();
    return seen;
}

static void every_task_runs_once(void **state)
{
    (void)state;
    static const size_t threads[] = {1, 2, 3, 8, 64}, tasks[] = {0, 1, 2, 7, 63, 64, 65, MAX_TASKS};
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 8; k++) {
            struct seen *seen = make_seen(threads[i] < tasks[k] ? threads[i] : tasks[k]);
            assert_int_equal(nd_parallel_for(threads[i], tasks[k], count, seen, NULL), ND_OK);
            size_t n_right = 0;
            for (size_t task = 0; task < MAX_TASKS; task++)
                n_right += seen->n_runs[task] == (task < tasks[k] ? 1 : 0) &&
                           seen->plain[task] == (task < tasks[k] ? (int)task + 1 : 0);
            assert_int_equal(n_right, MAX_TASKS);
            assert_int_equal(seen->n_clashes, 0);
            free(seen);
        }
}

static void zero_threads_are_as_many_as_allowed(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(nd_parallel_n_threads(), CPU_COUNT(&before));
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(nd_parallel_n_threads(), 1);
    struct seen *seen = make_seen(1);
    assert_int_equal(nd_parallel_for(0, 100, count, seen, NULL), ND_OK);
    assert_int_equal(seen->n_by_worker[0], 100);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    free(seen);
}

static void lowest_failure_is_reported_whatever_the_threads(void **state)
{
    (void)state;
    static const size_t threads[] = {1, 2, 5, 32}, from[] = {0, 1, 13, 400, MAX_TASKS - 1};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 5; k++)
            for (size_t every = 1; every < 4; every++) {
                struct seen *seen = make_seen(threads[i]);
                struct nd_error err = {0};
                char expected[64];
                seen->fail_from = from[k];
                seen->fail_every = every;
                assert_int_equal(nd_parallel_for(threads[i], MAX_TASKS, count, seen, &err), ND_ERR_IO);
                snprintf(expected, sizeof expected, "task %zu", from[k]);
                assert_string_equal(err.message, expected);
                size_t n_right = 0;
                for (size_t task = 0; task < from[k]; task++)
                    n_right += seen->n_runs[task] == 1;
                assert_int_equal(n_right, from[k]);
                assert_int_equal(seen->n_clashes, 0);
                free(seen);
            }
}

static void nothing_begins_after_a_failure(void **state)
{
    (void)state;
    struct seen *seen = make_seen(1);
    seen->fail_from = 10;
    seen->fail_every = 1;
    assert_int_equal(nd_parallel_for(1, MAX_TASKS, count, seen, NULL), ND_ERR_IO);
    assert_int_equal(seen->n_by_worker[0], 11);
    free(seen);
    /* With more threads each may be in one task when another fails. */
    seen = make_seen(4);
    seen->fail_every = 1;
    assert_int_equal(nd_parallel_for(4, MAX_TASKS, count, seen, NULL), ND_ERR_IO);
    int n_runs = 0;
    for (size_t task = 0; task < MAX_TASKS; task++)
        n_runs += seen->n_runs[task];
    assert_true(n_runs <= 4);
    free(seen);
}

static enum nd_status fail_silently(void *context, size_t worker, size_t task, struct nd_error *err)
{
    (void)context;
    (void)worker;
    (void)task;
    (void)err;
    return ND_ERR_MEMORY;
}

static void error_that_was_not_filled_is_empty(void **state)
{
    (void)state;
    struct nd_error err;
    memset(&err, 'x', sizeof err);
    assert_int_equal(nd_parallel_for(2, 5, fail_silently, NULL, &err), ND_ERR_MEMORY);
    assert_string_equal(err.message, "");
}

/* Stacks as large as the address space. */
static void threads_that_cannot_be_made_are_done_without(void **state)
{
    (void)state;
    struct seen *seen = make_seen(64);
    pthread_attr_t before, huge;
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 47), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    enum nd_status status = nd_parallel_for(64, MAX_TASKS, count, seen, NULL);
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&before);
    assert_int_equal(status, ND_OK);
    assert_int_equal(seen->n_by_worker[0], MAX_TASKS);
    free(seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(zero_threads_are_as_many_as_allowed),
        cmocka_unit_test(lowest_failure_is_reported_whatever_the_threads),
        cmocka_unit_test(nothing_begins_after_a_failure),
        cmocka_unit_test(error_that_was_not_filled_is_empty),
        cmocka_unit_test(threads_that_cannot_be_made_are_done_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
