/* The 32-bit floats of HVX, the vector layer of the HTP, called qf32: what its float instructions give before
 * they are made IEEE floats. A significand is a whole number of units of 2^-23 and always odd, as its lowest
 * bit is not stored. docs/science/htp-arithmetic.md#qfloat. */
#ifndef ND_ARITH_QFLOAT_H
#define ND_ARITH_QFLOAT_H

/* significand 2^exponent. Of an IEEE float the significand is in 1 .. 2, less 2^-23, or 0. */
struct nd_qfloat {
    double significand;
    int exponent;
};

/* A finite float as instructions read it: exact. Its sign is the significand's. */
struct nd_qfloat nd_qfloat_read(float value);
/* The float as a qf32: its product with one. */
struct nd_qfloat nd_qfloat_from(float value);
struct nd_qfloat nd_qfloat_product(struct nd_qfloat a, struct nd_qfloat b);
struct nd_qfloat nd_qfloat_sum(struct nd_qfloat a, struct nd_qfloat b);
/* Exact. */
struct nd_qfloat nd_qfloat_minus(struct nd_qfloat a);
/* The qf32 as an IEEE float, read again: the same value, another exponent. */
struct nd_qfloat nd_qfloat_settled(struct nd_qfloat a);
double nd_qfloat_value(struct nd_qfloat a);

/* a + weight (b - a) of float16 numbers, each step a qf16: as a qf32, with units of 2^-10. */
float nd_qhalf_between(float a, float b, float weight);

#endif
