#include "support/main.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/agent/runtime/ort.h"
#include "devices/agent/runtime/runtime.h"
#include "devices/runtimes/sdk.h"
#include "npudiff/devices/device.h"
#include "npudiff/model/model.h"

enum { N_QVALUES = 256 };

static struct nd_runtime_list runtimes;
static char *folder;

static int find_runtimes(void **state)
{
    (void)state;
    /* ONNX Runtime leaves a file in the temporary folder. */
    return nd_runtimes_list(&runtimes, NULL) == ND_OK && nd_dir_make_temporary(&folder, NULL) == ND_OK &&
                   setenv("TMPDIR", folder, 1) == 0
               ? 0
               : -1;
}

static int forget_runtimes(void **state)
{
    (void)state;
    nd_runtimes_deinit(&runtimes);
    nd_dir_remove(folder);
    free(folder);
    return 0;
}

static char *golden(const char *name)
{
    const char *root = getenv("GOLDEN");
    assert_non_null(root);
    char *path = nd_path_join(root, name);
    assert_non_null(path);
    return path;
}

static void expect_ok(enum nd_status status, const struct nd_error *err)
{
    if (status != ND_OK)
        print_message("# %s\n", err->message);
    assert_int_equal(status, ND_OK);
}

/* ---- the slot table ---- */

static const struct {
    int slot;
    const char *name;
} table[] = {
#define ORT_FUNCTION(slot, name, result, arguments) {slot, #name},
#include "devices/agent/runtime/ort_table.def"
#undef ORT_FUNCTION
};
enum { N_TABLE = sizeof table / sizeof table[0] };

/* The slot that the published list gives a function, and the API version that first had it. */
static void find_published(const char *list, const char *name, int *slot, int *since)
{
    int n_found = 0;
    for (const char *line = list; line != NULL && *line != '\0';
         line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
        int index, version;
        char function[128];
        if (sscanf(line, "%d %127s %d", &index, function, &version) == 3 && strcmp(function, name) == 0) {
            *slot = index;
            *since = version;
            n_found++;
        }
    }
    if (n_found != 1)
        fail_msg("the list has %d functions called '%s'", n_found, name);
}

static void slot_table_equals_the_published_list(void **state)
{
    (void)state;
    void *list = NULL;
    size_t n_bytes = 0;
    char *path = golden("oracle/runtime/ort_slots.txt");
    assert_int_equal(nd_file_read(path, 1 << 20, &list, &n_bytes, NULL), ND_OK);
    assert_true(N_TABLE > 40);
    for (size_t i = 0; i < N_TABLE; i++) {
        int slot = -1, since = 0;
        find_published(list, table[i].name, &slot, &since);
        if (slot != table[i].slot)
            fail_msg("'%s' is in slot %d, not %d", table[i].name, slot, table[i].slot);
        assert_in_range(since, 1, ND_ORT_API_VERSION);
        for (size_t k = 0; k < i; k++)
            assert_true(table[k].slot < table[i].slot); /* sorted, so none is there twice */
    }
    free(list);
    free(path);
}

static void error_codes_have_the_names_of_the_api(void **state)
{
    (void)state;
    assert_string_equal(nd_ort_error_name(0), "OK");
    assert_string_equal(nd_ort_error_name(3), "NO_SUCHFILE");
    assert_string_equal(nd_ort_error_name(7), "INVALID_PROTOBUF");
    assert_string_equal(nd_ort_error_name(10), "INVALID_GRAPH");
    assert_string_equal(nd_ort_error_name(14), "NOT_FOUND");
    assert_string_equal(nd_ort_error_name(15), "UNKNOWN");
    assert_string_equal(nd_ort_error_name(-1), "UNKNOWN");
}

static void optimisation_levels_have_the_values_of_the_api(void **state)
{
    (void)state;
    enum nd_optimisation level = ND_OPTIMISATION_ALL;
    assert_true(nd_optimisation_from_name("disable", &level) && (int)level == 0);
    assert_true(nd_optimisation_from_name("basic", &level) && (int)level == 1);
    assert_true(nd_optimisation_from_name("extended", &level) && (int)level == 2);
    assert_true(nd_optimisation_from_name("all", &level) && (int)level == 99);
    assert_false(nd_optimisation_from_name("ALL", &level));
    assert_false(nd_optimisation_from_name("", &level));
    assert_int_equal(level, ND_OPTIMISATION_ALL);
}

/* ---- real libraries ---- */

static const struct nd_runtime_info *installed(const char *id)
{
    for (size_t i = 0; i < runtimes.n; i++)
        if (strcmp(runtimes.items[i].id, id) == 0) {
            if (runtimes.items[i].missing != NULL)
                fail_msg("runtime '%s': %s", id, runtimes.items[i].missing);
            return &runtimes.items[i];
        }
    fail_msg("runtime '%s' is not in the list", id);
    return NULL;
}

static void runtimes_that_tests_need_are_installed(void **state)
{
    (void)state;
    assert_non_null(installed("qairt-2.51.0"));
    assert_non_null(installed("qairt-2.50.40"));
}

struct log_count {
    size_t n;
    int lowest;
};

static void count_log(void *context, int severity, const char *location, const char *message)
{
    struct log_count *log = context;
    assert_non_null(location);
    assert_non_null(message);
    log->n++;
    log->lowest = severity < log->lowest ? severity : log->lowest;
}

/* The leak checker's, where it is there: the first environment of ONNX Runtime 1.29 leaks 29 bytes of its own.
 */
extern void __lsan_disable(void) __attribute__((weak));
extern void __lsan_enable(void) __attribute__((weak));

static struct nd_runtime *load(const struct nd_runtime_info *info, struct log_count *log)
{
    struct nd_error err = {0};
    struct nd_runtime *runtime = NULL;
    const struct nd_runtime_options options = {
        .ort_library = info->ort_library, .log = count_log, .log_context = log, .log_severity = 1};
    if (__lsan_disable != NULL)
        __lsan_disable();
    enum nd_status status = nd_runtime_create(&options, &runtime, &err);
    if (__lsan_enable != NULL)
        __lsan_enable();
    expect_ok(status, &err);
    return runtime;
}

static void check_versions(const struct nd_runtime *runtime, const struct nd_runtime_info *info)
{
    char *path = nd_path_join(info->folder, "runtime.json");
    json_t *manifest = json_load_file(path, 0, NULL);
    assert_non_null(manifest);
    const char *version = json_string_value(json_object_get(manifest, "onnxruntime"));
    assert_non_null(version);
    assert_string_equal(nd_runtime_version(runtime), version);
    assert_string_equal(info->ort_version, version);
    assert_true(strlen(nd_runtime_build_info(runtime)) > 0);
    json_decref(manifest);
    free(path);
}

static void check_errors(struct nd_runtime *runtime)
{
    struct nd_error err = {0};
    struct nd_runtime_session *session = NULL;
    const struct nd_session_options missing = {.model_path = "/does/not/exist.onnx", .n_threads = 1};
    assert_int_equal(nd_session_create(runtime, &missing, &session, &err), ND_ERR_DEVICE);
    assert_int_equal(err.id, ND_E_RUNTIME_CALL);
    assert_non_null(strstr(err.message, "creating the session: NO_SUCHFILE: "));
    assert_non_null(strstr(err.message, "/does/not/exist.onnx"));
    assert_null(session);
    char *text = golden("models/README.md");
    const struct nd_session_options no_model = {.model_path = text, .n_threads = 1};
    assert_int_equal(nd_session_create(runtime, &no_model, &session, &err), ND_ERR_DEVICE);
    assert_non_null(strstr(err.message, "INVALID_PROTOBUF"));
    free(text);
}

/* QuantizeLinear(Mul(DequantizeLinear(a), DequantizeLinear(b))) as ONNX defines it, in float, ties to even. */
static uint8_t expected_product(const struct nd_model *model, uint8_t a, uint8_t b)
{
    const struct nd_quant *qa = nd_model_input(model, 0)->quant, *qb = nd_model_input(model, 1)->quant;
    const struct nd_quant *qy = nd_model_output(model, 0)->quant;
    float x = (float)(a - qa->zero_point[0]) * qa->scale[0];
    float y = (float)(b - qb->zero_point[0]) * qb->scale[0];
    float code = rintf(x * y / qy->scale[0]) + (float)qy->zero_point[0];
    return (uint8_t)(code < 0 ? 0 : code > 255 ? 255 : code);
}

static void check_run(struct nd_runtime_session *session, const struct nd_model *model, uint32_t step)
{
    struct nd_error err = {0};
    uint8_t a[N_QVALUES], b[N_QVALUES];
    struct nd_output_view view = {0};
    size_t n_saturated = 0;
    for (uint32_t i = 0; i < N_QVALUES; i++) {
        a[i] = (uint8_t)(i * step);
        b[i] = (uint8_t)(i * step * 31 + step * 7);
    }
    expect_ok(nd_session_run(session, (const void *const[]){a, b}, &view, &err), &err);
    assert_int_equal(view.dtype, ND_DTYPE_U8);
    assert_true(nd_shape_equal(&view.shape, &(struct nd_shape){.rank = 2, .dims = {1, N_QVALUES}}));
    assert_int_equal(view.size_bytes, N_QVALUES);
    for (size_t i = 0; i < N_QVALUES; i++) {
        uint8_t code = ((const uint8_t *)view.data)[i];
        assert_int_equal(code, expected_product(model, a[i], b[i]));
        n_saturated += code == 0 || code == 255;
    }
    assert_true(step == 0 || n_saturated < N_QVALUES / 2); /* the test is one of arithmetic, not of clipping */
}

static void check_io(const struct nd_runtime_session *session)
{
    const struct nd_shape shape = {.rank = 2, .dims = {1, N_QVALUES}};
    const struct nd_session_ends ends = nd_session_ends(session);
    assert_int_equal(ends.n_inputs, 2);
    assert_int_equal(ends.n_outputs, 1);
    for (size_t i = 0; i < 2; i++) {
        const struct nd_session_io *io = &ends.inputs[i];
        assert_string_equal(io->name, i == 0 ? "a" : "b");
        assert_int_equal(io->dtype, ND_DTYPE_U8);
        assert_true(nd_shape_equal(&io->shape, &shape));
    }
    assert_string_equal(ends.outputs[0].name, "product");
    assert_int_equal(ends.outputs[0].shape.rank, -1);
}

/* Without optimisation the session has the nodes of the model, each on the CPU. */
static void check_placement(const struct nd_runtime_session *session, const struct nd_model *model)
{
    struct nd_error err = {0};
    struct nd_placement *nodes = NULL;
    size_t n = 0;
    expect_ok(nd_session_placement(session, &nodes, &n, &err), &err);
    assert_int_equal(n, nd_model_n_nodes(model));
    for (size_t m = 0; m < n; m++) {
        const struct nd_model_node *wanted = nd_model_node(model, m);
        size_t n_found = 0;
        for (size_t i = 0; i < n; i++)
            if (strcmp(nodes[i].name, wanted->name) == 0) {
                assert_string_equal(nodes[i].op_type, wanted->op_type);
                assert_string_equal(nodes[i].domain, wanted->domain);
                n_found++;
            }
        assert_int_equal(n_found, 1);
        assert_string_equal(nodes[m].provider, "CPUExecutionProvider");
    }
    free(nodes);
}

static void check_profile(struct nd_runtime_session *session)
{
    struct nd_error err = {0};
    char *path = NULL;
    expect_ok(nd_session_end_profile(session, &path, &err), &err);
    assert_int_equal(strncmp(path, folder, strlen(folder)), 0);
    json_t *profile = json_load_file(path, 0, NULL);
    assert_true(json_is_array(profile));
    size_t n_kernels = 0;
    for (size_t i = 0; i < json_array_size(profile); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(profile, i), "name"));
        n_kernels += name != NULL && strstr(name, "_kernel_time") != NULL;
    }
    assert_true(n_kernels > 0);
    json_decref(profile);
    free(path);
}

static void check_session(struct nd_runtime *runtime)
{
    struct nd_error err = {0};
    struct nd_runtime_session *session = NULL;
    struct nd_model *model = NULL;
    char *path = golden("models/mul.u8.onnx"), *prefix = nd_path_join(folder, "profile");
    expect_ok(nd_model_load(path, &model, &err), &err);
    const struct nd_option_pair config = {"session.disable_prepacking", "1"};
    const struct nd_session_options options = {.model_path = path,
                                               .optimisation = ND_OPTIMISATION_DISABLE,
                                               .n_threads = 1,
                                               .config = &config,
                                               .n_config = 1,
                                               .profile_prefix = prefix};
    expect_ok(nd_session_create(runtime, &options, &session, &err), &err);
    check_io(session);
    check_placement(session, model);
    for (uint32_t step = 0; step < 4; step++)
        check_run(session, model, step);
    check_profile(session);
    nd_session_destroy(&session);
    assert_null(session);
    nd_session_destroy(&session);
    nd_model_destroy(&model);
    free(path);
    free(prefix);
}

struct search {
    const char *path;
    char build_id[256];
    size_t n_found;
    size_t n;
};

static void look_at_library(void *context, const char *path, const char *build_id)
{
    struct search *search = context;
    search->n++;
    if (strcmp(path, search->path) == 0) {
        snprintf(search->build_id, sizeof search->build_id, "%s", build_id);
        search->n_found++;
    }
}

static void check_libraries(const struct nd_runtime_info *info)
{
    struct search search = {.path = info->ort_library};
    nd_runtime_visit_libraries(look_at_library, &search);
    assert_true(search.n > 3);
    assert_int_equal(search.n_found, 1);
    assert_true(strlen(search.build_id) >= 16);
    assert_int_equal(strspn(search.build_id, "0123456789abcdef"), strlen(search.build_id));
}

static void check_runtime(const struct nd_runtime_info *info)
{
    struct log_count log = {.lowest = 99};
    struct nd_runtime *runtime = load(info, &log);
    check_versions(runtime, info);
    check_errors(runtime);
    check_session(runtime);
    check_libraries(info);
    assert_true(log.n > 0); /* a session tells what it does at severity "info" */
    assert_int_equal(log.lowest, 1);
    nd_runtime_destroy(&runtime);
    assert_null(runtime);
}

static void every_installed_runtime_does_what_the_table_says(void **state)
{
    (void)state;
    size_t n_checked = 0;
    for (size_t i = 0; i < runtimes.n; i++) {
        if (runtimes.items[i].missing != NULL || strcmp(runtimes.items[i].abi, nd_abi_here()) != 0)
            continue; /* or for other machines, whose libraries do not load here */
        check_runtime(&runtimes.items[i]);
        n_checked++;
    }
    assert_true(n_checked >= 2);
}

static void input_of_the_wrong_shape_is_refused_by_the_run(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct log_count log = {0};
    struct nd_runtime_session *session = NULL;
    struct nd_runtime *runtime = load(installed("qairt-2.51.0"), &log);
    char *path = golden("models/mul.u8.onnx");
    const struct nd_session_options options = {.model_path = path, .n_threads = 1};
    expect_ok(nd_session_create(runtime, &options, &session, &err), &err);
    static const uint8_t qvalues[N_QVALUES];
    struct nd_output_view view;
    nd_session_ends(session).inputs[0].shape = (struct nd_shape){.rank = 2, .dims = {1, N_QVALUES / 2}};
    assert_int_equal(nd_session_run(session, (const void *const[]){qvalues, qvalues}, &view, &err),
                     ND_ERR_DEVICE);
    assert_non_null(strstr(err.message, "running the model: INVALID_ARGUMENT: "));
    nd_session_ends(session).inputs[0].shape = (struct nd_shape){.rank = 2, .dims = {1, N_QVALUES}};
    expect_ok(nd_session_run(session, (const void *const[]){qvalues, qvalues}, &view, &err), &err);
    nd_session_destroy(&session);
    nd_runtime_destroy(&runtime);
    free(path);
}

static void library_that_is_no_runtime_is_refused(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_runtime *runtime = NULL;
    struct nd_runtime_options options = {.ort_library = "/does/not/exist.so"};
    assert_int_equal(nd_runtime_create(&options, &runtime, &err), ND_ERR_DEVICE);
    assert_int_equal(err.id, ND_E_RUNTIME_LOAD);
    assert_non_null(strstr(err.message, "/does/not/exist.so"));
    options.ort_library = "libm.so.6";
    assert_int_equal(nd_runtime_create(&options, &runtime, &err), ND_ERR_DEVICE);
    assert_int_equal(err.id, ND_E_RUNTIME_API);
    assert_string_equal(err.message, "'libm.so.6' is not ONNX Runtime: it has no OrtGetApiBase");
    options.ort_library = installed("qairt-2.51.0")->ort_library;
    options.provider_name = "QNNExecutionProvider";
    options.provider_library = "/does/not/exist.so";
    assert_int_equal(nd_runtime_create(&options, &runtime, &err), ND_ERR_DEVICE);
    assert_int_equal(err.id, ND_E_RUNTIME_CALL);
    assert_non_null(strstr(err.message, "registering the provider: "));
    assert_null(runtime);
}

static void provider_offers_the_device_it_is_named_after(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_runtime *runtime = NULL;
    const struct nd_runtime_info *info = installed("qairt-2.50.40");
    struct nd_runtime_options options = {.ort_library = info->ort_library,
                                         .provider_name = "QNNExecutionProvider",
                                         .provider_library = info->provider_library,
                                         .log_severity = 4};
    expect_ok(nd_runtime_create(&options, &runtime, &err), &err);
    nd_runtime_destroy(&runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slot_table_equals_the_published_list),
        cmocka_unit_test(error_codes_have_the_names_of_the_api),
        cmocka_unit_test(optimisation_levels_have_the_values_of_the_api),
        cmocka_unit_test(runtimes_that_tests_need_are_installed),
        cmocka_unit_test(every_installed_runtime_does_what_the_table_says),
        cmocka_unit_test(input_of_the_wrong_shape_is_refused_by_the_run),
        cmocka_unit_test(library_that_is_no_runtime_is_refused),
        cmocka_unit_test(provider_offers_the_device_it_is_named_after),
    };
    return cmocka_run_group_tests(tests, find_runtimes, forget_runtimes);
}
