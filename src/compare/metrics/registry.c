/* The list of metrics, and what is done with all of them. A metric is a file, a line here, a state in states.h
 * and a section of docs/reference/metrics.md. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "compare/metrics/account.h"
#include "core/error.h"
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
    enum nd_status status = ND_OK;
    assert(state->joint == NULL && other->joint == NULL);
    for (size_t m = 0; m < N_METRICS && status == ND_OK; m++)
        status = nd_fields_merge(metrics[m]->fields, metrics[m]->n_fields, state_of(state, m),
                                 const_state_of(other, m), err);
    return status;
}

void nd_pair_state_update(struct nd_pair_state *state, const struct nd_pair_context *context,
                          const struct nd_pair_block *block)
{
    for (size_t m = 0; m < N_METRICS; m++)
        if (metrics[m]->update != NULL)
            metrics[m]->update(state, context, block);
}

void nd_pair_state_add_cell(struct nd_pair_state *state, const struct nd_pair_context *context,
                            const struct nd_cell *cell)
{
    for (size_t m = 0; m < N_METRICS; m++)
        if (metrics[m]->add_cell != NULL)
            metrics[m]->add_cell(state, context, cell);
}

char *nd_pair_state_format(const struct nd_pair_state *state)
{
    struct nd_strbuf text = {0};
    for (size_t m = 0; m < N_METRICS; m++) {
        nd_strbuf_printf(&text, "%s%s", m > 0 ? " " : "", metrics[m]->name);
        nd_fields_format(metrics[m]->fields, metrics[m]->n_fields, const_state_of(state, m), &text);
    }
    char *taken = nd_strbuf_take(&text);
    nd_strbuf_deinit(&text);
    return taken;
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
