/* Which programs captures leave possible, as JSON: docs/reference/json.md says what members mean. */
#include <math.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "explain/identify/identification.h"
#include "report/text/explain.h"

/* ---- members ---- */

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

static json_t *class_json(const struct nd_identify_result *r, size_t first)
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    const struct nd_arithmetic *programs = nd_arithmetics(&(size_t){0});
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t p = first; p < r->n_programs; p++)
        if (nd_identified_is_left(r, p) && r->class_of[p] == r->class_of[first])
            is_good = is_good && push(list, json_string(nd_arithmetic_name(&programs[p], name)));
    return checked(list, is_good);
}

static json_t *classes_json(const struct nd_identify_result *r)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t p = nd_identified_next_class(r, SIZE_MAX); p != SIZE_MAX; p = nd_identified_next_class(r, p))
        is_good = is_good && push(list, class_json(r, p));
    return checked(list, is_good);
}

static json_t *whole_json(const struct nd_other_tally *whole)
{
    size_t n;
    const struct nd_unit_program *programs = nd_unit_programs(&n);
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t p = 0; p < n && is_good; p++)
        if (whole->n[p] > 0)
            is_good = push(list, json_pack("{s:s, s:I, s:I}", "name", programs[p].name, "values",
                                           (json_int_t)whole->n[p], "exceptions", (json_int_t)whole->wrong[p]));
    return checked(list, is_good);
}

static bool put_answer(const struct nd_answer *a, json_t *out)
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    const struct nd_identify_result *r = &a->result;
    const struct nd_arithmetic *programs = nd_arithmetics(&(size_t){0});
    bool has_best = r->best != SIZE_MAX, is_none = strcmp(a->verdict, "none") == 0;
    return put(out, "verdict", json_string(a->verdict)) &&
           put(out, "split", json_boolean(is_none && r->is_split)) && put(out, "groups", classes_json(r)) &&
           put(out, "nearest",
               has_best ? json_string(nd_arithmetic_name(&programs[r->best], name)) : json_null()) &&
           put(out, "values", count(r->n)) && put(out, "open", count(r->n_open)) &&
           put(out, "deciding", count(r->n_deciding)) && put(out, "exceptions", count(a->exceptions)) &&
           put(out, "explained", isnan(a->explained) ? json_null() : json_real(a->explained)) &&
           put(out, "layer_arithmetic", whole_json(&a->whole));
}

/* ---- thresholds ---- */

static json_t *edge_of(uint64_t n, double fraction)
{
    return n > 0 ? json_real(fraction) : json_null();
}

static bool put_bracket(const struct nd_identify_bracket *b, json_t *out)
{
    return put(out, "down", count(b->n_down)) && put(out, "up", count(b->n_up)) &&
           put(out, "max_down", edge_of(b->n_down, b->max_down)) &&
           put(out, "min_up", edge_of(b->n_up, b->min_up)) &&
           put(out, "crossed", json_boolean(nd_identified_is_crossed(b)));
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
                                     "to", (double)(b + 1) / ND_IDENTIFY_BINS, "values", (json_int_t)point.n,
                                     "p", point.p, "low", point.low, "high", point.high));
    }
    return checked(list, is_good);
}

/* ---- lists ---- */

static json_t *unit_json(const struct nd_identified_unit *unit)
{
    json_t *row = json_pack("{s:o, s:o, s:s}", "name", nd_json_string(unit->name), "op_type",
                            nd_json_string(unit->op_types), "way", unit->is_double ? "double" : "exact ratio");
    return checked(row, row != NULL && put_answer(unit->answer, row) &&
                            put(row, "thresholds", thresholds_json(&unit->tally)) &&
                            put(row, "curve", curve_json(&unit->tally)));
}

static json_t *types_json(const struct nd_identified_device *device)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t t = 0; t < device->n_types && is_good; t++) {
        const struct nd_identified_type *type = &device->types[t];
        json_t *row = json_pack("{s:o, s:I}", "op_type", nd_json_string(type->op_types), "layers",
                                (json_int_t)type->n_units);
        is_good = push(list, checked(row, row != NULL && put_answer(&type->answer, row)));
    }
    return checked(list, is_good);
}

static json_t *units_json(const struct nd_identified_device *device)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t s = 0; s < device->n_units && is_good; s++)
        if (device->units[s].answer != NULL)
            is_good = push(list, unit_json(&device->units[s]));
    return checked(list, is_good);
}

static json_t *rest_json(const struct nd_identified_device *device)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t s = 0; s < device->n_units && is_good; s++) {
        const struct nd_identified_unit *unit = &device->units[s];
        if (unit->is_unit && unit->answer == NULL)
            is_good = push(list, json_pack("{s:o, s:o, s:o}", "name", nd_json_string(unit->name), "op_type",
                                           nd_json_string(unit->op_types), "why",
                                           nd_json_string(nd_identified_why_not(unit))));
    }
    return checked(list, is_good);
}

static json_t *probes_json(const struct nd_identified_device *device)
{
    json_t *list = json_array();
    bool is_good = list != NULL;
    for (size_t p = 0; p < device->n_probes && is_good; p++)
        is_good = push(list, json_pack("{s:o, s:I}", "name", nd_json_string(device->probes[p].name), "samples",
                                       (json_int_t)device->probes[p].n_samples));
    return checked(list, is_good);
}

static json_t *device_json(const struct nd_identified_device *device)
{
    bool is_failed = device->failure != NULL;
    json_t *out = json_pack("{s:o, s:o, s:o, s:o}", "uri", nd_json_string(device->uri), "chipset",
                            nd_json_string(device->chipset), "capture", nd_json_string(device->capture),
                            "failure", is_failed ? nd_json_string(device->failure) : json_null());
    bool is_good = out != NULL;
    if (is_good && !is_failed)
        is_good = put(out, "probes", probes_json(device)) && put_answer(device->answer, out) &&
                  put(out, "types", types_json(device)) && put(out, "layers", units_json(device)) &&
                  put(out, "not_identified", rest_json(device));
    return checked(out, is_good);
}

json_t *nd_identification_json(const struct nd_identification *identification)
{
    json_t *devices = json_array();
    bool is_good = devices != NULL;
    for (size_t d = 0; d < identification->n_devices && is_good; d++)
        is_good = push(devices, device_json(&identification->devices[d]));
    devices = checked(devices, is_good);
    return devices != NULL ? json_pack("{s:o}", "devices", devices) : NULL;
}
