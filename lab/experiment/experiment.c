#include "lab/experiment/experiment.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

struct nd_experiment nd_experiment_begin(struct nd_bench *bench, const char *operator_name, const char *types,
                                         struct nd_error *err)
{
    return (struct nd_experiment){
        .bench = bench, .operator_name = operator_name, .types = types, .err = err, .is_on_npu = true};
}

enum nd_status nd_experiment_end(struct nd_experiment *e)
{
    for (size_t i = 0; i < e->n_blocks; i++)
        free(e->blocks[i]);
    free(e->blocks);
    nd_strbuf_deinit(&e->answers);
    nd_trial_deinit(&e->failure);
    return e->status;
}

enum nd_status nd_experiment_take_all(struct nd_bench *bench, const struct nd_subject *subjects,
                                      size_t n_subjects, nd_experiment_take *take, json_t *entries,
                                      struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < n_subjects; i++) {
        struct nd_experiment e = nd_experiment_begin(bench, subjects[i].operator_name, subjects[i].types, err);
        take(&e, subjects[i].kind, entries);
        status = nd_experiment_end(&e);
    }
    return status;
}

bool nd_experiment_goes_on(const struct nd_experiment *e)
{
    return e->status == ND_OK && !e->has_failed;
}

bool nd_experiment_check(struct nd_experiment *e, enum nd_status status)
{
    if (e->status == ND_OK)
        e->status = status;
    return nd_experiment_goes_on(e);
}

void *nd_experiment_own(struct nd_experiment *e, void *pointer)
{
    if (pointer == NULL)
        return NULL;
    if (nd_grow((void **)&e->blocks, &e->capacity, e->n_blocks + 1, sizeof *e->blocks))
        return e->blocks[e->n_blocks++] = pointer;
    free(pointer);
    nd_experiment_check(e, nd_fail_memory(e->err));
    return NULL;
}

void *nd_experiment_alloc(struct nd_experiment *e, size_t n, size_t elem_bytes)
{
    void *block = nd_experiment_goes_on(e) ? nd_calloc(n, elem_bytes) : NULL;
    if (block == NULL && nd_experiment_goes_on(e))
        nd_experiment_check(e, nd_fail_memory(e->err));
    return nd_experiment_own(e, block);
}

/* ---- asking ---- */

/* What came of one model; takes over the result. */
static const double *note(struct nd_experiment *e, struct nd_trial_result *result)
{
    bool is_first = e->n_asked++ == 0;
    bool is_counted = e->is_patient && !is_first && (result->has_failed || result->is_on_npu != e->is_on_npu);
    if (is_counted) {
        e->n_refused += result->has_failed;
        e->n_elsewhere += !result->has_failed;
        nd_trial_deinit(result->has_failed ? &e->failure : result);
        if (result->has_failed)
            e->failure = *result;
        return NULL;
    }
    memcpy(e->provider, result->provider, sizeof e->provider);
    if (result->has_failed) {
        e->has_failed = true;
        e->failure = *result;
        return NULL;
    }
    e->is_on_npu = e->is_on_npu && result->is_on_npu;
    return nd_experiment_own(e, result->x);
}

const double *nd_experiment_ask(struct nd_experiment *e, const struct nd_ask *ask, const double *qvalues,
                                size_t n_samples)
{
    struct nd_trial_result result = {0};
    bool is_asked = qvalues != NULL && nd_experiment_goes_on(e) &&
                    nd_experiment_check(e, nd_ask_device(e->bench, ask, qvalues, n_samples, &result, e->err));
    return is_asked ? note(e, &result) : NULL;
}

const double *nd_experiment_run(struct nd_experiment *e, struct nd_compose *model,
                                const struct nd_trial_input *input, size_t n)
{
    struct nd_trial_result result = {0};
    const struct nd_trial trial = {
        .model = model, .output = "y", .n_samples = 1, .n_inputs = 1, .inputs = input};
    enum nd_status status = nd_trial_run(e->bench, &trial, &result, e->err);
    nd_compose_destroy(&model);
    if (status == ND_OK && !result.has_failed && result.n != n) {
        nd_trial_deinit(&result);
        status = nd_fail(e->err, ND_E_EXACT_SHAPE, e->operator_name,
                         "the device gives '%s' a different shape than asked for", e->operator_name);
    }
    return nd_experiment_check(e, status) ? note(e, &result) : NULL;
}

void nd_experiment_add_digest(struct nd_experiment *e, struct nd_digest digest)
{
    nd_strbuf_printf(&e->answers, "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
}

void nd_experiment_digest(struct nd_experiment *e, const double *qvalues, size_t n)
{
    uint16_t *bytes = nd_calloc(n, sizeof *bytes);
    for (size_t i = 0; bytes != NULL && i < n; i++)
        bytes[i] = (uint16_t)qvalues[i];
    if (bytes != NULL)
        nd_experiment_add_digest(e, nd_digest_bytes(bytes, n * sizeof *bytes));
    else
        nd_experiment_check(e, nd_fail_memory(e->err));
    free(bytes);
}

/* ---- confirming ---- */

bool nd_fresh_is_enough(uint64_t n_fresh, uint64_t n_right)
{
    return n_fresh >= ND_CONFIRMING_QVALUES && (double)n_right >= ND_CONFIRMING_SHARE * (double)n_fresh;
}

size_t nd_fresh_keep_best(void *arithmetics, size_t arithmetic_bytes, size_t n, const uint64_t *n_right,
                          uint64_t *most)
{
    unsigned char *bytes = arithmetics;
    size_t n_kept = 0;
    *most = 0;
    for (size_t i = 0; i < n; i++)
        *most = n_right[i] > *most ? n_right[i] : *most;
    for (size_t i = 0; i < n; i++)
        if (n_right[i] == *most)
            memmove(bytes + n_kept++ * arithmetic_bytes, bytes + i * arithmetic_bytes, arithmetic_bytes);
    return n_kept;
}

void nd_experiment_confirm(struct nd_experiment *e, const struct nd_confirmation *c, void *context,
                           struct nd_left left)
{
    uint64_t seed = c->seed;
    size_t n_arithmetics = *left.n_arithmetics;
    uint64_t *n_right = n_arithmetics > 0 ? nd_experiment_alloc(e, n_arithmetics, sizeof *n_right) : NULL;
    e->n_fresh = e->n_right = 0;
    for (size_t i = 0; n_right != NULL && nd_experiment_goes_on(e) && i < c->n_models; i++) {
        size_t n = c->ask(e, context, i, &seed);
        for (size_t p = 0; n > 0 && p < n_arithmetics; p++)
            n_right[p] +=
                c->count_right(context, (const unsigned char *)left.arithmetics + p * left.arithmetic_bytes);
        e->n_fresh += n;
    }
    if (n_right != NULL && nd_experiment_goes_on(e))
        *left.n_arithmetics =
            nd_fresh_keep_best(left.arithmetics, left.arithmetic_bytes, n_arithmetics, n_right, &e->n_right);
}

bool nd_experiment_is_confirmed(const struct nd_experiment *e, size_t n_arithmetics)
{
    return !e->has_failed && n_arithmetics > 0 && nd_fresh_is_enough(e->n_fresh, e->n_right);
}
