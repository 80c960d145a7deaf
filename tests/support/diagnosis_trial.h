/* A layer that a device ran, with values and a background arithmetic drawn from a seed, on which one fault is
 * then laid. */
#ifndef ND_TESTS_DIAGNOSIS_TRIAL_H
#define ND_TESTS_DIAGNOSIS_TRIAL_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/rounding.h"
#include "explain/diagnosis/diagnosis.h"

enum { TRIAL_SAMPLES = 8 };

struct trial {
    uint64_t seed;
    struct nd_evidence e;
    size_t n_total, n_channels, inner; /* of the channel axis: 1 of rank 4, else the last */
    int axis;
    bool is_double; /* background: rounds to 8 fraction bits, half up, then half away; else half to even */
    double low, high, amplitude;
    double *qvalues, *values, *expected, *other;
    double step[64];
    float scale;
    int64_t zero_point;
    struct nd_quant quant;
    struct nd_hypothesis hypothesis;
};

static inline uint64_t trial_next(struct trial *t)
{
    t->seed = t->seed * 6364136223846793005u + 1442695040888963407u;
    return (t->seed ^ t->seed >> 32) * 0x9e3779b97f4a7c15u;
}

static inline double trial_uniform(struct trial *t, double low, double high)
{
    return low + (high - low) * (double)(trial_next(t) >> 11) * 0x1p-53;
}

static inline size_t trial_range(struct trial *t, size_t low, size_t high)
{
    return low + (size_t)((trial_next(t) >> 20) % (high - low + 1));
}

/* Near enough to a normal deviate. */
static inline double trial_normal(struct trial *t)
{
    double sum = -6;
    for (int k = 0; k < 12; k++)
        sum += trial_uniform(t, 0, 1);
    return sum;
}

static inline double trial_qvalue(const struct trial *t, double value)
{
    double qvalue = t->is_double ? round(floor(value * 256 + 0.5) / 256) : rint(value);
    return fmin(fmax(qvalue, t->low), t->high);
}

static inline size_t trial_channel(const struct trial *t, size_t i)
{
    return i % t->e.n / t->inner % t->n_channels;
}

static inline void trial_shape(struct trial *t, int rank)
{
    struct nd_shape *shape = &t->e.shape;
    shape->rank = rank;
    shape->dims[0] = 1;
    t->axis = rank == 4 ? 1 : rank - 1;
    for (int k = 1; k < rank; k++)
        shape->dims[k] = (int64_t)trial_range(t, rank == 2 ? 16 : 8, rank == 2 ? 200 : rank == 3 ? 25 : 13);
    t->e.n = t->inner = 1;
    for (int k = 0; k < rank; k++)
        t->e.n *= (size_t)shape->dims[k];
    for (int k = t->axis + 1; k < rank; k++)
        t->inner *= (size_t)shape->dims[k];
    t->n_channels = (size_t)shape->dims[t->axis];
}

static inline void trial_alloc(struct trial *t)
{
    t->n_total = t->e.n_samples * t->e.n;
    t->qvalues = calloc(t->n_total, sizeof *t->qvalues);
    t->values = calloc(t->n_total, sizeof *t->values);
    t->expected = calloc(t->n_total, sizeof *t->expected);
    t->other = calloc(t->n_total, sizeof *t->other);
    t->e.captured = t->qvalues;
    t->e.exact = t->values;
    t->e.expected = t->expected;
}

static inline void trial_expect(struct trial *t)
{
    for (size_t i = 0; i < t->n_total; i++)
        t->qvalues[i] = t->expected[i] = trial_qvalue(t, t->values[i]);
}

/* rank 0: any. */
static inline void trial_open(struct trial *t, uint64_t seed, int rank, size_t n_samples)
{
    static const enum nd_dtype dtypes[] = {ND_DTYPE_U8, ND_DTYPE_I8, ND_DTYPE_U16, ND_DTYPE_I16};
    memset(t, 0, sizeof *t);
    t->seed = seed * 0x9e3779b97f4a7c15u + 1;
    t->e.n_samples = n_samples;
    t->e.inputs_repeat_same = true;
    t->is_double = trial_next(t) >> 40 & 1;
    t->e.dtype = dtypes[trial_range(t, 0, 3)];
    nd_qvalue_range(t->e.dtype, &t->low, &t->high);
    trial_shape(t, rank != 0 ? rank : (int)trial_range(t, 2, 4));
    trial_alloc(t);
    double range = t->high - t->low;
    t->zero_point = (int64_t)rint(t->low + range * trial_uniform(t, 0.35, 0.65));
    t->scale = (float)trial_uniform(t, 0.001, 0.1);
    t->quant = (struct nd_quant){1, -1, &t->scale, &t->zero_point};
    t->e.quant = &t->quant;
    t->amplitude = range * trial_uniform(t, 0.1, 0.2);
    double gain[256], mean[256];
    for (size_t c = 0; c < t->n_channels; c++) {
        gain[c] = t->amplitude * trial_uniform(t, 0.7, 1.4);
        mean[c] = t->amplitude * trial_uniform(t, -0.4, 0.4);
    }
    for (size_t i = 0; i < t->n_total; i++) {
        size_t c = trial_channel(t, i);
        t->values[i] = (double)t->zero_point + mean[c] + gain[c] * trial_normal(t);
    }
    trial_expect(t);
}

static inline void trial_close(struct trial *t)
{
    free(t->qvalues);
    free(t->values);
    free(t->expected);
    free(t->other);
}

#endif
