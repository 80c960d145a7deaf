/* A qualification from beginning to end: captures that are there are compared, judged and explained, and what
 * was found becomes the result of the campaign. docs/reference/campaign.md. */
#include "judge/release/qualify.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "record/sessions/capture_run.h"

/* ---- what was found, as the result of the campaign ---- */

/* ---- the tightest policy that the captures pass: for every model, devices with the same bounds together.
 * Every device gets one gate of a kind, so that none loosens another ---- */

/* What one device needs. */
struct bounds {
    bool is_known;
    bool has_integers, has_floats;
    double lsb, ulp, share;
    double margin; /* NaN: no accuracy */
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void add_part(struct bounds *bounds, const struct nd_compared_tensor *tensor,
                     const struct nd_difference *d)
{
    bool is_float = nd_dtype_is_float(tensor->dtype);
    *(is_float ? &bounds->has_floats : &bounds->has_integers) = true;
    if (d->n_samples_differing == 0)
        return;
    /* Values that are not stored, of mixed types, or not finite on one side: no number would pass. */
    bool is_countable =
        d->has_values && d->is_integer != is_float && d->n_nan_mismatch == 0 && d->n_inf_mismatch == 0;
    bounds->is_known = bounds->is_known && is_countable;
    double *bound = is_float ? &bounds->ulp : &bounds->lsb;
    *bound = larger(*bound, (double)(is_float ? d->max_ulp : d->max_lsb));
    bounds->share = larger(bounds->share, d->share);
}

/* The smallest margin of four decimals that is proven; NaN: none is. */
static double margin_of(const struct nd_qualification *q, const struct nd_qualify_model *model, size_t device)
{
    double margin = NAN;
    const struct nd_paired_question question =
        nd_qualify_question(0.5, q->campaign.confidence, q->campaign.power);
    for (size_t i = 0; i < model->n_studies; i++) {
        const struct nd_accuracy_study *study = &model->studies[i];
        const int64_t *test = nd_accuracy_study_classes(study, device);
        struct nd_paired table;
        struct nd_paired_answer answer;
        uint64_t unused;
        if (test == NULL || study->quantised == NULL)
            return NAN;
        nd_paired_count(study->quantised, test, study->labels, study->n_samples, &table, &unused);
        nd_paired_ask(&table, &question, &answer);
        double needed = ceil(-answer.interval.low * 1e4 + 1e-6) / 1e4;
        needed = needed < 1e-4 ? 1e-4 : needed;
        margin = isnan(margin) ? needed : larger(margin, needed);
    }
    return margin < 0.9999 ? margin : NAN;
}

static struct bounds bounds_of(const struct nd_qualification *q, const struct nd_qualify_model *model,
                               size_t device)
{
    struct bounds bounds = {.is_known = true, .margin = margin_of(q, model, device)};
    size_t test;
    const struct nd_comparison *c = nd_qualify_compared(q, model, device, &test);
    if (c == NULL)
        return (struct bounds){.margin = NAN};
    for (size_t e = 0; e < c->n_tensors; e++) {
        const struct nd_compared_pair *pair = &c->tensors[e].pairs[test - 1];
        for (size_t s = 0; s < model->n_tensors; s++)
            if (strcmp(model->tensors[s].name, c->tensors[e].name) == 0)
                for (size_t p = 0; p < c->n_probes; p++) {
                    bounds.is_known = bounds.is_known && pair->probes[p].coverage == ND_COVERAGE_FULL;
                    add_part(&bounds, &c->tensors[e], &pair->probes[p].difference);
                }
    }
    return bounds;
}

static bool is_same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool is_alike(const struct bounds *a, const struct bounds *b)
{
    return a->is_known && b->is_known && a->has_integers == b->has_integers && a->has_floats == b->has_floats &&
           a->lsb == b->lsb && a->ulp == b->ulp && a->share == b->share && is_same_number(a->margin, b->margin);
}

/* In single quotes, where only a quote is special. */
static void put_quoted(struct nd_strbuf *out, const char *text)
{
    nd_strbuf_puts(out, "'");
    for (; *text != '\0'; text++)
        nd_strbuf_append(out, *text == '\'' ? "''" : text, *text == '\'' ? 2 : 1);
    nd_strbuf_puts(out, "'");
}

/* What is proposed: in parts for programs, and as YAML for people. */
struct suggestion {
    const struct nd_qualification *q;
    struct nd_qualified *out;
    struct nd_strbuf yaml;
};

static void put_key(struct suggestion *to, const char *key)
{
    nd_strbuf_printf(&to->yaml, "    %s: ", key);
}

static void put_word(struct suggestion *to, const char *key, const char *text)
{
    put_key(to, key);
    nd_strbuf_printf(&to->yaml, "%s\n", text);
}

static void put_text(struct suggestion *to, const char *key, const char *text)
{
    put_key(to, key);
    put_quoted(&to->yaml, text);
    nd_strbuf_puts(&to->yaml, "\n");
}

static void put_number(struct suggestion *to, const char *key, double value)
{
    char number[32];
    if (!isnan(value))
        put_word(to, key, nd_policy_format_number(value, number));
}

static void add_gate(struct suggestion *to, const struct nd_qualified_suggestion *gate)
{
    to->out->policy.items[to->out->policy.n++] = *gate;
    nd_strbuf_printf(&to->yaml, "  - gate: %s\n", gate->gate);
    put_number(to, "max", gate->max);
    put_number(to, "margin", gate->margin);
    put_number(to, "confidence", gate->confidence);
    if (gate->tensors[0] != '\0')
        put_text(to, "tensors", gate->tensors);
    if (gate->to[0] != '\0')
        put_text(to, "to", gate->to);
    if (gate->reference[0] != '\0')
        put_word(to, "reference", gate->reference);
    if (gate->models[0] != '\0')
        put_text(to, "models", gate->models);
    if (gate->devices.n > 0) {
        /* The YAML of a list of texts, as in "['a', 'b']". */
        put_key(to, "devices");
        for (size_t i = 0; i < gate->devices.n; i++) {
            nd_strbuf_puts(&to->yaml, i > 0 ? ", " : "[");
            put_quoted(&to->yaml, gate->devices.items[i]);
        }
        nd_strbuf_puts(&to->yaml, "]\n");
    }
}

static void add_gates(struct suggestion *to, const char *model, const struct bounds *bounds,
                      struct nd_qualified_texts devices)
{
    struct nd_qualified_suggestion gate = {.margin = NAN,
                                           .confidence = NAN,
                                           .tensors = "*",
                                           .to = nd_qualify_text(to->q, to->q->campaign.reference),
                                           .reference = "",
                                           .models = nd_qualify_text(to->q, model),
                                           .devices = devices};
    const struct {
        const char *gate;
        bool has;
        double max;
    } bounded[] = {{"lsb", bounds->has_integers, bounds->lsb},
                   {"ulp", bounds->has_floats, bounds->ulp},
                   {"differing-share", bounds->has_integers || bounds->has_floats, bounds->share}};
    for (size_t i = 0; i < sizeof bounded / sizeof bounded[0]; i++) {
        gate.gate = bounded[i].gate;
        gate.max = bounded[i].max;
        if (bounded[i].has)
            add_gate(to, &gate);
    }
    gate.gate = "accuracy-drop";
    gate.max = NAN;
    gate.margin = bounds->margin;
    gate.confidence = to->q->campaign.confidence;
    gate.tensors = gate.to = "";
    gate.reference = ND_REFERENCE_QUANTISED;
    if (!isnan(bounds->margin))
        add_gate(to, &gate);
}

static void leave_out(struct suggestion *to, const char *model, const char *device, const char *why)
{
    nd_strbuf_printf(&to->yaml, "  # nothing is proposed for '%s' on '%s': it %s\n", model, device, why);
    to->out->left_out.items[to->out->left_out.n++] =
        (struct nd_qualified_omission){nd_qualify_text(to->q, model), nd_qualify_text(to->q, device), why};
}

static void suggest_model(struct suggestion *to, const struct nd_qualify_model *model)
{
    const struct nd_qualification *q = to->q;
    ND_FREED struct bounds *bounds = nd_calloc(q->n_devices, sizeof *bounds);
    if (bounds == NULL) {
        nd_arena_fail(q->arena);
        return;
    }
    for (size_t d = 0; d < q->n_devices; d++)
        bounds[d] = bounds_of(q, model, d);
    for (size_t d = 0; d < q->n_devices; d++) {
        bool is_first = true;
        for (size_t i = 0; i < d; i++)
            is_first = is_first && !is_alike(&bounds[i], &bounds[d]);
        if (!bounds[d].is_known && strcmp(q->labels[d], q->campaign.reference) != 0)
            leave_out(to, model->campaign->name, q->labels[d],
                      model->cells[d].failure != NULL ? "failed" : "cannot be compared in numbers");
        if (is_first && bounds[d].is_known) {
            /* The devices with the bounds of device d, which is the first that has them. */
            struct nd_qualified_texts devices = {
                .items = nd_arena_calloc(q->arena, q->n_devices, sizeof *devices.items)};
            for (size_t i = d; devices.items != NULL && i < q->n_devices; i++)
                if (i == d || is_alike(&bounds[d], &bounds[i]))
                    devices.items[devices.n++] = nd_qualify_text(q, q->labels[i]);
            add_gates(to, model->campaign->name, &bounds[d], devices);
        }
    }
}

/* Fills the suggestion, as YAML and in parts. */
static void suggest(const struct nd_qualification *q, struct nd_qualified *out)
{
    enum { GATES_OF_A_DEVICE = 4 };
    static const struct nd_qualified_suggestion finalize = {
        "finalize", (double)NAN, (double)NAN, (double)NAN, "", "", "", "", {0, NULL}};
    struct suggestion to = {.q = q, .out = out};
    size_t n = q->campaign.n_models * q->n_devices;
    out->policy.items = nd_arena_calloc(q->arena, 1 + GATES_OF_A_DEVICE * n, sizeof *out->policy.items);
    out->left_out.items = nd_arena_calloc(q->arena, n, sizeof *out->left_out.items);
    if (nd_arena_has_failed(q->arena))
        return;
    nd_strbuf_puts(&to.yaml, "policy:\n");
    add_gate(&to, &finalize);
    for (size_t m = 0; m < q->campaign.n_models; m++)
        suggest_model(&to, &q->models[m]);
    ND_FREED char *text = nd_strbuf_take(&to.yaml);
    if (text == NULL)
        nd_arena_fail(q->arena);
    out->suggestion = nd_arena_text(q->arena, text);
}

/* "2.51.0" of the runtime "qairt-2.51.0". */
static const char *version_of(const char *runtime)
{
    static const char prefix[] = "qairt-";
    return strncmp(runtime, prefix, sizeof prefix - 1) == 0 ? runtime + sizeof prefix - 1 : runtime;
}

/* Whether "2.51.0.260929181845" is a build of "2.51.0". */
static bool is_build_of(const char *sdk, const char *version)
{
    size_t n = strlen(version);
    return strncmp(sdk, version, n) == 0 && (sdk[n] == '\0' || sdk[n] == '.');
}

/* Appends what the binary of a prepared model was made for, where that is another SDK or another chipset than
 * those of the device: at most one text each. */
static void nd_qualify_add_prepared_findings(const struct nd_qualification *q,
                                             const struct nd_qualify_cell *cell,
                                             struct nd_qualified_texts *findings)
{
    if (!cell->binary.exists || cell->device.chipset == NULL)
        return;
    const char *version = version_of(cell->device.runtime.id), *sdk = cell->binary.sdk;
    if (sdk[0] != '\0' && !is_build_of(sdk, version))
        findings->items[findings->n++] =
            nd_arena_printf(q->arena, "binary prepared with SDK %s, run with SDK %s", sdk, version);
    char name[ND_BINARY_BYTES];
    const struct nd_chipset *own = cell->device.chipset;
    if (nd_binary_chipset(&cell->binary, name) != own && name[0] != '\0')
        findings->items[findings->n++] = nd_arena_printf(
            q->arena, "binary prepared for chipset %s, run as %s (%s)", name, own->sm, own->arch);
}

static struct nd_qualified_texts texts_of(const struct nd_qualification *q, const struct nd_texts *texts)
{
    struct nd_qualified_texts list = {.items = nd_arena_calloc(q->arena, texts->n, sizeof *list.items)};
    while (list.items != NULL && list.n < texts->n) {
        list.items[list.n] = nd_qualify_text(q, texts->items[list.n]);
        list.n++;
    }
    return list;
}

/* ---- devices ---- */

/* What the device has in common with the reference of the campaign. */
static void fill_comparison(const struct nd_qualification *q, const struct nd_qualify_model *model,
                            size_t device, struct nd_qualified_device *out)
{
    size_t test;
    const struct nd_comparison *c = nd_qualify_compared(q, model, device, &test);
    out->n_tensors = out->n_tensors_differing = SIZE_MAX;
    out->first_difference = out->first_op_types = "";
    out->class_id = INT_MIN;
    if (c == NULL)
        return;
    out->class_id = c->devices[test].class_id;
    if (out->class_id < 0) /* without data nothing is equal */
        return;
    size_t first = c->devices[test].first_tensor;
    out->n_tensors = c->n_tensors;
    out->n_tensors_differing = 0;
    for (size_t e = 0; e < c->n_tensors; e++)
        out->n_tensors_differing += c->tensors[e].pairs[test - 1].verdict == ND_VERDICT_DIFFERS;
    if (first != SIZE_MAX) {
        out->first_difference = nd_qualify_text(q, c->tensors[first].name);
        out->first_op_types = nd_qualify_text(q, c->tensors[first].op_types);
    }
}

/* Seconds of all runs: a function of the capture, so that the same captures give the same result. */
static double run_seconds(const struct nd_capture *capture)
{
    double sum = NAN;
    for (size_t p = 0; capture != NULL && p < nd_capture_n_probes(capture); p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
        for (size_t i = 0; probe->latency_us != NULL && i < probe->n_samples * probe->n_repeats; i++)
            if (isfinite(probe->latency_us[i]))
                sum = (isnan(sum) ? 0 : sum) + probe->latency_us[i] / 1e6;
    }
    return sum;
}

static void fill_device(const struct nd_qualification *q, const struct nd_qualify_model *model, size_t device,
                        struct nd_qualified_device *out)
{
    const struct nd_qualify_cell *cell = &model->cells[device];
    enum nd_capture_status state = nd_capture_state(cell->capture);
    /* A complete capture of a device that fell back where it may not is a failure, too. */
    bool is_failed = state == ND_CAPTURE_COMPLETE && cell->failure != NULL;
    *out = (struct nd_qualified_device){
        .label = nd_qualify_text(q, cell->label),
        .uri = nd_qualify_text(q, cell->device.uri),
        .chipset = cell->device.chipset != NULL ? cell->device.chipset->sm : "",
        .runtime = nd_qualify_text(q, cell->device.runtime.id),
        .capture = nd_qualify_text(q, cell->relative),
        .capture_sha256 = nd_qualify_text(q, cell->sha256),
        .prepared =
            nd_qualify_text(q, cell->prepared != NULL ? nd_path_base(nd_model_path(cell->prepared)) : NULL),
        .prepared_sdk = nd_qualify_text(q, cell->binary.sdk),
        .prepared_chipset = nd_qualify_text(q, cell->binary.chipset),
        .status = nd_capture_state_name(is_failed ? ND_CAPTURE_FAILED : state),
        .failure = nd_qualify_text(q, cell->failure),
        .broken = nd_qualify_text(q, cell->broken),
        .explanation = nd_qualify_text(q, model->explanations[device]),
        .run_s = run_seconds(cell->capture),
    };
    out->findings.items = nd_arena_calloc(q->arena, ND_QUALIFY_MAX_FINDINGS, sizeof *out->findings.items);
    if (out->findings.items != NULL) {
        nd_qualify_add_prepared_findings(q, cell, &out->findings);
        nd_qualify_add_moved_finding(q, cell, &out->findings);
    }
    fill_comparison(q, model, device, out);
}

static void add_target_pair(const struct nd_qualification *q, const struct nd_qualify_model *model,
                            const struct nd_qualify_target *target, const size_t cells[2],
                            struct nd_qualified_target *out)
{
    struct nd_target_comparison c;
    if (!nd_qualify_compare_target(target, cells[0], cells[1], q->campaign.confidence, &c))
        return;
    out->against.items[out->against.n++] = (struct nd_qualified_distance){
        .device = nd_qualify_text(q, model->cells[cells[1]].label),
        .reference = nd_qualify_text(q, model->cells[cells[0]].label),
        .mean_error_before = c.ref.mean_error,
        .mean_error = c.test.mean_error,
        .mean_error_change = c.difference.mean_error,
        .sqnr_db_before = c.ref.sqnr_db,
        .sqnr_db = c.test.sqnr_db,
        .sqnr_db_change = c.difference.sqnr_db,
    };
}

static void fill_model(const struct nd_qualification *q, const struct nd_qualify_model *model,
                       struct nd_qualified_model *out)
{
    const struct nd_qualify_comparison *found =
        nd_qualify_find_comparison(model, nd_qualify_find_cell(model, q->n_devices, q->campaign.reference));
    const struct nd_comparison *c = found != NULL ? found->comparison : NULL;
    const struct nd_campaign_model *campaign = model->campaign;
    *out = (struct nd_qualified_model){
        .name = nd_qualify_text(q, campaign->name),
        .quantised = nd_qualify_text(q, nd_path_base(campaign->quantised)),
        .sha256 = nd_qualify_text(q, nd_model_sha256(model->model)),
        .float_model =
            nd_qualify_text(q, model->float_model != NULL ? nd_path_base(campaign->float_model) : NULL),
        .classes = nd_qualify_text(q, c != NULL ? c->classes_text : NULL),
        .output_classes = nd_qualify_text(q, c != NULL ? c->output_classes_text : NULL),
    };
    out->references.items =
        nd_arena_calloc(q->arena, model->n_cells - q->n_devices, sizeof *out->references.items);
    out->devices.items = nd_arena_calloc(q->arena, q->n_devices, sizeof *out->devices.items);
    if (out->references.items == NULL || out->devices.items == NULL)
        return;
    for (; out->devices.n < q->n_devices; out->devices.n++)
        fill_device(q, model, out->devices.n, &out->devices.items[out->devices.n]);
    for (size_t c_ref = q->n_devices; c_ref < model->n_cells; c_ref++) {
        const struct nd_qualify_cell *cell = &model->cells[c_ref];
        out->references.items[out->references.n++] = (struct nd_qualified_reference){
            .label = nd_qualify_text(q, cell->label),
            .capture = nd_qualify_text(q, cell->relative),
            .failure = nd_qualify_text(q, cell->failure),
            .broken = nd_qualify_text(q, cell->broken),
        };
    }
    nd_qualify_fill_accuracy(q, model, out);
    out->targets.items = nd_arena_calloc(q->arena, model->n_targets, sizeof *out->targets.items);
    for (size_t i = 0; out->targets.items != NULL && i < model->n_targets; i++) {
        const struct nd_qualify_target *target = &model->targets[i];
        struct nd_qualified_target *told = &out->targets.items[out->targets.n++];
        *told = (struct nd_qualified_target){.probe = nd_qualify_text(q, target->probe),
                                             .tensor = nd_qualify_text(q, target->tensor),
                                             .n_samples = target->n_samples,
                                             .confidence = q->campaign.confidence};
        told->against.items = nd_arena_calloc(q->arena, 2 * q->n_devices, sizeof *told->against.items);
        for (size_t d = 0; told->against.items != NULL && d < q->n_devices; d++) {
            add_target_pair(q, model, target, (const size_t[]){model->float64, d}, told);
            add_target_pair(q, model, target, (const size_t[]){model->quantised, d}, told);
        }
    }
}

/* ---- gates ---- */

static struct nd_qualified_gate gate_of(const struct nd_qualification *q, const struct nd_policy_rule *rule)
{
    ND_FREED char *words = nd_policy_describe(rule);
    if (words == NULL)
        nd_arena_fail(q->arena);
    struct nd_qualified_gate gate = {
        .gate = nd_policy_gate_name(rule->gate),
        .text = nd_qualify_text(q, words),
        .models = texts_of(q, &rule->models),
        .devices = texts_of(q, &rule->devices),
        .tensors = texts_of(q, &rule->tensors),
        .probes = texts_of(q, &rule->probes),
        .reason = nd_qualify_text(q, rule->reason),
        .owner = nd_qualify_text(q, rule->owner),
        .until = nd_qualify_text(q, rule->until),
        .line = rule->mark.line + 1,
    };
    return gate;
}

/* One gate on one model and device, where it governs something there. */
static void judge_case(const struct nd_qualification *q, const struct nd_qualified_model *model, size_t m,
                       size_t device, size_t rule, struct nd_qualified *out)
{
    struct nd_case found;
    nd_qualify_judge(q, &q->models[m], device, rule, &found);
    if (!found.applies)
        return;
    out->counts[found.verdict].n++;
    out->exit_code = (int)nd_exit_worse((enum nd_exit)out->exit_code, nd_case_exit_code(found.verdict));
    out->cases.items[out->cases.n++] = (struct nd_qualified_case){
        .model = model->name,
        .device = model->devices.items[device].label,
        .gate = rule,
        .verdict = nd_case_verdict_name(found.verdict),
        .value = found.value,
        .bound = found.bound,
        .tensor = nd_qualify_text(q, found.tensor),
        .probe = nd_qualify_text(q, found.probe),
        .n_checked = found.n_cells,
        .n_failing = found.n_failing,
        .n_samples = (size_t)found.n_samples,
        .n_samples_needed = (size_t)found.n_needed,
        .message = nd_qualify_text(q, found.message),
    };
}

/* The whole result, in the arena, which remembers where memory was out. */
static void nd_qualify_fill(const struct nd_qualification *q, struct nd_qualified *out)
{
    size_t n_models = q->campaign.n_models, n_gates = q->campaign.policy.n;
    *out = (struct nd_qualified){
        .version = nd_version(),
        .key = nd_qualify_text(q, q->key),
        .campaign = nd_qualify_text(q, q->campaign.name),
        .reference = nd_qualify_text(q, q->campaign.reference),
        .exit_code = ND_EXIT_SAME,
    };
    for (int v = 0; v < ND_QUALIFIED_N_VERDICTS; v++)
        out->counts[v].verdict = nd_case_verdict_name((enum nd_case_verdict)v);
    out->models.items = nd_arena_calloc(q->arena, n_models, sizeof *out->models.items);
    out->gates.items = nd_arena_calloc(q->arena, n_gates, sizeof *out->gates.items);
    out->cases.items = nd_arena_calloc(q->arena, n_models * q->n_devices * n_gates, sizeof *out->cases.items);
    if (nd_arena_has_failed(q->arena))
        return;
    for (; out->models.n < n_models; out->models.n++)
        fill_model(q, &q->models[out->models.n], &out->models.items[out->models.n]);
    for (; out->gates.n < n_gates; out->gates.n++)
        out->gates.items[out->gates.n] = gate_of(q, &q->campaign.policy.rules[out->gates.n]);
    if (!nd_arena_has_failed(q->arena)) {
        for (size_t m = 0; m < q->campaign.n_models; m++)
            for (size_t d = 0; d < q->n_devices; d++) {
                /* A device that failed is told even where no gate is about it. */
                if (q->models[m].cells[d].failure != NULL)
                    out->exit_code = (int)nd_exit_worse((enum nd_exit)out->exit_code, ND_EXIT_DEVICE_FAILED);
                for (size_t r = 0; r < q->campaign.policy.n; r++)
                    judge_case(q, &out->models.items[m], m, d, r, out);
            }
    }
    enum nd_exit code = (enum nd_exit)out->exit_code;
    static const char *const names[] = {"passed",         "failed",       "trouble",
                                        "not comparable", "inconclusive", "device failed"};
    out->verdict = names[code];
    suggest(q, out);
}

/* ---- the order of events ---- */

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
    ND_FREED char *path = nd_path_join(folder, ".lock");
    ND_TRY_MEMORY(path != NULL, err);
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    if (flock(fd, (is_shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        close(fd);
        return nd_fail(err, ND_E_QUALIFY_BUSY, folder, "a different process already runs a campaign in '%s'",
                       folder);
    }
    *out = fd;
    return ND_OK;
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
    ND_FREED void *bytes = NULL;
    size_t n_bytes;
    struct nd_qualified last;
    if (q->options->force)
        return ND_OK;
    ND_FREED char *path = nd_path_join(q->folder, "result.json");
    enum nd_status status = path != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && !nd_keyed_is_missing(path))
        status = nd_file_read(path, MAX_RESULT_BYTES, &bytes, &n_bytes, err);
    enum nd_status parsed = bytes != NULL ? nd_qualified_read(bytes, &last, NULL) : ND_OK;
    if (bytes != NULL && parsed == ND_OK)
        q->last = last;
    return parsed == ND_ERR_MEMORY ? nd_fail_memory(err) : status;
}

/* Whether the result in the folder is the one that would be made. */
static bool is_last_current(struct nd_qualification *q)
{
    return all_fresh(q) && q->last.owner != NULL && strcmp(q->last.key, q->key) == 0 &&
           q->last.exit_code >= 0 && q->last.suggestion[0] != '\0';
}

/* ---- a new one ---- */

/* NULL without an error: the capture has no such tensor, or other samples. */
static enum nd_status read_classes(const struct nd_qualify_cell *cell, const char *probe, const char *tensor,
                                   size_t n_samples, int64_t **out, struct nd_error *err)
{
    *out = NULL;
    if (cell->failure != NULL)
        return ND_OK;
    size_t p = nd_capture_find_probe(cell->capture, probe), e = nd_capture_find_tensor(cell->capture, tensor);
    if (p == SIZE_MAX || e == SIZE_MAX || nd_capture_probe(cell->capture, p)->n_samples != n_samples ||
        !nd_capture_has_outputs(cell->capture, p, e))
        return ND_OK;
    return nd_top1_read(cell->capture, p, e, out, err);
}

static enum nd_status read_references(const struct nd_qualify_model *model, struct nd_accuracy_study *study,
                                      struct nd_error *err)
{
    if (model->quantised != SIZE_MAX)
        ND_TRY(read_classes(&model->cells[model->quantised], study->probe, study->tensor, study->n_samples,
                            &study->quantised, err));
    if (model->float64 != SIZE_MAX)
        ND_TRY(read_classes(&model->cells[model->float64], study->probe, study->tensor, study->n_samples,
                            &study->reference, err));
    return ND_OK;
}

static enum nd_status read_study(const struct nd_qualification *q, struct nd_qualify_model *model,
                                 const struct nd_probe *probe, const char *tensor, struct nd_error *err)
{
    struct nd_accuracy_study *study = &model->studies[model->n_studies++];
    *study = (struct nd_accuracy_study){
        .probe = probe->name, .tensor = tensor, .n_samples = probe->n_samples, .labels = probe->labels};
    study->devices = nd_calloc(q->n_devices, sizeof *study->devices);
    study->classes = nd_calloc(q->n_devices, sizeof *study->classes);
    ND_TRY_MEMORY(study->devices != NULL && study->classes != NULL, err);
    for (size_t d = 0; d < q->n_devices; d++) {
        int64_t *classes = NULL;
        ND_TRY(read_classes(&model->cells[d], probe->name, tensor, probe->n_samples, &classes, err));
        if (classes == NULL)
            continue;
        study->devices[study->n_devices] = d;
        study->classes[study->n_devices++] = classes;
    }
    ND_TRY(read_references(model, study, err));
    return nd_accuracy_study_measure(study, q->campaign.confidence, q->campaign.margin, err);
}

/* Reads the classes of every labelled probe at every model output. */
static enum nd_status nd_qualify_study(struct nd_qualification *q, struct nd_qualify_model *model,
                                       struct nd_error *err)
{
    model->studies = nd_calloc(model->n_tensors * model->n_probes, sizeof *model->studies);
    ND_TRY_MEMORY(model->studies != NULL, err);
    for (size_t p = 0; p < model->n_probes; p++)
        for (size_t e = 0; e < model->n_tensors; e++)
            if (model->probes[p]->labels != NULL && model->tensors[e].is_output)
                ND_TRY(read_study(q, model, model->probes[p], model->tensors[e].name, err));
    return ND_OK;
}

static enum nd_status judge(struct nd_qualification *q, struct nd_qualify_result *out, struct nd_error *err)
{
    ND_TRY(nd_qualify_open(q, err));
    ND_TRY(nd_qualify_compare(q, err));
    for (size_t m = 0; m < q->campaign.n_models; m++)
        ND_TRY(nd_qualify_study(q, &q->models[m], err));
    for (size_t m = 0; m < q->campaign.n_models; m++)
        ND_TRY(nd_qualify_find_broken(q, &q->models[m], err));
    for (size_t m = 0; m < q->campaign.n_models; m++)
        ND_TRY(nd_qualify_measure_targets(q, &q->models[m], err));
    for (size_t m = 0; q->campaign.explain && m < q->campaign.n_models; m++)
        ND_TRY(nd_qualify_explain(q, &q->models[m], err));
    struct nd_qualified made;
    q->arena = nd_arena_create();
    ND_TRY_MEMORY(q->arena != NULL, err);
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
    ND_TRY(read_last(q, err));
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
    ND_CLEANUP(nd_qualify_unlock) int lock = -1;
    ND_TRY(nd_qualify_plan(q, err));
    ND_TRY(nd_dir_make(q->folder, err));
    ND_TRY(nd_qualify_lock(q->folder, false, &lock, err));
    ND_TRY(nd_qualify_check_fresh(q, err));
    ND_TRY(nd_qualify_capture(q, err));
    ND_TRY(nd_qualify_end_result(q, out, err));
    out->n_captured = q->n_captured;
    return ND_OK;
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
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    struct nd_qualification q;
    ND_CLEANUP(nd_qualify_result_deinit) struct nd_qualify_result result = {0};
    struct nd_error why = {0};
    err = err != NULL ? err : &why; /* reasons are read from it */
    ND_TRY(nd_qualify_begin(campaign, &own, &q, err));
    enum nd_status status = qualify(&q, &result, err);
    nd_qualify_plan_deinit(&q);
    nd_campaign_deinit(&q.campaign);
    result.folder = q.folder;
    return status == ND_OK ? ND_GIVE(out, result) : status;
}
