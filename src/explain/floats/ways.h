/* Another way of computing a layer that gives the device's values: tried one after another, on floats and on
 * quantised values alike. A way is named where it predicts what the model's own does not.
 * docs/science/verdicts.md. */
#pragma once

#include "explain/diagnosis/diagnosis.h"
#include "explain/floats/floats.h"

struct nd_float_fault {
    bool is_found, may_be_arithmetic; /* of a device that computes in fewer bits, or approximates a function */
    bool is_exact;                    /* the layer was worked out so, or a line predicts its values, to the
                                                   rounding of its arithmetic */
    struct nd_finding finding;
};

/* A search in one layer. Values are in the unit of the captured ones. */
struct nd_ways {
    const void *node; /* its operator: an Onnx__NodeProto */
    size_t n_inputs;
    size_t n_samples, n;
    double *expected, *captured, *bound; /* [n_samples * n]: by the model, by the device, and how far off that
                                            may be */
    double *scratch;                     /* [n] */
    size_t n_far, worst;                 /* values that are off; the sample with the most of them */
    size_t min_far;                      /* values that are off and that a way must predict */
    bool is_whole;                       /* the layer gives whole numbers that nothing rounds */
    bool
        is_coarse; /* values are rounded to whole numbers: their rounding is evened out in what is solved for */
    bool leaves_approximations; /* a function that is approximated is no other way than the model's */
    void *context;
    enum nd_status (*go_to)(void *context, size_t sample, struct nd_error *err);
    /* What the way gives in that sample, before it is rounded; false where it cannot be worked out, or has
     * another size. *out, zeroed before, is freed by the caller in any case. */
    bool (*make)(void *context, const struct nd_float_way *way, struct nd_array *out);
    /* How far from that a value may be: bound[n], zeroed before. */
    bool (*bound_made)(void *context, const struct nd_float_way *way, const struct nd_array *made,
                       double *bound);
    /* Told of a way that holds, the first of those that are named together. NULL: not. */
    enum nd_status (*keep)(void *context, const struct nd_float_way *way, struct nd_error *err);
    struct nd_float_fault *out;
};

/* Ways that predict the same values are all named. */
struct nd_way_score {
    size_t n_far, n_right, n_broken;
    double before, after;
};
struct nd_way_names {
    char text[128];
    bool may_be_arithmetic;
    struct nd_way_score score;
};

/* A number that is another one: it is solved for. */
struct nd_way_number {
    double *factor; /* of an operand; NULL: an attribute */
    float *attribute;
    bool is_positive; /* its logarithm is solved for */
};

/* expected, captured, bound and scratch for n_samples * n: free(s->expected) frees all. ND_ERR_MEMORY. */
enum nd_status nd_ways_make_room(struct nd_ways *s, struct nd_error *err);
/* Fills n_far and worst. */
void nd_ways_count(struct nd_ways *s);

/* Adds the name of the way where it holds. Nothing is tried once a fault is found. ND_ERR_MEMORY, and errors of
 * reading captures; so in the functions below. */
enum nd_status nd_try_way(struct nd_ways *s, const struct nd_float_way *way, const char *name,
                          struct nd_way_names *names, struct nd_error *err);
/* The number with the fewest digits that predicts the values. unit: what the number is multiplied by to be
 * said. */
enum nd_status nd_try_way_number(struct nd_ways *s, const struct nd_float_way *way,
                                 const struct nd_way_number *number, double from, double unit,
                                 enum nd_fault_kind kind, const char *before, const char *after,
                                 struct nd_error *err);
/* The operator with another attribute of arithmetic/variants/attributes.h; then with two. */
enum nd_status nd_try_attributes(struct nd_ways *s, struct nd_error *err);
enum nd_status nd_try_two_attributes(struct nd_ways *s, struct nd_error *err);

/* The fault is a way that holds. */
void nd_tell_way(struct nd_ways *s, const struct nd_way_score *score, enum nd_fault_kind kind, double amount,
                 const char *fmt, ...) ND_PRINTF(5, 6);
