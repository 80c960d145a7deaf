/* Captured tensors that show what a later layer wrote into their buffer. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/explain_fixture.h"

#include <math.h>

static const char overwritten[] = "pool", writer[] = "residual/relu";

/* When the writer's quantised values are known, they take the place of those of the earlier tensor, of the same
 * size. */
static void write_over(const struct mc_run *run, const struct nd_tensor *tensor, struct nd_array *qvalues)
{
    if (strcmp(tensor->name, writer) != 0)
        return;
    for (size_t e = 0; e < nd_model_n_tensors(run->model); e++) {
        if (strcmp(nd_model_tensor(run->model, e)->name, overwritten) != 0)
            continue;
        assert_int_equal(run->bytes[e], qvalues->n);
        nd_array_store(tensor->dtype, qvalues->x, qvalues->n, run->qvalues[e] + run->sample * run->bytes[e]);
    }
}

static void write_over_but_one(const struct mc_run *run, const struct nd_tensor *tensor,
                               struct nd_array *qvalues)
{
    double first = qvalues->x[0];
    if (strcmp(tensor->name, writer) == 0 && run->sample == 2)
        qvalues->x[0] = first < 255 ? first + 1 : first - 1;
    write_over(run, tensor, qvalues);
    qvalues->x[0] = first;
}

static void explain_device(struct fixture *f, const struct mc_device *device)
{
    *f = (struct fixture){.model = load("cnn.w8a8")};
    add_device(f, device);
    explain_ok(f);
}

static void tensor_that_holds_a_later_one_is_named_and_its_readers_are_not_accused(void **state)
{
    (void)state;
    static const char *const devices[] = {"half-even", "double:8", "htp-v73"};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        struct fixture f;
        explain_device(&f, &(struct mc_device){.emulated = devices[i], .change = write_over});
        const struct nd_explained_device *device = &f.e->devices[0];
        const struct nd_explained_layer *layer = layer_of(&f, overwritten);
        assert_int_equal(device->n_faulty, 1);
        assert_int_equal(device->n_unexplained, 0);
        assert_int_equal(layer->judgement.state, ND_LAYER_FAULTY);
        assert_string_equal(layer->judgement.fault.kind, "reused-buffer");
        assert_non_null(strstr(layer->judgement.fault.text, "'residual/relu'"));
        assert_true(isnan(layer->effect));
        static const char *const readers[] = {"residual/conv", "residual/relu"};
        for (size_t k = 0; k < 2; k++) {
            assert_int_equal(layer_of(&f, readers[k])->judgement.state, ND_LAYER_NOT_EXAMINED);
            assert_non_null(strstr(layer_of(&f, readers[k])->why_not, "'pool'"));
        }
        assert_string_equal(device->arithmetic, devices[i]);
        close_fixture(&f);
    }
}

/* One value in ten samples that is not the later tensor's. */
static void tensor_that_nearly_holds_a_later_one_is_something_else(void **state)
{
    (void)state;
    struct fixture f;
    explain_device(&f, &(struct mc_device){.emulated = "double:8", .change = write_over_but_one});
    const struct nd_explained_layer *layer = layer_of(&f, overwritten);
    assert_true(layer->judgement.fault.kind == NULL ||
                strcmp(layer->judgement.fault.kind, "reused-buffer") != 0);
    close_fixture(&f);
}

/* 'features' is 'average' in another shape: that they are equal says nothing. */
static void copy_of_a_faulty_tensor_did_not_write_over_it(void **state)
{
    (void)state;
    struct fixture f;
    explain_device(&f, &(struct mc_device){.emulated = "double:8,stale@average"});
    assert_int_equal(f.e->devices[0].n_faulty, 1);
    assert_string_equal(layer_of(&f, "average")->judgement.fault.kind, "stale");
    assert_int_equal(layer_of(&f, "features")->judgement.state, ND_LAYER_FOLLOWS);
    close_fixture(&f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensor_that_holds_a_later_one_is_named_and_its_readers_are_not_accused),
        TEST(tensor_that_nearly_holds_a_later_one_is_something_else),
        TEST(copy_of_a_faulty_tensor_did_not_write_over_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
