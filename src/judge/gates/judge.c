/* One gate on one device: the worst of all tensors and probes that it governs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/strbuf.h"
#include "judge/release/qualify.h"

/* What is judged, and where it stands. */
struct nd_judging {
    const struct nd_qualification *q;
    const struct nd_qualify_model *model;
    const struct nd_qualify_cell *cell; /* of the device */
    size_t device, rule;
    const struct nd_policy_rule *gate;
    struct nd_case *out;
};

static void nd_judge_accuracy(struct nd_judging *j);
static void nd_judge_target(struct nd_judging *j);

/* Nodes of an NPU device that run on the CPU. Every capture of a campaign is made with leave to fall back, so
 * that it is the same whatever the policy asks: here is decided what a fallback means. */

static bool is_io_quantisation(const struct nd_model *model, const char *name)
{
    for (size_t i = 0; i < nd_model_n_nodes(model); i++)
        if (strcmp(nd_model_node(model, i)->name, name) == 0)
            return nd_model_node(model, i)->is_io_quantisation;
    return false;
}

/* Whether the node fell only because tensors were recorded: not the device's doing. */
static bool is_moved(const char *moved, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = moved; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0 && (line[n] == '\0' || line[n] == '\n'))
            return true;
    }
    return false;
}

static bool is_quantiser(const struct nd_capture_node *node)
{
    return strcmp(node->op_type, "QuantizeLinear") == 0 || strcmp(node->op_type, "DequantizeLinear") == 0;
}

static void nd_qualify_find_fallback(const struct nd_qualify_cell *cell, const struct nd_texts *allow,
                                     struct nd_qualified_fallback *out)
{
    const struct nd_capture_node *quantiser = NULL, *other = NULL;
    size_t n_allowed = 0, n_quantisers = 0, n_others = 0;
    const char *moved = nd_capture_string(cell->capture, "runtime", "moved_by_recording");
    *out = (struct nd_qualified_fallback){0};
    for (size_t i = 0; i < nd_capture_n_nodes(cell->capture); i++)
        out->n_nodes += !is_quantiser(nd_capture_node(cell->capture, i));
    for (size_t i = 0; i < nd_capture_n_nodes(cell->capture) && nd_device_is_npu(cell->device.kind); i++) {
        const struct nd_capture_node *node = nd_capture_node(cell->capture, i);
        if (strcmp(node->provider, "CPUExecutionProvider") != 0 || is_io_quantisation(cell->model, node->name))
            continue;
        if (is_moved(moved, node->name))
            out->moved = out->n_moved++ == 0 ? node : out->moved;
        else if (allow->n > 0 && (nd_texts_match(allow, node->name) || nd_texts_match(allow, node->op_type)))
            n_allowed++;
        else if (is_quantiser(node))
            quantiser = n_quantisers++ == 0 ? node : quantiser;
        else
            other = n_others++ == 0 ? node : other;
    }
    if (n_allowed > 0) /* an operator that may fall back takes the quantisers around it along */
        n_quantisers = 0;
    out->n_fell_back = n_others > 0 ? n_others : n_quantisers; /* quantisers fall with their operators */
    out->first = n_others > 0 ? other : n_quantisers > 0 ? quantiser : NULL;
}

/* Operators are counted, without quantisers; quantisers where no operator fell. */
static const char *count_fallen(const struct nd_qualified_fallback *found, char out[static 64])
{
    if (is_quantiser(found->first))
        snprintf(out, 64, "%zu quantisers", found->n_fell_back);
    else
        snprintf(out, 64, "%zu of %zu operators", found->n_fell_back, found->n_nodes);
    return out;
}

static bool has_gate(const struct nd_qualification *q, const char *model, const char *device)
{
    for (size_t r = 0; r < q->campaign.policy.n; r++) {
        const struct nd_policy_rule *rule = &q->campaign.policy.rules[r];
        if (rule->gate == ND_POLICY_FALLBACK && nd_texts_match(&rule->models, model) &&
            nd_texts_match(&rule->devices, device))
            return true;
    }
    return false;
}

enum nd_status nd_qualify_note_fallback(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                        struct nd_qualify_cell *cell, struct nd_error *err)
{
    static const struct nd_texts none = {0};
    struct nd_qualified_fallback found;
    struct nd_strbuf text = {0};
    if (cell->failure != NULL || has_gate(q, model->campaign->name, cell->label))
        return ND_OK;
    nd_qualify_find_fallback(cell, &none, &found);
    if (found.n_fell_back == 0)
        return ND_OK;
    nd_strbuf_printf(&text,
                     "placement: node '%s' (%s) runs on the CPU, and no gate 'fallback' is about it; %s do",
                     found.first->name, found.first->op_type, count_fallen(&found, (char[64]){0}));
    cell->failure = nd_strbuf_take(&text);
    return cell->failure != NULL ? ND_OK : nd_fail_memory(err);
}

void nd_qualify_add_moved_finding(const struct nd_qualification *q, const struct nd_qualify_cell *cell,
                                  struct nd_qualified_texts *findings)
{
    static const struct nd_texts none = {0};
    struct nd_qualified_fallback found;
    nd_qualify_find_fallback(cell, &none, &found);
    if (found.n_moved > 0)
        findings->items[findings->n++] = nd_arena_printf(
            q->arena,
            "recording tensors moves %zu nodes to the CPU, first '%s' (%s): their values are not "
            "the NPU's",
            found.n_moved, found.moved->name, found.moved->op_type);
    const char *differs = nd_capture_string(cell->capture, "runtime", "untouched_differs");
    if (differs != NULL) {
        size_t n_name = strcspn(differs, "\t\n"), n = strcspn(differs, "\n");
        findings->items[findings->n++] = nd_arena_printf(
            q->arena, "recording tensors changes the outputs: without it, of '%.*s' %.*s", (int)n_name, differs,
            (int)(n > n_name ? n - n_name - 1 : 0), differs + n_name + (n > n_name));
    }
}

/* What one tensor, on one probe, says to a gate. */

/* The step of a tensor of codes; NaN where it has several, or none. */
static double nd_tensor_step(const struct nd_model *model, const char *name)
{
    for (size_t i = 0; i < nd_model_n_tensors(model); i++)
        if (strcmp(nd_model_tensor(model, i)->name, name) == 0 && nd_model_tensor(model, i)->quant.n == 1)
            return (double)nd_model_tensor(model, i)->quant.scale[0];
    return NAN;
}

/* The metric leaves out what is NaN or infinite on one side only; a gate must not: that is no small error. */
static struct nd_tensor_value sqnr_of(const struct nd_difference *d, bool is_same)
{
    if (d->n_nan_mismatch + d->n_inf_mismatch > 0)
        return (struct nd_tensor_value){true, -INFINITY, NULL};
    if (!is_same && !d->has_signal)
        return (struct nd_tensor_value){false, NAN, "no value of the samples that differ is a number"};
    return (struct nd_tensor_value){true, is_same ? INFINITY : d->sqnr_db, NULL};
}

/* Codes against the floats that stand for them, as a prepared model gives them out: what is only the rounding
 * of code to float does not differ. A whole number of steps is one to a hundredth of a step. */
static struct nd_tensor_value mixed_value_of(enum nd_policy_gate gate, const struct nd_difference *d,
                                             double step)
{
    double steps = d->abs.max / step, whole = round(steps);
    bool is_on_grid =
        d->has_values && d->n_nan_mismatch == 0 && d->n_inf_mismatch == 0 && fabs(steps - whole) < 0.01;
    bool is_same = d->has_values && d->n_samples_differing == 0;
    if (gate == ND_POLICY_BIT_EQUAL)
        return (struct nd_tensor_value){true, is_same ? 0 : (double)d->n_samples_differing, NULL};
    if (gate == ND_POLICY_SQNR && d->has_values)
        return sqnr_of(d, is_same);
    if (gate == ND_POLICY_LSB && (is_same || is_on_grid))
        return (struct nd_tensor_value){true, is_same ? 0 : whole, NULL};
    /* Between two steps, or with scales for each channel: compare has counted in steps. */
    if (gate == ND_POLICY_LSB && d->has_steps)
        return (struct nd_tensor_value){
            true, d->n_nan_mismatch > 0 || d->n_inf_mismatch > 0 ? INFINITY : d->max_steps, NULL};
    if ((gate == ND_POLICY_SHARE || gate == ND_POLICY_ULP) && is_same)
        return (struct nd_tensor_value){true, 0, NULL};
    return (struct nd_tensor_value){false, NAN, "codes stand against floats"};
}

struct nd_tensor_value nd_tensor_value_of(enum nd_policy_gate gate, const struct nd_difference *d, double step)
{
    bool is_same = d->n_samples_differing == 0;
    if (d->numbers.n_samples_both_nan > 0)
        return (struct nd_tensor_value){false, NAN, "samples are NaN on both sides"};
    if (d->is_mixed)
        return mixed_value_of(gate, d, step);
    if (gate == ND_POLICY_BIT_EQUAL)
        return (struct nd_tensor_value){true, (double)d->n_samples_differing, NULL};
    if (!is_same && !d->has_values)
        return (struct nd_tensor_value){false, NAN, "it differs, and only digests are stored"};
    switch (gate) {
    case ND_POLICY_LSB:
        return (struct nd_tensor_value){true, (double)d->max_lsb, NULL};
    case ND_POLICY_ULP:
        /* A NaN or an infinity on one side only is no number of ULPs away. */
        return (struct nd_tensor_value){
            true, d->n_nan_mismatch > 0 || d->n_inf_mismatch > 0 ? INFINITY : (double)d->max_ulp, NULL};
    case ND_POLICY_SHARE:
        return (struct nd_tensor_value){true, d->share, NULL};
    default:
        return sqnr_of(d, is_same);
    }
}

/* The verdict becomes the worse of what it was and this one. */
static void nd_judging_conclude(struct nd_case *out, enum nd_case_verdict verdict)
{
    out->verdict = nd_case_verdict_worse(out->verdict, verdict);
}

/* Whether the rule is about that tensor and probe. */
static bool nd_judging_governs(const struct nd_judging *j, const struct nd_scope_tensor *tensor,
                               const struct nd_scope_probe *probe)
{
    const struct nd_policy_cell cell = {
        .model = j->model->campaign->name, .device = j->cell->label, .tensor = tensor, .probe = probe};
    /* Of a prepared model nothing but its outputs can be seen. */
    if (j->cell->prepared != NULL && nd_policy_has_tensors(j->gate->gate) && !tensor->is_output)
        return false;
    return nd_policy_governs(&j->q->campaign.policy, j->rule, &cell);
}

/* Whether that would make it worse. */
static bool nd_judging_outranks(enum nd_case_verdict verdict, const struct nd_case *out)
{
    return nd_case_verdict_worse(out->verdict, verdict) != out->verdict;
}

/* tensor: where, or NULL. */
static void nd_judging_note_not_comparable(struct nd_case *out, const char *tensor, const char *why)
{
    if (nd_judging_outranks(ND_CASE_NOT_COMPARABLE, out))
        snprintf(out->message, sizeof out->message, "%s%s%s%s", tensor != NULL ? "'" : "",
                 tensor != NULL ? tensor : "", tensor != NULL ? "': " : "", why);
    nd_judging_conclude(out, ND_CASE_NOT_COMPARABLE);
}

/* ---- tensors ---- */

static bool is_minimum(enum nd_policy_gate gate)
{
    return gate == ND_POLICY_SQNR || gate == ND_POLICY_AGREEMENT;
}

/* NaN passes nothing. */
static void note_value(struct nd_judging *j, const char *tensor, const char *probe, double value)
{
    struct nd_case *out = j->out;
    enum nd_policy_gate gate = j->gate->gate;
    double bound = gate == ND_POLICY_BIT_EQUAL ? 0 : is_minimum(gate) ? j->gate->min : j->gate->max;
    bool passes = is_minimum(gate) ? value >= bound : value <= bound;
    bool is_worse =
        isnan(value) || out->n_cells == 0 || (is_minimum(gate) ? value < out->value : value > out->value);
    out->bound = bound;
    if (is_worse) {
        out->value = value;
        out->tensor = tensor;
        out->probe = probe;
    }
    out->n_cells++;
    out->n_failing += !passes;
    if (passes)
        return;
    if (out->first_failing == NULL)
        out->first_failing = tensor;
    nd_judging_conclude(out, ND_CASE_FAILED);
}

/* A value that is no larger than the noise of one of the two devices passes, or decides nothing. */
static void note_noise(struct nd_judging *j, const char *tensor, const char *probe, double value)
{
    struct nd_case *out = j->out;
    enum nd_policy_gate gate = j->gate->gate;
    double bound = gate == ND_POLICY_BIT_EQUAL ? 0 : is_minimum(gate) ? j->gate->min : j->gate->max;
    if (is_minimum(gate) ? value >= bound : value <= bound) {
        note_value(j, tensor, probe, value);
        return;
    }
    if (nd_judging_outranks(ND_CASE_INCONCLUSIVE, out))
        snprintf(out->message, sizeof out->message,
                 "'%s' is not repeatable: it differs by no more than it does from run to run", tensor);
    nd_judging_conclude(out, ND_CASE_INCONCLUSIVE);
}

static size_t find_tensor(const struct nd_comparison *c, const char *name)
{
    size_t e = 0;
    while (e < c->n_tensors && strcmp(c->tensors[e].name, name) != 0)
        e++;
    return e;
}

static size_t find_probe(const struct nd_comparison *c, const char *name)
{
    size_t p = 0;
    while (p < c->n_probes && strcmp(c->probes[p].name, name) != 0)
        p++;
    return p;
}

static void judge_agreement(struct nd_judging *j, const struct nd_comparison *c, size_t test, size_t tensor,
                            size_t probe, const char *tensor_name)
{
    for (size_t i = 0; i < c->n_top1; i++) {
        const struct nd_top1 *row = &c->top1[i];
        if (row->tensor != tensor || row->probe != probe)
            continue;
        if (!row->pairs[test - 1].exists)
            break;
        note_value(j, tensor_name, c->probes[probe].name, row->pairs[test - 1].agreement);
        j->out->n_samples = row->pairs[test - 1].n_samples;
        return;
    }
    nd_judging_note_not_comparable(j->out, tensor_name, "it has no classes to agree on");
}

static void judge_tensor(struct nd_judging *j, const struct nd_comparison *c, size_t test,
                         const struct nd_scope_tensor *tensor, const struct nd_scope_probe *probe)
{
    size_t e = find_tensor(c, tensor->name), p = find_probe(c, probe->name);
    if (e == c->n_tensors || p == c->n_probes) {
        nd_judging_note_not_comparable(j->out, tensor->name, "there is no capture of it");
        return;
    }
    const struct nd_compared_tensor *compared = &c->tensors[e];
    const struct nd_compared_part *part = &compared->pairs[test - 1].probes[p];
    if (part->coverage != ND_COVERAGE_FULL) {
        nd_judging_note_not_comparable(j->out, tensor->name,
                                       part->reason != NULL ? part->reason : "it is not there");
        return;
    }
    if (j->gate->gate == ND_POLICY_AGREEMENT) {
        judge_agreement(j, c, test, e, p, tensor->name);
        return;
    }
    /* The type is known only now: a gate for codes does not govern floats, nor the reverse. */
    /* Codes against floats are counted in steps of the code. */
    bool is_float = nd_dtype_is_float(compared->dtype) && !part->difference.has_steps;
    if ((j->gate->gate == ND_POLICY_LSB && is_float) || (j->gate->gate == ND_POLICY_ULP && !is_float))
        return;
    struct nd_tensor_value found =
        nd_tensor_value_of(j->gate->gate, &part->difference, nd_tensor_step(j->model->model, tensor->name));
    if (found.is_known && compared->pairs[test - 1].within_noise)
        note_noise(j, tensor->name, probe->name, found.value);
    else if (found.is_known)
        note_value(j, tensor->name, probe->name, found.value);
    else
        nd_judging_note_not_comparable(j->out, tensor->name, found.why_not);
}

/* Four digits, or all where they would look like the bound. */
static void say_value(double x, double beside, char text[32])
{
    char other[32];
    snprintf(text, 32, "%.4g", x);
    snprintf(other, sizeof other, "%.4g", beside);
    if (x != beside && strcmp(text, other) == 0)
        nd_policy_format_number(x, text);
}

/* What the worst value is: what stands before it, and after it. */
static const char *const worst_of_gate[ND_POLICY_N_GATES][2] = {
    [ND_POLICY_BIT_EQUAL] = {"at most ", " samples of a tensor differ"},
    [ND_POLICY_LSB] = {"the largest difference in any tensor is ", " LSB"},
    [ND_POLICY_ULP] = {"the largest difference in any tensor is ", " ULP"},
    [ND_POLICY_SHARE] = {"the largest share of differing values in any tensor is ", ""},
    [ND_POLICY_SQNR] = {"the lowest SQNR of any tensor is ", " dB"},
    [ND_POLICY_AGREEMENT] = {"the lowest share of equal top-1 classes is ", ""},
};

static void tell_tensors(const struct nd_judging *j)
{
    struct nd_case *out = j->out;
    char value[32], bound[32];
    if (out->verdict == ND_CASE_NOT_COMPARABLE || out->verdict == ND_CASE_INCONCLUSIVE || out->n_cells == 0)
        return;
    say_value(out->value, out->bound, value);
    nd_policy_format_number(out->bound, bound);
    enum nd_policy_gate gate = j->gate->gate;
    const char *what = j->model->n_probes > 1 ? "pairs of tensor and probe" : "tensors";
    if (gate == ND_POLICY_BIT_EQUAL && out->n_failing == 0) {
        snprintf(out->message, sizeof out->message, "%zu of %zu %s are equal in every bit", out->n_cells,
                 out->n_cells, what);
        return;
    }
    size_t used = (size_t)snprintf(out->message, sizeof out->message, "%s%s%s", worst_of_gate[gate][0], value,
                                   worst_of_gate[gate][1]);
    if (out->n_failing > 0 && gate != ND_POLICY_BIT_EQUAL)
        used += (size_t)snprintf(out->message + used, sizeof out->message - used, " (limit %s)", bound);
    used += (size_t)snprintf(out->message + used, sizeof out->message - used, ", at '%.100s' with '%.60s'",
                             out->tensor, out->probe);
    if (out->n_failing > 0 && out->n_cells > 1)
        snprintf(out->message + used, sizeof out->message - used, "; %zu of %zu %s fail, the first is '%.100s'",
                 out->n_failing, out->n_cells, what, out->first_failing);
}

static void judge_tensors(struct nd_judging *j)
{
    const struct nd_qualify_model *model = j->model;
    size_t ref = nd_qualify_find_cell(model, j->q->n_devices, j->gate->to);
    const struct nd_qualify_comparison *found = ref != SIZE_MAX ? nd_qualify_find_comparison(model, ref) : NULL;
    for (size_t e = 0; e < model->n_tensors; e++)
        for (size_t p = 0; p < model->n_probes; p++) {
            if (!nd_judging_governs(j, &model->tensors[e], &model->scope_probes[p]))
                continue;
            j->out->applies = true;
            if (found == NULL || found->comparison == NULL) {
                char why[300];
                snprintf(why, sizeof why, "nothing to compare with: %s",
                         found != NULL ? found->why_not : "the reference is not there");
                nd_judging_note_not_comparable(j->out, NULL, why);
                return;
            }
            judge_tensor(j, found->comparison, found->devices[j->device], &model->tensors[e],
                         &model->scope_probes[p]);
        }
    tell_tensors(j);
}

/* ---- what is no tensor ---- */

/* The coefficient of variation of the latencies of a probe; NaN with less than two. */
static double nd_latency_cv(const struct nd_capture_probe *probe)
{
    size_t n = 0;
    double mean = 0, sum = 0;
    for (size_t i = 0; i < probe->n_samples * probe->n_repeats; i++) {
        double x = probe->latency_us[i];
        if (!isfinite(x))
            continue;
        double step = x - mean;
        mean += step / (double)++n;
        sum += step * (x - mean);
    }
    return n >= 2 && mean > 0 ? sqrt(sum / (double)(n - 1)) / mean : NAN;
}

static void judge_latency(struct nd_judging *j)
{
    struct nd_case *out = j->out;
    out->bound = j->gate->fail;
    for (size_t p = 0; p < j->model->n_probes; p++) {
        if (!nd_judging_governs(j, NULL, &j->model->scope_probes[p]))
            continue;
        out->applies = true;
        size_t at = nd_capture_find_probe(j->cell->capture, j->model->scope_probes[p].name);
        double cv = at != SIZE_MAX ? nd_latency_cv(nd_capture_probe(j->cell->capture, at)) : NAN;
        if (isnan(cv)) {
            snprintf(out->message, sizeof out->message, "fewer than 2 runs of '%s' were timed",
                     j->model->scope_probes[p].name);
            nd_judging_conclude(out, ND_CASE_INCONCLUSIVE);
            out->n_needed = 2;
            continue;
        }
        if (out->n_cells == 0 || cv > out->value) {
            out->value = cv;
            out->probe = j->model->scope_probes[p].name;
        }
        out->n_cells++;
        out->n_failing += cv > j->gate->fail;
        nd_judging_conclude(out, cv > j->gate->fail   ? ND_CASE_FAILED
                                 : cv > j->gate->warn ? ND_CASE_WARNED
                                                      : ND_CASE_PASSED);
    }
    if (out->n_cells > 0 && out->verdict != ND_CASE_INCONCLUSIVE)
        snprintf(out->message, sizeof out->message, "latency varies by %.3g %% with '%s'", 100 * out->value,
                 out->probe);
}

static void judge_fallback(struct nd_judging *j)
{
    struct nd_case *out = j->out;
    struct nd_qualified_fallback found;
    if (!nd_judging_governs(j, NULL, NULL))
        return;
    out->applies = true;
    nd_qualify_find_fallback(j->cell, &j->gate->allow, &found);
    out->n_cells = found.n_nodes;
    out->n_failing = found.n_fell_back;
    out->value = (double)out->n_failing;
    out->bound = 0;
    if (out->n_failing == 0)
        snprintf(out->message, sizeof out->message, "no node falls back that may not");
    else
        snprintf(out->message, sizeof out->message, "node '%s' (%s) runs on the CPU; %s do", found.first->name,
                 found.first->op_type, count_fallen(&found, (char[64]){0}));
    nd_judging_conclude(out, out->n_failing > 0 ? ND_CASE_FAILED : ND_CASE_PASSED);
}

static void judge_finalize(struct nd_judging *j)
{
    if (!nd_judging_governs(j, NULL, NULL))
        return;
    j->out->applies = true;
    snprintf(j->out->message, sizeof j->out->message, "complete");
}

/* ---- all of it ---- */

/* Whether the rule is about the device at all, though nothing of it was captured. */
static bool applies_to_failed(const struct nd_judging *j)
{
    const struct nd_qualify_model *model = j->model;
    bool has_tensors = nd_policy_has_tensors(j->gate->gate), has_probes = nd_policy_has_probes(j->gate->gate);
    for (size_t e = 0; e < (has_tensors ? model->n_tensors : 1); e++)
        for (size_t p = 0; p < (has_probes ? model->n_probes : 1); p++)
            if (nd_judging_governs(j, &model->tensors[e], &model->scope_probes[p]))
                return true;
    return false;
}

void nd_qualify_judge(const struct nd_qualification *q, const struct nd_qualify_model *model, size_t device,
                      size_t rule, struct nd_case *out)
{
    *out = (struct nd_case){.value = NAN, .bound = NAN};
    struct nd_judging j = {.q = q,
                           .model = model,
                           .cell = &model->cells[device],
                           .device = device,
                           .rule = rule,
                           .gate = &q->campaign.policy.rules[rule],
                           .out = out};
    if (j.cell->failure != NULL) {
        out->applies = applies_to_failed(&j);
        out->verdict = ND_CASE_DEVICE_FAILED;
        snprintf(out->message, sizeof out->message, "the device failed: %s", j.cell->failure);
        return;
    }
    size_t ref =
        nd_policy_has_tensors(j.gate->gate) ? nd_qualify_find_cell(model, q->n_devices, j.gate->to) : SIZE_MAX;
    if (ref != SIZE_MAX && model->cells[ref].broken != NULL) {
        out->applies = applies_to_failed(&j);
        out->verdict = ND_CASE_NOT_COMPARABLE;
        snprintf(out->message, sizeof out->message, "the reference '%s' is broken: %s", model->cells[ref].label,
                 model->cells[ref].broken);
        return;
    }
    static void (*const judges[ND_POLICY_N_GATES])(struct nd_judging *) = {
        [ND_POLICY_BIT_EQUAL] = judge_tensors, [ND_POLICY_LSB] = judge_tensors,
        [ND_POLICY_SHARE] = judge_tensors,     [ND_POLICY_ULP] = judge_tensors,
        [ND_POLICY_SQNR] = judge_tensors,      [ND_POLICY_AGREEMENT] = judge_tensors,
        [ND_POLICY_TARGET] = nd_judge_target,  [ND_POLICY_ACCURACY] = nd_judge_accuracy,
        [ND_POLICY_LATENCY] = judge_latency,   [ND_POLICY_FALLBACK] = judge_fallback,
        [ND_POLICY_FINALIZE] = judge_finalize,
    };
    judges[j.gate->gate](&j);
    /* A tensor of unknown type turned out to be of the other kind. */
    bool has_nothing =
        nd_policy_has_tensors(j.gate->gate) && out->n_cells == 0 && out->verdict == ND_CASE_PASSED;
    out->applies = out->applies && !has_nothing;
    if (out->applies && nd_policy_has_expired(j.gate, q->today)) {
        nd_judging_conclude(out, ND_CASE_FAILED);
        snprintf(out->message, sizeof out->message, "the loosening ended on %s (owner %s: %s)", j.gate->until,
                 j.gate->owner, j.gate->reason);
    }
}

/* Gates on accuracy and on distances from target tensors. */

/* ---- accuracy ---- */

static const int64_t *reference_classes(const struct nd_judging *j, const struct nd_accuracy_study *study)
{
    if (strcmp(j->gate->to, ND_REFERENCE_FLOAT) == 0)
        return study->reference;
    if (strcmp(j->gate->to, ND_REFERENCE_QUANTISED) == 0)
        return study->quantised;
    return nd_accuracy_study_classes(study, nd_qualify_find_cell(j->model, j->q->n_devices, j->gate->to));
}

/* "4 282". */
static char *grouped(uint64_t n, char out[static 32])
{
    char digits[24];
    int n_digits = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), at = 0;
    for (int i = 0; i < n_digits; i++) {
        if (i > 0 && (n_digits - i) % 3 == 0)
            out[at++] = ' ';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

static void tell_answer(const struct nd_judging *j, const struct nd_paired *table,
                        const struct nd_paired_answer *answer)
{
    struct nd_case *out = j->out;
    char needed[32], given[32], end[120];
    double total = (double)answer->n_samples;
    snprintf(end, sizeof end, "%s", nd_answer_name(ND_QUESTION_NONINFERIOR, answer->kind));
    if (answer->kind == ND_ANSWER_INCONCLUSIVE)
        snprintf(end, sizeof end, "inconclusive: %s samples needed, %s given",
                 grouped(answer->n_needed, needed), grouped(answer->n_samples, given));
    snprintf(out->message, sizeof out->message,
             "%.2f%% -> %.2f%%, right to wrong %llu, wrong to right %llu, %.6g %% interval %+.2f .. %+.2f "
             "points; %s",
             100 * (double)(table->both_right + table->ref_only) / total,
             100 * (double)(table->both_right + table->test_only) / total, (unsigned long long)table->ref_only,
             (unsigned long long)table->test_only, 100 * answer->confidence, 100 * answer->interval.low,
             100 * answer->interval.high, end);
}

static void judge_study(struct nd_judging *j, const struct nd_accuracy_study *study)
{
    const int64_t *ref = reference_classes(j, study), *test = nd_accuracy_study_classes(study, j->device);
    struct nd_case *out = j->out;
    if (ref == NULL || test == NULL) {
        nd_judging_note_not_comparable(out, study->tensor, "the reference or the device has no classes there");
        return;
    }
    const struct nd_paired_question question =
        nd_qualify_question(j->gate->margin, j->gate->confidence, j->gate->power);
    struct nd_paired table;
    struct nd_paired_answer answer;
    uint64_t n_changed_wrong;
    nd_paired_count(ref, test, study->labels, study->n_samples, &table, &n_changed_wrong);
    nd_paired_ask(&table, &question, &answer);
    enum nd_case_verdict verdict = nd_case_verdict_of_answer(answer.kind);
    bool is_worst = out->n_cells == 0 || nd_judging_outranks(verdict, out) ||
                    (verdict == out->verdict && 0 - answer.difference > out->value);
    out->n_cells++;
    out->n_failing += answer.kind == ND_ANSWER_NO;
    if (is_worst && nd_judging_outranks(ND_CASE_NOT_COMPARABLE, out)) {
        out->value = 0 - answer.difference;
        out->tensor = study->tensor;
        out->probe = study->probe;
        out->n_samples = answer.n_samples;
        out->n_needed = answer.n_needed;
        tell_answer(j, &table, &answer);
    }
    nd_judging_conclude(out, verdict);
}

static void nd_judge_accuracy(struct nd_judging *j)
{
    const struct nd_qualify_model *model = j->model;
    j->out->bound = j->gate->margin;
    for (size_t e = 0; e < model->n_tensors; e++)
        for (size_t p = 0; p < model->n_probes; p++) {
            if (!nd_judging_governs(j, &model->tensors[e], &model->scope_probes[p]))
                continue;
            size_t s = 0;
            j->out->applies = true;
            while (s < model->n_studies && (strcmp(model->studies[s].tensor, model->tensors[e].name) != 0 ||
                                            strcmp(model->studies[s].probe, model->scope_probes[p].name) != 0))
                s++;
            if (s < model->n_studies)
                judge_study(j, &model->studies[s]);
            else
                nd_judging_note_not_comparable(j->out, model->tensors[e].name, "it has no classes");
        }
}

/* ---- target tensors ---- */

/* One-sided, as accuracy-drop: proven not to be worse by more than max, proven to be, or neither. */
static void judge_one_target(struct nd_judging *j, const struct nd_qualify_target *target)
{
    struct nd_case *out = j->out;
    struct nd_target_comparison c;
    size_t ref = nd_qualify_find_cell(j->model, j->q->n_devices, j->gate->to);
    if (!nd_qualify_compare_target(target, ref, j->device, 2 * j->gate->confidence - 1, &c)) {
        nd_judging_note_not_comparable(out, target->tensor, "the reference or the device has no values there");
        return;
    }
    bool is_sqnr = strcmp(j->gate->metric, ND_METRIC_SQNR) == 0;
    const struct nd_estimate *change = is_sqnr ? &c.difference.sqnr_db : &c.difference.mean_error;
    double worse = is_sqnr ? 0 - change->value : change->value;
    const struct nd_interval interval =
        is_sqnr ? (struct nd_interval){0 - change->interval.high, 0 - change->interval.low} : change->interval;
    enum nd_case_verdict verdict = interval.high <= j->gate->max ? ND_CASE_PASSED
                                   : interval.low > j->gate->max ? ND_CASE_FAILED
                                                                 : ND_CASE_INCONCLUSIVE;
    bool is_worst = out->n_cells == 0 || nd_judging_outranks(verdict, out) ||
                    (verdict == out->verdict && (isnan(worse) || worse > out->value));
    out->n_cells++;
    out->n_failing += verdict == ND_CASE_FAILED;
    if (is_worst && nd_judging_outranks(ND_CASE_NOT_COMPARABLE, out)) {
        out->value = worse;
        out->tensor = target->tensor;
        out->probe = target->probe;
        out->n_samples = target->n_samples;
        const struct nd_estimate *before = is_sqnr ? &c.ref.sqnr_db : &c.ref.mean_error;
        const struct nd_estimate *after = is_sqnr ? &c.test.sqnr_db : &c.test.mean_error;
        const char *unit = strcmp(j->gate->metric, ND_METRIC_SQNR) == 0 ? " dB" : "";
        snprintf(j->out->message, sizeof j->out->message,
                 "%s %.6g%s -> %.6g%s at '%s' with '%s', worse by %.6g%s, %.6g %% interval %+.6g .. %+.6g%s%s",
                 j->gate->metric, before->value, unit, after->value, unit, j->out->tensor, j->out->probe,
                 j->out->value, unit, 100 * (2 * j->gate->confidence - 1), interval.low, interval.high, unit,
                 target->n_samples < 2 ? "; one sample says nothing" : "");
    }
    nd_judging_conclude(out, verdict);
}

static void nd_judge_target(struct nd_judging *j)
{
    const struct nd_qualify_model *model = j->model;
    j->out->bound = j->gate->max;
    for (size_t e = 0; e < model->n_tensors; e++)
        for (size_t p = 0; p < model->n_probes; p++) {
            if (!nd_judging_governs(j, &model->tensors[e], &model->scope_probes[p]))
                continue;
            j->out->applies = true;
            for (size_t i = 0; i < model->n_targets; i++)
                if (strcmp(model->targets[i].tensor, model->tensors[e].name) == 0 &&
                    strcmp(model->targets[i].probe, model->scope_probes[p].name) == 0)
                    judge_one_target(j, &model->targets[i]);
        }
}
