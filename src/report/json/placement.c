#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "report/text/report_placement.h"
#include "report/text/tree.h"

bool nd_placed_is_fell_back(const struct nd_placed_node *node)
{
    bool is_added = node->model_node == SIZE_MAX;
    bool is_quantisation =
        strcmp(node->op_type, "QuantizeLinear") == 0 || strcmp(node->op_type, "DequantizeLinear") == 0;
    return node->where == ND_WHERE_OFF && !node->is_io_quantisation && !node->is_constant &&
           !(is_added && is_quantisation);
}

bool nd_placed_is_unstated(const struct nd_placed_device *device)
{
    const char *kind = nd_capture_string(device->capture, "device", "kind");
    return kind != NULL && strcmp(kind, "import") == 0;
}

size_t nd_placed_n_fell_back(const struct nd_placed_device *device)
{
    size_t n = 0;
    for (size_t i = 0; device->report != NULL && device->report->is_npu && i < device->report->n_nodes; i++)
        n += nd_placed_is_fell_back(&device->report->nodes[i]);
    return n;
}

static json_t *count(size_t n)
{
    return json_integer((json_int_t)n);
}

/* An index, or null where there is none. */
static json_t *index_or_null(size_t i)
{
    return i == SIZE_MAX ? json_null() : count(i);
}

static json_t *share_json(const struct nd_npu_share *share)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "nodes", nd_json_known(share->nodes),
                     "flops", nd_json_known(share->flops), "time", nd_json_known(share->time), "n_npu",
                     count(share->n_npu), "n_off", count(share->n_off), "n_unknown", count(share->n_unknown),
                     "n_unsized", count(share->n_unsized), "n_runs", count(share->n_runs), "npu_us",
                     nd_json_known(share->npu_us), "all_us", nd_json_known(share->all_us));
}

static json_t *node_json(const struct nd_placed_node *node)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:b, s:b, s:b, s:b, s:b, s:o, s:o, s:o, s:o}", "name",
                     nd_json_string(node->name), "op_type", nd_json_string(node->op_type), "domain",
                     nd_json_string(node->domain), "provider", nd_json_string(node->provider), "where",
                     nd_where_name(node->where), "renamed_to", nd_json_string(node->renamed_to),
                     "io_quantisation", node->is_io_quantisation, "constant", node->is_constant, "added",
                     node->model_node == SIZE_MAX, "inferred", node->is_inferred, "contradicted",
                     node->is_contradicted, "profile_provider", nd_json_string(node->profile_provider),
                     "profile_us", nd_json_known(node->profile_us), "flops", nd_json_known(node->flops),
                     "piece", index_or_null(node->piece));
}

static json_t *piece_json(const struct nd_placed_piece *piece)
{
    return json_pack("{s:o, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "provider",
                     nd_json_string(piece->provider), "where", nd_where_name(piece->where), "io_quantisation",
                     piece->is_io_quantisation, "n_nodes", count(piece->n_nodes), "first_node",
                     nd_json_string(piece->first_node), "last_node", nd_json_string(piece->last_node), "flops",
                     nd_json_known(piece->flops), "us", nd_json_known(piece->us), "bytes_in",
                     nd_json_known(piece->bytes_in), "bytes_out", nd_json_known(piece->bytes_out));
}

static json_t *cut_json(const struct nd_placed_cut *cut)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "from", count(cut->from), "to", count(cut->to),
                     "n_tensors", count(cut->n_tensors), "n_unsized", count(cut->n_unsized), "bytes",
                     nd_json_known(cut->bytes), "tensor", nd_json_string(cut->tensor));
}

static json_t *event_json(const struct nd_provider_event *event)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "message", nd_json_string(event->message), "identifier",
                     nd_json_string(event->identifier), "unit", nd_json_string(event->unit), "n",
                     count(event->n), "total", nd_json_known(event->total));
}

static json_t *device_json(const struct nd_placed_device *device)
{
    const struct nd_placement_report *report = device->report;
    const char *chipset = nd_capture_string(device->capture, "device", "chipset");
    const char *failure = nd_capture_string(device->capture, "failure", "message");
    json_t *nodes = json_array(), *tensors = json_array(), *pieces = json_array(), *cuts = json_array();
    json_t *events = json_array(), *problems = json_array();
    for (size_t i = 0; i < report->n_nodes; i++)
        nd_tree_append(nodes, node_json(&report->nodes[i]));
    for (size_t i = 0; i < report->n_tensors; i++)
        nd_tree_append(tensors, json_pack("{s:o, s:o, s:s}", "name", nd_json_string(report->tensors[i].name),
                                          "provider", nd_json_string(report->tensors[i].provider), "where",
                                          nd_where_name(report->tensors[i].where)));
    for (size_t i = 0; i < report->n_pieces; i++)
        nd_tree_append(pieces, piece_json(&report->pieces[i]));
    for (size_t i = 0; i < report->n_cuts; i++)
        nd_tree_append(cuts, cut_json(&report->cuts[i]));
    for (size_t i = 0; i < report->n_events; i++)
        nd_tree_append(events, event_json(&report->events[i]));
    for (size_t i = 0; i < report->n_problems; i++)
        nd_tree_append(problems, nd_json_string(report->problems[i]));
    return json_pack("{s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "uri",
                     nd_json_string(device->uri), "label", nd_json_string(device->label), "chipset",
                     nd_json_string(chipset != NULL ? chipset : ""), "status",
                     nd_capture_state_name(nd_capture_state(device->capture)), "failure",
                     nd_json_string(failure != NULL ? failure : ""), "is_npu",
                     nd_placed_is_unstated(device) ? json_null() : json_boolean(report->is_npu), "npu_provider",
                     nd_json_string(report->wanted_provider), "n_fell_back",
                     count(nd_placed_n_fell_back(device)), "npu_share", share_json(&report->share), "nodes",
                     nodes, "tensors", tensors, "pieces", pieces, "cuts", cuts, "provider_events", events,
                     "problems", problems);
}

/* ---- the matrix ---- */

static void cell_text(const struct nd_placed_device *device, const char *op_type, char *text, size_t size)
{
    const struct nd_placement_report *report = device->report;
    size_t n = 0, n_npu = 0, n_off = 0;
    const char *provider = NULL;
    bool is_one = true;
    for (size_t i = 0; i < report->n_nodes; i++) {
        const struct nd_placed_node *node = &report->nodes[i];
        if (node->model_node == SIZE_MAX || node->is_constant || node->is_io_quantisation ||
            strcmp(node->op_type, op_type) != 0)
            continue;
        n++;
        n_npu += node->where == ND_WHERE_NPU;
        n_off += node->where == ND_WHERE_OFF;
        if (node->where == ND_WHERE_OFF) {
            is_one = is_one && (provider == NULL || strcmp(provider, node->provider) == 0);
            provider = node->provider;
        }
    }
    size_t n_unknown = n - n_npu - n_off;
    if (device->has_failed && n_npu + n_off == 0)
        snprintf(text, size, "failed");
    else if (n_npu + n_off == 0)
        snprintf(text, size, "unknown");
    else if (n_off == 0 && n_unknown == 0)
        snprintf(text, size, "NPU");
    else if (n_npu == 0 && n_unknown == 0 && is_one)
        snprintf(text, size, "%.*s",
                 (int)strcspn(provider, "E") > 0 && strstr(provider, "ExecutionProvider") != NULL
                     ? (int)(strstr(provider, "ExecutionProvider") - provider)
                     : 40,
                 provider);
    else if (n_unknown > 0)
        snprintf(text, size, "%zu of %zu, %zu unknown", n_npu, n, n_unknown);
    else
        snprintf(text, size, "%zu of %zu", n_npu, n);
}

/* Index of the row of that operator, which is added when it is new. */
static json_t *find_row(json_t *rows, const char *op_type)
{
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "op_type")), op_type) == 0)
            return row;
    }
    row = json_pack("{s:o, s:i}", "op_type", nd_json_string(op_type), "count", 0);
    nd_tree_append(rows, row);
    return row;
}

json_t *nd_placement_matrix(const struct nd_placed_device *devices, size_t n_devices)
{
    json_t *rows = json_array(), *row;
    const struct nd_placement_report *first = devices[0].report;
    size_t i;
    for (size_t n = 0; n < first->n_nodes; n++) {
        const struct nd_placed_node *node = &first->nodes[n];
        if (node->model_node == SIZE_MAX || node->is_constant || node->is_io_quantisation)
            continue;
        row = find_row(rows, node->op_type);
        nd_tree_set(row, "count", json_integer(json_integer_value(json_object_get(row, "count")) + 1));
    }
    json_array_foreach(rows, i, row)
    {
        json_t *cells = json_array();
        for (size_t d = 0; d < n_devices; d++) {
            char text[80];
            cell_text(&devices[d], json_string_value(json_object_get(row, "op_type")), text, sizeof text);
            nd_tree_append(cells, nd_json_string(text));
        }
        nd_tree_set(row, "cells", cells);
    }
    return rows;
}

enum nd_status nd_report_placement_json(const struct nd_model *model, const struct nd_placed_device *devices,
                                        size_t n, char **out, struct nd_error *err)
{
    json_t *list = json_array();
    for (size_t d = 0; d < n; d++)
        nd_tree_append(list, device_json(&devices[d]));
    return nd_tree_end(ND_DOCUMENT_PLACEMENT,
                       json_pack("{s:o, s:s, s:o, s:o}", "model", nd_json_string(nd_model_path(model)),
                                 "model_sha256", nd_model_sha256(model), "devices", list, "operators",
                                 nd_placement_matrix(devices, n)),
                       out, err);
}
