/* What the files of emulated devices share: emulate_items.c reads items, emulate_make.c finds what they mean in
 * a model and makes the device, emulate.c runs it and has the faults that work on quantised values. */
#pragma once

#include "arithmetic/trials/layer_trial.h"
#include "arithmetic/trials/twin.h"
#include "devices/emulator/emulate.h"

/* What is wrong with one tensor. */
struct nd_emu_layer {
    bool is_layer;
    const struct nd_emu_arithmetic *usual;      /* of its operator; NULL: half-even */
    const struct nd_emu_arithmetic *arithmetic; /* its own */
    enum nd_emu_word arithmetic_word;           /* where that is another one: ND_EMU_ROUND or ND_EMU_FALLBACK */
    const struct nd_emu_item **faults;          /* [n_faults] in the order in which they work */
    size_t n_faults;
    bool is_fused;
    bool reads_fused;
};

struct nd_emu_binding {
    struct nd_emu_layer *layers; /* [n_edges] */
    size_t n_tensors;
};

/* As it is written in an item. Static. */
const char *nd_emu_word_name(enum nd_emu_word word);

/* Whether the two round alike. NULL is half-even. */
bool nd_emu_is_same_arithmetic(const struct nd_emu_arithmetic *a, const struct nd_emu_arithmetic *b);

/* Whether the fault works on quantised values; the others work on values before they are rounded. */
bool nd_emu_is_of_qvalues(enum nd_emu_word word);

/* Whether op_type is one of those that are joined by '+', or all of them. */
bool nd_emu_has_operator(const char *op_types, const char *op_type);

/* The channels of a tensor: element i is of channel i / n_inner % n. */
struct nd_emu_channels {
    size_t n, n_inner;
};
struct nd_emu_channels nd_emu_channels_of(const struct nd_quant *quant, const struct nd_shape *shape,
                                          const char *op_types);

/* ---- a device (emulate_make.c makes it, emulate.c runs it) ---- */

/* What is kept of a tensor from one call to the next. */
struct nd_emu_tensor {
    struct nd_array shown;  /* of a fused tensor: the quantised values that it would have had */
    struct nd_array plain;  /* of a reader of one: what its arithmetic made of what it read */
    struct nd_array now;    /* of a stale tensor: what this sample should have given */
    struct nd_array before; /* and the sample before */
    struct nd_wide *steps;  /* [n_steps] of its accumulator, where that is at fault */
    size_t n_steps;
    size_t first_truth;
    struct nd_array made[2]; /* by arithmetics of units: the usual one, and its own where that is another */
};

struct nd_emulator {
    const struct nd_model *model;
    const struct nd_exact_graph *graph;
    struct nd_emu_binding binding;
    struct nd_emu_tensor *tensors; /* [binding.n_edges] */
    const char **names;
    struct nd_emu_truth *truth;
    size_t n_truth;
    bool has_fused;
    struct nd_array *seen; /* [n_edges] the quantised values of the run, where something is fused */
    bool *is_seen;         /* [n_edges]: need not be computed in the second run */
    bool is_recounting;    /* the second run: readers of fused tensors, on quantised values */
    uint64_t seed, n_repeats, n_runs;
    uint64_t
        n_again;   /* how often the run at hand repeats the one before it, beyond n_repeats; 0: it does not */
    bool is_again; /* the next run does */
    struct nd_twin
        *twins[ND_MAX_LAYER_ARITHMETICS]; /* as nd_layer_arithmetics; NULL: nobody asked for it yet */
    nd_exact_found *found;
    void *context;
};

/* ---- randomness ---- */

/* ---- faults of quantised values ---- */

/* One run of one tensor. */
struct nd_emu_scene {
    const struct nd_emu_item *item;
    const char *name;
    const struct nd_exact_values *values;
    struct nd_emu_channels channels;
    uint64_t seed; /* of the device */
    uint64_t run;
    const struct nd_array *before; /* the quantised values of the sample before; n 0: there is none */
};
