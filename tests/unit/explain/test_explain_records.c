/* Layers behind a tensor whose record is wrong, or behind one that nobody can predict. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/explain_fixture.h"

#include <math.h>

#include "core/random.h"

static const char pool[] = "pool", reader[] = "residual/conv", other_reader[] = "residual/relu";

static void explain_device(struct fixture *f, const char *model, const struct mc_device *device)
{
    *f = (struct fixture){.model = load(model)};
    add_device(f, device);
    explain_ok(f);
}

static void move(double *qvalue, double by)
{
    *qvalue += *qvalue + by <= 255 ? by : -by;
}

enum { N_MOVED = 5 }; /* of each sample */

/* The layers behind have read the right ones. */
static void inject_fault_record(const struct mc_run *run, const struct nd_tensor *tensor,
                                struct nd_array *qvalues)
{
    (void)run;
    for (size_t i = 0; i < N_MOVED && strcmp(tensor->name, pool) == 0; i++)
        move(&qvalues->x[7 * i + 3], 90);
}

static void record_is_blamed_and_its_readers_are_not(void **state)
{
    (void)state;
    static const char *const devices[] = {"half-even", "double:8", "htp-v69", "htp-v73"};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        struct fixture f;
        explain_device(&f, "cnn.w8a8",
                       &(struct mc_device){.emulated = devices[i], .change = inject_fault_record});
        const struct nd_explained_device *device = &f.e->devices[0];
        const struct nd_explained_layer *layer = layer_of(&f, pool);
        assert_int_equal(device->n_faulty, 1);
        assert_int_equal(device->n_unexplained, 0);
        assert_int_equal(layer->judgement.state, ND_LAYER_FAULTY);
        assert_string_equal(layer->judgement.fault.kind, "wrong-record");
        assert_int_equal(layer->judgement.certainty, ND_CERTAINTY_PROVEN);
        assert_non_null(strstr(layer->judgement.evidence, "50 of "));
        assert_true(isnan(layer->effect));
        static const char *const readers[] = {reader, other_reader};
        for (size_t k = 0; k < 2; k++) {
            assert_int_equal(layer_of(&f, readers[k])->judgement.state, ND_LAYER_FOLLOWS);
            assert_string_equal(layer_of(&f, readers[k])->judgement.why_follows, "made-inputs");
            assert_non_null(strstr(layer_of(&f, readers[k])->judgement.follows_text, "'pool'"));
        }
        size_t n_found = 0;
        for (size_t k = 0; k < device->n_findings; k++)
            n_found += strcmp(device->findings[k].fault.kind, "wrong-record") == 0;
        assert_int_equal(n_found, 1);
        close_fixture(&f);
    }
}

static void inject_fault_record_and_readers(const struct mc_run *run, const struct nd_tensor *tensor,
                                            struct nd_array *qvalues)
{
    inject_fault_record(run, tensor, qvalues);
    bool is_reader = strcmp(tensor->name, reader) == 0 || strcmp(tensor->name, other_reader) == 0;
    if (is_reader && run->sample == 2)
        move(&qvalues->x[11], 50);
}

/* One value of a reader is not what the right values give, either: nothing proves the record wrong. */
static void record_of_readers_that_are_off_is_not_blamed(void **state)
{
    (void)state;
    struct fixture f;
    explain_device(&f, "cnn.w8a8",
                   &(struct mc_device){.emulated = "htp-v73", .change = inject_fault_record_and_readers});
    const struct nd_explained_layer *layer = layer_of(&f, pool);
    assert_true(layer->judgement.fault.kind == NULL ||
                strcmp(layer->judgement.fault.kind, "wrong-record") != 0);
    assert_int_not_equal(layer_of(&f, reader)->judgement.state, ND_LAYER_FOLLOWS);
    assert_int_equal(f.e->devices[0].n_findings, 0);
    close_fixture(&f);
}

/* What no known fault predicts. */
static void scatter(struct nd_array *qvalues, uint64_t seed, double width)
{
    for (size_t i = 0; i < qvalues->n; i++)
        qvalues->x[i] = fmin(fmax(qvalues->x[i] + rint(width * (nd_splitmix_uniform(&seed) - 0.5)), 0), 255);
}

static void inject_fault_size(const struct mc_run *run, const struct nd_tensor *tensor,
                              struct nd_array *qvalues)
{
    if (strcmp(tensor->name, "logits") == 0)
        scatter(qvalues, 5 + run->sample, 40);
}

static void inject_fault_size_and_record(const struct mc_run *run, const struct nd_tensor *tensor,
                                         struct nd_array *qvalues)
{
    inject_fault_record(run, tensor, qvalues);
    inject_fault_size(run, tensor, qvalues);
}

/* The size of an error accuses a layer, but not where another record is shown to be wrong. */
static void size_accuses_nobody_beside_a_wrong_record(void **state)
{
    (void)state;
    for (int is_beside = 0; is_beside < 2; is_beside++) {
        struct fixture f;
        explain_device(
            &f, "cnn.w8a8",
            &(struct mc_device){.emulated = "htp-v73",
                                .change = is_beside ? inject_fault_size_and_record : inject_fault_size});
        assert_int_equal(layer_of(&f, "logits")->judgement.state,
                         is_beside ? ND_LAYER_UNEXPLAINED : ND_LAYER_FAULTY);
        close_fixture(&f);
    }
}

/* The layers behind read the wrong values: the layer is at fault, not its record. */
static void fault_that_is_passed_on_is_no_wrong_record(void **state)
{
    (void)state;
    struct fixture f;
    explain_device(&f, "cnn.w8a8", &(struct mc_device){.emulated = "htp-v73,clamp@pool=0:60"});
    const struct nd_explained_layer *layer = layer_of(&f, pool);
    assert_int_equal(layer->judgement.state, ND_LAYER_FAULTY);
    assert_string_not_equal(layer->judgement.fault.kind, "wrong-record");
    assert_int_equal(layer_of(&f, reader)->judgement.state, ND_LAYER_FOLLOWS);
    assert_string_not_equal(layer_of(&f, reader)->judgement.why_follows, "made-inputs");
    close_fixture(&f);
}

/* ---- makers that nobody can predict ----
 * unknown-softmax is models/random-attention.w8a8 with scores in steps of 2, and the zero point 20 behind its
 * Softmax, of which no arithmetic is known. */

static const char softmax[] = "softmax", context[] = "context";

static void inject_fault_reader(const struct mc_run *run, const struct nd_tensor *tensor,
                                struct nd_array *qvalues)
{
    if (strcmp(tensor->name, context) == 0)
        for (size_t i = 0; i < qvalues->n; i++)
            qvalues->x[i] = 128;
    if (strcmp(tensor->name, context) == 0)
        scatter(qvalues, 17 + run->sample, 200);
}

static void inject_fault_maker_and_reader(const struct mc_run *run, const struct nd_tensor *tensor,
                                          struct nd_array *qvalues)
{
    inject_fault_reader(run, tensor, qvalues);
    if (strcmp(tensor->name, softmax) == 0)
        scatter(qvalues, 7 + run->sample, 8);
}

static void reader_of_what_nobody_can_predict_is_not_accused_by_size(void **state)
{
    (void)state;
    struct fixture f;
    explain_device(
        &f, "../programs/unknown-softmax",
        &(struct mc_device){.emulated = "htp-v73", .arch = "v73", .change = inject_fault_maker_and_reader});
    const struct nd_explained_layer *layer = layer_of(&f, context);
    assert_int_equal(layer_of(&f, softmax)->judgement.state, ND_LAYER_UNEXPLAINED);
    assert_int_equal(layer->judgement.state, ND_LAYER_UNEXPLAINED);
    assert_non_null(strstr(layer->judgement.evidence, "'softmax', which is itself unexplained"));
    close_fixture(&f);
    explain_device(&f, "../programs/unknown-softmax",
                   &(struct mc_device){.emulated = "htp-v73", .arch = "v73", .change = inject_fault_reader});
    assert_int_equal(layer_of(&f, context)->judgement.state, ND_LAYER_FAULTY);
    close_fixture(&f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(record_is_blamed_and_its_readers_are_not),
        TEST(record_of_readers_that_are_off_is_not_blamed),
        TEST(fault_that_is_passed_on_is_no_wrong_record),
        TEST(size_accuses_nobody_beside_a_wrong_record),
        TEST(reader_of_what_nobody_can_predict_is_not_accused_by_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
