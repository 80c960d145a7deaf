/* The golden store and triage as JSON. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "npudiff/report/report.h"
#include "report/text/report_golden.h"
#include "report/text/tree.h"

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

static void put_names(struct nd_json *json, const char *key, const struct nd_golden_names *names)
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

static void put_changes(struct nd_json *json, const struct nd_golden_difference *d)
{
    nd_json_open(json, "changed", '[');
    for (size_t i = 0; i < d->n_changes; i++) {
        const struct nd_golden_change *change = &d->changes[i];
        nd_json_open(json, NULL, '{');
        nd_json_text(json, "what", change->axis);
        nd_json_text(json, "key", change->key);
        nd_json_text(json, "ref", change->ref);
        nd_json_text(json, "test", change->test);
        nd_json_text(json, "follows_from", change->follows_from);
        nd_json_close(json, '}');
    }
    nd_json_close(json, ']');
}

static void put_difference(struct nd_json *json, const struct nd_golden_difference *d)
{
    nd_json_texts(json, "what_changed", d->axes, d->n_axes);
    put_changes(json, d);
    nd_json_bool(json, "same_model", d->is_same_model);
    nd_json_bool(json, "same_chipset", d->is_same_chipset);
    nd_json_bool(json, "same_end", d->is_same_end);
    put_names(json, "probes", &d->probes);
    nd_json_count(json, "n_tensors", d->n_tensors);
    nd_json_count(json, "n_equal", d->n_equal);
    nd_json_open(json, "different", '[');
    for (size_t i = 0; i < d->n_different; i++)
        put_tensor(json, NULL, &d->different[i], true);
    nd_json_close(json, ']');
    put_names(json, "missing", &d->missing);
    put_names(json, "extra", &d->extra);
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

static void put_check(struct nd_json *json, const char *key, const struct nd_golden_check *check)
{
    nd_json_open(json, key, '{');
    put_check_members(json, check);
    nd_json_close(json, '}');
}

void nd_report_put_problems(struct nd_json *json, const struct nd_golden *store)
{
    nd_json_open(json, "problems", '[');
    for (size_t i = 0; i < nd_golden_n_problems(store); i++) {
        struct nd_golden_problem problem = nd_golden_problem(store, i);
        nd_json_open(json, NULL, '{');
        nd_json_text(json, "object", problem.object);
        nd_json_text(json, "problem", problem.problem);
        nd_json_close(json, '}');
    }
    nd_json_close(json, ']');
}

/* ---- documents ---- */

static struct nd_json begin(struct nd_strbuf *buf, enum nd_document kind)
{
    struct nd_json json = {.out = buf, .indent = 2};
    nd_json_open_document(&json, kind);
    return json;
}

static enum nd_status end(struct nd_json *json, char **out, struct nd_error *err)
{
    nd_json_close(json, '}');
    nd_strbuf_puts(json->out, "\n");
    return nd_text_end(json->out, out, err);
}

enum nd_status nd_report_golden_list_json(const struct nd_golden *store, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_GOLDEN_ENTRIES);
    enum nd_status status = ND_OK;
    nd_json_open(&json, "entries", '[');
    for (size_t i = 0; status == ND_OK && i < nd_golden_n_entries(store); i++) {
        struct nd_golden_entry entry = {0};
        status = nd_golden_entry(store, i, &entry, err);
        if (status == ND_OK)
            put_entry(&json, NULL, &entry);
        nd_golden_entry_deinit(&entry);
    }
    nd_json_close(&json, ']');
    nd_report_put_problems(&json, store);
    if (status == ND_OK)
        return end(&json, out, err);
    nd_strbuf_deinit(&buf);
    return status;
}

enum nd_status nd_report_golden_added_json(const struct nd_golden_added *added, size_t n, char **out,
                                           struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_GOLDEN_ADDED);
    nd_json_open(&json, "added", '[');
    for (size_t i = 0; i < n; i++) {
        nd_json_open(&json, NULL, '{');
        nd_json_text(&json, "capture", added[i].capture);
        nd_json_bool(&json, "is_new", added[i].is_new);
        put_entry(&json, "entry", &added[i].entry);
        nd_json_close(&json, '}');
    }
    nd_json_close(&json, ']');
    return end(&json, out, err);
}

enum nd_status nd_report_golden_checks_json(const struct nd_golden_check *checks, size_t n,
                                            const struct nd_golden *store, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_GOLDEN_CHECKS);
    nd_json_open(&json, "checks", '[');
    for (size_t i = 0; i < n; i++)
        put_check(&json, NULL, &checks[i]);
    nd_json_close(&json, ']');
    nd_report_put_problems(&json, store);
    return end(&json, out, err);
}

enum nd_status nd_report_golden_diff_json(const struct nd_golden_check *check, const struct nd_golden *store,
                                          char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_GOLDEN_DIFFERENCE);
    put_check_members(&json, check);
    nd_report_put_problems(&json, store);
    return end(&json, out, err);
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
    return end(&json, out, err);
}

static void put_upgrade(struct nd_json *json, const struct nd_golden_upgrade *upgrade)
{
    char buf[ND_UPGRADE_BYTES];
    const struct nd_golden_difference *d = &upgrade->check.difference;
    nd_json_open(json, NULL, '{');
    nd_json_text(json, "chipset", upgrade->chipset);
    nd_json_text(json, "ref", upgrade->check.has_entry ? upgrade->check.entry.sdk : "");
    nd_json_text(json, "test", upgrade->runtime);
    nd_json_text(json, "verdict", upgrade->check.verdict);
    nd_json_bool(json, "group_changed", upgrade->check.exit_code != ND_EXIT_SAME);
    nd_json_text(json, "changed", nd_upgrade_changed(upgrade, buf));
    nd_json_text(json, "first", d->n_different > 0 ? d->different[0].name : "");
    nd_json_text(json, "operators", nd_upgrade_operators(upgrade, buf));
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
    nd_json_text(json, "accuracy", nd_upgrade_accuracy(upgrade, buf));
    put_check(json, "check", &upgrade->check);
    nd_json_close(json, '}');
}

enum nd_status nd_report_golden_upgrades_json(const struct nd_golden_upgrade *upgrades, size_t n, char **out,
                                              struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = begin(&buf, ND_DOCUMENT_GOLDEN_UPGRADES);
    nd_json_open(&json, "matrix", '[');
    for (size_t i = 0; i < n; i++)
        put_upgrade(&json, &upgrades[i]);
    nd_json_close(&json, ']');
    return end(&json, out, err);
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
    put_names(json, "missing", &d->missing);
    put_names(json, "extra", &d->extra);
    put_names(json, "compared_probes", &d->probes);
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
    nd_json_open(&json, "equal", '[');
    for (size_t i = 0; i < triage->n_equal; i++)
        put_standing(&json, NULL, &triage->standings[i]);
    nd_json_close(&json, ']');
    put_standing_if(&json, "nearest", triage, triage->nearest);
    put_standing_if(&json, "closer", triage, triage->closer);
    nd_json_count(&json, "n_comparable", triage->n);
    put_failure(&json, &triage->failure);
    nd_report_put_problems(&json, store);
    return end(&json, out, err);
}
