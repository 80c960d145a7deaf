/* One digest for all digests of a tensor: what states it, and what believes it. */
#include "support/main.h"

#include <fcntl.h>
#include <unistd.h>

#include "capture/read/capture_internal.h"
#include "capture/read/schema.h"
#include "support/capture_fixture.h"
#include "support/scratch.h"

enum { EMPTY = 5, SOME = 9 }; /* tensors of the fixture: "empty" and "i8" */

static char *written(const char *name)
{
    char *path = in_folder(name);
    fix_write(path, &(struct fix_options){.level = 6, .with_big = true});
    return path;
}

static struct nd_capture *opened(const char *path, bool is_deferred)
{
    struct nd_error err;
    struct nd_capture *capture = NULL;
    fix_ok(is_deferred ? nd_capture_open_deferred(path, &capture, &err) : nd_capture_open(path, &capture, &err),
           &err);
    return capture;
}

/* Flips a bit of the first byte of a dataset of the first probe. */
static void flip(const char *path, const char *part, const char *name)
{
    struct nd_capture *capture = opened(path, false);
    char *object = nd_name_probe_path(fix_probes[0].name, part, name);
    const struct nd_index_object *found = nd_index_find(capture->index, object);
    assert_non_null(found);
    off_t at = (off_t)found->offset;
    unsigned char byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    free(object);
    nd_capture_close(&capture);
}

static void only_what_repeats_and_varies_is_stated(void **state)
{
    (void)state;
    char *path = written("stated.h5");
    struct nd_capture *capture = opened(path, false);
    for (size_t e = 0; e < FIX_TENSORS; e++) {
        bool is_empty = e == EMPTY; /* then all its samples are equal */
        assert_int_equal(nd_capture_tensor_digest(capture, 0, e) != NULL, !is_empty);
        assert_null(nd_capture_tensor_digest(capture, 1, e)); /* two repeats differ, or all samples are equal */
    }
    const struct nd_digest *stated = nd_capture_tensor_digest(capture, 0, SOME);
    struct nd_digest digests[2] = {nd_capture_digest(capture, 0, SOME, 0, 0),
                                   nd_capture_digest(capture, 0, SOME, 1, 0)};
    assert_true(nd_digest_equal(*stated, nd_digest_bytes(digests, sizeof digests)));
    nd_capture_close(&capture);
    free(path);
}

static void digests_that_are_deferred_are_the_same(void **state)
{
    (void)state;
    char *path = written("deferred.h5");
    struct nd_error err;
    struct nd_capture *now = opened(path, false), *later = opened(path, true);
    assert_null(later->probes[0].tensors[SOME].digests);
    assert_non_null(now->probes[0].tensors[SOME].digests);
    assert_non_null(later->probes[1].tensors[SOME].digests); /* not stated */
    for (size_t p = 0; p < FIX_PROBES; p++)
        for (size_t e = 0; e < FIX_TENSORS; e++)
            for (size_t s = 0; s < fix_probes[p].n_samples; s++)
                assert_true(
                    nd_digest_equal(nd_capture_digest(now, p, e, s, 0), nd_capture_digest(later, p, e, s, 0)));
    fix_ok(nd_capture_check_deferred(now, &err), &err);
    fix_ok(nd_capture_check_deferred(later, &err), &err);
    struct nd_capture_verification found = {.struct_size = sizeof found};
    fix_ok(nd_capture_verify(later, &found, &err), &err);
    assert_true(found.content_matches && found.n_wrong == 0);
    nd_capture_close(&now);
    nd_capture_close(&later);
    free(path);
}

static void expect_damaged(const char *path)
{
    struct nd_error err;
    struct nd_capture *capture = NULL;
    struct nd_capture_verification found = {.struct_size = sizeof found};
    assert_int_equal(nd_capture_open(path, &capture, &err), ND_ERR_FORMAT);
    assert_int_equal(err.id, ND_E_CAPTURE_DIGEST);
    fix_ok(nd_capture_open_unchecked(path, &capture, &err), &err);
    fix_ok(nd_capture_verify(capture, &found, &err), &err);
    assert_false(found.content_matches);
    nd_capture_close(&capture);
}

static void damage_of_digests_is_found_when_they_are_read(void **state)
{
    (void)state;
    char *path = written("damaged.h5");
    unsigned char value[64];
    struct nd_error err = {0};
    flip(path, "digests", fix_tensors[SOME].name);
    expect_damaged(path);
    struct nd_capture *capture = opened(path, true);
    assert_true(nd_digest_equal(nd_capture_digest(capture, 0, SOME + 1, 0, 0),
                                nd_capture_digest(capture, 0, SOME + 1, 0, 0)));
    fix_ok(nd_capture_check_deferred(capture, &err), &err);
    assert_true(nd_digest_equal(nd_capture_digest(capture, 0, SOME, 0, 0), (struct nd_digest){0}));
    assert_int_equal(nd_capture_check_deferred(capture, &err), ND_ERR_FORMAT);
    assert_int_equal(err.id, ND_E_CAPTURE_DIGEST);
    err = (struct nd_error){0};
    const struct nd_probe_values tensor = {capture, 0, SOME};
    assert_int_equal(nd_capture_read_verified(&tensor, 0, 1, value, &err), ND_ERR_FORMAT);
    assert_non_null(strstr(err.message, "/digests/"));
    nd_capture_close(&capture);
    free(path);
}

static void wrong_statements_are_damage(void **state)
{
    (void)state;
    char *path = written("wrong.h5");
    struct nd_error err;
    struct nd_capture *capture = NULL;
    flip(path, ND_TENSOR_DIGESTS, NULL);
    expect_damaged(path);
    assert_int_equal(nd_capture_open_deferred(path, &capture, &err), ND_ERR_FORMAT);
    assert_int_equal(err.id, ND_E_CAPTURE_DIGEST);
    free(path);
}

/* One tensor of one sample that was run twice: the second run has this digest, and stored values or none. */
static void write_rerun(const char *path, const unsigned char *second, const unsigned char *stored)
{
    struct nd_error err;
    struct nd_capture_writer *writer = NULL;
    static const unsigned char first[4] = {1, 2, 3, 4};
    static const size_t runs[1][2] = {{0, 1}};
    const struct nd_tensor tensor = {.name = (char *)"x",
                                     .onnx_name = (char *)"x",
                                     .op_types = (char *)"X",
                                     .node = (char *)"n",
                                     .dtype = ND_DTYPE_U8,
                                     .shape = {1, {4}},
                                     .quant = {.axis = -1}};
    const struct nd_capture_probe probe = {
        .name = (char *)"p", .source = (char *)"s", .n_samples = 1, .n_samples_expected = 1, .n_repeats = 1};
    const char *provider = "";
    const struct nd_digest digest = nd_digest_bytes(first, 4), again = nd_digest_bytes(second, 4);
    fix_ok(nd_capture_writer_create(path, true, &writer, &err), &err);
    fix_ok(nd_capture_writer_tensors(writer, &tensor, &provider, 1, &err), &err);
    fix_ok(nd_capture_writer_probe(writer, &probe, &err), &err);
    fix_ok(nd_capture_writer_reruns(writer, &probe, &(struct nd_capture_reruns){runs, 1, 1, &again}, &err),
           &err);
    fix_ok(nd_capture_writer_digests(writer, &probe, &tensor, &digest, &err), &err);
    fix_ok(nd_capture_writer_outputs(writer, &(struct nd_capture_output){.probe = &probe, .tensor = &tensor},
                                     first, &err),
           &err);
    if (stored != NULL)
        fix_ok(nd_capture_writer_repeats(writer, &probe, &tensor, &(struct nd_capture_repeats){runs, 1, stored},
                                         &err),
               &err);
    fix_ok(nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, &err), &err);
    nd_capture_writer_destroy(&writer);
}

/* What compare refuses to read, verify calls wrong: a run whose values are neither stored nor those of the
 * first. */
static void a_rerun_without_its_values_is_wrong(void **state)
{
    (void)state;
    static const unsigned char same[4] = {1, 2, 3, 4}, other[4] = {1, 2, 3, 5};
    static const struct {
        const unsigned char *second, *stored;
        size_t n_wrong;
    } cases[] = {{other, NULL, 1}, {other, same, 1}, {other, other, 0}, {same, NULL, 0}};
    char *path = in_folder("rerun.h5");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nd_error err;
        struct nd_capture_verification found = {.struct_size = sizeof found};
        unsigned char bytes[4];
        write_rerun(path, cases[i].second, cases[i].stored);
        struct nd_capture *capture = opened(path, false);
        fix_ok(nd_capture_verify(capture, &found, &err), &err);
        assert_true(found.content_matches);
        assert_int_equal(found.n_wrong, cases[i].n_wrong);
        enum nd_status status =
            nd_capture_read_repeat_verified(&(struct nd_probe_values){capture, 0, 0}, 0, 1, bytes, &err);
        assert_int_equal(status == ND_OK, cases[i].n_wrong == 0);
        if (cases[i].n_wrong > 0)
            assert_string_equal(found.first_wrong, "probe 'p', tensor 'x', sample 0, repeat 1");
        nd_capture_close(&capture);
    }
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_repeats_and_varies_is_stated),
        cmocka_unit_test(digests_that_are_deferred_are_the_same),
        cmocka_unit_test(damage_of_digests_is_found_when_they_are_read),
        cmocka_unit_test(wrong_statements_are_damage),
        cmocka_unit_test(a_rerun_without_its_values_is_wrong),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
