/* The list of metrics, and what is done with all of them. A metric is an object, a line here, a state in
 * states.h and a section of docs/reference/metrics.md. */
#include <assert.h>
#include <math.h>

#include "compare/metrics/states.h"
#include "core/memory.h"

static const struct nd_metric *const metrics[] = {
    &nd_metric_bits,         &nd_metric_steps,       &nd_metric_ulp,    &nd_metric_side_ref,
    &nd_metric_side_test,    &nd_metric_error,       &nd_metric_signal, &nd_metric_account,
    &nd_metric_numbers,      &nd_metric_structure,   &nd_metric_worst,  &nd_metric_tolerance,
    &nd_metric_distribution, &nd_metric_dequantised,
};
enum { N_METRICS = sizeof metrics / sizeof metrics[0] };

static void *state_of(struct nd_pair_state *state, size_t m)
{
    return (char *)state + metrics[m]->offset;
}

static const void *const_state_of(const struct nd_pair_state *state, size_t m)
{
    return (const char *)state + metrics[m]->offset;
}

struct nd_pair_state *nd_pair_state_create(const struct nd_pair_context *context, struct nd_error *err)
{
    struct nd_pair_state *state = nd_calloc(1, sizeof *state);
    if (state == NULL) {
        nd_fail_memory(err);
        return NULL;
    }
    enum nd_status status = ND_OK;
    for (size_t m = 0; m < N_METRICS && status == ND_OK; m++) {
        nd_fields_init(metrics[m]->fields, metrics[m]->n_fields, state_of(state, m));
        if (metrics[m]->init != NULL)
            status = metrics[m]->init(state, context, err);
    }
    if (status != ND_OK)
        nd_pair_state_destroy(&state);
    return state;
}

void nd_pair_state_destroy(struct nd_pair_state **state)
{
    for (size_t m = 0; *state != NULL && m < N_METRICS; m++)
        nd_fields_deinit(metrics[m]->fields, metrics[m]->n_fields, state_of(*state, m));
    if (*state != NULL)
        free((*state)->joint);
    free(*state);
    *state = NULL;
}

enum nd_status nd_pair_state_merge(struct nd_pair_state *state, const struct nd_pair_state *other,
                                   struct nd_error *err)
{
    assert(state->joint == NULL && other->joint == NULL);
    for (size_t m = 0; m < N_METRICS; m++)
        ND_TRY(nd_fields_merge(metrics[m]->fields, metrics[m]->n_fields, state_of(state, m),
                               const_state_of(other, m), err));
    return ND_OK;
}

void nd_pair_state_update(struct nd_pair_state *state, const struct nd_pair_context *context,
                          const struct nd_pair_block *block)
{
    for (size_t m = 0; m < N_METRICS; m++)
        if (metrics[m]->update != NULL)
            metrics[m]->update(state, context, block);
}

static void add_cell(struct nd_pair_state *state, const struct nd_pair_context *context,
                     const struct nd_cell *cell)
{
    for (size_t m = 0; m < N_METRICS; m++)
        if (metrics[m]->add_cell != NULL)
            metrics[m]->add_cell(state, context, cell);
}

char *nd_pair_state_format(const struct nd_pair_state *state)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    for (size_t m = 0; m < N_METRICS; m++) {
        nd_strbuf_printf(&text, "%s%s", m > 0 ? " " : "", metrics[m]->name);
        nd_fields_format(metrics[m]->fields, metrics[m]->n_fields, const_state_of(state, m), &text);
    }
    return nd_strbuf_take(&text);
}

enum nd_status nd_pair_state_parse(struct nd_pair_state *state, const char *text, struct nd_error *err)
{
    for (size_t m = 0; m < N_METRICS; m++) {
        size_t len = strlen(metrics[m]->name);
        text += m > 0 && *text == ' ';
        bool is_named = strncmp(text, metrics[m]->name, len) == 0;
        text += is_named ? len : 0;
        if (!is_named || !nd_fields_parse(metrics[m]->fields, metrics[m]->n_fields, state_of(state, m), &text))
            return nd_fail(err, ND_E_COMPARE_PART, NULL, "the state of '%s' is malformed near '%.20s'",
                           metrics[m]->name, text);
    }
    return *text == '\0' ? ND_OK : nd_fail(err, ND_E_COMPARE_PART, NULL, "a state goes on after its end");
}

enum nd_status nd_pair_state_finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                    struct nd_difference *out, struct nd_error *err)
{
    const struct nd_bits_state *bits = &state->bits;
    struct nd_difference made = {
        .n_samples = bits->n_samples,
        .n_samples_differing = bits->n_samples_differing,
        .n_elems = bits->n_elems,
        .has_values = bits->n_samples_unread == 0,
        .is_integer = !context->ref.is_float && !context->is_mixed,
        .is_mixed = context->is_mixed,
        .has_first = bits->first.is_set,
        .first = {.probe = (size_t)bits->first.probe,
                  .sample = (size_t)bits->first.sample,
                  .has_index = bits->first.has_index,
                  .index = (size_t)bits->first.index},
    };
    if (made.first.has_index && context->ref.n_elems > 0)
        nd_layout_coordinates(&context->ref.shape, made.first.index, made.first.coordinates);
    enum nd_status status = ND_OK;
    for (size_t m = 0; m < N_METRICS && status == ND_OK && made.has_values; m++)
        if (metrics[m]->finish != NULL)
            status = metrics[m]->finish(state, context, &made, err);
    if (status == ND_OK)
        *out = made;
    else
        free(made.worst);
    return status;
}

/* Counters have 32 bits. */
static const uint64_t max_elems = UINT64_C(1) << 31;

bool nd_joint_fits(const struct nd_pair_context *context)
{
    const struct nd_layout *layout = &context->ref;
    return !context->is_mixed && !layout->is_real && context->ulp_in == NULL &&
           (layout->kind == ND_ELEM_U8 || layout->kind == ND_ELEM_I8) && fabs(layout->zero) <= 0x1p10;
}

/* The ratios are those of nd_kernels.errors. */
static struct nd_joint *create(const struct nd_pair_context *context)
{
    struct nd_joint *joint = nd_calloc(1, sizeof *joint);
    unsigned char qvalues[ND_JOINT_QVALUES];
    if (joint == NULL)
        return NULL;
    for (size_t i = 0; i < ND_JOINT_QVALUES; i++)
        qvalues[i] = (unsigned char)i;
    nd_layout_load(&context->ref, context->kernels, qvalues, 0, ND_JOINT_QVALUES, joint->x);
    for (size_t r = 0; r < ND_JOINT_QVALUES; r++)
        for (size_t t = 0; t < ND_JOINT_QVALUES && joint->x[r] != 0; t++)
            joint->cells[r * ND_JOINT_QVALUES + t].ratio = fabs(joint->x[t] - joint->x[r]) / fabs(joint->x[r]);
    return joint;
}

struct nd_joint *nd_joint_of(struct nd_pair_state *state, const struct nd_pair_context *context)
{
    if (!context->may_join)
        return NULL;
    if (state->joint != NULL && state->joint->n_elems > max_elems)
        nd_joint_settle(state, context);
    if (state->joint == NULL)
        state->joint = create(context);
    return state->joint;
}

void nd_joint_settle(struct nd_pair_state *state, const struct nd_pair_context *context)
{
    ND_FREED struct nd_joint *joint = state->joint;
    if (joint == NULL)
        return;
    state->joint = NULL;
    for (size_t i = 0; i < ND_JOINT_QVALUES * ND_JOINT_QVALUES; i++) {
        const uint32_t *n = joint->cells[i].n;
        const struct nd_cell cell = {joint->x[i / ND_JOINT_QVALUES], joint->x[i % ND_JOINT_QVALUES],
                                     (uint64_t)n[0] + n[1]};
        if (cell.n > 0 && cell.ref != cell.test)
            add_cell(state, context, &cell);
    }
}

struct buffers {
    double ref[ND_BLOCK], test[ND_BLOCK];
    struct nd_side_state ref_side, test_side;
    struct nd_block_scratch scratch;
};

static struct nd_side_view load_side(const struct nd_layout *layout, const struct nd_kernels *kernels,
                                     const unsigned char *bytes, const struct nd_pair_block *block, double *x,
                                     struct nd_side_block *side_block, struct nd_side_state *side)
{
    bool is_loaded;
    nd_side_block_make(layout, kernels, bytes, block->first, block->n, x, &is_loaded, side_block);
    if (!is_loaded && block->joint != NULL)
        x = NULL;
    else if (!is_loaded)
        nd_layout_load(layout, kernels, bytes, block->first, block->n, x);
    nd_side_add_block(side, side_block, block->n);
    return (struct nd_side_view){bytes, x, side_block};
}

static bool is_stuck(const struct nd_side_state *side)
{
    return side->n_nan + side->n_inf == 0 && side->n_elems > 1 && side->min == side->max;
}

enum nd_status nd_sample_compare(struct nd_pair_state *state, const struct nd_pair_context *context,
                                 bool differs, const unsigned char *ref, const unsigned char *test,
                                 size_t probe, size_t sample, struct nd_error *err)
{
    size_t n_elems = context->ref.n_elems;
    /* Of mixed types only the values tell whether the sample differs. */
    nd_bits_add_sample(&state->bits, n_elems, differs && !context->is_mixed, true, probe, sample);
    if (!differs)
        return ND_OK;
    ND_FREED struct buffers *b = nd_calloc(1, sizeof *b);
    ND_TRY_MEMORY(b != NULL, err);
    bool is_found = false;
    nd_side_init(&b->ref_side);
    nd_side_init(&b->test_side);
    for (size_t first = 0; first < n_elems; first += ND_BLOCK) {
        struct nd_side_block ref_block, test_block;
        struct nd_pair_block block = {.probe = probe, .sample = sample, .first = first};
        block.n = n_elems - first < ND_BLOCK ? n_elems - first : ND_BLOCK;
        block.joint = nd_joint_of(state, context);
        block.ref = load_side(&context->ref, context->kernels, ref + first * context->ref.elem_bytes, &block,
                              b->ref, &ref_block, &b->ref_side);
        block.test = load_side(&context->test, context->kernels, test + first * context->test.elem_bytes,
                               &block, b->test, &test_block, &b->test_side);
        size_t n_differing = nd_pair_block_make(context, &b->scratch, &block);
        nd_dequantised_note(state, &block);
        if (n_differing == 0)
            continue;
        nd_pair_state_update(state, context, &block);
        is_found = true;
    }
    nd_joint_settle(state, context);
    state->bits.n_samples_differing += context->is_mixed && is_found;
    b->ref_side.n_stuck_samples = is_stuck(&b->ref_side);
    b->test_side.n_stuck_samples = is_stuck(&b->test_side);
    nd_side_merge(&state->account.ref, &b->ref_side);
    nd_side_merge(&state->account.test, &b->test_side);
    return ND_OK;
}

/* ---- what they measure ---- */

size_t nd_n_measures(void)
{
    size_t n = 0;
    for (size_t m = 0; m < N_METRICS; m++)
        n += metrics[m]->n_measures;
    return n;
}

const struct nd_measure *nd_measure(size_t i)
{
    size_t m = 0;
    while (m < N_METRICS && i >= metrics[m]->n_measures)
        i -= metrics[m++]->n_measures;
    assert(m < N_METRICS);
    return &metrics[m]->measures[i];
}

bool nd_measure_is_known(const struct nd_measure *measure, const struct nd_difference *d)
{
    const struct nd_distribution *distribution = &d->distribution;
    if (!d->has_values)
        return false;
    switch (measure->need) {
    case ND_NEEDS_VALUES:
        return true;
    case ND_NEEDS_STEPS:
        return d->is_integer;
    case ND_NEEDS_ULPS:
        return !d->is_integer && !d->has_steps && d->has_errors;
    case ND_NEEDS_ULP_IN:
        return d->has_errors && d->has_ulp_in;
    case ND_NEEDS_ERRORS:
        return d->has_errors;
    case ND_NEEDS_SIGNAL:
        return d->has_signal;
    case ND_NEEDS_GAIN:
        return d->has_signal && d->has_gain;
    case ND_NEEDS_DIVERGENCE:
        return distribution->exists &&
               distribution->n_samples > distribution->n_infinite + distribution->n_invalid;
    }
    return false;
}

uint64_t nd_measure_count(const struct nd_measure *measure, const struct nd_difference *difference)
{
    assert(measure->form == ND_MEASURED_COUNT);
    return *(const uint64_t *)(const void *)((const char *)difference + measure->offset);
}

double nd_measure_value(const struct nd_measure *measure, const struct nd_difference *difference)
{
    if (measure->form == ND_MEASURED_COUNT)
        return (double)nd_measure_count(measure, difference);
    return *(const double *)(const void *)((const char *)difference + measure->offset);
}
