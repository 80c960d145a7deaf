/* Tensors, layers, quantisation and shapes of the models under golden/. */
#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/tensors/sha256.h"
#include "npudiff/model/model.h"
#include "support/golden_models.h"

/* Checks name, onnx_name, op_types and node of every tensor; rows end with a NULL name. */
struct tensor_row {
    const char *name, *onnx_name, *op_types, *node;
    enum nd_dtype dtype;
};

static void assert_tensors(const struct nd_model *model, const struct tensor_row *rows)
{
    size_t n = 0;
    for (; rows[n].name != NULL; n++) {
        assert_true(n < nd_model_n_tensors(model));
        const struct nd_tensor *tensor = nd_model_tensor(model, n);
        assert_string_equal(tensor->name, rows[n].name);
        assert_string_equal(tensor->onnx_name, rows[n].onnx_name);
        assert_string_equal(tensor->op_types, rows[n].op_types);
        assert_string_equal(tensor->node, rows[n].node);
        assert_int_equal(tensor->dtype, rows[n].dtype);
    }
    assert_int_equal(nd_model_n_tensors(model), n);
}

/* "name:op_types:input,input,;" of every layer. */
static void assert_layers(const struct nd_model *model, const char *expected)
{
    char text[2048] = "";
    for (size_t i = 0; i < nd_model_n_layers(model); i++) {
        const struct nd_model_layer *layer = nd_model_layer(model, i);
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s:%s:", layer->name, layer->op_types);
        assert_string_equal(layer->name, nd_model_tensor(model, layer->tensor)->name);
        assert_string_equal(layer->op_types, nd_model_tensor(model, layer->tensor)->op_types);
        for (size_t k = 0; k < layer->n_inputs; k++) {
            n = strlen(text);
            snprintf(text + n, sizeof text - n, "%s,", nd_model_tensor(model, layer->inputs[k])->name);
        }
        strcat(text, ";");
    }
    assert_string_equal(text, expected);
}

static void tensors_of_the_quantiser_are_named_after_float_tensors(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/chain.onnx");
    assert_tensors(
        model,
        (const struct tensor_row[]){
            {"image", "image_QuantizeLinear_Output", "input", "image_QuantizeLinear", ND_DTYPE_U8},
            {"hidden", "hidden_QuantizeLinear_Output", "MatMul+Relu", "hidden_QuantizeLinear", ND_DTYPE_U8},
            {"logits", "logits_QuantizeLinear_Output", "Add", "logits_Q", ND_DTYPE_U16},
            {0}});
    assert_layers(model, "hidden:MatMul+Relu:image,;logits:Add:hidden,image,;");
    assert_quant(model, "image", 0.25f, 128);
    assert_quant(model, "logits", 0.1f, 32768);
    for (size_t i = 0; i < 3; i++) {
        const struct nd_tensor *tensor = nd_model_tensor(model, i);
        assert_true(nd_shape_equal(&tensor->shape, &(struct nd_shape){2, {1, 4}}));
        assert_int_equal(tensor->is_model_input, i == 0);
        assert_int_equal(tensor->is_model_output, i == 2);
    }
    assert_int_equal(nd_model_n_inputs(model), 1);
    assert_int_equal(nd_model_input(model, 0)->dtype, ND_DTYPE_F32);
    assert_ptr_equal(nd_model_input(model, 0)->quant, &nd_model_tensor(model, 0)->quant);
    assert_int_equal(nd_model_input(model, 0)->quant_dtype, ND_DTYPE_U8);
    assert_string_equal(nd_model_output(model, 0)->name, "logits");
    assert_int_equal(nd_model_output(model, 0)->quant_dtype, ND_DTYPE_U16);
    nd_model_destroy(&model);
    assert_null(model);
}

static void nodes_without_a_name_are_called_by_their_output(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/chain.onnx");
    assert_int_equal(nd_model_opset(model), 21);
    assert_int_equal(nd_model_n_nodes(model), 10);
    assert_string_equal(nd_model_node(model, 4)->name, "hidden");
    assert_string_equal(nd_model_node(model, 4)->op_type, "Relu");
    for (size_t i = 0; i < 10; i++) {
        assert_string_equal(nd_model_node(model, i)->domain, "");
        assert_int_equal(nd_model_node(model, i)->is_io_quantisation, i == 1 || i == 9);
    }
    nd_model_destroy(&model);
}

static void qvalues_in_and_out_are_tensors_themselves(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/codes_io.onnx");
    assert_tensors(model, (const struct tensor_row[]){{"a", "a", "input", "", ND_DTYPE_U8},
                                                      {"b", "b", "input", "", ND_DTYPE_I8},
                                                      {"product", "product", "Mul", "product_Q", ND_DTYPE_U8},
                                                      {0}});
    assert_layers(model, "product:Mul:a,b,;");
    assert_quant(model, "b", 0.25f, 0);
    assert_int_equal(nd_model_input(model, 1)->quant_dtype, ND_DTYPE_I8);
    assert_null(nd_model_input(model, 2)->quant);
    assert_true(nd_model_tensor(model, 1)->is_model_input);
    assert_true(nd_model_tensor(model, 2)->is_model_output);
    nd_model_destroy(&model);
}

static void qvalues_made_of_qvalues_are_their_own_tensors(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/requant.onnx");
    assert_tensors(
        model,
        (const struct tensor_row[]){
            {"x", "x_QuantizeLinear_Output", "input", "x_Q", ND_DTYPE_U8},
            {"x_convert", "x_convert_QuantizeLinear_Output", "requantise", "x_convert_Q", ND_DTYPE_U16},
            {"logits_QuantizeLinear_Output", "logits_QuantizeLinear_Output", "Relu", "logits_Q", ND_DTYPE_U16},
            {"logits", "logits_convert_QuantizeLinear_Output", "requantise", "logits_convert_Q", ND_DTYPE_U8},
            {0}});
    assert_layers(model, "x_convert:requantise:x,;logits_QuantizeLinear_Output:Relu:x_convert,;"
                         "logits:requantise:logits_QuantizeLinear_Output,;");
    assert_int_equal(nd_model_tensor(model, 1)->shape.rank, 2);
    nd_model_destroy(&model);
}

static void operator_with_two_quantised_outputs_is_in_both_layers(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/split.onnx");
    assert_layers(model, "left:Split:relu,;right:Split:relu,;");
    assert_int_equal(nd_model_tensor(model, tensor_index(model, "relu"))->quant.n, 0);
    nd_model_destroy(&model);
}

/* Not of another scale, and not where an output of the graph has its name. */
static void quantisers_of_one_tensor_are_one(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/twins.onnx");
    assert_layers(model, "relu:Relu:x,;relu_QuantizeLinear_Output_3:Relu:x,;codes:Relu:x,;"
                         "gate:Sigmoid:relu,;mul:Mul:relu,gate,;");
    nd_model_destroy(&model);
}

static void floats_outside_of_layers_are_tensors(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/mixed.onnx");
    assert_tensors(model, (const struct tensor_row[]){
                              {"front", "front", "Relu", "front", ND_DTYPE_NONE},
                              {"twice", "twice_QuantizeLinear_Output", "Neg", "twice_Q8", ND_DTYPE_U8},
                              {"twice_16", "twice_16_QuantizeLinear_Output", "Neg", "twice_Q16", ND_DTYPE_U16},
                              {"biased", "biased", "Add", "add", ND_DTYPE_NONE},
                              {"free", "free", "Sigmoid", "free", ND_DTYPE_NONE},
                              {"sum", "sum", "Sum", "sum", ND_DTYPE_F32},
                              {0}});
    assert_layers(model, "twice:Neg:front,;twice_16:Neg:front,;");
    assert_true(nd_model_tensor(model, 1)->is_model_output);
    assert_false(nd_model_tensor(model, 2)->is_model_output);
    assert_int_equal(nd_model_tensor(model, 0)->shape.rank, -1);
    nd_model_destroy(&model);
}

static void layer_reaches_back_to_qvalues_only(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/front.onnx");
    assert_tensors(model, (const struct tensor_row[]){{"front", "front", "Relu", "relu", ND_DTYPE_NONE},
                                                      {"inner", "inner_q", "Neg", "inner_Q", ND_DTYPE_U8},
                                                      {"moved", "moved", "Transpose", "transpose", ND_DTYPE_U8},
                                                      {"same", "exp_q", "Abs+Exp", "exp_Q", ND_DTYPE_U8},
                                                      {"top", "top", "ReduceMax", "max", ND_DTYPE_NONE},
                                                      {"same_q", "same_q", "Sqrt", "same_Q", ND_DTYPE_U8},
                                                      {"y_float", "y_float", "Relu", "last", ND_DTYPE_NONE},
                                                      {"y", "y", "Transpose", "back", ND_DTYPE_F32},
                                                      {0}});
    assert_layers(model, "inner:Neg:front,;same:Abs+Exp:moved,;same_q:Sqrt:same,;");
    assert_quant(model, "moved", 0.25f, 128);
    assert_int_equal(nd_model_tensor(model, 5)->quant.n, 0); /* its scale is computed */
    nd_model_destroy(&model);
}

static void outputs_are_named_tensors_wherever_they_are(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/both.onnx");
    assert_tensors(model, (const struct tensor_row[]){{"x", "x_q", "input", "x_Q", ND_DTYPE_U8},
                                                      {"abs", "abs", "Abs", "abs", ND_DTYPE_F32},
                                                      {"real", "exp_q", "Exp", "exp_Q", ND_DTYPE_U8},
                                                      {0}});
    assert_layers(model, "real:Exp:abs,;");
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(nd_model_tensor(model, i)->is_model_output, i > 0);
    assert_null(nd_model_output(model, 0)->quant);
    assert_ptr_equal(nd_model_output(model, 1)->quant, nd_model_output(model, 2)->quant);
    nd_model_destroy(&model);
}

static void float_model_has_every_living_tensor_as_tensor(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/plain.onnx");
    assert_tensors(model, (const struct tensor_row[]){{"sum", "sum", "Add", "add", ND_DTYPE_F32},
                                                      {"kept", "kept", "Dropout", "dropout", ND_DTYPE_NONE},
                                                      {"shape", "shape", "Shape", "shape", ND_DTYPE_I64},
                                                      {"y", "y", "Reshape", "y", ND_DTYPE_F32},
                                                      {0}});
    assert_layers(model, "");
    for (size_t i = 0; i < nd_model_n_nodes(model); i++)
        assert_false(nd_model_node(model, i)->is_io_quantisation);
    nd_model_destroy(&model);
    model = load("oracle/model/old_ir.onnx");
    assert_int_equal(nd_model_n_inputs(model), 1);
    assert_int_equal(nd_model_opset(model), 8);
    nd_model_destroy(&model);
}

static void float_and_quantised_model_share_tensor_names(void **state)
{
    (void)state;
    struct nd_model *quantised = load("models/cnn.w8a8.onnx"), *plain = load("models/cnn.float.onnx");
    size_t n = nd_model_n_tensors(quantised);
    assert_int_equal(n, 10);
    for (size_t i = 1; i < n; i++)
        tensor_index(plain, nd_model_tensor(quantised, i)->name);
    assert_int_equal(nd_model_n_layers(quantised), 9);
    nd_model_destroy(&quantised);
    nd_model_destroy(&plain);
}

static void scale_in_every_spelling_is_read_exactly(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/scales.onnx");
    assert_quant(model, "raw16", 0.5f, 128);
    assert_quant(model, "ints16", 0.25f, 128);
    assert_quant(model, "listed", 0.75f, -5);
    assert_quant(model, "node", 0.125f, 128);
    assert_quant(model, "absent", 0.25f, 0);
    assert_quant(model, "typed", 0.25f, 0);
    assert_quant(model, "ms", 0.25f, 1000);
    assert_quant(model, "single", 0.5f, 3);
    assert_quant(model, "double", 0.0625f, 128);
    assert_int_equal(nd_model_tensor(model, tensor_index(model, "absent"))->dtype, ND_DTYPE_U8);
    assert_int_equal(nd_model_tensor(model, tensor_index(model, "typed"))->dtype, ND_DTYPE_I8);
    assert_int_equal(nd_model_tensor(model, tensor_index(model, "ms"))->dtype, ND_DTYPE_U16);
    static const char *const per_channel[] = {"channel", "back"};
    for (size_t i = 0; i < 2; i++) {
        const struct nd_quant *quant = &nd_model_tensor(model, tensor_index(model, per_channel[i]))->quant;
        assert_int_equal(quant->n, 4);
        assert_int_equal(quant->axis, 1);
        for (size_t c = 0; c < 4; c++) {
            assert_f32_bits(quant->scale[c], (float)(c + 1));
            assert_int_equal(quant->zero_point[c], 10 * (c + 1));
        }
    }
    nd_model_destroy(&model);
    model = load("oracle/model/brain.onnx");
    assert_quant(model, "y", 0.375f, 128);
    nd_model_destroy(&model);
}

static void dynamic_dimension_is_named_and_can_be_set(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/dynamic.onnx");
    struct nd_error err = {0};
    assert_int_equal(nd_model_check_static(model, &err), ND_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "--dim batch=1 --dim a:1=1 --dim width=1"));
    assert_non_null(strstr(err.message, "dynamic.onnx"));
    assert_int_equal(nd_model_input(model, 0)->shape.dims[0], -1);
    assert_string_equal(nd_model_input(model, 0)->dim_params[0], "batch");
    assert_int_equal(nd_model_tensor(model, 0)->shape.rank, -1);
    assert_int_equal(nd_model_set_dim(model, "height", 2, &err), ND_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "'batch' 'a:1' 'width'"));
    assert_int_equal(nd_model_set_dim(model, "batch", 0, &err), ND_ERR_USAGE);
    /* The model's own text as the argument: it is freed on the way. */
    assert_int_equal(nd_model_set_dim(model, nd_model_input(model, 0)->dim_params[0], 3, &err), ND_OK);
    assert_int_equal(nd_model_set_dim(model, "batch", 3, &err), ND_ERR_NOT_FOUND);
    assert_int_equal(nd_model_input(model, 1)->shape.dims[0], 3);
    assert_int_equal(nd_model_output(model, 0)->shape.dims[0], 3);
    assert_null(nd_model_input(model, 0)->dim_params[0]);
    assert_int_equal(nd_model_set_dim(model, "a:1", 5, &err), ND_OK);
    assert_int_equal(nd_model_set_dim(model, "width", 7, &err), ND_OK);
    assert_int_equal(nd_model_check_static(model, &err), ND_OK);
    assert_int_equal(nd_model_set_dim(model, "width", 7, &err), ND_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "all are fixed"));

    char *dir = temporary_dir(), *path = nd_path_join(dir, "fixed.onnx");
    size_t all[] = {0, 1, 2};
    assert_int_equal(nd_model_write_exposed(model, all, 3, path, NULL), ND_OK);
    nd_model_destroy(&model);
    model = load(path);
    assert_int_equal(nd_model_check_static(model, &err), ND_OK);
    assert_true(nd_shape_equal(&nd_model_input(model, 0)->shape, &(struct nd_shape){3, {3, 5, 4}}));
    assert_int_equal(nd_model_output(model, 0)->shape.dims[0], 3);
    assert_true(nd_shape_equal(&nd_model_tensor(model, 2)->shape, &(struct nd_shape){2, {1, 7}}));
    nd_model_destroy(&model);
    nd_dir_remove(dir);
    free(path);
    free(dir);
}

static void selection_follows_patterns(void **state)
{
    (void)state;
    struct nd_model *model = load("models/cnn.w8a8.onnx");
    static const struct {
        const char *spec;
        size_t n, first;
    } rows[] = {
        {"all", 10, 0},        {"outputs", 1, 9},           {"none", 1, 9}, {"logits", 1, 9}, {"*relu", 4, 1},
        {"pool,stem/*", 2, 1}, {"logits,image,pool", 3, 0}, {"*,*", 10, 0}, {"p??l", 1, 4},   {"[lp]o*", 3, 3}};
    size_t *selected = NULL, n = 99;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(nd_model_select_tensors(model, rows[i].spec, &selected, &n, NULL), ND_OK);
        assert_int_equal(n, rows[i].n);
        assert_int_equal(selected[0], rows[i].first);
        for (size_t k = 1; k < n; k++)
            assert_true(selected[k - 1] < selected[k]);
        free(selected);
    }
    struct nd_error err = {0};
    selected = NULL;
    assert_int_equal(nd_model_select_tensors(model, "pool,nothing*", &selected, &n, &err), ND_ERR_NOT_FOUND);
    assert_int_equal(err.id, ND_E_MODEL_NO_TENSOR);
    assert_non_null(strstr(err.message, "'nothing*'"));
    assert_non_null(strstr(err.message, "'image'"));
    assert_int_equal(nd_model_select_tensors(model, "pool,", &selected, &n, &err), ND_ERR_USAGE);
    assert_int_equal(nd_model_select_tensors(model, "", &selected, &n, &err), ND_ERR_USAGE);
    assert_int_equal(nd_model_select_tensors(model, "pool\\,", &selected, &n, &err), ND_ERR_NOT_FOUND);
    assert_null(selected);
    nd_model_destroy(&model);
    /* Inputs of quantised values are the probe's own bytes. */
    model = load("oracle/model/codes_io.onnx");
    assert_int_equal(nd_model_select_tensors(model, "all", &selected, &n, NULL), ND_OK);
    assert_int_equal(n, 1);
    free(selected);
    assert_int_equal(nd_model_select_tensors(model, "a", &selected, &n, &err), ND_ERR_NOT_FOUND);
    nd_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_the_quantiser_are_named_after_float_tensors),
        cmocka_unit_test(nodes_without_a_name_are_called_by_their_output),
        cmocka_unit_test(qvalues_in_and_out_are_tensors_themselves),
        cmocka_unit_test(qvalues_made_of_qvalues_are_their_own_tensors),
        cmocka_unit_test(operator_with_two_quantised_outputs_is_in_both_layers),
        cmocka_unit_test(quantisers_of_one_tensor_are_one),
        cmocka_unit_test(floats_outside_of_layers_are_tensors),
        cmocka_unit_test(layer_reaches_back_to_qvalues_only),
        cmocka_unit_test(outputs_are_named_tensors_wherever_they_are),
        cmocka_unit_test(float_model_has_every_living_tensor_as_tensor),
        cmocka_unit_test(float_and_quantised_model_share_tensor_names),
        cmocka_unit_test(scale_in_every_spelling_is_read_exactly),
        cmocka_unit_test(dynamic_dimension_is_named_and_can_be_set),
        cmocka_unit_test(selection_follows_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
