#include "explain/known/defects.h"

#include <string.h>

#include "core/text/strbuf.h"

/* ---- the table ---- */

/* Measured by tools/score_healthy on random networks, QAIRT 2.51.0 of the simulator; chips are wrong alike, but
 * for a convolution of seed 1018, which is on gen1 only. Convolutions: seeds 1018, 1020, 1021, 2003, 2029,
 * 2031, 3031; Softmax: one of 3000 to 3059, and 7710; Reciprocal: Magika of tools/zoo and 12 models of one
 * operator, the others: the study after these. What to do follows from the condition, and was not measured. */
static const struct nd_known_defect defects[] = {
    {.condition = ND_UNIT_DEPTHWISE_1X1,
     .sdk = "2.51.0",
     .archs = "gen1, gen3 and gen5 of the simulator",
     .what = "it computes depthwise 1x1 convolutions wrongly, by up to 90 % of the range",
     .remedy = "Replace the convolution by a Mul and an Add with one constant for each channel.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_CONSTANT, ND_FAULT_ALL_ZERO, ND_FAULT_CONSTANT_LINES,
               ND_FAULT_CHANNEL_SCALE, ND_FAULT_CHANNEL_ZERO_POINT, ND_FAULT_SCALE, ND_FAULT_ENCODING},
     .n_kinds = 8},
    {.condition = ND_UNIT_RESIZE_TO_FLOOR,
     .sdk = "2.51.0",
     .archs = "gen1, gen3 and gen5 of the simulator",
     .what = "it takes the wrong element in Resize with nearest, half_pixel and floor: values are off by up to "
             "the range",
     .remedy =
         "Export the Resize with another nearest_mode or with asymmetric coordinates, and explain that model.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_OTHER_PLACES, ND_FAULT_SHIFTED, ND_FAULT_AXIS_PERMUTATION},
     .n_kinds = 4},
    {.condition = ND_UNIT_MEAN_OF_PADDED,
     .sdk = "2.51.0",
     .archs = "gen1, gen3 and gen5 of the simulator",
     .what = "a mean after Pad leaves the padding out of its count: values are too large by the padded count "
             "over the other "
             "(100/64, 100/36)",
     .remedy = "Take the mean before the Pad, and multiply it by the share of the values that are not padding; "
               "of an AveragePool: "
               "leave the padding to it, with count_include_pad 1.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_SCALE, ND_FAULT_ENCODING, ND_FAULT_UNWRITTEN_WINDOW,
               ND_FAULT_CONSTANT, ND_FAULT_CHANNEL_SCALE, ND_FAULT_SATURATION, ND_FAULT_CONSTANT_LINES},
     .n_kinds = 8},
    {.condition = ND_UNIT_SOFTMAX_OF_EQUALS,
     .sdk = "2.51.0",
     .archs = "gen1, gen3 and gen5 of the simulator",
     .what = "it computes uint16 Softmax of nearly equal values wrongly: of nine such shares of 0.111 it makes "
             "0.059 or more than 0.112",
     .remedy = "Quantise this Softmax to uint8, or leave it in floats.",
     .kinds = {ND_FAULT_UNEXPLAINED},
     .n_kinds = 1},
    /* Measured with golden/found/concat.u8.onnx and sixteen others of its kind, and, with 16 bits, by seeds
     * 20036, 20049 and 20107 of tools/studies/strangers. */
    {.condition = ND_UNIT_CONCAT_WITH_INPUT,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1, gen3, gen4 and gen5 of the simulator",
     .what = "where a convolution reads a Concat of three tensors or more, it brings the codes of a "
             "model input there without rescaling them",
     .remedy = "Give the model's input the scale and zero point of the Concat.",
     .is_in_programs = true,
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_CHANNEL_SCALE, ND_FAULT_CHANNEL_ZERO_POINT, ND_FAULT_SCALE,
               ND_FAULT_ENCODING},
     .n_kinds = 5},
    {.condition = ND_UNIT_BIAS_WITHOUT_SIGN,
     .sdk = "2.51.0",
     .archs = "gen1, gen3 and gen5 of the simulator",
     .what = "a BatchNormalization has its greatest bias with the wrong sign, as a 32-bit code overflows",
     .remedy = "Fold the BatchNormalization into the convolution before it, or give its bias as uint8.",
     .is_in_programs = true,
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_CHANNEL_ZERO_POINT, ND_FAULT_CHANNEL_SCALE, ND_FAULT_ENCODING,
               ND_FAULT_ZERO_POINT},
     .n_kinds = 5},
    {.condition = ND_UNIT_CONCAT_OF_CLIPPED,
     .sdk = "2.51.0",
     .archs = "gen1, gen3 and gen5 of the simulator",
     .what =
         "uint16 Concat of inputs that are clipped reads single values as they were before they were clipped",
     .remedy = "Widen the ranges of its inputs, so that nothing is clipped.",
     .kinds = {ND_FAULT_UNEXPLAINED},
     .n_kinds = 1},
    {.condition = ND_UNIT_RECIPROCAL_OF_FINE,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1 to gen5 of the simulator",
     .what = "Reciprocal divides the number 1 as a code of its input, and where there is no such code, the "
             "greatest "
             "there is: values are too small by the quotient of the two",
     .remedy = "Multiply the Reciprocal's input by a constant, so that its scale is larger, and its output by "
               "the same constant.",
     .is_in_programs = true,
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_SCALE, ND_FAULT_ENCODING, ND_FAULT_ALL_ZERO, ND_FAULT_CONSTANT},
     .n_kinds = 5},
    {.condition = ND_UNIT_SUM_OF_TRANSPOSED,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1, gen3, gen4 and gen5 of the simulator",
     .what =
         "an Add of a constant for each channel, behind a ConvTranspose, adds the constant rounded to a whole "
         "number: those below 0.5 are lost",
     .remedy = "Give the constant to the ConvTranspose as its bias.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_ZERO_POINT, ND_FAULT_CHANNEL_ZERO_POINT, ND_FAULT_CHANNEL_SCALE,
               ND_FAULT_SCALE, ND_FAULT_ENCODING},
     .n_kinds = 6},
    {.condition = ND_UNIT_NORM_OF_SLICE,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen2 to gen5 of the simulator; gen1 is right",
     .what =
         "a BatchNormalization of columns that a Slice cut out of what a convolution made reads other places: "
         "rows become one value, others are wrong by up to the range",
     .remedy =
         "Put the BatchNormalization before the Slice, or replace it by a Mul and an Add with one constant "
         "for each channel.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_CONSTANT_LINES, ND_FAULT_CONSTANT, ND_FAULT_OTHER_PLACES,
               ND_FAULT_SHIFTED, ND_FAULT_AXIS_PERMUTATION},
     .n_kinds = 6},
    {.condition = ND_UNIT_POOL_OF_FLOATS,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1 to gen5 of the simulator",
     .what = "an AveragePool of floats whose padding is not counted reads other places for some sizes (8 "
             "channels of "
             "32 x 32): values are wrong by up to the range",
     .remedy = "Quantise the input of the AveragePool, or let it count its padding.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_CONSTANT_LINES, ND_FAULT_OTHER_PLACES, ND_FAULT_SHIFTED,
               ND_FAULT_AXIS_PERMUTATION},
     .n_kinds = 5},
    {.condition = ND_UNIT_CLIP_LEFT_OUT,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1 to gen5 of the simulator",
     .what = "it leaves out a Clip between quantisers, behind a convolution, Gemm, MatMul, Add, Sub or Mul: "
             "with 16 "
             "bits, and with 8 bits where it cuts at one end alone",
     .remedy = "Leave out the quantiser between the two layers, or let the range of the Clip's quantiser end "
               "where the "
               "Clip cuts.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_SCALE, ND_FAULT_ENCODING, ND_FAULT_ZERO_POINT,
               ND_FAULT_CHANNEL_SCALE, ND_FAULT_CHANNEL_ZERO_POINT},
     .n_kinds = 6},
    {.condition = ND_UNIT_BIAS_WRAPS,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1, gen3, gen4 and gen5 of the simulator",
     .what = "it keeps 32 bits of a bias of a uint8 convolution or Gemm, in steps of the sum and on gen1 with "
             "the zero point: a greater one wraps, so that a channel becomes 0 where it should be 255",
     .remedy = "Give the input or the weights of the layer a larger range, or fold a constant input away.",
     .is_in_programs = true,
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_ALL_ZERO, ND_FAULT_CONSTANT, ND_FAULT_CONSTANT_LINES,
               ND_FAULT_CHANNEL_ZERO_POINT, ND_FAULT_CHANNEL_SCALE, ND_FAULT_ENCODING, ND_FAULT_ZERO_POINT,
               ND_FAULT_CHANNEL_PERMUTATION, ND_FAULT_HARD_CLIFF},
     .n_kinds = 10},
    {.condition = ND_UNIT_GATHER_LOSES_LAST,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1, gen3, gen4 and gen5 of the simulator",
     .what =
         "a Gather of 32 rows or more of 8, 16 or 32 bytes each writes 0 in the place of the last row of its "
         "input",
     .remedy = "Append a row that no index takes (Concat), or make the rows wider than 32 bytes.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_CONSTANT_LINES, ND_FAULT_OTHER_PLACES, ND_FAULT_SHIFTED,
               ND_FAULT_UNWRITTEN_WINDOW, ND_FAULT_ALL_ZERO},
     .n_kinds = 6},
    {.condition = ND_UNIT_PAD_OF_KEPT,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1 to gen5 of the simulator",
     .what = "a Pad with mode reflect or edge takes over the codes of a model input, or of a SpaceToDepth or "
             "ReduceMax, without rescaling them",
     .remedy = "Give the output of the Pad the scale and zero point of its input.",
     .is_in_programs = true,
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_SCALE, ND_FAULT_ENCODING, ND_FAULT_ZERO_POINT,
               ND_FAULT_CHANNEL_SCALE, ND_FAULT_CHANNEL_ZERO_POINT},
     .n_kinds = 6},
    {.condition = ND_UNIT_CONCAT_OF_KEPT,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1 to gen5 of the simulator",
     .what = "a Concat takes over the codes of a SpaceToDepth, and of what a Transpose, Reshape, DepthToSpace "
             "or Pad brings from a model input, without rescaling them",
     .remedy = "Give that input of the Concat the scale and zero point of the Concat.",
     .is_in_programs = true,
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_SCALE, ND_FAULT_ENCODING, ND_FAULT_ZERO_POINT,
               ND_FAULT_CHANNEL_SCALE, ND_FAULT_CHANNEL_ZERO_POINT},
     .n_kinds = 6},
    {.condition = ND_UNIT_POOL_OF_PADDED,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1 to gen5 of the simulator",
     .what = "a MaxPool with padding of its own, behind a Pad of columns, reads other places in its first "
             "columns: single values are wrong by up to the range",
     .remedy = "Leave the padding to one of the two: give the Pad that of the MaxPool, too.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_CONSTANT_LINES, ND_FAULT_OTHER_PLACES, ND_FAULT_SHIFTED},
     .n_kinds = 4},
    {.condition = ND_UNIT_HARD_SWISH_IN_PARTS,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1, gen3, gen4 and gen5 of the simulator",
     .what = "x clip(x + 3, 0, 6) / 6 in single uint8 operators, of an input or behind a MatMul, adds the 3 in "
             "the first column "
             "only",
     .remedy = "Export a HardSwish, or give the MatMul its bias as a Gemm.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_SCALE, ND_FAULT_ENCODING, ND_FAULT_ZERO_POINT,
               ND_FAULT_CHANNEL_SCALE, ND_FAULT_CHANNEL_ZERO_POINT, ND_FAULT_CONSTANT_LINES, ND_FAULT_CONSTANT},
     .n_kinds = 8},
    {.condition = ND_UNIT_SOFTMAX_WITH_ZERO,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1, gen3 and gen5 of the simulator",
     .what = "a uint8 Softmax of three or more is written with the zero point 0, whatever the model says",
     .remedy = "Give the output of the Softmax the zero point 0.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_ZERO_POINT, ND_FAULT_CHANNEL_ZERO_POINT, ND_FAULT_ENCODING,
               ND_FAULT_SCALE, ND_FAULT_ALL_ZERO, ND_FAULT_CONSTANT},
     .n_kinds = 7},
    {.condition = ND_UNIT_MEAN_OF_SHIFTED,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1 to gen5 of the simulator",
     .what = "an AveragePool reads other places where a Slice cut columns off what a convolution or MaxPool "
             "made, or a Pad "
             "added rows or columns to it: it begins at a multiple of 8",
     .remedy = "Begin the Slice at a multiple of 8 columns, let the AveragePool do the padding, or replace it "
               "by a depthwise Conv.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_OTHER_PLACES, ND_FAULT_SHIFTED, ND_FAULT_CONSTANT_LINES,
               ND_FAULT_AXIS_PERMUTATION},
     .n_kinds = 5},
    {.condition = ND_UNIT_SWISH_WRAPS,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen2 to gen5 of the simulator; gen1 is right",
     .what = "a HardSwish of what a Gemm or MatMul made keeps 15 bits of the sum (uint16: 27): one of more "
             "than about "
             "twice the range of the output wraps",
     .remedy = "Give the HardSwish a larger range, or put a Clip before it.",
     .is_in_programs = true,
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_SATURATION},
     .n_kinds = 2},
    {.condition = ND_UNIT_TANH_OF_ROWS,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1, gen3, gen4 and gen5 of the simulator",
     .what = "a uint16 Tanh of 16 rows that a MatMul made takes every second pair of rows, and does not write "
             "the last "
             "eight",
     .remedy = "Give the Tanh another number of rows, or quantise it to uint8.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_OTHER_PLACES, ND_FAULT_SHIFTED, ND_FAULT_UNWRITTEN_WINDOW,
               ND_FAULT_CONSTANT_LINES, ND_FAULT_STALE, ND_FAULT_AXIS_PERMUTATION},
     .n_kinds = 7},
    {.condition = ND_UNIT_SILU_RACES,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1 to gen5 of the simulator",
     .what = "blocks of a uint16 x * Sigmoid(x) behind a convolution change from run to run where the height "
             "is no multiple "
             "of 8",
     .remedy = "Quantise the Sigmoid and the product to uint8, or pad the height to a multiple of 8.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_OTHER_PLACES, ND_FAULT_SHIFTED, ND_FAULT_UNWRITTEN_WINDOW,
               ND_FAULT_CONSTANT_LINES, ND_FAULT_STALE, ND_FAULT_CHANNEL_PERMUTATION, ND_FAULT_FIRST_LAUNCH,
               ND_FAULT_FLIPS},
     .n_kinds = 9},
    {.condition = ND_UNIT_PAD_OF_PAD,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1, gen3, gen4 and gen5 of the simulator",
     .what = "a Pad behind a Pad is recorded with single values in its padding that no layer reads",
     .remedy = "Make one Pad of the two.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_WRONG_RECORD, ND_FAULT_UNWRITTEN_WINDOW, ND_FAULT_OTHER_PLACES,
               ND_FAULT_CONSTANT_LINES, ND_FAULT_SHIFTED},
     .n_kinds = 6},
    {.condition = ND_UNIT_DEPTH_OF_KEPT,
     .sdk = "2.51.0",
     .older_sdk = "2.50.40",
     .archs = "gen1, gen3 and gen5 of the simulator",
     .what = "a SpaceToDepth, or a DepthToSpace of a model input, takes over the codes without rescaling them",
     .remedy = "Give its output the scale and zero point of the model's input.",
     .kinds = {ND_FAULT_UNEXPLAINED, ND_FAULT_SCALE, ND_FAULT_ENCODING, ND_FAULT_ZERO_POINT,
               ND_FAULT_CHANNEL_SCALE, ND_FAULT_CHANNEL_ZERO_POINT},
     .n_kinds = 6},
};

_Static_assert(sizeof defects / sizeof *defects == ND_N_UNIT_CONDITIONS, "every condition has its defect");

const struct nd_known_defect *nd_known_defect_of(const struct nd_model *model, const struct nd_exact_unit *unit)
{
    const struct nd_known_defect *found = NULL; /* the first, or the first that predicts values */
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++)
        if ((found == NULL || (!found->is_in_programs && defects[i].is_in_programs)) &&
            nd_unit_is(model, unit, defects[i].condition))
            found = &defects[i];
    return found;
}

const struct nd_known_defect *nd_known_defect_with(enum nd_unit_condition condition)
{
    size_t i = 0;
    while (defects[i].condition != condition) /* every condition has its defect */
        i++;
    return &defects[i];
}

size_t nd_known_defect_index(const struct nd_known_defect *defect)
{
    return defect != NULL ? (size_t)(defect - defects) : SIZE_MAX;
}

const struct nd_known_defect *nd_known_defect_at(size_t index)
{
    return index < sizeof defects / sizeof *defects ? &defects[index] : NULL;
}

bool nd_known_defect_shows_as(const struct nd_known_defect *defect, enum nd_fault_kind kind)
{
    for (size_t i = 0; i < defect->n_kinds; i++)
        if (defect->kinds[i] == kind)
            return true;
    return false;
}

/* ---- what is said ---- */

/* "2.51.0" of what an import states, or of the runtime "qairt-2.51.0"; NULL: nobody says it. */
static const char *sdk_of(const struct nd_capture *capture)
{
    static const char prefix[] = "qairt-";
    const char *stated = nd_capture_string(capture, "runtime", "sdk_version");
    const char *id = nd_capture_string(capture, "runtime", "id");
    if (stated != NULL && stated[0] != '\0')
        return stated[0] == 'v' ? stated + 1 : stated;
    return id != NULL && strncmp(id, prefix, sizeof prefix - 1) == 0 ? id + sizeof prefix - 1 : NULL;
}

/* "2.51.0" and "2.51.0.251014" are of one release. */
static bool is_release(const char *sdk, const char *release)
{
    size_t n = strlen(release);
    return strncmp(sdk, release, n) == 0 && (sdk[n] < '0' || sdk[n] > '9');
}

char *nd_known_defect_text(const struct nd_known_defect *defect, const struct nd_capture *capture)
{
    struct nd_strbuf text = {0};
    const char *sdk = sdk_of(capture);
    nd_strbuf_printf(&text, "a known defect of QAIRT %s%s%s (measured on %s): %s",
                     defect->older_sdk != NULL ? defect->older_sdk : "",
                     defect->older_sdk != NULL ? " and " : "", defect->sdk, defect->archs, defect->what);
    if (sdk == NULL)
        nd_strbuf_printf(&text, "; the capture does not say which SDK made it");
    else if (!is_release(sdk, defect->sdk) &&
             !(defect->older_sdk != NULL && is_release(sdk, defect->older_sdk)))
        nd_strbuf_printf(&text, "; this capture was made with %s, which was not measured", sdk);
    return nd_strbuf_take(&text);
}
