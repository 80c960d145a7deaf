#include "report/json/diagnoses.h"

#include <math.h>

static void put_diagnosis(struct nd_json *json, const struct nd_comparison *c,
                          const struct nd_compared_diagnosis *d)
{
    nd_json_open_line(json, NULL, '{');
    nd_json_count(json, "device", d->device);
    nd_json_text(json, "tensor", c->edges[d->edge].name);
    nd_json_text(json, "kind", d->kind);
    nd_json_bool(json, "fault", !d->is_note);
    nd_json_bool(json, "of_runs", d->is_of_runs);
    nd_json_text(json, "text", d->text);
    nd_json_real(json, "amount", d->amount);
    nd_json_real(json, "explained", d->explained);
    nd_json_real_if(json, "log10_chance", !isnan(d->chance), d->chance);
    nd_json_count(json, "later_tensors", d->n_later);
    nd_json_close(json, '}');
}

static void put_depth(struct nd_json *json, const struct nd_comparison *c, const struct nd_compared_depth *d)
{
    bool has_largest = !isnan(d->largest);
    nd_json_open_line(json, NULL, '{');
    nd_json_count(json, "device", d->device);
    nd_json_text(json, "growth", d->growth);
    nd_json_text(json, "of", d->is_share ? "share" : "relative error");
    nd_json_count(json, "tensors", d->n_tensors);
    nd_json_real(json, "factor", d->factor);
    nd_json_real_if(json, "first", !isnan(d->first), d->first);
    nd_json_real_if(json, "last", !isnan(d->last), d->last);
    nd_json_bool(json, "half_precision", d->is_half);
    nd_json_real_if(json, "largest", has_largest, d->largest);
    nd_json_text(json, "largest_tensor", has_largest ? c->edges[d->largest_edge].name : NULL);
    nd_json_close(json, '}');
}

static void put_predicate(struct nd_json *json, const struct nd_comparison *c,
                          const struct nd_compared_predicate *p)
{
    nd_json_open_line(json, NULL, '{');
    nd_json_count(json, "device", p->device);
    nd_json_text(json, "tensor", p->edge != SIZE_MAX ? c->edges[p->edge].name : NULL);
    nd_json_text(json, "of", p->edge != SIZE_MAX ? "samples" : "tensors");
    nd_json_count(json, "wrong", p->n_wrong);
    nd_json_count(json, "compared", p->n);
    nd_json_open(json, "conditions", '[');
    for (size_t i = 0; i < p->n_conditions; i++)
        nd_json_text(json, NULL, p->conditions[i]);
    nd_json_close(json, ']');
    nd_json_text(json, "text", p->text);
    nd_json_real_if(json, "log2_chance", !isnan(p->log2_chance), p->log2_chance);
    nd_json_close(json, '}');
}

void nd_json_put_diagnoses(struct nd_json *json, const struct nd_comparison *comparison)
{
    nd_json_open(json, "diagnoses", '[');
    for (size_t i = 0; i < comparison->n_diagnoses; i++)
        put_diagnosis(json, comparison, &comparison->diagnoses[i]);
    nd_json_close(json, ']');
    nd_json_open(json, "depth", '[');
    for (size_t i = 0; i < comparison->n_depths; i++)
        put_depth(json, comparison, &comparison->depths[i]);
    nd_json_close(json, ']');
    nd_json_open(json, "predicate", '[');
    for (size_t i = 0; i < comparison->n_predicates; i++)
        put_predicate(json, comparison, &comparison->predicates[i]);
    nd_json_close(json, ']');
}
