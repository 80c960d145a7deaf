/* Where nodes ran and what the cuts cost, as JSON (docs/reference/json.md) and as text. */
#include <math.h>
#include <stdio.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "report/text/explain.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

static bool is_quantisation(const struct nd_placed_node *node)
{
    return strcmp(node->op_type, "QuantizeLinear") == 0 || strcmp(node->op_type, "DequantizeLinear") == 0;
}

/* Whether the node should be on the NPU and is known not to be. */
static bool is_fell_back(const struct nd_placed_node *node)
{
    bool is_added = node->model_node == SIZE_MAX;
    return node->where == ND_WHERE_OFF && !node->is_io_quantisation && !node->is_constant &&
           !(is_added && is_quantisation(node));
}

/* Whether it is an import that does not state what computed it. */
static bool is_unstated(const struct nd_placed_device *device)
{
    const char *kind = nd_capture_string(device->capture, "device", "kind");
    return kind != NULL && strcmp(kind, "import") == 0;
}

size_t nd_placed_n_fell_back(const struct nd_placed_device *device)
{
    size_t n = 0;
    for (size_t i = 0; device->report != NULL && device->report->is_npu && i < device->report->n_nodes; i++)
        n += is_fell_back(&device->report->nodes[i]);
    return n;
}

/* An index, or null where there is none. */
static json_t *index_or_null(size_t i)
{
    return i == SIZE_MAX ? json_null() : nd_int(i);
}

static json_t *share_json(const struct nd_npu_share *share)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "nodes", nd_json_known(share->nodes),
                     "flops", nd_json_known(share->flops), "time", nd_json_known(share->time), "n_npu",
                     nd_int(share->n_npu), "n_off", nd_int(share->n_off), "n_unknown", nd_int(share->n_unknown),
                     "n_unsized", nd_int(share->n_unsized), "n_runs", nd_int(share->n_runs), "npu_us",
                     nd_json_known(share->npu_us), "all_us", nd_json_known(share->all_us));
}

static json_t *piece_json(const struct nd_placed_piece *piece)
{
    return json_pack("{s:o, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "provider",
                     nd_json_string(piece->provider), "where", nd_where_name(piece->where), "io_quantisation",
                     piece->is_io_quantisation, "n_nodes", nd_int(piece->n_nodes), "first_node",
                     nd_json_string(piece->first_node), "last_node", nd_json_string(piece->last_node), "flops",
                     nd_json_known(piece->flops), "us", nd_json_known(piece->us), "bytes_in",
                     nd_json_known(piece->bytes_in), "bytes_out", nd_json_known(piece->bytes_out));
}

static json_t *cut_json(const struct nd_placed_cut *cut)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "from", nd_int(cut->from), "to", nd_int(cut->to),
                     "n_tensors", nd_int(cut->n_tensors), "n_unsized", nd_int(cut->n_unsized), "bytes",
                     nd_json_known(cut->bytes), "tensor", nd_json_string(cut->tensor));
}

static json_t *event_json(const struct nd_provider_event *event)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "message", nd_json_string(event->message), "identifier",
                     nd_json_string(event->identifier), "unit", nd_json_string(event->unit), "n",
                     nd_int(event->n), "total", nd_json_known(event->total));
}

static json_t *device_json(const struct nd_placed_device *device)
{
    const struct nd_placement_report *report = device->report;
    const char *chipset = nd_capture_string(device->capture, "device", "chipset");
    const char *failure = nd_capture_string(device->capture, "failure", "message");
    json_t *nodes = json_array(), *tensors = json_array(), *pieces = json_array(), *cuts = json_array();
    json_t *events = json_array(), *problems = json_array();
    for (size_t i = 0; i < report->n_nodes; i++) {
        const struct nd_placed_node *node = &report->nodes[i];
        nd_tree_append(
            nodes,
            json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:b, s:b, s:b, s:b, s:b, s:o, s:o, s:o, s:o}", "name",
                      nd_json_string(node->name), "op_type", nd_json_string(node->op_type), "domain",
                      nd_json_string(node->domain), "provider", nd_json_string(node->provider), "where",
                      nd_where_name(node->where), "renamed_to", nd_json_string(node->renamed_to),
                      "io_quantisation", node->is_io_quantisation, "constant", node->is_constant, "added",
                      node->model_node == SIZE_MAX, "inferred", node->is_inferred, "contradicted",
                      node->is_contradicted, "profile_provider", nd_json_string(node->profile_provider),
                      "profile_us", nd_json_known(node->profile_us), "flops", nd_json_known(node->flops),
                      "piece", index_or_null(node->piece)));
    }
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
                     is_unstated(device) ? json_null() : json_boolean(report->is_npu), "npu_provider",
                     nd_json_string(report->wanted_provider), "n_fell_back",
                     nd_int(nd_placed_n_fell_back(device)), "npu_share", share_json(&report->share), "nodes",
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
    json_array_foreach(rows, i, row) {
        if (strcmp(json_string_value(json_object_get(row, "op_type")), op_type) == 0)
            return row;
    }
    row = json_pack("{s:o, s:i}", "op_type", nd_json_string(op_type), "count", 0);
    nd_tree_append(rows, row);
    return row;
}

/* The rows of the matrix: {"op_type", "count", "cells": [text]}. */
static json_t *matrix_json(const struct nd_placed_device *devices, size_t n_devices)
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
    json_array_foreach(rows, i, row) {
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
                                 matrix_json(devices, n)),
                       out, err);
}

enum { DEVICES_AT_ONCE = 8, SHOWN_NODES = 20, SHOWN_PIECES = 12, SHOWN_IN_ANSWER = 3 };

/* ---- the matrix ---- */

/* The devices from `first` on. */
static void put_columns(struct nd_strbuf *out, const struct nd_placed_device *devices, const json_t *matrix,
                        size_t first, size_t n)
{
    static const char *const keys[DEVICES_AT_ONCE] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"};
    struct nd_report_column columns[DEVICES_AT_ONCE + 3] = {{"op_type", "OPERATOR"}, {"count", "NODES"}};
    json_auto_t *rows = json_array();
    const json_t *row;
    size_t i;
    for (size_t d = 0; d < n; d++)
        columns[d + 2] = (struct nd_report_column){keys[d], devices[first + d].label};
    json_array_foreach(matrix, i, row) {
        json_t *line = json_object();
        json_object_set(line, "op_type", json_object_get(row, "op_type"));
        json_object_set(line, "count", json_object_get(row, "count"));
        for (size_t d = 0; d < n; d++)
            json_object_set(line, keys[d], json_array_get(json_object_get(row, "cells"), first + d));
        nd_tree_append(rows, line);
    }
    nd_rows_put(out, rows, columns);
}

static void put_matrix(struct nd_strbuf *out, const struct nd_placed_device *devices, size_t n_devices)
{
    json_auto_t *matrix = matrix_json(devices, n_devices);
    for (size_t first = 0; first < n_devices; first += DEVICES_AT_ONCE) {
        size_t n = n_devices - first;
        put_columns(out, devices, matrix, first, n < DEVICES_AT_ONCE ? n : DEVICES_AT_ONCE);
        nd_strbuf_puts(out, "\n");
    }
}

/* ---- one device ---- */

static void put_percent(struct nd_strbuf *out, double share, const char *of)
{
    if (isnan(share))
        nd_strbuf_printf(out, "of the %s not known", of);
    else
        nd_strbuf_printf(out, "%s of the %s", ND_PERCENT(share), of);
}

static void put_bytes(struct nd_strbuf *out, double bytes)
{
    if (isnan(bytes))
        nd_strbuf_puts(out, "an unknown number of bytes");
    else if (bytes < 10000)
        nd_strbuf_printf(out, "%.0f B", bytes);
    else if (bytes < 1e7)
        nd_strbuf_printf(out, "%.4g kB", bytes / 1e3);
    else
        nd_strbuf_printf(out, "%.4g MB", bytes / 1e6);
}

static void put_time(struct nd_strbuf *out, double us)
{
    if (us >= 1000)
        nd_strbuf_printf(out, "%.3g ms", us / 1000);
    else
        nd_strbuf_printf(out, "%.3g us", us);
}

static const char *short_name(const char *provider, char buf[48])
{
    const char *end = strstr(provider, "ExecutionProvider");
    snprintf(buf, 48, "%.*s", end != NULL && end > provider ? (int)(end - provider) : 40, provider);
    return buf;
}

static void put_share(struct nd_strbuf *out, const struct nd_placed_device *device)
{
    const struct nd_npu_share *share = &device->report->share;
    nd_strbuf_puts(out, "  NPU share: ");
    put_percent(out, share->nodes, "operators");
    nd_strbuf_printf(out, " (%zu of %zu", share->n_npu, share->n_npu + share->n_off);
    if (share->n_unknown > 0)
        nd_strbuf_printf(out, "; of %zu more it is not known", share->n_unknown);
    nd_strbuf_puts(out, "), ");
    put_percent(out, share->flops, "FLOPs");
    if (share->n_unsized > 0)
        nd_strbuf_printf(out, " (without %zu nodes of unknown size)", share->n_unsized);
    nd_strbuf_puts(out, ", ");
    put_percent(out, share->time, "time");
    if (!isnan(share->time)) {
        nd_strbuf_puts(out, " (");
        put_time(out, share->npu_us);
        nd_strbuf_puts(out, " of ");
        put_time(out, share->all_us);
        nd_strbuf_printf(out, " per run, the first of %zu left out)", share->n_runs + 1);
    } else if (share->n_runs == 0) {
        nd_strbuf_puts(out, " (no profile of more than one run)");
    }
    nd_strbuf_puts(out, "\n");
}

static void put_piece(struct nd_strbuf *out, const struct nd_placement_report *report, size_t i)
{
    const struct nd_placed_piece *piece = &report->pieces[i];
    char buf[48];
    nd_strbuf_printf(out, "    %zu  %s, %zu node%s, '%s'", i + 1,
                     piece->where == ND_WHERE_NPU ? "NPU" : short_name(piece->provider, buf), piece->n_nodes,
                     piece->n_nodes == 1 ? "" : "s", piece->first_node);
    if (piece->n_nodes > 1)
        nd_strbuf_printf(out, " to '%s'", piece->last_node);
    nd_strbuf_puts(out, ": ");
    put_bytes(out, piece->bytes_in);
    nd_strbuf_puts(out, " in, ");
    put_bytes(out, piece->bytes_out);
    nd_strbuf_puts(out, " out");
    if (!isnan(piece->us)) {
        nd_strbuf_puts(out, ", ");
        put_time(out, piece->us);
        nd_strbuf_puts(out, " per run");
    }
    nd_strbuf_printf(out, "%s\n",
                     piece->is_io_quantisation ? " (quantisation of an input or output, as intended)" : "");
}

static void put_pieces(struct nd_strbuf *out, const struct nd_placement_report *report, bool is_verbose)
{
    size_t n_npu = 0, n_shown = is_verbose ? SIZE_MAX : SHOWN_PIECES;
    for (size_t i = 0; i < report->n_pieces; i++)
        n_npu += report->pieces[i].where == ND_WHERE_NPU;
    if (report->n_pieces == 0)
        return;
    nd_strbuf_printf(out, "  %zu piece%s on the NPU, %zu elsewhere:\n", n_npu, n_npu == 1 ? "" : "s",
                     report->n_pieces - n_npu);
    for (size_t i = 0; i < report->n_pieces && i < n_shown; i++)
        put_piece(out, report, i);
    if (report->n_pieces > n_shown)
        nd_strbuf_printf(out, "    and %zu more (-v)\n", report->n_pieces - n_shown);
    if (report->n_cuts > 0)
        nd_strbuf_puts(out, "  handed from piece to piece:\n");
    for (size_t i = 0; i < report->n_cuts && i < n_shown; i++) {
        const struct nd_placed_cut *cut = &report->cuts[i];
        nd_strbuf_printf(out, "    %zu -> %zu  ", cut->from + 1, cut->to + 1);
        if (cut->n_unsized < cut->n_tensors)
            put_bytes(out, cut->bytes);
        if (cut->n_unsized > 0)
            nd_strbuf_printf(out, "%s%zu of unknown size", cut->n_unsized < cut->n_tensors ? " and " : "",
                             cut->n_unsized);
        nd_strbuf_printf(out, " per inference: '%s'", cut->tensor);
        if (cut->n_tensors > 1)
            nd_strbuf_printf(out, " and %zu more", cut->n_tensors - 1);
        nd_strbuf_puts(out, "\n");
    }
    if (report->n_cuts > n_shown)
        nd_strbuf_printf(out, "    and %zu more (-v)\n", report->n_cuts - n_shown);
}

static bool is_unknown(const struct nd_placed_node *node)
{
    return node->where == ND_WHERE_UNKNOWN && !node->is_constant && !node->is_io_quantisation;
}

static void put_nodes(struct nd_strbuf *out, const struct nd_placement_report *report, bool is_verbose,
                      const char *title, bool (*is_meant)(const struct nd_placed_node *node))
{
    size_t n = 0;
    for (size_t i = 0; i < report->n_nodes; i++) {
        if (!is_meant(&report->nodes[i]))
            continue;
        if (n == 0)
            nd_strbuf_printf(out, "  %s:\n", title);
        if (n++ < SHOWN_NODES || is_verbose) {
            const struct nd_placed_node *node = &report->nodes[i];
            char buf[48];
            nd_strbuf_printf(out, "    %s '%s'", node->op_type, node->name);
            if (node->where != ND_WHERE_UNKNOWN)
                nd_strbuf_printf(out, ": %s", short_name(node->provider, buf));
            if (!isnan(node->flops))
                nd_strbuf_printf(out, ", %.6g FLOPs", node->flops);
            if (!isnan(node->profile_us)) {
                nd_strbuf_puts(out, ", ");
                put_time(out, node->profile_us);
                nd_strbuf_puts(out, " per run");
            }
            if (node->model_node == SIZE_MAX)
                nd_strbuf_puts(out, " (added by the runtime)");
            if (node->is_contradicted)
                nd_strbuf_printf(out, " (but the profile says %s)", node->profile_provider);
            nd_strbuf_puts(out, "\n");
        }
    }
    if (n > SHOWN_NODES && !is_verbose)
        nd_strbuf_printf(out, "    and %zu more (-v)\n", n - SHOWN_NODES);
}

static bool is_contradicted(const struct nd_placed_node *node)
{
    return node->is_contradicted;
}

static bool has_places(const struct nd_placed_device *device)
{
    const struct nd_placement_report *report = device->report;
    bool is_any = false;
    for (size_t i = 0; i < report->n_nodes; i++)
        is_any = is_any || report->nodes[i].where != ND_WHERE_UNKNOWN;
    return report->is_npu && is_any;
}

/* What the device did, in half a sentence. */
static void put_state(struct nd_strbuf *out, const struct nd_placed_device *device)
{
    const struct nd_placement_report *report = device->report;
    const char *failure = nd_capture_string(device->capture, "failure", "message");
    const char *stage = nd_capture_string(device->capture, "failure", "stage");
    size_t n_fell_back = nd_placed_n_fell_back(device);
    if (device->has_failed)
        nd_strbuf_printf(out, "failed at stage '%s': %s", stage != NULL ? stage : "",
                         failure != NULL ? failure : "");
    else if (is_unstated(device))
        nd_strbuf_puts(out, "not known: the import does not state what ran the model");
    else if (!report->is_npu)
        nd_strbuf_puts(out, "no NPU");
    else if (report->n_nodes == 0)
        nd_strbuf_puts(out, "not known: the capture does not say where any node ran");
    else if (n_fell_back > 0) {
        /* Operators of the model and, apart from them, quantisers and what a layout pass added. */
        const struct nd_npu_share *share = &report->share;
        size_t n_others = n_fell_back > share->n_off ? n_fell_back - share->n_off : 0;
        size_t n_all = share->n_npu + share->n_off + share->n_unknown;
        if (share->n_off == 0)
            nd_strbuf_printf(out, "%zu quantiser%s, but none of %zu operators, %s not on the NPU", n_others,
                             n_others == 1 ? "" : "s", n_all, n_others == 1 ? "is" : "are");
        else
            nd_strbuf_printf(out, "%zu of %zu operators ", share->n_off, n_all);
        if (share->n_off > 0 && n_others > 0)
            nd_strbuf_printf(out, "(and %zu quantiser%s around them) ", n_others, n_others == 1 ? "" : "s");
        if (share->n_off > 0)
            nd_strbuf_printf(out, "%s not on the NPU", share->n_off == 1 ? "is" : "are");
    } else if (report->share.n_unknown > 0)
        nd_strbuf_puts(out, "nothing is known to have left the NPU");
    else
        nd_strbuf_puts(out, "all on the NPU");
}

/* ---- the answer ---- */

/* Names the NPUs, so that nothing is left to be said of them. */
static void put_all_on_npu(struct nd_strbuf *out, const struct nd_placed_device *devices, size_t n,
                           size_t width)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf names = {0};
    size_t n_npu = 0;
    for (size_t d = 0; d < n; d++)
        if (devices[d].report->is_npu)
            nd_strbuf_printf(&names, "%s%s", n_npu++ > 0 ? ", " : "", devices[d].label);
    nd_summary_put(out, width, 0, 2, "OK: the whole model runs on the NPU, on %s", names.text);
    out->failed = out->failed || names.failed;
}

/* Whether the headline has said it: of all NPUs that everything runs there, or that no device is one. */
static bool is_said_already(const struct nd_placed_device *devices, size_t n, size_t d)
{
    bool has_fell_back = false, is_any_npu = false, is_any_unknown = false;
    for (size_t i = 0; i < n; i++) {
        has_fell_back = has_fell_back || devices[i].has_failed || nd_placed_n_fell_back(&devices[i]) > 0;
        is_any_npu = is_any_npu || devices[i].report->is_npu;
        is_any_unknown = is_any_unknown || (devices[i].report->is_npu && !has_places(&devices[i]));
    }
    const struct nd_placement_report *report = devices[d].report;
    if (has_fell_back || is_any_unknown || report->n_problems > 0 || is_unstated(&devices[d]))
        return false;
    return is_any_npu ? report->is_npu && report->share.n_unknown == 0 : true;
}

static void put_headline(struct nd_strbuf *out, const struct nd_placed_device *devices, size_t n, size_t width)
{
    size_t n_npu = 0, n_failed = 0, n_fell_back = 0, n_known = 0;
    for (size_t d = 0; d < n; d++) {
        n_npu += devices[d].report->is_npu;
        n_failed += devices[d].has_failed;
        n_fell_back += nd_placed_n_fell_back(&devices[d]) > 0;
        n_known += has_places(&devices[d]);
    }
    if (n_failed > 0)
        nd_summary_put(out, width, 0, 2, "FAILED: %zu of %zu devices could not run the model", n_failed, n);
    else if (n_fell_back > 0)
        nd_summary_put(out, width, 0, 2,
                       n_npu == 1 ? "FALLBACK: parts of the model run outside the NPU"
                                  : "FALLBACK: parts of the model run outside the NPU on %zu of %zu NPUs",
                       n_fell_back, n_npu);
    else if (n_npu == 0)
        nd_summary_put(out, width, 0, 2, "OK: no device is an NPU");
    else if (n_known < n_npu)
        nd_summary_put(out, width, 0, 2, "UNKNOWN: %zu of %zu NPU captures do not say where nodes ran",
                       n_npu - n_known, n_npu);
    else
        put_all_on_npu(out, devices, n, width);
}

/* What is worth telling of a device, without times: those of two devices are never the same. */
static void put_answer(struct nd_strbuf *out, const struct nd_placed_device *device)
{
    const struct nd_placement_report *report = device->report;
    const struct nd_npu_share *share = &report->share;
    put_state(out, device);
    if (has_places(device) && share->n_off > 0) {
        nd_strbuf_puts(out, "; the NPU has ");
        put_percent(out, share->flops, "FLOPs");
    }
    nd_strbuf_puts(out, "\n");
    size_t n = 0;
    for (size_t pass = 0; pass < 2; pass++) /* quantisers come last: they fall with their operators */
        for (size_t i = 0; i < report->n_nodes && has_places(device); i++)
            if (is_fell_back(&report->nodes[i]) && is_quantisation(&report->nodes[i]) == (pass == 1) &&
                n++ < SHOWN_IN_ANSWER)
                nd_strbuf_printf(out, "  %s '%s'\n", report->nodes[i].op_type, report->nodes[i].name);
    if (n > SHOWN_IN_ANSWER)
        nd_strbuf_printf(out, "  and %zu more (-v shows them)\n", n - SHOWN_IN_ANSWER);
    for (size_t i = 0; i < report->n_problems; i++)
        nd_strbuf_printf(out, "  note: %s\n", report->problems[i]);
}

enum nd_status nd_report_placement_brief(const struct nd_placed_device *devices, size_t n, size_t width,
                                         char **out, struct nd_error *err)
{
    ND_FREED struct nd_strbuf *answers = calloc(n + 1, sizeof *answers);
    struct nd_strbuf buf = {0};
    width = nd_summary_width(width);
    buf.failed = answers == NULL;
    put_headline(&buf, devices, n, width);
    bool has_more = false;
    for (size_t d = 0; d < n && answers != NULL; d++) {
        has_more = has_more || !is_said_already(devices, n, d);
        put_answer(&answers[d], &devices[d]);
    }
    nd_strbuf_puts(&buf, has_more ? "\n" : "");
    for (size_t d = 0; d < n && answers != NULL; d++) {
        struct nd_strbuf labels = {0};
        bool is_said = false;
        for (size_t i = 0; i < n && answers[d].text != NULL; i++) {
            bool is_same = answers[i].text != NULL && strcmp(answers[i].text, answers[d].text) == 0;
            is_said = is_said || (is_same && i < d);
            if (is_same)
                nd_strbuf_printf(&labels, "%s%s", labels.len > 0 ? ", " : "", devices[i].label);
        }
        if (!is_said && !is_said_already(devices, n, d))
            nd_summary_put_lines(&buf, width, "%s: %s", labels.text != NULL ? labels.text : "",
                                 answers[d].text != NULL ? answers[d].text : "");
        buf.failed = buf.failed || labels.failed || answers[d].failed;
        nd_strbuf_deinit(&labels);
    }
    for (size_t d = 0; d < n && answers != NULL; d++)
        nd_strbuf_deinit(&answers[d]);
    return nd_text_end(&buf, out, err);
}

enum nd_status nd_report_placement_text(const struct nd_placed_device *devices, size_t n, bool is_verbose,
                                        char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    put_matrix(&buf, devices, n);
    for (size_t d = 0; d < n; d++) {
        const struct nd_placed_device *device = &devices[d];
        const struct nd_placement_report *report = device->report;
        const char *chipset = nd_capture_string(device->capture, "device", "chipset");
        nd_strbuf_printf(&buf, "%s%s%s%s: ", device->label, chipset != NULL ? " (" : "",
                         chipset != NULL ? chipset : "", chipset != NULL ? ")" : "");
        put_state(&buf, device);
        nd_strbuf_puts(&buf, "\n");
        if (has_places(device)) {
            put_share(&buf, device);
            put_pieces(&buf, report, is_verbose);
            put_nodes(&buf, report, is_verbose, "not on the NPU", is_fell_back);
            if (is_verbose)
                put_nodes(&buf, report, is_verbose, "of unknown place", is_unknown);
            put_nodes(&buf, report, is_verbose, "contradicted by the profile", is_contradicted);
        }
        for (size_t i = 0; i < report->n_problems; i++)
            nd_strbuf_printf(&buf, "  note: %s\n", report->problems[i]);
    }
    return nd_text_end(&buf, out, err);
}

/* ---- where layers were computed: evidence with its weight, both sides of it ---- */

enum { N_LISTED = 12 };

static void put_side(struct nd_strbuf *out, const struct nd_explained_execution *execution, bool is_for_npu,
                     size_t width)
{
    for (size_t i = 0; i < execution->n_evidence; i++) {
        const struct nd_execution_evidence *evidence = &execution->evidence[i];
        if (evidence->is_for_npu == is_for_npu)
            nd_explain_put_wrapped(out, width, 6, "%s the NPU, %.1f bits (%s): %s",
                                   is_for_npu ? "for" : "against", evidence->weight, evidence->kind,
                                   evidence->text);
    }
}

static void put_evidence(struct nd_strbuf *out, const struct nd_explained_execution *execution, size_t width)
{
    bool is_for_npu = execution->balance > 0;
    put_side(out, execution, is_for_npu, width);
    put_side(out, execution, !is_for_npu, width);
}

static const char *words_of(enum nd_execution verdict)
{
    return verdict == ND_EXECUTION_NPU       ? "by the NPU"
           : verdict == ND_EXECUTION_NOT_NPU ? "not by the NPU"
           : verdict == ND_EXECUTION_PARTLY  ? "partly by the NPU"
                                             : "not known where";
}

/* A CPU's layer that was not computed by an NPU is where it should be. */
static bool is_odd(const struct nd_explained_execution *run, const struct nd_explained_execution *layer)
{
    enum nd_execution other = run->is_called_npu ? ND_EXECUTION_NOT_NPU : ND_EXECUTION_NPU;
    return layer->verdict == other || (layer->is_contradictory && layer->verdict == ND_EXECUTION_UNKNOWN);
}

static size_t count_odd(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    size_t n = 0;
    for (size_t s = 0; s < e->n_steps; s++)
        n += is_odd(&device->execution, &device->layers[s].execution);
    return n;
}

/* Whether there is anything to say: of a CPU or an emulated device nobody asks. */
static bool is_worth_telling(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    const struct nd_explained_execution *run = &device->execution;
    bool is_plain =
        (run->verdict == ND_EXECUTION_NPU || run->verdict == ND_EXECUTION_UNKNOWN) && !run->is_contradictory;
    return run->is_called_npu && (count_odd(e, device) > 0 || !is_plain);
}

static bool is_whole(const struct nd_explained_execution *run)
{
    return run->is_called_npu && run->verdict == ND_EXECUTION_NOT_NPU;
}

static void put_line(struct nd_strbuf *out, const struct nd_explained_execution *run, size_t width)
{
    char unknown[48] = "";
    if (run->n_unknown > 0)
        snprintf(unknown, sizeof unknown, ", %zu not known", run->n_unknown);
    nd_explain_put_wrapped(out, width, 2, "computed %s: %zu of its layers by the NPU, %zu not%s",
                           is_whole(run) ? "by the CPU, the whole run" : words_of(run->verdict), run->n_npu,
                           run->n_not_npu, unknown);
}

void nd_explain_put_execution_line(struct nd_strbuf *out, const struct nd_explanation *e,
                                   const struct nd_explained_device *device, size_t width)
{
    if (is_worth_telling(e, device))
        put_line(out, &device->execution, width);
}

void nd_explain_put_execution(struct nd_strbuf *out, const struct nd_explanation *e,
                              const struct nd_explained_device *device, size_t width, bool with_layers)
{
    const struct nd_explained_execution *run = &device->execution;
    size_t n = 0;
    if (!is_worth_telling(e, device) && !(run->is_called_npu && with_layers))
        return;
    put_line(out, run, width);
    put_evidence(out, run, width);
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_execution *layer = &device->layers[s].execution;
        bool is_shown = with_layers ? layer->n_evidence > 0 : !is_whole(run) && is_odd(run, layer);
        if (is_shown && (n++ < N_LISTED || with_layers)) {
            nd_explain_put_wrapped(out, width, 4, "'%s' (%s): %s%s%s", e->steps[s].name, e->steps[s].op_types,
                                   words_of(layer->verdict), layer->why_unknown != NULL ? ", " : "",
                                   layer->why_unknown != NULL ? layer->why_unknown : "");
            put_evidence(out, layer, width);
        }
    }
    if (n > N_LISTED && !with_layers)
        nd_strbuf_printf(out, "    and %zu more\n", n - N_LISTED);
}
