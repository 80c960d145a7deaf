/* The default text of an explanation: the verdict, a paragraph for each group of devices with equal values, and
 * the next command. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "report/text/explain.h"
#include "report/text/explain_words.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

enum { MOST_LAYERS = 2, MOST_NAMED = 4, MOST_CAPTURES = 16, LABEL_BYTES = 96, MAX_NAME = 18 };

struct brief {
    const struct nd_explanation *e;
    struct nd_strbuf *out;
    size_t width;
    bool is_crowded; /* so many groups that healthy ones get one sentence */
    bool is_bare;    /* and nothing but that sentence */
};

/* ---- devices and their groups ---- */

/* Its label, without the middle where that is too long. */
static void name_device(const struct nd_explanation *e, size_t d, char out[static LABEL_BYTES])
{
    char text[EXPLAIN_CELL_BYTES] = "";
    nd_explain_shorten(e->devices[d].label, LABEL_BYTES - 1, text);
    memcpy(out, text, LABEL_BYTES);
}

/* The same values, and nothing else to say of them. */
static bool is_alike(const struct nd_explained_device *a, const struct nd_explained_device *b)
{
    const char *x = a->expected != NULL ? a->expected : "", *y = b->expected != NULL ? b->expected : "";
    return a->same_as == b->same_as && a->health == b->health && a->failure == NULL && b->failure == NULL &&
           a->n_findings + b->n_findings + a->observer.n_changed + b->observer.n_changed == 0 &&
           a->execution.verdict == b->execution.verdict && strcmp(x, y) == 0;
}

/* Whether layers were judged at all. */
static bool has_layers(const struct nd_explanation *e)
{
    for (size_t d = 0; d < e->n_devices; d++)
        for (size_t s = 0; s < e->n_steps && e->devices[d].failure == NULL; s++)
            if (e->devices[d].units[s].floats.n > 0)
                return true;
    return nd_explain_has_codes(e);
}

static bool is_first(const struct brief *b, size_t d)
{
    for (size_t i = 0; i < d; i++)
        if (has_layers(b->e) && is_alike(&b->e->devices[i], &b->e->devices[d]))
            return false;
    return true;
}

/* "gen3=gen4=gen5", or "gen3 and 9 more". */
static void name_group(const struct brief *b, size_t d, char out[static LABEL_BYTES])
{
    enum { MOST_COLUMNS = 24 };
    size_t n = 0, used = strlen(strcpy(out, "")), n_first;
    name_device(b->e, d, out);
    n_first = used = strlen(out);
    for (size_t i = d + 1; i < b->e->n_devices && has_layers(b->e); i++) {
        char name[LABEL_BYTES];
        if (!is_alike(&b->e->devices[d], &b->e->devices[i]))
            continue;
        name_device(b->e, i, name);
        n++;
        if (used + 1 + strlen(name) < LABEL_BYTES)
            used += (size_t)snprintf(out + used, LABEL_BYTES - used, "=%s", name);
        else
            used = LABEL_BYTES;
    }
    if (n > 0 && used > MOST_COLUMNS && n_first + 16 < LABEL_BYTES)
        snprintf(out + n_first, LABEL_BYTES - n_first, " and %zu more", n);
}

/* ---- the first lines ---- */

static size_t count_health(const struct nd_explanation *e, enum nd_health health)
{
    size_t n = 0;
    for (size_t d = 0; d < e->n_devices; d++)
        n += e->devices[d].health == health;
    return n;
}

static void put_environments(const struct brief *b)
{
    const struct nd_explanation *e = b->e;
    const char **labels = calloc(2 * e->n_devices + 1, sizeof *labels);
    b->out->failed = b->out->failed || labels == NULL;
    for (size_t d = 0; d < e->n_devices && labels != NULL; d++) {
        labels[d] = e->devices[d].label;
        labels[e->n_devices + d] = e->devices[d].environment != NULL ? e->devices[d].environment : "";
    }
    if (labels != NULL)
        nd_summary_put_environments(b->out, b->width, labels, labels + e->n_devices, e->n_devices);
    free(labels);
}

static void put_headline(const struct brief *b)
{
    static const char *const what[] = {
        [ND_HEALTH_HEALTHY] = "no device has a fault",
        [ND_HEALTH_INCONCLUSIVE] =
            "not every layer could be examined, and no layer that was examined is faulty",
        [ND_HEALTH_UNEXPLAINED] = NULL, /* nd_explain_say_unexplained */
        [ND_HEALTH_FAULTY] = "a layer has a fault",
        [ND_HEALTH_FAILED] = "no values, since the device did not finish",
    };
    const struct nd_explanation *e = b->e;
    size_t n = count_health(e, e->health);
    char count[64] = "";
    if (e->n_devices > 1 && e->health != ND_HEALTH_HEALTHY)
        snprintf(count, sizeof count, "%zu of %zu devices: ", n, e->n_devices);
    nd_summary_put(b->out, b->width, 0, 2, "%s: %s%s", nd_explain_health_word(e->health), count,
                   e->health == ND_HEALTH_UNEXPLAINED                    ? nd_explain_say_unexplained(e)
                   : e->health == ND_HEALTH_HEALTHY && e->n_devices == 1 ? "the device has no fault"
                                                                         : what[e->health]);
    nd_summary_put(b->out, b->width, 0, 2, "%s: %zu layers, %zu sample%s of '%s', %zu capture%s%s%s",
                   nd_path_base(e->model), e->n_steps, e->n_samples, e->n_samples == 1 ? "" : "s",
                   e->probe != NULL ? e->probe : "", e->n_devices, e->n_devices == 1 ? "" : "s",
                   e->float_model != NULL ? "; float model " : "",
                   e->float_model != NULL ? nd_path_base(e->float_model) : "");
    put_environments(b);
}

/* ---- a faulty layer ---- */

/* Layers after it that follow known arithmetic, but have wrong inputs. */
static size_t count_passing_on(const struct nd_explanation *e, const struct nd_explained_device *device,
                               size_t step)
{
    size_t n = 0;
    for (size_t s = step + 1; s < e->n_steps; s++) {
        const struct nd_explained_unit *unit = &device->units[s];
        n += unit->state == ND_LAYER_FOLLOWS && unit->has_total && unit->inherited.n_differing > 0;
    }
    return n;
}

static void put_effect(const struct brief *b, const struct nd_explained_device *device, size_t step)
{
    const struct nd_explained_unit *unit = &device->units[step];
    size_t n = count_passing_on(b->e, device, step);
    char effect[96] = "", passed[96] = "";
    if (!isnan(unit->harmed_share))
        snprintf(effect, sizeof effect, "by itself it changes %.3g%% of the output values",
                 100 * unit->harmed_share);
    if (n > 0)
        snprintf(passed, sizeof passed, "%s%zu later layer%s only pass%s its error on",
                 effect[0] != '\0' ? "; " : "", n, n == 1 ? "" : "s", n == 1 ? "es" : "");
    if (effect[0] != '\0' || passed[0] != '\0')
        nd_summary_put(b->out, b->width, 2, 4, "effect: %s%s", effect, passed);
}

static void put_faulty(const struct brief *b, const struct nd_explained_device *device)
{
    const struct nd_explained_unit *unit = &device->units[device->faulty[0]];
    struct nd_strbuf evidence = {0};
    nd_explain_say_evidence(unit, &evidence);
    b->out->failed = b->out->failed || evidence.failed;
    nd_summary_put(b->out, b->width, 2, 4, "evidence: %s", evidence.text != NULL ? evidence.text : "");
    nd_strbuf_deinit(&evidence);
    put_effect(b, device, device->faulty[0]);
    if (unit->known_defect != NULL)
        nd_summary_put(b->out, b->width, 2, 4, "%s. What to do: %s", unit->known_defect, unit->remedy);
    if (device->n_faulty < 2)
        return;
    struct nd_strbuf names = {0};
    for (size_t i = 1; i < device->n_faulty && i <= MOST_NAMED; i++) {
        const struct nd_explained_step *step = &b->e->steps[device->faulty[i]];
        nd_strbuf_printf(&names, "%s'%s' (%s)", i > 1 ? ", " : "", step->name, step->op_types);
    }
    if (device->n_faulty > MOST_NAMED + 1)
        nd_strbuf_printf(&names, " and %zu more", device->n_faulty - MOST_NAMED - 1);
    b->out->failed = b->out->failed || names.failed;
    nd_summary_put(b->out, b->width, 2, 4, "faulty, too: %s", names.text != NULL ? names.text : "");
    nd_strbuf_deinit(&names);
}

/* ---- devices ---- */

static void put_details(const struct brief *b, const struct nd_explained_device *device)
{
    if (device->n_faulty > 0)
        put_faulty(b, device);
    if (!b->is_crowded)
        nd_explain_put_begin(b->out, b->e, device, b->width);
    nd_explain_put_floats(b->out, b->e, device, b->width);
    nd_explain_put_findings(b->out, b->e, device, b->width, MOST_LAYERS);
    nd_explain_put_oddities(b->out, b->e, device, b->width, device->n_faulty > 0 ? 1 : MOST_LAYERS);
    if (!b->is_crowded)
        nd_explain_put_within(b->out, b->e, device, b->width);
    nd_explain_put_execution_line(b->out, b->e, device, b->width);
    if (device->observer.n_changed > 0)
        nd_explain_put_observer(b->out, device, b->width);
    if (device->health != ND_HEALTH_HEALTHY)
        nd_explain_put_not_examined(b->out, b->e, device, b->width, MOST_LAYERS);
}

/* Columns of the names and of the verdicts; a name that is longer moves its own line. */
struct columns {
    size_t name, verdict;
};

static void put_device(const struct brief *b, size_t d, const struct columns *columns)
{
    const struct nd_explained_device *device = &b->e->devices[d];
    char name[LABEL_BYTES], sentence[EXPLAIN_SENTENCE_BYTES];
    name_group(b, d, name);
    nd_explain_clean(name);
    nd_explain_say_health(b->e, device, sentence);
    nd_strbuf_printf(b->out, "%-*s  %-*s  ", (int)columns->name, name, (int)columns->verdict,
                     nd_explain_health_word(device->health));
    nd_summary_put(b->out, b->width, 0, columns->name + columns->verdict + 4, "%s%s", sentence,
                   device->failure == NULL ? "." : "");
    if (device->failure == NULL && !(b->is_bare && device->health == ND_HEALTH_HEALTHY))
        put_details(b, device);
}

static struct columns measure(const struct brief *b)
{
    struct columns widest = {0, 0};
    for (size_t d = 0; d < b->e->n_devices; d++) {
        char name[LABEL_BYTES];
        if (!is_first(b, d))
            continue;
        name_group(b, d, name);
        size_t n = strlen(name), n_verdict = strlen(nd_explain_health_word(b->e->devices[d].health));
        widest.name = n > widest.name ? n : widest.name;
        widest.verdict = n_verdict > widest.verdict ? n_verdict : widest.verdict;
    }
    widest.name = widest.name < MAX_NAME ? widest.name : MAX_NAME;
    return widest;
}

/* ---- the next command ---- */

static size_t first_with(const struct nd_explanation *e, enum nd_health health)
{
    size_t d = 0;
    while (d + 1 < e->n_devices && e->devices[d].health != health)
        d++;
    return d;
}

/* Whether two chips are healthy and have different arithmetic: then the model can be changed so that they
 * agree. */
static bool can_align(const struct nd_explanation *e)
{
    const char *first = NULL;
    bool are_different = false;
    for (size_t d = 0; d < e->n_devices; d++) {
        const char *program = e->devices[d].program;
        if (program == NULL || strncmp(program, "htp-", strlen("htp-")) != 0)
            continue;
        are_different = are_different || (first != NULL && strcmp(first, program) != 0);
        first = program;
    }
    return are_different;
}

/* Chosen: an error of a third of the signal. Then no chip matters before the quantisation is mended. */
static const double broken_sqnr_db = 10;

static bool is_broken(const struct nd_explanation *e)
{
    return e->quantisation != NULL && e->quantisation->output_sqnr_db < broken_sqnr_db;
}

/* Behind the first n words; how many there are then. more ends with NULL. */
static size_t add_words(const char **words, size_t n, const char *const *more)
{
    for (; *more != NULL; more++)
        words[n++] = *more;
    return n;
}

static void put_next(const struct brief *b)
{
    const struct nd_explanation *e = b->e;
    const char *words[14 + MOST_CAPTURES] = {"npudiff"}, *why;
    size_t n = 1, d = first_with(e, e->health);
    const struct nd_explained_device *device = &e->devices[d];
    bool can_run = device->uri[0] != '?' && strncmp(device->uri, "import", 6) != 0;
    if (e->health == ND_HEALTH_HEALTHY && is_broken(e)) {
        why = "as the quantisation alone breaks the model: to look for faults of the file";
        n = add_words(words, n, (const char *[]){"lint", e->model, NULL});
    } else if (e->health == ND_HEALTH_HEALTHY && can_align(e)) {
        why = "to make the chips give the same bits";
        n = add_words(words, n, (const char *[]){"align", e->model, "-o", "aligned.onnx", NULL});
    } else if (e->health == ND_HEALTH_HEALTHY) {
        why = "to judge accuracy and differences by your own limits";
        n = add_words(words, n, (const char *[]){"qualify", "campaign.yaml", NULL});
    } else if (e->health == ND_HEALTH_FAULTY && can_run) {
        why = "to make a small reproducer for the vendor";
        n = add_words(words, n,
                      (const char *[]){"reduce", e->model, "-d", device->uri, "-o", "reproducer", "--differs",
                                       "1lsb", "--tensor", e->steps[device->faulty[0]].name, NULL});
        if (e->probe_source != NULL)
            n = add_words(words, n, (const char *[]){"-p", e->probe_source, NULL});
    } else if (e->health == ND_HEALTH_FAILED) {
        why = "to see what the device's logs say";
        n = add_words(words, n, (const char *[]){"info", device->capture, NULL});
    } else {
        bool is_unexplained = e->health == ND_HEALTH_UNEXPLAINED;
        why = is_unexplained ? "to see which arithmetic the values leave possible" : "to see every layer";
        n = add_words(
            words, n,
            (const char *[]){"explain", is_unexplained ? "--identify" : "-v", "--quantised", e->model, NULL});
        for (size_t i = 0; i < e->n_devices && n < 8 + MOST_CAPTURES; i++)
            if (e->devices[i].health == e->health && is_first(b, i))
                words[n++] = e->devices[i].capture;
    }
    nd_summary_put_next(b->out, b->width, why, words, n);
}

/* Of the groups the worst first. */
static void put_devices(const struct brief *b)
{
    struct columns columns = measure(b);
    for (int health = ND_HEALTH_FAILED; health >= (int)ND_HEALTH_HEALTHY; health--)
        for (size_t d = 0; d < b->e->n_devices; d++)
            if ((int)b->e->devices[d].health == health && is_first(b, d))
                put_device(b, d, &columns);
    nd_explain_put_unreached(b->out, b->e, b->width);
    if (b->e->float_model == NULL && nd_explain_has_codes(b->e)) {
        nd_strbuf_puts(b->out, "\n");
        nd_summary_put(b->out, b->width, 0, 2,
                       "With --float MODEL it also says how much of the error is quantisation.");
    }
}

/* Into so many lines: what is said of healthy devices is left out before a device is. */
static void put_devices_within(struct brief *b, size_t most_lines, struct nd_strbuf *out)
{
    static const char more[] = "... (-v shows more)\n";
    struct nd_strbuf all = {0}, bare = {0};
    b->out = &all;
    put_devices(b);
    b->is_bare = true;
    b->out = &bare;
    put_devices(b);
    if (nd_summary_count_lines(&all) > most_lines && nd_summary_count_lines(&bare) <= most_lines) {
        nd_summary_append_cut(out, &bare, SIZE_MAX);
        nd_strbuf_puts(out, more);
    } else {
        nd_summary_append_cut(out, &all, most_lines);
    }
    out->failed = out->failed || bare.failed;
    nd_strbuf_deinit(&all);
    nd_strbuf_deinit(&bare);
}

enum nd_status nd_report_explanation_brief(const struct nd_explanation *explanation,
                                           const struct nd_identification *identification, size_t width,
                                           char **out, struct nd_error *err)
{
    enum { CROWD = 3, CROWD_BESIDE_QUANTISATION = 2 };
    struct nd_strbuf text = {0}, quantisation = {0}, next = {0};
    struct brief b = {.e = explanation, .out = &text, .width = nd_summary_width(width)};
    size_t n_groups = 0;
    for (size_t d = 0; d < explanation->n_devices; d++)
        n_groups += is_first(&b, d);
    nd_explain_put_quantisation_line(&quantisation, explanation, b.width);
    b.is_crowded = n_groups > (quantisation.len > 0 ? CROWD_BESIDE_QUANTISATION : CROWD);
    put_headline(&b);
    nd_strbuf_puts(&text, "\n");
    b.out = &next;
    if (identification == NULL)
        put_next(&b);
    size_t used =
        nd_summary_count_lines(&text) + nd_summary_count_lines(&quantisation) + nd_summary_count_lines(&next);
    put_devices_within(&b, used < ND_SUMMARY_LINES ? ND_SUMMARY_LINES - used : 1, &text);
    nd_summary_append_cut(&text, &quantisation, SIZE_MAX);
    nd_explain_put_identification(&text, identification, b.width, false);
    nd_summary_append_cut(&text, &next, SIZE_MAX);
    nd_strbuf_deinit(&quantisation);
    nd_strbuf_deinit(&next);
    return nd_text_end(&text, out, err);
}
