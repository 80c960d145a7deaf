/* Shared by the files of placement: what is known while a report is made. */
#pragma once

#include "compare/placement/profiles.h"
#include "model/graph/infer.h"
#include "npudiff/compare/placement.h"

/* The report and what it points to. */
struct nd_placing {
    struct nd_placement_report report; /* first: the report is handed out */
    const struct nd_model *model;      /* nullable */
    const struct nd_capture *capture;
    const struct nd_graph *graph; /* of the model */
    struct nd_placed_node *nodes; /* [report.n_nodes], the model's first */
    int64_t *subgraphs;           /* [report.n_nodes]: as nd_capture_node has them */
    size_t n_model_nodes;
    struct nd_names run_names; /* what the assignment (else the model) calls a node -> node */
    struct nd_placed_tensor *tensors;
    struct nd_placed_piece *pieces;
    struct nd_placed_cut *cuts;
    size_t cuts_capacity;
    struct nd_provider_event *events;
    char **problems;
    size_t problems_capacity;
    struct nd_tensor_info *infos; /* [graph->n_tensors] */
    struct nd_ort_profile profile;
    bool has_profile;
    struct nd_qnn_csv csv;
    bool has_csv;
};

/* Adds to report.problems; false when memory is out. */
bool nd_placing_problem(struct nd_placing *placing, const char *fmt, ...) ND_PRINTF(2, 3);

/* Where a provider is, for this device. */
enum nd_where nd_placing_where(const struct nd_placing *placing, const char *provider);

/* Matches the nodes of the assignment, of the profiles and of the model. */
enum nd_status nd_placing_match(struct nd_placing *placing, struct nd_error *err);
