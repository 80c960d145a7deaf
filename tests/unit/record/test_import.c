/* Imports: names, layouts, samples, maps, and what a TensorProto holds. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <hdf5.h>

#include "support/main.h"

#include "support/scratch.h"

#include "core/files/file.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "record/import/imported.h"
#include "record/import/map.h"
#include "record/import/match_tensor.h"
#include "record/import/write_capture.h"

static struct nd_error err;

/* ---- names ---- */

/* As converters write it: every byte but letters and digits becomes '_'. */
static char *sanitise(const char *name)
{
    char *made = nd_strdup(name);
    assert_non_null(made);
    for (char *c = made; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c))
            *c = '_';
    return made;
}

static struct nd_model *load(const char *name)
{
    char *models = nd_path_join(getenv("GOLDEN"), "models");
    char *path = nd_path_join(models, name);
    struct nd_model *model = NULL;
    expect_ok(nd_model_load(path, &model, &err), &err);
    free(path);
    free(models);
    return model;
}

static void an_tensor_is_found_by_each_of_its_names(void **state)
{
    (void)state;
    struct nd_model *model = load("cnn.w8a8.onnx");
    for (size_t e = 0; e < nd_model_n_tensors(model); e++) {
        const struct nd_tensor *tensor = nd_model_tensor(model, e);
        size_t found = SIZE_MAX;
        enum nd_name_method method = ND_NAME_SANITISED;
        expect_ok(nd_name_find_tensor(model, tensor->name, false, &found, &method, &err), &err);
        assert_int_equal(found, e);
        assert_int_equal(method, ND_NAME_AS_IT_IS);
        expect_ok(nd_name_find_tensor(model, tensor->onnx_name, false, &found, &method, &err), &err);
        assert_int_equal(found, e);
        char *written = sanitise(tensor->name);
        expect_ok(nd_name_find_tensor(model, written, false, &found, &method, &err), &err);
        assert_int_equal(found, e);
        expect_ok(nd_name_find_tensor(model, written, true, &found, &method, &err), &err);
        assert_int_equal(found, e);
        free(written);
    }
    size_t found = 77;
    enum nd_name_method method;
    assert_int_equal(nd_name_find_tensor(model, "stem+relu", true, &found, &method, &err), ND_ERR_NOT_FOUND);
    assert_int_equal(nd_name_find_input(model, "images", false, &found, &method, &err), ND_ERR_NOT_FOUND);
    expect_ok(nd_name_find_input(model, "image", true, &found, &method, &err), &err);
    assert_int_equal(found, 0);
    nd_model_destroy(&model);
}

/* ---- layout and samples ---- */

static struct nd_imported_tensor make_tensor(const struct nd_shape *shape, size_t n_samples,
                                             enum nd_dtype dtype)
{
    struct nd_imported_tensor tensor = {.name = nd_strdup("t"),
                                        .where = nd_strdup("'t'"),
                                        .dtype = dtype,
                                        .shape = *shape,
                                        .n_samples = n_samples};
    expect_ok(nd_shape_size_bytes(shape, dtype, &tensor.sample_bytes, &err), &err);
    tensor.data = nd_tensor_alloc(n_samples * tensor.sample_bytes);
    return tensor;
}

static void free_tensor(struct nd_imported_tensor *tensor)
{
    free(tensor->name);
    free(tensor->where);
    free(tensor->data);
}

/* Every element holds where it must end up, worked out from its coordinates. */
static void channels_go_where_their_coordinates_say(void **state)
{
    (void)state;
    const struct nd_shape shape = {.rank = 4, .dims = {2, 3, 5, 7}}; /* N H W C */
    struct nd_imported_tensor t = make_tensor(&shape, 3, ND_DTYPE_U16);
    uint16_t *values = t.data;
    for (size_t i = 0; i < 3 * 210; i++) {
        size_t c = i % 7, w = i / 7 % 5, h = i / 35 % 3, n = i / 105;
        values[i] = (uint16_t)(((n * 7 + c) * 3 + h) * 5 + w);
    }
    expect_ok(nd_layout_channels_first(&t, 1, &err), &err);
    const struct nd_shape moved = {.rank = 4, .dims = {2, 7, 3, 5}};
    assert_true(nd_shape_equal(&t.shape, &moved));
    for (size_t i = 0; i < 3 * 210; i++)
        assert_int_equal(((uint16_t *)t.data)[i], i);
    struct nd_shape back = nd_layout_channels_last(&moved);
    assert_true(nd_shape_equal(&back, &shape));
    free_tensor(&t);
}

static void samples_are_found_by_the_expected_shape(void **state)
{
    (void)state;
    static const struct {
        struct nd_shape array, expected, sample;
        size_t n;
    } cases[] = {
        {{3, {6, 1, 4}}, {2, {1, 4}}, {2, {1, 4}}, 6},
        {{2, {6, 4}}, {2, {1, 4}}, {2, {1, 4}}, 6},
        {{2, {6, 4}}, {2, {6, 4}}, {2, {6, 4}}, 1},
        {{1, {6}}, {0, {0}}, {0, {0}}, 6},
        {{0, {0}}, {0, {0}}, {0, {0}}, 1},
        {{3, {1, 1, 4}}, {2, {1, 4}}, {2, {1, 4}}, 1},
        {{2, {0, 4}}, {2, {1, 4}}, {2, {1, 4}}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nd_imported_tensor t = make_tensor(&cases[i].array, 1, ND_DTYPE_F32);
        t.is_array = true;
        expect_ok(nd_layout_find_samples(&t, ND_IMPORT_SAMPLES_AUTO, &cases[i].expected, &err), &err);
        assert_true(nd_shape_equal(&t.shape, &cases[i].sample));
        assert_int_equal(t.n_samples, cases[i].n);
        free_tensor(&t);
    }
    const struct nd_shape array = {2, {6, 4}}, expected = {2, {1, 5}};
    struct nd_imported_tensor t = make_tensor(&array, 1, ND_DTYPE_F32);
    t.is_array = true;
    assert_int_equal(nd_layout_find_samples(&t, ND_IMPORT_SAMPLES_AUTO, &expected, &err), ND_ERR_FORMAT);
    assert_int_equal(err.id, ND_E_IMPORT_MISMATCH);
    free_tensor(&t);
}

/* ---- samples, one after the other ---- */

static enum nd_status add(struct nd_imported *imported, const char *name, enum nd_dtype dtype,
                          const struct nd_shape *shape, size_t sample, void **data)
{
    const struct nd_imported_new added = {ND_IMPORTED_OUTPUT, name, name, dtype, *shape, sample};
    return nd_imported_add(imported, &added, data, &err);
}

static void samples_must_come_in_order_and_alike(void **state)
{
    (void)state;
    struct nd_imported imported = {0};
    const struct nd_shape shape = {2, {2, 3}}, other = {2, {3, 2}};
    void *data = NULL;
    for (size_t s = 0; s < 100; s++) {
        expect_ok(add(&imported, "x", ND_DTYPE_U8, &shape, s, &data), &err);
        memset(data, (int)s, 6);
    }
    const struct nd_imported_tensor *x = nd_imported_find(&imported, ND_IMPORTED_OUTPUT, "x");
    for (size_t i = 0; i < 600; i++)
        assert_int_equal(((unsigned char *)x->data)[i], i / 6);
    assert_int_equal(add(&imported, "x", ND_DTYPE_U8, &shape, 101, &data), ND_ERR_FORMAT);
    assert_int_equal(add(&imported, "x", ND_DTYPE_U8, &other, 100, &data), ND_ERR_FORMAT);
    assert_int_equal(err.id, ND_E_IMPORT_MISMATCH);
    assert_int_equal(add(&imported, "x", ND_DTYPE_I8, &shape, 100, &data), ND_ERR_FORMAT);
    const struct nd_shape huge = {3, {1 << 20, 1 << 20, 1 << 20}};
    assert_int_equal(add(&imported, "y", ND_DTYPE_U8, &huge, ND_IMPORTED_ARRAY, &data), ND_ERR_MEMORY);
    assert_int_equal(add(&imported, "x", ND_DTYPE_U8, &shape, ND_IMPORTED_ARRAY, &data), ND_ERR_FORMAT);
    nd_imported_deinit(&imported);
}

/* ---- facts ---- */

static void facts_are_summed_up_by_kind(void **state)
{
    (void)state;
    struct nd_imported imported = {0};
    struct nd_import_result result = {0};
    expect_ok(nd_imported_fact(&imported, "types", NULL, "header", &err), &err);
    expect_ok(nd_imported_fact(&imported, "names", "a", "map", &err), &err);
    expect_ok(nd_imported_fact(&imported, "names", "b", "map", &err), &err);
    expect_ok(nd_imported_fact(&imported, "types", "b", "map", &err), &err);
    expect_ok(nd_imported_fact(&imported, "types", "b", "model", &err), &err); /* the later one wins */
    expect_ok(nd_facts_sum_up(&imported, &result, &err), &err);
    assert_int_equal(result.n_facts, 2);
    assert_string_equal(result.facts[0].kind, "types");
    assert_string_equal(result.facts[0].source, "others: header\nb: model");
    assert_string_equal(result.facts[1].source, "map");
    nd_import_result_deinit(&result);
    for (size_t i = 0; i < 5000; i++) {
        char name[64];
        snprintf(name, sizeof name, "a tensor with a rather long name %zu", i);
        expect_ok(nd_imported_fact(&imported, "layout", name, i % 2 ? "odd" : "even", &err), &err);
    }
    expect_ok(nd_facts_sum_up(&imported, &result, &err), &err);
    const char *text = result.facts[2].source;
    assert_in_range(strlen(text), 40000, 60000);
    assert_non_null(strstr(text, "\nand "));
    nd_import_result_deinit(&result);
    nd_imported_deinit(&imported);
}

/* ---- maps ---- */

static enum nd_status read_map(const char *text, const char *const *names, size_t n, struct nd_map *map)
{
    char *path = in_folder("m.yaml");
    expect_ok(nd_file_put(path, text, strlen(text), &err), &err);
    enum nd_status status = nd_map_read(path, names, n, map, &err);
    free(path);
    return status;
}

static void both_conventions_mean_the_same(void **state)
{
    (void)state;
    struct nd_map onnx, qnn;
    expect_ok(read_map("tensors: [{name: x, scale: [0.1, 0.2], zero_point: [3, -4], axis: 1}]", NULL, 0, &onnx),
              &err);
    expect_ok(read_map("tensors: [{name: x, scale: [0.1, 0.2], offset: [-3, 4], axis: 1, convention: qnn}]",
                       NULL, 0, &qnn),
              &err);
    const struct nd_quant *a = &onnx.sides[0].items[0].quant, *b = &qnn.sides[0].items[0].quant;
    const float scales[2] = {0.1f, 0.2f};
    assert_int_equal(a->n, 2);
    assert_int_equal(a->axis, 1);
    assert_memory_equal(a->scale, scales, sizeof scales);
    assert_memory_equal(b->scale, scales, sizeof scales);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(a->zero_point[i], i == 0 ? 3 : -4);
        assert_int_equal(b->zero_point[i], a->zero_point[i]);
    }
    nd_map_deinit(&onnx);
    nd_map_deinit(&qnn);
}

static void short_forms_add_to_the_file(void **state)
{
    (void)state;
    struct nd_map map;
    static const char *const names[] = {"x=conv", "a=b=c"};
    expect_ok(read_map("tensors: [{name: x, dtype: uint8}]", names, 2, &map), &err);
    assert_int_equal(map.sides[0].n, 2);
    assert_string_equal(nd_map_find(&map, ND_IMPORTED_OUTPUT, "x")->tensor, "conv");
    assert_int_equal(nd_map_find(&map, ND_IMPORTED_OUTPUT, "x")->dtype, ND_DTYPE_U8);
    assert_string_equal(nd_map_find(&map, ND_IMPORTED_OUTPUT, "a=b")->tensor, "c");
    nd_map_deinit(&map);
    static const char *const twice[] = {"x=conv", "y=conv"};
    assert_int_equal(nd_map_read(NULL, twice, 2, &map, &err), ND_ERR_USAGE);
    assert_int_equal(err.id, ND_E_IMPORT_MAP);
    static const char *const bad[] = {"x="};
    assert_int_equal(nd_map_read(NULL, bad, 1, &map, &err), ND_ERR_USAGE);
}

/* ---- TensorProto ---- */

static void four_bit_integers_are_unpacked_low_half_first(void **state)
{
    (void)state;
    static unsigned char packed[] = {0x8f, 0x70};
    int64_t dims[] = {3};
    Onnx__TensorProto proto = ONNX__TENSOR_PROTO__INIT;
    proto.n_dims = 1;
    proto.dims = dims;
    proto.has_data_type = proto.has_raw_data = 1;
    proto.raw_data = (ProtobufCBinaryData){2, packed};
    static const signed char expected[2][3] = {{15, 8, 0}, {-1, -8, 0}};
    static const int32_t types[2] = {ND_DTYPE_U4, ND_DTYPE_I4};
    for (size_t t = 0; t < 2; t++) {
        signed char out[3];
        enum nd_dtype dtype;
        struct nd_shape shape;
        proto.data_type = types[t];
        expect_ok(nd_tensorproto_describe(&proto, "x.pb", &dtype, &shape, &err), &err);
        expect_ok(nd_tensorproto_unpack(&proto, "x.pb", dtype, &shape, out, &err), &err);
        assert_memory_equal(out, expected[t], 3);
    }
    dims[0] = 5; /* takes three bytes */
    enum nd_dtype dtype;
    struct nd_shape shape;
    assert_int_equal(nd_tensorproto_describe(&proto, "x.pb", &dtype, &shape, &err), ND_ERR_FORMAT);
}

/* A stranger's file may hold very many tensors: comparing the texts of each pair of them took a minute. */
static void very_many_tensors_are_added_in_seconds(void **state)
{
    (void)state;
    enum { N = 60000 };
    struct nd_imported imported = {0};
    const struct nd_shape shape = {.rank = 1, .dims = {1}};
    clock_t begun = clock();
    for (int i = 0; i < N; i++) {
        char name[120];
        void *data;
        snprintf(name, sizeof name, "a/long/path/that/all/names/of/a/model/begin/with/and/then/a/number/%d", i);
        expect_ok(add(&imported, name, ND_DTYPE_U8, &shape, ND_IMPORTED_ARRAY, &data), &err);
        expect_ok(nd_imported_fact(&imported, "names", name, "test", &err), &err);
        expect_ok(nd_imported_fact(&imported, "types", name, "test", &err), &err);
    }
    double took_s = (double)(clock() - begun) / CLOCKS_PER_SEC;
    assert_true(took_s < 10);
    assert_int_equal(imported.n_facts, 2 * N);
    assert_ptr_equal(nd_imported_find(&imported, ND_IMPORTED_OUTPUT,
                                      "a/long/path/that/all/names/of/a/model/begin/with/and/then/a/number/7"),
                     &imported.sides[ND_IMPORTED_OUTPUT].items[7]);
    assert_null(nd_imported_find(&imported, ND_IMPORTED_OUTPUT, "a"));
    print_message("# %d tensors: %.1f s\n", N, took_s);
    nd_imported_deinit(&imported);
}

/* ---- files that would take very long ---- */

static enum nd_status read_by(const char *format, const char *path, struct nd_imported *imported,
                              struct nd_error *error)
{
    const char *paths[] = {path};
    const struct nd_import_options options = {
        .struct_size = sizeof options, .format = format, .paths = paths, .n_paths = 1};
    return nd_import_reader_find(format)->read(&options, imported, error);
}

/* 20000 tensors of the same 1000 files: 20 million files to open, of no bytes. */
static void list_that_names_the_same_files_again_is_stopped(void **state)
{
    (void)state;
    struct nd_imported imported = {.base_limit_s = 0.05};
    char *path = in_folder("again.yaml"), *empty = in_folder("none.raw");
    FILE *list = fopen(path, "w"), *none = fopen(empty, "w");
    assert_true(list != NULL && none != NULL);
    fprintf(list, "tensors:\n  - {name: t, dtype: uint8, shape: [0], files: &all [none.raw");
    for (int i = 1; i < 1000; i++)
        fprintf(list, ", none.raw");
    fprintf(list, "]}\n");
    for (int i = 0; i < 9000;
         i++) /* with aliases for more than 10 million values it would not be read at all */
        fprintf(list, "  - {name: t%d, dtype: uint8, shape: [0], files: *all}\n", i);
    fclose(list);
    fclose(none);
    uint64_t begun_ns = nd_clock_ns();
    assert_int_equal(read_by("raw", path, &imported, &err), ND_ERR_IO);
    print_message("# %.1f s: %s\n", (double)(nd_clock_ns() - begun_ns) / 1e9, err.message);
    assert_int_equal(err.id, ND_E_FILE_TIME);
    nd_imported_deinit(&imported);
    free(path);
    free(empty);
}

static enum nd_status read_pipe(void *context, size_t worker, size_t task, struct nd_error *error)
{
    (void)worker;
    static const char *const formats[] = {"numpy", "raw", "onnx-pb", "aihub", "polygraphy"};
    struct nd_imported imported = {0};
    enum nd_status status = read_by(formats[task], context, &imported, error);
    print_message("# %s: %s\n", formats[task], error->message);
    bool is_refused = status == ND_ERR_IO && (error->id == ND_E_FILE_TIME || error->id == ND_E_FILE_READ);
    nd_imported_deinit(&imported);
    return is_refused ? ND_OK : nd_fail(error, ND_E_INTERNAL, formats[task], "%s reads a pipe", formats[task]);
}

static void pipe_that_nobody_writes_ends_in_every_format(void **state)
{
    (void)state;
    char *path = in_folder("pipe.npy");
    alarm(60);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_ok(nd_parallel_for(5, 5, read_pipe, path, &err), &err);
    alarm(0);
    free(path);
}

/* As the shell's <(...) gives one. */
static void pipe_with_a_slow_writer_is_read(void **state)
{
    (void)state;
    void *bytes = NULL;
    size_t n = 0;
    char *path = in_folder("slow");
    assert_int_equal(mkfifo(path, 0600), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_WRONLY);
        sleep(1);
        _exit(fd >= 0 && write(fd, "later", 5) == 5 ? 0 : 1);
    }
    expect_ok(nd_file_read(path, 100, &bytes, &n, &err), &err);
    assert_int_equal(n, 5);
    assert_memory_equal(bytes, "later", 5);
    free(bytes);
    free(path);
    waitpid(child, NULL, 0);
}

/* ---- datasets of AI Hub ---- */

/* n_samples of one tensor of n_values floats, a chunk each: zeros, or no two alike; all may be one dataset. */
struct hub {
    size_t n_samples, n_values;
    bool is_noise, is_shared;
};

static void put_number(hid_t group, const char *name, int64_t value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attr = H5Acreate2(group, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attr, H5T_NATIVE_INT64, &value) >= 0);
    H5Aclose(attr);
    H5Sclose(space);
}

static void write_hub(const char *path, const struct hub *hub)
{
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t data = H5Gcreate2(file, "data", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t group = H5Gcreate2(data, "0", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    hid_t attr = H5Acreate2(group, "name", type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attr, type, "x") >= 0);
    H5Aclose(attr);
    H5Tclose(type);
    H5Sclose(space);
    put_number(group, "order", 0);
    put_number(group, "batch_count", (int64_t)hub->n_samples);
    const hsize_t dims[1] = {hub->n_values};
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 1, dims);
    H5Pset_deflate(creation, hub->is_noise ? 1 : 9);
    float *values = calloc(hub->n_values, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < hub->n_samples; i++) {
        char name[32];
        snprintf(name, sizeof name, "batch_%zu", i);
        if (i > 0 && hub->is_shared) {
            H5Lcreate_hard(group, "batch_0", group, name, H5P_DEFAULT, H5P_DEFAULT);
            continue;
        }
        for (size_t k = 0; k < hub->n_values && hub->is_noise; k++)
            values[k] = (float)(k * 2654435761u % 1000003 + i);
        space = H5Screate_simple(1, dims, NULL);
        hid_t set = H5Dcreate2(group, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
        assert_true(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
        H5Dclose(set);
        H5Sclose(space);
    }
    free(values);
    H5Pclose(creation);
    H5Gclose(group);
    H5Gclose(data);
    assert_true(H5Fclose(file) >= 0);
}

static enum nd_status import_hub(const struct hub *hub)
{
    char *path = in_folder("hub.h5"), *output = in_folder("out.h5");
    write_hub(path, hub);
    const struct nd_import_options options = {.struct_size = sizeof options,
                                              .format = "aihub",
                                              .paths = (const char *const *)&path,
                                              .n_paths = 1,
                                              .output = output,
                                              .replace = true};
    struct nd_import_result result = {0};
    enum nd_status status = nd_import(&options, &result, &err);
    if (status == ND_OK)
        nd_import_result_deinit(&result);
    free(path);
    free(output);
    return status;
}

/* 1 MB stood for 64 GiB: every sample one dataset, and that far more than its file. */
static void a_small_dataset_does_not_take_much_memory(void **state)
{
    (void)state;
    enum { MILLION = 1 << 20 };
    struct rusage used;
    assert_int_equal(import_hub(&(struct hub){64, MILLION, true, true}), ND_ERR_FORMAT);
    assert_non_null(strstr(err.message, "shares its data with other samples"));
    assert_int_equal(import_hub(&(struct hub){64, 8 * MILLION, false, true}), ND_ERR_FORMAT);
    assert_int_equal(import_hub(&(struct hub){1, 128 * MILLION, false, false}), ND_ERR_FORMAT);
    assert_non_null(strstr(err.message, "is too small to hold the 536870912 bytes of '/data/0/batch_0'"));
    getrusage(RUSAGE_CHILDREN, &used);
    assert_true(used.ru_maxrss < 1 << 20);
}

/* The near misses: what belongs to its own samples, also where it deflates well. */
static void a_dataset_that_deflates_well_is_read(void **state)
{
    (void)state;
    enum { MILLION = 1 << 20 };
    expect_ok(import_hub(&(struct hub){4, MILLION, true, false}), &err);
    expect_ok(import_hub(&(struct hub){12, 4 * MILLION, false, false}), &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_tensor_is_found_by_each_of_its_names),
        cmocka_unit_test(channels_go_where_their_coordinates_say),
        cmocka_unit_test(samples_are_found_by_the_expected_shape),
        cmocka_unit_test(samples_must_come_in_order_and_alike),
        cmocka_unit_test(facts_are_summed_up_by_kind),
        cmocka_unit_test_setup_teardown(both_conventions_mean_the_same, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(short_forms_add_to_the_file, make_folder, remove_folder),
        cmocka_unit_test(four_bit_integers_are_unpacked_low_half_first),
        cmocka_unit_test(very_many_tensors_are_added_in_seconds),
        cmocka_unit_test_setup_teardown(list_that_names_the_same_files_again_is_stopped, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(pipe_that_nobody_writes_ends_in_every_format, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(pipe_with_a_slow_writer_is_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_small_dataset_does_not_take_much_memory, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_dataset_that_deflates_well_is_read, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
