/* What the files of the doctor share. A fault predicts for every element the codes that it would leave there
 * (fault_fit.c counts how well); each file tries the faults of one kind:
 *   value.c          another zero point or scale, of the tensor or of a channel
 *   range.c          codes and accumulators that are cut off
 *   memory_faults.c  the right codes in the wrong place or time, or of the wrong type
 *   layout_faults.c  permutations
 *   random.c         chance */
#ifndef ND_DIAGNOSIS_PARTS_H
#define ND_DIAGNOSIS_PARTS_H

#include "diagnosis/diagnosis.h"

/* Evidence and what is counted of it once. */
struct nd_doctor {
    const struct nd_evidence *e;
    double lowest, highest; /* codes of the type */
    double noise;           /* LSB that count as nothing */
    double below, above;    /* the usual program's code is in [value - below, value + above] */
    size_t n_known;         /* elements */
    size_t n_wrong;         /* of them, codes that are not as expected */
    size_t n_hard;          /* of these, codes that are no rounding of the value */
    struct nd_diagnosis *out;
};

/* The codes that a fault allows; nothing is predicted where is_known is false (a sample before the first). */
struct nd_doctor_span {
    bool is_known;
    double low, high;
};

struct nd_doctor_fault;
typedef struct nd_doctor_span (*nd_doctor_predict)(const struct nd_doctor *d, const struct nd_doctor_fault *f,
                                                   size_t sample, size_t j);

/* A fault to try. kind, channel, axis and amount go into the finding; the rest is for predict. */
struct nd_doctor_fault {
    enum nd_fault_kind kind;
    size_t channel;
    int axis;
    double amount;
    nd_doctor_predict predict;
    double low, high;        /* codes or values */
    size_t first, end;       /* elements */
    ptrdiff_t shift;         /* elements or samples */
    int mode;                /* variants of a fault, private to its file */
    double room;             /* codes that are that far from the predicted one fit, too */
    const int *permutation;  /* of the axes */
    const size_t *map;       /* [channels] */
    const double *predicted; /* [n_samples][n] */
};

/* Channels along an axis: element j belongs to channel j / inner % n. */
struct nd_doctor_axis {
    int axis;
    size_t n, inner;
};

/* fault_fit.c */
void nd_doctor_prepare(const struct nd_evidence *e, double noise, struct nd_diagnosis *out,
                       struct nd_doctor *d);
double nd_doctor_zero_point(const struct nd_doctor *d, size_t j);
double nd_doctor_clip(const struct nd_doctor *d, double code);
/* The value and the expected code are finite. */
bool nd_doctor_is_known(const struct nd_doctor *d, size_t i);
/* A code that is not as expected. */
bool nd_doctor_is_wrong(const struct nd_doctor *d, size_t i);
/* A wrong code that is no rounding of the value. */
bool nd_doctor_is_hard(const struct nd_doctor *d, size_t i);
/* Clipped neither as expected nor as given: only such an element measures anything. */
bool nd_doctor_is_inside(const struct nd_doctor *d, size_t i);
/* Codes are further off than by the single steps that other arithmetic makes. Only then a fault may be held
 * against the codes with room for these: it would fit many a tensor of few codes. */
bool nd_doctor_is_far_off(const struct nd_doctor *d);
struct nd_doctor_span nd_doctor_exactly(double code);
/* The codes that a program of the usual kind may give for a value, clipped. */
struct nd_doctor_span nd_doctor_of_value(const struct nd_doctor *d, double value);
/* Judges the fault and, when it holds, adds it to the findings. */
bool nd_doctor_try(struct nd_doctor *d, const struct nd_doctor_fault *f, const char *fmt, ...) ND_PRINTF(3, 4);
/* Adds without judging. */
void nd_doctor_add(struct nd_doctor *d, const struct nd_doctor_fault *f, double explained, const char *fmt, ...)
    ND_PRINTF(4, 5);
/* The axes that may be the channels', likeliest first; returns how many. */
enum { ND_DOCTOR_AXES = 3 };
size_t nd_doctor_axes(const struct nd_doctor *d, struct nd_doctor_axis out[ND_DOCTOR_AXES]);
size_t nd_doctor_channel(const struct nd_doctor_axis *axis, size_t j);

/* layout.c. The axes that are longer than 1, in their order, into out: the others cannot be told apart. Returns
 * how many; none of a shape that is not known. */
int nd_doctor_long_axes(const struct nd_shape *shape, int out[ND_MAX_RANK]);
/* The next order of n numbers in lexicographic order; false after the last. */
bool nd_doctor_next_permutation(int *p, int n);

/* floats.c: numbers of the narrower type, or a unit in the last place of float32 beside one. */
bool nd_doctor_is_bf16(float value);
bool nd_doctor_is_fp16(float value);

enum nd_status nd_doctor_try_values(struct nd_doctor *d, struct nd_error *err);
void nd_doctor_try_constant(struct nd_doctor *d);
void nd_doctor_try_range(struct nd_doctor *d);
void nd_doctor_try_type(struct nd_doctor *d);
void nd_doctor_try_samples(struct nd_doctor *d);
void nd_doctor_try_window(struct nd_doctor *d);
void nd_doctor_try_shifts(struct nd_doctor *d);
enum nd_status nd_doctor_try_layouts(struct nd_doctor *d, struct nd_error *err);
/* By the fractions alone: the runs need not differ (a seeded generator repeats itself). */
void nd_doctor_try_stochastic(struct nd_doctor *d);
void nd_doctor_try_flips(struct nd_doctor *d);

#endif
