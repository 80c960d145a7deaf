/* Comparing captures that were written to HDF5 and read back: the way from file to verdict. */
#include "support/main.h"

#include <stdlib.h>
#include <string.h>

#include "capture/write/write.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "npudiff/compare/compare.h"

enum { N_SAMPLES = 5, N_ELEMS = 6 };

static float scale[] = {0.25f};
static int64_t zero_point[] = {128};

static struct nd_tensor tensor = {
    .name = (char *)(uintptr_t) "block/conv:0",
    .onnx_name = (char *)(uintptr_t) "conv_q",
    .op_types = (char *)(uintptr_t) "Conv+Relu",
    .node = (char *)(uintptr_t) "conv",
    .dtype = ND_DTYPE_U8,
    .shape = {.rank = 2, .dims = {2, 3}},
    .quant = {.n = 1, .axis = -1, .scale = scale, .zero_point = zero_point},
    .is_model_output = true,
};

static void put_attr(struct nd_capture_writer *writer, const char *group, const char *key, const char *value)
{
    struct nd_attr attr = {.group = (char *)(uintptr_t)group,
                           .key = (char *)(uintptr_t)key,
                           .type = ND_ATTR_STRING,
                           .string = (char *)(uintptr_t)value};
    assert_int_equal(nd_capture_writer_attr(writer, &attr, NULL), ND_OK);
}

static void put_outputs(struct nd_capture_writer *writer, const struct nd_capture_probe *probe,
                        const unsigned char *data)
{
    struct nd_digest digests[N_SAMPLES];
    for (size_t s = 0; s < probe->n_samples; s++)
        digests[s] = nd_digest_bytes(data + s * N_ELEMS, N_ELEMS);
    assert_int_equal(nd_capture_writer_digests(writer, probe, &tensor, digests, NULL), ND_OK);
    assert_int_equal(
        nd_capture_writer_outputs(
            writer, &(struct nd_capture_output){probe, &tensor, "CPUExecutionProvider", NULL}, data, NULL),
        ND_OK);
}

/* A capture of n_samples of N_SAMPLES with these outputs, opened again. */
static struct nd_capture *make_capture(const char *dir, const char *name, const unsigned char *data,
                                       size_t n_samples)
{
    char *path = nd_path_join(dir, name);
    double latency[N_SAMPLES] = {0};
    int64_t labels[N_SAMPLES] = {0, 1, 2, 3, 4};
    unsigned char inputs[N_SAMPLES] = {7, 6, 5, 4, 3};
    struct nd_capture_input input = {(char *)(uintptr_t) "x", ND_DTYPE_U8, {.rank = 1, .dims = {1}}};
    struct nd_capture_probe probe = {.name = (char *)(uintptr_t) "val",
                                     .source = (char *)(uintptr_t) "val.npz",
                                     .n_samples = n_samples,
                                     .n_samples_expected = N_SAMPLES,
                                     .n_repeats = 1,
                                     .n_inputs = 1,
                                     .inputs = &input,
                                     .labels = labels,
                                     .latency_us = latency};
    struct nd_capture_node node = {(char *)(uintptr_t) "conv", (char *)(uintptr_t) "Conv",
                                   (char *)(uintptr_t) "", (char *)(uintptr_t) "CPUExecutionProvider", 0};
    const char *provider = "CPUExecutionProvider";
    struct nd_capture_writer *writer = NULL;
    struct nd_capture *capture = NULL;
    struct nd_error err = {0};
    assert_int_equal(nd_capture_writer_create(path, false, &writer, NULL), ND_OK);
    nd_capture_writer_level(writer, 6);
    put_attr(writer, "device", "uri", name);
    put_attr(writer, "model", "sha256", "00ff");
    assert_int_equal(nd_capture_writer_tensors(writer, &tensor, &provider, 1, NULL), ND_OK);
    assert_int_equal(nd_capture_writer_nodes(writer, &node, 1, NULL), ND_OK);
    assert_int_equal(nd_capture_writer_probe(writer, &probe, NULL), ND_OK);
    assert_int_equal(nd_capture_writer_input(writer, &probe, 0, inputs, NULL), ND_OK);
    put_outputs(writer, &probe, data);
    enum nd_capture_status state = n_samples < N_SAMPLES ? ND_CAPTURE_FAILED : ND_CAPTURE_COMPLETE;
    assert_int_equal(nd_capture_writer_commit(writer, state, NULL), ND_OK);
    nd_capture_writer_destroy(&writer);
    if (nd_capture_open(path, &capture, &err) != ND_OK)
        fail_msg("%s", err.message);
    free(path);
    return capture;
}

static void files_are_compared_to_the_element(void **state)
{
    (void)state;
    char *dir = NULL;
    unsigned char data[N_SAMPLES * N_ELEMS];
    assert_int_equal(nd_dir_make_temporary(&dir, NULL), ND_OK);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i % 7 * 9);
    struct nd_capture *captures[4] = {make_capture(dir, "cpu", data, N_SAMPLES),
                                      make_capture(dir, "gen1", data, N_SAMPLES)};
    data[3 * N_ELEMS + 4] += 2;
    captures[2] = make_capture(dir, "gen2", data, N_SAMPLES);
    captures[3] = make_capture(dir, "gen3", data, 2);
    struct nd_comparison *c = NULL;
    struct nd_error err = {0};
    if (nd_compare_captures((const struct nd_capture *const *)captures, 4, NULL, &c, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_int_equal(c->verdict, ND_VERDICT_FAILED);
    assert_string_equal(c->classes_text, "cpu = gen1 = gen3* | gen2");
    assert_int_equal(c->tensors[0].pairs[0].verdict, ND_VERDICT_SAME);
    assert_int_equal(c->tensors[0].pairs[1].verdict, ND_VERDICT_DIFFERS);
    assert_int_equal(c->tensors[0].pairs[2].verdict, ND_VERDICT_NOT_COMPARABLE);
    const struct nd_difference *d = &c->tensors[0].pairs[1].total.difference;
    assert_int_equal(d->n_elems, N_SAMPLES * N_ELEMS);
    assert_int_equal(d->n_differing, 1);
    assert_int_equal(d->max_lsb, 2);
    assert_f64_bits(d->abs.max, 0.5);
    assert_int_equal(d->first.sample, 3);
    assert_int_equal(d->first.coordinates[0], 1);
    assert_int_equal(d->first.coordinates[1], 1);
    assert_int_equal(c->n_top1, 1);
    assert_true(c->top1[0].has_labels);
    nd_comparison_destroy(&c);
    for (size_t i = 0; i < 4; i++)
        nd_capture_close(&captures[i]);
    nd_dir_remove(dir);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(files_are_compared_to_the_element)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
