/* Each layer of the written model, as it was read again: what the arithmetics make of all that it can read. */
#include <stdlib.h>
#include <string.h>

#include "improve/align/align_stages.h"
#include "improve/align/joined.h"
#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/exact/linear/linear_unit.h"
#include "explain/plan/reader.h"

static const char no_arithmetic[] = "its arithmetic is not known";
static const char near_arithmetic[] = "its arithmetic is known only approximately";
static const char no_operand[] = "it is not known how the device reads its second operand";
static const char moved_operand[] = "the device rescales its second operand, which depends on the values";
static const char merged_layer[] = "the devices merge it with the ConvTranspose before it";
static const char merged_swish[] =
    "newer devices make it with the product before it in one operation, which is not known";
static const char has_counterexample[] = "for some sums the arithmetics give different values";
static const char other_arithmetic[] = "the arithmetics differ for this operator";
static const char maker_differs[] = "what makes an input makes it with this layer's scale, and can differ then";
static const char maker_unknown[] =
    "what makes an input makes it with this layer's scale, of which it is not proven";
static const char not_reached[] = "npudiff cannot evaluate an operator before it";

/* What the makers of its inputs make of a layer, with its encoding. */
struct share {
    enum nd_align_state state; /* the worst of all */
    size_t n_channels;
    double n_sums;
};

struct prover {
    struct nd_align_job *job;
    struct nd_unit_memory *memory;
    struct nd_alternatives alternatives;
    struct share *shares; /* [n_edges] of the edge that is made with another */
};

static double doubt_of(const struct prover *p, const struct nd_exact_unit *unit)
{
    double doubt = 0;
    for (size_t i = 0; i < p->job->n_programs; i++) {
        double d = nd_unit_program_doubt(p->job->programs[i], unit, p->memory);
        doubt = d > doubt ? d : doubt;
    }
    return doubt;
}

static enum nd_status prove_product(const struct prover *p, const struct nd_exact_unit *unit,
                                    struct nd_alignment_layer *layer, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    layer->state = ND_ALIGN_PROVEN;
    layer->reason = NULL;
    for (size_t i = 1; i < p->job->n_programs && status == ND_OK && layer->state == ND_ALIGN_PROVEN; i++) {
        struct nd_unit_proof proof;
        status = nd_unit_product_prove(p->job->programs[0], p->job->programs[i], unit, &proof, NULL, err);
        if (status != ND_OK)
            return status;
        layer->n_channels = proof.n_channels;
        layer->n_sums = proof.n_sums;
        if (proof.end == ND_UNIT_PROOF_EQUAL)
            continue;
        layer->state = proof.end == ND_UNIT_PROOF_NONE ? ND_ALIGN_UNKNOWN : ND_ALIGN_DIFFERS;
        layer->reason = proof.end == ND_UNIT_PROOF_NONE ? proof.reason : has_counterexample;
        layer->n_unequal = proof.n_unequal;
        layer->channel = proof.channel;
        layer->against = i;
        layer->sum = proof.sum;
        layer->values[0] = proof.codes[0];
        layer->values[1] = proof.codes[1];
    }
    return status;
}

/* Of every other operator the programs are either one, or it is not known for which inputs they differ. */
static enum nd_status prove_other(const struct prover *p, const struct nd_exact_unit *unit,
                                  struct nd_alignment_layer *layer, struct nd_error *err)
{
    layer->state = ND_ALIGN_PROVEN;
    layer->reason = NULL;
    for (size_t i = 0; i < p->job->n_programs; i++) {
        struct nd_array codes = {0};
        bool is_covered = false;
        enum nd_status status = nd_unit_program_run(p->job->programs[i], unit, NULL, &codes, &is_covered, err);
        nd_array_deinit(&codes);
        if (status != ND_OK)
            return status;
        bool agrees = nd_unit_programs_agree_alone(p->job->programs[0], p->job->programs[i], unit);
        if (is_covered && agrees)
            continue;
        layer->state = ND_ALIGN_UNKNOWN;
        layer->reason = is_covered ? other_arithmetic : no_arithmetic;
        return ND_OK;
    }
    return ND_OK;
}

/* The programs do not know it here: they are run without what was made before. */
static bool is_swish_of_product(const struct nd_model *model, const struct nd_model_unit *unit)
{
    const struct nd_model_unit *maker =
        unit->n_inputs == 1 ? nd_model_unit_of_edge(model, unit->inputs[0]) : NULL;
    return maker != NULL && strcmp(unit->op_types, "HardSwish") == 0 &&
           (strcmp(maker->op_types, "Gemm") == 0 || strcmp(maker->op_types, "MatMul") == 0);
}

/* A layer by itself. */
static enum nd_status prove_alone(const struct prover *p, const struct nd_exact_unit *unit,
                                  struct nd_alignment_layer *layer, struct nd_error *err)
{
    const struct nd_model *model = p->job->aligned;
    double doubt = doubt_of(p, unit);
    layer->state = ND_ALIGN_UNKNOWN;
    layer->reason = doubt >= 1 ? no_operand : doubt > 0 ? near_arithmetic : NULL;
    if (layer->reason == NULL && nd_quantisers_are_merged(model, nd_model_unit_of_edge(model, unit->edge)))
        layer->reason = merged_layer;
    if (layer->reason == NULL && is_swish_of_product(model, nd_model_unit_of_edge(model, unit->edge)))
        layer->reason = merged_swish;
    if (layer->reason == NULL && nd_unit_rescales_operand(unit, p->memory))
        layer->reason = moved_operand;
    if (layer->reason != NULL)
        return ND_OK;
    return nd_unit_is_product(unit) ? prove_product(p, unit, layer, err) : prove_other(p, unit, layer, err);
}

/* The layers after it that a device makes together with this one, with their own encoding. */
static enum nd_status prove_shares(const struct prover *p, const struct nd_exact_unit *unit,
                                   struct nd_error *err)
{
    const struct nd_alternatives *a = &p->alternatives;
    enum nd_status status = ND_OK;
    for (size_t i = a->first_part[unit->edge]; i != SIZE_MAX && status == ND_OK; i = a->parts[i].next) {
        struct nd_alignment_layer made = {0};
        struct nd_linear_call call;
        size_t to = a->parts[i].to;
        if (nd_unit_is_table(p->job->aligned, nd_model_unit_of_edge(p->job->aligned, to)))
            continue; /* it reads what is split, which is not made for it */
        const struct nd_exact_unit other =
            nd_align_unit_with_output(unit, &nd_model_edge(p->job->aligned, to)->quant, &call);
        struct share *share = &p->shares[to];
        status = prove_alone(p, &other, &made, err);
        share->n_channels += made.n_channels;
        share->n_sums += made.n_sums;
        if (share->state != ND_ALIGN_DIFFERS && made.state != ND_ALIGN_PROVEN)
            share->state = made.state;
    }
    return status;
}

static enum nd_status prove_layer(const struct prover *p, const struct nd_exact_unit *unit,
                                  struct nd_alignment_layer *layer, struct nd_error *err)
{
    const struct share *share = &p->shares[unit->edge];
    bool is_joined = p->alternatives.is_joined[unit->edge];
    if (share->state == ND_ALIGN_PROVEN && !is_joined)
        return prove_alone(p, unit, layer, err);
    layer->state = share->state;
    layer->reason = share->state == ND_ALIGN_PROVEN    ? NULL
                    : share->state == ND_ALIGN_DIFFERS ? maker_differs
                                                       : maker_unknown;
    layer->n_channels = share->n_channels;
    layer->n_sums = share->n_sums;
    if (layer->reason != NULL)
        return ND_OK;
    /* Of a Concat whose inputs have other encodings no program says what it is. */
    enum nd_status status =
        nd_align_prove_bringing(&p->alternatives, p->job->aligned, unit, &layer->reason, err);
    layer->state = layer->reason == NULL ? ND_ALIGN_PROVEN : ND_ALIGN_UNKNOWN;
    return status;
}

/* A nd_exact_make: the codes are those of the first program. */
static enum nd_status prove_unit(void *context, const struct nd_exact_unit *unit, struct nd_array *codes,
                                 bool *is_made, struct nd_error *err)
{
    struct prover *p = context;
    size_t index = p->job->layer_of_edge[unit->edge];
    struct nd_alignment_layer *layer = index != SIZE_MAX ? &p->job->result->layers[index] : NULL;
    enum nd_status status = prove_shares(p, unit, err);
    if (status == ND_OK && layer != NULL)
        status = prove_layer(p, unit, layer, err);
    if (status == ND_OK)
        status = nd_unit_program_run(p->job->programs[0], unit, p->memory, codes, is_made, err);
    if (status == ND_OK && layer != NULL && !*is_made && !p->alternatives.is_joined[unit->edge]) {
        layer->state = ND_ALIGN_UNKNOWN;
        layer->reason = no_arithmetic;
    }
    return status;
}

enum nd_status nd_align_prove(struct nd_align_job *job, struct nd_error *err)
{
    struct prover p = {.job = job};
    struct nd_exact_graph *graph = NULL;
    struct nd_array *inputs = NULL;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = prove_unit, .missed = nd_exact_let_go};
    for (size_t i = 0; i < job->result->n_layers; i++) {
        job->result->layers[i].state = ND_ALIGN_UNKNOWN;
        job->result->layers[i].reason = not_reached;
    }
    p.shares = nd_calloc(nd_model_n_edges(job->aligned), sizeof *p.shares);
    enum nd_status status =
        p.shares != NULL ? nd_inputs_create(job->aligned, &inputs, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_alternatives_init(&p.alternatives, job->aligned, err);
    if (status == ND_OK)
        status = nd_unit_memory_create(nd_model_n_edges(job->aligned), &p.memory, err);
    if (status == ND_OK)
        status = nd_exact_graph_create(job->aligned, &graph, err);
    if (status == ND_OK)
        status = nd_exact_graph_run(graph, inputs, &options, NULL, &p, err);
    nd_exact_graph_destroy(&graph);
    nd_unit_memory_destroy(&p.memory);
    nd_alternatives_deinit(&p.alternatives);
    free(p.shares);
    nd_inputs_destroy(job->aligned, &inputs);
    return status;
}
