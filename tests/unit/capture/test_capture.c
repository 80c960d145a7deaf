#include "support/main.h"

#include <time.h>

#include <hdf5.h>

#include "capture/read/schema.h"
#include "support/capture_fixture.h"
#include "support/scratch.h"

static const struct fix_options deflated = {.level = 6, .with_big = true};
static const struct fix_options plain = {.level = 0, .with_big = true};

static struct nd_capture *open_ok(const char *path)
{
    struct nd_error err;
    struct nd_capture *capture = NULL;
    fix_ok(nd_capture_open(path, &capture, &err), &err);
    return capture;
}

static void check_tables(const struct nd_capture *capture)
{
    assert_int_equal(nd_capture_state(capture), ND_CAPTURE_PARTIAL);
    assert_string_equal(nd_capture_string(capture, "device", "uri"), "htp-sim:sm8650");
    assert_string_equal(nd_capture_string(capture, "device", "chipset"), "");
    assert_string_equal(nd_capture_string(capture, "", "note"), "\xc3\xa4 root attribute");
    assert_string_equal(nd_capture_string(capture, "", "npudiff_version"), nd_version());
    assert_null(nd_capture_string(capture, "runtime", "threads"));
    assert_null(nd_capture_string(capture, "host", "name"));
    size_t n_numbers = 0;
    for (size_t i = 0; i < nd_capture_n_attrs(capture); i++) {
        const struct nd_attr *attr = nd_capture_attr(capture, i);
        if (strcmp(attr->key, "threads") == 0) {
            assert_int_equal(attr->type, ND_ATTR_I64);
            assert_int_equal(attr->i64, -4);
            n_numbers++;
        } else if (strcmp(attr->key, "odd/key%") == 0) {
            assert_int_equal(attr->type, ND_ATTR_F64);
            assert_f64_bits(attr->f64, 0.1);
            n_numbers++;
        }
    }
    assert_int_equal(n_numbers, 2);
    assert_int_equal(nd_capture_n_tensors(capture), FIX_TENSORS);
    for (size_t i = 0; i < FIX_TENSORS; i++) {
        const struct nd_tensor *tensor = nd_capture_tensor(capture, i), *want = &fix_tensors[i];
        assert_string_equal(tensor->name, want->name);
        assert_string_equal(tensor->onnx_name, want->onnx_name);
        assert_string_equal(tensor->op_types, want->op_types);
        assert_string_equal(tensor->node, want->node);
        assert_string_equal(nd_capture_tensor_provider(capture, i), fix_providers[i]);
        assert_int_equal(tensor->dtype, want->dtype);
        assert_true(nd_shape_equal(&tensor->shape, &want->shape));
        assert_int_equal(tensor->is_model_input, want->is_model_input);
        assert_int_equal(tensor->is_model_output, want->is_model_output);
        assert_int_equal(tensor->quant.n, want->quant.n);
        assert_int_equal(tensor->quant.axis, want->quant.axis);
        for (size_t q = 0; q < want->quant.n; q++) {
            assert_f32_bits(tensor->quant.scale[q], want->quant.scale[q]);
            assert_int_equal(tensor->quant.zero_point[q], want->quant.zero_point[q]);
        }
        assert_int_equal(nd_capture_find_tensor(capture, want->name), i);
    }
    assert_true(nd_capture_find_tensor(capture, "a/b") == SIZE_MAX);
    assert_int_equal(nd_capture_n_nodes(capture), 2);
    assert_string_equal(nd_capture_node(capture, 1)->domain, "com.microsoft");
    assert_string_equal(nd_capture_node(capture, 0)->name, "conv/1");
    assert_int_equal(nd_capture_n_logs(capture), 2);
    assert_string_equal(nd_capture_log_name(capture, 1), "qnn/htp.log");
    assert_string_equal(nd_capture_log_text(capture, 1), fix_log);
    assert_int_equal(nd_capture_n_findings(capture), 2);
    const struct nd_capture_finding *finding = nd_capture_finding(capture, 0);
    assert_string_equal(finding->kind, "preparation");
    assert_string_equal(finding->severity, "failure");
    assert_string_equal(finding->log, "qnn/htp.log");
    assert_string_equal(finding->op, "q::linearclip");
    assert_string_equal(finding->node, "conv/1");
    assert_string_equal(finding->symbol, "QNN_COMMON_ERROR_MEM_ALLOC");
    assert_string_equal(finding->text, "could not");
    assert_int_equal(finding->line, 2);
    assert_int_equal(finding->code, 1002);
    assert_string_equal(nd_capture_finding(capture, 1)->op, "");
    assert_string_equal(nd_capture_log_text(capture, 0), "");
}

static void check_probes(const struct nd_capture *capture)
{
    assert_int_equal(nd_capture_n_probes(capture), FIX_PROBES);
    for (size_t p = 0; p < FIX_PROBES; p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(capture, p), *want = &fix_probes[p];
        assert_string_equal(probe->name, want->name);
        assert_string_equal(probe->source, want->source);
        assert_int_equal(nd_capture_find_probe(capture, want->name), p);
        assert_int_equal(probe->n_samples, want->n_samples);
        assert_int_equal(probe->n_samples_expected, want->n_samples_expected);
        assert_int_equal(probe->n_repeats, want->n_repeats);
        assert_int_equal(probe->n_inputs, FIX_INPUTS);
        assert_int_equal(probe->labels != NULL, want->labels != NULL);
        for (size_t i = 0; want->labels != NULL && i < want->n_samples_expected; i++)
            assert_int_equal(probe->labels[i], want->labels[i]);
        for (size_t i = 0; i < want->n_samples * want->n_repeats; i++) {
            if (want->latency_us != NULL)
                assert_f64_bits(probe->latency_us[i], want->latency_us[i]);
            else
                assert_true(probe->latency_us[i] != probe->latency_us[i]);
        }
        for (size_t i = 0; i < FIX_INPUTS; i++) {
            assert_string_equal(probe->inputs[i].name, fix_inputs[i].name);
            assert_int_equal(probe->inputs[i].dtype, fix_inputs[i].dtype);
            assert_true(nd_shape_equal(&probe->inputs[i].shape, &fix_inputs[i].shape));
        }
    }
    assert_true(nd_capture_find_probe(capture, "p") == SIZE_MAX);
}

/* Every range of samples of one tensor, against the bytes that were made for it. */
static void check_outputs(const struct nd_capture *capture, size_t p, size_t e)
{
    struct nd_error err;
    size_t n = fix_probes[p].n_samples, n_bytes = fix_sample_bytes(&fix_tensors[e]);
    unsigned char *want = malloc(n * n_bytes + 1), *got = malloc(n * n_bytes + 1);
    assert_true(want != NULL && got != NULL);
    for (size_t s = 0; s < n; s++)
        fix_output(want + s * n_bytes, p, e, s, 0);
    for (size_t first = 0; first <= n; first++)
        for (size_t count = 0; count <= n - first; count++) {
            memset(got, 0xEE, n * n_bytes + 1);
            fix_ok(nd_capture_read_outputs(&(struct nd_probe_values){capture, p, e}, first, count, got, &err),
                   &err);
            assert_memory_equal(got, want + first * n_bytes, count * n_bytes);
            assert_int_equal(got[count * n_bytes], 0xEE);
        }
    assert_int_equal(nd_capture_read_outputs(&(struct nd_probe_values){capture, p, e}, 0, n + 1, got, &err),
                     ND_ERR_NOT_FOUND);
    assert_int_equal(nd_capture_read_outputs(&(struct nd_probe_values){capture, p, e}, SIZE_MAX, 2, got, &err),
                     ND_ERR_NOT_FOUND);
    for (size_t s = 0; s < n; s++)
        for (size_t r = 0; r < fix_probes[p].n_repeats; r++) {
            fix_output(want, p, e, s, r);
            fix_ok(nd_capture_read_repeat(&(struct nd_probe_values){capture, p, e}, s, r, got, &err), &err);
            assert_memory_equal(got, want, n_bytes);
            assert_true(
                nd_digest_equal(nd_capture_digest(capture, p, e, s, r), nd_digest_bytes(want, n_bytes)));
        }
    assert_int_equal(nd_capture_read_repeat(&(struct nd_probe_values){capture, p, e}, n, 0, got, &err),
                     ND_ERR_NOT_FOUND);
    assert_int_equal(nd_capture_read_repeat(&(struct nd_probe_values){capture, p, e}, 0, 3, got, &err),
                     ND_ERR_NOT_FOUND);
    free(want);
    free(got);
}

static void check_inputs(const struct nd_capture *capture, size_t p)
{
    struct nd_error err;
    unsigned char want[64], got[64];
    for (size_t i = 0; i < FIX_INPUTS; i++)
        for (size_t s = 0; s < fix_probes[p].n_samples_expected; s++) {
            size_t n_bytes = 0;
            fix_ok(nd_shape_size_bytes(&fix_inputs[i].shape, fix_inputs[i].dtype, &n_bytes, &err), &err);
            fix_fill(want, n_bytes, p, 100 + i, s, 0);
            fix_ok(nd_capture_read_inputs(&(struct nd_probe_values){capture, p, i}, s, 1, got, &err), &err);
            assert_memory_equal(got, want, n_bytes);
            assert_true(
                nd_digest_equal(nd_capture_input_digest(capture, p, i, s), nd_digest_bytes(want, n_bytes)));
        }
    assert_int_equal(nd_capture_read_inputs(&(struct nd_probe_values){capture, p, 0}, 0, 7, got, &err),
                     ND_ERR_NOT_FOUND);
}

static void check_round_trip(const struct fix_options *options)
{
    struct nd_error err;
    char *path = in_folder("round.h5");
    fix_write(path, options);
    struct nd_capture *capture = open_ok(path);
    assert_string_equal(nd_capture_path(capture), path);
    check_tables(capture);
    check_probes(capture);
    for (size_t p = 0; p < FIX_PROBES; p++) {
        for (size_t e = 0; e < FIX_TENSORS; e++) {
            assert_true(nd_capture_has_outputs(capture, p, e));
            check_outputs(capture, p, e);
        }
        check_inputs(capture, p);
    }
    struct nd_capture_verification found = {.struct_size = sizeof found};
    fix_ok(nd_capture_verify(capture, &found, &err), &err);
    assert_true(found.content_matches);
    assert_int_equal(found.n_wrong, 0);
    assert_string_equal(found.first_wrong, "");
    /* inputs, outputs, and two repeats of each tensor that has elements */
    assert_int_equal(found.n_tensors, FIX_INPUTS * 8 + FIX_TENSORS * 7 + (FIX_TENSORS - 1) * 2);
    nd_capture_close(&capture);
    assert_null(capture);
    free(path);
}

static void capture_deflated_reads_back_bit_exactly(void **state)
{
    (void)state;
    check_round_trip(&deflated);
}

static void capture_plain_reads_back_bit_exactly(void **state)
{
    (void)state;
    check_round_trip(&plain);
}

static void capture_of_digests_only_has_no_outputs(void **state)
{
    (void)state;
    struct nd_error err;
    unsigned char buf[64];
    char *path = in_folder("digests.h5");
    fix_write(path, &(struct fix_options){.level = 6, .digests_only = true});
    struct nd_capture *capture = open_ok(path);
    assert_false(nd_capture_has_outputs(capture, 0, 0));
    assert_int_equal(nd_capture_read_outputs(&(struct nd_probe_values){capture, 0, 0}, 0, 1, buf, &err),
                     ND_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "a/b%c"));
    assert_int_equal(nd_capture_read_repeat(&(struct nd_probe_values){capture, 1, 0}, 1, 2, buf, &err),
                     ND_ERR_NOT_FOUND);
    fix_output(buf, 1, 0, 1, 2);
    assert_true(nd_digest_equal(nd_capture_digest(capture, 1, 0, 1, 2), nd_digest_bytes(buf, 12)));
    nd_capture_close(&capture);
    free(path);
}

/* What libhdf5 itself reads, filters and all, is what was written: the format is HDF5's and not only ours. */
static void check_by_libhdf5(hid_t file, size_t p, size_t e)
{
    char *path = nd_name_probe_path(fix_probes[p].name, "outputs", fix_tensors[e].name);
    hid_t dataset = H5Dopen2(file, path, H5P_DEFAULT);
    assert_true(dataset >= 0);
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    size_t n = fix_probes[p].n_samples, n_bytes = fix_sample_bytes(&fix_tensors[e]);
    assert_int_equal(H5Sget_simple_extent_ndims(space), fix_tensors[e].shape.rank + 1);
    assert_int_equal(H5Tget_size(type), nd_dtype_size_bytes(fix_tensors[e].dtype));
    /* Types that HDF5 lacks: integers, and an attribute says what they are. */
    static const char lacking[] = " bool bfloat16 uint4 int4 float8_e4m3fn float8_e5m2 ";
    enum nd_dtype dtype = fix_tensors[e].dtype;
    char name[32] = "", spaced[40];
    if (H5Aexists(dataset, "dtype") > 0) {
        hid_t attr = H5Aopen(dataset, "dtype", H5P_DEFAULT), text = H5Aget_type(attr);
        assert_true(H5Tget_size(text) < sizeof name && H5Aread(attr, text, name) >= 0);
        assert_string_equal(name, nd_dtype_name(dtype));
        H5Tclose(text);
        H5Aclose(attr);
    }
    snprintf(spaced, sizeof spaced, " %s ", nd_dtype_name(dtype));
    bool is_told = strstr(lacking, spaced) != NULL;
    assert_int_equal(name[0] != '\0', is_told);
    assert_int_equal(H5Tget_class(type), nd_dtype_is_float(dtype) && !is_told ? H5T_FLOAT : H5T_INTEGER);
    if (H5Tget_class(type) == H5T_INTEGER)
        assert_int_equal(H5Tget_sign(type) == H5T_SGN_2, nd_dtype_is_signed_integer(dtype));
    unsigned char *got = malloc(n * n_bytes + 1), *want = malloc(n * n_bytes + 1);
    assert_true(got != NULL && want != NULL);
    for (size_t s = 0; s < n; s++)
        fix_output(want + s * n_bytes, p, e, s, 0);
    assert_true(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
    assert_memory_equal(got, want, n * n_bytes);
    if (fix_tensors[e].quant.n > 0) {
        float scales[8];
        hid_t attr = H5Aopen(dataset, "scale", H5P_DEFAULT);
        assert_true(attr >= 0 && H5Aread(attr, H5T_NATIVE_FLOAT, scales) >= 0);
        assert_memory_equal(scales, fix_tensors[e].quant.scale, fix_tensors[e].quant.n * sizeof(float));
        H5Aclose(attr);
    }
    free(got);
    free(want);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(dataset);
    free(path);
}

static void capture_is_what_libhdf5_reads(void **state)
{
    (void)state;
    for (int level = 0; level <= 9; level += 9) {
        char *path = in_folder("library.h5");
        fix_write(path, &(struct fix_options){.level = level, .with_big = true});
        hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
        assert_true(file >= 0);
        for (size_t p = 0; p < FIX_PROBES; p++)
            for (size_t e = 0; e < FIX_TENSORS; e++)
                check_by_libhdf5(file, p, e);
        H5Fclose(file);
        free(path);
    }
}

/* A capture of one tensor in one probe, "p", of one chunk. */
static void write_one_tensor(const char *path, const struct nd_tensor *tensor, size_t n_samples,
                             const void *data)
{
    struct nd_error err;
    struct nd_capture_probe probe = {
        .name = "p", .source = "s", .n_samples = n_samples, .n_samples_expected = n_samples, .n_repeats = 1};
    struct nd_digest digests[4];
    struct nd_capture_writer *writer = NULL;
    const char *provider = "";
    size_t n_bytes = fix_sample_bytes(tensor);
    assert_true(n_samples <= 4);
    for (size_t i = 0; i < n_samples; i++)
        digests[i] = nd_digest_bytes((const char *)data + i * n_bytes, n_bytes);
    fix_ok(nd_capture_writer_create(path, true, &writer, &err), &err);
    fix_ok(nd_capture_writer_tensors(writer, tensor, &provider, 1, &err), &err);
    fix_ok(nd_capture_writer_probe(writer, &probe, &err), &err);
    fix_ok(nd_capture_writer_digests(writer, &probe, tensor, digests, &err), &err);
    fix_ok(nd_capture_writer_outputs(writer, &(struct nd_capture_output){&probe, tensor, "", NULL}, data, &err),
           &err);
    fix_ok(nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, &err), &err);
    nd_capture_writer_destroy(&writer);
}

static void half_is_stored_as_ieee_half(void **state)
{
    (void)state;
    char *path = in_folder("half.h5");
    struct nd_tensor tensor = {"x", "x", "X", "n", ND_DTYPE_F16, {1, {6}}, {0, -1, NULL, NULL}, false, false};
    static const uint16_t bits[6] = {0x3c00, 0xc000, 0x3555, 0x0001, 0x7c00, 0x7bff};
    static const uint32_t floats[6] = {0x3f800000, 0xc0000000, 0x3eaaa000, 0x33800000, 0x7f800000, 0x477fe000};
    write_one_tensor(path, &tensor, 1, bits);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t stored = H5Dopen2(file, "/probes/p/outputs/x", H5P_DEFAULT);
    float read[6];
    assert_true(H5Dread(stored, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, read) >= 0);
    assert_memory_equal(read, floats, sizeof floats);
    H5Dclose(stored);
    H5Fclose(file);
    free(path);
}

/* The type is told by an attribute, and bytes that are no value of it are damage even where the digest fits. */
static void nibble_outside_its_type_is_counted_as_wrong(void **state)
{
    (void)state;
    static const struct {
        enum nd_dtype dtype;
        unsigned char bytes[2][4];
        bool is_right[2];
    } cases[] = {
        {ND_DTYPE_U4, {{0, 15, 7, 8}, {0, 16, 7, 8}}, {true, false}},
        {ND_DTYPE_U4, {{0, 15, 7, 255}, {0, 0, 0, 0}}, {false, true}},
        {ND_DTYPE_I4, {{0xf8, 7, 0, 0xff}, {8, 0, 0, 0}}, {true, false}},
        {ND_DTYPE_I4, {{0, 0, 0, 0xf7}, {0, 0, 0, 15}}, {false, false}},
        {ND_DTYPE_F8E4M3FN, {{0xf8, 0x80, 0x7f, 0xff}, {16, 15, 0, 99}}, {true, true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nd_error err;
        char *path = in_folder("nibble.h5");
        struct nd_tensor tensor = {"x",   "x",  "X", "n", cases[i].dtype, {1, {4}}, {0, -1, NULL, NULL},
                                   false, false};
        write_one_tensor(path, &tensor, 2, cases[i].bytes);
        struct nd_capture *capture = open_ok(path);
        struct nd_capture_verification found = {.struct_size = sizeof found};
        assert_int_equal(nd_capture_tensor(capture, 0)->dtype, cases[i].dtype);
        fix_ok(nd_capture_verify(capture, &found, &err), &err);
        assert_true(found.content_matches);
        assert_int_equal(found.n_wrong, !cases[i].is_right[0] + !cases[i].is_right[1]);
        unsigned char read[8];
        fix_ok(nd_capture_read_outputs(&(struct nd_probe_values){capture, 0, 0}, 0, 2, read, &err), &err);
        assert_memory_equal(read, cases[i].bytes, 8);
        nd_capture_close(&capture);
        free(path);
    }
}

static void capture_written_twice_is_the_same_file(void **state)
{
    (void)state;
    for (int level = 0; level <= 6; level += 6) {
        char *a = in_folder("a.h5"), *b = in_folder("another name.h5");
        struct fix_options options = {.level = level, .with_big = true};
        fix_write(a, &options);
        /* HDF5 keeps times in seconds: the second file must be made in another one. */
        nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100000000}, NULL);
        fix_write(b, &options);
        void *bytes_a = NULL, *bytes_b = NULL;
        size_t n_a, n_b;
        assert_int_equal(nd_file_read(a, 1 << 30, &bytes_a, &n_a, NULL), ND_OK);
        assert_int_equal(nd_file_read(b, 1 << 30, &bytes_b, &n_b, NULL), ND_OK);
        assert_int_equal(n_a, n_b);
        assert_memory_equal(bytes_a, bytes_b, n_a);
        free(bytes_a);
        free(bytes_b);
        free(a);
        free(b);
    }
}

static void content_digest_does_not_depend_on_storage_but_on_values(void **state)
{
    (void)state;
    char digests[3][33];
    char *path = in_folder("content.h5");
    for (int i = 0; i < 3; i++) {
        fix_latency[3] = i == 2 ? 0.5 : 0.0;
        fix_write(path, i == 0 ? &deflated : &plain);
        struct nd_capture *capture = open_ok(path);
        snprintf(digests[i], sizeof digests[i], "%s", nd_capture_string(capture, "", "content_digest"));
        assert_int_equal(strlen(digests[i]), 32);
        nd_capture_close(&capture);
    }
    fix_latency[3] = 0.0;
    assert_string_equal(digests[0], digests[1]);
    assert_string_not_equal(digests[1], digests[2]);
    free(path);
}

static void capture_without_anything_is_read(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_capture_writer *writer = NULL;
    char *path = in_folder("failed.h5");
    fix_ok(nd_capture_writer_create(path, false, &writer, &err), &err);
    struct nd_tensor unknown = {"e",   "e",  "X", "n", ND_DTYPE_NONE, {-1, {0}}, {0, -1, NULL, NULL},
                                false, false};
    const char *provider = "";
    fix_ok(nd_capture_writer_tensors(writer, &unknown, &provider, 1, &err), &err);
    struct nd_capture_probe probe = {.name = "p", .source = "s", .n_samples_expected = 4, .n_repeats = 2};
    fix_ok(nd_capture_writer_probe(writer, &probe, &err), &err);
    struct nd_attr attr = {.group = "failure", .key = "stage", .type = ND_ATTR_STRING, .string = "session"};
    fix_ok(nd_capture_writer_attr(writer, &attr, &err), &err);
    fix_ok(nd_capture_writer_commit(writer, ND_CAPTURE_FAILED, &err), &err);
    nd_capture_writer_destroy(&writer);
    struct nd_capture *capture = open_ok(path);
    assert_int_equal(nd_capture_state(capture), ND_CAPTURE_FAILED);
    assert_string_equal(nd_capture_string(capture, "failure", "stage"), "session");
    assert_int_equal(nd_capture_tensor(capture, 0)->dtype, ND_DTYPE_NONE);
    assert_int_equal(nd_capture_tensor(capture, 0)->shape.rank, -1);
    assert_int_equal(nd_capture_probe(capture, 0)->n_samples_expected, 4);
    struct nd_capture_verification found = {.struct_size = sizeof found};
    fix_ok(nd_capture_verify(capture, &found, &err), &err);
    assert_true(found.content_matches && found.n_tensors == 0);
    nd_capture_close(&capture);
    free(path);
}

/* One caller knows the counts alone, one eight bytes more than this version; neither is written beyond its end.
 */
static void a_verification_is_filled_as_far_as_its_caller_knows_it(void **state)
{
    (void)state;
    struct nd_error err;
    char *path = in_folder("version.h5");
    fix_write(path, &(struct fix_options){0});
    struct nd_capture *capture = open_ok(path);
    struct nd_capture_verification ours = {.struct_size = sizeof ours};
    fix_ok(nd_capture_verify(capture, &ours, &err), &err);
    const size_t sizes[] = {offsetof(struct nd_capture_verification, first_wrong), sizeof ours,
                            sizeof ours + 8};
    for (size_t i = 0; i < 3; i++) {
        union {
            struct nd_capture_verification found;
            unsigned char bytes[sizeof ours + 16];
        } given;
        memset(given.bytes, 0, sizes[i]);
        memset(given.bytes + sizes[i], 0xa5, sizeof given.bytes - sizes[i]);
        given.found.struct_size = sizes[i];
        fix_ok(nd_capture_verify(capture, &given.found, &err), &err);
        assert_int_equal(given.found.struct_size, sizes[i]);
        assert_int_equal(given.found.n_tensors, ours.n_tensors);
        assert_true(given.found.content_matches);
        for (size_t b = sizeof ours; b < sizes[i]; b++)
            assert_int_equal(given.bytes[b], 0);
        for (size_t b = sizes[i]; b < sizeof given.bytes; b++)
            assert_int_equal(given.bytes[b], 0xa5);
    }
    nd_capture_close(&capture);
    free(path);
}

/* Columns of the truth, NULL for one that is left out. */
static enum nd_status open_with_truth(const char *const values[4], struct nd_capture **capture,
                                      struct nd_error *err)
{
    static const char *const keys[] = {"profile", "faulty", "kinds", "n_changed"};
    struct nd_capture_writer *writer = NULL;
    char *path = in_folder("truth.h5");
    fix_ok(nd_capture_writer_create(path, true, &writer, err), err);
    for (size_t i = 0; i < 4; i++) {
        struct nd_attr attr = {.group = (char *)"truth",
                               .key = (char *)(uintptr_t)keys[i],
                               .type = ND_ATTR_STRING,
                               .string = (char *)(uintptr_t)values[i]};
        if (values[i] != NULL)
            fix_ok(nd_capture_writer_attr(writer, &attr, err), err);
    }
    fix_ok(nd_capture_writer_tensors(writer, NULL, NULL, 0, err), err);
    enum nd_status status = nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, err);
    nd_capture_writer_destroy(&writer);
    if (status == ND_OK)
        status = nd_capture_open(path, capture, err);
    free(path);
    return status;
}

static void truth_has_columns_of_one_length(void **state)
{
    (void)state;
    static const char *const good[][4] = {{"round=floor", "", "", ""},
                                          {"zero@a", "a", "zero", "0"},
                                          {"zero@a,fuse@b", "a\nc", "zero\nfuse", "12\n3"}};
    static const char *const bad[][4] = {
        {"zero@a", "a", "zero", NULL},        {NULL, "a", "zero", "1"},        {"zero@a", "a\nb", "zero", "1"},
        {"zero@a", "a", "zero\nzero", "1"},   {"zero@a", "a", "zero", "1\n2"}, {"zero@a", "a", "zero", "-1"},
        {"zero@a\nzero@b", "a", "zero", "1"}, {"zero@a", "", "", "1"},
    };
    struct nd_error err;
    struct nd_capture *capture = NULL;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        fix_ok(open_with_truth(good[i], &capture, &err), &err);
        assert_string_equal(nd_capture_string(capture, "truth", "faulty"), good[i][1]);
        nd_capture_close(&capture);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(open_with_truth(bad[i], &capture, &err), ND_ERR_FORMAT);
        assert_int_equal(err.id, ND_E_CAPTURE_SCHEMA);
        assert_string_equal(err.object, "/truth");
    }
}

static void objects_are_listed_by_path(void **state)
{
    (void)state;
    char *path = in_folder("objects.h5");
    fix_write(path, &deflated);
    struct nd_capture *capture = open_ok(path);
    bool has_name = false, has_bf16 = false, has_big = false;
    for (size_t i = 0; i < nd_capture_n_objects(capture); i++) {
        const struct nd_capture_object *object = nd_capture_object(capture, i);
        if (i > 0)
            assert_true(strcmp(nd_capture_object(capture, i - 1)->path, object->path) < 0);
        if (strcmp(object->path, "/edges/name") == 0) {
            has_name = true;
            assert_int_equal(object->dtype, ND_DTYPE_NONE);
            assert_int_equal(object->text_bytes, 9);
            assert_int_equal(object->stored_bytes, 9 * FIX_TENSORS);
        } else if (strcmp(object->path, "/probes/zeros/outputs/%00") == 0) {
            has_bf16 = true;
            assert_int_equal(object->dtype, ND_DTYPE_BF16);
        } else if (strcmp(object->path, "/probes/p%2F2/outputs/big") == 0) {
            has_big = true;
            assert_int_equal(object->shape.dims[0], 5);
            assert_true(object->stored_bytes > 100000 && object->stored_bytes < 5 * 308000);
        }
    }
    assert_true(has_name && has_bf16 && has_big);
    nd_capture_close(&capture);
    free(path);
}

static void names_round_trip_and_are_unique(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"conv1", "conv1"}, {"a/b", "a%2Fb"}, {"50%", "50%25"}, {"", "%00"},  {".", "%2E"},
        {"..", "%2E."},     {".a", ".a"},     {"%2F", "%252F"}, {"a.", "a."}, {"/", "%2F"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char *link = nd_name_escape(pairs[i][0]), *name = NULL;
        assert_int_equal(nd_name_unescape(pairs[i][1], "x", &name, NULL), ND_OK);
        assert_string_equal(link, pairs[i][1]);
        assert_string_equal(name, pairs[i][0]);
        free(link);
        free(name);
    }
    static const char *const impossible[] = {"%", "%2f", "a%2E", "%00a", "a%", ".", "%41", "", "%2"};
    for (size_t i = 0; i < sizeof impossible / sizeof impossible[0]; i++) {
        char *name = NULL;
        assert_int_equal(nd_name_unescape(impossible[i], "x", &name, NULL), ND_ERR_FORMAT);
        assert_null(name);
    }
}

/* Runs in a child: a limit on the size of files stands for a full disk. The way out must work too, for libhdf5
 * tries once more when the process ends. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capture_deflated_reads_back_bit_exactly),
        cmocka_unit_test(capture_plain_reads_back_bit_exactly),
        cmocka_unit_test(capture_of_digests_only_has_no_outputs),
        cmocka_unit_test(capture_is_what_libhdf5_reads),
        cmocka_unit_test(half_is_stored_as_ieee_half),
        cmocka_unit_test(nibble_outside_its_type_is_counted_as_wrong),
        cmocka_unit_test(capture_written_twice_is_the_same_file),
        cmocka_unit_test(content_digest_does_not_depend_on_storage_but_on_values),
        cmocka_unit_test(capture_without_anything_is_read),
        cmocka_unit_test(a_verification_is_filled_as_far_as_its_caller_knows_it),
        cmocka_unit_test(truth_has_columns_of_one_length),
        cmocka_unit_test(objects_are_listed_by_path),
        cmocka_unit_test(names_round_trip_and_are_unique),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
