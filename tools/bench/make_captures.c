/* Captures for the benchmark of the comparison, as the project's own writer makes them: `cpu` devices with one
 * probe of one sample, and as many tensors of one type and size as asked. The first file's tensors are the
 * others' too, but for the elements that are changed on purpose.
 *
 * usage: make_captures DTYPE ELEMENTS EDGES LEVEL SEED FILE:FRACTION...
 *
 * DTYPE is float32, float16, uint8 or uint16; ELEMENTS of one tensor are a multiple of 1024; LEVEL 0 is
 * contiguous, 1 to 9 deflates in chunks of 1 MiB; FRACTION of the elements are changed. For each file prints
 * "FILE CHANGED BYTES STORED": changed elements, bytes of the tensors, bytes of the file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "capture/write/write.h"
#include "core/memory.h"
#include "npudiff/core/parse.h"
#include "tools/bench/data.h"

enum { ROW_ELEMS = 1024, CHUNK_BYTES = 1 << 20, NAME_BYTES = 32 };

static char provider[] = "CPUExecutionProvider", node[] = "node", op_type[] = "Relu";
static char probe_name[] = "bench", probe_source[] = "made", input_name[] = "x";
static float scale[] = {0.05f};
static int64_t zero_point[] = {BENCH_ZERO_POINT};
static double latency_us[] = {1};

struct work {
    enum nd_dtype dtype;
    uint64_t n_elems, n_tensors, level, seed;
    struct nd_capture_input input;
    struct nd_capture_probe probe;
    struct nd_tensor *tensors;
    char (*names)[NAME_BYTES]; /* "t", or t0, t1... */
    const char **providers;
    struct nd_chunk_layout layout;
    unsigned char *tensor; /* one tensor */
    size_t tensor_bytes;
};

static enum nd_status describe(struct work *work, struct nd_error *err)
{
    const size_t elem_bytes = nd_dtype_size_bytes(work->dtype);
    const int64_t n_rows = (int64_t)(work->n_elems / ROW_ELEMS);
    const int64_t chunk_rows = (int64_t)(CHUNK_BYTES / (ROW_ELEMS * elem_bytes));
    const struct nd_shape dataset = {3, {1, n_rows, ROW_ELEMS}};
    const struct nd_shape chunk = {3, {1, chunk_rows < n_rows ? chunk_rows : n_rows, ROW_ELEMS}};
    const bool is_qvalue = !nd_dtype_is_float(work->dtype);
    enum nd_status status = nd_chunk_layout_from_dims(&dataset, &chunk, elem_bytes, &work->layout, err);
    if (status != ND_OK)
        return status;
    work->tensor_bytes = work->layout.sample_bytes;
    work->tensors = nd_calloc(work->n_tensors, sizeof *work->tensors);
    work->names = nd_calloc(work->n_tensors, sizeof *work->names);
    work->providers = nd_calloc(work->n_tensors, sizeof *work->providers);
    work->tensor = nd_tensor_alloc(work->tensor_bytes);
    if (work->tensors == NULL || work->names == NULL || work->providers == NULL || work->tensor == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < work->n_tensors; i++) {
        snprintf(work->names[i], NAME_BYTES, work->n_tensors == 1 ? "t" : "t%zu", i);
        work->providers[i] = provider;
        work->tensors[i] = (struct nd_tensor){.name = work->names[i],
                                              .onnx_name = work->names[i],
                                              .op_types = op_type,
                                              .node = node,
                                              .dtype = work->dtype,
                                              .shape = {2, {n_rows, ROW_ELEMS}},
                                              .quant = {0, -1, NULL, NULL}};
        if (is_qvalue)
            work->tensors[i].quant = (struct nd_quant){1, -1, scale, zero_point};
    }
    work->input = (struct nd_capture_input){input_name, ND_DTYPE_F32, {1, {1}}};
    work->probe =
        (struct nd_capture_probe){probe_name, probe_source, 1, 1, 1, 1, &work->input, NULL, latency_us};
    return ND_OK;
}

static enum nd_status put_tensor(struct work *work, struct nd_capture_writer *writer, size_t e,
                                 struct nd_error *err)
{
    const struct nd_capture_output output = {&work->probe, &work->tensors[e], provider, &work->layout};
    struct nd_digest digest = nd_digest_bytes(work->tensor, work->tensor_bytes);
    enum nd_status status = nd_capture_writer_digests(writer, &work->probe, &work->tensors[e], &digest, err);
    if (status == ND_OK)
        status = nd_capture_writer_outputs(writer, &output, work->tensor, err);
    return status;
}

/* Everything but the tensors. */
static enum nd_status begin(struct work *work, size_t file, struct nd_capture_writer *writer,
                            struct nd_error *err)
{
    char label[NAME_BYTES];
    const float input = 0;
    snprintf(label, sizeof label, "device %zu", file);
    const struct nd_attr attrs[] = {{"device", "uri", ND_ATTR_STRING, "cpu", 0, 0},
                                    {"device", "label", ND_ATTR_STRING, label, 0, 0},
                                    {"model", "sha256", ND_ATTR_STRING, "benchmark", 0, 0}};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < sizeof attrs / sizeof attrs[0]; i++)
        status = nd_capture_writer_attr(writer, &attrs[i], err);
    if (status == ND_OK)
        status = nd_capture_writer_tensors(writer, work->tensors, work->providers, work->n_tensors, err);
    if (status == ND_OK)
        status = nd_capture_writer_probe(writer, &work->probe, err);
    if (status == ND_OK)
        status = nd_capture_writer_input(writer, &work->probe, 0, &input, err);
    return status;
}

static enum nd_status make_file(struct work *work, size_t file, const char *path, double fraction,
                                struct nd_error *err)
{
    const bool is_coarse = work->level > 0;
    struct nd_capture_writer *writer = NULL;
    size_t n_changed = 0;
    enum nd_status status = nd_capture_writer_create(path, true, &writer, err);
    if (status == ND_OK)
        status = begin(work, file, writer, err);
    if (status == ND_OK)
        nd_capture_writer_level(writer, (int)work->level);
    for (size_t e = 0; status == ND_OK && e < work->n_tensors; e++) {
        uint64_t seed = work->seed + e;
        bench_fill(work->dtype, is_coarse, seed, work->tensor, work->n_elems);
        n_changed += bench_plant(work->dtype, fraction, seed + (file + 1) * UINT64_C(1000003), work->tensor,
                                 work->n_elems);
        status = put_tensor(work, writer, e, err);
    }
    if (status == ND_OK)
        status = nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, err);
    nd_capture_writer_destroy(&writer);
    struct stat info = {0};
    if (status == ND_OK && stat(path, &info) == 0)
        printf("%s %zu %" PRIu64 " %lld\n", path, n_changed, (uint64_t)work->tensor_bytes * work->n_tensors,
               (long long)info.st_size);
    return status;
}

static bool parse(struct work *work, char **argv)
{
    work->dtype = nd_dtype_from_name(argv[1]);
    return bench_is_known(work->dtype) && nd_parse_u64(argv[2], &work->n_elems) && work->n_elems > 0 &&
           work->n_elems % ROW_ELEMS == 0 && nd_parse_u64(argv[3], &work->n_tensors) && work->n_tensors > 0 &&
           nd_parse_u64(argv[4], &work->level) && work->level <= 9 && nd_parse_u64(argv[5], &work->seed) &&
           (work->n_elems * nd_dtype_size_bytes(work->dtype) % CHUNK_BYTES == 0 || work->level == 0);
}

int main(int argc, char **argv)
{
    struct work work = {0};
    struct nd_error err = {0};
    if (argc < 7 || !parse(&work, argv)) {
        fprintf(stderr, "usage: make_captures DTYPE ELEMENTS EDGES LEVEL SEED FILE:FRACTION...\n");
        return 2;
    }
    enum nd_status status = describe(&work, &err);
    for (int i = 6; status == ND_OK && i < argc; i++) {
        char *colon = strrchr(argv[i], ':');
        double fraction;
        if (colon == NULL || !nd_parse_double(colon + 1, &fraction) || fraction < 0 || fraction > 1) {
            fprintf(stderr, "make_captures: '%s' is not FILE:FRACTION\n", argv[i]);
            return 2;
        }
        *colon = '\0';
        status = make_file(&work, (size_t)i - 6, argv[i], fraction, &err);
    }
    if (status != ND_OK)
        fprintf(stderr, "make_captures: %s\n", err.message);
    free(work.tensors);
    free(work.names);
    free(work.providers);
    free(work.tensor);
    return status == ND_OK ? 0 : 2;
}
