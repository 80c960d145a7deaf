#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npudiff/report.h"
#include "report/format.h"
#include "report/qualification.h"
#include "report/table.h"

enum { WIDTH = 120 };

static double real_of(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static long long count_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static void put_line(struct nd_strbuf *out, size_t indent, const char *text)
{
    char *clean = nd_clean_text(text);
    if (clean == NULL) {
        out->failed = true;
        return;
    }
    nd_strbuf_printf(out, "%*s", (int)indent, "");
    nd_wrap_append(out, clean, indent + 2, WIDTH);
    nd_strbuf_puts(out, "\n");
    free(clean);
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

static void count_cases(const json_t *root, const json_t *model, const json_t *device, size_t *n_passed,
                        size_t *n)
{
    size_t i;
    const json_t *one;
    *n = *n_passed = 0;
    json_array_foreach(json_object_get(root, "cases"), i, one)
    {
        const char *verdict = nd_qualification_text(one, "verdict");
        if (!nd_qualification_is_about(one, model, device))
            continue;
        ++*n;
        *n_passed += strcmp(verdict, "passed") == 0 || strcmp(verdict, "warned") == 0;
    }
}

static void put_devices(struct nd_strbuf *out, const json_t *root, const json_t *model)
{
    struct nd_table table = {.n_columns = 5, .is_left = {true, true, false, false, true}, .line_width = WIDTH};
    static const char *const titles[] = {"DEVICE", "STATUS", "GATES", "EDGES DIFFERING", "FIRST DIFFERENCE"};
    for (size_t i = 0; i < 5; i++)
        nd_table_add(&table, titles[i]);
    size_t d;
    const json_t *device;
    json_array_foreach(json_object_get(model, "devices"), d, device)
    {
        size_t n_passed, n;
        count_cases(root, model, device, &n_passed, &n);
        nd_table_add(&table, nd_qualification_text(device, "device"));
        nd_table_add(&table, nd_qualification_text(device, "status"));
        nd_table_addf(&table, "%zu/%zu", n_passed, n);
        if (json_is_integer(json_object_get(device, "edges_differing")))
            nd_table_addf(&table, "%lld/%lld", count_of(device, "edges_differing"), count_of(device, "edges"));
        else
            nd_table_add(&table, "-");
        const char *first = nd_qualification_text(device, "first_difference");
        if (first[0] != '\0')
            nd_table_addf(&table, "%s (%s)", first, nd_qualification_text(device, "first_op_types"));
        else
            nd_table_add(&table, "-");
    }
    nd_table_render(&table, out);
    nd_table_deinit(&table);
}

/* ---- accuracy ---- */

static void add_points(struct nd_table *table, const json_t *interval)
{
    nd_table_addf(table, "%+.2f .. %+.2f", 100 * real_of(json_array_get(interval, 0)),
                  100 * real_of(json_array_get(interval, 1)));
}

static void add_answer(struct nd_table *table, const json_t *pair)
{
    const char *answer = nd_qualification_text(pair, "answer");
    if (strcmp(answer, "inconclusive") == 0)
        nd_table_addf(table, "inconclusive: %lld samples needed, %lld given", count_of(pair, "samples_needed"),
                      count_of(pair, "samples"));
    else
        nd_table_addf(table, "%s at %.6g points", answer, 100 * real_of(json_object_get(pair, "margin")));
}

static void put_accuracy_table(struct nd_strbuf *out, const json_t *study)
{
    struct nd_table table = {.n_columns = 10,
                             .is_left = {true, true, false, false, false, false, false, false, true, true},
                             .line_width = WIDTH};
    static const char *const titles[] = {"DEVICE",   "AGAINST", "BEFORE", "AFTER",    "TO WRONG",
                                         "TO RIGHT", "P",       "E",      "INTERVAL", "VERDICT"};
    for (size_t i = 0; i < 10; i++)
        nd_table_add(&table, titles[i]);
    size_t d, r;
    const json_t *device, *pair;
    json_array_foreach(json_object_get(study, "devices"), d, device)
        json_array_foreach(json_object_get(device, "against"), r, pair)
    {
        nd_table_add(&table, nd_qualification_text(device, "device"));
        nd_table_add(&table, nd_qualification_text(pair, "reference"));
        nd_table_addf(&table, "%lld", count_of(pair, "right_before"));
        nd_table_addf(&table, "%lld", count_of(pair, "right_after"));
        nd_table_addf(&table, "%lld", count_of(pair, "right_to_wrong"));
        nd_table_addf(&table, "%lld", count_of(pair, "wrong_to_right"));
        nd_table_addf(&table, "%.3g", real_of(json_object_get(pair, "p_value")));
        nd_table_addf(&table, "%.3g", real_of(json_object_get(json_object_get(pair, "evidence"), "largest")));
        add_points(&table, json_object_get(pair, "interval"));
        add_answer(&table, pair);
    }
    nd_table_render(&table, out);
    nd_table_deinit(&table);
}

/* Where the samples in order were enough to stop early: evidence, not a verdict. */
static void put_stops(struct nd_strbuf *out, const json_t *study)
{
    size_t d, r;
    const json_t *device, *pair;
    json_array_foreach(json_object_get(study, "devices"), d, device)
        json_array_foreach(json_object_get(device, "against"), r, pair)
    {
        const json_t *evidence = json_object_get(pair, "evidence");
        if (json_is_integer(json_object_get(evidence, "stop")))
            put_linef(out, 2,
                      "evidence: %s against %s: e-value 20 reached after %lld of %lld samples; one could "
                      "have stopped there",
                      nd_qualification_text(device, "device"), nd_qualification_text(pair, "reference"),
                      count_of(evidence, "stop"), count_of(pair, "samples"));
    }
}

/* That devices are alike says nothing of a loss: whether they all lost something against the float model is
 * told apart. */
static void put_common(struct nd_strbuf *out, const json_t *spread)
{
    const json_t *common = json_object_get(spread, "common"), *interval = json_object_get(common, "interval");
    double low = real_of(json_array_get(interval, 0)), high = real_of(json_array_get(interval, 1));
    if (isnan(real_of(json_object_get(common, "value"))) || isnan(low) || isnan(high))
        return; /* there is no float model */
    put_linef(out, 2, "against the float model the devices have %+.2f points on average [%+.2f, %+.2f]: %s",
              100 * real_of(json_object_get(common, "value")), 100 * low, 100 * high,
              high < 0  ? "a loss that they share"
              : low > 0 ? "a gain that they share"
                        : "no loss that they share is shown");
}

static void put_spread(struct nd_strbuf *out, const json_t *study)
{
    const json_t *spread = json_object_get(study, "spread"), *size = json_object_get(spread, "spread");
    const json_t *interval = json_object_get(size, "interval");
    const json_t *churn = json_object_get(study, "churn"), *any = json_object_get(churn, "any_differs");
    const json_t *unstable = json_object_get(churn, "unstable");
    long long n = count_of(churn, "devices");
    if (n < 2)
        return;
    put_linef(
        out, 2,
        "churn: two of the %lld devices disagree on %.3g%% of the samples on average; not all %lld agree on "
        "%lld of %lld, and on %lld one is right and another wrong (both grow with the number of devices)",
        n, 100 * real_of(json_object_get(churn, "mean")), n, count_of(any, "samples"), count_of(any, "of"),
        count_of(unstable, "samples"));
    put_linef(out, 2, "accuracy over devices: %s; from best ('%s') to worst ('%s') %.2f points [%.2f, %.2f]",
              nd_qualification_text(spread, "verdict"), nd_qualification_text(spread, "best"),
              nd_qualification_text(spread, "worst"), 100 * real_of(json_object_get(size, "value")),
              100 * real_of(json_array_get(interval, 0)), 100 * real_of(json_array_get(interval, 1)));
    put_common(out, spread);
}

static void put_accuracy(struct nd_strbuf *out, const json_t *model)
{
    size_t i;
    const json_t *study;
    json_array_foreach(json_object_get(model, "accuracy"), i, study)
    {
        nd_strbuf_puts(out, "\n");
        put_linef(
            out, 0,
            "accuracy at '%s' with '%s', %lld samples; interval of the change in points at %.6g %%, P of no "
            "change, E e-value",
            nd_qualification_text(study, "edge"), nd_qualification_text(study, "probe"),
            count_of(study, "samples"), 100 * real_of(json_object_get(study, "confidence")));
        put_accuracy_table(out, study);
        put_stops(out, study);
        put_spread(out, study);
    }
}

/* ---- target tensors ---- */

static double value_of(const json_t *pair, const char *key)
{
    const json_t *value = json_object_get(json_object_get(pair, key), "value");
    return json_is_string(value) && json_string_value(value)[0] != 'N'
               ? (json_string_value(value)[0] == '-' ? -INFINITY : INFINITY)
               : real_of(value);
}

static void put_target_table(struct nd_strbuf *out, const json_t *target)
{
    struct nd_table table = {.n_columns = 7, .is_left = {true, true}, .line_width = WIDTH};
    static const char *const titles[] = {"DEVICE",   "AGAINST", "MEAN ERROR", "CHANGE",
                                         "INTERVAL", "SQNR dB", "CHANGE dB"};
    for (size_t i = 0; i < 7; i++)
        nd_table_add(&table, titles[i]);
    size_t r;
    const json_t *pair;
    json_array_foreach(json_object_get(target, "against"), r, pair)
    {
        const json_t *change = json_object_get(json_object_get(pair, "mean_error_change"), "interval");
        nd_table_add(&table, nd_qualification_text(pair, "device"));
        nd_table_add(&table, nd_qualification_text(pair, "reference"));
        nd_table_addf(&table, "%.4g", value_of(pair, "mean_error_after"));
        nd_table_addf(&table, "%+.3g", value_of(pair, "mean_error_change"));
        nd_table_addf(&table, "%+.3g .. %+.3g", real_of(json_array_get(change, 0)),
                      real_of(json_array_get(change, 1)));
        nd_table_addf(&table, "%.2f", value_of(pair, "sqnr_db_after"));
        nd_table_addf(&table, "%+.3f", value_of(pair, "sqnr_db_change"));
    }
    nd_table_render(&table, out);
    nd_table_deinit(&table);
}

static void put_targets(struct nd_strbuf *out, const json_t *model)
{
    size_t i;
    const json_t *target;
    json_array_foreach(json_object_get(model, "targets"), i, target)
    {
        nd_strbuf_puts(out, "\n");
        put_linef(out, 0,
                  "error against the target of '%s' with '%s', %lld samples; interval of the change at %.6g %%",
                  nd_qualification_text(target, "edge"), nd_qualification_text(target, "probe"),
                  count_of(target, "samples"), 100 * real_of(json_object_get(target, "confidence")));
        put_target_table(out, target);
    }
}

/* ---- gates ---- */

/* That the binary of a prepared model is not one for this device. */
static void put_prepared(struct nd_strbuf *out, const json_t *device)
{
    size_t i;
    const json_t *finding;
    json_array_foreach(json_object_get(device, "findings"), i, finding) put_linef(
        out, 2, "finding: %s: %s", nd_qualification_text(device, "device"), json_string_value(finding));
}

static void put_broken(struct nd_strbuf *out, const json_t *cell, const char *key)
{
    if (nd_qualification_text(cell, "broken")[0] != '\0')
        put_linef(out, 0, "the reference '%s' is broken: %s", nd_qualification_text(cell, key),
                  nd_qualification_text(cell, "broken"));
}

/* First of all: nothing that was held against it says anything. */
static void put_references(struct nd_strbuf *out, const json_t *model)
{
    size_t i;
    const json_t *cell;
    json_array_foreach(json_object_get(model, "references"), i, cell) put_broken(out, cell, "reference");
    json_array_foreach(json_object_get(model, "devices"), i, cell) put_broken(out, cell, "device");
}

static void put_findings(struct nd_strbuf *out, const json_t *root, const json_t *model)
{
    size_t i;
    const json_t *one, *device;
    json_array_foreach(json_object_get(root, "cases"), i, one)
    {
        const char *verdict = nd_qualification_text(one, "verdict");
        if (strcmp(verdict, "passed") == 0 ||
            strcmp(nd_qualification_text(one, "model"), nd_qualification_text(model, "name")) != 0)
            continue;
        put_linef(out, 2, "%s: %s: %s: %s", verdict, nd_qualification_text(one, "device"),
                  nd_qualification_text(nd_qualification_gate(root, one), "text"),
                  nd_qualification_text(one, "message"));
    }
    json_array_foreach(json_object_get(model, "devices"), i, device)
    {
        const char *explanation = nd_qualification_text(device, "explanation");
        put_prepared(out, device);
        if (explanation[0] != '\0')
            put_linef(out, 2, "explained: %s: %s", nd_qualification_text(device, "device"), explanation);
    }
}

static void put_loosenings(struct nd_strbuf *out, const json_t *root)
{
    size_t i;
    const json_t *gate;
    json_array_foreach(json_object_get(root, "gates"), i,
                       gate) if (json_is_string(json_object_get(gate, "reason")))
        put_linef(out, 0, "loosened until %s by %s: %s (%s)", nd_qualification_text(gate, "until"),
                  nd_qualification_text(gate, "owner"), nd_qualification_text(gate, "text"),
                  nd_qualification_text(gate, "reason"));
}

static void put_verdict(struct nd_strbuf *out, const json_t *root)
{
    const json_t *counts = json_object_get(root, "counts"), *count;
    const char *key;
    struct nd_strbuf text = {0};
    json_object_foreach((json_t *)(uintptr_t)counts, key, count) if (json_integer_value(count) > 0)
        nd_strbuf_printf(&text, "%s%lld %s", text.len > 0 ? ", " : "", (long long)json_integer_value(count),
                         key);
    char *taken = nd_strbuf_take(&text);
    put_linef(out, 0, "campaign '%s': %s (gates: %s)", nd_qualification_text(root, "campaign"),
              nd_qualification_text(root, "verdict"), taken != NULL && taken[0] != '\0' ? taken : "none");
    free(taken);
}

enum nd_status nd_report_qualification_text(const char *json, char **out, struct nd_error *err)
{
    json_t *root = NULL;
    enum nd_status status = nd_qualification_parse(json, &root, err);
    if (status != ND_OK)
        return status;
    struct nd_strbuf buf = {0};
    size_t m;
    const json_t *model;
    json_array_foreach(json_object_get(root, "models"), m, model)
    {
        put_linef(&buf, 0, "model '%s' (%s), against %s", nd_qualification_text(model, "name"),
                  nd_qualification_text(model, "quantised"), nd_qualification_text(root, "reference"));
        put_references(&buf, model);
        put_devices(&buf, root, model);
        if (nd_qualification_text(model, "classes")[0] != '\0')
            put_linef(&buf, 0, "classes: %s", nd_qualification_text(model, "classes"));
        put_accuracy(&buf, model);
        put_targets(&buf, model);
        put_findings(&buf, root, model);
        nd_strbuf_puts(&buf, "\n");
    }
    put_loosenings(&buf, root);
    put_verdict(&buf, root);
    json_decref(root);
    *out = nd_strbuf_take(&buf);
    return *out != NULL ? ND_OK : nd_fail_memory(err);
}
