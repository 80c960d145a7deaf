/* Where each node ran, from the assignment, the profile and the file of the provider. docs/science/fallback.md.
 */
#include "compare/placement/placement.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/suffix.h"
#include "core/memory.h"
#include "model/graph/parts.h"

const char *nd_where_name(enum nd_where where)
{
    static const char *const names[] = {"unknown", "npu", "off"};
    assert((size_t)where < sizeof names / sizeof names[0]);
    return names[where];
}

/* ---- what the capture holds ---- */

static const char *find_log(const struct nd_capture *capture, const char *name)
{
    for (size_t i = 0; i < nd_capture_n_logs(capture); i++)
        if (strcmp(nd_capture_log_name(capture, i), name) == 0)
            return nd_capture_log_text(capture, i);
    return NULL;
}

/* A profile that cannot be read is told; that there is none is told by NaN. */
static enum nd_status settle(struct nd_placing *placing, enum nd_status status, bool *has,
                             struct nd_error *problem, struct nd_error *err)
{
    *has = status == ND_OK;
    if (status == ND_ERR_FORMAT)
        status = nd_placing_problem(placing, "%s", problem->message) ? ND_OK : nd_fail_memory(err);
    else if (status != ND_OK)
        status = nd_fail_memory(err);
    return status;
}

static enum nd_status read_profiles(struct nd_placing *placing, struct nd_error *err)
{
    struct nd_error problem = {0};
    const char *text = find_log(placing->capture, "profile");
    enum nd_status status = ND_OK;
    if (text != NULL) {
        status = nd_ort_profile_read("profile", text, strlen(text), &placing->profile, &problem);
        status = settle(placing, status, &placing->has_profile, &problem, err);
    }
    text = find_log(placing->capture, "qnn-profile");
    if (status == ND_OK && text != NULL && text[0] != '\0') {
        status = nd_qnn_csv_read("qnn-profile", text, strlen(text), &placing->csv, &problem);
        status = settle(placing, status, &placing->has_csv, &problem, err);
    }
    return status;
}

static enum nd_status list_events(struct nd_placing *placing, struct nd_error *err)
{
    const struct nd_qnn_csv *csv = &placing->csv;
    bool is_whole = true;
    if (!placing->has_csv)
        return ND_OK;
    if (csv->n_malformed > 0)
        is_whole =
            nd_placing_problem(placing, "profile 'qnn-profile': %zu lines are no rows, the first is line %zu",
                               csv->n_malformed, csv->first_malformed);
    if (csv->is_truncated)
        is_whole = is_whole && nd_placing_problem(placing, "profile 'qnn-profile': the last line is cut off");
    if (csv->n_dropped > 0)
        is_whole = is_whole && nd_placing_problem(placing,
                                                  "profile 'qnn-profile': %zu rows of too many different "
                                                  "events are left out",
                                                  csv->n_dropped);
    if (csv->unknown[0] != '\0')
        is_whole =
            is_whole && nd_placing_problem(placing, "profile 'qnn-profile': not known: %s", csv->unknown);
    placing->events = nd_calloc(csv->n_events, sizeof *placing->events);
    ND_TRY_MEMORY(is_whole && placing->events != NULL, err);
    for (size_t i = 0; i < csv->n_events; i++) {
        const struct nd_qnn_event *event = &csv->events[i];
        placing->events[i] =
            (struct nd_provider_event){event->message, event->identifier, event->unit, event->n, event->total};
    }
    placing->report.n_events = csv->n_events;
    return ND_OK;
}

static enum nd_status list_tensors(struct nd_placing *placing, struct nd_error *err)
{
    size_t n = nd_capture_n_tensors(placing->capture);
    placing->tensors = nd_calloc(n, sizeof *placing->tensors);
    ND_TRY_MEMORY(placing->tensors != NULL, err);
    for (size_t e = 0; e < n; e++) {
        const char *provider = nd_capture_tensor_provider(placing->capture, e);
        placing->tensors[e] = (struct nd_placed_tensor){nd_capture_tensor(placing->capture, e)->name, provider,
                                                        nd_placing_where(placing, provider)};
    }
    placing->report.n_tensors = n;
    return ND_OK;
}

/* Shapes as the model declares them, where it does not as the device showed them, then what follows. */
static enum nd_status weigh_nodes(struct nd_placing *placing, struct nd_error *err)
{
    const struct nd_graph *graph = placing->graph;
    placing->infos = nd_calloc(graph->n_tensors, sizeof *placing->infos);
    ND_TRY_MEMORY(placing->infos != NULL, err);
    nd_infer_declared(placing->model, placing->infos);
    for (size_t e = 0; e < nd_capture_n_tensors(placing->capture); e++) {
        const struct nd_tensor *tensor = nd_capture_tensor(placing->capture, e);
        size_t item = nd_names_find(&graph->names, tensor->onnx_name);
        if (item != ND_NO_INDEX && tensor->shape.rank >= 0 && tensor->dtype != ND_DTYPE_NONE)
            placing->infos[item] = (struct nd_tensor_info){tensor->dtype, tensor->shape};
    }
    nd_infer_propagate(placing->model, placing->infos);
    for (size_t i = 0; i < placing->n_model_nodes; i++)
        placing->nodes[i].flops = nd_node_flops(graph, i, placing->infos);
    return ND_OK;
}

/* ---- shares ---- */

static bool is_quantisation(const struct nd_placed_node *node)
{
    return strcmp(node->op_type, "QuantizeLinear") == 0 || strcmp(node->op_type, "DequantizeLinear") == 0;
}

/* A node that a layout pass added has its operator's name, and a token. */
static bool is_added(const struct nd_placed_node *node)
{
    size_t n = nd_token_stem_bytes(node->name);
    return node->name[n] != '\0' && strlen(node->op_type) == n && memcmp(node->op_type, node->name, n) == 0;
}

/* Operators of the model count: a session that records tensors has other quantisers and Transposes than the
 * model. */
static bool counts(const struct nd_placing *placing, size_t i)
{
    const struct nd_placed_node *node = &placing->nodes[i];
    if (placing->model == NULL)
        return !is_quantisation(node) && !is_added(node);
    return i < placing->n_model_nodes && nd_model_is_operator(placing->model, i);
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : (double)NAN;
}

static void share_time(struct nd_placing *placing)
{
    struct nd_npu_share *share = &placing->report.share;
    const struct nd_ort_profile *profile = &placing->profile;
    double npu = 0, all = 0;
    share->npu_us = share->all_us = share->time = (double)NAN;
    if (!placing->has_profile || profile->n_runs == 0)
        return;
    share->n_runs = profile->n_runs - 1;
    for (size_t i = 0; i < profile->n_kernels; i++) {
        bool is_npu = nd_placing_where(placing, profile->kernels[i].provider) == ND_WHERE_NPU;
        npu += is_npu ? profile->kernels[i].total_us : 0;
        all += profile->kernels[i].total_us;
    }
    if (share->n_runs == 0)
        return;
    share->time = ratio(npu, all);
    share->npu_us = npu / (double)share->n_runs;
    share->all_us = all / (double)share->n_runs;
}

static void share_out(struct nd_placing *placing)
{
    struct nd_npu_share *share = &placing->report.share;
    double npu = 0, all = 0;
    for (size_t i = 0; i < placing->report.n_nodes; i++) {
        const struct nd_placed_node *node = &placing->nodes[i];
        if (!counts(placing, i))
            continue;
        share->n_npu += node->where == ND_WHERE_NPU;
        share->n_off += node->where == ND_WHERE_OFF;
        share->n_unknown += node->where == ND_WHERE_UNKNOWN;
        if (node->where == ND_WHERE_UNKNOWN)
            continue;
        share->n_unsized += isnan(node->flops) ? 1 : 0;
        if (isnan(node->flops))
            continue;
        npu += node->where == ND_WHERE_NPU ? node->flops : 0;
        all += node->flops;
    }
    share->nodes = ratio((double)share->n_npu, (double)(share->n_npu + share->n_off));
    share->flops = ratio(npu, all);
    share_time(placing);
}

/* ---- the report ---- */

static enum nd_status check_model(const struct nd_placing *placing, struct nd_error *err)
{
    const char *sha256 = nd_capture_string(placing->capture, "model", "sha256");
    if (placing->model == NULL || sha256 == NULL || strcmp(sha256, nd_model_sha256(placing->model)) == 0)
        return ND_OK;
    return nd_fail(err, ND_E_COMPARE_MODEL, nd_capture_path(placing->capture),
                   "'%s' is a capture of a different model than '%s' (SHA-256 %.12s instead of %.12s)",
                   nd_capture_path(placing->capture), nd_model_path(placing->model), sha256,
                   nd_model_sha256(placing->model));
}

static enum nd_status examine(struct nd_placing *placing, struct nd_error *err)
{
    ND_TRY(check_model(placing, err));
    ND_TRY(read_profiles(placing, err));
    ND_TRY(nd_placing_match(placing, err));
    ND_TRY(list_tensors(placing, err));
    ND_TRY(list_events(placing, err));
    if (placing->model != NULL)
        ND_TRY(weigh_nodes(placing, err));
    if (placing->model != NULL)
        ND_TRY(nd_placing_cut(placing, err));
    share_out(placing);
    return ND_OK;
}

enum nd_status nd_placement_examine(const struct nd_model *model, const struct nd_capture *capture,
                                    struct nd_placement_report **out, struct nd_error *err)
{
    struct nd_placing *placing = nd_calloc(1, sizeof *placing);
    ND_TRY_MEMORY(placing != NULL, err);
    const char *provider = nd_capture_string(capture, "runtime", "provider");
    placing->model = model;
    placing->graph = model != NULL ? &model->graph : NULL;
    placing->capture = capture;
    placing->report.wanted_provider = provider != NULL ? provider : "";
    placing->report.is_npu = nd_capture_is_called_npu(capture) ||
                             (placing->report.wanted_provider[0] != '\0' &&
                              strcmp(placing->report.wanted_provider, "CPUExecutionProvider") != 0);
    enum nd_status status = examine(placing, err);
    struct nd_placement_report *report = &placing->report;
    report->nodes = placing->nodes;
    report->tensors = placing->tensors;
    report->pieces = placing->pieces;
    report->cuts = placing->cuts;
    report->events = placing->events;
    report->problems = (const char *const *)placing->problems;
    if (status != ND_OK)
        nd_placement_destroy(&report);
    else
        *out = report;
    return status;
}

void nd_placement_destroy(struct nd_placement_report **report)
{
    struct nd_placing *placing = (struct nd_placing *)*report;
    if (placing == NULL)
        return;
    for (size_t i = 0; i < placing->report.n_problems; i++)
        free(placing->problems[i]);
    ND_FREE_ALL(placing->problems, placing->nodes, placing->subgraphs, placing->tensors, placing->pieces,
                placing->cuts, placing->events, placing->infos);
    nd_names_deinit(&placing->run_names);
    nd_ort_profile_deinit(&placing->profile);
    nd_qnn_csv_deinit(&placing->csv);
    free(placing);
    *report = NULL;
}
