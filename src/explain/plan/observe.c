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
    struct nd_probe_values places[2];
    const struct nd_quant *quant;
};

static const struct nd_tensor *tensor_of(const struct nd_probe_values *place)
{
    return nd_capture_tensor(place->capture, place->tensor);
}

static bool has_values(const struct nd_probe_values *place)
{
    return nd_capture_has_outputs(place->capture, place->probe, place->tensor);
}

static struct nd_digest digest_of(const struct nd_probe_values *place, size_t sample)
{
    return nd_capture_digest(place->capture, place->probe, place->tensor, sample, 0);
}

/* Outputs of the untouched model are mostly floats where the capture has codes: each float has a quantised
 * value. */
static enum nd_status compare_qvalues(const struct pair *pair, size_t sample, bool *is_equal,
                                      struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array qvalues = {0}, floats = {0};
    ND_TRY(nd_read_tensor(&pair->places[0], sample, tensor_of(&pair->places[0])->dtype, &qvalues, err));
    ND_TRY(nd_read_tensor(&pair->places[1], sample, tensor_of(&pair->places[1])->dtype, &floats, err));
    for (size_t i = 0; i < qvalues.n; i++) {
        size_t c = nd_exact_channel(pair->quant, &qvalues.shape, i);
        double qvalue = rint(floats.x[i] / (double)pair->quant->scale[c]) + (double)pair->quant->zero_point[c];
        *is_equal = *is_equal && qvalue == qvalues.x[i];
    }
    return ND_OK;
}

/* *is_compared stays false where the two are of another kind. */
static enum nd_status compare_output(const struct pair *pair, size_t sample, bool *is_compared,
                                     bool *is_changed, struct nd_error *err)
{
    const struct nd_probe_values *places = pair->places;
    const struct nd_tensor *a = tensor_of(&places[0]), *b = tensor_of(&places[1]);
    bool is_equal = true, is_read = has_values(&places[0]) && has_values(&places[1]);
    if (!nd_shape_equal(&a->shape, &b->shape))
        return ND_OK;
    if (a->dtype == b->dtype)
        is_equal = nd_digest_equal(digest_of(&places[0], sample), digest_of(&places[1], sample));
    else if (is_read && nd_dtype_is_integer(a->dtype) && nd_dtype_is_float(b->dtype) && pair->quant->n > 0)
        ND_TRY(compare_qvalues(pair, sample, &is_equal, err));
    else
        return ND_OK;
    *is_compared = true;
    *is_changed = *is_changed || !is_equal;
    return ND_OK;
}

static enum nd_status compare_outputs(struct nd_plan *plan, size_t device, const struct nd_capture *witness,
                                      struct nd_error *err)
{
    const struct nd_plan_source *source = &plan->sources[device];
    struct nd_explained_observer *out = &plan->sources[device].observer;
    size_t probe = nd_capture_find_probe(witness, plan->probe);
    size_t n = probe != SIZE_MAX ? nd_capture_probe(witness, probe)->n_samples : 0;
    for (size_t i = 0; i < n && i < plan->n_samples; i++) {
        bool is_compared = false, is_changed = false;
        for (size_t s = 0; s < plan->n_steps && has_same_inputs(source, witness, probe, i); s++) {
            const struct pair pair = {{{source->capture, source->probe, source->tensors[s]},
                                       {witness, probe, nd_capture_find_tensor(witness, plan->steps[s].name)}},
                                      &nd_plan_tensor(plan, s)->quant};
            if (plan->steps[s].is_model_output && pair.places[0].tensor != SIZE_MAX &&
                pair.places[1].tensor != SIZE_MAX)
                ND_TRY(compare_output(&pair, i, &is_compared, &is_changed, err));
        }
        out->n_samples += is_compared;
        out->n_changed += is_changed;
    }
    return ND_OK;
}

static size_t count_of(const struct nd_capture *capture, const char *key)
{
    int64_t n = nd_capture_integer(capture, "runtime", key, 0);
    return n > 0 ? (size_t)n : 0;
}

/* What the capture itself says (docs/reference/capture-format.md). `differs` is the capture's. */
static struct nd_explained_observer observer_of(const struct nd_capture *capture)
{
    return (struct nd_explained_observer){
        .n_samples = count_of(capture, "untouched_samples"),
        .n_changed = count_of(capture, "untouched_changed"),
        .differs = (char *)(uintptr_t)nd_capture_string(capture, "runtime", "untouched_differs")};
}

enum nd_status nd_plan_observe(struct nd_plan *plan, const struct nd_capture *const *witnesses,
                               size_t n_witnesses, struct nd_error *err)
{
    for (size_t d = 0; d < plan->n_devices; d++) {
        struct nd_plan_source *source = &plan->sources[d];
        bool is_witnessed = source->is_failed;
        for (size_t k = 0; k < n_witnesses && !is_witnessed; k++)
            is_witnessed = is_of_device(witnesses[k], source->capture);
        if (!is_witnessed)
            source->observer = observer_of(source->capture);
    }
    for (size_t k = 0; k < n_witnesses; k++) {
        bool is_used = false;
        for (size_t d = 0; d < plan->n_devices; d++) {
            if (plan->sources[d].is_failed || !is_of_device(witnesses[k], plan->sources[d].capture))
                continue;
            is_used = true;
            ND_TRY(compare_outputs(plan, d, witnesses[k], err));
        }
        const char *path = nd_capture_path(witnesses[k]);
        if (!is_used)
            return nd_fail(err, ND_E_COMPARE_NOTHING, path,
                           "'%s' is of none of the devices that are explained: it says nothing of them", path);
    }
    return ND_OK;
}
