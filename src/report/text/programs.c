/* What programs of whole units say of devices: the arithmetic that a device has, what it costs, what is not
 * known, and why two devices differ. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "report/text/explain.h"
#include "report/text/explain_words.h"
#include "report/text/tree.h"

/* ---- text ---- */

/* "htp-v73", and what nothing in the capture tells from it. */
static void name_programs(const struct nd_explained_device *device, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s", device->program);
    const char *before = " (these layers do not tell it from ";
    bool is_open = false;
    for (size_t i = 0; i < device->n_programs && n < size; i++) {
        if (strcmp(device->programs[i], device->program) == 0)
            continue;
        n += (size_t)snprintf(out + n, size - n, "%s%s", is_open ? ", " : before, device->programs[i]);
        is_open = true;
    }
    if (is_open && n < size)
        snprintf(out + n, size - n, ")");
}

static bool is_unknown(const struct nd_explanation *e, const struct nd_explained_device *device, size_t s)
{
    const struct nd_explained_unit *unit = &device->units[s];
    return e->steps[s].is_unit && unit->is_examined && unit->program == NULL && !unit->is_faulty &&
           unit->local.n_differing > 0;
}

/* A line for each kind of unit. */
static void put_unknown_kind(struct nd_strbuf *out, const struct nd_explanation *e,
                             const struct nd_explained_device *device, size_t first, size_t width)
{
    const char *op_types = e->steps[first].op_types;
    uint64_t n_differing = 0, n_codes = 0;
    size_t n = 0;
    double max = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_unit *unit = &device->units[s];
        if (!is_unknown(e, device, s) || strcmp(e->steps[s].op_types, op_types) != 0)
            continue;
        if (s < first)
            return; /* that line was printed */
        n++;
        n_differing += unit->local.n_differing;
        n_codes += unit->n_codes;
        max = unit->local.max > max ? unit->local.max : max;
    }
    char share[32], most[32];
    nd_explain_put_wrapped(out, width, 2,
                           "not known: %s ('%s'%s): %s of the values are not exact rounding's, by at most %s",
                           op_types, e->steps[first].name, n > 1 ? " and others" : "",
                           nd_explain_share(n_differing, n_codes, share), nd_explain_real(max, most));
}

static void put_losses(struct nd_strbuf *out, const struct nd_explanation *e,
                       const struct nd_explained_device *device, size_t width)
{
    size_t worst = 0;
    for (size_t i = 1; i < device->n_losses; i++)
        if (device->units[device->losses[i]].local.max > device->units[device->losses[worst]].local.max)
            worst = i;
    if (device->n_losses == 0)
        return;
    const struct nd_explained_step *step = &e->steps[device->losses[worst]];
    char max[32], more[64] = "";
    if (device->n_losses > 1)
        snprintf(more, sizeof more, ", and 10 or more in %zu other%s", device->n_losses - 1,
                 device->n_losses > 2 ? "s" : "");
    nd_explain_put_wrapped(out, width, 2, "%s loses up to %s LSB in '%s' (%s)%s", device->program,
                           nd_explain_real(device->units[device->losses[worst]].local.max, max), step->name,
                           step->op_types, more);
}

void nd_explain_put_program(struct nd_strbuf *out, const struct nd_explanation *e,
                            const struct nd_explained_device *device, size_t width)
{
    char names[256];
    size_t n_units = 0, n_following = 0;
    uint64_t n_local = 0, n_left = 0, n_codes = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_unit *unit = &device->units[s];
        if (!e->steps[s].is_unit || !unit->is_examined)
            continue;
        n_units++;
        if (unit->program == NULL || unit->is_faulty)
            continue;
        n_following++;
        n_local += unit->local.n_differing;
        n_left += unit->n_unexplained;
        n_codes += unit->n_codes;
    }
    name_programs(device, names, sizeof names);
    nd_explain_put_wrapped(out, width, 2,
                           "arithmetic: %s; %zu of %zu layers examined follow it: of their %" PRIu64
                           " values %" PRIu64 " are not those of exact rounding, and %" PRIu64
                           " not the program's",
                           names, n_following, n_units, n_codes, n_local, n_left);
    put_losses(out, e, device, width);
    for (size_t s = 0; s < e->n_steps; s++)
        if (is_unknown(e, device, s))
            put_unknown_kind(out, e, device, s, width);
}

static void put_reason(struct nd_strbuf *out, const struct nd_explained_difference *difference,
                       const struct nd_explained_reason *reason, size_t width)
{
    bool is_of_all = strcmp(reason->op_types, difference->op_types) == 0;
    nd_explain_put_wrapped(out, width, 2, "%s %s, %s %s%s%s%s", difference->programs[0], reason->texts[0],
                           difference->programs[1], reason->texts[1], is_of_all ? "" : " (",
                           is_of_all ? "" : reason->op_types, is_of_all ? "" : ")");
}

static void put_difference(struct nd_strbuf *out, const struct nd_explanation *e,
                           const struct nd_explained_difference *difference, size_t width)
{
    const char *a = e->devices[difference->devices[0]].uri, *b = e->devices[difference->devices[1]].uri;
    if (difference->n_units == 0) {
        nd_explain_put_wrapped(out, width, 0,
                               "%s has %s and %s has %s, which are one in layers that follow them", a,
                               difference->programs[0], b, difference->programs[1]);
        return;
    }
    nd_explain_put_wrapped(out, width, 0,
                           "%s and %s differ in %" PRIu64 " of %" PRIu64
                           " values of layers of %s, given the inputs of the former, because",
                           a, b, difference->n_differing, difference->n_codes, difference->op_types);
    for (size_t i = 0; i < difference->n_because; i++)
        put_reason(out, difference, &difference->because[i], width);
}

void nd_explain_put_differences(struct nd_strbuf *out, const struct nd_explanation *e, size_t width)
{
    for (size_t i = 0; i < e->n_differences; i++)
        put_difference(out, e, &e->differences[i], width);
}

/* ---- JSON ---- */

json_t *nd_explain_losses_json(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    json_t *list = json_array();
    for (size_t i = 0; i < device->n_losses; i++) {
        const struct nd_explained_unit *unit = &device->units[device->losses[i]];
        nd_tree_append(list,
                       json_pack("{s:o, s:o, s:s, s:f, s:I, s:I}", "layer",
                                 nd_json_string(e->steps[device->losses[i]].name), "op_type",
                                 nd_json_string(e->steps[device->losses[i]].op_types), "arithmetic",
                                 unit->program, "max", unit->local.max, "differing",
                                 (json_int_t)unit->local.n_differing, "values", (json_int_t)unit->n_codes));
    }
    return list;
}

static json_t *because_json(const struct nd_explained_difference *difference)
{
    json_t *list = json_array();
    for (size_t i = 0; i < difference->n_because; i++) {
        const struct nd_explained_reason *reason = &difference->because[i];
        nd_tree_append(list,
                       json_pack("{s:s, s:[s, s], s:o}", "property", reason->name, "text", reason->texts[0],
                                 reason->texts[1], "op_types", nd_json_string(reason->op_types)));
    }
    return list;
}

json_t *nd_explain_differences_json(const struct nd_explanation *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_differences; i++) {
        const struct nd_explained_difference *difference = &e->differences[i];
        nd_tree_append(list, json_pack("{s:[I, I], s:[s, s], s:o, s:I, s:o, s:I, s:I}", "devices",
                                       (json_int_t)difference->devices[0], (json_int_t)difference->devices[1],
                                       "arithmetic", difference->programs[0], difference->programs[1],
                                       "because", because_json(difference), "layers",
                                       (json_int_t)difference->n_units, "op_types",
                                       nd_json_string(difference->op_types != NULL ? difference->op_types : ""),
                                       "differing", (json_int_t)difference->n_differing, "values",
                                       (json_int_t)difference->n_codes));
    }
    return list;
}
