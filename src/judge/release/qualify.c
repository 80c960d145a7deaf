/* Qualify: see the header. */
#include "judge/release/qualify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "judge/campaign/keyed.h"

/* ---- members ---- */

#define S struct nd_estimate
ND_MEMBERS(estimate, ND_FIELD("value", REAL, value), ND_FIELD("interval", RANGE, interval));
#undef S
#define S struct nd_qualified_share
ND_MEMBERS(share, ND_FIELD("samples", COUNT, n), ND_FIELD("of", COUNT, of), ND_FIELD("share", REAL, share),
           ND_FIELD("interval", RANGE, interval));
#undef S
#define S struct nd_qualified_pair
ND_MEMBERS(evidence, ND_FIELD("e_value", REAL, e_value), ND_FIELD("largest", REAL, largest_e),
           ND_FIELD("stop", COUNT, stop));
ND_MEMBERS(pair, ND_FIELD("reference", WORD, reference), ND_FIELD("samples", COUNT, n_samples),
           ND_FIELD("right_before", COUNT, n_right_before), ND_FIELD("right_after", COUNT, n_right_after),
           ND_FIELD("right_to_wrong", COUNT, n_right_to_wrong),
           ND_FIELD("wrong_to_right", COUNT, n_wrong_to_right),
           ND_FIELD("wrong_to_wrong", COUNT, n_wrong_to_wrong), ND_FIELD("difference", REAL, difference),
           ND_FIELD("interval", RANGE, interval), ND_FIELD("p_value", REAL, p_value),
           ND_FIELD("margin", REAL, margin), ND_FIELD("margin_interval", RANGE, margin_interval),
           ND_FIELD("answer", WORD, answer), ND_FIELD("samples_needed", COUNT, n_samples_needed),
           ND_FIELD_AROUND("evidence", evidence), ND_FIELD("gate", COUNT, gate),
           ND_FIELD("p_value_holm", REAL, p_value_holm));
#undef S
#define S struct nd_qualified_pairs
ND_MEMBERS(pairs, ND_FIELD("device", WORD, device), ND_FIELD_OF("against", LIST, against, pair));
#undef S
#define S struct nd_qualified_study
ND_MEMBERS(changes, ND_FIELD("devices", COUNT, changes.n_devices), ND_FIELD("mean", REAL, changes.mean),
           ND_FIELD("mean_interval", RANGE, changes.mean_interval),
           ND_FIELD_OF("any_differs", PART, changes.any_differs, share),
           ND_FIELD_OF("unstable", PART, changes.unstable, share));
ND_MEMBERS(spread, ND_FIELD("verdict", WORD, spread.verdict), ND_FIELD("best", TEXT, spread.best),
           ND_FIELD("worst", TEXT, spread.worst), ND_FIELD("margin", REAL, spread.margin),
           ND_FIELD_OF("spread", PART_IF, spread.spread, estimate),
           ND_FIELD_OF("common", PART_IF, spread.common, estimate),
           ND_FIELD_OF("quantised", PART_IF, spread.quantised, estimate),
           ND_FIELD_OF("beyond", PART_IF, spread.beyond, estimate));
ND_MEMBERS(study, ND_FIELD("probe", WORD, probe), ND_FIELD("tensor", WORD, tensor),
           ND_FIELD("samples", COUNT, n_samples), ND_FIELD("confidence", REAL, confidence),
           ND_FIELD_OF("devices", LIST, devices, pairs), ND_FIELD_AROUND("changed_predictions", changes),
           ND_FIELD_AROUND("spread", spread), ND_FIELD("baseline", COUNTS, baseline));
#undef S
#define S struct nd_qualified_distance
ND_MEMBERS(distance, ND_FIELD("device", WORD, device), ND_FIELD("reference", WORD, reference),
           ND_FIELD_OF("mean_error_before", PART, mean_error_before, estimate),
           ND_FIELD_OF("mean_error_after", PART, mean_error, estimate),
           ND_FIELD_OF("mean_error_change", PART, mean_error_change, estimate),
           ND_FIELD_OF("sqnr_db_before", PART, sqnr_db_before, estimate),
           ND_FIELD_OF("sqnr_db_after", PART, sqnr_db, estimate),
           ND_FIELD_OF("sqnr_db_change", PART, sqnr_db_change, estimate));
#undef S
#define S struct nd_qualified_target
ND_MEMBERS(target, ND_FIELD("probe", WORD, probe), ND_FIELD("tensor", WORD, tensor),
           ND_FIELD("samples", COUNT, n_samples), ND_FIELD("confidence", REAL, confidence),
           ND_FIELD_OF("against", LIST, against, distance));
#undef S
#define S struct nd_qualified_device
ND_MEMBERS(device, ND_FIELD("device", WORD, label), ND_FIELD("uri", TEXT, uri),
           ND_FIELD("chipset", TEXT, chipset), ND_FIELD("runtime", TEXT, runtime),
           ND_FIELD("capture", TEXT, capture), ND_FIELD("capture_sha256", WORD, capture_sha256),
           ND_FIELD("prepared", TEXT, prepared), ND_FIELD("failure", TEXT, failure),
           ND_FIELD("status", WORD, status), ND_FIELD("prepared_sdk", TEXT, prepared_sdk),
           ND_FIELD("prepared_chipset", TEXT, prepared_chipset), ND_FIELD("findings", TEXTS, findings),
           ND_FIELD("tensors", COUNT, n_tensors), ND_FIELD("tensors_differing", COUNT, n_tensors_differing),
           ND_FIELD("first_difference", TEXT, first_difference),
           ND_FIELD("first_op_types", TEXT, first_op_types), ND_FIELD("group", INT, class_id),
           ND_FIELD("broken", TEXT, broken), ND_FIELD("explanation", TEXT, explanation));
#undef S
#define S struct nd_qualified_reference
ND_MEMBERS(reference, ND_FIELD("reference", WORD, label), ND_FIELD("capture", TEXT, capture),
           ND_FIELD("failure", TEXT, failure), ND_FIELD("broken", TEXT, broken));
#undef S
#define S struct nd_qualified_model
ND_MEMBERS(model, ND_FIELD("name", WORD, name), ND_FIELD("quantised", WORD, quantised),
           ND_FIELD("sha256", WORD, sha256), ND_FIELD("float", TEXT, float_model),
           ND_FIELD("groups", TEXT, classes), ND_FIELD("output_groups", TEXT, output_classes),
           ND_FIELD_OF("references", LIST, references, reference),
           ND_FIELD_OF("devices", LIST, devices, device), ND_FIELD_OF("accuracy", LIST, accuracy, study),
           ND_FIELD_OF("targets", LIST, targets, target));
#undef S
#define S struct nd_qualified_gate
ND_MEMBERS(gate, ND_FIELD("gate", WORD, gate), ND_FIELD("text", TEXT, text), ND_FIELD("models", TEXTS, models),
           ND_FIELD("devices", TEXTS, devices), ND_FIELD("tensors", TEXTS, tensors),
           ND_FIELD("probes", TEXTS, probes), ND_FIELD("reason", TEXT, reason), ND_FIELD("owner", TEXT, owner),
           ND_FIELD("until", TEXT, until), ND_FIELD("line", COUNT, line));
#undef S
#define S struct nd_qualified_case
ND_MEMBERS(one_case, ND_FIELD("model", WORD, model), ND_FIELD("device", WORD, device),
           ND_FIELD("gate", COUNT, gate), ND_FIELD("verdict", WORD, verdict), ND_FIELD("value", REAL_IF, value),
           ND_FIELD("bound", REAL_IF, bound), ND_FIELD("tensor", TEXT, tensor), ND_FIELD("probe", TEXT, probe),
           ND_FIELD("checked", COUNT, n_checked), ND_FIELD("failing", COUNT, n_failing),
           ND_FIELD("samples", COUNT, n_samples), ND_FIELD("samples_needed", COUNT, n_samples_needed),
           ND_FIELD("message", WORD, message));
#undef S
#define S struct nd_qualified_suggestion
static const struct nd_json_field suggested_fields[] = {
    ND_FIELD("gate", WORD, gate),           ND_FIELD("max", REAL_IF, max),
    ND_FIELD("margin", REAL_IF, margin),    ND_FIELD("confidence", REAL_IF, confidence),
    ND_FIELD("tensors", TEXT, tensors),     ND_FIELD("to", TEXT, to),
    ND_FIELD("reference", TEXT, reference), ND_FIELD("models", TEXT, models),
    ND_FIELD("devices", TEXTS, devices),    {.key = NULL},
};
static const struct nd_members suggested = {sizeof(S), suggested_fields, .is_sparse = true};
#undef S
#define S struct nd_qualified_omission
ND_MEMBERS(omission, ND_FIELD("model", WORD, model), ND_FIELD("device", WORD, device),
           ND_FIELD("reason", WORD, reason));
#undef S
#define S struct nd_qualified
/* In the order of enum nd_case_verdict. */
ND_MEMBERS(counts, ND_FIELD("passed", COUNT, counts[0].n), ND_FIELD("warned", COUNT, counts[1].n),
           ND_FIELD("failed", COUNT, counts[2].n), ND_FIELD("inconclusive", COUNT, counts[3].n),
           ND_FIELD("not comparable", COUNT, counts[4].n), ND_FIELD("device failed", COUNT, counts[5].n));
static const struct nd_json_field suggestion_fields[] = {
    ND_FIELD_OF("policy", LIST, policy, suggested),
    ND_FIELD_OF("left_out", LIST, left_out, omission),
    {.key = NULL},
};
const struct nd_members nd_suggestion_members = {.bytes = sizeof(S), .fields = suggestion_fields};
static const struct nd_json_field qualified_fields[] = {
    ND_FIELD("npudiff", WORD, version),
    ND_FIELD("key", WORD, key),
    ND_FIELD("campaign", WORD, campaign),
    ND_FIELD("verdict", WORD, verdict),
    ND_FIELD("exit_code", INT, exit_code),
    ND_FIELD("reference", TEXT, reference),
    ND_FIELD_AROUND("counts", counts),
    ND_FIELD_OF("models", LIST, models, model),
    ND_FIELD_OF("gates", LIST, gates, gate),
    ND_FIELD_OF("cases", LIST, cases, one_case),
    ND_FIELD("suggestion", TEXT, suggestion),
    ND_FIELD_AROUND("suggested", nd_suggestion_members),
    {.key = NULL},
};
const struct nd_members nd_qualified_members = {.bytes = sizeof(S), .fields = qualified_fields};
#undef S

/* ---- reading ---- */

/* The members that version 0.1 (format 1) called otherwise, at any depth. Only the keys of "baseline" are names
 * of devices. */
static void rename_members(json_t *value)
{
    static const char *const names[][2] = {
        {"edge", "tensor"},
        {"edges", "tensors"},
        {"edges_differing", "tensors_differing"},
        {"class", "group"},
        {"classes", "groups"},
        {"output_classes", "output_groups"},
        {"churn", "changed_predictions"},
    };
    const char *key;
    json_t *item;
    size_t i;
    json_array_foreach(value, i, item) rename_members(item);
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((item = json_object_get(value, names[i][0])) != NULL) {
            json_object_set(value, names[i][1], item);
            json_object_del(value, names[i][0]);
        }
    json_object_foreach(value, key, item)
    {
        if (strcmp(key, "baseline") != 0)
            rename_members(item);
    }
}

enum nd_status nd_qualified_read(const char *json, struct nd_qualified *out, struct nd_error *err)
{
    json_error_t problem;
    json_t *root = json_loads(json, 0, &problem);
    if (root == NULL && json_error_code(&problem) == json_error_out_of_memory)
        return nd_fail_memory(err);
    if (root == NULL)
        return nd_fail(err, ND_E_RESULT_FORMAT, NULL, "no result of a campaign: line %d: %s", problem.line,
                       problem.text);
    const char *kind = json_string_value(json_object_get(root, "kind"));
    json_int_t format = json_integer_value(json_object_get(root, "format"));
    bool is_good = kind != NULL && strcmp(kind, nd_document_word(ND_DOCUMENT_QUALIFICATION)) == 0 &&
                   format >= 1 && format <= ND_JSON_FORMAT;
    if (is_good && format == 1)
        rename_members(root);
    struct nd_arena *arena = nd_arena_create();
    struct nd_qualified made = {.owner = arena};
    enum nd_status status = is_good ? ND_OK
                                    : nd_fail(err, ND_E_RESULT_FORMAT, NULL,
                                              "no result of a campaign, or one of a different format");
    if (status == ND_OK && arena != NULL)
        nd_json_get_members(root, &nd_qualified_members, &made, arena);
    if (status == ND_OK && (arena == NULL || nd_arena_has_failed(arena)))
        status = nd_fail_memory(err);
    for (int v = 0; v < ND_QUALIFIED_N_VERDICTS; v++) {
        made.counts[v].verdict = nd_case_verdict_name((enum nd_case_verdict)v);
        made.counts[v].n = made.counts[v].n != SIZE_MAX ? made.counts[v].n : 0;
    }
    json_decref(root);
    if (status == ND_OK)
        *out = made;
    else
        nd_qualified_deinit(&made);
    return status;
}

void nd_qualified_deinit(struct nd_qualified *result)
{
    nd_arena_destroy(result->owner);
    *result = (struct nd_qualified){0};
}

enum { MAX_RESULT_BYTES = 1 << 30 };

void nd_qualify_result_deinit(struct nd_qualify_result *result)
{
    nd_qualified_deinit(&result->found);
    free(result->folder);
    *result = (struct nd_qualify_result){0};
}

/* Two at once would capture over one another. The lock goes with the process that holds it. */
enum nd_status nd_qualify_lock(const char *folder, bool is_shared, int *out, struct nd_error *err)
{
    char *path = nd_path_join(folder, ".lock");
    int fd = path != NULL ? open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
    enum nd_status status = ND_OK;
    if (path == NULL)
        status = nd_fail_memory(err);
    else if (fd < 0)
        status = nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    else if (flock(fd, (is_shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0)
        status = nd_fail(err, ND_E_QUALIFY_BUSY, folder, "a different process already runs a campaign in '%s'",
                         folder);
    free(path);
    if (status == ND_OK)
        *out = fd;
    else if (fd >= 0)
        close(fd);
    return status;
}

/* ---- a result that was made before ---- */

static bool all_fresh(const struct nd_qualification *q)
{
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t c = 0; c < q->models[m].n_cells; c++)
            if (!q->models[m].cells[c].is_fresh)
                return false;
    return true;
}

/* Fills q->last, unless everything is to be judged anew. A file that is no result is none; one that cannot be
 * read just now is an error: the result would be judged without the last one's baseline. */
static enum nd_status read_last(struct nd_qualification *q, struct nd_error *err)
{
    void *bytes = NULL;
    size_t n_bytes;
    struct nd_qualified last;
    if (q->options->force)
        return ND_OK;
    char *path = nd_path_join(q->folder, "result.json");
    enum nd_status status = path != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && !nd_keyed_is_missing(path))
        status = nd_file_read(path, MAX_RESULT_BYTES, &bytes, &n_bytes, err);
    enum nd_status parsed = bytes != NULL ? nd_qualified_read(bytes, &last, NULL) : ND_OK;
    if (bytes != NULL && parsed == ND_OK)
        q->last = last;
    free(bytes);
    free(path);
    return parsed == ND_ERR_MEMORY ? nd_fail_memory(err) : status;
}

/* Whether the result in the folder is the one that would be made. */
static bool is_last_current(struct nd_qualification *q)
{
    return all_fresh(q) && q->last.owner != NULL && strcmp(q->last.key, q->key) == 0 &&
           q->last.exit_code >= 0 && q->last.suggestion[0] != '\0';
}

/* ---- a new one ---- */

static enum nd_status judge(struct nd_qualification *q, struct nd_qualify_result *out, struct nd_error *err)
{
    enum nd_status status = nd_qualify_open(q, err);
    if (status == ND_OK)
        status = nd_qualify_compare(q, err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = nd_qualify_study(q, &q->models[m], err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = nd_qualify_find_broken(q, &q->models[m], err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = nd_qualify_measure_targets(q, &q->models[m], err);
    for (size_t m = 0; status == ND_OK && q->campaign.explain && m < q->campaign.n_models; m++)
        status = nd_qualify_explain(q, &q->models[m], err);
    if (status != ND_OK)
        return status;
    struct nd_qualified made;
    q->arena = nd_arena_create();
    if (q->arena == NULL)
        return nd_fail_memory(err);
    nd_qualify_fill(q, &made);
    made.owner = q->arena;
    if (nd_arena_has_failed(q->arena)) {
        nd_qualified_deinit(&made);
        return nd_fail_memory(err);
    }
    out->found = made;
    return ND_OK;
}

enum nd_status nd_qualify_end_result(struct nd_qualification *q, struct nd_qualify_result *out,
                                     struct nd_error *err)
{
    enum nd_status status = read_last(q, err);
    if (status != ND_OK)
        return status;
    nd_qualify_make_key(q);
    if (!is_last_current(q))
        return judge(q, out, err);
    out->found = q->last;
    out->is_cached = true;
    q->last = (struct nd_qualified){0};
    return ND_OK;
}

static enum nd_status qualify(struct nd_qualification *q, struct nd_qualify_result *out, struct nd_error *err)
{
    int lock = -1;
    enum nd_status status = nd_qualify_plan(q, err);
    if (status == ND_OK)
        status = nd_dir_make(q->folder, err);
    if (status == ND_OK)
        status = nd_qualify_lock(q->folder, false, &lock, err);
    if (status == ND_OK)
        status = nd_qualify_check_fresh(q, err);
    if (status == ND_OK)
        status = nd_qualify_capture(q, err);
    if (status == ND_OK)
        status = nd_qualify_end_result(q, out, err);
    out->n_captured = q->n_captured;
    if (lock >= 0)
        close(lock);
    return status;
}

enum nd_status nd_qualify_begin(const char *campaign, const struct nd_qualify_options *options,
                                struct nd_qualification *q, struct nd_error *err)
{
    *q = (struct nd_qualification){.options = options};
    enum nd_status status = nd_campaign_read(campaign, options->without_policy, &q->campaign, err);
    if (status != ND_OK)
        return status;
    const char *folder = options->folder != NULL ? options->folder : q->campaign.output;
    nd_policy_today(q->today);
    if (folder == NULL)
        status = nd_fail(err, ND_E_OPTION_CONFLICT, campaign,
                         "'%s' names no 'output', and no folder was given (-o DIR)", campaign);
    else if ((q->folder = nd_strdup(folder)) == NULL)
        status = nd_fail_memory(err);
    if (status != ND_OK)
        nd_campaign_deinit(&q->campaign);
    return status;
}

enum nd_status nd_qualify(const char *campaign, const struct nd_qualify_options *options,
                          struct nd_qualify_result *out, struct nd_error *err)
{
    struct nd_qualify_options own = {.struct_size = sizeof own};
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    struct nd_qualification q;
    struct nd_qualify_result result = {0};
    struct nd_error why = {0};
    err = err != NULL ? err : &why; /* reasons are read from it */
    status = nd_qualify_begin(campaign, &own, &q, err);
    if (status != ND_OK)
        return status;
    status = qualify(&q, &result, err);
    nd_qualify_plan_deinit(&q);
    nd_campaign_deinit(&q.campaign);
    result.folder = q.folder;
    if (status == ND_OK)
        *out = result;
    else
        nd_qualify_result_deinit(&result);
    return status;
}
