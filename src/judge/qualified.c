/* Reading the result of a campaign: what each struct has of an object of result.json stands in tables. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "base/memory.h"
#include "judge/qualify.h"

/* ---- what is read ---- */

enum kind {
    TEXT,  /* const char *: "" where there is none */
    REAL,  /* double: also "NaN", "Infinity", "-Infinity"; NaN where there is none */
    COUNT, /* size_t: SIZE_MAX where there is none */
    TEXTS, /* struct nd_qualified_texts */
    PART,  /* an object, or a list of two numbers, of the shape's members */
    LIST,  /* {size_t n; struct *items}: objects of the shape */
};

struct shape;
struct field {
    const char *key; /* "a.b": member b of object a; "0": the first of a list */
    enum kind kind;
    size_t offset;
    const struct shape *shape;
};
struct shape {
    size_t bytes;
    const struct field *fields; /* ends with a NULL key */
};

#define SHAPE(name, type, ...)                                                                                 \
    static const struct field name##_fields[] = {__VA_ARGS__, {.key = NULL}};                                  \
    static const struct shape name = {sizeof(type), name##_fields}

/* One member of struct S; with the shape of a PART or of the items of a LIST. */
#define MEMBER(key_, kind_, member)                                                                            \
    {                                                                                                          \
        .key = (key_), .kind = (kind_), .offset = offsetof(S, member)                                          \
    }
#define PART_OF(key_, kind_, member, shape_)                                                                   \
    {                                                                                                          \
        .key = (key_), .kind = (kind_), .offset = offsetof(S, member), .shape = &(shape_)                      \
    }

#define S struct nd_qualified_interval
SHAPE(interval, S, MEMBER("0", REAL, low), MEMBER("1", REAL, high));
#undef S
#define S struct nd_qualified_estimate
SHAPE(estimate, S, MEMBER("value", REAL, value), PART_OF("interval", PART, interval, interval));
#undef S
#define S struct nd_qualified_pair
SHAPE(pair, S, MEMBER("reference", TEXT, reference), MEMBER("samples", COUNT, n_samples),
      MEMBER("right_before", COUNT, n_right_before), MEMBER("right_after", COUNT, n_right_after),
      MEMBER("right_to_wrong", COUNT, n_right_to_wrong), MEMBER("wrong_to_right", COUNT, n_wrong_to_right),
      MEMBER("p_value", REAL, p_value), PART_OF("interval", PART, interval, interval),
      MEMBER("margin", REAL, margin), MEMBER("answer", TEXT, answer),
      MEMBER("samples_needed", COUNT, n_samples_needed), MEMBER("evidence.largest", REAL, largest_e),
      MEMBER("evidence.stop", COUNT, stop));
#undef S
#define S struct nd_qualified_pairs
SHAPE(pairs, S, MEMBER("device", TEXT, device), PART_OF("against", LIST, against, pair));
#undef S
#define S struct nd_qualified_study
SHAPE(study, S, MEMBER("probe", TEXT, probe), MEMBER("edge", TEXT, edge), MEMBER("samples", COUNT, n_samples),
      MEMBER("confidence", REAL, confidence), PART_OF("devices", LIST, devices, pairs),
      MEMBER("churn.devices", COUNT, churn.n_devices), MEMBER("churn.mean", REAL, churn.mean),
      MEMBER("churn.any_differs.samples", COUNT, churn.n_any_differs),
      MEMBER("churn.any_differs.of", COUNT, churn.n_any_differs_of),
      MEMBER("churn.unstable.samples", COUNT, churn.n_unstable), MEMBER("spread.verdict", TEXT, spread.verdict),
      MEMBER("spread.best", TEXT, spread.best), MEMBER("spread.worst", TEXT, spread.worst),
      PART_OF("spread.spread", PART, spread.spread, estimate),
      PART_OF("spread.common", PART, spread.common, estimate));
#undef S
#define S struct nd_qualified_distance
SHAPE(distance, S, MEMBER("device", TEXT, device), MEMBER("reference", TEXT, reference),
      PART_OF("mean_error_after", PART, mean_error, estimate),
      PART_OF("mean_error_change", PART, mean_error_change, estimate),
      PART_OF("sqnr_db_after", PART, sqnr_db, estimate),
      PART_OF("sqnr_db_change", PART, sqnr_db_change, estimate));
#undef S
#define S struct nd_qualified_target
SHAPE(target, S, MEMBER("probe", TEXT, probe), MEMBER("edge", TEXT, edge), MEMBER("samples", COUNT, n_samples),
      MEMBER("confidence", REAL, confidence), PART_OF("against", LIST, against, distance));
#undef S
#define S struct nd_qualified_device
SHAPE(device, S, MEMBER("device", TEXT, label), MEMBER("status", TEXT, status),
      MEMBER("failure", TEXT, failure), MEMBER("edges", COUNT, n_edges),
      MEMBER("edges_differing", COUNT, n_edges_differing), MEMBER("first_difference", TEXT, first_difference),
      MEMBER("first_op_types", TEXT, first_op_types), MEMBER("findings", TEXTS, findings),
      MEMBER("broken", TEXT, broken), MEMBER("explanation", TEXT, explanation));
#undef S
#define S struct nd_qualified_reference
SHAPE(reference, S, MEMBER("reference", TEXT, label), MEMBER("broken", TEXT, broken));
#undef S
#define S struct nd_qualified_model
SHAPE(model, S, MEMBER("name", TEXT, name), MEMBER("quantised", TEXT, quantised),
      MEMBER("classes", TEXT, classes), PART_OF("references", LIST, references, reference),
      PART_OF("devices", LIST, devices, device), PART_OF("accuracy", LIST, accuracy, study),
      PART_OF("targets", LIST, targets, target));
#undef S
#define S struct nd_qualified_gate
SHAPE(gate, S, MEMBER("gate", TEXT, gate), MEMBER("text", TEXT, text), MEMBER("edges", TEXTS, edges),
      MEMBER("reason", TEXT, reason), MEMBER("owner", TEXT, owner), MEMBER("until", TEXT, until),
      MEMBER("line", COUNT, line));
#undef S
#define S struct nd_qualified_case
SHAPE(one_case, S, MEMBER("model", TEXT, model), MEMBER("device", TEXT, device), MEMBER("gate", COUNT, gate),
      MEMBER("verdict", TEXT, verdict), MEMBER("value", REAL, value), MEMBER("bound", REAL, bound),
      MEMBER("edge", TEXT, edge), MEMBER("probe", TEXT, probe), MEMBER("checked", COUNT, n_checked),
      MEMBER("failing", COUNT, n_failing), MEMBER("samples", COUNT, n_samples),
      MEMBER("samples_needed", COUNT, n_samples_needed), MEMBER("message", TEXT, message));
#undef S
#define S struct nd_qualified_suggestion
SHAPE(suggestion, S, MEMBER("gate", TEXT, gate), MEMBER("max", REAL, max), MEMBER("margin", REAL, margin),
      MEMBER("confidence", REAL, confidence), MEMBER("edges", TEXT, edges), MEMBER("to", TEXT, to),
      MEMBER("reference", TEXT, reference), MEMBER("models", TEXT, models), MEMBER("devices", TEXTS, devices));
#undef S
#define S struct nd_qualified_omission
SHAPE(omission, S, MEMBER("model", TEXT, model), MEMBER("device", TEXT, device),
      MEMBER("reason", TEXT, reason));
#undef S
#define S struct nd_qualified
SHAPE(whole, S, MEMBER("npudiff", TEXT, version), MEMBER("key", TEXT, key), MEMBER("campaign", TEXT, campaign),
      MEMBER("verdict", TEXT, verdict), MEMBER("reference", TEXT, reference),
      PART_OF("models", LIST, models, model), PART_OF("gates", LIST, gates, gate),
      PART_OF("cases", LIST, cases, one_case), MEMBER("suggestion", TEXT, suggestion),
      PART_OF("suggested.policy", LIST, policy, suggestion),
      PART_OF("suggested.left_out", LIST, left_out, omission));
#undef S

/* ---- reading ---- */

struct list {
    size_t n;
    void *items;
};

/* What a key stands for; NULL: nothing. */
static const json_t *find(const json_t *object, const char *key)
{
    char name[64];
    if (json_is_array(object))
        return json_array_get(object, (size_t)(key[0] - '0'));
    while (object != NULL) {
        size_t n = strcspn(key, ".");
        memcpy(name, key, n);
        name[n] = '\0';
        object = json_object_get(object, name);
        if (key[n] == '\0')
            return object;
        key += n + 1;
    }
    return NULL;
}

static const char *text_of(const json_t *value)
{
    const char *text = json_string_value(value);
    return text != NULL ? text : "";
}

static double real_of(const json_t *value)
{
    if (json_is_number(value))
        return json_number_value(value);
    const char *text = text_of(value);
    return strcmp(text, "Infinity") == 0 ? INFINITY : strcmp(text, "-Infinity") == 0 ? -INFINITY : NAN;
}

static bool read_texts(const json_t *value, struct nd_qualified_texts *out)
{
    size_t i;
    const json_t *item;
    out->items = nd_calloc(json_array_size(value), sizeof *out->items);
    if (out->items == NULL)
        return false;
    json_array_foreach(value, i, item) out->items[out->n++] = text_of(item);
    return true;
}

static bool read_object(const json_t *object, const struct shape *shape, void *out);

static bool read_list(const json_t *value, const struct shape *shape, struct list *out)
{
    size_t n = json_array_size(value);
    bool is_whole = true;
    out->items = nd_calloc(n, shape->bytes);
    if (out->items == NULL)
        return false;
    for (out->n = 0; is_whole && out->n < n; out->n++)
        is_whole =
            read_object(json_array_get(value, out->n), shape, (char *)out->items + out->n * shape->bytes);
    return is_whole;
}

/* False: out of memory; what was read can be freed. */
static bool read_object(const json_t *object, const struct shape *shape, void *out)
{
    bool is_whole = true;
    for (const struct field *field = shape->fields; is_whole && field->key != NULL; field++) {
        const json_t *value = find(object, field->key);
        void *at = (char *)out + field->offset;
        switch (field->kind) {
        case TEXT:
            *(const char **)at = text_of(value);
            break;
        case REAL:
            *(double *)at = real_of(value);
            break;
        case COUNT:
            *(size_t *)at = json_is_integer(value) && json_integer_value(value) >= 0
                                ? (size_t)json_integer_value(value)
                                : SIZE_MAX;
            break;
        case TEXTS:
            is_whole = read_texts(value, at);
            break;
        case PART:
            is_whole = read_object(value, field->shape, at);
            break;
        case LIST:
            is_whole = read_list(value, field->shape, at);
        }
    }
    return is_whole;
}

static void free_object(const struct shape *shape, void *object)
{
    for (const struct field *field = shape->fields; field->key != NULL; field++) {
        struct list *list = (void *)((char *)object + field->offset);
        if (field->kind != TEXTS && field->kind != LIST)
            continue;
        for (size_t i = 0; field->kind == LIST && i < list->n; i++)
            free_object(field->shape, (char *)list->items + i * field->shape->bytes);
        free(list->items);
    }
}

static void read_counts(const json_t *counts, struct nd_qualified *out)
{
    for (int v = 0; v < ND_QUALIFIED_N_VERDICTS; v++) {
        out->counts[v].verdict = nd_case_verdict_name((enum nd_case_verdict)v);
        out->counts[v].n = (size_t)json_integer_value(json_object_get(counts, out->counts[v].verdict));
    }
}

enum nd_status nd_qualified_take(json_t *root, struct nd_qualified *out, struct nd_error *err)
{
    struct nd_qualified made = {
        .owner = root, .exit_code = (enum nd_exit)json_integer_value(json_object_get(root, "exit_code"))};
    bool is_good = strcmp(text_of(json_object_get(root, "kind")), "qualification") == 0 &&
                   json_integer_value(json_object_get(root, "format")) == 1;
    enum nd_status status = ND_OK;
    if (!is_good)
        status = nd_fail(err, ND_E_RESULT_FORMAT, NULL, "no result of a campaign, or one of another format");
    else if (!read_object(root, &whole, &made))
        status = nd_fail_memory(err);
    read_counts(json_object_get(root, "counts"), &made);
    if (status == ND_OK)
        *out = made;
    else
        nd_qualified_deinit(&made);
    return status;
}

enum nd_status nd_qualified_read(const char *json, struct nd_qualified *out, struct nd_error *err)
{
    json_error_t problem;
    json_t *root = json_loads(json, 0, &problem);
    if (root == NULL)
        return nd_fail(err, ND_E_RESULT_FORMAT, NULL, "no result of a campaign: line %d: %s", problem.line,
                       problem.text);
    return nd_qualified_take(root, out, err);
}

void nd_qualified_deinit(struct nd_qualified *result)
{
    free_object(&whole, result);
    json_decref(result->owner);
    *result = (struct nd_qualified){0};
}
