/* What byte_layer.c finds out about layers, and byte_conv.c uses. */
#pragma once

#include "arithmetic/exact/bytes/byte_layer.h"
#include "arithmetic/exact/graph_internal.h"
#include "arithmetic/operators/kernels/conv_bytes.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"

enum nd_byte_kind {
    ND_BYTE_SLOW,  /* by the evaluation in doubles */
    ND_BYTE_TABLE, /* of one or two quantised values, element by element */
    ND_BYTE_CONV,
    ND_BYTE_MOVE, /* quantised values of the inputs in other places, each by its table */
};

enum {
    ND_BYTE_ROOM =
        512 /* quantised values that are rounded at once, and again where one is near a tie; chosen */
};

struct nd_byte_conv {
    size_t weights; /* the tensor: of graph->shorts */
    size_t n_groups, n_in, n_out, n_samples;
    struct nd_window window;
    struct nd_short_range range;
    int zero;                     /* of the input, as a byte */
    struct nd_quick lines;        /* of all channels, without sums */
    float *floats;                /* the weights, of convolutions of one plane each; else NULL */
    struct nd_byte_weights bytes; /* of others; without quads: there is no room, or they do not fit bytes */
};

/* n quantised values of the input that follow each other from there on. */
struct nd_byte_run {
    uint32_t from, n;
    uint32_t input;
};

struct nd_byte_layer {
    size_t quantize, tensor;            /* the node, and what it makes */
    size_t *tensors, *leaves, n_inputs; /* what it reads, and the tensors of those */
    size_t *touched, n_touched;         /* tensors between */
    bool reads_input;                   /* of the graph, without a quantiser before */
    enum nd_byte_kind kind;
    uint8_t *table;           /* [256] or [256][256]; of ND_BYTE_MOVE [n_inputs][256] */
    struct nd_byte_run *runs; /* of ND_BYTE_MOVE, in the order of the output */
    size_t n_runs;
    struct nd_byte_conv conv;
};

struct nd_byte_layers {
    const struct nd_exact_graph *graph;
    struct nd_shape *shapes; /* [n_edges] */
    struct nd_byte_layer *layers;
    size_t n;
};

struct nd_byte_runner {
    const struct nd_byte_layers *layers;
    struct nd_exact_run run;
    double qvalues[ND_BYTE_ROOM];
    size_t left_bytes; /* for tables, while layers are found */
};
