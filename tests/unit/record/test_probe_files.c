/* User data: good files against the oracle, bad files against their error, and mutated files against crashes.
 */
#include "support/main.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/probe_cases.h"

static const struct nd_probe_target pair[] = {
    {"a", ND_DTYPE_F32, {1, {3}}, NULL, ND_DTYPE_NONE},
    {"b", ND_DTYPE_U8, {1, {1}}, NULL, ND_DTYPE_NONE},
};
static const struct nd_probe_target single = {"x", ND_DTYPE_F32, {2, {2, 3}}, NULL, ND_DTYPE_NONE};
static const struct nd_probe_target flag = {"f", ND_DTYPE_BOOL, {0, {0}}, NULL, ND_DTYPE_NONE};
static const struct nd_probe_target brain = {"x", ND_DTYPE_BF16, {2, {2, 3}}, NULL, ND_DTYPE_NONE};

/* "NAME=PATH[,labels=PATH]" with both paths put under the golden folder `under`. New memory. */
static char *place_spec(const char *spec, const char *under)
{
    char *folder = golden_path(under), *text = nd_strdup(spec), *placed = nd_calloc(4096, 1);
    char *path = strchr(text, '='), *labels = strstr(text, ",labels=");
    *path++ = '\0';
    if (labels != NULL) {
        *labels = '\0';
        snprintf(placed, 4096, "%s=%s/%s,labels=%s/%s", text, folder, path, folder, labels + 8);
    } else {
        snprintf(placed, 4096, "%s=%s/%s", text, folder, path);
    }
    free(folder);
    free(text);
    return placed;
}

static void file_good_gives_the_oracle_bytes(void **state)
{
    (void)state;
    json_t *cases = load_cases("oracle/probe/files.json");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *expected = json_array_get(cases, i);
        struct case_targets targets;
        struct nd_probe *probe = NULL;
        struct nd_error err = {0};
        read_targets(json_object_get(expected, "targets"), &targets);
        char *spec = place_spec(json_string_value(json_object_get(expected, "spec")), "oracle/probe/files");
        if (nd_probe_create(spec, targets.items, targets.n, &probe, &err) != ND_OK)
            fail_msg("%s: ND-%d %s", spec, err.id, err.message);
        check_probe(expected, &targets, probe);
        assert_string_equal(probe->source, strchr(spec, '=') + 1);
        nd_probe_destroy(&probe);
        free(spec);
        targets_deinit(&targets);
    }
    json_decref(cases);
}

static struct nd_error refuse(const char *spec, const struct nd_probe_target *targets, size_t n)
{
    struct nd_probe *probe = NULL;
    struct nd_error err = {0};
    enum nd_status status = nd_probe_create(spec, targets, n, &probe, &err);
    if (status == ND_OK)
        fail_msg("'%s' was accepted", spec);
    assert_null(probe);
    assert_int_equal(status, err.status);
    return err;
}

/* What each bad file must say: the id and words of the message. */
static const struct bad {
    const char *path;
    const struct nd_probe_target *targets;
    size_t n_targets;
    enum nd_error_id id;
    const char *words;
} bads[] = {
    {"nowhere.npy", &single, 1, ND_E_FILE_OPEN, "nowhere.npy"},
    {"nowhere.npz", &single, 1, ND_E_FILE_OPEN, "nowhere.npz"},
    {"nowhere", &single, 1, ND_E_FILE_OPEN, "nowhere"},
    {"empty.npy", &single, 1, ND_E_FILE_SHORT, "0 bytes"},
    {"not-npy.npy", &single, 1, ND_E_PROBE_FORMAT, "not a .npy file"},
    {"only-magic.npy", &single, 1, ND_E_FILE_SHORT, "ends after 8 bytes"},
    {"cut-header.npy", &single, 1, ND_E_FILE_SHORT, "ends after"},
    {"cut-data.npy", &single, 1, ND_E_FILE_SHORT, "float32 of shape (4, 2, 3) takes 96 bytes, 95 are there"},
    {"trailing.npy", &single, 1, ND_E_PROBE_FORMAT, "longer than its header says"},
    {"version-4.npy", &single, 1, ND_E_PROBE_FORMAT, "version 4.0"},
    {"header-65537.npy", &single, 1, ND_E_PROBE_FORMAT, "header of 65537 bytes"},
    {"header-4g.npy", &single, 1, ND_E_PROBE_FORMAT, "header of 4294967295 bytes"},
    {"header-zero.npy", &single, 1, ND_E_PROBE_FORMAT, "cannot be understood"},
    {"dict-no-shape.npy", &single, 1, ND_E_PROBE_FORMAT, "cannot be understood"},
    {"dict-number.npy", &single, 1, ND_E_PROBE_FORMAT, "cannot be understood at byte 0"},
    {"dict-nothing.npy", &single, 1, ND_E_PROBE_FORMAT, "cannot be understood"},
    {"dict-twice.npy", &single, 1, ND_E_PROBE_FORMAT, "cannot be understood"},
    {"dict-extra-key.npy", &single, 1, ND_E_PROBE_FORMAT, "cannot be understood"},
    {"dict-rest.npy", &single, 1, ND_E_PROBE_FORMAT, "cannot be understood"},
    {"dict-no-tuple.npy", &single, 1, ND_E_PROBE_FORMAT, "cannot be understood"},
    {"dict-negative.npy", &single, 1, ND_E_PROBE_FORMAT, "cannot be understood"},
    {"dict-open-list.npy", &single, 1, ND_E_PROBE_FORMAT, "cannot be understood"},
    {"dict-too-large.npy", &single, 1, ND_E_PROBE_FORMAT, "cannot be understood"},
    {"dict-huge.npy", &single, 1, ND_E_PROBE_FORMAT, "no memory can hold"},
    {"dict-billions.npy", &single, 1, ND_E_FILE_SHORT, "takes 96000000000 bytes, 96 are there"},
    {"dict-ten-dims.npy", &single, 1, ND_E_PROBE_SHAPE, "10 dimensions"},
    {"object.npy", &single, 1, ND_E_PROBE_TYPE, "input 'x' is an object array ('|O', a pickle)"},
    {"structured.npy", &single, 1, ND_E_PROBE_TYPE, "a structured type, expected float32"},
    {"complex.npy", &single, 1, ND_E_PROBE_TYPE, "'<c8', expected float32"},
    {"float64.npy", &single, 1, ND_E_PROBE_TYPE, "float64.npy' for input 'x' is float64, expected float32"},
    {"int32.npy", &single, 1, ND_E_PROBE_TYPE, "is int32, expected float32"},
    {"two-samples.npy", &brain, 1, ND_E_PROBE_TYPE, "expected bfloat16"},
    {"shape.npy", &single, 1, ND_E_PROBE_SHAPE, "has shape (4, 3, 2), expected samples of shape (2, 3)"},
    {"flat.npy", &single, 1, ND_E_PROBE_SHAPE, "has shape (24,), expected samples of shape (2, 3)"},
    {"no-samples.npy", &single, 1, ND_E_PROBE_SHAPE, "no samples (shape (0, 2, 3))"},
    {"bool-2.npy", &flag, 1, ND_E_PROBE_FORMAT, "bool 2 at element 2"},
    {"two-samples.npy", pair, 2, ND_E_PROBE_INPUT, "the model has 2 inputs"},
    {"lacks-b.npz", pair, 2, ND_E_PROBE_INPUT, "no array for input 'b'; it has 'a'"},
    {"extra.npz", pair, 2, ND_E_PROBE_FORMAT, "array 'c' of"},
    {"type.npz", pair, 2, ND_E_PROBE_TYPE, "for input 'b' is int8, expected uint8"},
    {"shape.npz", pair, 2, ND_E_PROBE_SHAPE, "for input 'a' has shape (2, 2), expected samples of shape (3,)"},
    {"unequal.npz", pair, 2, ND_E_PROBE_SHAPE, "has 1 samples, but array 'a'"},
    {"object.npz", pair, 2, ND_E_PROBE_TYPE, "a pickle"},
    {"labels-short.npz", pair, 2, ND_E_PROBE_LABELS, "1 labels for 2 samples"},
    {"labels-float.npz", pair, 2, ND_E_PROBE_LABELS, "is float64, expected an integer type"},
    {"labels-2d.npz", pair, 2, ND_E_PROBE_LABELS, "shape (2, 1)"},
    {"labels-large.npz", pair, 2, ND_E_PROBE_LABELS, "label above 9223372036854775807 at element 1"},
    {"labels-two.npz", pair, 2, ND_E_PROBE_LABELS, "two arrays of labels: 'labels' and 'y'"},
    {"cut.npz", pair, 2, ND_E_PROBE_FORMAT, "not a .npz file, or a damaged one"},
    {"no-zip.npz", pair, 2, ND_E_PROBE_FORMAT, "not a .npz file, or a damaged one"},
    {"empty.npz", pair, 2, ND_E_FILE_SHORT, "empty"},
    {"damaged.npz", pair, 2, ND_E_PROBE_FORMAT, "array 'a' of"},
    {"checksum.npz", pair, 2, ND_E_PROBE_FORMAT, "CRC"},
    {"bomb.npz", pair, 2, ND_E_PROBE_FORMAT, "claims 1073741824 bytes"},
    {"encrypted.npz", pair, 2, ND_E_PROBE_FORMAT, "'a.npy' is encrypted"},
    {"lzma.npz", pair, 2, ND_E_PROBE_FORMAT, "compression method 14"},
    {"member.npz", pair, 2, ND_E_PROBE_FORMAT, "'notes.txt', which is not a .npy array"},
    {"doubled.npz", pair, 2, ND_E_PROBE_FORMAT, "'a' twice"},
    {"cut-member.npz", pair, 2, ND_E_FILE_SHORT, "takes 24 bytes, 20 are there"},
    {"list-missing.txt", pair, 2, ND_E_FILE_OPEN, "line 1 of"},
    {"list-unknown.txt", pair, 2, ND_E_PROBE_FORMAT, "no input 'c'"},
    {"list-bare.txt", pair, 2, ND_E_PROBE_FORMAT, "INPUT:=PATH"},
    {"list-lacks.txt", pair, 2, ND_E_PROBE_INPUT, "no data for input 'b'"},
    {"list-twice.txt", pair, 2, ND_E_PROBE_FORMAT, "second data for input 'a'"},
    {"list-surplus.txt", pair, 1, ND_E_PROBE_FORMAT, "second data for input 'a'"},
    {"list-empty.txt", pair, 2, ND_E_PROBE_SHAPE, "no samples"},
    {"list-size.txt", pair, 2, ND_E_PROBE_SHAPE, "has 11 bytes, expected 12: float32 3"},
    {"list-kind.txt", pair, 2, ND_E_PROBE_FORMAT, "none of .npy, .raw and .bin"},
    {"list-zero.txt", pair, 2, ND_E_PROBE_FORMAT, "zero byte"},
    {"list-two.txt", pair, 2, ND_E_PROBE_TYPE, "for input 'b'"},
    {"foreign", pair, 2, ND_E_PROBE_FORMAT, "'README.txt', which is neither"},
    {"half", pair, 2, ND_E_PROBE_INPUT, "no array for input 'b'"},
    {"half/", pair + 1, 1, ND_E_PROBE_TYPE, "for input 'b'"},
    {"many", pair, 1, ND_E_PROBE_SHAPE, "holds 2 samples of input 'a', expected one"},
    {"many", pair, 2, ND_E_PROBE_INPUT, "the model has 2 inputs"},
    {"labels-only", pair, 2, ND_E_PROBE_INPUT, "labels, but no samples"},
    {"some-labels", pair, 2, ND_E_PROBE_LABELS, "1 labels for 2 samples"},
    {"zipped", pair, 2, ND_E_PROBE_INPUT, "no array for input 'b'"},
};

static void file_bad_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        char spec[256];
        snprintf(spec, sizeof spec, "set=%s", bads[i].path);
        char *placed = place_spec(spec, "bad/probes");
        struct nd_error err = refuse(placed, bads[i].targets, bads[i].n_targets);
        if (err.id != (int)bads[i].id || strstr(err.message, bads[i].words) == NULL)
            fail_msg("'%s' gave ND-%d: %s", bads[i].path, err.id, err.message);
        /* The file's name stands in every message. */
        if (strstr(err.message, bads[i].path) == NULL && strstr(err.message, "labels for 2 samples") == NULL)
            fail_msg("'%s' is not named in: %s", bads[i].path, err.message);
        free(placed);
    }
}

static void labels_apart_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *labels;
        enum nd_error_id id;
    } rows[] = {
        {"nowhere.npy", ND_E_FILE_OPEN},
        {"nowhere.npz", ND_E_FILE_OPEN},
        {"float64.npy", ND_E_PROBE_LABELS},
        {"int32.npy", ND_E_PROBE_LABELS},
        {"labels-two.npz", ND_E_PROBE_LABELS},
        {"extra.npz", ND_E_PROBE_LABELS},
        {"labels-only/labels.npy", ND_E_PROBE_LABELS}, /* 2 labels, 4 samples */
        {"list-empty.txt", ND_E_PROBE_FORMAT},
        {"object.npy", ND_E_PROBE_LABELS},
        {"half", ND_E_FILE_READ},
        {"cut-data.npy", ND_E_FILE_SHORT},
    };
    char *data = golden_path("oracle/probe/files/c.npy");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char spec[4096];
        char *bad = golden_path("bad/probes");
        snprintf(spec, sizeof spec, "set=%s,labels=%s/%s", data, bad, rows[i].labels);
        struct nd_error err = refuse(spec, &single, 1);
        if (err.id != (int)rows[i].id)
            fail_msg("'%s' gave ND-%d: %s", rows[i].labels, err.id, err.message);
        free(bad);
    }
    free(data);
}

static void labels_apart_pass_over_those_in_the_data(void **state)
{
    (void)state;
    struct nd_probe *probe = NULL;
    char *spec = place_spec("set=labels-float.npz,labels=labels-only/labels.npy", "bad/probes");
    assert_int_equal(nd_probe_create(spec, pair, 2, &probe, NULL), ND_OK);
    assert_int_equal(probe->labels[0], 1);
    assert_int_equal(probe->labels[1], 2);
    nd_probe_destroy(&probe);
    free(spec);
}

static void label_name_of_an_input_is_that_input(void **state)
{
    (void)state;
    /* "label" is the input here, and so the other array is one too many. */
    const struct nd_probe_target label = {"label", ND_DTYPE_U64, {0, {0}}, NULL, ND_DTYPE_NONE};
    char *spec = place_spec("set=renamed.npz", "oracle/probe/files");
    struct nd_error err = refuse(spec, &label, 1);
    assert_int_equal(err.id, ND_E_PROBE_FORMAT);
    assert_non_null(strstr(err.message, "'anything'"));
    free(spec);
}

static void file_that_is_no_regular_file_is_refused(void **state)
{
    (void)state;
    char *dir = NULL;
    assert_int_equal(nd_dir_make_temporary(&dir, NULL), ND_OK);
    char spec[4096];
    snprintf(spec, sizeof spec, "set=%s", dir);
    assert_int_equal(refuse(spec, &single, 1).id, ND_E_PROBE_INPUT); /* an empty folder */
    snprintf(spec, sizeof spec, "set=%s/pipe.npy", dir);
    assert_int_equal(mkfifo(strchr(spec, '=') + 1, 0600), 0);
    assert_int_equal(refuse(spec, &single, 1).id, ND_E_FILE_READ);
    snprintf(spec, sizeof spec, "set=%s/pipe.npz", dir);
    assert_int_equal(mkfifo(strchr(spec, '=') + 1, 0600), 0);
    assert_int_equal(refuse(spec, &single, 1).id, ND_E_FILE_READ);
    nd_dir_remove(dir);
    free(dir);
}

/* ---- Mutations ---- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Overwrites, flips, cuts, repeats or removes bytes; returns the new length, at most n + 64. */
static size_t mutate(unsigned char *data, size_t n, uint64_t *random)
{
    static const unsigned char odd[] = {0x00, 0xff, 0x7f, 0x80, '(', ')', '\'', ',', '9', '-', '[', '}'};
    size_t n_changes = 1 + next_random(random) % 4;
    for (size_t i = 0; i < n_changes && n > 1; i++) {
        size_t at = next_random(random) % n, length = next_random(random) % 32;
        if (length > n - at)
            length = n - at;
        switch (next_random(random) % 8) {
        case 0:
            n = at;
            break;
        case 1:
            memmove(data + at, data + at + length, n - at - length);
            n -= length;
            break;
        case 2:
            data[at] = (unsigned char)next_random(random);
            break;
        case 3:
            memset(data + at, odd[next_random(random) % sizeof odd], length);
            break;
        case 4:
            memmove(data + next_random(random) % (n - length + 1), data + at, length);
            break;
        case 5:
            data[at] ^= (unsigned char)(1u << next_random(random) % 8);
            break;
        default:
            data[at] = odd[next_random(random) % sizeof odd];
        }
    }
    return n;
}

/* Reads n_mutations of one golden file under the extension; returns how many were refused. */
static size_t fuzz(const char *name, const char *extension, const struct case_targets *targets,
                   size_t n_mutations, uint64_t *random)
{
    char *golden = golden_path(name), *dir = NULL, spec[4096];
    void *original = NULL;
    size_t n = 0, n_refused = 0;
    assert_int_equal(nd_file_read(golden, 1 << 20, &original, &n, NULL), ND_OK);
    assert_int_equal(nd_dir_make_temporary(&dir, NULL), ND_OK);
    snprintf(spec, sizeof spec, "fuzz=%s/mutated%s", dir, extension);
    unsigned char *mutated = nd_calloc(n, 1);
    for (size_t i = 0; i < n_mutations; i++) {
        struct nd_probe *probe = NULL;
        struct nd_error err = {0};
        memcpy(mutated, original, n);
        size_t length = mutate(mutated, n, random);
        FILE *file = fopen(strchr(spec, '=') + 1, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(mutated, 1, length, file), length);
        assert_int_equal(fclose(file), 0);
        if (nd_probe_create(spec, targets->items, targets->n, &probe, &err) != ND_OK) {
            n_refused++;
            assert_null(probe);
            assert_true(err.id > 0 && err.message[0] != '\0');
        } else {
            assert_in_range(probe->n_samples, 1, 1000);
        }
        nd_probe_destroy(&probe);
    }
    nd_dir_remove(dir);
    free(mutated);
    free(original);
    free(golden);
    free(dir);
    return n_refused;
}

static void file_mutated_is_read_or_refused_without_harm(void **state)
{
    (void)state;
    const char *given = getenv("ND_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 20240607;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    uint64_t random = seed * 2 + 1;
    struct case_targets one = {.items = {single}, .n = 1};
    const struct nd_probe_target other[] = {{"b/in", ND_DTYPE_F32, {1, {1}}, NULL, ND_DTYPE_NONE},
                                            {"a", ND_DTYPE_U8, {2, {1, 6}}, NULL, ND_DTYPE_NONE}};
    struct case_targets two = {.items = {other[0], other[1]}, .n = 2};
    size_t n_refused = fuzz("oracle/probe/files/big-fortran.npy", ".npy", &one, 700, &random) +
                       fuzz("oracle/probe/files/v3.npy", ".npy", &one, 300, &random) +
                       fuzz("oracle/probe/files/pair.npz", ".npz", &two, 500, &random) +
                       fuzz("oracle/probe/files/pair-deflated.npz", ".npz", &two, 500, &random) +
                       fuzz("oracle/probe/files/list.txt", ".txt", &two, 100, &random);
    assert_in_range(n_refused, 1000, 2099);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_good_gives_the_oracle_bytes),
        cmocka_unit_test(file_bad_is_refused_by_name),
        cmocka_unit_test(labels_apart_that_do_not_fit_are_refused),
        cmocka_unit_test(labels_apart_pass_over_those_in_the_data),
        cmocka_unit_test(label_name_of_an_input_is_that_input),
        cmocka_unit_test(file_that_is_no_regular_file_is_refused),
        cmocka_unit_test(file_mutated_is_read_or_refused_without_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
