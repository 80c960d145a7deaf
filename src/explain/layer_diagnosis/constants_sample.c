/* What one sample says of a layer whose product was computed with other constants. constants.c chooses among
 * them. */
#include "explain/layer_diagnosis/constants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "explain/layer_diagnosis/layer_diagnosis.h"

void nd_explain_constants_deinit(struct nd_explain_constants *constants)
{
    nd_coded_weights_deinit(&constants->coded);
    free(constants->products);
    free(constants->moved);
    free(constants->qvalues);
    *constants = (struct nd_explain_constants){.chosen = SIZE_MAX};
}

/* ---- one sample ---- */

static enum nd_status measure(struct nd_layer_diagnosis *diagnosis, const struct nd_exact_layer *layer,
                              struct nd_error *err)
{
    struct nd_explain_constants *constants = &diagnosis->constants;
    struct nd_product_parts parts;
    enum nd_status status = nd_layer_product_parts(layer, constants->shift, &parts, err);
    bool is_known = status == ND_OK && parts.products.n == diagnosis->n && parts.moved.n == diagnosis->n &&
                    diagnosis->n > 0;
    if (is_known) {
        memcpy(constants->products + diagnosis->slot * diagnosis->n, parts.products.x,
               diagnosis->n * sizeof(double));
        memcpy(constants->moved + diagnosis->slot * diagnosis->n, parts.moved.x, diagnosis->n * sizeof(double));
        constants->n_channels = parts.n_channels;
        constants->n_inner = parts.n_inner;
        constants->low = parts.low;
        constants->high = parts.high;
    }
    constants->is_known = is_known && (diagnosis->slot == 0 || constants->is_known);
    nd_product_parts_deinit(&parts);
    if (status == ND_OK && diagnosis->slot == 0 && constants->coded.qvalues.n == 0)
        status = nd_layer_coded_weights(diagnosis->job->plan->graph, layer, &constants->coded, err);
    return status;
}

static enum nd_status look_at(struct nd_layer_diagnosis *diagnosis, const struct nd_exact_layer *layer,
                              size_t k, struct nd_error *err)
{
    struct nd_explain_constants *constants = &diagnosis->constants;
    const double *given = diagnosis->qvalues + diagnosis->slot * diagnosis->n;
    double most = ND_CONSTANTS_WORTH * (double)(diagnosis->n_samples * diagnosis->n);
    struct nd_array qvalues;
    bool is_counted = constants->stage == ND_CONSTANTS_COUNT;
    if (is_counted && (constants->tried[k].n_known != diagnosis->slot * diagnosis->n ||
                       (double)constants->tried[k].n_beyond > most))
        return ND_OK; /* it does not fit the layer, or the values */
    enum nd_status status = nd_layer_changed(layer, diagnosis->layer_arithmetic, &diagnosis->usual,
                                             &constants->tried[k].change, &qvalues, err);
    bool is_known = status == ND_OK && qvalues.n == diagnosis->n;
    for (size_t i = 0; is_known && is_counted && i < diagnosis->n; i++) {
        constants->tried[k].n_wrong += qvalues.x[i] != given[i] && !isnan(qvalues.x[i]);
        constants->tried[k].n_beyond += fabs(qvalues.x[i] - given[i]) > constants->allowance;
    }
    if (is_known && is_counted)
        constants->tried[k].n_known += diagnosis->n;
    if (is_known && constants->stage == ND_CONSTANTS_KEEP) {
        nd_layer_changed_text(layer, &constants->tried[k].change, constants->text);
        memcpy(constants->qvalues + diagnosis->slot * diagnosis->n, qvalues.x,
               diagnosis->n * sizeof *qvalues.x);
    }
    nd_array_deinit(&qvalues);
    return status;
}

enum nd_status nd_layer_diagnosis_look_at_constants(struct nd_layer_diagnosis *diagnosis,
                                                    const struct nd_exact_layer *layer, struct nd_error *err)
{
    struct nd_explain_constants *constants = &diagnosis->constants;
    enum nd_status status = ND_OK;
    if (constants->stage == ND_CONSTANTS_MEASURE)
        return measure(diagnosis, layer, err);
    if (constants->stage == ND_CONSTANTS_KEEP)
        return look_at(diagnosis, layer, constants->chosen, err);
    for (size_t k = 0; k < constants->n && status == ND_OK; k++)
        status = look_at(diagnosis, layer, k, err);
    return status;
}
