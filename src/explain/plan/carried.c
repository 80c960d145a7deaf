/* Tensors that a capture lacks, worked out from those that it has, so that what reads them can be examined. In
 * the way that makes most of the captured layers; whether it made these, too, is for their readers to show. */
#include <stdatomic.h>
#include <stdlib.h>

#include "arithmetic/htp/htp.h"
#include "core/error.h"
#include "core/memory.h"
#include "explain/plan/plan.h"
#include "explain/plan/replay.h"

enum {
    CARRIED_SHARE = 8,     /* of the memory, for all samples of a device: chosen */
    SAMPLES_TO_CHOOSE = 4, /* by which the way is chosen: chosen */
    LONGEST_CHAIN = 4,     /* layers one behind the other: an error is hidden by few. Chosen; seen: 3 */
    N_WAYS = ND_MAX_LAYER_ARITHMETICS + 1
};

/* What is worked out of one device. A way is one of nd_layer_arithmetics, or, behind them, exact rounding. */
struct carrying {
    struct nd_plan *plan;
    size_t device;
    unsigned char **made;   /* [n_steps] of all samples; NULL: captured, or not worked out */
    atomic_bool *is_missed; /* [n_steps] in any sample */
    size_t *n_behind;       /* [n_steps] of what is made: layers of its chain up to it */
    size_t n_fits[N_WAYS];  /* layers that come out as they were captured */
    size_t way;             /* SIZE_MAX: it is being chosen */
};

struct worker {
    struct nd_reader reader;
    struct carrying *c;
    size_t n_fits[N_WAYS];
};

static size_t exact_rounding(void)
{
    size_t n;
    nd_layer_arithmetics(&n);
    return n;
}

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
    for (size_t p = 0; p < N_WAYS; p++)
        c->n_fits[p] += w->n_fits[p];
}

static bool is_captured_so(const struct worker *w, size_t tensor, const struct nd_array *values)
{
    const struct nd_array *given = &w->reader.given[tensor];
    return given->shape.rank >= 0 && nd_array_is_same(given, values);
}

static enum nd_status make(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                           bool *is_made, struct nd_error *err)
{
    struct worker *w = context;
    const struct nd_layer_trial *trial = &w->reader.trial;
    size_t step = w->c->plan->step_of_tensor[layer->tensor];
    ND_TRY(nd_reader_try_layer(&w->reader, layer, qvalues, is_made, err));
    for (size_t p = 0; p < exact_rounding(); p++)
        w->n_fits[p] += trial->is_covered[p] && is_captured_so(w, layer->tensor, &trial->made[trial->alike[p]]);
    if (w->c->made[step] == NULL || w->c->way >= exact_rounding())
        return ND_OK;
    size_t from = trial->alternatives->fused_from[layer->tensor];
    bool is_hidden = from != SIZE_MAX && w->reader.given[from].shape.rank < 0;
    const struct nd_array *chosen = nd_layer_trial_choose(trial, layer, w->c->way, is_hidden);
    *is_made = chosen != NULL;
    if (chosen == NULL)
        atomic_store(&w->c->is_missed[step], true);
    return chosen != NULL ? nd_array_copy(chosen, qvalues, err) : ND_OK;
}

static enum nd_status found(void *context, size_t tensor, const struct nd_array *values,
                            enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    (void)err;
    struct worker *w = context;
    struct carrying *c = w->c;
    size_t step = c->plan->step_of_tensor[tensor], n;
    w->n_fits[exact_rounding()] += is_captured_so(w, tensor, values);
    if (c->made[step] == NULL || c->way == SIZE_MAX)
        return ND_OK;
    if (nd_shape_n_elems(&c->plan->shapes[step], &n, NULL) != ND_OK || n != values->n)
        atomic_store(&c->is_missed[step], true);
    else
        nd_array_store(nd_plan_tensor(c->plan, step)->dtype, values->x, n,
                       c->made[step] + w->reader.sample * c->plan->sources[c->device].sample_bytes[step]);
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

static enum nd_status run(void *state, struct nd_error *err)
{
    struct worker *w = state;
    struct nd_reader *r = &w->reader;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = make, .given = r->given, .missed = missed};
    ND_TRY(nd_reader_device(r, w->c->device, err));
    nd_layer_trial_begin(&r->trial);
    return nd_exact_graph_run(r->plan->graph, r->inputs, &options, found, w, err);
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

/* A layer that was not captured, of which all that it reads was, or is carried; or the quantisation of an input
 * of the model. */
static bool can_be_made(struct carrying *c, size_t step)
{
    const struct nd_plan *plan = c->plan;
    const struct nd_plan_source *source = &plan->sources[c->device];
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    c->n_behind[step] = 1;
    if (nd_capture_find_tensor(source->capture, plan->steps[step].name) != SIZE_MAX ||
        plan->not_covered[step] != NULL || !nd_plan_is_of_qvalues(plan, step) ||
        plan->steps[step].is_model_output)
        return false;
    if (layer == NULL || layer->n_inputs == 0)
        return nd_plan_tensor(plan, step)->is_model_input;
    for (size_t i = 0; i < layer->n_inputs; i++) {
        size_t input = plan->step_of_tensor[layer->inputs[i]];
        bool is_captured = input == SIZE_MAX || source->tensors[input] != SIZE_MAX;
        if (!is_captured && c->made[input] == NULL)
            return false;
        if (!is_captured && c->n_behind[input] >= c->n_behind[step])
            c->n_behind[step] = c->n_behind[input] + 1;
    }
    return c->n_behind[step] <= LONGEST_CHAIN;
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

/* What was missed in any sample goes, and what was made of it; all, where the run ended with an error. */
static void take_made(struct carrying *c, bool is_whole)
{
    struct nd_plan_source *source = &c->plan->sources[c->device];
    for (size_t s = 0; s < c->plan->n_steps; s++)
        if (is_whole && c->made[s] != NULL && !atomic_load(&c->is_missed[s]) && can_be_made(c, s)) {
            source->carried[s] = c->made[s];
        } else {
            free(c->made[s]);
            c->made[s] = NULL;
        }
}

static bool can_be(enum nd_expectation expectation, size_t way)
{
    return nd_expects(expectation, way) ||
           (way == exact_rounding() && (expectation == ND_EXPECT_ANY || expectation == ND_EXPECT_FLOAT));
}

static enum nd_status carry(struct carrying *c, struct nd_error *err)
{
    struct nd_plan *plan = c->plan;
    bool is_any = false;
    size_t few = plan->n_samples < SAMPLES_TO_CHOOSE ? plan->n_samples : SAMPLES_TO_CHOOSE;
    ND_TRY(make_room(c, &is_any, err));
    if (!is_any)
        return ND_OK;
    ND_TRY(replay(c, few, err));
    for (size_t p = 0; p <= exact_rounding(); p++)
        if (can_be(plan->sources[c->device].expectation, p) &&
            (c->way == SIZE_MAX || c->n_fits[p] > c->n_fits[c->way]))
            c->way = p;
    return replay(c, plan->n_samples, err);
}

static enum nd_status carry_device(struct nd_plan *plan, size_t device, struct nd_error *err)
{
    struct carrying c = {.plan = plan,
                         .device = device,
                         .made = nd_calloc(plan->n_steps, sizeof *c.made),
                         .is_missed = nd_calloc(plan->n_steps, sizeof *c.is_missed),
                         .n_behind = nd_calloc(plan->n_steps, sizeof *c.n_behind),
                         .way = SIZE_MAX};
    bool has_room = c.made != NULL && c.is_missed != NULL && c.n_behind != NULL;
    enum nd_status status = has_room ? carry(&c, err) : nd_fail_memory(err);
    if (has_room)
        take_made(&c, status == ND_OK);
    ND_FREE_ALL(c.made, c.is_missed, c.n_behind);
    return status == ND_OK ? nd_plan_match_carried(plan, device, err) : status;
}

enum nd_status nd_plan_carry(struct nd_plan *plan, struct nd_error *err)
{
    for (size_t d = 0; d < plan->n_devices && plan->n_samples > 0; d++)
        if (!plan->sources[d].is_failed)
            ND_TRY(carry_device(plan, d, err));
    return ND_OK;
}
