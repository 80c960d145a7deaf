/* Models are those of tools/make_model_cases.py (golden/oracle/model, golden/bad/models) and golden/models. */
#include "support/main.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "npudiff/model.h"

static const char *const good_models[] = {
    "oracle/model/chain.onnx",
    "oracle/model/front.onnx",
    "oracle/model/both.onnx",
    "oracle/model/codes_io.onnx",
    "oracle/model/requant.onnx",
    "oracle/model/split.onnx",
    "oracle/model/mixed.onnx",
    "oracle/model/plain.onnx",
    "oracle/model/scales.onnx",
    "oracle/model/dynamic.onnx",
    "oracle/model/subgraph.onnx",
    "oracle/model/old_ir.onnx",
    "models/cnn.float.onnx",
    "models/cnn.w8a8.onnx",
    "models/vit.w8a16.onnx",
    "models/mul.u8.onnx",
    "oracle/model/external/model.onnx",
};
enum { N_GOOD = sizeof good_models / sizeof good_models[0] };

static char *golden_path(const char *name)
{
    const char *golden = getenv("GOLDEN");
    assert_non_null(golden);
    return nd_path_join(golden, name);
}

static struct nd_model *load(const char *name)
{
    struct nd_model *model = NULL;
    struct nd_error err = {0};
    char *path = name[0] == '/' ? strdup(name) : golden_path(name);
    if (nd_model_load(path, &model, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_string_equal(nd_model_path(model), path);
    free(path);
    return model;
}

static char *temporary_dir(void)
{
    char *dir = NULL;
    assert_int_equal(nd_dir_make_temporary(&dir, NULL), ND_OK);
    return dir;
}

static size_t edge_index(const struct nd_model *model, const char *name)
{
    for (size_t i = 0; i < nd_model_n_edges(model); i++)
        if (strcmp(nd_model_edge(model, i)->name, name) == 0)
            return i;
    fail_msg("no edge '%s'", name);
    return 0;
}

/* Checks name, onnx_name, op_types and node of every edge; rows end with a NULL name. */
struct edge_row {
    const char *name, *onnx_name, *op_types, *node;
    enum nd_dtype dtype;
};

static void assert_edges(const struct nd_model *model, const struct edge_row *rows)
{
    size_t n = 0;
    for (; rows[n].name != NULL; n++) {
        assert_true(n < nd_model_n_edges(model));
        const struct nd_edge *edge = nd_model_edge(model, n);
        assert_string_equal(edge->name, rows[n].name);
        assert_string_equal(edge->onnx_name, rows[n].onnx_name);
        assert_string_equal(edge->op_types, rows[n].op_types);
        assert_string_equal(edge->node, rows[n].node);
        assert_int_equal(edge->dtype, rows[n].dtype);
    }
    assert_int_equal(nd_model_n_edges(model), n);
}

/* "name:op_types:input,input,;" of every unit. */
static void assert_units(const struct nd_model *model, const char *expected)
{
    char text[2048] = "";
    for (size_t i = 0; i < nd_model_n_units(model); i++) {
        const struct nd_model_unit *unit = nd_model_unit(model, i);
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s:%s:", unit->name, unit->op_types);
        assert_string_equal(unit->name, nd_model_edge(model, unit->edge)->name);
        assert_string_equal(unit->op_types, nd_model_edge(model, unit->edge)->op_types);
        for (size_t k = 0; k < unit->n_inputs; k++) {
            n = strlen(text);
            snprintf(text + n, sizeof text - n, "%s,", nd_model_edge(model, unit->inputs[k])->name);
        }
        strcat(text, ";");
    }
    assert_string_equal(text, expected);
}

static void assert_quant(const struct nd_model *model, const char *name, float scale, int64_t zero_point)
{
    const struct nd_edge *edge = nd_model_edge(model, edge_index(model, name));
    assert_int_equal(edge->quant.n, 1);
    assert_int_equal(edge->quant.axis, -1);
    assert_f32_bits(edge->quant.scale[0], scale);
    assert_int_equal(edge->quant.zero_point[0], zero_point);
}

static void edges_of_the_quantiser_are_named_after_float_tensors(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/chain.onnx");
    assert_edges(
        model,
        (const struct edge_row[]){
            {"image", "image_QuantizeLinear_Output", "input", "image_QuantizeLinear", ND_DTYPE_U8},
            {"hidden", "hidden_QuantizeLinear_Output", "MatMul+Relu", "hidden_QuantizeLinear", ND_DTYPE_U8},
            {"logits", "logits_QuantizeLinear_Output", "Add", "logits_Q", ND_DTYPE_U16},
            {0}});
    assert_units(model, "hidden:MatMul+Relu:image,;logits:Add:hidden,image,;");
    assert_quant(model, "image", 0.25f, 128);
    assert_quant(model, "logits", 0.1f, 32768);
    for (size_t i = 0; i < 3; i++) {
        const struct nd_edge *edge = nd_model_edge(model, i);
        assert_true(nd_shape_equal(&edge->shape, &(struct nd_shape){2, {1, 4}}));
        assert_int_equal(edge->is_model_input, i == 0);
        assert_int_equal(edge->is_model_output, i == 2);
    }
    assert_int_equal(nd_model_n_inputs(model), 1);
    assert_int_equal(nd_model_input(model, 0)->dtype, ND_DTYPE_F32);
    assert_ptr_equal(nd_model_input(model, 0)->quant, &nd_model_edge(model, 0)->quant);
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

static void codes_in_and_out_are_edges_themselves(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/codes_io.onnx");
    assert_edges(model, (const struct edge_row[]){{"a", "a", "input", "", ND_DTYPE_U8},
                                                  {"b", "b", "input", "", ND_DTYPE_I8},
                                                  {"product", "product", "Mul", "product_Q", ND_DTYPE_U8},
                                                  {0}});
    assert_units(model, "product:Mul:a,b,;");
    assert_quant(model, "b", 0.25f, 0);
    assert_int_equal(nd_model_input(model, 1)->quant_dtype, ND_DTYPE_I8);
    assert_null(nd_model_input(model, 2)->quant);
    assert_true(nd_model_edge(model, 1)->is_model_input);
    assert_true(nd_model_edge(model, 2)->is_model_output);
    nd_model_destroy(&model);
}

static void codes_made_of_codes_are_their_own_edges(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/requant.onnx");
    assert_edges(
        model,
        (const struct edge_row[]){
            {"x", "x_QuantizeLinear_Output", "input", "x_Q", ND_DTYPE_U8},
            {"x_convert", "x_convert_QuantizeLinear_Output", "requantise", "x_convert_Q", ND_DTYPE_U16},
            {"logits_QuantizeLinear_Output", "logits_QuantizeLinear_Output", "Relu", "logits_Q", ND_DTYPE_U16},
            {"logits", "logits_convert_QuantizeLinear_Output", "requantise", "logits_convert_Q", ND_DTYPE_U8},
            {0}});
    assert_units(model, "x_convert:requantise:x,;logits_QuantizeLinear_Output:Relu:x_convert,;"
                        "logits:requantise:logits_QuantizeLinear_Output,;");
    assert_int_equal(nd_model_edge(model, 1)->shape.rank, 2);
    nd_model_destroy(&model);
}

static void operator_with_two_quantised_outputs_is_in_both_units(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/split.onnx");
    assert_units(model, "left:Split:relu,;right:Split:relu,;");
    assert_int_equal(nd_model_edge(model, edge_index(model, "relu"))->quant.n, 0);
    nd_model_destroy(&model);
}

static void floats_outside_of_units_are_edges(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/mixed.onnx");
    assert_edges(model, (const struct edge_row[]){
                            {"front", "front", "Relu", "front", ND_DTYPE_NONE},
                            {"twice", "twice_QuantizeLinear_Output", "Neg", "twice_Q8", ND_DTYPE_U8},
                            {"twice_16", "twice_16_QuantizeLinear_Output", "Neg", "twice_Q16", ND_DTYPE_U16},
                            {"biased", "biased", "Add", "add", ND_DTYPE_NONE},
                            {"free", "free", "Sigmoid", "free", ND_DTYPE_NONE},
                            {"sum", "sum", "Sum", "sum", ND_DTYPE_F32},
                            {0}});
    assert_units(model, "twice:Neg:front,;twice_16:Neg:front,;");
    assert_true(nd_model_edge(model, 1)->is_model_output);
    assert_false(nd_model_edge(model, 2)->is_model_output);
    assert_int_equal(nd_model_edge(model, 0)->shape.rank, -1);
    nd_model_destroy(&model);
}

static void unit_reaches_back_to_codes_only(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/front.onnx");
    assert_edges(model, (const struct edge_row[]){{"front", "front", "Relu", "relu", ND_DTYPE_NONE},
                                                  {"inner", "inner_q", "Neg", "inner_Q", ND_DTYPE_U8},
                                                  {"moved", "moved", "Transpose", "transpose", ND_DTYPE_U8},
                                                  {"same", "exp_q", "Abs+Exp", "exp_Q", ND_DTYPE_U8},
                                                  {"top", "top", "ReduceMax", "max", ND_DTYPE_NONE},
                                                  {"same_q", "same_q", "Sqrt", "same_Q", ND_DTYPE_U8},
                                                  {"y_float", "y_float", "Relu", "last", ND_DTYPE_NONE},
                                                  {"y", "y", "Transpose", "back", ND_DTYPE_F32},
                                                  {0}});
    assert_units(model, "inner:Neg:front,;same:Abs+Exp:moved,;same_q:Sqrt:same,;");
    assert_quant(model, "moved", 0.25f, 128);
    assert_int_equal(nd_model_edge(model, 5)->quant.n, 0); /* its scale is computed */
    nd_model_destroy(&model);
}

static void outputs_are_named_edges_wherever_they_are(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/both.onnx");
    assert_edges(model, (const struct edge_row[]){{"x", "x_q", "input", "x_Q", ND_DTYPE_U8},
                                                  {"abs", "abs", "Abs", "abs", ND_DTYPE_F32},
                                                  {"real", "exp_q", "Exp", "exp_Q", ND_DTYPE_U8},
                                                  {0}});
    assert_units(model, "real:Exp:abs,;");
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(nd_model_edge(model, i)->is_model_output, i > 0);
    assert_null(nd_model_output(model, 0)->quant);
    assert_ptr_equal(nd_model_output(model, 1)->quant, nd_model_output(model, 2)->quant);
    nd_model_destroy(&model);
}

static void float_model_has_every_living_tensor_as_edge(void **state)
{
    (void)state;
    struct nd_model *model = load("oracle/model/plain.onnx");
    assert_edges(model, (const struct edge_row[]){{"sum", "sum", "Add", "add", ND_DTYPE_F32},
                                                  {"kept", "kept", "Dropout", "dropout", ND_DTYPE_NONE},
                                                  {"shape", "shape", "Shape", "shape", ND_DTYPE_I64},
                                                  {"y", "y", "Reshape", "y", ND_DTYPE_F32},
                                                  {0}});
    assert_units(model, "");
    for (size_t i = 0; i < nd_model_n_nodes(model); i++)
        assert_false(nd_model_node(model, i)->is_io_quantisation);
    nd_model_destroy(&model);
    model = load("oracle/model/old_ir.onnx");
    assert_int_equal(nd_model_n_inputs(model), 1);
    assert_int_equal(nd_model_opset(model), 8);
    nd_model_destroy(&model);
}

static void float_and_quantised_model_share_edge_names(void **state)
{
    (void)state;
    struct nd_model *quantised = load("models/cnn.w8a8.onnx"), *plain = load("models/cnn.float.onnx");
    size_t n = nd_model_n_edges(quantised);
    assert_int_equal(n, 10);
    for (size_t i = 1; i < n; i++)
        edge_index(plain, nd_model_edge(quantised, i)->name);
    assert_int_equal(nd_model_n_units(quantised), 9);
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
    assert_int_equal(nd_model_edge(model, edge_index(model, "absent"))->dtype, ND_DTYPE_U8);
    assert_int_equal(nd_model_edge(model, edge_index(model, "typed"))->dtype, ND_DTYPE_I8);
    assert_int_equal(nd_model_edge(model, edge_index(model, "ms"))->dtype, ND_DTYPE_U16);
    static const char *const per_channel[] = {"channel", "back"};
    for (size_t i = 0; i < 2; i++) {
        const struct nd_quant *quant = &nd_model_edge(model, edge_index(model, per_channel[i]))->quant;
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
    assert_int_equal(nd_model_edge(model, 0)->shape.rank, -1);
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
    assert_true(nd_shape_equal(&nd_model_edge(model, 2)->shape, &(struct nd_shape){2, {1, 7}}));
    nd_model_destroy(&model);
    nd_dir_remove(dir);
    free(path);
    free(dir);
}

static void bad_model_is_refused_and_named(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum nd_error_id id;
        const char *words;
    } rows[] = {
        {"empty", ND_E_MODEL_PARSE, "is not an ONNX model: it is empty"},
        {"text", ND_E_MODEL_PARSE, "is not an ONNX model"},
        {"picture", ND_E_MODEL_PARSE, "is not an ONNX model: it is a PNG image"},
        {"lfs_pointer", ND_E_MODEL_PARSE, "Git LFS pointer"},
        {"ort_format", ND_E_MODEL_PARSE, "ONNX Runtime's own format"},
        {"truncated", ND_E_MODEL_PARSE, "cut off or damaged"},
        {"no_graph", ND_E_MODEL_PARSE, "it has no graph"},
        {"empty_graph", ND_E_MODEL_PARSE, "it has no graph"},
        {"no_ir_version", ND_E_MODEL_PARSE, "it has no IR version"},
        {"too_deep", ND_E_MODEL_PARSE, "nested too deeply"},
        {"graph_twice", ND_E_MODEL_PARSE, "is there twice"},
        {"nul_in_name", ND_E_MODEL_PARSE, "holds a NUL"},
        {"missing_input", ND_E_MODEL_GRAPH, "node 'add' (Add) reads tensor 'ghost', which nothing makes"},
        {"unsorted", ND_E_MODEL_GRAPH, "node 'first' (Relu) reads tensor 'late' before node 'second' makes it"},
        {"made_twice", ND_E_MODEL_GRAPH, "node 'two' (Neg): node output 'y'"},
        {"makes_input", ND_E_MODEL_GRAPH, "node 'neg' (Neg): node output 'x'"},
        {"output_twice", ND_E_MODEL_GRAPH, "graph output 'y' is listed twice"},
        {"output_unmade", ND_E_MODEL_GRAPH, "graph output 'ghost' is made by nothing"},
        {"input_twice", ND_E_MODEL_GRAPH, "graph input 'x'"},
        {"no_operator", ND_E_MODEL_GRAPH, "node 'what' names no operator"},
        {"quantize_without_scale", ND_E_MODEL_GRAPH, "node 'x_Q' (QuantizeLinear) needs"},
        {"zero_point_out_of_range", ND_E_MODEL_GRAPH, "constant 'zero'"},
        {"zero_point_float", ND_E_MODEL_GRAPH, "zero point that is no integer"},
        {"scale_integer", ND_E_MODEL_GRAPH, "scale that is no float"},
        {"scales_and_zero_points", ND_E_MODEL_GRAPH, "4 scales and 3 zero points"},
        {"scale_short", ND_E_MODEL_GRAPH, "constant 'scale'"},
        {"scale_huge", ND_E_MODEL_GRAPH, "constant 'scale'"},
        {"axis_wrong_length", ND_E_MODEL_GRAPH, "4 scales for the 1 elements of axis 0"},
        {"axis_outside", ND_E_MODEL_GRAPH, "axis 5 of 2 dimensions"},
        {"rank_nine", ND_E_MODEL_UNSUPPORTED, "tensor 'x' has 9 dimensions"},
        {"sequence_input", ND_E_MODEL_UNSUPPORTED, "graph input 'x' is not a tensor"},
        {"external_absolute", ND_E_MODEL_EXTERNAL, "'/etc/hostname', outside of the model's folder"},
        {"external_escapes", ND_E_MODEL_EXTERNAL, "outside of the model's folder"},
        {"external_missing", ND_E_MODEL_EXTERNAL, "not-there.bin' of tensor 'w' cannot be opened"},
        {"external_short", ND_E_MODEL_EXTERNAL, "short.bin' of tensor 'w' ends too early"},
        {"external_folder", ND_E_MODEL_EXTERNAL, "is not a file"},
        {"external_offset", ND_E_MODEL_EXTERNAL, "does not say where"},
        {"no_such_file", ND_E_FILE_OPEN, "No such file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[128], file[64];
        snprintf(file, sizeof file, "%s.onnx", rows[i].name);
        snprintf(name, sizeof name, "bad/models/%s", file);
        char *path = golden_path(name);
        struct nd_error err = {0};
        struct nd_model *model = NULL;
        assert_int_not_equal(nd_model_load(path, &model, &err), ND_OK);
        assert_null(model);
        if (err.id != (int)rows[i].id || strstr(err.message, rows[i].words) == NULL ||
            strstr(err.message, file) == NULL)
            fail_msg("%s: ND-%d %s", rows[i].name, err.id, err.message);
        free(path);
    }
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
        assert_int_equal(nd_model_select_edges(model, rows[i].spec, &selected, &n, NULL), ND_OK);
        assert_int_equal(n, rows[i].n);
        assert_int_equal(selected[0], rows[i].first);
        for (size_t k = 1; k < n; k++)
            assert_true(selected[k - 1] < selected[k]);
        free(selected);
    }
    struct nd_error err = {0};
    selected = NULL;
    assert_int_equal(nd_model_select_edges(model, "pool,nothing*", &selected, &n, &err), ND_ERR_NOT_FOUND);
    assert_int_equal(err.id, ND_E_MODEL_NO_EDGE);
    assert_non_null(strstr(err.message, "'nothing*'"));
    assert_non_null(strstr(err.message, "'image'"));
    assert_int_equal(nd_model_select_edges(model, "pool,", &selected, &n, &err), ND_ERR_USAGE);
    assert_int_equal(nd_model_select_edges(model, "", &selected, &n, &err), ND_ERR_USAGE);
    assert_int_equal(nd_model_select_edges(model, "pool\\,", &selected, &n, &err), ND_ERR_NOT_FOUND);
    assert_null(selected);
    nd_model_destroy(&model);
    /* Inputs of codes are the probe's own bytes. */
    model = load("oracle/model/codes_io.onnx");
    assert_int_equal(nd_model_select_edges(model, "all", &selected, &n, NULL), ND_OK);
    assert_int_equal(n, 1);
    free(selected);
    assert_int_equal(nd_model_select_edges(model, "a", &selected, &n, &err), ND_ERR_NOT_FOUND);
    nd_model_destroy(&model);
}

static void assert_same_files(const char *a, const char *b)
{
    void *data_a = NULL, *data_b = NULL;
    size_t n_a = 0, n_b = 0;
    assert_int_equal(nd_file_read(a, 1u << 30, &data_a, &n_a, NULL), ND_OK);
    assert_int_equal(nd_file_read(b, 1u << 30, &data_b, &n_b, NULL), ND_OK);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(data_a, data_b, n_a);
    free(data_a);
    free(data_b);
}

/* Writes a selection twice and checks what was written against what was asked for. */
static void check_exposed(const struct nd_model *model, const char *spec, const char *path, const char *again)
{
    size_t *selected = NULL, n = 0;
    struct nd_error err = {0};
    assert_int_equal(nd_model_select_edges(model, spec, &selected, &n, &err), ND_OK);
    if (nd_model_write_exposed(model, selected, n, path, &err) != ND_OK ||
        nd_model_write_exposed(model, selected, n, again, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_same_files(path, again);
    struct nd_model *copy = load(path);
    assert_int_equal(nd_model_n_outputs(copy), n);
    assert_int_equal(nd_model_n_inputs(copy), nd_model_n_inputs(model));
    for (size_t i = 0; i < n; i++) {
        const struct nd_edge *edge = nd_model_edge(model, selected[i]);
        const struct nd_model_io *output = nd_model_output(copy, i);
        assert_string_equal(output->name, edge->onnx_name);
        assert_int_equal(output->dtype, edge->dtype);
        if (edge->shape.rank >= 0)
            assert_true(nd_shape_equal(&output->shape, &edge->shape));
        assert_int_equal(output->quant != NULL && output->quant->n > 0, edge->quant.n > 0);
    }
    /* No DequantizeLinear lives on as an output beside its codes. */
    for (size_t i = 0; i < nd_model_n_nodes(copy); i++) {
        const struct nd_model_node *node = nd_model_node(copy, i);
        assert_string_not_equal(node->name, "");
        assert_false(node->is_io_quantisation && strcmp(node->op_type, "DequantizeLinear") == 0);
    }
    nd_model_destroy(&copy);
    free(selected);
}

static void exposed_model_has_the_edges_as_outputs(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOOD; i++) {
        char *dir = temporary_dir(), *path = nd_path_join(dir, "a.onnx"), *again = nd_path_join(dir, "b.onnx");
        struct nd_model *model = load(good_models[i]);
        check_exposed(model, "all", path, again);
        check_exposed(model, "outputs", path, again);
        nd_model_destroy(&model);
        nd_dir_remove(dir);
        free(again);
        free(path);
        free(dir);
    }
}

static bool file_holds(const char *path, const char *text)
{
    void *data = NULL;
    size_t n = 0;
    assert_int_equal(nd_file_read(path, 1u << 30, &data, &n, NULL), ND_OK);
    bool found = memmem(data, n, text, strlen(text)) != NULL;
    free(data);
    return found;
}

static void exposed_model_drops_the_dead_and_keeps_the_rest(void **state)
{
    (void)state;
    char *dir = temporary_dir(), *path = nd_path_join(dir, "a.onnx");
    struct nd_model *model = load("oracle/model/chain.onnx");
    size_t backwards[] = {2, 0};
    assert_int_equal(nd_model_write_exposed(model, backwards, 2, path, NULL), ND_OK);
    assert_true(file_holds(path, "node\x12\x10new in ONNX 1.16"));
    assert_true(file_holds(path, "graph\x12\x10new in ONNX 1.16"));
    assert_true(file_holds(path, "author\x12\x10make_model_cases"));
    assert_false(file_holds(path, "logits_DQ"));
    struct nd_model *copy = load(path);
    assert_string_equal(nd_model_output(copy, 0)->name, "logits_QuantizeLinear_Output");
    assert_string_equal(nd_model_output(copy, 1)->name, "image_QuantizeLinear_Output");
    assert_int_equal(nd_model_n_nodes(copy), 9);
    assert_string_equal(nd_model_node(copy, 4)->name, "hidden");
    nd_model_destroy(&copy);
    size_t first = 0;
    assert_int_equal(nd_model_write_exposed(model, &first, 1, path, NULL), ND_OK);
    assert_false(file_holds(path, "w_quantized"));
    assert_false(file_holds(path, "MatMul"));
    copy = load(path);
    assert_int_equal(nd_model_n_nodes(copy), 1);
    nd_model_destroy(&copy);
    nd_model_destroy(&model);

    /* What only a subgraph reads stays; an initializer that goes takes the input of its name along. */
    model = load("oracle/model/subgraph.onnx");
    size_t y = edge_index(model, "y");
    assert_int_equal(nd_model_write_exposed(model, &y, 1, path, NULL), ND_OK);
    copy = load(path);
    assert_int_equal(nd_model_n_nodes(copy), 2);
    assert_true(file_holds(path, "around"));
    nd_model_destroy(&copy);
    nd_model_destroy(&model);
    model = load("oracle/model/old_ir.onnx");
    y = edge_index(model, "y");
    assert_int_equal(nd_model_write_exposed(model, &y, 1, path, NULL), ND_OK);
    copy = load(path);
    assert_int_equal(nd_model_n_inputs(copy), 1);
    assert_false(file_holds(path, "unused_w"));
    nd_model_destroy(&copy);
    nd_model_destroy(&model);
    nd_dir_remove(dir);
    free(path);
    free(dir);
}

static void edges_that_cannot_be_outputs_are_refused(void **state)
{
    (void)state;
    char *dir = temporary_dir(), *path = nd_path_join(dir, "a.onnx");
    struct nd_model *model = load("oracle/model/codes_io.onnx");
    struct nd_error err = {0};
    assert_int_equal(nd_model_write_exposed(model, (size_t[]){0}, 1, path, &err), ND_ERR_USAGE);
    assert_non_null(strstr(err.message, "edge 'a' is an input"));
    assert_int_equal(nd_model_write_exposed(model, (size_t[]){2, 2}, 2, path, &err), ND_ERR_USAGE);
    assert_int_equal(nd_model_write_exposed(model, NULL, 0, path, &err), ND_ERR_NOT_FOUND);
    assert_int_equal(nd_model_write_exposed(model, (size_t[]){2}, 1, "/nowhere/at/all.onnx", &err), ND_ERR_IO);
    assert_false(nd_path_exists(path));
    nd_model_destroy(&model);
    nd_dir_remove(dir);
    free(path);
    free(dir);
}

static void external_data_goes_with_the_copy(void **state)
{
    (void)state;
    static const size_t edges[] = {0, 1};
    char *dir = temporary_dir(), *path = nd_path_join(dir, "copy/a.onnx"), *folder = nd_path_join(dir, "copy");
    char *weights = nd_path_join(dir, "copy/data/w.bin"),
         *source = golden_path("oracle/model/external/data/w.bin");
    struct nd_model *model = load("oracle/model/external/model.onnx");
    assert_quant(model, "y", 0.5f, 128); /* its scale is in a file */
    assert_int_equal(nd_model_write_exposed(model, edges, 2, path, NULL), ND_OK);
    assert_same_files(weights, source);
    assert_int_equal(nd_model_write_exposed(model, edges, 2, path, NULL), ND_OK);
    struct nd_model *copy = load(path);
    assert_quant(copy, "y_q", 0.5f, 128);
    nd_model_destroy(&copy);

    /* Another file in its place is not overwritten, and nothing is left of the attempt. */
    nd_dir_remove(folder);
    char *data = nd_path_join(dir, "copy/data"), *v = nd_path_join(dir, "copy/v.bin");
    assert_int_equal(nd_dir_make(folder, NULL), ND_OK);
    assert_int_equal(nd_file_put(v, "something else", 14, NULL), ND_OK);
    struct nd_error err = {0};
    assert_int_equal(nd_model_write_exposed(model, edges, 2, path, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_EXISTS);
    assert_non_null(strstr(err.message, v));
    assert_false(nd_path_exists(data));
    assert_false(nd_path_exists(path));
    assert_true(file_holds(v, "something else"));
    /* The model itself cannot be written: the data goes again, too. */
    nd_dir_remove(folder);
    assert_int_equal(nd_dir_make(path, NULL), ND_OK);
    assert_int_equal(nd_model_write_exposed(model, edges, 2, path, &err), ND_ERR_IO);
    assert_false(nd_path_exists(data));
    assert_false(nd_path_exists(v));
    nd_model_destroy(&model);
    nd_dir_remove(dir);
    free(v);
    free(data);
    free(source);
    free(weights);
    free(folder);
    free(path);
    free(dir);
}

static void digest_covers_the_external_data(void **state)
{
    (void)state;
    char hex[ND_SHA256_HEX_BYTES], text[512];
    struct nd_model *model = load("oracle/model/chain.onnx");
    assert_int_equal(nd_sha256_file(nd_model_path(model), hex, NULL), ND_OK);
    assert_string_equal(nd_model_sha256(model), hex);
    nd_model_destroy(&model);
    model = load("oracle/model/external/model.onnx");
    static const char *const files[] = {"model.onnx", "data/w.bin", "v.bin"};
    text[0] = '\0';
    for (size_t i = 0; i < 3; i++) {
        char *dir = golden_path("oracle/model/external"), *path = nd_path_join(dir, files[i]);
        assert_int_equal(nd_sha256_file(path, hex, NULL), ND_OK);
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, i == 0 ? "%s%s\n" : "%s %s\n", i == 0 ? "" : files[i], hex);
        free(path);
        free(dir);
    }
    nd_sha256_bytes(text, strlen(text), hex);
    assert_string_equal(nd_model_sha256(model), hex);
    nd_model_destroy(&model);
}

static uint64_t next_random(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (*seed ^ (*seed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Loads these bytes as a model; what loads must be consistent, and can be written and loaded again. */
static bool survives(const char *dir, const void *bytes, size_t n)
{
    char *path = nd_path_join(dir, "mutant.onnx"), *out = nd_path_join(dir, "out.onnx");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    struct nd_model *model = NULL, *copy = NULL;
    struct nd_error err = {0};
    enum nd_status status = nd_model_load(path, &model, &err);
    assert_int_equal(status, err.status);
    assert_int_equal(status == ND_OK, model != NULL);
    size_t *selected = NULL, n_selected = 0;
    bool is_loaded = model != NULL;
    if (is_loaded && nd_model_select_edges(model, "all", &selected, &n_selected, &err) == ND_OK) {
        for (size_t i = 0; i < nd_model_n_edges(model); i++)
            assert_int_equal(edge_index(model, nd_model_edge(model, i)->name), i);
        assert_int_equal(nd_model_write_exposed(model, selected, n_selected, out, &err), ND_OK);
        assert_int_equal(nd_model_load(out, &copy, &err), ND_OK);
        assert_int_equal(nd_model_n_outputs(copy), n_selected);
    }
    free(selected);
    nd_model_destroy(&copy);
    nd_model_destroy(&model);
    free(out);
    free(path);
    return is_loaded;
}

static void mutated_model_is_read_or_refused(void **state)
{
    (void)state;
    static const char *const bases[] = {"oracle/model/chain.onnx", "oracle/model/scales.onnx",
                                        "oracle/model/mixed.onnx", "oracle/model/subgraph.onnx"};
    uint64_t seed = getenv("ND_SEED") != NULL ? strtoull(getenv("ND_SEED"), NULL, 10) : 20241121;
    print_message("# seed %" PRIu64 "\n", seed);
    char *dir = temporary_dir();
    size_t n_loaded = 0;
    for (size_t b = 0; b < 4; b++) {
        char *path = golden_path(bases[b]);
        void *original = NULL;
        size_t n = 0;
        assert_int_equal(nd_file_read(path, 1u << 20, &original, &n, NULL), ND_OK);
        unsigned char *mutant = malloc(n);
        assert_non_null(mutant);
        for (size_t i = 0; i < 500; i++) {
            memcpy(mutant, original, n);
            size_t kept = next_random(&seed) % 8 == 0 ? next_random(&seed) % n : n;
            for (size_t flips = next_random(&seed) % 4 + (kept == n); flips > 0 && kept > 0; flips--)
                mutant[next_random(&seed) % kept] ^= (unsigned char)(1u << next_random(&seed) % 8);
            n_loaded += survives(dir, mutant, kept);
        }
        free(mutant);
        free(original);
        free(path);
    }
    /* A fuzz that never gets past the parser, or always does, would show nothing. */
    assert_in_range(n_loaded, 100, 1900);
    nd_dir_remove(dir);
    free(dir);
}

static void cut_model_is_never_accepted_silently(void **state)
{
    (void)state;
    char *dir = temporary_dir(), *path = golden_path("oracle/model/chain.onnx");
    void *bytes = NULL;
    size_t n = 0, n_loaded = 0;
    assert_int_equal(nd_file_read(path, 1u << 20, &bytes, &n, NULL), ND_OK);
    for (size_t kept = 0; kept < n; kept++)
        n_loaded += survives(dir, bytes, kept);
    /* Only where a top-level field ends just there is the rest a whole model: before opset_import and metadata.
     */
    assert_in_range(n_loaded, 0, 3);
    assert_true(survives(dir, bytes, n));
    nd_dir_remove(dir);
    free(bytes);
    free(path);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges_of_the_quantiser_are_named_after_float_tensors),
        cmocka_unit_test(nodes_without_a_name_are_called_by_their_output),
        cmocka_unit_test(codes_in_and_out_are_edges_themselves),
        cmocka_unit_test(codes_made_of_codes_are_their_own_edges),
        cmocka_unit_test(operator_with_two_quantised_outputs_is_in_both_units),
        cmocka_unit_test(floats_outside_of_units_are_edges),
        cmocka_unit_test(unit_reaches_back_to_codes_only),
        cmocka_unit_test(outputs_are_named_edges_wherever_they_are),
        cmocka_unit_test(float_model_has_every_living_tensor_as_edge),
        cmocka_unit_test(float_and_quantised_model_share_edge_names),
        cmocka_unit_test(scale_in_every_spelling_is_read_exactly),
        cmocka_unit_test(dynamic_dimension_is_named_and_can_be_set),
        cmocka_unit_test(bad_model_is_refused_and_named),
        cmocka_unit_test(selection_follows_patterns),
        cmocka_unit_test(exposed_model_has_the_edges_as_outputs),
        cmocka_unit_test(exposed_model_drops_the_dead_and_keeps_the_rest),
        cmocka_unit_test(edges_that_cannot_be_outputs_are_refused),
        cmocka_unit_test(external_data_goes_with_the_copy),
        cmocka_unit_test(digest_covers_the_external_data),
        cmocka_unit_test(mutated_model_is_read_or_refused),
        cmocka_unit_test(cut_model_is_never_accepted_silently),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
