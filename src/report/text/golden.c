/* The golden store and triage, as JSON and for people. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/report/report.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

/* "3/50": tensors that differ. */
static const char *upgrade_changed(const struct nd_golden_upgrade *upgrade, char buf[static ND_UPGRADE_BYTES])
{
    snprintf(buf, ND_UPGRADE_BYTES, "%zu/%zu", upgrade->check.difference.n_different,
             upgrade->check.difference.n_tensors);
    return buf;
}

/* The operators of the tensors that differ, each once, in graph order. */
static const char *upgrade_operators(const struct nd_golden_upgrade *upgrade, char buf[static ND_UPGRADE_BYTES])
{
    const struct nd_golden_difference *d = &upgrade->check.difference;
    size_t n = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < d->n_different; i++) {
        const char *types = d->different[i].op_types;
        size_t length = strlen(types);
        bool is_told = false;
        for (const char *at = buf; !is_told && (at = strstr(at, types)) != NULL; at++)
            is_told = (at == buf || at[-1] == ' ') && (at[length] == '\0' || at[length] == ',');
        if (!is_told && length > 0 && n + length + 3 < ND_UPGRADE_BYTES)
            n += (size_t)snprintf(buf + n, ND_UPGRADE_BYTES - n, "%s%s", n > 0 ? ", " : "", types);
    }
    return buf;
}

/* "48/50 -> 47/50, p 1", or "". */
static const char *upgrade_accuracy(const struct nd_golden_upgrade *upgrade, char buf[static ND_UPGRADE_BYTES])
{
    buf[0] = '\0';
    if (upgrade->has_top1)
        snprintf(buf, ND_UPGRADE_BYTES, "%zu/%zu -> %zu/%zu, p %.3g", upgrade->n_right_before,
                 upgrade->n_samples, upgrade->n_right_after, upgrade->n_samples, upgrade->p_value);
    return buf;
}

/* ---- parts ---- */

/* The members of an entry, in an object that is open. */
static void put_entry_members(struct nd_json *json, const struct nd_golden_entry *entry)
{
    nd_json_text(json, "id", entry->id);
    nd_json_text(json, "label", entry->label);
    nd_json_text(json, "date", entry->date);
    nd_json_text(json, "chipset", entry->chipset);
    nd_json_text(json, "sdk", entry->sdk);
    nd_json_text(json, "model", entry->model);
    nd_json_text(json, "status", entry->status);
    nd_json_text(json, "store", entry->kept);
    nd_json_text(json, "accepted_by", entry->accepted_by);
    nd_json_text(json, "note", entry->note);
    nd_json_count(json, "probes", entry->n_probes);
    nd_json_count(json, "tensors", entry->n_tensors);
}

static void put_entry(struct nd_json *json, const char *key, const struct nd_golden_entry *entry)
{
    nd_json_open(json, key, '{');
    put_entry_members(json, entry);
    nd_json_close(json, '}');
}

/* with_magnitude: by how much it differs, too. */
static void put_tensor(struct nd_json *json, const char *key, const struct nd_golden_tensor *tensor,
                       bool with_magnitude)
{
    nd_json_open(json, key, '{');
    nd_json_text(json, "name", tensor->name);
    nd_json_text(json, "op_types", tensor->op_types);
    nd_json_count(json, "index", tensor->index);
    nd_json_texts(json, "probes", tensor->probes, tensor->n_probes);
    if (with_magnitude) {
        nd_json_count_if(json, "elements", tensor->is_known, tensor->n_elems);
        nd_json_count_if(json, "elements_differing", tensor->is_known, tensor->n_differing);
        nd_json_real_if(json, "share", tensor->is_known, (double)tensor->n_differing / (double)tensor->n_elems);
        nd_json_count_if(json, "max_lsb", tensor->is_known && tensor->has_lsb, tensor->max_lsb);
        nd_json_real_if(json, "max_abs", tensor->is_known && tensor->has_error, tensor->max_abs);
    }
    nd_json_close(json, '}');
}

/* The tensor that differs first, or null. */
static void put_first(struct nd_json *json, const struct nd_golden_difference *d, bool with_magnitude)
{
    if (d->n_different > 0)
        put_tensor(json, "first", &d->different[0], with_magnitude);
    else
        nd_json_null(json, "first");
}

static void put_names_json(struct nd_json *json, const char *key, const struct nd_golden_names *names)
{
    nd_json_texts(json, key, names->items, names->n);
}

static void put_failure(struct nd_json *json, const struct nd_golden_failure *failure)
{
    if (!failure->has_failed) {
        nd_json_null(json, "failure");
        return;
    }
    nd_json_open(json, "failure", '{');
    nd_json_text(json, "stage", failure->stage);
    nd_json_int(json, "code", failure->code);
    if (failure->message != NULL)
        nd_json_text(json, "message", failure->message);
    nd_json_close(json, '}');
}

static void put_difference(struct nd_json *json, const struct nd_golden_difference *d)
{
    nd_json_texts(json, "what_changed", d->axes, d->n_axes);
    ND_JSON_LIST(json, "changed", i, d->n_changes) {
        const struct nd_golden_change *change = &d->changes[i];
        nd_json_open(json, NULL, '{');
        nd_json_text(json, "what", change->axis);
        nd_json_text(json, "key", change->key);
        nd_json_text(json, "ref", change->ref);
        nd_json_text(json, "test", change->test);
        nd_json_text(json, "follows_from", change->follows_from);
        nd_json_close(json, '}');
    }
    nd_json_bool(json, "same_model", d->is_same_model);
    nd_json_bool(json, "same_chipset", d->is_same_chipset);
    nd_json_bool(json, "same_end", d->is_same_end);
    put_names_json(json, "probes", &d->probes);
    nd_json_count(json, "n_tensors", d->n_tensors);
    nd_json_count(json, "n_equal", d->n_equal);
    ND_JSON_LIST(json, "different", i, d->n_different)
        put_tensor(json, NULL, &d->different[i], true);
    put_names_json(json, "missing", &d->missing);
    put_names_json(json, "extra", &d->extra);
}

static void put_check_members(struct nd_json *json, const struct nd_golden_check *check)
{
    nd_json_text(json, "verdict", check->verdict);
    if (check->has_entry) {
        nd_json_texts(json, "blamed", check->blamed, check->n_blamed);
        put_first(json, &check->difference, true);
        put_failure(json, &check->failure);
        put_difference(json, &check->difference);
        nd_json_text(json, "broken", check->broken);
        if (check->capture == NULL)
            nd_json_text(json, "test_broken", check->test_broken);
        put_entry(json, "entry", &check->entry);
    } else {
        nd_json_null(json, "entry");
    }
    if (check->capture != NULL)
        nd_json_text(json, "capture", check->capture);
    else
        put_entry(json, "test", &check->test);
}

static void put_check_json(struct nd_json *json, const char *key, const struct nd_golden_check *check)
{
    nd_json_open(json, key, '{');
    put_check_members(json, check);
    nd_json_close(json, '}');
}

void nd_report_put_problems(struct nd_json *json, const struct nd_golden *store)
{
    ND_JSON_LIST(json, "problems", i, nd_golden_n_problems(store)) {
        struct nd_golden_problem problem = nd_golden_problem(store, i);
        nd_json_open(json, NULL, '{');
        nd_json_text(json, "object", problem.object);
        nd_json_text(json, "problem", problem.problem);
        nd_json_close(json, '}');
    }
}

/* ---- documents ---- */

static struct nd_json begin(struct nd_strbuf *buf, enum nd_document kind)
{
    struct nd_json json = {.out = buf, .indent = 2};
    nd_json_open_document(&json, kind);
    return json;
}

enum nd_status nd_report_golden_list_json(const struct nd_golden *store, char **out, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_GOLDEN_ENTRIES);
    nd_json_open(&json, "entries", '[');
    for (size_t i = 0; i < nd_golden_n_entries(store); i++) {
        ND_CLEANUP(nd_golden_entry_deinit) struct nd_golden_entry entry = {0};
        ND_TRY(nd_golden_entry(store, i, &entry, err));
        put_entry(&json, NULL, &entry);
    }
    nd_json_close(&json, ']');
    nd_report_put_problems(&json, store);
    return nd_document_end(&json, out, err);
}

enum nd_status nd_report_golden_added_json(const struct nd_golden_added *added, size_t n, char **out,
                                           struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_GOLDEN_ADDED);
    ND_JSON_LIST(&json, "added", i, n) {
        nd_json_open(&json, NULL, '{');
        nd_json_text(&json, "capture", added[i].capture);
        nd_json_bool(&json, "is_new", added[i].is_new);
        put_entry(&json, "entry", &added[i].entry);
        nd_json_close(&json, '}');
    }
    return nd_document_end(&json, out, err);
}

enum nd_status nd_report_golden_checks_json(const struct nd_golden_check *checks, size_t n,
                                            const struct nd_golden *store, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_GOLDEN_CHECKS);
    ND_JSON_LIST(&json, "checks", i, n)
        put_check_json(&json, NULL, &checks[i]);
    nd_report_put_problems(&json, store);
    return nd_document_end(&json, out, err);
}

enum nd_status nd_report_golden_diff_json(const struct nd_golden_check *check, const struct nd_golden *store,
                                          char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_GOLDEN_DIFFERENCE);
    put_check_members(&json, check);
    nd_report_put_problems(&json, store);
    return nd_document_end(&json, out, err);
}

enum nd_status nd_report_golden_pruning_json(const struct nd_golden_pruning *pruning,
                                             const struct nd_golden *store, char **out, struct nd_error *err)
{
    static const char *const keys[ND_GOLDEN_N_PARTS] = {"entries", "objects", "leftovers"};
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_GOLDEN_PRUNING);
    nd_json_count(&json, "kept", pruning->n_kept);
    nd_json_bool(&json, "dry_run", pruning->dry_run);
    for (int part = 0; part < ND_GOLDEN_N_PARTS; part++) {
        const struct nd_golden_removed *removed = &pruning->removed[part];
        nd_json_texts(&json, keys[part], (const char *const *)removed->names, removed->n);
    }
    nd_report_put_problems(&json, store);
    return nd_document_end(&json, out, err);
}

static void put_upgrade_json(struct nd_json *json, const struct nd_golden_upgrade *upgrade)
{
    char buf[ND_UPGRADE_BYTES];
    const struct nd_golden_difference *d = &upgrade->check.difference;
    nd_json_open(json, NULL, '{');
    nd_json_text(json, "chipset", upgrade->chipset);
    nd_json_text(json, "ref", upgrade->check.has_entry ? upgrade->check.entry.sdk : "");
    nd_json_text(json, "test", upgrade->runtime);
    nd_json_text(json, "verdict", upgrade->check.verdict);
    nd_json_bool(json, "group_changed", upgrade->check.exit_code != ND_EXIT_SAME);
    nd_json_text(json, "changed", upgrade_changed(upgrade, buf));
    nd_json_text(json, "first", d->n_different > 0 ? d->different[0].name : "");
    nd_json_text(json, "operators", upgrade_operators(upgrade, buf));
    nd_json_text(json, "capture", upgrade->check.capture);
    if (upgrade->has_top1) {
        nd_json_open(json, "top1", '{');
        nd_json_count(json, "samples", upgrade->n_samples);
        nd_json_count(json, "right_before", upgrade->n_right_before);
        nd_json_count(json, "right_after", upgrade->n_right_after);
        nd_json_count(json, "lost", upgrade->n_lost);
        nd_json_count(json, "gained", upgrade->n_gained);
        nd_json_real(json, "p_value", upgrade->p_value);
        nd_json_close(json, '}');
    }
    nd_json_text(json, "accuracy", upgrade_accuracy(upgrade, buf));
    put_check_json(json, "check", &upgrade->check);
    nd_json_close(json, '}');
}

enum nd_status nd_report_golden_upgrades_json(const struct nd_golden_upgrade *upgrades, size_t n, char **out,
                                              struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_GOLDEN_UPGRADES);
    ND_JSON_LIST(&json, "matrix", i, n)
        put_upgrade_json(&json, &upgrades[i]);
    return nd_document_end(&json, out, err);
}

/* ---- triage ---- */

static void put_standing(struct nd_json *json, const char *key, const struct nd_triage_standing *standing)
{
    const struct nd_golden_difference *d = &standing->difference;
    nd_json_open(json, key, '{');
    put_entry_members(json, &standing->entry);
    nd_json_bool(json, "same_chipset", d->is_same_chipset);
    nd_json_count(json, "n_equal", d->n_equal);
    nd_json_count(json, "n_tensors", d->n_tensors);
    nd_json_real_if(json, "share", !isnan(standing->share), standing->share);
    put_first(json, d, false);
    nd_json_texts(json, "what_changed", d->axes, d->n_axes);
    put_names_json(json, "missing", &d->missing);
    put_names_json(json, "extra", &d->extra);
    put_names_json(json, "compared_probes", &d->probes);
    nd_json_close(json, '}');
}

static void put_standing_if(struct nd_json *json, const char *key, const struct nd_triage *triage, size_t i)
{
    if (i != SIZE_MAX)
        put_standing(json, key, &triage->standings[i]);
    else
        nd_json_null(json, key);
}

enum nd_status nd_report_triage_json(const struct nd_triage *triage, const char *field,
                                     const struct nd_golden *store, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_TRIAGE);
    nd_json_text(&json, "field", field);
    nd_json_bool(&json, "is_bundle", triage->is_bundle);
    nd_json_text(&json, "verdict", triage->verdict);
    nd_json_text(&json, "chipset", triage->chipset);
    ND_JSON_LIST(&json, "equal", i, triage->n_equal)
        put_standing(&json, NULL, &triage->standings[i]);
    put_standing_if(&json, "nearest", triage, triage->nearest);
    put_standing_if(&json, "closer", triage, triage->closer);
    nd_json_count(&json, "n_comparable", triage->n);
    put_failure(&json, &triage->failure);
    nd_report_put_problems(&json, store);
    return nd_document_end(&json, out, err);
}

/* What changed between two captures, for people: the values of one axis. */

enum { MAX_KEYS_TOLD = 3 };

/* Where two values begin to differ, at the start of a character. */
static size_t first_difference(const char *ref, const char *test)
{
    size_t at = 0;
    while (ref[at] != '\0' && ref[at] == test[at])
        at++;
    while (at > 0 && ((unsigned char)ref[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* At most n bytes from `at`, whole characters, with dots where something is left out. */
static void put_window(struct nd_strbuf *out, const char *text, size_t at, size_t n)
{
    size_t rest = strlen(text + at), end = at + (rest < n ? rest : n);
    while (end > at && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    nd_strbuf_printf(out, "%s%.*s%s", at > 0 ? "..." : "", (int)(end - at), text + at,
                     text[end] != '\0' ? "..." : "");
}

/* What stands first: 0 the id and the name of the chipset, 1 versions, 2 the rest, 3 libraries, which follow
 * from the id. */
static int rank_of(const char *key)
{
    if (strcmp(key, "id") == 0 || strcmp(key, "chipset") == 0)
        return 0;
    size_t n = strlen(key), n_version = strlen("_version");
    if (n > n_version && strcmp(key + n - n_version, "_version") == 0)
        return 1;
    return strncmp(key, "library ", 8) == 0 ? 3 : 2;
}

static bool nd_golden_has_changed(const struct nd_golden_difference *d, const char *key)
{
    for (size_t i = 0; i < d->n_changes; i++)
        if (strcmp(d->changes[i].key, key) == 0)
            return true;
    return false;
}

/* What people call an axis. One runtime holds two arithmetics, each with a version. */
const char *nd_golden_axis_name(const char *axis)
{
    return strcmp(axis, "sdk") == 0 ? "runtime" : axis;
}

/* "QAIRT 2.50.40 -> 2.51.0": the versions of a runtime by the names of what they are of. */
static void put_change(struct nd_strbuf *out, const struct nd_golden_change *change)
{
    static const char qairt[] = "qairt-";
    size_t n = strlen(qairt);
    bool is_id = strcmp(change->key, "id") == 0 && change->ref != NULL && change->test != NULL &&
                 strncmp(change->ref, qairt, n) == 0 && strncmp(change->test, qairt, n) == 0;
    if (is_id) {
        nd_strbuf_printf(out, "QAIRT %s -> %s", change->ref + n, change->test + n);
        return;
    }
    nd_strbuf_printf(out, "%s ",
                     strcmp(change->key, "ort_version") == 0        ? "ONNX Runtime"
                     : strcmp(change->key, "provider_version") == 0 ? "its QNN provider"
                                                                    : change->key);
    /* Digests and build strings say little to people, so long values are cut, --json has them whole; never so
     * that two different values look alike: the window is moved to where they part. */
    enum { MAX_VALUE_BYTES = 40, BYTES_BEFORE = 12 };
    const char *ref = change->ref != NULL ? change->ref : "(none)";
    const char *test = change->test != NULL ? change->test : "(none)";
    size_t parts = first_difference(ref, test), at = 0;
    if (parts + BYTES_BEFORE > MAX_VALUE_BYTES)
        at = parts - BYTES_BEFORE;
    while (at > 0 && ((unsigned char)ref[at] & 0xc0) == 0x80)
        at--;
    put_window(out, ref, at, MAX_VALUE_BYTES);
    nd_strbuf_puts(out, " -> ");
    put_window(out, test, at, MAX_VALUE_BYTES);
}

/* "  runtime changed: QAIRT 2.50.40 -> 2.51.0, ONNX Runtime 1.29.0 -> 1.31.1, and 7 more (--json has all)". */
static void nd_golden_put_axis(struct nd_strbuf *text, const char *axis, const struct nd_golden_difference *d,
                               size_t width)
{
    size_t n_told = 0, n = 0;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
    struct nd_strbuf *out = &line;
    nd_strbuf_printf(out, "%s changed: ", nd_golden_axis_name(axis));
    for (int rank = 0; rank < 4; rank++) {
        for (size_t i = 0; i < d->n_changes; i++) {
            const struct nd_golden_change *change = &d->changes[i];
            if (strcmp(change->axis, axis) != 0 || rank_of(change->key) != rank || change->follows_from != NULL)
                continue;
            n++;
            if (n_told >= MAX_KEYS_TOLD)
                continue;
            nd_strbuf_puts(out, n_told > 0 ? ", " : "");
            put_change(out, change);
            n_told++;
        }
    }
    if (n > n_told)
        nd_strbuf_printf(out, ", and %zu more (--json has all)", n - n_told);
    nd_summary_put(text, width, 2, 4, "%s", line.text != NULL ? line.text : "");
    text->failed = text->failed || line.failed;
}

struct layout {
    size_t width;
    size_t most; /* tensors in a list */
};

static void put_joined(struct nd_strbuf *out, const char *const *names, size_t n, const char *separator)
{
    for (size_t i = 0; i < n; i++)
        nd_strbuf_printf(out, "%s%s", i > 0 ? separator : "", names[i]);
}

/* ---- check and diff ---- */

static void put_names(struct nd_strbuf *out, const char *title, const struct nd_golden_names *names)
{
    if (names->n == 0)
        return;
    nd_strbuf_printf(out, "  %s: ", title);
    put_joined(out, names->items, names->n, ", ");
    nd_strbuf_puts(out, "\n");
}

/* ": 12.3% of its values differ, by at most 3 LSB"; nothing where it is not known. */
static void put_magnitude(struct nd_strbuf *out, const struct nd_golden_tensor *tensor)
{
    if (!tensor->is_known)
        return;
    nd_strbuf_printf(out, ": %s of its values differ",
                     nd_format_share(tensor->n_differing, tensor->n_elems, (char[ND_NUMBER_BYTES]){0}));
    if (tensor->has_lsb)
        nd_strbuf_printf(out, ", by at most %llu LSB", (unsigned long long)tensor->max_lsb);
    else if (tensor->has_error && isfinite(tensor->max_abs))
        nd_strbuf_printf(out, ", by at most %.3g", tensor->max_abs);
}

static void put_tensors(struct nd_strbuf *out, const struct nd_golden_difference *d,
                        const struct layout *layout)
{
    size_t n = d->n_different;
    if (n > 0)
        nd_strbuf_printf(out, "  %zu of %zu tensor%s differ%s, in the order of the model:\n", n, d->n_tensors,
                         d->n_tensors == 1 ? "" : "s", n == 1 ? "s" : "");
    for (size_t i = 0; i < n && i < layout->most; i++) {
        const struct nd_golden_tensor *tensor = &d->different[i];
        struct nd_strbuf line = {0};
        nd_strbuf_printf(&line, "%s (%s) on ", tensor->name, tensor->op_types);
        put_joined(&line, tensor->probes, tensor->n_probes, ", ");
        put_magnitude(&line, tensor);
        nd_summary_put(out, layout->width, 4, 6, "%s", line.text != NULL ? line.text : "");
        out->failed = out->failed || line.failed;
        nd_strbuf_deinit(&line);
    }
    if (n > layout->most)
        nd_strbuf_printf(out, "    and %zu more (-v shows them)\n", n - layout->most);
    if (n > 0 && !d->different[0].is_known)
        nd_strbuf_puts(out, "    by how much is not known: the entry or the capture keeps no values of them\n");
    put_names(out, "missing", &d->missing);
    put_names(out, "not in the entry", &d->extra);
}

static const char *word_of(const char *verdict)
{
    static const char *const words[][2] = {{"same", "SAME"},
                                           {"differs", "DIFFERS"},
                                           {"failed", "FAILED"},
                                           {"inconclusive", "INCONCLUSIVE"},
                                           {"reference broken", "BROKEN reference"},
                                           {"not comparable", "NOT COMPARABLE"}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(verdict, words[i][0]) == 0)
            return words[i][1];
    return verdict;
}

/* What the verdict leaves to be said. */
static void put_reason(struct nd_strbuf *out, const struct nd_golden_check *check, size_t width)
{
    const struct nd_golden_difference *d = &check->difference;
    size_t n_unstable = check->n_unstable[0] + check->n_unstable[1];
    if (check->exit_code == ND_EXIT_INCONCLUSIVE && n_unstable > 0)
        nd_summary_put(out, width, 2, 4,
                       "not repeatable: %zu sample%s of the %s differ%s from run to run, so that nothing can "
                       "be blamed; 'npudiff compare' says which differences are larger than that",
                       n_unstable, n_unstable == 1 ? "" : "s",
                       check->n_unstable[0] == 0   ? "capture"
                       : check->n_unstable[1] == 0 ? "entry"
                                                   : "entry and the capture",
                       n_unstable == 1 ? "s" : "");
    else if (check->exit_code == ND_EXIT_INCONCLUSIVE)
        nd_summary_put(out, width, 2, 4,
                       "%zu things changed: which one makes the difference is not known (--blame names all)",
                       d->n_axes);
    else if (check->broken != NULL)
        nd_summary_put(out, width, 2, 4, "%s, but %s broken: %s",
                       d->n_different == 0 ? "the two are equal" : "the two differ",
                       check->test_broken != NULL ? "both are" : "the reference is", check->broken);
    else if (check->test_broken != NULL)
        nd_summary_put(out, width, 2, 4, "the second entry is broken: %s", check->test_broken);
}

static void put_check(struct nd_strbuf *out, const struct nd_golden_check *check, const char *name,
                      const struct layout *layout)
{
    const struct nd_golden_difference *d = &check->difference;
    const struct nd_golden_entry *entry = &check->entry;
    struct nd_strbuf verdict = {0};
    /* "SAME", "DIFFERS, because of the chipset": the verdict with its reason, as far as it fits a headline.
     * Nobody can say which of two arithmetics of a runtime it is. */
    nd_strbuf_puts(&verdict, word_of(check->verdict));
    if (check->n_blamed > 0) {
        bool has_two = nd_golden_has_changed(&check->difference, "id") &&
                       nd_golden_has_changed(&check->difference, "ort_version");
        nd_strbuf_puts(&verdict, ", because of ");
        for (size_t i = 0; i < check->n_blamed; i++)
            nd_strbuf_printf(&verdict, "%sthe %s%s", i > 0 ? " or " : "", nd_golden_axis_name(check->blamed[i]),
                             strcmp(check->blamed[i], "sdk") == 0 && has_two
                                 ? " (QAIRT or ONNX Runtime: both changed)"
                                 : "");
    } else if (strcmp(check->verdict, "differs") == 0) {
        nd_strbuf_puts(&verdict, ", although nothing is known to have changed");
    }
    if (!check->has_entry) {
        nd_summary_put(out, layout->width, 0, 2,
                       "%s: %s: the store has no entry of this model and these probes", verdict.text, name);
        nd_strbuf_deinit(&verdict);
        return;
    }
    nd_summary_put(out, layout->width, 0, 2, "%s: %s against the accepted %s (%.12s, %s)", verdict.text, name,
                   entry->label, entry->id, entry->date);
    out->failed = out->failed || verdict.failed;
    nd_strbuf_deinit(&verdict);
    put_reason(out, check, layout->width);
    for (size_t i = 0; i < d->n_axes; i++)
        nd_golden_put_axis(out, d->axes[i], d, layout->width);
    put_tensors(out, d, layout);
    if (!d->is_same_end && check->failure.has_failed)
        nd_summary_put(out, layout->width, 2, 4, "the device failed at stage '%s': %s", check->failure.stage,
                       check->failure.message != NULL ? check->failure.message : "");
    else if (!d->is_same_end)
        nd_summary_put(out, layout->width, 2, 4,
                       "one is complete, the other (%s) is not, or failed in a different way", entry->status);
}

enum nd_status nd_report_golden_check_text(const struct nd_golden_check *check, const char *name, size_t width,
                                           size_t most, char **out, struct nd_error *err)
{
    const struct layout layout = {.width = nd_summary_width(width), .most = most};
    struct nd_strbuf buf = {0};
    put_check(&buf, check, name, &layout);
    if (check->has_entry && check->capture != NULL && check->exit_code == ND_EXIT_DIFFERS)
        nd_summary_put_explain(&buf, layout.width,
                               "to learn in which layer the difference begins, and whether it is a fault",
                               check->capture, check->entry.model);
    return nd_text_end(&buf, out, err);
}

/* ---- list and prune ---- */

/* A row for each entry, in new memory. */
static enum nd_status list_entries(const struct nd_golden *store, bool is_brief, json_t **rows,
                                   size_t *n_failed, struct nd_error *err)
{
    *rows = json_array();
    for (size_t i = 0; i < nd_golden_n_entries(store); i++) {
        ND_CLEANUP(nd_golden_entry_deinit) struct nd_golden_entry entry = {0};
        ND_TRY(nd_golden_entry(store, i, &entry, err));
        *n_failed += strcmp(entry.status, "complete") != 0;
        nd_tree_append(*rows, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "entry",
                                        json_sprintf("%.12s", entry.id), "label", nd_json_string(entry.label),
                                        "chipset", nd_json_string(entry.chipset), "sdk",
                                        nd_json_string(entry.sdk), "model", nd_json_string(entry.model), "date",
                                        json_sprintf(is_brief ? "%.10s" : "%s", entry.date), "status",
                                        nd_json_string(entry.status), "tensors", nd_int(entry.n_tensors),
                                        "probes", nd_int(entry.n_probes), "store", nd_json_string(entry.kept),
                                        "note", nd_json_string(entry.note)));
    }
    return ND_OK;
}

enum nd_status nd_report_golden_list_text(const struct nd_golden *store, char **out, struct nd_error *err)
{
    static const struct nd_report_column columns[] = {
        {"entry", "ENTRY"},   {"label", "LABEL"},     {"chipset", "CHIPSET"}, {"sdk", "SDK"},
        {"model", "MODEL"},   {"tensors", "TENSORS"}, {"probes", "PROBES"},   {"store", "STORE"},
        {"status", "STATUS"}, {"date", "DATE"},       {"note", "NOTE"},       {NULL, NULL}};
    json_auto_t *rows = NULL;
    size_t n_failed = 0;
    struct nd_strbuf buf = {0};
    ND_TRY(list_entries(store, false, &rows, &n_failed, err));
    nd_rows_put(&buf, rows, columns);
    return nd_text_end(&buf, out, err);
}

enum nd_status nd_report_golden_list_brief(const struct nd_golden *store, const char *path, size_t width,
                                           char **out, struct nd_error *err)
{
    static const struct nd_report_column columns[] = {
        {"entry", "ENTRY"}, {"label", "LABEL"}, {"chipset", "CHIPSET"}, {"sdk", "SDK"}, {"model", "MODEL"},
        {"date", "DATE"},   {NULL, NULL}};
    const char *const next[] = {"npudiff", "golden", "check", path, "CAPTURE.h5"};
    size_t n = nd_golden_n_entries(store), n_failed = 0;
    json_auto_t *rows = NULL;
    ND_TRY(list_entries(store, true, &rows, &n_failed, err));
    struct nd_report_screen *screen = nd_report_screen_create(width);
    nd_report_screen_put(screen, "%s: %zu accepted capture%s\n", path, n, n == 1 ? "" : "s");
    if (n_failed > 0)
        nd_report_screen_put(screen, "%zu of them %s of a device that failed (-v shows which).\n", n_failed,
                             n_failed == 1 ? "is" : "are");
    if (n > 0) {
        nd_report_screen_put(screen, "\n");
        nd_screen_rows(screen, json_incref(rows), columns, "-v lists all, with the notes");
        nd_report_screen_whole(screen);
        nd_report_screen_next(screen, "to compare a capture with what was accepted", next,
                              sizeof next / sizeof next[0]);
    }
    return nd_report_screen_end(&screen, out, err);
}

enum nd_status nd_report_golden_pruning_text(const struct nd_golden_pruning *pruning, char **out,
                                             struct nd_error *err)
{
    static const char *const folders[ND_GOLDEN_N_PARTS] = {"entries/", "objects/", ""};
    struct nd_strbuf buf = {0};
    for (int part = 0; part < ND_GOLDEN_N_PARTS; part++)
        for (size_t i = 0; i < pruning->removed[part].n; i++)
            nd_strbuf_printf(&buf, "%s %s%s\n", pruning->dry_run ? "would remove" : "removed", folders[part],
                             pruning->removed[part].names[i]);
    nd_strbuf_printf(&buf, "%zu %s kept\n", pruning->n_kept, pruning->n_kept == 1 ? "entry" : "entries");
    return nd_text_end(&buf, out, err);
}

/* ---- another runtime ---- */

/* The verdict of all, then a row for each chipset. */
static void put_upgrades(struct nd_strbuf *out, const struct nd_golden_upgrade *upgrades, size_t n,
                         size_t width)
{
    static const char *const titles[] = {"chipset", "before", "verdict", "differ", "top-1", "first tensor"};
    enum { N_COLUMNS = sizeof titles / sizeof titles[0] };
    ND_CLEANUP(nd_table_deinit) struct nd_table table = {.n_columns = N_COLUMNS, .line_width = width};
    size_t n_changed = 0;
    for (size_t i = 0; i < n; i++)
        n_changed += upgrades[i].check.exit_code != ND_EXIT_SAME;
    if (n_changed == 0)
        nd_summary_put(out, width, 0, 2,
                       n == 2 ? "SAME: %s gives the accepted values on both chipsets"
                              : "SAME: %s gives the accepted values on all %zu chipsets",
                       n > 0 ? upgrades[0].runtime : "the runtime", n);
    else
        nd_summary_put(out, width, 0, 2,
                       n == 2 && n_changed == 2
                           ? "DIFFERS: %s gives values that were not accepted, on both chipsets"
                           : "DIFFERS: %s gives values that were not accepted, on %zu of %zu chipsets",
                       upgrades[0].runtime, n_changed, n);
    nd_strbuf_puts(out, "\n");
    for (size_t i = 0; i < N_COLUMNS; i++) {
        table.is_left[i] = true;
        nd_table_add(&table, titles[i]);
    }
    for (size_t i = 0; i < n; i++) {
        const struct nd_golden_upgrade *upgrade = &upgrades[i];
        const struct nd_golden_difference *d = &upgrade->check.difference;
        char cell[ND_UPGRADE_BYTES];
        nd_table_add(&table, upgrade->chipset);
        nd_table_add(&table, upgrade->check.has_entry ? upgrade->check.entry.sdk : "");
        nd_table_add(&table, word_of(upgrade->check.verdict));
        nd_table_add(&table, upgrade_changed(upgrade, cell));
        nd_table_add(&table, upgrade_accuracy(upgrade, cell));
        if (d->n_different > 0)
            nd_table_addf(&table, "%s (%s)", d->different[0].name, d->different[0].op_types);
        else
            nd_table_add(&table, "");
    }
    nd_table_render_panels(&table, 1, out);
}

static bool has_same_names(const struct nd_golden_difference *a, const struct nd_golden_difference *b)
{
    bool is_same = a->n_different == b->n_different && a->n_axes == b->n_axes;
    for (size_t i = 0; i < a->n_different && is_same; i++)
        is_same = strcmp(a->different[i].name, b->different[i].name) == 0;
    return is_same;
}

/* Which other chipsets are like the first that is told of, and which are not. */
static void put_others(struct nd_strbuf *out, const struct nd_golden_upgrade *upgrades, size_t n, size_t told,
                       size_t width)
{
    for (int pass = 0; pass < 2; pass++) {
        struct nd_strbuf names = {0};
        for (size_t i = told + 1; i < n; i++)
            if (upgrades[i].check.exit_code != ND_EXIT_SAME &&
                has_same_names(&upgrades[told].check.difference, &upgrades[i].check.difference) == (pass == 0))
                nd_strbuf_printf(&names, "%s%s", names.len > 0 ? ", " : "", upgrades[i].chipset);
        if (names.len > 0)
            nd_summary_put(out, width, 2, 4,
                           pass == 0 ? "the same tensors differ on %s"
                                     : "other tensors differ on %s (-v shows them)",
                           names.text);
        out->failed = out->failed || names.failed;
        nd_strbuf_deinit(&names);
    }
}

enum nd_status nd_report_golden_upgrades_text(const struct nd_golden_upgrade *upgrades, size_t n, size_t width,
                                              bool is_verbose, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    const struct layout layout = {.width = nd_summary_width(width), .most = is_verbose ? SIZE_MAX : 1};
    const struct nd_golden_check *first = NULL;
    put_upgrades(&buf, upgrades, n, layout.width);
    for (size_t i = 0; i < n; i++)
        if (upgrades[i].check.exit_code != ND_EXIT_SAME && (is_verbose || first == NULL)) {
            nd_strbuf_puts(&buf, "\n");
            put_check(&buf, &upgrades[i].check, upgrades[i].check.capture, &layout);
            if (!is_verbose)
                put_others(&buf, upgrades, n, i, layout.width);
            first = first == NULL ? &upgrades[i].check : first;
        }
    if (first != NULL && first->has_entry && first->exit_code == ND_EXIT_DIFFERS)
        nd_summary_put_explain(&buf, layout.width,
                               "to learn in which layer the difference begins, and whether it is a fault",
                               first->capture, first->entry.model);
    return nd_text_end(&buf, out, err);
}
