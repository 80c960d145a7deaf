/* A campaign's result as text: devices, accuracy, targets, findings. docs/reference/campaign.md. */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/report/report.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

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
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0) {
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

static void add_pair(struct nd_table *table, const char *device, const struct nd_qualified_pair *pair)
{
    nd_table_add(table, device);
    nd_table_add(table, pair->reference);
    nd_table_addf(table, "%zu", pair->n_right_before);
    nd_table_addf(table, "%zu", pair->n_right_after);
    nd_table_addf(table, "%zu", pair->n_right_to_wrong);
    nd_table_addf(table, "%zu", pair->n_wrong_to_right);
    nd_table_addf(table, "%.3g", pair->p_value);
    nd_table_addf(table, "%.3g", pair->largest_e);
    nd_table_addf(table, "%+.2f .. %+.2f", 100 * pair->interval.low, 100 * pair->interval.high);
    if (strcmp(pair->answer, "inconclusive") == 0)
        nd_table_addf(table, "inconclusive: %zu samples needed, %zu given", pair->n_samples_needed,
                      pair->n_samples);
    else
        nd_table_addf(table, "%s at %.6g points", pair->answer, 100 * pair->margin);
}

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
        for (size_t r = 0; r < pairs->against.n; r++)
            add_pair(&table, pairs->device, &pairs->against.items[r]);
    }
    nd_table_render(&table, out);
}

/* Where the samples in order were enough to stop early: evidence, not a verdict. */
static void put_stops(struct nd_strbuf *out, const struct nd_qualified_study *study)
{
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
}

/* That devices are alike says nothing of a loss: whether they all lost something against the float model is
 * told apart. */
static void put_common(struct nd_strbuf *out, const struct nd_estimate *common)
{
    double low = common->interval.low, high = common->interval.high;
    if (isnan(common->value) || isnan(low) || isnan(high))
        return; /* there is no float model */
    put_linef(out, 2, "against the float model the devices have %+.2f points on average [%+.2f, %+.2f]: %s",
              100 * common->value, 100 * low, 100 * high,
              high < 0  ? "a loss that they share"
              : low > 0 ? "a gain that they share"
                        : "no loss that they share is shown");
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
    put_common(out, &study->spread.common);
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
        put_stops(out, study);
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

/* First of all: nothing that was held against it says anything. */
static void put_references(struct nd_strbuf *out, const struct nd_qualified_model *model)
{
    for (size_t i = 0; i < model->references.n; i++)
        put_broken(out, model->references.items[i].label, model->references.items[i].broken);
    for (size_t i = 0; i < model->devices.n; i++)
        put_broken(out, model->devices.items[i].label, model->devices.items[i].broken);
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

static void put_loosenings(struct nd_strbuf *out, const struct nd_qualified *result)
{
    for (size_t i = 0; i < result->gates.n; i++) {
        const struct nd_qualified_gate *gate = &result->gates.items[i];
        if (gate->reason[0] != '\0')
            put_linef(out, 0, "loosened until %s by %s: %s (%s)", gate->until, gate->owner, gate->text,
                      gate->reason);
    }
}

static void put_verdict(struct nd_strbuf *out, const struct nd_qualified *result)
{
    struct nd_strbuf text = {0};
    for (int v = 0; v < ND_QUALIFIED_N_VERDICTS; v++)
        if (result->counts[v].n > 0)
            nd_strbuf_printf(&text, "%s%zu %s", text.len > 0 ? ", " : "", result->counts[v].n,
                             result->counts[v].verdict);
    ND_FREED char *taken = nd_strbuf_take(&text);
    put_linef(out, 0, "campaign '%s': %s (gates: %s)", result->campaign, result->verdict,
              taken != NULL && taken[0] != '\0' ? taken : "none");
}

enum nd_status nd_report_qualification_text(const struct nd_qualified *result, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    for (size_t m = 0; m < result->models.n; m++) {
        const struct nd_qualified_model *model = &result->models.items[m];
        put_linef(&buf, 0, "model '%s' (%s), against %s", model->name, model->quantised, result->reference);
        put_references(&buf, model);
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
    put_loosenings(&buf, result);
    put_verdict(&buf, result);
    return nd_text_end(&buf, out, err);
}
