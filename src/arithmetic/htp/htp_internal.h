/* What the families of the HTP's arithmetics share. F(.) in comments is one float32 operation, z are zero
 * points, s scales; x, w, y are quantised values. */
#pragma once

#include <math.h>
#include <string.h>

#include "arithmetic/exact/linear/linear_values.h"
#include "arithmetic/htp/htp.h"

/* One layer at work. */
struct nd_htp_job {
    const struct nd_layer_arithmetic *arithmetic;
    const struct nd_exact_layer *layer;
    const struct nd_linear_call *call; /* of the layer */
    struct nd_layer_memory *memory;    /* nullable */
    struct nd_array *qvalues;          /* to be made */
    bool *is_covered;
    bool is_signed;            /* the model has signed quantised values (unsigned.c) */
    enum nd_layer_after after; /* made with a product */
    double slope;              /* of it, below zero; of a Relu 0 */
    const double *slopes; /* of a PRelu or Mul, one for each column or channel, in real numbers; else NULL */
    size_t n_slopes;
    const double *offsets; /* of an Add, one for each channel; else NULL */
    double epsilon;        /* of a norm in parts */
    bool *wraps;           /* nullable; becomes true where a HardSwish reads a sum that is too large
                              (docs/results/found.md#hard-swish-wraps) */
};

typedef enum nd_status nd_htp_family(const struct nd_htp_job *job, struct nd_error *err);

/* Operators, and what makes the quantised values of their layers. Of uint16 what is of words is asked first;
 * what that does not cover is asked of the others. */
struct nd_htp_operator {
    const char *op_types; /* words; NULL behind the last ones of a table */
    nd_htp_family *family;
    bool is_of_words;
};
/* The operators of linear.c, elementwise.c, functions16.c, table.c, pool.c, norm.c, softmax.c and move.c. */
extern const struct nd_htp_operator nd_htp_products[], nd_htp_elements[], nd_htp_functions16[], nd_htp_tables[],
    nd_htp_means[], nd_htp_norms[], nd_htp_softmaxes[], nd_htp_moves[];

/* What is asked for by more than its operator. */
nd_htp_family nd_htp_halves;          /* halves.c: what reads an input of the graph in floats */
nd_htp_family nd_htp_chain;           /* chain.c: operators with no quantiser between */
nd_htp_family nd_htp_bent;            /* linear.c: products with what comes after them */
nd_htp_family nd_htp_in_parts;        /* norm.c: a Sub with a Div, a Sqrt with a Reciprocal, a Gelu */
nd_htp_family nd_htp_words_by_number; /* elementwise.c: uint16 Mul, Div and Sub by one number, in blocks */
/* functions16.c: input 0 to the power of a number. */
enum nd_status nd_htp_power16(const struct nd_htp_job *job, float exponent, struct nd_error *err);
nd_htp_family nd_htp_gelu16;       /* functions16.c: of input 0 */
nd_htp_family nd_htp_hard_swish16; /* functions16.c: of input 0 */
nd_htp_family nd_htp_silu16;       /* functions16.c: x Sigmoid(x), of which the layer has x alone */
nd_htp_family nd_htp_table;        /* table.c: uint8 functions of one input, the others being constants */
/* table.c: remembers input i, which the layer multiplies with or divides by a number, before it is rounded. */
enum nd_status nd_htp_remember_product(const struct nd_htp_job *job, size_t i, struct nd_error *err);
/* table.c: whether functions of input i are made in parts, of 8 rows each. */
bool nd_htp_is_in_parts(const struct nd_htp_job *job, size_t i);
/* table.c: whether that is a table, and one with what made input i. */
bool nd_htp_joins_table(const struct nd_htp_job *job, size_t i);
nd_htp_family
    nd_htp_move16; /* move.c: uint16 Concat, Slice, Split, ReduceMax and ReduceMin with another scale */

/* ---- unsigned.c ---- */

enum { ND_HTP_MAX_INPUTS = 16 };
struct nd_htp_unsigned {
    struct nd_exact_layer layer;
    struct nd_linear_call call;
    struct nd_linear_input inputs[ND_HTP_MAX_INPUTS];
    struct nd_array values[ND_HTP_MAX_INPUTS];
    struct nd_quant quants[ND_HTP_MAX_INPUTS + 1]; /* of the inputs, and behind them of the output */
    size_t n;
};
/* The layer as the HTP has it: of unsigned quantised values. The layer itself where nothing is signed, or where
 * it has more than ND_HTP_MAX_INPUTS inputs; NULL without memory. room: deinit behind. */
const struct nd_exact_layer *nd_htp_as_unsigned(const struct nd_exact_layer *layer,
                                                struct nd_htp_unsigned *room);
void nd_htp_unsigned_deinit(struct nd_htp_unsigned *room);
/* A question about the layer, asked of the unsigned one; false without memory. */
bool nd_htp_ask(const struct nd_exact_layer *layer, bool (*question)(const struct nd_exact_layer *layer));
/* What was made of it, as quantised values of the layer. */
void nd_htp_sign(const struct nd_exact_layer *layer, struct nd_array *qvalues);

/* ---- job.c ---- */

/* The operator of a layer, "" where it only changes the encoding. */
const char *nd_htp_op_type(const struct nd_exact_layer *layer);
/* Whether the operators of a layer, joined by '+', begin with that one; with Conv, ConvTranspose, Gemm or
 * MatMul.
 */
bool nd_htp_begins_with(const char *op_types, const char *op_type);
bool nd_htp_is_product(const char *op_types);

/* Input i as quantised values with one scale and one zero point, or NULL. */
const struct nd_quant *nd_htp_plain(const struct nd_htp_job *job, size_t i);
/* The same of the output. */
const struct nd_quant *nd_htp_plain_output(const struct nd_htp_job *job);
/* Whether the inputs from..n - 1 and the output are plain and of that type. */
bool nd_htp_all_are(const struct nd_htp_job *job, size_t n, enum nd_dtype dtype);
/* The bounds of quantised values, narrowed by Relu and Clip inside of the layer. */
struct nd_htp_bounds {
    double low, high;
};
struct nd_htp_bounds nd_htp_bounds_of(const struct nd_htp_job *job);
struct nd_htp_bounds nd_htp_bounds_between(const struct nd_htp_job *job, double low, double high);
/* Whether neither a Relu nor a Clip is inside of the layer. */
bool nd_htp_is_unbounded(const struct nd_htp_job *job);

/* Whether all are numbers from 0 to `most`. Inputs that are moved, to see how far an error of theirs reaches,
 * may be others. */
bool nd_htp_are_within(const struct nd_array *x, double most);
/* Whether the first n inputs have quantised values of uint16 and nothing else, and the output is of uint16, all
 * plain. */
bool nd_htp_are_words(const struct nd_htp_job *job, size_t n);
/* The same of input 0. */
bool nd_htp_has_words(const struct nd_htp_job *job);

/* Whether input i is one constant number. */
bool nd_htp_is_number(const struct nd_htp_job *job, size_t i);
/* Input i has numbers for the places along one axis of input 0: over how many values of that each number holds.
 * 0: it has another shape. */
size_t nd_htp_run_of(const struct nd_htp_job *job, size_t i);
/* The same of the slopes of a PRelu, which may be one. */
size_t nd_htp_run_of_slopes(const struct nd_htp_job *job);
/* Whether a reduction is over one axis, which may be negative. */
bool nd_htp_reduces_one_axis(const struct nd_exact_layer *layer, int64_t *axis);
/* The same; given: the axes that are an operand, or NULL. */
bool nd_htp_has_one_axis(const Onnx__NodeProto *node, int64_t opset, const struct nd_array *given,
                         int64_t *axis);

static inline int nd_htp_floor_log2(double v)
{
    int exponent;
    frexp(v, &exponent);
    return exponent - 1;
}

static inline double nd_htp_half_away(double v)
{
    return copysign(floor(fabs(v) + 0.5), v);
}

/* ---- qfloat.c ---- */

/* The 32-bit floats of HVX, the vector layer of the HTP, called qf32: what its float instructions give before
 * they are made IEEE floats. A significand is a whole number of units of 2^-23 and always odd, as its lowest
 * bit is not stored. docs/science/htp-arithmetic.md#qfloat. */

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
static inline struct nd_qfloat nd_qfloat_minus(struct nd_qfloat a)
{
    a.significand = -a.significand;
    return a;
}
double nd_qfloat_value(struct nd_qfloat a);

/* A whole number as a qf16 that is not normalised: a unit is 1, so that a multiple of four becomes one more. */
struct nd_qfloat nd_qhalf_of_whole(double n);
/* a + weight (b - a) of float16 numbers, each step a qf16: as a qf32, with units of 2^-10. */
float nd_qhalf_between(float a, float b, float weight);

/* Quantised values as float16. */

/* To a float16 with all bits, whatever its exponent; a zero keeps the sign. */
double nd_htp_round_to_half(double v, enum nd_rounding rounding);
/* To float16, not within its greatest; a zero keeps the sign. */
double nd_htp_as_half(double v, enum nd_rounding rounding);
enum { ND_HTP_MAX_OF_HALF = 65504, ND_HTP_VECTOR_BYTES = 128 /* of an HVX register */ };
/* A float16 in steps of a scale, whose inverse is a float32: a qf32. */
double nd_htp_steps_of_half(double v, float inverse);
/* The quantised value of the layer's output that a number becomes, which is first made a float16; not within
 * its bounds. is_down: of uint8, rounded down. */
double nd_htp_qvalue_of_half(const struct nd_htp_job *job, double value, bool is_down);

/* The float16 that an operator on floats reads of quantised value i of an input with one scale. */
double nd_htp_half_of_qvalue(const struct nd_linear_input *input, size_t i);

/* ---- memory.c ---- */

struct nd_htp_weights;

/* What a tensor is as signed 8-bit numbers, NULL where it is not known; and telling it, which takes the array.
 */
const struct nd_array *nd_htp_recall(const struct nd_htp_job *job, size_t i);
const struct nd_array *nd_htp_recall_tensor(const struct nd_layer_memory *memory, size_t tensor,
                                            enum nd_htp_arch arch);
/* Whether a product reads the tensor as it reads inputs of the graph: it makes the quantised values fit 8
 * signed bits, column by column; and noting what is so of the tensor that a layer makes. */
bool nd_htp_is_plain_tensor(const struct nd_layer_memory *memory, size_t tensor);
/* Whether what the memory has of the tensor is from a Gemm or MatMul, and so another thing for another program.
 */
bool nd_htp_is_summed_tensor(const struct nd_layer_memory *memory, size_t tensor);
void nd_htp_note_tensor(struct nd_layer_memory *memory, const struct nd_exact_layer *layer);
/* Whether input i lies in the layout of a Conv, as far as the operators before it say; false without a memory.
 */
bool nd_htp_is_laid_out(const struct nd_htp_job *job, size_t i);
bool nd_htp_lies_flat(const struct nd_layer_memory *memory, size_t tensor); /* none of the graph's inputs */
/* Input i lay so, and a Reshape put the rows of each plane behind one another. */
bool nd_htp_is_merged(const struct nd_htp_job *job, size_t i);
/* What made input i writes blocks, as far as moves of uint8 that keep the order read them. */
bool nd_htp_is_in_blocks(const struct nd_htp_job *job, size_t i);
/* A Softmax made input i, also where it was moved about since. */
bool nd_htp_is_share(const struct nd_htp_job *job, size_t i);
/* In which layout input i of the layer is: those of the graph are flat. */
enum nd_htp_layout nd_htp_layout_of(const struct nd_layer_memory *memory, const struct nd_exact_layer *layer,
                                    size_t i);
/* Whether v73 makes the layer, a LeakyRelu or a HardSwish, with the Gemm or MatMul before it, in a way that is
 * not known here; false without a memory. */
bool nd_htp_is_made_with_matrix(const struct nd_htp_job *job);
/* The weights of the layer, if they are constant and were kept; and keeping them, which takes them over and
 * gives where they are now. */
const struct nd_htp_weights *nd_htp_recall_weights(const struct nd_htp_job *job);
const struct nd_htp_weights *nd_htp_keep_weights(const struct nd_htp_job *job, struct nd_htp_weights *weights);
void nd_htp_weights_deinit(struct nd_htp_weights *weights);
void nd_htp_remember(const struct nd_htp_job *job, struct nd_array *bytes);
/* The float16 that a chain made of the tensor before it was quantised, which the next chain reads; NULL: none.
 * Telling those of the layer; and of a layer that adds next to nothing to such a tensor. */
const struct nd_array *nd_htp_recall_halves(const struct nd_htp_job *job, size_t tensor);
enum nd_status nd_htp_remember_halves(const struct nd_htp_job *job, const struct nd_array *halves,
                                      struct nd_error *err);
enum nd_status nd_htp_hand_on_halves(const struct nd_htp_job *job, struct nd_error *err);
/* What the device has of a uint8 tensor where what reads it is made with its maker
 * (docs/science/htp-arithmetic.md#two-tables), and not of the quantised values that are recorded. */
enum nd_htp_before {
    ND_HTP_BEFORE_ROUNDING, /* of a product with a number: in real numbers, which functions read */
    ND_HTP_BEFORE_FACTOR,   /* of a Mul by a number: what was multiplied, which a Softmax reads in another scale
                             */
    ND_HTP_BEFORE_TABLE,    /* of a sum with a number in parts, which is no table then: quantised values */
    ND_HTP_N_BEFORE,
};
/* A copy of a job, which reads other quantised values than its own. */
enum { ND_HTP_REPLACED_INPUTS = 2 };
struct nd_htp_replaced {
    struct nd_htp_job job;
    struct nd_linear_call call;
    struct nd_linear_input inputs[ND_HTP_REPLACED_INPUTS];
};
/* Makes it, for the caller to change its inputs, of which there are two at most. Not to be copied. */
void nd_htp_replace(const struct nd_htp_job *job, struct nd_htp_replaced *other);
/* Reads what ND_HTP_BEFORE_TABLE has; with more inputs, or without it, the job itself. */
const struct nd_htp_job *nd_htp_read_before_table(const struct nd_htp_job *job, struct nd_htp_replaced *other);
/* Of input i; NULL: none. Telling those of the layer: takes the values. */
const struct nd_array *nd_htp_recall_before(const struct nd_htp_job *job, size_t i, enum nd_htp_before kind);
void nd_htp_remember_before(const struct nd_htp_job *job, enum nd_htp_before kind, struct nd_array *values);
/* The scale of ND_HTP_BEFORE_FACTOR; telling that of the layer. */
float nd_htp_scale_before(const struct nd_htp_job *job, size_t i);
void nd_htp_note_scale(const struct nd_htp_job *job, float scale);
/* Whether a product of input i with a number is ND_HTP_LAYOUT, not ND_HTP_FIXED. */
bool nd_htp_is_rounded_in_layout(const struct nd_htp_job *job, size_t i);
/* What made input i is a table, with which a Mul or Div of it is one table; and saying so of the layer. */
struct nd_htp_table_note {
    bool is_known, of_mul, of_div; /* is_known: whether they are */
};
struct nd_htp_table_note nd_htp_table_note_of(const struct nd_htp_job *job, size_t i);
void nd_htp_note_table(const struct nd_htp_job *job, struct nd_htp_table_note note);
/* Whether an operator that moves quantised values hands on what the memory has of them. */
bool nd_htp_keeps_memory(const char *op_type);

/* What a product reads of an Add, Gemm, MatMul or Sub of uint8 whose zero point is near 128: signed numbers,
 * made with the zero point 128. job is the one to run for them; bytes are its quantised values, owned. Not to
 * be copied.
 */
struct nd_htp_signed {
    struct nd_htp_job job;
    struct nd_linear_call call;
    struct nd_quant quant;
    int64_t zero;
    struct nd_array bytes;
    bool is_covered;
};
/* False: products read the quantised values of the layer, or it is not known. */
bool nd_htp_signed_init(struct nd_htp_signed *made, const struct nd_htp_job *job);
/* Takes the bytes: those of the tensor that `job` makes. */
void nd_htp_signed_remember(struct nd_htp_signed *made, const struct nd_htp_job *job);

/* ---- rescale.c ---- */

/* How uint8 quantised values become those of another encoding. */
enum nd_htp_method {
    ND_HTP_FIXED,       /* with a 15-bit multiplier, as Slice and Transpose do */
    ND_HTP_LAYOUT,      /* the same where tensors lie in the layout of Conv, as of GlobalMaxPool */
    ND_HTP_HALVES,      /* by way of real values in float16, as MaxPool and Gather do */
    ND_HTP_HALVES_DOWN, /* the same, rounded down: the rest of a run that does not fill a vector */
    ND_HTP_HALF, /* by a quotient of scales, the product rounded to float16: Reshape that moves nothing, flat */
    ND_HTP_WHOLE_HALF, /* by way of qf16 numbers that are not normalised: the same in blocks */
};
struct nd_htp_rescaling {
    enum nd_htp_method method;
    double ratio, more;    /* rounded to its bits; what is added before the floor beside the half */
    double scale, inverse; /* ND_HTP_HALVES, ND_HTP_WHOLE_HALF */
};
/* False: scales beyond those of which it is known. */
bool nd_htp_rescaling_init(struct nd_htp_rescaling *r, enum nd_htp_method method, double scale,
                           double out_scale);
/* Whether ND_HTP_FIXED and ND_HTP_LAYOUT make the same of every byte, times the factor. */
bool nd_htp_is_rescaled_alike(const struct nd_quant *x, double factor, const struct nd_quant *y);
/* Of ND_HTP_HALVES: the float16 of a quantised value less its zero point, in real numbers. */
double nd_htp_half_of_byte(const struct nd_htp_rescaling *r, double n);
/* All quantised values with that zero point, times sign (1 or -1), as quantised values of the layer, clipped.
 */
void nd_htp_rescale_all(const struct nd_htp_job *job, const struct nd_htp_rescaling *r, double zero,
                        double sign, struct nd_array *qvalues);

/* uint16: y = (((d m + half) >> 15) + offset + 4) >> 3 */
enum {
    ND_HTP_LINE_BITS = 18,       /* of the multiplier, after the point */
    ND_HTP_LINE_QVALUE_BITS = 3, /* of the sum, after the point */
};
struct nd_htp_line16 {
    int64_t m, offset;
};
/* False: scales that are not known to be handled like this. */
bool nd_htp_line16_init(struct nd_htp_line16 *line, const struct nd_quant *x, const struct nd_quant *y,
                        bool is_negative);
int64_t nd_htp_follow_line16(const struct nd_htp_line16 *line, int64_t d);

/* Input 0 in the encoding of the output, in that way. */
enum nd_status nd_htp_rescale_input(const struct nd_htp_job *job, enum nd_htp_method method,
                                    struct nd_error *err);
/* A layer without an operator: another scale and zero point, and for uint8 and uint16 perhaps the other type.
 */
nd_htp_family nd_htp_requantise;
/* Input i times a number that is not zero. */
enum nd_status nd_htp_multiply_by(const struct nd_htp_job *job, size_t i, enum nd_htp_method method,
                                  double factor, struct nd_error *err);

/* ---- scaling.c ---- */

/* floor(c step (floor((a + beta) / step) + half) + 1/2) + zero: what a sum of products becomes. */
struct nd_htp_scaling {
    double beta, c, step, half, zero;
};
double nd_htp_scale(const struct nd_htp_scaling *scaling, double a, const struct nd_htp_bounds *bounds);
/* uint16: a sum of products with quantised values, not with what is left of them, loses 8 bits. correction: the
 * zero point of x times the sum of the weights. */
static inline double nd_htp_shorten(double sum, double correction)
{
    return floor((sum + correction) * 0x1p-8) - floor((correction + 128) * 0x1p-8);
}

/* With a HardSwish: n = floor((a + beta) / step) + 1/2, times a gate that is `middle` where the sum is 0, from
 * 0 to `top`. */
struct nd_htp_gate {
    double beta, step, fine_step, slope, middle, top, half, zero;
    double unit; /* of the product of n and the gate, in quantised values */
    double most; /* of n, of either sign */
};

/* What goes into the output channel of a column: the bias is a quantised value. */
struct nd_htp_column {
    double scale_x, scale_w, scale_y, zero_x, zero_y;
    double r, sum;
    double bias, bias_scale; /* bias_scale 0: no bias */
    /* Of all columns, where weights have scales per channel, else scale_w, and 0 */
    double largest_scale_w;
    float largest_bias_scale, largest_bias; /* see struct biases of linear.c */
    bool is_per_channel, is_wide;           /* is_wide: weights of 16 bits */
};
struct nd_htp_scaling nd_htp_scaling8(enum nd_htp_arch arch, const struct nd_htp_column *column);
/* Whether the multiplier is one of which it is known what becomes of the bias and the zero point. */
bool nd_htp_is_known_multiplier(enum nd_htp_arch arch, bool is_word, const struct nd_htp_column *column);
/* uint16: whether the shift of the multiplier does not fit 5 bits. */
bool nd_htp_multiplier_wraps(const struct nd_htp_column *column);
/* uint8: whether the bias, alone (v73) or with the zero point (v69), does not fit the 32 bits that are kept of
 * it. */
bool nd_htp_bias_wraps(const struct nd_htp_column *column);
struct nd_htp_scaling nd_htp_scaling16(enum nd_htp_arch arch, const struct nd_htp_column *column);
/* Of v73, with a HardSwish. False: a multiplier of which it is not known. */
bool nd_htp_gate_of(enum nd_dtype dtype, const struct nd_htp_column *column, struct nd_htp_gate *gate);
/* Of nd_htp_is_strided_depthwise: bias and zero point go into the sum, each rounded by itself. */
struct nd_htp_scaling nd_htp_scaling_strided(const struct nd_htp_column *column);

/* Of a sum that keeps all its bits, and weights that were not divided. */
struct nd_htp_scaling nd_htp_scaling_whole16(const struct nd_htp_column *column);

enum { ND_HTP_FACTOR_BITS = 15 };
/* m 2^(exponent - 15), m in 2^14 .. 2^15 - 1. */
struct nd_htp_factor {
    int64_t m;
    int exponent;
};
/* a / b as the provider has it: a times the inverse of b, each a float32. */
float nd_htp_quotient(float a, float b);
/* The factor next to value, half up. False: not positive. */
bool nd_htp_factor_init(struct nd_htp_factor *factor, float value);
/* value / 2^right, half up, or cut; right may be negative. */
int64_t nd_htp_shift(int64_t value, int right);
int64_t nd_htp_shift_cut(int64_t value, int right);

/* 2^14 / (1 + place 2^-16), nearly. */
enum { ND_HTP_PLACE_BITS = 16 };
int64_t nd_htp_inverse(int64_t place);

/* The sums of column k, without biases, become quantised values with what comes after them. False: a multiplier
 * of which it is not known. */
bool nd_htp_bend(const struct nd_htp_job *job, size_t k, const struct nd_htp_column *column, size_t n,
                 double *sums);

/* ---- weights.c ---- */

static inline bool nd_htp_is_transposed(const struct nd_htp_job *job)
{
    return strcmp(job->call->node->op_type, "ConvTranspose") == 0;
}

struct nd_htp_phases {
    size_t stride[2], padding[2]; /* by rows and columns; strides of 1 for everything but a ConvTranspose */
};
struct nd_htp_phases nd_htp_phases_of(const struct nd_htp_job *job);
/* Whether it is a depthwise Conv of uint8 that steps by 2 x 2 places, its kernel 3 x 3 or larger: the HTP makes
 * it in a way of its own, in which weights need not fit 8 bits. */
bool nd_htp_is_strided_depthwise(const struct nd_exact_layer *layer);
/* Of an element of the output. */
static inline size_t nd_htp_phase(const struct nd_htp_phases *phases, size_t row, size_t column)
{
    return (row + phases->padding[0]) % phases->stride[0] * phases->stride[1] +
           (column + phases->padding[1]) % phases->stride[1];
}
/* Whether attributes and weights of a ConvTranspose are such as there is evidence of. */
bool nd_htp_is_known_transposed(const struct nd_htp_job *job);

/* The second operand of a product as signed 8-bit weights, by column: all that goes into one output channel. */
struct nd_htp_weights {
    const struct nd_array *from; /* nd_linear_input.wholes that they were made of, or NULL */
    struct nd_array view;        /* of w8, which is the one or the other: */
    struct nd_array w8;          /* owned; empty where the packed weights fit as they are */
    int16_t *shorts; /* of w8, as nd_linear_input.shorts, where that was made of packed weights; else NULL */
    double largest;  /* of their magnitudes */
    size_t n_columns, n_rows, n_inner; /* see nd_htp_place */
    /* Of a ConvTranspose, else NULL: its columns are those of places from starts[column] to starts[column + 1]
     */
    size_t *places, *starts;
    size_t n_phases; /* 1, or the columns of each output channel: one for each phase of strides */
    double *r;       /* [n_columns] what the weights were divided by; 1 where they fit */
    double *sums;    /* [n_columns] of w8 */
    double scale;    /* of uint16 operands: of the 8-bit quantised values that they become; else 0 */
    bool is_wide;    /* of 16 bits */
};
/* *is_covered false: not weights that are known to be handled like this. Deinit in any case. */
enum nd_status nd_htp_weights_init(struct nd_htp_weights *weights, const struct nd_htp_job *job,
                                   struct nd_error *err);
/* The same of one weight that is a column of its own: what becomes of it, and what it was divided by. */
double nd_htp_fit_weight(double w, double *r);

static inline size_t nd_htp_n_rows(const struct nd_htp_weights *weights, size_t column)
{
    return weights->starts != NULL ? weights->starts[column + 1] - weights->starts[column] : weights->n_rows;
}

/* Where in view.x a column has its row. */
static inline size_t nd_htp_place(const struct nd_htp_weights *weights, size_t column, size_t row)
{
    if (weights->starts != NULL)
        return weights->places[weights->starts[column] + row];
    size_t n_inner = weights->n_inner;
    return column / n_inner * n_inner * weights->n_rows + column % n_inner + row * n_inner;
}

/* ---- linear.c ---- */

/* Whether operands, scales and attributes of the product are such as the arithmetics speak of; and whether it
 * is no uint16 depthwise one by steps of two, either. */
bool nd_htp_is_known_product(const struct nd_htp_job *job);
/* The scalings of all columns of a product with these weights, without the sums: *out[weights->n_columns] is
 * freed by the caller. *job->is_covered false: the arithmetic does not say it, and *out is left as it was. */
enum nd_status nd_htp_linear_scalings(const struct nd_htp_job *job, const struct nd_htp_weights *weights,
                                      struct nd_htp_scaling **out, struct nd_error *err);

/* ---- norm.c ---- */

nd_htp_family nd_htp_batch_norm, nd_htp_instance_norm;

/* ---- pool.c ---- */

/* Whether its windows neither overlap nor reach beyond the plane, and are 2 x 2 or 3 x 3. */
bool nd_htp_is_apart(const struct nd_linear_call *call);
/* How many places its windows have along either axis; 0: there is no such number. */
int64_t nd_htp_window_size(const struct nd_linear_call *call);
/* Whether it is an AveragePool that is made as a Conv is. */
bool nd_htp_averages_as_product(const struct nd_linear_call *call);

/* ---- chain.c ---- */

/* Whether the layer is made in float16: it has several operators, or one of operands of 8 and of 16 bits. */
bool nd_htp_is_chain(const struct nd_exact_layer *layer);

/* A layer of one operator and of what only names axes of what that makes. */
struct nd_htp_moved {
    struct nd_exact_layer layer;
    struct nd_linear_call call;
    enum nd_exact_origin origins[ND_EXACT_LINK_INPUTS];
    size_t tensors[ND_EXACT_LINK_INPUTS];
};

/* The operator of such a layer, as a layer of its own in `room`; what is no such layer is given back as it is.
 */
const struct nd_exact_layer *nd_htp_before_moves(const struct nd_exact_layer *layer, struct nd_htp_moved *room);
/* Its quantised values with the axes of the layer. */
enum nd_status nd_htp_name_axes(const struct nd_exact_layer *layer, struct nd_array *qvalues,
                                struct nd_error *err);

/* The floats of an operator between layers, each a float16; not covered where the device makes others. */
enum nd_status nd_htp_floats(const struct nd_htp_job *job, struct nd_error *err);

/* Whether it is not known in which order such an operator adds up its floats. */
bool nd_htp_doubts_floats(const struct nd_exact_layer *layer, const struct nd_layer_memory *memory);

/* ---- half_tables.c ---- */

/* What the device makes of each pattern of 16 bits, a float16 of a float16; NULL: not known of that operator,
 * or no memory. For as long as the program runs; threads may call at the same time. */
const uint16_t *nd_half_table(const char *op_type);
/* Of float16 numbers, in their place. False: one is beyond what was read out. */
bool nd_half_look_up(const uint16_t *table, struct nd_array *halves);

/* ---- halves.c ---- */

/* Whether it is an operator of halves.c: its first input is in floats. */
bool nd_htp_reads_floats(const struct nd_exact_layer *layer);

/* ---- move.c ---- */

/* Whether it is known how the Resize, between elements, is made of float16; and that: as qf16, not rounded to
 * float16 yet, in the place of exact numbers in `made`. False: these are not four times as many. */
bool nd_htp_is_half_resize(const struct nd_htp_job *job);
bool nd_htp_half_resize(const struct nd_array *halves, struct nd_array *made);

/* Whether the layer is a Reshape or the like of one uint8 tensor that moves nothing, into another encoding. */
bool nd_htp_is_still(const struct nd_htp_job *job, const struct nd_shape *out);

/* Whether v81 makes the layer in another way than v73: uint16 that is moved, and in another encoding. */
bool nd_htp_is_other_on_v81(const struct nd_exact_layer *layer);
