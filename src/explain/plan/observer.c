/* Whether making intermediates visible changed what the device computes: its outputs are held against those of
 * a run of the model as it is. docs/science/theory.md#observer. */
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/plan/plan.h"
#include "explain/plan/read_tensor.h"

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
    struct nd_capture_tensor places[2];
    const struct nd_quant *quant;
};

static const struct nd_edge *edge_of(const struct nd_capture_tensor *place)
{
    return nd_capture_edge(place->capture, place->edge);
}

static bool has_values(const struct nd_capture_tensor *place)
{
    return nd_capture_has_outputs(place->capture, place->probe, place->edge);
}

static struct nd_digest digest_of(const struct nd_capture_tensor *place, size_t sample)
{
    return nd_capture_digest(place->capture, place->probe, place->edge, sample, 0);
}

/* Outputs of the untouched model are mostly floats where the capture has codes: each float has a code. */
static enum nd_status compare_codes(const struct pair *pair, size_t sample, bool *is_equal,
                                    struct nd_error *err)
{
    struct nd_array codes = {0}, floats = {0};
    enum nd_status status =
        nd_read_tensor(&pair->places[0], sample, edge_of(&pair->places[0])->dtype, &codes, err);
    if (status == ND_OK)
        status = nd_read_tensor(&pair->places[1], sample, edge_of(&pair->places[1])->dtype, &floats, err);
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
    const struct nd_capture_tensor *places = pair->places;
    const struct nd_edge *a = edge_of(&places[0]), *b = edge_of(&places[1]);
    bool is_equal = true, is_read = has_values(&places[0]) && has_values(&places[1]);
    enum nd_status status = ND_OK;
    if (!nd_shape_equal(&a->shape, &b->shape))
        return ND_OK;
    if (a->dtype == b->dtype)
        is_equal = nd_digest_equal(digest_of(&places[0], sample), digest_of(&places[1], sample));
    else if (is_read && nd_dtype_is_integer(a->dtype) && nd_dtype_is_float(b->dtype) && pair->quant->n > 0)
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
            const struct pair pair = {{{source->capture, source->probe, source->edges[s]},
                                       {witness, probe, nd_capture_find_edge(witness, plan->steps[s].name)}},
                                      &nd_plan_edge(plan, s)->quant};
            if (plan->steps[s].is_model_output && pair.places[0].edge != SIZE_MAX &&
                pair.places[1].edge != SIZE_MAX)
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
