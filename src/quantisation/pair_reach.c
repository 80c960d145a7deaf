/* The least and the greatest value of each channel between two layers. */
#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/operators/ops_shared.h"
#include "quantisation/study.h"

enum nd_status nd_pairs_init(struct nd_study *study, struct nd_error *err)
{
    enum nd_status status = nd_find_pairs(study->plan, study->step_of_float, ND_PAIR_ONE_SCALE, &study->pairs,
                                          &study->n_pairs, err);
    for (size_t p = 0; p < study->n_pairs && status == ND_OK; p++)
        for (size_t i = 0; i < study->pairs[p].n_between && status == ND_OK; i++) {
            struct nd_between *between = &study->pairs[p].between[i];
            between->low = nd_calloc(study->n_samples * study->pairs[p].n_channels, sizeof(double));
            between->high = nd_calloc(study->n_samples * study->pairs[p].n_channels, sizeof(double));
            if (between->low == NULL || between->high == NULL)
                status = nd_fail_memory(err);
        }
    return status;
}

void nd_pairs_deinit(struct nd_study *study)
{
    for (size_t p = 0; study->pairs != NULL && p < study->n_pairs; p++)
        for (size_t i = 0; i < study->pairs[p].n_between; i++) {
            free(study->pairs[p].between[i].low);
            free(study->pairs[p].between[i].high);
        }
    free(study->pairs);
}

static struct nd_between *find_between(const struct nd_study *study, size_t step, size_t *n_channels)
{
    for (size_t p = 0; p < study->n_pairs; p++)
        for (size_t i = 0; i < study->pairs[p].n_between; i++)
            if (study->pairs[p].between[i].step == step) {
                *n_channels = study->pairs[p].n_channels;
                return &study->pairs[p].between[i];
            }
    return NULL;
}

void nd_pairs_take(const struct nd_study *study, size_t step, size_t sample, const struct nd_array *values)
{
    size_t n = 0;
    const struct nd_between *between = find_between(study, step, &n);
    if (between == NULL || values->shape.rank < 2 || values->shape.dims[1] != (int64_t)n || values->n == 0)
        return;
    size_t inner = nd_dims_product(&values->shape, 2, values->shape.rank);
    double *low = between->low + sample * n, *high = between->high + sample * n;
    for (size_t c = 0; c < n; c++) {
        low[c] = HUGE_VAL;
        high[c] = -HUGE_VAL;
    }
    for (size_t start = 0, c = 0; start < values->n; start += inner, c = (c + 1) % n)
        for (size_t i = start; i < start + inner; i++) {
            low[c] = fmin(low[c], values->x[i]);
            high[c] = fmax(high[c], values->x[i]);
        }
}
