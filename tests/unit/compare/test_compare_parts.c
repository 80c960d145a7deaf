/* A comparison that was cut into parts and put together again is the comparison; other parts are refused. */
#include "support/main.h"

#include <stdio.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "npudiff/report/report.h"
#include "support/fleet_compare.h"
#include "support/scratch.h"

enum { MAX_PARTS = 6 };

static uint16_t halves[FLEET_SAMPLES * FLEET_CLASSES];

/* Two probes, of which the second has fewer samples; integers, floats, a pair of other types, NaN, labels. */
static void start(struct fleet *f, uint64_t *seed)
{
    static const char *const digests[N_MAX] = {"d0", "d1", "d2", "d3"};
    fleet_start(f, 4);
    f->options.n_worst = 3;
    f->options.ulp_in = ND_DTYPE_BF16;
    f->options.all_pairs = true;
    for (size_t c = 0; c < f->n; c++) {
        struct nd_capture *capture = f->captures[c];
        fleet_set_attr(capture, "", "content_digest", digests[c]);
        capture->probes[1] = capture->probes[0];
        capture->probes[1].name = (char *)(uintptr_t) "zeros";
        capture->probes[1].n_samples = capture->probes[1].n_samples_expected = 3;
        capture->n_probes = 2;
        memcpy(capture->outputs[1], capture->outputs[0], sizeof capture->outputs[0]);
        for (size_t k = 0; k < 20 * c; k++) {
            size_t probe = below(seed, 2), i = below(seed, 24 * 3);
            capture->outputs[probe][FLEET_CONV][i] += (unsigned char)below(seed, 4);
            fleet_set_qvalue(capture, below(seed, FLEET_SAMPLES), below(seed, FLEET_CLASSES),
                             (int16_t)below(seed, 700));
            fleet_set_score(capture, below(seed, FLEET_SAMPLES), below(seed, FLEET_CLASSES),
                            k == 7 ? NAN : (float)below(seed, 100) / 100);
        }
    }
    for (size_t i = 0; i < FLEET_SAMPLES * FLEET_CLASSES; i++)
        halves[i] = (uint16_t)(0x2c00 + below(seed, 0x1000));
    f->captures[3]->tensors[FLEET_SCORES].dtype = ND_DTYPE_F16;
    f->captures[3]->large[0][FLEET_SCORES] = f->captures[3]->large[1][FLEET_SCORES] = (unsigned char *)halves;
}

static char *report(struct fleet *f)
{
    char *text = NULL;
    assert_int_equal(nd_report_json(fleet_compare(f), &text, NULL), ND_OK);
    return text;
}

static char *make_part(struct fleet *f, enum nd_cut cut, size_t part, size_t n_parts)
{
    struct nd_compare_options saved = f->options;
    char *text = NULL;
    f->options.cut = cut;
    f->options.part = part;
    f->options.n_parts = n_parts;
    f->options.n_threads = 1 + part % 3;
    assert_int_equal(nd_compare_part_format(fleet_compare(f), &text, NULL), ND_OK);
    f->options = saved;
    return text;
}

static char *write_text(const char *name, const char *text)
{
    char *path = in_folder(name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

struct files {
    size_t n;
    char *paths[MAX_PARTS];
};

/* In an order that is not theirs. */
static struct files write_parts(struct fleet *f, enum nd_cut cut, size_t n_parts)
{
    struct files files = {.n = n_parts};
    for (size_t i = 0; i < n_parts; i++) {
        char name[32];
        char *text = make_part(f, cut, (i + 1) % n_parts, n_parts);
        snprintf(name, sizeof name, "part%zu.json", i);
        files.paths[i] = write_text(name, text);
        free(text);
    }
    return files;
}

static void free_files(struct files *files)
{
    for (size_t i = 0; i < files->n; i++)
        free(files->paths[i]);
}

static enum nd_status read_files(const struct files *files, struct nd_parts **parts, struct nd_error *err)
{
    return nd_parts_read((const char *const *)files->paths, files->n, parts, err);
}

static void merged_parts_are_the_whole(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    start(&f, &seed);
    char *whole = report(&f);
    size_t n_whole[8] = {0};
    for (size_t c = 0; c < f.n; c++)
        n_whole[c] = f.captures[c]->n_bytes_read;
    for (size_t run = 0; run < 12; run++) {
        struct nd_parts *parts = NULL;
        struct nd_error err = {0};
        enum nd_cut cut = run % 2 == 0 ? ND_CUT_TENSORS : ND_CUT_SAMPLES;
        struct files files = write_parts(&f, cut, 1 + run / 2);
        if (read_files(&files, &parts, &err) != ND_OK)
            fail_msg("%s", err.message);
        for (size_t c = 0; c < f.n; c++)
            f.captures[c]->n_bytes_read = 0;
        f.options.merge = parts;
        char *merged = report(&f);
        assert_string_equal(merged, whole);
        /* Fewer than the whole: nothing but a wrong tensor once more, where its samples are told apart by size
         * (predicates.h). */
        for (size_t c = 0; c < f.n; c++)
            assert_in_range(f.captures[c]->n_bytes_read, 0, n_whole[c] - 1);
        f.options.merge = NULL;
        free(merged);
        nd_parts_destroy(&parts);
        free_files(&files);
    }
    free(whole);
    fleet_stop(&f);
}

static void merged_parts_of_digests_are_the_whole(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    start(&f, &seed);
    f.captures[1]->digest_only = f.captures[3]->digest_only = true;
    f.captures[2]->probes[0].n_samples = 3; /* it stopped early */
    f.captures[2]->state = ND_CAPTURE_PARTIAL;
    char *whole = report(&f);
    struct nd_parts *parts = NULL;
    struct files files = write_parts(&f, ND_CUT_SAMPLES, 3);
    assert_int_equal(read_files(&files, &parts, NULL), ND_OK);
    f.options.merge = parts;
    char *merged = report(&f);
    assert_string_equal(merged, whole);
    free(merged);
    free(whole);
    nd_parts_destroy(&parts);
    free_files(&files);
    fleet_stop(&f);
}

/* The same part, whoever makes it. */
static void part_does_not_depend_on_threads(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    start(&f, &seed);
    for (size_t part = 0; part < 2; part++) {
        char *first = make_part(&f, ND_CUT_SAMPLES, part, 2);
        for (size_t c = 0; c < f.n; c++)
            f.captures[c]->chunk_bytes[FLEET_CONV] = 24 + part;
        f.options.memory_bytes = 64 << 20;
        char *second = make_part(&f, ND_CUT_SAMPLES, part, 2);
        assert_string_equal(first, second);
        free(first);
        free(second);
    }
    char *text = NULL;
    assert_int_equal(nd_compare_part_format(fleet_compare(&f), &text, NULL), ND_ERR_USAGE); /* it is whole */
    assert_null(text);
    f.options.cut = ND_CUT_TENSORS;
    f.options.n_parts = f.options.part = 2;
    assert_int_equal(fleet_run(&f), ND_ERR_USAGE);
    f.options.part = 0;
    f.options.per_channel = true;
    assert_int_equal(fleet_run(&f), ND_ERR_USAGE);
    fleet_stop(&f);
}

static void expect_refusal(enum nd_status status, const struct nd_error *err, const char *text)
{
    assert_int_equal(status, ND_ERR_FORMAT);
    assert_int_equal(err->id, ND_E_COMPARE_PART);
    if (strstr(err->message, text) == NULL)
        fail_msg("'%s' lacks '%s'", err->message, text);
}

static void parts_missing_or_twice_are_refused(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    struct nd_parts *parts = NULL;
    struct nd_error err = {0};
    start(&f, &seed);
    struct files files = write_parts(&f, ND_CUT_SAMPLES, 3), fewer = files, none = {0};
    fewer.n = 2;
    expect_refusal(read_files(&fewer, &parts, &err), &err, "of 3, and 2 files were given");
    fewer = files;
    fewer.paths[1] = files.paths[0];
    expect_refusal(read_files(&fewer, &parts, &err), &err, "are the same part: 2 of 3");
    fewer.n = 4;
    fewer.paths[3] = files.paths[1];
    expect_refusal(read_files(&fewer, &parts, &err), &err, "of 3, and 4 files were given");
    assert_int_not_equal(read_files(&none, &parts, &err), ND_OK);
    fewer.n = 3;
    fewer.paths[1] = (char *)(uintptr_t) "/no/such/file";
    assert_int_equal(read_files(&fewer, &parts, &err), ND_ERR_IO);
    assert_null(parts);
    free_files(&files);
    fleet_stop(&f);
}

static void merge_is_refused(struct fleet *f, const struct files *files, const char *text)
{
    struct nd_parts *parts = NULL;
    assert_int_equal(read_files(files, &parts, &f->err), ND_OK);
    f->options.merge = parts;
    expect_refusal(fleet_run(f), &f->err, text);
    f->options.merge = NULL;
    nd_parts_destroy(&parts);
}

static void parts_of_something_else_are_refused(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    start(&f, &seed);
    struct files files = write_parts(&f, ND_CUT_TENSORS, 2), others = {.n = 2, .paths = {files.paths[0]}};
    struct nd_compare_options saved = f.options;
    fleet_set_attr(f.captures[2], "", "content_digest", "changed");
    merge_is_refused(&f, &files, "other captures");
    fleet_set_attr(f.captures[2], "", "content_digest", "d2");
    f.n = 3;
    merge_is_refused(&f, &files, "a different number of captures");
    f.n = 4;
    f.options.n_worst = 4;
    merge_is_refused(&f, &files, "other options");
    f.options = saved;
    f.options.ulp_in = ND_DTYPE_F16;
    merge_is_refused(&f, &files, "other options");
    f.options = saved;
    f.options.all_pairs = false;
    merge_is_refused(&f, &files, "other options");
    f.options = saved;
    struct nd_gates *gates;
    assert_int_equal(nd_gates_create(&gates, NULL), ND_OK);
    assert_int_equal(nd_gates_parse(gates, ND_GATE_LSB, "1", NULL), ND_OK);
    f.options.gates = gates;
    merge_is_refused(&f, &files, "other gates");
    f.options = saved;
    nd_gates_destroy(&gates);
    char *text = make_part(&f, ND_CUT_SAMPLES, 0, 2);
    others.paths[1] = write_text("samples.json", text);
    free(text);
    merge_is_refused(&f, &others, "cut in different ways");
    free(others.paths[1]);
    free_files(&files);
    fleet_stop(&f);
}

/* The text with the digest of what is in it; a copy of what is no document. */
static char *stamp(const char *text)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    char *stamped =
        json_is_object(root) && nd_json_stamp(root, NULL) == ND_OK ? nd_json_dump(root, 1) : strdup(text);
    json_decref(root);
    assert_non_null(stamped);
    return stamped;
}

/* A number that has no successor is told as it is. */
static void the_greatest_part_is_refused(void **state)
{
    (void)state;
    static const struct {
        json_int_t part, n;
        const char *said;
    } cases[] = {{INT64_MAX, 2, "is part 9223372036854775808 of 2, and 1 files were given"},
                 {1, 2, "is part 2 of 2, and 1 files were given"},
                 {-1, INT64_MAX, "is part 0 of 9223372036854775807, and 1 files were given"}};
    uint64_t seed = random_seed();
    struct fleet f;
    start(&f, &seed);
    char *made = make_part(&f, ND_CUT_SAMPLES, 0, 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nd_parts *parts = NULL;
        json_t *root = json_loads(made, 0, NULL);
        json_object_set_new(root, "part", json_integer(cases[i].part));
        json_object_set_new(root, "parts", json_integer(cases[i].n));
        char *changed = json_dumps(root, 0), *text = stamp(changed), *path = write_text("greatest.json", text);
        expect_refusal(nd_parts_read((const char *const *)&path, 1, &parts, &f.err), &f.err, cases[i].said);
        free(changed);
        free(text);
        free(path);
        json_decref(root);
    }
    free(made);
    fleet_stop(&f);
}

/* Reading, and if that goes well, merging: refused or done, but nothing else. The digest is made right before.
 */
static bool is_taken(struct fleet *f, const char *text)
{
    struct nd_parts *parts = NULL;
    char *stamped = stamp(text), *path = write_text("mutated.json", stamped);
    free(stamped);
    bool is_merged = false;
    if (nd_parts_read((const char *const *)&path, 1, &parts, &f->err) == ND_OK) {
        f->options.merge = parts;
        is_merged = fleet_run(f) == ND_OK;
        f->options.merge = NULL;
    }
    if (is_merged) { /* a report follows the numbers that came from the file */
        char *written = NULL;
        if (nd_report_json(f->comparison, &written, NULL) == ND_OK)
            free(written);
        if (nd_report_text(f->comparison, NULL, &written, NULL) == ND_OK)
            free(written);
    }
    nd_parts_destroy(&parts);
    free(path);
    return is_merged;
}

static void malformed_parts_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "{",
                                        "[]",
                                        "null",
                                        "{}",
                                        "{\"npudiff_part\": 2}",
                                        "{\"npudiff_part\": \"1\", \"part\": 0, \"parts\": 1}",
                                        "{\"npudiff_part\": 1, \"part\": 0, \"parts\": 1}",
                                        "{\"npudiff_part\": 1, \"part\": -1, \"parts\": 1}",
                                        "{\"npudiff_part\": 1, \"part\": 1, \"parts\": 1}",
                                        "{\"npudiff_part\": 1, \"part\": 0, \"part\": 0, \"parts\": 1}"};
    uint64_t seed = random_seed();
    struct fleet f;
    start(&f, &seed);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_false(is_taken(&f, texts[i]));
        assert_int_equal(f.err.id, ND_E_COMPARE_PART);
    }
    char *text = make_part(&f, ND_CUT_TENSORS, 0, 1);
    assert_true(is_taken(&f, text));
    for (size_t n = strlen(text) - 2; n > 200; n -= n / 9) {
        text[n] = '\0';
        assert_false(is_taken(&f, text));
        assert_int_equal(f.err.id, ND_E_COMPARE_PART);
    }
    free(text);
    fleet_stop(&f);
}

static void mutated_parts_do_no_harm(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    start(&f, &seed);
    char *text = make_part(&f, ND_CUT_TENSORS, 0, 1), *copy = strdup(text);
    size_t len = strlen(text);
    assert_non_null(copy);
    for (size_t run = 0; run < 300; run++) {
        memcpy(copy, text, len + 1);
        for (size_t k = 1 + below(&seed, 4); k > 0; k--) {
            size_t at = below(&seed, len);
            while (copy[at] < '0' || copy[at] > '9')
                at = (at + 1) % len;
            copy[at] = (char)('0' + below(&seed, 10));
        }
        is_taken(&f, copy);
    }
    free(text);
    free(copy);
    fleet_stop(&f);
}

/* One digit of the state or of the head is enough. */
static void changed_parts_are_refused(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct fleet f;
    start(&f, &seed);
    char *text = make_part(&f, ND_CUT_TENSORS, 0, 1);
    size_t len = strlen(text);
    for (size_t run = 0; run < 200; run++) {
        struct nd_parts *parts = NULL;
        size_t at = below(&seed, len);
        while (text[at] < '0' || text[at] > '9')
            at = (at + 1) % len;
        char before = text[at];
        text[at] = (char)('0' + (before - '0' + 1 + (int)below(&seed, 9)) % 10);
        char *path = write_text("changed.json", text);
        expect_refusal(nd_parts_read((const char *const *)&path, 1, &parts, &f.err), &f.err, "changed.json");
        text[at] = before;
        free(path);
    }
    free(text);
    fleet_stop(&f);
}

/* Places that the captures do not have. */
static void part_with_an_impossible_place_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {" 1 1 9 0 3 0 ", " 1 1 0 900 3 0 ", " 1 1 0 0 24 0 "};
    struct fleet f;
    fleet_start(&f, 2);
    f.options.n_worst = 1;
    f.captures[1]->outputs[0][FLEET_CONV][3] ^= 1;
    char *text = make_part(&f, ND_CUT_TENSORS, 0, 1);
    static const char right[] = " 1 1 0 0 3 0 "; /* set, with an index; probe, sample, index, note */
    char *at = strstr(text, right);
    assert_non_null(at);
    assert_true(is_taken(&f, text));
    for (size_t i = 0; i < 3; i++) {
        char changed[1 << 16];
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, wrong[i], at + strlen(right));
        assert_false(is_taken(&f, changed));
        assert_int_equal(f.err.id, ND_E_COMPARE_PART);
    }
    free(text);
    fleet_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(merged_parts_are_the_whole, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(merged_parts_of_digests_are_the_whole, make_folder, remove_folder),
        cmocka_unit_test(part_does_not_depend_on_threads),
        cmocka_unit_test_setup_teardown(parts_missing_or_twice_are_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(parts_of_something_else_are_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_greatest_part_is_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(malformed_parts_are_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(mutated_parts_do_no_harm, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(changed_parts_are_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(part_with_an_impossible_place_is_refused, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
