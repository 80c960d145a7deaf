/* A campaign's result as text: devices, accuracy, targets, findings. docs/reference/campaign.md. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/report/report.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

/* The default text of a campaign: may it ship, a matrix of devices and models, what fails and why, what to do.
 */

enum { MAX_ROWS = 10, MAX_FINDINGS = 4, CELL_BYTES = 80 };

struct brief {
    const struct nd_qualified *result;
    const char *folder, *model_path;
    struct nd_strbuf *out;
    size_t width;
};

static bool is(const char *verdict, const char *name)
{
    return strcmp(verdict, name) == 0;
}

static bool is_kept(const struct nd_qualified_case *one)
{
    return is(one->verdict, "passed") || is(one->verdict, "warned");
}

static size_t count_verdict(const struct nd_qualified *result, const char *verdict)
{
    for (int v = 0; v < ND_QUALIFIED_N_VERDICTS; v++)
        if (result->counts[v].verdict != NULL && is(result->counts[v].verdict, verdict))
            return result->counts[v].n;
    return 0;
}

/* ---- the first lines ---- */

static void put_headline(const struct brief *b)
{
    const struct nd_qualified *r = b->result;
    size_t n_failed = count_verdict(r, "failed"), n_undecided = count_verdict(r, "inconclusive");
    struct nd_strbuf why = {0};
    const char *verdict = "NOT READY";
    switch (r->exit_code) {
    case ND_EXIT_SAME:
        verdict = "READY";
        nd_strbuf_printf(&why,
                         r->cases.n > 0 ? "all %zu gates hold" : "the campaign has no gates, so none fails",
                         r->cases.n);
        break;
    case ND_EXIT_INCONCLUSIVE:
        verdict = "INCONCLUSIVE";
        nd_strbuf_printf(&why, "%zu of %zu gates cannot be decided, the others hold", n_undecided, r->cases.n);
        break;
    case ND_EXIT_DEVICE_FAILED:
        nd_strbuf_puts(&why, "a device failed");
        break;
    case ND_EXIT_NOT_COMPARABLE:
        nd_strbuf_puts(&why, "captures cannot be compared");
        break;
    default:
        break;
    }
    if (n_failed > 0)
        nd_strbuf_printf(&why, "%s%zu of %zu gates fail%s", why.len > 0 ? ", and " : "", n_failed, r->cases.n,
                         n_failed == 1 ? "s" : "");
    if (n_failed > 0 && n_undecided > 0)
        nd_strbuf_printf(&why, "; %zu cannot be decided", n_undecided);
    nd_summary_put(b->out, b->width, 0, 2, "%s: %s", verdict, why.text != NULL ? why.text : r->verdict);
    b->out->failed = b->out->failed || why.failed;
    nd_strbuf_deinit(&why);
    nd_summary_put(b->out, b->width, 0, 2,
                   "campaign '%s': %zu model%s, compared with '%s'; a gate is one rule for one model on one "
                   "device",
                   r->campaign, r->models.n, r->models.n == 1 ? "" : "s", r->reference);
}

/* ---- models and devices ---- */

static const struct nd_qualified_device *find_device(const struct nd_qualified_model *model, const char *label)
{
    for (size_t d = 0; d < model->devices.n; d++)
        if (strcmp(model->devices.items[d].label, label) == 0)
            return &model->devices.items[d];
    return NULL;
}

/* "OK 8 of 8", "FAIL 2 of 8", "TOO FEW samples": the worst first. */
static void say_cell(const struct brief *b, const struct nd_qualified_model *model, const char *label,
                     char out[static CELL_BYTES])
{
    const struct nd_qualified_device *device = find_device(model, label);
    size_t n = 0, n_kept = 0, n_failed = 0, n_undecided = 0;
    for (size_t i = 0; device != NULL && i < b->result->cases.n; i++) {
        const struct nd_qualified_case *one = &b->result->cases.items[i];
        if (!nd_qualified_is_about(one, model, device))
            continue;
        n++;
        n_kept += is_kept(one);
        n_failed += is(one->verdict, "failed");
        n_undecided += is(one->verdict, "inconclusive");
    }
    if (device == NULL)
        snprintf(out, CELL_BYTES, "-");
    else if (strcmp(device->status, "failed") == 0)
        snprintf(out, CELL_BYTES, "FAILED to run");
    else if (n_failed > 0)
        snprintf(out, CELL_BYTES, "FAIL %zu of %zu", n_failed, n);
    else if (n_undecided > 0)
        snprintf(out, CELL_BYTES, "INCONCLUSIVE %zu of %zu", n_undecided, n);
    else if (n_kept < n)
        snprintf(out, CELL_BYTES, "NOT COMPARABLE %zu of %zu", n - n_kept, n);
    else
        snprintf(out, CELL_BYTES, n > 0 ? "OK %zu of %zu" : "no gates", n, n);
}

/* The labels of all devices, each once, in the order in which models name them. The caller frees the array. */
static const char **list_labels(const struct nd_qualified *r, size_t *n)
{
    size_t most = 0;
    for (size_t m = 0; m < r->models.n; m++)
        most += r->models.items[m].devices.n;
    const char **labels = calloc(most + 1, sizeof *labels);
    *n = 0;
    for (size_t m = 0; m < r->models.n && labels != NULL; m++)
        for (size_t d = 0; d < r->models.items[m].devices.n; d++) {
            const char *label = r->models.items[m].devices.items[d].label;
            size_t i = 0;
            while (i < *n && strcmp(labels[i], label) != 0)
                i++;
            if (i == *n)
                labels[(*n)++] = label;
        }
    return labels;
}

static bool is_alike(const struct brief *b, const char *x, const char *y)
{
    for (size_t m = 0; m < b->result->models.n; m++) {
        char of_x[CELL_BYTES], of_y[CELL_BYTES];
        say_cell(b, &b->result->models.items[m], x, of_x);
        say_cell(b, &b->result->models.items[m], y, of_y);
        if (strcmp(of_x, of_y) != 0)
            return false;
    }
    return true;
}

/* One row for devices of which every cell is the same. */
static void add_row(const struct brief *b, struct nd_table *table, const char *const *labels, size_t n,
                    size_t i)
{
    struct nd_strbuf names = {0};
    size_t n_alike = 0;
    for (size_t k = i; k < n; k++)
        if (is_alike(b, labels[i], labels[k]))
            nd_strbuf_printf(&names, "%s%s", n_alike++ > 0 ? ", " : "", labels[k]);
    bool is_long = names.text != NULL && nd_text_columns(names.text) > b->width / 2;
    if (is_long)
        nd_table_addf(table, "%s and %zu more", labels[i], n_alike - 1);
    else
        nd_table_add(table, names.text != NULL ? names.text : "");
    table->failed = table->failed || names.failed;
    nd_strbuf_deinit(&names);
    for (size_t m = 0; m < table->n_columns - 1; m++) {
        char cell[CELL_BYTES];
        say_cell(b, &b->result->models.items[m], labels[i], cell);
        nd_table_add(table, cell);
    }
}

/* ---- what fails ---- */

static bool is_same_finding(const struct nd_qualified_case *a, const struct nd_qualified_case *b)
{
    return a->gate == b->gate && strcmp(a->model, b->model) == 0 && strcmp(a->verdict, b->verdict) == 0;
}

/* The gate on its first device, with what was measured there, and on how many more it is so. */
static void put_finding(const struct brief *b, size_t i)
{
    const struct nd_qualified *r = b->result;
    const struct nd_qualified_case *one = &r->cases.items[i];
    size_t n_more = 0;
    char more[64] = "";
    for (size_t k = i + 1; k < r->cases.n; k++)
        n_more += is_same_finding(one, &r->cases.items[k]);
    if (n_more > 0)
        snprintf(more, sizeof more, "; this gate does so on %zu more device%s, too", n_more,
                 n_more == 1 ? "" : "s");
    nd_summary_put(b->out, b->width, 0, 2, "%s on %s: '%s' %s: %s%s", one->model, one->device,
                   nd_qualified_gate_of(r, one)->text,
                   is(one->verdict, "failed")         ? "fails"
                   : is(one->verdict, "inconclusive") ? "cannot be decided"
                                                      : one->verdict,
                   one->message, more);
}

/* Failures before what is undecided. */
static void put_brief_findings(const struct brief *b)
{
    const struct nd_qualified *r = b->result;
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < r->cases.n; i++) {
            const struct nd_qualified_case *one = &r->cases.items[i];
            bool is_failure = is(one->verdict, "failed"), is_first = true;
            for (size_t k = 0; k < i; k++)
                is_first = is_first && !is_same_finding(one, &r->cases.items[k]);
            if (is_kept(one) || !is_first || is_failure != (pass == 0))
                continue;
            if (n++ == 0)
                nd_strbuf_puts(b->out, "\n");
            if (n <= MAX_FINDINGS)
                put_finding(b, i);
        }
    if (n > MAX_FINDINGS)
        nd_strbuf_printf(b->out, "and %zu more gates (-v shows them)\n", n - MAX_FINDINGS);
}

/* Broken references, binaries of a different chipset, and the diagnosis of devices that fail: each text once.
 */
static void put_remarks(const struct brief *b)
{
    const struct nd_qualified *r = b->result;
    size_t n = 0;
    for (size_t m = 0; m < r->models.n; m++) {
        const struct nd_qualified_model *model = &r->models.items[m];
        for (size_t i = 0; i < model->references.n; i++)
            if (model->references.items[i].broken[0] != '\0')
                nd_summary_put(b->out, b->width, 0, 2, "%s: the reference '%s' is broken: %s", model->name,
                               model->references.items[i].label, model->references.items[i].broken);
        for (size_t d = 0; d < model->devices.n; d++) {
            const struct nd_qualified_device *device = &model->devices.items[d];
            if (device->broken[0] != '\0')
                nd_summary_put(b->out, b->width, 0, 2, "%s: the reference '%s' is broken: %s", model->name,
                               device->label, device->broken);
            for (size_t i = 0; i < device->findings.n && n++ < MAX_FINDINGS; i++)
                nd_summary_put(b->out, b->width, 0, 2, "finding: %s: %s", device->label,
                               device->findings.items[i]);
            if (strcmp(device->status, "failed") == 0 && n++ < MAX_FINDINGS)
                nd_summary_put(b->out, b->width, 0, 2, "%s on %s failed: %s", model->name, device->label,
                               device->failure);
        }
    }
}

/* ---- the next command ---- */

static const struct nd_qualified_case *first_failure(const struct nd_qualified *r)
{
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < r->cases.n; i++)
            if (is(r->cases.items[i].verdict, pass == 0 ? "failed" : "device failed"))
                return &r->cases.items[i];
    return NULL;
}

bool nd_report_first_failure(const struct nd_qualified *result, const char **quantised, const char **capture)
{
    const struct nd_qualified_case *one = first_failure(result);
    *quantised = *capture = "";
    for (size_t m = 0; m < result->models.n && one != NULL; m++) {
        const struct nd_qualified_model *model = &result->models.items[m];
        if (strcmp(model->name, one->model) != 0)
            continue;
        *quantised = model->quantised;
        const struct nd_qualified_device *device = find_device(model, one->device);
        *capture = device != NULL ? device->capture : "";
    }
    return one != NULL;
}

/* What answers a gate that failed; the last one all others. */
static const struct {
    const char *gate, *words[2];
    bool has_model;
    const char *why;
} answers[] = {
    {"latency-cv", {"latency", NULL}, false, "to see the times of the first failure"},
    {"fallback", {"placement", NULL}, true, "to see which operators of the first failure run where"},
    {"finalize", {"info", NULL}, false, "to see what the device of the first failure said"},
    {"", {"explain", "--quantised"}, true, "to learn which layer and what arithmetic makes the first failure"},
};

static void put_next(const struct brief *b)
{
    const struct nd_qualified *r = b->result;
    const char *quantised, *capture;
    char path[4096];
    bool has_failed =
        nd_report_first_failure(r, &quantised, &capture) && b->folder != NULL && capture[0] != '\0';
    snprintf(path, sizeof path, "%s/%s", b->folder != NULL ? b->folder : "", capture);
    const char *model = b->model_path != NULL ? b->model_path : quantised;
    const struct nd_qualified_case *one = first_failure(r);
    const char *gate = one == NULL                  ? ""
                       : is(one->verdict, "failed") ? r->gates.items[one->gate].gate
                                                    : "finalize";
    size_t i = 0;
    while (i + 1 < sizeof answers / sizeof answers[0] && strcmp(answers[i].gate, gate) != 0)
        i++;
    bool takes_model = answers[i].has_model;
    if (has_failed && answers[i].words[1] != NULL && nd_summary_lacks_inputs(path)) {
        nd_summary_put_import_again(b->out, b->width, path);
    } else if (has_failed) {
        const char *words[6] = {"npudiff", answers[i].words[0]};
        size_t n = 2;
        if (answers[i].words[1] != NULL)
            words[n++] = answers[i].words[1];
        if (takes_model)
            words[n++] = model;
        words[n++] = path;
        nd_summary_put_next_of(b->out, b->width, answers[i].why,
                               takes_model && b->model_path == NULL ? quantised : NULL, words, n);
    } else if (r->exit_code == ND_EXIT_INCONCLUSIVE) {
        nd_summary_put(b->out, b->width, 0, 2,
                       "Next: give more samples, or loosen the margin; -v shows how many are needed.");
    }
}

enum nd_status nd_report_qualification_brief(const struct nd_qualified *result,
                                             const struct nd_qualification_place *place, size_t width,
                                             char **out, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    const struct brief b = {.result = result,
                            .folder = place->folder,
                            .model_path = place->model,
                            .out = &text,
                            .width = nd_summary_width(width)};
    put_headline(&b);
    const struct nd_qualified *r = b.result;
    size_t n = 0, n_rows = 0,
           n_models = r->models.n < ND_TABLE_MAX_COLUMNS - 1 ? r->models.n : ND_TABLE_MAX_COLUMNS - 1;
    ND_FREED const char **labels = list_labels(r, &n);
    ND_CLEANUP(nd_table_deinit) struct nd_table table = {.n_columns = n_models + 1, .line_width = b.width};
    for (size_t i = 0; i <= n_models; i++)
        table.is_left[i] = true;
    nd_table_add(&table, "device");
    for (size_t m = 0; m < n_models; m++)
        nd_table_add(&table, r->models.items[m].name);
    for (size_t i = 0; i < n && labels != NULL; i++) {
        size_t k = 0;
        while (k < i && !is_alike(&b, labels[k], labels[i]))
            k++;
        if (k == i && n_rows++ < MAX_ROWS)
            add_row(&b, &table, labels, n, i);
    }
    nd_strbuf_puts(b.out, "\n");
    nd_table_render_panels(&table, 1, b.out);
    if (n_rows > MAX_ROWS)
        nd_strbuf_printf(b.out, "  and %zu more rows (-v shows them)\n", n_rows - MAX_ROWS);
    b.out->failed = b.out->failed || labels == NULL;
    put_brief_findings(&b);
    put_remarks(&b);
    put_next(&b);
    return nd_text_end(&text, out, err);
}

const struct nd_qualified_gate *nd_qualified_gate_of(const struct nd_qualified *result,
                                                     const struct nd_qualified_case *one)
{
    static const struct nd_qualified_gate none = {.gate = "", .text = "", .line = SIZE_MAX};
    return one->gate < result->gates.n ? &result->gates.items[one->gate] : &none;
}

bool nd_qualified_is_about(const struct nd_qualified_case *one, const struct nd_qualified_model *model,
                           const struct nd_qualified_device *device)
{
    return strcmp(one->model, model->name) == 0 && strcmp(one->device, device->label) == 0;
}

enum { WIDTH = 120 };

static void put_line(struct nd_strbuf *out, size_t indent, const char *text)
{
    ND_FREED char *clean = nd_clean_text(text);
    if (clean == NULL) {
        out->failed = true;
        return;
    }
    nd_strbuf_printf(out, "%*s", (int)indent, "");
    nd_wrap_append(out, clean, indent + 2, WIDTH);
    nd_strbuf_puts(out, "\n");
}

static void put_linef(struct nd_strbuf *out, size_t indent, const char *fmt, ...) ND_PRINTF(3, 4);

static void put_linef(struct nd_strbuf *out, size_t indent, const char *fmt, ...)
{
    char *text = NULL;
    ND_MAKE_ARGUMENTS(text, fmt);
    if (text == NULL) {
        out->failed = true;
        return;
    }
    put_line(out, indent, text);
    free(text);
}

/* ---- devices ---- */

static void count_cases(const struct nd_qualified *result, const struct nd_qualified_model *model,
                        const struct nd_qualified_device *device, size_t *n_passed, size_t *n)
{
    *n = *n_passed = 0;
    for (size_t i = 0; i < result->cases.n; i++) {
        const struct nd_qualified_case *one = &result->cases.items[i];
        if (!nd_qualified_is_about(one, model, device))
            continue;
        ++*n;
        *n_passed += strcmp(one->verdict, "passed") == 0 || strcmp(one->verdict, "warned") == 0;
    }
}

static void put_devices(struct nd_strbuf *out, const struct nd_qualified *result,
                        const struct nd_qualified_model *model)
{
    ND_CLEANUP(nd_table_deinit)
    struct nd_table table = {.n_columns = 5, .is_left = {true, true, false, false, true}, .line_width = WIDTH};
    static const char *const titles[] = {"DEVICE", "STATUS", "GATES", "TENSORS DIFFERING", "FIRST DIFFERENCE"};
    for (size_t i = 0; i < 5; i++)
        nd_table_add(&table, titles[i]);
    for (size_t d = 0; d < model->devices.n; d++) {
        const struct nd_qualified_device *device = &model->devices.items[d];
        size_t n_passed, n;
        count_cases(result, model, device, &n_passed, &n);
        nd_table_add(&table, device->label);
        nd_table_add(&table, device->status);
        nd_table_addf(&table, "%zu/%zu", n_passed, n);
        if (device->n_tensors_differing != SIZE_MAX)
            nd_table_addf(&table, "%zu/%zu", device->n_tensors_differing, device->n_tensors);
        else
            nd_table_add(&table, "-");
        if (device->first_difference[0] != '\0')
            nd_table_addf(&table, "%s (%s)", device->first_difference, device->first_op_types);
        else
            nd_table_add(&table, "-");
    }
    nd_table_render(&table, out);
}

/* ---- accuracy ---- */

static void put_accuracy_table(struct nd_strbuf *out, const struct nd_qualified_study *study)
{
    ND_CLEANUP(nd_table_deinit)
    struct nd_table table = {.n_columns = 10,
                             .is_left = {true, true, false, false, false, false, false, false, true, true},
                             .line_width = WIDTH};
    static const char *const titles[] = {"DEVICE",   "AGAINST", "BEFORE", "AFTER",    "TO WRONG",
                                         "TO RIGHT", "P",       "E",      "INTERVAL", "VERDICT"};
    for (size_t i = 0; i < 10; i++)
        nd_table_add(&table, titles[i]);
    for (size_t d = 0; d < study->devices.n; d++) {
        const struct nd_qualified_pairs *pairs = &study->devices.items[d];
        for (size_t r = 0; r < pairs->against.n; r++) {
            const struct nd_qualified_pair *pair = &pairs->against.items[r];
            nd_table_add(&table, pairs->device);
            nd_table_add(&table, pair->reference);
            nd_table_addf(&table, "%zu", pair->n_right_before);
            nd_table_addf(&table, "%zu", pair->n_right_after);
            nd_table_addf(&table, "%zu", pair->n_right_to_wrong);
            nd_table_addf(&table, "%zu", pair->n_wrong_to_right);
            nd_table_addf(&table, "%.3g", pair->p_value);
            nd_table_addf(&table, "%.3g", pair->largest_e);
            nd_table_addf(&table, "%+.2f .. %+.2f", 100 * pair->interval.low, 100 * pair->interval.high);
            if (strcmp(pair->answer, "inconclusive") == 0)
                nd_table_addf(&table, "inconclusive: %zu samples needed, %zu given", pair->n_samples_needed,
                              pair->n_samples);
            else
                nd_table_addf(&table, "%s at %.6g points", pair->answer, 100 * pair->margin);
        }
    }
    nd_table_render(&table, out);
}

static void put_spread(struct nd_strbuf *out, const struct nd_qualified_study *study)
{
    const struct nd_estimate *size = &study->spread.spread;
    size_t n = study->changes.n_devices;
    if (n < 2 || n == SIZE_MAX)
        return;
    put_linef(out, 2,
              "changed predictions: two of the %zu devices disagree on %s of the samples on average; not "
              "all %zu agree on %zu of %zu, and on %zu one is right and a different one wrong (both grow with "
              "the number of devices)",
              n, ND_PERCENT(study->changes.mean), n, study->changes.any_differs.n,
              study->changes.any_differs.of, study->changes.unstable.n);
    put_linef(out, 2, "accuracy over devices: %s; from best ('%s') to worst ('%s') %.2f points [%.2f, %.2f]",
              study->spread.verdict, study->spread.best, study->spread.worst, 100 * size->value,
              100 * size->interval.low, 100 * size->interval.high);
    /* That devices are alike says nothing of a loss: whether they all lost something against the float model is
     * told apart. */
    const struct nd_estimate *common = &study->spread.common;
    double low = common->interval.low, high = common->interval.high;
    if (isnan(common->value) || isnan(low) || isnan(high))
        return; /* there is no float model */
    put_linef(out, 2, "against the float model the devices have %+.2f points on average [%+.2f, %+.2f]: %s",
              100 * common->value, 100 * low, 100 * high,
              high < 0  ? "a loss that they share"
              : low > 0 ? "a gain that they share"
                        : "no loss that they share is shown");
}

static void put_accuracy(struct nd_strbuf *out, const struct nd_qualified_model *model)
{
    for (size_t i = 0; i < model->accuracy.n; i++) {
        const struct nd_qualified_study *study = &model->accuracy.items[i];
        nd_strbuf_puts(out, "\n");
        put_linef(out, 0,
                  "accuracy at '%s' with '%s', %zu samples; interval of the change in points at %.6g %%, P of "
                  "no change, E e-value",
                  study->tensor, study->probe, study->n_samples, 100 * study->confidence);
        put_accuracy_table(out, study);
        /* Where the samples in order were enough to stop early: evidence, not a verdict. */
        for (size_t d = 0; d < study->devices.n; d++) {
            const struct nd_qualified_pairs *pairs = &study->devices.items[d];
            for (size_t r = 0; r < pairs->against.n; r++)
                if (pairs->against.items[r].stop != SIZE_MAX)
                    put_linef(out, 2,
                              "evidence: %s against %s: e-value 20 reached after %zu of %zu samples; one could "
                              "have stopped there",
                              pairs->device, pairs->against.items[r].reference, pairs->against.items[r].stop,
                              pairs->against.items[r].n_samples);
        }
        put_spread(out, study);
    }
}

/* ---- target tensors ---- */

static void put_target_table(struct nd_strbuf *out, const struct nd_qualified_target *target)
{
    ND_CLEANUP(nd_table_deinit)
    struct nd_table table = {.n_columns = 7, .is_left = {true, true}, .line_width = WIDTH};
    static const char *const titles[] = {"DEVICE",   "AGAINST", "MEAN ERROR", "CHANGE",
                                         "INTERVAL", "SQNR dB", "CHANGE dB"};
    for (size_t i = 0; i < 7; i++)
        nd_table_add(&table, titles[i]);
    for (size_t r = 0; r < target->against.n; r++) {
        const struct nd_qualified_distance *pair = &target->against.items[r];
        nd_table_add(&table, pair->device);
        nd_table_add(&table, pair->reference);
        nd_table_addf(&table, "%.4g", pair->mean_error.value);
        nd_table_addf(&table, "%+.3g", pair->mean_error_change.value);
        nd_table_addf(&table, "%+.3g .. %+.3g", pair->mean_error_change.interval.low,
                      pair->mean_error_change.interval.high);
        nd_table_addf(&table, "%.2f", pair->sqnr_db.value);
        nd_table_addf(&table, "%+.3f", pair->sqnr_db_change.value);
    }
    nd_table_render(&table, out);
}

/* ---- gates ---- */

static void put_broken(struct nd_strbuf *out, const char *label, const char *broken)
{
    if (broken[0] != '\0')
        put_linef(out, 0, "the reference '%s' is broken: %s", label, broken);
}

static void put_findings(struct nd_strbuf *out, const struct nd_qualified *result,
                         const struct nd_qualified_model *model)
{
    for (size_t i = 0; i < result->cases.n; i++) {
        const struct nd_qualified_case *one = &result->cases.items[i];
        if (strcmp(one->verdict, "passed") != 0 && strcmp(one->model, model->name) == 0)
            put_linef(out, 2, "%s: %s: %s: %s", one->verdict, one->device,
                      nd_qualified_gate_of(result, one)->text, one->message);
    }
    for (size_t d = 0; d < model->devices.n; d++) {
        const struct nd_qualified_device *device = &model->devices.items[d];
        for (size_t i = 0; i < device->findings.n;
             i++) /* a binary of a prepared model that is not for it, ... */
            put_linef(out, 2, "finding: %s: %s", device->label, device->findings.items[i]);
        if (device->explanation[0] != '\0')
            put_linef(out, 2, "explained: %s: %s", device->label, device->explanation);
    }
}

enum nd_status nd_report_qualification_text(const struct nd_qualified *result, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    for (size_t m = 0; m < result->models.n; m++) {
        const struct nd_qualified_model *model = &result->models.items[m];
        put_linef(&buf, 0, "model '%s' (%s), against %s", model->name, model->quantised, result->reference);
        /* First of all: nothing that was held against it says anything. */
        for (size_t i = 0; i < model->references.n; i++)
            put_broken(&buf, model->references.items[i].label, model->references.items[i].broken);
        for (size_t i = 0; i < model->devices.n; i++)
            put_broken(&buf, model->devices.items[i].label, model->devices.items[i].broken);
        put_devices(&buf, result, model);
        if (model->classes[0] != '\0')
            put_linef(&buf, 0, "classes: %s", model->classes);
        put_accuracy(&buf, model);
        for (size_t i = 0; i < model->targets.n; i++) {
            const struct nd_qualified_target *target = &model->targets.items[i];
            nd_strbuf_puts(&buf, "\n");
            put_linef(
                &buf, 0,
                "error against the target of '%s' with '%s', %zu samples; interval of the change at %.6g %%",
                target->tensor, target->probe, target->n_samples, 100 * target->confidence);
            put_target_table(&buf, target);
        }
        put_findings(&buf, result, model);
        nd_strbuf_puts(&buf, "\n");
    }
    for (size_t i = 0; i < result->gates.n; i++) {
        const struct nd_qualified_gate *gate = &result->gates.items[i];
        if (gate->reason[0] != '\0')
            put_linef(&buf, 0, "loosened until %s by %s: %s (%s)", gate->until, gate->owner, gate->text,
                      gate->reason);
    }
    struct nd_strbuf text = {0};
    for (int v = 0; v < ND_QUALIFIED_N_VERDICTS; v++)
        if (result->counts[v].n > 0)
            nd_strbuf_printf(&text, "%s%zu %s", text.len > 0 ? ", " : "", result->counts[v].n,
                             result->counts[v].verdict);
    ND_FREED char *taken = nd_strbuf_take(&text);
    put_linef(&buf, 0, "campaign '%s': %s (gates: %s)", result->campaign, result->verdict,
              taken != NULL && taken[0] != '\0' ? taken : "none");
    return nd_text_end(&buf, out, err);
}
