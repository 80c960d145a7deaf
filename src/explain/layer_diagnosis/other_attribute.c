/* Another attribute of a layer's operator: each that arithmetic/variants/attributes.h lists is tried, the layer
 * being worked out anew from the device's own inputs. docs/science/verdicts.md#float-layers. */

#include <math.h>
#include <stdio.h>

#include "core/memory.h"
#include "explain/floats/floats.h"
#include "explain/layer_diagnosis/layer_diagnosis.h"
#include "model/graph/onnx.h"

/* Values that are off and that an attribute must predict: as many as a fault (diagnosis/look.h). */
enum { MIN_FAR = 12 };

struct search {
    struct nd_layer_diagnosis *diagnosis;
    struct nd_ways ways;
    double *made, allowance;
};

static enum nd_status go_to(void *context, size_t sample, struct nd_error *err)
{
    struct search *s = context;
    size_t block = s->diagnosis->job->plan->block;
    ND_TRY(nd_reader_load(s->diagnosis->reader, sample - sample % block, s->ways.n_samples, err));
    return nd_layer_diagnosis_load_sample(s->diagnosis, sample, err);
}

static enum nd_status run(struct search *s, const struct nd_float_way *way, size_t fusing, double *to,
                          struct nd_error *err)
{
    s->diagnosis->attribute.proto = way->proto;
    enum nd_status status = nd_layer_diagnosis_run(s->diagnosis, fusing, to, err);
    s->diagnosis->attribute.proto = NULL;
    return status;
}

/* Unrounded, so that a number can be solved for. What cannot be worked out is left out of the run. */
static bool make(void *context, const struct nd_float_way *way, struct nd_array *out)
{
    struct search *s = context;
    const struct nd_shape shape = {.rank = 1, .dims = {(int64_t)s->ways.n}};
    double *values = s->made + s->diagnosis->slot * s->ways.n;
    struct nd_error ignored = {0};
    for (size_t k = 0; k < s->ways.n; k++)
        values[k] = NAN;
    if (way->proto == NULL || run(s, way, s->diagnosis->tensor, s->made, &ignored) != ND_OK ||
        isnan(values[0]) || nd_array_make(out, ND_DTYPE_F64, &shape, &ignored) != ND_OK)
        return false;
    memcpy(out->x, values, s->ways.n * sizeof *values);
    return true;
}

static bool bound_made(void *context, const struct nd_float_way *way, const struct nd_array *made,
                       double *bound)
{
    (void)way;
    struct search *s = context;
    for (size_t k = 0; k < made->n; k++)
        bound[k] = 0.5 + s->allowance; /* it was not rounded */
    return true;
}

static enum nd_status keep(void *context, const struct nd_float_way *way, struct nd_error *err)
{
    struct search *s = context;
    double **qvalues = &s->diagnosis->attribute.qvalues;
    if (*qvalues == NULL)
        *qvalues = nd_calloc(s->ways.n_samples * s->ways.n, sizeof **qvalues);
    ND_TRY_MEMORY(*qvalues != NULL, err);
    for (size_t i = 0; i < s->ways.n_samples; i++) {
        ND_TRY(go_to(s, i, err));
        ND_TRY(run(s, way, SIZE_MAX, *qvalues, err));
    }
    return ND_OK;
}

static enum nd_status search(struct search *s, struct nd_error *err)
{
    struct nd_layer_diagnosis *diagnosis = s->diagnosis;
    struct nd_ways *ways = &s->ways;
    size_t n = ways->n_samples * ways->n;
    memcpy(ways->expected, diagnosis->expected, n * sizeof *ways->expected);
    memcpy(ways->captured, diagnosis->qvalues, n * sizeof *ways->captured);
    for (size_t i = 0; i < n; i++)
        ways->bound[i] = s->allowance;
    nd_ways_count(ways);
    for (size_t k = 0; ways->n_far >= MIN_FAR && !ways->out->is_found; k++) {
        diagnosis->attribute.node =
            nd_exact_layer_node(diagnosis->job->plan->graph, diagnosis->tensor, k, &ways->node);
        if (ways->node == NULL)
            break;
        ways->n_inputs = ((const Onnx__NodeProto *)ways->node)->n_input;
        ND_TRY(nd_try_attributes(ways, err));
        ND_TRY(nd_try_two_attributes(ways, err));
    }
    return ND_OK;
}

enum nd_status nd_layer_diagnosis_find_attribute(struct nd_layer_diagnosis *diagnosis, double allowance,
                                                 struct nd_error *err)
{
    struct nd_float_fault found = {0};
    struct search s = {.diagnosis = diagnosis,
                       .allowance = allowance,
                       .ways = {.n_samples = diagnosis->n_samples,
                                .n = diagnosis->n,
                                .min_far = MIN_FAR,
                                .is_coarse = true,
                                .leaves_approximations = true,
                                .context = &s,
                                .go_to = go_to,
                                .make = make,
                                .bound_made = bound_made,
                                .keep = keep,
                                .out = &found}};
    ND_TRY(nd_ways_make_room(&s.ways, err));
    s.made = nd_calloc(s.ways.n_samples * s.ways.n, sizeof *s.made);
    enum nd_status status = s.made != NULL ? search(&s, err) : nd_fail_memory(err);
    snprintf(diagnosis->attribute.text, sizeof diagnosis->attribute.text, "%s", found.finding.text);
    ND_FREE_ALL(s.ways.expected, s.made);
    return status;
}
