/* The result of a campaign as a document: its members in JSON, read again, and verdicts by name.
 * docs/reference/campaign.md. */

#include "core/memory.h"
#include "judge/release/qualify.h"

/* ---- verdicts ---- */

const char *nd_case_verdict_name(enum nd_case_verdict verdict)
{
    static const char *const names[] = {"passed",       "warned",         "failed",
                                        "inconclusive", "not comparable", "device failed"};
    return names[verdict];
}

enum nd_exit nd_case_exit_code(enum nd_case_verdict verdict)
{
    static const enum nd_exit qvalues[] = {ND_EXIT_SAME,         ND_EXIT_SAME,           ND_EXIT_DIFFERS,
                                           ND_EXIT_INCONCLUSIVE, ND_EXIT_NOT_COMPARABLE, ND_EXIT_DEVICE_FAILED};
    return qvalues[verdict];
}

enum nd_case_verdict nd_case_verdict_worse(enum nd_case_verdict a, enum nd_case_verdict b)
{
    enum nd_exit of_a = nd_case_exit_code(a), of_b = nd_case_exit_code(b);
    if (of_a == of_b)
        return a > b ? a : b; /* passed and warned */
    return nd_exit_worse(of_a, of_b) == of_a ? a : b;
}

enum nd_case_verdict nd_case_verdict_of_answer(enum nd_answer_kind kind)
{
    static const enum nd_case_verdict verdicts[] = {[ND_ANSWER_INCONCLUSIVE] = ND_CASE_INCONCLUSIVE,
                                                    [ND_ANSWER_YES] = ND_CASE_PASSED,
                                                    [ND_ANSWER_NO] = ND_CASE_FAILED};
    return verdicts[kind];
}

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
           ND_FIELD("broken", TEXT, broken), ND_FIELD("explanation", TEXT, explanation),
           ND_FIELD("run_s", REAL_IF, run_s));
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
    json_array_foreach(value, i, item)
        rename_members(item);
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((item = json_object_get(value, names[i][0])) != NULL) {
            json_object_set(value, names[i][1], item);
            json_object_del(value, names[i][0]);
        }
    json_object_foreach(value, key, item) {
        if (strcmp(key, "baseline") != 0)
            rename_members(item);
    }
}

enum nd_status nd_qualified_read(const char *json, struct nd_qualified *out, struct nd_error *err)
{
    json_error_t problem;
    json_auto_t *root = json_loads(json, 0, &problem);
    if (root == NULL && json_error_code(&problem) == json_error_out_of_memory)
        return nd_fail_memory(err);
    if (root == NULL)
        return nd_fail(err, ND_E_RESULT_FORMAT, NULL, "no result of a campaign: line %d: %s", problem.line,
                       problem.text);
    const char *kind = json_string_value(json_object_get(root, "kind"));
    json_int_t format = json_integer_value(json_object_get(root, "format"));
    if (kind == NULL || strcmp(kind, nd_document_word(ND_DOCUMENT_QUALIFICATION)) != 0 || format < 1 ||
        format > ND_JSON_FORMAT)
        return nd_fail(err, ND_E_RESULT_FORMAT, NULL, "no result of a campaign, or one of a different format");
    if (format == 1)
        rename_members(root);
    ND_CLEANUP(nd_qualified_deinit) struct nd_qualified made = {.owner = nd_arena_create()};
    ND_TRY_MEMORY(made.owner != NULL, err);
    nd_json_get_members(root, &nd_qualified_members, &made, made.owner);
    ND_TRY_MEMORY(!nd_arena_has_failed(made.owner), err);
    for (int v = 0; v < ND_QUALIFIED_N_VERDICTS; v++) {
        made.counts[v].verdict = nd_case_verdict_name((enum nd_case_verdict)v);
        made.counts[v].n = made.counts[v].n != SIZE_MAX ? made.counts[v].n : 0;
    }
    return ND_GIVE(out, made);
}

void nd_qualified_deinit(struct nd_qualified *result)
{
    nd_arena_destroy(result->owner);
    *result = (struct nd_qualified){0};
}
