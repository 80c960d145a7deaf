#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/placement_report.h"
#include "cli/rows.h"

enum { DEVICES_AT_ONCE = 8, SHOWN_NODES = 20, SHOWN_PIECES = 12 };

/* ---- the matrix ---- */

static void print_columns(const struct placement_result *result, const json_t *matrix, size_t first, size_t n)
{
    static const char *const keys[DEVICES_AT_ONCE] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"};
    struct nd_report_column columns[DEVICES_AT_ONCE + 3] = {{"op_type", "OPERATOR"}, {"count", "NODES"}};
    json_t *rows = json_array();
    const json_t *row;
    size_t i;
    for (size_t d = 0; d < n; d++)
        columns[d + 2] = (struct nd_report_column){keys[d], result->devices[first + d].label};
    json_array_foreach(matrix, i, row)
    {
        json_t *line = json_object();
        json_object_set(line, "op_type", json_object_get(row, "op_type"));
        json_object_set(line, "count", json_object_get(row, "count"));
        for (size_t d = 0; d < n; d++)
            json_object_set(line, keys[d], json_array_get(json_object_get(row, "cells"), first + d));
        json_array_append_new(rows, line);
    }
    cli_print_table(rows, columns);
    json_decref(rows);
}

static void print_matrix(const struct placement_result *result)
{
    json_t *matrix = placement_matrix(result);
    for (size_t first = 0; first < result->n_devices; first += DEVICES_AT_ONCE) {
        size_t n = result->n_devices - first;
        print_columns(result, matrix, first, n < DEVICES_AT_ONCE ? n : DEVICES_AT_ONCE);
        putchar('\n');
    }
    json_decref(matrix);
}

/* ---- one device ---- */

static void print_percent(double share, const char *of)
{
    if (isnan(share))
        printf("of the %s not known", of);
    else
        printf("%.4g %% of the %s", 100 * share, of);
}

static void print_bytes(double bytes)
{
    if (isnan(bytes))
        printf("an unknown number of bytes");
    else if (bytes < 10000)
        printf("%.0f B", bytes);
    else if (bytes < 1e7)
        printf("%.4g kB", bytes / 1e3);
    else
        printf("%.4g MB", bytes / 1e6);
}

static void print_time(double us)
{
    if (us >= 1000)
        printf("%.3g ms", us / 1000);
    else
        printf("%.3g us", us);
}

static const char *short_name(const char *provider, char buf[48])
{
    const char *end = strstr(provider, "ExecutionProvider");
    snprintf(buf, 48, "%.*s", end != NULL && end > provider ? (int)(end - provider) : 40, provider);
    return buf;
}

static void print_share(const struct placement_device *device)
{
    const struct nd_npu_share *share = &device->report->share;
    printf("  NPU share: ");
    print_percent(share->nodes, "nodes");
    printf(" (%zu of %zu", share->n_npu, share->n_npu + share->n_off);
    if (share->n_unknown > 0)
        printf("; of %zu more it is not known", share->n_unknown);
    printf("), ");
    print_percent(share->flops, "FLOPs");
    if (share->n_unsized > 0)
        printf(" (without %zu nodes of unknown size)", share->n_unsized);
    printf(", ");
    print_percent(share->time, "time");
    if (!isnan(share->time)) {
        printf(" (");
        print_time(share->npu_us);
        printf(" of ");
        print_time(share->all_us);
        printf(" per run, the first of %zu left out)", share->n_runs + 1);
    } else if (share->n_runs == 0) {
        printf(" (no profile of more than one run)");
    }
    putchar('\n');
}

static void print_piece(const struct nd_placement_report *report, size_t i)
{
    const struct nd_placed_piece *piece = &report->pieces[i];
    char buf[48];
    printf("    %zu  %s, %zu node%s, '%s'", i + 1,
           piece->where == ND_WHERE_NPU ? "NPU" : short_name(piece->provider, buf), piece->n_nodes,
           piece->n_nodes == 1 ? "" : "s", piece->first_node);
    if (piece->n_nodes > 1)
        printf(" to '%s'", piece->last_node);
    printf(": ");
    print_bytes(piece->bytes_in);
    printf(" in, ");
    print_bytes(piece->bytes_out);
    printf(" out");
    if (!isnan(piece->us)) {
        printf(", ");
        print_time(piece->us);
        printf(" per run");
    }
    printf("%s\n", piece->is_io_quantisation ? " (quantisation of an input or output, as intended)" : "");
}

static void print_cut(const struct nd_placed_cut *cut)
{
    printf("    %zu -> %zu  ", cut->from + 1, cut->to + 1);
    if (cut->n_unsized < cut->n_tensors)
        print_bytes(cut->bytes);
    if (cut->n_unsized > 0)
        printf("%s%zu of unknown size", cut->n_unsized < cut->n_tensors ? " and " : "", cut->n_unsized);
    printf(" per inference: '%s'", cut->tensor);
    if (cut->n_tensors > 1)
        printf(" and %zu more", cut->n_tensors - 1);
    putchar('\n');
}

static void print_pieces(const struct nd_placement_report *report, bool is_verbose)
{
    size_t n_npu = 0, n_shown = is_verbose ? SIZE_MAX : SHOWN_PIECES;
    for (size_t i = 0; i < report->n_pieces; i++)
        n_npu += report->pieces[i].where == ND_WHERE_NPU;
    if (report->n_pieces == 0)
        return;
    printf("  %zu piece%s on the NPU, %zu elsewhere:\n", n_npu, n_npu == 1 ? "" : "s",
           report->n_pieces - n_npu);
    for (size_t i = 0; i < report->n_pieces && i < n_shown; i++)
        print_piece(report, i);
    if (report->n_pieces > n_shown)
        printf("    and %zu more (-v)\n", report->n_pieces - n_shown);
    if (report->n_cuts > 0)
        printf("  handed from piece to piece:\n");
    for (size_t i = 0; i < report->n_cuts && i < n_shown; i++)
        print_cut(&report->cuts[i]);
    if (report->n_cuts > n_shown)
        printf("    and %zu more (-v)\n", report->n_cuts - n_shown);
}

static void print_node(const struct nd_placed_node *node)
{
    char buf[48];
    printf("    %s '%s'", node->op_type, node->name);
    if (node->where != ND_WHERE_UNKNOWN)
        printf(": %s", short_name(node->provider, buf));
    if (!isnan(node->flops))
        printf(", %.6g FLOPs", node->flops);
    if (!isnan(node->profile_us)) {
        printf(", ");
        print_time(node->profile_us);
        printf(" per run");
    }
    if (node->model_node == SIZE_MAX)
        printf(" (added by the runtime)");
    if (node->is_contradicted)
        printf(" (but the profile says %s)", node->profile_provider);
    putchar('\n');
}

static bool is_unknown(const struct nd_placed_node *node)
{
    return node->where == ND_WHERE_UNKNOWN && !node->is_constant && !node->is_io_quantisation;
}

static void print_nodes(const struct nd_placement_report *report, bool is_verbose, const char *title,
                        bool (*is_meant)(const struct nd_placed_node *node))
{
    size_t n = 0;
    for (size_t i = 0; i < report->n_nodes; i++) {
        if (!is_meant(&report->nodes[i]))
            continue;
        if (n == 0)
            printf("  %s:\n", title);
        if (n++ < SHOWN_NODES || is_verbose)
            print_node(&report->nodes[i]);
    }
    if (n > SHOWN_NODES && !is_verbose)
        printf("    and %zu more (-v)\n", n - SHOWN_NODES);
}

static bool is_contradicted(const struct nd_placed_node *node)
{
    return node->is_contradicted;
}

static void print_device(const struct placement_device *device, bool is_verbose)
{
    const struct nd_placement_report *report = device->report;
    const char *chipset = nd_capture_string(device->capture, "device", "chipset");
    const char *failure = nd_capture_string(device->capture, "failure", "message");
    const char *stage = nd_capture_string(device->capture, "failure", "stage");
    size_t n_fallen = placement_n_fallen(device);
    printf("%s%s%s%s: ", device->label, chipset != NULL ? " (" : "", chipset != NULL ? chipset : "",
           chipset != NULL ? ")" : "");
    if (device->has_failed)
        printf("failed at stage '%s': %s\n", stage != NULL ? stage : "", failure != NULL ? failure : "");
    else if (placement_is_unstated(device))
        printf("not known: the import does not state what ran the model\n");
    else if (!report->is_npu)
        printf("no NPU\n");
    else if (report->n_nodes == 0)
        printf("not known: the capture does not say where any node ran\n");
    else if (n_fallen > 0)
        printf("%zu node%s not on the NPU\n", n_fallen, n_fallen == 1 ? " is" : "s are");
    else if (report->share.n_unknown > 0)
        printf("nothing is known to have left the NPU\n");
    else
        printf("all on the NPU\n");
    if (report->is_npu && report->n_nodes > 0 && report->share.n_npu + report->share.n_off > 0) {
        print_share(device);
        print_pieces(report, is_verbose);
        print_nodes(report, is_verbose, "not on the NPU", placement_is_fallen);
        if (is_verbose)
            print_nodes(report, is_verbose, "of unknown place", is_unknown);
        print_nodes(report, is_verbose, "contradicted by the profile", is_contradicted);
    }
    for (size_t i = 0; i < report->n_problems; i++)
        printf("  note: %s\n", report->problems[i]);
}

void placement_print(const struct placement_result *result)
{
    print_matrix(result);
    for (size_t d = 0; d < result->n_devices; d++)
        print_device(&result->devices[d], result->is_verbose);
}
