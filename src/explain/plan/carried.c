/* Tensors that a capture lacks, worked out from those that it has, so that what reads them can be examined. By
 * the arithmetic that makes most of the captured layers; whether it made these is for their readers to show. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/htp/htp.h"
#include "core/error.h"
#include "core/memory.h"
#include "explain/plan/plan.h"
#include "explain/plan/replay.h"

enum {
    CARRIED_SHARE = 8,    /* of the memory, for all samples of a device: chosen */
    SAMPLES_TO_CHOOSE = 4 /* by which the arithmetic is chosen: chosen */
};

/* What is worked out of one device. */
struct carrying {
    struct nd_plan *plan;
    size_t device;
    unsigned char **made;                    /* [n_steps] of all samples; NULL: captured, or not worked out */
    atomic_bool *is_missed;                  /* [n_steps] in any sample */
    size_t n_fits[ND_MAX_LAYER_ARITHMETICS]; /* layers that the arithmetic makes */
    size_t arithmetic;                       /* SIZE_MAX: it is being chosen */
};

/* The arithmetic that is run, and what it fits. */
struct worker {
    struct nd_reader reader;
    struct carrying *c;
    size_t arithmetic, n_fits[ND_MAX_LAYER_ARITHMETICS];
};

static enum nd_status begin(void *state, void *context, struct nd_error *err)
{
    (void)err;
    ((struct worker *)state)->c = context;
    return ND_OK;
}

static void end(void *state, void *context)
{
    const struct worker *w = state;
    struct carrying *c = context;
    for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++)
        c->n_fits[p] += w->n_fits[p];
}

static enum nd_status make(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                           bool *is_made, struct nd_error *err)
{
    struct worker *w = context;
    struct nd_layer_memory *memory = w->reader.trial.memory;
    const struct nd_array *given = &w->reader.given[layer->tensor];
    size_t n, step = w->c->plan->step_of_tensor[layer->tensor];
    const struct nd_layer_arithmetic *arithmetic = &nd_layer_arithmetics(&n)[w->arithmetic];
    enum nd_status status = nd_layer_arithmetic_run(arithmetic, layer, memory, qvalues, is_made, err);
    if (status != ND_OK && status != ND_ERR_MEMORY) { /* refused, and so not made */
        nd_array_deinit(qvalues);
        *is_made = false;
        status = ND_OK;
    }
    bool fits = *is_made && given->n == qvalues->n &&
                (given->n == 0 || memcmp(given->x, qvalues->x, given->n * sizeof *given->x) == 0);
    w->n_fits[w->arithmetic] += fits;
    if (given->shape.rank >= 0 && !fits)
        nd_layer_memory_refute(memory, layer->tensor, arithmetic);
    if (step != SIZE_MAX && w->c->made[step] != NULL && !*is_made)
        atomic_store(&w->c->is_missed[step], true);
    return status;
}

static enum nd_status found(void *context, size_t tensor, const struct nd_array *values,
                            enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    (void)err;
    const struct worker *w = context;
    struct carrying *c = w->c;
    size_t step = c->plan->step_of_tensor[tensor], n;
    if (step == SIZE_MAX || c->made[step] == NULL || c->arithmetic == SIZE_MAX)
        return ND_OK;
    size_t sample_bytes = c->plan->sources[c->device].sample_bytes[step];
    if (nd_shape_n_elems(&c->plan->shapes[step], &n, NULL) != ND_OK || n != values->n)
        atomic_store(&c->is_missed[step], true);
    else
        nd_array_store(nd_plan_tensor(c->plan, step)->dtype, values->x, n,
                       c->made[step] + w->reader.sample * sample_bytes);
    return ND_OK;
}

static enum nd_status missed(void *context, size_t tensor, const struct nd_error *why, struct nd_error *err)
{
    (void)why;
    (void)err;
    struct carrying *c = ((struct worker *)context)->c;
    atomic_store(&c->is_missed[c->plan->step_of_tensor[tensor]], true);
    return ND_OK;
}

/* One sample, by the arithmetic that was chosen, else by all of them. */
static enum nd_status run(void *state, struct nd_error *err)
{
    struct worker *w = state;
    struct nd_reader *r = &w->reader;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = make, .given = r->given, .missed = missed};
    size_t n, chosen = w->c->arithmetic;
    nd_layer_arithmetics(&n);
    ND_TRY(nd_reader_device(r, w->c->device, err));
    for (w->arithmetic = chosen != SIZE_MAX ? chosen : 0; w->arithmetic < n; w->arithmetic++) {
        nd_layer_trial_begin(&r->trial);
        ND_TRY(nd_exact_graph_run(r->plan->graph, r->inputs, &options, found, w, err));
        if (chosen != SIZE_MAX)
            break;
    }
    return ND_OK;
}

static enum nd_status replay(struct carrying *c, size_t n_samples, struct nd_error *err)
{
    const struct nd_replay replay = {.plan = c->plan,
                                     .span = {0, n_samples},
                                     .state_bytes = sizeof(struct worker),
                                     .context = c,
                                     .begin = begin,
                                     .run = run,
                                     .end = end};
    return nd_replay_run(&replay, err);
}

/* ---- which tensors ---- */

/* A layer that was not captured, of which all that it reads was, or is carried. */
static bool can_be_made(const struct carrying *c, size_t step)
{
    const struct nd_plan *plan = c->plan;
    const struct nd_plan_source *source = &plan->sources[c->device];
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    if (layer == NULL || layer->n_inputs == 0 || source->tensors[step] != SIZE_MAX ||
        plan->not_covered[step] != NULL || !nd_plan_is_of_qvalues(plan, step) ||
        plan->steps[step].is_model_output)
        return false;
    for (size_t i = 0; i < layer->n_inputs; i++) {
        size_t input = plan->step_of_tensor[layer->inputs[i]];
        if (input != SIZE_MAX && source->tensors[input] == SIZE_MAX && c->made[input] == NULL)
            return false;
    }
    return true;
}

static enum nd_status make_room(struct carrying *c, bool *is_any, struct nd_error *err)
{
    struct nd_plan *plan = c->plan;
    size_t left = nd_plan_share(plan, CARRIED_SHARE), bytes;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t *sample_bytes = &plan->sources[c->device].sample_bytes[s];
        if (!can_be_made(c, s))
            continue;
        ND_TRY(nd_shape_size_bytes(&plan->shapes[s], nd_plan_tensor(plan, s)->dtype, sample_bytes, err));
        if (!nd_size_mul(*sample_bytes, plan->n_samples, &bytes) || bytes > left)
            continue;
        left -= bytes;
        c->made[s] = nd_tensor_room(bytes);
        ND_TRY_MEMORY(c->made[s] != NULL, err);
        *is_any = true;
    }
    return ND_OK;
}

/* What was missed in any sample goes, and what was made of it. */
static void take_made(struct carrying *c)
{
    struct nd_plan_source *source = &c->plan->sources[c->device];
    for (size_t s = 0; s < c->plan->n_steps; s++)
        if (c->made[s] != NULL && !atomic_load(&c->is_missed[s]) && can_be_made(c, s)) {
            source->carried[s] = c->made[s];
        } else {
            free(c->made[s]);
            c->made[s] = NULL;
        }
}

static enum nd_status carry(struct carrying *c, struct nd_error *err)
{
    struct nd_plan *plan = c->plan;
    bool is_any = false;
    size_t n, few = plan->n_samples < SAMPLES_TO_CHOOSE ? plan->n_samples : SAMPLES_TO_CHOOSE, best = 0;
    ND_TRY(make_room(c, &is_any, err));
    if (!is_any)
        return ND_OK;
    ND_TRY(replay(c, few, err));
    nd_layer_arithmetics(&n);
    for (size_t p = 1; p < n; p++)
        best = c->n_fits[p] > c->n_fits[best] ? p : best;
    for (size_t s = 0; s < plan->n_steps; s++) /* what another arithmetic missed */
        atomic_store(&c->is_missed[s], c->n_fits[best] == 0);
    c->arithmetic = best;
    return c->n_fits[best] > 0 ? replay(c, plan->n_samples, err) : ND_OK;
}

static enum nd_status carry_device(struct nd_plan *plan, size_t device, struct nd_error *err)
{
    struct carrying c = {.plan = plan,
                         .device = device,
                         .made = nd_calloc(plan->n_steps, sizeof *c.made),
                         .is_missed = nd_calloc(plan->n_steps, sizeof *c.is_missed),
                         .arithmetic = SIZE_MAX};
    bool has_room = c.made != NULL && c.is_missed != NULL;
    enum nd_status status = has_room ? carry(&c, err) : nd_fail_memory(err);
    for (size_t s = 0; has_room && s < plan->n_steps && status != ND_OK; s++)
        atomic_store(&c.is_missed[s], true);
    if (has_room)
        take_made(&c);
    ND_FREE_ALL(c.made, c.is_missed);
    return status == ND_OK ? nd_plan_match_carried(plan, device, err) : status;
}

enum nd_status nd_plan_carry(struct nd_plan *plan, struct nd_error *err)
{
    for (size_t d = 0; d < plan->n_devices && plan->n_samples > 0; d++)
        if (!plan->sources[d].is_failed)
            ND_TRY(carry_device(plan, d, err));
    return ND_OK;
}
