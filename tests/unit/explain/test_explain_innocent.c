/* Roundings that are no fault: tables, means that are rounded twice, and layers of an import that says nothing
 * of its device. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/changed_model.h"
#include "support/explain_fixture.h"

#include <math.h>

#include "arithmetic/exact/linear/rounding.h"

static void explain_device(struct fixture *f, const char *model, const struct mc_device *device)
{
    *f = (struct fixture){.model = load(model)};
    add_device(f, device);
    explain_ok(f);
}

/* Gelu is a table, which does not show that the device rounds twice elsewhere. */
static const char table_name[] = "block0/mlp/gelu";

static void table_of_a_device_that_rounds_twice_is_no_fallback(void **state)
{
    (void)state;
    static const char *const kinds[] = {"import", "npu"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct fixture f;
        explain_device(&f, "vit.w8a8",
                       &(struct mc_device){.emulated = "double:4,fallback=Gelu", .import = kinds[i]});
        const struct nd_explained_layer *table = layer_of(&f, table_name);
        assert_int_equal(table->introduced.n_differing, 0);
        assert_string_equal(f.e->devices[0].arithmetic, "double:4");
        assert_int_equal(f.e->health, ND_HEALTH_HEALTHY);
        assert_int_equal(table->judgement.state, ND_LAYER_FOLLOWS);
        assert_string_equal(table->arithmetic, "half-even");
        assert_non_null(strstr(table->judgement.follows_text, "table"));
        close_fixture(&f);
    }
}

/* An emulated device makes tables with its one arithmetic, too. */
static void table_of_an_emulated_device_is_held_to_its_arithmetic(void **state)
{
    (void)state;
    struct fixture f;
    explain_device(&f, "vit.w8a8", &(struct mc_device){.emulated = "double:4,fallback@block0/mlp/gelu"});
    assert_int_equal(layer_of(&f, table_name)->judgement.state, ND_LAYER_FAULTY);
    assert_string_equal(layer_of(&f, table_name)->judgement.fault.kind, "fallback");
    close_fixture(&f);
}

/* Nothing says what an import without a kind could have fallen back from, nor that one kernel made all layers.
 */
static void rounding_of_one_layer_accuses_only_where_the_capture_says_what_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *emulated, *import;
        enum nd_layer_state state;
    } cases[] = {{"double:4,fallback@pointwise/relu", NULL, ND_LAYER_FAULTY},
                 {"double:4,fallback@pointwise/relu", "npu", ND_LAYER_FAULTY},
                 {"double:4,fallback@pointwise/relu", "import", ND_LAYER_FOLLOWS}, /* it is exact */
                 {"double:4,fallback@pointwise/relu", "cpu", ND_LAYER_FOLLOWS},
                 {"double:4,fallback@pointwise/relu", "reference", ND_LAYER_FOLLOWS},
                 {"half-even,round@pointwise/relu=double:4", NULL, ND_LAYER_FAULTY},
                 {"half-even,round@pointwise/relu=double:4", "npu", ND_LAYER_FAULTY},
                 {"half-even,round@pointwise/relu=double:4", "import", ND_LAYER_UNEXPLAINED},
                 {"double:4,fallback@pointwise/relu", "exec", ND_LAYER_FOLLOWS},
                 {"half-even,round@pointwise/relu=double:4", "exec", ND_LAYER_UNEXPLAINED},
                 {"half-even,round@pointwise/relu=floor", "import",
                  ND_LAYER_FAULTY}}; /* it cuts off, as no other does */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        explain_device(&f, "cnn.w8a8",
                       &(struct mc_device){.emulated = cases[i].emulated, .import = cases[i].import});
        const struct nd_explained_layer *layer = layer_of(&f, "pointwise/relu");
        if (layer->judgement.state != cases[i].state)
            fail_msg("%s, %s: state %d", cases[i].emulated, cases[i].import, layer->judgement.state);
        assert_int_equal(f.e->devices[0].n_faulty, cases[i].state == ND_LAYER_FAULTY);
        close_fixture(&f);
    }
}

/* Kernels of TensorFlow Lite round to other places in each layer. */
static void runner_with_arithmetic_of_its_own_is_not_faulty(void **state)
{
    (void)state;
    struct fixture f;
    explain_device(&f, "cnn.w8a8", &(struct mc_device){.emulated = "gemmlowp", .import = "exec"});
    assert_int_equal(f.e->devices[0].n_faulty, 0);
    static const char *const convs[] = {"stem/relu", "depthwise/relu", "pointwise/relu", "residual/conv"};
    static const char *const arithmetics[] = {"double:7", "double:6", "double:6", "double:9"};
    for (size_t i = 0; i < sizeof convs / sizeof convs[0]; i++) {
        assert_int_equal(layer_of(&f, convs[i])->judgement.state, ND_LAYER_FOLLOWS);
        assert_string_equal(layer_of(&f, convs[i])->arithmetic, arithmetics[i]);
    }
    close_fixture(&f);
    /* 5 places are not those of its scale. */
    explain_device(&f, "cnn.w8a8",
                   &(struct mc_device){.emulated = "gemmlowp,round@residual/conv=double:5", .import = "exec"});
    assert_int_equal(layer_of(&f, "residual/conv")->judgement.state, ND_LAYER_UNEXPLAINED);
    close_fixture(&f);
    explain_device(&f, "cnn.w8a8", &(struct mc_device){.emulated = "gemmlowp,stale@average", .import = "exec"});
    assert_int_equal(f.e->devices[0].n_faulty, 1);
    assert_int_equal(layer_of(&f, "average")->judgement.state, ND_LAYER_FAULTY);
    close_fixture(&f);
}

/* The only one of its kind may have a kernel of its own. */
static void only_layer_of_its_kind_may_round_in_its_own_way(void **state)
{
    (void)state;
    static const char *const devices[] = {"double:4,fallback=Add", "half-even,round.Add=double:4"};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        struct fixture f;
        explain_device(&f, "cnn.w8a8", &(struct mc_device){.emulated = devices[i], .import = "import"});
        assert_int_equal(f.e->health, ND_HEALTH_HEALTHY);
        close_fixture(&f);
        explain_device(&f, "cnn.w8a8", &(struct mc_device){.emulated = devices[i], .import = "npu"});
        assert_int_equal(f.e->health, ND_HEALTH_FAULTY);
        close_fixture(&f);
    }
}

/* An AveragePool whose windows overlap: nothing is known of its arithmetic. Its values are those of a rounding
 * that the device has nowhere else, and too few for that to be called its own. */
static void overlap_windows(Onnx__ModelProto *proto)
{
    for (size_t i = 0; i < proto->graph->n_node; i++) {
        Onnx__NodeProto *node = proto->graph->node[i];
        bool is_quantiser = node->n_input == 3 && (strcmp(node->input[0], "pool") == 0 ||
                                                   strcmp(node->input[0], "pool_QuantizeLinear_Output") == 0);
        if (is_quantiser) { /* another scale than that of its input: few values are ties */
            free(node->input[1]);
            node->input[1] = strdup("depthwise/relu_scale");
        }
        if (strcmp(node->op_type, "MaxPool") != 0)
            continue;
        free(node->op_type);
        node->op_type = strdup("AveragePool");
        assert_string_equal(node->attribute[0]->name, "kernel_shape");
        node->attribute[0]->ints[0] = node->attribute[0]->ints[1] = 3;
        node->attribute = realloc(node->attribute, 3 * sizeof *node->attribute);
        Onnx__AttributeProto *pads = node->attribute[node->n_attribute++] = malloc(sizeof *pads);
        onnx__attribute_proto__init(pads);
        pads->name = strdup("auto_pad");
        pads->has_type = 1;
        pads->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
        pads->has_s = 1;
        pads->s = (ProtobufCBinaryData){.len = 10, .data = (uint8_t *)strdup("SAME_UPPER")};
    }
}

static void unexplained_layer_has_unexplained_values(void **state)
{
    (void)state;
    struct fixture f = {.model = load_changed("cnn.w8a8", overlap_windows)};
    add_device(&f, &(struct mc_device){.emulated = "htp-v73,round@pool=double:9"});
    explain_ok(&f);
    const struct nd_explained_layer *layer = layer_of(&f, "pool");
    assert_int_equal(layer->judgement.state, ND_LAYER_WITHIN_LSB);
    assert_true(layer->n_unexplained > 0);
    assert_int_equal(layer->n_unexplained, layer->introduced.n_differing);
    assert_non_null(strstr(layer->judgement.evidence, "in a way that no other layer of the device does"));
    close_fixture(&f);
}

/* ---- a mean that is divided in whole numbers ---- */

static const char mean_from[] = "residual/relu", mean_to[] = "average";

static const struct nd_quant *quant_of(const struct mc_run *run, const char *name)
{
    for (size_t e = 0; e < nd_model_n_tensors(run->model); e++)
        if (strcmp(nd_model_tensor(run->model, e)->name, name) == 0)
            return &nd_model_tensor(run->model, e)->quant;
    fail_msg("no '%s'", name);
    return NULL;
}

static void change_mean(const struct mc_run *run, const struct nd_tensor *tensor, struct nd_array *qvalues)
{
    if (strcmp(tensor->name, mean_to) != 0)
        return;
    const unsigned char *from = mc_qvalues(run, mean_from);
    const struct nd_quant *read = quant_of(run, mean_from);
    size_t e = 0;
    while (strcmp(nd_model_tensor(run->model, e)->name, mean_from) != 0)
        e++;
    size_t n = run->bytes[e] / qvalues->n;
    for (size_t c = 0; c < qvalues->n; c++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += from[c * n + i] - (double)read->zero_point[0];
        double ratio = (double)read->scale[0] / (double)tensor->quant.scale[0];
        double qvalue = rint(rint(sum / (double)n) * ratio) + (double)tensor->quant.zero_point[0];
        qvalues->x[c] = fmin(fmax(qvalue, 0), 255);
    }
}

static void mean_that_is_rounded_to_its_inputs_scale_first_is_innocent(void **state)
{
    (void)state;
    struct fixture f;
    explain_device(&f, "cnn.w8a8",
                   &(struct mc_device){.change = change_mean, .missing_tensor = "logits", .import = "import"});
    const struct nd_explained_layer *mean = layer_of(&f, mean_to);
    assert_true(mean->introduced.n_differing > 0);
    assert_int_equal(mean->judgement.state, ND_LAYER_FOLLOWS);
    assert_string_equal(mean->judgement.why_follows, "rounded-twice");
    assert_non_null(strstr(mean->judgement.follows_text, mean_from));
    assert_int_equal(mean->n_unexplained, 0);
    close_fixture(&f);
}

static void change_mean_and_one_value(const struct mc_run *run, const struct nd_tensor *tensor,
                                      struct nd_array *qvalues)
{
    change_mean(run, tensor, qvalues);
    if (strcmp(tensor->name, mean_to) == 0 && run->sample == 4)
        qvalues->x[0] += qvalues->x[0] < 255 ? 1 : -1;
}

static void one_value_beside_it_is_not(void **state)
{
    (void)state;
    struct fixture f;
    explain_device(&f, "cnn.w8a8",
                   &(struct mc_device){
                       .change = change_mean_and_one_value, .missing_tensor = "logits", .import = "import"});
    assert_int_not_equal(layer_of(&f, mean_to)->judgement.state, ND_LAYER_FOLLOWS);
    close_fixture(&f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(table_of_a_device_that_rounds_twice_is_no_fallback),
        TEST(table_of_an_emulated_device_is_held_to_its_arithmetic),
        TEST(rounding_of_one_layer_accuses_only_where_the_capture_says_what_it_is),
        TEST(runner_with_arithmetic_of_its_own_is_not_faulty),
        TEST(only_layer_of_its_kind_may_round_in_its_own_way),
        TEST(unexplained_layer_has_unexplained_values),
        TEST(mean_that_is_rounded_to_its_inputs_scale_first_is_innocent),
        TEST(one_value_beside_it_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
