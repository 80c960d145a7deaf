/* What byte_find.c finds out about units, and byte_unit.c uses. */
#ifndef ND_EVAL_BYTE_INTERNAL_H
#define ND_EVAL_BYTE_INTERNAL_H

#include "eval/byte_unit.h"
#include "eval/graph_internal.h"
#include "operators/conv_blocks.h"
#include "operators/gemm_kernels.h"

enum nd_byte_kind {
    ND_BYTE_SLOW,  /* by the evaluation in doubles */
    ND_BYTE_TABLE, /* of one or two codes, element by element */
    ND_BYTE_CONV,
};

/* Codes that are rounded at once: they stay in the first cache; chosen. */
enum { ND_BYTE_ROOM = 2048 };

struct nd_byte_conv {
    size_t weights; /* the tensor: of graph->shorts */
    size_t n_groups, n_in, n_out, n_samples;
    struct nd_window window;
    struct nd_short_range range;
    int zero;              /* of the input, as a byte */
    struct nd_quick lines; /* of all channels, without sums */
    float *floats;         /* the weights, of convolutions of one plane each; else NULL */
};

struct nd_byte_unit {
    size_t quantize, edge;            /* the node, and what it makes */
    size_t *edges, *leaves, n_inputs; /* what it reads, and the tensors of those */
    size_t *touched, n_touched;       /* tensors between */
    enum nd_byte_kind kind;
    uint8_t *table; /* [256] or [256][256] */
    struct nd_byte_conv conv;
};

struct nd_byte_units {
    const struct nd_exact_graph *graph;
    struct nd_shape *shapes; /* [n_edges] */
    struct nd_byte_unit *units;
    size_t n;
};

struct nd_byte_runner {
    const struct nd_byte_units *units;
    struct nd_exact_run run;
    double codes[ND_BYTE_ROOM];
};

/* byte_find.c: kind, and what belongs to it, of a unit whose inputs are known. *table_bytes: of all units. */
enum nd_status nd_byte_prepare(struct nd_byte_runner *runner, struct nd_byte_unit *unit, size_t *table_bytes,
                               struct nd_error *err);
/* byte_unit.c: forgets what the run has of the unit. */
void nd_byte_runner_clear(struct nd_byte_runner *runner, const struct nd_byte_unit *unit);

#endif
