/* Models that are damaged, cut or wrong: refused, or read as they are. */
#include "support/main.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/tensors/sha256.h"
#include "npudiff/model/model.h"
#include "support/golden_models.h"

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
        {"circle", ND_E_MODEL_GRAPH,
         "node 'first' (Add) needs what is made of its own output, through node 'second' (Neg)"},
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

/* The model's external data, as a link to target; what loading says. */
static void load_linked(const char *folder, const char *target, const char *model, struct nd_error *err)
{
    struct nd_model *loaded = NULL;
    char *data = nd_path_join(folder, "not-there.bin"), *path = nd_path_join(folder, model);
    unlink(data);
    assert_int_equal(symlink(target, data), 0);
    *err = (struct nd_error){0};
    nd_model_load(path, &loaded, err);
    nd_model_destroy(&loaded);
    free(data);
    free(path);
}

/* A model of a stranger cannot have any file of this machine read. Caches of models link the model and its data
 * to a folder of all files. */
static void links_of_external_data_stay_with_the_model(void **state)
{
    (void)state;
    static const char words[] = "is a link to";
    struct nd_error err;
    void *bytes = NULL;
    size_t n = 0;
    char *dir = NULL, *from = golden_path("bad/models/external_missing.onnx"), zeros[4096] = {0};
    assert_int_equal(nd_dir_make_temporary(&dir, NULL), ND_OK);
    char *folder = nd_path_join(dir, "snapshot"), *blobs = nd_path_join(dir, "blobs");
    char *model = nd_path_join(folder, "m.onnx"), *blob = nd_path_join(blobs, "m"),
         *data = nd_path_join(blobs, "d"), *linked = nd_path_join(folder, "linked.onnx"),
         *inside = nd_path_join(folder, "inside.bin");
    assert_int_equal(nd_dir_make(folder, NULL), ND_OK);
    assert_int_equal(nd_dir_make(blobs, NULL), ND_OK);
    assert_int_equal(nd_file_read(from, 1 << 20, &bytes, &n, NULL), ND_OK);
    assert_int_equal(nd_file_put(model, bytes, n, NULL), ND_OK);
    assert_int_equal(nd_file_put(blob, bytes, n, NULL), ND_OK);
    assert_int_equal(nd_file_put(data, zeros, sizeof zeros, NULL), ND_OK);
    assert_int_equal(nd_file_put(inside, zeros, sizeof zeros, NULL), ND_OK);
    assert_int_equal(symlink("../blobs/m", linked), 0);

    load_linked(folder, "../blobs/d", "m.onnx", &err);
    assert_int_equal(err.id, ND_E_MODEL_EXTERNAL);
    assert_non_null(strstr(err.message, words));
    load_linked(folder, "inside.bin", "m.onnx", &err);
    assert_null(strstr(err.message, words));
    load_linked(folder, "../blobs/d", "linked.onnx", &err);
    assert_null(strstr(err.message, words));
    load_linked(folder, "/etc/passwd", "linked.onnx", &err);
    assert_non_null(strstr(err.message, words));
    nd_dir_remove(dir);
    char *const owned[] = {dir, from, folder, blobs, model, blob, data, linked, inside, bytes};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
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
    if (is_loaded && nd_model_select_tensors(model, "all", &selected, &n_selected, &err) == ND_OK) {
        for (size_t i = 0; i < nd_model_n_tensors(model); i++)
            assert_int_equal(tensor_index(model, nd_model_tensor(model, i)->name), i);
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
        cmocka_unit_test(bad_model_is_refused_and_named),
        cmocka_unit_test(links_of_external_data_stay_with_the_model),
        cmocka_unit_test(mutated_model_is_read_or_refused),
        cmocka_unit_test(cut_model_is_never_accepted_silently),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
