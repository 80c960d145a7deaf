/* Weights rounded up or down so that the layer's output has the least error. Rounded each to the nearest one,
 * errors of weights that multiply similar values add up; rounded one against the other, they cancel.
 * docs/science/align.md#rounding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "improve/align/layer.h"
#include "improve/align/observed.h"
#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/eval_graph.h"

enum {
    W = 1,
    MOST_TERMS =
        2304, /* chosen: moments of more terms would take over 42 MB. The bias is corrected all the same */
    MOST_SWEEPS = 4, /* chosen: the last ones change little */
};

/* Chosen: what is left of the moments of two different terms. They are measured on few rows, and weights must
 * not be fitted to chance. */
static const double share_of_others = 0.9;

/* Of the rows of one group. */
struct moments {
    size_t n;
    double *mean;   /* [n] */
    double *second; /* [n][n]; with a bias around the mean, which the bias takes back. NULL: not wanted */
    double *row, *error, *slope;
};

static void moments_deinit(struct moments *m)
{
    free(m->mean);
    free(m->second);
    free(m->row);
    free(m->error);
    free(m->slope);
}

static enum nd_status moments_init(struct moments *m, size_t n, struct nd_error *err)
{
    *m = (struct moments){.n = n,
                          .mean = nd_calloc(n, sizeof *m->mean),
                          .row = nd_calloc(n, sizeof *m->row),
                          .error = nd_calloc(n, sizeof *m->error),
                          .slope = nd_calloc(n, sizeof *m->slope)};
    if (n <= MOST_TERMS)
        m->second = nd_calloc(n * n, sizeof *m->second);
    bool is_made = m->mean != NULL && m->row != NULL && m->error != NULL && m->slope != NULL &&
                   (m->second != NULL || n > MOST_TERMS);
    return is_made ? ND_OK : nd_fail_memory(err);
}

static void take_rows(struct moments *m, const struct nd_observed_layer *seen, size_t group, bool has_bias)
{
    const float *rows = seen->rows + group * seen->n_room * seen->n_terms;
    double share = 1 / (double)seen->n_rows;
    memset(m->mean, 0, m->n * sizeof *m->mean);
    for (size_t r = 0; r < seen->n_rows; r++)
        for (size_t t = 0; t < m->n; t++)
            m->mean[t] += share * (double)rows[r * m->n + t];
    if (m->second == NULL)
        return;
    memset(m->second, 0, m->n * m->n * sizeof *m->second);
    for (size_t r = 0; r < seen->n_rows; r++) {
        for (size_t t = 0; t < m->n; t++)
            m->row[t] = (double)rows[r * m->n + t] - (has_bias ? m->mean[t] : 0);
        for (size_t t = 0; t < m->n; t++) {
            double *second = m->second + t * m->n, factor = share * m->row[t];
            for (size_t u = 0; u <= t && factor != 0; u++)
                second[u] += factor * m->row[u];
        }
    }
    for (size_t t = 0; t < m->n; t++)
        for (size_t u = 0; u < t; u++)
            m->second[u * m->n + t] = m->second[t * m->n + u] *= share_of_others;
}

/* Moves one weight after the other to its other neighbour, as long as the output's error falls. */
static void descend(struct moments *m, double scale, const double *reals, const struct nd_observed_layer *seen)
{
    const double low = -128 * scale, high = 127 * scale; /* what 8 signed bits hold */
    size_t n_moved = 1;
    memset(m->slope, 0, m->n * sizeof *m->slope);
    for (size_t t = 0; t < m->n; t++)
        for (size_t u = 0; u < m->n; u++)
            m->slope[u] += m->error[t] * m->second[t * m->n + u];
    for (int sweep = 0; sweep < MOST_SWEEPS && n_moved > 0; sweep++) {
        n_moved = 0;
        for (size_t t = 0; t < m->n; t++) {
            const double *second = m->second + t * m->n;
            double step = m->slope[t] > 0 ? -scale : scale, error = m->error[t] + step;
            double value = reals[t * seen->term_step] + error, slack = scale / 2;
            if (scale * second[t] >= 2 * fabs(m->slope[t]) || fabs(error) > scale || value < low - slack ||
                value > high + slack)
                continue;
            m->error[t] = error;
            for (size_t u = 0; u < m->n; u++)
                m->slope[u] += step * second[u];
            n_moved++;
        }
    }
}

/* One column: its weights, and what they add to the output on average goes off the bias. */
static void round_column(struct nd_align_layer *layer, struct moments *m, size_t column, const double *reals,
                         const struct nd_observed_layer *seen)
{
    struct nd_array *codes = &layer->codes[W];
    const struct nd_quant *quant = &layer->quants[W];
    size_t first = column * seen->column_step, channel = nd_exact_channel(quant, &codes->shape, first);
    double scale = (double)quant->scale[channel], zero = (double)quant->zero_point[channel], mean = 0;
    for (size_t t = 0; t < m->n; t++) {
        size_t i = first + t * seen->term_step;
        m->error[t] = (codes->x[i] - zero) * scale - reals[i];
    }
    if (m->second != NULL)
        descend(m, scale, reals + first, seen);
    for (size_t t = 0; t < m->n; t++) {
        size_t i = first + t * seen->term_step;
        codes->x[i] = nearbyint((reals[i] + m->error[t]) / scale) + zero;
        mean += m->error[t] * m->mean[t];
    }
    if (layer->bias != NULL && column < layer->codes[2].n)
        layer->bias[column] -= mean;
}

enum nd_status nd_align_round(struct nd_align_layer *layer, const double *reals,
                              const struct nd_observed_layer *seen, struct nd_error *err)
{
    struct moments m;
    size_t n_columns = seen->n_groups * seen->n_columns;
    bool has_bias = layer->bias != NULL && layer->codes[2].n == n_columns;
    enum nd_status status = moments_init(&m, seen->n_terms, err);
    for (size_t g = 0; g < seen->n_groups && status == ND_OK; g++) {
        take_rows(&m, seen, g, has_bias);
        for (size_t c = 0; c < seen->n_columns; c++)
            round_column(layer, &m, g * seen->n_columns + c, reals, seen);
    }
    moments_deinit(&m);
    return status;
}

double nd_align_rms(const struct nd_observed_layer *seen, bool has_bias)
{
    double sum = 0, share = 1 / (double)seen->n_rows;
    for (size_t g = 0; g < seen->n_groups; g++)
        for (size_t t = 0; t < seen->n_terms; t++) {
            const float *x = seen->rows + g * seen->n_room * seen->n_terms + t;
            double mean = 0, square = 0;
            for (size_t r = 0; r < seen->n_rows; r++) {
                double value = (double)x[r * seen->n_terms];
                mean += share * value;
                square += share * value * value;
            }
            sum += has_bias ? fmax(square - mean * mean, 0) : square;
        }
    return sqrt(sum / (double)(seen->n_groups * seen->n_terms));
}
