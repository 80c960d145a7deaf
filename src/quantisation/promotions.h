/* Which layers more bits help: 16 bits for what a layer makes, or a scale for each channel of its weights. Of
 * all layers whose effect is measured; each change is made and measured at the outputs, as remedies are. */
#ifndef ND_QUANTISATION_PROMOTIONS_H
#define ND_QUANTISATION_PROMOTIONS_H

#include "quantisation/study.h"

/* One layer's change. */
struct nd_promotion {
    size_t step;
    enum nd_remedy_kind kind;        /* ND_REMEDY_16_BITS or ND_REMEDY_WEIGHT_CHANNELS */
    double effect_share;             /* of the layer's error, of the effects of all layers */
    const struct nd_change *changes; /* [n_changes], of the study */
    size_t n_changes;
};

struct nd_promotions; /* a study with its changes */

/* The plan has a float model and samples, and is borrowed. *out is destroyed by the caller. ND_ERR_MEMORY, or
 * what reading inputs gives. */
enum nd_status nd_promotions_find(const struct nd_plan *plan, struct nd_promotions **out, struct nd_error *err);
void nd_promotions_destroy(struct nd_promotions **promotions);

/* The changes, in graph order; and the outputs' SQNR without them, NaN where it cannot be measured.
 */
size_t nd_promotions_n(const struct nd_promotions *promotions);
const struct nd_promotion *nd_promotions_at(const struct nd_promotions *promotions, size_t i);
double nd_promotions_sqnr_db(const struct nd_promotions *promotions);
size_t nd_promotions_n_samples(const struct nd_promotions *promotions);

/* sqnr_db[n]: of the outputs with these n_kept changes and with each one. NaN: it cannot be evaluated, or it
 * changes what one of the kept ones changes. */
enum nd_status nd_promotions_try(struct nd_promotions *promotions, const size_t *kept, size_t n_kept,
                                 double *sqnr_db, struct nd_error *err);

#endif
