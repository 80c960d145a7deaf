/* Parts of a model as models of their own: what comes along, where they are cut, what survives. */
#include "support/main.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "model/graph/loaded.h"
#include "support/scratch.h"

static struct nd_model *load(const char *name)
{
    struct nd_model *model = NULL;
    struct nd_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/%s", getenv("GOLDEN"), name);
    if (nd_model_load(path, &model, &err) != ND_OK)
        fail_msg("%s", err.message);
    return model;
}

static struct nd_model *write_and_load(const struct nd_model *model, const struct nd_model_cut *cut)
{
    struct nd_model *part = NULL;
    struct nd_error err = {0};
    char *path = in_folder("part.onnx");
    if (nd_model_write_subgraph(model, cut, path, &err) != ND_OK || nd_model_load(path, &part, &err) != ND_OK)
        fail_msg("%s", err.message);
    free(path);
    return part;
}

/* The nodes of one unit. */
static size_t nodes_of(const struct nd_model *model, size_t layer, size_t *nodes)
{
    size_t n = 0, end = 0, n_layers = 0, *quantiser = NULL;
    assert_int_equal(nd_layers_assign(&model->graph, &quantiser, NULL), ND_OK);
    /* Layers are in the order of the QuantizeLinear that end them. */
    for (size_t i = 0; i < nd_model_n_nodes(model); i++)
        if (quantiser[i] == i && n_layers++ == layer)
            end = i;
    for (size_t i = 0; i < nd_model_n_nodes(model); i++)
        if (quantiser[i] == end)
            nodes[n++] = i;
    free(quantiser);
    return n;
}

static void check_layers(const char *name)
{
    struct nd_model *model = load(name);
    size_t *nodes = nd_calloc(nd_model_n_nodes(model), sizeof *nodes);
    for (size_t u = 0; u < nd_model_n_layers(model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(model, u);
        struct nd_model *part =
            write_and_load(model, &(struct nd_model_cut){.nodes = nodes, .n_nodes = nodes_of(model, u, nodes)});
        assert_int_equal(nd_model_n_layers(part), 1);
        assert_string_equal(nd_model_layer(part, 0)->op_types, layer->op_types);
        assert_int_equal(nd_model_n_outputs(part), 1);
        const struct nd_tensor *made = nd_model_tensor(model, layer->tensor);
        assert_string_equal(nd_model_output(part, 0)->name, made->onnx_name);
        assert_int_equal(nd_model_output(part, 0)->dtype, made->dtype);
        assert_int_equal(nd_model_n_inputs(part), layer->n_inputs);
        for (size_t i = 0; i < layer->n_inputs; i++)
            assert_int_equal(nd_model_input(part, i)->dtype, nd_model_tensor(model, layer->inputs[i])->dtype);
        assert_int_equal(nd_model_opset(part), nd_model_opset(model));
        nd_model_destroy(&part);
    }
    free(nodes);
    nd_model_destroy(&model);
}

static void layer_of_golden_model_is_model_of_one_layer(void **state)
{
    (void)state;
    check_layers("models/cnn.w8a8.onnx");
    check_layers("models/vit.w8a16.onnx");
}

/* Two neighbours: the tensor between them is inside. */
static void tensor_between_layers_is_neither_input_nor_output(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/chain.onnx");
    size_t nodes[16], n = nodes_of(model, 0, nodes);
    n += nodes_of(model, 1, nodes + n);
    assert_int_equal(nd_model_n_layers(model), 2);
    struct nd_model *part = write_and_load(model, &(struct nd_model_cut){.nodes = nodes, .n_nodes = n});
    assert_int_equal(nd_model_n_layers(part), 2);
    assert_int_equal(nd_model_n_outputs(part), 1);
    assert_int_equal(nd_model_n_inputs(part), 1);
    assert_int_equal(nd_model_input(part, 0)->dtype, ND_DTYPE_U8);
    assert_string_equal(nd_model_input(part, 0)->name, "image_QuantizeLinear_Output");
    assert_int_equal(nd_model_output(part, 0)->dtype, ND_DTYPE_U16);
    nd_model_destroy(&part);
    /* ... unless it is wanted. */
    part = write_and_load(
        model, &(struct nd_model_cut){.nodes = nodes, .n_nodes = n, .output = "hidden_QuantizeLinear_Output"});
    assert_int_equal(nd_model_n_outputs(part), 2);
    nd_model_destroy(&part);
    nd_model_destroy(&model);
}

/* An operator with several quantised outputs comes along with each of them, without the other outputs. */
static void shared_operator_comes_along(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/split.onnx");
    char relu[] = "relu"; /* which the model does not declare */
    const struct nd_tensor known = {
        .onnx_name = relu, .dtype = ND_DTYPE_F32, .shape = {.rank = 2, .dims = {1, 4}}};
    for (size_t u = 0; u < nd_model_n_layers(model); u++) {
        size_t nodes[16], n = nodes_of(model, u, nodes);
        struct nd_model *part = write_and_load(
            model, &(struct nd_model_cut){.nodes = nodes, .n_nodes = n, .known = &known, .n_known = 1});
        assert_int_equal(nd_model_n_outputs(part), 1);
        assert_string_equal(nd_model_layer(part, 0)->op_types, nd_model_layer(model, u)->op_types);
        nd_model_destroy(&part);
    }
    nd_model_destroy(&model);
}

/* What a subgraph of a node reads from around it is an input of the part, too. */
static void every_single_node_can_be_cut_out(void **state)
{
    (void)state;
    static const char *const names[] = {"oracle/model/subgraph.onnx", "oracle/model/mixed.onnx",
                                        "oracle/model/requant.onnx", "cases/names.u8.onnx",
                                        "cases/strange.u8.onnx"};
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++) {
        struct nd_model *model = load(names[m]);
        for (size_t n = 0; n < nd_model_n_nodes(model); n++) {
            struct nd_error err = {0};
            char *path = in_folder("node.onnx");
            enum nd_status status =
                nd_model_write_subgraph(model, &(struct nd_model_cut){.nodes = &n, .n_nodes = 1}, path, &err);
            struct nd_model *part = NULL;
            /* Dead nodes hand nothing out, and floats without a declared type cannot be inputs. */
            if (status == ND_OK)
                assert_int_equal(nd_model_load(path, &part, &err), ND_OK);
            else
                assert_true(status == ND_ERR_NOT_FOUND || status == ND_ERR_UNSUPPORTED);
            nd_model_destroy(&part);
            free(path);
        }
        nd_model_destroy(&model);
    }
}

static void known_type_stands_for_undeclared_one(void **state)
{
    (void)state;
    struct nd_model *model = load("models/vit.float.onnx");
    size_t node = nd_model_n_nodes(model) / 2;
    char name[256];
    const Onnx__NodeProto *proto = model->graph.nodes[node].proto;
    snprintf(name, sizeof name, "%s", proto->input[0]);
    struct nd_tensor known = {.onnx_name = name, .dtype = ND_DTYPE_F32, .shape = {.rank = 2, .dims = {3, 5}}};
    struct nd_model *part = write_and_load(
        model, &(struct nd_model_cut){.nodes = &node, .n_nodes = 1, .known = &known, .n_known = 1});
    bool is_found = false;
    for (size_t i = 0; i < nd_model_n_inputs(part); i++)
        if (strcmp(nd_model_input(part, i)->name, name) == 0) {
            assert_true(nd_shape_equal(&nd_model_input(part, i)->shape, &known.shape));
            is_found = true;
        }
    assert_true(is_found);
    nd_model_destroy(&part);
    nd_model_destroy(&model);
}

static void part_is_refused_when_it_is_none(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/chain.onnx");
    struct nd_error err = {0};
    size_t node = nd_model_n_nodes(model);
    char *path = in_folder("none.onnx");
    assert_int_equal(
        nd_model_write_subgraph(model, &(struct nd_model_cut){.nodes = &node, .n_nodes = 1}, path, &err),
        ND_ERR_USAGE);
    assert_int_equal(nd_model_write_subgraph(model, &(struct nd_model_cut){.nodes = &node}, path, &err),
                     ND_ERR_NOT_FOUND);
    assert_int_equal(access(path, F_OK), -1);
    free(path);
    nd_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_of_golden_model_is_model_of_one_layer),
        cmocka_unit_test(tensor_between_layers_is_neither_input_nor_output),
        cmocka_unit_test(shared_operator_comes_along),
        cmocka_unit_test(every_single_node_can_be_cut_out),
        cmocka_unit_test(known_type_stands_for_undeclared_one),
        cmocka_unit_test(part_is_refused_when_it_is_none),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
