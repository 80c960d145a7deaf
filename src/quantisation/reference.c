/* The quantised reference of a sample, and the values of a step before they were rounded. */
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "quantisation/study.h"
#include "explain/plan/reader.h"

/* ---- the whole ---- */

/* Rounds as the reference does, and keeps what was rounded. */
static enum nd_status round_reference(void *context, const struct nd_exact_values *values,
                                      struct nd_array *codes, struct nd_error *err)
{
    struct nd_loss_run *run = context;
    size_t step = run->study->plan->step_of_edge[values->edge];
    nd_round_half_even(values, codes);
    if (step == SIZE_MAX || run->sums == NULL || !run->study->holds_before || !nd_is_matched(run->study, step))
        return ND_OK;
    enum nd_status status = nd_loss_keep(codes, &run->before[step], err);
    if (status == ND_OK)
        run->before[step].dtype = ND_DTYPE_F32;
    if (status == ND_OK)
        nd_reals_before(values, run->before[step].x);
    return status;
}

static enum nd_status found_reference(void *context, size_t edge, const struct nd_array *values,
                                      enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    struct nd_loss_run *run = context;
    size_t step = run->study->plan->step_of_edge[edge];
    return nd_pack(values, &run->reference[step], err);
}

enum nd_status nd_loss_run_reference(struct nd_loss_run *run, struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_plan *plan = study->plan;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_reference,
                                             .takes_quick = true,
                                             .missed = nd_exact_let_go};
    bool is_kept = study->references != NULL;
    run->reference = is_kept ? study->references + run->sample * plan->n_steps : run->own_reference;
    if (is_kept && study->has_reference[run->sample])
        return ND_OK;
    for (size_t s = 0; s < plan->n_steps; s++) {
        run->reference[s].husk.shape.rank = -1;
        nd_loss_forget(&run->before[s]);
    }
    enum nd_status status = nd_exact_graph_run(plan->graph, nd_study_inputs(study, run->sample), &options,
                                               found_reference, run, err);
    if (is_kept && status == ND_OK)
        study->has_reference[run->sample] = true;
    return status;
}

/* ---- a step before it was rounded ---- */

static enum nd_status round_alone(void *context, const struct nd_exact_values *values, struct nd_array *codes,
                                  struct nd_error *err)
{
    (void)err;
    struct nd_loss_run *run = context;
    size_t step = run->study->plan->step_of_edge[values->edge];
    nd_round_half_even(values, codes);
    run->before[step] = *codes;
    run->before[step].dtype = ND_DTYPE_F32;
    run->before[step].x = run->before_room;
    nd_reals_before(values, run->before_room);
    return ND_OK;
}

static enum nd_status found_alone(void *context, size_t edge, const struct nd_array *values,
                                  enum nd_exact_way way, struct nd_error *err)
{
    (void)context;
    (void)edge;
    (void)values;
    (void)way;
    (void)err;
    return ND_OK;
}

static void give_reference(void *context, size_t edge, double *out)
{
    const struct nd_loss_run *run = context;
    nd_unpack(&run->reference[run->study->plan->step_of_edge[edge]], out);
}

enum nd_status nd_loss_find_before(struct nd_loss_run *run, size_t step, struct nd_error *err)
{
    const struct nd_study *study = run->study;
    const struct nd_plan *plan = study->plan;
    if (study->holds_before)
        return ND_OK;
    for (size_t e = 0; e < nd_model_n_edges(plan->model); e++) {
        run->alone_given[e] = nd_no_array();
        run->is_alone_given[e] = false;
        run->is_alone[e] = e == plan->steps[step].edge;
    }
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t edge = plan->steps[s].edge;
        if (s == step || run->reference[s].husk.shape.rank < 0)
            continue;
        run->alone_given[edge] = run->reference[s].husk;
        run->is_alone_given[edge] = true;
    }
    if (nd_rerun_alone(&run->alone, plan->model, run->is_alone, run->is_alone_given, err) != ND_OK)
        return ND_ERR_MEMORY;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_alone,
                                             .takes_quick = true,
                                             .given = run->alone_given,
                                             .give = give_reference,
                                             .is_skipped = run->alone.is_skipped,
                                             .is_ignored = run->alone.is_ignored,
                                             .missed = nd_exact_let_go};
    return nd_exact_graph_run(plan->graph, nd_study_inputs(study, run->sample), &options, found_alone, run,
                              err);
}

void nd_loss_forget_before(struct nd_loss_run *run, size_t step)
{
    if (!run->study->holds_before)
        run->before[step] = nd_no_array();
}

/* ---- dequantised ---- */

void nd_loss_unpack(const struct nd_loss_run *run, size_t step, double *out)
{
    const struct nd_array *husk = &run->reference[step].husk;
    const struct nd_quant *quant = nd_loss_quant(run, step);
    nd_unpack(&run->reference[step], out);
    size_t inner = nd_exact_inner(quant, &husk->shape, husk->n), channel = 0;
    for (size_t start = 0; start < husk->n && quant->n > 0; start += inner) {
        double zero = (double)quant->zero_point[channel], scale = (double)quant->scale[channel];
        for (size_t i = start; i < start + inner; i++)
            out[i] = (out[i] - zero) * scale;
        channel = (channel + 1) % quant->n;
    }
}

/* Operators make integers of integers: what is dequantised is none. */
enum nd_dtype nd_loss_real_dtype(const struct nd_loss_run *run, size_t step)
{
    return nd_loss_quant(run, step)->n > 0 ? ND_DTYPE_F32 : run->reference[step].husk.dtype;
}

const struct nd_array *nd_loss_real(struct nd_loss_run *run, size_t step)
{
    double *x = run->real.x;
    run->real = run->reference[step].husk;
    run->real.x = x;
    run->real.dtype = nd_loss_real_dtype(run, step);
    nd_loss_unpack(run, step, x);
    return &run->real;
}
