/* Copies of a model with other outputs. */
#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/tensors/sha256.h"
#include "model/rewrite/native.h"
#include "support/golden_models.h"

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
    assert_int_equal(nd_model_select_tensors(model, spec, &selected, &n, &err), ND_OK);
    if (nd_model_write_exposed(model, selected, n, path, &err) != ND_OK ||
        nd_model_write_exposed(model, selected, n, again, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_same_files(path, again);
    struct nd_model *copy = load(path);
    assert_int_equal(nd_model_n_outputs(copy), n);
    assert_int_equal(nd_model_n_inputs(copy), nd_model_n_inputs(model));
    for (size_t i = 0; i < n; i++) {
        const struct nd_tensor *tensor = nd_model_tensor(model, selected[i]);
        const struct nd_model_io *output = nd_model_output(copy, i);
        assert_string_equal(output->name, tensor->onnx_name);
        assert_int_equal(output->dtype, tensor->dtype);
        if (tensor->shape.rank >= 0)
            assert_true(nd_shape_equal(&output->shape, &tensor->shape));
        assert_int_equal(output->quant != NULL && output->quant->n > 0, tensor->quant.n > 0);
    }
    /* No DequantizeLinear lives on as an output beside its quantised values. */
    for (size_t i = 0; i < nd_model_n_nodes(copy); i++) {
        const struct nd_model_node *node = nd_model_node(copy, i);
        assert_string_not_equal(node->name, "");
        assert_false(node->is_io_quantisation && strcmp(node->op_type, "DequantizeLinear") == 0);
    }
    nd_model_destroy(&copy);
    free(selected);
}

static void exposed_model_has_the_tensors_as_outputs(void **state)
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
    size_t y = tensor_index(model, "y");
    assert_int_equal(nd_model_write_exposed(model, &y, 1, path, NULL), ND_OK);
    copy = load(path);
    assert_int_equal(nd_model_n_nodes(copy), 2);
    assert_true(file_holds(path, "around"));
    nd_model_destroy(&copy);
    nd_model_destroy(&model);
    model = load("oracle/model/old_ir.onnx");
    y = tensor_index(model, "y");
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

/* Every tensor that has floats is shown as them in turn: by the tensor that its own DequantizeLinear makes. */
static void tensor_is_shown_as_its_floats(void **state)
{
    (void)state;
    size_t n_shown = 0, n_ends = 0; /* n_ends: the floats are an output of the model, as they should be */
    for (size_t i = 0; i < N_GOOD; i++) {
        char *dir = temporary_dir(), *path = nd_path_join(dir, "a.onnx");
        struct nd_model *model = load(good_models[i]);
        size_t *selected = NULL, n = 0;
        assert_int_equal(nd_model_select_tensors(model, "all", &selected, &n, NULL), ND_OK);
        bool *as_floats = calloc(nd_model_n_tensors(model), sizeof *as_floats);
        assert_non_null(as_floats);
        for (size_t k = 0; k < n; k++) {
            const struct nd_tensor *tensor = nd_model_tensor(model, selected[k]);
            struct nd_dequantised floats;
            if (!nd_model_find_dequantised(model, selected[k], &floats))
                continue;
            assert_int_equal(tensor->quant.n, 1);
            as_floats[selected[k]] = true;
            assert_int_equal(nd_model_write_shown(model, selected, n, as_floats, path, NULL), ND_OK);
            as_floats[selected[k]] = false;
            struct nd_model *copy = load(path);
            assert_int_equal(nd_model_n_outputs(copy), n);
            assert_string_equal(nd_model_output(copy, k)->name, floats.tensor);
            assert_int_equal(nd_model_output(copy, k)->dtype, ND_DTYPE_F32);
            n_ends += tensor->is_model_output && strcmp(floats.tensor, tensor->name) == 0;
            for (size_t other = 0; other < n; other++)
                if (other != k)
                    assert_string_equal(nd_model_output(copy, other)->name,
                                        nd_model_tensor(model, selected[other])->onnx_name);
            nd_model_destroy(&copy);
            n_shown++;
        }
        free(as_floats);
        free(selected);
        nd_model_destroy(&model);
        nd_dir_remove(dir);
        free(path);
        free(dir);
    }
    assert_true(n_shown > 50 && n_ends > 5);
}

static void tensors_that_cannot_be_outputs_are_refused(void **state)
{
    (void)state;
    char *dir = temporary_dir(), *path = nd_path_join(dir, "a.onnx");
    struct nd_model *model = load("oracle/model/codes_io.onnx");
    struct nd_error err = {0};
    assert_int_equal(nd_model_write_exposed(model, (size_t[]){0}, 1, path, &err), ND_ERR_USAGE);
    assert_non_null(strstr(err.message, "tensor 'a' is an input"));
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
    static const size_t tensors[] = {0, 1};
    char *dir = temporary_dir(), *path = nd_path_join(dir, "copy/a.onnx"), *folder = nd_path_join(dir, "copy");
    char *weights = nd_path_join(dir, "copy/data/w.bin"),
         *source = golden_path("oracle/model/external/data/w.bin");
    struct nd_model *model = load("oracle/model/external/model.onnx");
    assert_quant(model, "y", 0.5f, 128); /* its scale is in a file */
    assert_int_equal(nd_model_write_exposed(model, tensors, 2, path, NULL), ND_OK);
    assert_same_files(weights, source);
    assert_int_equal(nd_model_write_exposed(model, tensors, 2, path, NULL), ND_OK);
    struct nd_model *copy = load(path);
    assert_quant(copy, "y_q", 0.5f, 128);
    nd_model_destroy(&copy);

    /* Another file in its place is not overwritten, and nothing is left of the attempt. */
    nd_dir_remove(folder);
    char *data = nd_path_join(dir, "copy/data"), *v = nd_path_join(dir, "copy/v.bin");
    assert_int_equal(nd_dir_make(folder, NULL), ND_OK);
    assert_int_equal(nd_file_put(v, "something else", 14, NULL), ND_OK);
    struct nd_error err = {0};
    assert_int_equal(nd_model_write_exposed(model, tensors, 2, path, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_EXISTS);
    assert_non_null(strstr(err.message, v));
    assert_false(nd_path_exists(data));
    assert_false(nd_path_exists(path));
    assert_true(file_holds(v, "something else"));
    /* The model itself cannot be written: the data goes again, too. */
    nd_dir_remove(folder);
    assert_int_equal(nd_dir_make(path, NULL), ND_OK);
    assert_int_equal(nd_model_write_exposed(model, tensors, 2, path, &err), ND_ERR_IO);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exposed_model_has_the_tensors_as_outputs),
        cmocka_unit_test(exposed_model_drops_the_dead_and_keeps_the_rest),
        cmocka_unit_test(tensor_is_shown_as_its_floats),
        cmocka_unit_test(tensors_that_cannot_be_outputs_are_refused),
        cmocka_unit_test(external_data_goes_with_the_copy),
        cmocka_unit_test(digest_covers_the_external_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
