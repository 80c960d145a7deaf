/* The stages of nd_promote.
 *
 *     promote.c      what the caller asks and gets, and the stages in order
 *     cost.c    what could be changed, by gain for cost;  cost.c  what it costs
 *     promote.c  each put into the model
 *     promote.c      captured on all devices, and held against the float model */
#ifndef ND_PROMOTE_PROMOTE_JOB_H
#define ND_PROMOTE_PROMOTE_JOB_H

#include "model/rewrite/widen.h"
#include "npudiff/improve/promote.h"
#include "quantisation/study.h"

/* The outputs of one model on one device. */
struct nd_measured {
    double sqnr_db; /* to the float model; NaN: not measured */
    size_t n_labelled, n_right;
};

struct nd_promote_job {
    const struct nd_promote_options *options;
    const struct nd_model *model;
    struct nd_promoted *result;
    char *folder; /* for what nobody keeps */
    struct nd_capture *floats;
    struct nd_capture **captures; /* [n_devices] of the model as it came */
    struct nd_plan plan;
    struct nd_promotions *promotions;
    size_t *order;           /* [result->n_layers] of the promotions, beside result->layers */
    size_t *kept;            /* [n_kept] of the promotions */
    struct nd_measured *now; /* [n_devices] with those that were kept */
};

/* ---- cost.c ---- */

/* Of these promotions together. */
enum nd_status nd_promotion_cost_of(const struct nd_promote_job *job, const size_t *promotions, size_t n,
                                    struct nd_promotion_cost *out, struct nd_error *err);

/* ---- cost.c ---- */

/* Fills result->layers and job->order. */
enum nd_status nd_find_proposals(struct nd_promote_job *job, struct nd_error *err);

/* The changes of these promotions as the copy has them. The caller frees the arrays of *out. ND_ERR_MEMORY. */
enum nd_status nd_promotions_as_widening(const struct nd_promote_job *job, const size_t *promotions, size_t n,
                                         struct nd_widening *out, struct nd_error *err);
void nd_widening_deinit(struct nd_widening *widening);

/* ---- promote.c ---- */

/* ---- promote.c ---- */

#endif
