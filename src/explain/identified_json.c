/* Sets of programs as JSON. include/npudiff/explain.h says what members mean. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "explain/identified.h"

/* Of what half-even leaves: below, one class that is left is no claim. */
static const double least_explained = 0.999;

struct answer {
    struct nd_identify_result result;
    uint64_t exceptions, reference; /* of the best program; of half-even */
};

/* ---- members ---- */

static json_t *text(const char *from)
{
    json_t *value = json_string(from);
    if (value != NULL)
        return value;
    char *clean = nd_strdup(from); /* no UTF-8, or no memory */
    for (char *at = clean; at != NULL && *at != '\0'; at++)
        *at = (unsigned char)*at < 128 ? *at : '?';
    value = clean != NULL ? json_string(clean) : NULL;
    free(clean);
    return value;
}

static json_t *count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static bool put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

/* value NULL: memory is out. */
static bool push(json_t *list, json_t *value)
{
    return json_array_append_new(list, value) == 0;
}

static json_t *checked(json_t *value, bool is_good)
{
    if (!is_good)
        json_decref(value);
    return is_good ? value : NULL;
}

/* ---- answers ---- */

static bool is_left(const struct nd_identify_result *r, size_t p)
{
    return r->is_applicable[p] && r->is_possible[p];
}

static json_t *class_json(const struct nd_identify_result *r, size_t first)
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    const struct nd_arithmetic *programs = nd_arithmetics(&(size_t){0});
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t p = first; p < r->n_programs; p++)
        if (is_left(r, p) && r->class_of[p] == r->class_of[first])
            is_good = is_good && push(list, json_string(nd_arithmetic_name(&programs[p], name)));
    return checked(list, is_good);
}

static json_t *classes_json(const struct nd_identify_result *r)
{
    json_t *list = json_array();
    bool is_told[ND_ARITHMETIC_MAX] = {false}, is_good = list != NULL;
    bool is_set = r->verdict != ND_IDENTIFY_TOO_FEW; /* else it is all there are */
    for (size_t p = 0; p < r->n_programs && is_set; p++) {
        if (!is_left(r, p) || is_told[r->class_of[p]])
            continue;
        is_told[r->class_of[p]] = true;
        is_good = is_good && push(list, class_json(r, p));
    }
    return checked(list, is_good);
}

static double explained(const struct answer *a)
{
    return a->reference > 0 ? 1 - (double)a->exceptions / (double)a->reference : NAN;
}

static const char *verdict_of(const struct answer *a)
{
    static const char *const names[] = {"too-few", "none", "several", "single"};
    bool is_claim = a->exceptions == 0 || explained(a) >= least_explained;
    return names[a->result.verdict == ND_IDENTIFY_SINGLE && !is_claim ? ND_IDENTIFY_NONE : a->result.verdict];
}

static bool put_answer(const struct answer *a, const char *verdict, json_t *out)
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    const struct nd_identify_result *r = &a->result;
    const struct nd_arithmetic *programs = nd_arithmetics(&(size_t){0});
    bool has_best = r->best != SIZE_MAX, is_none = strcmp(verdict, "none") == 0;
    return put(out, "verdict", json_string(verdict)) &&
           put(out, "split", json_boolean(is_none && r->is_split)) && put(out, "classes", classes_json(r)) &&
           put(out, "nearest",
               has_best ? json_string(nd_arithmetic_name(&programs[r->best], name)) : json_null()) &&
           put(out, "codes", count(r->n)) && put(out, "open", count(r->n_open)) &&
           put(out, "deciding", count(r->n_deciding)) && put(out, "exceptions", count(a->exceptions)) &&
           put(out, "explained", isnan(explained(a)) ? json_null() : json_real(explained(a)));
}

/* Where none is left, a program of chance is no answer: it gives any code that is beside the value. */
static void choose_nearest(struct nd_identify_result *r)
{
    const struct nd_arithmetic *programs = nd_arithmetics(&(size_t){0});
    size_t best = SIZE_MAX;
    if (r->verdict != ND_IDENTIFY_NONE || r->best == SIZE_MAX ||
        !nd_arithmetic_is_stochastic(&programs[r->best]))
        return;
    for (size_t p = 0; p < r->n_programs; p++) {
        if (!r->is_applicable[p] || r->n_seen[p] == 0 || nd_arithmetic_is_stochastic(&programs[p]))
            continue;
        if (best == SIZE_MAX ||
            (double)r->n_wrong[p] * (double)r->n_seen[best] < (double)r->n_wrong[best] * (double)r->n_seen[p])
            best = p;
    }
    r->best = best != SIZE_MAX ? best : r->best;
}

static bool is_seen(const struct nd_identified_unit *unit)
{
    return unit->is_unit && unit->tally.n > 0;
}

/* NULL: all of them. */
static bool is_of(const struct nd_identified_unit *unit, const char *op_types)
{
    return is_seen(unit) && (op_types == NULL || strcmp(unit->op_types, op_types) == 0);
}

/* What the best program leaves in the units. Where it is not applicable it explains nothing. */
static void count_left(const struct nd_identified_device *device, const char *op_types, struct answer *a)
{
    a->exceptions = a->reference = 0;
    for (size_t s = 0; s < device->n_units; s++) {
        const struct nd_identify_tally *tally = &device->units[s].tally;
        if (!is_of(&device->units[s], op_types))
            continue;
        size_t best = a->result.best != SIZE_MAX && tally->n_seen[a->result.best] > 0 ? a->result.best : 0;
        a->exceptions += tally->n_wrong[best];
        a->reference += tally->n_wrong[0];
    }
}

/* ---- programs of whole units ---- */

static void add_whole(const struct nd_identified_unit *unit, struct nd_explain_unit_tally *sum)
{
    for (size_t p = 0; p < ND_EXPLAIN_MAX_UNIT_PROGRAMS; p++) {
        sum->n[p] += unit->as_whole.n[p];
        sum->wrong[p] += unit->as_whole.wrong[p];
    }
}

static json_t *whole_json(const struct nd_explain_unit_tally *sum)
{
    size_t n;
    const struct nd_unit_program *programs = nd_unit_programs(&n);
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t p = 0; p < n && is_good; p++)
        if (sum->n[p] > 0)
            is_good = push(list, json_pack("{s:s, s:I, s:I}", "name", programs[p].name, "codes",
                                           (json_int_t)sum->n[p], "exceptions", (json_int_t)sum->wrong[p]));
    return checked(list, is_good);
}

/* NULL: of all types. */
static bool put_whole(const struct nd_identified_device *device, const char *op_types, json_t *out)
{
    struct nd_explain_unit_tally sum = {.n = {0}};
    for (size_t s = 0; s < device->n_units; s++)
        if (is_of(&device->units[s], op_types))
            add_whole(&device->units[s], &sum);
    return put(out, "unit_programs", whole_json(&sum));
}

/* ---- thresholds ---- */

static json_t *edge_of(uint64_t n, double fraction)
{
    return n > 0 ? json_real(fraction) : json_null();
}

static bool put_bracket(const struct nd_identify_bracket *b, json_t *out)
{
    bool is_crossed = b->n_down > 0 && b->n_up > 0 && b->max_down >= b->min_up;
    return put(out, "down", count(b->n_down)) && put(out, "up", count(b->n_up)) &&
           put(out, "max_down", edge_of(b->n_down, b->max_down)) &&
           put(out, "min_up", edge_of(b->n_up, b->min_up)) && put(out, "crossed", json_boolean(is_crossed));
}

static json_t *sign_json(const struct nd_identify_tally *tally, bool is_negative)
{
    const struct nd_identify_bracket bracket = nd_identify_threshold(tally, is_negative);
    if (bracket.n_down + bracket.n_up == 0)
        return json_null();
    json_t *out = json_object();
    return checked(out, put_bracket(&bracket, out));
}

static json_t *binades_json(const struct nd_identify_tally *tally)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t k = 0; k < 2 * (size_t)ND_IDENTIFY_BINADES; k++) {
        size_t sign = k / ND_IDENTIFY_BINADES, b = k % ND_IDENTIFY_BINADES;
        const struct nd_identify_bracket *bracket = &tally->binades[sign][b];
        if (bracket->n_down + bracket->n_up == 0)
            continue;
        bool is_last = b + 1 == ND_IDENTIFY_BINADES;
        json_t *row =
            json_pack("{s:i, s:f, s:o}", "sign", sign == 0 ? 1 : -1, "from", b > 0 ? ldexp(1, (int)b - 1) : 0.0,
                      "to", is_last ? json_null() : json_real(ldexp(1, (int)b)));
        is_good = is_good && put_bracket(bracket, row);
        is_good = push(list, row) && is_good;
    }
    return checked(list, is_good);
}

static json_t *channels_json(const struct nd_identify_tally *tally)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t c = 0; c < tally->n_channels && tally->n_channels > 1; c++) {
        json_t *row = json_pack("{s:I}", "channel", (json_int_t)c);
        is_good = is_good && put_bracket(&tally->channels[c], row);
        is_good = push(list, row) && is_good;
    }
    return checked(list, is_good);
}

static json_t *thresholds_json(const struct nd_identify_tally *tally)
{
    json_t *out = json_object();
    return checked(
        out, put(out, "positive", sign_json(tally, false)) && put(out, "negative", sign_json(tally, true)) &&
                 put(out, "binades", binades_json(tally)) && put(out, "channels", channels_json(tally)));
}

static json_t *curve_json(const struct nd_identify_tally *tally)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t b = 0; b < ND_IDENTIFY_BINS; b++) {
        const struct nd_identify_point point = nd_identify_curve(tally, b);
        if (point.n > 0)
            is_good =
                is_good &&
                push(list, json_pack("{s:f, s:f, s:I, s:f, s:f, s:f}", "from", (double)b / ND_IDENTIFY_BINS,
                                     "to", (double)(b + 1) / ND_IDENTIFY_BINS, "codes", (json_int_t)point.n,
                                     "p", point.p, "low", point.low, "high", point.high));
    }
    return checked(list, is_good);
}

/* ---- lists ---- */

static json_t *unit_json(const struct nd_identified_device *device, size_t s)
{
    const struct nd_identified_unit *unit = &device->units[s];
    struct answer a = {.exceptions = 0};
    nd_identify_decide(&unit->tally, &a.result);
    choose_nearest(&a.result);
    size_t best = a.result.best;
    a.exceptions = best != SIZE_MAX ? a.result.n_wrong[best] : 0;
    a.reference = a.result.n_wrong[0];
    json_t *row = json_pack("{s:o, s:o, s:s}", "name", text(unit->name), "op_type", text(unit->op_types), "way",
                            unit->is_double ? "double" : "exact ratio");
    struct nd_explain_unit_tally sum = {.n = {0}};
    add_whole(unit, &sum);
    return checked(row, row != NULL && put_answer(&a, verdict_of(&a), row) &&
                            put(row, "unit_programs", whole_json(&sum)) &&
                            put(row, "thresholds", thresholds_json(&unit->tally)) &&
                            put(row, "curve", curve_json(&unit->tally)));
}

static json_t *type_json(const struct nd_identified_device *device, const char *op_types, struct answer *a)
{
    const struct nd_identify_tally **tallies = nd_calloc(device->n_units, sizeof *tallies);
    size_t n = 0;
    for (size_t s = 0; s < device->n_units && tallies != NULL; s++)
        if (is_of(&device->units[s], op_types))
            tallies[n++] = &device->units[s].tally;
    enum nd_status status = tallies != NULL ? nd_identify_group(tallies, n, &a->result, NULL) : ND_ERR_MEMORY;
    free(tallies);
    if (status != ND_OK)
        return NULL;
    choose_nearest(&a->result);
    count_left(device, op_types, a);
    json_t *row = json_pack("{s:o, s:I}", "op_type", text(op_types), "units", (json_int_t)n);
    return checked(row, row != NULL && put_answer(a, verdict_of(a), row) && put_whole(device, op_types, row));
}

static bool is_first(const struct nd_identified_device *device, size_t s)
{
    for (size_t before = 0; before < s; before++)
        if (is_of(&device->units[before], device->units[s].op_types))
            return false;
    return true;
}

/* The types, and what is left in all of them. A type that is not explained is none of the device's program. */
static bool put_types(const struct nd_identified_device *device, json_t *out)
{
    struct nd_identify_result *results = nd_calloc(device->n_units + 1, sizeof *results);
    json_t *types = json_array();
    bool is_good = results != NULL && types != NULL, has_none = false, has_split = false;
    size_t n = 0;
    for (size_t s = 0; s < device->n_units && is_good; s++) {
        struct answer a = {.exceptions = 0};
        if (!is_seen(&device->units[s]) || !is_first(device, s))
            continue;
        is_good = push(types, type_json(device, device->units[s].op_types, &a));
        has_none = has_none || (is_good && strcmp(verdict_of(&a), "none") == 0);
        has_split = has_split || a.result.is_split;
        results[n++] = a.result;
    }
    struct answer all;
    if (is_good) {
        nd_identify_combine(results, n, &all.result);
        all.result.is_split = all.result.is_split || has_split;
        choose_nearest(&all.result);
        count_left(device, NULL, &all);
        const char *verdict = has_none ? "none" : verdict_of(&all);
        is_good = put_answer(&all, verdict, out) && put_whole(device, NULL, out);
    }
    free(results);
    return put(out, "types", types) && is_good;
}

static json_t *units_json(const struct nd_identified_device *device)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t s = 0; s < device->n_units && is_good; s++)
        if (is_seen(&device->units[s]))
            is_good = push(list, unit_json(device, s));
    return checked(list, is_good);
}

static const char *why_not(const struct nd_identified_unit *unit)
{
    if (unit->is_changing)
        return unit->has_fed ? "changes from run to run, as its inputs do" : "changes from run to run";
    return unit->why_not != NULL ? unit->why_not : "it has no exact values on what the device had";
}

static json_t *rest_json(const struct nd_identified_device *device)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t s = 0; s < device->n_units && is_good; s++) {
        const struct nd_identified_unit *unit = &device->units[s];
        if (unit->is_unit && unit->tally.n == 0)
            is_good = push(list, json_pack("{s:o, s:o, s:o}", "name", text(unit->name), "op_type",
                                           text(unit->op_types), "why", text(why_not(unit))));
    }
    return checked(list, is_good);
}

static json_t *probes_json(const struct nd_identified_device *device)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t p = 0; p < device->n_probes && is_good; p++)
        is_good = push(list, json_pack("{s:o, s:I}", "name", text(device->probes[p].name), "samples",
                                       (json_int_t)device->probes[p].n_samples));
    return checked(list, is_good);
}

json_t *nd_identified_json(const struct nd_identified_device *device)
{
    bool is_failed = device->failure != NULL;
    json_t *out =
        json_pack("{s:o, s:o, s:o, s:o}", "uri", text(device->uri), "chipset", text(device->chipset), "capture",
                  text(device->capture), "failure", is_failed ? text(device->failure) : json_null());
    bool is_good = out != NULL;
    if (is_good && !is_failed)
        is_good = put(out, "probes", probes_json(device)) && put_types(device, out) &&
                  put(out, "units", units_json(device)) && put(out, "not_identified", rest_json(device));
    return checked(out, is_good);
}
