#include "support/main.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hdf5.h>

#include "capture/hdf5/libhdf5.h"
#include "capture/read/capture_internal.h"
#include "capture/read/view.h"
#include "capture/write/write.h"
#include "npudiff/core/parse.h"
#include "support/scratch.h"

/* The first tensor of the first probe. */
#define FIRST(of) (&(const struct nd_probe_values){of, 0, 0})

static uint64_t seed_of_run(void)
{
    uint64_t seed = 5150;
    const char *given = getenv("ND_SEED");
    if (given != NULL)
        assert_true(nd_parse_u64(given, &seed));
    print_message("# seed %llu\n", (unsigned long long)seed);
    return seed;
}

static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* One tensor "x" of one probe "p", and how it is stored. */
struct stored {
    enum nd_dtype dtype;
    struct nd_shape dataset; /* [samples, dims...] */
    struct nd_shape chunk;   /* rank 0: contiguous */
    bool is_shuffled;
    int deflate; /* level, 0: none */
    size_t n_bytes;
    unsigned char *data;
};

static void fill(struct stored *stored, uint64_t *random)
{
    size_t n_elems;
    assert_int_equal(nd_shape_n_elems(&stored->dataset, &n_elems, NULL), ND_OK);
    stored->n_bytes = n_elems * nd_dtype_size_bytes(stored->dtype);
    stored->data = malloc(stored->n_bytes + 1);
    assert_non_null(stored->data);
    for (size_t i = 0; i < stored->n_bytes; i++)
        stored->data[i] = (unsigned char)(next_random(random) % (i % 3 == 0 ? 256 : 3));
}

static void put_dtype(hid_t dataset, const char *name)
{
    hid_t type = nd_hdf5_text_make(strlen(name)), space = H5Screate(H5S_SCALAR);
    hid_t attr = H5Acreate2(dataset, "dtype", type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attr, type, name) >= 0);
    H5Aclose(attr);
    H5Sclose(space);
    H5Tclose(type);
}

/* What libhdf5 makes of the data with these chunks and filters, in place of the outputs. */
static void put_outputs(const char *path, const struct stored *stored)
{
    hsize_t dims[ND_MAX_RANK], chunk[ND_MAX_RANK];
    for (int i = 0; i < stored->dataset.rank; i++) {
        dims[i] = (hsize_t)stored->dataset.dims[i];
        chunk[i] = (hsize_t)stored->chunk.dims[i];
    }
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t group = H5Gcreate2(file, "/probes/p/outputs", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t type = nd_hdf5_type_make(stored->dtype), space = H5Screate_simple(stored->dataset.rank, dims, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    if (stored->chunk.rank > 0)
        assert_true(H5Pset_chunk(creation, stored->chunk.rank, chunk) >= 0);
    if (stored->is_shuffled)
        assert_true(H5Pset_shuffle(creation) >= 0);
    if (stored->deflate > 0)
        assert_true(H5Pset_deflate(creation, (unsigned)stored->deflate) >= 0);
    hid_t dataset = H5Dcreate2(group, "x", type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(dataset >= 0);
    if (nd_index_stored_dtype(stored->dtype) != stored->dtype)
        put_dtype(dataset, nd_dtype_name(stored->dtype));
    assert_true(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, stored->data) >= 0);
    H5Dclose(dataset);
    H5Pclose(creation);
    H5Sclose(space);
    H5Tclose(type);
    H5Gclose(group);
    assert_true(H5Fclose(file) >= 0);
}

/* Our writer makes all but the outputs; digests are not looked at here. */
static void write_capture(const char *path, const struct stored *stored)
{
    struct nd_error err;
    struct nd_capture_writer *writer = NULL;
    size_t n = (size_t)stored->dataset.dims[0];
    struct nd_tensor tensor = {.name = (char *)"x",
                               .onnx_name = (char *)"x",
                               .op_types = (char *)"X",
                               .node = (char *)"n",
                               .dtype = stored->dtype,
                               .shape = {.rank = stored->dataset.rank - 1},
                               .quant = {.axis = -1}};
    memcpy(tensor.shape.dims, stored->dataset.dims + 1,
           (size_t)tensor.shape.rank * sizeof tensor.shape.dims[0]);
    struct nd_capture_probe probe = {
        .name = (char *)"p", .source = (char *)"s", .n_samples = n, .n_samples_expected = n, .n_repeats = 1};
    struct nd_digest *digests = calloc(n, sizeof *digests);
    const char *provider = "";
    assert_non_null(digests);
    expect_ok(nd_capture_writer_create(path, true, &writer, &err), &err);
    expect_ok(nd_capture_writer_tensors(writer, &tensor, &provider, 1, &err), &err);
    expect_ok(nd_capture_writer_probe(writer, &probe, &err), &err);
    expect_ok(nd_capture_writer_digests(writer, &probe, &tensor, digests, &err), &err);
    expect_ok(nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, &err), &err);
    nd_capture_writer_destroy(&writer);
    free(digests);
    if (stored->data != NULL)
        put_outputs(path, stored);
}

static struct nd_capture *open_ok(const char *path)
{
    struct nd_error err;
    struct nd_capture *capture = NULL;
    expect_ok(nd_capture_open_unchecked(path, &capture, &err), &err);
    return capture;
}

static void check_range(const struct nd_capture *capture, const struct stored *stored, size_t first, size_t n,
                        struct nd_view_scratch *scratch)
{
    struct nd_error err;
    const unsigned char *view = NULL;
    expect_ok(nd_capture_view_outputs(FIRST(capture), first, n, scratch, &view, &err), &err);
    assert_non_null(view);
    assert_memory_equal(view, stored->data + first, n);
}

static void check_ranges(struct nd_capture *capture, const struct stored *stored, uint64_t *random,
                         struct nd_view_scratch *scratch)
{
    struct nd_error err;
    const unsigned char *view = NULL;
    size_t n_bytes = stored->n_bytes;
    check_range(capture, stored, 0, n_bytes, scratch);
    check_range(capture, stored, n_bytes, 0, scratch);
    for (int i = 0; i < 40; i++) {
        size_t first = next_random(random) % n_bytes;
        size_t most = n_bytes - first;
        if (i % 2 == 0 && most > 64)
            most = 64;
        check_range(capture, stored, first, next_random(random) % (most + 1), scratch);
    }
    assert_int_equal(nd_capture_view_outputs(FIRST(capture), 0, n_bytes + 1, scratch, &view, &err),
                     ND_ERR_NOT_FOUND);
    assert_int_equal(nd_capture_view_outputs(FIRST(capture), n_bytes + 1, 0, scratch, &view, &err),
                     ND_ERR_NOT_FOUND);
    assert_int_equal(nd_capture_view_outputs(FIRST(capture), 2, SIZE_MAX, scratch, &view, &err),
                     ND_ERR_NOT_FOUND);
    assert_int_equal(err.id, 724);
}

/* Samples share a chunk, or one sample is cut along an axis. Not into too many: how long libhdf5 takes to find
 * them grows with the square of their number. */
static void cut_random(struct stored *stored, uint64_t *random)
{
    struct nd_chunk_layout layout;
    do {
        int cut = (int)(next_random(random) % (uint64_t)stored->dataset.rank);
        stored->chunk = stored->dataset;
        for (int i = 0; i < cut; i++)
            stored->chunk.dims[i] = 1;
        stored->chunk.dims[cut] = 1 + (int64_t)(next_random(random) % (uint64_t)stored->dataset.dims[cut]);
        assert_int_equal(nd_chunk_layout_from_dims(&stored->dataset, &stored->chunk, 1, &layout, NULL), ND_OK);
    } while (layout.n_chunks > 500);
}

static void make_random(struct stored *stored, uint64_t *random)
{
    static const enum nd_dtype dtypes[] = {ND_DTYPE_U8,  ND_DTYPE_I4,     ND_DTYPE_F16,
                                           ND_DTYPE_F32, ND_DTYPE_F8E5M2, ND_DTYPE_F64};
    *stored = (struct stored){.dtype = dtypes[next_random(random) % 6],
                              .dataset = {.rank = 1 + (int)(next_random(random) % 5)}};
    size_t n = 1;
    for (int i = 0; i < stored->dataset.rank; i++) {
        int64_t most = n > 20000 ? 1 : next_random(random) % 3 == 0 ? 40 : 7;
        stored->dataset.dims[i] = 1 + (int64_t)(next_random(random) % (uint64_t)most);
        n *= (size_t)stored->dataset.dims[i];
    }
    uint64_t kind = next_random(random) % 8;
    if (kind > 0) {
        cut_random(stored, random);
        stored->is_shuffled = (kind & 1) != 0;
        stored->deflate = (kind & 2) != 0 ? 1 + (int)(next_random(random) % 9) : 0;
    }
    fill(stored, random);
}

/* Against files that libhdf5 filtered and padded, with one scratch for all of them. */
static void view_of_random_storage_shows_every_range(void **state)
{
    (void)state;
    uint64_t random = seed_of_run();
    struct nd_view_scratch scratch = {0};
    size_t n_contiguous = 0, n_cut = 0, n_shared = 0, n_padded = 0;
    char *path = in_folder("random.h5");
    for (int round = 0; round < 120; round++) {
        struct stored stored;
        make_random(&stored, &random);
        write_capture(path, &stored);
        struct nd_capture *capture = open_ok(path);
        const struct nd_index_object *object = capture->probes[0].tensors[0].outputs;
        n_contiguous += object->chunks == NULL;
        n_cut += object->layout.chunks_per_sample > 1;
        n_shared += object->layout.samples_per_chunk > 1;
        n_padded += object->chunks != NULL && object->n_bytes % object->layout.chunk_bytes != 0;
        assert_int_equal(nd_capture_outputs_chunk_bytes(FIRST(capture)),
                         object->chunks != NULL ? object->layout.chunk_bytes : 0);
        unsigned char *read = malloc(stored.n_bytes);
        assert_non_null(read);
        expect_ok(nd_capture_read_outputs(&(struct nd_probe_values){capture, 0, 0}, 0,
                                          (size_t)stored.dataset.dims[0], read, NULL),
                  NULL);
        assert_memory_equal(read, stored.data, stored.n_bytes);
        check_ranges(capture, &stored, &random, &scratch);
        free(read);
        free(stored.data);
        nd_capture_close(&capture);
    }
    print_message("# %zu contiguous, %zu cut, %zu shared, %zu padded\n", n_contiguous, n_cut, n_shared,
                  n_padded);
    assert_true(n_contiguous > 3 && n_cut > 20 && n_shared > 20 && n_padded > 20);
    nd_view_scratch_deinit(&scratch);
    free(path);
}

/* 6 samples of 40 x 25 int16, cut into chunks of 15 rows: 750, 750 and 500 bytes of each 2000. */
static void make_cut(struct stored *stored, bool is_shuffled, int deflate)
{
    uint64_t random = 11;
    *stored = (struct stored){.dtype = ND_DTYPE_I16,
                              .dataset = {3, {6, 40, 25}},
                              .chunk = {3, {1, 15, 25}},
                              .is_shuffled = is_shuffled,
                              .deflate = deflate};
    fill(stored, &random);
}

static void view_copies_only_what_it_must(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_view_scratch scratch = {0};
    struct stored stored;
    const unsigned char *view, *again;
    char *path = in_folder("copies.h5");
    make_cut(&stored, false, 0);
    write_capture(path, &stored);
    struct nd_capture *capture = open_ok(path);
    expect_ok(nd_capture_view_outputs(FIRST(capture), 760, 700, &scratch, &view, &err), &err);
    assert_int_equal(scratch.bytes_capacity, 700); /* of the second chunk, and no more of it */
    assert_null(scratch.chunk);
    expect_ok(nd_capture_view_outputs(FIRST(capture), 740, 700, &scratch, &view, &err), &err);
    assert_ptr_equal(view, scratch.bytes); /* of two chunks */
    nd_capture_close(&capture);
    free(stored.data);

    make_cut(&stored, true, 6);
    write_capture(path, &stored);
    capture = open_ok(path);
    expect_ok(nd_capture_view_outputs(FIRST(capture), 2000, 300, &scratch, &view, &err), &err);
    expect_ok(nd_capture_view_outputs(FIRST(capture), 2300, 450, &scratch, &again, &err), &err);
    assert_ptr_equal(again, view + 300); /* the chunk was kept */
    assert_memory_equal(again, stored.data + 2300, 450);
    check_range(capture, &stored, 0, stored.n_bytes, &scratch);
    assert_int_equal(scratch.bytes_capacity, stored.n_bytes);
    assert_int_equal(scratch.chunk_capacity, 750);
    assert_int_equal(scratch.decoder.shuffled_capacity, 750);
    nd_capture_close(&capture);
    free(stored.data);
    nd_view_scratch_deinit(&scratch);
    assert_null(scratch.chunk);
    free(path);
}

static void view_of_digests_only_is_refused(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_view_scratch scratch = {0};
    const unsigned char *view = NULL;
    char *path = in_folder("digests.h5");
    const struct stored stored = {.dtype = ND_DTYPE_U8, .dataset = {2, {3, 4}}};
    write_capture(path, &stored);
    struct nd_capture *capture = open_ok(path);
    assert_int_equal(nd_capture_view_outputs(FIRST(capture), 0, 1, &scratch, &view, &err), ND_ERR_NOT_FOUND);
    assert_null(view);
    assert_int_equal(nd_capture_outputs_chunk_bytes(FIRST(capture)), 0);
    assert_false(nd_capture_is_stored_alike(FIRST(capture), FIRST(capture), 0, 1, &scratch, &scratch));
    nd_capture_close(&capture);
    free(path);
}

/* One byte of the file at the chunk's middle. */
static void damage_chunk(const char *path, const struct nd_capture *capture, size_t chunk)
{
    const struct nd_index_chunk *at = &capture->probes[0].tensors[0].outputs->chunks[chunk];
    unsigned char byte = 0;
    off_t offset = (off_t)(at->offset + at->stored_bytes / 2);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, offset) == 1);
    byte ^= 0x20;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static void chunk_damaged_is_an_error_of_its_own_ranges_only(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_view_scratch scratch = {0};
    struct stored stored;
    const unsigned char *view = NULL;
    char *path = in_folder("damaged.h5");
    make_cut(&stored, false, 6); /* inflated in place: what failed has overwritten what was kept */
    write_capture(path, &stored);
    struct nd_capture *capture = open_ok(path);
    damage_chunk(path, capture, 4); /* bytes 750..1499 of sample 1 */
    check_range(capture, &stored, 2000, 750, &scratch);
    for (int i = 0; i < 2; i++) { /* what was decoded of it is not taken for the chunk the second time */
        assert_int_equal(nd_capture_view_outputs(FIRST(capture), 2800, 9, &scratch, &view, &err),
                         ND_ERR_FORMAT);
        assert_int_equal(err.id, 611);
        assert_non_null(strstr(err.message, "chunk 4 of '/probes/p/outputs/x'"));
    }
    check_range(capture, &stored, 2000, 750, &scratch);
    assert_int_equal(nd_capture_view_outputs(FIRST(capture), 0, stored.n_bytes, &scratch, &view, &err),
                     ND_ERR_FORMAT);
    assert_null(view);
    check_range(capture, &stored, 2000, 750, &scratch);
    check_range(capture, &stored, 3500, 6000, &scratch);
    nd_capture_close(&capture);
    nd_view_scratch_deinit(&scratch);
    free(stored.data);
    free(path);
}

/* Alike over these bytes; asked in both directions. */
static bool is_alike(const struct nd_capture *a, const struct nd_capture *b, size_t first, size_t n)
{
    struct nd_view_scratch of_a = {0}, of_b = {0};
    bool is = nd_capture_is_stored_alike(FIRST(a), FIRST(b), first, n, &of_a, &of_b);
    assert_int_equal(nd_capture_is_stored_alike(FIRST(b), FIRST(a), first, n, &of_b, &of_a), is);
    nd_view_scratch_deinit(&of_a);
    nd_view_scratch_deinit(&of_b);
    return is;
}

static void alike_is_told_of_equal_chunks_only(void **state)
{
    (void)state;
    struct stored stored;
    char *path_a = in_folder("alike_a.h5"), *path_b = in_folder("alike_b.h5");
    make_cut(&stored, true, 6);
    write_capture(path_a, &stored);
    write_capture(path_b, &stored);
    struct nd_capture *a = open_ok(path_a), *b = open_ok(path_b);
    assert_true(is_alike(a, b, 0, 12000));
    assert_true(is_alike(a, b, 1234, 1));
    assert_false(is_alike(a, b, 0, 0));
    assert_false(is_alike(a, b, 0, 12001));
    assert_false(is_alike(a, b, SIZE_MAX, 2));
    nd_capture_close(&b);
    /* Every byte of the tensor in turn: its chunk is another one, its neighbours are not. */
    for (size_t i = 0; i < 12000; i += 149) {
        stored.data[i] ^= 1;
        write_capture(path_b, &stored);
        stored.data[i] ^= 1;
        b = open_ok(path_b);
        size_t start = i / 2000 * 2000 + i % 2000 / 750 * 750;
        size_t end = start % 2000 == 1500 ? start + 500 : start + 750;
        assert_false(is_alike(a, b, 0, 12000));
        assert_false(is_alike(a, b, i, 1));
        assert_false(is_alike(a, b, start, 1));
        assert_false(is_alike(a, b, end - 1, 1));
        assert_true(start == 0 || is_alike(a, b, 0, start));
        assert_true(end == 12000 || is_alike(a, b, end, 12000 - end));
        nd_capture_close(&b);
    }
    b = open_ok(path_a);
    assert_true(is_alike(a, b, 0, 12000));
    nd_capture_close(&a);
    nd_capture_close(&b);
    free(stored.data);
    free(path_a);
    free(path_b);
}

/* The same data, stored in another way: nothing is said. */
static void alike_is_not_told_of_other_storage(void **state)
{
    (void)state;
    struct stored stored;
    char *path_a = in_folder("ways_a.h5"), *path_b = in_folder("ways_b.h5");
    make_cut(&stored, true, 6);
    write_capture(path_a, &stored);
    struct nd_capture *a = open_ok(path_a);
    for (int method = 0; method < 6; method++) {
        struct stored other = stored;
        if (method == 0)
            other.chunk = (struct nd_shape){.rank = 0};
        else if (method == 1)
            other.chunk.dims[1] = 10;
        else if (method == 2)
            other.is_shuffled = false;
        else if (method == 3)
            other.deflate = 1;
        else if (method == 4)
            other.deflate = 0;
        else
            other.dataset.dims[0] = 5; /* a sample fewer */
        if (method == 0)
            other.is_shuffled = false, other.deflate = 0;
        write_capture(path_b, &other);
        struct nd_capture *b = open_ok(path_b);
        assert_false(is_alike(a, b, 0, 10000));
        assert_false(is_alike(b, b, 0, 10000) &&
                     (method == 0 || method == 4)); /* no deflate, not even with itself */
        nd_capture_close(&b);
    }
    nd_capture_close(&a);
    free(stored.data);
    free(path_a);
    free(path_b);
}

/* Equal bytes in the file are different data when only one side was shuffled. */
static void alike_is_not_told_of_other_filters(void **state)
{
    (void)state;
    uint64_t random = 3;
    struct stored a = {.dtype = ND_DTYPE_I16, .dataset = {2, {2, 50}}, .chunk = {2, {2, 50}}, .deflate = 6};
    char *path_a = in_folder("filters_a.h5"), *path_b = in_folder("filters_b.h5");
    fill(&a, &random);
    struct stored b = a;
    b.is_shuffled = true;
    b.data = malloc(a.n_bytes);
    assert_non_null(b.data);
    nd_unshuffle(a.data, a.n_bytes, 2, b.data);
    write_capture(path_a, &a);
    write_capture(path_b, &b);
    struct nd_capture *of_a = open_ok(path_a), *of_b = open_ok(path_b);
    assert_true(is_alike(of_a, of_a, 0, a.n_bytes));
    assert_false(is_alike(of_a, of_b, 0, a.n_bytes));
    nd_capture_close(&of_a);
    nd_capture_close(&of_b);
    free(a.data);
    free(b.data);
    free(path_a);
    free(path_b);
}

static void file_changed_while_open_is_noticed(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct stored stored;
    char *path = in_folder("changed.h5"), *other = in_folder("changed_other.h5");
    make_cut(&stored, false, 0);
    write_capture(path, &stored);
    write_capture(other, &stored);
    struct nd_capture *capture = open_ok(path);
    expect_ok(nd_capture_check_unchanged(capture, &err), &err);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    const struct timespec later[2] = {info.st_atim,
                                      {info.st_mtim.tv_sec, (info.st_mtim.tv_nsec + 1) % 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
    assert_int_equal(nd_capture_check_unchanged(capture, &err), ND_ERR_IO);
    assert_int_equal(err.id, 721);
    assert_non_null(strstr(err.message, "was changed while it was being read"));
    const struct timespec as_before[2] = {info.st_atim, info.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, as_before, 0), 0);
    expect_ok(nd_capture_check_unchanged(capture, &err), &err);
    assert_int_equal(truncate(path, info.st_size + 1), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, as_before, 0), 0);
    assert_int_equal(nd_capture_check_unchanged(capture, NULL), ND_ERR_IO);
    nd_capture_close(&capture);
    /* A file that takes its name is another one. */
    capture = open_ok(other);
    assert_int_equal(rename(path, other), 0);
    expect_ok(nd_capture_check_unchanged(capture, &err), &err);
    nd_capture_close(&capture);
    free(stored.data);
    free(path);
    free(other);
}

struct viewer {
    const struct nd_capture *capture;
    const struct stored *stored;
    uint64_t random;
    size_t n_wrong;
};

static void *view_many(void *argument)
{
    struct viewer *viewer = argument;
    struct nd_view_scratch scratch = {0};
    for (int i = 0; i < 500; i++) {
        const unsigned char *view = NULL;
        size_t first = next_random(&viewer->random) % viewer->stored->n_bytes;
        size_t n = next_random(&viewer->random) % (viewer->stored->n_bytes - first + 1);
        if (nd_capture_view_outputs(FIRST(viewer->capture), first, n, &scratch, &view, NULL) != ND_OK ||
            memcmp(view, viewer->stored->data + first, n) != 0)
            viewer->n_wrong++;
    }
    nd_view_scratch_deinit(&scratch);
    return NULL;
}

/* Others may shorten a file that is open: an error, and no signal. */
static void file_shortened_while_open_is_an_error(void **state)
{
    (void)state;
    static const int deflate[] = {0, 6};
    for (size_t i = 0; i < 2; i++) {
        struct stored stored;
        struct nd_error err;
        struct nd_view_scratch scratch = {0};
        const unsigned char *view = NULL;
        char *path = in_folder("shortened.h5");
        make_cut(&stored, i > 0, deflate[i]);
        write_capture(path, &stored);
        struct nd_capture *capture = open_ok(path);
        expect_ok(nd_capture_view_outputs(FIRST(capture), 0, 700, &scratch, &view, &err), &err);
        assert_int_equal(truncate(path, 2048), 0);
        assert_int_equal(nd_capture_view_outputs(FIRST(capture), 0, stored.n_bytes, &scratch, &view, &err),
                         ND_ERR_FORMAT);
        assert_int_equal(err.id, ND_E_CAPTURE_TRUNCATED);
        nd_view_scratch_deinit(&scratch);
        nd_capture_close(&capture);
        free(stored.data);
        free(path);
    }
}

static void threads_view_side_by_side(void **state)
{
    (void)state;
    struct stored stored;
    struct viewer viewers[4];
    pthread_t threads[4];
    char *path = in_folder("threads.h5");
    make_cut(&stored, true, 6);
    write_capture(path, &stored);
    struct nd_capture *capture = open_ok(path);
    for (size_t i = 0; i < 4; i++) {
        viewers[i] = (struct viewer){capture, &stored, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, view_many, &viewers[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(viewers[i].n_wrong, 0);
    }
    nd_capture_close(&capture);
    free(stored.data);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(view_of_random_storage_shows_every_range),
        cmocka_unit_test(view_copies_only_what_it_must),
        cmocka_unit_test(view_of_digests_only_is_refused),
        cmocka_unit_test(chunk_damaged_is_an_error_of_its_own_ranges_only),
        cmocka_unit_test(alike_is_told_of_equal_chunks_only),
        cmocka_unit_test(alike_is_not_told_of_other_storage),
        cmocka_unit_test(alike_is_not_told_of_other_filters),
        cmocka_unit_test(file_changed_while_open_is_noticed),
        cmocka_unit_test(file_shortened_while_open_is_an_error),
        cmocka_unit_test(threads_view_side_by_side),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
