#include "support/main.h"

#include <glob.h>
#include <stdio.h>
#include <unistd.h>

#include <jansson.h>

#include "core/files/file.h"
#include "core/tensors/sha256.h"
#include "npudiff/judge/judge.h"
#include "npudiff/report/report.h"
#include "support/golden_capture.h"
#include "support/scratch.h"

/* ---- helpers ---- */

static struct nd_golden *open_store(bool create)
{
    struct nd_error err;
    struct nd_golden *store = NULL;
    char *path = in_folder("store");
    expect_ok(nd_golden_open(path, create, &store, &err), &err);
    free(path);
    return store;
}

static json_t *parsed(char *text)
{
    json_t *report = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(report);
    return report;
}

/* The first of a list in a report, which it takes over, with the problems of the store. */
static json_t *first_of(json_t *report, const char *list)
{
    json_t *first = json_copy(json_array_get(json_object_get(report, list), 0));
    assert_non_null(first);
    if (json_object_get(report, "problems") != NULL)
        json_object_set(first, "problems", json_object_get(report, "problems"));
    json_decref(report);
    return first;
}

static json_t *add(struct nd_golden *store, const struct gold *gold, bool digest_only)
{
    struct nd_error err;
    char *path = in_folder("add.h5"), *text = NULL;
    const struct nd_golden_acceptance how = {
        .struct_size = sizeof how, .note = "a note", .digest_only = digest_only};
    gold_write(path, gold);
    struct nd_golden_added added;
    expect_ok(nd_golden_add(store, path, &how, &added, &err), &err);
    expect_ok(nd_report_golden_added_json(&added, 1, &text, &err), &err);
    nd_golden_entry_deinit(&added.entry);
    free(path);
    return first_of(parsed(text), "added");
}

static void add_quietly(struct nd_golden *store, const struct gold *gold)
{
    json_decref(add(store, gold, false));
}

static json_t *check(const struct nd_golden *store, const struct gold *gold, bool blame, enum nd_exit expected)
{
    struct nd_error err;
    struct nd_golden_check found;
    char *path = in_folder("check.h5"), *text = NULL;
    gold_write(path, gold);
    expect_ok(nd_golden_check(store, path, blame, &found, &err), &err);
    assert_int_equal(found.exit_code, expected);
    expect_ok(nd_report_golden_checks_json(&found, 1, store, &text, &err), &err);
    nd_golden_check_deinit(&found);
    free(path);
    return first_of(parsed(text), "checks");
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static json_t *triage(const struct nd_golden *store, const char *path, enum nd_exit expected)
{
    struct nd_error err;
    struct nd_triage found;
    char *text = NULL;
    expect_ok(nd_triage(store, path, &found, &err), &err);
    assert_int_equal(found.exit_code, expected);
    expect_ok(nd_report_triage_json(&found, path, store, &text, &err), &err);
    nd_triage_deinit(&found);
    return parsed(text);
}

/* "sdk,chipset" of a list of texts. */
static const char *joined(const json_t *list)
{
    static char text[256];
    size_t i, n = 0;
    const json_t *item;
    text[0] = '\0';
    json_array_foreach(list, i, item) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? "," : "", json_string_value(item));
    }
    return text;
}

static size_t n_files(const char *pattern)
{
    glob_t found;
    char *path = in_folder(pattern);
    size_t n = glob(path, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (n > 0)
        globfree(&found);
    free(path);
    return n;
}

static json_t *prune(struct nd_golden *store, bool dry_run)
{
    struct nd_error err;
    struct nd_golden_pruning pruning;
    char *text = NULL;
    expect_ok(nd_golden_prune(store, 2, dry_run, &pruning, &err), &err);
    expect_ok(nd_report_golden_pruning_json(&pruning, store, &text, &err), &err);
    nd_golden_pruning_deinit(&pruning);
    return parsed(text);
}

/* ---- adding ---- */

static void add_the_same_twice_is_one_entry(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    json_t *first = add(store, &(struct gold){0}, false), *second = add(store, &(struct gold){0}, false);
    assert_true(json_is_true(json_object_get(first, "is_new")));
    assert_true(json_is_false(json_object_get(second, "is_new")));
    assert_string_equal(text_of(json_object_get(first, "entry"), "id"),
                        text_of(json_object_get(second, "entry"), "id"));
    assert_int_equal(nd_golden_n_entries(store), 1);
    assert_int_equal(n_files("store/entries/*"), 1);
    assert_int_equal(n_files("store/objects/*"), 1);
    json_decref(first);
    json_decref(second);
    nd_golden_close(&store);
}

static void add_digests_only_keeps_no_object(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    json_decref(add(store, &(struct gold){0}, true));
    assert_int_equal(n_files("store/objects/*"), 0);
    json_decref(check(store, &(struct gold){0}, false, ND_EXIT_SAME));
    json_t *full = add(store, &(struct gold){0}, false); /* now with the copy that was missing */
    assert_true(json_is_true(json_object_get(full, "is_new")));
    assert_int_equal(n_files("store/objects/*"), 1);
    json_decref(full);
    nd_golden_close(&store);
}

static void open_refuses_what_is_no_store(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_golden *store = NULL;
    char *path = in_folder("mine"), *file = in_folder("mine/precious.txt");
    assert_int_equal(nd_golden_open(path, false, &store, &err), ND_ERR_IO);
    expect_ok(nd_dir_make(path, &err), &err);
    expect_ok(nd_file_put(file, "x", 1, &err), &err);
    assert_int_equal(nd_golden_open(path, true, &store, &err), ND_ERR_FORMAT);
    assert_int_equal(n_files("mine/*"), 1);
    char *version = in_folder("mine/store.json");
    expect_ok(nd_file_put(version, "{\"npudiff_store\": 2}", 20, &err), &err);
    assert_int_equal(nd_golden_open(path, true, &store, &err), ND_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "expected format 1"));
    expect_ok(nd_file_put(version, "{\"npudiff", 9, &err), &err);
    assert_int_equal(nd_golden_open(path, true, &store, &err), ND_ERR_FORMAT);
    assert_null(store);
    free(path);
    free(file);
    free(version);
}

/* ---- checking ---- */

static void check_names_the_axis_and_the_tensors_in_graph_order(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    add_quietly(store, &(struct gold){0});
    add_quietly(store, &(struct gold){.chipset = "SM8450"});
    json_decref(check(store, &(struct gold){0}, false, ND_EXIT_SAME));
    json_t *report =
        check(store, &(struct gold){.sdk = "qairt-2", .qvalues = {0, 1, 1}}, false, ND_EXIT_DIFFERS);
    assert_string_equal(joined(json_object_get(report, "blamed")), "sdk");
    assert_string_equal(text_of(json_object_get(report, "entry"), "chipset"), "SM8650");
    const json_t *different = json_object_get(report, "different");
    assert_int_equal(json_array_size(different), 2);
    assert_string_equal(text_of(json_array_get(different, 0), "name"), "secret/mul");
    assert_string_equal(text_of(json_array_get(different, 0), "op_types"), "Mul");
    assert_string_equal(joined(json_object_get(json_array_get(different, 0), "probes")), "my-photos");
    assert_string_equal(text_of(json_array_get(different, 1), "name"), "secret/out");
    json_decref(report);
    report = check(store, &(struct gold){.sdk = "qairt-2"}, false, ND_EXIT_SAME);
    assert_string_equal(joined(json_object_get(report, "what_changed")), "sdk");
    assert_string_equal(joined(json_object_get(report, "blamed")), "");
    json_decref(report);
    nd_golden_close(&store);
}

static void check_attributes_every_axis(void **state)
{
    (void)state;
    static const struct {
        struct gold gold;
        const char *axis;
    } cases[] = {
        {{.sdk = "qairt-9", .qvalues = {1}}, "sdk"},
        {{.chipset = "SM8750", .qvalues = {1}}, "chipset"},
        {{.kernel = "7.0", .qvalues = {1}}, "host"},
        {{.qvalues = {1}}, ""}, /* nothing that is written down changed */
    };
    struct nd_golden *store = open_store(true);
    add_quietly(store, &(struct gold){0});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *report = check(store, &cases[i].gold, false, ND_EXIT_DIFFERS);
        assert_string_equal(joined(json_object_get(report, "blamed")), cases[i].axis);
        json_decref(report);
    }
    nd_golden_close(&store);
}

static void check_blames_neither_of_two_axes(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    const struct gold both = {.sdk = "qairt-2", .kernel = "7.0", .qvalues = {0, 1}};
    add_quietly(store, &(struct gold){0});
    json_t *report = check(store, &both, false, ND_EXIT_INCONCLUSIVE);
    assert_string_equal(joined(json_object_get(report, "what_changed")), "sdk,host");
    assert_string_equal(joined(json_object_get(report, "blamed")), "");
    json_decref(report);
    report = check(store, &both, true, ND_EXIT_DIFFERS);
    assert_string_equal(joined(json_object_get(report, "blamed")), "sdk,host");
    json_decref(report);
    nd_golden_close(&store);
}

static void option_that_follows_from_the_chipset_is_no_second_change(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    add_quietly(store, &(struct gold){.passes = "1", .fp16 = "1"});
    const struct gold v68 = {.chipset = "SM8350", .passes = "2", .qvalues = {0, 1}};
    json_t *report = check(store, &v68, false, ND_EXIT_DIFFERS);
    assert_string_equal(joined(json_object_get(report, "what_changed")), "chipset");
    assert_string_equal(joined(json_object_get(report, "blamed")), "chipset");
    size_t i, n_following = 0;
    const json_t *change;
    json_array_foreach(json_object_get(report, "changed"), i, change) {
        n_following += strcmp(text_of(change, "follows_from"), "chipset") == 0;
    }
    assert_int_equal(n_following, 3); /* passes, edges_in, half precision */
    json_decref(report);
    /* More sessions with a new SDK: what it places elsewhere. Leave to fall back changes nothing. */
    const struct gold newer = {
        .sdk = "qairt-2", .passes = "2", .fp16 = "1", .may_fall_back = true, .qvalues = {0, 1}};
    report = check(store, &newer, false, ND_EXIT_DIFFERS);
    assert_string_equal(joined(json_object_get(report, "blamed")), "sdk");
    json_decref(report);
    nd_golden_close(&store);
}

static void option_that_somebody_chose_is_a_change(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    add_quietly(store, &(struct gold){.passes = "1", .fp16 = "1"});
    const struct gold chosen = {.chipset = "SM8450", .passes = "1", .fp16 = "0", .qvalues = {0, 1}};
    json_t *report = check(store, &chosen, false, ND_EXIT_INCONCLUSIVE);
    assert_string_equal(joined(json_object_get(report, "what_changed")), "chipset,options");
    json_decref(report);
    const struct gold more_passes = {.passes = "2", .fp16 = "1", .qvalues = {0, 1}};
    report = check(store, &more_passes, false, ND_EXIT_DIFFERS); /* no other axis that it follows from */
    assert_string_equal(joined(json_object_get(report, "blamed")), "options");
    json_decref(report);
    nd_golden_close(&store);
}

static void check_takes_the_entry_of_the_very_chipset(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    add_quietly(store, &(struct gold){0});
    add_quietly(store, &(struct gold){.chipset = "SM8450", .qvalues = {0, 1}});
    /* A phone of the first chipset that computes like the simulator of the second. */
    const struct gold phone = {.kind = "htp", .qvalues = {0, 1}};
    json_t *report = check(store, &phone, false, ND_EXIT_DIFFERS);
    assert_string_equal(text_of(json_object_get(report, "entry"), "chipset"), "SM8650");
    assert_string_equal(joined(json_object_get(report, "blamed")), "chipset");
    json_decref(report);
    char *field = in_folder("field.h5");
    gold_write(field, &phone);
    report = triage(store, field, ND_EXIT_DIFFERS);
    assert_string_equal(text_of(report, "verdict"), "new");
    assert_string_equal(text_of(json_object_get(report, "nearest"), "chipset"), "SM8650");
    const json_t *equal = json_object_get(report, "equal");
    assert_int_equal(json_array_size(equal), 1);
    assert_string_equal(text_of(json_array_get(equal, 0), "chipset"), "SM8450");
    json_decref(report);
    free(field);
    nd_golden_close(&store);
}

static void check_says_by_how_much_an_tensor_differs(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    const struct gold changed = {.qvalues = {0, 3, 0}, .with_extra_probe = true};
    add_quietly(store, &(struct gold){.with_extra_probe = true});
    json_t *report = check(store, &changed, false, ND_EXIT_DIFFERS);
    const json_t *tensor = json_array_get(json_object_get(report, "different"), 0);
    assert_int_equal(json_integer_value(json_object_get(tensor, "max_lsb")), 3);
    assert_int_equal(json_integer_value(json_object_get(tensor, "elements")), 2 * GOLD_SAMPLES * GOLD_QVALUES);
    assert_f64_bits(json_real_value(json_object_get(tensor, "share")), 1.0 / GOLD_QVALUES);
    assert_f64_bits(json_real_value(json_object_get(tensor, "max_abs")), 1.5);
    json_decref(report);
    nd_golden_close(&store);
    /* Of digests alone it is not known. */
    store = open_store(true);
    const struct gold digests = {.qvalues = {0, 3, 0}, .with_extra_probe = true, .digests_only = true};
    report = check(store, &digests, false, ND_EXIT_DIFFERS);
    tensor = json_array_get(json_object_get(report, "different"), 0);
    assert_true(json_is_null(json_object_get(tensor, "max_lsb")));
    assert_true(json_is_null(json_object_get(tensor, "share")));
    json_decref(report);
    nd_golden_close(&store);
}

static void equal_captures_of_no_number_are_not_the_same(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    add_quietly(store, &(struct gold){.is_nan = true});
    json_t *report = check(store, &(struct gold){.is_nan = true}, false, ND_EXIT_NOT_COMPARABLE);
    assert_string_equal(text_of(report, "verdict"), "reference broken");
    assert_string_equal(text_of(report, "broken"), "every value of 'secret/out' with 'my-photos' is NaN");
    json_decref(report);
    /* Of digests alone nobody can tell. */
    report = check(store, &(struct gold){.is_nan = true, .digests_only = true}, false, ND_EXIT_SAME);
    assert_true(json_is_null(json_object_get(report, "broken")));
    json_decref(report);
    nd_golden_close(&store);
}

static json_t *diff(const struct nd_golden *store, const char *ref, const char *test, enum nd_exit expected)
{
    struct nd_error err;
    struct nd_golden_check found;
    char *text = NULL;
    expect_ok(nd_golden_diff(store, ref, test, &found, &err), &err);
    assert_int_equal(found.exit_code, expected);
    expect_ok(nd_report_golden_diff_json(&found, store, &text, &err), &err);
    nd_golden_check_deinit(&found);
    return parsed(text);
}

static void entries_of_no_number_are_not_the_same(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    static const char *const why = "every value of 'secret/out' with 'my-photos' is NaN";
    add_quietly(store, &(struct gold){.is_nan = true});
    add_quietly(store, &(struct gold){.is_nan = true, .sdk = "qairt-2"});
    add_quietly(store, &(struct gold){.sdk = "qairt-3"});
    json_t *report = diff(store, "SM8650@qairt-1", "SM8650@qairt-2", ND_EXIT_NOT_COMPARABLE);
    assert_string_equal(text_of(report, "verdict"), "reference broken");
    assert_string_equal(text_of(report, "broken"), why);
    assert_string_equal(text_of(report, "test_broken"), why);
    json_decref(report);
    /* What differs from a broken entry is not wrong. */
    report = diff(store, "SM8650@qairt-1", "SM8650@qairt-3", ND_EXIT_NOT_COMPARABLE);
    assert_string_equal(text_of(report, "verdict"), "reference broken");
    assert_true(json_is_null(json_object_get(report, "test_broken")));
    json_decref(report);
    report = diff(store, "SM8650@qairt-3", "SM8650@qairt-1", ND_EXIT_DIFFERS);
    assert_string_equal(text_of(report, "verdict"), "differs");
    assert_true(json_is_null(json_object_get(report, "broken")));
    assert_string_equal(text_of(report, "test_broken"), why);
    json_decref(report);
    nd_golden_close(&store);
}

/* A probe that the entry lacks was not compared, and is no reason for what differs on another. */
static void check_blames_no_probe_that_was_not_compared(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    add_quietly(store, &(struct gold){0});
    json_t *report = check(store, &(struct gold){.with_extra_probe = true, .sdk = "qairt-2", .qvalues = {0, 1}},
                           false, ND_EXIT_DIFFERS);
    assert_string_equal(joined(json_object_get(report, "what_changed")), "sdk,probes");
    assert_string_equal(joined(json_object_get(report, "blamed")), "sdk");
    assert_string_equal(joined(json_object_get(report, "probes")), "my-photos");
    json_decref(report);
    report = check(store, &(struct gold){.with_extra_probe = true, .qvalues = {0, 1}}, false, ND_EXIT_DIFFERS);
    assert_string_equal(joined(json_object_get(report, "blamed")), "probes");
    json_decref(report);
    json_decref(check(store, &(struct gold){.with_extra_probe = true}, false, ND_EXIT_SAME));
    nd_golden_close(&store);
}

static void check_without_an_entry_is_not_comparable(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    json_decref(check(store, &(struct gold){0}, false, ND_EXIT_NOT_COMPARABLE));
    add_quietly(store, &(struct gold){0});
    json_decref(check(store, &(struct gold){.model = "bb"}, false, ND_EXIT_NOT_COMPARABLE));
    json_decref(check(store, &(struct gold){.input = 9}, false, ND_EXIT_NOT_COMPARABLE));
    nd_golden_close(&store);
}

static void check_of_a_failed_device_fails_unless_accepted(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    add_quietly(store, &(struct gold){0});
    json_t *report = check(store, &(struct gold){.has_failed = true}, false, ND_EXIT_DEVICE_FAILED);
    assert_string_equal(text_of(report, "verdict"), "failed");
    json_decref(report);
    add_quietly(store, &(struct gold){.has_failed = true});
    json_decref(check(store, &(struct gold){.has_failed = true}, false, ND_EXIT_SAME));
    nd_golden_close(&store);
}

/* ---- damage ---- */

static void damaged_entries_are_named_and_skipped(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_golden *store = open_store(true);
    json_t *added = add(store, &(struct gold){0}, false);
    add_quietly(store, &(struct gold){.chipset = "SM8450"});
    nd_golden_close(&store);
    char name[128];
    snprintf(name, sizeof name, "store/entries/%s.json", text_of(json_object_get(added, "entry"), "id"));
    char *path = in_folder(name);
    void *bytes = NULL;
    size_t n = 0;
    expect_ok(nd_file_read(path, 1 << 20, &bytes, &n, &err), &err);
    for (size_t at = 0; at < n; at += 97) { /* any byte */
        char *copy = malloc(n);
        assert_non_null(copy);
        memcpy(copy, bytes, n);
        copy[at] ^= 1;
        expect_ok(nd_file_put(path, copy, n, &err), &err);
        free(copy);
        store = open_store(false);
        assert_int_equal(nd_golden_n_entries(store), 1);
        assert_int_equal(nd_golden_n_problems(store), 1);
        nd_golden_close(&store);
    }
    store = open_store(false);
    json_t *report = check(store, &(struct gold){0}, false, ND_EXIT_SAME); /* by the other chipset */
    const json_t *problem = json_array_get(json_object_get(report, "problems"), 0);
    assert_non_null(strstr(text_of(problem, "object"), text_of(json_object_get(added, "entry"), "id")));
    assert_non_null(strstr(text_of(problem, "problem"), "damaged"));
    struct nd_golden_pruning pruning;
    expect_ok(nd_golden_prune(store, 1, false, &pruning, &err), &err); /* which may need its object */
    nd_golden_pruning_deinit(&pruning);
    assert_int_equal(n_files("store/objects/*"), 2);
    json_decref(report);
    json_decref(added);
    free(bytes);
    free(path);
    nd_golden_close(&store);
}

static void entries_of_other_versions_are_named(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"npudiff_entry\":2}", "{\"npudiff_entry\":1}", "[]", "not JSON"};
    struct nd_error err;
    nd_golden_close(&(struct nd_golden *){open_store(true)});
    char *folder_path = in_folder("store/entries");
    expect_ok(nd_dir_make(folder_path, &err), &err);
    for (size_t i = 0; i < 4; i++) {
        char hex[65], name[128];
        nd_sha256_bytes(texts[i], strlen(texts[i]), hex);
        snprintf(name, sizeof name, "store/entries/%s.json", hex);
        char *path = in_folder(name);
        expect_ok(nd_file_put(path, texts[i], strlen(texts[i]), &err), &err);
        free(path);
    }
    struct nd_golden *store = open_store(false);
    assert_int_equal(nd_golden_n_entries(store), 0);
    assert_int_equal(nd_golden_n_problems(store), 4);
    char *text = NULL;
    expect_ok(nd_report_golden_list_json(store, &text, &err), &err);
    assert_non_null(strstr(text, "of format 2, expected format 1"));
    free(text);
    free(folder_path);
    nd_golden_close(&store);
}

static void damaged_captures_are_not_accepted(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_golden *store = open_store(true);
    const struct nd_golden_acceptance how = {.struct_size = sizeof how};
    char *path = in_folder("bad.h5"), *text = NULL;
    void *bytes = NULL;
    size_t n = 0, at = 0;
    gold_write(path, &(struct gold){0});
    expect_ok(nd_file_read(path, 1 << 20, &bytes, &n, &err), &err);
    const unsigned char qvalues[] = {50, 51, 52, 53, 54, 55, 56, 57};
    while (at + sizeof qvalues < n && memcmp((char *)bytes + at, qvalues, sizeof qvalues) != 0)
        at++;
    ((char *)bytes)[at] ^= 4;
    expect_ok(nd_file_put(path, bytes, n, &err), &err);
    struct nd_golden_added added;
    assert_int_equal(nd_golden_add(store, path, &how, &added, &err), ND_ERR_FORMAT);
    assert_non_null(strstr(err.message, "secret/mul"));
    assert_null(text);
    assert_int_equal(n_files("store/*/*"), 0);
    free(bytes);
    free(path);
    nd_golden_close(&store);
}

/* The digests of its entry still count. */
static void damaged_objects_are_not_read(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_capture *capture = NULL;
    struct nd_golden *store = open_store(true);
    json_t *added = add(store, &(struct gold){0}, false);
    const char *id = text_of(json_object_get(added, "entry"), "id");
    char *pattern = in_folder("store/objects/*.h5"), *field = in_folder("field.h5");
    glob_t found;
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    expect_ok(nd_file_put(found.gl_pathv[0], "damage", 6, &err), &err);
    assert_int_equal(nd_golden_open_capture(store, id, &capture, &err), ND_ERR_FORMAT);
    assert_non_null(strstr(err.message, found.gl_pathv[0]));
    gold_write(field, &(struct gold){.qvalues = {0, 1}});
    json_t *report = triage(store, field, ND_EXIT_DIFFERS);
    assert_true(json_is_null(json_object_get(json_object_get(report, "nearest"), "share")));
    assert_int_equal(unlink(found.gl_pathv[0]), 0);
    assert_int_equal(nd_golden_open_capture(store, id, &capture, &err), ND_ERR_NOT_FOUND);
    json_decref(check(store, &(struct gold){0}, false, ND_EXIT_SAME));
    assert_null(capture);
    globfree(&found);
    json_decref(report);
    json_decref(added);
    free(pattern);
    free(field);
    nd_golden_close(&store);
}

/* ---- pruning and diffs ---- */

static void prune_keeps_the_newest_of_equal_axes(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    for (unsigned char i = 0; i < 4; i++) {
        char epoch[16];
        snprintf(epoch, sizeof epoch, "%d", 1000 + i);
        setenv("SOURCE_DATE_EPOCH", epoch, 1);
        add_quietly(store, &(struct gold){.qvalues = {i}});
    }
    unsetenv("SOURCE_DATE_EPOCH");
    add_quietly(store, &(struct gold){.chipset = "SM8450"});
    json_t *dry = prune(store, true);
    assert_int_equal(json_array_size(json_object_get(dry, "entries")), 2);
    assert_int_equal(n_files("store/entries/*"), 5);
    json_t *wet = prune(store, false);
    assert_int_equal(json_array_size(json_object_get(wet, "objects")), 2);
    assert_int_equal(n_files("store/entries/*"), 3);
    assert_int_equal(n_files("store/objects/*"), 3);
    json_decref(check(store, &(struct gold){.qvalues = {3}}, false, ND_EXIT_SAME));
    json_decref(check(store, &(struct gold){.qvalues = {2}}, false, ND_EXIT_SAME));
    json_decref(check(store, &(struct gold){.qvalues = {1}}, false, ND_EXIT_DIFFERS));
    json_decref(dry);
    json_decref(wet);
    nd_golden_close(&store);
}

static void diff_wants_one_entry_of_a_name(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_golden_check check;
    char *text = NULL;
    struct nd_golden *store = open_store(true);
    add_quietly(store, &(struct gold){0});
    add_quietly(store, &(struct gold){.sdk = "qairt-2", .qvalues = {0, 0, 1}});
    assert_int_equal(nd_golden_diff(store, "SM8650", "x", &check, &err), ND_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "fits 2 entries"));
    assert_int_equal(nd_golden_diff(store, "SM8650@qairt-1", "x", &check, &err), ND_ERR_NOT_FOUND);
    expect_ok(nd_golden_diff(store, "SM8650@qairt-1", "SM8650@qairt-2", &check, &err), &err);
    assert_int_equal(check.exit_code, ND_EXIT_DIFFERS);
    expect_ok(nd_report_golden_diff_json(&check, store, &text, &err), &err);
    nd_golden_check_deinit(&check);
    json_t *report = parsed(text);
    assert_string_equal(text_of(json_object_get(report, "first"), "name"), "secret/out");
    json_decref(report);
    nd_golden_close(&store);
}

/* ---- plan ---- */

/* The '@' of an emulated device stands before a channel: it takes no runtime. */
static void plan_leaves_out_devices_that_take_no_runtime(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_golden_plan plan;
    struct nd_golden *store = open_store(true);
    add_quietly(store, &(struct gold){.uri = "htp-sim:SM8650@qairt-1"});
    add_quietly(store, &(struct gold){.uri = "ssh:user@host/agent/cpu@qairt-1", .chipset = "SM8450"});
    add_quietly(store,
                &(struct gold){.uri = "emu:offset=secret/mul@3", .chipset = "", .sdk = "", .kind = "emu"});
    add_quietly(store, &(struct gold){.uri = "exact", .chipset = "none", .sdk = "", .kind = "exact"});
    add_quietly(store, &(struct gold){.uri = "emu:offset=secret/mul@3", .model = "bb", .kind = "emu"});
    expect_ok(nd_golden_plan(store, "aa", "qairt-2", &plan, &err), &err);
    assert_int_equal(plan.n, 2);
    assert_string_equal(plan.entries[0].uri, "ssh:user@host/agent/cpu@qairt-1");
    assert_string_equal(plan.entries[1].uri, "htp-sim:SM8650@qairt-1");
    assert_int_equal(plan.n_without_runtime, 2);
    nd_golden_plan_deinit(&plan);
    nd_golden_close(&store);
}

/* ---- triage ---- */

/* Writes the capture and its bundle; the text of the bundle. */
static char *make_bundle(const struct gold *gold, const char *capture_path, const char *bundle_path)
{
    struct nd_error err;
    struct nd_capture *capture = NULL;
    char *text = NULL;
    gold_write(capture_path, gold);
    expect_ok(nd_capture_open(capture_path, &capture, &err), &err);
    expect_ok(nd_bundle_make(capture, &text, &err), &err);
    nd_capture_close(&capture);
    expect_ok(nd_file_put(bundle_path, text, strlen(text), &err), &err);
    return text;
}

static void triage_knows_equal_and_nearest(void **state)
{
    (void)state;
    struct nd_golden *store = open_store(true);
    char *capture = in_folder("field.h5"), *bundle = in_folder("field.json");
    add_quietly(store, &(struct gold){0});
    add_quietly(store, &(struct gold){.chipset = "SM8450"});
    add_quietly(store, &(struct gold){.chipset = "SM8750", .qvalues = {1, 1, 1}});
    free(make_bundle(&(struct gold){.kernel = "8"}, capture, bundle));
    for (int i = 0; i < 2; i++) {
        json_t *report = triage(store, i == 0 ? capture : bundle, ND_EXIT_SAME);
        assert_int_equal(json_array_size(json_object_get(report, "equal")), 2);
        json_decref(report);
    }
    free(make_bundle(&(struct gold){.qvalues = {1, 1, 7}}, capture, bundle));
    for (int i = 0; i < 2; i++) {
        json_t *report = triage(store, i == 0 ? capture : bundle, ND_EXIT_DIFFERS);
        const json_t *nearest = json_object_get(report, "nearest");
        const json_t *closer = json_object_get(report, "closer");
        assert_string_equal(text_of(nearest, "chipset"), "SM8650"); /* its own */
        assert_string_equal(text_of(json_object_get(nearest, "first"), "name"), "secret/conv");
        assert_string_equal(text_of(closer, "chipset"), "SM8750");
        assert_string_equal(text_of(json_object_get(closer, "first"), "name"), "secret/out");
        if (i == 0) /* one code of eight */
            assert_f64_bits(json_real_value(json_object_get(nearest, "share")), 3.0 / 24);
        else
            assert_true(json_is_null(json_object_get(nearest, "share")));
        json_decref(report);
    }
    free(make_bundle(&(struct gold){.model = "cc"}, capture, bundle));
    json_decref(triage(store, bundle, ND_EXIT_NOT_COMPARABLE));
    free(capture);
    free(bundle);
    nd_golden_close(&store);
}

static void bundle_tells_nothing_of_the_user(void **state)
{
    (void)state;
    static const char *const private[] = {
        "secret", "mul",        "Mul",   "Conv",    "Gemm",     "photos",  "home",         "user",
        "/",      "424242",     "image", ".onnx",   "npz",      "private", "private-node", "libc.so",
        "my-",    "agent died", "anna",  "example", "zerberus", "yaml",
    };
    char *capture = in_folder("field.h5"), *bundle = in_folder("field.json");
    char *text = make_bundle(&(struct gold){.has_failed = true}, capture, bundle);
    for (size_t i = 0; i < sizeof private / sizeof private[0]; i++)
        if (strstr(text, private[i]) != NULL)
            fail_msg("the bundle holds '%s':\n%s", private[i], text);
    assert_true(strlen(text) < 4096);
    free(text);
    free(capture);
    free(bundle);
}

static void broken_bundles_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"{",
                                        "{}",
                                        "{\"npudiff_bundle\": 7}",
                                        "{\"npudiff_bundle\": 1}",
                                        "{\"npudiff_bundle\": 1, \"axes\": {\"sdk\": {}}}",
                                        "{\"a\":1,\"a\":2}"};
    struct nd_golden *store = open_store(true);
    char *bundle = in_folder("field.json"), *capture = in_folder("field.h5");
    add_quietly(store, &(struct gold){0});
    char *whole = make_bundle(&(struct gold){0}, capture, bundle), *text = NULL;
    struct nd_error err;
    struct nd_triage unread;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        expect_ok(nd_file_put(bundle, texts[i], strlen(texts[i]), &err), &err);
        assert_int_equal(nd_triage(store, bundle, &unread, &err), ND_ERR_FORMAT);
        assert_non_null(strstr(err.message, bundle));
    }
    for (size_t n = 1; n + 2 < strlen(whole); n += 13) { /* cut off anywhere */
        expect_ok(nd_file_put(bundle, whole, n, &err), &err);
        assert_int_equal(nd_triage(store, bundle, &unread, &err), ND_ERR_FORMAT);
    }
    assert_null(text);
    free(whole);
    free(bundle);
    free(capture);
    nd_golden_close(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(add_the_same_twice_is_one_entry, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(add_digests_only_keeps_no_object, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(open_refuses_what_is_no_store, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(check_names_the_axis_and_the_tensors_in_graph_order, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(check_attributes_every_axis, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(check_blames_neither_of_two_axes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(option_that_follows_from_the_chipset_is_no_second_change, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(option_that_somebody_chose_is_a_change, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(check_takes_the_entry_of_the_very_chipset, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(entries_of_no_number_are_not_the_same, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(equal_captures_of_no_number_are_not_the_same, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(check_says_by_how_much_an_tensor_differs, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(check_blames_no_probe_that_was_not_compared, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(check_without_an_entry_is_not_comparable, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(check_of_a_failed_device_fails_unless_accepted, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(damaged_entries_are_named_and_skipped, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(entries_of_other_versions_are_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(damaged_captures_are_not_accepted, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(damaged_objects_are_not_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(prune_keeps_the_newest_of_equal_axes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(diff_wants_one_entry_of_a_name, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(plan_leaves_out_devices_that_take_no_runtime, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(triage_knows_equal_and_nearest, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(bundle_tells_nothing_of_the_user, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(broken_bundles_are_refused, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
