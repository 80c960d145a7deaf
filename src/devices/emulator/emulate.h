/* Emulated devices: the exact layers of a quantised model, rounded by other arithmetics, and with faults. What
 * is wrong with such a device is known, so that what finds faults can be measured.
 *
 * A device is a list of items, word[.OPTYPE][@TENSOR][=VALUE], separated by commas. TENSOR is the name of a
 * layer's tensor (as `npudiff info --list` lists them; it may hold '/', '.' and '@', never ',' or '='), OPTYPE
 * one of the operators of a layer, ARITHMETIC a rounding rule (arithmetic/exact/linear/rounding.h),
 * stochastic:SEED, one of arithmetic/arithmetics/arithmetics.h (those that work on an accumulator leave layers
 * without one to half-even), or one of whole layers of arithmetic/htp/htp.h, as htp-v73, which the twin of such
 * a chip makes (arithmetic/trials/twin.h): what that does not know is half-even. Faults of values then move its
 * quantised value as they move the one that is rounded half to even; what it makes of fractions is not known:
 * its layers cannot read a tensor that is fused.
 *
 *     round=ARITHMETIC, round.OPTYPE=ARITHMETIC, round@TENSOR=ARITHMETIC   the most specific counts, of equals
 *                                      the last; an arithmetic alone is short for round=ARITHMETIC, half-even
 *                                      is the default
 *     fallback=OPTYPE, fallback@TENSOR rounded by float32
 *     fuse@TENSOR                      its requantisation is skipped: what reads it reads the value before
 *                                      rounding, clipped to the range of the type; the tensor itself shows the
 *                                      rounded values
 *     stale@TENSOR                     the values of the sample before, over all probes; the first sample has
 *                                      its own
 *     zero-point@TENSOR=CHANNEL:AMOUNT another zero point; CHANNEL is a number or '*'
 *     scale@TENSOR=CHANNEL:FACTOR      the value is multiplied before it is rounded
 *     saturate@TENSOR=BITS, wrap@TENSOR=BITS   the accumulator of a Conv, Gemm or MatMul is a signed integer of
 *                                      BITS bits. Of a layer with Relu or Clip inside, what these leave is
 *                                      looked at
 *     permute@TENSOR=SEED              channels are permuted, none stays where there are two
 *     flip@TENSOR=PROBABILITY          values are one more or less, in every run others
 *     window@TENSOR=FIRST:COUNT        elements that are not written: 0
 *     zero@TENSOR                      every value is the zero point
 *     shift@TENSOR=N                   element i is what element i + N should be, around the end
 *     transpose@TENSOR                 NHWC order in the place of NCHW; of rank 3, the last two axes
 *     clamp@TENSOR=LOW:HIGH            values are clipped to LOW..HIGH
 *     cliff@TENSOR=VALUE               values above VALUE become the zero point
 *     seed=N                           of flips (1)
 *
 * Channels lie along the axis of the scales where there is one per channel, else along axis 1 of tensors of
 * rank 4 and of convolutions, else along the last axis. Several faults of one tensor follow each other: another
 * arithmetic, then those of values (scale, zero-point, saturate, wrap), then those of quantised values, each in
 * the order of the list. What reads a faulty tensor reads the faulty values.
 *
 * Randomness depends on seeds, the tensor's name, the number of the sample (flip: and of the repeat) and the
 * element alone: the same device makes the same values again. */
#pragma once

#include "arithmetic/arithmetics/arithmetics.h"
#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/htp/htp.h"
#include "core/text/strbuf.h"

enum nd_emu_word {
    ND_EMU_ROUND,
    ND_EMU_FALLBACK,
    ND_EMU_FUSE,
    ND_EMU_STALE,
    ND_EMU_ZERO_POINT,
    ND_EMU_SCALE,
    ND_EMU_SATURATE,
    ND_EMU_WRAP,
    ND_EMU_PERMUTE,
    ND_EMU_FLIP,
    ND_EMU_WINDOW,
    ND_EMU_ZERO,
    ND_EMU_SHIFT,
    ND_EMU_TRANSPOSE,
    ND_EMU_CLAMP,
    ND_EMU_CLIFF,
    ND_EMU_SEED,
};

struct nd_emu_arithmetic {
    struct nd_rounding_rule rule; /* unless it is stochastic */
    bool is_stochastic;           /* rounded up with the probability of the fraction */
    bool is_of_table;             /* another one, arithmetic */
    struct nd_arithmetic arithmetic;
    uint64_t seed;
    const struct nd_layer_arithmetic *layer; /* or this one, of whole layers; layers that it does not cover are
                                           rounded half to even */
};

struct nd_emu_item {
    enum nd_emu_word word;
    char *text;                          /* as it was given */
    char *tensor;                        /* NULL: all, or those of op_type */
    char *op_type;                       /* NULL: all, or tensor */
    struct nd_emu_arithmetic arithmetic; /* of round and fallback */
    int64_t channel;                     /* -1: all */
    int64_t first, second;               /* FIRST:COUNT, LOW:HIGH; first alone: AMOUNT, BITS, N, CODE */
    double real;                         /* FACTOR, PROBABILITY */
    uint64_t seed;
};

struct nd_emulation {
    struct nd_emu_item *items;
    size_t n, capacity;
    uint64_t seed;
};

/* Adds one item to a zeroed or used emulation. ND_ERR_USAGE (ND_E_DEVICE_PROFILE), the message says what the
 * word takes; ND_ERR_MEMORY. The emulation is to be deinitialised in any case. */
enum nd_status nd_emulation_add(struct nd_emulation *emulation, const char *item, struct nd_error *err);

/* A whole list. *out needs nd_emulation_deinit on success only. */
enum nd_status nd_emulation_parse(const char *text, struct nd_emulation *out, struct nd_error *err);

/* The list as nd_emulation_parse reads it, freed by the caller; NULL when memory is out. */
char *nd_emulation_text(const struct nd_emulation *emulation);
void nd_emulation_deinit(struct nd_emulation *emulation);

/* Whether the model has what the items name. ND_E_MODEL_NO_TENSOR: no such tensor, the message names near ones;
 * ND_E_DEVICE_PROFILE: a tensor that is no layer, no such operator, a channel or window outside of the tensor,
 * a fault that this layer cannot have. */
enum nd_status nd_emulation_check(const struct nd_emulation *emulation, const struct nd_model *model,
                                  struct nd_error *err);

/* One device at work on one model. Not thread safe. */
struct nd_emulator;

struct nd_emulator_options {
    size_t struct_size;
    const char *const *names; /* [n_edges] what tensors are called, or NULL: as the model does */
    bool is_partial;  /* the model is a part of the one that was checked: items without their tensor are left
                         out */
    size_t n_repeats; /* runs of one sample that follow each other; 0: 1 */
};

/* The model and the graph, which was made of it, are borrowed. Errors as of nd_emulation_check. */
enum nd_status nd_emulator_create(const struct nd_emulation *emulation, const struct nd_model *model,
                                  const struct nd_exact_graph *graph, const struct nd_emulator_options *options,
                                  struct nd_emulator **out, struct nd_error *err);
void nd_emulator_destroy(struct nd_emulator **emulator);

/* The next run, as nd_exact_graph_run. found is told what the device shows. Samples are counted: after
 * n_repeats runs comes the next one. */
enum nd_status nd_emulator_run(struct nd_emulator *emulator, const struct nd_array *inputs,
                               nd_exact_found *found, void *context, struct nd_error *err);

/* One fault of one layer whose quantised values do not follow from its input quantised values under the
 * arithmetic that is usual for its operator; of fuse, a reader of the fused tensor. */
struct nd_emu_truth {
    const char *tensor; /* borrowed */
    const char *kind;   /* the word; "rounding" for round@TENSOR. Static */
    uint64_t n_changed; /* quantised values that the fault changed, over all runs: against the same layer on the
                           same inputs, without this fault and those that come after it */
};
/* In graph order; valid until the next run. */
const struct nd_emu_truth *nd_emulator_truth(const struct nd_emulator *emulator, size_t *n);

/* ---- the profile of an emulated device, from its URI or from a file ---- */

/* What a profile file said, for the capture. */
struct nd_profile_file {
    char *text; /* NULL: the profile was in the URI */
    char sha256[65];
};

/* `what` follows "emu:" in the URI: items, or the path of a .yaml or .yml file, a mapping of `items` (a list of
 * texts) and `seed`. ND_E_DEVICE_PROFILE: the message says what is wrong, of a file with line and column;
 * ND_E_FILE_OPEN, ND_E_FILE_READ. Both are the caller's on success. */
enum nd_status nd_profile_read(const char *what, struct nd_emulation *out, struct nd_profile_file *file,
                               struct nd_error *err);
