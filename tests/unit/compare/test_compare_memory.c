/* Every allocation of a comparison fails once: it ends as out of memory, with nothing kept and nothing broken.
 * The linker sends what the library allocates through here. */
#include "support/main.h"

#include <stdio.h>

#include "support/failing_memory.h"
#include "support/fleet_compare.h"

/* Runs with the first allocation failing, then the second, until everything succeeds. */
static void fail_one_after_the_other(struct fleet *f, long long step)
{
    for (long long n = 0;; n += step) {
        atomic_store(&n_live, 0);
        atomic_store(&n_left, n);
        enum nd_status status = fleet_run(f);
        bool has_failed = atomic_exchange(&n_left, -1) < 0;
        if (!has_failed) {
            assert_int_equal(status, ND_OK);
            assert_true(n > 100);
            break;
        }
        if (status == ND_OK) { /* one that can be done without: threads */
            nd_comparison_destroy(&f->comparison);
        } else {
            assert_int_equal(status, ND_ERR_MEMORY);
            assert_int_equal(f->err.id, ND_E_MEMORY);
        }
        assert_null(f->comparison);
        if (atomic_load(&n_live) != 0)
            fail_msg("allocation %lld: %lld blocks are left", n, atomic_load(&n_live));
    }
    nd_comparison_destroy(&f->comparison);
    assert_true(atomic_load(&n_live) == 0);
}

/* Integers, floats, another type, repeats that differ, chunks. */
static void start(struct fleet *f)
{
    fleet_start(f, 3);
    f->options.n_worst = 2;
    f->options.n_threads = 1;
    f->options.all_pairs = true;
    f->captures[1]->outputs[0][FLEET_CONV][30] ^= 5;
    f->captures[1]->unstable[FLEET_CONV] = true;
    fleet_set_score(f->captures[1], 1, 2, 0.5f);
    f->captures[2]->tensors[FLEET_SCORES].dtype = ND_DTYPE_F16;
    for (size_t c = 0; c < 3; c++)
        f->captures[c]->chunk_bytes[FLEET_CONV] = 24;
}

static void comparison_survives_every_failed_allocation(void **state)
{
    (void)state;
    struct fleet f;
    start(&f);
    fail_one_after_the_other(&f, 1);
    fleet_stop(&f);
}

static void comparison_by_channel_survives_every_failed_allocation(void **state)
{
    (void)state;
    struct fleet f;
    start(&f);
    f.options.per_channel = true;
    f.options.channel_axis = 1;
    fail_one_after_the_other(&f, 3);
    fleet_stop(&f);
}

static void part_survives_every_failed_allocation(void **state)
{
    (void)state;
    struct fleet f;
    start(&f);
    f.options.cut = ND_CUT_SAMPLES;
    f.options.n_parts = 2;
    fail_one_after_the_other(&f, 2);
    fleet_stop(&f);
}

static void threads_survive_failed_allocations(void **state)
{
    (void)state;
    struct fleet f;
    start(&f);
    f.options.n_threads = 3;
    fail_one_after_the_other(&f, 7);
    fleet_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparison_survives_every_failed_allocation),
        cmocka_unit_test(comparison_by_channel_survives_every_failed_allocation),
        cmocka_unit_test(part_survives_every_failed_allocation),
        cmocka_unit_test(threads_survive_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
