/* The one place that decides a layer's state: everybody else says what it found, and the members that belong to
 * the state are set with it. docs/reference/verdicts.md. */
#include <math.h>

#include "core/memory.h"
#include "explain/verdict/judgement.h"

/* ---- words ---- */

const char *nd_health_name(enum nd_health health)
{
    static const char *const names[] = {[ND_HEALTH_HEALTHY] = "healthy",
                                        [ND_HEALTH_INCONCLUSIVE] = "inconclusive",
                                        [ND_HEALTH_UNEXPLAINED] = "unexplained",
                                        [ND_HEALTH_FAULTY] = "faulty",
                                        [ND_HEALTH_FAILED] = "failed"};
    return names[health];
}

enum nd_exit nd_health_exit_code(enum nd_health health)
{
    static const enum nd_exit codes[] = {[ND_HEALTH_HEALTHY] = ND_EXIT_SAME,
                                         [ND_HEALTH_INCONCLUSIVE] = ND_EXIT_INCONCLUSIVE,
                                         [ND_HEALTH_UNEXPLAINED] = ND_EXIT_DIFFERS,
                                         [ND_HEALTH_FAULTY] = ND_EXIT_DIFFERS,
                                         [ND_HEALTH_FAILED] = ND_EXIT_DEVICE_FAILED};
    return codes[health];
}

const char *nd_layer_state_name(enum nd_layer_state state)
{
    static const char *const names[] = {[ND_LAYER_NOT_EXAMINED] = "not-examined",
                                        [ND_LAYER_FOLLOWS] = "follows",
                                        [ND_LAYER_WITHIN_LSB] = "within-1-lsb",
                                        [ND_LAYER_UNEXPLAINED] = "unexplained",
                                        [ND_LAYER_FAULTY] = "faulty"};
    return names[state];
}

const char *nd_certainty_name(enum nd_certainty certainty)
{
    static const char *const names[] = {[ND_CERTAINTY_NONE] = NULL,
                                        [ND_CERTAINTY_PROVEN] = "proven",
                                        [ND_CERTAINTY_LIKELY] = "likely",
                                        [ND_CERTAINTY_GUESS] = "guess",
                                        [ND_CERTAINTY_UNKNOWN] = "unknown"};
    return names[certainty];
}

/* ---- states ---- */

void nd_judge_open(struct nd_explained_layer *layer)
{
    layer->judgement.state = layer->is_examined ? ND_LAYER_UNEXPLAINED : ND_LAYER_NOT_EXAMINED;
}

enum nd_status nd_judge_evidence(struct nd_explained_layer *layer, struct nd_strbuf *evidence,
                                 struct nd_error *err)
{
    free(layer->judgement.evidence);
    layer->judgement.evidence = nd_strbuf_take(evidence);
    return layer->judgement.evidence != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status follow(struct nd_explained_layer *layer, const char *why, char *text)
{
    free(layer->judgement.follows_text);
    layer->judgement.follows_text = text;
    layer->judgement.why_follows = why;
    layer->judgement.state = ND_LAYER_FOLLOWS;
    return ND_OK;
}

enum nd_status nd_judge_follows(struct nd_explained_layer *layer, const char *why, const char *text,
                                struct nd_error *err)
{
    char *copy = text != NULL ? nd_strdup(text) : NULL;
    return text == NULL || copy != NULL ? follow(layer, why, copy) : nd_fail_memory(err);
}

enum nd_status nd_judge_follows_as(struct nd_explained_layer *layer, const char *why, struct nd_strbuf *text,
                                   struct nd_error *err)
{
    char *taken = nd_strbuf_take(text);
    return taken != NULL ? follow(layer, why, taken) : nd_fail_memory(err);
}

enum nd_status nd_judge_resembles(struct nd_explained_layer *layer, const struct nd_explained_fault *fault,
                                  struct nd_error *err)
{
    char *text = nd_strdup(fault->text);
    free(layer->judgement.fault.text);
    layer->judgement.fault = *fault;
    layer->judgement.fault.text = text;
    return text != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_judge_faulty(struct nd_explained_layer *layer, enum nd_certainty certainty,
                               const struct nd_explained_fault *fault, struct nd_strbuf *evidence,
                               struct nd_error *err)
{
    enum nd_status status = fault != NULL ? nd_judge_resembles(layer, fault, err) : ND_OK;
    layer->judgement.state = ND_LAYER_FAULTY;
    layer->judgement.why_follows = NULL;
    layer->judgement.certainty = certainty;
    if (status == ND_OK)
        return nd_judge_evidence(layer, evidence, err);
    nd_strbuf_deinit(evidence);
    return status;
}

/* ---- within one LSB ---- */

/* Standard errors by which as many values may lie above exact rounding as below for the difference to be
 * chance: of 100 000 unbiased layers 6 are called biased. */
static const double max_bias = 4;

/* More than half of the values off by one LSB are more than rounding: an error of up to one LSB before the last
 * rounding moves half of them. */
static const double max_share = 0.5;

/* The signed mean of errors of one LSB is the values above less those below. */
static double bias_of(const struct nd_explained_layer *layer)
{
    return layer->introduced.mean * (double)layer->n_qvalues / sqrt((double)layer->introduced.n_differing);
}

void nd_judge_within_lsb(struct nd_explained_layer *layer, bool is_known)
{
    const struct nd_explained_part *error = &layer->introduced;
    bool is_open = layer->judgement.state == ND_LAYER_UNEXPLAINED && !layer->judgement.is_noise;
    bool is_small = error->n_differing > 0 && error->max <= 1 &&
                    (double)error->n_differing <= max_share * (double)layer->n_qvalues;
    if (is_open && !is_known && is_small && fabs(bias_of(layer)) <= max_bias)
        layer->judgement.state = ND_LAYER_WITHIN_LSB;
}
