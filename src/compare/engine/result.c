#include "compare/engine/result.h"

#include <stdlib.h>

#include "core/memory.h"
#include "compare/engine/devices.h"
#include "compare/engine/format_text.h"
#include "compare/findings/repeats.h"

static enum nd_status describe_devices(const struct nd_matching *alignment, struct nd_comparison *comparison,
                                       struct nd_error *err)
{
    comparison->devices = nd_calloc(alignment->n_captures, sizeof *comparison->devices);
    if (comparison->devices == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t c = 0; c < alignment->n_captures && status == ND_OK; c++) {
        comparison->n_devices = c + 1;
        status = nd_device_describe(alignment->captures[c], &comparison->devices[c], err);
    }
    if (status == ND_OK)
        status = nd_devices_describe_configuration(alignment, comparison->devices, err);
    return status == ND_OK ? nd_devices_number_labels(comparison->devices, comparison->n_devices, err) : status;
}

static enum nd_status describe_probes(const struct nd_matching *alignment, struct nd_comparison *comparison,
                                      struct nd_error *err)
{
    comparison->probes = nd_calloc(alignment->n_probes, sizeof *comparison->probes);
    if (comparison->probes == NULL)
        return nd_fail_memory(err);
    comparison->n_probes = alignment->n_probes;
    for (size_t p = 0; p < alignment->n_probes; p++) {
        struct nd_compared_probe *probe = &comparison->probes[p];
        enum nd_status status = nd_text_set(&probe->name, err, "%s", alignment->probe_names[p]);
        if (status != ND_OK)
            return status;
        for (size_t c = 0; c < alignment->n_captures; c++) {
            const struct nd_capture_probe *described = nd_aligned_probe(alignment, p, c);
            if (described != NULL && described->n_samples > probe->n_samples)
                probe->n_samples = described->n_samples;
        }
    }
    return ND_OK;
}

static enum nd_status describe_on_devices(const struct nd_matching *alignment, size_t e,
                                          struct nd_comparison *comparison, struct nd_error *err)
{
    struct nd_compared_edge *edge = &comparison->edges[e];
    for (size_t c = 0; c < alignment->n_captures; c++) {
        struct nd_edge_on_device *on = &edge->devices[c];
        const struct nd_edge *described = nd_aligned_edge(alignment, e, c);
        const struct nd_capture *capture = alignment->captures[c];
        size_t index = alignment->edges[e * alignment->n_captures + c];
        const char *provider = described != NULL ? nd_capture_edge_provider(capture, index) : "";
        enum nd_status status = nd_text_set(&on->provider, err, "%s", provider);
        if (status != ND_OK)
            return status;
        on->class_id = -1;
        on->exists = described != NULL;
        if (described == NULL)
            continue;
        on->is_on_cpu = nd_device_fell_back(&comparison->devices[c], described, provider);
        nd_repeats_count(alignment, e, c, on);
        comparison->devices[c].n_unstable_edges += on->n_unstable > 0;
        comparison->devices[c].n_cpu_edges += on->is_on_cpu;
    }
    return ND_OK;
}

static const struct nd_edge *first_description(const struct nd_matching *alignment, size_t e)
{
    const struct nd_edge *first = NULL;
    for (size_t c = 0; c < alignment->n_captures; c++) {
        const struct nd_edge *edge = nd_aligned_edge(alignment, e, c);
        if (edge != NULL && (first == NULL || (first->dtype == ND_DTYPE_NONE && edge->dtype != ND_DTYPE_NONE)))
            first = edge;
    }
    return first;
}

static enum nd_status describe_edge(const struct nd_matching *alignment, size_t e,
                                    struct nd_comparison *comparison, struct nd_error *err)
{
    struct nd_compared_edge *edge = &comparison->edges[e];
    const struct nd_edge *described = first_description(alignment, e);
    size_t n = alignment->n_captures;
    edge->dtype = described->dtype;
    edge->shape = described->shape;
    edge->is_quantised = described->quant.n > 0;
    edge->is_model_input = described->is_model_input;
    edge->is_model_output = described->is_model_output;
    edge->devices = nd_calloc(n, sizeof *edge->devices);
    edge->pairs = nd_calloc(comparison->n_pairs, sizeof *edge->pairs);
    if (edge->devices == NULL || edge->pairs == NULL)
        return nd_fail_memory(err);
    size_t p = 0;
    for (size_t ref = 0; ref < n; ref++)
        for (size_t test = ref + 1; test < n && p < comparison->n_pairs; test++, p++) {
            edge->pairs[p].ref = ref;
            edge->pairs[p].test = test;
            edge->pairs[p].probes = nd_calloc(alignment->n_probes, sizeof *edge->pairs[p].probes);
            if (edge->pairs[p].probes == NULL)
                return nd_fail_memory(err);
        }
    enum nd_status status = nd_text_set(&edge->name, err, "%s", alignment->edge_names[e]);
    if (status == ND_OK)
        status =
            nd_text_set(&edge->op_types, err, "%s", described->op_types != NULL ? described->op_types : "");
    return status == ND_OK ? describe_on_devices(alignment, e, comparison, err) : status;
}

enum nd_status nd_result_describe(const struct nd_matching *alignment, bool all_pairs,
                                  struct nd_comparison *comparison, struct nd_error *err)
{
    size_t n = alignment->n_captures;
    comparison->n_pairs = all_pairs ? n * (n - 1) / 2 : n - 1;
    enum nd_status status = describe_devices(alignment, comparison, err);
    if (status == ND_OK)
        status = describe_probes(alignment, comparison, err);
    if (status != ND_OK)
        return status;
    comparison->edges = nd_calloc(alignment->n_edges, sizeof *comparison->edges);
    if (comparison->edges == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < alignment->n_edges && status == ND_OK; e++) {
        comparison->n_edges = e + 1;
        status = describe_edge(alignment, e, comparison, err);
    }
    return status;
}

static void part_deinit(struct nd_compared_part *part)
{
    free(part->reason);
    free(part->state);
    free(part->difference.worst);
}

static void pair_deinit(struct nd_comparison *comparison, struct nd_compared_pair *pair)
{
    free(pair->label);
    part_deinit(&pair->total);
    for (size_t p = 0; pair->probes != NULL && p < comparison->n_probes; p++)
        part_deinit(&pair->probes[p]);
    for (size_t c = 0; pair->channels != NULL && c < pair->n_channels; c++)
        free(pair->channels[c].worst);
    free(pair->channels);
    free(pair->probes);
}

static void edge_deinit(struct nd_comparison *comparison, struct nd_compared_edge *edge)
{
    for (size_t p = 0; edge->pairs != NULL && p < comparison->n_pairs; p++)
        pair_deinit(comparison, &edge->pairs[p]);
    for (size_t c = 0; edge->devices != NULL && c < comparison->n_devices; c++) {
        free(edge->devices[c].provider);
        if (edge->devices[c].noise != NULL)
            free(edge->devices[c].noise->worst);
        free(edge->devices[c].noise);
    }
    free(edge->pairs);
    free(edge->devices);
    free(edge->name);
    free(edge->op_types);
    free(edge->gate);
}

void nd_comparison_destroy(struct nd_comparison **comparison)
{
    struct nd_comparison *c = *comparison;
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->n_edges; i++)
        edge_deinit(c, &c->edges[i]);
    for (size_t i = 0; i < c->n_devices; i++)
        nd_compared_device_deinit(&c->devices[i]);
    for (size_t i = 0; i < c->n_probes; i++)
        free(c->probes[i].name);
    for (size_t i = 0; i < c->n_top1; i++) {
        free(c->top1[i].labels_missing_reason);
        free(c->top1[i].devices);
        free(c->top1[i].pairs);
        for (size_t k = 0; k < c->top1[i].n_changed_kept; k++) {
            free(c->top1[i].changed[k].classes);
            free(c->top1[i].changed[k].values);
        }
        free(c->top1[i].changed);
    }
    free(c->edges);
    free(c->devices);
    free(c->probes);
    free(c->top1);
    free(c->partings);
    for (size_t i = 0; i < c->n_diagnoses; i++)
        free(c->diagnoses[i].text);
    free(c->diagnoses);
    free(c->depths);
    for (size_t i = 0; i < c->n_predicates; i++) {
        free(c->predicates[i].conditions[0]);
        free(c->predicates[i].conditions[1]);
        free(c->predicates[i].text);
    }
    free(c->predicates);
    free(c->classes_text);
    free(c->output_classes_text);
    free(c);
    *comparison = NULL;
}
