/* Whether making intermediates visible changed what the device computes: its outputs are held against those of
 * a run of the model as it is. docs/science/theory.md#observer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "replay/plan.h"

/* Which device a witness speaks for: the one of the same URI. */
static bool is_of_device(const struct nd_capture *witness, const struct nd_capture *capture)
{
    const char *a = nd_capture_string(witness, "device", "uri"),
               *b = nd_capture_string(capture, "device", "uri");
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

static bool has_same_inputs(const struct nd_plan_source *source, const struct nd_capture *witness, size_t probe,
                            size_t sample)
{
    const struct nd_capture_probe *a = nd_capture_probe(source->capture, source->probe);
    const struct nd_capture_probe *b = nd_capture_probe(witness, probe);
    bool is_same = a->n_inputs == b->n_inputs;
    for (size_t k = 0; k < a->n_inputs && is_same; k++)
        is_same = nd_digest_equal(nd_capture_input_digest(source->capture, source->probe, k, sample),
                                  nd_capture_input_digest(witness, probe, k, sample));
    return is_same;
}

/* One output of one sample, as the device with intermediates and the witness have it. */
struct pair {
    const struct nd_capture *captures[2];
    size_t probes[2], edges[2];
    const struct nd_quant *quant;
};

static const struct nd_edge *edge_of(const struct pair *pair, size_t k)
{
    return nd_capture_edge(pair->captures[k], pair->edges[k]);
}

static enum nd_status read_values(const struct pair *pair, size_t k, size_t sample, struct nd_array *out,
                                  struct nd_error *err)
{
    size_t size_bytes;
    const struct nd_edge *edge = edge_of(pair, k);
    enum nd_status status = nd_shape_size_bytes(&edge->shape, edge->dtype, &size_bytes, err);
    unsigned char *bytes = status == ND_OK ? nd_tensor_alloc(size_bytes) : NULL;
    if (status == ND_OK && bytes == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status =
            nd_capture_read_verified(pair->captures[k], pair->probes[k], pair->edges[k], sample, 1, bytes, err);
    if (status == ND_OK)
        status = nd_array_make(out, edge->dtype, &edge->shape, err);
    if (status == ND_OK)
        nd_array_load(edge->dtype, bytes, out->n, out->x);
    free(bytes);
    return status;
}

/* Outputs of the untouched model are mostly floats where the capture has codes: each float has a code. */
static enum nd_status compare_codes(const struct pair *pair, size_t sample, bool *is_equal,
                                    struct nd_error *err)
{
    struct nd_array codes = {0}, floats = {0};
    enum nd_status status = read_values(pair, 0, sample, &codes, err);
    if (status == ND_OK)
        status = read_values(pair, 1, sample, &floats, err);
    *is_equal = true;
    for (size_t i = 0; status == ND_OK && i < codes.n; i++) {
        size_t c = nd_exact_channel(pair->quant, &codes.shape, i);
        double code = rint(floats.x[i] / (double)pair->quant->scale[c]) + (double)pair->quant->zero_point[c];
        *is_equal = *is_equal && code == codes.x[i];
    }
    nd_array_deinit(&codes);
    nd_array_deinit(&floats);
    return status;
}

/* *is_compared stays false where the two are of another kind. */
static enum nd_status compare_output(const struct pair *pair, size_t sample, bool *is_compared,
                                     bool *is_changed, struct nd_error *err)
{
    const struct nd_edge *a = edge_of(pair, 0), *b = edge_of(pair, 1);
    bool is_equal = true,
         has_values = nd_capture_has_outputs(pair->captures[0], pair->probes[0], pair->edges[0]) &&
                      nd_capture_has_outputs(pair->captures[1], pair->probes[1], pair->edges[1]);
    enum nd_status status = ND_OK;
    if (!nd_shape_equal(&a->shape, &b->shape))
        return ND_OK;
    if (a->dtype == b->dtype)
        is_equal =
            nd_digest_equal(nd_capture_digest(pair->captures[0], pair->probes[0], pair->edges[0], sample, 0),
                            nd_capture_digest(pair->captures[1], pair->probes[1], pair->edges[1], sample, 0));
    else if (has_values && nd_dtype_is_integer(a->dtype) && nd_dtype_is_float(b->dtype) && pair->quant->n > 0)
        status = compare_codes(pair, sample, &is_equal, err);
    else
        return ND_OK;
    *is_compared = true;
    *is_changed = *is_changed || !is_equal;
    return status;
}

static enum nd_status compare_outputs(struct nd_plan *plan, size_t device, const struct nd_capture *witness,
                                      struct nd_error *err)
{
    const struct nd_plan_source *source = &plan->sources[device];
    struct nd_explained_observer *out = &plan->sources[device].observer;
    size_t probe = nd_capture_find_probe(witness, plan->probe);
    size_t n = probe != SIZE_MAX ? nd_capture_probe(witness, probe)->n_samples : 0;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < n && i < plan->n_samples && status == ND_OK; i++) {
        bool is_compared = false, is_changed = false;
        for (size_t s = 0; s < plan->n_steps && status == ND_OK && has_same_inputs(source, witness, probe, i);
             s++) {
            const struct pair pair = {
                .captures = {source->capture, witness},
                .probes = {source->probe, probe},
                .edges = {source->edges[s], nd_capture_find_edge(witness, plan->steps[s].name)},
                .quant = &nd_model_edge(plan->model, plan->steps[s].edge)->quant};
            if (plan->steps[s].is_model_output && pair.edges[0] != SIZE_MAX && pair.edges[1] != SIZE_MAX)
                status = compare_output(&pair, i, &is_compared, &is_changed, err);
        }
        out->n_samples += is_compared;
        out->n_changed += is_changed;
    }
    return status;
}

enum nd_status nd_plan_observe(struct nd_plan *plan, const struct nd_capture *const *witnesses,
                               size_t n_witnesses, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t k = 0; k < n_witnesses && status == ND_OK; k++) {
        bool is_used = false;
        for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++) {
            if (plan->sources[d].is_failed || !is_of_device(witnesses[k], plan->sources[d].capture))
                continue;
            is_used = true;
            status = compare_outputs(plan, d, witnesses[k], err);
        }
        const char *path = nd_capture_path(witnesses[k]);
        if (status == ND_OK && !is_used)
            return nd_fail(err, ND_E_COMPARE_NOTHING, path,
                           "'%s' is of none of the devices that are explained: it says nothing of them", path);
    }
    return status;
}
