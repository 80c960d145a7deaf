#include "compare/result.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compare/devices.h"
#include "compare/text.h"

static enum nd_status describe_devices(const struct nd_alignment *alignment, struct nd_comparison *comparison,
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
    return status == ND_OK ? nd_devices_number_labels(comparison->devices, comparison->n_devices, err) : status;
}

static enum nd_status describe_probes(const struct nd_alignment *alignment, struct nd_comparison *comparison,
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

/* Section 9: samples of which a later repeat has another digest than the first. */
static size_t count_unstable(const struct nd_capture *capture, size_t edge)
{
    size_t n = 0;
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
        for (size_t s = 0; s < probe->n_samples; s++) {
            bool is_unstable = false;
            for (size_t r = 1; r < probe->n_repeats && !is_unstable; r++)
                is_unstable = !nd_digest_equal(nd_capture_digest(capture, p, edge, s, r),
                                               nd_capture_digest(capture, p, edge, s, 0));
            n += is_unstable;
        }
    }
    return n;
}

static enum nd_status describe_on_devices(const struct nd_alignment *alignment, size_t e,
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
        on->n_unstable = count_unstable(capture, index);
        comparison->devices[c].n_unstable_edges += on->n_unstable > 0;
        comparison->devices[c].n_cpu_edges += on->is_on_cpu;
    }
    return ND_OK;
}

static const struct nd_edge *first_description(const struct nd_alignment *alignment, size_t e)
{
    const struct nd_edge *first = NULL;
    for (size_t c = 0; c < alignment->n_captures; c++) {
        const struct nd_edge *edge = nd_aligned_edge(alignment, e, c);
        if (edge != NULL && (first == NULL || (first->dtype == ND_DTYPE_NONE && edge->dtype != ND_DTYPE_NONE)))
            first = edge;
    }
    return first;
}

static enum nd_status describe_edge(const struct nd_alignment *alignment, size_t e,
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
    edge->pairs = nd_calloc(n - 1, sizeof *edge->pairs);
    if (edge->devices == NULL || edge->pairs == NULL)
        return nd_fail_memory(err);
    for (size_t t = 1; t < n; t++) {
        edge->pairs[t - 1].test = t;
        edge->pairs[t - 1].probes = nd_calloc(alignment->n_probes, sizeof *edge->pairs[t - 1].probes);
        if (edge->pairs[t - 1].probes == NULL)
            return nd_fail_memory(err);
    }
    enum nd_status status = nd_text_set(&edge->name, err, "%s", alignment->edge_names[e]);
    if (status == ND_OK)
        status =
            nd_text_set(&edge->op_types, err, "%s", described->op_types != NULL ? described->op_types : "");
    return status == ND_OK ? describe_on_devices(alignment, e, comparison, err) : status;
}

enum nd_status nd_result_describe(const struct nd_alignment *alignment, struct nd_comparison *comparison,
                                  struct nd_error *err)
{
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

static enum nd_verdict worse(enum nd_verdict a, enum nd_verdict b)
{
    return a > b ? a : b;
}

static void conclude_edge(struct nd_comparison *comparison, size_t e)
{
    struct nd_compared_edge *edge = &comparison->edges[e];
    edge->comparable = true;
    edge->verdict = ND_VERDICT_SAME;
    for (size_t t = 1; t < comparison->n_devices; t++) {
        const struct nd_compared_pair *pair = &edge->pairs[t - 1];
        struct nd_compared_device *device = &comparison->devices[t];
        edge->comparable = edge->comparable && pair->total.coverage == ND_COVERAGE_FULL;
        edge->verdict = worse(edge->verdict, pair->verdict);
        if (pair->total.difference.n_samples_differing == 0)
            continue;
        if (device->first_edge == SIZE_MAX)
            device->first_edge = e;
        if (comparison->first_edge == SIZE_MAX) {
            comparison->first_edge = e;
            comparison->first_test = t;
        }
    }
    for (size_t c = 1; c < comparison->n_devices && comparison->first_edge == SIZE_MAX; c++)
        if (edge->devices[0].class_id < 0 && edge->devices[c].class_id > 0)
            comparison->first_edge = e; /* tests differ among themselves where the reference has no data */
}

void nd_result_conclude(struct nd_comparison *comparison)
{
    comparison->verdict = comparison->n_edges > 0 ? ND_VERDICT_SAME : ND_VERDICT_NOT_COMPARABLE;
    comparison->first_edge = comparison->first_test = SIZE_MAX;
    for (size_t e = 0; e < comparison->n_edges; e++) {
        conclude_edge(comparison, e);
        comparison->verdict = worse(comparison->verdict, comparison->edges[e].verdict);
    }
    for (size_t c = 0; c < comparison->n_devices; c++)
        if (comparison->devices[c].status == ND_CAPTURE_FAILED)
            comparison->verdict = ND_VERDICT_FAILED;
}

static void part_deinit(struct nd_compared_part *part)
{
    free(part->reason);
}

static void edge_deinit(struct nd_comparison *comparison, struct nd_compared_edge *edge)
{
    for (size_t t = 1; edge->pairs != NULL && t < comparison->n_devices; t++) {
        struct nd_compared_pair *pair = &edge->pairs[t - 1];
        part_deinit(&pair->total);
        for (size_t p = 0; pair->probes != NULL && p < comparison->n_probes; p++)
            part_deinit(&pair->probes[p]);
        free(pair->probes);
    }
    for (size_t c = 0; edge->devices != NULL && c < comparison->n_devices; c++)
        free(edge->devices[c].provider);
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
    }
    free(c->edges);
    free(c->devices);
    free(c->probes);
    free(c->top1);
    free(c->classes_text);
    free(c->output_classes_text);
    free(c);
    *comparison = NULL;
}
