/* Where each node of a model ran, as a capture says.
 *
 * Every function is thread safe, and what it returns does not change.
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_PLACEMENT_H
#define NPUDIFF_PLACEMENT_H

#include "npudiff/capture/capture.h"
#include "npudiff/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum nd_where {
    ND_WHERE_UNKNOWN, /* nothing that was recorded tells */
    ND_WHERE_NPU,
    ND_WHERE_OFF, /* on another provider */
};

/* "unknown", "npu", "off". Static storage. */
ND_PUBLIC const char *nd_where_name(enum nd_where where);

/* A node of the model, or one that the runtime or provider added. */
struct nd_placed_node {
    const char *name;
    const char *op_type;
    const char *domain;
    const char *provider;   /* "" unknown */
    const char *renamed_to; /* what the assignment calls it, where that is another name; else "" */
    enum nd_where where;
    size_t model_node;       /* index in the model; SIZE_MAX: added, or there is no model */
    bool is_io_quantisation; /* may run on the CPU, as nd_model_node says */
    bool is_constant;        /* computed from constants: folded away when the session is made */
    bool is_inferred;     /* not in the assignment, but the provider follows: it lies between nodes of one fused
                             piece, or all unknown nodes of its operator are on one provider, or a profile names
                             it. It may also be gone */
    bool is_contradicted; /* the profile has a kernel of it on another provider than the assignment says */
    const char *profile_provider; /* what the profile says; "" when it has no kernel of this name */
    double profile_us;            /* per run, without the first; NaN when the profile has no kernel of it */
    double flops;                 /* of one inference; NaN: a shape or the operator is not known */
    size_t piece;                 /* SIZE_MAX: in none */
};

/* A quantised (or float) tensor of the model: where the layer ran that makes it. */
struct nd_placed_tensor {
    const char *name;
    const char *provider; /* "" unknown */
    enum nd_where where;
};

/* Nodes that run together: a fused subgraph of the NPU's provider, or connected nodes of another provider that
 * no other piece lies between. */
struct nd_placed_piece {
    const char *provider;
    const char *first_node; /* in execution order */
    const char *last_node;
    enum nd_where where;
    bool is_io_quantisation; /* nothing but that, on another provider: as intended */
    size_t n_nodes;
    double flops;     /* of those of its nodes whose FLOPs are known */
    double us;        /* per run, without the first; NaN where the profile does not tell */
    double bytes_in;  /* per inference from other pieces and the host; NaN where a size is not known */
    double bytes_out; /* to other pieces and the host */
};

/* Tensors that one piece hands to another. */
struct nd_placed_cut {
    size_t from, to;    /* pieces */
    size_t n_tensors;   /* each counted once */
    size_t n_unsized;   /* of them: size not known */
    double bytes;       /* per inference, of the others */
    const char *tensor; /* the first */
};

/* How much of the model runs on the NPU: 0 .. 1, NaN where it cannot be told. */
struct nd_npu_share {
    double nodes;          /* of the operators whose place is known: nodes of the model without QuantizeLinear,
                              DequantizeLinear and constants; without a model, nodes of the session without what a
                              layout pass added */
    double flops;          /* of the FLOPs of those nodes */
    double time;           /* of the time of all kernels in the profile, without the first run */
    size_t n_npu, n_off;   /* nodes that count above */
    size_t n_unknown;      /* nodes whose place is not known; not in any share */
    size_t n_unsized;      /* nodes of known place whose FLOPs are not known; not in the share of FLOPs */
    size_t n_runs;         /* of the profile, without the first */
    double npu_us, all_us; /* per run; NaN without a profile */
};

/* Events of the provider's own profile (its CSV), summed by identifier. */
struct nd_provider_event {
    const char *message;    /* "EXECUTE", "NODE", ... */
    const char *identifier; /* "" where it was NULL */
    const char *unit;       /* "US", "CYCLES", ... */
    size_t n;
    double total;
};

struct nd_placement_report {
    bool is_npu;                 /* the device is meant to be an NPU */
    const char *wanted_provider; /* "" for a device without one */
    struct nd_npu_share share;
    size_t n_nodes;
    const struct nd_placed_node *nodes; /* the model's, in graph order, then those that were added */
    size_t n_tensors;
    const struct nd_placed_tensor *tensors; /* as the capture has them */
    size_t n_pieces;
    const struct nd_placed_piece *pieces; /* in execution order */
    size_t n_cuts;
    const struct nd_placed_cut *cuts; /* by from, then to */
    size_t n_events;
    const struct nd_provider_event *events;
    /* What could not be used and why: a profile that is cut off, a CSV of another version. */
    size_t n_problems;
    const char *const *problems;
};

/* What the capture says of where the model's nodes ran: from its nodes, its log "profile" (ONNX Runtime's JSON)
 * and its log "qnn-profile" (the provider's CSV). Kernels are told apart by their provider, never by name.
 *
 * model may be NULL: then the nodes are those of the capture as they are, FLOPs are NaN and there are no
 * pieces. A node of the model that the assignment does not name is unknown, never "on the CPU". A node that was
 * renamed
 * ("NAME_token_N") is matched when exactly one node of the same operator claims the name.
 *
 * FLOPs, of one inference: Conv 2 N Co Ho Wo (Ci/g) k; ConvTranspose 2 N Ci Hi Wi (Co/g) k; Gemm, MatMul 2 M N
 * K for every batch; Einsum of two operands 2 times the product of all its dimensions; element-wise 1 per
 * element; pooling k per output; reductions 1 per input; Softmax 5, normalisations 8 per element; movement of
 * data 0. QuantizeLinear and DequantizeLinear are element-wise. A model whose shapes are not declared gets them
 * by propagation where that is plain.
 *
 * A profile that cannot be read is a problem in *out, not an error: its share is NaN. ND_ERR_NOT_COMPARABLE
 * (ND_E_COMPARE_MODEL) when the capture is of another model; ND_ERR_MEMORY. The caller calls
 * nd_placement_destroy; both model and capture must outlive *out. */
ND_PUBLIC enum nd_status nd_placement_examine(const struct nd_model *model, const struct nd_capture *capture,
                                              struct nd_placement_report **out, struct nd_error *err);

/* Frees the report and sets *report to NULL; NULL in *report is accepted. */
ND_PUBLIC void nd_placement_destroy(struct nd_placement_report **report);

#ifdef __cplusplus
}
#endif
#endif
