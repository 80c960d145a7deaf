/* A small capture with one tensor of every kind, written to order, and everything that the reader says about a
 * capture as one text. Include after main.h. */
#ifndef ND_TESTS_CAPTURE_FIXTURE_H
#define ND_TESTS_CAPTURE_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/write/write.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

enum { FIX_TENSORS = 20, FIX_PROBES = 2, FIX_INPUTS = 2, FIX_BIG = 4 };

static float fix_channel_scales[5] = {0.1f, 0.25f, 3.0f, 1e-7f, 7.5f};
static int64_t fix_channel_zeros[5] = {0, -3, 32767, 5, 1};
static float fix_scale[1] = {0.02f};
static int64_t fix_zero[1] = {128};
static int64_t fix_nibble_zero[1] = {7};

/* Names that HDF5 would take for paths, and one of each element type. The tensor FIX_BIG has chunks within a
 * sample. */
static struct nd_tensor fix_tensors[FIX_TENSORS] = {
    {"a/b%c",
     "a/b%c_q",
     "Conv+Relu",
     "conv/1",
     ND_DTYPE_U8,
     {3, {1, 3, 4}},
     {1, -1, fix_scale, fix_zero},
     true,
     false},
    {"\xc3\xbcn\xc3\xaf \xe5\x90\x8d",
     "u",
     "MatMul",
     "m",
     ND_DTYPE_I16,
     {2, {1, 5}},
     {5, 1, fix_channel_scales, fix_channel_zeros},
     false,
     true},
    {".", "dot", "Add", "n2", ND_DTYPE_F16, {2, {2, 2}}, {0, -1, NULL, NULL}, false, false},
    {"", "", "", "", ND_DTYPE_BF16, {1, {3}}, {0, -1, NULL, NULL}, false, false},
    {"big", "big", "Conv", "n4", ND_DTYPE_F32, {3, {2, 35, 1100}}, {0, -1, NULL, NULL}, false, false},
    {"empty", "empty", "Slice", "n5", ND_DTYPE_F32, {3, {1, 0, 2}}, {0, -1, NULL, NULL}, false, false},
    {"%2F", "mask", "Less", "n6", ND_DTYPE_BOOL, {1, {4}}, {0, -1, NULL, NULL}, false, false},
    {"scalar", "scalar", "Sum", "n7", ND_DTYPE_F64, {0, {0}}, {0, -1, NULL, NULL}, false, false},
    {"..", "i64", "ArgMax", "n8", ND_DTYPE_I64, {1, {2}}, {0, -1, NULL, NULL}, false, false},
    {"i8", "i8", "X", "n9", ND_DTYPE_I8, {2, {3, 3}}, {1, -1, fix_scale, fix_zero}, false, false},
    {"u16", "u16", "X", "n10", ND_DTYPE_U16, {2, {3, 3}}, {1, -1, fix_scale, fix_zero}, false, false},
    {"i32", "i32", "X", "n11", ND_DTYPE_I32, {2, {3, 3}}, {0, -1, NULL, NULL}, false, false},
    {"u32", "u32", "X", "n12", ND_DTYPE_U32, {2, {3, 3}}, {0, -1, NULL, NULL}, false, false},
    {"u64", "u64", "X", "n13", ND_DTYPE_U64, {2, {3, 3}}, {0, -1, NULL, NULL}, false, false},
    {"a", "a", "X", "n14", ND_DTYPE_U8, {1, {7}}, {0, -1, NULL, NULL}, false, false},
    {"a-b", "a-b", "X", "n15", ND_DTYPE_U8, {1, {7}}, {0, -1, NULL, NULL}, false, false},
    {"u4", "u4", "X", "n16", ND_DTYPE_U4, {2, {3, 5}}, {1, -1, fix_scale, fix_nibble_zero}, false, false},
    {"i4", "i4", "X", "n17", ND_DTYPE_I4, {2, {3, 5}}, {1, -1, fix_scale, fix_nibble_zero}, false, false},
    {"f8a", "f8a", "X", "n18", ND_DTYPE_F8E4M3FN, {2, {3, 5}}, {0, -1, NULL, NULL}, false, false},
    {"f8b", "f8b", "X", "n19", ND_DTYPE_F8E5M2, {2, {3, 5}}, {0, -1, NULL, NULL}, false, false},
};
static const char *fix_providers[FIX_TENSORS] = {"QNN", "QNN", "CPU", "",    "QNN", "QNN", "QNN",
                                                 "QNN", "QNN", "QNN", "CPU", "QNN", "QNN", "QNN",
                                                 "QNN", "QNN", "QNN", "QNN", "CPU", ""};
static struct nd_capture_node fix_nodes[] = {{"conv/1", "Conv", "", "QNN", 0},
                                             {"m", "MatMul", "com.microsoft", "CPU", 0}};
static struct nd_capture_input fix_inputs[FIX_INPUTS] = {{"z/input", ND_DTYPE_F32, {2, {1, 3}}},
                                                         {"a", ND_DTYPE_BOOL, {2, {2, 2}}}};
static int64_t fix_labels[2] = {7, -1};
static double fix_latency[15] = {1.5, 2.25, 1e9, 0.0, -0.0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12.125};
static struct nd_capture_probe fix_probes[FIX_PROBES] = {
    {"zeros", "zeros", 2, 2, 1, FIX_INPUTS, fix_inputs, fix_labels, NULL},
    {"p/2", "/data/p 2.npz", 5, 6, 3, FIX_INPUTS, fix_inputs, NULL, fix_latency},
};
/* Repeats of the second probe that differ from the first. */
static const size_t fix_repeats[2][2] = {{4, 1}, {1, 2}};

static const struct nd_attr fix_attrs[] = {
    {"device", "uri", ND_ATTR_STRING, "htp-sim:sm8650", 0, 0},
    {"device", "chipset", ND_ATTR_STRING, "", 0, 0},
    {"runtime", "threads", ND_ATTR_I64, NULL, -4, 0},
    {"runtime", "odd/key%", ND_ATTR_F64, NULL, 0, 0.1},
    {"model", "sha256", ND_ATTR_STRING, "0123456789abcdef", 0, 0},
    {"", "note", ND_ATTR_STRING, "\xc3\xa4 root attribute", 0, 0},
};
static const struct nd_capture_finding fix_findings[2] = {
    {(char *)"preparation", (char *)"failure", (char *)"qnn/htp.log", (char *)"q::linearclip", (char *)"conv/1",
     (char *)"QNN_COMMON_ERROR_MEM_ALLOC", (char *)"could not", 2, 1002},
    {(char *)"limit", (char *)"note", (char *)"nothing", NULL, NULL, NULL, (char *)"7 left out", 0, 0},
};
static const char fix_log[] = "line 1\nline \x01\xff 2\n";

struct fix_options {
    int level;
    bool with_big;
    bool digests_only;
};

static inline uint64_t fix_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The bytes of a tensor, known from where it is. Quantised values crowd around a few values, as real ones do.
 */
static inline void fix_fill(void *buf, size_t n_bytes, uint64_t probe, uint64_t tensor, uint64_t sample,
                            uint64_t repeat)
{
    uint64_t random = probe * 1000003 + tensor * 10007 + sample * 101 + repeat + 1;
    for (size_t i = 0; i < n_bytes; i++)
        ((unsigned char *)buf)[i] = (unsigned char)(fix_random(&random) % 23);
}

static inline size_t fix_sample_bytes(const struct nd_tensor *tensor)
{
    size_t n = 0;
    assert_int_equal(nd_shape_size_bytes(&tensor->shape, tensor->dtype, &n, NULL), ND_OK);
    return n;
}

static inline bool fix_differs(size_t probe, size_t sample, size_t repeat)
{
    for (size_t i = 0; i < 2; i++)
        if (probe == 1 && fix_repeats[i][0] == sample && fix_repeats[i][1] == repeat)
            return true;
    return false;
}

/* The bytes of one repeat: those of repeat 0 unless it is one of fix_repeats. */
static inline void fix_output(void *buf, size_t probe, size_t tensor, size_t sample, size_t repeat)
{
    size_t n_bytes = fix_sample_bytes(&fix_tensors[tensor]);
    unsigned char *bytes = buf;
    enum nd_dtype dtype = fix_tensors[tensor].dtype;
    fix_fill(buf, n_bytes, probe, tensor, sample, fix_differs(probe, sample, repeat) ? repeat : 0);
    for (size_t i = 0; (dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4) && i < n_bytes; i++)
        bytes[i] = (unsigned char)(bytes[i] % 16 - (dtype == ND_DTYPE_I4 ? 8 : 0));
}

static inline void fix_ok(enum nd_status status, const struct nd_error *err)
{
    if (status != ND_OK)
        print_message("# %s\n", err->message);
    assert_int_equal(status, ND_OK);
}

static inline void fix_write_outputs(struct nd_capture_writer *writer, size_t p, size_t e, int level)
{
    struct nd_error err;
    const struct nd_capture_probe *probe = &fix_probes[p];
    struct nd_chunk_layout layout;
    struct nd_capture_dataset *dataset = NULL;
    fix_ok(nd_capture_output_layout(probe, &fix_tensors[e], &layout, &err), &err);
    unsigned char *samples = calloc(probe->n_samples_expected + 1, layout.sample_bytes + 1);
    unsigned char *raw = calloc(1, layout.chunk_bytes + 1),
                  *stored = calloc(1, nd_chunk_bound(layout.chunk_bytes));
    assert_true(samples != NULL && raw != NULL && stored != NULL);
    for (size_t s = 0; s < probe->n_samples; s++)
        fix_output(samples + s * layout.sample_bytes, p, e, s, 0);
    fix_ok(nd_capture_writer_outputs_begin(
               writer, &(struct nd_capture_output){probe, &fix_tensors[e], fix_providers[e], &layout}, &dataset,
               &err),
           &err);
    for (size_t i = layout.n_chunks; i-- > 0;) { /* any order will do */
        struct nd_chunk_span span;
        size_t stored_bytes = 0;
        nd_chunk_span(&layout, i, &span);
        memset(raw, 0, layout.chunk_bytes);
        memcpy(raw, samples + span.first_sample * layout.sample_bytes + span.offset_bytes, span.n_bytes);
        if (level > 0)
            fix_ok(nd_chunk_encode(&layout, raw, level, stored, &stored_bytes, &err), &err);
        fix_ok(nd_capture_writer_chunk(dataset, i, level > 0 ? stored : raw,
                                       level > 0 ? stored_bytes : span.n_bytes, &err),
               &err);
    }
    fix_ok(nd_capture_writer_outputs_end(&dataset, &err), &err);
    free(samples);
    free(raw);
    free(stored);
}

static inline void fix_write_digests(struct nd_capture_writer *writer, size_t p, size_t e)
{
    struct nd_error err;
    const struct nd_capture_probe *probe = &fix_probes[p];
    size_t n_bytes = fix_sample_bytes(&fix_tensors[e]);
    unsigned char *one = malloc(n_bytes + 1);
    struct nd_digest *digests = calloc(probe->n_samples * probe->n_repeats, sizeof *digests);
    assert_true(one != NULL && digests != NULL);
    for (size_t s = 0; s < probe->n_samples; s++)
        for (size_t r = 0; r < probe->n_repeats; r++) {
            fix_output(one, p, e, s, r);
            digests[s * probe->n_repeats + r] = nd_digest_bytes(one, n_bytes);
        }
    fix_ok(nd_capture_writer_digests(writer, probe, &fix_tensors[e], digests, &err), &err);
    free(one);
    free(digests);
}

static inline void fix_write_repeats(struct nd_capture_writer *writer, size_t e)
{
    struct nd_error err;
    size_t n_bytes = fix_sample_bytes(&fix_tensors[e]);
    unsigned char *rows = malloc(2 * n_bytes + 1);
    assert_non_null(rows);
    for (size_t i = 0; i < 2; i++)
        fix_output(rows + i * n_bytes, 1, e, fix_repeats[i][0], fix_repeats[i][1]);
    const struct nd_capture_repeats repeats = {fix_repeats, 2, rows};
    fix_ok(nd_capture_writer_repeats(writer, &fix_probes[1], &fix_tensors[e], &repeats, &err), &err);
    free(rows);
}

static inline void fix_write_probe(struct nd_capture_writer *writer, size_t p)
{
    struct nd_error err;
    const struct nd_capture_probe *probe = &fix_probes[p];
    fix_ok(nd_capture_writer_probe(writer, probe, &err), &err);
    for (size_t i = 0; i < FIX_INPUTS; i++) {
        size_t n_bytes = 0;
        unsigned char data[1024];
        fix_ok(nd_shape_size_bytes(&fix_inputs[i].shape, fix_inputs[i].dtype, &n_bytes, &err), &err);
        for (size_t s = 0; s < probe->n_samples_expected; s++)
            fix_fill(data + s * n_bytes, n_bytes, p, 100 + i, s, 0);
        fix_ok(nd_capture_writer_input(writer, probe, i, data, &err), &err);
    }
}

/* Writes the capture but does not commit it. */
static inline struct nd_capture_writer *fix_begin(const char *path, bool replace,
                                                  const struct fix_options *options)
{
    struct nd_error err;
    struct nd_capture_writer *writer = NULL;
    /* The big tensor trades places with the last one, so that the small capture is the same list but for one.
     */
    size_t n_tensors = options->with_big ? FIX_TENSORS : FIX_BIG;
    fix_ok(nd_capture_writer_create(path, replace, &writer, &err), &err);
    nd_capture_writer_level(writer, options->level);
    for (size_t i = 0; i < sizeof fix_attrs / sizeof fix_attrs[0]; i++)
        fix_ok(nd_capture_writer_attr(writer, &fix_attrs[i], &err), &err);
    fix_ok(nd_capture_writer_tensors(writer, fix_tensors, fix_providers, n_tensors, &err), &err);
    fix_ok(nd_capture_writer_nodes(writer, fix_nodes, 2, &err), &err);
    fix_ok(nd_capture_writer_log(writer, "qnn/htp.log", fix_log, sizeof fix_log - 1, &err), &err);
    fix_ok(nd_capture_writer_log(writer, "nothing", NULL, 0, &err), &err);
    fix_ok(nd_capture_writer_findings(writer, fix_findings, 2, &err), &err);
    for (size_t p = 0; p < FIX_PROBES; p++) {
        fix_write_probe(writer, p);
        for (size_t e = 0; e < n_tensors; e++) {
            fix_write_digests(writer, p, e);
            if (options->digests_only)
                continue;
            fix_write_outputs(writer, p, e, options->level);
            if (p == 1 && fix_sample_bytes(&fix_tensors[e]) > 0)
                fix_write_repeats(writer, e);
        }
    }
    return writer;
}

static inline void fix_write(const char *path, const struct fix_options *options)
{
    struct nd_error err;
    struct nd_capture_writer *writer = fix_begin(path, true, options);
    fix_ok(nd_capture_writer_commit(writer, ND_CAPTURE_PARTIAL, &err), &err);
    nd_capture_writer_destroy(&writer);
    assert_null(writer);
}

/* Everything that can be read, tensors too, but for how it is stored. ND_OK, or the first error. */
static inline enum nd_status fix_dump_tensors(const struct nd_capture *capture, size_t p, struct nd_strbuf *out,
                                              struct nd_error *err)
{
    const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
    enum nd_status status = ND_OK;
    for (size_t e = 0; e < nd_capture_n_tensors(capture) && status == ND_OK; e++) {
        size_t n_bytes = 0;
        status = nd_shape_size_bytes(&nd_capture_tensor(capture, e)->shape,
                                     nd_capture_tensor(capture, e)->dtype, &n_bytes, err);
        char *buf = nd_tensor_alloc(n_bytes);
        for (size_t s = 0; s < probe->n_samples && status == ND_OK && buf != NULL; s++)
            for (size_t r = 0; r < probe->n_repeats && status == ND_OK; r++) {
                struct nd_digest digest = nd_capture_digest(capture, p, e, s, r);
                nd_strbuf_append(out, (const char *)&digest, sizeof digest);
                if (!nd_capture_has_outputs(capture, p, e))
                    continue;
                status = nd_capture_read_repeat(&(struct nd_probe_values){capture, p, e}, s, r, buf, err);
                nd_strbuf_append(out, buf, n_bytes);
            }
        free(buf);
    }
    for (size_t i = 0; i < probe->n_inputs && status == ND_OK; i++) {
        size_t n_bytes = 0;
        status = nd_shape_size_bytes(&probe->inputs[i].shape, probe->inputs[i].dtype, &n_bytes, err);
        char *buf = nd_tensor_alloc(n_bytes * probe->n_samples_expected);
        if (status == ND_OK && buf != NULL)
            status = nd_capture_read_inputs(&(struct nd_probe_values){capture, p, i}, 0,
                                            probe->n_samples_expected, buf, err);
        nd_strbuf_append(out, buf, n_bytes * probe->n_samples_expected);
        free(buf);
    }
    return status;
}

static inline void fix_dump_shape(struct nd_strbuf *out, const struct nd_shape *shape, enum nd_dtype dtype)
{
    char text[256];
    nd_strbuf_printf(out, "%s %s|", nd_dtype_name(dtype), nd_shape_format(shape, text, sizeof text));
}

static inline void fix_dump_tables(const struct nd_capture *capture, struct nd_strbuf *out)
{
    nd_strbuf_puts(out, nd_capture_state_name(nd_capture_state(capture)));
    for (size_t i = 0; i < nd_capture_n_attrs(capture); i++) {
        const struct nd_attr *a = nd_capture_attr(capture, i);
        if (strcmp(a->key, "content_digest") == 0)
            continue; /* it depends on nothing else that can be read, and not on itself */
        nd_strbuf_printf(out, "%s/%s=%d %s %lld %a\n", a->group, a->key, (int)a->type,
                         a->string != NULL ? a->string : "", (long long)a->i64, a->f64);
    }
    for (size_t i = 0; i < nd_capture_n_tensors(capture); i++) {
        const struct nd_tensor *e = nd_capture_tensor(capture, i);
        nd_strbuf_printf(out, "%s|%s|%s|%s|%s|%d%d|%zu on %d:", e->name, e->onnx_name, e->op_types, e->node,
                         nd_capture_tensor_provider(capture, i), e->is_model_input, e->is_model_output,
                         e->quant.n, e->quant.axis);
        fix_dump_shape(out, &e->shape, e->dtype);
        nd_strbuf_append(out, (const char *)e->quant.scale, e->quant.n * sizeof(float));
        nd_strbuf_append(out, (const char *)e->quant.zero_point, e->quant.n * sizeof(int64_t));
    }
    for (size_t i = 0; i < nd_capture_n_nodes(capture); i++) {
        const struct nd_capture_node *n = nd_capture_node(capture, i);
        nd_strbuf_printf(out, "%s|%s|%s|%s\n", n->name, n->op_type, n->domain, n->provider);
    }
    for (size_t i = 0; i < nd_capture_n_logs(capture); i++)
        nd_strbuf_printf(out, "%s: %s\n", nd_capture_log_name(capture, i), nd_capture_log_text(capture, i));
}

static inline enum nd_status fix_dump(const struct nd_capture *capture, struct nd_strbuf *out,
                                      struct nd_error *err)
{
    enum nd_status status = ND_OK;
    fix_dump_tables(capture, out);
    for (size_t p = 0; p < nd_capture_n_probes(capture) && status == ND_OK; p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
        nd_strbuf_printf(out, "%s|%s|%zu %zu %zu %zu\n", probe->name, probe->source, probe->n_samples,
                         probe->n_samples_expected, probe->n_repeats, probe->n_inputs);
        nd_strbuf_append(out, (const char *)probe->latency_us,
                         probe->n_samples * probe->n_repeats * sizeof(double));
        if (probe->labels != NULL)
            nd_strbuf_append(out, (const char *)probe->labels, probe->n_samples_expected * sizeof(int64_t));
        for (size_t i = 0; i < probe->n_inputs; i++) {
            nd_strbuf_printf(out, "%s ", probe->inputs[i].name);
            fix_dump_shape(out, &probe->inputs[i].shape, probe->inputs[i].dtype);
        }
        status = fix_dump_tensors(capture, p, out, err);
    }
    assert_false(out->failed);
    return status;
}

#endif
