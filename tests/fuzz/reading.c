/* What the readers of some files make of them, for tools/studies/readings, which reads the same files by
 * itself.
 *
 *   kind_reading KIND MODEL [BESIDE...] < a list of paths
 *
 * KIND: frame, took, part, certificate, campaign, explanation (a part of one), sheet (a part of a datasheet) or
 * datasheet. MODEL: that of certificates and explanations. BESIDE: the captures of an explanation, the
 * datasheet to compare with. Prints a line of JSON for each file: null where it is refused, else what was read.
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "devices/agent/runner/connection.h"
#include "fuzz/fuzz.h"
#include "improve/align/certificate/certificate.h"
#include "judge/campaign/policy.h"
#include "judge/tasks/task.h"
#include "npudiff/compare/compare.h"
#include "npudiff/explain/explain.h"
#include "npudiff/lab/fingerprint.h"
#include "npudiff/report/report.h"

enum { MAX_DATA_BYTES = 1 << 20, MAX_FILE_BYTES = 1 << 20, MAX_CAPTURES = 4 };

/* A text that may hold any bytes: its bytes as code points. */
static json_t *text(const char *bytes)
{
    json_t *qvalues = json_array();
    for (; *bytes != '\0'; bytes++)
        json_array_append_new(qvalues, json_integer((unsigned char)*bytes));
    return qvalues;
}

static json_t *text_or_null(const char *bytes)
{
    return bytes != NULL ? text(bytes) : json_null();
}

/* ---- frames ---- */

static json_t *read_frame(const char *path)
{
    json_t *frames = json_array();
    struct nd_frame frame = {0};
    char problem[ND_FRAME_PROBLEM_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (nd_frame_read(fd, ND_FRAME_NO_END, MAX_DATA_BYTES, &frame, problem) == ND_FRAME_WHOLE) {
        json_t *data = json_array();
        for (size_t i = 0; i < frame.data_bytes; i++)
            json_array_append_new(data, json_integer(frame.data[i]));
        json_array_append_new(frames, json_pack("{s:O, s:o}", "message", frame.message, "data", data));
    }
    close(fd);
    nd_frame_deinit(&frame);
    return json_pack("{s:o}", "frames", frames);
}

/* ---- what tasks took, and parts ---- */

static json_t *read_took(const char *path)
{
    struct nd_took_list list = {0};
    void *bytes = NULL;
    size_t n;
    if (nd_file_read(path, MAX_FILE_BYTES, &bytes, &n, NULL) != ND_OK)
        abort();
    fuzz_file("result.json.took", bytes, n);
    free(bytes);
    json_t *out = json_null();
    if (nd_took_read_folder(fuzz_folder(), &list, NULL) == ND_OK && list.n == 1) {
        const struct nd_took *took = &list.items[0];
        out = json_pack("{s:s, s:o, s:o, s:o, s:I, s:f, s:I, s:I}", "task", nd_task_kind_name(took->kind),
                        "model", text(took->model), "device", text(took->device), "uri", text(took->uri),
                        "runs", (json_int_t)took->n_runs, "seconds", took->seconds, "memory_bytes",
                        (json_int_t)took->memory_bytes, "bytes", (json_int_t)took->bytes);
    }
    nd_took_list_deinit(&list);
    return out;
}

static json_t *read_part(const char *path)
{
    struct nd_parts *parts = NULL;
    bool is_read = nd_parts_read(&path, 1, &parts, NULL) == ND_OK;
    nd_parts_destroy(&parts);
    return is_read ? json_true() : json_null();
}

/* ---- certificates ---- */

static json_t *read_certificate(const char *path, struct nd_model *model)
{
    struct nd_certificate *certificate = NULL;
    struct nd_certificate_check *found = NULL;
    json_t *out = json_null();
    if (nd_certificate_read(path, &certificate, NULL) == ND_OK &&
        nd_certificate_set_dims(certificate, model, NULL) == ND_OK &&
        nd_certificate_verify(certificate, model, NULL, &found, NULL) == ND_OK &&
        found->end != ND_CERTIFICATE_REFUSED) {
        json_t *arithmetics = json_array();
        for (size_t i = 0; i < found->n_arithmetics; i++)
            json_array_append_new(arithmetics, json_string(found->arithmetics[i]));
        out = json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "end",
                        nd_certificate_end_name(found->end), "npudiff", found->version, "arithmetics",
                        arithmetics, "layers", (json_int_t)found->n_layers, "proven",
                        (json_int_t)found->n_proven, "tested", (json_int_t)found->n_tested, "unknown",
                        (json_int_t)found->n_unknown, "differ", (json_int_t)found->n_differ, "proven_again",
                        (json_int_t)found->n_proven_again, "has_price", found->has_accuracy_cost);
    }
    nd_certificate_check_destroy(&found);
    nd_certificate_destroy(&certificate);
    return out;
}

/* ---- campaigns ---- */

static json_t *texts(const struct nd_texts *list)
{
    json_t *out = json_array();
    for (size_t i = 0; i < list->n; i++)
        json_array_append_new(out, text(list->items[i]));
    return out;
}

/* NaN: nothing is said. */
static json_t *number(double value)
{
    return value == value ? json_real(value) : json_null();
}

static json_t *rule_of(const struct nd_policy_rule *rule)
{
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "gate",
        nd_policy_gate_name(rule->gate), "models", texts(&rule->models), "devices", texts(&rule->devices),
        "tensors", texts(&rule->tensors), "probes", texts(&rule->probes), "allow", texts(&rule->allow), "to",
        text_or_null(rule->to), "max", number(rule->max), "metric", text_or_null(rule->metric), "min",
        number(rule->min), "warn", number(rule->warn), "fail", number(rule->fail), "margin",
        number(rule->margin), "confidence", number(rule->confidence), "power", number(rule->power), "reason",
        text_or_null(rule->reason), "owner", text_or_null(rule->owner), "until", text_or_null(rule->until));
}

static json_t *read_campaign(const char *path)
{
    struct nd_campaign c;
    if (nd_campaign_read(path, false, &c, NULL) != ND_OK)
        return json_null();
    json_t *models = json_array(), *devices = json_array(), *rules = json_array();
    for (size_t i = 0; i < c.n_models; i++)
        json_array_append_new(models, json_pack("{s:o, s:o, s:o, s:o, s:o}", "name", text(c.models[i].name),
                                                "quantised", text(c.models[i].quantised), "float",
                                                text_or_null(c.models[i].float_model), "probes",
                                                texts(&c.models[i].probes), "dims", texts(&c.models[i].dims)));
    for (size_t i = 0; i < c.n_devices; i++) {
        json_t *prepared = json_array();
        for (size_t k = 0; k < c.devices[i].n_prepared; k++)
            json_array_append_new(prepared, json_pack("[o, o]", text(c.devices[i].prepared[k].model),
                                                      text(c.devices[i].prepared[k].path)));
        json_array_append_new(devices, json_pack("[o, o]", text(c.devices[i].uri), prepared));
    }
    for (size_t i = 0; i < c.policy.n; i++)
        json_array_append_new(rules, rule_of(&c.policy.rules[i]));
    json_t *out = json_pack("{s:o, s:o, s:o, s:I, s:f, s:f, s:f, s:o, s:b, s:o, s:o, s:o}", "name",
                            text(c.name), "output", text_or_null(c.output), "tensors", text(c.tensors),
                            "repeats", (json_int_t)c.n_repeats, "margin", c.margin, "confidence", c.confidence,
                            "power", c.power, "reference", text(c.reference), "explain", c.explain, "models",
                            models, "devices", devices, "policy", rules);
    nd_campaign_deinit(&c);
    return out;
}

/* ---- explanations ---- */

/* What stands beside the files. */
struct beside {
    struct nd_model *model;
    struct nd_capture *captures[MAX_CAPTURES];
    size_t n;
    char *sheet;
};

/* The tree of a text, which is freed; null where it is refused. */
static json_t *tree_of(enum nd_status status, char *text)
{
    json_t *tree = status == ND_OK ? json_loads(text, 0, NULL) : json_null();
    free(text);
    return tree;
}

static json_t *read_explanation(const char *path, const struct beside *beside)
{
    enum { EFFECT_SAMPLES = 2 }; /* all that the part has, as the command has it */
    const struct nd_explain_options options = {.struct_size = sizeof options,
                                               .n_output_effect_samples = EFFECT_SAMPLES,
                                               .n_threads = 1,
                                               .merge = &path,
                                               .n_merge = 1};
    struct nd_explanation *explanation = NULL;
    char *text = NULL;
    enum nd_status status = nd_explain(beside->model, NULL, (const struct nd_capture *const *)beside->captures,
                                       beside->n, &options, &explanation, NULL);
    if (status == ND_OK)
        status = nd_report_explanation_json(explanation, NULL, &text, NULL);
    nd_explanation_destroy(&explanation);
    return tree_of(status, text);
}

/* ---- datasheets ---- */

static char *text_of(const char *path)
{
    void *bytes = NULL;
    size_t n;
    if (nd_file_read(path, MAX_FILE_BYTES, &bytes, &n, NULL) != ND_OK)
        abort();
    return bytes;
}

static json_t *read_sheet(const char *path, const char *other)
{
    char *own = text_of(path), *text = NULL;
    const struct nd_datasheet sheet = {own, "x"}, beside = {other, "y"};
    bool is_same;
    enum nd_status status = other != NULL ? nd_fingerprint_diff(&sheet, &beside, &text, &is_same, NULL)
                                          : nd_fingerprint_merge(&sheet, 1, &text, NULL);
    free(own);
    return tree_of(status, text);
}

/* ---- all ---- */

static json_t *read_kind(const char *kind, const char *path, const struct beside *beside)
{
    if (strcmp(kind, "explanation") == 0)
        return read_explanation(path, beside);
    if (strcmp(kind, "sheet") == 0 || strcmp(kind, "datasheet") == 0)
        return read_sheet(path, beside->sheet);
    if (strcmp(kind, "frame") == 0)
        return read_frame(path);
    if (strcmp(kind, "took") == 0)
        return read_took(path);
    if (strcmp(kind, "part") == 0)
        return read_part(path);
    return strcmp(kind, "certificate") == 0 ? read_certificate(path, beside->model) : read_campaign(path);
}

int main(int argc, char **argv)
{
    struct beside beside = {0};
    char path[4096];
    if (argc < 3 || argc > 3 + MAX_CAPTURES || nd_model_load(argv[2], &beside.model, NULL) != ND_OK)
        return 2;
    bool is_sheet = strcmp(argv[1], "datasheet") == 0;
    if (is_sheet && argc == 4)
        beside.sheet = text_of(argv[3]);
    for (int i = 3; !is_sheet && i < argc; i++)
        if (nd_capture_open(argv[i], &beside.captures[beside.n++], NULL) != ND_OK)
            return 2;
    while (fgets(path, sizeof path, stdin) != NULL) {
        path[strcspn(path, "\n")] = '\0';
        json_t *read = read_kind(argv[1], path, &beside);
        if (read == NULL || json_dumpf(read, stdout, JSON_ENCODE_ANY | JSON_COMPACT) != 0)
            abort();
        putchar('\n');
        json_decref(read);
    }
    for (size_t i = 0; i < beside.n; i++)
        nd_capture_close(&beside.captures[i]);
    nd_model_destroy(&beside.model);
    free(beside.sheet);
    return 0;
}
